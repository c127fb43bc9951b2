//! Random operations of one client, and then many concurrent operations of one session, compared with a
//! `BTreeMap`.

use super::{Failure, fail, sound};
use fastrand::Rng;
use sherman::{Client, Cluster, Exchange, Tree};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Bound;

type Map = BTreeMap<u64, u64>;

/// Runs `steps` operations on the tree `name`, which must be new. The keys are few enough to repeat. Waves of
/// inserts and removals alternate, so that nodes split and merge.
pub fn model(cluster: &Cluster, name: &str, seed: u64, steps: usize) -> Result<(), Failure> {
    let tree: Tree<u64, u64> = cluster.tree(name)?;
    let client = tree.client()?;
    let mut random = Rng::with_seed(seed);
    let mut map = Map::new();
    for step in 0..steps {
        let growing = (step / 500).is_multiple_of(2);
        one(&client, &mut map, &mut random, growing)
            .map_err(|failure| format!("seed {seed}, step {step}: {failure}"))?;
    }
    in_flight(&tree, &mut map, &mut random)?;
    let all: Vec<(u64, u64)> = client.range(..).collect::<Result<_, _>>()?;
    same(all, map.into_iter().collect(), "all entries")?;
    sound(&tree.client()?.check()?)
}

fn same<T: PartialEq + Debug>(found: T, expected: T, what: &str) -> Result<(), Failure> {
    if found == expected { Ok(()) } else { fail(format!("{what}: found {found:?}, expected {expected:?}")) }
}

fn one(client: &Client<u64, u64>, map: &mut Map, random: &mut Rng, growing: bool) -> Result<(), Failure> {
    let key = random.u64(..2_000) * 3;
    let value = random.u64(..);
    match random.u32(..100) {
        0..20 => same(client.get(key)?, map.get(&key).copied(), "get"),
        20..60 if growing => same(client.insert(key, value)?, map.insert(key, value), "insert"),
        20..60 => same(client.remove(key)?, map.remove(&key), "remove"),
        60..65 => {
            let there = map.get(&key).copied();
            map.entry(key).or_insert(value);
            same(client.insert_if_absent(key, value)?, there, "insert_if_absent")
        }
        65..75 => {
            let there = map.get(&key).copied();
            let expected = if random.bool() { there } else { Some(value) };
            let new = random.bool().then_some(value ^ 1);
            let outcome = client.compare_exchange(key, expected, new)?;
            let foretold = match there {
                _ if there == expected => Exchange::Done,
                Some(there) => Exchange::Found(there),
                None => Exchange::Absent,
            };
            if foretold.is_done() {
                set(map, key, new);
            }
            same(outcome, foretold, "compare_exchange")
        }
        75..80 => {
            let there = map.get(&key).copied();
            let change = |value: Option<u64>| {
                value.map_or(Some(1), |value| (value % 5 != 0).then(|| value.wrapping_add(1)))
            };
            set(map, key, change(there));
            same(client.update(key, change)?, there, "update")
        }
        80..88 => range(client, map, random),
        88..92 => {
            let entries: Vec<(u64, u64)> =
                (0..random.usize(..40)).map(|at| (key + at as u64 / 2, value ^ at as u64)).collect();
            same(
                client.insert_many(&entries)?,
                entries.iter().map(|&(key, value)| map.insert(key, value)).collect(),
                "insert_many",
            )
        }
        92..96 => {
            let keys: Vec<u64> = (0..random.u64(..40)).map(|at| key + at).collect();
            same(client.remove_many(&keys)?, keys.iter().map(|key| map.remove(key)).collect(), "remove_many")
        }
        96..98 => {
            let next =
                map.range((Bound::Excluded(key), Bound::Unbounded)).next().map(|(&key, &value)| (key, value));
            same(client.next_after(key)?, next, "next_after")?;
            let before = map.range(..key).next_back().map(|(&key, &value)| (key, value));
            same(client.next_before(key)?, before, "next_before")
        }
        _ => {
            same(client.first()?, map.first_key_value().map(|(&key, &value)| (key, value)), "first")?;
            same(client.last()?, map.last_key_value().map(|(&key, &value)| (key, value)), "last")?;
            same(client.len()?, map.len() as u64, "len")
        }
    }
}

fn set(map: &mut Map, key: u64, value: Option<u64>) {
    match value {
        Some(value) => drop(map.insert(key, value)),
        None => drop(map.remove(&key)),
    }
}

fn range(client: &Client<u64, u64>, map: &Map, random: &mut Rng) -> Result<(), Failure> {
    let from = random.u64(..6_000);
    let to = from + random.u64(..3_000);
    let expected = map.range(from..to).map(|(&key, &value)| (key, value));
    if random.bool() {
        same(client.range(from..to).collect::<Result<Vec<_>, _>>()?, expected.collect(), "range")
    } else {
        let found = client.range(from..to).descending().collect::<Result<Vec<_>, _>>()?;
        same(found, expected.rev().collect(), "range, descending")
    }
}

/// Runs many operations of a session in flight, on different keys so that the outcome is known in advance.
fn in_flight(tree: &Tree<u64, u64>, map: &mut Map, random: &mut Rng) -> Result<(), Failure> {
    let session = tree.session()?;
    let entries: Vec<(u64, u64)> = (0..64).map(|at| (10_000 + at, random.u64(..))).collect();
    let operations: Vec<_> = entries.iter().map(|&(key, value)| session.insert(key, value)).collect();
    session.run(async {
        for (operation, &(key, value)) in operations.into_iter().zip(&entries) {
            same(operation.await?, map.insert(key, value), "an insert of a session")?;
        }
        Ok::<(), Failure>(())
    })
}
