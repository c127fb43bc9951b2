//! Threads of several compute servers on one tree, with all kinds of changes mixed.
//!
//! Every key of the **own** part has one thread that changes it. So each answer is known in advance, although
//! threads share every leaf. All threads increment the **counters** with `update`: their sum is the number of
//! acknowledged increments.

use super::{Failure, fail, sound};
use fastrand::Rng;
use sherman::{Client, Cluster, Tree};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Number of counters. Their keys start at 0.
const COUNTERS: u64 = 24;
/// Number of keys of each thread.
const OWN: u64 = 1_500;

/// The results of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stressed {
    /// Number of operations of all threads.
    pub operations: u64,
    /// Number of increments of counters.
    pub increments: u64,
    /// The longest duration of any operation.
    pub longest: Duration,
}

/// Runs `computes` compute servers of `threads` threads each on the tree `name`, which must be new, for the
/// given time.
pub fn stress(
    open: &(dyn Fn() -> Result<Cluster, Failure> + Sync),
    name: &str,
    seed: u64,
    computes: u64,
    threads: u64,
    time: Duration,
) -> Result<Stressed, Failure> {
    let cluster = open()?;
    let tree: Tree<u64, u64> = cluster.tree(name)?;
    let end = Instant::now() + time;
    let worlds: Vec<Cluster> = (0..computes).map(|_| open()).collect::<Result<_, _>>()?;
    let all = computes * threads;
    let outcomes: Vec<Result<Outcome, Failure>> = std::thread::scope(|scope| {
        let spawn = |number: u64| {
            let world = &worlds[(number % computes) as usize];
            scope.spawn(move || run(&world.tree(name)?.client()?, number, all, seed, end))
        };
        let running: Vec<_> = (0..all).map(spawn).collect();
        let joined = running.into_iter().map(|thread| thread.join());
        joined.map(|outcome| outcome.unwrap_or_else(|_| fail("a thread panicked".to_owned()))).collect()
    });
    let mut stressed = Stressed::default();
    let mut expected = BTreeMap::new();
    for outcome in outcomes {
        let outcome = outcome?;
        stressed.operations += outcome.operations;
        stressed.longest = stressed.longest.max(outcome.longest);
        stressed.increments += outcome.increments.iter().sum::<u64>();
        for (counter, increments) in
            outcome.increments.into_iter().enumerate().filter(|&(_, count)| count > 0)
        {
            *expected.entry(counter as u64).or_insert(0) += increments;
        }
        expected.extend(outcome.own);
    }
    let client = tree.client()?;
    let found: BTreeMap<u64, u64> = client.range(..).collect::<Result<_, _>>()?;
    if found != expected {
        let wrong = found.iter().chain(&expected).find(|&(key, _)| found.get(key) != expected.get(key));
        let at = wrong.map(|(key, _)| (key, found.get(key), expected.get(key)));
        return fail(format!("key, found, expected: {at:?}"));
    }
    sound(&client.check()?)?;
    Ok(stressed)
}

struct Outcome {
    own: BTreeMap<u64, u64>,
    increments: Vec<u64>,
    operations: u64,
    longest: Duration,
}

fn run(
    client: &Client<u64, u64>,
    number: u64,
    threads: u64,
    seed: u64,
    end: Instant,
) -> Result<Outcome, Failure> {
    let mut random = Rng::with_seed(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut outcome = Outcome {
        own: BTreeMap::new(),
        increments: vec![0; COUNTERS as usize],
        operations: 0,
        longest: Duration::ZERO,
    };
    let mut before = Instant::now();
    while before < end {
        step(client, number, threads, &mut random, &mut outcome)?;
        outcome.operations += 1;
        let now = Instant::now();
        outcome.longest = outcome.longest.max(now - before);
        before = now;
    }
    Ok(outcome)
}

fn step(
    client: &Client<u64, u64>,
    number: u64,
    threads: u64,
    random: &mut Rng,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    let key = COUNTERS + random.u64(..OWN) * threads + number;
    // Alternate waves of inserts and removals, so that nodes split and merge.
    let growing = (outcome.operations / 4_000).is_multiple_of(2);
    let (found, expected) = match random.u32(..100) {
        0..30 => (client.get(key)?, outcome.own.get(&key).copied()),
        30..35 => {
            let counter = random.u64(..COUNTERS);
            client.update(counter, |value| Some(value.unwrap_or(0) + 1))?;
            outcome.increments[counter as usize] += 1;
            return Ok(());
        }
        chosen if (chosen < 85) == growing => {
            let value = random.u64(..);
            (client.insert(key, value)?, outcome.own.insert(key, value))
        }
        _ => (client.remove(key)?, outcome.own.remove(&key)),
    };
    if found == expected { Ok(()) } else { fail(format!("key {key} held {found:?}, not {expected:?}")) }
}
