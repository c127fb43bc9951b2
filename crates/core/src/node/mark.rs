//! Changes a node's marks by its bytes alone, because recovery may know neither the tree nor the shape of a
//! node.

use super::header::{AT_CHECKSUM, Flags, Header};
use super::view::checksum;
use super::{Format, LINE, hashed, put_u64};
use sherman_fabric::control::ChunkClass;
use sherman_fabric::{ComputeId, GlobalAddress, Space, WorkList};
use std::ops::Range;

/// Marks the node with this image free, as `owner`'s. The image may also be the header line alone if the node
/// is pending, because readers check the mark first and stop there.
pub(crate) fn mark_free(image: &mut [u8], owner: ComputeId) -> Marked {
    remark(image, owner, |flags| Flags { free: true, pending: false, ..flags });
    Marked::new(image, |line| {
        hashed::detach(line);
        true
    })
}

/// Clears the pending mark of the node with this whole image.
pub(crate) fn mark_linked(image: &mut [u8]) -> Marked {
    remark(image, ComputeId::NOBODY, |flags| Flags { pending: false, ..flags });
    Marked::new(image, hashed::attach)
}

/// Whether a line of entries of a hashed leaf is attached.
pub(crate) fn is_attached(line: &[u8]) -> bool {
    hashed::is_line_attached(line)
}

/// Sets the pending mark of the linked node with this whole image, as `owner`'s. Its lines stay attached.
pub(crate) fn mark_pending(image: &mut [u8], owner: ComputeId) {
    remark(image, owner, |flags| Flags { pending: true, ..flags });
}

/// Bytes of a node of `class` that must be read to mark it free.
pub(crate) fn bytes_to_mark(class: ChunkClass) -> usize {
    if class.format == Format::LineHashed.number() { class.node_bytes as usize } else { LINE }
}

/// Which parts of a marked image must be written, in order: the header line last. All other parts are lines
/// of entries of a hashed leaf.
#[derive(Debug)]
pub(crate) struct Marked(Vec<Range<usize>>);

impl Marked {
    /// Changes the lines of entries, if the image is a hashed leaf. A line of which `change` returns false
    /// needs no write. It must not be written either: another client may change an attached line while the
    /// maker's recoverer links the leaf.
    fn new(image: &mut [u8], mut change: impl FnMut(&mut [u8]) -> bool) -> Self {
        let hashed = Header::decode(image).is_some_and(|header| header.format == Format::LineHashed.number());
        let mut ranges: Vec<Range<usize>> = Vec::new();
        if hashed {
            for (line, at) in image.chunks_exact_mut(LINE).zip((0..).step_by(LINE)).skip(1) {
                match ranges.last_mut() {
                    _ if !change(line) => {}
                    Some(last) if last.end == at => last.end += LINE,
                    _ => ranges.push(at..at + LINE),
                }
            }
        }
        ranges.push(0..LINE);
        Self(ranges)
    }

    /// Adds the WRITEs of the marked image of the node at `address`.
    pub(crate) fn push(&self, list: &mut WorkList, address: GlobalAddress, image: &[u8]) {
        for range in &self.0 {
            list.write(Space::Host, address.offset() + range.start as u64, &image[range.clone()]);
        }
    }
}

/// Changes the marks. The version stays, and so do stamps and nibbles. A checksum covers the marks, so it is
/// computed again.
fn remark(image: &mut [u8], owner: ComputeId, change: impl FnOnce(Flags) -> Flags) {
    let Some(header) = Header::decode(image) else { return };
    Header { flags: change(header.flags), owner, ..header }.encode(image);
    if header.format == Format::Sorted.number() {
        let sum = checksum(image);
        put_u64(image, AT_CHECKSUM, sum);
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "the writes of a mark are ranges")]
mod tests {
    use super::super::get_u16;
    use super::super::shape::AT_BITMAP;
    use super::super::tests::*;
    use super::*;
    use crate::node::{Draft, Node, Reject, Shape};

