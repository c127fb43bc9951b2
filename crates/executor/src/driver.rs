//! What the executor asks of the world below it.
//!
//! A driver is either **asked**, over and over, while the executor puts the thread to sleep in between; or it **parks the
//! thread itself**, because what it waits for (a socket that becomes readable) is told only to who sleeps on it. The second
//! kind has an [`Unpark`]er, through which a waker called on another thread ends such a sleep.

use std::sync::Arc;
use std::time::Duration;

/// Fruitless rounds for which a thread spins, unless its driver says otherwise: completions of a fast backend arrive within
/// a microsecond or two. loom explores every round, so there it has none.
const SPIN_ROUNDS: u32 = if cfg!(loom) { 0 } else { 64 };

/// Something that makes progress on behalf of sleeping tasks: a completion queue, a socket, a timer heap.
///
/// The executor calls [`Driver::progress`] whenever it has no task left to run. When that brought nothing either it spins
/// as long as [`Driver::spins`] says, then parks: in [`Driver::park`] if the driver has an [`Driver::unparker`], otherwise
/// itself, for at most [`Driver::idle_for`].
pub trait Driver {
    /// Delivers what has completed and the timers that are due, waking their tasks. Returns whether anything was woken.
    fn progress(&self) -> bool;

    /// How long who parks in the driver's stead may do so before it must call [`Driver::progress`] again: `None` means until
    /// a waker is called from another thread, zero means not at all (busy poll).
    fn idle_for(&self) -> Option<Duration>;

    /// Whether it is worth while to ask again at once, after so many rounds in a row that brought nothing. A driver that
    /// waits for a network may measure it, and may yield the processor before it answers.
    #[inline]
    fn spins(&self, rounds: u32) -> bool {
        rounds < SPIN_ROUNDS
    }

    /// How another thread ends a [`Driver::park`]; `None` if the driver has no way to park of its own.
    #[inline]
    fn unparker(&self) -> Option<Arc<dyn Unpark>> {
        None
    }

    /// Puts the thread to sleep until there is something for [`Driver::progress`] to deliver, a deadline of the driver's own
    /// is due, `limit` has passed, or somebody calls [`Unpark::unpark`], even if that was shortly before. May return early.
    ///
    /// Called only if there is an [`Driver::unparker`].
    fn park(&self, limit: Option<Duration>) {
        let _ = limit;
    }
}

/// Ends a sleep in [`Driver::park`] from another thread.
///
/// A call that comes before the sleep it is meant for must be remembered and end it at once: between the moment a thread
/// says that it is going to park and the moment it does, nothing else keeps the wake. A call that comes too late may end the
/// next sleep early.
pub trait Unpark: Send + Sync {
    /// Ends the sleep, or the next one.
    fn unpark(&self);
}
