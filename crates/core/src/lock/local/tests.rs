//! Tests of the local lock table.

mod jobs;
mod jobs_stress;

use super::*;
use sherman_executor::{Driver, block_on};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

const LANE: LaneIndex = LaneIndex { server: 1, lane: 5 };

fn table() -> LocalLockTable {
    LocalLockTable::new(2, 8)
}

/// Counts wakes.
#[derive(Default)]
struct Notifier(AtomicUsize);

impl Wake for Notifier {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A waiter that the test polls by hand.
struct Waiter<'t> {
    acquire: Acquire<'t>,
    notifier: Arc<Notifier>,
}

impl<'t> Waiter<'t> {
    /// Creates a waiter and polls it once, which queues it.
    fn queued(table: &'t LocalLockTable, fairness: Fairness) -> Self {
        let mut hand = Self { acquire: table.acquire(LANE, fairness), notifier: Arc::default() };
        assert_eq!(hand.poll(), Poll::Pending);
        hand
    }

    fn poll(&mut self) -> Poll<Grant> {
        let waker = Waker::from(Arc::clone(&self.notifier));
        Pin::new(&mut self.acquire).poll(&mut Context::from_waker(&waker))
    }

    fn rings(&self) -> usize {
        self.notifier.0.load(Ordering::Relaxed)
    }
}

fn plan(table: &LocalLockTable) -> ReleasePlan {
    table.plan_release(LANE, 4, true)
}

#[test]
fn a_free_slot_is_taken_once() {
    let table = table();
    assert_eq!(table.try_acquire(LANE), Some(Grant::Fresh));
    assert_eq!(table.try_acquire(LANE), None);
    assert_eq!(
        table.try_acquire(LaneIndex { server: 0, lane: 5 }),
        Some(Grant::Fresh),
        "another server's lane"
    );
    assert_eq!(plan(&table), ReleasePlan::Global, "nobody waits");
    assert_eq!(table.finish_release(LANE, ReleasePlan::Global), Finished::Done);
    assert_eq!(table.try_acquire(LANE), Some(Grant::Fresh));
}

#[test]
fn waiters_are_served_first_come_first_served_and_nobody_overtakes() {
    let table = table();
    assert_eq!(table.try_acquire(LANE), Some(Grant::Fresh));
    let mut waiters: Vec<_> = (0..3).map(|_| Waiter::queued(&table, Fairness::Fifo)).collect();
    assert_eq!(table.waiting(LANE), 3);
    for next in 0..3 {
        assert_eq!(table.finish_release(LANE, ReleasePlan::Global), Finished::Done);
        assert_eq!(table.try_acquire(LANE), None, "the slot is the waiter's before it knows");
        let rings: Vec<_> = waiters.iter().map(Waiter::rings).collect();
        assert_eq!(rings, (0..3).map(|n| usize::from(n <= next)).collect::<Vec<_>>());
        assert!(waiters.iter_mut().skip(next + 1).all(|later| later.poll().is_pending()));
        assert_eq!(waiters[next].poll(), Poll::Ready(Grant::Fresh));
    }
    assert_eq!(table.finish_release(LANE, ReleasePlan::Global), Finished::Done);
    assert_eq!(table.load(table.slot(LANE)), Word::FREE);
}

#[test]
fn a_lane_is_handed_over_at_most_max_times_in_a_row() {
    let table = table();
    assert_eq!(table.try_acquire(LANE), Some(Grant::Fresh));
    let mut grants = Vec::new();
    for _ in 0..12 {
        let mut next = Waiter::queued(&table, Fairness::Fifo);
        let _behind = Waiter::queued(&table, Fairness::Fifo);
        let plan = plan(&table);
        assert_eq!(table.finish_release(LANE, plan), Finished::Done);
        match next.poll() {
            Poll::Ready(grant) => grants.push(grant),
            Poll::Pending => panic!("served"),
        }
    }
    use Grant::{Fresh as F, HandedOver as H};
    assert_eq!(grants, [H, H, H, H, F, H, H, H, H, F, H, H]);
}

