//! Measures gets and inserts on memory that another process serves and this process maps, next to the same
//! operations on memory of this process. `scripts/shm-bench` starts the server and then this program.
//!
//! The tree has 1 KiB leaves, 8-byte keys and values, uniform keys that all exist, and a warm cache. Clients
//! are blocking, one per thread. The program measures one window of every row, then the next window of every
//! row. So other load on the host affects all rows alike. A row's figure is its median window. The ratio is
//! that of the medians.
//!
//! ```sh
//! scripts/shm-bench [--keys 1000000] [--windows 9] [--threads 1,2]
//! ```

use sherman::{BulkOptions, Client, Cluster, Tree, TreeOptions};
use std::error::Error;
use std::time::{Duration, Instant};

/// How long one measurement lasts.
const WINDOW: Duration = Duration::from_millis(250);
/// The number of operations between two reads of the clock.
const STRIDE: u64 = 64;

struct Options {
    url: String,
    keys: u64,
    windows: usize,
    threads: Vec<usize>,
}

impl Options {
    fn parse() -> Result<Self, Box<dyn Error>> {
        let mut options = Self { url: String::new(), keys: 1_000_000, windows: 9, threads: vec![1, 2] };
        let mut words = std::env::args().skip(1);
        while let Some(name) = words.next() {
            let value = words.next().ok_or_else(|| format!("{name} needs a value"))?;
            match name.as_str() {
                "--url" => options.url = value,
                "--keys" => options.keys = value.parse()?,
                "--windows" => options.windows = value.parse()?,
                "--threads" => {
                    options.threads = value.split(',').map(str::parse).collect::<Result<_, _>>()?
                }
                _ => return Err(format!("{name} is not known").into()),
            }
        }
        if options.url.is_empty() || options.keys == 0 || options.windows == 0 {
            return Err("a --url is needed, and at least one key and window".into());
        }
        Ok(options)
    }
}

/// One backend, with one client per thread.
struct Side {
    _cluster: Cluster,
    clients: Vec<Client<u64, u64>>,
}

impl Side {
    fn open(url: &str, options: &Options) -> Result<Self, Box<dyn Error>> {
        let cluster = Cluster::open(url)?;
        let tree: Tree<u64, u64> = cluster.tree_with("bench", &TreeOptions::new().leaf_bytes(1024))?;
        tree.bulk_load((0..options.keys).map(|key| (key, key)), &BulkOptions::new())?;
        let most = options.threads.iter().copied().max().unwrap_or(1);
        let clients = (0..most).map(|_| tree.client()).collect::<Result<Vec<_>, _>>()?;
        for key in (0..options.keys).step_by(8) {
            clients[0].get(key)?.ok_or("a key is missing")?;
        }
        Ok(Self { _cluster: cluster, clients })
    }

    /// Runs one window and returns its operations per second.
    fn run(&mut self, threads: usize, inserts: bool, keys: u64, seed: u64) -> Result<f64, String> {
        let begun = Instant::now();
        let work = |client: &mut Client<u64, u64>, seed: u64| -> Result<u64, String> {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut done = 0;
            while begun.elapsed() < WINDOW {
                for _ in 0..STRIDE {
                    let key = random.u64(..keys);
                    let found = if inserts { client.insert(key, done) } else { client.get(key) };
                    found.map_err(|error| error.to_string())?.ok_or("a key is missing")?;
                    done += 1;
                }
            }
            Ok(done)
        };
        let done: Result<Vec<u64>, String> = std::thread::scope(|scope| {
            let clients = self.clients.iter_mut().take(threads).zip(seed..);
            let threads: Vec<_> =
                clients.map(|(client, seed)| scope.spawn(move || work(client, seed))).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().map_err(|_| "a thread panicked".to_owned())?)
                .collect()
        });
        Ok(done?.iter().sum::<u64>() as f64 / begun.elapsed().as_secs_f64())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse()?;
    let mut sides = [Side::open("embedded:?memory=1GiB", &options)?, Side::open(&options.url, &options)?];
    let kinds: Vec<(usize, bool)> =
        options.threads.iter().flat_map(|threads| [false, true].map(|inserts| (*threads, inserts))).collect();
    let mut rates = vec![[Vec::new(), Vec::new()]; kinds.len()];
    // One window more than is counted: the first touches memory for the first time.
    for window in 0..=options.windows {
        for ((threads, inserts), rates) in kinds.iter().zip(&mut rates) {
            for (side, rates) in sides.iter_mut().zip(rates) {
                let rate = side.run(*threads, *inserts, options.keys, 1_000 * window as u64)?;
                if window > 0 {
                    rates.push(rate);
                }
            }
        }
    }
    println!("{} keys, medians of {} windows of {WINDOW:?}\n", options.keys, options.windows);
    println!("| threads | | embedded | slowest–fastest | shm | slowest–fastest | ratio |");
    println!("|--:|---|--:|--:|--:|--:|--:|");
    for ((threads, inserts), rates) in kinds.iter().zip(&mut rates) {
        let [embedded, shm] = rates.each_mut().map(|rates| {
            rates.sort_by(f64::total_cmp);
            (rates[rates.len() / 2], rates[0], rates[rates.len() - 1])
        });
        println!(
            "| {threads} | {} | {:.0} | {:.0}–{:.0} | {:.0} | {:.0}–{:.0} | **{:.2}** |",
            if *inserts { "insert" } else { "get" },
            embedded.0,
            embedded.1,
            embedded.2,
            shm.0,
            shm.1,
            shm.2,
            shm.0 / embedded.0
        );
    }
    Ok(())
}
