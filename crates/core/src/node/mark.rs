//! Changes a node's marks by its bytes alone, because recovery may know neither the tree nor the shape of a
//! node.

use super::header::{AT_CHECKSUM, Flags, Header};
use super::view::checksum;
use super::{Format, put_u64};
use sherman_fabric::ComputeId;

/// Marks the node with this image free, as `owner`'s. Only the header line changes. The image may also be the
/// header line alone, because readers check the mark first and stop there.
pub(crate) fn mark_free(image: &mut [u8], owner: ComputeId) {
    remark(image, owner, |flags| Flags { free: true, pending: false, ..flags });
}

/// Clears the pending mark of the node with this whole image. Only the header line changes.
pub(crate) fn mark_linked(image: &mut [u8]) {
    remark(image, ComputeId::NOBODY, |flags| Flags { pending: false, ..flags });
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
