//! Why an operation had to retry or wait. Each cause has a counter; none has a log line.

use std::cell::Cell;

sherman_fabric::named! {
    /// A reason to retry or wait.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[repr(usize)]
    #[non_exhaustive]
    pub enum Cause {
        /// The image mixes units of different moments.
        TornNode => "torn_node",
        /// The requested entry was torn.
        TornEntry => "torn_entry",
        /// The READ took so long that versions may have wrapped: 4-bit ones (paper §4.4), or those of lines
        /// (F8).
        SlowRead => "slow_read",
        /// A pointer led to a freed node, a node that does not cover the key, or no node of this tree.
        StalePointer => "stale_pointer",
        /// The node is written but not yet linked.
        NodePending => "node_pending",
        /// The key has moved to a right sibling.
        MovedRight => "moved_right",
        /// Another compute server holds the lane.
        LaneHeld => "lane_held",
        /// Another thread of this compute server holds the lane.
        LocalQueue => "local_queue",
        /// The READ of another operation of this compute server, which this one was to share, did not come.
        SharedRead => "shared_read",
        /// The root word changed while this operation tried to change it (growth, bulk load, drop).
        RootMoved => "root_moved",
        /// All redo slots of this compute server on that memory server are in use.
        RedoSlots => "redo_slots",
        /// The value changed between the read and the exchange.
        ValueChanged => "value_changed",
        /// The nodes to be merged changed meanwhile.
        Merge => "merge",
        /// No memory server has free memory. The operation waits for other clients to give some back.
        Memory => "memory",
        /// A volume is closed: a backup took the place of its primary, and clients of the former table are
        /// still being recovered.
        VolumeClosed => "volume_closed",
    }
}

impl Cause {
    /// The same text for the user whose operation timed out on this cause.
    pub const fn waiting_for(self) -> &'static str {
        match self {
            Self::TornNode => "a node stays torn (its writer may have died)",
            Self::TornEntry => "an entry stays torn (its writer may have died)",
            Self::SlowRead => "every READ takes longer than the format's versions allow",
            Self::StalePointer => "pointers stay stale",
            Self::NodePending => "a node stays unlinked (its maker may have died)",
            Self::MovedRight => "the key keeps moving right",
            Self::LaneHeld => "another compute server holds the lock lane (it may have died)",
            Self::LocalQueue => "other threads of this compute server hold the lock lane",
            Self::SharedRead => "another thread of this compute server does not post a READ",
            Self::RootMoved => "the root keeps changing",
            Self::RedoSlots => "all redo slots are in use",
            Self::ValueChanged => "other clients keep changing the value",
            Self::Merge => "the nodes to merge keep changing",
            Self::Memory => "no memory server has free memory",
            Self::VolumeClosed => "a volume stays closed (its former clients are still being recovered)",
        }
    }
}

/// A counter for every cause.
#[derive(Debug, Default)]
pub struct Retries([Cell<u64>; Cause::ALL.len()]);

impl Retries {
    /// Counts one occurrence.
    pub fn add(&self, cause: Cause) {
        self.add_many(cause, 1);
    }

    /// Counts `n` occurrences.
    pub fn add_many(&self, cause: Cause, n: u64) {
        let cell = &self.0[cause as usize];
        cell.set(cell.get() + n);
    }

    /// Number of occurrences.
    pub fn get(&self, cause: Cause) -> u64 {
        self.0[cause as usize].get()
    }

    /// Every cause with its count.
    pub fn iter(&self) -> impl Iterator<Item = (Cause, u64)> + '_ {
        Cause::ALL.into_iter().map(|cause| (cause, self.get(cause)))
    }
}
