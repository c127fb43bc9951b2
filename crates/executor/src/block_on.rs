//! Runs one future on the calling thread, without an executor.
//!
//! Blocking clients use it. On a backend whose verbs finish inline, the first poll is usually the last, so
//! the cost around the poll counts. The waker is ready in thread-local storage, and nothing is allocated.
//! `examples/overhead` measures about 1 ns.
//!
//! What must hold: another poll follows every wake, from any thread, at any moment after the poll began. The
//! parker is one word with four values. A wake always leaves `WOKEN`, and unparks if it found `PARKED` or
//! `IN_DRIVER`. The thread parks only after it has turned `EMPTY` into one of these two. All of these are
//! read-modify-write operations on one word, so one comes first.
//!
//! The parker holds the unparker before its word becomes `IN_DRIVER`. A waker may read the unparker late,
//! after the thread has returned for another reason. If it finds none, the thread has seen `WOKEN`. If it
//! finds the unparker of a later park, that park ends early.

use crate::idle::{Idle, Parker};
use crate::sync::{AtomicU8, Mutex, Thread, current, park};
use crate::{Driver, Unpark};
use std::cell::Cell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

const EMPTY: u8 = 0;
const WOKEN: u8 = 1;
const PARKED: u8 = 2;
const IN_DRIVER: u8 = 3;

/// Puts its thread to sleep until it is woken.
struct ThreadParker {
    state: AtomicU8,
    thread: Thread,
    /// Ends the sleep if the state is `IN_DRIVER`.
    unparker: Mutex<Option<Arc<dyn Unpark>>>,
}

impl ThreadParker {
    /// Whether the thread was woken since the last call.
    fn take(&self) -> bool {
        self.state.swap(EMPTY, Ordering::Acquire) == WOKEN
    }

    /// Runs `sleep` with the word set to `state`, unless the thread was woken.
    fn sleep(&self, state: u8, sleep: impl FnOnce()) {
        if self.state.compare_exchange(EMPTY, state, Ordering::Acquire, Ordering::Acquire).is_ok() {
            sleep();
            // Back to EMPTY, unless a wake came in between.
            let _ = self.state.compare_exchange(state, EMPTY, Ordering::Acquire, Ordering::Acquire);
        }
    }

    /// Replaces the unparker. Nothing panics while the lock is held, so a poisoned mutex still guards a valid
    /// value.
    fn exchange_unparker(&self, unparker: Option<Arc<dyn Unpark>>) {
        // Dropped after the lock is released, because the destructor is the driver's code.
        let _before =
            std::mem::replace(&mut *self.unparker.lock().unwrap_or_else(PoisonError::into_inner), unparker);
    }

    #[cold]
    fn unpark_driver(&self) {
        let unparker = self.unparker.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(unparker) = unparker {
            unparker.unpark();
        }
    }
}

impl Parker for ThreadParker {
    fn park(&self, limit: Option<Duration>) {
        self.sleep(PARKED, || park(limit));
    }

    fn park_in(&self, unparker: Arc<dyn Unpark>, park: impl FnOnce()) {
        self.exchange_unparker(Some(unparker));
        self.sleep(IN_DRIVER, park);
        self.exchange_unparker(None);
    }
}

impl Wake for ThreadParker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        match self.state.swap(WOKEN, Ordering::AcqRel) {
            PARKED => self.thread.unpark(),
            IN_DRIVER => self.unpark_driver(),
            _ => {}
        }
    }
}

/// A parker and its waker, made once for each thread.
struct Seat {
    parker: Arc<ThreadParker>,
    waker: Waker,
    taken: Cell<bool>,
}

impl Seat {
    fn new() -> Self {
        let parker = Arc::new(ThreadParker {
            state: AtomicU8::new(EMPTY),
            thread: current(),
            unparker: Mutex::new(None),
        });
        Self { waker: Waker::from(Arc::clone(&parker)), parker, taken: Cell::new(false) }
    }

    /// Runs `future` until it finishes.
    #[inline]
    fn drive<D: Driver + ?Sized, F: Future>(&self, driver: &D, mut future: Pin<&mut F>) -> F::Output {
        let mut cx = Context::from_waker(&self.waker);
        loop {
            match future.as_mut().poll(&mut cx) {
                Poll::Ready(output) => return output,
                Poll::Pending => self.wait(driver),
            }
        }
    }

    #[cold]
    fn wait<D: Driver + ?Sized>(&self, driver: &D) {
        let mut idle = Idle::default();
        while !self.parker.take() {
            if driver.progress() {
                idle.reset();
            } else {
                idle.pause(driver, None, &*self.parker);
            }
        }
    }
}

#[cfg(not(loom))]
std::thread_local! {
    static SEAT: Seat = Seat::new();
}

#[cfg(loom)]
loom::thread_local! {
    static SEAT: Seat = Seat::new();
}

/// Frees the thread's seat when the call ends, also by a panic.
struct Sitting<'s>(&'s Cell<bool>);

