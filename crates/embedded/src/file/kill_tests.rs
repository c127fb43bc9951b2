//! Tests that killing a process while it writes tears no line of its file.
//!
//! The child is this test binary again. Its environment names the file to write. Each of its threads writes
//! lines that describe themselves, without end. The parent kills it at a random moment, opens the file and
//! checks every line. Without the journal the same test finds torn lines (`SHERMAN_KILL_NO_JOURNAL=1`).

use super::tests::Scratch;
use super::*;
use crate::journal;
use crate::memory::Region;
use sherman_fabric::Space;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

const FILE: &str = "SHERMAN_KILL_FILE";
const VERB_ATOMIC: &str = "SHERMAN_KILL_VERB";
const NO_JOURNAL: &str = "SHERMAN_KILL_NO_JOURNAL";
const READY: &str = "the child writes";
const LINES: u64 = 200;
const RUNS: u64 = 150;
const KILLS: u64 = 120;
const LIMIT: Duration = Duration::from_secs(10);

fn options(path: PathBuf, verb_atomic: bool) -> FileOptions {
    let atomicity = if verb_atomic { Atomicity::Verb } else { Atomicity::Line };
    FileOptions {
        path,
        host_bytes: LINES * 64,
        on_chip_bytes: 64,
        control_bytes: 64,
        atomicity,
        preallocate: false,
    }
}

/// The bytes that a WRITE of line `line` covers: the whole line, or a part that begins and ends inside a
/// word.
fn covered(line: u64) -> std::ops::Range<usize> {
    if line >= RUNS || line.is_multiple_of(2) { 0..64 } else { 5..61 }
}

fn random(state: &mut u64, below: u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 11) % below
}

/// Writes without end: single lines, and from line [`RUNS`] on three lines by one WRITE.
fn write_repeatedly(region: &Region, seed: u64) {
    let mut state = seed | 1;
    let mut count = 0u8;
    loop {
        count = count.wrapping_add(1);
        let line = random(&mut state, LINES - 2);
        let (offset, bytes) = if line < RUNS { (line * 64, covered(line)) } else { (line * 64, 0..192) };
        region.write(Space::Host, offset + bytes.start as u64, &[count; 192][bytes]).unwrap();
    }
}

/// Does nothing unless the environment names a file.
#[test]
fn the_child_writes_until_it_is_killed() {
    let Ok(path) = std::env::var(FILE) else { return };
    journal::DISABLED.store(std::env::var_os(NO_JOURNAL).is_some(), Relaxed);
    let (region, _) =
        Region::in_file(&options(path.into(), std::env::var_os(VERB_ATOMIC).is_some())).unwrap();
    std::thread::scope(|scope| {
        for seed in 1..=3 {
            let region = &region;
            scope.spawn(move || write_repeatedly(region, seed * u64::from(std::process::id())));
        }
        // The parent normally kills the child. If the parent is gone, the child exits after this sleep.
        println!("{READY}");
        std::thread::sleep(2 * LIMIT);
        std::process::exit(1);
    });
}

fn spawn(path: &std::path::Path, verb_atomic: bool) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "--nocapture", "file::kill_tests::the_child_writes_until_it_is_killed"])
        .env(FILE, path)
        .stdout(Stdio::piped());
    if verb_atomic {
        command.env(VERB_ATOMIC, "1");
    }
    command.spawn().unwrap()
}

/// Counts the lines of the file that no WRITE can have made.
fn torn_lines(region: &Region) -> usize {
    let torn = |line: &u64| {
        let mut bytes = [0; 64];
        region.read(Space::Host, line * 64, &mut bytes).unwrap();
        let covered = covered(*line);
        let outside = bytes[..covered.start].iter().chain(&bytes[covered.end..]);
        !bytes[covered.clone()].iter().all(|byte| *byte == bytes[covered.start])
            || outside.copied().any(|byte| byte != 0)
    };
    (0..LINES).filter(torn).count()
}

#[test]
fn no_line_is_torn_by_a_process_that_is_killed() {
    if std::env::var_os(FILE).is_some() {
        return;
    }
    let scratch = Scratch::new();
    let (begun, mut state) = (Instant::now(), 0x9e37_79b9_7f4a_7c15 ^ u64::from(std::process::id()));
    let (mut kills, mut torn) = (0, 0);
    while kills < KILLS && begun.elapsed() < LIMIT {
        let verb_atomic = kills % 4 == 3;
        let mut child = spawn(scratch.path(), verb_atomic);
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = said.any(|line| line.is_ok_and(|line| line.contains(READY)));
        std::thread::sleep(Duration::from_micros(random(&mut state, 12_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(ready, "the child did not get to write");
        let (region, _) = Region::in_file(&options(scratch.path().into(), false)).unwrap();
        torn += torn_lines(&region);
        kills += 1;
    }
    println!("{torn} torn lines after {kills} kills in {:?}", begun.elapsed());
    assert_eq!(torn, 0, "after {kills} kills");
    assert!(kills >= 20, "{kills} kills in {LIMIT:?}: this machine is too busy to tell anything");
}
