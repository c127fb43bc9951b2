//! A memory server under a storm of frames: at random, with values that lie, damaged, before and after the handshake.
//!
//! Two storms. In the *guarded* one everything is sent but what a member may do to others: change their memory, have them
//! declared dead, or leave its id for them to tidy up. Then a client that behaves must not notice. In the *wild* one everything is sent, and the server's own
//! tables are overwritten under it: it need not make sense any more, but it must go on answering. Frames are counted as far
//! as the server follows them: what is sent behind the one that ends a connection does not count. Alone in its file: it
//! looks at the memory of its process.
//!
//! A few seconds; with `SHERMAN_FUZZ_FRAMES=10000000` as many frames as that.
#![cfg(target_os = "linux")]

mod inputs;
#[path = "../../soft-nic/tests/raw/mod.rs"]
mod raw;

use inputs::{Numbers, frames};
use raw::{FREE, Raw, alone, eventually, options, start};
use sherman_fabric::{ClientId, Request, Space, WorkList};
use sherman_fuzzing::frames::{Heard, Side, Stream, any};
use sherman_fuzzing::source::Source;
use sherman_soft_nic::auth::Secret;
use sherman_soft_nic::server::{Listen, RunningServer, ServerOptions};
use sherman_soft_nic::wire::{MAX_TRANSFER, Role, Welcome, WireVerb};
use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// Connections at a time.
const STORMERS: u64 = 3;
/// Where the client that behaves has its page.
const KEPT: u64 = FREE + (8 << 20);
/// What stormers may change in the guarded storm.
const OPEN: std::ops::Range<u64> = FREE..FREE + (2 << 20);
/// Ids that members may have.
const IDS: std::ops::RangeInclusive<u16> = 1..=4096;
/// Frames of the wild storm that one server gets: afterwards its tables are such that hardly anybody is a member.
const WILD: u64 = 40_000;
/// What the process may grow by: buffers of threads and of the allocator, nothing that grows with the number of frames.
const GROWTH: usize = 24 << 20;

/// Lists and calls of [`touch`].
const TOUCHES: u64 = 2 * (64 << 20) / MAX_TRANSFER as u64 + 1;

/// Bytes of memory this process has.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").expect("proc");
    status.split(' ').nth(1).expect("a field").parse::<usize>().expect("a number") * 4096
}

/// Whether a member of these tests would be harmed, as members may harm each other.
fn harms(heard: &Heard<'_>) -> bool {
    let changes = |space: Space, offset: u64, len: u64| {
        let inside = offset >= OPEN.start && offset.saturating_add(len) <= OPEN.end;
        space == Space::Host && !inside && offset < 64 << 20
    };
    match heard {
        Heard::Verb(WireVerb::Write { space, offset, data, .. }) => changes(*space, *offset, data.len() as u64),
        Heard::Verb(WireVerb::Cas { space, offset, .. } | WireVerb::Faa { space, offset, .. }) => {
            changes(*space, *offset, 8)
        }
        Heard::Call(
            Request::Fence { client: ClientId(id) }
            | Request::Suspect { client: ClientId(id) }
            | Request::Condemn { client: ClientId(id) }
            | Request::SpansOf { client: ClientId(id), from: 0 }
            | Request::Succeed { client: ClientId(id), .. }
            | Request::Relieve { client: ClientId(id) }
            | Request::Retire { client: ClientId(id) },
        ) => IDS.contains(id),
        // Who departs keeps its id until another member has tidied up after it, and here nobody does.
        Heard::Call(Request::Depart) => true,
        _ => false,
    }
}

