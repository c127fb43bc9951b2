//! The thread that accepts connections and distributes them over the shards.
//!
//! It sleeps until a client connects. If the system has no descriptor left, the new connection stays in the
//! kernel's queue, and `poll` would report it again at once. So the thread then sleeps for a while instead,
//! however many clients connect.

use super::counters::Reason;
use super::listen::Listener;
use super::remote::{Remote, Who};
use super::shared::Shared;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, SocketFlags, accept_with, send, sockopt};
use sherman_control::wire::frame::put_frame;
use sherman_control::wire::{FrameKind, Goodbye, GoodbyeCode};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// How long to wait when descriptors have run out.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// Connections accepted in a row before the thread does anything else.
const BURST: usize = 64;
/// How many times a silent client is probed before it counts as gone.
const PROBES: u32 = 3;

/// Tells a client why its connection ends, if the message can be sent at once.
pub(super) fn farewell(socket: &OwnedFd, code: GoodbyeCode) {
    let mut frame = Vec::new();
    let goodbye = Goodbye { code, error: None };
    if put_frame(&mut frame, FrameKind::Goodbye, 0, |out| goodbye.put(out)).is_ok() {
        // Fits the empty buffer of any socket. If it does not, the client only sees the connection end.
        let _ = send(socket, &frame, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }
}

pub(super) struct Acceptor {
    shared: Arc<Shared>,
    listeners: Vec<Listener>,
    /// The shard that gets the next connection.
    next: usize,
}

impl Acceptor {
    pub(super) fn new(shared: Arc<Shared>, listeners: Vec<Listener>) -> Self {
        Self { shared, listeners, next: 0 }
    }

    /// Accepts until the server stops.
    pub(super) fn run(mut self) {
        while !self.shared.is_stopping() {
            let ready = self.wait();
            let mut exhausted = false;
            for index in ready {
                exhausted |= !self.accept_some(index);
            }
            if exhausted {
                // Only the end of the server ends this pause early.
                let _ = poll(&mut [PollFd::new(&self.shared.stopper.as_fd(), PollFlags::IN)], Some(&PAUSE));
            }
        }
    }

    /// Returns the listeners on which clients connect.
    fn wait(&self) -> Vec<usize> {
        let stopper = self.shared.stopper.as_fd();
        let mut polled: Vec<_> =
            self.listeners.iter().map(|listener| PollFd::new(listener, PollFlags::IN)).collect();
        polled.push(PollFd::new(&stopper, PollFlags::IN));
        match poll(&mut polled, None) {
            Ok(_) => (0..self.listeners.len()).filter(|index| !polled[*index].revents().is_empty()).collect(),
            Err(Errno::INTR) => Vec::new(),
            Err(error) => {
                self.shared.refused(Reason::AcceptFailed, None, error);
                // All listeners are nonblocking, so trying each of them is harmless. The sleep keeps this
                // from spinning.
                std::thread::sleep(Duration::from_millis(100));
                (0..self.listeners.len()).collect()
            }
        }
    }

    /// Accepts the connections that wait there. Returns false if the system has no resources for them.
    fn accept_some(&mut self, index: usize) -> bool {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        for _ in 0..BURST {
            match accept_with(&self.listeners[index], flags) {
                Ok(socket) => self.place(socket, self.listeners[index].is_tcp()),
                Err(Errno::AGAIN | Errno::INTR) => return true,
                // The client has already gone again.
                Err(
                    Errno::CONNABORTED
                    | Errno::PROTO
                    | Errno::NETDOWN
                    | Errno::HOSTUNREACH
                    | Errno::NETUNREACH,
                ) => {}
                Err(error) => {
                    self.shared.refused(Reason::AcceptFailed, None, error);
                    return false;
                }
            }
        }
        true
    }

    /// Gives a connection to a shard.
    fn place(&mut self, socket: OwnedFd, tcp: bool) {
        if tcp && let Err(error) = self.tune(&socket) {
            // The connection is slower, or notices later that the client is gone, but is still correct.
            tracing::debug!("cannot set the socket options of a connection: {error}");
        }
        let mailboxes = &self.shared.mailboxes;
        let mailbox = &mailboxes[self.next % mailboxes.len()];
        self.next = self.next.wrapping_add(1);
        self.shared.accepted();
        if let Err(socket) = mailbox.send(socket, self.shared.newcomers_per_shard()) {
            self.shared.turned_away();
            let who = Who { remote: Remote::of(&socket), client: None };
            let detail = "connections arrive faster than the server can greet them";
            self.shared.refused(Reason::TooManyNewcomers, Some(who), detail);
            farewell(&socket, GoodbyeCode::TooManyConnections);
        }
    }

    fn tune(&self, socket: &OwnedFd) -> rustix::io::Result<()> {
        let limits = &self.shared.limits;
        let between = (limits.keepalive / PROBES).max(Duration::from_secs(1));
        sockopt::set_tcp_nodelay(socket, true)?;
        sockopt::set_socket_keepalive(socket, true)?;
        sockopt::set_tcp_keepidle(socket, limits.keepalive.max(Duration::from_secs(1)))?;
        sockopt::set_tcp_keepintvl(socket, between)?;
        sockopt::set_tcp_keepcnt(socket, PROBES)?;
        sockopt::set_tcp_user_timeout(
            socket,
            u32::try_from(limits.user_timeout.as_millis()).unwrap_or(u32::MAX),
        )
    }
}
