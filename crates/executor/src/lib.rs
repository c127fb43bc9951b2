//! A small single-threaded executor: slot wakers, a cross-thread wake queue, busy poll with backoff.
//!
//! This is the bottom layer. It knows nothing of verbs: a [`Driver`] makes progress with the outside world.
//!
//! | module | what |
//! |---|---|
//! | `local` | [`LocalExecutor`]: many operations in flight on one thread |
//! | `block_on` | [`block_on`]: one operation on the calling thread, at no cost if it finishes at once |
//! | `timers` | [`Timers`]: deadlines, for endpoints |
//! | `driver` | [`Driver`]: what the executor needs from the layer below; [`Unpark`]: how to end its sleep |
//! | `wake`, `wake_queue`, `owner` | wakers: free of locks on their own thread, queued from any other |
//! | `outlined` | [`outlined`]: a future whose body other crates do not compile again |
//! | `slab`, `join`, `idle` | storage of tasks, their results, backoff of an idle thread |
//!
//! A waker is a `std::task::Wake` over a counted header that names a slot, so this crate writes no raw waker.
//! The only `unsafe` lines of the crate are in `owner` and `outlined`.

mod block_on;
mod driver;
mod idle;
mod join;
mod local;
mod outlined;
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
pub use outlined::{Outlined, outlined};
pub use slab::TaskId;
pub use timers::Timers;
