//! Broken rules of the node formats (`crate::seam`).

use super::block::BlockRef;
use super::dense::{FARTHEST, shown_high};
use super::hashed::{Identity, WRITTEN};
use super::stream::stamp_of;
use super::{Draft, Flags, Header, LINE, Lookup, Patch, Reject, Shape, slots};
use crate::mutant::{Mutant, planted};

pub(super) fn check_marks(flags: Flags) -> Option<Result<(), Reject>> {
    let ignored = (flags.free && planted(Mutant::FreeIgnored))
        || (flags.pending && !flags.free && planted(Mutant::PendingIgnored));
    ignored.then_some(Ok(()))
}

pub(super) fn stamps_agree(shape: &Shape, image: &[u8], header: &Header) -> Option<bool> {
    let (head, rest) = image.as_chunks().0.split_at(shape.header_lines);
    let age = |line: &[u8; LINE]| header.version.wrapping_sub(stamp_of(line));
    let window = header.version.wrapping_sub(header.floor);
    if planted(Mutant::FrontRearOnly) {
        return Some(age(&head[0]) == 0 && rest.last().is_none_or(|line| age(line) <= window));
    }
    let narrow = |line| age(line) & 0x0f;
    planted(Mutant::NarrowStamp).then(|| {
        head.iter().all(|line| narrow(line) == 0) && rest.iter().all(|line| narrow(line) <= window & 0x0f)
    })
}

pub(super) fn high_fence<'a>() -> Option<Option<&'a [u8]>> {
    planted(Mutant::GhostsExist).then_some(None)
}

/// Makes every change by a draft, which moves updated entries.
pub(super) fn lines_of_entries() -> Option<Option<(usize, usize)>> {
    planted(Mutant::MovedUpdate).then_some(None)
}

pub(super) fn overwrite(draft: &mut Draft<'_>, slot: usize, key: &[u8], value: &[u8]) -> Option<Patch> {
    if !planted(Mutant::MovedUpdate) {
        return None;
    }
    let shape = draft.shape;
    let other = slots::first_empty(shape, &draft.image)?;
    let moved = draft.put(other, key, value);
    slots::clear(shape, &mut draft.image, slot);
    Some(moved.then(slots::clear_range(shape, slot)))
}

pub(super) fn restamp() -> Option<()> {
    planted(Mutant::NoRestamp).then_some(())
}

pub(super) fn raise_floor() -> Option<()> {
    planted(Mutant::FloorNotRaised).then_some(())
}

pub(super) fn entry_versions_agree() -> Option<bool> {
    planted(Mutant::EntryVersionsIgnored).then_some(true)
}

pub(super) fn window_stamps_agree() -> Option<bool> {
    planted(Mutant::WindowStampsIgnored).then_some(true)
}

pub(super) fn covers() -> Option<bool> {
    planted(Mutant::WindowFencesIgnored).then_some(true)
}

pub(super) fn is_attached(marks: u16) -> Option<bool> {
    planted(Mutant::DetachedIgnored).then_some(marks & WRITTEN != 0)
}

/// Writes the lines of every leaf as if it were part of the tree.
pub(super) fn identify_lines(draft: &mut Draft<'_>, detached: bool) -> Option<()> {
    (detached && planted(Mutant::LinesNotDetached)).then(|| draft.identify_lines(false))
}

/// Continues with the version of the node that splits.
pub(super) fn raise_version(draft: &Draft<'_>) -> Option<()> {
    (draft.shape.is_hashed() && planted(Mutant::SplitKeepsVersion)).then_some(())
}

pub(super) fn attach(line: &mut [u8]) -> Option<bool> {
    planted(Mutant::LinkRewritesLines).then(|| {
        super::hashed::attach_bit(line);
        true
    })
}

pub(super) fn missed() -> Option<Lookup> {
    planted(Mutant::TornEntryAbsent).then_some(Lookup::Absent)
}

/// Leaves out what does not fit of a key's distance.
pub(super) fn distance(low: u64, key: &[u8]) -> Option<Option<u64>> {
    let key = u64::from_be_bytes(key.try_into().ok()?);
    planted(Mutant::DistanceTruncated).then(|| key.checked_sub(low).map(|distance| distance & FARTHEST))
}

/// Shows a high fence that is too far away as an open one.
pub(super) fn shows_open(identity: &Identity<'_>) -> Option<bool> {
    (shown_high(identity) == FARTHEST && planted(Mutant::FarFenceOpen)).then_some(true)
}

/// Continues with the version of the leaf that gets a new layout.
pub(super) fn relayout_version() -> Option<()> {
    planted(Mutant::RelayoutKeepsVersion).then_some(())
}

/// Takes the bytes after the key for the value, whatever block they are of.
pub(super) fn block_value<'i>(block: &BlockRef, key: &[u8], image: &'i [u8]) -> Option<Option<&'i [u8]>> {
    let value = image.get(LINE + key.len()..)?.get(..block.len as usize)?;
    planted(Mutant::BlockUnchecked).then_some(Some(value))
}
