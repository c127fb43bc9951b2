//! One client: performs the actions of its generator, checks every answer, and times some operations.
//!
//! The same code drives blocking clients and sessions. Two reads of the clock cost as much as a tenth of an
//! operation on embedded memory. So one operation in [`SAMPLE_EVERY`] is timed, whatever its kind. The mix is
//! random, so the sample is fair.

use crate::access::Access;
use crate::error::BenchError;
use crate::record::{Recorder, Timed};
use crate::workload::{Action, Generator};
use sherman::Error;
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// One operation in this many is timed.
pub(crate) const SAMPLE_EVERY: u64 = 8;

/// When to stop.
#[derive(Debug)]
pub(crate) struct Limits<'a> {
    pub deadline: Option<Instant>,
    /// Set by the first client that fails.
    pub abort: &'a AtomicBool,
    pub phase: &'static str,
}

/// What a client knows about the tree besides its keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub value_size: usize,
    /// The highest number among loaded keys: a range that ends before it is wrong.
    pub last: u64,
}

/// A running client.
pub(crate) struct Driver<'a, A> {
    access: &'a A,
    limits: &'a Limits<'a>,
    recorder: &'a RefCell<Recorder>,
    generator: &'a mut Generator,
    key: Vec<u8>,
    value: Vec<u8>,
    seen: Vec<u8>,
    last: u64,
}

impl<'a, A: Access> Driver<'a, A> {
    pub(crate) fn new(
        access: &'a A,
        limits: &'a Limits<'a>,
        recorder: &'a RefCell<Recorder>,
        generator: &'a mut Generator,
        known: Known,
    ) -> Self {
        let (key, value) = (vec![0; generator.keys().key_size()], vec![0; known.value_size]);
        Self { access, limits, recorder, generator, key, value, seen: Vec::new(), last: known.last }
    }

    /// Performs at most `quota` operations, fewer if time runs out or another client fails.
    pub(crate) async fn run(mut self, quota: u64) -> Result<(), BenchError> {
        let mut latest = None;
        for count in 0..quota {
            let late = latest.zip(self.limits.deadline).is_some_and(|(now, deadline)| now >= deadline);
            if late || self.limits.abort.load(Ordering::Relaxed) {
                break;
            }
            let action = self.generator.next_action();
            let began = count.is_multiple_of(SAMPLE_EVERY).then(Instant::now);
            let outcome = self.act(action, count, began).await;
            match outcome {
                Ok(ended) => latest = ended.or(latest),
                Err(error) => {
                    self.limits.abort.store(true, Ordering::Relaxed);
                    return Err(error);
                }
            }
            self.recorder.borrow_mut().operations += 1;
        }
        Ok(())
    }

    /// Performs one action. Returns its end time if `began` is given.
    async fn act(
        &mut self,
        action: Action,
        count: u64,
        began: Option<Instant>,
    ) -> Result<Option<Instant>, BenchError> {
        match action {
            Action::Get(index) => {
                self.get(index).await?;
                Ok(self.time(Timed::Get, began))
            }
            Action::Update(index) => {
                // If the workload removes keys, an update may turn out to be an insert.
                let updated = self.insert(index, count, true).await?;
                Ok(self.time(if updated { Timed::Update } else { Timed::Insert }, began))
            }
            Action::Insert(index) => {
                self.insert(index, count, false).await?;
                Ok(self.time(Timed::Insert, began))
            }
            Action::ReadModifyWrite(index) => {
                self.get(index).await?;
                let between = self.time(Timed::Get, began);
                self.insert(index, count, true).await?;
                let ended = self.time(Timed::Update, between);
                if let (Some(began), Some(ended)) = (began, ended) {
                    self.recorder.borrow_mut().record(Timed::ReadModifyWrite, began, ended);
                }
                Ok(ended)
            }
            Action::Range { from, entries } => {
                self.range(from, entries).await?;
                Ok(self.time(Timed::Range, began))
            }
            Action::Remove(index) => {
                self.remove(index).await?;
                Ok(self.time(Timed::Remove, began))
            }
        }
    }

    fn time(&self, timed: Timed, began: Option<Instant>) -> Option<Instant> {
        let began = began?;
        let ended = Instant::now();
        self.recorder.borrow_mut().record(timed, began, ended);
        Some(ended)
    }

    async fn get(&mut self, index: u64) -> Result<(), BenchError> {
        self.generator.keys().write_key(index, &mut self.key);
        let found = self.access.get(&self.key, &mut self.seen).await;
        if !found.map_err(|error| self.failed(error))? {
            return if self.generator.removes() {
                Ok(())
            } else {
                Err(BenchError::Wrong { what: "an existing key was not found", index })
            };
        }
        self.check_value(index)
    }

