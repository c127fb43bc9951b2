//! A worker thread: a session that runs what the queue holds, so many operations at a time.

use super::queue::{Job, Queue};
use super::reply::Sender;
use crate::identity::Seated;
use crate::ops::Ops;
use crate::raw::RawTree;
use crate::seat::SharedSeat;
use crate::session::RawSession;
use crate::stats::Ledger;
use sherman_core::Error;
use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

/// Where a worker's operations run.
pub(crate) struct Bench {
    session: RawSession,
    /// Whoever waits for an operation to end.
    freed: Rc<Cell<Option<Waker>>>,
}

impl Bench {
    /// Runs `operation` and sends its outcome.
    pub(crate) fn put<T: 'static>(
        &self,
        timeout: Duration,
        mut sender: Sender<T>,
        operation: impl AsyncFnOnce(Ops<'_, SharedSeat>) -> Result<T, Error> + 'static,
    ) {
        let freed = Freed(Rc::clone(&self.freed));
        drop(self.session.start_within(timeout, async move |ops| {
            let _freed = freed;
            sender.begin();
            sender.send(operation(ops).await);
            Ok(())
        }));
    }
}

/// Tells the worker that there is room, however an operation ends.
struct Freed(Rc<Cell<Option<Waker>>>);

impl Drop for Freed {
    fn drop(&mut self) {
        if let Some(waker) = self.0.take() {
            waker.wake();
        }
    }
}

/// Tells the queue when a worker is gone, by a panic too.
struct Present(Arc<Queue>);

impl Drop for Present {
    fn drop(&mut self) {
        self.0.worker_gone();
    }
}

/// Works until the queue is closed and empty, and everything taken from it is done.
pub(crate) fn work(tree: &RawTree, seated: Seated, queue: Arc<Queue>, number: usize, in_flight: usize, ledger: Ledger) {
    let present = Present(queue);
    let queue = &*present.0;
    // Dropped before `present`: it drains what it has taken.
    let bench = Bench { session: tree.session_on(seated, ledger), freed: Rc::default() };
    let mut jobs: Vec<Job> = Vec::new();
    bench.session.run(async {
        loop {
            let open = poll_fn(|cx| {
                let room = in_flight.saturating_sub(bench.session.in_flight());
                if room == 0 {
                    bench.freed.set(Some(cx.waker().clone()));
                    return Poll::Pending;
                }
                queue.poll_take(number, room, &mut jobs, cx)
            });
            if !open.await {
                return;
            }
            jobs.drain(..).for_each(|job| job(&bench));
        }
    });
}
