//! Explores interleavings of threads of one compute server at its local lock table.
//!
//! The global lane is a flag: it must be clear when a fresh grant arrives, and set when a handover arrives.
//! Under loom a park has no time-out, so a lost wake-up is a deadlock, which loom reports. Loom also reports
//! an access that the lock failed to order.
#![cfg(loom)]

mod jobs;

use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::sync::Mutex;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;
use sherman_core::lock::local::{self, Fairness, Finished, Grant, LaneIndex, LocalLockTable, ReleasePlan};
use sherman_executor::{Driver, block_on};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

const LANE: LaneIndex = LaneIndex { server: 0, lane: 0 };

/// The job of a waiter is its number. The result is that number and the number of the thread that executed
/// the job.
type Table = LocalLockTable<u32, (u32, u32)>;

type Acquire<'t> = local::Acquire<'t, u32, (u32, u32)>;

struct Nothing;

impl Driver for Nothing {
    fn progress(&self) -> bool {
        false
    }
    fn idle_for(&self) -> Option<Duration> {
        None
    }
}

/// A compute server, and the only lane that it locks.
struct World {
    table: Table,
    max_handovers: u32,
    global: AtomicBool,
    node: UnsafeCell<()>,
    /// The holders of the lane in order, each with the kind of its grant.
    log: Mutex<Vec<(u32, Grant)>>,
}

impl World {
    /// Leaked, so that one thread can queue waiters and another can serve them. A model makes few of these.
    fn new(max_handovers: u32) -> &'static Self {
        Box::leak(Box::new(Self {
            table: LocalLockTable::new(1, 1),
            max_handovers,
            global: AtomicBool::new(false),
            node: UnsafeCell::new(()),
            log: Mutex::new(Vec::new()),
        }))
    }

    /// Waits for the lock, works under it, and gives it back.
    fn operate(&self, who: u32, acquire: Acquire<'_>) {
        self.work(who, block_on(&Nothing, acquire));
        self.release();
    }

    /// Takes the global lane if necessary, and touches the node.
    fn work(&self, who: u32, grant: Grant) {
        // Relaxed: the local lock alone must order the threads of one compute server.
        let ours = self.global.load(Ordering::Relaxed);
        assert_eq!(ours, grant == Grant::HandedOver, "{grant:?}, and the lane is ours: {ours}");
        self.global.store(true, Ordering::Relaxed);
        self.node.with_mut(|_| ());
        self.log.lock().unwrap().push((who, grant));
    }

    fn release(&self) {
        let plan = self.table.plan_release(LANE, self.max_handovers, true);
        if plan == ReleasePlan::Global {
            self.global.store(false, Ordering::Relaxed);
        }
        self.finish(plan);
    }

    fn finish(&self, plan: ReleasePlan) {
        if self.table.finish_release(LANE, plan) == Finished::MustReleaseGlobal {
            assert_eq!(plan, ReleasePlan::HandOver);
            self.global.store(false, Ordering::Relaxed);
            assert_eq!(self.table.finish_release(LANE, ReleasePlan::Global), Finished::Done);
        }
    }

    fn hold(&self) {
        let grant = self.table.try_acquire(LANE).expect("free at first");
        self.work(0, grant);
    }

    /// Returns a waiter that is queued behind the holder already.
    fn queued(&self, fairness: Fairness) -> Acquire<'_> {
        let mut acquire = self.table.acquire(LANE, fairness);
        assert_eq!(poll(&mut acquire), Poll::Pending);
        acquire
    }

    fn order(&self) -> Vec<u32> {
        self.log.lock().unwrap().iter().map(|(who, _)| *who).collect()
    }

    /// Asserts that there is no holder and no waiter, and that the global lane is free. Also asserts that no
    /// more handovers in a row happened than allowed.
    fn check_the_end(&self) {
        assert_eq!(self.table.waiting(LANE), 0);
        assert!(!self.global.load(Ordering::Relaxed));
        assert_eq!(self.table.try_acquire(LANE), Some(Grant::Fresh));
        let log = self.log.lock().unwrap();
        let longest = log.split(|(_, grant)| *grant == Grant::Fresh).map(<[_]>::len).max().unwrap_or(0);
        assert!(longest <= self.max_handovers as usize, "{log:?}");
    }
}

fn poll(acquire: &mut Acquire<'_>) -> Poll<Grant> {
    Pin::new(acquire).poll(&mut Context::from_waker(Waker::noop()))
}

fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(model);
}

