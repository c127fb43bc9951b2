//! Bytes that are not a node: a stale pointer may lead to any bytes, and none of them may crash or block a
//! client.

use super::*;
use crate::node::header::{AT_CHECKSUM, AT_STAMP};
use crate::node::{Header, LINE, Lookup, NodeKind, Position, Removed, Scratch, get_u16, put_u16, put_u64};

fn shapes(format: Format) -> Vec<Shape> {
    let leaves = [(8, 8, 256), (8, 7, 320), (1, 0, 256), (20, 8, 320), (8, 53, 576), (100, 100, 1344)];
    leaves
        .into_iter()
        .map(|(key, value, bytes)| leaf_shape(format, key, value, bytes))
        .chain([internal_shape(format, 8, 256), internal_shape(format, 20, 320)])
        .collect()
}

/// Makes an image pass validation as often as its format allows, so that the tests reach the code behind
/// validation.
fn make_plausible(shape: &Shape, image: &mut [u8], level: u8, numbers: &mut Numbers) {
    let keep_count = get_u16(image, 6) % (shape.capacity as u16 + 1);
    let flags = if shape.dense.is_some() { 0x0c } else { 0x04 };
    image[0] = 0xa0 | image[0] & 0x0f;
    image[1] = shape.format.number();
    image[2] = level;
    image[3] &= flags;
    put_u16(image, 6, keep_count);
    image[8..12].copy_from_slice(&TREE.to_le_bytes());
    let last = image.len() - 1;
    match shape.format {
        Format::LineStamped | Format::SortedStamped => {
            let version = get_u16(image, 12);
            let window = version.wrapping_sub(get_u16(image, 14));
            for line in 0..shape.lines() {
                let back =
                    if line < shape.header_lines { 0 } else { numbers.below(usize::from(window) + 1) as u16 };
                put_u16(image, line * LINE + AT_STAMP, version.wrapping_sub(back));
            }
        }
        Format::LineHashed => {
            let version = get_u16(image, 12);
            put_u16(image, 14, version);
            (0..shape.lines()).for_each(|line| put_u16(image, line * LINE + AT_STAMP, version));
        }
        Format::TwoLevel => image[last] = image[last] & 0xf0 | image[0] & 0x0f,
        Format::Sorted => {
            let sum = crate::node::view::checksum(image);
            put_u64(image, AT_CHECKSUM, sum);
        }
    }
}

/// Calls everything that a client may call. Returns whether the image was accepted as a node.
fn ask_everything(shape: &Shape, image: &[u8], level: u8, keys: &[Vec<u8>]) -> bool {
    let _ = Header::decode(image);
    let _ = Node::open(shape, image, level);
    let Ok(node) = Node::open_marked(shape, image, level) else { return false };
    let entries = node.entries();
    assert!(entries.len() <= node.capacity());
    let _ = (node.low(), node.high(), node.entries_whole());
    // This costs more than everything else, so only some of the images get it.
    if keys.iter().flatten().fold(0, |sum: u8, byte| sum.wrapping_add(*byte)).wrapping_add(image[20]) % 4 == 0
    {
        merge_everything(shape, &node, level);
    }
    let mut value = Vec::new();
    for key in keys {
        collect_everything(&node, key);
        let position = node.position(key);
        if let Some(body) = node.sorted() {
            let _ = body.responsible(key).map(|index| (body.key(index), body.payload(index)));
        }
        if shape.kind == NodeKind::Internal {
            continue;
        }
        if let Lookup::Found(slot) = node.find(key) {
            node.value_into(slot, &mut value);
            assert_eq!(value.len(), shape.payload_len);
        }
        if position == Position::Inside {
            let mut draft = Draft::of(shape, &node, Vec::new());
            let new = vec![7; shape.payload_len];
            if let Removed::Gone(patch) = draft.clone().remove(key, &mut value) {
                assert!(value.len() == shape.payload_len && patch.bytes() > 0);
            }
            if draft.upsert(key, &new, &mut value) == Upsert::Full {
                draft.split_leaf(key, &new, place(1));
            }
        }
    }
    true
}

/// Asserts that all collected entries are inside the fences, and are at most as many as possible.
fn collect_everything(node: &Node<'_>, key: &[u8]) {
    let (mut scratch, mut out) = (Scratch::default(), Vec::new());
    let shape = node.shape;
    let capacity = shape.capacity() * shape.entry_len();
    assert!(node.len() <= shape.capacity());
    for (first, last) in
        [(&[][..], None), (key, None), (&[], Some(key)), (key, Some(key)), (&key[1..], Some(&[0xff; 2000]))]
    {
        out.clear();
        let whole = node.collect(first, last, &mut scratch, &mut out);
        assert!(
            out.len() <= capacity && out.len().is_multiple_of(shape.entry_len()) && (whole || out.is_empty())
        );
        assert!(out.len() <= node.len() * shape.entry_len());
        if matches!(shape.format, Format::LineStamped | Format::TwoLevel) && shape.kind == NodeKind::Leaf {
            let keys: Vec<&[u8]> =
                out.chunks(shape.entry_len()).map(|entry| &entry[..shape.key_len]).collect();
            assert!(keys.is_sorted_by(|a, b| a < b), "ascending, each once");
            assert!(keys.iter().all(|key| node.position(key) == Position::Inside && *key >= first));
            assert!(last.is_none_or(|last| keys.iter().all(|key| *key <= last)));
        }
    }
}

