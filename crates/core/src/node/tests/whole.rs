//! Removes, merges, emptied and filled nodes, and scans: every format holds and returns what a `BTreeMap`
//! would.

use super::*;
use crate::node::hashed::DETACHED;
use crate::node::shape::AT_BITMAP;
use crate::node::stream::stamp_of;
use crate::node::{Lookup, NodeKind, Position, Removed, Scratch, SortedBody, get_u16};
use std::collections::BTreeMap;
use std::ops::Bound;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Key lengths that fit a word, exceed a word, straddle lines, and are the maximum.
const KEYS: [usize; 6] = [1, 7, 8, 16, 100, 1024];

/// Leaves of every format with short and long entries, narrow and wide fences.
fn leaves() -> Vec<Shape> {
    let mut shapes = Vec::new();
    for format in Format::ALL {
        for key in KEYS {
            for value in [0, 7, 8, 52, 100] {
                for bytes in [256, 1024, 4096, 16384] {
                    shapes.extend(Shape::new(NodeKind::Leaf, format, TREE, bytes, key, value).ok());
                }
            }
        }
    }
    // Large leaves of small entries take long and show nothing new.
    shapes.retain(|shape| shape.capacity() <= 300);
    assert!(shapes.len() > 150, "only {} shapes are legal", shapes.len());
    shapes
}

fn packed<'a>(entries: impl Iterator<Item = (&'a Vec<u8>, &'a Vec<u8>)>) -> Vec<u8> {
    entries.flat_map(|(key, value)| [&key[..], &value[..]].concat()).collect()
}

fn within<'a>(
    model: &'a Model,
    first: &[u8],
    last: Option<&[u8]>,
) -> impl Iterator<Item = (&'a Vec<u8>, &'a Vec<u8>)> {
    let empty = last.is_some_and(|last| last < first);
    let high = if empty { Bound::Excluded(first) } else { last.map_or(Bound::Unbounded, Bound::Included) };
    let low = Bound::Included(first);
    model.range::<[u8], _>((low, high))
}

fn key_inside(node: &Node<'_>, numbers: &mut Numbers) -> Option<Vec<u8>> {
    let len = node.shape.key_len;
    (0..50)
        .map(|tries| if tries % 2 == 0 { numbers.key(len) } else { numbers.bytes(len) })
        .map(|key| near(node.shape, key))
        .find(|key| node.position(key) == Position::Inside)
}

/// Asserts that everything that reads a whole node agrees with the model.
fn assert_collects(node: &Node<'_>, model: &Model, scratch: &mut Scratch, numbers: &mut Numbers) {
    assert_eq!((node.len(), node.is_empty()), (model.len(), model.is_empty()), "{:?}", node.shape);
    let mut out = vec![0xee; 3];
    let len = node.shape.key_len;
    let mut ranges = vec![(Vec::new(), None), (vec![0; len], Some(vec![0xff; len]))];
    for _ in 0..6 {
        ranges.push((numbers.key(len), (numbers.below(4) > 0).then(|| numbers.key(len))));
    }
    // Bounds that are keys of the node, and bounds that are its fences.
    if let (Some(first), Some(last)) = (model.keys().next(), model.keys().nth(model.len() / 2)) {
        ranges.push((first.clone(), Some(last.clone())));
        ranges.push((last.clone(), None));
        ranges.push((last.clone(), Some(last.clone())));
    }
    ranges.push((node.low(), node.high()));
    // Bounds whose length differs from a key's also compare as bytes.
    ranges.push((vec![0x80], Some([&numbers.key(len)[..], &[0]].concat())));
    for (first, last) in ranges {
        out.truncate(3);
        assert!(node.collect(&first, last.as_deref(), scratch, &mut out), "nobody tore it");
        assert!(out[..3] == [0xee; 3], "what was in the buffer stays");
        let expected = packed(within(model, &first, last.as_deref()));
        assert!(out[3..] == expected, "{first:x?}..={last:x?} of {:?}", node.shape);
    }
}

