//! The waiter's side: it cancels, is dropped, barges or is woken, at every stage of its job.

use super::*;
use std::sync::{Mutex, Weak};

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
