//! F1 on bare memory: threads write the same lines concurrently, and every line read is one that a thread
//! wrote whole.

use sherman_embedded::Atomicity;
use sherman_embedded::copy::CopyPath;
use sherman_embedded::memory::Region;
use sherman_fabric::Space::Host;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const ROUNDS: u64 = if cfg!(miri) { 12 } else { 300_000 };

fn paths() -> Vec<CopyPath> {
    let mut paths = vec![CopyPath::PORTABLE];
    if CopyPath::fastest() != CopyPath::PORTABLE {
        paths.push(CopyPath::fastest());
    }
    paths
}

/// Runs each of `writers` for [`ROUNDS`] rounds. `reader` runs beside them until they are done.
fn race(writers: &[&(dyn Fn(u64) + Sync)], reader: &(dyn Fn() + Sync)) {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let reading = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                reader();
            }
        });
        let writing: Vec<_> =
            writers.iter().map(|writer| scope.spawn(move || (1..=ROUNDS).for_each(writer))).collect();
        let writing: Vec<_> = writing.into_iter().map(|thread| thread.join()).collect();
        done.store(true, Ordering::Relaxed);
        assert!(reading.join().is_ok() && writing.iter().all(Result::is_ok));
    });
}

fn fill(value: u64) -> [u8; 64] {
    let mut line = [0; 64];
    line.as_chunks_mut().0.fill(value.to_le_bytes());
    line
}

fn assert_whole(line: &[u8]) {
    assert!(line.as_chunks::<8>().0.iter().all(|word| word == &line[..8]), "torn: {line:?}");
}

#[test]
fn a_line_is_never_torn_between_two_writers() {
    for path in paths() {
        let region = Region::new(4096, 0, Atomicity::Line, path).unwrap();
        // Several lines in one WRITE that begins in the middle of a group. Each line by itself must be whole.
        let write = |tag: u64| {
            let region = &region;
            move |round: u64| {
                region.write(Host, 13 * 64, fill(round << 1 | tag).repeat(6).as_slice()).unwrap()
            }
        };
        let read = || {
            let mut lines = [0; 8 * 64];
            region.read(Host, 12 * 64, &mut lines).unwrap();
            lines.chunks(64).for_each(assert_whole);
        };
        race(&[&write(0), &write(1)], &read);
    }
}

#[test]
fn a_part_of_a_line_is_read_and_written_at_once() {
    for path in paths() {
        let region = Region::new(4096, 0, Atomicity::Line, path).unwrap();
        // Two writers own the two halves of one line, cut inside a word. Neither may lose or tear the other's
        // half.
        let write = |at: u64, len: usize| {
            let region = &region;
            move |round: u64| region.write(Host, 128 + at, &vec![round as u8; len]).unwrap()
        };
        let read = || {
            let mut line = [0; 64];
            region.read(Host, 128, &mut line).unwrap();
            assert!(line[..29].iter().all(|byte| *byte == line[0]), "{line:?}");
            assert!(line[29..].iter().all(|byte| *byte == line[29]), "{line:?}");
            let mut part = [0; 17];
            region.read(Host, 128 + 31, &mut part).unwrap();
            assert!(part.iter().all(|byte| *byte == part[0]), "{part:?}");
        };
        race(&[&write(0, 29), &write(29, 35)], &read);
        let mut line = [0; 64];
        region.read(Host, 128, &mut line).unwrap();
        assert_eq!(line, [ROUNDS as u8; 64]);
    }
}

#[test]
fn two_atomics_of_one_line_are_seen_in_their_order() {
    let region = Region::new(4096, 0, Atomicity::Line, CopyPath::fastest()).unwrap();
    // The writer raises the second word after the first. No line that ever existed shows the second word
    // ahead.
    let write = |round: u64| {
        assert_eq!(region.cas(Host, 8, round - 1, round, u64::MAX), Ok(round - 1));
        assert_eq!(region.faa(Host, 0, 1), Ok(round - 1));
    };
    let read = || {
        let mut line = [0; 64];
        region.read(Host, 0, &mut line).unwrap();
        let [second, first] = [0, 8].map(|at| u64::from_le_bytes(line[at..at + 8].try_into().unwrap()));
        assert!(second == first || second + 1 == first, "{first} {second}");
    };
    race(&[&write], &read);
}

#[test]
fn a_whole_verb_is_never_torn_if_asked_for() {
    for path in paths() {
        let region = Region::new(8192, 0, Atomicity::Verb, path).unwrap();
        // Overlapping WRITEs of several lines, none of which starts or ends at a line's border. The 20 common
        // lines always come from one writer.
        let write = |tag: u64| {
            let region = &region;
            move |round: u64| {
                if round.is_multiple_of(8) {
                    region
                        .write(Host, 640 + 8 - 320 * tag, fill(round << 1 | tag).repeat(30).as_slice())
                        .unwrap();
                }
            }
        };
        let read = || {
            let mut lines = [0; 20 * 64];
            region.read(Host, 648, &mut lines).unwrap();
            assert_whole(&lines);
        };
        race(&[&write(0), &write(1)], &read);
    }
}
