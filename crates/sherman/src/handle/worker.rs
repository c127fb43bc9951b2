//! A worker thread: a session that runs the jobs of the queue, up to `in_flight` at a time.

use super::queue::{Job, Queue};
use super::reply::Sender;
use crate::identity::Seated;
use crate::ops::Ops;
use crate::seat::SharedSeat;
use crate::session::RawSession;
use crate::stats::Ledger;
use crate::tree::RawTree;
use sherman_core::Error;
use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

/// Runs a worker's operations.
pub(crate) struct Bench {
    session: RawSession,
    /// The waker of the worker, while it waits for an operation to end.
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
        drop(self.session.spawn(timeout, async move |ops| {
            let _freed = freed;
            sender.begin();
            sender.send(operation(ops).await);
            Ok(())
        }));
    }
}

/// Tells the worker that there is room, whichever way an operation ends.
struct Freed(Rc<Cell<Option<Waker>>>);

impl Drop for Freed {
    fn drop(&mut self) {
        if let Some(waker) = self.0.take() {
            waker.wake();
        }
    }
}

/// Tells the queue that a worker is gone, also after a panic.
struct Present(Arc<Queue>);

impl Drop for Present {
    fn drop(&mut self) {
        self.0.worker_gone();
    }
}

/// Works until the queue is closed and empty and all jobs taken from it have ended.
pub(crate) fn work(
    tree: &RawTree,
    seated: Seated,
    queue: Arc<Queue>,
    number: usize,
    in_flight: usize,
    ledger: Ledger,
) {
    let present = Present(queue);
    let queue = &*present.0;
    let session = RawSession::new(tree.cluster(), seated, Arc::clone(tree.state()), ledger);
    // Dropped before `present`, because its drop finishes the jobs it has taken.
    let bench = Bench { session, freed: Rc::default() };
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
