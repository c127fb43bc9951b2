//! Tests of jobs that waiters leave in the queue: every way in which one can go on and end.

use super::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, Weak, mpsc};

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
    let table = Arc::new(table());
    let (tell, told) = mpsc::channel();
    let guard = table.shards[table.slot(LANE) % SHARDS].0.lock().expect("not poisoned");
    let other = Arc::clone(&table);
    std::thread::spawn(move || {
        let mut acquire = other.acquire_with(LANE, Fairness::Fifo, 7);
        let turn = Pin::new(&mut acquire).poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(turn, ready(7));
        assert_eq!(other.take_jobs(LANE, 32, |_| true, &mut Vec::new()), 0);
        let plan = other.plan_release(LANE, 4, true);
        tell.send(other.finish_release(LANE, plan)).expect("the test waits");
    });
    assert_eq!(told.recv_timeout(Duration::from_secs(20)), Ok(Finished::Done));
    drop(guard);
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

#[test]
fn a_waiter_can_cancel_before_and_after_but_not_during_the_execution() {
    let table = held();
    let unasked = table.acquire_with(LANE, Fairness::Fifo, 1);
    assert!(matches!(unasked.cancel(), Cancelled::Left(1)));

    let waiting = Hand::queued(&table, 2);
    assert!(matches!(waiting.acquire.cancel(), Cancelled::Left(2)));
    assert!(!marked(&table) && take(&table, 32).is_empty());

    let executed = Hand::queued(&table, 3);
    take_one(&table).ticket.finish("done".into());
    assert!(matches!(executed.acquire.cancel(), Cancelled::Done(result) if result == "done"));

    let abandoned = Hand::queued(&table, 4);
    drop(take_one(&table));
    assert!(matches!(abandoned.acquire.cancel(), Cancelled::Abandoned));

    let mut executing = Hand::queued(&table, 5);
    let taken = take_one(&table);
    let Cancelled::Taken(acquire) = executing.acquire.cancel() else { panic!("it is being executed") };
    executing.acquire = acquire;
    assert_eq!(executing.poll(), Poll::Pending);
    taken.ticket.finish("after all".into());
    assert_eq!((executing.rings(), executing.poll()), (1, done("after all")));
    assert!(matches!(executing.acquire.cancel(), Cancelled::Abandoned), "it had its turn");

    let granted = Hand::queued(&table, 6);
    assert_eq!(table.finish_release(LANE, ReleasePlan::HandOver), Finished::Done);
    assert!(matches!(granted.acquire.cancel(), Cancelled::Granted(Grant::HandedOver, 6)));
    assert_eq!(table.try_acquire(LANE), None, "the slot is the caller's");
    end(&table);
}

#[test]
fn a_waiter_that_wants_to_cancel_is_woken_when_its_job_returns() {
    let table = held();
    let Hand { acquire, notifier } = Hand::queued(&table, 1);
    let taken = take_one(&table);
    let Cancelled::Taken(acquire) = acquire.cancel() else { panic!("it is being executed") };
    taken.ticket.return_job(taken.job);
    assert_eq!(notifier.0.load(Ordering::Relaxed), 1);
    assert!(matches!(acquire.cancel(), Cancelled::Left(1)));
    assert!(!marked(&table));
    end(&table);
}

