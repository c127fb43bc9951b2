//! Tests of the executor's guarantees.

use super::*;
use crate::{Gone, Timers, block_on};
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A driver with nothing to deliver: only other threads wake tasks.
struct Nothing;

impl Driver for Nothing {
    fn progress(&self) -> bool {
        false
    }
    fn idle_for(&self) -> Option<Duration> {
        None
    }
}

/// A driver whose clock advances by one with every call, and which never lets its executor park.
#[derive(Default)]
struct Ticking {
    now: Cell<u64>,
    timers: Timers,
}

impl Driver for Ticking {
    fn progress(&self) -> bool {
        self.now.set(self.now.get() + 1);
        self.timers.fire(self.now.get())
    }
    fn idle_for(&self) -> Option<Duration> {
        Some(Duration::ZERO)
    }
}

async fn sleep_until(driver: Rc<Ticking>, at: u64) {
    poll_fn(|cx| {
        if driver.now.get() >= at {
            return Poll::Ready(());
        }
        driver.timers.insert(at, cx.waker());
        Poll::Pending
    })
    .await;
}

async fn yield_now() {
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// A gate that one task waits at, and its opener.
#[derive(Default)]
struct Gate {
    open: Cell<bool>,
    waker: Cell<Option<Waker>>,
}

impl Gate {
    async fn pass(&self) {
        poll_fn(|cx| {
            if self.open.get() {
                return Poll::Ready(());
            }
            self.waker.set(Some(cx.waker().clone()));
            Poll::Pending
        })
        .await;
    }

    fn open(&self) {
        self.open.set(true);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

#[test]
fn tasks_run_in_the_order_in_which_they_were_woken() {
    let executor = LocalExecutor::new();
    let log = Rc::new(RefCell::new(Vec::new()));
    for name in 0..3 {
        let log = Rc::clone(&log);
        drop(executor.spawn(async move {
            for _ in 0..2 {
                log.borrow_mut().push(name);
                yield_now().await;
            }
        }));
    }
    assert_eq!(executor.drain(&Nothing, || false), 0);
    assert_eq!(*log.borrow(), [0, 1, 2, 0, 1, 2]);
}

#[test]
fn a_dropped_handle_detaches_and_the_task_runs_to_its_end() {
    let executor = LocalExecutor::new();
    let driver = Rc::new(Ticking::default());
    let done = Rc::new(Cell::new(false));
    let (seen, clock) = (Rc::clone(&done), Rc::clone(&driver));
    drop(executor.spawn(async move {
        sleep_until(clock, 5).await;
        seen.set(true);
    }));
    assert_eq!(executor.tasks(), 1);
    assert_eq!(executor.drain(&*driver, || false), 0);
    assert!(done.get());
}

#[test]
fn run_until_returns_the_results_of_tasks_it_waits_for() {
    let executor = LocalExecutor::new();
    let driver = Rc::new(Ticking::default());
    let handles: Vec<_> = (0..10u64)
        .map(|n| {
            let clock = Rc::clone(&driver);
            executor.spawn(async move {
                sleep_until(clock, 100 - n).await;
                n
            })
        })
        .collect();
    let borrowed = String::from("the main future may borrow");
    let sum = executor.run_until(&*driver, async {
        let mut sum = borrowed.len() as u64;
        for handle in handles {
            sum += handle.await.expect("the executor is alive");
        }
        sum
    });
    assert_eq!(sum, 45 + borrowed.len() as u64);
    assert!(driver.timers.is_empty());
}

#[test]
fn a_task_woken_while_it_runs_is_run_again() {
    let executor = LocalExecutor::new();
    let polls = Rc::new(Cell::new(0));
    let seen = Rc::clone(&polls);
    drop(executor.spawn(poll_fn(move |cx| {
        seen.set(seen.get() + 1);
        cx.waker().wake_by_ref();
        cx.waker().wake_by_ref();
        if seen.get() == 3 { Poll::Ready(()) } else { Poll::Pending }
    })));
    assert_eq!((executor.tick(), executor.ready()), (1, 1));
    assert_eq!((executor.tick(), executor.ready()), (1, 1));
    assert_eq!((executor.tick(), executor.ready()), (1, 0), "a finished task leaves the queue");
    assert_eq!((polls.get(), executor.tasks()), (3, 0));
}

#[test]
fn duplicate_wakes_queue_a_task_once() {
    let executor = LocalExecutor::new();
    let gate = Rc::new(Gate::default());
    let inside = Rc::clone(&gate);
    drop(executor.spawn(async move { inside.pass().await }));
    executor.tick();
    let waker = gate.waker.take().expect("the task waits");
    for _ in 0..100 {
        waker.wake_by_ref();
    }
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..100).for_each(|_| waker.wake_by_ref()));
        }
    });
    assert_eq!(executor.ready(), 1);
}

