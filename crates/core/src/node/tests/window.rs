//! The lines of one key of a hashed leaf, read without the rest: they tell and write what the whole leaf
//! would.

use super::*;
use crate::node::hashed::{AT_LINE_TREE, DENSE, DETACHED, WRITTEN, window_bytes, window_of};
use crate::node::header::AT_STAMP;
use crate::node::shape::AT_BITMAP;
use crate::node::window::{EntryChange, Unfit};
use crate::node::{LINE, Lookup, Position, Removed, Window, get_u16, put_u16, put_u32, slots};
use std::collections::BTreeMap;

const SIZES: [(usize, usize, usize); 12] = [
    (8, 8, 256),
    (8, 8, 320),
    (8, 7, 384),
    (8, 5, 1024),
    (8, 8, 512),
    (8, 8, 1024),
    (8, 0, 1024),
    (1, 0, 320),
    (4, 4, 512),
    (16, 4, 1024),
    (18, 0, 512),
    (7, 17, 4096),
];

fn shapes() -> Vec<Shape> {
    let shapes = SIZES.map(|(key, value, bytes)| leaf_shape(Format::LineHashed, key, value, bytes));
    assert!(shapes.iter().all(Shape::is_hashed));
    shapes.to_vec()
}

/// A leaf with these fences.
fn leaf<'s>(shape: &'s Shape, low: &[u8], high: Option<&[u8]>) -> Draft<'s> {
    let mut draft = Draft::new(shape, 0, low, high, GlobalAddress::NULL, place(0xfffe));
    draft.link();
    draft
}

/// Where the keys of a test lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keys {
    /// Anywhere.
    Anywhere,
    /// Near enough to each other for dense leaves of 8-byte keys.
    Near,
    /// The same, apart from a few.
    MostlyNear,
}

#[test]
fn lines_are_read_and_changed_as_the_whole_leaf_and_a_model_are() {
    let mut changed = 0;
    for shape in &shapes() {
        let [_, dense] = lines_are_like_the_leaf(shape, Keys::Anywhere);
        assert!(dense < 100 || shape.dense.is_some());
        if shape.dense.is_some() {
            assert_eq!(lines_are_like_the_leaf(shape, Keys::Near), [0, 4000]);
            let [wide, dense] = lines_are_like_the_leaf(shape, Keys::MostlyNear);
            changed += usize::from(wide > 100 && dense > 10);
        }
    }
    assert!(changed > 1, "{changed} leaves were dense first and wide later");
}

