//! Many operations at once, on one thread and in one future.
//!
//! Up to a window of *hands* are at work; each takes a key, does what is to be done with it, and takes the next. Each has a waker of its
//! own, so that only those are polled that were woken. A hand whose operations finish in their first poll, as they do on memory of
//! this process, goes on until there is no key left: then the batch runs as a loop, and one hand is all it allocates.

use crate::codec::Rows;
use crate::ops::Ops;
use crate::seat::SharedSeat;
use sherman_core::Error;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// Operations of a batch that are in flight at once.
const WINDOW: usize = 64;

/// What a batch does with each key.
pub(crate) enum Each<'f, 'v> {
    Get,
    /// Puts the value of the same number under it.
    Insert(&'f dyn Fn(usize) -> &'v [u8]),
    Remove,
}

impl Ops<'_, SharedSeat> {
    /// Does the same with `count` keys, and answers with which were found and their values, of `len` bytes.
    pub(crate) async fn many_rows(
        &self,
        count: usize,
        keys: &Rows,
        each: Each<'_, '_>,
        len: usize,
    ) -> (Vec<Result<Option<()>, Error>>, Rows) {
        let values = RefCell::new(Rows::zeroed(count, len));
        let keep = |at: usize, value: &[u8]| values.borrow_mut().row_mut(at).copy_from_slice(value);
        let found = self.many(count, |at| keys.row(at), each, keep).await;
        (found, values.into_inner())
    }

    /// Does the same with `count` keys: what each found, in their order, as `decode` makes it of its number and value. Operations
    /// on equal keys follow each other in that order.
    pub(crate) async fn many<'k, 'v, R>(
        &self,
        count: usize,
        key: impl Fn(usize) -> &'k [u8],
        each: Each<'_, 'v>,
        decode: impl Fn(usize, &[u8]) -> R,
    ) -> Vec<Result<Option<R>, Error>> {
        let results = self.many_while(count, key, each, decode, |_| true).await;
        // In a batch that goes on after failures every operation ran to its end.
        results.into_iter().map(|result| result.unwrap_or(Err(Error::SessionDropped))).collect()
    }

    /// As [`many`](Self::many), until the first failure: then no operation begins any more, and those in flight wait no longer than
    /// `patience`. Operations that never began have no result.
    pub(crate) async fn many_until_failure<'k, 'v, R>(
        &self,
        count: usize,
        key: impl Fn(usize) -> &'k [u8],
        each: Each<'_, 'v>,
        decode: impl Fn(usize, &[u8]) -> R,
        patience: Duration,
    ) -> Vec<Option<Result<Option<R>, Error>>> {
        let failed = Cell::new(false);
        let goes_on = |outcome: Result<(), &Error>| {
            if outcome.is_err() && !failed.replace(true) {
                self.seat.cut_short(Some(patience));
            }
            !failed.get()
        };
        let results = self.many_while(count, key, each, decode, goes_on).await;
        self.seat.cut_short(None);
        results
    }

    /// As [`many`](Self::many), for as long as `goes_on` says so, which learns how each operation ended.
    async fn many_while<'k, 'v, R>(
        &self,
        count: usize,
        key: impl Fn(usize) -> &'k [u8],
        each: Each<'_, 'v>,
        decode: impl Fn(usize, &[u8]) -> R,
        goes_on: impl Fn(Result<(), &Error>) -> bool,
    ) -> Vec<Option<Result<Option<R>, Error>>> {
        let results = RefCell::new((0..count).map(|_| None).collect::<Vec<_>>());
        let order = match each {
            Each::Get => None,
            Each::Insert(_) | Each::Remove => Some(RefCell::new(Order::of(count))),
        };
        let queue = Queue { key, count, next: Cell::new(0), stopped: Cell::new(false), order };
        in_parallel(
            || queue.is_empty(),
            async || {
                let mut buffer = Vec::new();
                let mut after = None;
                while let Some(number) = queue.take(after) {
                    let key = (queue.key)(number);
                    let found = match &each {
                        Each::Get => self.get(key, &mut buffer).await,
                        Each::Insert(value) => self.insert(key, value(number), &mut buffer).await,
                        Each::Remove => self.remove(key, &mut buffer).await,
                    };
                    let goes_on = goes_on(found.as_ref().map(drop));
                    results.borrow_mut()[number] = Some(found.map(|found| found.then(|| decode(number, &buffer))));
                    if !goes_on {
                        queue.stop();
                    }
                    after = Some(number);
                }
            },
        )
        .await;
        results.into_inner()
    }
}

/// Gives the keys of a batch out, by number.
struct Queue<K> {
    key: K,
    count: usize,
    /// The first that was not looked at.
    next: Cell<usize>,
    /// Whether numbers that wait for others stay undone, too.
    stopped: Cell<bool>,
    /// If equal keys are to be worked on one after the other.
    order: Option<RefCell<Order>>,
}

/// What is being worked on, and what waits for it. Keys are told apart by a short hash: two different ones may wait for each other
/// now and then, which is cheaper than to compare all.
struct Order {
    /// Of each hash that is being worked on, the last number that is known, plus one.
    last: Vec<usize>,
    /// Which number comes next after one of the same hash.
    after: BTreeMap<usize, usize>,
}

/// Hashes that are told apart for each key that may be in flight.
const HASHES: usize = 64;

