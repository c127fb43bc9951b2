//! Measures the old format of leaves and its techniques (`+stamped`) beside the defaults (`ours`) on every
//! real transport: gets and inserts on memory of this process, on mapped memory of another process, and over
//! TCP. `scripts/transport-bench` starts the servers and then this program.
//!
//! Each transport has one cluster with two trees, one for each variant, loaded in bulk. A compute server of
//! its own uses each tree. A measurement is a warm-up and then a fixed time, as in `sherman bench`. A third
//! of the inserts put a new key. After each measurement its new keys are removed, so the trees keep their
//! sizes. Leaves that have split stay as they are. At the end both trees are checked.
//!
//! Both variants of a cell run directly after each other, and each round runs them in the other order. So a
//! host that slows down slows both. The ratio of a cell is the median of its rounds' ratios.
//!
//! ```sh
//! scripts/transport-bench [--keys 10000000] [--seconds 0.6] [--rounds 3] [--only embedded|shm|tcp]
//! ```

use sherman_eval::bench::{Loaded, Measurement};
use sherman_eval::{BenchError, BenchOptions, Length, Variant, Workload};
use std::error::Error;

const OLD: Variant = Variant::Stamped;
const NEW: Variant = Variant::Ours;
/// The skew of the skewed cells.
const SKEW: f64 = 0.99;
/// Operations in flight over TCP.
const TCP_DEPTH: usize = 64;
/// Keys in each call of `get_many` and `insert_many`. 64 of them are in flight at once.
const BATCH: usize = 1024;
/// Threads, and operations in flight on each, of the cells in which inserts wait for each other.
const CROWD: (usize, usize) = (2, 32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Embedded,
    Shm,
    Tcp,
}

impl Transport {
    const ALL: [Self; 3] = [Self::Embedded, Self::Shm, Self::Tcp];

    fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Shm => "shm",
            Self::Tcp => "tcp",
        }
    }
}

struct Options {
    shm: Option<String>,
    tcp: Option<String>,
    keys: u64,
    seconds: f64,
    rounds: usize,
    only: Option<Transport>,
    /// The memory of each server in this process.
    memory: String,
}

impl Options {
    fn parse() -> Result<Self, Box<dyn Error>> {
        let mut options = Self {
            shm: None,
            tcp: None,
            keys: 10_000_000,
            seconds: 0.6,
            rounds: 3,
            only: None,
            memory: "4GiB".to_owned(),
        };
        let mut words = std::env::args().skip(1);
        while let Some(name) = words.next() {
            let value = words.next().ok_or_else(|| format!("{name} needs a value"))?;
            match name.as_str() {
                "--shm" => options.shm = Some(value),
                "--tcp" => options.tcp = Some(value),
                "--keys" => options.keys = value.parse()?,
                "--seconds" => options.seconds = value.parse()?,
                "--rounds" => options.rounds = value.parse()?,
                "--memory" => options.memory = value,
                "--only" => {
                    let found = Transport::ALL.into_iter().find(|transport| transport.name() == value);
                    options.only = Some(found.ok_or("--only is embedded, shm or tcp")?);
                }
                _ => return Err(format!("{name} is not known").into()),
            }
        }
        if options.rounds == 0 {
            return Err("at least one round is needed".into());
        }
        Ok(options)
    }

    /// The cluster of a transport.
    fn cluster(&self, transport: Transport) -> Result<String, String> {
        let missing = || format!("--{} needs the URL of a server", transport.name());
        match transport {
            Transport::Embedded => Ok(format!("embedded:?servers=2&memory={}", self.memory)),
            Transport::Shm => self.shm.clone().ok_or_else(missing),
            Transport::Tcp => self.tcp.clone().ok_or_else(missing),
        }
    }

    /// Loads a tree for each variant into the cluster of a transport.
    fn load(&self, transport: Transport) -> Result<[Loaded; 2], Box<dyn Error>> {
        let of = |variant| BenchOptions { variant, keys: self.keys, threads: 2, ..BenchOptions::default() };
        let cluster = Some(self.cluster(transport)?);
        let old = Loaded::new(&BenchOptions { cluster, ..of(OLD) }, &|_| ())?;
        let new = match old.beside(&of(NEW), &|_| ()) {
            Ok(new) => new,
            Err(error) => return old.close_after(Err(error)).map_err(Box::from),
        };
        for (variant, loaded) in [(OLD, &old), (NEW, &new)] {
            let seconds = loaded.load_time().as_secs_f64();
            eprintln!(
                "{}: loaded {} keys for {} in {seconds:.1} s",
                transport.name(),
                self.keys,
                variant.name()
            );
        }
        Ok([old, new])
    }
}

