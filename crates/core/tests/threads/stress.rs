//! Many threads of several compute servers work on one cluster, with all operations mixed, in waves of growth
//! and emptying.
//!
//! There are two trees. In the **wide** tree every key has an owner, the only thread that changes it. So the
//! test can predict each answer exactly, although owners alternate within a leaf. Some of its keys are
//! counters that all threads increment. In the **hot** tree all threads change a few keys. Each thread keeps
//! a ledger of its inserts and removes.
//!
//! `SHERMAN_STRESS_SECONDS=60 cargo test -p sherman-core --test threads stress -- --nocapture` runs longer
//! and prints what it did.

use crate::support::model::{Keys, load};
use crate::support::{Dice, EmbeddedWorker, World, WorldOptions, atomicity, runs_in_full, spec, walk};
use sherman_core::tree::range::{Direction, Scan};
use sherman_core::tree::remove::Exchange;
use sherman_core::{ComputeOptions, Error, Format, Techniques, TreeState};
use sherman_executor::block_on;
use sherman_fabric::Clock;
use sherman_fabric::control::TreeSpec;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Barrier, PoisonError};

const COMPUTE_SERVERS: usize = 3;
const THREADS_EACH: usize = 2;
const THREADS: u64 = (COMPUTE_SERVERS * THREADS_EACH) as u64;
/// Keys of the wide tree; every 64th is a counter.
const WIDE: u64 = 12_000;
const COUNTER_EVERY: u64 = 64;
const HOT: u64 = 48;
/// How long a wave of growth or emptying lasts.
const WAVE_NANOS: u64 = 120_000_000;

/// The results of one thread.
#[derive(Default)]
struct Outcome {
    /// What its own keys hold.
    own: BTreeMap<u64, u32>,
    /// Increments of each counter.
    increments: BTreeMap<u64, u64>,
    /// For each hot key, the number of its inserts minus the number of its removes.
    ledger: BTreeMap<u64, i64>,
    operations: u64,
    pairs_scanned: u64,
    splits: u64,
    merges: u64,
}

impl Outcome {
    fn enter(&mut self, number: u64, by: i64) {
        *self.ledger.entry(number).or_default() += by;
    }
}

struct Thread {
    worker: EmbeddedWorker,
    wide: Arc<TreeState>,
    hot: Arc<TreeState>,
    me: u64,
    dice: Dice,
    out: Outcome,
}

/// Returns a value that names its key, and shows whether it is whole.
fn value(len: usize, number: u64, tag: u32) -> Vec<u8> {
    let mut value = vec![tag as u8; len];
    value[..4].copy_from_slice(&(number as u32).to_be_bytes());
    value[4..8].copy_from_slice(&tag.to_be_bytes());
    value
}

/// Returns the tag of a value of `number`. Asserts that some thread wrote this value.
fn tag(value_found: &[u8], number: u64) -> u32 {
    let tag = u32::from_be_bytes(value_found[4..8].try_into().expect("four bytes"));
    assert_eq!(value_found, value(value_found.len(), number, tag), "a value nobody wrote under {number}");
    tag
}

impl Thread {
    fn keys(tree: &TreeState, count: u64) -> Keys {
        Keys::new(tree.shape().leaf.key_len(), count, false)
    }

    /// Runs one operation and counts it. Estimates from its bytes written whether it split or merged nodes.
    fn run<T>(
        &mut self,
        change: impl AsyncFnOnce(
            &sherman_core::Op<'_, sherman_embedded::EmbeddedEndpoint>,
        ) -> Result<T, sherman_core::Error>,
        removes: bool,
    ) -> T {
        let op = self.worker.op();
        let done = block_on(self.worker.endpoint(), change(&op)).expect("nobody dies here");
        let shape = &self.wide.shape().leaf;
        let plain = match shape.format() {
            Format::Sorted | Format::SortedStamped => 2 * shape.node_bytes() + 128,
            _ => shape.node_bytes(),
        };
        if op.tally().bytes_written > plain as u64 {
            *if removes { &mut self.out.merges } else { &mut self.out.splits } += 1;
        }
        self.out.operations += 1;
        done
    }

    /// Returns a random key that this thread owns.
    fn own_key(&mut self) -> u64 {
        loop {
            let number = self.dice.below(WIDE / THREADS) * THREADS + self.me;
            if !number.is_multiple_of(COUNTER_EVERY) {
                return number;
            }
        }
    }

