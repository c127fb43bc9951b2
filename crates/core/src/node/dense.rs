//! Dense lines of `LineHashed` leaves: four entries instead of three.
//!
//! A leaf is wide ([`super::hashed`]) or dense as a whole. A dense leaf leaves out what its low fence already
//! says of a key: an entry has the distance of its key from the fence, as a number of six bytes. The identity
//! of the leaf is too long for the rest of a line, so each line carries one of four pieces of it:
//!
//! ```text
//!  0        4 entries: distance of the key from the low fence (6 bytes), value
//! 56        5 bytes: a piece of the leaf's identity, piece n in every fourth line from line n on
//! 61  u8    bits 0..=3 live entries; 4 set: this line is dense; 5 high fence open; 6 detached; 7 always set
//! 62  u16   stamp: the version of the leaf
//! ```
//! The pieces, one after the other: the low fence as a number (8 bytes), the distance of the high fence from
//! it (6 bytes), a zero, the tree id (4 bytes), a zero. A window is four neighbouring lines, so it has all
//! pieces. Bits 4 to 7 of byte 61 and the stamp have the same meaning in lines of both kinds.
//!
//! A leaf is written dense whenever all its keys are near enough to its low fence. A leaf changes from one
//! kind to the other only as a whole, with a new version. The high fence need not be near: if its distance
//! does not fit, the lines show the largest distance instead. Then they give no answer for keys beyond that,
//! none of which the leaf has. A reader of such a key reads the whole leaf.

use super::hashed::{AT_LINE_TREE, DENSE, HIGH_OPEN, Identity, WINDOW};
use super::header::AT_STAMP;
use super::shape::{AT_BITMAP, Body, Shape};
use super::{LINE, get_u16, get_u64, put_u16, put_u32, put_u64};

/// Entries per line.
pub(super) const PER_LINE: usize = 4;
/// Bytes of a distance.
pub(super) const DISTANCE: usize = 6;
/// The distance that stands for all larger ones of a high fence. No key of a dense leaf has it.
pub(super) const FARTHEST: u64 = (1 << (8 * DISTANCE)) - 1;
/// Bytes of a key of a dense leaf.
const KEY: usize = 8;
/// Bytes of a piece of the identity.
const PIECE: usize = 5;
/// Bytes of all pieces.
const PIECES: usize = WINDOW * PIECE;
const AT_HIGH: usize = KEY;
const AT_TREE: usize = 15;
/// The live bits of a dense line are this much higher than those of a wide one.
pub(super) const LIVE_SHIFT: u32 = 8;

const _: () = assert!(AT_LINE_TREE + PIECE == AT_BITMAP + 1 && AT_BITMAP + 2 == AT_STAMP);
const _: () = assert!(AT_HIGH + DISTANCE < AT_TREE && AT_TREE + 4 < PIECES && AT_TREE == 3 * PIECE);

/// The layout of dense leaves of the tree that has these wide ones. `None` if it has no dense leaves.
pub(super) fn shape_of(wide: &Shape) -> Option<Shape> {
    let Body::Slots { first_line, per_line } = wide.body else { return None };
    let lines = wide.lines() - wide.header_lines;
    let fits = wide.is_hashed()
        && wide.key_len == KEY
        && per_line < PER_LINE
        && PER_LINE * (DISTANCE + wide.payload_len) <= AT_LINE_TREE
        && lines >= WINDOW;
    fits.then(|| Shape {
        body: Body::Slots { first_line, per_line: PER_LINE },
        capacity: lines * PER_LINE,
        is_dense: true,
        ..wide.clone()
    })
}

/// The distance of `key` from the low fence, if a dense leaf can hold the key.
#[inline]
pub(super) fn distance(low: u64, key: &[u8]) -> Option<u64> {
    seam!(node::distance(low, key));
    let distance = u64::from_be_bytes(key.try_into().ok()?).checked_sub(low)?;
    (distance < FARTHEST).then_some(distance)
}

/// The low fence of a dense leaf with this image. 0 for other nodes, which do not need it.
#[inline]
pub(super) fn base(shape: &Shape, image: &[u8]) -> u64 {
    let mut low = [0; KEY];
    if shape.is_dense {
        shape.fences.load(image, 0, &mut low);
    }
    u64::from_be_bytes(low)
}

/// What the lines of a window show of their leaf.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown {
    pub(super) low: u64,
    high: u64,
    pub(super) tree: u32,
    open: bool,
}

impl Shown {
    /// Puts the pieces in a window together. The first line has the number `first` among the lines of
    /// entries. `None` if not all lines are dense.
    #[inline]
    pub(super) fn by(lines: &[[u8; LINE]], first: usize) -> Option<Self> {
        let lines: &[[u8; LINE]; WINDOW] = lines.try_into().ok()?;
        let piece = |number: usize| {
            let line = &lines[number.wrapping_sub(first) % WINDOW];
            get_u64(line, AT_LINE_TREE + PIECE - 8) >> (8 * (8 - PIECE))
        };
        let [one, two, three, four] = [0, 1, 2, 3].map(piece);
        let marks = lines.iter().fold(u16::MAX, |marks, line| marks & get_u16(line, AT_BITMAP));
        (marks & DENSE != 0).then_some(Self {
            low: one | two << (8 * PIECE),
            high: two >> (8 * (KEY - PIECE)) | (three & u64::from(u32::MAX)) << (8 * (2 * PIECE - KEY)),
            tree: four as u32,
            open: marks & HIGH_OPEN != 0,
        })
    }