#[test]
fn a_wake_of_a_finished_task_harms_nobody() {
    let executor = LocalExecutor::new();
    let gate = Rc::new(Gate::default());
    let inside = Rc::clone(&gate);
    drop(executor.spawn(async move { inside.pass().await }));
    executor.tick();
    let stale = gate.waker.take().expect("the task waits");
    gate.open.set(true);
    stale.wake_by_ref();
    executor.tick();
    assert_eq!(executor.tasks(), 0);

    stale.wake_by_ref();
    std::thread::scope(|scope| {
        scope.spawn(|| stale.wake_by_ref());
    });
    assert_eq!(executor.ready(), 0, "the slot is vacant");

    let next = executor.spawn(async { 7 });
    stale.wake_by_ref();
    assert_eq!(executor.run_until(&Nothing, next), Ok(7));
    drop(executor);
    stale.wake_by_ref();
    std::thread::scope(|scope| {
        scope.spawn(|| stale.wake_by_ref());
    });
}

#[test]
fn ids_tell_the_tenants_of_a_slot_apart() {
    let executor = LocalExecutor::new();
    drop(executor.spawn(async {}));
    let first = executor.ready_task(0).expect("ready");
    executor.tick();
    drop(executor.spawn(async {}));
    let second = executor.ready_task(0).expect("ready");
    assert_ne!(first, second);
    assert_eq!((first.to_string(), second.to_string()), ("0.0".into(), "0.1".into()));
}

#[test]
fn a_scheduler_runs_exactly_the_task_it_chose() {
    let executor = LocalExecutor::new();
    let log = Rc::new(RefCell::new(Vec::new()));
    for name in 0..4 {
        let log = Rc::clone(&log);
        drop(executor.spawn(async move { log.borrow_mut().push(name) }));
    }
    let ids: Vec<_> = (0..executor.ready()).map_while(|nth| executor.ready_task(nth)).collect();
    assert!(executor.run_ready(2));
    assert_eq!(*log.borrow(), [2]);
    assert_eq!(executor.ready_task(2), Some(ids[3]));
    assert!(executor.run_ready(2) && executor.run_ready(0) && executor.run_ready(0));
    assert!(!executor.run_ready(0));
    assert_eq!(*log.borrow(), [2, 3, 0, 1]);
}

#[test]
fn a_task_may_spawn_and_a_future_may_wake_when_dropped() {
    struct OnDrop(Rc<Gate>);
    impl Drop for OnDrop {
        fn drop(&mut self) {
            self.0.open();
        }
    }
    let executor = Rc::new(LocalExecutor::new());
    let gate = Rc::new(Gate::default());
    let (spawner, waiter, opener) = (Rc::clone(&executor), Rc::clone(&gate), OnDrop(Rc::clone(&gate)));
    let outer = executor.spawn(async move {
        let inner = spawner.spawn(async move {
            waiter.pass().await;
            5
        });
        yield_now().await;
        drop(opener);
        inner.await.expect("alive") + 1
    });
    assert_eq!(executor.run_until(&Nothing, outer), Ok(6));
}

