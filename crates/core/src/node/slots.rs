//! Unsorted leaves: where a slot is, whether it is live, and whether it is whole.
//!
//! - `LineStamped`, an entry that fits a line: several slots per line, with a bitmap at byte 60 that marks
//!   the live ones. The slot and its bit change in one WRITE inside one line, atomic by F1, so an entry is
//!   never torn.
//! - `LineStamped`, a longer entry: whole lines, each with a 16-bit entry version at byte 58 and the live
//!   bit. The entry is torn iff these differ.
//! - `TwoLevel`: one byte more than the entry. The entry's first byte is split. Its high nibble follows the
//!   front version in the first byte; its low nibble precedes the rear version in the last byte. So 8/8-byte
//!   entries take 17 bytes, and the versions really surround the entry without shifting it. Version 0 is an
//!   empty slot, 1..=15 cycle.

use super::entry::put_in_line;
use super::shape::{AT_BITMAP, AT_ENTRY_VERSION, Body};
use super::{LINE, Lookup, Shape, get_u16, put_u16};
use super::{dense, hashed};
use std::ops::Range;

/// The first line of `slot`.
fn first_line(shape: &Shape, slot: usize) -> usize {
    match shape.body {
        Body::Slots { first_line, per_line } => first_line + slot / per_line,
        Body::LongSlots { first_line, lines_each } => first_line + slot * lines_each,
        Body::Nibbled { .. } | Body::Sorted(_) => 0,
    }
}

/// All bytes that an entry write of `slot` must cover.
pub(super) fn write_range(shape: &Shape, slot: usize) -> Range<usize> {
    match shape.body {
        Body::Slots { per_line, .. } => {
            let line = first_line(shape, slot) * LINE;
            line + slot % per_line * shape.slot_len()..line + LINE
        }
        Body::LongSlots { lines_each, .. } => {
            let line = first_line(shape, slot);
            line * LINE..(line + lines_each) * LINE
        }
        Body::Nibbled { start } => {
            let stride = shape.entry_len() + 1;
            start + slot * stride..start + (slot + 1) * stride
        }
        Body::Sorted(_) => 0..shape.node_bytes,
    }
}

/// All bytes that emptying `slot` must cover. In a line of several slots these are only its bitmap and stamp.
pub(super) fn clear_range(shape: &Shape, slot: usize) -> Range<usize> {
    let written = write_range(shape, slot);
    match shape.body {
        Body::Slots { .. } => written.end - LINE + AT_BITMAP..written.end,
        _ => written,
    }
}

/// The lines whose stamps an entry write of `slot` sets.
pub(super) fn stamped_lines(shape: &Shape, slot: usize) -> Range<usize> {
    let line = first_line(shape, slot);
    match shape.body {
        Body::Slots { .. } => line..line + 1,
        Body::LongSlots { lines_each, .. } => line..line + lines_each,
        Body::Nibbled { .. } | Body::Sorted(_) => 0..0,
    }
}

/// Whether the slot holds an entry. Does not check the fences.
pub(super) fn is_live(shape: &Shape, image: &[u8], slot: usize) -> bool {
    match shape.body {
        Body::Slots { per_line, .. } => {
            shape.live(&image[first_line(shape, slot) * LINE..][..LINE]) >> (slot % per_line) & 1 != 0
        }
        Body::LongSlots { .. } => get_u16(image, first_line(shape, slot) * LINE + AT_BITMAP) & 1 != 0,
        Body::Nibbled { .. } => image[write_range(shape, slot).start] >> 4 != 0,
        Body::Sorted(_) => false,
    }
}

/// Whether all bytes of the slot can be from one moment.
pub(super) fn is_whole(shape: &Shape, image: &[u8], slot: usize) -> bool {
    match shape.body {
        Body::Slots { .. } | Body::Sorted(_) => true,
        Body::LongSlots { lines_each, .. } => {
            let first = first_line(shape, slot);
            entry_versions_agree(image, first..first + lines_each)
        }
        Body::Nibbled { .. } => {
            let range = write_range(shape, slot);
            image[range.start] >> 4 == image[range.end - 1] & 0x0f
        }
    }
}

/// Whether all lines of a long entry have the same entry version and the same mark.
fn entry_versions_agree(image: &[u8], lines: Range<usize>) -> bool {
    seam!(node::entry_versions_agree());
    let mark = |line: usize| {
        (get_u16(image, line * LINE + AT_ENTRY_VERSION), get_u16(image, line * LINE + AT_BITMAP))
    };
    let first = mark(lines.start);
    lines.skip(1).all(|line| mark(line) == first)
}

