//! The cost of operations, summed per client, session or handle.

use sherman_core::{Cause, Op};
use sherman_fabric::Endpoint;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The highest number of round trips that has its own count. Higher numbers count as this one.
const MOST_ROUND_TRIPS: usize = 64;

sherman_fabric::named! {
    /// The operations that are counted separately. Each operation of a batch counts separately. Clearing,
    /// checking and bulk loading are not counted.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    #[repr(usize)]
    #[non_exhaustive]
    pub enum OpKind {
        /// A lookup.
        Get => "get",
        /// An insert of a new key.
        Insert => "insert",
        /// An insert that replaced a value.
        Update => "update",
        /// A removal, whether the key was present or not.
        Remove => "remove",
        /// An insert that happens only if the key is absent.
        InsertIfAbsent => "insert_if_absent",
        /// A compare-and-exchange. An `update` is a [`OpKind::Get`] and, if it changes the value, one or more
        /// of these.
        CompareExchange => "compare_exchange",
        /// One read of a range, which covers a few leaves. A long range is many of these. A first, last or
        /// next entry is one, and a count of all entries is one per 32 leaves.
        Range => "range",
    }
}

/// The cost of all operations of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindStats {
    /// Operations that succeeded.
    pub operations: u64,
    /// Bytes fetched by the operations' READs.
    pub bytes_read: u64,
    /// Bytes stored by the operations' WRITEs.
    pub bytes_written: u64,
    round_trips: [u64; MOST_ROUND_TRIPS + 1],
}

impl Default for KindStats {
    fn default() -> Self {
        Self { operations: 0, bytes_read: 0, bytes_written: 0, round_trips: [0; MOST_ROUND_TRIPS + 1] }
    }
}

impl KindStats {
    /// For each number of round trips, how many operations took it. The highest number also stands for all
    /// above it.
    pub fn round_trips(&self) -> BTreeMap<usize, u64> {
        self.round_trips.iter().copied().enumerate().filter(|&(_, operations)| operations > 0).collect()
    }
}

/// Costs and retries of one client, session or handle, or, after merging, of many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    kinds: [KindStats; OpKind::ALL.len()],
    retries: [u64; Cause::ALL.len()],
    /// Lanes obtained by handover.
    pub handovers: u64,
    /// Operations that failed.
    pub errors: u64,
    /// Attempts that failed because the compute server's identity had ended, and were repeated under the next
    /// one.
    pub repeated: u64,
    /// Lookups that the index cache answered without a READ.
    pub cache_hits: u64,
    /// Lookups that had to read internal nodes although a cache is in use.
    pub cache_misses: u64,
}

impl Stats {
    /// The cost of one kind of operation.
    pub fn kind(&self, kind: OpKind) -> &KindStats {
        &self.kinds[kind as usize]
    }

    /// Retries by cause. Causes that never occurred are left out.
    pub fn retries(&self) -> BTreeMap<&'static str, u64> {
        let named = Cause::ALL.into_iter().map(|cause| (cause.name(), self.retries[cause as usize]));
        named.filter(|&(_, count)| count > 0).collect()
    }

    /// Retries by cause, including causes that never occurred.
    pub(crate) fn all_retries(&self) -> [(&'static str, u64); Cause::ALL.len()] {
        Cause::ALL.map(|cause| (cause.name(), self.retries[cause as usize]))
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.kinds.iter_mut().zip(&other.kinds) {
            mine.operations += theirs.operations;
            mine.bytes_read += theirs.bytes_read;
            mine.bytes_written += theirs.bytes_written;
            for (mine, theirs) in mine.round_trips.iter_mut().zip(&theirs.round_trips) {
                *mine += theirs;
            }
        }
        for (mine, theirs) in self.retries.iter_mut().zip(&other.retries) {
            *mine += theirs;
        }
        self.handovers += other.handovers;
        self.errors += other.errors;
        self.repeated += other.repeated;
        self.cache_hits += other.cache_hits;
        self.cache_misses += other.cache_misses;
    }

    /// Counts an operation that succeeded.
    fn count<E: Endpoint>(&mut self, kind: OpKind, op: &Op<'_, E>) {
        let tally = op.tally();
        let stats = &mut self.kinds[kind as usize];
        stats.operations += 1;
        stats.bytes_read += tally.bytes_read;
        stats.bytes_written += tally.bytes_written;
        stats.round_trips[(tally.round_trips as usize).min(MOST_ROUND_TRIPS)] += 1;
        self.count_attempt(op);
    }

    /// Counts the obstacles of an attempt, successful or not.
    fn count_attempt<E: Endpoint>(&mut self, op: &Op<'_, E>) {
        if op.met_obstacles() {
            for (cause, count) in op.retries().iter() {
                self.retries[cause as usize] += count;
            }
        }
        self.handovers += op.handovers();
        self.cache_hits += op.cache_hits();
        self.cache_misses += op.cache_misses();
    }
}

