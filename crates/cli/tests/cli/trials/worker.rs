//! A worker: a process of several threads, each with a client of its own, that records what it does.
//!
//! It takes orders from its standard input, one per line, and answers on its standard output:
//!
//! | order | what it does |
//! |---|---|
//! | `go ROUND` | every thread works on the keys of this round until the next order |
//! | `stop` | every thread ends its operation; then all calls are printed, and `done` |
//! | end of input | leaves the cluster and ends |
//!
//! It prints a line `event …` when an identity ends and when it has joined again, and a line
//! `error BEGAN ENDED …` for every operation that failed.

use super::record::{line, now};
use super::{ROUND_KEYS, TREE, key_of};
use sherman::{Client, Cluster, ClusterOptions, Error, Event, Exchange};
use sherman_sim::history::{Call, Fate, Op, Outcome};
use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// The variable with a worker's arguments: URL, the number of its first thread, and how many threads it has.
pub const ORDERS: &str = "SHERMAN_TEST_TRIAL";
/// How long an operation may wait before it fails. It is longer than every pause that a trial allows.
const TIMEOUT: Duration = Duration::from_secs(25);
/// How long a worker tries to join for the first time.
const JOINS_FOR: Duration = Duration::from_secs(30);
/// The pause after an error, so that a thread that only fails prints little.
const AFTER_ERROR: Duration = Duration::from_millis(20);
/// Keys of a scan.
const SCANNED: u64 = 4;

/// What is added to a thread's number for what it reads by ranges, so that a report shows it.
const SCANS: u32 = 1000;

static STOP: AtomicBool = AtomicBool::new(true);

/// The main function of a worker.
pub fn main() {
    let orders = std::env::var(ORDERS).expect("orders");
    let mut words = orders.split(' ');
    let url = words.next().expect("a URL");
    let mut number = || words.next().expect("a number").parse::<u32>().expect("a number");
    let (first, threads) = (number(), number());
    // A thread that panics ends the process: otherwise the judge would wait for it.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::exit(101);
    }));
    // Ends the line with the test's name.
    println!();
    let cluster = join(url);
    let (calls, called) = channel();
    let go: Vec<Sender<u64>> = (first..first + threads)
        .map(|thread| {
            let (go, rounds) = channel();
            let (cluster, calls) = (cluster.clone(), calls.clone());
            std::thread::spawn(move || work(&cluster, thread, &rounds, &calls));
            go
        })
        .collect();
    println!("ready");
    for order in std::io::stdin().lock().lines().map_while(Result::ok) {
        if let Some(round) = order.strip_prefix("go ") {
            STOP.store(false, Ordering::SeqCst);
            let round = round.parse().expect("a round");
            go.iter().for_each(|go| go.send(round).expect("a thread that works"));
        } else {
            STOP.store(true, Ordering::SeqCst);
            // All calls first: a thread may print until it has ended its last operation.
            let calls: Vec<Vec<Call>> = called.iter().take(go.len()).collect();
            tell(calls.into_iter().flatten());
        }
    }
}

fn tell(calls: impl Iterator<Item = Call>) {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for call in calls {
        writeln!(out, "{}", line(&call)).expect("a reader");
    }
    writeln!(out, "done").and_then(|()| out.flush()).expect("a reader");
}

