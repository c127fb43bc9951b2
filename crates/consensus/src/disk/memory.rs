//! A disk in memory that can lose what was not synced.

use super::{Disk, SEGMENTS};
use std::io;

/// One segment.
#[derive(Clone, Debug, Default)]
struct Part {
    /// What a crash leaves.
    durable: Vec<u8>,
    /// What a reader sees now.
    current: Vec<u8>,
    /// Whether `current` replaced `durable` since the last sync, so does not begin with it.
    replaced: bool,
}

/// A disk in memory. It is for tests, and for a server without a file, whose log dies with it.
#[derive(Clone, Debug, Default)]
pub struct MemoryDisk {
    parts: [Part; SEGMENTS],
}

impl MemoryDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes in both segments.
    pub fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.current.len()).sum()
    }

    /// Loses what was not synced. `choose(n)` returns a number below `n`: it decides how much of that the
    /// device had written, and which part of it is garbage.
    pub fn crash(&mut self, mut choose: impl FnMut(usize) -> usize) {
        for part in &mut self.parts {
            let keeps_old = part.replaced && choose(2) == 0;
            if !keeps_old {
                let from = if part.replaced { 0 } else { part.durable.len().min(part.current.len()) };
                let written = choose(part.current.len() - from + 1);
                part.durable = part.current[..from + written].to_vec();
                // Devices write sectors in any order: a middle part may be missing.
                if written > 0 && choose(4) == 0 {
                    let at = from + choose(written);
                    let end = (at + 1 + choose(64)).min(part.durable.len());
                    part.durable[at..end].fill(0);
                }
            }
            part.current = part.durable.clone();
            part.replaced = false;
        }
    }

    /// Flips one bit, for tests. Does nothing where there is no such byte.
    pub fn damage(&mut self, segment: usize, at: usize, bit: u8) {
        let Some(part) = self.parts.get_mut(segment) else { return };
        for bytes in [&mut part.durable, &mut part.current] {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << (bit % 8);
            }
        }
    }

    fn part(&mut self, segment: usize) -> io::Result<&mut Part> {
        self.parts.get_mut(segment).ok_or(io::Error::from(io::ErrorKind::InvalidInput))
    }
}

impl Disk for MemoryDisk {
    fn append(&mut self, segment: usize, bytes: &[u8]) -> io::Result<()> {
        self.part(segment)?.current.extend_from_slice(bytes);
        Ok(())
    }

    fn sync(&mut self, segment: usize) -> io::Result<()> {
        let part = self.part(segment)?;
        if part.replaced {
            part.durable.clear();
        }
        let from = part.durable.len();
        part.durable.extend_from_slice(&part.current[from..]);
        part.replaced = false;
        Ok(())
    }

    fn replace(&mut self, segment: usize, bytes: &[u8]) -> io::Result<()> {
        let part = self.part(segment)?;
        part.current = bytes.to_vec();
        part.replaced = true;
        Ok(())
    }

    fn read(&mut self, segment: usize) -> io::Result<Vec<u8>> {
        Ok(self.part(segment)?.current.clone())
    }
}