impl Drop for Sitting<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// Runs one future on the calling thread until it finishes. Allocates nothing if the first poll is the last.
///
/// Waits as [`LocalExecutor::run_until`](crate::LocalExecutor::run_until) does: it spins for as long as
/// [`Driver::spins`] says. Then it parks, in the driver or for at most [`Driver::idle_for`]. Calls may be
/// nested: the inner call then makes its own waker.
#[inline]
pub fn block_on<D: Driver + ?Sized, F: Future>(driver: &D, future: F) -> F::Output {
    let mut future = pin!(future);
    let seated = SEAT.try_with(|seat| {
        if seat.taken.replace(true) {
            return None;
        }
        let _sitting = Sitting(&seat.taken);
        Some(seat.drive(driver, future.as_mut()))
    });
    match seated {
        Ok(Some(output)) => output,
        // The call is nested, or the thread is being torn down.
        Ok(None) | Err(_) => Seat::new().drive(driver, future),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::sync::Mutex;

    struct Nothing;

    impl Driver for Nothing {
        fn progress(&self) -> bool {
            false
        }
        fn idle_for(&self) -> Option<Duration> {
            None
        }
    }

    /// Waits until another thread has stored a value and called the waker.
    async fn receive(seat: &Mutex<(Option<u32>, Option<Waker>)>) -> u32 {
        poll_fn(|cx| {
            let mut seat = seat.lock().expect("not poisoned");
            match seat.0.take() {
                Some(value) => Poll::Ready(value),
                None => {
                    seat.1 = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    fn send(seat: &Mutex<(Option<u32>, Option<Waker>)>, value: u32) {
        let waker = {
            let mut seat = seat.lock().expect("not poisoned");
            seat.0 = Some(value);
            seat.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    #[test]
    fn a_wake_from_another_thread_ends_the_wait() {
        let rounds = if cfg!(miri) { 10 } else { 2_000 };
        let (there, back) = (Mutex::default(), Mutex::default());
        std::thread::scope(|scope| {
            scope.spawn(|| (0..rounds).for_each(|_| send(&back, block_on(&Nothing, receive(&there)) + 1)));
            for round in 0..rounds {
                send(&there, round);
                assert_eq!(block_on(&Nothing, receive(&back)), round + 1);
            }
        });
    }

    #[test]
    fn a_nested_call_does_not_swallow_the_wake_of_the_outer_one() {
        let seat = Mutex::default();
        let mut polls = 0;
        block_on(
            &Nothing,
            poll_fn(|cx| {
                polls += 1;
                if polls == 2 {
                    return Poll::Ready(());
                }
                cx.waker().wake_by_ref();
                std::thread::scope(|scope| {
                    scope.spawn(|| send(&seat, 1));
                    assert_eq!(block_on(&Nothing, receive(&seat)), 1);
                });
                Poll::Pending
            }),
        );
        assert_eq!(polls, 2);
    }

    /// Sleeps on its own token; counts its sleeps.
    #[derive(Default)]
    struct Sleeping {
        token: Arc<Token>,
        spun: Cell<u32>,
        sleeps: Cell<u32>,
    }

    #[derive(Default)]
    struct Token(Mutex<bool>, std::sync::Condvar);

    impl Unpark for Token {
        fn unpark(&self) {
            *self.0.lock().expect("not poisoned") = true;
            self.1.notify_one();
        }
    }

    impl Driver for Sleeping {
        fn progress(&self) -> bool {
            false
        }
        fn idle_for(&self) -> Option<Duration> {
            Some(Duration::ZERO)
        }
        fn spins(&self, rounds: u32) -> bool {
            self.spun.set(self.spun.get().max(rounds));
            rounds < 3
        }
        fn unparker(&self) -> Option<Arc<dyn Unpark>> {
            Some(Arc::clone(&self.token) as Arc<dyn Unpark>)
        }
        fn park(&self, _: Option<Duration>) {
            self.sleeps.set(self.sleeps.get() + 1);
            let called = self.token.0.lock().expect("not poisoned");
            *self.token.1.wait_while(called, |called| !*called).expect("not poisoned") = false;
        }
    }

    #[test]
    fn a_wake_from_another_thread_ends_a_sleep_in_the_driver() {
        let rounds = if cfg!(miri) { 10 } else { 500 };
        let (there, back) = (Mutex::default(), Mutex::default());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let driver = Sleeping::default();
                (0..rounds).for_each(|_| send(&back, block_on(&driver, receive(&there)) + 1));
            });
            let driver = Sleeping::default();
            for round in 0..rounds {
                send(&there, round);
                assert_eq!(block_on(&driver, receive(&back)), round + 1);
            }
            assert!(driver.sleeps.get() > 0, "it never slept: nothing was tested");
            assert!(driver.spun.get() <= 3, "it spun longer than the driver said");
        });
        SEAT.with(|seat| {
            assert!(seat.parker.unparker.lock().expect("not poisoned").is_none(), "a driver was kept")
        });
    }

    #[test]
    fn the_seat_is_free_again_after_a_panic() {
        let caught = std::panic::catch_unwind(|| block_on(&Nothing, async { panic!("on purpose") }));
        assert!(caught.is_err());
        assert!(!SEAT.with(|seat| seat.taken.get()));
    }
}