#[test]
fn a_dropped_waiter_leaves_nothing_behind_at_any_stage() {
    let table = held();
    drop(Hand::queued(&table, 1));
    assert!(!marked(&table));

    let answers: [fn(Ticket<'_, u32, String>); 3] =
        [|ticket| ticket.finish("unheard".into()), |ticket| ticket.return_job(2), |ticket| drop(ticket)];
    for answer in answers {
        let gone = Hand::queued(&table, 2);
        let taken = take_one(&table);
        drop(gone);
        assert_eq!(table.taken(LANE), 0);
        answer(taken.ticket);
        assert!(!marked(&table));
    }

    let gone = Hand::queued(&table, 3);
    take_one(&table).ticket.finish("unheard".into());
    drop(gone);

    let gone = Hand::queued(&table, 4);
    let mut next = Hand::queued(&table, 5);
    assert_eq!(table.finish_release(LANE, ReleasePlan::HandOver), Finished::Done);
    drop(gone);
    assert_eq!(next.poll(), Poll::Ready(Turn::Granted(Grant::HandedOver, 5)));

    let gone = Hand::queued(&table, 6);
    assert_eq!(table.finish_release(LANE, ReleasePlan::HandOver), Finished::Done);
    drop(gone);
    assert_eq!(table.try_acquire(LANE), Some(Grant::HandedOver), "the lane was parked");
    end(&table);
}

#[test]
fn an_answer_does_not_reach_a_later_waiter_of_the_same_lane() {
    let table = held();
    let gone = Hand::queued(&table, 1);
    let old = take_one(&table);
    drop(gone);
    let mut later = Hand::queued(&table, 2);
    let taken = take_one(&table);
    old.ticket.finish("for the first".into());
    assert_eq!(later.poll(), Poll::Pending);
    taken.ticket.finish("for the second".into());
    assert_eq!(later.poll(), done("for the second"));
    end(&table);
}

#[test]
fn all_waiters_are_woken_whether_taken_or_not() {
    let table = held();
    let hands: Vec<_> = (1..=3).map(|job| Hand::queued(&table, job)).collect();
    let mut taken = take(&table, 2);
    taken.remove(0).ticket.finish("done".into());
    table.wake_all();
    assert_eq!(hands.iter().map(Hand::rings).collect::<Vec<_>>(), [1, 1, 1], "the first had its wake-up");
}

#[test]
fn the_waker_of_the_last_poll_is_called_for_a_taken_waiter() {
    let table = held();
    let mut hand = Hand::queued(&table, 1);
    let taken = take_one(&table);
    let old = std::mem::take(&mut hand.notifier);
    assert_eq!(hand.poll(), Poll::Pending);
    taken.ticket.finish("done".into());
    assert_eq!((old.0.load(Ordering::Relaxed), hand.rings()), (0, 1));
}

#[test]
fn bargers_take_a_free_slot_with_their_job_unless_it_is_taken() {
    let table = held();
    let mut hands: Vec<_> = (1..=3).map(|job| Hand::queued_as(&table, Fairness::Barging, job)).collect();
    let taken = take_one(&table);
    assert_eq!(table.finish_release(LANE, ReleasePlan::Global), Finished::Done);
    assert_eq!(hands.iter().map(Hand::rings).collect::<Vec<_>>(), [0, 1, 0]);
    assert_eq!(hands[0].poll(), Poll::Pending, "the slot is free, but the job is being executed");
    assert_eq!(hands[2].poll(), ready(3), "it overtakes");
    taken.ticket.return_job(1);
    assert_eq!(hands[0].poll(), Poll::Pending);
    // The last waiters to leave a lane that was kept for bargers take it.
    assert_eq!(table.finish_release(LANE, ReleasePlan::HandOver), Finished::Done);
    let [first, second, _] = <[_; 3]>::try_from(hands).unwrap_or_else(|_| panic!("three"));
    assert!(matches!(first.acquire.cancel(), Cancelled::Left(1)));
    assert!(matches!(second.acquire.cancel(), Cancelled::Granted(Grant::HandedOver, 2)));
    end(&table);
}

#[test]
fn ten_thousand_jobs_leave_no_more_than_the_buffers_of_one_batch() {
    let table = held();
    for round in 0..300 {
        let mut hands: Vec<_> = (0..32).map(|job| Hand::queued(&table, job)).collect();
        let taken = take(&table, 32);
        for (n, Taken { job, ticket }) in taken.into_iter().enumerate() {
            if (n + round) % 3 == 0 { ticket.return_job(job) } else { ticket.finish("done".into()) }
        }
        take(&table, 32).into_iter().for_each(|taken| taken.ticket.finish("later".into()));
        assert!(hands.iter_mut().all(|hand| hand.poll().is_ready()));
        assert!(table.locked(table.slot(LANE), |shard| shard.is_empty()));
    }
    assert!(table.locked(table.slot(LANE), |shard| shard.capacity()) <= 4 * 32);
    end(&table);
}

type Probes = LocalLockTable<Probe, Probe>;

/// A job and a result that must not be dropped while the table's mutex is locked.
struct Probe(Weak<Probes>, Arc<Mutex<usize>>);

impl Drop for Probe {
    fn drop(&mut self) {
        if let Some(table) = self.0.upgrade() {
            assert!(table.shards[table.slot(LANE) % SHARDS].0.try_lock().is_ok(), "dropped under the mutex");
            *self.1.lock().expect("not poisoned") += 1;
        }
    }
}

#[test]
fn jobs_and_results_are_dropped_outside_the_mutex() {
    let table = Arc::new(Probes::new(2, 8));
    let dropped = Arc::new(Mutex::new(0));
    let probe = || Probe(Arc::downgrade(&table), Arc::clone(&dropped));
    assert_eq!(table.try_acquire(LANE), Some(Grant::Fresh));
    let queued = || {
        let mut acquire = table.acquire_with(LANE, Fairness::Fifo, probe());
        assert!(Pin::new(&mut acquire).poll(&mut Context::from_waker(Waker::noop())).is_pending());
        acquire
    };
    let take = || {
        let mut into = Vec::new();
        assert_eq!(table.take_jobs(LANE, 1, |_| true, &mut into), 1);
        into.remove(0)
    };
    drop(queued());
    assert_eq!(*dropped.lock().expect("not poisoned"), 1);
    // The waiter is gone before its answer.
    let gone = queued();
    let Taken { job, ticket } = take();
    drop(gone);
    ticket.return_job(job);
    let gone = queued();
    let Taken { ticket, .. } = take();
    drop(gone);
    ticket.finish(probe());
    assert_eq!(*dropped.lock().expect("not poisoned"), 4);
    // The waiter goes with its answer.
    let gone = queued();
    let Taken { job, ticket } = take();
    ticket.finish(job);
    drop(gone);
    let gone = queued();
    assert_eq!(table.finish_release(LANE, ReleasePlan::Global), Finished::Done);
    drop(gone);
    assert_eq!(*dropped.lock().expect("not poisoned"), 6);
    assert!(table.all_free());
}
