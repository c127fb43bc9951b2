//! The exact bytes, as they lie in the memory of servers that outlive the clients.
//!
//! A difference here is a new format version: nodes written by the last release would be misread. Either the
//! change was a mistake, or `docs/LAYOUT.md`, the format version in the superblock and the images must change
//! together. `SHERMAN_WRITE_GOLDEN=1 cargo test -p sherman-core --lib golden` writes the images again.

use super::*;
use crate::node::{LINE, SortedBody};
use std::path::PathBuf;

/// Each image with the name of its file.
fn images() -> Vec<(String, Vec<u8>)> {
    let mut images = Vec::new();
    for format in Format::ALL {
        let name = |what: &str| format!("{}-{what}", format.name());
        images.push((name("leaf"), leaf(format, 8, 8, 256)));
        images.push((name("leaf-wide-key"), leaf(format, 20, 8, 256)));
        images.push((name("internal"), internal(format)));
        let leaf_shape = leaf_shape(format, 8, 8, 256);
        let pending =
            Draft::new(&leaf_shape, 0, &key(8, 0x40), Some(&key(8, 0x80)), sibling(), place(0x0102));
        images.push((name("pending"), pending.image().to_vec()));
        let mut free = pending.clone();
        free.free(place(0).owner);
        images.push((name("free"), free.into_image()));
    }
    images.push(("line-stamped-leaf-long-entry".into(), leaf(Format::LineStamped, 8, 60, 576)));
    images.push(("line-stamped-leaf-after-split".into(), leaf_after_split()));
    images.push(("line-hashed-leaf-far-keys".into(), hashed_leaf(48)));
    images.push(("line-hashed-leaf-dense".into(), hashed_leaf(0)));
    images
}

fn key(len: usize, last: u8) -> Vec<u8> {
    let mut key: Vec<u8> = (0..len as u8).map(|at| 0x5c + at).collect();
    key[len - 1] = last;
    key
}

fn sibling() -> GlobalAddress {
    GlobalAddress::new(0x0201, 0x0000_0403_0605)
}

/// A leaf of three entries, stored in no particular order, one of them updated.
fn leaf(format: Format, key_len: usize, value_len: usize, bytes: usize) -> Vec<u8> {
    let shape = leaf_shape(format, key_len, value_len, bytes);
    let mut draft =
        Draft::new(&shape, 0, &key(key_len, 0x10), Some(&key(key_len, 0xf0)), sibling(), place(0x0102));
    draft.link();
    for (last, value) in [(0x33, 1), (0x11, 2), (0x22, 3), (0x11, 4)] {
        put(&mut draft, &key(key_len, last), &vec![value; value_len]);
    }
    draft.into_image()
}

/// An internal node with three children.
fn internal(format: Format) -> Vec<u8> {
    let shape = internal_shape(format, 8, 256);
    let mut draft = Draft::new(&shape, 2, &[0; 8], None, GlobalAddress::NULL, place(0x0102));
    draft.link();
    let mut body = SortedBody::empty(&shape);
    body.insert(0, &[0; 8], &GlobalAddress::new(1, 0x1000).to_bits().to_le_bytes());
    body.insert(1, &key(8, 0x40), &GlobalAddress::new(2, 0x2000).to_bits().to_le_bytes());
    body.insert(2, &[0xff; 8], &GlobalAddress::new(3, 0x3000).to_bits().to_le_bytes());
    draft.set_body(&body);
    draft.into_image()
}

/// A full leaf whose upper half has become ghosts (entries outside the fences). One ghost's slot is used
/// again.
fn leaf_after_split() -> Vec<u8> {
    let shape = leaf_shape(Format::LineStamped, 8, 8, 256);
    let mut draft = whole_range(&shape, 0, 0xffff);
    for last in 1..=9 {
        put(&mut draft, &key(8, last * 0x10), &[last; 8]);
    }
    draft.split_leaf(&key(8, 0x15), &[0xaa; 8], place(1));
    draft.into_image()
}