/// A leaf of random entries whose upper half was split off repeatedly, so that it is full of ghosts (entries
/// outside the fences).
fn narrowed<'s>(shape: &'s Shape, numbers: &mut Numbers) -> (Draft<'s>, Model) {
    let mut draft = whole_range(shape, 0, 0xfff0);
    let mut model = Model::new();
    let wanted = numbers.below(shape.capacity() + 1);
    let splits = 1 + numbers.below(2);
    let mut done = 0;
    for _ in 0..8 * shape.capacity() {
        if done == splits && model.len() >= wanted {
            break;
        }
        let Some(key) = key_inside(&draft.node(), numbers) else { break };
        let value = numbers.bytes(shape.payload_len);
        match draft.upsert(&key, &value, &mut Vec::new()) {
            Upsert::Full if done < splits => {
                let split = draft.split_leaf(&key, &value, place(1));
                model.insert(key, value);
                model.split_off(&split.separator);
                done += 1;
            }
            Upsert::Full => break,
            Upsert::Torn => panic!("nobody tore it"),
            Upsert::Updated(_) | Upsert::Inserted(_) => {
                model.insert(key, value);
            }
        }
    }
    (draft, model)
}

/// Applies a patch to an old image. Returns what the memory server then holds.
fn patched(old: &[u8], draft: &Draft<'_>, patch: &Patch) -> Vec<u8> {
    let mut image = old.to_vec();
    for step in patch.steps() {
        image[step.clone()].copy_from_slice(&draft.image()[step.clone()]);
    }
    assert!(image == draft.image(), "the patch leaves bytes out");
    image
}

#[test]
fn what_is_removed_is_gone_and_nothing_else_is() {
    for shape in leaves() {
        let numbers = &mut Numbers(shape.node_bytes as u64);
        let (mut draft, mut model) = narrowed(&shape, numbers);
        let mut old = Vec::new();
        for _ in 0..2 * shape.capacity().min(60) {
            let node = draft.node();
            let known = model.keys().nth(numbers.below(model.len().max(1))).cloned();
            let Some(key) = (if numbers.below(3) == 0 { key_inside(&node, numbers) } else { known }) else {
                break;
            };
            let (before, version) = (draft.image().to_vec(), draft.header().version);
            if numbers.below(3) == 0 {
                // Empty slots and slots of ghosts are used again.
                let value = numbers.bytes(shape.payload_len);
                if draft.upsert(&key, &value, &mut old) != Upsert::Full {
                    model.insert(key, value);
                }
                continue;
            }
            match (draft.remove(&key, &mut old), model.remove(&key)) {
                (Removed::Gone(patch), Some(value)) => {
                    assert_eq!(old, value);
                    patched(&before, &draft, &patch);
                    if matches!(shape.format, Format::LineStamped | Format::LineHashed) {
                        let lines = &draft.image().as_chunks().0
                            [patch.steps()[0].start / 64..patch.steps()[0].end / 64];
                        assert!(lines.iter().all(|line| stamp_of(line) == version), "I19");
                    }
                    let entry = shape.entry_len();
                    match shape.format {
                        Format::LineHashed => assert_eq!(patch.bytes(), 4, "bitmap and stamp"),
                        Format::LineStamped if entry <= 60 => {
                            assert_eq!(patch.bytes(), 4, "bitmap and stamp")
                        }
                        Format::LineStamped => assert_eq!(patch.bytes(), entry.div_ceil(58) * 64),
                        Format::TwoLevel => assert_eq!(patch.bytes(), entry + 1),
                        Format::Sorted | Format::SortedStamped => assert_eq!(patch.bytes(), shape.node_bytes),
                    }
                    if matches!(shape.format, Format::LineStamped | Format::TwoLevel | Format::LineHashed) {
                        assert_eq!(draft.header().version, version, "an entry's change is not the node's");
                    }
                }
                (Removed::Absent, None) => assert!(draft.image() == before, "nothing changes"),
                (removed, expected) => panic!("{removed:?} of {expected:?}: {shape:?}"),
            }
            let node = Node::open(&shape, draft.image(), 0).expect("valid");
            assert_eq!(node.find(&key), Lookup::Absent);
        }
        assert_collects(&seen(&shape, &draft), &model, &mut Scratch::default(), numbers);
    }
}

