//! A participant's means: its endpoint, the stage it shares with the others, and its own randomness.

use super::harness::Body;
use super::report::Breach;
use super::stage::{Facts, Stage};
use crate::endpoint::Execute;
use crate::{Counters, Endpoint, FabricError, Space, WorkList, execute, sleep_until, yield_now};
use std::cell::Cell;
use std::fmt::Display;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

/// Every so many pauses are a sleep, so that virtual time moves on even if it waits for every task to rest.
const PAUSES_PER_SLEEP: u64 = 4;
/// How long that sleep is.
const SLEEP_NANOS: u64 = 500;

/// Every so many lists a participant yields.
const LISTS_PER_YIELD: u64 = 16;

/// What a participant waits for, kept for the breach that says it waited in vain.
pub(super) type Waiting = Rc<Cell<&'static str>>;

/// A participant on stage.
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
    pub fn new(endpoint: Rc<E>, stage: Arc<Stage>, index: usize) -> Self {
        // Odd, so never zero, which xorshift could not leave.
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

    pub fn waiting(&self) -> Waiting {
        Rc::clone(&self.waiting)
    }

    pub fn endpoint(&self) -> &E {
        &self.endpoint
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    pub fn stage(&self) -> &Stage {
        &self.stage
    }

    pub fn facts(&self) -> &Facts {
        &self.stage.facts
    }

    /// Its number among the participants, from 0.
    pub fn index(&self) -> u64 {
        self.index as u64
    }

    /// The rounds of a writer that is observed, from 1: at least as many as asked for, and until observers have looked as
    /// often, so that a slow observer still has something to see.
    pub fn observed_rounds(&self) -> impl Iterator<Item = u64> + '_ {
        let rounds = self.facts().rounds;
        (1..).take_while(move |&round| round <= rounds || self.stage.looks() < rounds)
    }

    /// Whether the writers are still at it: what an observer asks before it looks again.
    pub fn looks_on(&self, writers: u64) -> bool {
        self.stage.look();
        self.stage.finished() < writers
    }

    /// A random number below `limit`: xorshift, the same for the same seed on every machine.
    pub fn below(&self, limit: u64) -> u64 {
        let mut x = self.random.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random.set(x);
        (x >> 16) % limit.max(1)
    }

    /// Fails with a breach of the scenario's rule unless `holds`.
    pub fn check(&self, holds: bool, detail: impl FnOnce() -> String) -> Result<(), Breach> {
        if holds { Ok(()) } else { Err(self.breach(detail())) }
    }

    pub fn breach(&self, detail: impl Display) -> Breach {
        self.stage.breach(format!("participant {}: {detail}", self.index))
    }

    /// Lets the others go on, without blocking the thread.
    pub async fn pause(&self) {
        let pauses = self.pauses.get() + 1;
        self.pauses.set(pauses);
        if pauses.is_multiple_of(PAUSES_PER_SLEEP) {
            sleep_until(&*self.endpoint, self.endpoint.now().saturating_add(SLEEP_NANOS)).await;
        } else {
            yield_now().await;
        }
    }

    /// Waits until the stage shows it. Bounded like everything by [`bounded`].
    pub async fn until(&self, what: &'static str, shown: impl Fn(&Stage) -> bool) {
        while !shown(&self.stage) {
            self.waiting.set(what);
            self.pause().await;
        }
    }

    /// Waits until every participant is here.
    pub async fn meet(&self) {
        let meeting = self.meetings.get() + 1;
        self.meetings.set(meeting);
        self.stage.arrive();
        self.until("all participants to meet", |stage| stage.all_arrived(meeting)).await;
    }

    /// An empty list.
    pub fn list(&self, server: u16) -> WorkList {
        self.endpoint.list(server)
    }

    /// Posts at once; await the result later.
    pub fn post(&self, list: WorkList) -> Execute<'_, E> {
        execute(&*self.endpoint, list, &self.counters)
    }

    /// The outcome of a list, which may be an error.
    pub async fn outcome(&self, posted: Execute<'_, E>) -> Result<WorkList, FabricError> {
        self.waiting.set("a list to complete");
        let result = posted.await;
        // Where verbs finish inline nothing else would ever let go of the thread, and no bound be looked at.
        let lists = self.lists.get() + 1;
        self.lists.set(lists);
        if lists.is_multiple_of(LISTS_PER_YIELD) {
            yield_now().await;
        }
        result
    }

    /// The results of a list that is legal, so must complete.
    pub async fn done(&self, posted: Execute<'_, E>) -> Result<WorkList, Breach> {
        self.outcome(posted).await.map_err(|error| self.breach(format_args!("a legal list ended in error: {error}")))
    }

    /// Posts a legal list and waits for it.
    pub async fn run(&self, list: WorkList) -> Result<WorkList, Breach> {
        self.done(self.post(list)).await
    }

    /// One READ, as one round trip.
    pub async fn read(&self, server: u16, space: Space, offset: u64, len: usize) -> Result<Vec<u8>, Breach> {
        let mut list = self.list(server);
        let read = list.read(space, offset, len as u32);
        let list = self.run(list).await?;
        let bytes = list.bytes(read).to_vec();
        self.endpoint.recycle(list);
        Ok(bytes)
    }

    /// One READ of a word.
    pub async fn word(&self, server: u16, space: Space, offset: u64) -> Result<u64, Breach> {
        Ok(word_at(&self.read(server, space, offset, 8).await?, 0))
    }

    /// One WRITE, as one round trip.
    pub async fn write(&self, server: u16, space: Space, offset: u64, data: &[u8]) -> Result<(), Breach> {
        let mut list = self.list(server);
        list.write(space, offset, data);
        let list = self.run(list).await?;
        self.endpoint.recycle(list);
        Ok(())
    }
}

/// Runs a participant's future, but no longer than [`Patience`](super::Patience) allows, and not beyond a breach seen by
/// another. So every wait in every scenario is bounded here, in one place.
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
    // Ticks wake a participant whose own wait will never end: to see that another has stopped, and at last the deadline.
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
            return Poll::Ready(Err(stage.breach(format!("participant {index} did not finish: it waits for {what}"))));
        }
        if now >= next_tick {
            next_tick = now.saturating_add(tick).min(deadline);
            endpoint.wake_at(next_tick, cx.waker());
        }
        Poll::Pending
    })
    .await
}

/// A participant that panics on its thread does not leave the others waiting.
struct StopOnPanic<'s>(&'s Stage);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop();
        }
    }
}

/// `len` bytes of the same word over and over.
pub(super) fn fill(word: u64, len: usize) -> Vec<u8> {
    word.to_le_bytes().iter().copied().cycle().take(len).collect()
}

/// The word at byte `at`.
pub(super) fn word_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

/// The words that `bytes` begin with, unit by unit.
pub(super) fn unit_words(bytes: &[u8], unit: usize) -> impl Iterator<Item = u64> + '_ {
    bytes.chunks_exact(unit).map(|unit| word_at(unit, 0))
}

/// The byte that all of `bytes` are, if they are one.
pub(super) fn uniform(bytes: &[u8]) -> Option<u8> {
    let first = *bytes.first()?;
    bytes.iter().all(|&byte| byte == first).then_some(first)
}
