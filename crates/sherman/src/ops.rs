//! The operations, once: what clients, sessions and handles all do, on byte strings, counted, within a deadline, and under another
//! identity if one ends.

use crate::cluster::AnyEndpoint;
use crate::codec::Packed;
use crate::range::{Plan, RawEntry, Reading};
use crate::repeat::{Failed, Next, Patience};
use crate::seat::Seat;
use crate::stats::{Ledger, OpKind};
use sherman_core::{Cause, Check, Clearing, Error, Exchange, Op, Scan, TreeState, Worker};
use sherman_fabric::Clock;
use std::time::Duration;

/// Attempts of an update in a row before other tasks get a turn.
const EAGER_TRIES: u32 = 8;

/// How often something that reads or clears a whole tree is begun again before its error is the caller's.
const WHOLE_TRIES: u32 = 16;

/// A seat, a tree, a ledger and a deadline: all that an operation needs.
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
    /// Runs an operation to its end: `attempt` after `attempt`, while they fail because an identity has ended. `settled` is the outcome of
    /// a change that failed and turned out to have happened, and replaced a value or not.
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
                let outcome = match seated.compute().is_doomed() {
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
            match Box::pin(self.after(failed, &mut patience)).await? {
                Next::Again => {}
                Next::Happened { replaced } => match settled(replaced) {
                    Some(outcome) => return Ok(outcome),
                    None => return Err(Error::SessionDropped),
                },
            }
        }
    }

    /// The same for something that is many operations, each with a deadline of its own, and is not counted.
    async fn run_whole<T>(
        &self,
        mut attempt: impl AsyncFnMut(&Worker<AnyEndpoint>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut tries = 1;
        loop {
            let failed = {
                let seated = self.seat.seated()?;
                let outcome = match seated.compute().is_doomed() {
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
            Box::pin(self.after(failed, &mut Patience::new(self.timeout))).await?;
        }
    }

    /// Runs an operation that may leave a value in the buffer it is given, and answers with that value.
    #[inline]
    pub(crate) async fn find(
        &self,
        operation: impl AsyncFnOnce(&mut Vec<u8>) -> Result<bool, Error>,
    ) -> Result<Option<Packed>, Error> {
        let mut buffer = self.seat.seated()?.buffer();
        let found = operation(&mut buffer).await;
        let found = found.map(|found| found.then(|| Packed::copy(&buffer)));
        if let Ok(seated) = self.seat.seated() {
            seated.keep_buffer(buffer);
        }
        found
    }

    /// Looks `key` up; `value` receives what is found.
    #[inline]
    pub(crate) async fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Error> {
        self.run(|_| OpKind::Get, |_| None, async |op| op.get(self.tree, key, value).await).await
    }

    /// Puts `value` under `key`; whether the key was there, with its value in `old`.
    #[inline]
    pub(crate) async fn insert(&self, key: &[u8], value: &[u8], old: &mut Vec<u8>) -> Result<bool, Error> {
        let kind = |updated: &bool| if *updated { OpKind::Update } else { OpKind::Insert };
        self.run(kind, Some, async |op| op.insert(self.tree, key, value, old).await).await
    }

    /// Removes `key`; whether it was there, with its value in `old`.
    #[inline]
    pub(crate) async fn remove(&self, key: &[u8], old: &mut Vec<u8>) -> Result<bool, Error> {
        // Only a key that is there is removed.
        self.run(|_| OpKind::Remove, |_| Some(true), async |op| op.remove(self.tree, key, old).await).await
    }

    /// Puts `value` under `key` unless the key is there; whether it is, with its value in `found`.
    pub(crate) async fn insert_if_absent(&self, key: &[u8], value: &[u8], found: &mut Vec<u8>) -> Result<bool, Error> {
        let attempt = async |op: &Op<'_, AnyEndpoint>| op.insert_if_absent(self.tree, key, value, found).await;
        // Only a key that is absent is put.
        self.run(|_| OpKind::InsertIfAbsent, |_| Some(false), attempt).await
    }

    /// Makes `key` be as `new` says if it is as `expected` says.
    pub(crate) async fn compare_exchange(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
        found: &mut Vec<u8>,
    ) -> Result<Exchange, Error> {
        let attempt = async |op: &Op<'_, AnyEndpoint>| op.compare_exchange(self.tree, key, expected, new, found).await;
        self.run(|_| OpKind::CompareExchange, |_| Some(Exchange::Done), attempt).await
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
            let now = self.seat.seated()?.endpoint().now();
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
        let mut scan = reading.into_scan(&*self.seat.seated()?, self.tree)?;
        if self.refill(&mut scan).await? {
            return Ok(Some(scan));
        }
        self.end_scan(scan);
        Ok(None)
    }

    /// Reads on in a scan. False if it is over.
    pub(crate) async fn refill(&self, scan: &mut Scan) -> Result<bool, Error> {
        let attempt = async |op: &Op<'_, AnyEndpoint>| match op.refill(self.tree, scan).await {
            // What was read before the identity ended is given out first: the scan has gone past it.
            Err(error) if error.ends_identity(op.client()) && !scan.is_drained() => Ok(true),
            more => more,
        };
        self.run(|_| OpKind::Range, |_| None, attempt).await
    }

    /// Leaves a scan's buffers to the next.
    pub(crate) fn end_scan(&self, scan: Scan) {
        if let Ok(seated) = self.seat.seated() {
            seated.end_scan(scan);
        }
    }

    /// The first entry of a plan.
    pub(crate) async fn edge(&self, plan: Plan) -> Result<Option<RawEntry>, Error> {
        let Some(mut scan) = self.read_on(Reading::Planned(plan)).await? else { return Ok(None) };
        let first = scan.next().map(|(key, value)| (key.to_vec(), value.to_vec()));
        self.end_scan(scan);
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

    /// Removes every entry. Not counted. A leaf whose clearing may or may not have happened is cleared again.
    pub(crate) async fn clear(&self) -> Result<u64, Error> {
        let mut clearing = Clearing::new(self.tree);
        self.run_whole(async |worker| match worker.clear_on(self.tree, &mut clearing).await {
            Err(Error::OutcomeUnknown { .. }) if worker.compute().is_doomed() => {
                Err(Error::Fenced { client: worker.compute().client() })
            }
            cleared => cleared,
        })
        .await?;
        Ok(clearing.gone())
    }

    /// Checks every node. Not counted.
    pub(crate) async fn check(&self) -> Result<Check, Error> {
        self.run_whole(async |worker| worker.check(self.tree).await).await
    }
}
