//! Makes lost copies again (J1-J6 of `docs/REPLICATION.md`).
//!
//! One thread does it while there is anything to make. It copies a volume while clients change it (J2), and
//! compares it again when nobody writes but the primary's CPU (J4). The CPU's stores reach the new copy too
//! by then. They change the tables alone, so the tables are compared once more under the lock.

use super::ReplicatedCluster;
use super::state::{CopyMemory, State};
use crate::memory::Region;
use crate::mirror::{ranges, tables};
use sherman_fabric::control::DIGEST_BYTES;
use sherman_fabric::{Memory, Space};
use sherman_memory_server::cluster::{Command, Making, Phase};
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The interval of looks at whether identities of older epochs have ended.
const PAUSE: Duration = Duration::from_millis(1);

/// What there is to do for a copy.
enum Step {
    /// No copy is being made.
    Over,
    /// Nothing before the state has changed.
    Wait,
    /// J2.
    Open(Making, Pair),
    /// J4, in this epoch, for as long as the state has this stamp.
    Quiet(Making, Pair, u64, u64),
}

/// A primary, and the copy that is being made of it.
type Pair = (Arc<CopyMemory>, Arc<CopyMemory>);

/// Makes copies until there is none to make, or the cluster has gone.
pub(super) fn run(cluster: &Weak<ReplicatedCluster>) {
    while let Some(cluster) = cluster.upgrade() {
        match cluster.locked(next) {
            Step::Over => return,
            Step::Wait => {
                drop(cluster);
                std::thread::sleep(PAUSE);
            }
            Step::Open(Making { copy, .. }, (from, into)) => {
                sync(&from, &into);
                let _ = cluster.command(|now| Command::Copied { now, copy });
            }
            Step::Quiet(Making { copy, .. }, (from, into), epoch, stamp) => {
                sync(&from, &into);
                cluster.locked(|state| {
                    if state.stamp() == stamp {
                        let geometry = from.server.look(|server| *server.geometry());
                        compare(from.server.memory(), into.server.memory(), &tables(&geometry));
                        let now = cluster.now();
                        let _ = state.apply(&Command::Settled { now, copy, epoch });
                    }
                });
            }
        }
    }
}

fn next(state: &mut State) -> Step {
    let makings = state.control().makings();
    if makings.is_empty() {
        state.copier_ended();
        return Step::Over;
    }
    let of = |phase| makings.iter().find(|making| making.phase == phase).copied();
    let quiet = state.control().quiet();
    match (of(Phase::Planned), of(Phase::Copied).filter(|_| quiet)) {
        (Some(making), _) => state.pair(&making).map_or(Step::Wait, |pair| Step::Open(making, pair)),
        (None, Some(making)) => {
            let (epoch, stamp) = (state.control().table().epoch(), state.stamp());
            state.pair(&making).map_or(Step::Wait, |pair| Step::Quiet(making, pair, epoch, stamp))
        }
        (None, None) => Step::Wait,
    }
}

/// Copies everything that a copy must have, and that differs.
fn sync(from: &CopyMemory, into: &CopyMemory) {
    let ranges = from.server.look(ranges);
    compare(from.server.memory(), into.server.memory(), &ranges);
}

/// Copies the blocks of these ranges that differ.
fn compare(from: &Region, into: &Region, ranges: &[Range<u64>]) {
    let block = DIGEST_BYTES as usize;
    let (mut ours, mut theirs) = (vec![0; block], vec![0; block]);
    for range in ranges {
        for at in range.clone().step_by(block) {
            let len = (range.end - at).min(block as u64) as usize;
            from.load(Space::Host, at, &mut ours[..len]);
            into.load(Space::Host, at, &mut theirs[..len]);
            if ours[..len] != theirs[..len] {
                into.store(Space::Host, at, &ours[..len]);
            }
        }
    }
}
