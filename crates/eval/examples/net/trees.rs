//! Gets and inserts of a tree on a memory server.

use crate::options::Options;
use crate::{BATCH, Transport, WINDOW, What};
use sherman::{BulkOptions, Client, Cluster, OpKind, Session, Tree, TreeOptions};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::error::Error;
use std::time::Instant;

/// One client of the tree.
pub(crate) struct Trees {
    keys: u64,
    random: RefCell<fastrand::Rng>,
    session: Session<u64, u64>,
    client: Client<u64, u64>,
}

impl Trees {
    /// Opens the tree, loads it if it is empty, and reads every leaf once, so that the cache is warm.
    pub(crate) fn open(options: &Options, transport: Transport) -> Result<Self, Box<dyn Error>> {
        let cluster = Cluster::open(&options.tree.url(transport))?;
        let tree: Tree<u64, u64> = cluster.tree_with("bench", &TreeOptions::new().leaf_bytes(1024))?;
        let client = tree.client()?;
        if client.get(0)?.is_none() {
            tree.bulk_load((0..options.keys).map(|key| (key, key)), &BulkOptions::new())?;
        }
        let session = tree.session()?;
        let all: Vec<u64> = (0..options.keys).step_by(8).collect();
        for keys in all.chunks(BATCH) {
            for found in session.run(session.get_many(keys))? {
                found.ok_or("a key is missing")?;
            }
        }
        let random = RefCell::new(fastrand::Rng::with_seed(7));
        Ok(Self { keys: options.keys, random, session, client })
    }

    fn key(&self) -> u64 {
        self.random.borrow_mut().u64(..self.keys)
    }

    /// Runs for one window and returns the number of operations.
    pub(crate) fn run(&self, what: What, depth: u64) -> Result<u64, Box<dyn Error>> {
        let begun = Instant::now();
        let mut done = 0;
        match (what, depth) {
            (What::Get, 1) => {
                while begun.elapsed() < WINDOW {
                    self.client.get(self.key())?.ok_or("a key is missing")?;
                    done += 1;
                }
            }
            (What::Insert, 1) => {
                while begun.elapsed() < WINDOW {
                    self.client.insert(self.key(), done)?.ok_or("a key is missing")?;
                    done += 1;
                }
            }
            (What::Get, _) => return self.in_flight(depth, |_| self.session.get(self.key())),
            (What::Insert, _) => return self.in_flight(depth, |at| self.session.insert(self.key(), at)),
            (What::GetMany, _) => {
                while begun.elapsed() < WINDOW {
                    let keys: Vec<u64> = (0..BATCH).map(|_| self.key()).collect();
                    for found in self.session.run(self.session.get_many(&keys))? {
                        found.ok_or("a key is missing")?;
                        done += 1;
                    }
                }
            }
            _ => {
                while begun.elapsed() < WINDOW {
                    let entries: Vec<(u64, u64)> = (0..BATCH).map(|_| (self.key(), done)).collect();
                    for old in self.session.run(self.session.insert_many(&entries))? {
                        old.ok_or("a key is missing")?;
                        done += 1;
                    }
                }
            }
        }
        Ok(done)
    }

    /// Keeps `depth` operations in flight. Waits for the oldest before it starts another.
    fn in_flight<F: Future<Output = Result<Option<u64>, sherman::Error>> + Unpin>(
        &self,
        depth: u64,
        start: impl Fn(u64) -> F,
    ) -> Result<u64, Box<dyn Error>> {
        let begun = Instant::now();
        self.session.run(async {
            let (mut flight, mut done) = (VecDeque::new(), 0);
            loop {
                let over = done % 256 == 0 && begun.elapsed() >= WINDOW;
                while !over && (flight.len() as u64) < depth {
                    flight.push_back(start(done));
                }
                let Some(oldest) = flight.pop_front() else { return Ok(done) };
                oldest.await?.ok_or("a key is missing")?;
                done += 1;
                if over {
                    for operation in flight {
                        operation.await?.ok_or("a key is missing")?;
                        done += 1;
                    }
                    return Ok(done);
                }
            }
        })
    }

    /// Prints how many round trips the operations took.
    pub(crate) fn print_round_trips(&self, transport: Transport) {
        let mut stats = self.session.stats();
        stats.merge(&self.client.stats());
        for (name, kind) in [("get", OpKind::Get), ("insert", OpKind::Update)] {
            let kind = stats.kind(kind);
            let trips: u64 = kind.round_trips().iter().map(|(trips, count)| *trips as u64 * count).sum();
            let mean = trips as f64 / kind.operations.max(1) as f64;
            println!("{} {name}: {mean:.3} round trips", transport.name());
        }
        println!("{} retries: {:?}, handovers: {}", transport.name(), stats.retries(), stats.handovers);
    }
}
