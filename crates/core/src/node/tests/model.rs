//! Contents: every format holds what a `BTreeMap` would.

use super::*;
use crate::node::hashed::window_of;
use crate::node::{Lookup, Position, SortedBody};
use std::collections::BTreeMap;

const KEYS: [usize; 8] = [1, 7, 8, 16, 19, 20, 100, 1024];
const VALUES: [usize; 9] = [0, 1, 7, 8, 44, 52, 53, 100, 1000];
const NODES: [usize; 7] = [256, 320, 512, 1024, 4096, 16384, 65536];
/// Filling a leaf takes time quadratic in its entries. Larger leaves show nothing new.
const MOST_ENTRIES: usize = 600;

/// Runs `claim` for each valid leaf shape, and returns their number.
fn for_all_leaves(mut claim: impl FnMut(&Shape, &mut Numbers)) -> usize {
    let mut shapes = 0;
    for format in Format::ALL {
        for (key, value, bytes) in sizes() {
            let Ok(shape) = Shape::new(crate::node::NodeKind::Leaf, format, TREE, bytes, key, value) else {
                continue;
            };
            if shape.capacity() > MOST_ENTRIES {
                continue;
            }
            claim(&shape, &mut Numbers(shapes + 1));
            shapes += 1;
        }
    }
    shapes as usize
}

fn sizes() -> impl Iterator<Item = (usize, usize, usize)> {
    KEYS.into_iter()
        .flat_map(|key| VALUES.into_iter().flat_map(move |value| NODES.map(|bytes| (key, value, bytes))))
}

/// Asserts that everything a reader can ask of the leaf agrees with the model.
fn assert_holds(shape: &Shape, image: &[u8], model: &BTreeMap<Vec<u8>, Vec<u8>>, strangers: &[Vec<u8>]) {
    let node = Node::open(shape, image, 0).expect("a finished leaf is valid");
    let expected: Vec<Pair> = model.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    assert!(node.entries() == expected, "entries differ from the model: {shape:?}");
    assert!(node.entries_whole());
    let mut value = Vec::new();
    for (key, expected) in model.iter().step_by(1 + model.len() / 200) {
        let Lookup::Found(slot) = node.find(key) else { panic!("{key:x?} is lost: {shape:?}") };
        node.value_into(slot, &mut value);
        assert_eq!(&value, expected, "{key:x?}: {shape:?}");
        assert_eq!(node.position(key), Position::Inside);
    }
    for key in strangers
        .iter()
        .step_by(1 + strangers.len() / 200)
        .filter(|key| !model.contains_key(*key) && node.position(key) == Position::Inside)
    {
        assert_eq!(node.find(key), Lookup::Absent, "{key:x?}: {shape:?}");
    }
}

/// Whether every slot in the lines of `key` holds an entry.
fn window_is_full(shape: &Shape, image: &[u8], key: &[u8]) -> bool {
    let per_line = shape.capacity / (shape.lines() - shape.header_lines);
    let slots = window_of(shape, key).flat_map(|line| {
        let first = (line - shape.header_lines) * per_line;
        first..first + per_line
    });
    slots.into_iter().all(|slot| crate::node::slots::is_live(shape, image, slot))
}

/// Upserts random pairs inside the fences until the leaf is full. Returns the key and value that found no
/// room, or `None` if the keys ran out first.
fn fill_up(
    shape: &Shape,
    draft: &mut Draft<'_>,
    model: &mut BTreeMap<Vec<u8>, Vec<u8>>,
    numbers: &mut Numbers,
) -> Option<Pair> {
    let key_len = shape.key_len;
    let mut old = Vec::new();
    for tries in 0..shape.capacity() * 4 + 50 {
        // Keys from the set of a few hundred collide often. The others are mostly far apart, to fill large
        // leaves.
        let key = if tries % 4 == 0 || key_len == 1 { numbers.key(key_len) } else { numbers.bytes(key_len) };
        let (key, value) = (near(shape, key), numbers.bytes(shape.payload_len));
        if seen(shape, draft).position(&key) != Position::Inside {
            continue;
        }
        match draft.upsert(&key, &value, &mut old) {
            Upsert::Updated(_) => assert_eq!(model.insert(key, value), Some(old.clone())),
            Upsert::Inserted(_) => assert_eq!(model.insert(key, value), None),
            Upsert::Full => {
                if shape.is_hashed() {
                    let near = shape.for_keys(&draft.node().low(), Some(&key)).is_dense;
                    let too_far = draft.shape.is_dense && !near;
                    let full = window_is_full(draft.shape, draft.image(), &key);
                    assert!(full || too_far, "full means a full window");
                } else {
                    assert_eq!(model.len(), shape.capacity(), "full means full");
                }
                assert!(!model.contains_key(&key), "an update needs no room");
                return Some((key, value));
            }
            Upsert::Torn => panic!("nobody tore it"),
        }
    }
    None
}

