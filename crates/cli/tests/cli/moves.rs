//! Clusters of hosts that grow and shrink while clients write and read.
//!
//! Every key has one writer, as in [`losses`](crate::losses), so every value that is read can be judged.
//!
//! The load is paced: each thread rests a little between two operations. A second cluster, which does not
//! change, has the same load at the same time. The operations of each second are compared with its operations
//! in that second. So the comparison shows the pauses of clients, and not what else the machine does, unless
//! it stops a process of one cluster for long. `SHERMAN_MOVES` gives the pace in microseconds. The test then
//! judges every second; with 0 the threads go at full speed. A plain run judges any ten seconds together.

use crate::common::servers::Server;
use crate::common::{command, fresh_path, sherman, text};
use crate::losses::{Load, TREE, open};
use serde_json::Value;
use sherman::{Admin, Client, Cluster, ClusterOptions, Error, Hosts};
use sherman_conformance::trees::Failure;
use std::fs::File;
use std::path::PathBuf;
use std::process::Output;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Compute servers, and writing threads of each. Each also has one thread that reads.
const COMPUTES: u64 = 2;
const WRITERS: u64 = 2;
/// How long the load runs before anything changes, and after every change.
const SETTLED: Duration = Duration::from_secs(4);

/// No host dies here, so a host that gets no processor for a while is not lost.
const DETECT: &str = "10s";

/// Hosts as processes, each with a log.
struct Group {
    hosts: Vec<(Server, PathBuf)>,
    detect: &'static str,
}

impl Group {
    fn new(how: &[&str]) -> Self {
        Self::detecting(DETECT, how)
    }

    /// A cluster that declares a host lost after this time.
    fn detecting(detect: &'static str, how: &[&str]) -> Self {
        let mut group = Self { hosts: Vec::new(), detect };
        group.launch(&[&["--new-cluster"], how].concat(), "256MiB");
        group
    }

    fn launch(&mut self, how: &[&str], memory: &str) {
        let always =
            ["--listen", "tcp://127.0.0.1:0", "--memory", memory, "--log", "info", "--detect", self.detect];
        let args = how.iter().chain(&always).map(ToString::to_string).collect();
        let log = fresh_path("host.log");
        let server = Server::start_telling(args, File::create(&log).expect("a file").into());
        self.hosts.push((server, log));
    }

    fn join(&mut self, memory: &str) {
        let seed = format!("tcp://{}", self.hosts[0].0.address);
        self.launch(&["--join", &seed], memory);
    }

    fn url(&self) -> String {
        let addresses: Vec<&str> = self.hosts.iter().map(|(host, _)| host.address.as_str()).collect();
        format!("tcp://{}", addresses.join(","))
    }

    fn run(&self, args: &[&str]) -> Output {
        sherman(&[args, &["--cluster", &self.url()]].concat())
    }

