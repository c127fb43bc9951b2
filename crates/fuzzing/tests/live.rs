//! A memory server under a storm of frames: random, with false values, damaged, before and after the
//! handshake.
//!
//! There are two storms. The *guarded* storm omits everything by which a member may harm others. It changes
//! no memory of theirs, has none of them declared dead, and leaves no id to clean up. A well-behaved client
//! must not notice it. The *wild* storm sends everything, and overwrites the server's own tables. The server
//! may then give wrong answers, but it must continue to answer.
//!
//! The tests count frames only as far as the server parses them: frames behind the one that ends a connection
//! do not count. The test is alone in its file because it measures the memory of its process.
//!
//! It takes a few seconds. `SHERMAN_FUZZ_FRAMES=10000000` makes it send that many frames.
#![cfg(target_os = "linux")]
#![allow(unreachable_pub, reason = "a test exports nothing")]

mod inputs;
#[path = "../../soft-nic/tests/raw/mod.rs"]
mod raw;

use inputs::{Numbers, frames};
use raw::{FREE, Raw, alone, eventually, options, start};
use sherman_control::auth::Secret;
use sherman_control::wire::{MAX_TRANSFER, Role, Welcome};
use sherman_fabric::{ComputeId, Request, Space, WorkList};
use sherman_fuzzing::frames::{Heard, Side, Stream, any};
use sherman_fuzzing::source::Source;
use sherman_soft_nic::server::{Listen, RunningServer, ServerOptions};
use sherman_soft_nic::verbs::WireVerb;
use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// Number of concurrent storm connections.
const STORMERS: u64 = 3;
/// Offset of the well-behaved client's page.
const KEPT: u64 = FREE + (8 << 20);
/// Memory that the storm may change in the guarded storm.
const OPEN: std::ops::Range<u64> = FREE..FREE + (2 << 20);
/// Ids that members may have.
const IDS: std::ops::RangeInclusive<u16> = 1..=4096;
/// Frames of the wild storm per server. After that many, the tables are so damaged that hardly any client is
/// a member.
const WILD: u64 = 40_000;
/// Limit on the growth of the process in bytes. It covers buffers of threads and of the allocator, and
/// nothing that grows with the number of frames.
const GROWTH: usize = 24 << 20;

/// Number of lists and calls of [`touch`].
const TOUCHES: u64 = 2 * (64 << 20) / MAX_TRANSFER as u64 + 1;

/// Resident memory of this process in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").expect("proc");
    status.split(' ').nth(1).expect("a field").parse::<usize>().expect("a number") * 4096
}

/// Whether the item harms a member of these tests, as members are able to harm each other.
fn harms(heard: &Heard<'_>) -> bool {
    let changes = |space: Space, offset: u64, len: u64| {
        let inside = offset >= OPEN.start && offset.saturating_add(len) <= OPEN.end;
        space == Space::Host && !inside && offset < 64 << 20
    };
    match heard {
        Heard::Verb(WireVerb::Write { space, offset, data, .. }) => {
            changes(*space, *offset, data.len() as u64)
        }
        Heard::Verb(WireVerb::Cas { space, offset, .. } | WireVerb::Faa { space, offset, .. }) => {
            changes(*space, *offset, 8)
        }
        Heard::Call(
            Request::Fence { client: ComputeId(id) }
            | Request::Suspect { client: ComputeId(id) }
            | Request::Condemn { client: ComputeId(id) }
            | Request::SpansOf { client: ComputeId(id), from: 0 }
            | Request::Succeed { client: ComputeId(id), .. }
            | Request::Relieve { client: ComputeId(id) }
            | Request::Retire { client: ComputeId(id) }
            | Request::FreeId { client: ComputeId(id) },
        ) => IDS.contains(id),
        // A client that departs keeps its id until another member cleans up after it. Here no member does.
        Heard::Call(Request::Depart) => true,
        _ => false,
    }
}

/// State that the connections of one storm share.
struct Storm<'a> {
    at: &'a Listen,
    guarded: bool,
    secret: Option<&'a Secret>,
    seed: u64,
    /// Number of frames to send.
    all: u64,
    sent: AtomicU64,
    connections: AtomicU64,
}