    /// Inserts under key `index`. `there` is the expected answer to whether the key existed; returns the
    /// actual answer.
    async fn insert(&mut self, index: u64, version: u64, there: bool) -> Result<bool, BenchError> {
        let keys = self.generator.keys();
        keys.write_key(index, &mut self.key);
        keys.write_value(index, version, &mut self.value);
        let updated = self.access.insert(&self.key, &self.value, &mut self.seen).await;
        let updated = match updated {
            // The client had to rejoin the cluster. If the workload removes no keys, it is known whether the
            // key existed before the first try, so the insert can be repeated.
            Err(Error::OutcomeUnknown { .. }) if !self.generator.removes() => {
                let again = self.access.insert(&self.key, &self.value, &mut self.seen).await;
                again.map_err(|error| self.failed(error))?;
                there
            }
            updated => updated.map_err(|error| self.failed(error))?,
        };
        if updated {
            self.check_value(index)?;
        } else {
            self.recorder.borrow_mut().added += 1;
        }
        match updated {
            true if !there => Err(BenchError::Wrong { what: "a new key already existed", index }),
            false if there && !self.generator.removes() => {
                Err(BenchError::Wrong { what: "an updated key did not exist", index })
            }
            _ => Ok(updated),
        }
    }

    async fn remove(&mut self, index: u64) -> Result<(), BenchError> {
        self.generator.keys().write_key(index, &mut self.key);
        let removed = self.access.remove(&self.key, &mut self.seen).await;
        if removed.map_err(|error| self.failed(error))? {
            self.recorder.borrow_mut().removed += 1;
            self.check_value(index)?;
        }
        Ok(())
    }

    /// Reads a range. Its keys must ascend from the first key, which must exist. The range must end with the
    /// last entry asked for, or with the last key of the tree. The last value must belong to its key. Of
    /// every other entry only the key is checked, because more work would measure the benchmark itself.
    async fn range(&mut self, from: u64, entries: u64) -> Result<(), BenchError> {
        let keys = *self.generator.keys();
        keys.write_key(from, &mut self.key);
        let first = keys.number(from);
        let (mut count, mut latest, mut ascending, mut begins) = (0, first, true, false);
        let Self { access, key, seen, .. } = self;
        let read = access.range(key, usize::try_from(entries).unwrap_or(usize::MAX), |key, value| {
            let number = keys.number_in(key);
            begins |= number == first;
            ascending &= number > latest || (count == 0 && begins);
            latest = number;
            count += 1;
            if count == entries {
                seen.clear();
                seen.extend_from_slice(value);
            }
        });
        read.await.map_err(|error| self.failed(error))?;
        let wrong = |what| Err(BenchError::Wrong { what, index: from });
        if !ascending {
            return wrong("the keys of a range do not ascend");
        }
        if !begins && !self.generator.removes() {
            return wrong("a range did not begin with its first key");
        }
        if count > entries {
            return wrong("a range returned more entries than requested");
        }
        if count == entries {
            let Some(index) = keys.index_of(latest) else {
                return wrong("a range returned a key that no client inserted");
            };
            self.check_value(index)?;
        } else if latest < self.last && !self.generator.removes() {
            return wrong("a range ended before the last key");
        }
        let mut recorder = self.recorder.borrow_mut();
        recorder.ranges += 1;
        recorder.range_entries += count;
        Ok(())
    }

    fn check_value(&self, index: u64) -> Result<(), BenchError> {
        if self.seen.len() == self.value.len() && self.generator.keys().value_fits(index, &self.seen) {
            Ok(())
        } else {
            Err(BenchError::Wrong { what: "a value does not belong to its key", index })
        }
    }

    fn failed(&self, error: Error) -> BenchError {
        BenchError::Operation { phase: self.limits.phase, error }
    }
}

/// Runs a future that never waits, such as one on a blocking client.
pub(crate) fn run_at_once<T>(future: impl Future<Output = Result<T, BenchError>>) -> Result<T, BenchError> {
    match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => Err(BenchError::Thread("a blocking client did not block".to_owned())),
    }
}

/// A running client, one of several on its thread.
type Running<'f> = Pin<Box<dyn Future<Output = Result<(), BenchError>> + 'f>>;