    /// Changes or reads a key that this thread owns, and checks the answer.
    fn act_on_own(&mut self, number: u64, shrink: u64) {
        let tree = Arc::clone(&self.wide);
        let key = Self::keys(&tree, WIDE).key(number);
        let len = tree.shape().leaf.payload_len();
        let known = self.out.own.get(&number).copied();
        let (fresh, mut out) = (self.dice.next() as u32, Vec::new());
        let put = value(len, number, fresh);
        let less = self.dice.below(10) < shrink;
        let there = match self.dice.below(8) {
            0..=1 => self.run(async |op| crate::get(op, &tree, &key, &mut out).await, false),
            2 => {
                let expected =
                    if self.dice.one_in(4) { None } else { known.map(|tag| value(len, number, tag)) };
                let new = (!less).then_some(put.as_slice());
                let ended = self.run(
                    async |op| op.compare_exchange(&tree, &key, expected.as_deref(), new, &mut out).await,
                    less,
                );
                if expected == known.map(|tag| value(len, number, tag)) {
                    assert_eq!(ended, Exchange::Done);
                    self.know(number, (!less).then_some(fresh));
                    return;
                }
                assert_ne!(ended, Exchange::Done);
                ended == Exchange::Found
            }
            _ if less => {
                let there = self.run(async |op| op.remove(&tree, &key, &mut out).await, true);
                self.know(number, None);
                there
            }
            3..=4 => {
                let there =
                    self.run(async |op| op.insert_if_absent(&tree, &key, &put, &mut out).await, false);
                self.know(number, Some(known.unwrap_or(fresh)));
                there
            }
            _ => {
                let there = self.run(async |op| crate::insert(op, &tree, &key, &put, &mut out).await, false);
                self.know(number, Some(fresh));
                there
            }
        };
        assert_eq!(there.then(|| tag(&out, number)), known, "key {number} is mine alone");
    }

    fn know(&mut self, number: u64, tag: Option<u32>) {
        match tag {
            Some(tag) => self.out.own.insert(number, tag),
            None => self.out.own.remove(&number),
        };
    }

    /// Changes or reads a key that all threads change.
    fn act_on_hot(&mut self, shrink: u64) {
        let tree = Arc::clone(&self.hot);
        let number = self.dice.below(HOT);
        let key = Self::keys(&tree, HOT).key(number);
        let len = tree.shape().leaf.payload_len();
        let put = value(len, number, self.dice.next() as u32);
        let mut out = Vec::new();
        let less = self.dice.below(10) < shrink;
        let there = match self.dice.below(6) {
            0 => self.run(async |op| crate::get(op, &tree, &key, &mut out).await, false),
            1 => {
                let there = self.run(async |op| crate::get(op, &tree, &key, &mut out).await, false);
                let expected = there.then(|| out.clone());
                let new = (!less).then_some(put.as_slice());
                let ended = self.run(
                    async |op| op.compare_exchange(&tree, &key, expected.as_deref(), new, &mut out).await,
                    less,
                );
                if ended == Exchange::Done {
                    self.out.enter(number, i64::from(new.is_some()) - i64::from(there));
                    return;
                }
                ended == Exchange::Found
            }
            _ if less => {
                let there = self.run(async |op| op.remove(&tree, &key, &mut out).await, true);
                self.out.enter(number, -i64::from(there));
                there
            }
            2 => {
                let there =
                    self.run(async |op| op.insert_if_absent(&tree, &key, &put, &mut out).await, false);
                self.out.enter(number, i64::from(!there));
                there
            }
            _ => {
                let there = self.run(async |op| crate::insert(op, &tree, &key, &put, &mut out).await, false);
                self.out.enter(number, i64::from(!there));
                there
            }
        };
        if there {
            tag(&out, number);
        }
    }

