//! Properties of single trees of any shape: histories compared with a `BTreeMap`, bulk loads, and refusals
//! that change nothing.
//!
//! A failing case is shrunk to a short history of a simple shape and printed.

use crate::support::model::{Action, Expect, Keys, Model, load};
use crate::support::{World, WorldOptions, atomicity, runs_in_full, spec};
use proptest::prelude::*;
use sherman_core::node::TreeShape;
use sherman_core::tree::range::Direction;
use sherman_core::{Error, Format};
use sherman_executor::block_on;
use sherman_fabric::control::TreeSpec;
use std::ops::Bound;

const KEY_LENGTHS: [usize; 5] = [1, 8, 16, 100, 1024];
const VALUE_LENGTHS: [usize; 4] = [0, 8, 60, 200];
const NODE_SIZES: [usize; 9] = [256, 320, 448, 1024, 2048, 4096, 8192, 16384, 65536];

/// A step of a history: one action, or a run of actions that fills or empties whole nodes.
#[derive(Clone, Debug)]
enum Step {
    One(usize, Action),
    /// Inserts every `stride`th key from `from` on, as many as fill `leaves` leaves.
    Fill {
        from: u64,
        stride: u64,
        leaves: u64,
    },
    /// Removes as many keys as fill `leaves` leaves, from `from` on, up or down.
    Empty {
        from: u64,
        down: bool,
        leaves: u64,
    },
}

/// Returns a shape of the given format and lengths. Its nodes are at least as large as requested, and large
/// enough for the format.
fn smallest_shape(format: Format, key: usize, value: usize, leaf: usize, internal: usize) -> TreeSpec {
    let fits =
        |leaf: usize, internal: usize| TreeShape::new(&spec(format, key, value, leaf, internal), 1).is_ok();
    let leaf = NODE_SIZES
        .into_iter()
        .find(|&size| size >= leaf && fits(size, 65536))
        .expect("64 KiB hold four entries");
    let internal =
        NODE_SIZES.into_iter().find(|&size| size >= internal && fits(65536, size)).expect("as above");
    spec(format, key, value, leaf, internal)
}

fn any_shape() -> impl Strategy<Value = TreeSpec> {
    let of = |list: &'static [usize]| proptest::sample::select(list);
    // Most nodes are as small as possible, so that trees are high.
    let size = || prop_oneof![6 => Just(256_usize), 4 => of(&NODE_SIZES)];
    let format = proptest::sample::select(Format::ALL.to_vec());
    (format, of(&KEY_LENGTHS), of(&VALUE_LENGTHS), size(), size())
        .prop_map(|(format, key, value, leaf, internal)| smallest_shape(format, key, value, leaf, internal))
}

fn any_bound() -> impl Strategy<Value = Bound<u64>> {
    prop_oneof![
        Just(Bound::Unbounded),
        any::<u64>().prop_map(Bound::Included),
        any::<u64>().prop_map(Bound::Excluded)
    ]
}

fn any_action() -> impl Strategy<Value = Action> {
    let (there, nothing) = (Just(Expect::WhatIsThere), Just(Expect::Nothing));
    let expect = prop_oneof![3 => there, 1 => nothing, 1 => (0..3_u8).prop_map(Expect::Value)];
    let direction = prop_oneof![Just(Direction::Forward), Just(Direction::Backward)];
    prop_oneof![
        3 => (any::<u64>(), 0..3_u8).prop_map(|(key, value)| Action::Insert(key, value)),
        3 => any::<u64>().prop_map(Action::Remove),
        2 => any::<u64>().prop_map(Action::Get),
        2 => (any::<u64>(), 0..3_u8).prop_map(|(key, value)| Action::InsertIfAbsent(key, value)),
        3 => (any::<u64>(), expect, proptest::option::of(0..3_u8))
            .prop_map(|(key, expect, new)| Action::Exchange(key, expect, new)),
        3 => (any_bound(), any_bound(), direction, 0..40_usize)
            .prop_map(|(from, to, direction, prefetch)| Action::Scan(from, to, direction, prefetch)),
        1 => Just(Action::Forget),
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..2_usize, any_action()).prop_map(|(who, action)| Step::One(who, action)),
        2 => (any::<u64>(), 1..4_u64, 1..10_u64)
            .prop_map(|(from, stride, leaves)| Step::Fill { from, stride, leaves }),
        2 => (any::<u64>(), any::<bool>(), 1..12_u64)
            .prop_map(|(from, down, leaves)| Step::Empty { from, down, leaves }),
    ]
}

