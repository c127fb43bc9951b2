//! One node: whatever its bytes are, opening, searching and changing it return without a panic.

use crate::Reached;
use crate::source::Source;
use sherman_core::node::draft::{NodePlace, Upsert};
use sherman_core::node::hashed::window_bytes;
use sherman_core::node::window::EntryChange;
use sherman_core::node::{
    Draft, Format, Header, LINE, Lookup, Node, Position, Removed, Scratch, Shape, SortedBody, TreeShape,
    Window,
};
use sherman_fabric::control::TreeSpec;
use sherman_fabric::{ComputeId, GlobalAddress};
use std::sync::OnceLock;
use twox_hash::XxHash3_64;

/// The tree id in the header of every node.
const TREE: u32 = 77;
const AT_FRONT: usize = 0;
const AT_FORMAT: usize = 1;
const AT_LEVEL: usize = 2;
const AT_COUNT: usize = 6;
const AT_TREE: usize = 8;
const AT_VERSION: usize = 12;
const AT_FLOOR: usize = 14;
const AT_CHECKSUM: usize = 24;
const AT_STAMP: usize = 62;
/// In a line of a hashed leaf.
const AT_LINE_TREE: usize = 56;
/// The upper byte of the marks of such a line.
const AT_MARKS: usize = 61;
const DETACHED: u8 = 1 << 6;
const WRITTEN: u8 = 1 << 7;

/// Key bytes, value bytes, node bytes: entries that fit a line, entries that do not, long keys, no values,
/// the largest node.
const SIZES: [(u16, u32, u32); 8] = [
    (8, 8, 256),
    (8, 8, 1024),
    (1, 0, 256),
    (20, 8, 320),
    (8, 53, 576),
    (100, 100, 1344),
    (1024, 1, 8192),
    (16, 16, 65536),
];

fn shapes() -> &'static [TreeShape] {
    static SHAPES: OnceLock<Vec<TreeShape>> = OnceLock::new();
    SHAPES.get_or_init(|| {
        let specs = Format::ALL.into_iter().flat_map(|format| {
            SIZES.map(|(key_len, value_len, bytes)| TreeSpec {
                format: format.number(),
                key_len,
                value_len,
                leaf_bytes: bytes,
                internal_bytes: bytes,
            })
        });
        specs.map(|spec| TreeShape::new(&spec, TREE).expect("these sizes are legal")).collect()
    })
}

/// Runs one input.
pub fn run(input: &[u8]) -> Reached {
    let mut source = Source::new(input);
    let shapes = shapes();
    let shape = &shapes[source.below(shapes.len())];
    let (level, how) = (source.byte() & 1, source.byte());
    let shape = shape.at(level);
    let mut image = match how & 3 {
        0 => source.bytes(shape.node_bytes()),
        _ => {
            let mut image = honest(shape, level, &mut source);
            source.damage(&mut image);
            image
        }
    };
    if how & 4 != 0 {
        seal(shape, &mut image, level, how & 8 != 0);
    }
    let keys = [source.key(shape.key_len()), source.key(shape.key_len())];
    if shape.is_hashed() {
        ask_lines(shape, &image, &keys);
    }
    let _ = (Header::decode(&image), Node::open(shape, &image, level), Node::open(shape, &image, level ^ 1));
    let Ok(node) = Node::open_marked(shape, &image, level) else { return Reached::Refused };
    ask(&node, shape, &keys);
    change(&node, shape, level, &keys);
    merge(&node, shape, level);
    Reached::Taken
}

/// Returns a node as a correct client would leave it.
fn honest(shape: &Shape, level: u8, source: &mut Source<'_>) -> Vec<u8> {
    let bounds = source.byte();
    let low = if bounds & 1 == 0 { vec![0; shape.key_len()] } else { source.key(shape.key_len()) };
    let high = if bounds & 2 == 0 { None } else { Some(source.key(shape.key_len())) };
    let sibling = GlobalAddress::from_bits(source.u64());
    let mut draft = Draft::new(shape, level, &low, high.as_deref(), sibling, place(u16::from(source.byte())));
    if bounds & 4 == 0 {
        draft.link();
    }
    let entries = source.below(shape.capacity().min(80) + 1);
    if let Some(mut body) = draft.node().sorted() {
        for _ in 0..entries {
            let key = source.key(shape.key_len());
            if let Err(at) = body.find(&key) {
                body.insert(at, &key, &source.bytes(shape.payload_len()));
            }
        }
        draft.set_body(&body);
    } else {
        for _ in 0..entries {
            let key = source.key(shape.key_len());
            let value = vec![source.byte(); shape.payload_len()];
            draft.upsert(&key, &value, &mut Vec::new());
        }
    }
    draft.into_image()
}

