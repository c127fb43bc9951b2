//! Clusters of hosts that lose hosts while clients write and read at full speed.
//!
//! Every key has one writer, which counts it up. So a reader can judge each value at once: it is at least
//! what was acknowledged when the read began, at most what was begun when it ended, and never less than what
//! an earlier read returned.
//!
//! A plain run loses few hosts. `SHERMAN_LOSSES` gives the number of rounds, for a soak.

use crate::common::fresh_path;
use crate::common::servers::{Server, Transport};
use rustix::process::{Pid, Signal, kill_process};
use sherman::{Admin, Cluster, ClusterOptions, Error};
use sherman_conformance::trees::Failure;
use std::path::PathBuf;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const HOSTS: usize = 3;
/// Compute servers, and writing threads of each. Each also has one thread that reads.
const COMPUTES: u64 = 2;
const WRITERS: u64 = 2;
/// Keys of one writer.
const KEYS: u64 = 500;
pub(crate) const TREE: &str = "counters";
/// How long a host is stopped.
const PAUSE: Duration = Duration::from_secs(10);
/// The longest that an operation may take, with a lease of one second.
const LONGEST: Duration = Duration::from_secs(3);
/// The same where clients map the memory. Their threads never sleep, so they leave the hosts less of a
/// machine with few processors.
const LONGEST_MAPPED: Duration = Duration::from_secs(5);

/// Hosts as processes.
struct Hosts {
    transport: Transport,
    running: Vec<Option<Server>>,
    addresses: Vec<String>,
    /// For sockets.
    directory: PathBuf,
    /// How many hosts there ever were.
    started: u32,
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.running.clear();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Hosts {
    fn start(transport: Transport) -> Self {
        let directory = fresh_path("hosts");
        std::fs::create_dir_all(&directory).expect("a directory");
        let (running, addresses) = (Vec::new(), Vec::new());
        let mut hosts = Self { transport, running, addresses, directory, started: 0 };
        let size = HOSTS.to_string();
        let first = ["--new-cluster", "--replicas", "2", "--hosts", &size, "--lease", "1s"];
        let first = hosts.launch(&first);
        hosts.addresses.push(first.address.clone());
        hosts.running.push(Some(first));
        for _ in 1..HOSTS {
            let next = hosts.join(&hosts.addresses.clone());
            hosts.addresses.push(next.address.clone());
            hosts.running.push(Some(next));
        }
        hosts
    }

    /// A place to listen where no host was before.
    fn place(&mut self) -> String {
        self.started += 1;
        let socket = self.directory.join(format!("{}.sock", self.started));
        match self.transport {
            Transport::Tcp => "tcp://127.0.0.1:0".to_owned(),
            Transport::Shm => format!("shm:{}", socket.display()),
            other => panic!("hosts do not listen on {other:?} here"),
        }
    }

    fn scheme(&self) -> &'static str {
        if self.transport == Transport::Shm { "shm:" } else { "tcp://" }
    }

    fn launch(&mut self, how: &[&str]) -> Server {
        let always = ["--listen", &self.place(), "--memory", "256MiB", "--log", "warn"];
        let args: Vec<String> = how.iter().chain(&always).map(ToString::to_string).collect();
        let stderr = match std::env::var_os("SHERMAN_LOSSES_LOG") {
            Some(_) => std::process::Stdio::inherit(),
            None => std::process::Stdio::null(),
        };
        Server::start_telling(args, stderr)
    }

    fn join(&mut self, known: &[String]) -> Server {
        let seeds = format!("{}{}", self.scheme(), known.join(","));
        self.launch(&["--join", &seeds])
    }

    fn url(&self) -> String {
        format!("{}{}", self.scheme(), self.addresses.join(","))
    }

    fn strike(&mut self, host: usize, fault: Fault) {
        match (fault, &mut self.running[host]) {
            (Fault::Kill, Some(server)) => server.kill(),
            // It is declared lost meanwhile. When it continues, it finds that out and ends.
            (Fault::Pause, Some(server)) => {
                let pid = i32::try_from(server.pid()).ok().and_then(Pid::from_raw).expect("a process");
                kill_process(pid, Signal::STOP).expect("it runs");
                std::thread::spawn(move || {
                    std::thread::sleep(PAUSE);
                    // It is gone if the test has ended.
                    let _ = kill_process(pid, Signal::CONT);
                });
            }
            (_, None) => {}
        }
    }
}