/// Makes a world with one tree of this shape, and 200 to 2500 keys for it.
fn set_up(spec: &TreeSpec, alike: bool) -> (World, Model) {
    let format = Format::from_number(spec.format).expect("a format");
    let world = World::new(&WorldOptions {
        memory_bytes: 64 << 20,
        atomicity: atomicity(format),
        ..WorldOptions::default()
    });
    let capacity = TreeShape::new(spec, 1).expect("a legal shape").leaf.capacity() as u64;
    let keys = Keys::new(usize::from(spec.key_len), (capacity * 16).clamp(200, 2500), alike);
    let model = Model::new(&world, "t", spec, keys);
    (world, model)
}

impl Model {
    fn capacity(&self) -> u64 {
        self.members[0].1.shape().leaf.capacity() as u64
    }

    fn is_hashed(&self) -> bool {
        self.members[0].1.shape().leaf.is_hashed()
    }

    fn step(&mut self, step: &Step) {
        let count = self.keys.count;
        match *step {
            Step::One(who, ref action) => self.apply(who, action),
            Step::Fill { from, stride, leaves } => {
                for number in 0..(leaves * self.capacity()).min(count) {
                    let key = from.wrapping_add(number * stride) % count;
                    self.apply(number as usize, &Action::Insert(key, 1));
                }
            }
            Step::Empty { from, down, leaves } => {
                for number in 0..(leaves * self.capacity()).min(count) {
                    let key = if down { from.wrapping_sub(number) } else { from.wrapping_add(number) };
                    self.apply(number as usize, &Action::Remove(key % count));
                }
            }
        }
    }

    fn empty(&mut self) {
        for number in 0..self.keys.count {
            self.apply(number as usize, &Action::Remove(number));
        }
    }
}