    /// Increments a counter of the wide tree.
    fn count(&mut self) {
        let tree = Arc::clone(&self.wide);
        let number = self.dice.below(WIDE / COUNTER_EVERY) * COUNTER_EVERY;
        let key = Self::keys(&tree, WIDE).key(number);
        let len = tree.shape().leaf.payload_len();
        let mut found = Vec::new();
        let mut there = self.run(async |op| crate::get(op, &tree, &key, &mut found).await, false);
        loop {
            let expected = there.then(|| found.clone());
            let next = expected.as_ref().map_or(1, |expected| tag(expected, number) + 1);
            let put = value(len, number, next);
            let change = async |op: &sherman_core::Op<'_, _>| {
                op.compare_exchange(&tree, &key, expected.as_deref(), Some(&put), &mut found).await
            };
            match self.run(change, false) {
                Exchange::Done => break,
                ended => there = ended == Exchange::Found,
            }
        }
        *self.out.increments.entry(number).or_default() += 1;
    }

    /// Scans a part of the wide tree. Asserts that the keys are in order, and that this thread's own keys are
    /// exactly as known.
    fn scan(&mut self) {
        let tree = Arc::clone(&self.wide);
        let keys = Self::keys(&tree, WIDE);
        let widest = if self.dice.one_in(8) { WIDE } else { 400 };
        let from = self.dice.below(WIDE);
        let to = (from + self.dice.below(widest)).min(WIDE - 1);
        let direction = if self.dice.one_in(2) { Direction::Forward } else { Direction::Backward };
        let (low, high) = (keys.key(from), keys.key(to));
        let prefetch = 1 + self.dice.below(8) as usize;
        let mut scan = Scan::new(&tree, Bound::Included(&low), Bound::Included(&high), direction, prefetch)
            .expect("a good range");
        let mut seen: Vec<(u64, u32)> = Vec::new();
        while self.run(async |op| op.refill(&tree, &mut scan).await, false) {
            while let Some((key, value)) = scan.next() {
                let number = u64::from(u32::from_be_bytes(value[..4].try_into().expect("four bytes")));
                assert_eq!(key, keys.key(number), "a value of another key");
                seen.push((number, tag(value, number)));
            }
        }
        if direction == Direction::Backward {
            seen.reverse();
        }
        assert!(
            seen.windows(2).all(|pair| pair[0].0 < pair[1].0),
            "{direction:?}: keys come in order and once"
        );
        assert!(
            seen.iter().all(|(number, _)| (from..=to).contains(number)),
            "{direction:?}: a key out of bounds"
        );
        self.out.pairs_scanned += seen.len() as u64;
        let own = seen
            .into_iter()
            .filter(|(number, _)| number % THREADS == self.me && !number.is_multiple_of(COUNTER_EVERY));
        let known = self.out.own.range(from..=to).map(|(number, tag)| (*number, *tag));
        assert!(own.eq(known), "{direction:?}: own keys from {from} to {to} are as this thread left them");
    }

    fn go(mut self, until: u64, began: u64) -> Outcome {
        loop {
            let now = self.worker.endpoint().now();
            if now >= until {
                return self.out;
            }
            let shrink = [1, 9, 5, 10, 3, 10][((now - began) / WAVE_NANOS % 6) as usize];
            for _ in 0..50 {
                match self.dice.below(100) {
                    0..=64 => {
                        let number = self.own_key();
                        self.act_on_own(number, shrink);
                    }
                    65..=89 => self.act_on_hot(shrink),
                    90..=98 => self.count(),
                    _ => self.scan(),
                }
            }
            // Random removes alone would take too long to empty the tree.
            if shrink == 10 {
                for number in self.out.own.keys().copied().take(100).collect::<Vec<_>>() {
                    self.act_on_own(number, 10);
                }
            }
        }
    }
}