fn place(version: u16) -> NodePlace {
    NodePlace { address: GlobalAddress::new(3, 0x5000), version, owner: ComputeId(9), used: true }
}

/// Makes the stamps or the checksum of an image consistent. With `identity`, also makes the image look like a
/// node of this shape.
pub(crate) fn seal(shape: &Shape, image: &mut [u8], level: u8, identity: bool) {
    let u16_at = |image: &[u8], at: usize| u16::from_le_bytes([image[at], image[at + 1]]);
    if identity {
        image[AT_FRONT] = 0xa0 | image[AT_FRONT] & 0x0f;
        image[AT_FORMAT] = shape.format().number();
        image[AT_LEVEL] = level;
        let count = u16_at(image, AT_COUNT) % (shape.capacity() as u16 + 1);
        image[AT_COUNT..AT_COUNT + 2].copy_from_slice(&count.to_le_bytes());
        image[AT_TREE..AT_TREE + 4].copy_from_slice(&TREE.to_le_bytes());
    }
    match shape.format() {
        Format::LineStamped | Format::SortedStamped => {
            let (version, floor) = (u16_at(image, AT_VERSION), u16_at(image, AT_FLOOR));
            let fences = 2 * shape.key_len();
            let header_lines =
                if AT_CHECKSUM + fences <= AT_STAMP { 1 } else { 1 + fences.div_ceil(AT_STAMP) };
            for (number, line) in image.as_chunks_mut::<LINE>().0.iter_mut().enumerate() {
                // Entry lines may be as old as the floor says. It does not matter here which lines are.
                let stamp = if number >= header_lines && number % 3 == 2 { floor } else { version };
                line[AT_STAMP..].copy_from_slice(&stamp.to_le_bytes());
            }
        }
        Format::LineHashed => {
            let version = u16_at(image, AT_VERSION);
            image[AT_FLOOR..AT_FLOOR + 2].copy_from_slice(&version.to_le_bytes());
            for (number, line) in image.as_chunks_mut::<LINE>().0.iter_mut().enumerate() {
                if identity && number > 0 {
                    line[AT_LINE_TREE..AT_LINE_TREE + 4].copy_from_slice(&TREE.to_le_bytes());
                    line[AT_MARKS] = line[AT_MARKS] & !DETACHED | WRITTEN;
                }
                line[AT_STAMP..].copy_from_slice(&version.to_le_bytes());
            }
        }
        Format::TwoLevel => {
            let last = image.len() - 1;
            image[last] = image[last] & 0xf0 | image[AT_FRONT] & 0x0f;
        }
        Format::Sorted => {
            let head = XxHash3_64::oneshot(&image[..AT_CHECKSUM]);
            let sum = XxHash3_64::oneshot_with_seed(head, &image[AT_CHECKSUM + 8..]);
            image[AT_CHECKSUM..AT_CHECKSUM + 8].copy_from_slice(&sum.to_le_bytes());
        }
    }
}

/// Calls every function of the lines of a key.
fn ask_lines(shape: &Shape, image: &[u8], keys: &[Vec<u8>; 2]) {
    let (mut value, new) = (Vec::new(), vec![7; shape.payload_len()]);
    for key in keys {
        let lines = window_bytes(shape, key);
        let Ok(window) = Window::open(shape, &image[lines.clone()], key) else { continue };
        let there = window.get(key, &mut value);
        assert!(!there || value.len() == shape.payload_len());
        assert!(window.len() <= shape.capacity());
        for change in [EntryChange::Nothing, EntryChange::Put(&new), EntryChange::Remove] {
            let Some(entry) = window.change(key, change) else { continue };
            assert!(lines.start <= entry.range().start && entry.range().end <= lines.end);
            assert_eq!((entry.range().len(), entry.updated), (entry.bytes().len(), there));
        }
    }
}

