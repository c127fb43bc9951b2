//! Tests of jobs that waiters leave in the queue: how a holder takes and answers them.

mod waiters;

use super::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;

type Table = LocalLockTable<u32, String>;

fn table() -> Table {
    LocalLockTable::new(2, 8)
}

/// A waiter with a job that the test polls by hand.
struct Hand<'t> {
    acquire: AcquireWith<'t, u32, String>,
    notifier: Arc<Notifier>,
}

impl<'t> Hand<'t> {
    fn queued_as(table: &'t Table, fairness: Fairness, job: u32) -> Self {
        let mut hand = Self { acquire: table.acquire_with(LANE, fairness, job), notifier: Arc::default() };
        assert_eq!(hand.poll(), Poll::Pending);
        hand
    }

    fn queued(table: &'t Table, job: u32) -> Self {
        Self::queued_as(table, Fairness::Fifo, job)
    }

    fn poll(&mut self) -> Poll<Turn<u32, String>> {
        let waker = Waker::from(Arc::clone(&self.notifier));
        Pin::new(&mut self.acquire).poll(&mut Context::from_waker(&waker))
    }

    fn rings(&self) -> usize {
        self.notifier.0.load(Ordering::Relaxed)
    }
}

/// A table whose lane the test holds.
fn held() -> Table {
    let table = table();
    assert_eq!(table.try_acquire(LANE), Some(Grant::Fresh));
    table
}

fn take(table: &Table, max: usize) -> Vec<Taken<'_, u32, String>> {
    take_if(table, max, |_| true)
}

fn take_if(table: &Table, max: usize, accept: impl FnMut(&u32) -> bool) -> Vec<Taken<'_, u32, String>> {
    let mut into = Vec::new();
    assert_eq!(table.take_jobs(LANE, max, accept, &mut into), into.len());
    into
}

fn take_one(table: &Table) -> Taken<'_, u32, String> {
    take(table, 1).pop().expect("a job waits")
}