/// Returns how often the leaf was wide and how often dense.
fn lines_are_like_the_leaf(shape: &Shape, keys: Keys) -> [usize; 2] {
    let numbers = &mut Numbers(shape.node_bytes as u64);
    let (low, mut high) = (vec![0x02; shape.key_len], vec![0xf0; shape.key_len]);
    if keys == Keys::Near {
        high[..2].fill(0x02);
    }
    let mut draft = leaf(shape, &low, Some(&high));
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let (mut full, mut strangers, mut changes) = (0, 0, 0);
    let mut packings = [0, 0];
    for _ in 0..4000 {
        let mut key = match numbers.below(3) {
            0 if !model.is_empty() => {
                model.keys().nth(numbers.below(model.len())).cloned().expect("some key")
            }
            1 => numbers.key(shape.key_len),
            _ => numbers.bytes(shape.key_len),
        };
        if keys == Keys::Near || (keys == Keys::MostlyNear && numbers.below(50) > 0) {
            key[..2].fill(0x02);
        }
        let image = draft.image().to_vec();
        packings[usize::from(draft.header().flags.dense)] += 1;
        let window = Window::open(shape, &image[window_bytes(shape, &key)], &key);
        if key < low || key >= high {
            assert_eq!(window.err(), Some(Unfit::Elsewhere), "{key:x?}");
            strangers += 1;
            continue;
        }
        if draft.header().flags.dense && !shape.for_keys(&low, Some(&key)).is_dense {
            assert_eq!(window.err(), Some(Unfit::Elsewhere), "the lines do not show the high fence");
            assert_eq!(draft.node().find(&key), Lookup::Absent);
            let new = numbers.bytes(shape.payload_len);
            match draft.upsert(&key, &new, &mut Vec::new()) {
                Upsert::Inserted(patch) => {
                    assert!(patch.bytes() == shape.node_bytes && !draft.header().flags.dense, "wide");
                    model.insert(key, new);
                }
                upsert => assert_eq!(upsert, Upsert::Full),
            }
            continue;
        }
        let window = window.expect("the leaf covers the key");
        let mut value = Vec::new();
        assert_eq!(window.get(&key, &mut value).then_some(&value), model.get(&key), "{key:x?}");
        let entries = window.len();
        assert_eq!(window.is_empty(), entries == 0);
        assert_eq!(window.is_whole_leaf(), window_bytes(shape, &key).len() + LINE == shape.node_bytes);
        assert!(window.change(&key, EntryChange::Nothing).is_none());
        let new = numbers.bytes(shape.payload_len);
        // Many removes at the end, so that slots are used again.
        let remove = numbers.below(5) < 1 + changes / 1000;
        let change = if remove { EntryChange::Remove } else { EntryChange::Put(&new) };
        let written = window.change(&key, change);
        let version = draft.header().version;
        let there = model.contains_key(&key);
        let mut old = Vec::new();
        let patch = if remove {
            match draft.remove(&key, &mut old) {
                Removed::Gone(patch) => Some(patch),
                _ => None,
            }
        } else {
            match draft.upsert(&key, &new, &mut old) {
                Upsert::Inserted(patch) | Upsert::Updated(patch) => Some(patch),
                _ => None,
            }
        };
        if let (None, Some(patch)) = (&written, &patch) {
            assert!(!remove && !there, "only a new key can find its lines full");
            assert!(patch.bytes() == shape.node_bytes && patch.needs_redo(64), "a new layout");
            assert_ne!(draft.header().version, version, "entries moved to other lines");
            model.insert(key, new);
            full += 1;
            continue;
        }
        let Some((written, patch)) = written.as_ref().zip(patch.as_ref()) else {
            assert!(written.is_none() && patch.is_none(), "{written:?} but {patch:?}");
            assert!(!there, "an entry that is there can be replaced and removed");
            assert!(draft.image() == image, "nothing changes");
            full += usize::from(!remove);
            continue;
        };
        changes += 1;
        assert_eq!((patch.steps(), written.updated), (&[written.range()][..], there));
        let mut by_lines = image;
        by_lines[written.range()].copy_from_slice(written.bytes());
        assert!(by_lines == draft.image(), "the same bytes, {change:?} of {key:x?}");
        assert!(window_bytes(shape, &key).contains(&written.range().start));
        if remove {
            model.remove(&key)
        } else {
            model.insert(key, new)
        };
    }
    let entries: Vec<Pair> = model.into_iter().collect();
    assert!(draft.node().entries() == entries);
    assert!(changes > 300 && strangers > 10, "{changes} {strangers}: {shape:?}");
    assert!(full > 0 || shape.capacity() > 150, "no window was ever full: {shape:?}");
    packings
}

#[test]
fn lines_of_other_trees_versions_and_leaves_give_no_answer() {
    let shape = leaf_shape(Format::LineHashed, 8, 8, 1024);
    // A dense leaf and a wide one, whose keys are too far from each other.
    for shift in [0, 48] {
        let [low, key, high] = [10_u64, 20, 30].map(|number| (number << shift).to_be_bytes());
        let mut draft = leaf(&shape, &low, Some(&high));
        put(&mut draft, &key, &[1; 8]);
        assert_eq!(draft.header().flags.dense, shift == 0);
        let window = window_bytes(&shape, &key);
        let lines = draft.image()[window.clone()].to_vec();
        let open = |lines: &[u8]| Window::open(&shape, lines, &key).err();
        assert_eq!(open(&lines), None);
        for line in 0..4 {
            let changed = |change: &dyn Fn(&mut [u8])| {
                let mut lines = lines.clone();
                change(&mut lines[line * LINE..(line + 1) * LINE]);
                open(&lines)
            };
            assert_eq!(changed(&|line| put_u16(line, AT_STAMP, 0x1234)), Some(Unfit::Torn));
            let flipped = |line: &mut [u8], bit: u16| {
                let marks = get_u16(line, AT_BITMAP) ^ bit;
                put_u16(line, AT_BITMAP, marks);
            };
            for bit in [DETACHED, WRITTEN, DENSE] {
                assert_eq!(changed(&|line| flipped(line, bit)), Some(Unfit::Elsewhere), "{bit:x}");
            }
            // Every fourth dense line has the tree id.
            if shift > 0 || (window.start / LINE - 1 + line) % 4 == 3 {
                assert_eq!(changed(&|line| put_u32(line, AT_LINE_TREE, TREE + 1)), Some(Unfit::Elsewhere));
            }
        }
        let open = |leaf: &Draft<'_>| Window::open(&shape, &leaf.image()[window.clone()], &key).err();
        assert_eq!(open(&leaf(&shape, &high, None)), Some(Unfit::Elsewhere), "to its left");
        assert_eq!(open(&leaf(&shape, &[0; 8], Some(&key))), Some(Unfit::Elsewhere), "the high fence");
        assert_eq!(open(&leaf(&shape, &key, None)), None, "the low fence");
        let pending = Draft::new(&shape, 0, &[0; 8], None, GlobalAddress::NULL, place(1));
        assert_eq!(open(&pending), Some(Unfit::Elsewhere), "pending");
        assert!(Window::open(&shape, &[0; 256], &key).is_err(), "memory never written");
        for (value_len, wide) in [(8, false), (7, false), (4, true)] {
            let kind = crate::node::NodeKind::Leaf;
            let other = Shape::new(kind, Format::LineHashed, TREE + 1, 1024, 8, value_len).expect("legal");
            assert_eq!(other.dense.is_none(), wide);
            assert_eq!(open(&leaf(&other, &low, Some(&high))), Some(Unfit::Elsewhere), "another tree");
        }
    }
}