/// The right neighbour of `left`, with entries from the high fence of `left` on. If `ghosts`, some of them
/// are ghosts.
fn neighbour<'s>(
    shape: &'s Shape,
    left: &Draft<'_>,
    count: usize,
    ghosts: bool,
    numbers: &mut Numbers,
) -> (Draft<'s>, Model) {
    let low = left.node().high().expect("a split left has a high fence");
    let sibling = GlobalAddress::new(2, 0x7000);
    let mut draft = Draft::new(shape, 0, &low, None, sibling, place(numbers.next() as u16));
    draft.link();
    let mut model = Model::new();
    for _ in 0..4 * count {
        let Some(key) = key_inside(&draft.node(), numbers).filter(|_| model.len() < count) else { break };
        let value = numbers.bytes(shape.payload_len);
        if put_if_room(&mut draft, &key, &value) {
            model.insert(key, value);
        }
    }
    if ghosts && model.len() > 2 {
        let highest = model.keys().next_back().cloned().expect("some");
        let Some(new) =
            key_inside(&draft.node(), numbers).filter(|new| !model.contains_key(new) && *new < highest)
        else {
            return (draft, model);
        };
        let value = numbers.bytes(shape.payload_len);
        let split = draft.split_leaf(&new, &value, place(1));
        model.insert(new, value);
        model.split_off(&split.separator);
    }
    (draft, model)
}

#[test]
fn a_leaf_absorbs_its_neighbour_without_ghosts_iff_both_fit() {
    let (mut merged, mut refused) = (0, 0);
    for shape in leaves() {
        for seed in 0..4 {
            let numbers = &mut Numbers(seed + shape.node_bytes as u64);
            let (mut left, mut model) = narrowed(&shape, numbers);
            if left.header().flags.high_open {
                continue;
            }
            let count = numbers.below(shape.capacity() + 1);
            let (right, other) = neighbour(&shape, &left, count, seed % 2 == 0, numbers);
            let before = left.clone();
            let right = seen(&shape, &right);
            let fits = fits(&shape, &before.node().low(), &packed(model.iter().chain(&other)));
            let Some(patch) = left.absorb(&right) else {
                assert!(!fits, "{} and {} would fit: {shape:?}", model.len(), other.len());
                assert!(
                    left.image() == before.image() && left.header() == before.header(),
                    "nothing changes"
                );
                refused += 1;
                continue;
            };
            assert!(fits);
            merged += 1;
            assert_eq!(patch.steps(), &[0..shape.node_bytes]);
            assert!(patch.needs_redo(64));
            model.extend(other);
            let node = Node::open(&shape, left.image(), 0).expect("a merged leaf is valid");
            assert_eq!((node.low(), node.high()), (before.node().low(), right.high()));
            assert_eq!(node.header.sibling, right.header.sibling);
            let dense = shape.for_keys(&node.low(), model.keys().next_back().map(Vec::as_slice)).is_dense;
            assert_eq!(node.header.flags, crate::node::Flags { dense, ..right.header.flags });
            let version = before.header().version.wrapping_add(1);
            assert_eq!((node.header.version, node.header.floor), (version, version), "I21");
            assert_collects(&node, &model, &mut Scratch::default(), numbers);
            for (key, value) in &model {
                let Lookup::Found(slot) = node.find(key) else { panic!("{key:x?} is lost: {shape:?}") };
                let mut found = Vec::new();
                node.value_into(slot, &mut found);
                assert_eq!(found, *value);
            }
            // No ghost was merged, so the free room is exact. The lines of a key can be full before that.
            let room = shape.capacity() - model.len();
            for _ in 0..room {
                let Some(key) = key_inside(&left.node(), numbers) else { break };
                put_if_room(&mut left, &key, &vec![1; shape.payload_len]);
            }
        }
    }
    assert!(merged > 200 && refused > 50, "{merged} merged, {refused} refused");
}

#[test]
fn only_the_right_neighbour_is_absorbed() {
    for format in Format::ALL {
        let shape = leaf_shape(format, 8, 8, 512);
        let node = |low: u8, high: Option<u8>| {
            let fence = |last: u8| [0, 0, 0, 0, 0, 0, 0, last];
            let high = high.map(fence);
            Draft::filled(
                &shape,
                0,
                &fence(low),
                high.as_ref().map(|high| &high[..]),
                GlobalAddress::NULL,
                place(1),
                &[],
                false,
            )
        };
        let beyond = node(30, None);
        assert_eq!(node(10, Some(20)).absorb(&beyond.node()), None, "there is a gap between them");
        assert_eq!(node(10, None).absorb(&beyond.node()), None, "the rightmost has no neighbour");
        let mut left = node(10, Some(30));
        assert!(left.absorb(&beyond.node()).is_some());
        assert!(left.header().flags.high_open);
        let stranger = leaf_shape(format, 8, 16, 512);
        let other = Draft::new(&stranger, 0, &[0, 0, 0, 0, 0, 0, 0, 30], None, GlobalAddress::NULL, place(1));
        assert_eq!(node(10, Some(30)).absorb(&other.node()), None, "another shape");
    }
}

