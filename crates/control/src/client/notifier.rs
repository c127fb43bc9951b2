//! How another thread wakes a thread that sleeps on its sockets.

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{read, write};
use sherman_executor::Unpark;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// An event counter that wakes a thread that sleeps on sockets.
#[derive(Debug)]
pub(crate) struct Notifier(OwnedFd);

impl Notifier {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Resets the counter.
    pub(crate) fn clear(&self) {
        // An empty counter is no error.
        let _ = read(&self.0, &mut [0; 8]);
    }
}

impl Unpark for Notifier {
    fn unpark(&self) {
        // Fails only after 2^64 - 2 wakes since the last `clear`.
        let _ = write(&self.0, &1u64.to_ne_bytes());
    }
}

impl AsFd for Notifier {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_before_the_wait_is_seen() {
        let notifier = Notifier::new().unwrap();
        let heard = |notifier: &Notifier| {
            let mut fds = [rustix::event::PollFd::new(notifier, rustix::event::PollFlags::IN)];
            rustix::event::poll(&mut fds, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap()
                == 1
        };
        assert!(!heard(&notifier));
        notifier.unpark();
        notifier.unpark();
        assert!(heard(&notifier));
        notifier.clear();
        assert!(!heard(&notifier));
        notifier.clear();
    }
}