/// Merges a neighbour into the node, and the node into a neighbour.
fn merge_everything(shape: &Shape, node: &Node<'_>, level: u8) {
    let mut draft = Draft::of(shape, node, Vec::new());
    if let Some(high) = node.high() {
        let right = Draft::new(shape, level, &high, None, GlobalAddress::NULL, place(1));
        if draft.absorb(&right.node()).is_some() {
            assert!(Node::open_marked(shape, draft.image(), level).is_ok());
        }
    }
    let mut left =
        Draft::new(shape, level, &vec![0; shape.key_len], Some(&node.low()), GlobalAddress::NULL, place(1));
    if left.absorb(node).is_some() {
        assert!(Node::open_marked(shape, left.image(), level).is_ok_and(|merged| merged.len() <= node.len()));
    }
    let mut free = draft.clone();
    free.free(ComputeId(1));
    assert!(Node::open_marked(shape, free.image(), level).is_ok());
    draft.clear();
    assert!(Node::open_marked(shape, draft.image(), level).is_ok_and(|node| node.is_empty()));
}

#[test]
fn random_bytes_never_panic() {
    for format in Format::ALL {
        let (mut images, mut taken) = (0, 0);
        for shape in shapes(format) {
            let level = u8::from(shape.kind == NodeKind::Internal);
            let numbers = &mut Numbers(u64::from(format.number()));
            for round in 0..16_000 {
                let mut image = numbers.bytes(shape.node_bytes);
                if round % 2 == 0 {
                    make_plausible(&shape, &mut image, level, numbers);
                }
                images += 1;
                let key = near(&shape, numbers.key(shape.key_len));
                taken += usize::from(ask_everything(&shape, &image, level, &[key]));
            }
        }
        assert!(images > 100_000 && taken > 50_000, "{taken} of {images} were taken for nodes: {format:?}");
    }
}

#[test]
fn mutated_nodes_never_panic() {
    let rounds = if runs_in_full() { 20_000 } else { 5_000 };
    for format in Format::ALL {
        let (mut images, mut taken) = (0, 0);
        for shape in shapes(format).iter().filter(|shape| shape.kind == NodeKind::Leaf) {
            let numbers = &mut Numbers(u64::from(format.number()) << 8);
            let mut draft = whole_range(shape, 0, 1);
            for _ in 0..shape.capacity() {
                let key = near(shape, numbers.key(shape.key_len));
                put_if_room(&mut draft, &key, &numbers.bytes(shape.payload_len));
            }
            let keys: Vec<Vec<u8>> = draft.node().entries().into_iter().take(2).map(|(key, _)| key).collect();
            for round in 0..rounds {
                let mut image = draft.image().to_vec();
                for _ in 0..=numbers.below(8) {
                    let within = if numbers.below(2) == 0 { LINE } else { image.len() };
                    let at = numbers.below(within);
                    image[at] = numbers.next() as u8;
                }
                if round % 2 == 0 {
                    make_plausible(shape, &mut image, 0, numbers);
                }
                images += 1;
                taken += usize::from(ask_everything(shape, &image, 0, &keys));
            }
        }
        let fair = images >= 5 * rounds && taken > 2 * rounds;
        assert!(fair, "{taken} of {images} were taken for nodes: {format:?}");
    }
}

#[test]
fn an_image_of_any_other_length_is_refused() {
    for format in Format::ALL {
        let shape = leaf_shape(format, 8, 8, 256);
        let draft = whole_range(&shape, 0, 1);
        let mut longer = draft.image().to_vec();
        for _ in 0..256 {
            longer.pop();
            assert!(Node::open(&shape, &longer, 0).is_err());
            assert_eq!(Header::decode(&longer).is_some(), longer.len() >= LINE);
        }
        longer.resize(320, 0);
        assert!(Node::open(&shape, &longer, 0).is_err());
    }
}

#[test]
fn a_node_of_another_tree_level_or_format_is_refused() {
    use crate::node::Reject;
    for format in Format::ALL {
        let shape = leaf_shape(format, 8, 8, 256);
        let draft = whole_range(&shape, 0, 1);
        assert!(Node::open(&shape, draft.image(), 0).is_ok());
        assert_eq!(Node::open(&shape, draft.image(), 1).err(), Some(Reject::NotThis));
        let stranger = Shape::new(NodeKind::Leaf, format, TREE + 1, 256, 8, 8).expect("legal");
        assert_eq!(Node::open(&stranger, draft.image(), 0).err(), Some(Reject::NotThis));
        for other in Format::ALL.into_iter().filter(|other| *other != format) {
            assert_eq!(
                Node::open(&leaf_shape(other, 8, 8, 256), draft.image(), 0).err(),
                Some(Reject::NotThis)
            );
        }
        assert_eq!(Node::open(&shape, &[0; 256], 0).err(), Some(Reject::NotThis), "memory never written");
    }
}

#[test]
fn a_node_of_another_tree_is_not_taken_for_a_torn_one() {
    // A place moved from a tree of long keys to one of short keys. Some lines that were fences now hold
    // entries older than the header. A reader with the old pointer must learn that it is stale, and not retry
    // permanently.
    let short = leaf_shape(Format::LineStamped, 8, 8, 1024);
    let mut draft = whole_range(&short, 0, 5);
    for key in 0..short.capacity() as u64 {
        put(&mut draft, &key.to_be_bytes(), &[1; 8]);
    }
    draft.split_leaf(&1000_u64.to_be_bytes(), &[1; 8], place(1));
    assert!(Node::open(&short, draft.image(), 0).is_ok());
    let long = Shape::new(NodeKind::Leaf, Format::LineStamped, TREE + 1, 1024, 100, 8).expect("legal");
    assert_eq!(Node::open(&long, draft.image(), 0).err(), Some(crate::node::Reject::NotThis));
}