fn jobs(taken: &[Taken<'_, u32, String>]) -> Vec<u32> {
    taken.iter().map(|taken| taken.job).collect()
}

fn marked(table: &Table) -> bool {
    table.load(table.slot(LANE)).has_waiters()
}

/// Releases the lane, and asserts that nothing is left of anyone.
fn end(table: &Table) {
    assert_eq!(table.finish_release(LANE, ReleasePlan::Global), Finished::Done);
    assert_eq!(table.load(table.slot(LANE)), Word::FREE);
    assert!(table.locked(table.slot(LANE), |shard| shard.is_empty()), "entries are left");
}

fn ready(job: u32) -> Poll<Turn<u32, String>> {
    Poll::Ready(Turn::Granted(Grant::Fresh, job))
}

fn done(result: &str) -> Poll<Turn<u32, String>> {
    Poll::Ready(Turn::Done(result.into()))
}

#[test]
fn tables_and_tickets_can_go_to_other_threads() {
    fn shared<T: Send + Sync>() {}
    fn sent<T: Send>() {}
    shared::<LocalLockTable>();
    shared::<Table>();
    sent::<AcquireWith<'_, u32, String>>();
    sent::<Taken<'_, u32, String>>();
}

#[test]
fn a_free_slot_is_taken_and_released_without_the_mutex() {
    let table = table();
    let (tell, told) = mpsc::channel();
    std::thread::scope(|scope| {
        let guard = table.shards[table.slot(LANE) % SHARDS].0.lock().expect("not poisoned");
        scope.spawn(|| {
            let mut acquire = table.acquire_with(LANE, Fairness::Fifo, 7);
            let turn = Pin::new(&mut acquire).poll(&mut Context::from_waker(Waker::noop()));
            let taken = table.take_jobs(LANE, 32, |_| true, &mut Vec::new());
            let plan = table.plan_release(LANE, 4, true);
            let _ = tell.send((turn, taken, table.finish_release(LANE, plan)));
        });
        let end = told.recv_timeout(Duration::from_secs(20));
        drop(guard);
        assert_eq!(end, Ok((ready(7), 0, Finished::Done)));
    });
    assert!(table.all_free());
}

#[test]
fn the_holder_takes_jobs_in_order_and_their_waiters_get_their_results() {
    let table = held();
    let mut hands: Vec<_> = (1..=3).map(|job| Hand::queued(&table, job)).collect();
    let taken = take(&table, 32);
    assert_eq!(jobs(&taken), [1, 2, 3]);
    assert_eq!((table.waiting(LANE), table.taken(LANE)), (0, 3));
    assert!(!marked(&table));
    assert_eq!(table.plan_release(LANE, 4, true), ReleasePlan::Global, "nobody else waits for the lane");
    assert!(hands.iter_mut().all(|hand| hand.poll().is_pending() && hand.rings() == 0));
    // In another order than they were taken in.
    for Taken { job, ticket } in taken.into_iter().rev() {
        ticket.finish(format!("result {job}"));
    }
    assert!(hands.iter().all(|hand| hand.rings() == 1));
    for (hand, job) in hands.iter_mut().zip(1..) {
        assert_eq!(hand.poll(), done(&format!("result {job}")));
        assert_eq!(hand.poll(), Poll::Pending, "it is over");
    }
    end(&table);
}

#[test]
fn a_waiter_that_is_not_taken_is_granted_the_slot_with_its_job() {
    let table = held();
    let [mut first, mut second] = [1, 2].map(|job| Hand::queued(&table, job));
    let taken = take_one(&table);
    assert!(marked(&table));
    assert_eq!(table.plan_release(LANE, 4, true), ReleasePlan::HandOver);
    assert_eq!(table.finish_release(LANE, ReleasePlan::HandOver), Finished::Done);
    assert_eq!(second.poll(), Poll::Ready(Turn::Granted(Grant::HandedOver, 2)));
    assert_eq!((first.rings(), first.poll()), (0, Poll::Pending), "it is answered, not granted");
    // The old holder answers after its release.
    taken.ticket.finish("late".into());
    assert_eq!(first.poll(), done("late"));
    end(&table);
}

#[test]
fn take_jobs_stops_at_the_bound_at_a_waiter_without_a_job_and_at_a_refused_job() {
    let table = held();
    let _hands: Vec<_> = (1..=3).map(|job| Hand::queued(&table, job)).collect();
    let mut plain = table.acquire(LANE, Fairness::Fifo);
    assert!(Pin::new(&mut plain).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let _behind = Hand::queued(&table, 4);
    assert!(take(&table, 0).is_empty());
    assert_eq!(jobs(&take_if(&table, 32, |job| *job != 2)), [1], "3 does not overtake 2");
    assert_eq!(jobs(&take(&table, 1)), [2]);
    assert_eq!(jobs(&take(&table, 32)), [3], "4 does not overtake the waiter without a job");
    assert_eq!(jobs(&take(&table, 32)), []);
    assert!(marked(&table));
    assert_eq!(plain.cancel(), None);
    assert_eq!(jobs(&take(&table, 32)), [4]);
}

#[test]
fn a_job_that_arrives_after_the_holder_took_jobs_is_granted_by_the_release() {
    let table = held();
    let mut early = Hand::queued(&table, 1);
    let taken = take_one(&table);
    let mut late = Hand::queued(&table, 2);
    assert!(marked(&table));
    taken.ticket.finish("done".into());
    assert_eq!(table.finish_release(LANE, ReleasePlan::Global), Finished::Done);
    assert_eq!((early.poll(), late.poll()), (done("done"), ready(2)));
    end(&table);
}

#[test]
fn a_handover_that_was_planned_for_a_waiter_that_was_then_taken_falls_back_to_the_holder() {
    let table = held();
    let mut hand = Hand::queued(&table, 1);
    assert_eq!(table.plan_release(LANE, 4, true), ReleasePlan::HandOver);
    take_one(&table).ticket.finish("done".into());
    assert_eq!(table.finish_release(LANE, ReleasePlan::HandOver), Finished::MustReleaseGlobal);
    assert_eq!(hand.poll(), done("done"));
    end(&table);
}

#[test]
fn returned_jobs_go_to_the_front_in_their_old_order() {
    let table = held();
    let mut hands: Vec<_> = (1..=5).map(|job| Hand::queued(&table, job)).collect();
    let taken = take(&table, 4);
    // 1 and 3 are executed; 4 returns before 2.
    for Taken { job, ticket } in taken.into_iter().rev() {
        if job % 2 == 0 { ticket.return_job(job + 10) } else { ticket.finish("done".into()) }
    }
    assert!(marked(&table));
    assert_eq!((table.waiting(LANE), table.taken(LANE)), (3, 2));
    assert_eq!(hands.iter().map(Hand::rings).collect::<Vec<_>>(), [1, 1, 1, 1, 0]);
    for (hand, job) in [(1, 12), (3, 14), (4, 5)] {
        assert_eq!(hands[hand].poll(), Poll::Pending);
        assert_eq!(table.finish_release(LANE, ReleasePlan::Global), Finished::Done);
        assert_eq!(hands[hand].poll(), ready(job));
    }
    assert_eq!((hands[0].poll(), hands[2].poll()), (done("done"), done("done")));
    end(&table);
}

#[test]
fn a_returned_job_can_be_taken_again() {
    let table = held();
    let mut hands: Vec<_> = (1..=3).map(|job| Hand::queued(&table, job)).collect();
    let mut taken = take(&table, 3);
    let Taken { job, ticket } = taken.remove(0);
    ticket.return_job(job);
    assert!(take_if(&table, 32, |_| false).is_empty());
    taken.extend(take(&table, 32));
    assert_eq!(jobs(&taken), [2, 3, 1]);
    assert!(!marked(&table));
    for Taken { job, ticket } in taken {
        ticket.finish(job.to_string());
    }
    let turns: Vec<_> = hands.iter_mut().map(Hand::poll).collect();
    assert_eq!(turns, [done("1"), done("2"), done("3")]);
    end(&table);
}

#[test]
fn a_job_that_returns_after_the_release_is_served_at_once() {
    for fairness in [Fairness::Fifo, Fairness::Barging] {
        let table = held();
        let mut hand = Hand::queued_as(&table, fairness, 1);
        let taken = take_one(&table);
        assert_eq!(table.finish_release(LANE, ReleasePlan::Global), Finished::Done);
        taken.ticket.return_job(2);
        assert!(hand.rings() > 0);
        assert_eq!(hand.poll(), ready(2));
        assert!(!marked(&table));
        end(&table);
    }
}

#[test]
fn a_dropped_ticket_abandons_its_waiter() {
    let table = held();
    let mut hands: Vec<_> = (1..=2).map(|job| Hand::queued(&table, job)).collect();
    drop(take_one(&table));
    let panics = catch_unwind(AssertUnwindSafe(|| {
        let _taken = take(&table, 32);
        panic!("the holder fails");
    }));
    assert!(panics.is_err());
    for hand in &mut hands {
        assert_eq!((hand.rings(), hand.poll()), (1, Poll::Ready(Turn::Abandoned)));
    }
    end(&table);
}

#[test]
fn a_panic_of_accept_leaves_the_queue_as_it_was() {
    let table = held();
    let _hands: Vec<_> = (1..=3).map(|job| Hand::queued(&table, job)).collect();
    let panics = catch_unwind(AssertUnwindSafe(|| take_if(&table, 32, |job| *job < 3 || panic!("at 3"))));
    assert!(panics.is_err());
    assert!(marked(&table));
    assert_eq!(jobs(&take(&table, 32)), [1, 2, 3]);
}
