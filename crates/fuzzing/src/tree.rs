//! A whole tree in corrupt memory: every operation ends with an answer or a typed error.
//!
//! The target grows a tree on embedded memory. Between operations of all kinds it overwrites nodes, copies
//! them over each other, and makes them point anywhere. It also gives lanes to clients that do not exist, and
//! moves the root word. The answers are not checked, because corrupt memory gives wrong answers. Three things
//! must not happen: a panic, an operation that does not end by its deadline, and a verb outside the memory.
//! The fabric refuses such a verb, and that refusal is not among the accepted errors.

use crate::Reached;
use crate::fixture::{Fixture, MOST_LISTS};
use crate::source::Source;
use sherman_core::{Direction, Error, Loading};
use sherman_executor::block_on;
use std::ops::Bound;

/// Rounds of damage and operations.
const ROUNDS: usize = 6;
/// So short that a waiting client starts to suspect the holder.
const LEASE_NANOS: u64 = 1_000_000;

/// Runs one input.
pub fn run(input: &[u8]) -> Reached {
    let mut source = Source::new(input);
    let mut fixture = Fixture::new(&mut source, LEASE_NANOS);
    let mut reached = Reached::Refused;
    for _ in 0..ROUNDS {
        fixture.find_nodes();
        for _ in 0..source.below(4) {
            fixture.damage(&mut source);
        }
        for _ in 0..=source.below(8) {
            fixture.worker.endpoint().allow(MOST_LISTS);
            match operate(&fixture, &mut source) {
                Ok(()) => {}
                Err(
                    Error::Corrupt { .. }
                    | Error::Timeout { .. }
                    | Error::OutOfMemory
                    | Error::NoSuchTree { .. }
                    | Error::NotEmpty
                    | Error::BadRange,
                ) => reached = Reached::Taken,
                Err(other) => panic!("a lie must not lead to {other:?}"),
            }
        }
        if source.is_empty() {
            break;
        }
    }
    reached
}

/// Runs one operation.
fn operate(fixture: &Fixture, source: &mut Source<'_>) -> Result<(), Error> {
    let what = source.byte();
    let (key, value) = (u64::from(source.byte()).to_be_bytes(), [source.byte(); 8]);
    let (worker, tree, mut out) = (&fixture.worker, &fixture.tree, Vec::new());
    block_on(worker.endpoint(), async {
        let op = worker.op();
        match what % 24 {
            0..=3 => op.get(tree, &key, &mut out).await.map(drop),
            4..=9 => op.insert(tree, &key, &value, &mut out).await.map(drop),
            10..=14 => op.remove(tree, &key, &mut out).await.map(drop),
            15 => op.insert_if_absent(tree, &key, &value, &mut out).await.map(drop),
            16 => op.compare_exchange(tree, &key, Some(&value), Some(&[2; 8]), &mut out).await.map(drop),
            17 | 18 => scan(fixture, source.byte(), &key, &value).await,
            19 => worker.check(tree).await.map(drop),
            20 => op.walk(tree).await.map(drop),
            21 => {
                tree.forget_everything();
                Ok(())
            }
            22 if what >= 192 => worker.drop_tree("t").await.map(drop),
            22 => worker.clear(tree).await.map(drop),
            _ => bulk_load(fixture).await,
        }
    })
}

async fn scan(fixture: &Fixture, how: u8, first: &[u8; 8], last: &[u8; 8]) -> Result<(), Error> {
    let direction = if how & 1 == 0 { Direction::Forward } else { Direction::Backward };
    let (mut first, mut last) = (Bound::Included(&first[..]), Bound::Excluded(&last[..]));
    if how & 2 != 0 {
        first = Bound::Unbounded;
    }
    if how & 4 != 0 {
        last = Bound::Unbounded;
    }
    let mut scan = fixture.worker.scan(&fixture.tree, first, last, direction, usize::from(how >> 4))?;
    let mut entries = 0;
    while fixture.worker.op().refill(&fixture.tree, &mut scan).await? {
        while scan.next().is_some() {
            entries += 1;
            assert!(entries < 100_000, "a scan ends: there is memory for no more than some thousand entries");
        }
    }
    fixture.worker.end_scan(scan);
    Ok(())
}

async fn bulk_load(fixture: &Fixture) -> Result<(), Error> {
    let (op, tree) = (fixture.worker.op(), &fixture.tree);
    if !op.is_empty(tree).await? {
        return Err(Error::NotEmpty);
    }
    let mut loading = Loading::new(tree, 0.8);
    let mut written = Vec::new();
    for number in 0..100_u64 {
        let pushed = loading.push(&op, tree, &number.to_be_bytes(), &[3; 8]).await;
        match pushed {
            Ok(Some(batch)) => written.push(op.write_leaves(tree, &batch).await?),
            Ok(None) => {}
            Err(error) => {
                loading.abandon(&op, tree).await;
                return Err(error);
            }
        }
    }
    for batch in loading.finish(&op).await?.into_iter().flatten() {
        written.push(op.write_leaves(tree, &batch).await?);
    }
    op.complete_load(tree, &mut loading, written).await.map(drop)
}
