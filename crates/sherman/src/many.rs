//! Many operations at once, on one thread and in one future.
//!
//! A batch has a window of *slots*. Each slot takes a key, runs the operation on it, and takes the next key.
//! Each slot has its own waker, so that the batch polls only slots that were woken. On memory of this process
//! operations finish in their first poll. Then the first slot goes on until no key is left: the batch runs as
//! a loop and allocates only one slot.

use crate::batch::Answers;
use crate::codec::Rows;
use crate::ops::Ops;
use crate::seat::SharedSeat;
use sherman_core::Error;
use sherman_executor::outlined;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// How many operations of a batch are in flight at once.
const WINDOW: usize = 64;

/// The operation that a batch runs on each key.
pub(crate) enum Each<'v> {
    Get,
    /// Puts the value with the same number under the key.
    Insert(&'v Rows),
    Remove,
}

impl Ops<'_, SharedSeat> {
    /// Runs the operation on all keys. Operations on equal keys run one after the other, in the order of the
    /// keys.
    #[inline]
    pub(crate) fn many(&self, keys: &Rows, each: Each<'_>) -> impl Future<Output = Answers> {
        outlined(async move {
            let (results, values) = self.many_while(keys, each, |_| true).await;
            // This batch continues after failures, so every operation has run.
            let all = results.into_iter().map(|result| result.unwrap_or(Err(Error::SessionDropped)));
            Answers { found: all.collect(), values }
        })
    }

    /// Inserts as [`many`](Self::many), until the first failure. After it no insert begins, and inserts in
    /// flight wait no longer than `patience`. Inserts that never began have no result. Returns which keys
    /// were present, and their values.
    pub(crate) async fn insert_until_failure(
        &self,
        keys: &Rows,
        values: &Rows,
        patience: Duration,
    ) -> (Vec<Option<Result<bool, Error>>>, Rows) {
        let failed = Cell::new(false);
        let goes_on = |outcome: Result<(), &Error>| {
            if outcome.is_err() && !failed.replace(true) {
                self.seat.cut_short(Some(patience));
            }
            !failed.get()
        };
        let results = self.many_while(keys, Each::Insert(values), goes_on).await;
        self.seat.cut_short(None);
        results
    }

    /// As [`many`](Self::many), until `goes_on` returns false. `goes_on` receives the outcome of each
    /// operation.
    async fn many_while(
        &self,
        keys: &Rows,
        each: Each<'_>,
        goes_on: impl Fn(Result<(), &Error>) -> bool,
    ) -> (Vec<Option<Result<bool, Error>>>, Rows) {
        // Values of any length are kept one by one until all are known.
        let any_length = self.tree.has_blocks();
        let value_bytes = if any_length { 0 } else { self.tree.shape().leaf.payload_len() };
        let long = RefCell::new(vec![Vec::new(); if any_length { keys.len() } else { 0 }]);
        let results = RefCell::new((vec![None; keys.len()], Rows::zeroed(keys.len(), value_bytes)));
        let order = match each {
            Each::Get => None,
            Each::Insert(_) | Each::Remove => Some(RefCell::new(Order::of(keys.len()))),
        };
        let queue = Queue { keys, next: Cell::new(0), stopped: Cell::new(false), order };
        in_parallel(
            || queue.is_empty(),
            async || {
                let mut buffer = Vec::new();
                let mut after = None;
                while let Some(number) = queue.take(after) {
                    let key = keys.row(number);
                    let found = match &each {
                        Each::Get => self.get(key, &mut buffer).await,
                        Each::Insert(values) => self.insert(key, values.row(number), &mut buffer).await,
                        Each::Remove => self.remove(key, &mut buffer).await,
                    };
                    let goes_on = goes_on(found.as_ref().map(drop));
                    let (results, values) = &mut *results.borrow_mut();
                    match found {
                        Ok(true) if any_length => {
                            long.borrow_mut()[number] = std::mem::take(&mut buffer);
                        }
                        Ok(true) => values.row_mut(number).copy_from_slice(&buffer),
                        _ => {}
                    }
                    results[number] = Some(found);
                    if !goes_on {
                        queue.stop();
                    }
                    after = Some(number);
                }
            },
        )
        .await;
        let (results, values) = results.into_inner();
        (results, if any_length { Rows::joined(&long.into_inner()) } else { values })
    }
}

