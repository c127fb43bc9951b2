//! An operator's connections, which need no membership.
//!
//! Every request has a connection of its own: requests are rare, and a connection that is not kept cannot be
//! stale. So an operator gets answers when the member table is full, when other servers are down, and while
//! members come and go.
//!
//! In a cluster of hosts, server numbers are numbers of hosts. Requests to control go to the leader of the
//! group: a host that does not lead says where the leader is, and the operator goes there.

use super::connect::{ConnectError, connect, receive_exactly, send_all};
use super::error::JoinError;
use super::fabric::{check, introduce};
use super::group::{self, Probe, Said, Turn, elsewhere, follow, probe};
use super::options::{Address, JoinOptions};
use super::places::Places;
use crate::wire::frame::put_frame;
use crate::wire::requests::put_request;
use crate::wire::responses::take_response;
use crate::wire::{FrameHeader, FrameKind, Goodbye, HEADER_BYTES, Role, WireError, errors};
use sherman_fabric::group::ClusterInfo;
use sherman_fabric::{Call, FabricError, Peer, Request, Response, Seen, calls};
use std::time::Instant;

/// The part of the time for a connection that the leader gets to say what it knows.
const PARTS: u32 = 4;

/// An operator's access to a cluster.
#[derive(Clone, Debug)]
pub struct Operator {
    options: JoinOptions,
    /// The hosts of the group, if there is one.
    hosts: Option<Places>,
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
    /// Makes an operator of the cluster of these servers. Checks that server 0 answers, or some host of a
    /// cluster of hosts.
    pub fn open(options: &JoinOptions) -> Result<Self, JoinError> {
        let mut admin = Self { options: options.clone(), hosts: None };
        match probe(options)? {
            Probe::Host(info) => {
                let mut hosts = Places::new(&options.servers);
                let up = info.hosts.iter().filter(|host| host.up);
                up.for_each(|host| hosts.learn_text(&host.address));
                info.leader.iter().for_each(|leader| _ = hosts.hint(leader));
                admin.hosts = Some(hosts);
            }
            Probe::Server(0, welcome) => check(options, 0, &welcome)?,
            Probe::Server(..) => _ = admin.find(0)?,
        }
        Ok(admin)
    }

    /// Whether this is a cluster of hosts.
    pub fn is_group(&self) -> bool {
        self.hosts.is_some()
    }

    /// What the leader knows about a cluster of hosts. If the leader cannot be reached, what another host
    /// knows.
    ///
    /// # Errors
    /// [`AdminError::Refused`] if this is no cluster of hosts.
    pub fn cluster(&self) -> Result<ClusterInfo, AdminError> {
        let info = self.ask(Peer::Control, calls::Cluster)?;
        let Some(leader) = info.leader.as_deref().and_then(Address::parse) else { return Ok(info) };
        let turn = Turn::until(Instant::now() + self.options.connect_timeout / PARTS);
        match group::ask(&self.options, &leader, Role::Admin, &Request::Cluster, turn) {
            Ok(Ok(Response::Cluster(newest))) => Ok(*newest),
            _ => Ok(info),
        }
    }

    /// The address of a host.
    fn host(&self, number: u16) -> Result<Address, AdminError> {
        let hosts = self.ask(Peer::Control, calls::Cluster)?.hosts;
        let host = hosts.iter().find(|host| host.number == number);
        let address = host.and_then(|host| Address::parse(&host.address));
        address.ok_or(AdminError::Refused(FabricError::NoSuchServer { server: number }))
    }

    /// Asks the leader of the group, or a host.
    fn ask_group(&self, hosts: &Places, peer: Peer, request: &Request) -> Result<Response, AdminError> {
        let options = &self.options;
        let unreached = |address: &Address, error| JoinError::Host { address: address.clone(), error };
        if let Peer::Volume(number) = peer {
            let address = self.host(number)?;
            let deadline = Instant::now() + options.patience;
            let answer = group::ask(options, &address, Role::Admin, request, Turn::until(deadline));
            return answer.map_err(|error| unreached(&address, error))?.map_err(AdminError::Refused);
        }
        let answered = follow(&mut hosts.clone(), options.patience, |_, address, turn| {
            let end = turn.end.min(Instant::now() + options.connect_timeout);
            match group::ask(options, address, Role::Admin, request, Turn { end, ..turn }) {
                Ok(Ok(response)) => Ok(Said::Done(Ok(response))),
                Ok(Err(error)) => Ok(match elsewhere(error) {
                    Ok(leader) => Said::Elsewhere(leader),
                    Err(error) => Said::Done(Err(error)),
                }),
                Err(error) => Err(unreached(address, error)),
            }
        });
        answered?.1.map_err(AdminError::Refused)
    }

    /// The servers' addresses, by server number. In a cluster of hosts: those of the options, in any order.
    pub fn addresses(&self) -> &[Address] {
        &self.options.servers
    }

    /// Connects to `server`, and returns its boot number, memory and cluster.
    pub fn find(&self, server: u16) -> Result<Found, JoinError> {
        let options = &self.options;
        let welcome = if self.hosts.is_none() {
            let welcome = introduce(options, server, Role::Admin)?.welcome;
            check(options, server, &welcome)?;
            welcome
        } else {
            let address = self.host(server).map_err(|error| match error {
                AdminError::Connect(error) => error,
                AdminError::Refused(error) => {
                    JoinError::Refused { address: options.servers[0].clone(), error }
                }
            })?;
            let deadline = Instant::now() + options.connect_timeout;
            let connected = connect(&address, options.secret.as_ref(), Role::Admin, deadline);
            connected.map_err(|error| JoinError::Host { address, error })?.welcome
        };
        Ok(Found { boot: welcome.boot, seen: Seen { memory: welcome.memory, cluster: welcome.cluster } })
    }

    /// Asks `peer`, and waits for the reply.
    pub fn ask<C: Call>(&self, peer: Peer, call: C) -> Result<C::Reply, AdminError> {
        if let Some(hosts) = &self.hosts {
            return C::expect(self.ask_group(hosts, peer, &call.request())?).map_err(AdminError::Refused);
        }
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
    exchange_frame(stream, &out, deadline)
}

/// Sends a frame that is answered like a request, and receives the answer.
pub(super) fn exchange_frame(
    stream: &super::stream::Stream,
    frame: &[u8],
    deadline: Instant,
) -> Result<Result<Response, FabricError>, ConnectError> {
    send_all(stream, frame, deadline)?;
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
