//! Writers that change a tree in every way while it is checked. They fill and empty stretches of neighbouring
//! keys, so that leaves split, become too empty, merge and are reused. In between they look up keys and read
//! ranges.
//!
//! The keys are a [universe](Keys) of which every other key is loaded. Every writer checks its answers as far
//! as the other writers allow. At the end, the entries inserted and removed according to the answers must add
//! up.

use crate::error::BenchError;
use crate::keys::Keys;
use fastrand::Rng;
use serde::Serialize;
use sherman::{Error, RawClient, RawTree};
use std::sync::atomic::{AtomicBool, Ordering};

/// The number of neighbouring keys that a writer fills or empties at a time: about sixty leaves.
const STRETCH: u64 = 2048;
/// Operations on one stretch before the writer moves to the next.
const TURN: u64 = 4 * STRETCH;
/// Entries of a range.
const RANGE: usize = 100;

/// The operations of writers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Churn {
    /// Inserts of new keys.
    pub inserts: u64,
    /// Inserts under existing keys.
    pub updates: u64,
    /// Removes of existing keys.
    pub removes: u64,
    /// Removes of keys that did not exist.
    pub removes_of_nothing: u64,
    /// Lookups.
    pub gets: u64,
    /// Ranges of a hundred entries.
    pub ranges: u64,
}

impl Churn {
    /// Returns the number of all operations.
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

/// A writer.
struct Writer<'a> {
    client: RawClient,
    keys: &'a Keys,
    rng: Rng,
    did: Churn,
    key: Vec<u8>,
    value: Vec<u8>,
    seen: Vec<u8>,
}

/// Writes to `tree` until `stop`. All its keys are of the universe `keys`, and its values have `value_size`
/// bytes.
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
    /// Performs one operation on key `index`, or on a range from it.
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
        if self.client.insert_into(&self.key, &self.value, &mut self.seen).map_err(failed)? {
            self.did.updates += 1;
            return self.check_value(index);
        }
        self.did.inserts += 1;
        Ok(())
    }

    fn remove(&mut self, index: u64) -> Result<(), BenchError> {
        if self.client.remove_into(&self.key, &mut self.seen).map_err(failed)? {
            self.did.removes += 1;
            return self.check_value(index);
        }
        self.did.removes_of_nothing += 1;
        Ok(())
    }

    fn get(&mut self, index: u64) -> Result<(), BenchError> {
        self.did.gets += 1;
        if self.client.get_into(&self.key, &mut self.seen).map_err(failed)? {
            self.check_value(index)
        } else {
            Ok(())
        }
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
                Some(found) if found < self.keys.count() => {
                    return wrong("a range returned a value that does not belong to its key");
                }
                _ => return wrong("a range returned a key that no client inserted"),
            }
        }
        Ok(())
    }

    fn check_value(&self, index: u64) -> Result<(), BenchError> {
        if self.seen.len() == self.value.len() && self.keys.value_fits(index, &self.seen) {
            return Ok(());
        }
        Err(BenchError::Wrong { what: "a value does not belong to its key", index })
    }
}
