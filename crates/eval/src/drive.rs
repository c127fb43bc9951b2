//! One client: does what its generator says, checks every answer, times some.
//!
//! The same code drives blocking clients and sessions. Reading the clock twice costs as much as a tenth of an operation on
//! embedded memory, so one operation in [`SAMPLE_EVERY`] is timed, whatever its kind; the mix is random, so the sample is
//! fair.

use crate::error::BenchError;
use crate::workload::{Action, Generator};
use hdrhistogram::Histogram;
use sherman::{Error, RawClient, RawSession};
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// One operation in so many is timed.
pub(crate) const SAMPLE_EVERY: u64 = 8;
/// The longest latency that is told from longer ones: longer than any operation's deadline.
const LONGEST_NANOS: u64 = 60_000_000_000;

/// Whose latency is told separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Timed {
    Get,
    Insert,
    Update,
    ReadModifyWrite,
}

impl Timed {
    pub const ALL: [Self; 4] = [Self::Get, Self::Insert, Self::Update, Self::ReadModifyWrite];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Insert => "insert",
            Self::Update => "update",
            Self::ReadModifyWrite => "read_modify_write",
        }
    }
}

/// What the clients of a thread, or, merged, of a run, did.
#[derive(Debug)]
pub(crate) struct Recorder {
    latencies: Vec<Histogram<u64>>,
    /// Operations of the workload: a read-modify-write is one.
    pub operations: u64,
}

impl Recorder {
    pub fn new() -> Result<Self, BenchError> {
        let histogram = || Histogram::new_with_bounds(1, LONGEST_NANOS, 3);
        let latencies = Timed::ALL.iter().map(|_| histogram()).collect::<Result<_, _>>();
        let latencies = latencies.map_err(|error| BenchError::Thread(format!("no histogram: {error:?}")))?;
        Ok(Self { latencies, operations: 0 })
    }

    fn record(&mut self, timed: Timed, from: Instant, to: Instant) {
        let nanos = u64::try_from(to.duration_since(from).as_nanos()).unwrap_or(LONGEST_NANOS);
        self.latencies[timed as usize].saturating_record(nanos.max(1));
    }

    pub fn latencies(&self, timed: Timed) -> &Histogram<u64> {
        &self.latencies[timed as usize]
    }

    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.latencies.iter_mut().zip(&other.latencies) {
            // All histograms have the same bounds, so nothing can fall outside.
            let _ = mine.add(theirs);
        }
        self.operations += other.operations;
    }
}

/// When to stop.
#[derive(Debug)]
pub(crate) struct Limits<'a> {
    pub deadline: Option<Instant>,
    /// Set by the first client that fails.
    pub abort: &'a AtomicBool,
    pub phase: &'static str,
}

/// A way to the tree: at once, or by and by.
pub(crate) trait Access {
    async fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Error>;
    async fn insert(&self, key: &[u8], value: &[u8], old: &mut Vec<u8>) -> Result<bool, Error>;
}

impl Access for RawClient {
    async fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Error> {
        RawClient::get(self, key, value)
    }

    async fn insert(&self, key: &[u8], value: &[u8], old: &mut Vec<u8>) -> Result<bool, Error> {
        RawClient::insert(self, key, value, old)
    }
}

impl Access for RawSession {
    async fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Error> {
        let found = RawSession::get(self, key.to_vec()).await?;
        Ok(found.map(|found| *value = found).is_some())
    }

    async fn insert(&self, key: &[u8], value: &[u8], old: &mut Vec<u8>) -> Result<bool, Error> {
        let replaced = RawSession::insert(self, key.to_vec(), value.to_vec()).await?;
        Ok(replaced.map(|replaced| *old = replaced).is_some())
    }
}

/// A client at work.
pub(crate) struct Driver<'a, A> {
    access: &'a A,
    limits: &'a Limits<'a>,
    recorder: &'a RefCell<Recorder>,
    generator: &'a mut Generator,
    key: Vec<u8>,
    value: Vec<u8>,
    seen: Vec<u8>,
}

impl<'a, A: Access> Driver<'a, A> {
    pub fn new(
        access: &'a A,
        limits: &'a Limits<'a>,
        recorder: &'a RefCell<Recorder>,
        generator: &'a mut Generator,
        value_size: usize,
    ) -> Self {
        let key = vec![0; generator.keys().key_size()];
        Self { access, limits, recorder, generator, key, value: vec![0; value_size], seen: Vec::new() }
    }