#[test]
fn a_cleared_leaf_keeps_its_fences_and_nothing_else() {
    for shape in leaves() {
        let numbers = &mut Numbers(3);
        let (mut draft, _) = narrowed(&shape, numbers);
        let before = draft.clone();
        let patch = draft.clear();
        assert_eq!(patch.steps(), &[0..shape.node_bytes]);
        let node = Node::open(&shape, draft.image(), 0).expect("an empty leaf is valid");
        assert_eq!((node.low(), node.high()), (before.node().low(), before.node().high()));
        assert_eq!(node.header.sibling, before.header().sibling);
        let version = before.header().version.wrapping_add(1);
        assert_eq!((node.header.version, node.header.floor), (version, version), "I21");
        assert_collects(&node, &Model::new(), &mut Scratch::default(), numbers);
        let mut model = Model::new();
        while let Some(key) =
            key_inside(&draft.node(), numbers).filter(|_| model.len() < shape.capacity().min(40))
        {
            let value = numbers.bytes(shape.payload_len);
            if !put_if_room(&mut draft, &key, &value) {
                break;
            }
            if model.insert(key, value).is_some() && shape.key_len == 1 {
                break;
            }
        }
        assert_collects(&seen(&shape, &draft), &model, &mut Scratch::default(), numbers);
    }
}

#[test]
fn a_filled_node_holds_its_entries_in_order_and_is_like_one_that_was_put_together() {
    for shape in leaves() {
        for pending in [false, true] {
            let numbers = &mut Numbers(5);
            let mut model = Model::new();
            for _ in 0..numbers.below(shape.capacity() + 1) {
                model.insert(numbers.bytes(shape.key_len), numbers.bytes(shape.payload_len));
            }
            let low = vec![0; shape.key_len];
            while !fits(&shape, &low, &packed(model.iter())) {
                model.pop_last();
            }
            let sibling = GlobalAddress::new(2, 0x7000);
            let entries = packed(model.iter());
            let filled = Draft::filled(&shape, 0, &low, None, sibling, place(0xffff), &entries, pending);
            let node = seen(&shape, &filled);
            assert_eq!((node.header.flags.pending, node.header.flags.free), (pending, false));
            assert_eq!(node.header.owner, if pending { place(0).owner } else { ComputeId::NOBODY });
            assert_eq!(
                (node.header.sibling, node.header.version, node.header.floor),
                (sibling, 0xffff, 0xffff)
            );
            assert_collects(&node, &model, &mut Scratch::default(), numbers);
            if !matches!(shape.format, Format::LineStamped | Format::TwoLevel) {
                continue;
            }
            let mut put_together = Draft::new(&shape, 0, &low, None, sibling, place(0xffff));
            for (key, value) in &model {
                put(&mut put_together, key, value);
            }
            if !pending {
                put_together.link();
            }
            // The writer may choose the slots of the entries.
            assert_eq!(put_together.node().entries(), filled.node().entries(), "{shape:?}");
            assert_eq!(put_together.header(), filled.header(), "{shape:?}");
        }
    }
}

