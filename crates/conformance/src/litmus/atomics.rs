//! F4: atomics against each other, and locks built from them. F3 where a lock and its data share a list.

use super::stage::{Count, Stage, first_word};
use super::{About, LitmusSite, Program, about};
use crate::contract::Rule;
use sherman_fabric::{Caps, Endpoint, FabricError, Space, WorkList};
use std::time::{Duration, Instant};

/// The descriptions of the programs.
pub(super) const ABOUT: [About; 5] = [
    about("faa-sum", Rule::F4, "two FAAs of one word returned the same value, or one was lost", ""),
    about(
        "cas-increments",
        Rule::F4,
        "two CASes succeeded from the same value, or one was lost",
        "a CAS failed",
    ),
    about(
        "lock-by-write",
        Rule::F4,
        "two clients held a lock (taken by CAS, released by WRITE) at once, or a release was lost",
        "another client held the lock",
    ),
    about(
        "lock-and-read",
        Rule::F3,
        "a READ in the list of the CAS that took the lock missed a WRITE of the previous holder",
        "another client held the lock",
    ),
    about(
        "neighbouring-lanes",
        Rule::F4,
        "a CAS of a neighbouring lane overwrote what the holder wrote to its lane of 16 bits",
        "",
    ),
];

pub(super) fn programs<E: Endpoint>() -> Vec<Program<E>> {
    let always = |_: &Caps, _: &LitmusSite| Ok(());
    let releases = |caps: &Caps, _: &LitmusSite| match caps.write_releases {
        true => Ok(()),
        false => Err("a WRITE does not release a lane here"),
    };
    vec![
        Program { about: ABOUT[0], needs: always, roles: [add, add], after: Some(sum_is_rounds) },
        Program { about: ABOUT[1], needs: always, roles: [increment, increment], after: Some(sum_is_rounds) },
        Program {
            about: ABOUT[2],
            needs: releases,
            roles: [lock_then_count::<E, 1>, lock_then_count::<E, 2>],
            after: Some(count_is_rounds),
        },
        Program {
            about: ABOUT[3],
            needs: |caps, _| match (caps.lock_read, caps.write_releases) {
                (true, true) => Ok(()),
                _ => Err("CAS and READ cannot share a list here, or a WRITE does not release a lane"),
            },
            roles: [lock_and_read::<E, 1>, lock_and_read::<E, 2>],
            after: Some(count_is_rounds),
        },
        Program {
            about: ABOUT[4],
            needs: |caps, _| match (caps.masked_cas, caps.write_releases) {
                (true, true) => Ok(()),
                _ => Err("CAS has no mask, or a WRITE does not release a lane"),
            },
            roles: [hold_lane::<E, 0>, hold_lane::<E, 2>],
            after: None,
        },
    ]
}

fn add<E: Endpoint>(stage: &Stage, endpoint: &E) -> Result<Count, FabricError> {
    let (space, word) = stage.place.word(0);
    let mut last = None;
    stage.repeat(|count| {
        let old = stage.post(endpoint, |list| list.faa(space, word, 1), WorkList::old)?;
        if last.is_some_and(|last| old <= last) {
            count.violate(|| format!("the word went from {last:?} to {old}"));
        }
        last = Some(old);
        Ok(())
    })
}

fn increment<E: Endpoint>(stage: &Stage, endpoint: &E) -> Result<Count, FabricError> {
    let mut count = Count::default();
    let mut seen = 0;
    while !stage.is_over() {
        let old = stage.cas(endpoint, stage.place.word(0), seen, seen + 1)?;
        if old == seen {
            count.rounds += 1;
            seen += 1;
        } else {
            count.weak += 1;
            if old < seen {
                count.violate(|| format!("the word went from {seen} to {old}"));
            }
            seen = old;
        }
    }
    Ok(count)
}

/// Checks that the shared counter equals the number of counted rounds.
fn sum_is_rounds<E: Endpoint>(stage: &Stage, endpoint: &E) -> Result<Count, FabricError> {
    compare(stage.read(endpoint, stage.place.word(0))?, stage.rounds())
}

