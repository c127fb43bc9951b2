//! A server that has no descriptor left waits for one. The test has its own file, because the limit applies
//! to the whole process.
#![cfg(target_os = "linux")]
#![allow(unreachable_pub, reason = "a test exports nothing")]

mod raw;

use raw::{Raw, eventually, options, refused, start};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// The system's file with the CPU time of the accepting thread.
fn accepting_thread() -> File {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let mut ours =
        tasks.filter(|task| std::fs::read_to_string(task.join("comm")).unwrap().starts_with("sherman-acc"));
    File::open(ours.next().unwrap().join("schedstat")).unwrap()
}

fn nanoseconds(stat: &File) -> u64 {
    let mut text = [0; 64];
    let len = stat.read_at(&mut text, 0).unwrap();
    std::str::from_utf8(&text[..len]).unwrap().split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn without_descriptors_nobody_is_accepted_no_core_is_burnt_and_it_goes_on_when_there_are() {
    let server = start(options());
    eventually(|| Raw::connect(&server, 0).hello().speaks_our_version());
    eventually(|| server.stats().connections == 0);
    let stat = accepting_thread();
    let open = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64 - 1;
    let limit = getrlimit(Resource::Nofile);
    // Room for this end of a connection, and none for the server's.
    setrlimit(Resource::Nofile, Rlimit { current: Some(open + 1), ..limit }).unwrap();
    let mut raw = Raw::connect(&server, 0);
    eventually(|| refused(&server, "accept_failed") > 0);
    let before = nanoseconds(&stat);
    std::thread::sleep(Duration::from_millis(400));
    let (spent, tried) = (nanoseconds(&stat) - before, refused(&server, "accept_failed"));
    assert!(spent < 20_000_000 && tried < 20, "{spent} ns, {tried} times");
    setrlimit(Resource::Nofile, limit).unwrap();
    raw.hello();
}