/// Gives out the keys of a batch, by number.
struct Queue<'k> {
    keys: &'k Rows,
    /// The first number that was not considered yet.
    next: Cell<usize>,
    /// Whether numbers that wait for others must stay undone.
    stopped: Cell<bool>,
    /// `Some` if operations on equal keys must run one after the other.
    order: Option<RefCell<Order>>,
}

/// The keys in progress, and the numbers that wait for them. A short hash identifies a key. So two different
/// keys sometimes wait for each other, which is cheaper than comparing all keys.
struct Order {
    /// For each hash in progress, the last known number plus one; zero for other hashes.
    last: Vec<usize>,
    /// For a number, the next number with the same hash.
    after: BTreeMap<usize, usize>,
}

/// How many different hashes there are per key in flight.
const HASHES: usize = 64;

/// A hash, of which a few bits are used. Keys that collide on purpose only run one after the other.
#[inline]
fn hash(key: &[u8]) -> usize {
    let (words, rest) = key.as_chunks::<8>();
    // Combines both halves of the product, so that every bit of a word affects the used bits.
    let mix = |hash: u64, word: u64| {
        let product = u128::from(hash ^ word) * 0x9e37_79b9_7f4a_7c15;
        product as u64 ^ (product >> 64) as u64
    };
    let hash = words.iter().fold(key.len() as u64, |hash, word| mix(hash, u64::from_be_bytes(*word)));
    let hash = rest.iter().fold(hash, |hash, byte| mix(hash, u64::from(*byte)));
    (hash >> 40) as usize
}

impl Queue<'_> {
    /// Whether every number was given out or waits for one that was.
    fn is_empty(&self) -> bool {
        self.next.get() == self.keys.len()
    }

    /// Stops giving out numbers.
    fn stop(&self) {
        self.next.set(self.keys.len());
        self.stopped.set(true);
    }

    /// The next number for a slot that has finished `done`. A number with the same key comes first.
    #[inline]
    fn take(&self, done: Option<usize>) -> Option<usize> {
        if let (Some(done), Some(order)) = (done, &self.order) {
            let following = order.borrow_mut().end(done, self.keys.row(done));
            if following.is_some() && !self.stopped.get() {
                return following;
            }
        }
        while !self.is_empty() {
            let number = self.next.get();
            self.next.set(number + 1);
            if self.order.as_ref().is_none_or(|order| order.borrow_mut().begin(number, self.keys.row(number)))
            {
                return Some(number);
            }
        }
        None
    }
}

impl Order {
    /// The order of a batch of `count` keys.
    fn of(count: usize) -> Self {
        let hashes = (HASHES * count.clamp(1, WINDOW)).next_power_of_two();
        Self { last: vec![0; hashes], after: BTreeMap::new() }
    }

    /// The entry for the hash of `key`.
    #[inline]
    fn last(&mut self, key: &[u8]) -> &mut usize {
        let mask = self.last.len() - 1;
        &mut self.last[hash(key) & mask]
    }

    /// Whether `number` may begin now, because no slot works on its key. Otherwise it is queued behind the
    /// last one.
    #[inline]
    fn begin(&mut self, number: usize, key: &[u8]) -> bool {
        match std::mem::replace(self.last(key), number + 1) {
            0 => true,
            last => {
                self.after.insert(last - 1, number);
                false
            }
        }
    }

    /// Marks `number` as done and returns the next number with the same key.
    #[inline]
    fn end(&mut self, number: usize, key: &[u8]) -> Option<usize> {
        let following = self.after.remove(&number);
        if following.is_none() {
            *self.last(key) = 0;
        }
        following
    }
}

/// One slot of the batch: a future that works on one key after another.
struct FlightSlot<F> {
    future: Pin<Box<F>>,
    busy: bool,
    woken: Arc<Woken>,
    waker: Waker,
}

