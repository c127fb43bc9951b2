//! The operations that clients, sessions and handles share. They work on byte strings, are counted, have a
//! deadline, and are repeated under the next identity if one ends.

use crate::cluster::AnyEndpoint;
use crate::exchange::Exchange;
use crate::operations::FromBytes;
use crate::outlined;
use crate::range::{RangePlan, Reading};
use crate::repeat::{Failed, Next, Patience};
use crate::seat::Seat;
use crate::stats::{Ledger, OpKind};
use sherman_core::tree::now::Now;
use sherman_core::{Cause, Check, Clearing, Error, Exchange as Exchanged, Op, Scan, TreeState, Worker};
use sherman_fabric::Clock;
use std::time::Duration;

/// How many attempts an update makes in a row before other tasks run.
const EAGER_TRIES: u32 = 8;

/// How many attempts are made to read or clear a whole tree before the caller gets the error.
const WHOLE_TRIES: u32 = 16;

/// Everything that an operation needs: a seat, a tree, a ledger and a deadline.
pub(crate) struct Ops<'a, S> {
    pub(crate) seat: &'a S,
    pub(crate) tree: &'a TreeState,
    pub(crate) ledger: &'a Ledger,
    pub(crate) timeout: Duration,
}

impl<S> Clone for Ops<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Ops<'_, S> {}