/// Calls `f(position in the entry, physical range)` for each contiguous piece of `len` entry bytes from
/// `from` on.
fn pieces(shape: &Shape, slot: usize, from: usize, len: usize, mut f: impl FnMut(usize, Range<usize>)) {
    match shape.body {
        Body::Slots { .. } => {
            let at = write_range(shape, slot).start + from;
            f(0, at..at + len);
        }
        Body::LongSlots { .. } => {
            let base = first_line(shape, slot) * LINE;
            let mut done = 0;
            while done < len {
                let pos = from + done;
                let take = (AT_ENTRY_VERSION - pos % AT_ENTRY_VERSION).min(len - done);
                let at = base + pos / AT_ENTRY_VERSION * LINE + pos % AT_ENTRY_VERSION;
                f(done, at..at + take);
                done += take;
            }
        }
        Body::Nibbled { .. } => {
            // Entry byte i > 0 is at start + i. The callers handle byte 0.
            let at = write_range(shape, slot).start + from;
            f(0, at..at + len);
        }
        Body::Sorted(_) => {}
    }
}

/// Copies entry bytes `from..from + into.len()` out of `slot`.
pub(super) fn load(shape: &Shape, image: &[u8], slot: usize, from: usize, into: &mut [u8]) {
    if let Body::Slots { first_line, per_line } = shape.body {
        let line = &image.as_chunks::<LINE>().0[first_line + slot / per_line];
        if shape.is_dense {
            let low = dense::base(shape, image);
            return dense::load(line, slot % per_line, shape.payload_len, low, from, into);
        }
        let at = slot % per_line * shape.entry_len() + from;
        return into.copy_from_slice(&line[at..at + into.len()]);
    }
    pieces(shape, slot, from, into.len(), |done, range| {
        let n = range.len();
        into[done..done + n].copy_from_slice(&image[range]);
    });
    if let Body::Nibbled { .. } = shape.body
        && from == 0
        && !into.is_empty()
    {
        let range = write_range(shape, slot);
        into[0] = image[range.start] << 4 | image[range.end - 1] >> 4;
    }
}

/// Whether the slot's key equals `key`.
fn key_is(shape: &Shape, image: &[u8], slot: usize, key: &[u8]) -> bool {
    let mut equal = true;
    pieces(shape, slot, 0, key.len(), |done, range| {
        let n = range.len();
        equal &= image[range] == key[done..done + n];
    });
    equal
}

/// Searches all slots for `key`. Every get runs this function.
pub(super) fn find(shape: &Shape, image: &[u8], key: &[u8]) -> Lookup {
    match shape.body {
        Body::Slots { first_line, per_line } => {
            let lines =
                if shape.is_hashed() { hashed::window_of(shape, key) } else { first_line..shape.lines() };
            let before = (lines.start - first_line) * per_line;
            find_among(shape, &image.as_chunks().0[lines], per_line, dense::base(shape, image), key)
                .map_or(Lookup::Absent, |slot| Lookup::Found(before + slot))
        }
        Body::Nibbled { start } => {
            let stride = shape.entry_len() + 1;
            find_nibbled(&image[start..start + shape.capacity * stride], stride, key)
        }
        Body::LongSlots { .. } => find_long(shape, image, key),
        Body::Sorted(_) => Lookup::Absent,
    }
}

/// Searches lines of several slots each for `key`. `low` is the low fence, if they are dense. Returns the
/// slot, counted from the first of these lines.
#[inline]
pub(super) fn find_among(
    shape: &Shape,
    lines: &[[u8; LINE]],
    per_line: usize,
    low: u64,
    key: &[u8],
) -> Option<usize> {
    if shape.is_dense {
        return dense::find(lines, shape.payload_len, dense::distance(low, key)?);
    }
    match key.try_into() {
        Ok(key) if shape.entry_len() == 16 => find_pair(lines, key),
        Ok(key) => find_word(lines, per_line, shape.entry_len(), key),
        Err(_) => find_in_lines(lines, per_line, shape.entry_len(), |slot| slot[..key.len()] == *key),
    }
}

/// [`find_word`] for 8-byte keys and values, which most trees have: the compiler knows where the slots are.
fn find_pair(lines: &[[u8; LINE]], key: [u8; 8]) -> Option<usize> {
    find_word(lines, AT_BITMAP / 16, 16, key)
}

/// [`find_in_lines`] for 8-byte keys: one comparison of words per slot.
#[inline(always)]
fn find_word(lines: &[[u8; LINE]], per_line: usize, entry_len: usize, key: [u8; 8]) -> Option<usize> {
    let key = u64::from_ne_bytes(key);
    let is_it = |slot: &[u8]| slot.first_chunk().is_some_and(|word| u64::from_ne_bytes(*word) == key);
    find_in_lines(lines, per_line, entry_len, is_it)
}

/// Finds the first live slot whose bytes `is_it` accepts. It compares all slots of a line before it reads the
/// bitmap, so the only branch to predict is the end.
#[inline(always)]
fn find_in_lines(
    lines: &[[u8; LINE]],
    per_line: usize,
    entry_len: usize,
    is_it: impl Fn(&[u8]) -> bool,
) -> Option<usize> {
    for (number, line) in lines.iter().enumerate() {
        let mut hits = 0;
        for slot in 0..per_line {
            hits |= u16::from(is_it(&line[slot * entry_len..])) << slot;
        }
        hits &= get_u16(line, AT_BITMAP);
        if hits != 0 {
            return Some(number * per_line + hits.trailing_zeros() as usize);
        }
    }
    None
}