impl Hosts {
    /// Starts a host in place of one that is gone, and waits until every volume has two copies again.
    fn replace(&mut self, host: usize) -> Result<Duration, Failure> {
        let began = Instant::now();
        // A host that was paused ends by itself, or is killed here.
        self.running[host] = None;
        let others: Vec<String> =
            self.running.iter().flatten().map(|server| server.address.clone()).collect();
        let server = self.join(&others);
        self.addresses[host].clone_from(&server.address);
        self.running[host] = Some(server);
        let admin = Admin::open(&self.url())?;
        loop {
            let hosts = admin.hosts()?.ok_or("a cluster of hosts")?;
            let lacking = hosts.volumes_with_one_copy() + hosts.volumes_closed() + hosts.volumes_lost();
            if lacking == 0 && !hosts.volumes.is_empty() {
                return Ok(began.elapsed());
            }
            if began.elapsed() > Duration::from_secs(30) {
                return Err(format!("copies are not made again: {hosts:?}").into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// What happens to a host.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// Its process is killed.
    Kill,
    /// Its process is stopped for [`PAUSE`].
    Pause,
}

/// One key: what its writer has begun, what was acknowledged, and what readers have seen.
#[derive(Default)]
pub(crate) struct Counter {
    begun: AtomicU64,
    acknowledged: AtomicU64,
    seen: AtomicU64,
}

/// What writers and readers do, and what they found.
#[derive(Default)]
pub(crate) struct Load {
    pub(crate) counters: Vec<Counter>,
    pub(crate) stop: AtomicBool,
    pub(crate) writes: AtomicU64,
    pub(crate) reads: AtomicU64,
    pub(crate) unknown: AtomicU64,
    /// The longest operation, in nanoseconds.
    pub(crate) longest: AtomicU64,
    pub(crate) failures: Mutex<Vec<String>>,
    /// The pause of each thread between two operations.
    pub(crate) pace: Option<Duration>,
}

/// The load, its compute servers and one more, and its threads.
pub(crate) type Started = (Arc<Load>, Vec<Cluster>, Vec<JoinHandle<()>>);

impl Load {
    /// Starts writers and readers.
    pub(crate) fn start(url: &str) -> Result<Started, Failure> {
        let load = Arc::new(Self::of(COMPUTES * WRITERS, None));
        let first = open(url, patient)?;
        first.tree::<u64, u64>(TREE)?;
        let (mut threads, mut clusters) = (Vec::new(), vec![first]);
        for compute in 0..COMPUTES {
            let cluster = open(url, patient)?;
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
        Ok((load, clusters, threads))
    }

    /// Checks that nothing went wrong, and that a new client finds every acknowledged change.
    pub(crate) fn verify(&self, url: &str) -> Result<(), Failure> {
        self.expect_no_failures();
        let client = open(url, patient)?.tree::<u64, u64>(TREE)?.client()?;
        for key in 0..self.counters.len() as u64 {
            self.judge(key, || client.get(key))?;
        }
        self.expect_no_failures();
        let check = client.check()?;
        assert!(check.is_clean(), "{check:?}");
        Ok(())
    }

    fn expect_no_failures(&self) {
        let failures = self.failed();
        assert!(failures.is_empty(), "{failures:#?}");
    }

    /// A load of these many writers, without any key yet.
    pub(crate) fn of(writers: u64, pace: Option<Duration>) -> Self {
        let counters = (0..writers * KEYS).map(|_| Counter::default()).collect();
        Self { counters, pace, ..Self::default() }
    }

    /// Everything that went wrong.
    pub(crate) fn failed(&self) -> Vec<String> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn rest(&self) {
        if let Some(pace) = self.pace {
            std::thread::sleep(pace);
        }
    }

    pub(crate) fn fail(&self, what: String) {
        self.stop.store(true, SeqCst);
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    fn timed<T>(&self, operation: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let done = operation();
        self.longest.fetch_max(began.elapsed().as_nanos() as u64, Relaxed);
        done
    }

    pub(crate) fn write(&self, cluster: &Cluster, writer: u64) -> Result<(), Error> {
        let client = cluster.tree::<u64, u64>(TREE)?.client()?;
        let mut random = fastrand::Rng::with_seed(writer);
        while !self.stop.load(Relaxed) {
            let key = writer * KEYS + random.u64(..KEYS);
            let counter = &self.counters[key as usize];
            let next = counter.begun.load(Relaxed) + 1;
            counter.begun.store(next, SeqCst);
            match self.timed(|| client.insert(key, next)) {
                Ok(_) => counter.acknowledged.store(next, SeqCst),
                Err(error @ Error::OutcomeUnknown { .. }) => {
                    println!("writer {writer}, key {key}: {error}");
                    self.unknown.fetch_add(1, Relaxed);
                }
                Err(error) => return Err(error),
            }
            self.writes.fetch_add(1, Relaxed);
            self.rest();
        }
        Ok(())
    }

    pub(crate) fn read(&self, cluster: &Cluster, seed: u64) -> Result<(), Error> {
        let client = cluster.tree::<u64, u64>(TREE)?.client()?;
        let mut random = fastrand::Rng::with_seed(!seed);
        while !self.stop.load(Relaxed) {
            let key = random.u64(..self.counters.len() as u64);
            self.judge(key, || client.get(key))?;
            self.reads.fetch_add(1, Relaxed);
            self.rest();
        }
        Ok(())
    }

    /// Reads a key and judges its value.
    pub(crate) fn judge(
        &self,
        key: u64,
        get: impl FnOnce() -> Result<Option<u64>, Error>,
    ) -> Result<(), Error> {
        let counter = &self.counters[key as usize];
        let (acknowledged, seen) = (counter.acknowledged.load(SeqCst), counter.seen.load(SeqCst));
        let value = self.timed(get)?.unwrap_or(0);
        let begun = counter.begun.load(SeqCst);
        if value < acknowledged || value < seen || value > begun {
            self.fail(format!(
                "key {key} holds {value}: {acknowledged} was acknowledged and {seen} was read before, \
                 {begun} was begun"
            ));
        }
        counter.seen.fetch_max(value, SeqCst);
        Ok(())
    }
}

fn rounds() -> u64 {
    std::env::var("SHERMAN_LOSSES").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(2)
}

#[test]
fn hosts_that_are_killed_lose_no_acknowledged_change_and_stop_no_client_for_long() -> Result<(), Failure> {
    lose(Transport::Tcp, Fault::Kill)
}

/// Clients have mapped the memory of the hosts. It stays mapped, and answers, after the death of its host.
#[test]
fn hosts_whose_memory_is_mapped_are_killed_and_no_acknowledged_change_is_lost() -> Result<(), Failure> {
    lose(Transport::Shm, Fault::Kill)
}

#[test]
fn hosts_that_are_paused_lose_no_acknowledged_change_and_stop_no_client_for_long() -> Result<(), Failure> {
    lose(Transport::Tcp, Fault::Pause)
}

fn lose(transport: Transport, fault: Fault) -> Result<(), Failure> {
    let _alone = crate::common::alone();
    let mut hosts = Hosts::start(transport);
    let url = hosts.url();
    let (load, clusters, threads) = Load::start(&url)?;
    std::thread::sleep(Duration::from_secs(1));
    let mut random = fastrand::Rng::with_seed(7);
    for round in 0..rounds() {
        let host = if round % 3 == 0 { 0 } else { random.usize(1..HOSTS) };
        let (writes, rejoins) = (load.writes.load(Relaxed), clusters[1].rejoins());
        load.longest.store(0, Relaxed);
        hosts.strike(host, fault);
        let began = Instant::now();
        while !load.stop.load(Relaxed) && began.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(20));
            if clusters[1].rejoins() > rejoins && load.writes.load(Relaxed) > writes + 2_000 {
                break;
            }
        }
        std::thread::sleep(Duration::from_secs(1));
        let copied = hosts.replace(host)?;
        std::thread::sleep(Duration::from_millis(500));
        let longest = Duration::from_nanos(load.longest.load(Relaxed));
        println!(
            "round {round}: host {host}, {fault:?}, {} writes since, longest operation {longest:?}; copies \
             made again after {copied:?}",
            load.writes.load(Relaxed) - writes
        );
        if load.stop.load(Relaxed) {
            break;
        }
        let most = if transport == Transport::Shm { LONGEST_MAPPED } else { LONGEST };
        assert!(longest <= most, "round {round}: an operation took {longest:?}");
    }
    load.stop.store(true, SeqCst);
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    load.verify(&hosts.url())?;
    let unknown = load.unknown.load(Relaxed);
    println!(
        "{} writes, {} reads, {unknown} of unknown outcome",
        load.writes.load(Relaxed),
        load.reads.load(Relaxed)
    );
    assert_eq!(unknown, 0, "every client kept its lease, so it learns what became of its changes");
    Ok(())
}

/// Options of clients that wait for hosts.
pub(crate) fn patient() -> ClusterOptions {
    ClusterOptions::new().timeout(Duration::from_secs(20))
}

/// Opens the cluster as soon as it has volumes.
pub(crate) fn open(url: &str, options: impl Fn() -> ClusterOptions) -> Result<Cluster, Failure> {
    let began = Instant::now();
    loop {
        match Cluster::open_with(url, options()) {
            Err(error) if error.may_pass() && began.elapsed() < Duration::from_secs(20) => {
                std::thread::sleep(Duration::from_millis(20));
            }
            opened => return Ok(opened?),
        }
    }
}
