//! Measures what two copies of every volume cost over a network. `scripts/replica-bench` starts the clusters
//! and then this program.
//!
//! Three clusters with two processes each: plain memory servers, hosts with one copy of every volume, and
//! hosts with two. Each has a tree of 1 KiB leaves with 8-byte keys and values, uniform keys that all exist,
//! and a warm cache. One thread keeps operations of a session in flight: gets, inserts (which replace
//! values), and half of each in random order. With one in flight a blocking client runs them.
//!
//! The program measures one window of each row on each cluster in turn, in another order each time, and then
//! the next window. So other load on the machine affects all clusters alike. A rate is the median of its
//! windows, and so is a ratio, which is formed window by window.

use sherman::{BulkOptions, Client, Cluster, Error, OpKind, Session, Tree, TreeOptions};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

type Failure = Box<dyn std::error::Error>;

/// The number of keys in a batch that warms the cache.
const BATCH: usize = 2048;

/// The options of the command line.
struct Options {
    /// The clusters: a name and a URL.
    clusters: Vec<(String, String)>,
    keys: u64,
    windows: usize,
    window: Duration,
    depths: Vec<usize>,
}

impl Options {
    fn parse() -> Result<Self, Failure> {
        let window = Duration::from_millis(500);
        let mut options =
            Self { clusters: Vec::new(), keys: 1_000_000, windows: 7, window, depths: vec![64, 1] };
        let mut arguments = std::env::args().skip(1);
        while let Some(name) = arguments.next() {
            let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
            match name.as_str() {
                "--cluster" => {
                    let (name, url) = value.split_once('=').ok_or("--cluster is NAME=URL")?;
                    options.clusters.push((name.to_owned(), url.to_owned()));
                }
                "--keys" => options.keys = value.parse()?,
                "--windows" => options.windows = value.parse()?,
                "--milliseconds" => options.window = Duration::from_millis(value.parse()?),
                "--depth" => options.depths = vec![value.parse()?],
                _ => return Err(format!("unknown option {name}").into()),
            }
        }
        if options.clusters.len() < 2 || options.windows == 0 || options.depths.contains(&0) {
            return Err("two clusters, a window and a depth are needed: use scripts/replica-bench".into());
        }
        Ok(options)
    }
}

/// A mix of operations: its name, and how many of 1,024 operations are inserts.
const MIXES: [(&str, u32); 3] = [("get", 0), ("insert", 1024), ("write-intensive", 512)];

/// One of two operations of a session.
enum Either<A, B> {
    Get(A),
    Insert(B),
}

impl<O, A: Future<Output = O> + Unpin, B: Future<Output = O> + Unpin> Future for Either<A, B> {
    type Output = O;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<O> {
        match self.get_mut() {
            Self::Get(get) => Pin::new(get).poll(cx),
            Self::Insert(insert) => Pin::new(insert).poll(cx),
        }
    }
}

/// A tree on one of the clusters.
struct Side {
    name: String,
    keys: u64,
    window: Duration,
    random: RefCell<fastrand::Rng>,
    session: Session<u64, u64>,
    client: Client<u64, u64>,
}

impl Side {
    /// Opens the tree, loads it if it is empty, and reads every leaf once, so that the cache is warm.
    fn open(name: &str, url: &str, options: &Options) -> Result<Self, Failure> {
        let cluster = Cluster::open(url)?;
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
        let (keys, window) = (options.keys, options.window);
        Ok(Self { name: name.to_owned(), keys, window, random, session, client })
    }

    /// Draws a key, and whether to insert it.
    fn draw(&self, inserts: u32) -> (u64, bool) {
        let mut random = self.random.borrow_mut();
        (random.u64(..self.keys), random.u32(..1024) < inserts)
    }

    /// Runs for one window. Returns the operations per second.
    fn run(&self, inserts: u32, depth: usize) -> Result<f64, Failure> {
        let begun = Instant::now();
        let done = if depth == 1 { self.one(inserts)? } else { self.many(inserts, depth)? };
        Ok(done as f64 / begun.elapsed().as_secs_f64())
    }

