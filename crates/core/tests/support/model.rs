//! A tree beside a `BTreeMap` that shows what the tree should hold.

use super::{EmbeddedWorker, World, walk};
use sherman_core::tree::bulk::Loading;
use sherman_core::tree::range::{Direction, Scan};
use sherman_core::tree::remove::Exchange;
use sherman_core::{Error, TreeState, Walk};
use sherman_executor::block_on;
use sherman_fabric::control::TreeSpec;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// Maps numbers to keys of any length, in the same order. The lowest and the highest possible key are among
/// them.
#[derive(Clone, Copy, Debug)]
pub struct Keys {
    pub len: usize,
    /// The number of keys.
    pub count: u64,
    /// Whether the keys differ only in their last bytes.
    pub alike: bool,
}

impl Keys {
    /// Makes at most `count` keys; there are fewer short keys.
    pub fn new(len: usize, count: u64, alike: bool) -> Self {
        let most = if len >= 8 { u64::MAX } else { 1 << (8 * len) };
        Self { len, count: count.min(most), alike }
    }

    pub fn key(&self, number: u64) -> Vec<u8> {
        let number = number % self.count;
        if number == 0 {
            return vec![0; self.len];
        }
        if number == self.count - 1 {
            return vec![0xff; self.len];
        }
        let mut key = vec![0x5a; self.len];
        let width = self.len.min(8);
        if self.alike || width < 8 {
            key[self.len - width..].copy_from_slice(&number.to_be_bytes()[8 - width..]);
        } else {
            let spread = u64::MAX / self.count * number;
            key[..8].copy_from_slice(&spread.to_be_bytes());
        }
        key
    }
}

/// What a compare-and-exchange expects.
#[derive(Clone, Copy, Debug)]
pub enum Expect {
    WhatIsThere,
    Nothing,
    Value(u8),
}

/// One step of a history. Keys are numbers of [`Keys`], values a byte that fills them.
#[derive(Clone, Debug)]
pub enum Action {
    Insert(u64, u8),
    Remove(u64),
    Get(u64),
    InsertIfAbsent(u64, u8),
    Exchange(u64, Expect, Option<u8>),
    Scan(Bound<u64>, Bound<u64>, Direction, usize),
    /// Forgets everything that is cached.
    Forget,
}

/// A tree as several compute servers see it, and the contents that it should have.
pub struct Model {
    pub keys: Keys,
    pub value_len: usize,
    pub map: BTreeMap<Vec<u8>, Vec<u8>>,
    pub members: Vec<(EmbeddedWorker, Arc<TreeState>)>,
}

impl Model {
    /// Opens the tree `name`, which is empty.
    pub fn new(world: &World, name: &str, spec: &TreeSpec, keys: Keys) -> Self {
        assert_eq!(keys.len, usize::from(spec.key_len));
        let members = (0..world.computes.len()).map(|compute| {
            let worker = world.worker(compute);
            let tree = block_on(worker.endpoint(), worker.tree(name, spec)).expect("a tree");
            (worker, tree)
        });
        let members = members.collect();
        Self { keys, value_len: spec.value_len as usize, map: BTreeMap::new(), members }
    }

    pub fn value(&self, byte: u8) -> Vec<u8> {
        let mut value = vec![byte; self.value_len];
        if let Some(last) = value.last_mut() {
            *last = !byte;
        }
        value
    }

    /// Performs an action on compute server number `who`, and compares the answer.
    pub fn apply(&mut self, who: usize, action: &Action) {
        let (worker, tree) = &self.members[who % self.members.len()];
        let op = worker.op();
        let endpoint = worker.endpoint();
        let mut out = Vec::new();
        match *action {
            Action::Insert(number, byte) => {
                let (key, value) = (self.keys.key(number), self.value(byte));
                let there = block_on(endpoint, op.insert(tree, &key, &value, &mut out)).expect("an insert");
                let old = self.map.insert(key, value);
                assert_eq!(there.then_some(out), old, "{action:?}");
            }
            Action::Remove(number) => {
                let key = self.keys.key(number);
                let there = block_on(endpoint, op.remove(tree, &key, &mut out)).expect("a remove");
                assert_eq!(there.then_some(out), self.map.remove(&key), "{action:?}");
            }
            Action::Get(number) => {
                let key = self.keys.key(number);
                let there = block_on(endpoint, op.get(tree, &key, &mut out)).expect("a get");
                assert_eq!(there.then_some(&out), self.map.get(&key), "{action:?}");
            }
            Action::InsertIfAbsent(number, byte) => {
                let (key, value) = (self.keys.key(number), self.value(byte));
                let there =
                    block_on(endpoint, op.insert_if_absent(tree, &key, &value, &mut out)).expect("an insert");
                assert_eq!(there.then_some(&out), self.map.get(&key), "{action:?}");
                self.map.entry(key).or_insert(value);
            }
            Action::Exchange(number, expect, new) => {
                let key = self.keys.key(number);
                let there = self.map.get(&key).cloned();
                let expected = match expect {
                    Expect::WhatIsThere => there.clone(),
                    Expect::Nothing => None,
                    Expect::Value(byte) => Some(self.value(byte)),
                };
                let new = new.map(|byte| self.value(byte));
                let ended = op.compare_exchange(tree, &key, expected.as_deref(), new.as_deref(), &mut out);
                let ended = block_on(endpoint, ended).expect("an exchange");
                if there == expected {
                    assert_eq!(ended, Exchange::Done, "{action:?}");
                    match new {
                        Some(new) => self.map.insert(key, new),
                        None => self.map.remove(&key),
                    };
                } else if let Some(there) = there {
                    assert_eq!((ended, out), (Exchange::Found, there), "{action:?}");
                } else {
                    assert_eq!(ended, Exchange::Absent, "{action:?}");
                }
            }
            Action::Scan(from, to, direction, prefetch) => self.scan(who, from, to, direction, prefetch),
            Action::Forget => tree.forget_everything(),
        }
    }