#[test]
fn internal_nodes_are_filled_absorbed_and_lose_children() {
    let mut merges = 0;
    for format in Format::ALL {
        for (key_len, bytes) in [(1, 256), (8, 256), (8, 1024), (16, 512), (100, 1024), (1024, 16384)] {
            let shape = internal_shape(format, key_len, bytes);
            for seed in 0..20 {
                let numbers = &mut Numbers(seed);
                let total = 2 + numbers.below(shape.capacity().min(200) - 1);
                let mut model = Model::from([(vec![0; key_len], numbers.bytes(8))]);
                for _ in 1..total {
                    model.insert(numbers.bytes(key_len), numbers.bytes(8));
                }
                let separator = model.keys().nth(model.len() / 2).cloned().expect("two at least");
                let upper = model.split_off(&separator);
                let low = vec![0; key_len];
                let filled = |low: &[u8], high: Option<&[u8]>, model: &Model| {
                    let sibling = GlobalAddress::new(1, if high.is_some() { 0x100 } else { 0 });
                    Draft::filled(&shape, 2, low, high, sibling, place(8), &packed(model.iter()), false)
                };
                if model.is_empty() {
                    continue;
                }
                let mut left = filled(&low, Some(&separator), &model);
                let right = filled(&separator, None, &upper);
                let scratch = &mut Scratch::default();
                assert_collects(&left.node(), &model, scratch, numbers);
                assert_collects(&right.node(), &upper, scratch, numbers);
                assert!(left.absorb(&right.node()).is_some());
                merges += 1;
                model.extend(upper.clone());
                let node = Node::open(&shape, left.image(), 2).expect("valid");
                assert_eq!((node.high(), node.header.sibling), (None, right.header().sibling));
                assert_collects(&node, &model, scratch, numbers);

                let mut body: SortedBody = node.sorted().expect("sorted");
                let at = numbers.below(body.len());
                let gone = body.key(at).to_vec();
                body.remove(at);
                left.set_body(&body);
                model.remove(&gone);
                assert_collects(&seen(&shape, &left), &model, scratch, numbers);
                let mut again = left.clone();
                let beyond = filled(&separator, None, &upper);
                assert_eq!(again.absorb(&beyond.node()), None, "an open fence has no neighbour");
            }
        }
    }
    assert!(merges > 300, "only {merges}");
}

#[test]
fn a_scan_of_a_key_that_an_unlocked_image_shows_twice_gives_it_once() {
    for (key_len, value_len) in [(8, 8), (8, 4), (16, 8), (4, 4)] {
        let shape = leaf_shape(Format::LineStamped, key_len, value_len, 512);
        let mut draft = whole_range(&shape, 0, 1);
        for last in 1..=8 {
            put(&mut draft, &[&vec![0; key_len - 1][..], &[last * 10]].concat(), &vec![last; value_len]);
        }
        // The slot of key 60 at an earlier moment, when it held key 20. Since then key 20 was removed and
        // stored elsewhere.
        let key = |last: u8| [&vec![0; key_len - 1][..], &[last]].concat();
        let Lookup::Found(slot) = draft.node().find(&key(60)) else { panic!("it was put") };
        let mut image = draft.into_image();
        crate::node::slots::store(&shape, &mut image, slot, &key(20), &vec![99; value_len]);
        let node = Node::open(&shape, &image, 0).expect("valid");
        let mut out = Vec::new();
        assert!(node.collect(&[], None, &mut Scratch::default(), &mut out));
        let keys: Vec<u8> = out.chunks(key_len + value_len).map(|entry| entry[key_len - 1]).collect();
        assert_eq!(keys, [10, 20, 30, 40, 50, 70, 80]);
        assert_eq!(node.len(), 8, "both count");
    }
}

#[test]
fn a_scan_of_a_torn_entry_gives_nothing() {
    for (format, value) in [(Format::LineStamped, 100), (Format::TwoLevel, 8)] {
        let shape = leaf_shape(format, 8, value, 1024);
        let mut draft = whole_range(&shape, 0, 1);
        put(&mut draft, &[1; 8], &vec![1; value]);
        let old = draft.image().to_vec();
        let patch = put(&mut draft, &[1; 8], &vec![2; value]);
        let range = patch.steps()[0].clone();
        let mut torn = old;
        let half = range.start..range.start + range.len() / 2;
        torn[half.clone()].copy_from_slice(&draft.image()[half]);
        let node = Node::open(&shape, &torn, 0).expect("the node itself is valid");
        let mut out = vec![7];
        assert!(!node.collect(&[], None, &mut Scratch::default(), &mut out), "{format:?}");
        assert_eq!(out, [7], "what was in the buffer stays");
        let mut left = Draft::of(&shape, &node, Vec::new());
        assert_eq!(left.remove(&[1; 8], &mut Vec::new()), Removed::Torn);
    }
}

