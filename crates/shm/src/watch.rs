//! How a client learns that a server was killed.
//!
//! Verbs need no server, so no verb would notice its death. But every server keeps one silent connection to
//! this process, and the kernel closes it when the server ends, in whatever way. One thread waits for that,
//! and ends this client's identity. Everything posted there afterwards ends in `Disconnected`, although the
//! memory is still mapped.

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use sherman_control::Attachment;
use sherman_control::ControlFabric;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Waits for connections to end.
#[derive(Debug)]
pub(crate) struct Watch {
    /// Tells the thread to end.
    notifier: Arc<OwnedFd>,
    /// Behind a lock, so that it stays consistent if another thread panics.
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Watch {
    /// Watches `anchors`, one for each server, until it is dropped.
    pub(crate) fn start(control: ControlFabric, anchors: Vec<(u16, Attachment)>) -> io::Result<Self> {
        let notifier = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let thread = std::thread::Builder::new().name("sherman-watch".to_owned());
        let thread = thread.spawn({
            let notifier = Arc::clone(&notifier);
            move || watch(&control, anchors, &notifier)
        })?;
        Ok(Self { notifier, thread: Mutex::new(Some(thread)) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.notifier, &1u64.to_ne_bytes());
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

fn watch(control: &ControlFabric, mut anchors: Vec<(u16, Attachment)>, notifier: &OwnedFd) {
    loop {
        let mut fds = vec![PollFd::from_borrowed_fd(notifier.as_fd(), PollFlags::IN)];
        fds.extend(anchors.iter().map(|(_, anchor)| PollFd::from_borrowed_fd(anchor.as_fd(), PollFlags::IN)));
        if poll(&mut fds, None).is_err() {
            std::thread::yield_now();
            continue;
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        if ready.first() == Some(&true) {
            return;
        }
        let mut ready = ready.iter().skip(1).copied();
        let (ended, left) = anchors.into_iter().partition(|_| ready.next() == Some(true));
        anchors = left;
        for (server, _) in ended {
            if !control.is_over() {
                control.explain_break(server);
            }
        }
    }
}
