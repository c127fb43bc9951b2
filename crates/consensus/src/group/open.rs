//! Opens a node: a new group, a node that joins one, or a log from disk.

use super::time::Time;
use super::{Group, Pending, Reads, Writes};
use crate::error::OpenError;
use crate::journal::{Journal, Recovered};
use crate::log::{Log, place};
use crate::machine::StateMachine;
use crate::output::Output;
use crate::settings::Settings;
use crate::wire::{conf_state, snapshot_of};
use raft::eraftpb::{Entry, HardState, Snapshot};
use raft::{Config, RawNode};
use std::collections::{BTreeMap, VecDeque};

/// What a node without a log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The only member of a new group. It leads at once, without timers.
    NewGroup,
    /// A node that another member will add. It waits.
    Join,
}

/// The most bytes of entries in one message.
const MESSAGE_BYTES: u64 = 1 << 20;
/// The most messages with entries on their way to one node.
const MESSAGES_IN_FLIGHT: usize = 64;

impl<S: StateMachine> Group<S> {
    /// Opens a node. `recovered` is what its disk has; `start` says what the node is if that is nothing.
    /// `state` is the state machine before the first command. `now` is the caller's clock in nanoseconds.
    ///
    /// # Errors
    /// [`OpenError`] if the snapshot is not readable or the settings cannot work. Nothing was written.
    pub fn open(
        settings: Settings,
        mut state: S,
        recovered: Option<Recovered>,
        start: Start,
        now: u64,
    ) -> Result<Self, OpenError> {
        settings.check()?;
        let after = recovered.as_ref().map(|recovered| (recovered.segment, recovered.generation));
        let (hard, snapshot, entries) = match recovered {
            Some(found) => (found.hard, found.snapshot, found.entries),
            None => beginning(&settings, &state, start),
        };
        let (index, _) = place(&snapshot);
        if index > 0 && !state.restore(snapshot.get_data()) {
            return Err(OpenError::BadSnapshot);
        }
        let log = Log::new(hard.clone(), snapshot, entries.clone());
        let members = log.members().clone();
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let raw = RawNode::new(&config(&settings, index), log, &logger).map_err(|_| OpenError::BadLog)?;
        let term = hard.term;
        let mut group = Self {
            time: Time::new(&settings, now),
            raw,
            state,
            applied: index,
            members,
            removal: None,
            hard,
            journal: Journal::new(after, settings.owner),
            writes: Writes::default(),
            held: VecDeque::new(),
            pending: Pending::default(),
            reads: Reads::default(),
            snapshots: BTreeMap::new(),
            leader: (term, None),
            leading: 0,
            tickets: 0,
            stopped: None,
            output: Output::default(),
            settings,
        };
        // The log begins anew in the other segment: what a crash cut off is gone for good.
        group.write_base();
        group.note_removal(&entries);
        group.drive(|group| {
            if group.members.get_voters() == [group.settings.id] {
                // Raft refuses only a node that is no voter.
                let _ = group.raw.campaign();
            }
        });
        Ok(group)
    }
}

/// The log of a node that has none on disk.
fn beginning<S: StateMachine>(
    settings: &Settings,
    state: &S,
    start: Start,
) -> (HardState, Snapshot, Vec<Entry>) {
    let (mut hard, mut snapshot) = (HardState::default(), Snapshot::default());
    if start == Start::NewGroup {
        // From index 1 on, so that a node that joins cannot do without the first snapshot: it names the
        // members.
        (hard.term, hard.commit) = (1, 1);
        snapshot = snapshot_of((1, 1), conf_state(vec![settings.id], Vec::new()), state.snapshot());
    }
    (hard, snapshot, Vec::new())
}

fn config(settings: &Settings, applied: u64) -> Config {
    Config {
        id: settings.id,
        election_tick: settings.election_ticks as usize,
        heartbeat_tick: settings.heartbeat_ticks as usize,
        applied,
        max_size_per_msg: MESSAGE_BYTES,
        max_inflight_msgs: MESSAGES_IN_FLIGHT,
        check_quorum: true,
        pre_vote: true,
        max_uncommitted_size: (settings.max_unsynced as u64).max(MESSAGE_BYTES),
        max_committed_size_per_ready: MESSAGE_BYTES,
        ..Config::default()
    }
}