/// The waker of one slot. It marks the slot as woken and wakes the batch.
struct Woken {
    woken: AtomicBool,
    batch: Arc<Notifier>,
}

/// Wakes a batch, at most once between two polls of it.
#[derive(Default)]
struct Notifier {
    rung: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Notifier {
    /// Stores the batch's waker. The batch calls this before it checks which slots were woken, so that a
    /// later wake-up wakes it again.
    ///
    /// No wake-up is lost. A slot sets its own flag before it rings. If it finds the notifier already rung,
    /// this call has not reset it yet, so the check after this call sees the flag.
    fn hang(&self, waker: &Waker) {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(waker.clone());
        self.rung.swap(false, Ordering::AcqRel);
    }

    fn ring(&self) {
        if self.rung.swap(true, Ordering::AcqRel) {
            return;
        }
        let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.batch.ring();
    }
}

impl<F: Future<Output = ()>> FlightSlot<F> {
    fn new(future: F, batch: &Arc<Notifier>) -> Self {
        let woken = Arc::new(Woken { woken: AtomicBool::new(true), batch: Arc::clone(batch) });
        Self { future: Box::pin(future), busy: true, waker: Waker::from(Arc::clone(&woken)), woken }
    }

    /// Polls the slot if it was woken. Returns whether it has more to do.
    fn advance(&mut self) -> bool {
        // Loads first, because most slots were not woken and a swap costs as much as a lock.
        while self.busy
            && self.woken.woken.load(Ordering::Relaxed)
            && self.woken.woken.swap(false, Ordering::Acquire)
        {
            self.busy = self.future.as_mut().poll(&mut Context::from_waker(&self.waker)).is_pending();
        }
        self.busy
    }
}

/// Runs `work` in as many slots as there is work for, up to [`WINDOW`], until all of them are done.
async fn in_parallel(is_empty: impl Fn() -> bool, work: impl AsyncFn()) {
    let mut slots = Vec::new();
    let batch = Arc::<Notifier>::default();
    poll_fn(|cx| {
        batch.hang(cx.waker());
        let mut busy = false;
        for slot in &mut slots {
            busy |= FlightSlot::advance(slot);
        }
        while slots.len() < WINDOW && !is_empty() {
            let mut slot = FlightSlot::new(work(), &batch);
            busy |= slot.advance();
            slots.push(slot);
        }
        if busy { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(keys: &[&str]) -> Rows {
        Rows::of::<Vec<u8>, _>(keys.iter())
    }

    /// A queue of these keys.
    fn queue(keys: &Rows) -> Queue<'_> {
        let order = Some(RefCell::new(Order::of(WINDOW)));
        Queue { keys, next: Cell::new(0), stopped: Cell::new(false), order }
    }

    #[test]
    fn equal_keys_are_given_out_one_after_the_other() {
        let keys = rows(&["b", "a", "b", "c", "a", "b"]);
        let queue = queue(&keys);
        assert_eq!([queue.take(None), queue.take(None), queue.take(None)], [Some(0), Some(1), Some(3)]);
        assert!(queue.take(None).is_none() && queue.is_empty());
        assert_eq!(queue.take(Some(0)), Some(2));
        assert_eq!(queue.take(Some(3)), None);
        assert_eq!(queue.take(Some(1)), Some(4));
        assert_eq!(queue.take(Some(2)), Some(5));
        assert_eq!([queue.take(Some(4)), queue.take(Some(5))], [None, None]);
        let order = queue.order.unwrap().into_inner();
        assert!(order.last.iter().all(|last| *last == 0) && order.after.is_empty());
    }

    #[test]
    fn a_queue_that_is_stopped_gives_nothing_out() {
        let keys = rows(&["b", "a", "b", "c"]);
        let queue = queue(&keys);
        assert_eq!(queue.take(None), Some(0));
        assert_eq!(queue.take(None), Some(1));
        queue.stop();
        assert_eq!([queue.take(Some(0)), queue.take(Some(1)), queue.take(None)], [None, None, None]);
    }

    #[test]
    fn a_key_that_is_done_may_begin_again() {
        let mut order = Order::of(1);
        assert!(order.begin(0, b"a"));
        assert_eq!(order.end(0, b"a"), None);
        assert!(order.begin(1, b"a"));
        assert!(!order.begin(2, b"a"));
        assert_eq!(order.end(1, b"a"), Some(2));
    }

    #[test]
    fn hashes_of_numbers_are_many() {
        let all = HASHES * WINDOW;
        for keys in [u64::to_be_bytes, u64::to_le_bytes] {
            let hashes: std::collections::BTreeSet<usize> =
                (0..all as u64).map(|number| hash(&keys(number)) % all).collect();
            assert!(hashes.len() > all / 2, "{}", hashes.len());
        }
        assert_ne!(hash(b"a") % all, hash(b"b") % all);
    }

    /// Waits `turns` times, each time until its waker is called.
    async fn waits(turns: usize, parked: &RefCell<Vec<Waker>>) {
        for _ in 0..turns {
            let mut asked = false;
            poll_fn(|cx| {
                if std::mem::replace(&mut asked, true) {
                    return Poll::Ready(());
                }
                parked.borrow_mut().push(cx.waker().clone());
                Poll::Pending
            })
            .await;
        }
    }

    #[test]
    fn so_many_run_at_once_and_all_run_to_their_end() {
        let parked = RefCell::default();
        let (next, running, most, done) =
            (Cell::new(0), Cell::new(0), Cell::new(0), RefCell::new(vec![0; 1_000]));
        let work = async || {
            while next.get() < 1_000 {
                let item = next.replace(next.get() + 1);
                running.set(running.get() + 1);
                most.set(most.get().max(running.get()));
                waits(item % 4, &parked).await;
                running.set(running.get() - 1);
                done.borrow_mut()[item] += 1;
            }
        };
        let mut batch = std::pin::pin!(in_parallel(|| next.get() == 1_000, work));
        let mut cx = Context::from_waker(Waker::noop());
        let mut turns = 0;
        while batch.as_mut().poll(&mut cx).is_pending() {
            turns += 1;
            // Only half of the slots, so that the test notices if the batch polls slots that were not woken.
            let mut woken: Vec<Waker> = parked.borrow_mut().drain(..).collect();
            let keep = woken.split_off(woken.len().div_ceil(2));
            parked.borrow_mut().extend(keep);
            woken.into_iter().for_each(Waker::wake);
        }
        assert_eq!(*done.borrow(), vec![1; 1_000]);
        assert_eq!(most.get(), WINDOW);
        assert!(turns > 10, "only {turns} turns");
    }

    #[test]
    fn operations_that_never_wait_need_one_slot() {
        let (next, slots) = (Cell::new(0), Cell::new(0));
        let work = async || {
            slots.set(slots.get() + 1);
            next.set(1_000);
        };
        let mut batch = std::pin::pin!(in_parallel(|| next.get() == 1_000, work));
        assert!(batch.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
        assert_eq!(slots.get(), 1);
    }

    /// Counts its wake-ups.
    #[derive(Default)]
    struct Calls(std::sync::atomic::AtomicUsize);

    impl Wake for Calls {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn the_first_wake_after_a_poll_wakes_the_batch_and_the_others_need_not() {
        let (parked, calls) = (RefCell::default(), Arc::new(Calls::default()));
        let waker = Waker::from(Arc::clone(&calls));
        let mut cx = Context::from_waker(&waker);
        let begun = Cell::new(0);
        let work = async || {
            begun.set(begun.get() + 1);
            waits(3, &parked).await;
        };
        let mut batch = std::pin::pin!(in_parallel(|| begun.get() == WINDOW, work));
        for turn in 1..=3 {
            assert!(batch.as_mut().poll(&mut cx).is_pending());
            let woken: Vec<Waker> = parked.borrow_mut().drain(..).collect();
            assert_eq!(woken.len(), WINDOW, "a task was woken and not polled");
            woken.into_iter().for_each(Waker::wake);
            assert_eq!(calls.0.load(Ordering::Relaxed), turn);
        }
        assert!(batch.as_mut().poll(&mut cx).is_ready());
    }
}
