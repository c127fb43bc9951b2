//! What the executor asks of the world below it.

use std::time::Duration;

/// Something that makes progress on behalf of sleeping tasks: a completion queue, a socket, a timer heap.
///
/// The executor calls [`Driver::progress`] whenever it has no task left to run, and parks for at most
/// [`Driver::idle_for`] when that brought nothing either.
pub trait Driver {
    /// Delivers what has completed and the timers that are due, waking their tasks. Returns whether anything was woken.
    fn progress(&self) -> bool;

    /// How long the executor may park before it must call [`Driver::progress`] again: `None` means until a waker is
    /// called from another thread, zero means not at all (busy poll).
    fn idle_for(&self) -> Option<Duration>;
}
