//! A client of the tree, and the statistics of its operations. Every answer is checked: a wrong one ends the
//! experiment.

use super::job::Measured;
use super::tally::{Counts, Latencies, Meter, share};
use crate::error::BenchError;
use crate::workload::{Action, Generator};
use sherman_core::{Cause, Direction, Op, TreeState, Worker};
use sherman_fabric::Clock;
use sherman_sim::nic::{NicVolumeEndpoint, Quiet};
use std::cell::RefCell;
use std::ops::Bound;
use std::rc::Rc;
use std::sync::Arc;

/// The most leaves that a range reads at once.
const PREFETCH: usize = 32;

/// The statistics of all clients together.
pub(super) struct Ledger {
    pub meter: Meter,
    all: Latencies,
    lookups: Latencies,
    writes: Latencies,
    ranges: Latencies,
    write_round_trips: Counts,
    write_bytes: Counts,
    read_retries: Counts,
    splits: u64,
    handovers: u64,
    hits: u64,
    misses: u64,
    pub failure: Option<BenchError>,
    /// Bytes of the WRITE that releases a lock; 0 if an atomic releases it.
    pub release_bytes: u64,
    pub leaf_bytes: u64,
    /// Copies of each volume. Data are written to each of them, and a lock is at one.
    pub copies: u64,
}

impl Ledger {
    pub(super) fn new(
        operations: u64,
        release_bytes: u64,
        leaf_bytes: u64,
        copies: u64,
    ) -> Result<Self, BenchError> {
        Ok(Self {
            meter: Meter::new(operations),
            all: Latencies::new()?,
            lookups: Latencies::new()?,
            writes: Latencies::new()?,
            ranges: Latencies::new()?,
            write_round_trips: Counts::default(),
            write_bytes: Counts::default(),
            read_retries: Counts::default(),
            splits: 0,
            handovers: 0,
            hits: 0,
            misses: 0,
            failure: None,
            release_bytes,
            leaf_bytes,
            copies,
        })
    }

    fn is_over(&self) -> bool {
        self.failure.is_some() || self.meter.is_over()
    }

    fn note_cache(&mut self, op: &Op<'_, NicVolumeEndpoint>) {
        self.hits += op.cache_hits();
        self.misses += op.cache_misses();
    }

    fn note_lookup(&mut self, op: &Op<'_, NicVolumeEndpoint>, nanos: u64) {
        self.lookups.record(nanos);
        self.read_retries.add(op.retries().get(Cause::TornNode) + op.retries().get(Cause::TornEntry));
        self.note_cache(op);
    }

    fn note_write(&mut self, op: &Op<'_, NicVolumeEndpoint>, nanos: u64) {
        let tally = op.tally();
        self.writes.record(nanos);
        self.write_round_trips.add(tally.round_trips);
        // The last WRITE is the release. If the lock was handed over, there is one WRITE less.
        let release = if tally.writes > self.copies { self.release_bytes } else { 0 };
        self.write_bytes.add(tally.bytes_written - release.min(tally.bytes_written));
        // A split writes a new node and at least the remainder of the old one. No other operation writes much
        // more than one node.
        self.splits +=
            u64::from(tally.bytes_written >= self.copies * (self.leaf_bytes + self.leaf_bytes / 4));
        self.handovers += u64::from(op.handovers() > 0);
        self.note_cache(op);
    }

    pub(super) fn measured(&self) -> Measured {
        let writes = self.writes.count();
        let measured = self.meter.measured();
        Measured {
            range_mops: self.ranges.count() as f64 * 1e3 / measured.nanos as f64,
            all: self.all.quantiles(),
            lookups: self.lookups.quantiles(),
            writes: self.writes.quantiles(),
            ranges: self.ranges.quantiles(),
            write_round_trips: self.write_round_trips.pairs(),
            write_bytes: self.write_bytes.pairs(),
            read_retries: self.read_retries.pairs(),
            splits: share(self.splits, writes),
            handovers: share(self.handovers, writes),
            hit_ratio: share(self.hits, self.hits + self.misses),
            ..measured
        }
    }
}

