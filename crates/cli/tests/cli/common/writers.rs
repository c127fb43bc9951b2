//! Writers that are separate processes, and what the tests know about a writer's keys after its end.
//!
//! A writer process is this same program, running its ignored test `kills::writer`. It writes a diary to its
//! standard output: each change before it starts, and each acknowledgement.

use rustix::process::{Pid, Signal, kill_process};
use sherman::{Client, Cluster, ClusterOptions, ComputeId, Error, Standing};
use sherman_conformance::trees::{Failure, Ledger, Note};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The variable with a writer's arguments: URL, first key, seed, number of members. A fifth word "leaves"
/// makes the writer leave in order when its standard input ends.
const ORDERS: &str = "SHERMAN_TEST_WRITER";
/// Whether this writer must leave.
static LEAVE: AtomicBool = AtomicBool::new(false);
/// How long a writer may take to leave. After that the test kills it.
const LEAVE_PATIENCE: Duration = Duration::from_secs(15);
/// How often a member tries to join: for two minutes at least.
const MOST_JOINS: u32 = 1200;
/// The pause between two tries is between this and four times as long, so that a crowd does not return at the
/// same moment.
const JOIN_PAUSE: Duration = Duration::from_millis(100);
/// Keys of one member.
const KEYS: u64 = 400;
/// [`plant`] inserts one key of this many.
const PLANTED: usize = 16;
/// Threads of a writer that is one member. Several members have one thread each.
const THREADS: u64 = 2;
/// The tree that the writers change.
pub const TREE: &str = "diary";

/// The main function of a writer process. It writes until the test kills it. If the cluster takes a member
/// for dead, that member joins again as another client.
pub fn run_writer() {
    let orders = std::env::var(ORDERS).expect("orders");
    let mut words = orders.split(' ');
    let url = words.next().expect("a URL");
    let mut number = || words.next().expect("a number").parse::<u64>().expect("a number");
    let (first, seed, members) = (number(), number(), number());
    if words.next() == Some("leaves") {
        std::thread::spawn(|| {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            LEAVE.store(true, Ordering::Relaxed);
        });
    }
    // Ends the line with the test's name. Otherwise the first line of the diary would be lost.
    println!();
    let threads = if members == 1 { THREADS } else { 1 };
    std::thread::scope(|scope| {
        for member in 0..members {
            scope.spawn(move || take_part(url, first + member * KEYS, threads, seed ^ (member << 32)));
        }
    });
}

/// One member: joins and writes, under one identity after another.
fn take_part(url: &str, first: u64, threads: u64, seed: u64) {
    // The automatic rejoin is off: the member joins again below, so that it prints the id of every identity.
    // On a lossy network even the first join may need a second try.
    let joined = join_patiently(|| Cluster::open_with(url, ClusterOptions::new().rejoin(false)));
    let Some(mut cluster) = joined else { return };
    for round in 0.. {
        println!("id {}", cluster.id());
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let cluster = &cluster;
                scope.spawn(move || write(cluster, first, (thread, threads), seed ^ (round << 40)));
            }
        });
        // All threads have ended: the writer leaves, or the cluster took it for dead, or a server is gone.
        let Some(next) = join_patiently(|| cluster.join()) else { return };
        cluster = next;
    }
}

/// Joins and retries if that fails. Returns `None` if the writer must leave.
fn join_patiently<E: std::fmt::Display>(join: impl Fn() -> Result<Cluster, E>) -> Option<Cluster> {
    for _ in 0..MOST_JOINS {
        if LEAVE.load(Ordering::Relaxed) {
            return None;
        }
        match join() {
            Ok(cluster) => return Some(cluster),
            Err(error) => eprintln!("a writer waits: {error}"),
        }
        std::thread::sleep(JOIN_PAUSE.mul_f64(1.0 + 3.0 * fastrand::f64()));
    }
    panic!("a writer cannot join within {MOST_JOINS} tries");
}

/// Changes this thread's keys until the writer must leave or an operation fails.
fn write(cluster: &Cluster, first: u64, (thread, threads): (u64, u64), seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed ^ (thread << 20));
    let mut work = || -> Result<(), Error> {
        let tree = cluster.open_tree::<u64, u64>(TREE).or_else(|_| cluster.tree::<u64, u64>(TREE))?;
        let client = tree.client()?;
        while !LEAVE.load(Ordering::Relaxed) {
            let key = first + random.u64(..KEYS / threads) * threads + thread;
            let value = (random.u32(..3) > 0).then(|| random.u64(..));
            println!("{}", Note::Begin { key, value });
            match value {
                Some(value) => drop(client.insert(key, value)?),
                None => drop(client.remove(key)?),
            }
            println!("{}", Note::Done { key });
        }
        Ok(())
    };
    if let Err(error) = work() {
        eprintln!("a writer stops: {error}");
    }
}

/// Makes the tree of the writers, with some keys of every member in it, so that thousands of members do not
/// all begin in the same leaf. The writer of each ledger has `members`. Returns how many keys it has
/// inserted.
pub fn plant(cluster: &Cluster, ledgers: &[Arc<Mutex<Ledger>>], members: u64) -> Result<u64, Failure> {
    let client = cluster.tree::<u64, u64>(TREE)?.client()?;
    let mut planted = 0;
    for (ledger, slot) in ledgers.iter().zip(0..) {
        let mut ledger = ledger.lock().unwrap_or_else(PoisonError::into_inner);
        for key in (slot * members * KEYS..(slot + 1) * members * KEYS).step_by(PLANTED) {
            client.insert(key, key)?;
            ledger.enter(Note::Begin { key, value: Some(key) });
            ledger.enter(Note::Done { key });
            planted += 1;
        }
    }
    Ok(planted)
}

