//! The file that server and clients map: a header, slots, on-chip memory, sequence words, host memory.
//!
//! ```text
//! 0        header: magic, version, sizes
//! 4096     slots, 256 bytes each (`slot`)
//! ..       on-chip memory             at a multiple of 4 KiB
//! ..       sequence words, 4 bytes for each line    at a multiple of 2 MiB
//! ..       host memory                at a multiple of 2 MiB
//! ```
//! The file is sparse: untouched parts and gaps cost nothing. Its length is sealed, so no load or store can
//! run past its end. It is in no folder: the kernel frees it together with the last process that has it open.

use crate::slot::{SLOT_WORDS, Slots};
use sherman_embedded::shared::Parts;
use sherman_pages::mapped::{self, Mapping};
use sherman_pages::zeroed::Zeroed;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

const PAGE: u64 = 4096;
const HUGE: u64 = 2 << 20;
const LINE: u64 = 64;
/// The smallest memory for which huge pages are worth their cost.
const LARGE: u64 = 16 << 20;
const WORD: u64 = 8;

/// The first word of the header.
const MAGIC: u64 = u64::from_le_bytes(*b"SHRMSHM\n");
/// The second word of the header.
const VERSION: u64 = 1;
const HEADER_WORDS: usize = 8;
const AT_MAGIC: usize = 0;
const AT_VERSION: usize = 1;
const AT_HOST: usize = 2;
const AT_CHIP: usize = 3;
const AT_SLOTS: usize = 4;

/// The most slots that a segment can have.
pub const MAX_SLOTS: u32 = 1 << 16;

/// The sizes of a segment's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of host memory, a multiple of 64.
    pub host_bytes: u64,
    /// Bytes of on-chip memory, a multiple of 8.
    pub on_chip_bytes: u64,
    /// Slots, including the server's own.
    pub slots: u32,
}

/// Where the parts of a segment lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Places {
    slots: usize,
    chip: usize,
    sequence: usize,
    host: usize,
    end: usize,
}

impl Geometry {
    /// Where the parts lie; `None` if no such segment can exist.
    fn places(&self) -> Option<Places> {
        let whole = self.host_bytes.is_multiple_of(LINE) && self.on_chip_bytes.is_multiple_of(WORD);
        if !whole || self.slots < 2 || self.slots > MAX_SLOTS {
            return None;
        }
        let slots = PAGE;
        let chip =
            (slots + u64::from(self.slots) * SLOT_WORDS as u64 * WORD).checked_next_multiple_of(PAGE)?;
        let sequence = chip.checked_add(self.on_chip_bytes)?.checked_next_multiple_of(HUGE)?;
        let words = Parts::sequence_words(usize::try_from(self.host_bytes).ok()?) as u64;
        let host = sequence.checked_add(words.checked_mul(4)?)?.checked_next_multiple_of(HUGE)?;
        let end = host.checked_add(self.host_bytes)?;
        i64::try_from(end).ok()?;
        let [slots, chip, sequence, host, end] = [slots, chip, sequence, host, end].map(usize::try_from);
        Some(Places {
            slots: slots.ok()?,
            chip: chip.ok()?,
            sequence: sequence.ok()?,
            host: host.ok()?,
            end: end.ok()?,
        })
    }
}

/// A mapped segment.
#[derive(Debug)]
pub struct Segment {
    geometry: Geometry,
    places: Places,
    mapping: Arc<Mapping>,
    /// The slots of all links.
    pub(crate) slots: Slots,
}

impl Segment {
    /// Makes a new segment, all zero. Also returns the file that it lies in.
    pub(crate) fn make(geometry: Geometry) -> io::Result<(Self, File)> {
        let places = geometry.places().ok_or(io::ErrorKind::InvalidInput)?;
        let file = mapped::make_sealed("sherman-memory", places.end as u64)?;
        let segment = Self::over(&file, geometry, places)?;
        let header = segment.header().ok_or(io::ErrorKind::InvalidInput)?;
        for (at, word) in segment.words() {
            header[at].store(word.to_le(), Relaxed);
        }
        header[AT_MAGIC].store(MAGIC.to_le(), Release);
        Ok((segment, file))
    }

    /// Maps the segment in `file`, and checks that it has the geometry that the server announced.
    pub(crate) fn open(file: &File, geometry: Geometry) -> io::Result<Self> {
        let foreign = || {
            io::Error::new(
                io::ErrorKind::InvalidData,
                "the file from the server is not the memory that the server announced",
            )
        };
        let places = geometry.places().ok_or_else(foreign)?;
        let segment = Self::over(file, geometry, places)?;
        let header = segment.header().ok_or_else(foreign)?;
        let found = |at: usize| u64::from_le(header[at].load(Acquire));
        let right = found(AT_MAGIC) == MAGIC && segment.words().iter().all(|(at, word)| found(*at) == *word);
        if right { Ok(segment) } else { Err(foreign()) }
    }

