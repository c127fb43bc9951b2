//! F3: the order of one endpoint's verbs.

use super::stage::{Count, Stage, first_word, line_of};
use super::{About, Place, Program};
use crate::contract::Rule;
use crate::{Caps, Endpoint, FabricError, Space};

/// What the programs are about.
pub(super) const ABOUT: [About; 6] = [
    About {
        name: "write-then-write",
        rule: Rule::F3,
        violation: "a WRITE was seen before the one posted ahead of it in its list",
        weak: "",
    },
    About {
        name: "lists-in-order",
        rule: Rule::F3,
        violation: "a list's WRITE was seen before that of the list posted ahead of it",
        weak: "",
    },
    About {
        name: "host-then-chip",
        rule: Rule::F3,
        violation: "an on-chip WRITE was seen before the one to host memory ahead of it",
        weak: "",
    },
    About {
        name: "read-own-write",
        rule: Rule::F3,
        violation: "a READ missed the WRITE ahead of it in its list",
        weak: "",
    },
    About {
        name: "fenced-write",
        rule: Rule::F3,
        violation: "a fenced WRITE was seen by a READ, CAS or FAA ahead of it in its list",
        weak: "without the fence, it was",
    },
    About {
        name: "atomic-then-fenced-write",
        rule: Rule::F3,
        violation: "a fenced WRITE was seen before the FAA ahead of it in its list took effect",
        weak: "",
    },
];

pub(super) fn programs<E: Endpoint>() -> Vec<Program<E>> {
    let always = |_: &Caps, _: &Place| Ok(());
    vec![
        Program { about: ABOUT[0], needs: always, roles: [write_pairs, read_pairs], after: None },
        Program { about: ABOUT[1], needs: always, roles: [write_lists, read_pairs], after: None },
        Program {
            about: ABOUT[2],
            needs: |_, place| if place.on_chip.is_some() { Ok(()) } else { Err("no on-chip memory") },
            roles: [write_to_both, read_from_both],
            after: None,
        },
        Program { about: ABOUT[3], needs: always, roles: [read_own::<E, 2>, read_own::<E, 3>], after: None },
        Program {
            about: ABOUT[4],
            needs: always,
            roles: [overtake::<E, 4, true>, overtake::<E, 6, false>],
            after: None,
        },
        Program { about: ABOUT[5], needs: always, roles: [add_then_flag, read_flag_then_sum], after: None },
    ]
}

/// A list of two WRITEs: data, then flag.
fn write_pairs<E: Endpoint>(stage: &Stage, endpoint: &E) -> Result<Count, FabricError> {
    let mut count = Count::default();
    while !stage.is_over() {
        count.rounds += 1;
        let number = count.rounds;
        let (list, _) = stage.post(endpoint, |list| {
            list.write(Space::Host, stage.place.line(8), &line_of(number).repeat(8));
            list.write(Space::Host, stage.place.line(1), &number.to_le_bytes())
        })?;
        endpoint.recycle(list);
    }
    Ok(count)
}

/// Two lists, posted before either has completed.
fn write_lists<E: Endpoint>(stage: &Stage, endpoint: &E) -> Result<Count, FabricError> {
    let mut count = Count::default();
    let counters = crate::Counters::default();
    while !stage.is_over() {
        count.rounds += 1;
        let number = count.rounds;
        let (mut first, mut second) = (endpoint.list(stage.place.server), endpoint.list(stage.place.server));
        first.write(Space::Host, stage.place.line(8), &line_of(number).repeat(8));
        second.write(Space::Host, stage.place.line(1), &number.to_le_bytes());
        let posted = [first, second].map(|list| crate::execute(endpoint, list, &counters));
        for list in posted {
            endpoint.recycle(sherman_executor::block_on(endpoint, list)?);
        }
    }
    Ok(count)
}

/// The flag, and when that has arrived the last line of the data.
fn read_pairs<E: Endpoint>(stage: &Stage, endpoint: &E) -> Result<Count, FabricError> {
    let mut count = Count::default();
    while !stage.is_over() {
        count.rounds += 1;
        let flag = stage.read(endpoint, (Space::Host, stage.place.line(1)))?;
        let line = 8 + count.rounds % 8;
        let data = stage.read(endpoint, (Space::Host, stage.place.line(line)))?;
        if data < flag {
            count.violate(|| format!("the flag was {flag}, line {line} of the data behind it {data}"));
        }
    }
    Ok(count)
}

