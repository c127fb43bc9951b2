//! Faulty clients: every bad address, length, list and frame is refused and counted, and other clients do not
//! notice.

use crate::raw::{FREE, Raw, Reply, eventually, options, refused, start};
use fastrand::Rng;
use sherman_control::wire::{
    FrameHeader, FrameKind, GoodbyeCode, HEADER_BYTES, MAX_FRAME, MAX_TRANSFER, MAX_VERBS, Role, errors,
};
use sherman_fabric::{FabricError, Space, WorkList, calls};
use sherman_soft_nic::server::{Limits, RunningServer, ServerOptions};
use sherman_soft_nic::verbs::put_list;
use std::time::{Duration, Instant};

/// Bytes of resident memory of this process.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    status.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

fn frame(kind: u8, len: u32, count: u16, body: &[u8]) -> Vec<u8> {
    let header = FrameHeader { len, kind: FrameKind::List, memory: 0, count, tag: 1 };
    let mut frame = header.encode().to_vec();
    frame[4] = kind;
    frame.extend(body);
    frame
}

#[test]
fn an_address_outside_the_region_fails_its_list_as_a_prefix_and_the_connection_goes_on() {
    let server = start(options());
    let (mut raw, welcome) = Raw::join(&server);
    let end = welcome.host_bytes;
    type Bad = fn(&mut WorkList, u64);
    let bad: [(Bad, bool); 8] = [
        (|list, end| _ = list.read(Space::Host, end - 7, 8), true),
        (|list, end| _ = list.write(Space::Host, end, &[1]), true),
        (|list, _| _ = list.read(Space::Host, u64::MAX, 64), true),
        (|list, _| _ = list.write(Space::Host, u64::MAX - 3, &[1; 8]), true),
        (|list, end| _ = list.cas(Space::Host, end, 0, 1), true),
        (|list, _| _ = list.faa(Space::OnChip, 1 << 40, 1), true),
        (|list, _| _ = list.faa(Space::Host, FREE + 4, 1), false),
        (|list, _| _ = list.read(Space::OnChip, 8, 12), false),
    ];
    for (round, (add, outside)) in (1u8..).zip(bad) {
        let mut list = WorkList::new(0);
        list.write(Space::Host, FREE, &[round; 8]);
        add(&mut list, end);
        list.write(Space::Host, FREE, &[99; 8]);
        list.write(Space::Host, FREE, &vec![99; 100_000]);
        match raw.execute(&mut list) {
            Err(FabricError::OutOfBounds { .. }) if outside => {}
            Err(FabricError::Misaligned { .. }) if !outside => {}
            other => panic!("{round}: {other:?}"),
        }
        let mut list = WorkList::new(0);
        let read = list.read(Space::Host, FREE, 8);
        raw.execute(&mut list).unwrap();
        assert_eq!(list.bytes(read), [round; 8], "what came before has happened, what came after has not");
    }
    assert_eq!(refused(&server, "bad_address"), 8);
    assert_eq!((server.stats().lists_failed, server.stats().lists), (8, 8));
}

