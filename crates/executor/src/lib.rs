//! A small single-threaded executor: task-id wakers, a cross-thread wake queue, busy poll with back-off.
//!
//! The bottom layer. It knows nothing of verbs: what moves the outside world forward is a [`Driver`].
#![warn(missing_docs)]

mod driver;

pub use driver::Driver;