impl<S: Seat> Ops<'_, S> {
    /// Runs an operation until it ends: repeats `attempt` while it fails because an identity has ended.
    /// `settled` returns the outcome of a change that failed but turned out to have happened; its argument
    /// tells whether the change replaced a value.
    #[inline]
    async fn run<T>(
        &self,
        kind: impl Fn(&T) -> OpKind,
        settled: impl Fn(bool) -> Option<T>,
        mut attempt: impl AsyncFnMut(&Op<'_, AnyEndpoint>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut patience = Patience::new(self.timeout);
        loop {
            let failed = {
                let seated = self.seat.seated()?;
                let op = seated.op_within(patience.left);
                let outcome = match seated.compute().is_terminated() {
                    false => attempt(&op).await,
                    true => Err(Error::Fenced { client: seated.compute().client() }),
                };
                match outcome {
                    Ok(outcome) => {
                        self.ledger.count(kind(&outcome), &op);
                        return Ok(outcome);
                    }
                    Err(error) => {
                        self.ledger.count_attempt(&op);
                        Failed::new(error, &op, &seated)
                    }
                }
            };
            match S::after(self, failed, &mut patience).await? {
                Next::Again => {}
                Next::Happened { replaced } => match settled(replaced) {
                    Some(outcome) => return Ok(outcome),
                    None => return Err(Error::SessionDropped),
                },
            }
        }
    }

    /// As `run`, for a task of many operations, each with its own deadline. Not counted.
    async fn run_whole<T>(
        &self,
        mut attempt: impl AsyncFnMut(&Worker<AnyEndpoint>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut tries = 1;
        loop {
            let failed = {
                let seated = self.seat.seated()?;
                let outcome = match seated.compute().is_terminated() {
                    false => attempt(&seated).await,
                    true => Err(Error::Fenced { client: seated.compute().client() }),
                };
                match outcome {
                    Ok(outcome) => return Ok(outcome),
                    Err(error) if tries == WHOLE_TRIES => return Err(error),
                    Err(error) => Failed::of(error, &seated),
                }
            };
            tries += 1;
            S::after(self, failed, &mut Patience::new(self.timeout)).await?;
        }
    }

    /// Runs an operation with a buffer for the value it finds, and returns that value.
    #[inline]
    pub(crate) async fn find<R: FromBytes>(
        &self,
        operation: impl AsyncFnOnce(&mut Vec<u8>) -> Result<bool, Error>,
    ) -> Result<Option<R>, Error> {
        let mut buffer = self.seat.seated()?.buffer();
        let found = operation(&mut buffer).await;
        let found = found.map(|found| found.then(|| R::from_bytes(&buffer)));
        if let Ok(seated) = self.seat.seated() {
            seated.keep_buffer(buffer);
        }
        found
    }

    /// Looks up `key` and stores the value in `value`.
    #[inline]
    pub(crate) async fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Error> {
        let attempt = async |op: &Op<'_, AnyEndpoint>| match outlined::get_now(op, self.tree, key, value) {
            Some(found) => Ok(found),
            None => outlined::get(op, self.tree, key, value).await,
        };
        self.run(|_| OpKind::Get, |_| None, attempt).await
    }

    /// Whether the tree contains `key`.
    pub(crate) async fn contains_key(&self, key: &[u8]) -> Result<bool, Error> {
        Ok(self.find::<()>(async |value| self.get(key, value).await).await?.is_some())
    }

    /// Puts `value` under `key`. Returns whether the key was present, and stores its value in `old`.
    #[inline]
    pub(crate) async fn insert(&self, key: &[u8], value: &[u8], old: &mut Vec<u8>) -> Result<bool, Error> {
        let kind = |updated: &bool| if *updated { OpKind::Update } else { OpKind::Insert };
        let attempt =
            async |op: &Op<'_, AnyEndpoint>| match outlined::insert_at_once(op, self.tree, key, value, old) {
                Now::Done(updated) => Ok(updated),
                Now::No => outlined::insert(op, self.tree, key, value, old).await,
                Now::Begun(begun) => outlined::resume_insert(op, self.tree, begun, key, value, old).await,
            };
        self.run(kind, Some, attempt).await
    }

    /// Removes `key`. Returns whether it was present, and stores its value in `old`.
    #[inline]
    pub(crate) async fn remove(&self, key: &[u8], old: &mut Vec<u8>) -> Result<bool, Error> {
        // If the remove happened, the key was present.
        self.run(
            |_| OpKind::Remove,
            |_| Some(true),
            async |op| outlined::remove(op, self.tree, key, old).await,
        )
        .await
    }

    /// Puts `value` under `key` if the key is absent. Otherwise returns true and stores the present value in
    /// `found`.
    pub(crate) async fn insert_if_absent(
        &self,
        key: &[u8],
        value: &[u8],
        found: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        let attempt = async |op: &Op<'_, AnyEndpoint>| {
            outlined::insert_if_absent(op, self.tree, key, value, found).await
        };
        // If the insert happened, the key was absent.
        self.run(|_| OpKind::InsertIfAbsent, |_| Some(false), attempt).await
    }

    /// Changes the value of `key` from `expected` to `new`, if it is `expected`.
    pub(crate) async fn compare_exchange(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
        found: &mut Vec<u8>,
    ) -> Result<Exchanged, Error> {
        let attempt = async |op: &Op<'_, AnyEndpoint>| {
            outlined::compare_exchange(op, self.tree, key, expected, new, found).await
        };
        self.run(|_| OpKind::CompareExchange, |_| Some(Exchanged::Done), attempt).await
    }

    /// As `compare_exchange`, and returns the found value.
    pub(crate) async fn exchange<R: FromBytes>(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<Exchange<R>, Error> {
        let mut exchange = Exchanged::Done;
        let found = self.find(async |found| {
            exchange = self.compare_exchange(key, expected, new, found).await?;
            Ok(exchange == Exchanged::Found)
        });
        Ok(match (found.await?, exchange) {
            (Some(found), _) => Exchange::Found(found),
            (None, Exchanged::Done) => Exchange::Done,
            (None, _) => Exchange::Absent,
        })
    }

    /// Looks up `key`, computes the new value with `change`, and exchanges the values if the old one is
    /// unchanged. Otherwise tries again with the present value, until the deadline. `change` receives the
    /// present value, if any, and writes the new one into the buffer; false means absent. It runs outside any
    /// lock. Returns whether the key was present, and stores its value in `old`.
    pub(crate) async fn update(
        &self,
        key: &[u8],
        old: &mut Vec<u8>,
        mut change: impl FnMut(Option<&[u8]>, &mut Vec<u8>) -> bool,
    ) -> Result<bool, Error> {
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
                Exchanged::Done => return Ok(there),
                Exchanged::Found => {
                    std::mem::swap(old, &mut found);
                    there = true;
                }
                Exchanged::Absent => there = false,
            }
            // As everywhere, the clock is read only after an obstacle.
            let now = self.seat.seated()?.endpoint().now();
            waited = Duration::from_nanos(now.saturating_sub(*started.get_or_insert(now)));
            if waited >= self.timeout {
                return Err(Error::Timeout { cause: Cause::ValueChanged, waited });
            }
            // Tries again at once, while the found value is probably still current. The yield lets other
            // tasks of this thread run.
            tries += 1;
            if tries % EAGER_TRIES == 0 {
                sherman_fabric::yield_now().await;
            }
        }
    }

    /// Continues reading a range. Returns `None` if it is over.
    pub(crate) async fn read_on(&self, reading: Reading) -> Result<Option<Box<Scan>>, Error> {
        let mut scan = reading.into_scan(&*self.seat.seated()?, self.tree)?;
        if self.refill(&mut scan).await? {
            return Ok(Some(scan));
        }
        self.end_scan(scan);
        Ok(None)
    }

    /// Continues reading a scan. Returns false if it is over.
    pub(crate) async fn refill(&self, scan: &mut Scan) -> Result<bool, Error> {
        let attempt = async |op: &Op<'_, AnyEndpoint>| match outlined::refill(op, self.tree, scan).await {
            // Returns the entries read before the identity ended first, because the scan has already gone
            // past them. With replication there are none.
            Err(error) if error.ends_identity(op.client()) && !scan.is_drained() => Ok(true),
            more => more,
        };
        self.run(|_| OpKind::Range, |_| None, attempt).await
    }

    /// Keeps a scan's buffers for the next scan.
    pub(crate) fn end_scan(&self, scan: Box<Scan>) {
        if let Ok(seated) = self.seat.seated() {
            seated.end_scan(scan);
        }
    }

    /// The first entry of a plan.
    pub(crate) async fn edge<K: FromBytes, V: FromBytes>(
        &self,
        plan: RangePlan,
    ) -> Result<Option<(K, V)>, Error> {
        let Some(mut scan) = self.read_on(Reading::Planned(plan)).await? else { return Ok(None) };
        let first = scan.next().map(|(key, value)| (K::from_bytes(key), V::from_bytes(value)));
        self.end_scan(scan);
        Ok(first)
    }

    /// Whether the tree is empty.
    pub(crate) async fn is_empty(&self) -> Result<bool, Error> {
        Ok(self.edge::<(), ()>(RangePlan::all().limit(1)).await?.is_none())
    }

    /// The number of entries.
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

    /// Removes every entry. Not counted. If the clearing of a leaf has an unknown outcome, the leaf is
    /// cleared again.
    pub(crate) async fn clear(&self) -> Result<u64, Error> {
        let mut clearing = Clearing::new(self.tree);
        self.run_whole(async |worker| match outlined::clear_on(worker, self.tree, &mut clearing).await {
            Err(Error::OutcomeUnknown { .. }) if worker.compute().is_terminated() => {
                Err(Error::Fenced { client: worker.compute().client() })
            }
            cleared => cleared,
        })
        .await?;
        Ok(clearing.gone())
    }

    /// Checks every node. Not counted.
    pub(crate) async fn check(&self) -> Result<Check, Error> {
        self.run_whole(async |worker| outlined::check(worker, self.tree).await).await
    }
}