#[test]
fn the_free_mark_is_one_unit_behind_the_lines_of_hashed_leaves_and_leaves_the_version() {
    for shape in leaves() {
        let (mut draft, _) = narrowed(&shape, &mut Numbers(9));
        let (old, before) = (draft.image().to_vec(), *draft.header());
        let patch = draft.free(ComputeId(0x0304));
        if shape.is_hashed() {
            assert_eq!(patch.steps(), &[64..shape.node_bytes, 0..64], "I49");
            let marks = draft.image().as_chunks::<64>().0[1..].iter().map(|line| get_u16(line, AT_BITMAP));
            assert!(marks.into_iter().all(|marks| marks & DETACHED != 0), "I49");
        } else {
            assert_eq!(patch.steps(), &[0..64]);
            assert!(!patch.needs_redo(64));
        }
        let image = patched(&old, &draft, &patch);
        assert_eq!(Node::open(&shape, &image, 0).err(), Some(crate::node::Reject::Free));
        let node = Node::open_marked(&shape, &image, 0).expect("valid all the same");
        assert_eq!((node.header.version, node.header.floor), (before.version, before.floor), "I23");
        assert_eq!(node.header.owner, ComputeId(0x0304));
    }
}

#[test]
fn a_scan_allocates_nothing_once_its_buffers_are_warm() {
    for (key, value) in [(8, 8), (16, 8), (8, 100), (100, 8)] {
        let shape = leaf_shape(Format::LineStamped, key, value, 4096);
        let (draft, _) = narrowed(&shape, &mut Numbers(1));
        let (mut scratch, mut out) = (Scratch::default(), Vec::new());
        assert!(draft.node().collect(&[], None, &mut scratch, &mut out));
        let sizes = (scratch.memory(), out.capacity());
        for _ in 0..10 {
            out.clear();
            assert!(draft.node().collect(&[], None, &mut scratch, &mut out));
            assert_eq!(sizes, (scratch.memory(), out.capacity()));
        }
    }
}

#[test]
fn a_filled_leaf_is_dense_iff_its_keys_are_near_whatever_its_fences() {
    let (mut dense, mut wide) = (0, 0);
    for (value_len, bytes) in [(8, 1024), (8, 320), (5, 512)] {
        let shape = leaf_shape(Format::LineHashed, 8, value_len, bytes);
        let numbers = &mut Numbers(bytes as u64);
        for round in 0..2000 {
            let low = [0, numbers.next() >> 8][round % 2];
            // Some keys and some fences are just near enough, or just too far away.
            let edge = low + (1 << 48) - 1;
            let mut keys: Vec<u64> = (0..numbers.below(8)).map(|_| low + (numbers.next() >> 17)).collect();
            keys.extend([low, edge - 1].into_iter().filter(|_| numbers.below(2) == 0));
            keys.extend([edge, edge + 1].into_iter().filter(|_| numbers.below(4) == 0));
            let model: Model =
                keys.iter().map(|key| (key.to_be_bytes().to_vec(), numbers.bytes(value_len))).collect();
            let last = keys.iter().max().copied().unwrap_or(low);
            let high = [None, Some(last + 1), Some((last + 1).max(edge)), Some(u64::MAX)][numbers.below(4)];
            let high = high.map(u64::to_be_bytes);
            let high = high.as_ref().map(|high| &high[..]);
            let entries = packed(model.iter());
            let sibling = GlobalAddress::new(2, 0x7000);
            let filled =
                Draft::filled(&shape, 0, &low.to_be_bytes(), high, sibling, place(9), &entries, false);
            let node = Node::open(&shape, filled.image(), 0).expect("a valid leaf");
            assert_eq!(node.header.flags.dense, last < edge);
            (dense, wide) = (dense + usize::from(last < edge), wide + usize::from(last >= edge));
            assert_eq!(node.high().as_deref(), high);
            assert!(node.entries() == model.clone().into_iter().collect::<Vec<_>>());
            assert_collects(&node, &model, &mut Scratch::default(), numbers);
            for key in model.keys() {
                let window = crate::node::hashed::window_bytes(&shape, key);
                let window = crate::node::Window::open(&shape, &filled.image()[window], key);
                let mut value = Vec::new();
                assert!(window.expect("a good window").get(key, &mut value) && value == model[key]);
            }
        }
    }
    assert!(dense > 1000 && wide > 1000, "{dense} {wide}");
}