    fn one(&self, inserts: u32) -> Result<u64, Failure> {
        let (begun, mut done) = (Instant::now(), 0);
        while begun.elapsed() < self.window {
            let (key, insert) = self.draw(inserts);
            let found = if insert { self.client.insert(key, done)? } else { self.client.get(key)? };
            found.ok_or("a key is missing")?;
            done += 1;
        }
        Ok(done)
    }

    /// Keeps `depth` operations in flight. Waits for the oldest before it starts another.
    fn many(&self, inserts: u32, depth: usize) -> Result<u64, Failure> {
        let start = |value: u64| match self.draw(inserts) {
            (key, true) => Either::Insert(self.session.insert(key, value)),
            (key, false) => Either::Get(self.session.get(key)),
        };
        let begun = Instant::now();
        self.session.run(async {
            let (mut flight, mut done, mut over) = (VecDeque::new(), 0, false);
            loop {
                over |= done % 256 == 0 && begun.elapsed() >= self.window;
                while !over && flight.len() < depth {
                    flight.push_back(start(done));
                }
                let Some(oldest) = flight.pop_front() else { return Ok(done) };
                let found: Result<Option<u64>, Error> = oldest.await;
                found?.ok_or("a key is missing")?;
                done += 1;
            }
        })
    }

    /// The mean round trips and the mean bytes written of one kind of operation.
    fn cost(&self, kind: OpKind) -> (f64, f64) {
        let mut stats = self.session.stats();
        stats.merge(&self.client.stats());
        let kind = stats.kind(kind);
        let trips: u64 = kind.round_trips().iter().map(|(trips, count)| *trips as u64 * count).sum();
        let all = kind.operations.max(1) as f64;
        (trips as f64 / all, kind.bytes_written as f64 / all)
    }
}

/// The median, the least and the most of these numbers.
fn spread(numbers: &[f64]) -> [f64; 3] {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    [sorted[sorted.len() / 2], sorted[0], sorted[sorted.len() - 1]]
}

fn main() -> Result<(), Failure> {
    let options = Options::parse()?;
    let open = |(name, url): &(String, String)| Side::open(name, url, &options);
    let sides = options.clusters.iter().map(open).collect::<Result<Vec<Side>, Failure>>()?;
    let rows: Vec<_> = options.depths.iter().flat_map(|depth| MIXES.map(|mix| (*depth, mix))).collect();
    // For each row and each cluster, the rate in each window.
    let mut rates = vec![vec![Vec::new(); sides.len()]; rows.len()];
    for window in 0..options.windows {
        for ((depth, (_, inserts)), rates) in rows.iter().zip(&mut rates) {
            for turn in 0..sides.len() {
                let at = (turn + window) % sides.len();
                rates[at].push(sides[at].run(*inserts, *depth)?);
            }
        }
    }
    let names: Vec<&str> = sides.iter().map(|side| side.name.as_str()).collect();
    let base = names.len() - 2;
    println!(
        "| in flight | | {} | {} over {} | least–most |",
        names.join(" | "),
        names[base + 1],
        names[base]
    );
    println!("|--:|---|{}--:|--:|", "--:|".repeat(names.len()));
    for ((depth, (mix, _)), rates) in rows.iter().zip(&rates) {
        let medians: Vec<String> = rates.iter().map(|all| format!("{:.0}", spread(all)[0])).collect();
        let ratios: Vec<f64> = rates[base + 1].iter().zip(&rates[base]).map(|(two, one)| two / one).collect();
        let [median, least, most] = spread(&ratios);
        println!("| {depth} | {mix} | {} | **{median:.2}** | {least:.2}–{most:.2} |", medians.join(" | "));
    }
    for side in &sides {
        let ((gets, _), (inserts, bytes)) = (side.cost(OpKind::Get), side.cost(OpKind::Update));
        println!(
            "{}: a get takes {gets:.3} round trips, an insert {inserts:.3} and writes {bytes:.1} bytes",
            side.name
        );
    }
    Ok(())
}
