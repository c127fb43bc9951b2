//! F7: a list that ends in error took effect as a prefix.
//!
//! A list of WRITEs to one unit each has a bad verb somewhere in it. Another client then looks. No verb after
//! the bad verb took effect, and the effects before it have no gap. The tree's crash-atomic lists
//! (`docs/INVARIANTS.md`) are written for exactly these outcomes. A client's death cuts even finer, which
//! only a simulator can show. [`f7_input`](super::f7_input) tests input that must be refused.

use super::actor::{Actor, fill};
use super::report::{Breach, Rule};
use super::scenario::{Scenario, always, role, scenario};
use sherman_fabric::{Endpoint, FabricError, GlobalAddress, Space, WorkList};

/// Verbs of the list. Verb `i` writes unit `i`, except the bad verb.
const VERBS: u64 = 6;
/// Stage words: the round and place of the last bad verb, the last round looked at, and whether the
/// connection is gone.
const FAILED: usize = 0;
const LOOKED: usize = 1;
const CLOSED: usize = 2;

pub(super) fn scenarios<E: Endpoint + 'static>() -> Vec<Scenario<E>> {
    vec![scenario(Rule::F7, "a_list_that_fails_took_effect_as_a_prefix", always, |_| {
        vec![role(0, fail), role(1, look)]
    })]
}

/// Adds a verb that must fail.
fn add_bad_verb(list: &mut WorkList, kind: u64, near: u64, value: u64) {
    let beyond = GlobalAddress::OFFSET_LIMIT - 4096;
    match kind {
        0 => list.read(Space::Host, beyond, 64),
        1 => list.write(Space::Host, beyond, &value.to_le_bytes()),
        2 => list.faa(Space::Host, beyond, 1),
        _ => list.cas(Space::Host, near + 4, 0, value),
    };
}

async fn fail<E: Endpoint>(actor: Actor<E>) -> Result<(), Breach> {
    let (facts, stage) = (actor.facts(), actor.stage());
    actor.meet().await;
    for round in 1..=facts.rounds_together() {
        let (bad, kind) = (actor.below(VERBS), actor.below(4));
        let mut list = actor.list();
        for verb in 0..VERBS {
            if verb == bad {
                add_bad_verb(&mut list, kind, facts.host(verb), round);
            } else {
                list.write(Space::Host, facts.host(verb), &fill(round, facts.unit()));
            }
        }
        match actor.outcome(actor.post(list)).await {
            Err(FabricError::OutOfBounds { .. }) if kind < 3 => {}
            Err(FabricError::Misaligned { .. }) if kind == 3 => {}
            Err(error) => {
                return Err(actor.breach(format_args!("bad verb {kind} ended in the wrong error: {error}")));
            }
            Ok(_) => return Err(actor.breach(format_args!("a list with bad verb {kind} at {bad} completed"))),
        }
        stage.set(FAILED, round << 8 | bad);
        actor.until("the observer to read the effects", |stage| stage.get(LOOKED) == round).await;
        if !still_usable(&actor, facts.host(VERBS), round).await? {
            break;
        }
    }
    stage.set(CLOSED, 1);
    Ok(())
}

async fn look<E: Endpoint>(actor: Actor<E>) -> Result<(), Breach> {
    let (facts, stage) = (actor.facts(), actor.stage());
    actor.meet().await;
    loop {
        actor
            .until("a list to fail", |stage| {
                stage.get(CLOSED) == 1 || stage.get(FAILED) >> 8 > stage.get(LOOKED)
            })
            .await;
        let (round, bad) = (stage.get(FAILED) >> 8, stage.get(FAILED) & 0xff);
        if round == stage.get(LOOKED) {
            return Ok(());
        }
        // Reads the last verb's unit first, with one round trip for each. By F3 a late prefix then cannot
        // look like a gap.
        let mut happened = None;
        for verb in (0..VERBS).rev().filter(|&verb| verb != bad) {
            let value = actor.word(Space::Host, facts.host(verb)).await?;
            if value == round {
                actor.check(verb < bad, || {
                    format!("verb {bad} of the list was bad, but verb {verb} executed")
                })?;
                happened.get_or_insert(verb);
            } else if let Some(later) = happened {
                return Err(
                    actor.breach(format_args!("verb {later} of a failed list executed, verb {verb} did not"))
                );
            }
        }
        stage.set(LOOKED, round);
    }
}

/// Whether the endpoint can still reach the server. If not, it must report that the server is lost.
pub(super) async fn still_usable<E: Endpoint>(
    actor: &Actor<E>,
    offset: u64,
    value: u64,
) -> Result<bool, Breach> {
    let mut list = actor.list();
    list.write(Space::Host, offset, &value.to_le_bytes());
    let read = list.read(Space::Host, offset, 8);
    match actor.outcome(actor.post(list)).await {
        Ok(list) => {
            let found = list.bytes(read) == value.to_le_bytes();
            actor.endpoint().recycle(list);
            actor.check(found, || "after a failed list the endpoint's WRITEs have no effect".to_owned())?;
            Ok(true)
        }
        Err(FabricError::ServerLost { .. }) => Ok(false),
        Err(error) => {
            Err(actor.breach(format_args!("after a failed list the endpoint cannot be used: {error}")))
        }
    }
}
