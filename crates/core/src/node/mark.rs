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
