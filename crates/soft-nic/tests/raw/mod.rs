//! A client made only of a blocking socket and the wire functions, and a small server for it.
#![allow(dead_code, reason = "each test file uses what it needs")]

use sherman_control::auth::{self, Secret};
use sherman_control::wire::frame::put_frame;
use sherman_control::wire::{
    FrameHeader, FrameKind, Goodbye, HEADER_BYTES, Hello, Introduce, Role, VERSION, Welcome, errors,
    requests, responses,
};
use sherman_embedded::Atomicity;
use sherman_embedded::copy::CopyPath;
use sherman_embedded::host::Host;
use sherman_embedded::memory::Region;
use sherman_fabric::{Call, ComputeId, FabricError, Request, Response, WorkList, calls};
use sherman_layout::FormatOptions;
use sherman_soft_nic::server::{Listen, RunningServer, ServerOptions, SoftNicServer};
use sherman_soft_nic::verbs;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

/// Where tests may write: after the tables, in chunks that no client owns.
pub const FREE: u64 = 48 << 20;

/// A memory of 64 MiB with small chunks.
pub fn host(server: u16, servers: u16) -> Arc<Host> {
    host_for(server, servers, FormatOptions::default().member_capacity)
}

/// The same, with `member_capacity` ids. With few ids, each is soon issued again.
pub fn host_for(server: u16, servers: u16, member_capacity: u32) -> Arc<Host> {
    let region = Region::new(64 << 20, 64 << 10, Atomicity::Line, CopyPath::fastest()).unwrap();
    let locks = sherman_layout::LockOptions { lanes: Some(1024), ..Default::default() };
    let format = FormatOptions {
        server,
        servers,
        chunk_bytes: 1 << 20,
        member_capacity,
        locks,
        ..FormatOptions::default()
    };
    Arc::new(Host::format(region, &format).unwrap())
}

/// The default options of a test's server.
pub fn options() -> ServerOptions {
    ServerOptions { shards: 2, ..ServerOptions::new(host(0, 1), vec![Listen::Tcp("127.0.0.1:0".into())]) }
}

pub fn start(options: ServerOptions) -> RunningServer {
    SoftNicServer::start(options).unwrap()
}

/// The memory of a plain server.
pub fn memory_of(server: &RunningServer) -> &Arc<Host> {
    server.host().unwrap()
}

pub fn secret(text: &str) -> Secret {
    Secret::new(text.as_bytes()).unwrap()
}

/// How many refusals had this reason.
pub fn refused(server: &RunningServer, reason: &str) -> u64 {
    server.stats().refused.iter().find(|refused| refused.reason == reason).map_or(0, |refused| refused.count)
}

/// Waits until `what` is true, for five seconds at most.
pub fn eventually(what: impl Fn() -> bool) {
    for _ in 0..1000 {
        if what() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("not within five seconds");
}

/// Either kind of socket.
pub trait Socket: Read + Write + Send {
    /// Closes the sending direction.
    fn end(&self);
}
impl Socket for TcpStream {
    fn end(&self) {
        // It does not matter if the other side is already gone.
        let _ = self.shutdown(Shutdown::Write);
    }
}
impl Socket for UnixStream {
    fn end(&self) {
        let _ = self.shutdown(Shutdown::Write);
    }
}

pub struct Raw {
    pub socket: Box<dyn Socket>,
    next_tag: u64,
}

/// The answer to a list or call.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply {
    Frame(FrameKind, u64, Vec<u8>),
    /// The server hung up.
    End,
}

impl Raw {
    pub fn connect(server: &RunningServer, index: usize) -> Self {
        Self::connect_to(&server.addresses()[index])
    }

    pub fn connect_to(at: &Listen) -> Self {
        let wait = Some(Duration::from_secs(10));
        let socket: Box<dyn Socket> = match at {
            Listen::Tcp(address) => {
                let socket = TcpStream::connect(address).unwrap();
                socket.set_read_timeout(wait).unwrap();
                socket.set_nodelay(true).unwrap();
                Box::new(socket)
            }
            Listen::Unix(path) => {
                let socket = UnixStream::connect(path).unwrap();
                socket.set_read_timeout(wait).unwrap();
                Box::new(socket)
            }
        };
        Self { socket, next_tag: 1 }
    }

    /// Connects and introduces itself.
    pub fn enter(
        server: &RunningServer,
        secret: Option<&Secret>,
        role: Role,
    ) -> Result<(Self, Welcome), Goodbye> {
        Self::enter_at(server, 0, secret, role)
    }

    pub fn enter_at(
        server: &RunningServer,
        index: usize,
        secret: Option<&Secret>,
        role: Role,
    ) -> Result<(Self, Welcome), Goodbye> {
        Self::enter_to(&server.addresses()[index], secret, role)
    }

    pub fn enter_to(at: &Listen, secret: Option<&Secret>, role: Role) -> Result<(Self, Welcome), Goodbye> {
        let mut raw = Self::connect_to(at);
        let hello = raw.hello();
        let introduce = Introduce { version: VERSION, nonce: auth::nonce().unwrap(), role };
        raw.send(&introduction(&introduce, secret, &hello));
        match raw.receive() {
            Reply::Frame(FrameKind::Welcome, 0, body) => {
                let signed = Welcome::take(&body).unwrap();
                let (nonce, mac) = (&introduce.nonce, &signed.mac);
                assert!(auth::server_is_genuine(secret, signed.covered, nonce, &hello.nonce, mac));
                let welcome = signed.message;
                Ok((raw, welcome))
            }
            Reply::Frame(FrameKind::Goodbye, 0, body) => {
                assert_eq!(raw.receive(), Reply::End);
                Err(Goodbye::take(&body).unwrap())
            }
            other => panic!("{other:?}"),
        }
    }

