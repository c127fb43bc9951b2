//! Measures the cost of verbs in process:
//! `cargo run --release -p sherman-embedded -F measure --example copy`.
//!
//! Prints nanoseconds per operation, the best of several windows, because the machine may have other work.
//! The first row is `memcpy` of as many private bytes, for comparison. "Hot" touches the same bytes over and
//! over. "Random" touches a random node out of 256 MiB.

use sherman_embedded::copy::CopyPath;
use sherman_embedded::file::FileOptions;
use sherman_embedded::memory::Region;
use sherman_embedded::{Atomicity, EmbeddedCluster, EmbeddedEndpoint, EmbeddedOptions};
use sherman_fabric::Space::{Host, OnChip};
use sherman_fabric::{Endpoint, WorkList};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

const MEMORY: usize = 256 << 20;
const NODE: usize = 1024;
/// Many short windows: on a busy machine some of them are not interrupted.
const WINDOWS: u32 = 400;
const WINDOW: Duration = Duration::from_micros(200);

/// Measures the nanoseconds of one call, in the best window. Each call gets its number.
fn nanos(mut operation: impl FnMut(usize)) -> f64 {
    let mut best = f64::MAX;
    let mut count = 0;
    for _ in 0..WINDOWS {
        let (start, first) = (Instant::now(), count);
        while start.elapsed() < WINDOW {
            (0..100).for_each(|i| operation(count + i));
            count += 100;
        }
        best = best.min(start.elapsed().as_nanos() as f64 / (count - first) as f64);
    }
    best
}

fn line(name: &str, hot: f64, random: Option<f64>) {
    let random = random.map_or(String::from("      -"), |nanos| format!("{nanos:7.1}"));
    println!("{name:<46} {hot:7.1} {random}");
}

/// Offsets of random nodes.
fn random_nodes() -> Vec<usize> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % (MEMORY / NODE) as u64) as usize * NODE
    };
    std::iter::repeat_with(next).take(1 << 16).collect()
}

fn memcpy(nodes: &[usize]) {
    let from = vec![1u8; MEMORY];
    let mut into = [0; NODE];
    let mut copy = |at: usize| {
        into.copy_from_slice(black_box(&from[at..at + NODE]));
        black_box(&mut into);
    };
    line("memcpy 1 KiB", nanos(|_| copy(4096)), Some(nanos(|i| copy(nodes[i % nodes.len()]))));
}

/// The bare copy, without sequence words.
fn copy(path: CopyPath, nodes: &[usize]) {
    let words: Vec<AtomicU64> = std::iter::repeat_with(|| AtomicU64::new(1)).take(MEMORY / 8 + 8).collect();
    // The fast path needs the start of a line.
    let skip = words.as_ptr().align_offset(64);
    let words = &words[skip..];
    let mut into = [[0; 64]; NODE / 64];
    let mut load = |at: usize| {
        path.load(&words[at / 8..][..NODE / 8], &mut into);
        black_box(&mut into);
    };
    let name = format!("copy 1 KiB, {}", path.name());
    line(&name, nanos(|_| load(4096)), Some(nanos(|i| load(nodes[i % nodes.len()]))));
    let from = [[7; 64]];
    line(&format!("store 64 B, {}", path.name()), nanos(|_| path.store(&words[..8], black_box(&from))), None);
    black_box(words[0].load(Ordering::Relaxed));
}

fn verbs(path: CopyPath, atomicity: Atomicity, nodes: &[usize]) {
    let region = Region::new(MEMORY, 4096, atomicity, path).expect("memory");
    verbs_on(&region, &format!("{}, {atomicity:?}", path.name()), nodes);
}

/// Measures verbs on memory in a file, where a WRITE is journaled. The file lies in the system's directory
/// for temporary files.
fn verbs_in_file(nodes: &[usize]) {
    let path = std::env::temp_dir().join(format!("sherman-copy-{}", std::process::id()));
    let (host_bytes, on_chip_bytes, atomicity) = (MEMORY as u64, 4096, Atomicity::Line);
    match Region::in_file(&FileOptions {
        path: path.clone(),
        host_bytes,
        on_chip_bytes,
        control_bytes: 0,
        atomicity,
        preallocate: true,
    }) {
        Ok((region, _)) => verbs_on(&region, "file, Line", nodes),
        Err(error) => println!("no file: {error}"),
    }
    _ = std::fs::remove_file(path);
}

