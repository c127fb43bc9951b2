//! F2: a READ's units are fetched in any order, at any time between post and completion, and at no other
//! time.
//!
//! So each unit of a READ has a window. It is not older than the last WRITE that had completed before the
//! READ was posted. It is not newer than the last WRITE that had been posted when the READ completed. A unit
//! from a cache, or fetched ahead, is too old. A unit stored into the buffer after completion changes bytes
//! that the reader already used. (Any order of units is allowed, so it needs no test: no scenario relies on
//! an order.)

use super::actor::{Actor, fill, unit_words};
use super::report::{Breach, Rule};
use super::scenario::{Scenario, always, role, scenario};
use sherman_fabric::{Endpoint, Space};

/// Units with a window each. Stage word `u` holds the last value posted for unit `u`, and word `UNITS + u`
/// the last value completed.
const UNITS: usize = 12;
/// The maximum number of READs in flight.
const IN_FLIGHT: u64 = 3;

pub(super) fn scenarios<E: Endpoint + 'static>() -> Vec<Scenario<E>> {
    vec![
        scenario(Rule::F2, "every_unit_of_a_read_is_from_its_window", always, |_| {
            vec![
                role(0, |actor| bump(actor, 0)),
                role(1, |actor| bump(actor, UNITS / 2)),
                role(0, |actor| read_in_window(actor, 2)),
            ]
        }),
        scenario(Rule::F2, "a_completed_read_does_not_change", always, |_| {
            vec![role(0, |actor| bump(actor, 0)), role(1, |actor| keep_reads(actor, 1))]
        }),
    ]
}

/// Increments random runs of the six units from `first` on. Records in the stage what it posts and what
/// completed.
async fn bump<E: Endpoint>(actor: Actor<E>, first: usize) -> Result<(), Breach> {
    let (facts, stage) = (actor.facts(), actor.stage());
    actor.meet().await;
    for _ in actor.observed_rounds() {
        let start = actor.below(UNITS as u64 / 2) as usize;
        let units = first + start..first + (start + 1 + actor.below(3) as usize).min(UNITS / 2);
        let values: Vec<u64> = units.clone().map(|unit| stage.add(unit, 1) + 1).collect();
        let data: Vec<u8> = values.iter().flat_map(|&value| fill(value, facts.unit())).collect();
        actor.write(Space::Host, facts.host(units.start as u64), &data).await?;
        for (unit, value) in units.zip(values) {
            stage.set(UNITS + unit, value);
        }
    }
    stage.finish();
    Ok(())
}

async fn read_in_window<E: Endpoint>(actor: Actor<E>, writers: u64) -> Result<(), Breach> {
    let (facts, stage) = (actor.facts(), actor.stage());
    actor.meet().await;
    while actor.looks_on(writers) {
        // The reader pauses, so that units fetched ahead, or kept from the last READ, become stale.
        for _ in 0..actor.below(3) * 8 {
            actor.pause().await;
        }
        let mut in_flight = Vec::new();
        for _ in 0..=actor.below(IN_FLIGHT) {
            let completed: Vec<u64> = (0..UNITS).map(|unit| stage.get(UNITS + unit)).collect();
            let mut list = actor.list();
            let read = list.read(Space::Host, facts.host(0), (UNITS * facts.unit()) as u32);
            in_flight.push((completed, read, actor.post(list)));
        }
        for (completed, read, posted) in in_flight {
            let list = actor.done(posted).await?;
            for (unit, value) in unit_words(list.bytes(read), facts.unit()).enumerate() {
                let (oldest, newest) = (completed[unit], stage.get(unit));
                actor.check((oldest..=newest).contains(&value), || {
                    format!(
                        "a READ found WRITE {value} in unit {unit}, but {oldest} completed before the READ \
                         and {newest} is the last posted"
                    )
                })?;
            }
            actor.endpoint().recycle(list);
        }
    }
    Ok(())
}

async fn keep_reads<E: Endpoint>(actor: Actor<E>, writers: u64) -> Result<(), Breach> {
    let (facts, stage) = (actor.facts(), actor.stage());
    let completed = |unit: usize| stage.get(UNITS + unit);
    actor.meet().await;
    while actor.looks_on(writers) {
        let mut list = actor.list();
        let read = list.read(Space::Host, facts.host(0), (UNITS * facts.unit()) as u32);
        let list = actor.run(list).await?;
        let first_look = list.bytes(read).to_vec();
        let seen: u64 = (0..UNITS).map(completed).sum();
        actor
            .until("the writer to overwrite what was read", |stage| {
                stage.finished() >= writers || (0..UNITS).map(completed).sum::<u64>() > seen + 2
            })
            .await;
        actor.read(Space::Host, facts.host(0), facts.unit()).await?;
        actor
            .check(list.bytes(read) == first_look, || "the buffer of a completed READ changed".to_owned())?;
        actor.endpoint().recycle(list);
    }
    Ok(())
}
