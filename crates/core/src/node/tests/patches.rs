//! A patch has all bytes it needs, few others, and is safe to cut anywhere (I24–I26 of `docs/INVARIANTS.md`).

use super::*;
use crate::node::{Flags, LINE, SortedBody};

/// A node image before and after a change, and the patch.
struct Change {
    old: Vec<u8>,
    new: Vec<u8>,
    patch: Patch,
}

impl Change {
    /// The old image after the first `steps` steps of the patch.
    fn after(&self, steps: usize) -> Vec<u8> {
        let mut image = self.old.clone();
        for range in &self.patch.steps()[..steps] {
            image[range.clone()].copy_from_slice(&self.new[range.clone()]);
        }
        image
    }

    fn assert_complete(&self, shape: &Shape) {
        assert!(
            self.after(self.patch.steps().len()) == self.new,
            "bytes are missing from {:?}: {shape:?}",
            self.patch
        );
        assert!(self.patch.steps().iter().all(|range| !range.is_empty() && range.end <= shape.node_bytes));
    }

    /// Every state that a client's death between units can leave. Without redo each step is one unit (F1,
    /// F7).
    fn states_of_a_crash(&self) -> Vec<Vec<u8>> {
        for range in self.patch.steps() {
            assert_eq!(
                range.start / LINE,
                (range.end - 1) / LINE,
                "a step without redo lies inside one unit"
            );
        }
        (0..=self.patch.steps().len()).map(|steps| self.after(steps)).collect()
    }
}

fn entries(shape: &Shape, level: u8, image: &[u8]) -> Vec<Pair> {
    let node =
        Node::open_marked(shape, image, level).expect("a prefix of a patch without redo is a valid node");
    assert!(node.entries_whole(), "and its entries are whole");
    node.entries()
}

fn union(mut left: Vec<Pair>, right: &[Pair]) -> Vec<Pair> {
    left.extend_from_slice(right);
    left.sort();
    left
}

/// Sizes with short and long entries, narrow and wide fences.
const SIZES: [(usize, usize, usize); 11] = [
    (8, 7, 320),
    (8, 7, 1024),
    (8, 8, 256),
    (8, 8, 1024),
    (1, 0, 256),
    (16, 44, 512),
    (19, 8, 512),
    (20, 8, 512),
    (8, 53, 1024),
    (100, 100, 2048),
    (1024, 100, 16384),
];