fn contend(preemptions: usize, max_handovers: u32, fairness: Fairness) {
    explore(preemptions, move || {
        let world = World::new(max_handovers);
        let others =
            [1, 2].map(|who| thread::spawn(move || world.operate(who, world.table.acquire(LANE, fairness))));
        world.operate(0, world.table.acquire(LANE, fairness));
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(world.order().len(), 3);
        world.check_the_end();
    });
}

#[test]
fn three_threads_exclude_each_other_and_all_get_their_turn() {
    contend(3, 4, Fairness::Fifo);
}

#[test]
fn no_more_handovers_in_a_row_than_allowed() {
    contend(2, 1, Fairness::Fifo);
    contend(2, 0, Fairness::Fifo);
}

#[test]
fn three_bargers_exclude_each_other_and_all_get_their_turn() {
    contend(2, 1, Fairness::Barging);
}

#[test]
fn the_queue_is_served_in_order_and_a_newcomer_does_not_overtake() {
    explore(3, || {
        let world = World::new(1);
        world.hold();
        let queue = [1, 2].map(|who| (who, world.queued(Fairness::Fifo)));
        let mut threads: Vec<_> = queue
            .into_iter()
            .map(|(who, acquire)| thread::spawn(move || world.operate(who, acquire)))
            .collect();
        threads.push(thread::spawn(move || world.operate(3, world.table.acquire(LANE, Fairness::Fifo))));
        world.release();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(world.order(), [0, 1, 2, 3]);
        world.check_the_end();
    });
}

/// Runs a waiter that leaves by `leave` while the holder releases, and a waiter behind it that stays.
fn leave_while_released(
    fairness: Fairness,
    behind: Option<Fairness>,
    leave: fn(&'static World, Acquire<'static>),
) {
    explore(3, move || {
        let world = World::new(1);
        world.hold();
        let leaver = world.queued(fairness);
        let stayer = behind.map(|fairness| world.queued(fairness));
        let mut threads = vec![thread::spawn(move || leave(world, leaver))];
        if let Some(stayer) = stayer {
            threads.push(thread::spawn(move || world.operate(2, stayer)));
        }
        world.release();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(world.order().contains(&2), behind.is_some());
        if world.table.try_acquire(LANE).expect("free at the end") == Grant::HandedOver {
            // A dropped waiter parked the lane: the next acquirer gets it, and gives it back.
            world.work(3, Grant::HandedOver);
            world.global.store(false, Ordering::Relaxed);
        }
        world.finish(ReleasePlan::Global);
        world.check_the_end();
    });
}

fn cancel(world: &'static World, acquire: Acquire<'static>) {
    if let Some(grant) = acquire.cancel() {
        world.work(1, grant);
        world.release();
    }
}

#[test]
fn a_cancellation_races_with_a_grant() {
    for fairness in [Fairness::Fifo, Fairness::Barging] {
        leave_while_released(fairness, None, cancel);
    }
}

#[test]
fn a_cancellation_races_with_a_grant_and_the_next_is_served_all_the_same() {
    for fairness in [Fairness::Fifo, Fairness::Barging] {
        leave_while_released(fairness, Some(Fairness::Fifo), cancel);
        leave_while_released(fairness, Some(Fairness::Barging), cancel);
    }
}

#[test]
fn a_waiter_is_dropped_while_it_is_granted() {
    for fairness in [Fairness::Fifo, Fairness::Barging] {
        leave_while_released(fairness, None, |_, acquire| drop(acquire));
        leave_while_released(fairness, Some(Fairness::Fifo), |_, acquire| drop(acquire));
    }
}

#[test]
fn a_cancelled_wait_never_parks_the_lane() {
    for fairness in [Fairness::Fifo, Fairness::Barging] {
        explore(4, move || {
            let world = World::new(1);
            world.hold();
            let leaver = world.queued(fairness);
            let thread = thread::spawn(move || cancel(world, leaver));
            world.release();
            thread.join().unwrap();
            world.check_the_end();
        });
    }
}

#[test]
fn the_waker_of_the_last_poll_is_the_one_that_is_called() {
    explore(3, || {
        let world = World::new(1);
        world.hold();
        let mut acquire = world.queued(Fairness::Fifo);
        let served = Arc::new(AtomicBool::new(false));
        let other = {
            let served = Arc::clone(&served);
            thread::spawn(move || {
                // The first poll stored a different waker. Only a renewed waker reaches this thread.
                let grant = block_on(&Nothing, &mut acquire);
                served.store(true, Ordering::Relaxed);
                world.work(1, grant);
                world.release();
            })
        };
        world.release();
        other.join().unwrap();
        assert!(served.load(Ordering::Relaxed));
        world.check_the_end();
    });
}