/// Runs futures concurrently. Returns the first error, if any, after all are done. Every wake polls all
/// remaining futures. That is cheaper than telling them apart, because many futures finish per wake.
pub(crate) async fn run_together<'f>(
    futures: impl Iterator<Item = impl Future<Output = Result<(), BenchError>> + 'f>,
) -> Result<(), BenchError> {
    let mut left: Vec<Running<'f>> = futures.map(|future| Box::pin(future) as _).collect();
    let mut outcome = Ok(());
    std::future::poll_fn(|cx| {
        left.retain_mut(|future| match future.as_mut().poll(cx) {
            Poll::Pending => true,
            Poll::Ready(done) => {
                if outcome.is_ok() {
                    outcome = done;
                }
                false
            }
        });
        if left.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{HotKeys, Keys};
    use crate::workload::{Demand, Workload};
    use crate::zipf::Zipf;
    use std::collections::BTreeMap;

    /// A map that can give wrong answers on demand.
    #[derive(Default)]
    struct Liar {
        map: RefCell<BTreeMap<Vec<u8>, Vec<u8>>>,
        forgets: bool,
        swaps: bool,
        skips: bool,
        stops: bool,
    }

    impl Access for Liar {
        async fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Error> {
            let map = self.map.borrow();
            let found = if self.swaps { map.values().next() } else { map.get(key) };
            value.clear();
            value.extend_from_slice(found.map_or(&[], Vec::as_slice));
            Ok(found.is_some())
        }

        async fn insert(&self, key: &[u8], value: &[u8], old: &mut Vec<u8>) -> Result<bool, Error> {
            let replaced =
                self.map.borrow_mut().insert(key.to_vec(), value.to_vec()).filter(|_| !self.forgets);
            Ok(replaced.map(|replaced| *old = replaced).is_some())
        }

        async fn remove(&self, key: &[u8], old: &mut Vec<u8>) -> Result<bool, Error> {
            let removed = self.map.borrow_mut().remove(key);
            Ok(removed.map(|removed| *old = removed).is_some())
        }

        async fn range(
            &self,
            from: &[u8],
            entries: usize,
            mut visit: impl FnMut(&[u8], &[u8]),
        ) -> Result<(), Error> {
            let map = self.map.borrow();
            let mut found: Vec<_> = map.range(from.to_vec()..).take(entries).collect();
            if self.swaps {
                found.reverse();
            }
            if self.stops {
                found.pop();
            }
            let other = map.values().next().map_or(&[][..], Vec::as_slice);
            found.iter().for_each(|(key, value)| visit(key, if self.skips { other } else { value }));
            Ok(())
        }
    }

    fn run(liar: Liar, demand: Demand) -> Result<(Recorder, usize), BenchError> {
        let keys = Keys::new(50, 8, HotKeys::Scattered).expect("legal keys");
        for index in 0..50 {
            let (mut key, mut value) = (vec![0; 8], vec![0; 8]);
            keys.write_key(index, &mut key);
            keys.write_value(index, 0, &mut value);
            liar.map.borrow_mut().insert(key, value);
        }
        let zipf = Zipf::new(50, 0.0).expect("a legal skew");
        let mut generator = Generator::new(demand, keys, zipf, 1, 0, 1);
        let abort = AtomicBool::new(false);
        let limits = Limits { deadline: None, abort: &abort, phase: "measuring" };
        let recorder = RefCell::new(Recorder::new()?);
        let known = Known { value_size: 8, last: keys.sorted().last().expect("keys") };
        let driver = Driver::new(&liar, &limits, &recorder, &mut generator, known);
        let outcome = run_at_once(driver.run(8000));
        assert_eq!(outcome.is_err(), abort.load(Ordering::Relaxed));
        outcome?;
        let recorder = recorder.into_inner();
        assert_eq!(50 + recorder.added - recorder.removed, liar.map.borrow().len() as u64);
        Ok((recorder, liar.map.borrow().len()))
    }

    #[test]
    fn an_honest_index_passes_and_one_operation_in_eight_is_timed() {
        for workload in Workload::ALL {
            for removes in [0, 30] {
                let demand = Demand { removes, range_size: 10, ..Demand::of(workload) };
                let (recorder, _) = run(Liar::default(), demand).expect("an honest index");
                let sampled: u64 = Timed::ALL.into_iter().map(|timed| recorder.latencies(timed).len()).sum();
                let twice = 2 * recorder.latencies(Timed::ReadModifyWrite).len();
                assert_eq!((recorder.operations, sampled - twice), (8000, 1000), "{workload:?}");
                assert_eq!((recorder.ranges > 0, recorder.removed > 0), (workload.has_ranges(), removes > 0));
                assert!(recorder.range_entries <= 10 * recorder.ranges);
            }
        }
    }

    #[test]
    fn wrong_answers_end_the_run() {
        let wrong = |liar, workload, word: &str| match run(liar, Demand::of(workload)) {
            Err(BenchError::Wrong { what, .. }) => assert!(what.contains(word), "{what}"),
            other => panic!("{other:?}"),
        };
        wrong(Liar { forgets: true, ..Liar::default() }, Workload::YcsbA, "updated key");
        wrong(Liar { swaps: true, ..Liar::default() }, Workload::ReadOnly, "value");
        wrong(Liar { swaps: true, ..Liar::default() }, Workload::RangeOnly, "ascend");
        wrong(Liar { stops: true, ..Liar::default() }, Workload::RangeOnly, "before the last key");
        let few = Demand { range_size: 10, ..Demand::of(Workload::RangeOnly) };
        assert!(matches!(
            run(Liar { skips: true, ..Liar::default() }, few),
            Err(BenchError::Wrong { what, .. }) if what.contains("value")
        ));
    }
}
