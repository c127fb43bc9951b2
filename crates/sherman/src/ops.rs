//! The operations, once: what clients, sessions and handles all do, on byte strings, counted and within a deadline.

use crate::cluster::AnyEndpoint;
use crate::codec::Packed;
use crate::range::{Plan, RawEntry, Reading};
use crate::stats::{Ledger, OpKind};
use sherman_core::{Cause, Check, Error, Exchange, Op, Scan, TreeState, Worker};
use sherman_fabric::Clock;
use std::time::Duration;

/// Attempts of an update in a row before other tasks get a turn.
const EAGER_TRIES: u32 = 8;

/// A worker, a tree, a ledger and a deadline: all that an operation needs.
#[derive(Clone, Copy)]
pub(crate) struct Ops<'a> {
    pub(crate) worker: &'a Worker<AnyEndpoint>,
    pub(crate) tree: &'a TreeState,
    pub(crate) ledger: &'a Ledger,
    pub(crate) timeout: Duration,
}

impl<'a> Ops<'a> {
    /// A new operation, unless the compute server is at its end.
    #[inline]
    fn op(&self) -> Result<Op<'a, AnyEndpoint>, Error> {
        let op = self.worker.op_within(self.timeout);
        if self.worker.compute().is_doomed() {
            self.ledger.count(None, &op);
            return Err(Error::Fenced { client: self.worker.compute().client() });
        }
        Ok(op)
    }

    /// Counts an operation that has ended.
    #[inline]
    fn count<T>(&self, op: &Op<'_, AnyEndpoint>, kind: OpKind, outcome: &Result<T, Error>) {
        self.ledger.count(outcome.is_ok().then_some(kind), op);
    }

    /// Runs an operation that may leave a value in the buffer it is given, and answers with that value.
    #[inline]
    pub(crate) async fn find(
        &self,
        operation: impl AsyncFnOnce(&mut Vec<u8>) -> Result<bool, Error>,
    ) -> Result<Option<Packed>, Error> {
        let mut buffer = self.worker.buffer();
        let found = operation(&mut buffer).await;
        let found = found.map(|found| found.then(|| Packed::copy(&buffer)));
        self.worker.keep_buffer(buffer);
        found
    }

    /// Looks `key` up; `value` receives what is found.
    #[inline]
    pub(crate) async fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Error> {
        let op = self.op()?;
        let found = op.get(self.tree, key, value).await;
        self.count(&op, OpKind::Get, &found);
        found
    }

    /// Puts `value` under `key`; whether the key was there, with its value in `old`.
    #[inline]
    pub(crate) async fn insert(&self, key: &[u8], value: &[u8], old: &mut Vec<u8>) -> Result<bool, Error> {
        let op = self.op()?;
        let updated = op.insert(self.tree, key, value, old).await;
        let kind = if updated == Ok(true) { OpKind::Update } else { OpKind::Insert };
        self.count(&op, kind, &updated);
        updated
    }

    /// Removes `key`; whether it was there, with its value in `old`.
    #[inline]
    pub(crate) async fn remove(&self, key: &[u8], old: &mut Vec<u8>) -> Result<bool, Error> {
        let op = self.op()?;
        let removed = op.remove(self.tree, key, old).await;
        self.count(&op, OpKind::Remove, &removed);
        removed
    }

    /// Puts `value` under `key` unless the key is there; whether it is, with its value in `found`.
    pub(crate) async fn insert_if_absent(&self, key: &[u8], value: &[u8], found: &mut Vec<u8>) -> Result<bool, Error> {
        let op = self.op()?;
        let there = op.insert_if_absent(self.tree, key, value, found).await;
        self.count(&op, OpKind::InsertIfAbsent, &there);
        there
    }

    /// Makes `key` be as `new` says if it is as `expected` says.
    pub(crate) async fn compare_exchange(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
        found: &mut Vec<u8>,
    ) -> Result<Exchange, Error> {
        let op = self.op()?;
        let exchange = op.compare_exchange(self.tree, key, expected, new, found).await;
        self.count(&op, OpKind::CompareExchange, &exchange);
        exchange
    }

    /// Looks `key` up, has `change` say what is to become of it, and makes it so if it is still what it was; else again with
    /// what it is now, until the deadline. `change` is shown the value, if there is one, and writes the new one into the
    /// buffer; false means none. It runs outside any lock. Whether the key was there, with its value in `old`.
    pub(crate) async fn update(
        &self,
        key: &[u8],
        old: &mut Vec<u8>,
        mut change: impl FnMut(Option<&[u8]>, &mut Vec<u8>) -> bool,
    ) -> Result<bool, Error> {
        let endpoint = self.worker.endpoint();
        let (mut new, mut found) = (Vec::new(), Vec::new());
        let mut there = self.get(key, old).await?;
        let (mut started, mut tries) = (None, 0_u32);
        let mut waited = Duration::ZERO;
        loop {
            new.clear();
            let keep = change(there.then_some(old.as_slice()), &mut new);
            let (expected, wanted) = (there.then_some(old.as_slice()), keep.then_some(new.as_slice()));
            if expected == wanted {
                return Ok(there);
            }
            let attempt = Self { timeout: self.timeout.saturating_sub(waited), ..*self };
            match attempt.compare_exchange(key, expected, wanted, &mut found).await? {
                Exchange::Done => return Ok(there),
                Exchange::Found => {
                    std::mem::swap(old, &mut found);
                    there = true;
                }
                Exchange::Absent => there = false,
            }
            // As everywhere, the clock is read only once there is an obstacle.
            let now = endpoint.now();
            waited = Duration::from_nanos(now.saturating_sub(*started.get_or_insert(now)));
            if waited >= self.timeout {
                return Err(Error::Timeout { cause: Cause::ValueChanged, waited });
            }
            // At once, while what was found is likely still there; but not so that others of this thread never run.
            tries += 1;
            if tries % EAGER_TRIES == 0 {
                sherman_fabric::yield_now().await;
            }
        }
    }

    /// Reads on in a range. `None` if it is over.
    pub(crate) async fn read_on(&self, reading: Reading) -> Result<Option<Scan>, Error> {
        let mut scan = reading.into_scan(self.worker, self.tree)?;
        let op = self.op()?;
        let more = op.refill(self.tree, &mut scan).await;
        self.count(&op, OpKind::Range, &more);
        if more? {
            return Ok(Some(scan));
        }
        self.worker.end_scan(scan);
        Ok(None)
    }

    /// Reads on in a scan. False if it is over.
    pub(crate) async fn refill(&self, scan: &mut Scan) -> Result<bool, Error> {
        let op = self.op()?;
        let more = op.refill(self.tree, scan).await;
        self.count(&op, OpKind::Range, &more);
        more
    }

    /// The first entry of a plan.
    pub(crate) async fn edge(&self, plan: Plan) -> Result<Option<RawEntry>, Error> {
        let Some(mut scan) = self.read_on(Reading::Planned(plan)).await? else { return Ok(None) };
        let first = scan.next().map(|(key, value)| (key.to_vec(), value.to_vec()));
        self.worker.end_scan(scan);
        Ok(first)
    }

    /// How many entries there are.
    pub(crate) async fn len(&self) -> Result<u64, Error> {
        let mut entries = 0;
        let mut reading = Reading::of_everything();
        while let Some(mut scan) = self.read_on(reading).await? {
            while scan.next().is_some() {
                entries += 1;
            }
            reading = Reading::Begun(scan);
        }
        Ok(entries)
    }

    /// Removes every entry. Not counted.
    pub(crate) async fn clear(&self) -> Result<u64, Error> {
        self.worker.clear(self.tree).await
    }

    /// Checks every node. Not counted.
    pub(crate) async fn check(&self) -> Result<Check, Error> {
        self.worker.check(self.tree).await
    }
}