/// Runs all threads for a while on trees of this shape, and checks the trees afterwards.
fn stress(name: &str, wide: &TreeSpec, techniques: Techniques, lanes: u32, nanos: u64) {
    let format = Format::from_number(wide.format).expect("a format");
    let world = World::new(&WorldOptions {
        compute_servers: COMPUTE_SERVERS,
        atomicity: atomicity(format),
        lanes: Some(lanes),
        compute: ComputeOptions { techniques, ..ComputeOptions::default() },
        ..WorldOptions::default()
    });
    let per_compute: Vec<_> = (0..COMPUTE_SERVERS)
        .map(|compute| {
            let worker = world.worker(compute);
            ["wide", "hot"].map(|name| block_on(worker.endpoint(), worker.tree(name, wide)).expect("a tree"))
        })
        .collect();
    let began = world.worker(0).endpoint().now();
    let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|me| {
                let (world, per_compute) = (&world, &per_compute);
                scope.spawn(move || {
                    let compute = me as usize % COMPUTE_SERVERS;
                    let [wide, hot] = per_compute[compute].clone();
                    let dice = Dice(began ^ me << 56);
                    let thread = Thread {
                        worker: world.worker(compute),
                        wide,
                        hot,
                        me,
                        dice,
                        out: Outcome::default(),
                    };
                    thread.go(began + nanos, began)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
    });
    world.assert_at_rest();
    let worker = world.worker(0);
    let [wide, hot] = [0, 1].map(|tree| walk(&worker, &per_compute[0][tree]));
    world.assert_balanced(&[&wide, &hot]);
    check_wide(&wide.entries, &per_compute[0][0], &outcomes);
    check_hot(&hot.entries, &per_compute[0][1], &outcomes);
    let sum = |of: fn(&Outcome) -> u64| outcomes.iter().map(of).sum::<u64>();
    let skipped: u64 = per_compute.iter().flatten().map(|tree| tree.separators_skipped()).sum();
    println!(
        "{name}: {} operations, {} pairs scanned, about {} splits and {} merges in {:.1} s; nodes {:?} and \
         {:?}, {:?}, {} separators missing, {skipped} skipped",
        sum(|out| out.operations),
        sum(|out| out.pairs_scanned),
        sum(|out| out.splits),
        sum(|out| out.merges),
        nanos as f64 / 1e9,
        wide.nodes,
        hot.nodes,
        world.census(),
        wide.missing_separators + hot.missing_separators,
    );
}

/// Asserts that the wide tree holds what the owners recorded, and in each counter the sum of its increments.
fn check_wide(found: &[(Vec<u8>, Vec<u8>)], tree: &TreeState, outcomes: &[Outcome]) {
    let mut expected = BTreeMap::new();
    let mut counters: BTreeMap<u64, u64> = BTreeMap::new();
    for outcome in outcomes {
        expected.extend(outcome.own.iter().map(|(number, tag)| (*number, *tag)));
        for (number, count) in &outcome.increments {
            *counters.entry(*number).or_default() += count;
        }
    }
    expected.extend(counters.into_iter().map(|(number, count)| (number, count as u32)));
    let (keys, len) = (Thread::keys(tree, WIDE), tree.shape().leaf.payload_len());
    let expected = expected.into_iter().map(|(number, tag)| (keys.key(number), value(len, number, tag)));
    assert!(expected.eq(found.iter().cloned()), "the wide tree holds what its owners say");
}

/// Asserts for each hot key that it was inserted as often as it was removed, or once more if it is there.
fn check_hot(found: &[(Vec<u8>, Vec<u8>)], tree: &TreeState, outcomes: &[Outcome]) {
    let keys = Thread::keys(tree, HOT);
    for number in 0..HOT {
        let there = found.binary_search_by_key(&keys.key(number), |(key, _)| key.clone()).is_ok();
        let balance: i64 = outcomes.iter().filter_map(|outcome| outcome.ledger.get(&number)).sum();
        assert_eq!(balance, i64::from(there), "hot key {number}");
    }
}

#[test]
fn threads_of_several_compute_servers_leave_what_they_say_they_left() {
    let _shared = crate::ALONE.read().unwrap_or_else(PoisonError::into_inner);
    let seconds =
        std::env::var("SHERMAN_STRESS_SECONDS").ok().and_then(|seconds| seconds.parse::<f64>().ok());
    // With only four lanes, the nodes of a merge share lanes with each other and with the nodes of other
    // threads.
    let cases = [
        ("line-hashed 8/8", spec(Format::LineHashed, 8, 8, 256, 256), Techniques::OURS, 256),
        ("line-hashed, half a KiB", spec(Format::LineHashed, 8, 8, 512, 256), Techniques::OURS, 4),
        ("line-stamped 8/8", spec(Format::LineStamped, 8, 8, 256, 256), Techniques::OURS, 256),
        ("line-stamped, long entries", spec(Format::LineStamped, 16, 100, 576, 256), Techniques::OURS, 256),
        (
            "line-stamped, wide header, Sherman",
            spec(Format::LineStamped, 40, 8, 448, 512),
            Techniques::SHERMAN,
            4,
        ),
        ("two-level, Sherman", spec(Format::TwoLevel, 16, 18, 256, 256), Techniques::SHERMAN, 256),
        ("sorted, FG", spec(Format::Sorted, 16, 20, 256, 256), Techniques::NONE, 4),
        ("sorted-stamped", spec(Format::SortedStamped, 16, 20, 256, 256), Techniques::OURS, 256),
    ];
    let each = seconds.unwrap_or(if runs_in_full() { 6.0 } else { 3.0 }) / cases.len() as f64;
    for (name, spec, techniques, lanes) in cases {
        stress(name, &spec, techniques, lanes, (each * 1e9) as u64);
    }
}

/// Two threads load a tree while a third inserts one key. Returns which loads succeeded.
fn race(world: &World, name: &str, spec: &TreeSpec, round: u64) -> [bool; 2] {
    let keys = Keys::new(usize::from(spec.key_len), 1000, false);
    let len = spec.value_len as usize;
    let entries = |rest: u64| -> Vec<_> {
        (0..120)
            .map(|number| number * 3 + rest)
            .map(|number| (keys.key(number), value(len, number, 1)))
            .collect()
    };
    let lone = (keys.key(998), value(len, 998, 1));
    let (world, lone, start) = (&world, &lone, &Barrier::new(3));
    let loads = std::thread::scope(|scope| {
        let loads = [0, 1].map(|compute| {
            let entries = entries(compute);
            scope.spawn(move || {
                let worker = world.worker(compute as usize);
                let tree = block_on(worker.endpoint(), worker.tree(name, spec)).expect("a tree");
                start.wait();
                match load(&worker, &tree, &entries, 0.7) {
                    Ok(120) => true,
                    Err(Error::NotEmpty) => false,
                    other => panic!("a load is all or nothing: {other:?}"),
                }
            })
        });
        let inserter = scope.spawn(move || {
            let worker = world.worker(2);
            let tree = block_on(worker.endpoint(), worker.tree(name, spec)).expect("a tree");
            start.wait();
            let began = worker.endpoint().now();
            while worker.endpoint().now() - began < round % 16 * 10_000 {
                std::hint::spin_loop();
            }
            let op = worker.op();
            assert_eq!(
                block_on(worker.endpoint(), op.insert(&tree, &lone.0, &lone.1, &mut Vec::new())),
                Ok(false)
            );
        });
        let loads = loads.map(|load| load.join().expect("no thread panics"));
        inserter.join().expect("no thread panics");
        loads
    });
    assert!(!(loads[0] && loads[1]), "two loads of one tree succeeded");
    let mut expected: Vec<_> = (0..2).filter(|rest| loads[*rest as usize]).flat_map(entries).collect();
    expected.push(lone.clone());
    let worker = world.worker(0);
    let tree = block_on(worker.endpoint(), worker.open_tree(name)).expect("the tree");
    let held = walk(&worker, &tree);
    assert_eq!(held.entries, expected);
    // Emptied, so that the next round reuses its nodes.
    for (key, _) in expected {
        let op = worker.op();
        assert_eq!(block_on(worker.endpoint(), op.remove(&tree, &key, &mut Vec::new())), Ok(true));
    }
    world.assert_at_rest();
    loads
}

#[test]
fn of_loads_and_an_insert_that_race_each_happens_or_is_refused() {
    let _shared = crate::ALONE.read().unwrap_or_else(PoisonError::into_inner);
    let world = World::new(&WorldOptions { compute_servers: 3, ..WorldOptions::default() });
    let spec = spec(Format::LineStamped, 8, 8, 256, 256);
    let mut won = [0, 0];
    let mut walks = Vec::new();
    for round in 0..160 {
        let name = format!("race {round}");
        let loads = race(&world, &name, &spec, round);
        (0..2).for_each(|who| won[who] += u32::from(loads[who]));
        let worker = world.worker(0);
        let tree = block_on(worker.endpoint(), worker.open_tree(&name)).expect("the tree");
        walks.push(walk(&worker, &tree));
        world.assert_balanced(&walks.iter().collect::<Vec<_>>());
    }
    assert!((1..160).contains(&(won[0] + won[1])), "now a load comes first and now the insert: {won:?}");
    println!("loads that won: {won:?} of 160");
}