#[test]
fn a_leaf_holds_what_was_put_and_splits_into_the_models_halves() {
    let shapes = for_all_leaves(|shape, numbers| {
        let mut draft = whole_range(shape, 0, 1);
        let mut model = BTreeMap::new();
        // Splits narrow the leaf and leave ghosts (entries outside the fences) behind. Filling it again must
        // reuse every slot.
        for round in 0..3 {
            let Some((key, value)) = fill_up(shape, &mut draft, &mut model, numbers) else {
                assert_holds(shape, draft.image(), &model, &[]);
                return;
            };
            assert_holds(shape, draft.image(), &model, std::slice::from_ref(&key));
            let (low, high) = (seen(shape, &draft).low(), seen(shape, &draft).high());
            let before = *draft.header();
            let split = draft.split_leaf(&key, &value, place(40 + round));
            model.insert(key, value);
            let moved = model.split_off(&split.separator);
            assert!(!moved.is_empty() && !model.is_empty(), "both halves hold something");

            let right = Node::open_marked(shape, split.right.image(), 0).expect("a valid right half");
            assert!(right.header.flags.pending && right.header.owner == ComputeId(9));
            assert_eq!((right.low(), right.high()), (split.separator.clone(), high));
            assert_eq!(right.header.sibling, before.sibling);
            assert_eq!(right.header.version, 40 + round);
            let mut right = split.right.clone();
            right.link();
            assert_holds(shape, right.image(), &moved, &model.keys().cloned().collect::<Vec<_>>());

            let left = seen(shape, &draft);
            assert_eq!((left.low(), left.high()), (low, Some(split.separator.clone())));
            assert_eq!(left.header.sibling, place(0).address);
            assert_eq!(left.header.version, before.version.wrapping_add(1));
            for ghost in moved.keys().take(100) {
                assert_eq!(left.position(ghost), Position::Right);
            }
            assert_holds(shape, draft.image(), &model, &moved.keys().cloned().collect::<Vec<_>>());
        }
    });
    assert!(shapes > 700, "only {shapes} shapes were legal");
}

#[test]
fn the_lowest_and_the_highest_key_are_keys_like_any_other() {
    for_all_leaves(|shape, numbers| {
        let (lowest, highest) = (vec![0; shape.key_len], vec![0xff; shape.key_len]);
        let mut draft = whole_range(shape, 0, 1);
        let node = seen(shape, &draft);
        assert_eq!((node.find(&lowest), node.find(&highest)), (Lookup::Absent, Lookup::Absent), "{shape:?}");
        let mut model = BTreeMap::new();
        for key in [lowest, highest] {
            let value = numbers.bytes(shape.payload_len);
            put(&mut draft, &key, &value);
            model.insert(key, value);
            assert_holds(shape, draft.image(), &model, &[]);
        }
    });
}

#[test]
fn keys_that_arrive_in_order_leave_full_leaves_behind() {
    for format in Format::ALL {
        let shape = leaf_shape(format, 8, 8, 512);
        let mut draft = whole_range(&shape, 0, 1);
        let refused = (0..).find(|key: &u64| !put_if_room(&mut draft, &key.to_be_bytes(), &[0; 8]));
        let count = refused.expect("a leaf holds only so many");
        // The lines of one key can be full before the leaf is.
        assert!(count == shape.capacity() as u64 || shape.is_hashed(), "{format:?}");
        assert!(count > shape.capacity() as u64 / 2, "{format:?} holds only {count}");
        let next = count.to_be_bytes();
        let split = draft.split_leaf(&next, &[0; 8], place(1));
        assert_eq!(seen(&shape, &draft).entries().len(), count as usize, "{format:?}");
        assert_eq!(split.separator, next);
    }
}

/// A random body of an internal node whose first key is the lowest.
fn children(shape: &Shape, count: usize, numbers: &mut Numbers) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut model = BTreeMap::from([(vec![0; shape.key_len], numbers.bytes(8))]);
    for tries in 0..count * 8 {
        if model.len() == count {
            break;
        }
        let key = if tries % 4 == 0 { numbers.key(shape.key_len) } else { numbers.bytes(shape.key_len) };
        model.insert(key, numbers.bytes(8));
    }
    model
}

