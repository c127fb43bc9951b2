//! One memory server's memory: host lines and on-chip words behind checked verbs.
//!
//! The only way to the bytes: every offset, length and alignment that a client names is checked here, so a bad verb is
//! an error and never reaches [`line`](crate::line) or [`on_chip`](crate::on_chip).

use crate::copy::{CopyPath, LINE, WORD};
use crate::line::{Atomicity, Lines};
use crate::on_chip::OnChip;
use sherman_fabric::{Memory, Space};

/// The memory of one memory server.
#[derive(Debug)]
pub struct Region {
    host: Lines,
    chip: OnChip,
}

/// Why an access is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadAccess {
    /// It reaches outside the space.
    OutOfBounds,
    /// It is not aligned to its width, crosses a word, or has a width that on-chip memory and atomics do not know.
    Misaligned,
}

impl Region {
    /// Host memory of `host_bytes` (a multiple of 64) and on-chip memory of `chip_bytes` (a multiple of 8), all zero and
    /// no page of it touched. `None` if the sizes are none of these or the system has not as much.
    pub fn new(host_bytes: usize, chip_bytes: usize, atomicity: Atomicity, path: CopyPath) -> Option<Self> {
        if !host_bytes.is_multiple_of(LINE) || !chip_bytes.is_multiple_of(WORD) {
            return None;
        }
        Some(Self { host: Lines::new(host_bytes, atomicity, path)?, chip: OnChip::new(chip_bytes)? })
    }

    /// `offset` as an index, if `len` bytes from there are inside `space`.
    fn bound(&self, space: Space, offset: u64, len: usize) -> Result<usize, BadAccess> {
        let size = match space {
            Space::Host => self.host.bytes(),
            Space::OnChip => self.chip.bytes(),
        };
        let start = usize::try_from(offset).map_err(|_| BadAccess::OutOfBounds)?;
        match start.checked_add(len) {
            Some(end) if end <= size => Ok(start),
            _ => Err(BadAccess::OutOfBounds),
        }
    }

    fn bound_word(&self, space: Space, offset: u64) -> Result<usize, BadAccess> {
        let start = self.bound(space, offset, WORD)?;
        if start.is_multiple_of(WORD) { Ok(start) } else { Err(BadAccess::Misaligned) }
    }

    /// `offset` as an index, if a READ or WRITE of `len` bytes there is allowed.
    fn bound_bytes(&self, space: Space, offset: u64, len: usize) -> Result<usize, BadAccess> {
        let start = self.bound(space, offset, len)?;
        let aligned = space == Space::Host || (matches!(len, 1 | 2 | 4 | 8) && start.is_multiple_of(len));
        if aligned { Ok(start) } else { Err(BadAccess::Misaligned) }
    }

    /// READ.
    pub fn read(&self, space: Space, offset: u64, into: &mut [u8]) -> Result<(), BadAccess> {
        let start = self.bound_bytes(space, offset, into.len())?;
        match space {
            Space::Host => self.host.read(start, into),
            Space::OnChip => self.chip.read(start, into),
        }
        Ok(())
    }

    /// WRITE.
    pub fn write(&self, space: Space, offset: u64, from: &[u8]) -> Result<(), BadAccess> {
        let start = self.bound_bytes(space, offset, from.len())?;
        match space {
            Space::Host => self.host.write(start, from),
            Space::OnChip => self.chip.write(start, from),
        }
        Ok(())
    }

    /// CAS of the bits under `mask`; answers the word as it was.
    pub fn cas(&self, space: Space, offset: u64, compare: u64, swap: u64, mask: u64) -> Result<u64, BadAccess> {
        let start = self.bound_word(space, offset)?;
        Ok(match space {
            Space::Host => self.host.cas(start, compare, swap, mask),
            Space::OnChip => self.chip.cas(start, compare, swap, mask),
        })
    }

    /// Fetch-and-add; answers the word as it was.
    pub fn faa(&self, space: Space, offset: u64, add: u64) -> Result<u64, BadAccess> {
        let start = self.bound_word(space, offset)?;
        Ok(match space {
            Space::Host => self.host.faa(start, add),
            Space::OnChip => self.chip.faa(start, add),
        })
    }
}

/// The server's own CPU. It may move many on-chip words at once; each is atomic by itself.
impl Memory for Region {
    fn size(&self, space: Space) -> u64 {
        match space {
            Space::Host => self.host.bytes() as u64,
            Space::OnChip => self.chip.bytes() as u64,
        }
    }

    fn load(&self, space: Space, offset: u64, into: &mut [u8]) {
        let start = self.bound(space, offset, into.len()).expect("the server stays inside its own memory");
        match space {
            Space::Host => self.host.read(start, into),
            Space::OnChip => {
                let mut done = 0;
                while done < into.len() {
                    let step = chip_step(start + done, into.len() - done);
                    self.chip.read(start + done, &mut into[done..done + step]);
                    done += step;
                }
            }
        }
    }

    fn store(&self, space: Space, offset: u64, from: &[u8]) {
        let start = self.bound(space, offset, from.len()).expect("the server stays inside its own memory");
        match space {
            Space::Host => self.host.write(start, from),
            Space::OnChip => {
                let mut done = 0;
                while done < from.len() {
                    let step = chip_step(start + done, from.len() - done);
                    self.chip.write(start + done, &from[done..done + step]);
                    done += step;
                }
            }
        }
    }
}

/// How many bytes from `at` on lie in its word.
fn chip_step(at: usize, len: usize) -> usize {
    (WORD - at % WORD).min(len)
}