impl Storm<'_> {
    /// Sends frames until all have been sent.
    fn rage(&self, stormer: u64) {
        let mut member = None;
        for round in 0u64.. {
            if self.sent.load(Relaxed) >= self.all {
                return;
            }
            let mut numbers = Numbers(self.seed << 48 ^ stormer << 40 ^ round);
            let words = numbers.next() % 1000;
            let input: Vec<u8> = (0..words).flat_map(|_| numbers.next().to_le_bytes()).collect();
            let mut source = Source::new(&input);
            let greeted = source.below(16) != 0;
            let mut raw = if greeted { self.enter(&mut member) } else { Raw::connect_to(self.at) };
            let (bytes, frames) = self.compose(&mut source, greeted);
            // The server may have closed the connection in the middle of the write.
            let _ = raw.socket.write_all(&bytes);
            raw.socket.end();
            drain(&mut raw);
            self.sent.fetch_add(frames, Relaxed);
            self.connections.fetch_add(1, Relaxed);
        }
    }

    /// Opens a connection and introduces it: as the existing member, as a new member, or as an administrator
    /// that only reads.
    fn enter(&self, member: &mut Option<Welcome>) -> Raw {
        if let Some(Welcome { client, incarnation, boot, cluster, memory, .. }) = member.take() {
            let role = Role::Member { client, incarnation, boot, cluster, memory };
            if let Ok((raw, welcome)) = Raw::enter_to(self.at, self.secret, role) {
                *member = Some(welcome);
                return raw;
            }
        }
        match Raw::enter_to(self.at, self.secret, alone()) {
            Ok((raw, welcome)) => {
                *member = Some(welcome);
                return raw;
            }
            Err(goodbye) => assert!(!self.guarded, "a client that has left may join again: {goodbye:?}"),
        }
        Raw::enter_to(self.at, self.secret, Role::Admin).expect("any client may connect as an operator").0
    }

    /// Returns the bytes that one connection sends, and the number of frames in them that the server will
    /// parse. All frames except the last are well formed, whatever values they hold.
    fn compose(&self, source: &mut Source<'_>, greeted: bool) -> (Vec<u8>, u64) {
        let (mut stream, mut bytes, mut frames) = (Stream::default(), Vec::new(), 0);
        let (most, mut skipped) = (1 + source.below(48) as u64, 0);
        while !source.is_empty() && bytes.len() < 32 << 10 {
            let frame = any(source, Side::Client);
            let (mut harm, mut last, mut more, mut next) = (false, !greeted, 0, stream.clone());
            let outcome = next.feed(&frame, |heard| {
                harm |= harms(&heard);
                last |= matches!(heard, Heard::Other(_) | Heard::Call(Request::Leave | Request::Depart));
                more += u64::from(!matches!(heard, Heard::Verb(_)));
            });
            last |= outcome.is_err();
            // Give up after 8 skips: the bytes so far may begin something that no frame completes.
            if self.guarded && harm || greeted && last && frames + more < most && skipped < 8 {
                skipped += 1;
                continue;
            }
            skipped = 0;
            stream = next;
            bytes.extend(frame);
            frames += more + u64::from(outcome.is_err());
            // The server ignores further bytes of a client that has not introduced itself, or has left.
            if last {
                break;
            }
        }
        (bytes, frames)
    }
}

/// Reads until the server closes the connection.
fn drain(raw: &mut Raw) {
    let mut buffer = [0; 16 << 10];
    loop {
        match raw.socket.read(&mut buffer) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                panic!("the server does not hang up")
            }
            Err(_) => return,
        }
    }
}

/// Writes, reads and calls until `end` is set. Returns the number of rounds.
fn behave((mut raw, welcome): (Raw, Welcome), end: &AtomicBool) -> u64 {
    assert!(IDS.contains(&welcome.client.0), "{welcome:?}");
    for round in 0u64.. {
        let mut numbers = Numbers(round);
        let page: Vec<u8> = (0..512).flat_map(|_| numbers.next().to_le_bytes()).collect();
        let mut list = WorkList::new(0);
        list.write(Space::Host, KEPT, &page);
        raw.execute(&mut list).expect("a good list is executed");
        let mut list = WorkList::new(0);
        let read = list.read(Space::Host, KEPT, page.len() as u32);
        raw.execute(&mut list).expect("a good list is executed");
        assert!(list.bytes(read) == page, "what was written is read");
        if round.is_multiple_of(8) {
            // A client that never renews, and owns nothing, is forgotten when its lease expires.
            raw.call(sherman_fabric::calls::Renew).expect("a good call is answered");
        }
        if end.load(Relaxed) {
            return round;
        }
    }
    0
}

/// Tells the well-behaved client to end, even if the storm fails.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Reads all memory and writes it back, so that every page is resident before the test measures memory.
fn touch(at: &Listen, secret: Option<&Secret>) {
    let (mut raw, welcome) = Raw::enter_to(at, secret, alone()).expect("there is room");
    for offset in (0..welcome.host_bytes).step_by(MAX_TRANSFER as usize) {
        let mut list = WorkList::new(0);
        let read = list.read(Space::Host, offset, MAX_TRANSFER);
        raw.execute(&mut list).expect("inside");
        let bytes = list.bytes(read).to_vec();
        let mut list = WorkList::new(0);
        list.write(Space::Host, offset, &bytes);
        raw.execute(&mut list).expect("inside");
    }
    raw.call(sherman_fabric::calls::Leave).expect("it may go");
}

/// Starts a server on a socket of its own. Returns the server and its address.
fn serve(name: &str, secret: Option<&Secret>) -> (RunningServer, Listen) {
    let path = std::env::temp_dir().join(format!("sherman-{name}-{}.sock", std::process::id()));
    let server =
        start(ServerOptions { listen: vec![Listen::Unix(path)], secret: secret.cloned(), ..options() });
    let at = server.addresses()[0].clone();
    touch(&at, secret);
    (server, at)
}