    /// Whether the lines show that the leaf covers `key`.
    #[inline]
    pub(super) fn covers(&self, key: &[u8]) -> bool {
        let Ok(key) = key.try_into() else { return false };
        let distance = u64::from_be_bytes(key).checked_sub(self.low);
        distance.is_some_and(|distance| self.open || distance < self.high)
    }
}

/// The identity of a leaf as its lines show it: all pieces, and the marks of a dense line.
pub(super) struct Pieces {
    bytes: [u8; PIECES],
    marks: u16,
}

/// The pieces of an identity.
pub(super) fn pieces(identity: &Identity<'_>) -> Pieces {
    let mut bytes = [0; PIECES];
    put_u64(&mut bytes, 0, number_of(identity.low));
    put_u64(&mut bytes, AT_HIGH, shown_high(identity));
    put_u32(&mut bytes, AT_TREE, identity.tree);
    Pieces { bytes, marks: DENSE | if shows_open(identity) { HIGH_OPEN } else { 0 } }
}

/// Writes piece and marks of line `number` among the lines of entries. `marks` has the live bits too.
pub(super) fn identify(line: &mut [u8], number: usize, pieces: &Pieces, marks: u16) {
    let at = number % WINDOW * PIECE;
    line[AT_LINE_TREE..AT_LINE_TREE + PIECE].copy_from_slice(&pieces.bytes[at..at + PIECE]);
    let last = u16::from(line[AT_BITMAP]);
    put_u16(line, AT_BITMAP, pieces.marks | marks | last);
}

/// Whether lines show an open high fence.
fn shows_open(identity: &Identity<'_>) -> bool {
    seam!(node::shows_open(identity));
    identity.high.is_none()
}

/// The distance of the high fence that lines show. An open one has none.
pub(super) fn shown_high(identity: &Identity<'_>) -> u64 {
    let distance = |high: &[u8]| number_of(high).saturating_sub(number_of(identity.low));
    identity.high.map_or(0, |high| distance(high).min(FARTHEST))
}

fn number_of(key: &[u8]) -> u64 {
    key.try_into().map_or(0, u64::from_be_bytes)
}

/// The distance in the slot that begins at `at`.
#[inline(always)]
fn distance_at(line: &[u8; LINE], at: usize) -> u64 {
    get_u64(line, at) & FARTHEST
}

/// Finds a key by its distance. Returns its slot, counted from the first of these lines.
pub(super) fn find(lines: &[[u8; LINE]], payload_len: usize, distance: u64) -> Option<usize> {
    // The compiler knows the most common length.
    match payload_len {
        8 => find_by(lines, DISTANCE + 8, distance),
        _ => find_by(lines, DISTANCE + payload_len, distance),
    }
}

#[inline(always)]
fn find_by(lines: &[[u8; LINE]], slot_len: usize, distance: u64) -> Option<usize> {
    for (number, line) in lines.iter().enumerate() {
        let mut hits = 0;
        for slot in 0..PER_LINE {
            hits |= u16::from(distance_at(line, slot * slot_len) == distance) << slot;
        }
        hits &= get_u16(line, AT_BITMAP) >> LIVE_SHIFT;
        if hits != 0 {
            return Some(number * PER_LINE + hits.trailing_zeros() as usize);
        }
    }
    None
}

/// The key in slot `index` of a line of a leaf with the low fence `low`.
#[inline(always)]
pub(super) fn key_at(line: &[u8; LINE], index: usize, payload_len: usize, low: u64) -> u64 {
    low.wrapping_add(distance_at(line, index * (DISTANCE + payload_len)))
}

/// Copies bytes `from..from + into.len()` of the entry in slot `index`, as if the slot had the whole key.
pub(super) fn load(
    line: &[u8; LINE],
    index: usize,
    payload_len: usize,
    low: u64,
    from: usize,
    into: &mut [u8],
) {
    let mut entry = [0; 2 * KEY];
    let value = index * (DISTANCE + payload_len) + DISTANCE;
    entry[..KEY].copy_from_slice(&key_at(line, index, payload_len, low).to_be_bytes());
    entry[KEY..KEY + payload_len].copy_from_slice(&line[value..value + payload_len]);
    into.copy_from_slice(&entry[from..from + into.len()]);
}

/// Key and value in slot `index`, if the value has eight bytes.
#[inline(always)]
pub(super) fn pair_at(line: &[u8; LINE], index: usize, low: u64) -> [u8; 2 * KEY] {
    let value = get_u64(line, index * (DISTANCE + KEY) + DISTANCE);
    let mut pair = [0; 2 * KEY];
    pair[..KEY].copy_from_slice(&key_at(line, index, KEY, low).to_be_bytes());
    pair[KEY..].copy_from_slice(&value.to_le_bytes());
    pair
}

/// Puts an entry into slot `index`. Returns where it begins in the line.
#[inline]
pub(super) fn put(line: &mut [u8; LINE], index: usize, low: u64, key: &[u8], value: &[u8]) -> usize {
    let from = index * (DISTANCE + value.len());
    let distance = number_of(key).wrapping_sub(low).to_le_bytes();
    line[from..from + DISTANCE].copy_from_slice(&distance[..DISTANCE]);
    line[from + DISTANCE..from + DISTANCE + value.len()].copy_from_slice(value);
    let bits = get_u16(line, AT_BITMAP) | 1 << (LIVE_SHIFT + index as u32);
    put_u16(line, AT_BITMAP, bits);
    from
}

const _: () = assert!(DISTANCE + KEY == 14 && (PER_LINE - 1) * 14 + 8 <= LINE);