/// The same for the counter that a lock protects.
fn count_is_rounds<E: Endpoint>(stage: &Stage, endpoint: &E) -> Result<Count, FabricError> {
    compare(stage.read(endpoint, protected(stage))?, stage.rounds())
}

fn compare(found: u64, rounds: u64) -> Result<Count, FabricError> {
    let mut count = Count::default();
    if found != rounds {
        count.violate(|| format!("the clients counted {rounds}, but the word is {found}"));
        count.violations = found.abs_diff(rounds);
    }
    Ok(count)
}

fn protected(stage: &Stage) -> (Space, u64) {
    (Space::Host, stage.place.line(9))
}

/// Adds the release of the lock: a WRITE of the new count, then a WRITE of the lock in the same list.
fn unlock(stage: &Stage, list: &mut WorkList, count: u64) {
    let ((space, word), (count_space, at)) = (stage.place.word(1), protected(stage));
    list.write(count_space, at, &count.to_le_bytes());
    list.write(space, word, &[0; 8]);
}

/// No participant holds the lock this long. After this time its release was lost.
const LOST: Duration = Duration::from_secs(2);

fn lock_then_count<E: Endpoint, const ID: u64>(stage: &Stage, endpoint: &E) -> Result<Count, FabricError> {
    let mut count = Count::default();
    let mut since = None;
    while !stage.is_over() {
        if stage.cas(endpoint, stage.place.word(1), 0, ID)? != 0 {
            count.weak += 1;
            if since.get_or_insert_with(Instant::now).elapsed() > LOST {
                count.violate(|| "the lock was never released".to_owned());
                stage.end();
            }
            continue;
        }
        (since, count.rounds) = (None, count.rounds + 1);
        let now = stage.read(endpoint, protected(stage))?;
        let held = stage.read(endpoint, stage.place.word(1))?;
        if held != ID {
            count.violate(|| format!("client {ID} took the lock, but then the lock held {held}"));
        }
        stage.send(endpoint, |list| unlock(stage, list, now + 1))?;
    }
    Ok(count)
}

fn lock_and_read<E: Endpoint, const ID: u64>(stage: &Stage, endpoint: &E) -> Result<Count, FabricError> {
    let mut count = Count::default();
    let ((space, word), (count_space, at)) = (stage.place.word(1), protected(stage));
    while !stage.is_over() {
        let (taken, now) = stage.post(
            endpoint,
            |list| (list.cas(space, word, 0, ID), list.read(count_space, at, 8)),
            |list, (cas, read)| (list.swapped(cas), first_word(list, read)),
        )?;
        if !taken {
            count.weak += 1;
            continue;
        }
        count.rounds += 1;
        stage.send(endpoint, |list| unlock(stage, list, now + 1))?;
    }
    Ok(count)
}

/// Takes its own lane by masked CAS, looks at it and releases it by WRITE. Another participant does the same
/// with a neighbouring lane of the word.
fn hold_lane<E: Endpoint, const BYTE: u64>(stage: &Stage, endpoint: &E) -> Result<Count, FabricError> {
    let (space, word) = stage.place.word(2);
    let (shift, mask) = (8 * BYTE, 0xffff << (8 * BYTE));
    stage.repeat(|count| {
        let mine = count.rounds % 0xffff + 1;
        let take = |list: &mut WorkList| list.masked_cas(space, word, 0, mine << shift, mask);
        let old = (stage.post(endpoint, take, WorkList::old)? & mask) >> shift;
        let held = (stage.read(endpoint, (space, word))? & mask) >> shift;
        if old != 0 || held != mine {
            count.violate(|| {
                format!(
                    "a client took the lane with {mine}: the lane held {old} before and {held} afterwards"
                )
            });
        }
        stage.send(endpoint, |list| list.write(space, word + BYTE, &[0; 2]))
    })
}
