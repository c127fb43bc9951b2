//! Time series: struct keys ordered by sensor, then time. The program loads a day at once, queries it, adds
//! readings, and trims it.
//!
//! `cargo run -p sherman-tree --example time_series`

use sherman::{BulkOptions, Client, Cluster, Error};

sherman::record! {
    /// Ordered by sensor, then by time, so that the readings of one sensor are adjacent.
    #[derive(Clone, Copy, Debug)]
    struct At: Key {
        sensor: u32,
        second: u64,
    }
}

sherman::record! {
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Reading {
        celsius: f32,
        humidity: Option<u8>,
    }
}

const SENSORS: u32 = 20;
const MINUTE: u64 = 60;
const DAY: u64 = 24 * 60 * MINUTE;

fn measured(sensor: u32, second: u64) -> Reading {
    let hour = (second % DAY) as f32 / 3600.0;
    let celsius = 15.0 + sensor as f32 / 10.0 - 8.0 * (hour * std::f32::consts::TAU / 24.0).cos();
    Reading { celsius, humidity: sensor.is_multiple_of(2).then_some(60) }
}

/// The mean of a sensor's temperatures in a time span.
fn mean(readings: &Client<At, Reading>, sensor: u32, from: u64, to: u64) -> Result<f32, Error> {
    let (mut sum, mut count) = (0.0, 0.0_f32);
    for entry in readings.range(At { sensor, second: from }..At { sensor, second: to }) {
        sum += entry?.1.celsius;
        count += 1.0;
    }
    Ok(sum / count.max(1.0))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cluster = Cluster::open("embedded:?servers=2&memory=64MiB")?;
    let tree = cluster.tree::<At, Reading>("readings")?;

    // A day of every sensor, in order. The load takes no lock, and one round trip per sixteen leaves.
    let day = (0..SENSORS).flat_map(|sensor| {
        (0..DAY).step_by(MINUTE as usize).map(move |second| (At { sensor, second }, measured(sensor, second)))
    });
    let loaded = tree.bulk_load(day, &BulkOptions::new().fill(0.9))?;
    assert_eq!(loaded, u64::from(SENSORS) * DAY / MINUTE);

    let readings = tree.client()?;
    let (night, noon) = (mean(&readings, 7, 0, 3600)?, mean(&readings, 7, DAY / 2, DAY / 2 + 3600)?);
    println!("{loaded} readings; sensor 7: {night:.1} °C at night, {noon:.1} °C at noon");
    assert!(night < 10.0 && noon > 23.0);

    // New readings arrive. The latest reading of a sensor is the entry before the next sensor's first one.
    readings.insert(At { sensor: 7, second: DAY }, measured(7, DAY))?;
    let latest = readings.next_before(At { sensor: 8, second: 0 })?;
    assert_eq!(latest, Some((At { sensor: 7, second: DAY }, measured(7, DAY))));

    // Removes all readings older than six hours. The tree uses their nodes again.
    let mut trimmed = 0;
    for sensor in 0..SENSORS {
        let old: Result<Vec<At>, Error> = readings
            .range(At { sensor, second: 0 }..At { sensor, second: DAY - 6 * 3600 })
            .map(|entry| Ok(entry?.0))
            .collect();
        trimmed += readings.remove_many(&old?)?.iter().flatten().count() as u64;
    }
    let check = tree.check()?;
    println!("{trimmed} trimmed, {} left in {} leaves", check.entries, check.levels[0].nodes);
    assert_eq!(trimmed, loaded * 3 / 4);
    assert_eq!(check.entries, loaded + 1 - trimmed);
    assert!(check.is_clean());
    Ok(())
}
