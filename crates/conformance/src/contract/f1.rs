//! F1: an aligned unit is read and written atomically; nothing larger is.
//!
//! Writers fill units, or ranges inside them, with one byte value at a time. In every READ each such range
//! must be one value. A mixture is a torn unit. Bytes without a writer stay zero. A writer does not undo what
//! another writer wrote beside it. A backend that writes a part of a unit by reading and rewriting the whole
//! would do so.

use super::actor::{Actor, fill, uniform, word_at};
use super::report::{Breach, Rule};
use super::scenario::{Scenario, always, on_chip, role, scenario};
use super::stage::Facts;
use sherman_fabric::{Endpoint, Space};
use std::ops::Range;

/// Units that are written and read as a whole.
const UNITS: u64 = 12;

pub(super) fn scenarios<E: Endpoint + 'static>() -> Vec<Scenario<E>> {
    vec![
        scenario(Rule::F1, "whole_units_are_never_torn", always, |_| {
            vec![
                role(0, |actor| write_whole_units(actor, UNITS)),
                role(0, |actor| read_whole_units(actor, 1)),
                role(1, |actor| read_whole_units(actor, 1)),
            ]
        }),
        scenario(Rule::F1, "two_writers_of_a_unit_never_mix", always, |_| {
            vec![
                role(0, |actor| write_whole_units(actor, 2)),
                role(1, |actor| write_whole_units(actor, 2)),
                role(1, |actor| read_whole_units(actor, 2)),
            ]
        }),
        scenario(Rule::F1, "parts_of_a_unit_are_written_atomically_and_alone", always, |_| {
            vec![
                role(0, |actor| write_parts(actor, 0)),
                role(1, |actor| write_parts(actor, 1)),
                role(0, write_across_a_border),
                role(1, |actor| read_parts(actor, 3)),
            ]
        }),
        scenario(
            Rule::F1,
            "an_atomic_leaves_the_rest_of_its_unit_alone",
            |facts| if facts.unit() >= 16 { Ok(()) } else { Err("a unit is one word") },
            |_| {
                vec![
                    role(0, bump_first_word),
                    role(1, write_other_words),
                    role(0, |a| read_beside_atomic(a, 2)),
                ]
            },
        ),
        scenario(Rule::F1, "on_chip_words_are_never_torn", on_chip, |_| {
            vec![
                role(0, write_chip_words),
                role(1, write_chip_words),
                role(1, |actor| read_chip_words(actor, 2)),
            ]
        }),
    ]
}

/// A nonzero byte that differs from round to round and from writer to writer.
fn value<E: Endpoint>(actor: &Actor<E>, round: u64) -> u8 {
    1 + ((round * 4 + actor.index()) % 251) as u8
}

async fn write_whole_units<E: Endpoint>(actor: Actor<E>, units: u64) -> Result<(), Breach> {
    let facts = actor.facts();
    actor.meet().await;
    for round in actor.observed_rounds() {
        let first = actor.below(units);
        let count = 1 + actor.below((units - first).min(4));
        let data = vec![value(&actor, round); count as usize * facts.unit()];
        actor.write(Space::Host, facts.host(first), &data).await?;
    }
    actor.stage().finish();
    Ok(())
}

async fn read_whole_units<E: Endpoint>(actor: Actor<E>, writers: u64) -> Result<(), Breach> {
    let facts = actor.facts();
    actor.meet().await;
    while actor.looks_on(writers) {
        let bytes = actor.read(Space::Host, facts.host(0), UNITS as usize * facts.unit()).await?;
        for (index, unit) in bytes.chunks_exact(facts.unit()).enumerate() {
            actor.check(uniform(unit).is_some(), || format!("unit {index} is torn: {unit:02x?}"))?;
        }
    }
    Ok(())
}

/// The ranges of a unit that two writers own. They do not lie on word borders, and no participant writes the
/// bytes around them.
fn part(facts: &Facts, which: usize) -> Range<usize> {
    let unit = facts.unit();
    [1..unit * 3 / 8, unit / 2..unit - 1][which].clone()
}

/// Units whose parts have two writers.
const PARTED: u64 = 4;
/// The first of the two units across whose border the third writer writes.
const BORDER: u64 = PARTED;

async fn write_parts<E: Endpoint>(actor: Actor<E>, which: usize) -> Result<(), Breach> {
    let facts = actor.facts();
    let part = part(facts, which);
    actor.meet().await;
    for round in actor.observed_rounds() {
        let (unit, value) = (actor.below(PARTED), value(&actor, round));
        let offset = facts.host(unit) + part.start as u64;
        actor.write(Space::Host, offset, &vec![value; part.len()]).await?;
        let found = actor.read(Space::Host, offset, part.len()).await?;
        actor.check(uniform(&found) == Some(value), || {
            format!(
                "the only writer of bytes {part:?} of unit {unit} wrote {value:#x} and then read {found:02x?}"
            )
        })?;
    }
    actor.stage().finish();
    Ok(())
}