fn join(url: &str) -> Cluster {
    let began = Instant::now();
    loop {
        let options = ClusterOptions::new().timeout(TIMEOUT).on_event(|event| match event {
            Event::IdentityEnded { client, reason } => println!("event {} {client} ended: {reason}", now()),
            Event::Rejoined { client, after, attempts } => {
                println!("event {} rejoined as {client} after {after:?}, {attempts} attempts", now());
            }
            event => println!("event {} {event:?}", now()),
        });
        match Cluster::open_with(url, options) {
            Ok(cluster) => return cluster,
            Err(error) if error.may_pass() && began.elapsed() < JOINS_FOR => {
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(error) => panic!("cannot join {url}: {error}"),
        }
    }
}

fn work(cluster: &Cluster, thread: u32, rounds: &Receiver<u64>, calls: &Sender<Vec<Call>>) {
    let client = loop {
        match cluster.tree::<u64, u64>(TREE).and_then(|tree| tree.client()) {
            Ok(client) => break client,
            Err(error) => {
                println!("event {} no client yet: {error}", now());
                std::thread::sleep(AFTER_ERROR);
            }
        }
    };
    let mut hand = Hand { client, thread, random: fastrand::Rng::with_seed(u64::from(thread)), written: 0 };
    for round in rounds {
        if calls.send(hand.work(round)).is_err() {
            return;
        }
    }
}

/// A thread of a worker.
struct Hand {
    client: Client<u64, u64>,
    thread: u32,
    random: fastrand::Rng,
    /// How many values it has made. No two writes of a trial have the same value.
    written: u64,
}

impl Hand {
    /// Works until the order to stop, and returns the calls.
    fn work(&mut self, round: u64) -> Vec<Call> {
        let mut calls = Vec::new();
        let mut seen: BTreeMap<u64, Option<u64>> = BTreeMap::new();
        while !STOP.load(Ordering::Relaxed) {
            let slot = self.random.u64(..ROUND_KEYS);
            // Threads with even numbers mostly write, the others mostly read.
            let writes = self.random.u32(..10) < if self.thread.is_multiple_of(2) { 8 } else { 2 };
            if !writes && self.random.u32(..50) == 0 {
                self.scan(round, slot, &mut calls);
                continue;
            }
            let key = key_of(round, slot);
            let op = if writes { self.change(seen.get(&key).copied().flatten()) } else { Op::Get };
            let invoked = now();
            let result = self.execute(key, op);
            let fate = self.fate(invoked, result);
            match (op, fate) {
                (Op::Insert(value), Fate::Returned { .. }) => drop(seen.insert(key, Some(value))),
                (_, Fate::Returned { outcome: Outcome::Value(value), .. }) => drop(seen.insert(key, value)),
                _ => {}
            }
            calls.push(Call { client: self.thread, key, op, invoked, fate });
        }
        calls
    }

    fn value(&mut self) -> u64 {
        self.written += 1;
        (u64::from(self.thread) << 40) | self.written
    }

    fn change(&mut self, expected: Option<u64>) -> Op {
        match self.random.u32(..10) {
            0 => Op::Remove,
            1 => Op::InsertIfAbsent(self.value()),
            2 | 3 => Op::CompareExchange { expected, new: Some(self.value()) },
            _ => Op::Insert(self.value()),
        }
    }

    fn execute(&self, key: u64, op: Op) -> Result<Outcome, Error> {
        Ok(Outcome::Value(match op {
            Op::Get => self.client.get(key)?,
            Op::Insert(value) => self.client.insert(key, value)?,
            Op::Remove => self.client.remove(key)?,
            Op::InsertIfAbsent(value) => self.client.insert_if_absent(key, value)?,
            Op::CompareExchange { expected, new } => {
                return Ok(Outcome::Exchange(match self.client.compare_exchange(key, expected, new)? {
                    Exchange::Done => Ok(()),
                    Exchange::Found(found) => Err(Some(found)),
                    Exchange::Absent => Err(None),
                }));
            }
        }))
    }

    fn fate(&self, began: u64, result: Result<Outcome, Error>) -> Fate {
        let at = now();
        match result {
            Ok(outcome) => return Fate::Returned { at, outcome },
            Err(ref error) => println!("error {began} {at} {error}"),
        }
        std::thread::sleep(AFTER_ERROR);
        match result {
            Err(Error::OutcomeUnknown { .. }) => Fate::Unknown,
            _ => Fate::Failed,
        }
    }

    /// Reads some keys of the round by a range. Each key counts as read at some moment of the range.
    fn scan(&mut self, round: u64, first: u64, calls: &mut Vec<Call>) {
        let last = (first + SCANNED).min(ROUND_KEYS) - 1;
        let invoked = now();
        let range = self.client.range(key_of(round, first)..=key_of(round, last));
        let found: Result<BTreeMap<u64, u64>, Error> = range.collect();
        let at = now();
        match found {
            Ok(found) => calls.extend((first..=last).map(|slot| {
                let key = key_of(round, slot);
                let outcome = Outcome::Value(found.get(&key).copied());
                let client = self.thread + SCANS;
                Call { client, key, op: Op::Get, invoked, fate: Fate::Returned { at, outcome } }
            })),
            Err(error) => {
                println!("error {invoked} {at} {error}");
                std::thread::sleep(AFTER_ERROR);
            }
        }
    }
}
