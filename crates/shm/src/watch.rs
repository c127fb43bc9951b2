//! How a client learns that a server was killed.
//!
//! Verbs need no server, so nothing they do would tell. But every server has a connection open to this process that says nothing;
//! when the server ends, in whatever way, the kernel ends that connection. One thread waits for it, and ends this client's
//! identity: everything posted there from then on ends in `Disconnected`, although the memory is still mapped.

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use sherman_soft_nic::SoftNicFabric;
use sherman_soft_nic::client::Attachment;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Waits for the end of connections.
#[derive(Debug)]
pub(crate) struct Watch {
    /// Rings for the thread to end.
    bell: Arc<OwnedFd>,
    /// Behind a lock, so that a panic elsewhere finds it whole.
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Watch {
    /// Watches over `anchors`, one for each server, for as long as it lives.
    pub(crate) fn start(control: SoftNicFabric, anchors: Vec<(u16, Attachment)>) -> io::Result<Self> {
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let thread = std::thread::Builder::new().name("sherman-watch".to_owned());
        let thread = thread.spawn({
            let bell = Arc::clone(&bell);
            move || watch(&control, anchors, &bell)
        })?;
        Ok(Self { bell, thread: Mutex::new(Some(thread)) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.bell, &1u64.to_ne_bytes());
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

fn watch(control: &SoftNicFabric, mut anchors: Vec<(u16, Attachment)>, bell: &OwnedFd) {
    loop {
        let mut fds = vec![PollFd::from_borrowed_fd(bell.as_fd(), PollFlags::IN)];
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
