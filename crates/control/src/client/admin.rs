//! An operator's connections, which need no membership.
//!
//! Every request has a connection of its own: requests are rare, and a connection that is not kept cannot be
//! stale. So an operator gets answers when the member table is full, when other servers are down, and while
//! members come and go.

use super::connect::{ConnectError, receive_exactly, send_all};
use super::error::JoinError;
use super::fabric::{check, introduce};
use super::options::{Address, JoinOptions};
use crate::wire::frame::put_frame;
use crate::wire::requests::put_request;
use crate::wire::responses::take_response;
use crate::wire::{FrameHeader, FrameKind, Goodbye, HEADER_BYTES, Role, WireError, errors};
use sherman_fabric::{Call, FabricError, Peer, Request, Response, Seen};
use std::time::Instant;

/// An operator's access to a cluster.
#[derive(Clone, Debug)]
pub struct Operator {
    options: JoinOptions,
}

/// An operator's findings at one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The server's boot number, which identifies one start of the server.
    pub boot: u64,
    /// Its memory, and the cluster that the memory belongs to.
    pub seen: Seen,
}

sherman_fabric::errors! {
    /// Why an operator gets no answer.
    #[derive(Debug)]
    pub enum AdminError {
        /// The server cannot be reached, or is not the expected one.
        Connect(error: JoinError) => "{error}" because error,
        /// The server refused the request, or its reply does not fit the request.
        Refused(error: FabricError) => "{error}" because error,
    }
}

impl From<JoinError> for AdminError {
    fn from(error: JoinError) -> Self {
        Self::Connect(error)
    }
}

impl Operator {
    /// Makes an operator of the cluster of these servers. Checks that server 0 answers.
    pub fn open(options: &JoinOptions) -> Result<Self, JoinError> {
        super::fabric::check_servers(options)?;
        let admin = Self { options: options.clone() };
        admin.find(0)?;
        Ok(admin)
    }

    /// The servers' addresses, by server number.
    pub fn addresses(&self) -> &[Address] {
        &self.options.servers
    }

    /// Connects to `server`, and returns its boot number, memory and cluster.
    pub fn find(&self, server: u16) -> Result<Found, JoinError> {
        let welcome = introduce(&self.options, server, Role::Admin)?.welcome;
        check(&self.options, server, &welcome)?;
        Ok(Found { boot: welcome.boot, seen: Seen { memory: welcome.memory, cluster: welcome.cluster } })
    }

    /// Asks `peer`, and waits for the reply.
    pub fn ask<C: Call>(&self, peer: Peer, call: C) -> Result<C::Reply, AdminError> {
        let server = peer.server();
        let Some(address) = self.options.servers.get(usize::from(server)) else {
            return Err(AdminError::Refused(FabricError::NoSuchServer { server }));
        };
        let connected = introduce(&self.options, server, Role::Admin)?;
        check(&self.options, server, &connected.welcome)?;
        let broken = |error| JoinError::Connect { server, address: address.clone(), error };
        let deadline = Instant::now() + self.options.patience;
        let answer = exchange(&connected.stream, &call.request(), deadline).map_err(broken)?;
        answer.and_then(C::expect).map_err(AdminError::Refused)
    }
}

/// Sends a request and receives its answer, or the server's refusal.
pub(super) fn exchange(
    stream: &super::stream::Stream,
    request: &Request,
    deadline: Instant,
) -> Result<Result<Response, FabricError>, ConnectError> {
    let mut out = Vec::new();
    let mut put = Ok(());
    put_frame(&mut out, FrameKind::Call, 1, |out| put = put_request(out, request))?;
    put?;
    send_all(stream, &out, deadline)?;
    let mut head = [0; HEADER_BYTES];
    receive_exactly(stream, &mut head, deadline)?;
    let header = FrameHeader::decode(&head)?.ok_or(WireError::Truncated)?;
    let mut body = vec![0; header.len as usize];
    receive_exactly(stream, &mut body, deadline)?;
    match header.kind {
        FrameKind::Answer => Ok(Ok(take_response(&body)?)),
        FrameKind::Refused => Ok(Err(errors::take_error(&body)?)),
        FrameKind::Goodbye => Err(ConnectError::Goodbye(Goodbye::take(&body)?)),
        other => Err(WireError::Unknown { what: "answer to a request", found: other as u64 }.into()),
    }
}