fn find_nibbled(entries: &[u8], stride: usize, key: &[u8]) -> Lookup {
    let mut torn = false;
    for (slot, entry) in entries.chunks_exact(stride).enumerate() {
        let (front, rear) = (entry[0], entry[stride - 1]);
        if front >> 4 != rear & 0x0f {
            torn = true;
        } else if front >> 4 != 0 && front << 4 | rear >> 4 == key[0] && entry[1..key.len()] == key[1..] {
            return Lookup::Found(slot);
        }
    }
    missed(torn)
}

fn find_long(shape: &Shape, image: &[u8], key: &[u8]) -> Lookup {
    let mut torn = false;
    for slot in 0..shape.capacity {
        if !is_whole(shape, image, slot) {
            torn = true;
        } else if is_live(shape, image, slot) && key_is(shape, image, slot, key) {
            return Lookup::Found(slot);
        }
    }
    missed(torn)
}

/// The answer of a search that found the key in no whole entry. A torn entry may be the key, so a miss in the
/// other slots proves nothing.
fn missed(torn: bool) -> Lookup {
    seam!(node::missed());
    if torn { Lookup::Torn } else { Lookup::Absent }
}

/// The slot of entry `index` out of `count`, when all are stored into an empty leaf at once that is not
/// hashed. Entries are spread evenly. So later ones find room between their neighbours, and the slots stay
/// nearly in key order.
pub(super) fn spread(shape: &Shape, index: usize, count: usize) -> usize {
    index * shape.capacity / count.max(1)
}

/// The first slot that holds no entry.
pub(super) fn first_empty(shape: &Shape, image: &[u8]) -> Option<usize> {
    if let Body::Slots { first_line, per_line } = shape.body {
        let lines = &image.as_chunks::<LINE>().0[first_line..];
        // A line is full iff its first `per_line` bits are ones.
        let in_line = |line: &[u8; LINE]| get_u16(line, AT_BITMAP).trailing_ones() as usize;
        return lines.iter().zip(0..).find_map(|(line, number)| {
            let empty = in_line(line);
            (empty < per_line).then_some(number * per_line + empty)
        });
    }
    (0..shape.capacity).find(|&slot| !is_live(shape, image, slot))
}

/// Stores an entry into `slot` and marks it live, continuing its entry version.
pub(super) fn store(shape: &Shape, image: &mut [u8], slot: usize, key: &[u8], value: &[u8]) {
    match shape.body {
        Body::Slots { first_line, per_line } => {
            let low = dense::base(shape, image);
            let line = &mut image.as_chunks_mut::<LINE>().0[first_line + slot / per_line];
            put_in_line(shape, line, slot % per_line, low, key, value);
        }
        Body::LongSlots { lines_each, .. } => {
            let line = first_line(shape, slot);
            let version = get_u16(image, line * LINE + AT_ENTRY_VERSION).wrapping_add(1);
            for (from, bytes) in [(0, key), (key.len(), value)] {
                pieces(shape, slot, from, bytes.len(), |done, range| {
                    let n = range.len();
                    image[range].copy_from_slice(&bytes[done..done + n]);
                });
            }
            for line in line..line + lines_each {
                put_u16(image, line * LINE + AT_ENTRY_VERSION, version);
                put_u16(image, line * LINE + AT_BITMAP, 1);
            }
        }
        Body::Nibbled { .. } => {
            let range = write_range(shape, slot);
            let version = image[range.start] >> 4;
            let version = if version == 15 { 1 } else { version + 1 };
            let entry = &mut image[range];
            entry[..key.len()].copy_from_slice(key);
            entry[key.len()..key.len() + value.len()].copy_from_slice(value);
            let last = entry.len() - 1;
            entry[0] = version << 4 | key[0] >> 4;
            entry[last] = key[0] << 4 | version;
        }
        Body::Sorted(_) => {}
    }
}

/// Empties `slot`.
pub(super) fn clear(shape: &Shape, image: &mut [u8], slot: usize) {
    match shape.body {
        Body::Slots { per_line, .. } => {
            let bitmap = first_line(shape, slot) * LINE + AT_BITMAP;
            let bits = get_u16(image, bitmap) & !shape.live_bit(slot % per_line);
            put_u16(image, bitmap, bits);
        }
        Body::LongSlots { lines_each, .. } => {
            let line = first_line(shape, slot);
            let version = get_u16(image, line * LINE + AT_ENTRY_VERSION).wrapping_add(1);
            for line in line..line + lines_each {
                put_u16(image, line * LINE + AT_ENTRY_VERSION, version);
                put_u16(image, line * LINE + AT_BITMAP, 0);
            }
        }
        Body::Nibbled { .. } => {
            let range = write_range(shape, slot);
            image[range.start] &= 0x0f;
            image[range.end - 1] &= 0xf0;
        }
        Body::Sorted(_) => {}
    }
}
