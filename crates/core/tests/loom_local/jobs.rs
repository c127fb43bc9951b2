//! Waiters that leave jobs in the queue, and holders that take and answer them.
//!
//! Each waiter has a cell of its own. It writes the cell before it waits, the thread that executes its job
//! writes it, and the waiter reads it when it learns the result. Loom reports two executions that nothing
//! orders, and a result that arrives before its change is visible.

use super::*;
use sherman_core::lock::local::{AcquireWith, Cancelled, Taken, Ticket, Turn};
use std::sync::Mutex as Untracked;

type Waiting = AcquireWith<'static, u32, (u32, u32)>;

/// How an operation ended for its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It held the slot and executed its own job.
    Holder,
    /// This thread executed its job.
    By(u32),
    Left,
    Abandoned,
    /// It was dropped and does not know.
    Unknown,
}

/// What the holder does with a job that it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Finish,
    Return,
    Abandon,
}

/// The world, and waiters with jobs.
struct Jobs {
    world: &'static World,
    cells: [UnsafeCell<()>; 4],
    /// The executed jobs, each with the thread that executed it. Loom need not explore accesses to it.
    executed: Untracked<Vec<(u32, u32)>>,
}

impl Jobs {
    fn new(max_handovers: u32) -> &'static Self {
        Box::leak(Box::new(Self {
            world: World::new(max_handovers),
            cells: std::array::from_fn(|_| UnsafeCell::new(())),
            executed: Untracked::default(),
        }))
    }

    fn wait(&'static self, job: u32, fairness: Fairness) -> Waiting {
        self.cells[job as usize].with_mut(|_| ());
        self.world.table.acquire_with(LANE, fairness, job)
    }

    /// Returns a waiter that is queued already. Its waker is replaced by its first poll elsewhere.
    fn queued(&'static self, job: u32, fairness: Fairness) -> Waiting {
        let mut waiting = self.wait(job, fairness);
        assert!(Pin::new(&mut waiting).poll(&mut Context::from_waker(Waker::noop())).is_pending());
        waiting
    }

    /// The holder takes all jobs.
    fn take(&'static self) -> Vec<Taken<'static, u32, (u32, u32)>> {
        let mut batch = Vec::new();
        self.world.table.take_jobs(LANE, 32, |_| true, &mut batch);
        batch
    }

    fn execute(&self, who: u32, job: u32) -> (u32, u32) {
        self.world.node.with_mut(|_| ());
        self.cells[job as usize].with_mut(|_| ());
        self.executed.lock().unwrap().push((job, who));
        (job, who)
    }

    fn answer(&self, who: u32, job: u32, ticket: Ticket<'static, u32, (u32, u32)>, answer: Answer) {
        match answer {
            Answer::Finish => ticket.finish(self.execute(who, job)),
            Answer::Return => ticket.return_job(job),
            Answer::Abandon => drop(ticket),
        }
    }

    /// Executes the jobs of others under the lane that `who` holds, and releases the lane.
    fn combine_and_release(&'static self, who: u32) {
        for Taken { job, ticket } in self.take() {
            self.answer(who, job, ticket, Answer::Finish);
        }
        self.world.release();
    }

    /// Ends the operation of `who` after its turn came.
    fn end(&'static self, who: u32, turn: Turn<u32, (u32, u32)>) -> End {
        match turn {
            Turn::Granted(grant, job) => {
                assert_eq!(job, who);
                self.world.work(who, grant);
                self.execute(who, job);
                self.combine_and_release(who);
                End::Holder
            }
            Turn::Done((job, by)) => {
                assert_eq!(job, who, "the result of another job");
                self.cells[who as usize].with(|_| ());
                End::By(by)
            }
            Turn::Abandoned => End::Abandoned,
        }
    }

    fn operate(&'static self, who: u32, waiting: Waiting) -> End {
        self.end(who, block_on(&Nothing, waiting))
    }

    fn cancel(&'static self, who: u32, waiting: Waiting) -> End {
        match waiting.cancel() {
            Cancelled::Left(job) => {
                assert_eq!(job, who);
                End::Left
            }
            Cancelled::Granted(grant, job) => self.end(who, Turn::Granted(grant, job)),
            Cancelled::Done(result) => self.end(who, Turn::Done(result)),
            Cancelled::Abandoned => End::Abandoned,
            Cancelled::Taken(waiting) => self.operate(who, waiting),
        }
    }

    /// Asserts that each operation was executed as its thread believes, at most once, and that nothing is
    /// left in the table.
    fn check(&self, ends: &[(u32, End)]) {
        let executed = self.executed.lock().unwrap();
        for (who, end) in ends {
            let by: Vec<_> = executed.iter().filter(|(job, _)| job == who).map(|(_, by)| *by).collect();
            match end {
                End::Holder => assert_eq!(by, [*who], "{ends:?}"),
                End::By(other) => assert_eq!(by, [*other], "{ends:?}"),
                End::Left | End::Abandoned => assert_eq!(by, [], "{ends:?}"),
                End::Unknown => assert!(by.len() <= 1, "{ends:?}"),
            }
        }
        assert_eq!(self.world.table.taken(LANE), 0);
        self.world.check_the_end();
    }
}

