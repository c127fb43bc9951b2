//! One memory server's memory: host lines and on-chip words behind checked verbs.
//!
//! This is the only way to the bytes. It checks every offset, length and alignment that a client names. So a
//! bad verb is an error and never reaches [`line`](crate::line) or `on_chip`.

use crate::control_memory::ControlMemory;
use crate::copy::{CopyPath, LINE, WORD};
use crate::file::{self, Contents, FileError, FileOptions, Header};
use crate::line::{Alone, Atomicity, Holder, Keeper, Lines, ReadError, Stalled, unstalled};
use crate::on_chip::OnChip;
use sherman_fabric::{ComputeId, Memory, Space};
use std::convert::Infallible;
use std::ptr::NonNull;

/// The memory of one memory server.
#[derive(Debug)]
pub struct Region {
    host: Lines,
    chip: OnChip,
    /// `Some` if the memory lies in a file.
    header: Option<Box<Header>>,
    /// The memory of the control state, if the file has one.
    control: Option<ControlMemory>,
    /// `Some` if other processes map the memory: the holder with which this process takes lines.
    keeper: Option<Box<dyn Keeper>>,
}

/// Why an access is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadAccess {
    /// The access reaches outside the space.
    OutOfBounds,
    /// The access is not aligned to its width, crosses a word, or has a width that on-chip memory and atomics
    /// do not support.
    Misaligned,
    /// A live client holds a line of the access and makes no progress. The part before that line has been
    /// done.
    OwnerStalled {
        /// The client that holds the line.
        client: ComputeId,
    },
    /// A READ did not stay within its window (F8), because its thread was paused again and again.
    Slow,
}

impl From<Infallible> for BadAccess {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl From<Stalled> for BadAccess {
    fn from(stalled: Stalled) -> Self {
        Self::OwnerStalled { client: stalled.client }
    }
}

impl<S> From<ReadError<S>> for BadAccess
where
    Self: From<S>,
{
    fn from(error: ReadError<S>) -> Self {
        match error {
            ReadError::Stalled(stalled) => stalled.into(),
            ReadError::Slow => Self::Slow,
        }
    }
}

impl Region {
    /// Host memory of `host_bytes` (a multiple of 64) and on-chip memory of `chip_bytes` (a multiple of 8),
    /// all zero, with no page touched. `None` if a size is not such a multiple, or the system does not have
    /// that much memory.
    pub fn new(host_bytes: usize, chip_bytes: usize, atomicity: Atomicity, path: CopyPath) -> Option<Self> {
        if !host_bytes.is_multiple_of(LINE) || !chip_bytes.is_multiple_of(WORD) {
            return None;
        }
        let (host, chip) = (Lines::new(host_bytes, atomicity, path)?, OnChip::new(chip_bytes)?);
        Some(Self { host, chip, header: None, control: None, keeper: None })
    }

    /// The memory in a file. Makes the file if there is none. The memory is as the last process left it,
    /// however that process ended, and no line is torn. See [`mod@file`] for the limits of this.
    pub fn in_file(options: &FileOptions) -> Result<(Self, Contents), FileError> {
        let (host, chip, control, header) = file::open(options)?;
        let contents = header.contents();
        let control = Some(control);
        Ok((Self { host, chip, header: Some(Box::new(header)), control, keeper: None }, contents))
    }

    /// Memory that other processes map too. With a `keeper`, this process takes lines as that keeper.
    pub(crate) fn mapped(host: Lines, chip: OnChip, keeper: Option<Box<dyn Keeper>>) -> Self {
        Self { host, chip, header: None, control: None, keeper }
    }

    /// Runs `format` on this memory. If it fails or the process dies in it, memory in a file stays
    /// [`Contents::Fresh`].
    pub(crate) fn formatting<T, E>(&self, format: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let Some(header) = &self.header else { return format() };
        header.set_contents(Contents::Fresh);
        let formatted = format()?;
        header.set_contents(Contents::Kept);
        Ok(formatted)
    }

    /// The memory of the control state in the file, once.
    pub(crate) fn take_control(&mut self) -> Option<ControlMemory> {
        self.control.take()
    }

    /// The unit of atomicity.
    pub fn atomicity(&self) -> Atomicity {
        self.host.atomicity()
    }

    /// The address and size of `space`, for a device that accesses it without this process.
    ///
    /// Such a device ignores line seqlocks and keeps F1 and F4 by its own means. While it uses the memory,
    /// only the server's own CPU may execute verbs through this region.
    pub fn place(&self, space: Space) -> (NonNull<u8>, usize) {
        match space {
            Space::Host => self.host.place(),
            Space::OnChip => self.chip.place(),
        }
    }

