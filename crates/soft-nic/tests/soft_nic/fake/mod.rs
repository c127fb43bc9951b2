//! A memory server without memory that misbehaves as the test requests. A client must also survive what a
//! good server never does.

use sherman_control::auth::{self, Secret};
use sherman_control::wire::errors::put_error;
use sherman_control::wire::frame::put_frame;
use sherman_control::wire::requests::take_request;
use sherman_control::wire::responses::put_response;
use sherman_control::wire::{
    FrameHeader, FrameKind, Goodbye, GoodbyeCode, HEADER_BYTES, Hello, Introduce, MAX_FRAME, MAX_REPLY,
    MAX_TRANSFER, MAX_VERBS, Role, VERSION, Welcome,
};
use sherman_control::{Address, JoinOptions};
use sherman_fabric::control::Renewal;
use sherman_fabric::{Caps, ComputeId, FenceMode, Refusal, Request, Response};
use sherman_soft_nic::verbs::{ListDecoder, Next};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The id and incarnation that every client gets.
pub const CLIENT: ComputeId = ComputeId(7);
pub const INCARNATION: u32 = 3;
/// The cluster of all fakes.
pub const CLUSTER: u64 = 100;
/// The byte that every READ returns.
pub const FOUND: u8 = 0xab;

/// How the server treats a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lists {
    /// Answers it, after this time.
    Answer(Duration),
    /// Does not answer it.
    Silence,
    /// Closes the connection.
    Close,
}

/// The server's behavior.
#[derive(Clone, Debug)]
pub struct Manners {
    pub server: u16,
    pub servers: u16,
    /// Changes when the test "restarts" the server.
    pub boot: u64,
    pub lists: Lists,
    pub renews: bool,
    /// The identity of its memory.
    pub memory: u64,
    /// The servers that it reports as declared lost.
    pub lost: Vec<u16>,
    pub secret: Option<Secret>,
}

#[derive(Debug)]
pub struct Fake {
    path: PathBuf,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    manners: Mutex<Manners>,
    open: Mutex<Vec<UnixStream>>,
    listening: Mutex<bool>,
    pub calls: Mutex<Vec<Request>>,
    lists: AtomicU64,
    accepted: AtomicU64,
}

impl Fake {
    pub fn start(server: u16, servers: u16) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("sherman-fake-{}-{number}.sock", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        let lists = Lists::Answer(Duration::ZERO);
        let memory = 100 + u64::from(server);
        let manners = Manners {
            server,
            servers,
            boot: 1 + number,
            lists,
            renews: true,
            memory,
            lost: Vec::new(),
            secret: None,
        };
        let shared = Arc::new(Shared {
            manners: Mutex::new(manners),
            open: Mutex::default(),
            listening: Mutex::new(true),
            calls: Mutex::default(),
            lists: AtomicU64::new(0),
            accepted: AtomicU64::new(0),
        });
        let served = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { break };
                if !*served.listening.lock().unwrap() {
                    break;
                }
                served.accepted.fetch_add(1, Ordering::SeqCst);
                served.open.lock().unwrap().push(stream.try_clone().unwrap());
                let served = Arc::clone(&served);
                std::thread::spawn(move || serve(stream, &served));
            }
        });
        Self { path, shared }
    }

    pub fn address(&self) -> Address {
        Address::Unix(self.path.clone())
    }

    pub fn mind(&self, change: impl FnOnce(&mut Manners)) {
        change(&mut self.shared.manners.lock().unwrap());
    }

    /// Closes every connection.
    pub fn cut(&self) {
        for stream in self.shared.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }

    /// Stops listening, and closes every connection.
    pub fn die(&self) {
        *self.shared.listening.lock().unwrap() = false;
        let _ = UnixStream::connect(&self.path);
        let _ = std::fs::remove_file(&self.path);
        self.cut();
    }

    /// The requests that it received.
    pub fn calls(&self) -> Vec<Request> {
        self.shared.calls.lock().unwrap().clone()
    }

    /// How many lists arrived completely.
    pub fn lists(&self) -> u64 {
        self.shared.lists.load(Ordering::SeqCst)
    }

    /// How many connections it has accepted.
    pub fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::SeqCst)
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.die();
    }
}

/// A cluster of fakes, and the options to join it, with short time limits.
pub fn cluster(servers: u16) -> (Vec<Fake>, JoinOptions) {
    let fakes: Vec<Fake> = (0..servers).map(|server| Fake::start(server, servers)).collect();
    let mut options = JoinOptions::new(fakes.iter().map(Fake::address).collect());
    options.patience = Duration::from_millis(400);
    options.connect_timeout = Duration::from_secs(2);
    (fakes, options)
}

