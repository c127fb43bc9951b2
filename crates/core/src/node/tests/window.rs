//! The lines of one key of a hashed leaf, read without the rest: they tell and write what the whole leaf
//! would.

use super::*;
use crate::node::hashed::{AT_LINE_TREE, DETACHED, WRITTEN, window_bytes, window_of};
use crate::node::header::AT_STAMP;
use crate::node::shape::AT_BITMAP;
use crate::node::window::{EntryChange, Unfit};
use crate::node::{LINE, Lookup, Position, Removed, Window, get_u16, put_u16, put_u32, slots};
use std::collections::BTreeMap;

const SIZES: [(usize, usize, usize); 9] = [
    (8, 8, 256),
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

#[test]
fn lines_are_read_and_changed_as_the_whole_leaf_and_a_model_are() {
    for shape in &shapes() {
        let numbers = &mut Numbers(shape.node_bytes as u64);
        let (low, high) = (vec![0x02; shape.key_len], vec![0xf0; shape.key_len]);
        let mut draft = leaf(shape, &low, Some(&high));
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        let (mut full, mut strangers, mut changes) = (0, 0, 0);
        for _ in 0..4000 {
            let key = match numbers.below(3) {
                0 if !model.is_empty() => {
                    model.keys().nth(numbers.below(model.len())).cloned().expect("some key")
                }
                1 => numbers.key(shape.key_len),
                _ => numbers.bytes(shape.key_len),
            };
            let image = draft.image().to_vec();
            let window = Window::open(shape, &image[window_bytes(shape, &key)], &key);
            if key < low || key >= high {
                assert_eq!(window.err(), Some(Unfit::Elsewhere), "{key:x?}");
                strangers += 1;
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
    }
}

#[test]
fn lines_of_other_trees_versions_and_leaves_give_no_answer() {
    let shape = leaf_shape(Format::LineHashed, 8, 8, 1024);
    let (low, key, high) = ([0, 0, 0, 0, 0, 0, 0, 10], [0, 0, 0, 0, 0, 0, 0, 20], [0, 0, 0, 0, 0, 0, 0, 30]);
    let mut draft = leaf(&shape, &low, Some(&high));
    put(&mut draft, &key, &[1; 8]);
    let lines = draft.image()[window_bytes(&shape, &key)].to_vec();
    let open = |lines: &[u8]| Window::open(&shape, lines, &key).err();
    assert_eq!(open(&lines), None);
    for line in 0..4 {
        let changed = |change: &dyn Fn(&mut [u8])| {
            let mut lines = lines.clone();
            change(&mut lines[line * LINE..(line + 1) * LINE]);
            open(&lines)
        };
        assert_eq!(changed(&|line| put_u16(line, AT_STAMP, 0xfffd)), Some(Unfit::Torn));
        assert_eq!(changed(&|line| put_u32(line, AT_LINE_TREE, TREE + 1)), Some(Unfit::Elsewhere));
        assert_eq!(changed(&|line| put_u16(line, AT_BITMAP, WRITTEN | DETACHED)), Some(Unfit::Elsewhere));
        assert_eq!(changed(&|line| put_u16(line, AT_BITMAP, 1)), Some(Unfit::Elsewhere), "never written");
    }
    let other = leaf(&shape, &high, None);
    assert_eq!(open(&other.image()[window_bytes(&shape, &key)]), Some(Unfit::Elsewhere), "to its left");
    let other = leaf(&shape, &[0; 8], Some(&key));
    assert_eq!(open(&other.image()[window_bytes(&shape, &key)]), Some(Unfit::Elsewhere), "the high fence");
    let other = leaf(&shape, &key, None);
    assert_eq!(open(&other.image()[window_bytes(&shape, &key)]), None, "the low fence");
    assert!(open(&[0; 256]).is_some(), "memory never written");
    let pending = Draft::new(&shape, 0, &[0; 8], None, GlobalAddress::NULL, place(1));
    assert_eq!(open(&pending.image()[window_bytes(&shape, &key)]), Some(Unfit::Elsewhere), "pending");
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
                    let marks = get_u16(line, AT_BITMAP) & !DETACHED | WRITTEN;
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
            assert!(live <= slots_of(shape, &lines));
            let _ = (window.is_empty(), window.is_whole_leaf());
            for change in [EntryChange::Remove, EntryChange::Put(&vec![7; shape.payload_len])] {
                let Some(written) = window.change(&key, change) else {
                    assert!(change == EntryChange::Remove || live == slots_of(shape, &lines), "room");
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
    for slot in 0..shape.capacity() {
        let key = keys.next().expect("there are many");
        slots::store(&shape, &mut image, slot, &key, &[1; 8]);
    }
    draft = Draft::of(&shape, &Node::open(&shape, &image, 0).expect("it looks valid"), Vec::new());
    let new = keys.next().expect("there are many");
    assert_eq!(draft.node().position(&new), Position::Inside);
    assert_eq!(draft.upsert(&new, &[2; 8], &mut Vec::new()), Upsert::Full);
    let split = draft.split_leaf(&new, &[2; 8], place(1));
    assert_eq!(draft.node().len() + split.right.node().len(), 13, "twelve were in their lines");
    assert!(matches!(split.right.node().find(&new), Lookup::Found(_)));
}