    /// Whether the memory lies in a file.
    pub fn is_in_file(&self) -> bool {
        self.header.is_some()
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

    /// `offset` as an index, if a READ of `len` bytes there is allowed.
    fn bound_read(&self, space: Space, offset: u64, len: usize) -> Result<usize, BadAccess> {
        let start = self.bound(space, offset, len)?;
        if space.allows(offset, len as u64, true) { Ok(start) } else { Err(BadAccess::Misaligned) }
    }

    /// `offset` as an index, if a WRITE of `len` bytes there is allowed.
    fn bound_write(&self, space: Space, offset: u64, len: usize) -> Result<usize, BadAccess> {
        let start = self.bound(space, offset, len)?;
        if space.allows(offset, len as u64, false) { Ok(start) } else { Err(BadAccess::Misaligned) }
    }

    /// Prefetches the first lines of a future READ. Does nothing for a READ that will be refused, or for
    /// on-chip memory, which is small and warm.
    #[inline]
    pub(crate) fn prefetch(&self, space: Space, offset: u64, len: usize) {
        if space == Space::Host
            && let Ok(start) = self.bound(space, offset, len)
        {
            self.host.prefetch(start, len);
        }
    }

    /// READ.
    #[inline]
    pub fn read(&self, space: Space, offset: u64, into: &mut [u8]) -> Result<(), BadAccess> {
        match &self.keeper {
            None => self.read_by(&Alone, space, offset, into),
            Some(keeper) => self.read_by(&**keeper, space, offset, into),
        }
    }

    /// WRITE.
    #[inline]
    pub fn write(&self, space: Space, offset: u64, from: &[u8]) -> Result<(), BadAccess> {
        match &self.keeper {
            None => self.write_by(&Alone, space, offset, from),
            Some(keeper) => self.write_by(&**keeper, space, offset, from),
        }
    }

    /// CAS of the bits under `mask`. Returns the old word.
    #[inline]
    pub fn cas(
        &self,
        space: Space,
        offset: u64,
        compare: u64,
        swap: u64,
        mask: u64,
    ) -> Result<u64, BadAccess> {
        match &self.keeper {
            None => self.cas_by(&Alone, space, offset, compare, swap, mask),
            Some(keeper) => self.cas_by(&**keeper, space, offset, compare, swap, mask),
        }
    }

    /// Fetch-and-add. Returns the old word.
    #[inline]
    pub fn faa(&self, space: Space, offset: u64, add: u64) -> Result<u64, BadAccess> {
        match &self.keeper {
            None => self.faa_by(&Alone, space, offset, add),
            Some(keeper) => self.faa_by(&**keeper, space, offset, add),
        }
    }
}

/// Verbs by a given holder of lines.
impl Region {
    #[inline]
    pub(crate) fn read_by<H>(
        &self,
        holder: &H,
        space: Space,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), BadAccess>
    where
        H: Holder + ?Sized,
        BadAccess: From<H::Stalled>,
    {
        let start = self.bound_read(space, offset, into.len())?;
        match space {
            Space::Host => self.host.read(holder, start, into)?,
            Space::OnChip => self.chip.read(start, into),
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn write_by<H>(
        &self,
        holder: &H,
        space: Space,
        offset: u64,
        from: &[u8],
    ) -> Result<(), BadAccess>
    where
        H: Holder + ?Sized,
        BadAccess: From<H::Stalled>,
    {
        let start = self.bound_write(space, offset, from.len())?;
        match space {
            Space::Host => self.host.write(holder, start, from)?,
            Space::OnChip => self.chip.write(start, from),
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn cas_by<H>(
        &self,
        holder: &H,
        space: Space,
        offset: u64,
        compare: u64,
        swap: u64,
        mask: u64,
    ) -> Result<u64, BadAccess>
    where
        H: Holder + ?Sized,
        BadAccess: From<H::Stalled>,
    {
        let start = self.bound_word(space, offset)?;
        Ok(match space {
            Space::Host => self.host.cas(holder, start, compare, swap, mask)?,
            Space::OnChip => self.chip.cas(start, compare, swap, mask),
        })
    }

    #[inline]
    pub(crate) fn faa_by<H>(&self, holder: &H, space: Space, offset: u64, add: u64) -> Result<u64, BadAccess>
    where
        H: Holder + ?Sized,
        BadAccess: From<H::Stalled>,
    {
        let start = self.bound_word(space, offset)?;
        Ok(match space {
            Space::Host => self.host.faa(holder, start, add)?,
            Space::OnChip => self.chip.faa(start, add),
        })
    }
}

/// Accesses of the server's own CPU. It may move many on-chip words at once. Each word is atomic by itself.
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
            Space::Host => match &self.keeper {
                None => unstalled(self.host.read_own(&Alone, start, into)),
                Some(keeper) => self.host.read_as_keeper(&**keeper, start, into),
            },
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
            Space::Host => match &self.keeper {
                None => unstalled(self.host.write(&Alone, start, from)),
                Some(keeper) => self.host.write_as_keeper(&**keeper, start, from),
            },
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

/// The number of bytes from `at` to the end of its word, at most `len`.
fn chip_step(at: usize, len: usize) -> usize {
    (WORD - at % WORD).min(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A few pseudo-random numbers, the same in every run.
    fn random(state: &mut u64, below: u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        (*state >> 11) % below
    }

    #[test]
    fn verbs_do_what_they_do_to_plain_bytes() {
        let rounds = if cfg!(miri) { 30 } else { 50_000 };
        for atomicity in [Atomicity::Line, Atomicity::Verb] {
            for path in [CopyPath::PORTABLE, CopyPath::fastest()] {
                let region = Region::new(4096, 64, atomicity, path).unwrap();
                let mut model = vec![0u8; 4096];
                let mut state = 0x9e37_79b9_7f4a_7c15;
                for _ in 0..rounds {
                    let grain = [1, 8, 64][random(&mut state, 3) as usize];
                    let offset = (random(&mut state, 4096) / grain * grain) as usize;
                    let most = (4096 - offset as u64).min([20, 200, 4096][random(&mut state, 3) as usize]);
                    let len = (random(&mut state, most + 1) / grain * grain) as usize;
                    let word = offset / 8 * 8;
                    let old = u64::from_le_bytes(model[word..word + 8].try_into().unwrap());
                    let new = match random(&mut state, 4) {
                        0 => {
                            let data = vec![random(&mut state, 256) as u8; len];
                            region.write(Space::Host, offset as u64, &data).unwrap();
                            model[offset..offset + len].copy_from_slice(&data);
                            continue;
                        }
                        1 => {
                            let mut data = vec![0; len];
                            region.read(Space::Host, offset as u64, &mut data).unwrap();
                            assert_eq!(data, model[offset..offset + len]);
                            continue;
                        }
                        2 => {
                            let mask = 0xffff << (8 * random(&mut state, 7));
                            let compare =
                                if random(&mut state, 2) == 0 { old ^ !mask } else { random(&mut state, 9) };
                            let swap = random(&mut state, u64::MAX);
                            assert_eq!(region.cas(Space::Host, word as u64, compare, swap, mask), Ok(old));
                            if (old ^ compare) & mask == 0 { (old & !mask) | (swap & mask) } else { old }
                        }
                        _ => {
                            let add = random(&mut state, u64::MAX);
                            assert_eq!(region.faa(Space::Host, word as u64, add), Ok(old));
                            old.wrapping_add(add)
                        }
                    };
                    model[word..word + 8].copy_from_slice(&new.to_le_bytes());
                }
            }
        }
    }

    #[test]
    fn the_server_moves_any_bytes_of_either_space() {
        let region = Region::new(128, 64, Atomicity::Line, CopyPath::fastest()).unwrap();
        for space in [Space::Host, Space::OnChip] {
            let data: Vec<u8> = (1..=41).collect();
            region.store(space, 3, &data);
            region.store_u64(space, 48, u64::MAX - 1);
            let mut back = [0; 64];
            region.load(space, 0, &mut back);
            assert_eq!(back[..3], [0; 3]);
            assert_eq!(back[3..44], data);
            assert_eq!(back[44..48], [0; 4]);
            assert_eq!(region.load_u64(space, 48), u64::MAX - 1);
        }
    }

    #[test]
    fn what_lies_in_a_place_is_what_verbs_see() {
        let region = Region::new(128, 64, Atomicity::Line, CopyPath::fastest()).unwrap();
        for (space, bytes) in [(Space::Host, 128), (Space::OnChip, 64)] {
            region.store(space, 8, &[1, 2, 3, 4]);
            let (start, len) = region.place(space);
            assert_eq!((len, start.as_ptr() as usize % 64), (bytes, 0));
            // SAFETY: the memory has that many bytes, and no thread writes them meanwhile.
            let found = unsafe { start.add(8).cast::<[u8; 4]>().read() };
            assert_eq!(found, [1, 2, 3, 4]);
        }
        assert!(!region.is_in_file());
    }

    #[test]
    fn a_region_has_whole_lines_and_words() {
        let new = |host, chip| Region::new(host, chip, Atomicity::Line, CopyPath::PORTABLE).is_some();
        assert!(new(128, 16) && new(0, 0));
        assert!(!new(100, 16) && !new(128, 12));
    }
}