/// Chooses the nodes above the leaves that a compute server has in its cache when an experiment begins, as
/// after a long run. A chosen node enters the cache when it is first needed, at no cost.
pub(super) struct Warmth {
    quiet: Quiet,
    seen: RefCell<Vec<u64>>,
    /// Loaded keys below one node.
    span: u64,
    /// How many of 2^32 nodes are in the cache.
    share: u64,
    salt: u64,
}

impl Warmth {
    /// For nodes of `span` keys each. The cache has room for `share` of these nodes.
    pub(super) fn new(quiet: Quiet, keys: u64, span: u64, share: f64, salt: u64) -> Self {
        let nodes = keys.div_ceil(span) + 1;
        let share = (share.clamp(0.0, 1.0) * 4_294_967_296.0) as u64;
        Self { quiet, seen: RefCell::new(vec![0; nodes.div_ceil(64) as usize]), span, share, salt }
    }

    /// Returns whether to fetch the node with the `nth` key now.
    fn is_due(&self, nth: u64) -> bool {
        let node = nth / self.span;
        let mut seen = self.seen.borrow_mut();
        let Some(word) = seen.get_mut((node / 64) as usize) else { return false };
        let bit = 1 << (node % 64);
        if *word & bit != 0 {
            return false;
        }
        *word |= bit;
        let drawn = (node ^ self.salt << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        drawn < self.share
    }
}

/// A client.
pub(super) struct Client {
    pub worker: Rc<Worker<NicVolumeEndpoint>>,
    pub tree: Arc<TreeState>,
    pub generator: Generator,
    pub ledger: Rc<RefCell<Ledger>>,
    /// `None` without a cache, or with a cache that was filled before the experiment.
    pub warmth: Option<Rc<Warmth>>,
    pub value_size: usize,
    pub operation_nanos: u64,
    /// The delay before the first operation, so that clients do not run in lockstep.
    pub delay_nanos: u64,
}

impl Client {
    /// Runs until all clients together have done the operations of the experiment, or one has failed.
    pub(super) async fn run(mut self) {
        self.worker.endpoint().inner().spend(self.delay_nanos);
        let (mut key, mut value) = (vec![0; self.generator.keys().key_size()], vec![0; self.value_size]);
        let mut seen = Vec::new();
        let mut count = 0;
        while !self.ledger.borrow().is_over() {
            count += 1;
            let action = self.generator.next_action();
            if let Err(error) = self.act(action, count, &mut key, &mut value, &mut seen).await {
                self.ledger.borrow_mut().failure.get_or_insert(error);
            }
        }
    }

    fn warm(&self, index: u64, entries: u64, key: &mut [u8]) -> Result<(), BenchError> {
        let Some(warmth) = &self.warmth else { return Ok(()) };
        let keys = self.generator.keys();
        let first = keys.place(index).min(keys.count() - 1);
        let mut at = first.saturating_sub(u64::from(index >= keys.count() && first > 0));
        let last = (at + entries).min(keys.count() - 1);
        loop {
            if warmth.is_due(at) {
                keys.write_nth(at, key);
                let op = self.worker.op();
                // If another client is changing that node, a later operation fetches it.
                if let Some(Err(error)) = warmth.quiet.run(op.warm(&self.tree, key)) {
                    return Err(failed(error));
                }
            }
            if at >= last {
                return Ok(());
            }
            at = (at + warmth.span).min(last);
        }
    }

    async fn act(
        &mut self,
        action: Action,
        count: u64,
        key: &mut [u8],
        value: &mut [u8],
        seen: &mut Vec<u8>,
    ) -> Result<(), BenchError> {
        match action {
            Action::Get(index) => {
                self.get(index, key, seen).await?;
            }
            Action::Update(index) => self.put(index, true, count, key, value, seen).await?,
            Action::Insert(index) => self.put(index, false, count, key, value, seen).await?,
            Action::ReadModifyWrite(index) => {
                self.get(index, key, seen).await?;
                self.put(index, true, count, key, value, seen).await?;
            }
            Action::Range { from, entries } => self.range(from, entries, key).await?,
            Action::Remove(index) => self.remove(index, key, seen).await?,
        }
        Ok(())
    }