    /// Joins.
    pub fn join(server: &RunningServer) -> (Self, Welcome) {
        Self::enter(server, None, alone()).unwrap()
    }

    /// Makes one more connection for the member that got `welcome`.
    pub fn again(server: &RunningServer, welcome: &Welcome) -> Result<(Self, Welcome), Goodbye> {
        let &Welcome { client, incarnation, boot, cluster, memory, .. } = welcome;
        Self::enter(server, None, Role::Member { client, incarnation, boot, cluster, memory })
    }

    pub fn hello(&mut self) -> Hello {
        match self.receive() {
            Reply::Frame(FrameKind::Hello, 0, body) => Hello::take(&body).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        // If the server has hung up, the next receive shows it.
        let _ = self.socket.write_all(bytes);
    }

    /// The next frame.
    pub fn receive(&mut self) -> Reply {
        let mut head = [0; HEADER_BYTES];
        match self.socket.read_exact(&mut head) {
            Ok(()) => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                panic!("no answer: {error}")
            }
            Err(_) => return Reply::End,
        }
        let header = FrameHeader::decode(&head).unwrap().unwrap();
        let mut body = vec![0; header.len as usize];
        self.socket.read_exact(&mut body).unwrap();
        Reply::Frame(header.kind, header.tag, body)
    }

    /// The next frame, which must be a goodbye. Then the server hangs up.
    pub fn goodbye(&mut self) -> Goodbye {
        let Reply::Frame(FrameKind::Goodbye, 0, body) = self.receive() else { panic!("no goodbye") };
        assert_eq!(self.receive(), Reply::End);
        Goodbye::take(&body).unwrap()
    }

    /// Sends a list; returns its tag.
    pub fn post(&mut self, list: &mut WorkList) -> u64 {
        let mut frame = Vec::new();
        let tag = self.next_tag;
        self.next_tag += 1;
        verbs::put_list(&mut frame, tag, list).unwrap();
        self.send(&frame);
        tag
    }

    /// Sends a list and waits for it.
    pub fn execute(&mut self, list: &mut WorkList) -> Result<(), FabricError> {
        let expected = self.post(list);
        match self.receive() {
            Reply::Frame(FrameKind::ListDone, tag, body) if tag == expected => {
                verbs::take_results(&body, list).unwrap();
                Ok(())
            }
            Reply::Frame(FrameKind::ListFailed, tag, body) if tag == expected => {
                Err(errors::take_error(&body).unwrap())
            }
            Reply::Frame(FrameKind::Goodbye, 0, _) | Reply::End => {
                Err(FabricError::Disconnected { server: 0 })
            }
            other => panic!("{other:?}"),
        }
    }

    /// Sends a request; returns its tag.
    pub fn ask(&mut self, request: &Request) -> u64 {
        let mut frame = Vec::new();
        let tag = self.next_tag;
        self.next_tag += 1;
        put_frame(&mut frame, FrameKind::Call, tag, |out| requests::put_request(out, request).unwrap())
            .unwrap();
        self.send(&frame);
        tag
    }

    /// The next frame, which must answer a request: its tag and the answer.
    pub fn answer(&mut self) -> (u64, Result<Response, FabricError>) {
        match self.receive() {
            Reply::Frame(FrameKind::Answer, tag, body) => (tag, Ok(responses::take_response(&body).unwrap())),
            Reply::Frame(FrameKind::Refused, tag, body) => (tag, Err(errors::take_error(&body).unwrap())),
            other => panic!("{other:?}"),
        }
    }

    /// Sends a request and waits for its answer.
    pub fn call<C: Call>(&mut self, call: C) -> Result<C::Reply, FabricError> {
        let expected = self.ask(&call.request());
        let (tag, answer) = self.answer();
        assert_eq!(tag, expected);
        answer.and_then(C::expect)
    }

    pub fn stats(&mut self) -> BTreeMap<String, u64> {
        let Ok(stats) = self.call(calls::Stats) else { panic!("no statistics") };
        stats.refused.into_iter().map(|refused| (refused.reason, refused.count)).collect()
    }
}

/// The frame that introduces a client.
pub fn introduction(introduce: &Introduce, secret: Option<&Secret>, hello: &Hello) -> Vec<u8> {
    let mut frame = Vec::new();
    let sign = |covered: &[u8]| auth::client_mac(secret, covered, &hello.nonce);
    put_frame(&mut frame, FrameKind::Introduce, 0, |out| introduce.put(out, sign)).unwrap();
    frame
}

/// The role of a client that joins a cluster of one server.
pub fn alone() -> Role {
    Role::Join { seen: vec![None] }
}

/// The role of a member that no server has admitted, for this memory and its cluster. A memory that belongs
/// to no cluster gets an arbitrary one.
pub fn member(server: &RunningServer, client: u16, incarnation: u32, boot: u64) -> Role {
    let (host, client) = (memory_of(server), ComputeId(client));
    let cluster = Some(host.look(|tables| tables.cluster())).filter(|cluster| *cluster != 0).unwrap_or(77);
    Role::Member { client, incarnation, boot, cluster, memory: host.superblock().memory_id }
}