/// The path of this program.
pub fn this_program() -> std::path::PathBuf {
    std::env::current_exe().expect("this program")
}

/// A running writer, and the thread that reads its diary.
pub struct Writer {
    child: Child,
    /// The ids that the writer printed, in order.
    ids: Arc<Mutex<Vec<ComputeId>>>,
    reader: Option<JoinHandle<()>>,
}

impl Writer {
    /// Starts a writer that owns the keys of `slot`.
    pub fn start(url: &str, slot: u64, seed: u64, ledger: &Arc<Mutex<Ledger>>) -> Self {
        Self::start_by(Command::new(this_program()), url, slot, seed, ledger)
    }

    /// Starts a writer that leaves in order on request ([`Writer::leave`]).
    pub fn start_polite(url: &str, slot: u64, seed: u64, ledger: &Arc<Mutex<Ledger>>) -> Self {
        let orders = format!("{url} {} {seed} 1 leaves", slot * KEYS);
        Self::start_with(Command::new(this_program()), &orders, ledger)
    }

    /// Starts a writer with several members, each with its own identity, lease, connections and keys. It owns
    /// the keys of `slot`, among writers with as many members.
    pub fn start_crowd(url: &str, slot: u64, members: u64, ledger: &Arc<Mutex<Ledger>>) -> Self {
        let orders = format!("{url} {} {slot} {members}", slot * members * KEYS);
        Self::start_with(Command::new(this_program()), &orders, ledger)
    }

    /// Starts a writer with `command`. The writer's arguments are appended to it.
    pub fn start_by(command: Command, url: &str, slot: u64, seed: u64, ledger: &Arc<Mutex<Ledger>>) -> Self {
        Self::start_with(command, &format!("{url} {} {seed} 1", slot * KEYS), ledger)
    }

    fn start_with(mut command: Command, orders: &str, ledger: &Arc<Mutex<Ledger>>) -> Self {
        let mut child = command
            .args(["--ignored", "--exact", "kills::writer", "--nocapture", "--test-threads", "1"])
            .env(ORDERS, orders)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a writer starts");
        let mut diary = BufReader::new(child.stdout.take().expect("piped"));
        let ledger = Arc::clone(ledger);
        let ids = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&ids);
        let reader = std::thread::spawn(move || {
            let mut line = String::new();
            // A line without an end does not count: the writer died while it wrote the line.
            while diary.read_line(&mut line).is_ok_and(|read| read > 0) && line.ends_with('\n') {
                if let Some(Ok(id)) = line.trim_end().strip_prefix("id ").map(str::parse) {
                    told.lock().unwrap_or_else(PoisonError::into_inner).push(ComputeId(id));
                } else if let Ok(note) = line.trim_end().parse() {
                    ledger.lock().unwrap_or_else(PoisonError::into_inner).enter(note);
                }
                line.clear();
            }
            let _ = diary.read_to_end(&mut Vec::new());
        });
        Self { child, ids, reader: Some(reader) }
    }

    /// The writer's present id in the cluster.
    pub fn id(&self) -> ComputeId {
        self.ids().last().copied().unwrap_or(ComputeId::NOBODY)
    }

    /// All ids that the writer has had in the cluster so far.
    pub fn ids(&self) -> Vec<ComputeId> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks the writer to leave in order and waits for its end. Afterwards the diary has been read to the
    /// end. Returns whether the writer left in time.
    pub fn leave(&mut self) -> bool {
        drop(self.child.stdin.take());
        let end = Instant::now() + LEAVE_PATIENCE;
        while Instant::now() < end {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                self.kill();
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.kill();
        false
    }

    /// Sends a signal that stops or continues the writer.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it lives");
    }

    /// Kills the writer. Afterwards its diary has been read to the end.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Waits until the diary contains `changes` more acknowledged changes.
pub fn await_changes(ledger: &Mutex<Ledger>, changes: u64, limit: Duration) -> Result<(), Failure> {
    let acknowledged = || ledger.lock().unwrap_or_else(PoisonError::into_inner).acknowledged();
    let (end, enough) = (Instant::now() + limit, acknowledged() + changes);
    while acknowledged() < enough {
        if Instant::now() > end {
            return Err(format!("{} of {enough} changes within {limit:?}", acknowledged()).into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Waits until all dead clients are recovered, then checks that the tree is sound.
pub fn settle(cluster: &Cluster, limit: Duration) -> Result<(), Failure> {
    let end = Instant::now() + limit;
    loop {
        let members = cluster.members()?;
        let others =
            members.iter().filter(|member| member.id != cluster.id() || member.standing != Standing::Live);
        if others.clone().count() == 0 {
            break;
        }
        if Instant::now() > end {
            let others: Vec<_> = others.collect();
            return Err(format!("not recovered within {limit:?}: {others:?}").into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let check = cluster.open_tree::<u64, u64>(TREE)?.client()?.check()?;
    assert!(check.is_clean(), "{check:?}");
    Ok(())
}

/// Looks up every key that any diary names. Returns how many changes were acknowledged, and how many keys may
/// hold one of several values.
pub fn verify(cluster: &Cluster, ledgers: &[Arc<Mutex<Ledger>>]) -> Result<(u64, usize), Failure> {
    let client: Client<u64, u64> = cluster.open_tree(TREE)?.client()?;
    let (mut acknowledged, mut uncertain) = (0, 0);
    for ledger in ledgers {
        let ledger = ledger.lock().unwrap_or_else(PoisonError::into_inner);
        ledger.verify(&client)?;
        acknowledged += ledger.acknowledged();
        uncertain += ledger.uncertain();
    }
    Ok((acknowledged, uncertain))
}