/// After this many operations a caller adds its counts to its compute server's total.
const REPORT_EVERY: u32 = 1024;

/// The sum of the counts that all callers of a compute server have reported so far.
pub(crate) type Total = Arc<Mutex<Stats>>;

/// The costs of one caller: those already reported to its compute server's total, and the new ones.
pub(crate) struct Account {
    told: Stats,
    fresh: Stats,
    count: u32,
    total: Total,
}

impl Account {
    fn new(total: Total) -> Self {
        Self { told: Stats::default(), fresh: Stats::default(), count: 0, total }
    }

    #[inline]
    fn count<E: Endpoint>(&mut self, kind: OpKind, op: &Op<'_, E>) {
        self.fresh.count(kind, op);
        self.count += 1;
        if self.count == REPORT_EVERY {
            self.tell();
        }
    }

    #[cold]
    fn tell(&mut self) {
        self.told.merge(&self.fresh);
        self.total.lock().unwrap_or_else(PoisonError::into_inner).merge(&self.fresh);
        self.fresh = Stats::default();
        self.count = 0;
    }

    /// All costs of the caller.
    pub(crate) fn read(&self) -> Stats {
        let mut all = self.told.clone();
        all.merge(&self.fresh);
        all
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.tell();
    }
}

/// The place where operations are counted.
pub(crate) enum Ledger {
    /// One thread counts for itself, so that an operation takes no lock.
    Own(Box<RefCell<Account>>),
    /// A worker counts, and its handle reads.
    Shared(Arc<Mutex<Account>>),
}

impl Ledger {
    /// A ledger for one thread.
    pub(crate) fn own(total: Total) -> Self {
        Self::Own(Box::new(RefCell::new(Account::new(total))))
    }

    /// A ledger that other threads may read.
    pub(crate) fn shared(total: Total) -> (Self, Arc<Mutex<Account>>) {
        let account = Arc::new(Mutex::new(Account::new(total)));
        (Self::Shared(Arc::clone(&account)), account)
    }

    /// Counts an operation that succeeded.
    #[inline]
    pub(crate) fn count<E: Endpoint>(&self, kind: OpKind, op: &Op<'_, E>) {
        match self {
            Self::Own(account) => account.borrow_mut().count(kind, op),
            Self::Shared(account) => account.lock().unwrap_or_else(PoisonError::into_inner).count(kind, op),
        }
    }

    #[cold]
    fn change(&self, change: impl FnOnce(&mut Stats)) {
        match self {
            Self::Own(account) => change(&mut account.borrow_mut().fresh),
            Self::Shared(account) => {
                change(&mut account.lock().unwrap_or_else(PoisonError::into_inner).fresh)
            }
        }
    }

    /// Counts the obstacles of a failed attempt.
    pub(crate) fn count_attempt<E: Endpoint>(&self, op: &Op<'_, E>) {
        self.change(|stats| stats.count_attempt(op));
    }

    /// Counts an operation that failed.
    pub(crate) fn count_error(&self) {
        self.change(|stats| stats.errors += 1);
    }

    /// Counts an attempt that is repeated.
    pub(crate) fn count_repeat(&self) {
        self.change(|stats| stats.repeated += 1);
    }

    /// The counts so far.
    pub(crate) fn read(&self) -> Stats {
        match self {
            Self::Own(account) => account.borrow().read(),
            Self::Shared(account) => account.lock().unwrap_or_else(PoisonError::into_inner).read(),
        }
    }
}
