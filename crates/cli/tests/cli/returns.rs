//! Hosts with `--file` that end and come back with their memory: by kill -9 and by SIGTERM, at rest and under
//! load, alone and all of a cluster at once. No acknowledged change is lost, and clients go on by themselves.
//!
//! A plain run has few rounds. `SHERMAN_RETURNS` gives their number, for a soak.

use crate::common::servers::{Server, wait_until};
use crate::common::{command, fresh_path, text};
use crate::losses::{Load, open, patient};
use sherman::{Admin, Cluster};
use sherman_conformance::trees::Failure;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

/// The longest that an operation may take while a host restarts, with a lease of one second.
const LONGEST: Duration = Duration::from_secs(4);

fn rounds() -> u64 {
    std::env::var("SHERMAN_RETURNS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(4)
}

/// A folder that is removed with the test.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = fresh_path(name);
        std::fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("UTF-8").to_owned()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Hosts as processes, each with a folder.
struct Hosts {
    running: Vec<Server>,
    scheme: &'static str,
    directory: Directory,
}

impl Hosts {
    fn start(count: usize, scheme: &'static str) -> Self {
        Self::start_with(count, scheme, &[])
    }

    /// The same, with more options of the new cluster.
    fn start_with(count: usize, scheme: &'static str, more: &[&str]) -> Self {
        let directory = Directory::new(&format!("returns-{count}"));
        let size = count.to_string();
        let mut hosts = Self { running: Vec::new(), scheme, directory };
        hosts.launch(&[&["--new-cluster", "--hosts", &size, "--lease", "1s"], more].concat());
        for _ in 1..count {
            let seeds = hosts.url();
            hosts.launch(&["--join", &seeds]);
        }
        hosts
    }

    fn launch(&mut self, how: &[&str]) {
        let number = self.running.len();
        let listen = match self.scheme {
            "unix:" => format!("unix:{}", self.directory.path(&format!("{number}.sock"))),
            _ => "tcp://127.0.0.1:0".to_owned(),
        };
        let file = self.directory.path(&format!("host-{number}"));
        let always = ["--listen", &listen, "--memory", "256MiB", "--log", "warn", "--file", &file];
        // A restart replaces the first address.
        let args: Vec<String> = always.iter().chain(how).map(ToString::to_string).collect();
        let log = std::env::var_os("SHERMAN_LOSSES_LOG").map_or_else(Stdio::null, |_| Stdio::inherit());
        self.running.push(Server::start_telling(args, log));
    }

    fn url(&self) -> String {
        let places: Vec<&str> = self.running.iter().map(|server| server.address.as_str()).collect();
        format!("{}{}", self.scheme, places.join(","))
    }

    /// Waits until every volume is open and has two copies, if the cluster has several hosts.
    fn await_copies(&self) -> Result<(), Failure> {
        let admin = Admin::open(&self.url())?;
        let began = Instant::now();
        loop {
            let hosts = admin.hosts()?.ok_or("a cluster of hosts")?;
            let single = if self.running.len() > 1 { hosts.volumes_with_one_copy() } else { 0 };
            let lacking = single + hosts.volumes_closed() + hosts.volumes_lost();
            if lacking == 0 && !hosts.volumes.is_empty() {
                return Ok(());
            }
            if began.elapsed() > Duration::from_secs(30) {
                return Err(format!("volumes do not come back: {hosts:?}").into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Waits until the load has written this many more values.
fn await_writes(load: &Load, clusters: &[Cluster], more: u64) {
    let (until, began) = (load.writes.load(Relaxed) + more, Instant::now());
    while !load.stop.load(Relaxed) && load.writes.load(Relaxed) < until {
        assert!(began.elapsed() < Duration::from_secs(30), "{} rejoins", clusters[1].rejoins());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Hosts of a cluster end and come back under load. `which` says which ones in a round.
fn come_back(count: usize, scheme: &'static str, which: impl Fn(u64) -> Vec<usize>) -> Result<(), Failure> {
    let _alone = crate::common::alone();
    let mut hosts = Hosts::start(count, scheme);
    let url = hosts.url();
    let (load, clusters, threads) = Load::start(&url)?;
    await_writes(&load, &clusters, 2_000);
    for round in 0..rounds() {
        load.longest.store(0, Relaxed);
        let (rejoins, began) = (clusters[1].rejoins(), Instant::now());
        let struck = which(round);
        for &host in &struck {
            match round % 2 {
                0 => hosts.running[host].kill(),
                _ => drop(hosts.running[host].terminate()),
            }
        }
        struck.iter().for_each(|&host| hosts.running[host].restart());
        wait_until("clients join again", Duration::from_secs(20), || {
            clusters[1].rejoins() > rejoins || load.stop.load(Relaxed)
        });
        await_writes(&load, &clusters, 1_000);
        let back = began.elapsed();
        hosts.await_copies()?;
        let longest = Duration::from_nanos(load.longest.load(Relaxed));
        println!(
            "{scheme} round {round}: hosts {struck:?}, back after {back:?}, longest operation {longest:?}"
        );
        if load.stop.load(Relaxed) {
            break;
        }
        assert!(longest <= LONGEST, "round {round}: an operation took {longest:?}");
    }
    load.stop.store(true, SeqCst);
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    load.verify(&url)?;
    drop(clusters);
    // Once more, at rest: all at once.
    hosts.running.iter_mut().for_each(Server::kill);
    hosts.running.iter_mut().for_each(Server::restart);
    load.verify(&url)?;
    println!("{} writes, {} of unknown outcome", load.writes.load(Relaxed), load.unknown.load(Relaxed));
    Ok(())
}

#[test]
fn a_single_host_comes_back_with_all_acknowledged_changes_over_tcp() -> Result<(), Failure> {
    come_back(1, "tcp://", |_| vec![0])
}

#[test]
fn a_single_host_comes_back_with_all_acknowledged_changes_over_unix_sockets() -> Result<(), Failure> {
    come_back(1, "unix:", |_| vec![0])
}

#[test]
fn one_of_three_hosts_comes_back_with_its_copies() -> Result<(), Failure> {
    come_back(3, "tcp://", |round| vec![(round % 3) as usize])
}

#[test]
fn three_hosts_that_end_at_once_come_back_with_all_acknowledged_changes() -> Result<(), Failure> {
    come_back(3, "tcp://", |_| vec![0, 1, 2])
}

#[test]
fn a_host_that_was_declared_lost_meanwhile_starts_as_a_new_one() -> Result<(), Failure> {
    let _alone = crate::common::alone();
    let mut hosts = Hosts::start(3, "tcp://");
    let url = hosts.url();
    let (load, clusters, threads) = Load::start(&url)?;
    await_writes(&load, &clusters, 1_000);
    hosts.running[1].kill();
    let admin = Admin::open(&url)?;
    let lost = || admin.hosts().ok().flatten().is_some_and(|hosts| hosts.hosts.iter().any(|host| !host.up));
    wait_until("the host is declared lost", Duration::from_secs(10), lost);
    await_writes(&load, &clusters, 1_000);
    hosts.running[1].restart();
    let joined = || {
        admin.hosts().ok().flatten().is_some_and(|all| {
            all.hosts.iter().filter(|host| host.up).count() == 3 && all.hosts.iter().any(|host| host.id == 3)
        })
    };
    wait_until("the process is a new host", Duration::from_secs(20), joined);
    hosts.await_copies()?;
    // Its new copies count: the others may be lost now.
    hosts.running[0].kill();
    await_writes(&load, &clusters, 1_000);
    load.stop.store(true, SeqCst);
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    load.verify(&url)
}

#[test]
fn a_cluster_waits_for_a_host_with_the_last_copy_of_a_volume() -> Result<(), Failure> {
    let _alone = crate::common::alone();
    let mut hosts = Hosts::start_with(3, "tcp://", &["--replicas", "1"]);
    let url = hosts.url();
    let (load, clusters, threads) = Load::start(&url)?;
    await_writes(&load, &clusters, 1_000);
    hosts.running[1].kill();
    // Far longer than a host may be silent.
    std::thread::sleep(Duration::from_secs(2));
    let admin = Admin::open(&url)?;
    let all = admin.hosts()?.ok_or("a cluster of hosts")?;
    assert!(all.hosts.iter().all(|host| host.up), "{all:?}");
    hosts.running[1].restart();
    await_writes(&load, &clusters, 1_000);
    load.stop.store(true, SeqCst);
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    load.verify(&url)
}

/// Runs `sherman serve` with these arguments until it refuses to. Returns what it says.
fn refused(args: &[&str]) -> String {
    let mut command = command(&["serve", "--log", "warn", "--until-stdin-closes"]);
    let output = command.args(args).stdin(Stdio::null()).output().expect("the command starts");
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(3), ""), "{args:?}: {said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

/// The files of a folder with their bytes. Memory is too long to compare.
fn bytes_of(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| !path.to_str().is_some_and(|path| path.contains("copy-") || path.ends_with("room")))
        .map(|path| (path.clone(), std::fs::read(path).expect("a file")))
        .collect();
    files.sort();
    files
}

#[test]
fn folders_that_are_in_use_or_belong_elsewhere_are_refused_and_stay() {
    let directory = Directory::new("foreign");
    let (folder, other) = (directory.path("one"), directory.path("other"));
    let listen = |name: &str| format!("unix:{}", directory.path(name));
    let new = |name: &str, folder: &str| {
        let (listen, folder) = (listen(name), folder.to_owned());
        let args = ["--new-cluster", "--memory", "64MiB", "--listen", &listen, "--file", &folder];
        Server::start(args.map(str::to_owned).to_vec())
    };
    let mut running = new("a", &folder);
    let at_b = listen("b");
    let said = refused(&["--new-cluster", "--memory", "64MiB", "--listen", &at_b, "--file", &folder]);
    assert!(said.contains("--file") && said.contains("another host uses the folder"), "{said}");
    // All of its copies are made.
    drop(open(&listen("a"), patient).expect("a cluster"));
    running.kill();
    let second = new("c", &other);
    let before = bytes_of(Path::new(&folder));
    let seed = listen("c");
    for (args, words) in [
        (vec!["--join", &seed, "--memory", "64MiB"], &["belongs to cluster"][..]),
        (vec!["--new-cluster", "--hosts", "3"], &["--hosts", "3"]),
        (vec!["--new-cluster", "--lease", "7s"], &["--lease", "7s"]),
        (vec!["--memory", "32MiB"], &["offers only"]),
    ] {
        let said = refused(&[&args[..], &["--listen", &at_b, "--file", &folder]].concat());
        assert!(words.iter().all(|word| said.contains(word)), "{args:?}: {said}");
        assert_eq!(bytes_of(Path::new(&folder)), before, "{args:?}");
    }
    drop(second);
    // A file of a plain server, and a folder with something else.
    let file = directory.path("file");
    std::fs::write(&file, "a letter").expect("a file");
    let said = refused(&["--new-cluster", "--memory", "64MiB", "--listen", &at_b, "--file", &file]);
    assert!(said.contains("no folder"), "{said}");
    let letters = directory.path("letters");
    std::fs::create_dir(&letters).expect("a folder");
    std::fs::write(Path::new(&letters).join("letter"), "dear").expect("a file");
    let said = refused(&["--new-cluster", "--memory", "64MiB", "--listen", &at_b, "--file", &letters]);
    assert!(said.contains("not those of a host"), "{said}");
    assert_eq!(bytes_of(Path::new(&letters)).len(), 1);
}

#[test]
fn damaged_folders_are_refused_and_a_repaired_one_works() -> Result<(), Failure> {
    let directory = Directory::new("damaged");
    let (folder, listen) = (directory.path("host"), format!("unix:{}", directory.path("s")));
    let args = ["--new-cluster", "--memory", "64MiB", "--listen", &listen, "--file", &folder];
    let mut server = Server::start(args.map(str::to_owned).to_vec());
    open(&listen, patient)?.tree::<u64, u64>("t")?.client()?.insert(1, 2)?;
    server.kill();
    let before = bytes_of(Path::new(&folder));
    let again = ["--listen", &listen, "--file", &folder];
    for (path, bytes) in before.iter().filter(|(_, bytes)| !bytes.is_empty()) {
        let step = bytes.len() / 5 + 1;
        for at in (0..bytes.len()).step_by(step) {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            for damaged in [bytes[..at].to_vec(), flipped] {
                std::fs::write(path, &damaged)?;
                let said = refused(&again);
                assert!(said.starts_with("error: --file: "), "{}, byte {at}: {said}", path.display());
                assert_eq!(std::fs::read(path)?, damaged);
            }
        }
        std::fs::write(path, bytes)?;
    }
    let memory = Path::new(&folder).join("copy-0");
    let whole = std::fs::read(&memory)?;
    for length in [0, 100, 5_000, whole.len() - 1] {
        std::fs::write(&memory, &whole[..length])?;
        let said = refused(&again);
        assert!(said.contains("copy 0"), "{said}");
    }
    std::fs::remove_file(&memory)?;
    assert!(refused(&again).contains("the memory of copy 0 is missing"));
    std::fs::write(&memory, &whole)?;
    server.restart();
    assert_eq!(open(&listen, patient)?.tree::<u64, u64>("t")?.client()?.get(1)?, Some(2));
    Ok(())
}