/// Keys 1 to 20 in a leaf from 0 to 40, all put one after the other. With a
/// `shift` of 48 bits the keys are so far from each other that the leaf is wide.
pub(super) fn hashed_leaf(shift: u32) -> Vec<u8> {
    let shape = leaf_shape(Format::LineHashed, 8, 8, 1024);
    let (low, high) = (0_u64.to_be_bytes(), (40_u64 << shift).to_be_bytes());
    let mut draft = Draft::new(&shape, 0, &low, Some(&high), sibling(), place(0x0102));
    draft.link();
    for key in 1..=20_u64 {
        put(&mut draft, &(key << shift).to_be_bytes(), &(100 + key).to_le_bytes());
    }
    assert_eq!(draft.header().flags.dense, shift == 0);
    draft.into_image()
}

/// A wide leaf with the entries of `hashed_leaf(0)`, as releases without dense leaves wrote it.
pub(super) fn old_hashed_leaf() -> Vec<u8> {
    let text = std::fs::read_to_string(file("line-hashed-leaf-1-kib")).expect("a golden image");
    let rows = text.lines().filter(|row| !row.starts_with('#'));
    rows.flat_map(str::split_whitespace).map(|byte| u8::from_str_radix(byte, 16).expect("hex")).collect()
}

/// Sixteen bytes per row, four rows per line.
fn to_text(image: &[u8]) -> String {
    let mut text = String::new();
    for (number, line) in image.chunks(LINE).enumerate() {
        text += &format!("# line {number}\n");
        for row in line.chunks(16) {
            let bytes: Vec<String> = row.iter().map(|byte| format!("{byte:02x}")).collect();
            text += &format!("{}\n", bytes.join(" "));
        }
    }
    text
}

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/node/golden").join(format!("{name}.hex"))
}

#[test]
fn nodes_lie_in_memory_byte_for_byte_as_they_always_did() {
    let write_again = std::env::var_os("SHERMAN_WRITE_GOLDEN").is_some();
    for (name, image) in images() {
        if write_again {
            std::fs::write(file(&name), to_text(&image)).expect("the golden folder can be written");
        }
        let golden =
            std::fs::read_to_string(file(&name)).unwrap_or_else(|error| panic!("{name}.hex: {error}"));
        let found = to_text(&image);
        for (row, (was, is)) in golden.lines().zip(found.lines()).enumerate() {
            assert_eq!(was, is, "{name}.hex, row {}: a difference means a new format version", row + 1);
        }
        assert_eq!(
            golden.lines().count(),
            found.lines().count(),
            "{name}.hex: a new length means a new format version"
        );
    }
}

#[test]
fn a_wide_leaf_of_an_older_release_is_used_as_it_is_and_becomes_dense_when_it_is_written_whole() {
    use crate::node::{Lookup, Window, hashed::window_bytes, window::EntryChange};
    let shape = leaf_shape(Format::LineHashed, 8, 8, 1024);
    let image = old_hashed_leaf();
    let node = Node::open(&shape, &image, 0).expect("a valid leaf");
    assert_eq!((node.len(), node.capacity(), node.header.flags.dense), (20, 45, false));
    for number in 1..=20_u64 {
        let (key, mut value) = (number.to_be_bytes(), Vec::new());
        assert!(matches!(node.find(&key), Lookup::Found(_)));
        let window = Window::open(&shape, &image[window_bytes(&shape, &key)], &key).expect("a good window");
        assert!(window.get(&key, &mut value) && value == (100 + number).to_le_bytes());
        assert!(window.change(&key, EntryChange::Put(&[1; 8])).is_some_and(|write| write.updated));
    }
    let mut draft = Draft::of(&shape, &node, Vec::new());
    draft.clear();
    assert_eq!((draft.node().capacity(), draft.header().flags.dense), (60, true));
    assert_eq!(draft.header().version, 0x0103);
}