fn read_frame(stream: &mut UnixStream) -> Option<(FrameHeader, Vec<u8>)> {
    let mut head = [0; HEADER_BYTES];
    stream.read_exact(&mut head).ok()?;
    let header = FrameHeader::decode(&head).ok()??;
    let mut body = vec![0; header.len as usize];
    stream.read_exact(&mut body).ok()?;
    Some((header, body))
}

fn write_frame(
    stream: &mut UnixStream,
    kind: FrameKind,
    tag: u64,
    write: impl FnOnce(&mut Vec<u8>),
) -> Option<()> {
    let mut out = Vec::new();
    put_frame(&mut out, kind, tag, write).unwrap();
    stream.write_all(&out).ok()
}

fn serve(mut stream: UnixStream, shared: &Shared) -> Option<()> {
    let manners = shared.manners.lock().unwrap().clone();
    let secret = manners.secret.as_ref();
    let nonce = auth::nonce().unwrap();
    let hello = Hello { version_min: VERSION, version_max: VERSION, needs_secret: secret.is_some(), nonce };
    write_frame(&mut stream, FrameKind::Hello, 0, |out| hello.put(out))?;
    let (_, body) = read_frame(&mut stream)?;
    let introduce = Introduce::take(&body).unwrap();
    let goodbye = |code| Goodbye { code, error: None };
    if !auth::client_is_genuine(secret, introduce.covered, &nonce, &introduce.mac) {
        return write_frame(&mut stream, FrameKind::Goodbye, 0, |out| {
            goodbye(GoodbyeCode::BadSecret).put(out)
        });
    }
    if let Role::Member { boot, .. } = introduce.message.role
        && boot != 0
        && boot != manners.boot
    {
        return write_frame(&mut stream, FrameKind::Goodbye, 0, |out| {
            goodbye(GoodbyeCode::Restarted).put(out)
        });
    }
    let theirs = introduce.message.nonce;
    write_frame(&mut stream, FrameKind::Welcome, 0, |out| {
        welcome(&manners).put(out, |covered| auth::server_mac(secret, covered, &theirs, &nonce));
    })?;
    while let Some((header, body)) = read_frame(&mut stream) {
        match header.kind {
            FrameKind::Call => answer(&mut stream, shared, header.tag, &body)?,
            _ => execute(&mut stream, shared, &header, &body)?,
        }
    }
    None
}

fn welcome(manners: &Manners) -> Welcome {
    let caps = Caps {
        atomic_unit: 64,
        crash_unit: 64,
        verb_atomic: false,
        masked_cas: true,
        write_releases: true,
        lock_read: true,
        on_chip_bytes: 64 << manners.server,
        fence: FenceMode::Revoke,
        shortest_write_nanos: 0,
        max_verbs: MAX_VERBS,
        max_transfer: MAX_TRANSFER,
    };
    Welcome {
        version: VERSION,
        boot: manners.boot,
        server: manners.server,
        servers: manners.servers,
        memory: manners.memory,
        cluster: CLUSTER,
        lost: manners.lost.clone(),
        client: CLIENT,
        incarnation: INCARNATION,
        host_bytes: 1 << 20,
        caps,
        max_frame: MAX_FRAME,
        max_reply: MAX_REPLY,
        lease_nanos: 3_000_000_000,
    }
}

fn answer(stream: &mut UnixStream, shared: &Shared, tag: u64, body: &[u8]) -> Option<()> {
    let request = take_request(body).unwrap();
    shared.calls.lock().unwrap().push(request.clone());
    let response = match request {
        Request::Renew if !shared.manners.lock().unwrap().renews => {
            let refusal = Refusal::NotAMember { client: CLIENT };
            return write_frame(stream, FrameKind::Refused, tag, |out| put_error(out, &refusal.into()));
        }
        Request::Renew => Response::Renewed(Renewal { expired: Vec::new(), short: false }),
        _ => Response::Done,
    };
    write_frame(stream, FrameKind::Answer, tag, |out| put_response(out, &response).unwrap())
}

fn execute(stream: &mut UnixStream, shared: &Shared, header: &FrameHeader, body: &[u8]) -> Option<()> {
    shared.lists.fetch_add(1, Ordering::SeqCst);
    let lists = shared.manners.lock().unwrap().lists;
    match lists {
        Lists::Answer(after) => {
            std::thread::sleep(after);
            let (mut decoder, mut rest, mut results) = (ListDecoder::new(header), body, 0);
            while let Next::Verb { verb, used } = decoder.next(rest).unwrap() {
                rest = &rest[used..];
                results += verb.result_bytes() as usize;
            }
            write_frame(stream, FrameKind::ListDone, header.tag, |out| out.resize(out.len() + results, FOUND))
        }
        Lists::Silence => Some(()),
        Lists::Close => stream.shutdown(std::net::Shutdown::Both).ok().and(None),
    }
}
