//! The cost of a memory server that has no requests, and how it ends.

use crate::common::servers::Server;
use crate::common::{fresh_path, secret_file};
use crate::raw::Raw;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sherman_control::auth::Secret;
use sherman_control::wire::{Role, Welcome};
use std::time::{Duration, Instant};

const CONNECTIONS: usize = 1_000;

/// Resident memory of a process, in kilobytes.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// CPU time of a process in nanoseconds, summed over its threads.
fn cpu_time(pid: u32) -> u64 {
    let tasks =
        std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").map(|task| task.expect("it").path());
    let stats = tasks.map(|task| std::fs::read_to_string(task.join("schedstat")).expect("a thread"));
    stats.map(|stat| stat.split(' ').next().expect("a field").parse::<u64>().expect("a number")).sum()
}

/// The fraction of a core that the process uses while it has no requests.
fn share(pid: u32) -> f64 {
    let (began, before) = (Instant::now(), cpu_time(pid));
    assert!(before > 0, "it has done something to start");
    std::thread::sleep(Duration::from_secs(3));
    (cpu_time(pid) - before) as f64 / began.elapsed().as_nanos() as f64
}

#[test]
fn an_idle_server_costs_nearly_nothing_and_ends_on_request() {
    // This process holds one end of each connection. The server inherits the limit.
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).expect("as much as is allowed");
    let (path, socket) = (secret_file("idle-secret", "a secret of this test\n"), fresh_path("idle.sock"));
    let secret = Secret::from_file(&path).expect("a secret");
    let args = [
        "--listen",
        &format!("unix:{}", socket.display()),
        "--memory",
        "256MiB",
        "--secret-file",
        path.to_str().expect("text"),
    ];
    let mut server = Server::start(args.map(str::to_owned).to_vec());
    let (pid, at) = (server.pid(), server.listen());
    let alone = share(pid);

    let (first, welcome) =
        Raw::enter_to(&at, Some(&secret), Role::Join { seen: vec![None] }).expect("it is let in");
    let before = resident(pid);
    let Welcome { client, incarnation, boot, cluster, memory, .. } = welcome;
    let role = Role::Member { client, incarnation, boot, cluster, memory };
    let enter = || Raw::enter_to(&at, Some(&secret), role.clone()).expect("it is let in").0;
    let connections: Vec<Raw> = (1..CONNECTIONS).map(|_| enter()).chain([first]).collect();
    let grown = resident(pid).saturating_sub(before);
    let connected = share(pid);
    println!(
        "idle: {:.3} % of a core, {:.3} % with {CONNECTIONS} connections; they cost {grown} KiB",
        alone * 100.0,
        connected * 100.0
    );
    assert!(alone <= 0.01 && connected <= 0.01, "{alone} {connected} of a core");
    assert!(grown <= 64 << 10, "{grown} KiB for {CONNECTIONS} connections");

    let began = Instant::now();
    let status = server.terminate();
    assert_eq!(status.code(), Some(0), "{status}");
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert!(!socket.exists(), "it takes its socket with it");
    drop(connections);
    let _ = std::fs::remove_file(path);
}
