//! A memory server and hostile or faulty clients: the server refuses them, counts them, and logs each reason
//! once, however often they come.

use crate::common::servers::{Server, wait_until};
use crate::common::{fresh_path, is_a_time, secret_file};
use crate::raw::{Raw, Reply, introduction};
use sherman_control::auth::{self, Secret};
use sherman_control::wire::{FrameHeader, FrameKind, GoodbyeCode, Introduce, Role, VERSION};
use sherman_fabric::{FabricError, Space, WorkList};
use sherman_soft_nic::server::Listen;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

const WORDS: &str = "a secret of this test";
/// How many times the test tries each intrusion.
const TIMES: u64 = 3;

/// A server that logs to a file.
struct Watched {
    server: Server,
    at: Listen,
    secret: Secret,
    told: PathBuf,
}

impl Watched {
    /// Starts one server on TCP and one with mapped memory. Clients reach both through a socket.
    fn start_all(name: &str) -> [Self; 2] {
        let socket = format!("shm:{}", fresh_path(&format!("{name}.sock")).display());
        [
            Self::start(&format!("{name}-tcp"), "tcp://127.0.0.1:0"),
            Self::start(&format!("{name}-shm"), &socket),
        ]
    }

    fn start(name: &str, listen: &str) -> Self {
        let path = secret_file(&format!("{name}-secret"), &format!("{WORDS}\n"));
        let told = fresh_path(&format!("{name}-told"));
        let stderr = std::fs::File::create(&told).expect("a file");
        let args = ["--listen", listen, "--memory", "64MiB", "--secret-file", path.to_str().expect("text")];
        let server = Server::start_telling(args.map(str::to_owned).to_vec(), Stdio::from(stderr));
        let secret = Secret::from_file(&path).expect("a secret");
        let _ = std::fs::remove_file(path);
        Self { at: server.listen(), server, secret, told }
    }

    /// How many times the server refused something for this reason.
    fn counted(&self, reason: &str) -> u64 {
        let (mut raw, _) =
            Raw::enter_to(&self.at, Some(&self.secret), Role::Admin).expect("it knows the secret");
        raw.stats().get(reason).copied().unwrap_or(0)
    }

    /// The lines of the server's log.
    fn lines(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.told).expect("text");
        assert!(!text.contains(WORDS), "the log shows no secret");
        text.lines().map(str::to_owned).collect()
    }

    /// Asserts that the server counted `times` refusals for this reason and logged one.
    fn refused(&self, reason: &str, times: u64) {
        assert_eq!(self.counted(reason), times, "{reason}");
        let word = format!("reason={reason:?}");
        let about: Vec<_> = self.lines().into_iter().filter(|line| line.contains(&word)).collect();
        assert_eq!(about.len(), 1, "{reason}: {about:?}");
        let (time, rest) = about[0].split_once(' ').expect("a time");
        assert!(
            is_a_time(time) && rest.starts_with("warn: refused: ") && rest.contains(" peer="),
            "{about:?}"
        );
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.told);
    }
}

/// The header of a list: the number of verbs has 16 bits, the number of their bytes has 32.
fn million_verbs() -> Vec<u8> {
    FrameHeader { len: 16_000_000, kind: FrameKind::List, memory: 0, count: u16::MAX, tag: 1 }
        .encode()
        .to_vec()
}

#[test]
fn every_kind_of_intruder_is_refused_counted_and_logged_once() {
    std::thread::scope(|scope| {
        for watched in Watched::start_all("intruders") {
            scope.spawn(move || intrude(watched));
        }
    });
}

fn intrude(mut watched: Watched) {
    let (at, secret) = (watched.at.clone(), watched.secret.clone());
    // These clients send nothing, or only half of the introduction. The server gives them five seconds.
    let half_open: Vec<Raw> = (0..TIMES)
        .map(|half| {
            let mut raw = Raw::connect_to(&at);
            let introduce =
                Introduce { version: VERSION, nonce: [1; 32], role: Role::Join { seen: vec![None] } };
            let bytes = introduction(&introduce, Some(&secret), &raw.hello());
            raw.send(&bytes[..bytes.len() / 2 * (half as usize % 2)]);
            raw
        })
        .collect();

    let wrong = Secret::new(b"another secret of this test").expect("long enough");
    for _ in 0..TIMES {
        let goodbye = Raw::enter_to(&at, Some(&wrong), Role::Join { seen: vec![None] })
            .err()
            .expect("it is not let in");
        assert_eq!(goodbye.code, GoodbyeCode::BadSecret);
    }
    watched.refused("bad_secret", TIMES);

    let (mut member, welcome) =
        Raw::enter_to(&at, Some(&secret), Role::Join { seen: vec![None] }).expect("it is let in");
    for _ in 0..TIMES {
        let mut list = WorkList::new(0);
        list.read(Space::Host, welcome.host_bytes - 4, 8);
        assert!(matches!(member.execute(&mut list), Err(FabricError::OutOfBounds { .. })));
    }
    watched.refused("bad_address", TIMES);

    for _ in 0..TIMES {
        let (mut raw, _) =
            Raw::enter_to(&at, Some(&secret), Role::Join { seen: vec![None] }).expect("it is let in");
        raw.send(&million_verbs());
        assert_eq!(raw.goodbye().code, GoodbyeCode::TooLarge);
    }
    watched.refused("too_large", TIMES);

    wait_until("half-open connections end", Duration::from_secs(10), || {
        watched.counted("slow_handshake") == TIMES
    });
    watched.refused("slow_handshake", TIMES);
    for mut raw in half_open {
        assert_eq!(raw.goodbye().code, GoodbyeCode::TooSlow);
    }
    let warnings: Vec<_> = watched.lines().into_iter().filter(|line| line.contains("Z warn: ")).collect();
    assert_eq!(warnings.len(), 4, "{warnings:?}");
    assert_eq!(watched.server.terminate().code(), Some(0));
}

#[test]
fn a_recorded_handshake_is_refused_and_logged_once() {
    Watched::start_all("recorded").iter().for_each(replay);
}

fn replay(watched: &Watched) {
    let mut first = Raw::connect_to(&watched.at);
    let introduce = Introduce {
        version: VERSION,
        nonce: auth::nonce().expect("randomness"),
        role: Role::Join { seen: vec![None] },
    };
    let recorded = introduction(&introduce, Some(&watched.secret), &first.hello());
    first.send(&recorded);
    assert!(matches!(first.receive(), Reply::Frame(FrameKind::Welcome, ..)));
    for _ in 0..TIMES {
        let mut raw = Raw::connect_to(&watched.at);
        raw.hello();
        raw.send(&recorded);
        assert_eq!(raw.goodbye().code, GoodbyeCode::BadSecret);
    }
    // A replayed proof does not match its connection. The server cannot distinguish it from a wrong secret.
    watched.refused("bad_secret", TIMES);
}