/// One row of the table.
struct Cell {
    transport: Transport,
    workload: Workload,
    zipf: f64,
    threads: usize,
    depth: usize,
    /// Keys in each call, which has `TCP_DEPTH` of them in flight; 1 for single operations.
    batch: usize,
    /// The rates of the old and of the new variant in each round, in millions per second.
    rates: Vec<[f64; 2]>,
}

impl Cell {
    /// Measures both trees, the new variant first in every second round.
    fn round(&mut self, options: &Options, trees: &mut [Loaded; 2], round: usize) -> Result<(), BenchError> {
        let measurement = Measurement {
            workload: self.workload,
            zipf: self.zipf,
            threads: self.threads,
            coroutines: if self.batch > 1 { 1 } else { self.depth },
            batch: self.batch,
            length: Length::Seconds(options.seconds),
            seed: 1 + round as u64,
        };
        let mut rates = [0.0; 2];
        for side in [round % 2, 1 - round % 2] {
            rates[side] = trees[side].measure(&measurement, &|_| ())?.throughput_mops;
        }
        // Afterwards, so that both variants are measured directly after each other.
        for tree in trees {
            tree.remove_new()?;
        }
        self.rates.push(rates);
        Ok(())
    }

    fn describe(&self) -> String {
        let what = match (self.workload, self.batch) {
            (Workload::ReadOnly, 1) => "get",
            (Workload::ReadOnly, _) => "get_many",
            (_, 1) => "insert",
            _ => "insert_many",
        };
        let keys = if self.zipf == 0.0 { "uniform".to_owned() } else { format!("zipf {}", self.zipf) };
        format!("| {} | {what} | {keys} | {} × {} |", self.transport.name(), self.threads, self.depth)
    }
}

/// The median, the lowest and the highest of some numbers.
fn spread(numbers: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut sorted: Vec<f64> = numbers.collect();
    sorted.sort_by(f64::total_cmp);
    [sorted[sorted.len() / 2], sorted[0], sorted[sorted.len() - 1]]
}

/// The cells of one transport.
fn cells(transport: Transport) -> Vec<Cell> {
    let clients: &[(usize, usize)] =
        if transport == Transport::Tcp { &[(1, TCP_DEPTH)] } else { &[(1, 1), (2, 1)] };
    let mut shapes = Vec::new();
    for &clients in clients {
        for workload in [Workload::ReadOnly, Workload::WriteOnly] {
            shapes.extend([0.0, SKEW].map(|zipf| (workload, zipf, clients)));
        }
    }
    let batched = if transport == Transport::Tcp { shapes.clone() } else { Vec::new() };
    shapes.push((Workload::WriteOnly, SKEW, CROWD));
    let cell = |batch| {
        move |(workload, zipf, (threads, depth))| Cell {
            transport,
            workload,
            zipf,
            threads,
            depth,
            batch,
            rates: Vec::new(),
        }
    };
    shapes.into_iter().map(cell(1)).chain(batched.into_iter().map(cell(BATCH))).collect()
}

/// Measures all cells of a transport, round by round, and checks the trees.
fn measure(
    options: &Options,
    transport: Transport,
    trees: &mut [Loaded; 2],
) -> Result<Vec<Cell>, BenchError> {
    let mut cells = cells(transport);
    let count = cells.len();
    for round in 0..options.rounds {
        for (at, cell) in cells.iter_mut().enumerate() {
            let (now, rounds) = (round + 1, options.rounds);
            eprintln!("round {now} of {rounds}, {} of {count}: {}", at + 1, cell.describe());
            cell.round(options, trees, round)?;
        }
    }
    trees.iter().try_for_each(Loaded::check)?;
    Ok(cells)
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse()?;
    let mut cells = Vec::new();
    for transport in Transport::ALL {
        if options.only.is_some_and(|only| only != transport) {
            continue;
        }
        let mut trees = options.load(transport)?;
        let outcome = measure(&options, transport, &mut trees);
        // The second tree's compute server leaves before the cluster of the first one ends.
        let [old, new] = trees;
        let outcome = new.close_after(outcome);
        cells.extend(old.close_after(outcome)?);
    }
    let (old, new) = (OLD.name(), NEW.name());
    println!("{} keys, {} rounds of {} s; Mops, medians", options.keys, options.rounds, options.seconds);
    println!("\n| transport | | keys | threads × in flight | `{old}` | `{new}` | ratio | lowest–highest |");
    println!("|---|---|---|--:|--:|--:|--:|--:|");
    for cell in &cells {
        let [before, after] = [0, 1].map(|side| spread(cell.rates.iter().map(|rates| rates[side]))[0]);
        let [ratio, lowest, highest] = spread(cell.rates.iter().map(|[old, new]| new / old));
        println!(
            "{} {before:.3} | {after:.3} | **{ratio:.2}** | {lowest:.2}–{highest:.2} |",
            cell.describe()
        );
    }
    Ok(())
}
