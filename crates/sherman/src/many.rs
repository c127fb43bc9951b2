//! Many operations at once, on one thread and in one future.
//!
//! A window of operations is in flight; each has a waker of its own, so that only those are polled that were woken. An operation that
//! finishes in its first poll, as they do on memory of this process, leaves its place to the next one at once: then the
//! batch runs as a loop, and one place is all it allocates.

use crate::codec::Rows;
use crate::ops::Ops;
use sherman_core::Error;
use std::cell::RefCell;
use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// Operations of a batch that are in flight at once.
const WINDOW: usize = 64;

/// What a batch does with each key.
pub(crate) enum Each<'f, 'v> {
    Get,
    /// Puts the value of the same number under it.
    Insert(&'f dyn Fn(usize) -> &'v [u8]),
    Remove,
}

impl Ops<'_> {
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
        // What stays like this did not run to its end; in a batch that returns there is none.
        let results = RefCell::new((0..count).map(|_| Err(Error::SessionDropped)).collect::<Vec<_>>());
        let buffers: RefCell<Vec<Vec<u8>>> = RefCell::default();
        let next = match each {
            Each::Get => None,
            Each::Insert(_) | Each::Remove => Some(Chains::of(count, &key)),
        };
        let (results_of, buffers_of, key, each, decode, chains) = (&results, &buffers, &key, &each, &decode, &next);
        let chain = |first: usize| async move {
            let mut buffer = buffers_of.borrow_mut().pop().unwrap_or_default();
            let mut at = Some(first);
            while let Some(number) = at {
                let found = match each {
                    Each::Get => self.get(key(number), &mut buffer).await,
                    Each::Insert(value) => self.insert(key(number), value(number), &mut buffer).await,
                    Each::Remove => self.remove(key(number), &mut buffer).await,
                };
                results_of.borrow_mut()[number] = found.map(|found| found.then(|| decode(number, &buffer)));
                at = chains.as_ref().and_then(|chains| chains.next[number]);
            }
            buffers_of.borrow_mut().push(buffer);
        };
        match chains {
            None => in_parallel(0..count, chain).await,
            Some(chains) => in_parallel((0..count).filter(|&number| chains.first[number]), chain).await,
        }
        results.into_inner()
    }
}

/// Which keys of a batch are equal.
struct Chains {
    /// The next of the same key.
    next: Vec<Option<usize>>,
    /// Whether it is the first of its key.
    first: Vec<bool>,
}

impl Chains {
    fn of<'k>(count: usize, key: &impl Fn(usize) -> &'k [u8]) -> Self {
        let mut chains = Self { next: vec![None; count], first: vec![true; count] };
        let mut last = HashMap::with_capacity(count);
        for number in 0..count {
            if let Some(before) = last.insert(key(number), number) {
                chains.next[before] = Some(number);
                chains.first[number] = false;
            }
        }
        chains
    }
}

/// A place of the window.
struct Place<F> {
    future: Pin<Box<F>>,
    busy: bool,
    woken: Arc<Woken>,
    waker: Waker,
}

/// The waker of one place: says which it was, and wakes the batch.
struct Woken {
    woken: AtomicBool,
    batch: Arc<Mutex<Option<Waker>>>,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Before the batch is woken, which looks at it. Who finds no waker comes after another who took it, before the batch
        // was polled: it puts its waker there first and looks then.
        self.woken.store(true, Ordering::Release);
        let batch = self.batch.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = batch {
            waker.wake();
        }
    }
}

impl<F: Future<Output = ()>> Place<F> {
    fn new(future: F, batch: &Arc<Mutex<Option<Waker>>>) -> Self {
        let woken = Arc::new(Woken { woken: AtomicBool::new(true), batch: Arc::clone(batch) });
        Self { future: Box::pin(future), busy: true, waker: Waker::from(Arc::clone(&woken)), woken }
    }

    /// Polls what is here, if it was woken, and what comes after it, until something waits. Whether something does.
    fn advance<T>(&mut self, items: &mut impl Iterator<Item = T>, start: &impl Fn(T) -> F) -> bool {
        // First a look: most were not woken, and a swap costs as much as a lock.
        while self.busy && self.woken.woken.load(Ordering::Relaxed) && self.woken.woken.swap(false, Ordering::Acquire) {
            if self.future.as_mut().poll(&mut Context::from_waker(&self.waker)).is_pending() {
                continue;
            }
            match items.next() {
                Some(item) => {
                    self.future.set(start(item));
                    self.woken.woken.store(true, Ordering::Relaxed);
                }
                None => self.busy = false,
            }
        }
        self.busy
    }
}

/// Runs `start` of every item, a window of them at a time.
async fn in_parallel<T, F: Future<Output = ()>>(items: impl Iterator<Item = T>, start: impl Fn(T) -> F) {
    let mut items = items;
    let mut places: Vec<Place<F>> = Vec::new();
    let batch = Arc::new(Mutex::new(None));
    poll_fn(|cx| {
        // Before anything is polled: a wake from now on wakes us again.
        *batch.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.waker().clone());
        let mut busy = false;
        for place in &mut places {
            busy |= place.advance(&mut items, &start);
        }
        while places.len() < WINDOW
            && let Some(item) = items.next()
        {
            let mut place = Place::new(start(item), &batch);
            busy |= place.advance(&mut items, &start);
            places.push(place);
        }
        if busy { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn equal_keys_form_chains_in_input_order() {
        let keys: [&[u8]; 6] = [b"b", b"a", b"b", b"c", b"a", b"b"];
        let chains = Chains::of(keys.len(), &|at| keys[at]);
        assert_eq!(chains.next, [Some(2), Some(4), Some(5), None, None, None]);
        assert_eq!(chains.first, [true, true, false, true, false, false]);
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
        let (running, most, done) = (Cell::new(0), Cell::new(0), RefCell::new(vec![0; 1_000]));
        let start = |item: usize| {
            let (parked, running, most, done) = (&parked, &running, &most, &done);
            async move {
                running.set(running.get() + 1);
                most.set(most.get().max(running.get()));
                waits(item % 4, parked).await;
                running.set(running.get() - 1);
                done.borrow_mut()[item] += 1;
            }
        };
        let mut batch = std::pin::pin!(in_parallel(0..1_000, start));
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
        let mut batch = std::pin::pin!(in_parallel(0..WINDOW, |_| waits(3, &parked)));
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