#[test]
fn a_panicking_task_leaves_the_others_alone() {
    let executor = LocalExecutor::new();
    let bad = executor.spawn(async { panic!("on purpose") });
    let good = executor.spawn(async { 1 });
    let caught =
        catch_unwind(AssertUnwindSafe(|| executor.run_until(&Nothing, std::future::pending::<()>())));
    assert!(caught.is_err());
    assert_eq!(executor.tasks(), 1);
    assert_eq!(executor.run_until(&Nothing, good), Ok(1));
    assert_eq!(executor.run_until(&Nothing, bad), Err::<(), _>(Gone));
}

#[test]
fn a_handle_that_outlives_the_executor_says_gone() {
    let executor = LocalExecutor::new();
    let handle = executor.spawn(std::future::pending::<u32>());
    executor.tick();
    assert!(!handle.is_finished());
    drop(executor);
    assert!(handle.is_finished());
    assert_eq!(block_on(&Nothing, handle), Err(Gone));
}

#[test]
fn drain_stops_on_request_and_returns_what_remains() {
    let executor = LocalExecutor::new();
    drop(executor.spawn(async {}));
    drop(executor.spawn(std::future::pending::<()>()));
    let asked = Cell::new(0);
    // The driver sets no limit for a park: drain must still check its condition.
    let left = executor.drain(&Nothing, || asked.replace(asked.get() + 1) > 70);
    assert_eq!(left, 1);
}

#[test]
fn tasks_that_only_yield_do_not_starve_the_driver() {
    let executor = LocalExecutor::new();
    let driver = Rc::new(Ticking::default());
    drop(executor.spawn(async {
        loop {
            yield_now().await;
        }
    }));
    executor.run_until(&*driver, sleep_until(Rc::clone(&driver), 3));
}

#[test]
fn a_nested_run_until_keeps_the_wakes_of_the_outer_one() {
    let executor = Rc::new(LocalExecutor::new());
    let gate = Rc::new(Gate::default());
    let (nested, inside) = (Rc::clone(&executor), Rc::clone(&gate));
    let mut first = true;
    let outer = executor.spawn(poll_fn(move |cx| {
        if std::mem::replace(&mut first, false) {
            // The task is woken while it is being polled, and its turn comes inside the nested call.
            cx.waker().wake_by_ref();
            let opener = Rc::clone(&inside);
            drop(nested.spawn(async move { opener.open() }));
            nested.run_until(&Nothing, inside.pass());
            return Poll::Pending;
        }
        Poll::Ready(9)
    }));
    assert_eq!(executor.run_until(&Nothing, outer), Ok(9));
}

#[test]
fn wakes_from_other_threads_are_never_lost() {
    const TASKS: usize = 8;
    let rounds = if cfg!(miri) { 20 } else { 2_000 };
    let executor = LocalExecutor::new();
    let parked: Arc<Vec<Mutex<Option<Waker>>>> = Arc::new((0..TASKS).map(|_| Mutex::new(None)).collect());
    let done = Arc::new(AtomicUsize::new(0));
    let handles: Vec<_> = (0..TASKS)
        .map(|task| {
            let parked = Arc::clone(&parked);
            executor.spawn(async move {
                for _ in 0..rounds {
                    let mut waiting = false;
                    poll_fn(|cx| {
                        let mut seat = parked[task].lock().expect("not poisoned");
                        if std::mem::replace(&mut waiting, true) && seat.is_none() {
                            return Poll::Ready(());
                        }
                        *seat = Some(cx.waker().clone());
                        Poll::Pending
                    })
                    .await;
                }
            })
        })
        .collect();
    let wakers: Vec<_> = (0..2)
        .map(|_| {
            let (parked, done) = (Arc::clone(&parked), Arc::clone(&done));
            std::thread::spawn(move || {
                while done.load(Ordering::Relaxed) == 0 {
                    for seat in parked.iter() {
                        let waker = seat.lock().expect("not poisoned").take();
                        if let Some(waker) = waker {
                            waker.wake();
                        }
                    }
                    std::thread::yield_now();
                }
            })
        })
        .collect();
    executor.run_until(&Nothing, async {
        for handle in handles {
            handle.await.expect("alive");
        }
    });
    done.store(1, Ordering::Relaxed);
    for waker in wakers {
        waker.join().expect("no panic");
    }
}
