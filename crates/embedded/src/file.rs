//! A memory server's memory in a file (`docs/LAYOUT.md`, part C), so that it outlives the process.
//!
//! The file is mapped: a store is in it at once for whoever opens it next, and verbs cost what they cost anywhere, but
//! for WRITEs, which go through the `journal`. A process that ends in whatever way, `kill -9` included, leaves host memory,
//! lanes and redo slots as they were between two changes of a line or word (F1, F7). A server that opens the file again finds
//! them, and is another incarnation: who was connected to the first one is dead there, and recovered like any other.
//!
//! **Not durable.** When the system writes pages to disk, and in which order, is its own affair. After a power loss
//! or a crash of the system the file may hold any mixture of old and new, and nothing here notices; format it anew.
//!
//! **What must hold.** One process at a time: the file is locked (`flock`, exclusively) as long as it is mapped, and the lock
//! ends with the process. The lock is advisory. Who ignores it and writes the file ruins the memory; who shortens it ends the
//! server by `SIGBUS`.
//!
//! **Disk space.** [`preallocate`](FileOptions::preallocate) takes all disk space when the file is made or opened, and refuses the
//! file if the disk has too little. A sparse file takes no space for memory that was never touched, so the disk may
//! fill up later. Then the kernel kills the server by `SIGBUS` at its first store to a page that the disk has no room for. A file system that
//! compresses or copies on write (ZFS, btrfs with snapshots) may still run out of space after the allocation.

mod error;
mod header;
mod peek;
mod space;

pub use error::{FileError, FileProblem};
pub(crate) use header::Header;
pub use peek::{Formatted, peek};

use crate::copy::{CopyPath, LINE, WORD};
use crate::journal::{self, Journal};
use crate::line::{Atomicity, Lines};
use crate::on_chip::OnChip;
use header::{CHIP_OFFSET, HEADER_BYTES, Image, JOURNAL_OFFSET, PAGE};
use sherman_fabric::mapped::{LockedFile, Mapping};
use sherman_fabric::zeroed::Zeroed;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Which file, and what memory it has.
#[derive(Clone, Debug)]
pub struct FileOptions {
    /// Where it is; made if there is nothing, readable and writable by its owner alone.
    pub path: PathBuf,
    /// Bytes of host memory, a multiple of 64. Fixed when the file is made.
    pub host_bytes: u64,
    /// Bytes of on-chip memory, a multiple of 8. Fixed when the file is made.
    pub on_chip_bytes: u64,
    /// What is atomic among the living.
    pub atomicity: Atomicity,
    /// Whether the file takes all its disk space now, also if it was made sparse before.
    pub preallocate: bool,
}

/// What was found in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Nothing that counts: it was made just now, or formatting it never ended. To be formatted.
    Fresh,
    /// A formatted memory. To be opened.
    Kept,
}

/// Opens or makes the file.
pub(crate) fn open(options: &FileOptions) -> Result<(Lines, OnChip, Header), FileError> {
    try_open(options).map_err(|problem| FileError { path: options.path.clone(), problem })
}

fn try_open(options: &FileOptions) -> Result<(Lines, OnChip, Header), FileProblem> {
    let asked = Image::new(options.host_bytes, options.on_chip_bytes);
    let places = Places::of(options).ok_or(FileProblem::BadSizes)?;
    let (file, before) = open_locked(&options.path)?;
    let undo = Undo { path: &options.path, before };
    let length = file.metadata().map_err(FileProblem::io("look at"))?.len();
    let found = if length == 0 { None } else { check(&file, &asked, length, places.end)? };
    if let Err(problem) = extend(&file, found.is_none().then_some(&asked), &places, options) {
        undo.run(&file);
        return Err(problem);
    }
    let (lines, chip, header) = map(file, &places, options)?;
    if found.is_none() {
        header.finish(&asked);
    }
    Ok((lines, chip, header))
}

/// Gives the file its header, if it has to be made, and its length and disk space.
fn extend(file: &File, make: Option<&Image>, places: &Places, options: &FileOptions) -> Result<(), FileProblem> {
    if options.preallocate {
        space::check(file, places.end)?;
    }
    if let Some(image) = make {
        // The header goes first, saying that the file is not finished: whatever comes now may be cut and is then begun anew.
        let written = (&*file).rewind().and_then(|()| (&*file).write_all(&image.unfinished()));
        written.map_err(FileProblem::io("write the header of"))?;
        file.set_len(places.end).map_err(FileProblem::io("extend"))?;
    }
    if options.preallocate { space::take(file, places.end) } else { Ok(()) }
}

/// What was at the path before the file was opened.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Nothing,
    /// A file without a byte.
    Empty,
    Something,
}

