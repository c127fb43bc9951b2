//! Ranges while other clients insert and remove keys next to the keys that stay.

use super::{Failure, fail, sound};
use fastrand::Rng;
use sherman::{Client, Cluster, Tree};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The keys that stay throughout are the multiples of this.
const STRIDE: u64 = 8;
/// Number of keys that stay.
const STAY: u64 = 600;

/// For `time`, `writers` compute servers insert and remove keys between those that stay, while scanners read
/// ranges. Returns the number of ranges read.
pub fn ranges(
    open: &(dyn Fn() -> Result<Cluster, Failure> + Sync),
    name: &str,
    seed: u64,
    writers: u64,
    time: Duration,
) -> Result<u64, Failure> {
    let cluster = open()?;
    let tree: Tree<u64, u64> = cluster.tree(name)?;
    let client = tree.client()?;
    for key in (0..STAY).map(|at| at * STRIDE) {
        client.insert(key, !key)?;
    }
    let (over, read) = (AtomicBool::new(false), AtomicU64::new(0));
    let end = Instant::now() + time;
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for number in 0..writers {
            let over = &over;
            threads.push(scope.spawn(move || {
                let cluster = open()?;
                write(&cluster.tree(name)?.client()?, over, seed ^ (number << 32), number, writers)
            }));
        }
        let scanned = (0..2).map(|number| {
            let (tree, read) = (&tree, &read);
            scope.spawn(move || scan(&tree.client()?, end, seed.wrapping_add(number), read))
        });
        let scanned: Vec<_> = scanned.collect();
        let scanned: Result<Vec<()>, Failure> = scanned.into_iter().map(joined).collect();
        over.store(true, Ordering::Relaxed);
        let written: Result<Vec<()>, Failure> = threads.into_iter().map(joined).collect();
        scanned.and(written)
    })?;
    sound(&client.check()?)?;
    Ok(read.into_inner())
}

fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, Result<T, Failure>>) -> Result<T, Failure> {
    thread.join().unwrap_or_else(|_| fail("a thread panicked".to_owned()))
}

/// Inserts and removes keys. Each writer has its own keys, so that it knows which of them exist.
fn write(
    client: &Client<u64, u64>,
    over: &AtomicBool,
    seed: u64,
    number: u64,
    writers: u64,
) -> Result<(), Failure> {
    let mut random = Rng::with_seed(seed);
    while !over.load(Ordering::Relaxed) {
        let from = random.u64(..STAY);
        let keys: Vec<u64> = (from..STAY.min(from + 40))
            .flat_map(|at| (1..STRIDE).map(move |beside| at * STRIDE + beside))
            .filter(|key| key % writers == number)
            .collect();
        let entries: Vec<(u64, u64)> = keys.iter().map(|&key| (key, !key)).collect();
        client.insert_many(&entries)?;
        if client.remove_many(&keys)?.iter().any(Option::is_none) {
            return fail("a key that only this writer removes was missing".to_owned());
        }
    }
    Ok(())
}

fn scan(client: &Client<u64, u64>, end: Instant, seed: u64, read: &AtomicU64) -> Result<(), Failure> {
    let mut random = Rng::with_seed(seed);
    while Instant::now() < end {
        let from = random.u64(..STAY * STRIDE);
        let to = from + random.u64(..STAY * STRIDE);
        let descending = random.bool();
        let range = client.range(from..to);
        let range = if descending { range.descending() } else { range };
        let mut entries = range.collect::<Result<Vec<_>, _>>()?;
        if descending {
            entries.reverse();
        }
        if let Some(pair) = entries.windows(2).find(|pair| pair[0].0 >= pair[1].0) {
            return fail(format!("{:?} came before {:?} in a range from {from} to {to}", pair[0], pair[1]));
        }
        if let Some(entry) = entries.iter().find(|&&(key, value)| value != !key || key < from || key >= to) {
            return fail(format!("{entry:?} was never there, or lies outside {from}..{to}"));
        }
        let stayed = entries.iter().filter(|(key, _)| key % STRIDE == 0).count() as u64;
        let expected = to.min(STAY * STRIDE).div_ceil(STRIDE) - from.div_ceil(STRIDE);
        if stayed != expected {
            return fail(format!(
                "a range from {from} to {to} has {stayed} of {expected} keys that are there throughout"
            ));
        }
        read.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}