async fn write_across_a_border<E: Endpoint>(actor: Actor<E>) -> Result<(), Breach> {
    let facts = actor.facts();
    let half = facts.unit() / 2;
    actor.meet().await;
    for round in actor.observed_rounds() {
        let data = vec![value(&actor, round); 2 * half];
        actor.write(Space::Host, facts.host(BORDER) + half as u64, &data).await?;
    }
    actor.stage().finish();
    Ok(())
}

async fn read_parts<E: Endpoint>(actor: Actor<E>, writers: u64) -> Result<(), Breach> {
    let facts = actor.facts();
    let unit = facts.unit();
    let (left, right) = (part(facts, 0), part(facts, 1));
    actor.meet().await;
    while actor.looks_on(writers) {
        let bytes = actor.read(Space::Host, facts.host(0), (BORDER as usize + 2) * unit).await?;
        let (parted, border) = bytes.split_at(BORDER as usize * unit);
        for bytes in parted.chunks_exact(unit) {
            let whole = uniform(&bytes[left.clone()]).is_some() && uniform(&bytes[right.clone()]).is_some();
            actor.check(whole, || format!("{left:?} or {right:?} is torn: {bytes:02x?}"))?;
            let gaps = [&bytes[..left.start], &bytes[left.end..right.start], &bytes[right.end..]].concat();
            actor.check(uniform(&gaps) == Some(0), || {
                format!("a WRITE changed bytes outside its range: {bytes:02x?}")
            })?;
        }
        for (index, half) in border.chunks_exact(unit / 2).enumerate() {
            let fits = uniform(half).is_some_and(|byte| byte == 0 || index == 1 || index == 2);
            actor.check(fits, || {
                format!("quarter {index} of two units written across their border: {half:02x?}")
            })?;
        }
    }
    Ok(())
}

/// Adding this to a word keeps its halves equal.
const BOTH_HALVES: u64 = 0x1_0000_0001;

async fn bump_first_word<E: Endpoint>(actor: Actor<E>) -> Result<(), Breach> {
    let facts = actor.facts();
    actor.meet().await;
    for round in actor.observed_rounds() {
        let before = (round - 1) * BOTH_HALVES;
        let mut list = actor.list();
        let id = match round % 2 {
            0 => list.faa(Space::Host, facts.host(0), BOTH_HALVES),
            _ => list.cas(Space::Host, facts.host(0), before, before + BOTH_HALVES),
        };
        let old = actor.run(list).await?.old(id);
        actor.check(old == before, || {
            format!("the only writer of a word left {before:#x} in it, but its atomic found {old:#x}")
        })?;
    }
    actor.stage().finish();
    Ok(())
}

async fn write_other_words<E: Endpoint>(actor: Actor<E>) -> Result<(), Breach> {
    let facts = actor.facts();
    let (offset, len) = (facts.host(0) + 8, facts.unit() - 8);
    actor.meet().await;
    for round in actor.observed_rounds() {
        let value = value(&actor, round);
        actor.write(Space::Host, offset, &vec![value; len]).await?;
        let found = actor.read(Space::Host, offset, len).await?;
        actor.check(uniform(&found) == Some(value), || {
            format!("wrote {value:#x} beside a word that atomics change, and then read {found:02x?}")
        })?;
    }
    actor.stage().finish();
    Ok(())
}

async fn read_beside_atomic<E: Endpoint>(actor: Actor<E>, writers: u64) -> Result<(), Breach> {
    let facts = actor.facts();
    actor.meet().await;
    while actor.looks_on(writers) {
        let bytes = actor.read(Space::Host, facts.host(0), facts.unit()).await?;
        let word = word_at(&bytes, 0);
        actor.check(word >> 32 == word & 0xffff_ffff, || format!("an atomic's word is torn: {word:#x}"))?;
        actor.check(uniform(&bytes[8..]).is_some(), || {
            format!("the unit beside an atomic is torn: {bytes:02x?}")
        })?;
    }
    Ok(())
}

/// On-chip words under test.
const CHIP_WORDS: u64 = 3;

async fn write_chip_words<E: Endpoint>(actor: Actor<E>) -> Result<(), Breach> {
    let facts = actor.facts();
    actor.meet().await;
    for round in actor.observed_rounds() {
        let word = u64::from(value(&actor, round)) * 0x0101_0101_0101_0101;
        let offset = facts.chip(actor.below(CHIP_WORDS));
        actor.write(Space::OnChip, offset, &fill(word, 8)).await?;
    }
    actor.stage().finish();
    Ok(())
}

async fn read_chip_words<E: Endpoint>(actor: Actor<E>, writers: u64) -> Result<(), Breach> {
    let facts = actor.facts();
    actor.meet().await;
    while actor.looks_on(writers) {
        let mut list = actor.list();
        let mut reads: Vec<_> =
            (0..CHIP_WORDS).map(|index| list.read(Space::OnChip, facts.chip(index), 8)).collect();
        reads.push(list.read(Space::OnChip, facts.chip(0), 8 * CHIP_WORDS as u32));
        let list = actor.run(list).await?;
        for word in reads.iter().flat_map(|read| list.bytes(*read).chunks_exact(8)) {
            actor.check(uniform(word).is_some(), || format!("an on-chip word is torn: {word:02x?}"))?;
        }
        actor.endpoint().recycle(list);
    }
    Ok(())
}