    /// Does at most `quota` operations, fewer if time runs out or another client fails.
    pub async fn run(mut self, quota: u64) -> Result<(), BenchError> {
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

    /// Does one thing. If it `began` at a known time, so is when it ended.
    async fn act(&mut self, action: Action, count: u64, began: Option<Instant>) -> Result<Option<Instant>, BenchError> {
        match action {
            Action::Get(index) => {
                self.get(index).await?;
                Ok(self.time(Timed::Get, began))
            }
            Action::Update(index) => {
                self.insert(index, count, true).await?;
                Ok(self.time(Timed::Update, began))
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
            return Err(BenchError::Wrong { what: "a key that is there was not found", index });
        }
        self.check_value(index)
    }

    /// Inserts under key `index`, which is `there` or not.
    async fn insert(&mut self, index: u64, version: u64, there: bool) -> Result<(), BenchError> {
        let keys = self.generator.keys();
        keys.write_key(index, &mut self.key);
        keys.write_value(index, version, &mut self.value);
        let updated = self.access.insert(&self.key, &self.value, &mut self.seen).await;
        match updated.map_err(|error| self.failed(error))? {
            true if there => self.check_value(index),
            false if !there => Ok(()),
            true => Err(BenchError::Wrong { what: "a new key was already there", index }),
            false => Err(BenchError::Wrong { what: "an updated key was not there", index }),
        }
    }

    fn check_value(&self, index: u64) -> Result<(), BenchError> {
        if self.seen.len() == self.value.len() && self.generator.keys().value_fits(index, &self.seen) {
            Ok(())
        } else {
            Err(BenchError::Wrong { what: "a value is not its key's", index })
        }
    }

    fn failed(&self, error: Error) -> BenchError {
        BenchError::Operation { phase: self.limits.phase, error }
    }
}

/// Runs a future that never waits: one over a blocking client.
pub(crate) fn run_at_once<T>(future: impl Future<Output = Result<T, BenchError>>) -> Result<T, BenchError> {
    match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => Err(BenchError::Thread("a blocking client did not block".to_owned())),
    }
}

/// A client at work, among others of its thread.
type Running<'f> = Pin<Box<dyn Future<Output = Result<(), BenchError>> + 'f>>;

/// Runs futures side by side; the first error, if any, once all are done. Every wake polls all that are left: with as many
/// finishing per wake as there do, that is cheaper than telling them apart.
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
    use crate::workload::Workload;
    use crate::zipf::Zipf;
    use std::collections::BTreeMap;

    /// A map that can be made to lie.
    #[derive(Default)]
    struct Liar {
        map: RefCell<BTreeMap<Vec<u8>, Vec<u8>>>,
        forgets: bool,
        swaps: bool,
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
            let replaced = self.map.borrow_mut().insert(key.to_vec(), value.to_vec()).filter(|_| !self.forgets);
            Ok(replaced.map(|replaced| *old = replaced).is_some())
        }
    }

    fn run(liar: Liar, workload: Workload) -> Result<(Recorder, usize), BenchError> {
        let keys = Keys::new(50, 8, HotKeys::Scattered).expect("legal keys");
        for index in 0..50 {
            let (mut key, mut value) = (vec![0; 8], vec![0; 8]);
            keys.write_key(index, &mut key);
            keys.write_value(index, 0, &mut value);
            liar.map.borrow_mut().insert(key, value);
        }
        let zipf = Zipf::new(50, 0.0).expect("a legal skew");
        let mut generator = Generator::new(workload, keys, zipf, 1, 0, 1);
        let abort = AtomicBool::new(false);
        let limits = Limits { deadline: None, abort: &abort, phase: "measuring" };
        let recorder = RefCell::new(Recorder::new()?);
        let driver = Driver::new(&liar, &limits, &recorder, &mut generator, 8);
        let outcome = run_at_once(driver.run(8000));
        assert_eq!(outcome.is_err(), abort.load(Ordering::Relaxed));
        outcome?;
        assert_eq!(generator.inserted() as usize + 50, liar.map.borrow().len());
        Ok((recorder.into_inner(), liar.map.borrow().len()))
    }

    #[test]
    fn an_honest_index_passes_and_one_operation_in_eight_is_timed() {
        for workload in Workload::ALL {
            let (recorder, _) = run(Liar::default(), workload).expect("an honest index");
            let sampled: u64 = Timed::ALL.into_iter().map(|timed| recorder.latencies(timed).len()).sum();
            let twice = 2 * recorder.latencies(Timed::ReadModifyWrite).len();
            assert_eq!((recorder.operations, sampled - twice), (8000, 1000), "{workload:?}");
        }
    }

    #[test]
    fn wrong_answers_end_the_run() {
        let wrong = |liar, workload| match run(liar, workload) {
            Err(BenchError::Wrong { what, .. }) => what,
            other => panic!("{other:?}"),
        };
        assert!(wrong(Liar { forgets: true, ..Liar::default() }, Workload::YcsbA).contains("updated key"));
        assert!(wrong(Liar { swaps: true, ..Liar::default() }, Workload::ReadOnly).contains("value"));
    }
}
