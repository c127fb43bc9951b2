//! The first bytes of a memory's file: its format, and how far it was made. `docs/LAYOUT.md`, C.1.

use super::{Contents, FileProblem};
use crate::journal;
use sherman_pages::zeroed::Zeroed;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

/// Every part of the file begins at a multiple of this.
pub(super) const PAGE: usize = 4096;
/// Used bytes of the header: one line.
pub(super) const HEADER_BYTES: usize = 64;
pub(super) const JOURNAL_OFFSET: usize = PAGE;
pub(super) const CHIP_OFFSET: usize = JOURNAL_OFFSET + journal::WORDS * 8;
const _: () = assert!(CHIP_OFFSET.is_multiple_of(PAGE) && HEADER_BYTES <= JOURNAL_OFFSET);

const MAGIC: [u8; 8] = *b"SHRMMEM\n";
pub(super) const VERSION: u32 = 2;

const AT_MAGIC: usize = 0;
/// Version and state share a word.
const AT_VERSION: usize = 8;
const AT_STATE: usize = 12;
const AT_HOST_BYTES: usize = 16;
const AT_CHIP_BYTES: usize = 24;
const AT_CONTROL_BYTES: usize = 32;
const STATE_WORD: usize = AT_VERSION / 8;
const _: () = assert!(AT_STATE / 8 == STATE_WORD, "the state changes by one store");

/// The file is being made.
const UNFINISHED: u32 = 0;
/// The file is made, and its memory is not formatted.
const MADE: u32 = 1;
/// The file's memory is formatted.
const FORMATTED: u32 = 2;

/// A decoded header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Image {
    state: u32,
    pub(super) host_bytes: u64,
    pub(super) on_chip_bytes: u64,
    pub(super) control_bytes: u64,
}

impl Image {
    pub(super) fn new(host_bytes: u64, on_chip_bytes: u64, control_bytes: u64) -> Self {
        Self { state: MADE, host_bytes, on_chip_bytes, control_bytes }
    }

    pub(super) fn is_finished(&self) -> bool {
        self.state != UNFINISHED
    }

    /// Whether the file's memory was formatted.
    pub(super) fn is_formatted(&self) -> bool {
        self.state == FORMATTED
    }

    /// The header of an unfinished file with these sizes.
    pub(super) fn unfinished(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(AT_MAGIC, &MAGIC);
        put(AT_VERSION, &VERSION.to_le_bytes());
        put(AT_STATE, &UNFINISHED.to_le_bytes());
        put(AT_HOST_BYTES, &self.host_bytes.to_le_bytes());
        put(AT_CHIP_BYTES, &self.on_chip_bytes.to_le_bytes());
        put(AT_CONTROL_BYTES, &self.control_bytes.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, FileProblem> {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        if !bytes.starts_with(&MAGIC) {
            return Err(FileProblem::NotAMemory);
        }
        let [version, state] = halves(word(AT_VERSION));
        if version != VERSION {
            return Err(FileProblem::OtherVersion { found: version, known: VERSION });
        }
        if state > FORMATTED {
            return Err(FileProblem::NotAMemory);
        }
        let [host_bytes, on_chip_bytes, control_bytes] =
            [AT_HOST_BYTES, AT_CHIP_BYTES, AT_CONTROL_BYTES].map(word);
        Ok(Self { state, host_bytes, on_chip_bytes, control_bytes })
    }
}

/// The low and the high half of a word.
fn halves(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}

/// The header of a mapped file.
#[derive(Debug)]
pub(crate) struct Header(Zeroed<AtomicU64>);

impl Header {
    /// `words` are the words of the header.
    pub(super) fn new(words: Zeroed<AtomicU64>) -> Self {
        Self(words)
    }

    /// Marks the file as made.
    pub(super) fn finish(&self, image: &Image) {
        self.set_state(image.state);
    }

    /// What the file holds.
    pub(crate) fn contents(&self) -> Contents {
        let [_, state] = halves(u64::from_le(self.0[STATE_WORD].load(Acquire)));
        if state == FORMATTED { Contents::Kept } else { Contents::Fresh }
    }

    /// Sets what the file holds.
    pub(crate) fn set_contents(&self, contents: Contents) {
        self.set_state(match contents {
            Contents::Fresh => MADE,
            Contents::Kept => FORMATTED,
        });
    }

    /// One store, ordered behind all earlier stores.
    fn set_state(&self, state: u32) {
        let word = u64::from(VERSION) | u64::from(state) << 32;
        self.0[STATE_WORD].store(word.to_le(), Release);
    }
}
