//! The sequential specification again, written independently of the library's version: the oracles must not
//! inherit its errors.

use sherman_sim::history::{Op, Outcome};
use std::collections::BTreeMap;

pub type Map = BTreeMap<u64, u64>;

/// Runs one operation on a plain map.
pub fn run(map: &mut Map, key: u64, op: Op) -> Outcome {
    match op {
        Op::Get => Outcome::Value(map.get(&key).copied()),
        Op::Insert(value) => Outcome::Value(map.insert(key, value)),
        Op::Remove => Outcome::Value(map.remove(&key)),
        Op::InsertIfAbsent(value) => {
            let existing = map.get(&key).copied();
            map.entry(key).or_insert(value);
            Outcome::Value(existing)
        }
        Op::CompareExchange { expected, new } => {
            let actual = map.get(&key).copied();
            if actual != expected {
                return Outcome::Exchange(Err(actual));
            }
            match new {
                Some(value) => map.insert(key, value),
                None => map.remove(&key),
            };
            Outcome::Exchange(Ok(()))
        }
    }
}