#[test]
fn handover_can_be_switched_off() {
    let table = table();
    assert_eq!(table.try_acquire(LANE), Some(Grant::Fresh));
    let _waiter = Waiter::queued(&table, Fairness::Fifo);
    assert_eq!(table.plan_release(LANE, 4, false), ReleasePlan::Global);
    assert_eq!(table.plan_release(LANE, 0, true), ReleasePlan::Global);
    assert_eq!(table.plan_release(LANE, u32::MAX, true), ReleasePlan::HandOver);
}

#[test]
fn the_releaser_keeps_the_lock_if_its_heir_is_gone() {
    let table = table();
    assert_eq!(table.try_acquire(LANE), Some(Grant::Fresh));
    let heir = Waiter::queued(&table, Fairness::Fifo);
    assert_eq!(plan(&table), ReleasePlan::HandOver);
    assert_eq!(heir.acquire.cancel(), None);
    assert_eq!(table.finish_release(LANE, ReleasePlan::HandOver), Finished::MustReleaseGlobal);
    assert_eq!(table.try_acquire(LANE), None, "still held");
    let mut late = Waiter::queued(&table, Fairness::Fifo);
    assert_eq!(table.finish_release(LANE, ReleasePlan::Global), Finished::Done);
    assert_eq!(late.poll(), Poll::Ready(Grant::Fresh));
}

#[test]
fn a_waiter_that_cancels_too_late_holds_the_lock() {
    let table = table();
    for (plan, grant) in [(ReleasePlan::Global, Grant::Fresh), (ReleasePlan::HandOver, Grant::HandedOver)] {
        assert_eq!(table.try_acquire(LANE), Some(Grant::Fresh));
        let waiter = Waiter::queued(&table, Fairness::Fifo);
        assert_eq!(table.finish_release(LANE, plan), Finished::Done);
        assert_eq!(waiter.acquire.cancel(), Some(grant));
        assert_eq!(table.try_acquire(LANE), None);
        assert_eq!(table.finish_release(LANE, ReleasePlan::Global), Finished::Done);
    }
}

#[test]
fn a_dropped_waiter_leaves_the_queue_or_passes_its_grant_on() {
    let table = table();
    assert_eq!(table.try_acquire(LANE), Some(Grant::Fresh));
    let first = Waiter::queued(&table, Fairness::Fifo);
    let second = Waiter::queued(&table, Fairness::Fifo);
    let mut third = Waiter::queued(&table, Fairness::Fifo);
    drop(second);
    assert_eq!(table.waiting(LANE), 2);
    assert_eq!(table.finish_release(LANE, ReleasePlan::HandOver), Finished::Done);
    drop(first);
    assert_eq!(third.rings(), 1);
    assert_eq!(third.poll(), Poll::Ready(Grant::HandedOver));

    let fourth = Waiter::queued(&table, Fairness::Fifo);
    assert_eq!(table.finish_release(LANE, ReleasePlan::Global), Finished::Done);
    drop(fourth);
    assert_eq!(table.load(table.slot(LANE)), Word::FREE);
}

#[test]
fn a_handover_that_was_dropped_parks_the_lane_for_the_next_acquirer() {
    let table = table();
    assert_eq!(table.try_acquire(LANE), Some(Grant::Fresh));
    let waiter = Waiter::queued(&table, Fairness::Fifo);
    assert_eq!(table.finish_release(LANE, ReleasePlan::HandOver), Finished::Done);
    drop(waiter);
    assert_eq!(table.try_acquire(LANE), Some(Grant::HandedOver));
    assert_eq!(table.load(table.slot(LANE)).depth(), 1, "the handovers in a row are still counted");
    assert_eq!(table.finish_release(LANE, ReleasePlan::Global), Finished::Done);
    assert_eq!(table.try_acquire(LANE), Some(Grant::Fresh));
}