#[test]
fn arbitrary_lines_never_panic() {
    let (mut opened, mut tried) = (0, 0);
    for shape in shapes().iter().chain(&[leaf_shape(Format::LineStamped, 8, 8, 1024)]) {
        let numbers = &mut Numbers(17);
        for round in 0..6000 {
            let key = numbers.key(shape.key_len);
            // The bytes of the window, or too few or too many.
            let len = if round % 8 == 0 { numbers.below(400) } else { window_bytes(shape, &key).len() };
            let mut lines = numbers.bytes(len);
            if round % 4 != 1 {
                for line in lines.chunks_exact_mut(LINE) {
                    put_u16(line, AT_STAMP, 3);
                    put_u32(line, AT_LINE_TREE, TREE);
                    let dense = if round % 2 == 0 { DENSE } else { 0 };
                    let marks = get_u16(line, AT_BITMAP) & !(DETACHED | DENSE) | WRITTEN | dense;
                    put_u16(line, AT_BITMAP, marks);
                }
            }
            tried += 1;
            let Ok(window) = Window::open(shape, &lines, &key) else { continue };
            opened += 1;
            let mut value = Vec::new();
            let there = window.get(&key, &mut value);
            assert_eq!(value.len(), if there { shape.payload_len } else { 0 });
            // Random bits of slots that a line does not have count for nothing.
            let live = window.len();
            let slots = slots_of(window.shape, &lines);
            assert!(live <= slots);
            let _ = (window.is_empty(), window.is_whole_leaf());
            for change in [EntryChange::Remove, EntryChange::Put(&vec![7; shape.payload_len])] {
                let Some(written) = window.change(&key, change) else {
                    let may_fail = change == EntryChange::Remove || window.shape.is_dense;
                    assert!(may_fail || live == slots, "room");
                    continue;
                };
                let range = written.range();
                assert!(range.end.is_multiple_of(LINE) && range.len() <= LINE && range.start >= LINE);
                assert_eq!((range.len(), there), (written.bytes().len(), written.updated));
            }
        }
    }
    assert!(opened > 2_000, "only {opened} of {tried} were good");
}

/// The slots of these lines.
fn slots_of(shape: &Shape, lines: &[u8]) -> usize {
    lines.len() / LINE * (shape.capacity / (shape.lines() - shape.header_lines))
}

/// A damaged leaf can have more entries of one window than fit there.
#[test]
fn a_leaf_whose_entries_lie_outside_their_lines_splits_without_them() {
    let shape = leaf_shape(Format::LineHashed, 8, 8, 1024);
    let window = window_of(&shape, &7_u64.to_be_bytes());
    let mut keys = (0..).map(u64::to_be_bytes).filter(|key| window_of(&shape, key) == window);
    let mut draft = leaf(&shape, &[0; 8], None);
    let mut image = draft.image().to_vec();
    for slot in 0..draft.shape.capacity {
        let key = keys.next().expect("there are many");
        slots::store(draft.shape, &mut image, slot, &key, &[1; 8]);
    }
    draft = Draft::of(&shape, &Node::open(&shape, &image, 0).expect("it looks valid"), Vec::new());
    let new = keys.next().expect("there are many");
    assert_eq!(draft.node().position(&new), Position::Inside);
    assert_eq!(draft.upsert(&new, &[2; 8], &mut Vec::new()), Upsert::Full);
    let split = draft.split_leaf(&new, &[2; 8], place(1));
    assert_eq!(draft.node().len() + split.right.node().len(), 17, "sixteen were in their lines");
    assert!(matches!(split.right.node().find(&new), Lookup::Found(_)));
}