/// Spawns a thread for the operation of `who`.
fn spawn(who: u32, operation: impl FnOnce() -> End + 'static) -> thread::JoinHandle<(u32, End)> {
    thread::spawn(move || (who, operation()))
}

fn join(threads: impl IntoIterator<Item = thread::JoinHandle<(u32, End)>>) -> Vec<(u32, End)> {
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

fn combine(preemptions: usize, max_handovers: u32, fairness: Fairness) {
    explore(preemptions, move || {
        let jobs = Jobs::new(max_handovers);
        let threads = [1, 2].map(|who| spawn(who, move || jobs.operate(who, jobs.wait(who, fairness))));
        let own = (0, jobs.operate(0, jobs.wait(0, fairness)));
        let mut ends = join(threads);
        ends.push(own);
        assert!(ends.iter().all(|(_, end)| matches!(end, End::Holder | End::By(_))));
        jobs.check(&ends);
    });
}

#[test]
fn three_threads_execute_every_job_once() {
    combine(3, 4, Fairness::Fifo);
    combine(2, 0, Fairness::Fifo);
}

#[test]
fn three_bargers_execute_every_job_once() {
    combine(2, 1, Fairness::Barging);
}

/// A waiter leaves by `leave`, while the holder takes its job, answers, and releases the lane. With `late`
/// the holder answers after the release. `behind` another waiter stays.
fn leave_while_taken(
    preemptions: usize,
    fairness: Fairness,
    (answer, late): (Answer, bool),
    behind: bool,
    leave: fn(&'static Jobs, Waiting) -> End,
) {
    explore(preemptions, move || {
        let jobs = Jobs::new(1);
        jobs.world.hold();
        let leaver = jobs.queued(1, fairness);
        let stayer = behind.then(|| jobs.world.queued(Fairness::Fifo));
        let leaver = spawn(1, move || leave(jobs, leaver));
        let stayer = stayer.map(|stayer| thread::spawn(move || jobs.world.operate(2, stayer)));
        let batch = jobs.take();
        if late {
            // Executes before the release, and answers after it.
            let executed = |Taken { job, ticket }: Taken<'static, _, _>| match answer {
                Answer::Finish => (job, ticket, Some(jobs.execute(0, job))),
                _ => (job, ticket, None),
            };
            let batch: Vec<_> = batch.into_iter().map(executed).collect();
            jobs.world.release();
            for (job, ticket, result) in batch {
                match result {
                    Some(result) => ticket.finish(result),
                    None => jobs.answer(0, job, ticket, answer),
                }
            }
        } else {
            for Taken { job, ticket } in batch {
                jobs.answer(0, job, ticket, answer);
            }
            jobs.world.release();
        }
        let ends = join([leaver]);
        if let Some(stayer) = stayer {
            stayer.join().unwrap();
        }
        assert_eq!(jobs.world.order().contains(&2), behind);
        if jobs.world.table.try_acquire(LANE).expect("free at the end") == Grant::HandedOver {
            assert_eq!(ends[0].1, End::Unknown, "only a dropped waiter parks the lane");
            jobs.world.work(3, Grant::HandedOver);
            jobs.world.global.store(false, Ordering::Relaxed);
        }
        jobs.world.finish(ReleasePlan::Global);
        jobs.check(&ends);
    });
}

const ANSWERS: [Answer; 3] = [Answer::Finish, Answer::Return, Answer::Abandon];

#[test]
fn a_holder_takes_a_job_while_its_waiter_cancels() {
    for fairness in [Fairness::Fifo, Fairness::Barging] {
        for answer in ANSWERS.into_iter().flat_map(|answer| [(answer, false), (answer, true)]) {
            leave_while_taken(3, fairness, answer, false, |jobs, waiting| jobs.cancel(1, waiting));
        }
    }
}

#[test]
fn a_holder_takes_a_job_while_its_waiter_waits() {
    for fairness in [Fairness::Fifo, Fairness::Barging] {
        for answer in ANSWERS.into_iter().flat_map(|answer| [(answer, false), (answer, true)]) {
            leave_while_taken(3, fairness, answer, false, |jobs, waiting| jobs.operate(1, waiting));
        }
    }
}

#[test]
fn a_holder_takes_a_job_while_its_waiter_is_dropped() {
    for fairness in [Fairness::Fifo, Fairness::Barging] {
        for answer in ANSWERS.into_iter().flat_map(|answer| [(answer, false), (answer, true)]) {
            leave_while_taken(3, fairness, answer, false, |_, waiting| {
                drop(waiting);
                End::Unknown
            });
        }
    }
}

#[test]
fn the_waiter_behind_a_taken_job_is_served_all_the_same() {
    for answer in ANSWERS.into_iter().flat_map(|answer| [(answer, false), (answer, true)]) {
        leave_while_taken(2, Fairness::Fifo, answer, true, |jobs, waiting| jobs.cancel(1, waiting));
    }
    leave_while_taken(2, Fairness::Fifo, (Answer::Return, false), true, |_, waiting| {
        drop(waiting);
        End::Unknown
    });
}

#[test]
fn an_answer_races_with_a_cancellation() {
    for answer in ANSWERS {
        explore(4, move || {
            let jobs = Jobs::new(1);
            jobs.world.hold();
            let waiting = jobs.queued(1, Fairness::Fifo);
            let Some(Taken { job, ticket }) = jobs.take().pop() else { panic!("a job waits") };
            assert_eq!(
                jobs.world.table.plan_release(LANE, 1, true),
                ReleasePlan::Global,
                "nobody else waits"
            );
            let canceller = spawn(1, move || jobs.cancel(1, waiting));
            jobs.answer(0, job, ticket, answer);
            jobs.world.release();
            let ends = join([canceller]);
            let expected: &[End] = match answer {
                Answer::Finish => &[End::By(0)],
                // It cancels after the return, or waits for the slot because the job was taken.
                Answer::Return => &[End::Left, End::Holder],
                Answer::Abandon => &[End::Abandoned],
            };
            assert!(expected.contains(&ends[0].1), "{ends:?}");
            jobs.check(&ends);
        });
    }
}

#[test]
fn a_job_that_arrives_while_the_holder_takes_jobs_is_taken_or_granted() {
    for fairness in [Fairness::Fifo, Fairness::Barging] {
        explore(4, move || {
            let jobs = Jobs::new(1);
            jobs.world.hold();
            let late = spawn(1, move || jobs.operate(1, jobs.wait(1, fairness)));
            jobs.combine_and_release(0);
            let ends = join([late]);
            assert!(matches!(ends[0].1, End::Holder | End::By(0)), "{ends:?}");
            jobs.check(&ends);
        });
    }
}

#[test]
fn a_grant_races_with_the_next_holder_that_takes_jobs() {
    explore(3, || {
        let jobs = Jobs::new(1);
        jobs.world.hold();
        let queue = [1, 2].map(|who| (who, jobs.queued(who, Fairness::Fifo)));
        let [first, second] = queue.map(|(who, waiting)| match who {
            1 => spawn(who, move || jobs.operate(who, waiting)),
            _ => spawn(who, move || jobs.cancel(who, waiting)),
        });
        // Without taking jobs: the first waiter becomes the holder and takes the job of the second.
        jobs.world.release();
        let ends = join([first, second]);
        assert_eq!(ends[0].1, End::Holder);
        assert!(matches!(ends[1].1, End::Left | End::Holder | End::By(1)), "{ends:?}");
        jobs.check(&ends);
    });
}

#[test]
fn a_returned_job_is_served_before_a_waiter_that_arrives_later() {
    explore(3, || {
        let jobs = Jobs::new(1);
        jobs.world.hold();
        let returned = jobs.queued(1, Fairness::Fifo);
        let Some(Taken { job, ticket }) = jobs.take().pop() else { panic!("a job waits") };
        let waiter = spawn(1, move || jobs.operate(1, returned));
        let newcomer = thread::spawn(move || {
            jobs.world.operate(2, jobs.world.table.acquire(LANE, Fairness::Fifo));
        });
        ticket.return_job(job);
        jobs.world.release();
        let ends = join([waiter]);
        newcomer.join().unwrap();
        assert_eq!(ends[0].1, End::Holder);
        assert_eq!(jobs.world.order(), [0, 1, 2]);
        jobs.check(&ends);
    });
}

#[test]
fn a_job_that_returns_after_the_release_races_with_other_holders() {
    for fairness in [Fairness::Fifo, Fairness::Barging] {
        explore(2, move || {
            let jobs = Jobs::new(1);
            jobs.world.hold();
            let returned = jobs.queued(1, fairness);
            let Some(Taken { job, ticket }) = jobs.take().pop() else { panic!("a job waits") };
            let waiter = spawn(1, move || jobs.operate(1, returned));
            let other = thread::spawn(move || {
                jobs.world.operate(2, jobs.world.table.acquire(LANE, fairness));
            });
            jobs.world.release();
            ticket.return_job(job);
            let ends = join([waiter]);
            other.join().unwrap();
            assert_eq!(ends[0].1, End::Holder);
            jobs.check(&ends);
        });
    }
}