fn verbs_on(region: &Region, kind: &str, nodes: &[usize]) {
    for at in (0..MEMORY).step_by(4096) {
        region.write(Host, at as u64, &[0; 4096]).expect("in bounds");
    }
    let name = |verb: &str| format!("{verb}, {kind}");
    let mut into = [0; NODE];
    let mut read = |at: usize, len: usize| {
        _ = black_box(region.read(Host, at as u64, &mut into[..len]));
        black_box(&mut into);
    };
    line(
        &name("READ 1 KiB"),
        nanos(|_| read(4096, NODE)),
        Some(nanos(|i| read(nodes[i % nodes.len()], NODE))),
    );
    line(&name("READ 64 B"), nanos(|_| read(4096, 64)), Some(nanos(|i| read(nodes[i % nodes.len()], 64))));
    line(&name("READ 8 B"), nanos(|_| read(4096, 8)), Some(nanos(|i| read(nodes[i % nodes.len()], 8))));
    let from = [3; NODE];
    let write = |at: usize, len: usize| _ = black_box(region.write(Host, at as u64, black_box(&from[..len])));
    line(
        &name("WRITE 1 KiB"),
        nanos(|_| write(4096, NODE)),
        Some(nanos(|i| write(nodes[i % nodes.len()], NODE))),
    );
    line(&name("WRITE 64 B"), nanos(|_| write(4096, 64)), Some(nanos(|i| write(nodes[i % nodes.len()], 64))));
    line(
        &name("WRITE 17 B"),
        nanos(|_| write(4100, 17)),
        Some(nanos(|i| write(nodes[i % nodes.len()] + 4, 17))),
    );
    for space in [OnChip, Host] {
        // The lane is taken and released in turn, so every CAS swaps.
        let lane = |i: usize| (i as u64 % 2) << 16;
        let cas = |i: usize| _ = black_box(region.cas(space, 64, lane(i), lane(i + 1), 0xffff << 16));
        _ = region.write(space, 64, &[0; 8]);
        line(&name(&format!("CAS 16 bit {space:?}")), nanos(cas), None);
        line(
            &name(&format!("WRITE 2 B {space:?}")),
            nanos(|_| _ = region.write(space, 66, black_box(&[0; 2]))),
            None,
        );
    }
}

fn finish(endpoint: &EmbeddedEndpoint, list: WorkList) {
    let ticket = endpoint.post(list);
    match endpoint.poll(ticket, &mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(list)) => endpoint.recycle(black_box(list)),
        other => println!("a list failed: {other:?}"),
    }
}

/// Measures whole round trips: take a list from the pool, fill it, post it, poll it and give it back.
fn round_trips(nodes: &[usize]) {
    let options = EmbeddedOptions { memory_bytes: MEMORY as u64, ..EmbeddedOptions::default() };
    let Ok(cluster) = EmbeddedCluster::new(options) else { return println!("no cluster") };
    let Ok(fabric) = cluster.join() else { return println!("no member") };
    let endpoint = fabric.endpoint();
    let nodes: Vec<_> = nodes.iter().map(|at| (*at).max(64 << 20)).collect();
    for at in nodes.iter().chain(&[64 << 20]) {
        let mut list = endpoint.list(0);
        list.write(Host, *at as u64, &[0; NODE]);
        finish(&endpoint, list);
    }
    let trip = |fill: &dyn Fn(&mut WorkList, u64)| {
        let run = |at: usize| {
            let mut list = endpoint.list(0);
            fill(&mut list, at as u64);
            finish(&endpoint, list);
        };
        (nanos(|_| run(64 << 20)), Some(nanos(|i| run(nodes[i % nodes.len()]))))
    };
    let show = |name: &str, (hot, random): (f64, Option<f64>)| line(name, hot, random);
    show("round trip []", trip(&|_, _| ()));
    show("round trip [READ 1 KiB]", trip(&|list, at| _ = list.read(Host, at, NODE as u32)));
    show("round trip [WRITE 64 B]", trip(&|list, at| _ = list.write(Host, at, &[1; 64])));
    let lock = |list: &mut WorkList| _ = list.masked_cas(OnChip, 0, 0, 0, 0xffff);
    show("round trip [CAS]", trip(&|list, _| lock(list)));
    let lock_and_read = |list: &mut WorkList, at: u64| {
        lock(list);
        list.read(Host, at, NODE as u32);
    };
    show("round trip [CAS, READ 1 KiB]", trip(&lock_and_read));
    let write_and_release = |list: &mut WorkList, at: u64| {
        list.write(Host, at, &[1; 64]);
        list.write(OnChip, 0, &[0; 2]);
    };
    show("round trip [WRITE 64 B, WRITE 2 B OnChip]", trip(&write_and_release));
}

fn main() {
    let nodes = random_nodes();
    println!("{:<46} {:>7} {:>7}", "nanoseconds", "hot", "random");
    memcpy(&nodes);
    let fastest = CopyPath::fastest();
    for path in if fastest == CopyPath::PORTABLE { vec![fastest] } else { vec![CopyPath::PORTABLE, fastest] }
    {
        copy(path, &nodes);
        verbs(path, Atomicity::Line, &nodes);
    }
    verbs(fastest, Atomicity::Verb, &nodes);
    verbs_in_file(&nodes);
    round_trips(&nodes);
}
