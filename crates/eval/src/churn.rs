//! Writers that change a tree in every way while it is checked: they fill and empty stretches of neighbouring keys, so that
//! leaves split, fall below what is kept, merge and are used again, and look up and read ranges in between.
//!
//! The keys are a [universe](Keys) of which every other one is loaded. Every answer is checked as far as one writer among others
//! can, and what they say of entries made and removed must add up in the end.

use crate::error::BenchError;
use crate::keys::Keys;
use fastrand::Rng;
use serde::Serialize;
use sherman::{Error, RawClient, RawTree};
use std::sync::atomic::{AtomicBool, Ordering};

/// Neighbouring keys that a writer fills or empties at a time: some sixty leaves.
const STRETCH: u64 = 2048;
/// Operations on one stretch before the next.
const TURN: u64 = 4 * STRETCH;
/// Entries of a range.
const RANGE: usize = 100;

/// What writers did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Churn {
    /// Inserts of new keys.
    pub inserts: u64,
    /// Inserts under keys that were there.
    pub updates: u64,
    /// Removes of keys that were there.
    pub removes: u64,
    /// Removes of keys that were not.
    pub removes_of_nothing: u64,
    /// Lookups.
    pub gets: u64,
    /// Ranges of a hundred entries.
    pub ranges: u64,
}

impl Churn {
    /// All of it.
    pub fn operations(&self) -> u64 {
        self.inserts + self.updates + self.removes + self.removes_of_nothing + self.gets + self.ranges
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.inserts += other.inserts;
        self.updates += other.updates;
        self.removes += other.removes;
        self.removes_of_nothing += other.removes_of_nothing;
        self.gets += other.gets;
        self.ranges += other.ranges;
    }
}

/// A writer at work.
struct Writer<'a> {
    client: RawClient,
    keys: &'a Keys,
    rng: Rng,
    did: Churn,
    key: Vec<u8>,
    value: Vec<u8>,
    seen: Vec<u8>,
}

/// Writes to `tree`, whose keys are all of the universe `keys` and whose values have `value_size` bytes, until `stop`.
pub(crate) fn churn(
    tree: &RawTree,
    keys: &Keys,
    value_size: usize,
    seed: u64,
    stop: &AtomicBool,
) -> Result<Churn, BenchError> {
    let client = tree.client().map_err(failed)?;
    let (key, value) = (vec![0; keys.key_size()], vec![0; value_size]);
    let rng = Rng::with_seed(seed);
    let mut writer = Writer { client, keys, rng, did: Churn::default(), key, value, seen: Vec::new() };
    let width = STRETCH.min(keys.count());
    while !stop.load(Ordering::Relaxed) {
        let first = writer.rng.u64(0..=keys.count() - width);
        let filling = writer.rng.bool();
        for nth in 0..TURN {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let index = first + writer.rng.u64(0..width);
            writer.act(index, filling, nth)?;
        }
    }
    Ok(writer.did)
}

fn failed(error: Error) -> BenchError {
    BenchError::Operation { phase: "writing", error }
}

impl Writer<'_> {
    /// Does one thing to key `index` or from it on.
    fn act(&mut self, index: u64, filling: bool, version: u64) -> Result<(), BenchError> {
        self.keys.write_key(index, &mut self.key);
        match self.rng.u32(0..100) {
            0..60 if filling => self.insert(index, version),
            60..70 if !filling => self.insert(index, version),
            0..70 => self.remove(index),
            70..95 => self.get(index),
            _ => self.range(index),
        }
    }

    fn insert(&mut self, index: u64, version: u64) -> Result<(), BenchError> {
        self.keys.write_value(index, version, &mut self.value);
        if self.client.insert(&self.key, &self.value, &mut self.seen).map_err(failed)? {
            self.did.updates += 1;
            return self.check_value(index);
        }
        self.did.inserts += 1;
        Ok(())
    }

    fn remove(&mut self, index: u64) -> Result<(), BenchError> {
        if self.client.remove(&self.key, &mut self.seen).map_err(failed)? {
            self.did.removes += 1;
            return self.check_value(index);
        }
        self.did.removes_of_nothing += 1;
        Ok(())
    }

    fn get(&mut self, index: u64) -> Result<(), BenchError> {
        self.did.gets += 1;
        if self.client.get(&self.key, &mut self.seen).map_err(failed)? { self.check_value(index) } else { Ok(()) }
    }

    fn range(&mut self, index: u64) -> Result<(), BenchError> {
        self.did.ranges += 1;
        let wrong = |what| Err(BenchError::Wrong { what, index });
        let mut range = self.client.range(&self.key[..]..).limit(RANGE);
        let mut least = self.keys.number(index);
        while let Some((key, value)) = range.advance().map_err(failed)? {
            let number = self.keys.number_in(key);
            if number < least {
                return wrong("the keys of a range do not ascend");
            }
            least = number.saturating_add(1);
            match self.keys.index_of(number) {
                Some(found) if found < self.keys.count() && self.keys.value_fits(found, value) => {}
                Some(found) if found < self.keys.count() => return wrong("a value in a range is not its key's"),
                _ => return wrong("a range gave a key that nobody inserted"),
            }
        }
        Ok(())
    }

    fn check_value(&self, index: u64) -> Result<(), BenchError> {
        if self.seen.len() == self.value.len() && self.keys.value_fits(index, &self.seen) {
            return Ok(());
        }
        Err(BenchError::Wrong { what: "a value is not its key's", index })
    }
}