/// Puts a path back as it was before a file was made there.
struct Undo<'o> {
    path: &'o Path,
    before: Before,
}

impl Undo<'_> {
    /// Undoes what can be undone; the error that led here is the one to report. The file is still locked.
    fn run(self, file: &File) {
        match self.before {
            Before::Nothing => drop(std::fs::remove_file(self.path)),
            Before::Empty => drop(file.set_len(0)),
            Before::Something => {}
        }
    }
}

/// Where things are in the file, as this process counts.
struct Places {
    chip_words: usize,
    host_offset: usize,
    host_words: usize,
    end: u64,
}

impl Places {
    /// `None` for sizes that are no whole lines and words, or more than there can be.
    fn of(options: &FileOptions) -> Option<Self> {
        let host = usize::try_from(options.host_bytes).ok()?;
        let chip = usize::try_from(options.on_chip_bytes).ok()?;
        let host_offset = CHIP_OFFSET.checked_add(chip)?.checked_next_multiple_of(PAGE)?;
        let end = u64::try_from(host_offset.checked_add(host)?).ok()?;
        let whole = host.is_multiple_of(LINE) && chip.is_multiple_of(WORD) && i64::try_from(end).is_ok();
        whole.then_some(Self { chip_words: chip / WORD, host_offset, host_words: host / WORD, end })
    }
}

/// The file, which nobody else has, and what was there before.
fn open_locked(path: &Path) -> Result<(LockedFile, Before), FileProblem> {
    let mut open = OpenOptions::new();
    open.read(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut open, 0o600);
    let (file, made) = match open.clone().create_new(true).open(path) {
        Ok(file) => (file, true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // Not `create`: another process may remove the file in between, and then this says so.
            (open.open(path).map_err(FileProblem::io("open"))?, false)
        }
        Err(error) => return Err(FileProblem::Io { what: "open", error }),
    };
    let found = file.metadata().map_err(FileProblem::io("look at"))?;
    if !found.is_file() {
        return Err(FileProblem::NotAFile);
    }
    let file = LockedFile::new(file).map_err(|error| match error {
        TryLockError::WouldBlock => FileProblem::InUse,
        TryLockError::Error(error) => FileProblem::Io { what: "lock", error },
    })?;
    let before = match (made, found.len()) {
        (true, _) => Before::Nothing,
        (false, 0) => Before::Empty,
        (false, _) => Before::Something,
    };
    Ok((file, before))
}

/// The header of a file of `length` bytes, if it is the one asked for; `None` if the file was never finished.
fn check(mut file: &File, asked: &Image, length: u64, end: u64) -> Result<Option<Image>, FileProblem> {
    let mut bytes = [0; HEADER_BYTES];
    if length < HEADER_BYTES as u64 {
        return Err(FileProblem::NotAMemory);
    }
    file.read_exact(&mut bytes).map_err(FileProblem::io("read the header of"))?;
    let found = Image::decode(&bytes)?;
    if !found.is_finished() {
        return Ok(None);
    }
    if (found.host_bytes, found.on_chip_bytes) != (asked.host_bytes, asked.on_chip_bytes) {
        return Err(FileProblem::OtherSizes {
            host_bytes: found.host_bytes,
            on_chip_bytes: found.on_chip_bytes,
            asked_host_bytes: asked.host_bytes,
            asked_on_chip_bytes: asked.on_chip_bytes,
        });
    }
    if length < end {
        return Err(FileProblem::Truncated { found: length, expected: end });
    }
    Ok(Some(found))
}

/// Maps the file and undoes what a dead process was changing.
fn map(file: LockedFile, places: &Places, options: &FileOptions) -> Result<(Lines, OnChip, Header), FileProblem> {
    let end = usize::try_from(places.end).map_err(|_| FileProblem::BadSizes)?;
    let mapping = Arc::new(Mapping::new(file, end).map_err(FileProblem::io("map"))?);
    let words = |offset, len| Zeroed::in_mapping(&mapping, offset, len).ok_or(FileProblem::BadSizes);
    let header = Header::new(words(0, HEADER_BYTES / WORD)?);
    let journal = Journal::new(words(JOURNAL_OFFSET, journal::WORDS)?);
    let host = words(places.host_offset, places.host_words)?;
    journal.undo(&host).map_err(|slot| FileProblem::DamagedJournal { slot })?;
    let chip = OnChip::in_file(words(CHIP_OFFSET, places.chip_words)?);
    let lines = Lines::in_file(host, journal, options.atomicity, CopyPath::fastest());
    Ok((lines.ok_or(FileProblem::OutOfMemory)?, chip, header))
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod kill_tests;
#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests;
