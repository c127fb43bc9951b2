//! F3: the order of one endpoint's verbs.

use super::stage::{Count, Stage, first_word, line_of};
use super::{About, LitmusSite, Program};
use crate::contract::Rule;
use sherman_fabric::{Caps, Endpoint, FabricError, Space};

/// The descriptions of the programs.
pub(super) const ABOUT: [About; 6] = [
    About {
        name: "write-then-write",
        rule: Rule::F3,
        violation: "a WRITE was visible before the WRITE posted ahead of it in its list",
        weak: "",
    },
    About {
        name: "lists-in-order",
        rule: Rule::F3,
        violation: "a list's WRITE was visible before that of the list posted ahead of it",
        weak: "",
    },
    About {
        name: "host-then-chip",
        rule: Rule::F3,
        violation: "an on-chip WRITE was visible before the WRITE to host memory ahead of it",
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
        violation: "a READ, CAS or FAA saw a fenced WRITE that is behind it in its list",
        weak: "a READ or FAA saw a WRITE without a fence that is behind it",
    },
    About {
        name: "atomic-then-fenced-write",
        rule: Rule::F3,
        violation: "a fenced WRITE was visible before the FAA ahead of it in its list took effect",
        weak: "",
    },
];

pub(super) fn programs<E: Endpoint>() -> Vec<Program<E>> {
    let always = |_: &Caps, _: &LitmusSite| Ok(());
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

/// Posts lists of two WRITEs: the data, then the flag.
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

/// Posts two lists before either has completed.
fn write_lists<E: Endpoint>(stage: &Stage, endpoint: &E) -> Result<Count, FabricError> {
    let mut count = Count::default();
    let counters = sherman_fabric::Counters::default();
    while !stage.is_over() {
        count.rounds += 1;
        let number = count.rounds;
        let (mut first, mut second) = (endpoint.list(stage.place.server), endpoint.list(stage.place.server));
        first.write(Space::Host, stage.place.line(8), &line_of(number).repeat(8));
        second.write(Space::Host, stage.place.line(1), &number.to_le_bytes());
        let posted = [first, second].map(|list| sherman_fabric::execute(endpoint, list, &counters));
        for list in posted {
            endpoint.recycle(sherman_executor::block_on(endpoint, list)?);
        }
    }
    Ok(count)
}

/// Reads the flag. After that READ has completed, reads one line of the data.
fn read_pairs<E: Endpoint>(stage: &Stage, endpoint: &E) -> Result<Count, FabricError> {
    let mut count = Count::default();
    while !stage.is_over() {
        count.rounds += 1;
        let flag = stage.read(endpoint, (Space::Host, stage.place.line(1)))?;
        let line = 8 + count.rounds % 8;
        let data = stage.read(endpoint, (Space::Host, stage.place.line(line)))?;
        if data < flag {
            count.violate(|| {
                format!("the flag was {flag}, but line {line} of the data written before it was {data}")
            });
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
            count.violate(|| {
                format!("the on-chip flag was {flag}, but line {line} of host memory was {data}")
            });
        }
    }
    Ok(count)
}

/// Writes and reads the participant's own line in one list.
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
            count.violate(|| format!("a list wrote {number}, but its READ behind the WRITE returned {seen}"));
        }
        endpoint.recycle(list);
    }
    Ok(count)
}

/// Uses two lines of the participant's own: a READ, an FAA, then a WRITE of both lines, fenced or not.
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
                count
                    .violate(|| format!("READ and FAA returned {seen:?}, but WRITE {number} is behind them"));
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
            count.violate(|| format!("the flag was {flag}, but the sum written before it was {sum}"));
        }
    }
    Ok(count)
}