#[test]
fn bargers_overtake_and_the_overtaken_is_woken_again() {
    let table = table();
    assert_eq!(table.try_acquire(LANE), Some(Grant::Fresh));
    let mut waiter = Waiter::queued(&table, Fairness::Barging);
    assert_eq!(table.finish_release(LANE, ReleasePlan::Global), Finished::Done);
    assert_eq!(waiter.rings(), 1);
    assert_eq!(table.try_acquire(LANE), None, "a client that respects the queue does not overtake");
    let mut barger = Waiter { acquire: table.acquire(LANE, Fairness::Barging), notifier: Arc::default() };
    assert_eq!(barger.poll(), Poll::Ready(Grant::Fresh));
    assert_eq!(waiter.poll(), Poll::Pending);
    assert_eq!(plan(&table), ReleasePlan::HandOver);
    assert_eq!(table.finish_release(LANE, ReleasePlan::HandOver), Finished::Done);
    assert_eq!(waiter.rings(), 2);
    assert_eq!(waiter.poll(), Poll::Ready(Grant::HandedOver));
    assert_eq!(table.finish_release(LANE, ReleasePlan::Global), Finished::Done);
    assert_eq!(table.load(table.slot(LANE)), Word::FREE);
}

/// A releaser relies on the waiters mark. If the mark is missing, a waiter sleeps permanently. If it is set
/// in excess, a lane is kept without a waiter.
#[test]
fn a_barger_that_takes_a_free_slot_leaves_the_mark_to_those_behind_it_alone() {
    let table = table();
    assert_eq!(table.try_acquire(LANE), Some(Grant::Fresh));
    let mut first = Waiter::queued(&table, Fairness::Barging);
    let mut second = Waiter::queued(&table, Fairness::Barging);
    assert_eq!(table.finish_release(LANE, ReleasePlan::Global), Finished::Done);
    assert_eq!(first.poll(), Poll::Ready(Grant::Fresh));
    assert_eq!(plan(&table), ReleasePlan::HandOver, "the second waits");
    assert_eq!(table.finish_release(LANE, ReleasePlan::Global), Finished::Done);
    assert_eq!(second.rings(), 1);
    assert_eq!(second.poll(), Poll::Ready(Grant::Fresh));
    assert_eq!(plan(&table), ReleasePlan::Global, "nobody waits");
    assert_eq!(table.finish_release(LANE, ReleasePlan::Global), Finished::Done);
    assert_eq!(table.load(table.slot(LANE)), Word::FREE);
}

#[test]
fn a_woken_barger_that_leaves_wakes_the_next() {
    for (plan, grant) in [(ReleasePlan::Global, Grant::Fresh), (ReleasePlan::HandOver, Grant::HandedOver)] {
        for second in [Fairness::Barging, Fairness::Fifo] {
            let table = table();
            assert_eq!(table.try_acquire(LANE), Some(Grant::Fresh));
            let first = Waiter::queued(&table, Fairness::Barging);
            let mut second = Waiter::queued(&table, second);
            assert_eq!(table.finish_release(LANE, plan), Finished::Done);
            assert_eq!((first.rings(), second.rings()), (1, 0));
            assert_eq!(first.acquire.cancel(), None);
            assert_eq!(second.rings(), 1);
            assert_eq!(second.poll(), Poll::Ready(grant));
            assert_eq!(table.finish_release(LANE, ReleasePlan::Global), Finished::Done);
            assert_eq!(table.load(table.slot(LANE)), Word::FREE);
        }
    }
}

#[test]
fn the_last_barger_to_cancel_does_not_park_the_lane() {
    let table = table();
    assert_eq!(table.try_acquire(LANE), Some(Grant::Fresh));
    let waiter = Waiter::queued(&table, Fairness::Barging);
    assert_eq!(table.finish_release(LANE, ReleasePlan::HandOver), Finished::Done);
    assert_eq!(waiter.acquire.cancel(), Some(Grant::HandedOver));
    assert_eq!(table.finish_release(LANE, ReleasePlan::Global), Finished::Done);
    assert_eq!(table.load(table.slot(LANE)), Word::FREE);
}