/// Runs the storm. Returns the number of frames sent, and how much the process grew since a tenth of them was
/// sent.
fn storm(server: &RunningServer, at: &Listen, secret: Option<&Secret>, seed: u64, all: u64) -> (u64, usize) {
    let (began, warm) = (Instant::now(), AtomicU64::new(0));
    let storm = Storm {
        at,
        guarded: secret.is_some(),
        secret,
        seed,
        all,
        sent: AtomicU64::new(0),
        connections: AtomicU64::new(0),
    };
    std::thread::scope(|scope| {
        let ragers: Vec<_> = (0..STORMERS)
            .map(|stormer| {
                let storm = &storm;
                scope.spawn(move || storm.rage(stormer))
            })
            .collect();
        let mut tenths = 0;
        while ragers.iter().any(|rager| !rager.is_finished()) {
            let sent = storm.sent.load(Relaxed);
            if sent * 10 / all > tenths {
                tenths = sent * 10 / all;
                println!(
                    "{sent} frames after {:.1} s, {} MiB",
                    began.elapsed().as_secs_f64(),
                    resident() >> 20
                );
            }
            if tenths > 0 && warm.load(Relaxed) == 0 {
                warm.store(resident() as u64, Relaxed);
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    });
    let grown = resident().saturating_sub(warm.load(Relaxed) as usize);
    let (sent, seconds) = (storm.sent.load(Relaxed), began.elapsed().as_secs_f64());
    let stats = server.stats();
    println!(
        "{sent} frames on {} connections in {seconds:.1} s, {:.0} a second; {} lists executed, {} failed, {} \
         calls; memory grew by {} KiB; refused: {:?}",
        storm.connections.load(Relaxed),
        sent as f64 / seconds,
        stats.lists,
        stats.lists_failed,
        stats.calls,
        grown >> 10,
        stats.refused.iter().map(|refused| (refused.reason.as_str(), refused.count)).collect::<Vec<_>>(),
    );
    (sent, grown)
}

/// Asserts that the server answered or refused most of the storm's frames, so that the storm really reached
/// it. `others` counts the frames of other clients.
fn followed(server: &RunningServer, sent: u64, others: u64) {
    let stats = server.stats();
    // A refusal for a bad address belongs to a list that already counts as failed.
    let refused = stats.refused.iter().filter(|refused| refused.reason != "bad_address");
    let refused: u64 = refused.map(|refused| refused.count).sum();
    let answered = (stats.lists + stats.lists_failed + stats.calls + refused).saturating_sub(others);
    println!("{answered} of {sent} were answered");
    assert!(answered * 10 >= sent * 8, "{answered} of {sent} frames were answered");
}

/// The storms run one after the other, because both measure the memory of this process.
#[test]
fn a_storm_of_frames_stops_no_server() {
    guarded(frames(60_000));
    let wild_ones = frames(60_000) / 5;
    (0..wild_ones.div_ceil(WILD)).for_each(|round| wild(round + 1, wild_ones.min(WILD)));
}

/// A well-behaved client does not notice the storm.
fn guarded(all: u64) {
    let secret = raw::secret("a secret of this test");
    let (server, at) = serve("guarded", Some(&secret));
    let end = AtomicBool::new(false);
    let ((sent, grown), rounds) = std::thread::scope(|scope| {
        let member = Raw::enter_to(&at, Some(&secret), alone()).expect("there is room");
        let client = scope.spawn(|| behave(member, &end));
        let until = EndOnDrop(&end);
        let outcome = storm(&server, &at, Some(&secret), 0, all);
        drop(until);
        (outcome, client.join().expect("a client that behaves is served"))
    });
    println!("meanwhile a client wrote and read its page {rounds} times");
    assert!(rounds > 100, "{rounds}");
    followed(&server, sent, 2 * rounds + rounds / 8 + TOUCHES);
    assert!(grown < GROWTH, "{} KiB more", grown >> 10);
    let refused = server.stats().refused;
    for reason in ["malformed", "too_large", "bad_address", "bad_secret"] {
        assert!(refused.iter().any(|refused| refused.reason == reason), "{reason}: {refused:?}");
    }
    eventually(|| server.stats().connections == 0);
    server.stop();
    assert!(server.join().is_ok(), "no thread has failed");
}

/// The server continues to answer, although the storm overwrites its tables.
fn wild(seed: u64, all: u64) {
    let (server, at) = serve("wild", None);
    let (sent, grown) = storm(&server, &at, None, seed, all);
    followed(&server, sent, TOUCHES);
    assert!(grown < GROWTH, "{} KiB more", grown >> 10);
    let (mut raw, _) = Raw::enter_to(&at, None, Role::Admin).expect("any client may connect as an operator");
    assert!(raw.stats().contains_key("malformed"));
    drop(raw);
    eventually(|| server.stats().connections == 0);
    server.stop();
    assert!(server.join().is_ok(), "no thread has failed");
}
