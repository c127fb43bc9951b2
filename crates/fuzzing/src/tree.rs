//! A whole tree whose memory lies: every operation ends, in an answer or in a typed error.
//!
//! A tree is grown on embedded memory; then nodes are overwritten, copied over each other and made to point anywhere, lanes
//! are taken by nobody and the root word leads elsewhere, between operations of all kinds. Nothing is asked of the answers:
//! who is lied to may lie. What must not happen is a panic, an operation that ends neither by its deadline nor otherwise,
//! or a verb outside the memory: the fabric would refuse it, and that refusal is not among the errors that are let pass.

use crate::Reached;
use crate::lab::{Lab, MOST_LISTS};
use crate::source::Source;
use sherman_core::{Direction, Error, Loading};
use sherman_executor::block_on;
use std::ops::Bound;

/// Rounds of damage and operations.
const ROUNDS: usize = 6;
/// So short that whoever waits comes to suspect others.
const LEASE_NANOS: u64 = 1_000_000;

/// Runs one input.
pub fn run(input: &[u8]) -> Reached {
    let mut source = Source::new(input);
    let mut lab = Lab::new(&mut source, LEASE_NANOS);
    let mut reached = Reached::Refused;
    for _ in 0..ROUNDS {
        lab.find_nodes();
        for _ in 0..source.below(4) {
            lab.damage(&mut source);
        }
        for _ in 0..=source.below(8) {
            lab.worker.endpoint().allow(MOST_LISTS);
            match operate(&lab, &mut source) {
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

/// One operation.
fn operate(lab: &Lab, source: &mut Source<'_>) -> Result<(), Error> {
    let what = source.byte();
    let (key, value) = (u64::from(source.byte()).to_be_bytes(), [source.byte(); 8]);
    let (worker, tree, mut out) = (&lab.worker, &lab.tree, Vec::new());
    block_on(worker.endpoint(), async {
        let op = worker.op();
        match what % 24 {
            0..=3 => op.get(tree, &key, &mut out).await.map(drop),
            4..=9 => op.insert(tree, &key, &value, &mut out).await.map(drop),
            10..=14 => op.remove(tree, &key, &mut out).await.map(drop),
            15 => op.insert_if_absent(tree, &key, &value, &mut out).await.map(drop),
            16 => op.compare_exchange(tree, &key, Some(&value), Some(&[2; 8]), &mut out).await.map(drop),
            17 | 18 => scan(lab, source.byte(), &key, &value).await,
            19 => worker.check(tree).await.map(drop),
            20 => op.walk(tree).await.map(drop),
            21 => {
                tree.forget_everything();
                Ok(())
            }
            22 if what >= 192 => worker.drop_tree("t").await.map(drop),
            22 => worker.clear(tree).await.map(drop),
            _ => bulk_load(lab).await,
        }
    })
}

async fn scan(lab: &Lab, how: u8, first: &[u8; 8], last: &[u8; 8]) -> Result<(), Error> {
    let direction = if how & 1 == 0 { Direction::Forward } else { Direction::Backward };
    let (mut first, mut last) = (Bound::Included(&first[..]), Bound::Excluded(&last[..]));
    if how & 2 != 0 {
        first = Bound::Unbounded;
    }
    if how & 4 != 0 {
        last = Bound::Unbounded;
    }
    let mut scan = lab.worker.scan(&lab.tree, first, last, direction, usize::from(how >> 4))?;
    let mut entries = 0;
    while lab.worker.op().refill(&lab.tree, &mut scan).await? {
        while scan.next().is_some() {
            entries += 1;
            assert!(entries < 100_000, "a scan ends: there is memory for no more than some thousand entries");
        }
    }
    lab.worker.end_scan(scan);
    Ok(())
}

async fn bulk_load(lab: &Lab) -> Result<(), Error> {
    let (op, tree) = (lab.worker.op(), &lab.tree);
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