#[test]
fn malformed_frames_end_their_connection_with_a_reason() {
    let server = start(options());
    let (mut other, _) = Raw::join(&server);
    let read = |len: u32| {
        let mut list = WorkList::new(0);
        list.read(Space::Host, 0, 8);
        let mut bytes = Vec::new();
        put_list(&mut bytes, 1, &mut list).unwrap();
        bytes[HEADER_BYTES + 4..HEADER_BYTES + 8].copy_from_slice(&len.to_le_bytes());
        bytes
    };
    let body = &read(8)[HEADER_BYTES..];
    let malformed = [
        frame(0, 0, 0, &[]),
        frame(77, 0, 0, &[]),
        frame(FrameKind::ListDone as u8, 0, 0, &[]),
        frame(FrameKind::Hello as u8, 0, 0, &[]),
        frame(FrameKind::Introduce as u8, 0, 0, &[]),
        frame(FrameKind::Call as u8, 1, 0, &[200]),
        frame(FrameKind::Call as u8, 0, 0, &[]),
        frame(FrameKind::List as u8, 15, 1, &body[..15]),
        frame(FrameKind::List as u8, 16, 0, body),
        frame(FrameKind::List as u8, 17, 1, &[body, &[0]].concat()),
        frame(FrameKind::List as u8, 16, 1, &[9; 16]),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
    ];
    let too_large = [
        frame(FrameKind::List as u8, MAX_FRAME + 1, 1, &[]),
        frame(FrameKind::List as u8, u32::MAX, 1, &[]),
        frame(FrameKind::List as u8, 16, MAX_VERBS as u16 + 1, &[]),
        // A list of a million verbs, as far as its header can express it.
        frame(FrameKind::List as u8, 16_000_000, u16::MAX, &body.repeat(1000)),
        frame(FrameKind::Call as u8, 1 << 20, 0, &[]),
        read(MAX_TRANSFER + 1),
        read(u32::MAX),
    ];
    for (index, bytes) in malformed.iter().enumerate() {
        let mut raw = Raw::join(&server).0;
        raw.send(bytes);
        assert_eq!(raw.goodbye().code, GoodbyeCode::Malformed, "{index}");
    }
    for (index, bytes) in too_large.iter().enumerate() {
        let mut raw = Raw::join(&server).0;
        raw.send(bytes);
        assert_eq!(raw.goodbye().code, GoodbyeCode::TooLarge, "{index}");
    }
    assert_eq!(refused(&server, "malformed"), malformed.len() as u64);
    assert_eq!(refused(&server, "too_large"), too_large.len() as u64);
    assert!(other.call(calls::Usage).is_ok());
}

#[test]
fn a_reply_larger_than_a_frame_is_refused_not_assembled() {
    let server = start(options());
    let (mut raw, _) = Raw::join(&server);
    let mut body = Vec::new();
    for _ in 0..MAX_VERBS {
        let mut list = WorkList::new(0);
        list.read(Space::Host, 0, MAX_TRANSFER);
        let mut bytes = Vec::new();
        put_list(&mut bytes, 1, &mut list).unwrap();
        body.extend(&bytes[HEADER_BYTES..]);
    }
    raw.send(&frame(FrameKind::List as u8, body.len() as u32, MAX_VERBS as u16, &body));
    assert_eq!(raw.goodbye().code, GoodbyeCode::TooLarge);
    // The largest reply that is allowed comes back whole.
    let (mut raw, _) = Raw::join(&server);
    let mut list = WorkList::new(0);
    (0..32).for_each(|_| _ = list.read(Space::Host, 0, MAX_TRANSFER));
    raw.execute(&mut list).unwrap();
}

/// Some lists, one after the other; the second fails.
fn conversation() -> (Vec<u8>, usize) {
    let mut bytes = Vec::new();
    for round in 0..4u64 {
        let mut list = WorkList::new(0);
        list.write(Space::Host, FREE + 64 * round, &[round as u8 + 1; 70]);
        list.faa(Space::OnChip, 8 * round, 3);
        if round == 1 {
            list.read(Space::Host, u64::MAX, 8);
            list.write(Space::Host, FREE, b"never");
        }
        list.read(Space::Host, FREE, 300);
        list.masked_cas(Space::OnChip, 8 * round, 3, 7, 0xffff);
        list.read(Space::OnChip, 8 * round, 8);
        put_list(&mut bytes, round, &mut list).unwrap();
    }
    (bytes, 4)
}