/// A hash, of which a few bits are used. Keys that are made to collide are worked on one after the other.
#[inline]
fn hash(key: &[u8]) -> usize {
    let (words, rest) = key.as_chunks::<8>();
    // Both halves of a product: every bit of a word, first or last, reaches the bits that are used.
    let mix = |hash: u64, word: u64| {
        let product = u128::from(hash ^ word) * 0x9e37_79b9_7f4a_7c15;
        product as u64 ^ (product >> 64) as u64
    };
    let hash = words.iter().fold(key.len() as u64, |hash, word| mix(hash, u64::from_be_bytes(*word)));
    let hash = rest.iter().fold(hash, |hash, byte| mix(hash, u64::from(*byte)));
    (hash >> 40) as usize
}

impl<'k, K: Fn(usize) -> &'k [u8]> Queue<K> {
    /// Whether every number was given out, or waits for one that was.
    fn is_empty(&self) -> bool {
        self.next.get() == self.count
    }

    /// Gives nothing out any more.
    fn stop(&self) {
        self.next.set(self.count);
        self.stopped.set(true);
    }

    /// The next number for a hand that has done `done`: of the same key, if there is one.
    #[inline]
    fn take(&self, done: Option<usize>) -> Option<usize> {
        if let (Some(done), Some(order)) = (done, &self.order) {
            let following = order.borrow_mut().end(done, (self.key)(done));
            if following.is_some() && !self.stopped.get() {
                return following;
            }
        }
        while !self.is_empty() {
            let number = self.next.get();
            self.next.set(number + 1);
            if self.order.as_ref().is_none_or(|order| order.borrow_mut().begin(number, (self.key)(number))) {
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

    /// What is known of the hash of `key`.
    #[inline]
    fn last(&mut self, key: &[u8]) -> &mut usize {
        let mask = self.last.len() - 1;
        &mut self.last[hash(key) & mask]
    }

    /// Whether nobody works on the key of `number`, who is to begin now. Else it waits.
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

    /// `number` is done: which is next of its key.
    #[inline]
    fn end(&mut self, number: usize, key: &[u8]) -> Option<usize> {
        let following = self.after.remove(&number);
        if following.is_none() {
            *self.last(key) = 0;
        }
        following
    }
}

/// One that works on the batch.
struct Hand<F> {
    future: Pin<Box<F>>,
    busy: bool,
    woken: Arc<Woken>,
    waker: Waker,
}

/// The waker of one hand: says which it was, and wakes the batch.
struct Woken {
    woken: AtomicBool,
    batch: Arc<Bell>,
}

/// Wakes a batch, once between two polls of it.
#[derive(Default)]
struct Bell {
    rung: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Bell {
    /// The batch is about to look who was woken: it is to be woken again by whoever comes now.
    ///
    /// Who finds the bell rung, which is before this, has said before that it was woken; so this look sees it.
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

impl<F: Future<Output = ()>> Hand<F> {
    fn new(future: F, batch: &Arc<Bell>) -> Self {
        let woken = Arc::new(Woken { woken: AtomicBool::new(true), batch: Arc::clone(batch) });
        Self { future: Box::pin(future), busy: true, waker: Waker::from(Arc::clone(&woken)), woken }
    }

    /// Goes on if it was woken. Whether there is more to be done.
    fn advance(&mut self) -> bool {
        // First a look: most were not woken, and a swap costs as much as a lock.
        while self.busy && self.woken.woken.load(Ordering::Relaxed) && self.woken.woken.swap(false, Ordering::Acquire) {
            self.busy = self.future.as_mut().poll(&mut Context::from_waker(&self.waker)).is_pending();
        }
        self.busy
    }
}

/// Runs `work` by as many hands as there is work for, up to a window of them, until all of them are done.
async fn in_parallel(is_empty: impl Fn() -> bool, work: impl AsyncFn()) {
    let mut hands = Vec::new();
    let batch = Arc::<Bell>::default();
    poll_fn(|cx| {
        batch.hang(cx.waker());
        let mut busy = false;
        for hand in &mut hands {
            busy |= Hand::advance(hand);
        }
        while hands.len() < WINDOW && !is_empty() {
            let mut hand = Hand::new(work(), &batch);
            busy |= hand.advance();
            hands.push(hand);
        }
        if busy { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue of these keys.
    fn queue<'k>(keys: &'k [&'k [u8]]) -> Queue<impl Fn(usize) -> &'k [u8]> {
        Queue {
            key: |at| keys[at],
            count: keys.len(),
            next: Cell::new(0),
            stopped: Cell::new(false),
            order: Some(RefCell::new(Order::of(WINDOW))),
        }
    }

    #[test]
    fn equal_keys_are_given_out_one_after_the_other() {
        let queue = queue(&[b"b", b"a", b"b", b"c", b"a", b"b"]);
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
        let queue = queue(&[b"b", b"a", b"b", b"c"]);
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

    /// Waits `turns` times, each until it is woken by whoever holds its waker.
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
        let (next, running, most, done) = (Cell::new(0), Cell::new(0), Cell::new(0), RefCell::new(vec![0; 1_000]));
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
            // Every other one, so that some are polled that were not woken, were it not for their flags.
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
    fn who_never_waits_needs_one_hand() {
        let (next, hands) = (Cell::new(0), Cell::new(0));
        let work = async || {
            hands.set(hands.get() + 1);
            next.set(1_000);
        };
        let mut batch = std::pin::pin!(in_parallel(|| next.get() == 1_000, work));
        assert!(batch.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
        assert_eq!(hands.get(), 1);
    }

    /// Counts how often it was called.
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
            assert_eq!(woken.len(), WINDOW, "somebody was woken and not polled");
            woken.into_iter().for_each(Waker::wake);
            assert_eq!(calls.0.load(Ordering::Relaxed), turn);
        }
        assert!(batch.as_mut().poll(&mut cx).is_ready());
    }
}
