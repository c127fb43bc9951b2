//! One future on the calling thread, without an executor.
//!
//! The way of blocking clients. On a backend whose verbs finish inline the first poll is usually the last, so what counts
//! is what surrounds it: the waker lies ready in thread-local storage and nothing is allocated. Measured by
//! `examples/overhead`: about 1 ns.
//!
//! What must hold: a wake, from any thread, at any moment after the poll began, is followed by another poll. The parker is
//! one word with three values: a wake always leaves `WOKEN` and unparks if it found `PARKED`; the thread parks only after
//! it has turned `EMPTY` into `PARKED`. All are read-modify-write operations on one word, so one comes first.

use crate::Driver;
use crate::idle::Idle;
use crate::sync::{AtomicU8, Thread, current, park};
use std::cell::Cell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

const EMPTY: u8 = 0;
const WOKEN: u8 = 1;
const PARKED: u8 = 2;

/// Puts its thread to sleep until it is woken.
struct Parker {
    state: AtomicU8,
    thread: Thread,
}

impl Parker {
    /// Whether it was woken since it was last asked.
    fn take(&self) -> bool {
        self.state.swap(EMPTY, Ordering::Acquire) == WOKEN
    }

    /// Parks for at most `limit`, unless woken. May return early.
    fn park(&self, limit: Option<Duration>) {
        if self.state.compare_exchange(EMPTY, PARKED, Ordering::Acquire, Ordering::Acquire).is_ok() {
            park(limit);
            // Back to EMPTY, unless a wake got in between.
            let _ = self.state.compare_exchange(PARKED, EMPTY, Ordering::Acquire, Ordering::Acquire);
        }
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.swap(WOKEN, Ordering::AcqRel) == PARKED {
            self.thread.unpark();
        }
    }
}

/// A parker and its waker, made once for each thread.
struct Seat {
    parker: Arc<Parker>,
    waker: Waker,
    taken: Cell<bool>,
}

impl Seat {
    fn new() -> Self {
        let parker = Arc::new(Parker { state: AtomicU8::new(EMPTY), thread: current() });
        Self { waker: Waker::from(Arc::clone(&parker)), parker, taken: Cell::new(false) }
    }

    /// Runs `future` to its end.
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
                idle.pause(driver, None, |limit| self.parker.park(limit));
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

/// Frees the thread's seat when the call is over, by a panic too.
struct Sitting<'s>(&'s Cell<bool>);

impl Drop for Sitting<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// Runs one future to its end on the calling thread. Allocates nothing if its first poll is its last.
///
/// Waits as [`LocalExecutor::run_until`](crate::LocalExecutor::run_until) does: 64 rounds of spinning, then parks of at
/// most [`Driver::idle_for`]. May be nested: the inner call then makes a waker of its own.
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
        // Nested, or the thread is being torn down.
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

    /// Waits for a wake from another thread, after which `value` is there.
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

    #[test]
    fn the_seat_is_free_again_after_a_panic() {
        let caught = std::panic::catch_unwind(|| block_on(&Nothing, async { panic!("on purpose") }));
        assert!(caught.is_err());
        assert!(!SEAT.with(|seat| seat.taken.get()));
    }
}