/// Sends the conversation to wiped memory, cut at `cuts`, and collects the replies. No other client uses the
/// server.
fn cut_at(server: &RunningServer, raw: &mut Raw, cuts: &[usize]) -> Vec<Reply> {
    let mut wipe = WorkList::new(0);
    wipe.write(Space::Host, FREE, &[0; 400]);
    (0..4).for_each(|word| _ = wipe.write(Space::OnChip, 8 * word, &[0; 8]));
    raw.execute(&mut wipe).unwrap();
    let (bytes, lists) = conversation();
    let mut start = 0;
    for cut in cuts.iter().copied().chain([bytes.len()]) {
        let arrived = server.stats().bytes_in + (cut - start) as u64;
        raw.send(&bytes[start..cut]);
        // The server must have received this part before the next is sent; otherwise nothing is cut.
        while server.stats().bytes_in < arrived {
            std::thread::yield_now();
        }
        start = cut;
    }
    (0..lists).map(|_| raw.receive()).collect()
}

#[test]
fn frames_cut_at_every_byte_give_the_same_replies() {
    let server = start(ServerOptions { shards: 1, ..options() });
    let (mut raw, _) = Raw::join(&server);
    let whole = cut_at(&server, &mut raw, &[]);
    assert!(matches!(&whole[1], Reply::Frame(FrameKind::ListFailed, 1, body)
        if matches!(errors::take_error(body), Ok(FabricError::OutOfBounds { .. }))));
    let len = conversation().0.len();
    for cut in 0..=len {
        assert_eq!(cut_at(&server, &mut raw, &[cut]), whole, "cut at {cut}");
    }
    let every: Vec<usize> = (1..len).collect();
    assert_eq!(cut_at(&server, &mut raw, &every), whole);
    let mut random = Rng::with_seed(5);
    for _ in 0..50 {
        let mut cuts: Vec<_> = (0..random.usize(1..12)).map(|_| random.usize(..len)).collect();
        cuts.sort_unstable();
        assert_eq!(cut_at(&server, &mut raw, &cuts), whole, "{cuts:?}");
    }
}

#[test]
fn a_large_write_in_small_pieces_arrives_whole() {
    let server = start(options());
    let (mut raw, _) = Raw::join(&server);
    let data: Vec<u8> = (0..MAX_TRANSFER).map(|at| (at * 7 / 3) as u8).collect();
    let mut list = WorkList::new(0);
    list.write(Space::Host, FREE + 3, &data);
    let read = list.read(Space::Host, FREE + 3, MAX_TRANSFER);
    let mut bytes = Vec::new();
    put_list(&mut bytes, 9, &mut list).unwrap();
    for piece in bytes.chunks(3001) {
        raw.send(piece);
        std::thread::sleep(Duration::from_micros(200));
    }
    let Reply::Frame(FrameKind::ListDone, 9, body) = raw.receive() else { panic!() };
    sherman_soft_nic::verbs::take_results(&body, &mut list).unwrap();
    assert!(list.bytes(read) == data);
}

#[test]
fn a_client_that_never_reads_is_not_executed_further_costs_bounded_memory_and_stops_no_other() {
    let limits = Limits { high_water: 64 << 10, ..Limits::default() };
    let server = start(ServerOptions { shards: 1, limits, ..options() });
    let before = resident();
    let mut list = WorkList::new(0);
    (0..16).for_each(|_| _ = list.read(Space::Host, FREE, 64 << 10));
    let mut bytes = Vec::new();
    put_list(&mut bytes, 1, &mut list).unwrap();
    let request = bytes.repeat(64);
    let mut silent: Vec<_> = (0..8).map(|_| Raw::join(&server).0).collect();
    // Each client asks for 64 MiB; the requests fit the sockets' buffers.
    silent.iter_mut().for_each(|raw| raw.send(&request));
    let (mut reader, _) = Raw::join(&server);
    let began = Instant::now();
    for _ in 0..2000 {
        let mut list = WorkList::new(0);
        list.read(Space::Host, FREE, 1024);
        reader.execute(&mut list).unwrap();
    }
    assert!(began.elapsed() < Duration::from_secs(5));
    let executed = server.stats().bytes_read;
    // Sockets take some megabytes each, the server about one reply plus the high-water mark.
    assert!(executed < 8 * (24 << 20) + (2 << 20), "{} MiB were executed", executed >> 20);
    let grown = resident().saturating_sub(before);
    assert!(grown < 64 << 20, "{} MiB more", grown >> 20);
    // A client that begins to read gets everything.
    let mut late = silent.pop().unwrap();
    for _ in 0..64 {
        assert!(
            matches!(late.receive(), Reply::Frame(FrameKind::ListDone, 1, body) if body.len() == 1 << 20)
        );
    }
    drop(silent);
    eventually(|| server.stats().connections == 2);
}