fn body_of(shape: &Shape, model: &BTreeMap<Vec<u8>, Vec<u8>>) -> SortedBody {
    let mut body = SortedBody::empty(shape);
    for (key, child) in model {
        let at = body.find(key).expect_err("new");
        body.insert(at, key, child);
    }
    body
}

fn assert_leads(
    shape: &Shape,
    image: &[u8],
    level: u8,
    model: &BTreeMap<Vec<u8>, Vec<u8>>,
    numbers: &mut Numbers,
) {
    let node = Node::open_marked(shape, image, level).expect("a valid internal node");
    let body = node.sorted().expect("internal nodes are sorted");
    assert_eq!(usize::from(node.header.count), model.len(), "a count of what there is: {shape:?}");
    let expected: Vec<Pair> = model.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    assert!(node.entries() == expected, "{shape:?}");
    for _ in 0..20 {
        let key = numbers.key(shape.key_len);
        if node.position(&key) != Position::Inside {
            continue;
        }
        let expected = model.range(..=key.clone()).next_back();
        let found = body.responsible(&key).map(|index| (body.key(index), body.payload(index)));
        assert_eq!(found, expected.map(|(key, child)| (&key[..], &child[..])), "{key:x?}: {shape:?}");
    }
}

#[test]
fn an_internal_node_leads_every_key_to_the_child_responsible_also_after_splits() {
    let mut shapes = 0;
    for format in Format::ALL {
        for (key_len, bytes) in KEYS.into_iter().flat_map(|key| NODES.map(|bytes| (key, bytes))) {
            let kind = crate::node::NodeKind::Internal;
            let Ok(shape) = Shape::new(kind, format, TREE, bytes, key_len, crate::node::shape::CHILD) else {
                continue;
            };
            shapes += 1;
            let numbers = &mut Numbers(shapes);
            let mut draft = whole_range(&shape, 2, 1);
            let mut model = children(&shape, shape.capacity(), numbers);
            draft.set_body(&body_of(&shape, &model));
            assert_leads(&shape, draft.image(), 2, &model, numbers);
            for round in 0..4 {
                let key = numbers.bytes(key_len);
                let inside = seen(&shape, &draft).position(&key) == Position::Inside;
                if !inside || model.contains_key(&key) || model.len() < 4 {
                    continue;
                }
                let mut body = seen(&shape, &draft).sorted().expect("sorted");
                let at = body.find(&key).expect_err("new");
                body.insert(at, &key, &[round; 8]);
                let split = draft.split_sorted(body, at, place(9));
                model.insert(key, vec![round; 8]);
                let moved = model.split_off(&split.separator);
                assert_eq!(seen(&shape, &draft).high(), Some(split.separator.clone()));
                assert_eq!(seen(&shape, &split.right).low(), split.separator);
                assert_leads(&shape, draft.image(), 2, &model, numbers);
                assert_leads(&shape, split.right.image(), 2, &moved, numbers);
            }
        }
    }
    assert!(shapes > 150, "only {shapes} shapes were legal");
}

#[test]
fn ghosts_are_never_seen_and_their_slots_are_used_again() {
    let shape = leaf_shape(Format::LineStamped, 8, 8, 256);
    let mut draft = whole_range(&shape, 0, 1);
    for key in 0..shape.capacity() as u64 {
        put(&mut draft, &(key * 10).to_be_bytes(), &[1; 8]);
    }
    let split = draft.split_leaf(&85_u64.to_be_bytes(), &[2; 8], place(1));
    assert_eq!(split.left.steps(), &[0..64], "a header-only split leaves ghosts");
    let left = seen(&shape, &draft).entries().len();
    let ghosts = (0..shape.capacity())
        .filter(|&slot| crate::node::slots::is_live(&shape, draft.image(), slot))
        .filter(|&slot| {
            let mut key = [0; 8];
            crate::node::slots::load(&shape, draft.image(), slot, 0, &mut key);
            seen(&shape, &draft).position(&key) != Position::Inside
        })
        .count();
    assert_eq!(ghosts + left, shape.capacity(), "every slot is an entry or a ghost");
    for key in 0..ghosts as u64 {
        put(&mut draft, &(key + 1).to_be_bytes(), &[3; 8]);
    }
    assert_eq!(seen(&shape, &draft).entries().len(), shape.capacity());
    assert_eq!(draft.upsert(&[0, 0, 0, 0, 0, 0, 0, 9], &[4; 8], &mut Vec::new()), Upsert::Full);
}
