//! Measures the speed of the simulator: events and schedules per second of CPU time on one core.
//!
//! `cargo run --release -p sherman-sim -F measure --example sim_rate`

use sherman_fabric::{Counters, Endpoint, Fabric, Space, execute};
use sherman_sim::{Knobs, Pct, Random, Scheduler, Sim, SimConfig};
use std::time::Instant;

const PAGE: u64 = 0x8000;

/// Spawns `clients` clients. Each of them locks a lane, READs a page of `lines` lines, WRITEs it back and
/// releases the lane, `rounds` times.
fn cast(sim: &mut Sim, clients: u64, rounds: u64, lines: u32) {
    for client in 0..clients {
        let Ok(fabric) = sim.join() else { return };
        let Ok(endpoint) = fabric.endpoint() else { return };
        sim.spawn_on(&fabric, 0, "client", async move {
            let counters = Counters::default();
            for _ in 0..rounds {
                let mut list = endpoint.list(0);
                list.faa(Space::OnChip, client * 8, 1);
                let page = list.read(Space::Host, PAGE, lines * 64);
                let Ok(list) = execute(&endpoint, list, &counters).await else { return };
                let mut next = endpoint.list(0);
                next.write(Space::Host, PAGE, list.bytes(page));
                next.write(Space::OnChip, client * 8, &[0; 8]);
                endpoint.recycle(list);
                let Ok(list) = execute(&endpoint, next, &counters).await else { return };
                endpoint.recycle(list);
            }
        });
    }
}

/// Returns the CPU time used so far, in seconds, or the real time if the system does not report CPU time. CPU
/// time excludes other work on the machine.
fn seconds(start: Instant) -> f64 {
    let told = std::fs::read_to_string("/proc/self/schedstat").ok();
    let nanos = told.and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
    nanos.map_or_else(|| start.elapsed().as_secs_f64(), |nanos| nanos / 1e9)
}

fn measure<S: Scheduler>(what: &str, shape: (u64, u64, u32), schedule: impl Fn(u64) -> S) {
    let Ok(mut sim) = Sim::new(&SimConfig::default()) else { return };
    let (mut events, mut verbs, mut schedules) = (0, 0, 0);
    let start = Instant::now();
    let before = seconds(start);
    while start.elapsed().as_secs_f64() < 1.0 {
        sim.rewind_with(Knobs { step_nanos: 100, ..Knobs::swarm(schedules) });
        cast(&mut sim, shape.0, shape.1, shape.2);
        let run = sim.run(&mut schedule(schedules));
        (events, verbs, schedules) = (events + run.steps, verbs + run.verbs, schedules + 1);
    }
    let seconds = seconds(start) - before;
    println!(
        "{what:<30} {:>6.2} M events/s {:>9.0} schedules/s {:>6.0} verbs each",
        events as f64 / seconds / 1e6,
        schedules as f64 / seconds,
        verbs as f64 / schedules as f64,
    );
}

fn main() {
    for shape in [(2, 3, 4), (3, 6, 4), (4, 8, 16), (4, 1000, 16)] {
        let (clients, rounds, lines) = shape;
        let name = format!("{clients} clients x {rounds}, {lines} lines");
        measure(&format!("{name}, random"), shape, Random::new);
        measure(&format!("{name}, pct"), shape, |seed| Pct::new(seed, 3, 1_000));
    }
}