    /// Runs a command that succeeds.
    fn done(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout)
    }

    fn seen(&self) -> Hosts {
        let admin = Admin::open(&self.url()).expect("the cluster answers");
        admin.hosts().expect("the cluster answers").expect("a cluster of hosts")
    }

    /// Waits until the cluster looks like that.
    fn wait(&self, what: &str, holds: impl Fn(&Hosts) -> bool) -> Hosts {
        let began = Instant::now();
        loop {
            let seen = self.seen();
            if holds(&seen) {
                return seen;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "not within a minute: {what}: {seen:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until a host's process has ended by itself, with exit code 0 and a word about it.
    fn has_left(&mut self, host: usize) {
        let (server, log) = &mut self.hosts[host];
        let status = server.wait_for_end(Duration::from_secs(20));
        let log = std::fs::read_to_string(log).expect("its log");
        assert!(status.success(), "{status}: {log}");
        assert!(log.contains(&format!("host {host} has left the cluster")), "{log}");
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for (_, log) in &self.hosts {
            let _ = std::fs::remove_file(log);
        }
    }
}

/// Whether every volume has this many copies and is open, and nothing moves.
fn is_whole(hosts: &Hosts, copies: usize) -> bool {
    let with_two = hosts.volumes.iter().filter(|volume| volume.backup.is_some()).count();
    let copied = with_two == if copies == 2 { hosts.volumes.len() } else { 0 };
    !hosts.volumes.is_empty()
        && copied
        && hosts.volumes_closed() + hosts.volumes_lost() == 0
        && hosts.copies.makings.is_empty()
        && !hosts.copies.spreading
}

/// Copies and primaries of the hosts that are present.
fn counts(hosts: &Hosts) -> Vec<(usize, usize)> {
    let up = hosts.hosts.iter().filter(|host| host.up);
    up.map(|host| (host.primaries + host.backups, host.primaries)).collect()
}

/// Threads that write and read.
struct Running {
    load: Arc<Load>,
    threads: Vec<JoinHandle<()>>,
    clusters: Vec<Cluster>,
}

/// The operations of two loads in each second.
struct Windows {
    seconds: Arc<Mutex<Vec<[u64; 2]>>>,
    ended: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Windows {
    fn of(loads: [Arc<Load>; 2]) -> Self {
        let (seconds, ended) = (Arc::<Mutex<Vec<[u64; 2]>>>::default(), Arc::<AtomicBool>::default());
        let (windows, over) = (Arc::clone(&seconds), Arc::clone(&ended));
        let thread = std::thread::spawn(move || {
            let total =
                || [0, 1].map(|which| loads[which].writes.load(Relaxed) + loads[which].reads.load(Relaxed));
            let (mut next, mut before) = (Instant::now(), total());
            while !over.load(Relaxed) {
                next += Duration::from_secs(1);
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
                let now = total();
                windows.lock().expect("whole").push([0, 1].map(|which| now[which] - before[which]));
                before = now;
            }
        });
        Self { seconds, ended, thread }
    }

    fn count(&self) -> usize {
        self.seconds.lock().expect("whole").len()
    }

    fn stop(self) -> Vec<[u64; 2]> {
        self.ended.store(true, SeqCst);
        self.thread.join().expect("no panic");
        let seconds = self.seconds.lock().expect("whole");
        seconds.clone()
    }
}

impl Running {
    fn start(url: &str, pace: Option<Duration>) -> Result<Self, Failure> {
        let load = Arc::new(Load::of(COMPUTES * WRITERS, pace));
        let mut threads = Vec::new();
        let mut clusters = Vec::new();
        for compute in 0..COMPUTES {
            let cluster = open(url, options)?;
            cluster.tree::<u64, u64>(TREE)?;
            clusters.push(cluster.clone());
            for thread in 0..=WRITERS {
                let (load, cluster) = (Arc::clone(&load), cluster.clone());
                threads.push(std::thread::spawn(move || {
                    let done = match thread {
                        WRITERS => load.read(&cluster, compute),
                        writer => load.write(&cluster, compute * WRITERS + writer),
                    };
                    if let Err(error) = done {
                        load.fail(format!("compute server {compute}, thread {thread}: {error}"));
                    }
                }));
            }
        }
        Ok(Self { load, threads, clusters })
    }

    /// Ends the load.
    fn stop(self) {
        self.load.stop.store(true, SeqCst);
        self.threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        assert!(self.load.failed().is_empty(), "{:#?}", self.load.failed());
        let rejoins: u64 = self.clusters.iter().map(Cluster::rejoins).sum();
        println!("{rejoins} times a compute server joined again");
    }
}

fn options() -> ClusterOptions {
    ClusterOptions::new().timeout(Duration::from_secs(20))
}

fn pace() -> Option<Duration> {
    let micros = std::env::var("SHERMAN_MOVES").ok().and_then(|pace| pace.parse().ok()).unwrap_or(2_000);
    (micros > 0).then(|| Duration::from_micros(micros))
}

#[test]
fn a_cluster_with_one_copy_grows_from_one_host_to_four_and_shrinks_to_two_under_load() -> Result<(), Failure>
{
    grow_and_shrink(1)
}

#[test]
fn a_cluster_with_two_copies_grows_from_two_hosts_to_four_and_shrinks_to_two_under_load()
-> Result<(), Failure> {
    grow_and_shrink(2)
}

/// A cluster begins with as many hosts as copies of each volume.
fn grow_and_shrink(copies: usize) -> Result<(), Failure> {
    let _alone = crate::common::alone();
    let number = copies.to_string();
    let settings = ["--replicas", &number, "--hosts", &number, "--lease", "1s", "--chunk", "1MiB"];
    let mut group = Group::new(&settings);
    (1..copies).for_each(|_| group.join("256MiB"));
    group.wait("volumes", |hosts| is_whole(hosts, copies));
    let other = Group::new(&["--replicas", "1", "--hosts", "1", "--lease", "1s", "--chunk", "1MiB"]);
    other.wait("volumes", |hosts| is_whole(hosts, 1));
    let (running, beside) = (Running::start(&group.url(), pace())?, Running::start(&other.url(), pace())?);
    let windows = Windows::of([Arc::clone(&running.load), Arc::clone(&beside.load)]);
    std::thread::sleep(2 * SETTLED);
    let before = windows.count();

    (copies..4).for_each(|_| group.join("256MiB"));
    group.wait("four hosts", |hosts| hosts.hosts.iter().filter(|host| host.up).count() == 4);
    std::thread::sleep(SETTLED);
    println!("{}", group.done(&["rebalance"]));
    let four = group.wait("an even distribution", |hosts| is_whole(hosts, copies));
    assert_even(&four, copies, 4);
    group.done(&["rebalance"]);
    assert_eq!(group.seen().epoch, four.epoch, "it is even already");
    std::thread::sleep(SETTLED);

    // The first host leads the control group when it is drained.
    for host in [0, 2] {
        println!("{}", group.done(&["drain", &host.to_string()]));
        group.has_left(host);
        let again = group.done(&["drain", &host.to_string(), "--json"]);
        let again: Value = serde_json::from_str(&again)?;
        assert_eq!(again["state"], "left");
        std::thread::sleep(SETTLED);
    }
    group.done(&["rebalance"]);
    let end = group.wait("two hosts", |hosts| is_whole(hosts, copies));
    assert_even(&end, copies, 2);

    let (load, url) = (Arc::clone(&running.load), group.url());
    judge(&windows.stop(), before);
    running.stop();
    beside.stop();
    let client = open(&url, options)?.tree::<u64, u64>(TREE)?.client()?;
    for key in 0..load.counters.len() as u64 {
        load.judge(key, || client.get(key))?;
    }
    assert!(load.failed().is_empty(), "{:#?}", load.failed());
    let check = client.check()?;
    assert!(check.is_clean(), "{check:?}");
    assert_eq!(load.unknown.load(Relaxed), 0, "no change stays in doubt");
    println!(
        "{} writes, {} reads, longest operation {:?}",
        load.writes.load(Relaxed),
        load.reads.load(Relaxed),
        Duration::from_nanos(load.longest.load(Relaxed))
    );
    Ok(())
}

/// Copies and primaries are within 10 % of even.
fn assert_even(hosts: &Hosts, copies: usize, among: usize) {
    let volumes = hosts.volumes.len();
    println!("{among} hosts: {:?}", counts(hosts));
    let is_even = |found: usize, all: usize| (found * among).abs_diff(all) * 10 <= all;
    let even =
        |&(all, primaries): &(usize, usize)| is_even(all, copies * volumes) && is_even(primaries, volumes);
    assert!(counts(hosts).len() == among && counts(hosts).iter().all(even), "{:?}", counts(hosts));
}

/// No second, or no ten, have fewer than half of the operations of as many seconds before anything changed,
/// both compared with the cluster that does not change.
fn judge(seconds: &[[u64; 2]], before: usize) {
    println!("operations in each second, and of the other cluster: {seconds:?}");
    let share = |[ours, others]: [u64; 2]| ours as f64 / others.max(1) as f64;
    let quiet = seconds[1..before].iter().fold([0, 0], |sum, one| [sum[0] + one[0], sum[1] + one[1]]);
    let together = if std::env::var_os("SHERMAN_MOVES").is_some() { 1 } else { 10 };
    let least = |together| {
        let sum = |some: &[[u64; 2]]| some.iter().fold([0, 0], |[a, b], one| [a + one[0], b + one[1]]);
        let shares = seconds[before..].windows(together).map(|some| share(sum(some)) / share(quiet));
        100.0 * shares.fold(f64::INFINITY, f64::min)
    };
    println!("at least {:.0} % of the operations before the first change in a second", least(1));
    println!("at least {:.0} % in {together} seconds", least(together));
    assert!(least(together) >= 50.0, "{together} seconds with {:.0} % of the operations", least(together));
}

#[test]
fn a_drain_that_is_not_possible_is_refused_and_a_running_one_can_be_cancelled() {
    let refused = |group: &Group, args: &[&str], code: i32, words: &str| {
        let before = group.seen();
        let output = group.run(args);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(words) && output.stdout.is_empty(), "{args:?}: {said}");
        let after = group.seen();
        // A host that has just joined gets its vote meanwhile.
        let hosts = |seen: Hosts| {
            let mut hosts = seen.hosts;
            hosts.iter_mut().for_each(|host| host.votes = false);
            (seen.epoch, hosts)
        };
        assert_eq!(hosts(before), hosts(after));
    };
    let always = ["--lease", "1s", "--chunk", "1MiB"];
    let group = Group::new(&[&["--replicas", "1", "--hosts", "1"], &always[..]].concat());
    group.wait("volumes", |hosts| is_whole(hosts, 1));
    refused(&group, &["drain", "0"], 3, "volume 0 has its last copy on this one");
    let mut group = Group::new(&[&["--replicas", "2", "--hosts", "2"], &always[..]].concat());
    refused(&group, &["drain", "7"], 1, "the cluster has no host 7");
    refused(&group, &["drain", "7", "--cancel"], 1, "the cluster has no host 7");
    refused(&group, &["drain"], 2, "ID");
    refused(&group, &["rebalance", "--always", "--stop"], 2, "--stop");
    group.join("256MiB");
    group.wait("second copies", |hosts| is_whole(hosts, 2));
    refused(&group, &["drain", "1"], 3, "1 hosts would be left, too few for 2 copies");
    group.join("64MiB");
    group.wait("a third host", |hosts| hosts.hosts.len() == 3);
    refused(&group, &["drain", "1"], 3, "add a host first");
    // A host without copies leaves at once.
    group.done(&["drain", "2"]);
    group.has_left(2);
    refused(&group, &["drain", "2", "--cancel"], 3, "host 2 has left the cluster");
    group.join("256MiB");
    group.wait("a fourth host", |hosts| hosts.hosts.len() == 4);
    group.done(&["drain", "1", "--no-wait"]);
    let said = group.done(&["drain", "1", "--cancel", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&said).expect("JSON")["state"], "present");
    let stays = group.wait("nothing moves", |hosts| is_whole(hosts, 2));
    assert!(stays.hosts.iter().any(|host| host.id == 1 && host.up && !host.leaving));
    // Hosts of another kind of cluster have no drain.
    let plain = crate::common::servers::Servers::start(
        crate::common::servers::Transport::Unix,
        1,
        &["--memory", "64MiB", "--chunk", "1MiB"],
    );
    let output = command(&["drain", "0", "--cluster", &plain.url()]).output().expect("it starts");
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
}

#[test]
fn the_rest_of_a_cluster_goes_on_without_a_volume_that_has_lost_both_copies() -> Result<(), Failure> {
    const TREES: u64 = 30;
    const KEYS: u64 = 300;
    let _alone = crate::common::alone();
    let settings = ["--replicas", "2", "--hosts", "5", "--volumes", "10", "--lease", "1s", "--chunk", "1MiB"];
    let mut group = Group::detecting("500ms", &settings);
    (1..5).for_each(|_| group.join("256MiB"));
    let whole = group.wait("volumes", |hosts| {
        is_whole(hosts, 2) && hosts.hosts.iter().filter(|host| host.votes).count() == 5
    });
    let cluster = open(&group.url(), options)?;
    let name = |tree: u64| format!("tree-{tree}");
    for tree in 0..TREES {
        let client = cluster.tree::<u64, u64>(&name(tree))?.client()?;
        for key in 0..KEYS {
            client.insert(key, key + tree)?;
        }
    }
    let both = [whole.volumes[3].primary, whole.volumes[3].backup].map(|host| host.expect("a host"));
    both.iter().for_each(|host| group.hosts[usize::from(*host)].0.kill());
    let lost = group.wait("the loss", |hosts| hosts.volumes_lost() > 0 && hosts.volumes_closed() == 0);
    assert!(lost.volumes[3].primary.is_none());
    assert!(group.done(&["stats"]).contains("lost all copies: volume "));

    // A client that was there, and one that joins now: every operation ends, as it can.
    let late = open(&group.url(), options)?;
    let began = Instant::now();
    for cluster in [&cluster, &late] {
        let (mut found, mut missed, mut whole) = (0, 0, 0);
        for tree in 0..TREES {
            let client = cluster.open_tree::<u64, u64>(&name(tree)).and_then(|tree| tree.client());
            let before = missed;
            for key in 0..KEYS {
                let get = |client: &Client<u64, u64>| client.get(key);
                match client.as_ref().map_err(Clone::clone).and_then(get) {
                    Ok(value) => {
                        assert_eq!(value, Some(key + tree));
                        found += 1;
                    }
                    Err(Error::VolumeLost { volume }) => {
                        assert!(lost.volumes[usize::from(volume)].primary.is_none(), "volume {volume}");
                        missed += 1;
                    }
                    Err(other) => panic!("tree {tree}, key {key}: {other}"),
                }
            }
            whole += u64::from(missed == before);
        }
        let volumes = lost.volumes_lost();
        println!("{volumes} of 10 volumes lost: {found} keys found, {missed} missed, {whole} trees whole");
        assert!(found > 0 && missed > 0 && whole > 0);
    }
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    // New trees and nodes are elsewhere.
    for number in 0..12 {
        let name = format!("new-{number}");
        let client = cluster.tree::<u64, u64>(&name)?.client()?;
        for key in 0..200 {
            client.insert(key, number)?;
            assert_eq!(client.get(key)?, Some(number));
        }
    }
    Ok(())
}