    fn over(file: &File, geometry: Geometry, places: Places) -> io::Result<Self> {
        let mapping = Arc::new(Mapping::sealed(file, places.end)?);
        let slots = Slots::new(&mapping, places.slots, geometry.slots).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Self { geometry, places, mapping, slots })
    }

    /// The words of the header, except its magic.
    fn words(&self) -> [(usize, u64); 4] {
        let Geometry { host_bytes, on_chip_bytes, slots } = self.geometry;
        [(AT_VERSION, VERSION), (AT_HOST, host_bytes), (AT_CHIP, on_chip_bytes), (AT_SLOTS, slots.into())]
    }

    fn header(&self) -> Option<Zeroed<AtomicU64>> {
        Zeroed::in_mapping(&self.mapping, 0, HEADER_WORDS)
    }

    /// The sizes of its parts.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The arrays of its memory. Never `None` for a segment that was made or opened.
    pub(crate) fn parts(&self) -> Option<Parts> {
        Some(Parts { host: self.host()?, sequence: self.sequence()?, on_chip: self.on_chip()? })
    }

    fn on_chip(&self) -> Option<Zeroed<AtomicU64>> {
        Zeroed::in_mapping(&self.mapping, self.places.chip, (self.geometry.on_chip_bytes / WORD) as usize)
    }

    /// Makes the huge pages of `bytes` bytes of host memory at `offset`, and of their sequence words, now.
    /// Does nothing if the memory is too small to matter. With small pages, nearly every random access would
    /// cost a walk of the page table.
    pub(crate) fn gather(&self, offset: u64, bytes: u64) {
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= self.geometry.host_bytes);
        if self.geometry.host_bytes < LARGE || !inside {
            return;
        }
        let (offset, bytes) = (offset as usize, bytes as usize);
        self.mapping.gather(self.places.host + offset, bytes);
        self.mapping.gather(self.places.sequence + offset / 16, bytes.div_ceil(16));
    }

    /// The sequence words of its lines.
    pub(crate) fn sequence(&self) -> Option<Zeroed<AtomicU32>> {
        let words = Parts::sequence_words(self.geometry.host_bytes as usize);
        Zeroed::in_mapping(&self.mapping, self.places.sequence, words)
    }

    /// Its lines.
    pub(crate) fn host(&self) -> Option<Zeroed<AtomicU64>> {
        Zeroed::in_mapping(&self.mapping, self.places.host, (self.geometry.host_bytes / WORD) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Geometry = Geometry { host_bytes: 1 << 20, on_chip_bytes: 128, slots: 4 };

    #[test]
    fn what_one_writes_another_finds_and_parts_do_not_overlap() {
        let (one, file) = Segment::make(SMALL).unwrap();
        let other = Segment::open(&file, SMALL).unwrap();
        let (one, other) = (one.parts().unwrap(), other.parts().unwrap());
        one.host.iter().for_each(|word| word.store(1, Relaxed));
        one.sequence.iter().for_each(|word| word.store(2, Relaxed));
        one.on_chip.iter().for_each(|word| word.store(3, Relaxed));
        assert_eq!((other.host.len(), other.sequence.len(), other.on_chip.len()), (1 << 17, 1 << 14, 16));
        assert!(other.host.iter().all(|word| word.load(Relaxed) == 1));
        assert!(other.sequence.iter().all(|word| word.load(Relaxed) == 2));
        assert!(other.on_chip.iter().all(|word| word.load(Relaxed) == 3));
        assert!(Segment::open(&file, SMALL).is_ok());
    }

    #[test]
    fn a_segment_is_as_announced() {
        let (segment, file) = Segment::make(SMALL).unwrap();
        for other in [
            Geometry { host_bytes: 2 << 20, ..SMALL },
            Geometry { host_bytes: 1 << 19, ..SMALL },
            Geometry { on_chip_bytes: 120, ..SMALL },
            Geometry { slots: 3, ..SMALL },
            Geometry { slots: 0, ..SMALL },
            Geometry { host_bytes: u64::MAX - 63, ..SMALL },
            Geometry { host_bytes: 100, ..SMALL },
        ] {
            assert!(Segment::open(&file, other).is_err(), "{other:?}");
        }
        segment.header().unwrap()[AT_VERSION].store(2, Relaxed);
        assert!(Segment::open(&file, SMALL).is_err());
        assert!(Segment::make(Geometry { on_chip_bytes: 4, ..SMALL }).is_err());
        assert!(Segment::make(Geometry { slots: MAX_SLOTS + 1, ..SMALL }).is_err());
    }
}