#[test]
fn clients_that_fill_the_memory_for_replies_are_disconnected() {
    let limits = Limits { high_water: 1 << 20, max_buffered: 1 << 20, ..Limits::default() };
    let server = start(ServerOptions { limits, ..options() });
    let mut list = WorkList::new(0);
    (0..16).for_each(|_| _ = list.read(Space::Host, FREE, 64 << 10));
    let mut bytes = Vec::new();
    put_list(&mut bytes, 1, &mut list).unwrap();
    let request = bytes.repeat(64);
    let mut silent: Vec<_> = (0..16).map(|_| Raw::join(&server).0).collect();
    silent.iter_mut().for_each(|raw| raw.send(&request));
    eventually(|| refused(&server, "overloaded") > 0);
    let (mut fine, _) = Raw::join(&server);
    assert!(fine.call(calls::Usage).is_ok());
    assert!(server.stats().connections >= 2, "the earlier clients stay");
}

#[test]
fn a_client_that_hangs_up_in_the_middle_leaves_a_prefix() {
    let server = start(options());
    let mut list = WorkList::new(0);
    list.write(Space::Host, FREE, b"first");
    list.write(Space::Host, FREE + 64, b"second");
    let mut bytes = Vec::new();
    put_list(&mut bytes, 1, &mut list).unwrap();
    {
        let (mut raw, _) = Raw::join(&server);
        raw.send(&bytes[..bytes.len() - 1]);
    }
    eventually(|| server.stats().connections == 0);
    let (mut raw, _) = Raw::join(&server);
    let mut look = WorkList::new(0);
    let (first, second) = (look.read(Space::Host, FREE, 5), look.read(Space::Host, FREE + 64, 6));
    raw.execute(&mut look).unwrap();
    assert_eq!((look.bytes(first), look.bytes(second)), (&b"first"[..], &[0; 6][..]));
}

#[test]
fn garbage_before_and_after_the_handshake_never_ends_the_server() {
    let server = start(options());
    let (mut other, _) = Raw::join(&server);
    let observer = Raw::enter(&server, None, Role::Admin).unwrap();
    let mut random = Rng::with_seed(6);
    let mut list = WorkList::new(0);
    list.write(Space::Host, FREE, &[5; 100]);
    list.read(Space::Host, FREE, 100);
    let mut valid = Vec::new();
    put_list(&mut valid, 1, &mut list).unwrap();
    for round in 0..300 {
        let mut raw = if round % 3 == 0 { Raw::connect(&server, 0) } else { Raw::join(&server).0 };
        let mut bytes = valid.repeat(3);
        if round % 2 == 0 {
            for _ in 0..random.usize(1..4) {
                let at = random.usize(..bytes.len());
                bytes[at] = random.u8(..);
            }
        } else {
            bytes.iter_mut().for_each(|byte| *byte = random.u8(..));
        }
        bytes.truncate(random.usize(1..=bytes.len()));
        // The server may have hung up already.
        let _ = std::io::Write::write_all(&mut raw.socket, &bytes);
    }
    assert!(other.call(calls::Usage).is_ok());
    drop(observer);
    eventually(|| server.stats().connections <= 1);
}

#[test]
fn hundreds_of_idle_connections_cost_little() {
    let server = start(options());
    let before = resident();
    let idle: Vec<_> = (0..400).map(|_| Raw::enter(&server, None, Role::Admin).unwrap().0).collect();
    let grown = resident().saturating_sub(before);
    assert!(grown < 400 * (64 << 10), "{} KiB for each", (grown / 400) >> 10);
    drop(idle);
    eventually(|| server.stats().connections == 0);
}
