//! A server without requests sleeps. The test has its own file, because it examines the threads of its
//! process.
#![cfg(target_os = "linux")]
#![allow(unreachable_pub, reason = "a test exports nothing")]

mod raw;

use raw::{Raw, options, start};
use sherman_control::wire::Role;
use std::time::Duration;

/// Nanoseconds that the server's threads have run on a CPU.
fn cpu_time() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let ours =
        tasks.filter(|task| std::fs::read_to_string(task.join("comm")).unwrap().starts_with("sherman-"));
    let stats = ours.map(|task| std::fs::read_to_string(task.join("schedstat")).unwrap());
    stats.map(|stat| stat.split(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

#[test]
fn an_idle_server_sleeps_though_many_are_connected() {
    let server = start(options());
    let idle: Vec<_> = (0..200).map(|_| Raw::enter(&server, None, Role::Admin).unwrap().0).collect();
    std::thread::sleep(Duration::from_millis(50));
    let before = cpu_time();
    std::thread::sleep(Duration::from_secs(1));
    let spent = cpu_time() - before;
    assert!(spent < 10_000_000, "{spent} ns in a second");
    assert_eq!(server.stats().connections, idle.len() as u64);
}
