//! Participants on real threads, for backends without their own scheduler.

use super::harness::{Body, Participant};
use super::report::Breach;
use sherman_fabric::{Endpoint, Fabric};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::Display;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

/// The longest park. A lost wake-up costs this much time, not the run.
const LONGEST_PARK: Duration = Duration::from_millis(1);

/// Runs each participant on its own thread, on the endpoint that `open` returns there for its group. With
/// fresh scratch memory, this is a ready-made [`Harness::run`](super::Harness::run). Returns the first breach
/// in the order of the participants. Resumes a participant's panic.
pub fn on_threads<E, X>(
    participants: Vec<Participant<E>>,
    open: impl Fn(usize) -> Result<E, X> + Sync,
) -> Result<(), Breach>
where
    E: Endpoint + 'static,
    X: Display,
{
    let open = &open;
    thread::scope(|scope| {
        let threads: Vec<_> = participants
            .into_iter()
            .map(|participant| {
                scope.spawn(move || match open(participant.group()) {
                    Ok(endpoint) => {
                        let endpoint = Rc::new(endpoint);
                        drive(&*endpoint, participant.start(Rc::clone(&endpoint)))
                    }
                    Err(why) => Err(participant.could_not_start(&why)),
                })
            })
            .collect();
        // Joins all threads before it returns any result. A breach stops the other participants but does not
        // abandon them.
        let results: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        results
            .into_iter()
            .try_for_each(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// The same for a backend whose endpoints come from a [`Fabric`]. Calls `join` once for each group. All
/// participants have left when this returns.
pub fn on_threads_of<F, X>(
    participants: Vec<Participant<F::Endpoint>>,
    join: impl Fn() -> Result<F, X> + Sync,
) -> Result<(), Breach>
where
    F: Fabric + Send,
    F::Endpoint: 'static,
    X: Display,
{
    let groups = Mutex::new(BTreeMap::<usize, F>::new());
    on_threads(participants, |group| {
        let mut groups = groups.lock().unwrap_or_else(PoisonError::into_inner);
        let fabric = match groups.entry(group) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(join().map_err(|why| why.to_string())?),
        };
        fabric.endpoint().map_err(|why| why.to_string())
    })
}

/// Wakes a parked thread, and records that it did.
struct Unpark {
    thread: Thread,
    woken: AtomicBool,
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// Polls `body` until it ends. Drives `endpoint` whenever there is nothing to poll.
fn drive<E: Endpoint>(endpoint: &E, mut body: Body) -> Result<(), Breach> {
    let unpark = Arc::new(Unpark { thread: thread::current(), woken: AtomicBool::new(true) });
    let waker = Waker::from(Arc::clone(&unpark));
    loop {
        if unpark.woken.swap(false, Ordering::Acquire) {
            if let Poll::Ready(result) = body.as_mut().poll(&mut Context::from_waker(&waker)) {
                return result;
            }
            // A participant that yields must not stop its own endpoint from completing what it waits for.
            endpoint.progress();
        } else if !endpoint.progress() {
            match endpoint.idle_for() {
                Some(Duration::ZERO) => thread::yield_now(),
                idle => thread::park_timeout(idle.unwrap_or(LONGEST_PARK).min(LONGEST_PARK)),
            }
        }
    }
}
