//! How a thread that sleeps on its sockets is woken by another thread.

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{read, write};
use sherman_executor::Unpark;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// An event counter: what a thread that sleeps on sockets is woken by.
#[derive(Debug)]
pub(crate) struct Bell(OwnedFd);

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Forgets that it was rung.
    pub(crate) fn hush(&self) {
        // Nothing to forget is no harm.
        let _ = read(&self.0, &mut [0; 8]);
    }
}

impl Unpark for Bell {
    fn unpark(&self) {
        // It fails only if it was rung 2^64 - 2 times since it was last hushed.
        let _ = write(&self.0, &1u64.to_ne_bytes());
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bell_that_was_rung_before_is_heard() {
        let bell = Bell::new().unwrap();
        let heard = |bell: &Bell| {
            let mut fds = [rustix::event::PollFd::new(bell, rustix::event::PollFlags::IN)];
            rustix::event::poll(&mut fds, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
        };
        assert!(!heard(&bell));
        bell.unpark();
        bell.unpark();
        assert!(heard(&bell));
        bell.hush();
        assert!(!heard(&bell));
        bell.hush();
    }
}
