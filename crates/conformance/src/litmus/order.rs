//! F3: the order of one endpoint's verbs.

use super::stage::{Count, Stage, first_word, line_of};
use super::{About, LitmusSite, Program, about};
use crate::contract::Rule;
use sherman_fabric::{Caps, Endpoint, FabricError, Space, WorkList};

/// The descriptions of the programs.
pub(super) const ABOUT: [About; 6] = [
    about(
        "write-then-write",
        Rule::F3,
        "a WRITE was visible before the WRITE posted ahead of it in its list",
        "",
    ),
    about(
        "lists-in-order",
        Rule::F3,
        "a list's WRITE was visible before that of the list posted ahead of it",
        "",
    ),
    about(
        "host-then-chip",
        Rule::F3,
        "an on-chip WRITE was visible before the WRITE to host memory ahead of it",
        "",
    ),
    about("read-own-write", Rule::F3, "a READ missed the WRITE ahead of it in its list", ""),
    about(
        "fenced-write",
        Rule::F3,
        "a READ, CAS or FAA saw a fenced WRITE that is behind it in its list",
        "a READ or FAA saw a WRITE without a fence that is behind it",
    ),
    about(
        "atomic-then-fenced-write",
        Rule::F3,
        "a fenced WRITE was visible before the FAA ahead of it in its list took effect",
        "",
    ),
];

pub(super) fn programs<E: Endpoint>() -> Vec<Program<E>> {
    let always = |_: &Caps, _: &LitmusSite| Ok(());
    vec![
        Program {
            about: ABOUT[0],
            needs: always,
            roles: [write_pairs::<E, false>, read_pairs::<E, false>],
            after: None,
        },
        Program { about: ABOUT[1], needs: always, roles: [write_lists, read_pairs::<E, false>], after: None },
        Program {
            about: ABOUT[2],
            needs: |_, place| if place.on_chip.is_some() { Ok(()) } else { Err("no on-chip memory") },
            roles: [write_pairs::<E, true>, read_pairs::<E, true>],
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

/// Where the flag is that is written after the data.
fn flag<const ON_CHIP: bool>(stage: &Stage) -> (Space, u64) {
    if ON_CHIP { stage.place.word(0) } else { (Space::Host, stage.place.line(1)) }
}

/// Posts lists of two WRITEs: the data, then the flag.
fn write_pairs<E: Endpoint, const ON_CHIP: bool>(stage: &Stage, endpoint: &E) -> Result<Count, FabricError> {
    let (space, flag) = flag::<ON_CHIP>(stage);
    stage.repeat(|count| {
        stage.send(endpoint, |list| {
            list.write(Space::Host, stage.place.line(8), &line_of(count.rounds).repeat(8));
            list.write(space, flag, &count.rounds.to_le_bytes())
        })
    })
}

/// Posts two lists before either has completed.
fn write_lists<E: Endpoint>(stage: &Stage, endpoint: &E) -> Result<Count, FabricError> {
    let counters = sherman_fabric::Counters::default();
    stage.repeat(|count| {
        let (mut first, mut second) = (endpoint.list(stage.place.server), endpoint.list(stage.place.server));
        first.write(Space::Host, stage.place.line(8), &line_of(count.rounds).repeat(8));
        second.write(Space::Host, stage.place.line(1), &count.rounds.to_le_bytes());
        let posted = [first, second].map(|list| sherman_fabric::execute(endpoint, list, &counters));
        for list in posted {
            endpoint.recycle(sherman_executor::block_on(endpoint, list)?);
        }
        Ok(())
    })
}

/// Reads the flag. After that READ has completed, reads one line of the data.
fn read_pairs<E: Endpoint, const ON_CHIP: bool>(stage: &Stage, endpoint: &E) -> Result<Count, FabricError> {
    stage.repeat(|count| {
        let flag = stage.read(endpoint, flag::<ON_CHIP>(stage))?;
        let line = 8 + count.rounds % 8;
        let data = stage.read(endpoint, (Space::Host, stage.place.line(line)))?;
        if data < flag {
            count.violate(|| match ON_CHIP {
                true => format!("the on-chip flag was {flag}, but line {line} of host memory was {data}"),
                false => {
                    format!("the flag was {flag}, but line {line} of the data written before it was {data}")
                }
            });
        }
        Ok(())
    })
}

/// Writes and reads the participant's own line in one list.
fn read_own<E: Endpoint, const LINE: u64>(stage: &Stage, endpoint: &E) -> Result<Count, FabricError> {
    let at = stage.place.line(LINE);
    stage.repeat(|count| {
        let number = count.rounds;
        let write_and_read = |list: &mut WorkList| {
            list.write(Space::Host, at, &number.to_le_bytes());
            list.read(Space::Host, at, 8)
        };
        let seen = stage.post(endpoint, write_and_read, first_word)?;
        if seen != number {
            count.violate(|| format!("a list wrote {number}, but its READ behind the WRITE returned {seen}"));
        }
        Ok(())
    })
}

/// Uses two lines of the participant's own: a READ, an FAA, then a WRITE of both lines, fenced or not.
fn overtake<E: Endpoint, const LINE: u64, const FENCED: bool>(
    stage: &Stage,
    endpoint: &E,
) -> Result<Count, FabricError> {
    let (read_at, add_at) = (stage.place.line(LINE), stage.place.line(LINE + 1));
    stage.repeat(|count| {
        let number = count.rounds;
        let read_add_write = |list: &mut WorkList| {
            let read = list.read(Space::Host, read_at, 8);
            let add = list.faa(Space::Host, add_at, 0);
            let both = line_of(number).repeat(2);
            let _ = match FENCED {
                true => list.write_fenced(Space::Host, read_at, &both),
                false => list.write(Space::Host, read_at, &both),
            };
            (read, add)
        };
        let seen = stage
            .post(endpoint, read_add_write, |list, (read, add)| [first_word(list, read), list.old(add)])?;
        match (seen.contains(&number), FENCED) {
            (false, _) => {}
            (true, true) => {
                count.violate(|| format!("READ and FAA returned {seen:?}, but WRITE {number} is behind them"))
            }
            (true, false) => count.weak += 1,
        }
        Ok(())
    })
}

fn add_then_flag<E: Endpoint>(stage: &Stage, endpoint: &E) -> Result<Count, FabricError> {
    stage.repeat(|count| {
        stage.send(endpoint, |list| {
            list.faa(Space::Host, stage.place.line(2), 1);
            list.write_fenced(Space::Host, stage.place.line(3), &count.rounds.to_le_bytes())
        })
    })
}

fn read_flag_then_sum<E: Endpoint>(stage: &Stage, endpoint: &E) -> Result<Count, FabricError> {
    stage.repeat(|count| {
        let flag = stage.read(endpoint, (Space::Host, stage.place.line(3)))?;
        let sum = stage.read(endpoint, (Space::Host, stage.place.line(2)))?;
        if sum < flag {
            count.violate(|| format!("the flag was {flag}, but the sum written before it was {sum}"));
        }
        Ok(())
    })
}