    fn scan(&self, who: usize, from: Bound<u64>, to: Bound<u64>, direction: Direction, prefetch: usize) {
        let (worker, tree) = &self.members[who % self.members.len()];
        let what = format!("{from:?} {to:?} {direction:?} {prefetch}");
        let (from, to) = (from.map(|number| self.keys.key(number)), to.map(|number| self.keys.key(number)));
        let (low, high) = (from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice));
        let scan = Scan::new(tree, low, high, direction, prefetch);
        let bad = match (low, high) {
            (Bound::Excluded(low), Bound::Excluded(high)) => low >= high,
            (Bound::Included(low) | Bound::Excluded(low), Bound::Included(high) | Bound::Excluded(high)) => {
                low > high
            }
            _ => false,
        };
        let mut scan = match scan {
            Err(error) => {
                assert!(bad && error == Error::BadRange, "{what}: {error:?}");
                return;
            }
            Ok(scan) => scan,
        };
        assert!(!bad, "{what}");
        let mut expected = self.map.range::<[u8], _>((low, high));
        let op = worker.op();
        while block_on(worker.endpoint(), op.refill(tree, &mut scan)).expect("a scan") {
            while let Some((key, value)) = scan.next() {
                let next = match direction {
                    Direction::Forward => expected.next(),
                    Direction::Backward => expected.next_back(),
                };
                assert_eq!(next.map(|(key, value)| (&key[..], &value[..])), Some((key, value)), "{what}");
            }
        }
        assert_eq!(expected.next(), None, "{what}: the scan ended early");
        assert!(
            !block_on(worker.endpoint(), op.refill(tree, &mut scan)).expect("a scan"),
            "what is over stays over"
        );
    }

    /// Loads `numbers` in bulk. They must ascend.
    pub fn load(&mut self, who: usize, numbers: &[u64], byte: u8, fill: f64) -> Result<u64, Error> {
        let entries: Vec<_> =
            numbers.iter().map(|&number| (self.keys.key(number), self.value(byte))).collect();
        let (worker, tree) = &self.members[who % self.members.len()];
        let loaded = load(worker, tree, &entries, fill);
        if loaded.is_ok() {
            self.map.extend(entries);
        }
        loaded
    }

    /// Walks the tree, and asserts that it is sound and holds the expected entries.
    pub fn check(&self) -> Walk {
        let (worker, tree) = &self.members[0];
        let walk = walk(worker, tree);
        let held = walk.entries.iter().map(|(key, value)| (key, value));
        assert!(held.eq(&self.map), "{} entries, {} expected", walk.entries.len(), self.map.len());
        walk
    }

    /// Does the work of `check` where nothing prevented a merge: then no root has a single child.
    pub fn check_tidy(&self) -> Walk {
        let walk = self.check();
        assert_ne!(walk.nodes.iter().rev().nth(1), Some(&1), "a root with a single child: {:?}", walk.nodes);
        walk
    }
}

/// Loads entries in bulk.
pub fn load(
    worker: &EmbeddedWorker,
    tree: &TreeState,
    entries: &[(Vec<u8>, Vec<u8>)],
    fill: f64,
) -> Result<u64, Error> {
    let op = worker.op();
    let mut loading = Loading::new(tree, fill);
    let run = async {
        let mut written = Vec::new();
        for (key, value) in entries {
            if let Some(batch) = loading.push(&op, tree, key, value).await? {
                written.push(op.write_leaves(tree, &batch).await?);
            }
        }
        for batch in loading.finish(&op).await?.iter().flatten() {
            written.push(op.write_leaves(tree, batch).await?);
        }
        Ok(written)
    };
    match block_on(worker.endpoint(), run) {
        Ok(written) => block_on(worker.endpoint(), op.complete_load(tree, &mut loading, written)),
        Err(error) => {
            block_on(worker.endpoint(), loading.abandon(&op, tree));
            Err(error)
        }
    }
}
