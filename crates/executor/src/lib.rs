//! A small single-threaded executor: slot wakers, a cross-thread wake queue, busy poll with back-off.
//!
//! The bottom layer. It knows nothing of verbs: what moves the outside world forward is a [`Driver`].
//!
//! | module | what |
//! |---|---|
//! | `local` | [`LocalExecutor`]: many operations in flight on one thread |
//! | `block_on` | [`block_on`]: one operation on the calling thread, at no cost if it finishes at once |
//! | `timers` | [`Timers`]: deadlines, for endpoints |
//! | `driver` | [`Driver`]: what is asked of the world below; [`Unpark`]: how to end its sleep |
//! | `wake`, `wake_queue`, `owner` | wakers: free of locks on their own thread, queued from any other |
//! | `slab`, `join`, `idle` | where tasks live, their results, what to do with nothing to do |
//!
//! A waker is a `std::task::Wake` over a counted header that names a slot, so no raw waker is written here; the one
//! `unsafe` line of the crate is in `owner`.

mod block_on;
mod driver;
mod idle;
mod join;
mod local;
mod owner;
mod slab;
mod sync;
mod timers;
mod wake;
mod wake_queue;

pub use block_on::block_on;
pub use driver::{Driver, Unpark};
pub use join::{Gone, JoinHandle};
pub use local::LocalExecutor;
pub use slab::TaskId;
pub use timers::Timers;
