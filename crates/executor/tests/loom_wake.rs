//! Explores every interleaving of a wake from another thread with an executor that is about to park.
//!
//! Under loom a park has no time-out, so a lost wake-up is a deadlock, which loom reports.
#![cfg(loom)]

use loom::model::Builder;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Condvar, Mutex};
use loom::thread;
use sherman_executor::{Driver, LocalExecutor, Unpark, block_on};
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

struct Nothing;

impl Driver for Nothing {
    fn progress(&self) -> bool {
        false
    }
    fn idle_for(&self) -> Option<Duration> {
        None
    }
}

/// A driver that parks the thread itself, as a socket driver does. A sleep that no thread ends is a deadlock.
#[derive(Default)]
struct Sleeping(Arc<Token>);

/// Stands for the event counter of a socket driver.
#[derive(Default)]
struct Token {
    called: Mutex<bool>,
    condvar: Condvar,
}

impl Unpark for Token {
    fn unpark(&self) {
        *self.called.lock().unwrap() = true;
        self.condvar.notify_one();
    }
}

impl Driver for Sleeping {
    fn progress(&self) -> bool {
        false
    }
    fn idle_for(&self) -> Option<Duration> {
        unreachable!("a driver that parks the thread itself minds its own deadlines")
    }
    fn unparker(&self) -> Option<Arc<dyn Unpark>> {
        Some(Arc::clone(&self.0) as Arc<dyn Unpark>)
    }
    fn park(&self, _: Option<Duration>) {
        let mut called = self.0.called.lock().unwrap();
        while !*called {
            called = self.0.condvar.wait(called).unwrap();
        }
        *called = false;
    }
}

/// A driver whose first sleep ends by itself, as if a socket became readable. Its second sleep does not.
#[derive(Default)]
struct Restless {
    driver: Sleeping,
    slept: AtomicBool,
}

impl Driver for Restless {
    fn progress(&self) -> bool {
        false
    }
    fn idle_for(&self) -> Option<Duration> {
        None
    }
    fn unparker(&self) -> Option<Arc<dyn Unpark>> {
        self.driver.unparker()
    }
    fn park(&self, limit: Option<Duration>) {
        if self.slept.swap(true, Ordering::Relaxed) {
            self.driver.park(limit);
        }
    }
}

/// A flag that one task waits for and another thread sets.
#[derive(Default)]
struct Signal {
    set: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Signal {
    fn wait(self: &Arc<Self>) -> impl Future<Output = ()> + 'static {
        let signal = Arc::clone(self);
        poll_fn(move |cx| {
            *signal.waker.lock().unwrap() = Some(cx.waker().clone());
            if signal.set.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
        })
    }