/// Everything that one storm shares.
struct Storm<'a> {
    at: &'a Listen,
    guarded: bool,
    secret: Option<&'a Secret>,
    seed: u64,
    /// Frames to send.
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
            // The server may have hung up in the middle of it.
            let _ = raw.socket.write_all(&bytes);
            raw.socket.end();
            drain(&mut raw);
            self.sent.fetch_add(frames, Relaxed);
            self.connections.fetch_add(1, Relaxed);
        }
    }

    /// A connection that has introduced itself: as the member it is, as a new one, or as one who only looks.
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
            Err(goodbye) => assert!(!self.guarded, "who has left may join again: {goodbye:?}"),
        }
        Raw::enter_to(self.at, self.secret, Role::Admin).expect("anybody may look").0
    }

    /// What one connection sends, and how many frames of it the server will follow: all but the last are well formed,
    /// whatever they say.
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
            // What came before may be the beginning of something that nothing fits.
            if self.guarded && harm || greeted && last && frames + more < most && skipped < 8 {
                skipped += 1;
                continue;
            }
            skipped = 0;
            stream = next;
            bytes.extend(frame);
            frames += more + u64::from(outcome.is_err());
            // Who has not introduced itself, or has left, is not listened to any further.
            if last {
                break;
            }
        }
        (bytes, frames)
    }
}

/// Reads until the server has hung up.
fn drain(raw: &mut Raw) {
    let mut buffer = [0; 16 << 10];
    loop {
        match raw.socket.read(&mut buffer) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("the server does not hang up"),
            Err(_) => return,
        }
    }
}

/// Writes, reads and calls until told to end; how often.
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
            // One that never renews, and owns nothing, is forgotten when its lease runs out.
            raw.call(&Request::Renew).expect("a good call is answered");
        }
        if end.load(Relaxed) {
            return round;
        }
    }
    0
}

/// Tells who behaves to end, even if the storm fails.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Reads all memory and writes it back, so that all of it is there before anything is measured.
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
    raw.call(&Request::Leave).expect("it may go");
}

/// A server on a socket of its own, and its address.
fn serve(name: &str, secret: Option<&Secret>) -> (RunningServer, Listen) {
    let path = std::env::temp_dir().join(format!("sherman-{name}-{}.sock", std::process::id()));
    let server = start(ServerOptions { listen: vec![Listen::Unix(path)], secret: secret.cloned(), ..options() });
    let at = server.addresses()[0].clone();
    touch(&at, secret);
    (server, at)
}

/// Lets the storm loose; how many frames were sent, and how much the process has grown since a tenth of them.
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
                println!("{sent} frames after {:.1} s, {} MiB", began.elapsed().as_secs_f64(), resident() >> 20);
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
        "{sent} frames on {} connections in {seconds:.1} s, {:.0} a second; {} lists executed, {} failed, {} calls; \
         memory grew by {} KiB; refused: {:?}",
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

/// Most frames were answered or refused, besides those of others: the storm has reached the server.
fn followed(server: &RunningServer, sent: u64, others: u64) {
    let stats = server.stats();
    // A bad address is one of a list that failed.
    let refused = stats.refused.iter().filter(|refused| refused.reason != "bad_address");
    let refused: u64 = refused.map(|refused| refused.count).sum();
    let answered = (stats.lists + stats.lists_failed + stats.calls + refused).saturating_sub(others);
    println!("{answered} of {sent} were answered");
    assert!(answered * 10 >= sent * 8, "{answered} of {sent} frames were answered");
}

/// One after the other, since both look at the memory of this process.
#[test]
fn a_storm_of_frames_stops_no_server() {
    guarded(frames(60_000));
    let wild_ones = frames(60_000) / 5;
    (0..wild_ones.div_ceil(WILD)).for_each(|round| wild(round + 1, wild_ones.min(WILD)));
}

/// Nobody who behaves notices.
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

/// It goes on answering, though its tables are not its own any more.
fn wild(seed: u64, all: u64) {
    let (server, at) = serve("wild", None);
    let (sent, grown) = storm(&server, &at, None, seed, all);
    followed(&server, sent, TOUCHES);
    assert!(grown < GROWTH, "{} KiB more", grown >> 10);
    let (mut raw, _) = Raw::enter_to(&at, None, Role::Admin).expect("anybody may look");
    assert!(raw.stats().contains_key("malformed"));
    drop(raw);
    eventually(|| server.stats().connections == 0);
    server.stop();
    assert!(server.join().is_ok(), "no thread has failed");
}