    fn begin(&self) -> u64 {
        let began = self.worker.endpoint().now();
        self.worker.endpoint().inner().spend(self.operation_nanos);
        began
    }

    /// Counts a completed operation, and records it if it is measured.
    fn note(&self, began: u64, note: impl FnOnce(&mut Ledger, u64)) {
        let now = self.worker.endpoint().now();
        let mut ledger = self.ledger.borrow_mut();
        if ledger.meter.count(now, || self.worker.endpoint().inner().verbs()) {
            ledger.all.record(now - began);
            note(&mut ledger, now - began);
        }
    }

    async fn get(&self, index: u64, key: &mut [u8], seen: &mut Vec<u8>) -> Result<(), BenchError> {
        self.warm(index, 0, key)?;
        self.generator.keys().write_key(index, key);
        let began = self.begin();
        let op = self.worker.op();
        let found = op.get(&self.tree, key, seen).await.map_err(failed)?;
        self.note(began, |ledger, nanos| ledger.note_lookup(&op, nanos));
        if !found && !self.generator.removes() {
            return Err(BenchError::Wrong { what: "an existing key was not found", index });
        }
        if found && !self.generator.keys().value_fits(index, seen) {
            return Err(BenchError::Wrong { what: "a key has another key's value", index });
        }
        Ok(())
    }

    async fn put(
        &self,
        index: u64,
        there: bool,
        count: u64,
        key: &mut [u8],
        value: &mut [u8],
        old: &mut Vec<u8>,
    ) -> Result<(), BenchError> {
        self.warm(index, 0, key)?;
        self.generator.keys().write_key(index, key);
        self.generator.keys().write_value(index, count, value);
        let began = self.begin();
        let op = self.worker.op();
        let updated = op.insert(&self.tree, key, value, old).await.map_err(failed)?;
        self.note(began, |ledger, nanos| ledger.note_write(&op, nanos));
        if updated != there && !self.generator.removes() {
            return Err(BenchError::Wrong {
                what: "a key existed, or was missing, against expectation",
                index,
            });
        }
        if updated && !self.generator.keys().value_fits(index, old) {
            return Err(BenchError::Wrong { what: "a key had another key's value", index });
        }
        Ok(())
    }

    async fn remove(&self, index: u64, key: &mut [u8], old: &mut Vec<u8>) -> Result<(), BenchError> {
        self.warm(index, 0, key)?;
        self.generator.keys().write_key(index, key);
        let began = self.begin();
        let op = self.worker.op();
        op.remove(&self.tree, key, old).await.map_err(failed)?;
        self.note(began, |ledger, nanos| ledger.note_write(&op, nanos));
        Ok(())
    }

    async fn range(&self, from: u64, entries: u64, key: &mut [u8]) -> Result<(), BenchError> {
        self.warm(from, entries, key)?;
        let keys = self.generator.keys();
        keys.write_key(from, key);
        let began = self.begin();
        let op = self.worker.op();
        let mut scan = self
            .worker
            .scan(&self.tree, Bound::Included(&*key), Bound::Unbounded, Direction::Forward, PREFETCH)
            .map_err(failed)?;
        scan.set_limit(entries as usize);
        let (mut got, mut before) = (0, None);
        while got < entries && op.refill(&self.tree, &mut scan).await.map_err(failed)? {
            while let Some((key, value)) = scan.next() {
                let number = keys.number_in(key);
                let right = before.is_none_or(|before| before < number)
                    && keys.index_of(number).is_some_and(|index| keys.value_fits(index, value));
                if !right {
                    return Err(BenchError::Wrong { what: "a range returned a wrong entry", index: from });
                }
                before = Some(number);
                got += 1;
            }
        }
        self.worker.end_scan(scan);
        self.note(began, |ledger, nanos| {
            ledger.ranges.record(nanos);
            ledger.note_cache(&op);
        });
        if got < entries && keys.place(from) + entries <= keys.count() && !self.generator.removes() {
            return Err(BenchError::Wrong { what: "a range ended early", index: from });
        }
        Ok(())
    }
}

pub(super) fn failed(error: sherman_core::Error) -> BenchError {
    BenchError::Operation { phase: "measuring", error }
}