    fn set(&self) {
        self.set.store(true, Ordering::Release);
        let waker = self.waker.lock().unwrap().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

fn explore(preemptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(model);
}

#[test]
fn block_on_loses_no_wake() {
    explore(None, || {
        let signal = Arc::new(Signal::default());
        let setter = Arc::clone(&signal);
        let other = thread::spawn(move || setter.set());
        block_on(&Nothing, signal.wait());
        other.join().unwrap();
    });
}

#[test]
fn the_poll_after_a_wake_sees_what_the_waker_published() {
    explore(None, || {
        let flag = Arc::new(AtomicBool::new(false));
        let mut other = None;
        block_on(
            &Nothing,
            poll_fn(|cx| {
                if other.is_none() {
                    let (flag, waker) = (Arc::clone(&flag), cx.waker().clone());
                    other = Some(thread::spawn(move || {
                        // Relaxed: only the wake itself orders this.
                        flag.store(true, Ordering::Relaxed);
                        waker.wake();
                    }));
                }
                if flag.load(Ordering::Relaxed) { Poll::Ready(()) } else { Poll::Pending }
            }),
        );
        other.take().unwrap().join().unwrap();
    });
}

#[test]
fn block_on_survives_two_wakers_and_a_second_call() {
    explore(Some(4), || {
        let signals = [Arc::new(Signal::default()), Arc::new(Signal::default())];
        let others = signals.clone().map(|signal| thread::spawn(move || signal.set()));
        for signal in &signals {
            block_on(&Nothing, signal.wait());
        }
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}

#[test]
fn run_until_loses_no_wake_of_its_own_future() {
    explore(Some(4), || {
        let executor = LocalExecutor::new();
        let signal = Arc::new(Signal::default());
        let setter = Arc::clone(&signal);
        let other = thread::spawn(move || setter.set());
        executor.run_until(&Nothing, signal.wait());
        other.join().unwrap();
    });
}

#[test]
fn run_until_loses_no_wake_of_tasks_woken_by_two_threads() {
    explore(Some(3), || {
        let executor = LocalExecutor::new();
        let signals = [Arc::new(Signal::default()), Arc::new(Signal::default())];
        let tasks = signals.clone().map(|signal| executor.spawn(async move { signal.wait().await }));
        let others = signals.map(|signal| thread::spawn(move || signal.set()));
        executor.run_until(&Nothing, async {
            for task in tasks {
                task.await.unwrap();
            }
        });
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}

#[test]
fn one_task_woken_by_two_threads_sees_what_both_published() {
    explore(Some(3), || {
        let executor = LocalExecutor::new();
        let waker = Arc::new(Mutex::new(None::<Waker>));
        let flags = [Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false))];
        let (seat, seen) = (Arc::clone(&waker), flags.clone());
        let task = executor.spawn(poll_fn(move |cx| {
            *seat.lock().unwrap() = Some(cx.waker().clone());
            // Relaxed: only the wake itself orders these, coalesced or not.
            if seen.iter().all(|flag| flag.load(Ordering::Relaxed)) { Poll::Ready(()) } else { Poll::Pending }
        }));
        executor.tick();
        let handle = waker.lock().unwrap().clone().expect("polled once");
        let others = flags.map(|flag| {
            let handle = handle.clone();
            thread::spawn(move || {
                flag.store(true, Ordering::Relaxed);
                handle.wake();
            })
        });
        executor.run_until(&Nothing, task).unwrap();
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}

#[test]
fn a_wake_may_race_with_the_end_of_the_executor() {
    explore(None, || {
        let executor = LocalExecutor::new();
        let signal = Arc::new(Signal::default());
        drop(executor.spawn(signal.wait()));
        executor.tick();
        let other = thread::spawn(move || signal.set());
        drop(executor);
        other.join().unwrap();
    });
}

#[test]
fn block_on_loses_no_wake_while_the_driver_parks_the_thread() {
    explore(None, || {
        let signal = Arc::new(Signal::default());
        let setter = Arc::clone(&signal);
        let other = thread::spawn(move || setter.set());
        block_on(&Sleeping::default(), signal.wait());
        other.join().unwrap();
    });
}

#[test]
fn block_on_loses_no_wake_when_a_sleep_in_the_driver_ends_by_itself() {
    explore(Some(4), || {
        let signal = Arc::new(Signal::default());
        let setter = Arc::clone(&signal);
        let other = thread::spawn(move || setter.set());
        block_on(&Restless::default(), signal.wait());
        other.join().unwrap();
    });
}

#[test]
fn block_on_loses_no_wake_when_another_driver_parks_the_thread_the_next_time() {
    explore(Some(3), || {
        let signals = [Arc::new(Signal::default()), Arc::new(Signal::default())];
        let others = signals.clone().map(|signal| thread::spawn(move || signal.set()));
        block_on(&Sleeping::default(), signals[0].wait());
        block_on(&Nothing, signals[1].wait());
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}

#[test]
fn run_until_loses_no_wake_while_the_driver_parks_the_thread() {
    explore(Some(3), || {
        let executor = LocalExecutor::new();
        let signals = [Arc::new(Signal::default()), Arc::new(Signal::default())];
        let task = executor.spawn(signals[0].wait());
        let main = signals[1].wait();
        let others = signals.map(|signal| thread::spawn(move || signal.set()));
        executor.run_until(&Sleeping::default(), async {
            main.await;
            task.await.unwrap();
        });
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}

#[test]
fn run_until_loses_no_wake_when_a_sleep_in_the_driver_ends_by_itself() {
    explore(Some(4), || {
        let executor = LocalExecutor::new();
        let signal = Arc::new(Signal::default());
        let setter = Arc::clone(&signal);
        let other = thread::spawn(move || setter.set());
        executor.run_until(&Restless::default(), signal.wait());
        other.join().unwrap();
    });
}
