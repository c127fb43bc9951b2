//! What the executor needs from the layer below it.
//!
//! There are two kinds of driver. The executor **polls** the first kind again and again, and puts the thread
//! to sleep in between. The second kind **parks the thread itself**, because only a thread that sleeps on its
//! event (a socket that becomes readable) learns of it. The second kind has an [`Unpark`]er. Through it, a
//! waker called on another thread ends such a sleep.

use std::sync::Arc;
use std::time::Duration;

/// Fruitless rounds for which a thread spins, unless its driver says otherwise. Completions of a fast backend
/// arrive within a microsecond or two. loom explores every round, so there the number is 0.
const SPIN_ROUNDS: u32 = if cfg!(loom) { 0 } else { 64 };

/// Something that makes progress on behalf of sleeping tasks: a completion queue, a socket, a timer heap.
///
/// The executor calls [`Driver::progress`] whenever it has no task left to run. If that brings nothing, it
/// spins as long as [`Driver::spins`] says, then parks. It parks in [`Driver::park`] if the driver has an
/// [`Driver::unparker`]. Otherwise it parks the thread itself, for at most [`Driver::idle_for`].
pub trait Driver {
    /// Delivers completions and timers that are due, and wakes their tasks. Returns whether it woke any task.
    fn progress(&self) -> bool;

    /// How long the executor may park the thread itself before it must call [`Driver::progress`] again.
    /// `None` means until another thread calls a waker. Zero means that it must not park (busy poll).
    fn idle_for(&self) -> Option<Duration>;

    /// Whether the executor should poll again at once, after `rounds` rounds in a row that brought nothing. A
    /// driver that waits for a network may measure this, and may yield the processor before it answers.
    #[inline]
    fn spins(&self, rounds: u32) -> bool {
        rounds < SPIN_ROUNDS
    }

    /// How another thread ends a [`Driver::park`]; `None` if the driver cannot park the thread itself.
    #[inline]
    fn unparker(&self) -> Option<Arc<dyn Unpark>> {
        None
    }

    /// Puts the thread to sleep until one of these happens:
    ///
    /// - [`Driver::progress`] has something to deliver;
    /// - a deadline of the driver is due;
    /// - `limit` has passed;
    /// - another thread calls [`Unpark::unpark`], or called it shortly before.
    ///
    /// May return early. Called only if there is an [`Driver::unparker`].
    fn park(&self, limit: Option<Duration>) {
        let _ = limit;
    }
}

/// Ends a sleep in [`Driver::park`] from another thread.
///
/// The driver must remember a call that comes before its sleep, and end that sleep at once. Between the
/// moment a thread announces its park and the moment it parks, nothing else keeps the wake. A call that comes
/// too late may end the next sleep early.
pub trait Unpark: Send + Sync {
    /// Ends the sleep, or the next one.
    fn unpark(&self);
}