/// A plain `cargo test` runs a part of the cases.
fn config(cases: u32) -> ProptestConfig {
    let cases = if runs_in_full() { cases } else { cases / 4 };
    ProptestConfig { cases, failure_persistence: None, max_shrink_time: 60_000, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config(160))]

    #[test]
    fn a_tree_of_any_shape_holds_what_a_btreemap_would(
        spec in any_shape(),
        alike in any::<bool>(),
        steps in proptest::collection::vec(any_step(), 1..60),
    ) {
        let (world, mut model) = set_up(&spec, alike);
        for (number, step) in steps.iter().enumerate() {
            model.step(step);
            if number % 16 == 15 {
                world.assert_balanced(&[&model.check_tidy()]);
            }
        }
        world.assert_balanced(&[&model.check_tidy()]);
        model.empty();
        let empty = model.check();
        prop_assert_eq!(&empty.nodes, &[1]);
        world.assert_balanced(&[&empty]);
        world.assert_at_rest();
    }

    #[test]
    fn a_bulk_loaded_tree_is_as_good_as_one_that_grew(
        spec in any_shape(),
        alike in any::<bool>(),
        fill in prop_oneof![Just(0.0), Just(0.5), Just(0.7), Just(1.0), 0.0..1.2_f64],
        share in 0..=100_u64,
        before in any::<bool>(),
        steps in proptest::collection::vec(any_step(), 0..20),
    ) {
        let (world, mut model) = set_up(&spec, alike);
        if before {
            // Nodes in reused places are written pending, and linked after the swap.
            model.step(&Step::Fill { from: 0, stride: 1, leaves: 6 });
            model.empty();
        }
        let count = model.keys.count;
        let numbers = (0..count * share / 100).map(|number| number * 100 / share.max(1) % count);
        let numbers: Vec<u64> = numbers.collect();
        prop_assert_eq!(model.load(1, &numbers, 2, fill), Ok(numbers.len() as u64));
        let loaded = model.check();
        world.assert_balanced(&[&loaded]);
        world.assert_at_rest();
        let capacity = model.capacity() as usize;
        let per_leaf = ((capacity as f64 * fill) as usize).clamp(capacity.div_ceil(2), capacity);
        let least = numbers.len().div_ceil(per_leaf).max(1);
        if model.is_hashed() {
            // Each leaf takes what fits.
            prop_assert!((least..=least * 3 / 2 + 2).contains(&loaded.nodes[0]), "{:?}", loaded.nodes);
        } else {
            prop_assert_eq!(loaded.nodes[0], least);
        }
        prop_assert_eq!(loaded.missing_separators, 0);
        for step in &steps {
            model.step(step);
        }
        world.assert_balanced(&[&model.check_tidy()]);
        model.empty();
        prop_assert_eq!(&model.check().nodes, &[1]);
    }

    #[test]
    fn what_is_refused_changes_nothing(
        spec in any_shape(),
        held in proptest::collection::btree_set(0..200_u64, 0..60),
        loaded in 2..120_u64,
        wrong in any::<prop::sample::Index>(),
    ) {
        let (world, mut model) = set_up(&spec, false);
        for &number in &held {
            model.apply(0, &Action::Insert(number, 1));
        }
        // A load whose keys do not ascend, whatever the tree holds.
        let entries = (0..loaded).map(|number| (model.keys.key(number), model.value(2)));
        let mut entries: Vec<_> = entries.collect();
        let at = 1 + wrong.index(entries.len() - 1);
        let repeated = entries[at - 1].clone();
        entries[at] = repeated;
        {
            let (worker, tree) = &model.members[1];
            let refused = load(worker, tree, &entries, 0.7);
            prop_assert_eq!(refused, Err(Error::Unsorted { at: at as u64 }));
        }
        world.assert_balanced(&[&model.check()]);
        // A load that comes too late.
        model.apply(1, &Action::Insert(0, 1));
        let numbers: Vec<u64> = (0..loaded).collect();
        prop_assert_eq!(model.load(1, &numbers, 2, 1.0), Err(Error::NotEmpty));
        prop_assert_eq!(model.load(1, &[], 2, 1.0), Err(Error::NotEmpty));
        world.assert_balanced(&[&model.check()]);
        world.assert_at_rest();
        // Keys and values of another size.
        let (worker, tree) = &model.members[0];
        let (key, long_key) = (model.keys.key(1), vec![1; model.keys.len + 1]);
        let (value, long_value) = (model.value(1), vec![1; model.value_len + 1]);
        let (op, mut out) = (worker.op(), Vec::new());
        let key_size = Error::KeySize { expected: key.len(), found: long_key.len() };
        let value_size = Error::ValueSize { expected: value.len(), found: long_value.len() };
        let endpoint = worker.endpoint();
        let inserted = block_on(endpoint, op.insert(tree, &long_key, &value, &mut out));
        prop_assert_eq!(inserted, Err(key_size.clone()));
        prop_assert_eq!(block_on(endpoint, op.remove(tree, &long_key, &mut out)), Err(key_size.clone()));
        prop_assert_eq!(block_on(endpoint, op.get(tree, &long_key, &mut out)), Err(key_size.clone()));
        let inserted = block_on(endpoint, op.insert(tree, &key, &long_value, &mut out));
        prop_assert_eq!(inserted, Err(value_size.clone()));
        prop_assert_eq!(
            block_on(endpoint, op.insert_if_absent(tree, &key, &long_value, &mut out)),
            Err(value_size.clone())
        );
        let ended = op.compare_exchange(tree, &key, Some(&long_value), None, &mut out);
        prop_assert_eq!(block_on(endpoint, ended), Err(value_size.clone()));
        prop_assert_eq!(op.tally().round_trips, 0, "what is refused for its size costs nothing");
        prop_assert_eq!(load(worker, tree, &[(long_key, value)], 1.0), Err(key_size));
        prop_assert_eq!(load(worker, tree, &[(key, long_value)], 1.0), Err(value_size));
        world.assert_balanced(&[&model.check()]);
    }
}

#[test]
fn every_key_and_value_length_has_a_shape_in_every_format() {
    for format in Format::ALL {
        for key in KEY_LENGTHS {
            for value in VALUE_LENGTHS {
                let small = smallest_shape(format, key, value, 256, 256);
                let shape = TreeShape::new(&small, 1).expect("a legal shape");
                assert!(shape.leaf.capacity() >= 4 && shape.internal.capacity() >= 4);
            }
        }
    }
}

/// A leaf that waits for its parent to merge is tried again once the parent has merged, whatever happened in
/// between.
#[test]
fn what_waited_for_its_parent_is_merged_after_it() {
    let spec = TreeSpec { format: 1, key_len: 1024, value_len: 60, leaf_bytes: 8192, internal_bytes: 8192 };
    let (_world, mut model) = set_up(&spec, false);
    let count = model.keys.count;
    let numbers: Vec<u64> = (0..count * 91 / 100).map(|number| number * 100 / 91 % count).collect();
    assert_eq!(model.load(1, &numbers, 2, 1.0), Ok(numbers.len() as u64));
    model.step(&Step::Empty { from: 8_322_102_955_217_306_412, down: true, leaves: 4 });
    model.empty();
    assert_eq!(model.check().nodes, [1]);
}
