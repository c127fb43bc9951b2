//! How a node of the group behaves in time, and how much it holds.

use crate::NodeId;
use crate::error::OpenError;

/// The settings of one node. All nodes of a group should have the same, apart from `id` and `seed`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The number of this node, from 1. A number belongs to one log permanently: a server that lost its log
    /// joins with a new number, since it may have promised something that it does not remember.
    pub id: NodeId,
    /// The length of a tick in nanoseconds. All other times are counted in ticks.
    pub tick: u64,
    /// Ticks between two heartbeats of a leader.
    pub heartbeat_ticks: u32,
    /// Ticks without a heartbeat after which a follower asks for votes, at least. Each time the node draws a
    /// number between this and twice this. A leader without a majority for so long steps down.
    pub election_ticks: u32,
    /// Ticks after which a proposal or a read without result is given up.
    pub patience_ticks: u32,
    /// How many proposals may wait for their result, and how many reads.
    pub max_pending: usize,
    /// How many bytes a command may have.
    pub max_command: usize,
    /// How many bytes may be on the way to the disk. Above that the node drops messages and refuses
    /// proposals.
    pub max_unsynced: usize,
    /// How many entries the log may have before the node takes a snapshot and drops them.
    pub snapshot_entries: usize,
    /// How many bytes of commands the log may have before the node takes a snapshot and drops them. The log
    /// on disk begins anew after twice as many bytes.
    pub snapshot_bytes: usize,
    /// How many entries before the snapshot stay in memory, for followers that are only a little behind.
    pub keep_entries: usize,
    /// What the node's random numbers follow from.
    pub seed: u64,
    /// Whose log it is: a number of the caller's choice, which the log keeps. See
    /// [`Recovered::owner`](crate::Recovered::owner).
    pub owner: u64,
}

impl Settings {
    /// Settings for node `id`: a tick of 25 ms, heartbeats every 50 ms, elections after 250 to 500 ms.
    pub fn new(id: NodeId, seed: u64) -> Self {
        Self {
            id,
            tick: 25_000_000,
            heartbeat_ticks: 2,
            election_ticks: 10,
            patience_ticks: 80,
            max_pending: 1024,
            max_command: 64 << 10,
            max_unsynced: 8 << 20,
            snapshot_entries: 4096,
            snapshot_bytes: 4 << 20,
            keep_entries: 256,
            seed,
            owner: 0,
        }
    }

    /// Refuses settings that cannot work.
    pub(crate) fn check(&self) -> Result<(), OpenError> {
        let wrong = [
            (self.id == 0, "nodes are numbered from 1"),
            (self.tick == 0, "a tick takes time"),
            (self.heartbeat_ticks == 0, "heartbeats are at least one tick apart"),
            (self.election_ticks <= self.heartbeat_ticks, "elections are rarer than heartbeats"),
            (self.max_pending == 0 || self.max_unsynced == 0, "nothing may wait"),
            (self.snapshot_entries == 0, "a log has at least one entry"),
        ];
        let wrong = wrong.into_iter().find(|(wrong, _)| *wrong);
        wrong.map_or(Ok(()), |(_, what)| Err(OpenError::BadSettings { what }))
    }
}