/// Fills a leaf at random and passes every change to `check`. A split comes with its right half.
fn for_all_changes(mut check: impl FnMut(&Shape, &Change, Option<(&Draft<'_>, &Pair)>)) {
    for format in Format::ALL {
        for (round, (key_len, value_len, bytes)) in (0..6).flat_map(|round| SIZES.map(|size| (round, size))) {
            let shape = leaf_shape(format, key_len, value_len, bytes);
            let numbers = &mut Numbers(round);
            let mut draft = whole_range(&shape, 0, 1);
            for _ in 0..6 * shape.capacity() {
                let (key, value) = (near(&shape, numbers.key(key_len)), numbers.bytes(value_len));
                if seen(&shape, &draft).position(&key) != crate::node::Position::Inside {
                    continue;
                }
                let old = draft.image().to_vec();
                match draft.upsert(&key, &value, &mut Vec::new()) {
                    Upsert::Updated(patch) | Upsert::Inserted(patch) => {
                        check(&shape, &Change { old, new: draft.image().to_vec(), patch }, None);
                    }
                    Upsert::Full => {
                        let split = draft.split_leaf(&key, &value, place(5));
                        let change = Change { old, new: draft.image().to_vec(), patch: split.left };
                        check(&shape, &change, Some((&split.right, &(key, value))));
                        let mut right = split.right.clone();
                        let patch = right.link();
                        let (old, new) = (split.right.image().to_vec(), right.image().to_vec());
                        check(&shape, &Change { old, new, patch }, None);
                    }
                    Upsert::Torn => panic!("nobody tore it"),
                }
            }
        }
    }
}

#[test]
fn a_patch_holds_every_byte_that_changed() {
    let mut changes = 0;
    for_all_changes(|shape, change, _| {
        change.assert_complete(shape);
        changes += 1;
    });
    assert!(changes > 10_000, "only {changes}");
}

#[test]
fn every_prefix_of_a_put_without_redo_is_the_old_or_the_new_leaf() {
    let mut puts = [0; 2];
    for_all_changes(|shape, change, split| {
        if change.patch.needs_redo(64) || split.is_some() {
            return;
        }
        puts[usize::from(shape.format == Format::LineStamped)] += 1;
        let (old, new) = (entries(shape, 0, &change.old), entries(shape, 0, &change.new));
        for image in change.states_of_a_crash() {
            let found = entries(shape, 0, &image);
            assert!(found == old || found == new, "{shape:?}");
        }
    });
    assert!(puts[0] > 500 && puts[1] > 1000, "too few: {puts:?}");
}

#[test]
fn every_prefix_of_a_split_without_redo_loses_nothing_between_the_halves() {
    let mut splits = 0;
    for_all_changes(|shape, change, split| {
        let Some((right, new)) = split else { return };
        if change.patch.needs_redo(64) {
            return;
        }
        splits += 1;
        let old = entries(shape, 0, &change.old);
        let right = entries(shape, 0, right.image());
        let with_new = union(old.clone(), std::slice::from_ref(new));
        for (steps, image) in change.states_of_a_crash().iter().enumerate() {
            let left = entries(shape, 0, image);
            if steps == 0 {
                assert_eq!(left, old, "before the header line the right half does not exist");
                continue;
            }
            let both = union(left, &right);
            assert!(both == with_new || both == old, "after {steps} steps: {shape:?}");
        }
        assert_eq!(union(entries(shape, 0, &change.new), &right), with_new);
    });
    assert!(splits > 20, "only {splits}");
}

#[test]
fn what_may_go_without_redo_is_what_the_design_says() {
    for_all_changes(|shape, change, split| {
        let entry = shape.key_len + shape.payload_len;
        let narrow = shape.header_lines == 1;
        let linking = Node::open_marked(shape, &change.old, 0).expect("valid").header.flags.pending;
        let free_of_redo = match shape.format {
            // A put whose lines are full lays the leaf out anew.
            Format::LineHashed => !linking && split.is_none() && change.patch.bytes() < shape.node_bytes,
            _ if linking => true,
            Format::LineStamped => entry <= 60 && (split.is_none() || narrow),
            Format::TwoLevel => {
                split.is_none() && change.patch.steps()[0].len() == entry + 1 && !straddles(&change.patch)
            }
            Format::Sorted | Format::SortedStamped => false,
        };
        let appended = split.is_some() && change.patch.steps().len() == 1;
        let long_but_header_only = shape.format == Format::LineStamped && narrow && appended;
        assert_eq!(
            !change.patch.needs_redo(64),
            free_of_redo || long_but_header_only,
            "{:?} {shape:?}",
            change.patch
        );
    });
}

fn straddles(patch: &Patch) -> bool {
    patch.steps().iter().any(|range| range.start / LINE != (range.end - 1) / LINE)
}

#[test]
fn patches_of_internal_nodes_are_complete_and_safe() {
    for format in Format::ALL {
        for (key_len, bytes) in [(8, 256), (19, 512), (20, 512), (100, 1024)] {
            let shape = internal_shape(format, key_len, bytes);
            for seed in 0..200 {
                let numbers = &mut Numbers(seed);
                let mut draft = whole_range(&shape, 1, 1);
                let mut body = SortedBody::empty(&shape);
                body.insert(0, &vec![0; key_len], &[1; 8]);
                while body.len() < shape.capacity() {
                    let key = numbers.bytes(key_len);
                    let at = body.find(&key).unwrap_or_else(|at| at);
                    body.insert(at, &key, &numbers.bytes(8));
                }
                let old = draft.image().to_vec();
                let patch = draft.set_body(&body);
                assert!(patch.needs_redo(64), "a whole node moves entries between lines");
                Change { old, new: draft.image().to_vec(), patch }.assert_complete(&shape);

                let key = numbers.bytes(key_len);
                let at = body.find(&key).unwrap_or_else(|at| at);
                body.insert(at, &key, &[9; 8]);
                let old = draft.image().to_vec();
                let split = draft.split_sorted(body.clone(), at, place(3));
                let change = Change { old, new: draft.image().to_vec(), patch: split.left };
                change.assert_complete(&shape);
                let all: Vec<Pair> =
                    (0..body.len()).map(|i| (body.key(i).to_vec(), body.payload(i).to_vec())).collect();
                let right = entries(&shape, 1, split.right.image());
                assert_eq!(union(entries(&shape, 1, &change.new), &right), all);
                if !change.patch.needs_redo(64) {
                    assert_eq!(change.patch.steps(), &[0..LINE], "one unit, or all of it");
                }
            }
        }
    }
}

#[test]
fn an_update_of_an_8_byte_pair_is_17_bytes_in_two_level_and_inside_one_line_in_line_stamped() {
    for_all_changes(|shape, change, split| {
        let flags = |image: &[u8]| Node::open_marked(shape, image, 0).map(|node| node.header.flags);
        if (shape.key_len, shape.payload_len) != (8, 8) || split.is_some() {
            return;
        }
        if flags(&change.old)
            != Ok(Flags { high_open: flags(&change.old).expect("valid").high_open, ..Flags::default() })
        {
            return;
        }
        match shape.format {
            Format::LineHashed if change.patch.bytes() == shape.node_bytes => {}
            Format::TwoLevel => assert_eq!(change.patch.bytes(), 17),
            Format::LineStamped | Format::LineHashed => {
                assert!(change.patch.bytes() <= 64 && !straddles(&change.patch));
                assert!(change.patch.steps().len() == 1 && change.patch.steps()[0].start >= LINE);
            }
            Format::Sorted | Format::SortedStamped => assert_eq!(change.patch.bytes(), shape.node_bytes),
        }
    });
}

#[test]
fn a_line_stamped_split_is_the_header_line_and_at_most_one_entry_line() {
    let mut kinds = [0; 2];
    for_all_changes(|shape, change, split| {
        let Some((right, (key, _))) = split else { return };
        if shape.format != Format::LineStamped
            || shape.header_lines > 1
            || shape.key_len + shape.payload_len > 60
        {
            return;
        }
        let stays_left = Node::open_marked(shape, right.image(), 0).expect("valid").low() > *key;
        kinds[usize::from(stays_left)] += 1;
        let steps = change.patch.steps();
        assert_eq!(steps[0], 0..LINE, "the header line first: it is the commit");
        assert_eq!(steps.len(), 1 + usize::from(stays_left));
        assert!(change.patch.bytes() <= 2 * LINE);
    });
    assert!(kinds.iter().all(|&count| count > 5), "too few: {kinds:?}");
}

#[test]
fn linking_a_node_is_one_unit_in_every_format_but_the_hashed_one() {
    for format in Format::ALL {
        for (key_len, value_len, bytes) in SIZES {
            let shape = leaf_shape(format, key_len, value_len, bytes);
            let mut draft = Draft::new(&shape, 0, &vec![0; key_len], None, GlobalAddress::NULL, place(77));
            assert_eq!(Node::open(&shape, draft.image(), 0).err(), Some(crate::node::Reject::Pending));
            let old = draft.image().to_vec();
            let patch = draft.link();
            if shape.is_hashed() {
                assert_eq!(patch.steps(), &[LINE..bytes, 0..LINE], "the header line is the last");
            } else {
                assert_eq!(patch.steps(), &[0..LINE]);
                assert!(!patch.needs_redo(64));
            }
            Change { old, new: draft.image().to_vec(), patch }.assert_complete(&shape);
            assert!(Node::open(&shape, draft.image(), 0).is_ok());
        }
    }
}
