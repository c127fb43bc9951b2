//! Changing a node's marks by its bytes alone: recovery may know neither the tree nor the shape of what it finds.

use super::header::{AT_CHECKSUM, Flags, Header};
use super::view::checksum;
use super::{Format, put_u64};
use sherman_fabric::ClientId;

/// Marks the node with this image free, as `owner`'s. Only the header line changes. Of a node of whose image only the header line
/// is at hand too: nobody looks further than the mark.
pub(crate) fn mark_free(image: &mut [u8], owner: ClientId) {
    remark(image, owner, |flags| Flags { free: true, pending: false, ..flags });
}

/// Clears the pending mark of the node with this whole image. Only the header line changes.
pub(crate) fn mark_linked(image: &mut [u8]) {
    remark(image, ClientId::NOBODY, |flags| Flags { pending: false, ..flags });
}

/// The version stays, and with it stamps and nibbles; a checksum covers the marks.
fn remark(image: &mut [u8], owner: ClientId, change: impl FnOnce(Flags) -> Flags) {
    let Some(header) = Header::decode(image) else { return };
    Header { flags: change(header.flags), owner, ..header }.encode(image);
    if header.format == Format::Sorted.number() {
        let sum = checksum(image);
        put_u64(image, AT_CHECKSUM, sum);
    }
}