fn write_to_both<E: Endpoint>(stage: &Stage, endpoint: &E) -> Result<Count, FabricError> {
    let mut count = Count::default();
    let (space, word) = stage.place.word(0);
    while !stage.is_over() {
        count.rounds += 1;
        let number = count.rounds;
        let (list, _) = stage.post(endpoint, |list| {
            list.write(Space::Host, stage.place.line(8), &line_of(number).repeat(8));
            list.write(space, word, &number.to_le_bytes())
        })?;
        endpoint.recycle(list);
    }
    Ok(count)
}

fn read_from_both<E: Endpoint>(stage: &Stage, endpoint: &E) -> Result<Count, FabricError> {
    let mut count = Count::default();
    while !stage.is_over() {
        count.rounds += 1;
        let flag = stage.read(endpoint, stage.place.word(0))?;
        let line = 8 + count.rounds % 8;
        let data = stage.read(endpoint, (Space::Host, stage.place.line(line)))?;
        if data < flag {
            count.violate(|| format!("the on-chip flag was {flag}, line {line} of host memory {data}"));
        }
    }
    Ok(count)
}

/// Each its own line: a WRITE and a READ of it in one list.
fn read_own<E: Endpoint, const LINE: u64>(stage: &Stage, endpoint: &E) -> Result<Count, FabricError> {
    let mut count = Count::default();
    let at = stage.place.line(LINE);
    while !stage.is_over() {
        count.rounds += 1;
        let number = count.rounds;
        let (list, read) = stage.post(endpoint, |list| {
            list.write(Space::Host, at, &number.to_le_bytes());
            list.read(Space::Host, at, 8)
        })?;
        let seen = first_word(&list, read);
        if seen != number {
            count.violate(|| format!("{number} was written, and {seen} read behind it"));
        }
        endpoint.recycle(list);
    }
    Ok(count)
}

/// Each its own two lines: a READ, an FAA, and a WRITE of both lines behind them, fenced or not.
fn overtake<E: Endpoint, const LINE: u64, const FENCED: bool>(
    stage: &Stage,
    endpoint: &E,
) -> Result<Count, FabricError> {
    let mut count = Count::default();
    let (read_at, add_at) = (stage.place.line(LINE), stage.place.line(LINE + 1));
    while !stage.is_over() {
        count.rounds += 1;
        let number = count.rounds;
        let (list, (read, add)) = stage.post(endpoint, |list| {
            let read = list.read(Space::Host, read_at, 8);
            let add = list.faa(Space::Host, add_at, 0);
            let both = line_of(number).repeat(2);
            let _ = match FENCED {
                true => list.write_fenced(Space::Host, read_at, &both),
                false => list.write(Space::Host, read_at, &both),
            };
            (read, add)
        })?;
        let seen = [first_word(&list, read), list.old(add)];
        endpoint.recycle(list);
        if seen.contains(&number) {
            if FENCED {
                count.violate(|| format!("READ and FAA brought {seen:?}, WRITE {number} was behind them"));
            } else {
                count.weak += 1;
            }
        }
    }
    Ok(count)
}

fn add_then_flag<E: Endpoint>(stage: &Stage, endpoint: &E) -> Result<Count, FabricError> {
    let mut count = Count::default();
    while !stage.is_over() {
        count.rounds += 1;
        let number = count.rounds;
        let (list, _) = stage.post(endpoint, |list| {
            list.faa(Space::Host, stage.place.line(2), 1);
            list.write_fenced(Space::Host, stage.place.line(3), &number.to_le_bytes())
        })?;
        endpoint.recycle(list);
    }
    Ok(count)
}

fn read_flag_then_sum<E: Endpoint>(stage: &Stage, endpoint: &E) -> Result<Count, FabricError> {
    let mut count = Count::default();
    while !stage.is_over() {
        count.rounds += 1;
        let flag = stage.read(endpoint, (Space::Host, stage.place.line(3)))?;
        let sum = stage.read(endpoint, (Space::Host, stage.place.line(2)))?;
        if sum < flag {
            count.violate(|| format!("the flag was {flag}, the sum that it follows {sum}"));
        }
    }
    Ok(count)
}