    /// A leaf of eight lines with entries in all of them, pending or linked.
    fn leaf(shape: &Shape, pending: bool) -> Vec<u8> {
        let entries: Vec<u8> =
            (0..12_u64).flat_map(|key| [key.to_be_bytes(), [key as u8; 8]].concat()).collect();
        let made =
            Draft::filled(shape, 0, &[0; 8], None, GlobalAddress::NULL, place(0xffff), &entries, pending);
        made.into_image()
    }

    fn is_detached(image: &[u8], line: usize) -> bool {
        get_u16(image, line * LINE + AT_BITMAP) & hashed::DETACHED != 0
    }

    /// Applies the writes to memory that holds `old`, after it was checked that the header line is the last.
    fn written(old: &[u8], image: &[u8], marked: &Marked) -> Vec<u8> {
        let mut memory = old.to_vec();
        assert_eq!(marked.0.last(), Some(&(0..LINE)), "the header line is the last");
        for range in &marked.0 {
            memory[range.clone()].copy_from_slice(&image[range.clone()]);
        }
        memory
    }

    #[test]
    fn linking_a_leaf_attaches_the_lines_that_its_maker_did_not_and_writes_no_others() {
        let shape = leaf_shape(Format::LineHashed, 8, 8, 512);
        let (pending, linked) = (leaf(&shape, true), leaf(&shape, false));
        // The maker died after it attached any of the lines.
        for attached in 0..1_usize << 7 {
            let mut old = pending.clone();
            let is_attached = |line: usize| line > 0 && attached >> (line - 1) & 1 == 1;
            for line in (1..8).filter(|&line| is_attached(line)) {
                hashed::attach(&mut old[line * LINE..(line + 1) * LINE]);
            }
            let mut image = old.clone();
            let marked = mark_linked(&mut image);
            let lines: Vec<usize> =
                marked.0.iter().flat_map(|range| range.start / LINE..range.end / LINE).collect();
            let expected: Vec<usize> = (1..8).filter(|&line| !is_attached(line)).chain([0]).collect();
            assert_eq!(lines, expected);
            let memory = written(&old, &image, &marked);
            assert!(memory == image && memory == linked, "as its maker would have linked it");
            assert!(Node::open(&shape, &memory, 0).is_ok());
        }
    }

    #[test]
    fn a_free_mark_detaches_all_lines_first() {
        let shape = leaf_shape(Format::LineHashed, 8, 8, 512);
        for pending in [true, false] {
            let old = leaf(&shape, pending);
            let mut image = old.clone();
            let marked = mark_free(&mut image, ComputeId(5));
            assert_eq!(marked.0, [LINE..512, 0..LINE]);
            let memory = written(&old, &image, &marked);
            assert!((1..8).all(|line| is_detached(&memory, line)));
            assert_eq!(Node::open(&shape, &memory, 0).err(), Some(Reject::Free));
            let node = Node::open_marked(&shape, &memory, 0).expect("valid all the same");
            assert_eq!((node.header.version, node.header.owner), (0xffff, ComputeId(5)));
        }
        assert_eq!(bytes_to_mark(shape.class()), 512);
    }

    #[test]
    fn other_formats_and_lone_header_lines_are_marked_by_one_line() {
        for format in Format::ALL {
            let shape = leaf_shape(format, 8, 8, 512);
            let mut header = leaf(&shape, true)[..LINE].to_vec();
            assert_eq!(mark_free(&mut header, ComputeId(5)).0, [0..LINE]);
            if !shape.is_hashed() {
                let mut image = leaf(&shape, true);
                assert_eq!(mark_linked(&mut image).0, [0..LINE]);
                assert!(image == leaf(&shape, false), "{format:?}");
                assert_eq!(mark_free(&mut image, ComputeId(5)).0, [0..LINE]);
                assert_eq!(bytes_to_mark(shape.class()), LINE);
            }
        }
        let mut garbage = vec![0; 3 * LINE];
        assert_eq!(mark_free(&mut garbage, ComputeId(5)).0, [0..LINE]);
    }
}