/// Calls every function that a reader may call.
fn ask(node: &Node<'_>, shape: &Shape, keys: &[Vec<u8>; 2]) {
    let (mut low, mut high) = (Vec::new(), Vec::new());
    node.low_into(&mut low);
    assert_eq!((node.low(), node.high().is_some()), (low, node.high_into(&mut high)));
    assert!(node.len() <= shape.capacity());
    assert!(node.entries().len() <= shape.capacity());
    let _ = node.entries_whole();
    let mut value = Vec::new();
    for key in keys {
        if node.header.level == 0
            && let Lookup::Found(slot) = node.find(key)
        {
            node.value_into(slot, &mut value);
            assert_eq!(value.len(), shape.payload_len());
        }
        if let Some(body) = node.sorted() {
            ask_body(&body, key);
        }
    }
    let (mut scratch, mut out) = (Scratch::default(), Vec::new());
    let [first, last] = keys;
    for (first, last) in [(&[][..], None), (first, None), (&[], Some(&last[..])), (first, Some(last))] {
        out.clear();
        let whole = node.collect(first, last, &mut scratch, &mut out);
        assert!(whole || out.is_empty(), "what is torn gives nothing");
        assert!(out.len().is_multiple_of(shape.key_len() + shape.payload_len()));
        assert!(out.len() <= node.len() * (shape.key_len() + shape.payload_len()));
    }
}

fn ask_body(body: &SortedBody, key: &[u8]) {
    if let Ok(at) = body.find(key) {
        assert_eq!(body.key(at), key);
    }
    if let Some(at) = body.responsible(key) {
        let _ = (body.key(at), body.payload(at));
    }
    for at in 0..body.len() {
        let _ = (body.key(at), body.payload(at));
    }
}

/// Calls every function that a writer may call while it holds the lane.
fn change(node: &Node<'_>, shape: &Shape, level: u8, keys: &[Vec<u8>; 2]) {
    let is_node = |draft: &Draft<'_>| Node::open_marked(shape, draft.image(), level).is_ok();
    for key in keys.iter().filter(|key| node.position(key) == Position::Inside) {
        let mut draft = Draft::of(shape, node, Vec::new());
        let (value, mut old) = (vec![7; shape.payload_len()], Vec::new());
        if level > 0 {
            let mut body = draft.node().sorted().expect("internal nodes are sorted");
            let at = body.find(key).unwrap_or_else(|at| at);
            body.insert(at, key, &value);
            if body.len() > shape.capacity() {
                let split = draft.split_sorted(body, at, place(1));
                assert!(is_node(&split.right));
            } else {
                draft.set_body(&body);
            }
        } else {
            let _ = node.entry_write(key, &value, &mut old);
            let mut smaller = draft.clone();
            if let Removed::Gone(patch) = smaller.remove(key, &mut old) {
                assert!(old.len() == shape.payload_len() && patch.bytes() > 0);
            }
            assert!(is_node(&smaller));
            if draft.upsert(key, &value, &mut old) == Upsert::Full {
                let split = draft.split_leaf(key, &value, place(1));
                assert!(is_node(&split.right));
            }
        }
        assert!(is_node(&draft), "what a writer leaves is a node");
    }
    let mut draft = Draft::of(shape, node, Vec::new());
    draft.link();
    draft.free(ComputeId(3));
    assert!(is_node(&draft));
    draft.clear();
    assert!(Node::open_marked(shape, draft.image(), level).is_ok_and(|node| level > 0 || node.is_empty()));
}

/// Merges a neighbour into the node, and the node into a neighbour.
fn merge(node: &Node<'_>, shape: &Shape, level: u8) {
    let empty =
        |low: &[u8], high: Option<&[u8]>| Draft::new(shape, level, low, high, GlobalAddress::NULL, place(1));
    let merged = |mut left: Draft<'_>, right: &Node<'_>| {
        if left.absorb(right).is_some() {
            assert!(Node::open_marked(shape, left.image(), level).is_ok());
        }
    };
    merged(Draft::of(shape, node, Vec::new()), node);
    merged(empty(&vec![0; shape.key_len()], Some(&node.low())), node);
    if let Some(high) = node.high() {
        merged(Draft::of(shape, node, Vec::new()), &empty(&high, None).node());
    }
}
