//! Threads of two compute servers that combine their changes under one lane.

use super::*;

/// How a thread treats the next job that it took.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Finish,
    Return,
    Abandon,
}

/// A job is the number of the operation. A result is that number and the state after the change.
struct World {
    tables: [LocalLockTable<u64, (u64, u64)>; 2],
    global: AtomicU32,
    /// Incremented by a load and a store, so the count is right only if no other thread interferes.
    counter: AtomicU64,
    /// Whether each operation was executed.
    executed: Vec<AtomicU32>,
}

/// How an operation ended for its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Executed,
    Cancelled,
    Abandoned,
}

impl World {
    fn execute(&self, op: u64) -> (u64, u64) {
        self.executed[op as usize].fetch_add(1, Ordering::Relaxed);
        let state = self.counter.load(Ordering::Relaxed) + 1;
        self.counter.store(state, Ordering::Relaxed);
        (op, state)
    }

    /// Waits for the turn of `op`. With `cancel`, cancels after the first poll.
    fn wait(
        &self,
        cs: usize,
        fairness: Fairness,
        op: u64,
        cancel: bool,
    ) -> Result<Turn<u64, (u64, u64)>, End> {
        let mut acquire = self.tables[cs].acquire_with(LANE, fairness, op);
        if !cancel {
            return Ok(block_on(&Nothing, acquire));
        }
        if let Poll::Ready(turn) = Pin::new(&mut acquire).poll(&mut Context::from_waker(Waker::noop())) {
            return Ok(turn);
        }
        match acquire.cancel() {
            Cancelled::Left(job) => {
                assert_eq!(job, op);
                Err(End::Cancelled)
            }
            Cancelled::Granted(grant, job) => Ok(Turn::Granted(grant, job)),
            Cancelled::Done(result) => Ok(Turn::Done(result)),
            Cancelled::Abandoned => Ok(Turn::Abandoned),
            Cancelled::Taken(acquire) => Ok(block_on(&Nothing, acquire)),
        }
    }

    fn operate(&self, cs: usize, fairness: Fairness, op: u64, cancel: bool) -> End {
        let (table, id) = (&self.tables[cs], cs as u32 + 1);
        let (grant, job) = match self.wait(cs, fairness, op, cancel) {
            Ok(Turn::Granted(grant, job)) => (grant, job),
            Ok(Turn::Done((of, state))) => {
                assert_eq!(of, op, "the result of another operation");
                assert!(state <= self.counter.load(Ordering::Relaxed));
                return End::Executed;
            }
            Ok(Turn::Abandoned) => return End::Abandoned,
            Err(end) => return end,
        };
        assert_eq!(job, op);
        match grant {
            Grant::HandedOver => assert_eq!(self.global.load(Ordering::Relaxed), id),
            Grant::Fresh => {
                while self.global.compare_exchange(0, id, Ordering::Acquire, Ordering::Relaxed).is_err() {
                    std::thread::yield_now();
                }
            }
        }
        self.execute(op);
        let mut batch = Vec::new();
        for _ in 0..2 {
            table.take_jobs(LANE, 3, |job| job % 11 != 0, &mut batch);
            std::thread::yield_now();
        }
        let mut late = Vec::new();
        for Taken { job, ticket } in batch.drain(..) {
            match [Deed::Finish, Deed::Finish, Deed::Return, Deed::Finish, Deed::Abandon][job as usize % 5] {
                Deed::Finish if job % 2 == 0 => ticket.finish(self.execute(job)),
                Deed::Finish => late.push((ticket, self.execute(job))),
                Deed::Return => ticket.return_job(job),
                Deed::Abandon => drop(ticket),
            }
        }
        let plan = table.plan_release(LANE, 4, true);
        if plan == ReleasePlan::Global {
            self.global.store(0, Ordering::Release);
        }
        if table.finish_release(LANE, plan) == Finished::MustReleaseGlobal {
            self.global.store(0, Ordering::Release);
            assert_eq!(table.finish_release(LANE, ReleasePlan::Global), Finished::Done);
        }
        late.into_iter().for_each(|(ticket, result)| ticket.finish(result));
        End::Executed
    }
}

fn stress(fairness: Fairness) {
    const THREADS: u64 = 6;
    let full = if crate::testing::runs_in_full() { 20_000 } else { 5_000 };
    let rounds = if cfg!(miri) { 30 } else { full };
    let world = World {
        tables: [LocalLockTable::new(2, 8), LocalLockTable::new(2, 8)],
        global: AtomicU32::new(0),
        counter: AtomicU64::new(0),
        executed: (0..THREADS * rounds).map(|_| AtomicU32::new(0)).collect(),
    };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let world = &world;
            scope.spawn(move || {
                for round in 0..rounds {
                    let op = round * THREADS + thread;
                    let end = world.operate(thread as usize % 2, fairness, op, round % 5 == thread % 5);
                    let executed = world.executed[op as usize].load(Ordering::Relaxed);
                    assert_eq!(executed, u32::from(end == End::Executed), "{op}: {end:?}");
                }
            });
        }
    });
    let executed: u64 = world.executed.iter().map(|op| u64::from(op.load(Ordering::Relaxed))).sum();
    assert_eq!(world.counter.load(Ordering::Relaxed), executed);
    assert_eq!(world.global.load(Ordering::Relaxed), 0, "no lane is left taken");
    for table in &world.tables {
        assert!(table.all_free());
        assert!(table.locked(table.slot(LANE), |shard| shard.is_empty()));
    }
}

#[test]
fn threads_that_combine_execute_every_job_once_in_turn() {
    stress(Fairness::Fifo);
}

#[test]
fn threads_that_combine_execute_every_job_once_out_of_turn() {
    stress(Fairness::Barging);
}
