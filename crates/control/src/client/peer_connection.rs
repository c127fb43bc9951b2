//! A connection of a process that is no member: a host, or a process that wants to become one.
//!
//! It carries one request at a time, or messages that have no answer. After any error it is of no use: the
//! other side may still answer the request that failed.

use super::admin::{exchange, exchange_frame};
use super::connect::{ConnectError, connect, send_all};
use super::options::Address;
use super::stream::Stream;
use crate::auth::Secret;
use crate::wire::frame::put_frame;
use crate::wire::group::Fill;
use crate::wire::{FrameKind, Role, Welcome};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sherman_fabric::{FabricError, Request, Response};
use std::time::{Duration, Instant};

/// A connection to one server.
#[derive(Debug)]
pub struct PeerConnection {
    stream: Stream,
    welcome: Welcome,
}

impl PeerConnection {
    /// Connects to the server at `address` as `role`, in `patience` at most.
    pub fn open(
        address: &Address,
        secret: Option<&Secret>,
        role: Role,
        patience: Duration,
    ) -> Result<Self, ConnectError> {
        let connected = connect(address, secret, role, Instant::now() + patience)?;
        Ok(Self { stream: connected.stream, welcome: connected.welcome })
    }

    /// What the server said about itself.
    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// Sends a request and waits for its answer, or the server's refusal.
    pub fn ask(
        &self,
        request: &Request,
        patience: Duration,
    ) -> Result<Result<Response, FabricError>, ConnectError> {
        exchange(&self.stream, request, Instant::now() + patience)
    }

    /// Sends bytes for a copy that is being made, and waits until the copy has them, or for the server's
    /// refusal.
    pub fn fill(&self, fill: &Fill<'_>, patience: Duration) -> Result<Result<(), FabricError>, ConnectError> {
        let mut out = Vec::with_capacity(64 + fill.bytes.len());
        put_frame(&mut out, FrameKind::Fill, 1, |out| fill.put(out))?;
        let answer = exchange_frame(&self.stream, &out, Instant::now() + patience)?;
        Ok(answer.map(|_| ()))
    }

    /// Sends a message that has no answer.
    pub fn send(&self, kind: FrameKind, body: &[u8], patience: Duration) -> Result<(), ConnectError> {
        let mut out = Vec::new();
        put_frame(&mut out, kind, 0, |out| out.extend_from_slice(body))?;
        send_all(&self.stream, &out, Instant::now() + patience)
    }

    /// Whether the server has sent something that nobody asked for, or has ended the connection. Either way
    /// the connection is over: all that a server says by itself is goodbye.
    pub fn has_news(&self) -> bool {
        let mut fds = [PollFd::new(&self.stream, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
    }
}