#[test]
fn a_queue_that_ended_leaves_nothing_behind() {
    let table = table();
    for _ in 0..100 {
        assert_eq!(table.try_acquire(LANE), Some(Grant::Fresh));
        let mut waiter = Waiter::queued(&table, Fairness::Fifo);
        assert_eq!(table.finish_release(LANE, ReleasePlan::Global), Finished::Done);
        assert_eq!(waiter.poll(), Poll::Ready(Grant::Fresh));
        assert_eq!(table.finish_release(LANE, ReleasePlan::Global), Finished::Done);
    }
    assert!(table.locked(table.slot(LANE), |shard| shard.is_empty()));
}

struct Nothing;

impl Driver for Nothing {
    fn progress(&self) -> bool {
        false
    }
    fn idle_for(&self) -> Option<Duration> {
        None
    }
}

/// Two compute servers, each with a local table, and one global lane per lane index: all of HOCL without the
/// network.
struct World {
    tables: [LocalLockTable; 2],
    lanes: Vec<AtomicU32>,
    /// Incremented by a load and a store, so the count is right only if no other thread interferes.
    counters: Vec<AtomicU64>,
}

impl World {
    fn operate(&self, cs: usize, lane: u32, fairness: Fairness, cancel: bool) -> bool {
        let (table, at) = (&self.tables[cs], LaneIndex { server: 0, lane });
        let (global, id) = (&self.lanes[lane as usize], cs as u32 + 1);
        let mut acquire = table.acquire(at, fairness);
        let grant = if cancel {
            match Pin::new(&mut acquire).poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(grant) => Some(grant),
                Poll::Pending => acquire.cancel(),
            }
        } else {
            Some(block_on(&Nothing, acquire))
        };
        match grant {
            None => return false,
            Some(Grant::HandedOver) => {
                assert_eq!(global.load(Ordering::Relaxed), id, "handed over while ours")
            }
            Some(Grant::Fresh) => {
                while global.compare_exchange(0, id, Ordering::Acquire, Ordering::Relaxed).is_err() {
                    std::thread::yield_now();
                }
            }
        }
        let counter = &self.counters[lane as usize];
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        let plan = table.plan_release(at, 4, true);
        if plan == ReleasePlan::Global {
            global.store(0, Ordering::Release);
        }
        if table.finish_release(at, plan) == Finished::MustReleaseGlobal {
            global.store(0, Ordering::Release);
            assert_eq!(table.finish_release(at, ReleasePlan::Global), Finished::Done);
        }
        true
    }
}

fn stress(fairness: Fairness) {
    const LANES: u32 = 2;
    let rounds = if cfg!(miri) { 30 } else { 50_000 };
    let world = World {
        tables: [LocalLockTable::new(1, LANES), LocalLockTable::new(1, LANES)],
        lanes: (0..LANES).map(|_| AtomicU32::new(0)).collect(),
        counters: (0..LANES).map(|_| AtomicU64::new(0)).collect(),
    };
    let done: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..6usize)
            .map(|thread| {
                let world = &world;
                let turn = move |round: usize| {
                    let (lane, cancel) = ((round * 7 + thread) as u32 % LANES, round % 5 == thread % 5);
                    u64::from(world.operate(thread % 2, lane, fairness, cancel))
                };
                scope.spawn(move || (0..rounds).map(turn).sum::<u64>())
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    assert_eq!(world.counters.iter().map(|counter| counter.load(Ordering::Relaxed)).sum::<u64>(), done);
    for lane in 0..LANES {
        assert_eq!(world.lanes[lane as usize].load(Ordering::Relaxed), 0, "no lane is left taken");
        assert!(world.tables.iter().all(|table| table.load(lane as usize) == Word::FREE));
    }
}

#[test]
fn threads_of_two_compute_servers_exclude_each_other_in_turn() {
    stress(Fairness::Fifo);
}

#[test]
fn threads_of_two_compute_servers_exclude_each_other_out_of_turn() {
    stress(Fairness::Barging);
}
