//! F1 and F2: what a READ sees of concurrent WRITEs.

use super::stage::{Count, Stage, line_of, words};
use super::{About, Program, about};
use crate::contract::Rule;
use sherman_fabric::{Endpoint, FabricError, Space, WorkList};

/// Number of lines of a node.
const LINES: u64 = 16;

/// The descriptions of the programs.
pub(super) const ABOUT: [About; 3] = [
    about(
        "whole-lines",
        Rule::F1,
        "a READ of 1 KiB saw a 64-byte line that mixes two WRITEs",
        "two lines of one READ came from two WRITEs",
    ),
    about("part-of-a-line", Rule::F1, "a READ saw a part of a WRITE of 40 bytes inside a line", ""),
    about(
        "read-is-fresh",
        Rule::F2,
        "a READ returned data that was overwritten before the READ was posted",
        "a READ did not fetch its lines in ascending order",
    ),
];

pub(super) fn programs<E: Endpoint>() -> Vec<Program<E>> {
    vec![
        Program { about: ABOUT[0], needs: |_, _| Ok(()), roles: [write_nodes, read_lines], after: None },
        Program { about: ABOUT[1], needs: |_, _| Ok(()), roles: [write_parts, read_parts], after: None },
        Program { about: ABOUT[2], needs: |_, _| Ok(()), roles: [write_ascending, read_fresh], after: None },
    ]
}

/// Repeatedly fills all lines with one number.
fn write_nodes<E: Endpoint>(stage: &Stage, endpoint: &E) -> Result<Count, FabricError> {
    stage.repeat(|count| {
        let node = line_of(count.rounds).repeat(LINES as usize);
        stage.send(endpoint, |list| list.write(Space::Host, stage.place.host, &node))
    })
}

/// Reads the first `lines` lines, as words.
fn read_words<E: Endpoint>(stage: &Stage, endpoint: &E, lines: u64) -> Result<Vec<u64>, FabricError> {
    let read = |list: &mut WorkList| list.read(Space::Host, stage.place.host, 64 * lines as u32);
    stage.post(endpoint, read, |list, read| words(list, read).collect())
}

fn read_lines<E: Endpoint>(stage: &Stage, endpoint: &E) -> Result<Count, FabricError> {
    stage.repeat(|count| {
        let words = read_words(stage, endpoint, LINES)?;
        for (number, line) in words.chunks(8).enumerate() {
            if line.iter().any(|word| *word != line[0]) {
                count.violate(|| format!("line {number} was {line:?}"));
            }
        }
        count.weak += u64::from(words.iter().step_by(8).any(|first| *first != words[0]));
        Ok(())
    })
}

const PART: std::ops::Range<usize> = 11..51;

/// Changes part of a line. The part does not begin at a word.
fn write_parts<E: Endpoint>(stage: &Stage, endpoint: &E) -> Result<Count, FabricError> {
    let at = stage.place.line(1) + PART.start as u64;
    stage.repeat(|count| {
        let part = [count.rounds as u8; PART.end - PART.start];
        stage.send(endpoint, |list| list.write(Space::Host, at, &part))
    })
}

fn read_parts<E: Endpoint>(stage: &Stage, endpoint: &E) -> Result<Count, FabricError> {
    stage.repeat(|count| {
        let look = |list: &WorkList, read| {
            let line = list.bytes(read);
            let (part, rest) = (&line[PART], [&line[..PART.start], &line[PART.end..]].concat());
            if part.iter().any(|byte| *byte != part[0]) || rest.iter().any(|byte| *byte != 0) {
                count.violate(|| format!("the line was {line:?}"));
            }
        };
        stage.post(endpoint, |list| list.read(Space::Host, stage.place.line(1), 64), look)
    })
}

/// Writes a number into every line, in ascending order, and publishes the last completed number.
fn write_ascending<E: Endpoint>(stage: &Stage, endpoint: &E) -> Result<Count, FabricError> {
    let most = u64::from(endpoint.caps().max_verbs).min(LINES);
    stage.repeat(|count| {
        stage.send(endpoint, |list| {
            for line in 0..most {
                list.write(Space::Host, stage.place.line(line), &line_of(count.rounds));
            }
        })?;
        stage.tell(count.rounds);
        Ok(())
    })
}

fn read_fresh<E: Endpoint>(stage: &Stage, endpoint: &E) -> Result<Count, FabricError> {
    let most = u64::from(endpoint.caps().max_verbs).min(LINES);
    stage.repeat(|count| {
        let complete = stage.told();
        let firsts: Vec<u64> = read_words(stage, endpoint, most)?.into_iter().step_by(8).collect();
        if let Some(line) = firsts.iter().position(|first| *first < complete) {
            count.violate(|| {
                format!("line {line} held WRITE {}, but WRITE {complete} had completed", firsts[line])
            });
        }
        // Lines are written in ascending order. Counts a READ in which a later line is older than an earlier
        // one.
        count.weak += u64::from(!firsts.is_sorted());
        Ok(())
    })
}
