//! A participant of a scenario: its endpoint, the stage it shares with the others, and its own random
//! numbers.

use super::harness::Body;
use super::report::Breach;
use super::stage::{Facts, Stage};
use sherman_fabric::endpoint::Execute;
use sherman_fabric::{Counters, Endpoint, FabricError, Space, WorkList, execute, sleep_until, yield_now};
use std::cell::Cell;
use std::fmt::Display;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

/// Every n-th pause is a sleep, so that virtual time advances even if it advances only when every task
/// sleeps.
const PAUSES_PER_SLEEP: u64 = 4;
/// The length of that sleep.
const SLEEP_NANOS: u64 = 500;

/// A participant yields after every n-th list.
const LISTS_PER_YIELD: u64 = 16;

/// The event that a participant waits for. A breach names it if the event never comes.
pub(super) type Waiting = Rc<Cell<&'static str>>;

/// A participant in a run.
pub(super) struct Actor<E> {
    endpoint: Rc<E>,
    stage: Arc<Stage>,
    index: usize,
    counters: Counters,
    random: Cell<u64>,
    meetings: Cell<u64>,
    pauses: Cell<u64>,
    lists: Cell<u64>,
    waiting: Waiting,
}

impl<E: Endpoint> Actor<E> {
    pub(super) fn new(endpoint: Rc<E>, stage: Arc<Stage>, index: usize) -> Self {
        // Odd and so never zero, because xorshift cannot leave zero.
        let random = (stage.facts.seed ^ (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1;
        Self {
            endpoint,
            stage,
            index,
            counters: Counters::default(),
            random: Cell::new(random),
            meetings: Cell::new(0),
            pauses: Cell::new(0),
            lists: Cell::new(0),
            waiting: Rc::new(Cell::new("its first poll")),
        }
    }

    pub(super) fn waiting(&self) -> Waiting {
        Rc::clone(&self.waiting)
    }

    pub(super) fn endpoint(&self) -> &E {
        &self.endpoint
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(super) fn stage(&self) -> &Stage {
        &self.stage
    }

    pub(super) fn facts(&self) -> &Facts {
        &self.stage.facts
    }

    /// Its number among the participants, from 0.
    pub(super) fn index(&self) -> u64 {
        self.index as u64
    }

    /// The rounds of an observed writer, from 1. There are at least as many as asked for. They continue until
    /// observers have looked as often, so that a slow observer still has something to see.
    pub(super) fn observed_rounds(&self) -> impl Iterator<Item = u64> + '_ {
        let rounds = self.facts().rounds;
        (1..).take_while(move |&round| round <= rounds || self.stage.looks() < rounds)
    }

    /// Counts one look of an observer. Returns whether some of the writers are still writing.
    pub(super) fn looks_on(&self, writers: u64) -> bool {
        self.stage.look();
        self.stage.finished() < writers
    }

    /// A random number below `limit`, by xorshift. The same seed gives the same numbers on every machine.
    pub(super) fn below(&self, limit: u64) -> u64 {
        let mut x = self.random.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random.set(x);
        (x >> 16) % limit.max(1)
    }

    /// Fails with a breach of the scenario's rule unless `holds`.
    pub(super) fn check(&self, holds: bool, detail: impl FnOnce() -> String) -> Result<(), Breach> {
        if holds { Ok(()) } else { Err(self.breach(detail())) }
    }

    pub(super) fn breach(&self, detail: impl Display) -> Breach {
        self.stage.breach(format!("participant {}: {detail}", self.index))
    }

    /// Lets the other participants run, without blocking the thread.
    pub(super) async fn pause(&self) {
        let pauses = self.pauses.get() + 1;
        self.pauses.set(pauses);
        if pauses.is_multiple_of(PAUSES_PER_SLEEP) {
            sleep_until(&*self.endpoint, self.endpoint.now().saturating_add(SLEEP_NANOS)).await;
        } else {
            yield_now().await;
        }
    }

    /// Waits until `shown` is true of the stage. [`bounded`] limits this wait like every other.
    pub(super) async fn until(&self, what: &'static str, shown: impl Fn(&Stage) -> bool) {
        while !shown(&self.stage) {
            self.waiting.set(what);
            self.pause().await;
        }
    }

    /// Waits until every participant has arrived.
    pub(super) async fn meet(&self) {
        let meeting = self.meetings.get() + 1;
        self.meetings.set(meeting);
        self.stage.arrive();
        self.until("all participants to meet", |stage| stage.all_arrived(meeting)).await;
    }

    /// An empty list for the scenario's server.
    pub(super) fn list(&self) -> WorkList {
        self.endpoint.list(self.facts().server())
    }

    /// Posts at once. The caller awaits the result later.
    pub(super) fn post(&self, list: WorkList) -> Execute<'_, E> {
        execute(&*self.endpoint, list, &self.counters)
    }

    /// The outcome of a list, which may be an error.
    pub(super) async fn outcome(&self, posted: Execute<'_, E>) -> Result<WorkList, FabricError> {
        self.waiting.set("a list to complete");
        let result = posted.await;
        // Where verbs finish inline, nothing else would yield the thread, and no bound would ever be checked.
        let lists = self.lists.get() + 1;
        self.lists.set(lists);
        if lists.is_multiple_of(LISTS_PER_YIELD) {
            yield_now().await;
        }
        result
    }

    /// The results of a legal list, which must complete.
    pub(super) async fn done(&self, posted: Execute<'_, E>) -> Result<WorkList, Breach> {
        self.outcome(posted)
            .await
            .map_err(|error| self.breach(format_args!("a legal list ended in error: {error}")))
    }

    /// Posts a legal list and waits for it.
    pub(super) async fn run(&self, list: WorkList) -> Result<WorkList, Breach> {
        self.done(self.post(list)).await
    }

    /// One READ from the scenario's server, as one round trip.
    pub(super) async fn read(&self, space: Space, offset: u64, len: usize) -> Result<Vec<u8>, Breach> {
        self.read_from(self.facts().server(), space, offset, len).await
    }

    /// One READ, as one round trip.
    pub(super) async fn read_from(
        &self,
        server: u16,
        space: Space,
        offset: u64,
        len: usize,
    ) -> Result<Vec<u8>, Breach> {
        let mut list = self.endpoint.list(server);
        let read = list.read(space, offset, len as u32);
        let list = self.run(list).await?;
        let bytes = list.bytes(read).to_vec();
        self.endpoint.recycle(list);
        Ok(bytes)
    }

    /// One READ of a word of the scenario's server.
    pub(super) async fn word(&self, space: Space, offset: u64) -> Result<u64, Breach> {
        Ok(word_at(&self.read(space, offset, 8).await?, 0))
    }

    /// One WRITE to the scenario's server, as one round trip.
    pub(super) async fn write(&self, space: Space, offset: u64, data: &[u8]) -> Result<(), Breach> {
        self.write_to(self.facts().server(), space, offset, data).await
    }

    /// One WRITE, as one round trip.
    pub(super) async fn write_to(
        &self,
        server: u16,
        space: Space,
        offset: u64,
        data: &[u8],
    ) -> Result<(), Breach> {
        let mut list = self.endpoint.list(server);
        list.write(space, offset, data);
        let list = self.run(list).await?;
        self.endpoint.recycle(list);
        Ok(())
    }
}

/// Runs a participant's future, but stops when [`Patience`](super::Patience) is used up or another
/// participant has seen a breach. So every wait in every scenario is bounded here, in one place.
pub(super) async fn bounded<E: Endpoint>(
    endpoint: Rc<E>,
    stage: Arc<Stage>,
    index: usize,
    waiting: Waiting,
    mut body: Body,
) -> Result<(), Breach> {
    let _guard = StopOnPanic(&stage);
    let patience = stage.facts.patience;
    let deadline = endpoint.now().saturating_add(patience.nanos);
    // Ticks wake a participant whose own wait will never end. It then sees that another participant has
    // stopped, and finally the deadline.
    let tick = (patience.nanos / 512).max(1);
    let (mut next_tick, mut polls) = (endpoint.now(), 0);
    poll_fn(|cx| {
        if stage.is_stopped() {
            return Poll::Ready(Ok(()));
        }
        if let Poll::Ready(result) = body.as_mut().poll(cx) {
            if result.is_err() {
                stage.stop();
            }
            return Poll::Ready(result);
        }
        polls += 1;
        let now = endpoint.now();
        if now >= deadline || polls >= patience.polls {
            stage.stop();
            let what = waiting.get();
            return Poll::Ready(Err(
                stage.breach(format!("participant {index} did not finish: it waits for {what}"))
            ));
        }
        if now >= next_tick {
            next_tick = now.saturating_add(tick).min(deadline);
            endpoint.wake_at(next_tick, cx.waker());
        }
        Poll::Pending
    })
    .await
}

/// Stops the run if a participant panics on its thread, so that the others do not wait.
struct StopOnPanic<'s>(&'s Stage);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop();
        }
    }
}

/// `len` bytes that repeat `word`.
pub(super) fn fill(word: u64, len: usize) -> Vec<u8> {
    word.to_le_bytes().iter().copied().cycle().take(len).collect()
}

/// The word at byte `at`.
pub(super) fn word_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

/// The first word of each unit of `bytes`.
pub(super) fn unit_words(bytes: &[u8], unit: usize) -> impl Iterator<Item = u64> + '_ {
    bytes.chunks_exact(unit).map(|unit| word_at(unit, 0))
}

/// The value of all bytes, if all of `bytes` are equal.
pub(super) fn uniform(bytes: &[u8]) -> Option<u8> {
    let first = *bytes.first()?;
    bytes.iter().all(|&byte| byte == first).then_some(first)
}
