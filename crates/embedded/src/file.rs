//! A memory server's memory in a file (`docs/LAYOUT.md`, part C), so that it outlives the process.
//!
//! The file is mapped, so the next process that opens it sees every store at once. Verbs cost the same as in
//! other memory, except WRITEs, which go through the `journal`. A process may end in any way, `kill -9`
//! included. It leaves host memory, lanes and redo slots as they were between two changes of a line or word
//! (F1, F7). A server that opens the file again finds them, and is another incarnation. Clients that were
//! connected to the first incarnation are dead there, and are recovered like other dead clients.
//!
//! **Not durable.** The system decides when and in which order it writes pages to disk. After a power loss or
//! a crash of the system, the file may hold any mixture of old and new, and nothing here detects it. Format
//! the file again.
//!
//! **What must hold.** One process at a time uses the file: it holds an exclusive `flock` as long as the file
//! is mapped. The lock ends with the process. The lock is advisory. A process that ignores the lock and
//! writes the file destroys the memory. A process that shortens the file ends the server by `SIGBUS`.
//!
//! **Disk space.** [`preallocate`](FileOptions::preallocate) takes all disk space when the file is made or
//! opened, and refuses the file if the disk has too little. A sparse file takes no space for memory that was
//! never touched, so the disk may fill up later. Then the kernel kills the server by `SIGBUS` at its first
//! store to a page that the disk has no room for. A file system that compresses or copies on write (ZFS,
//! btrfs with snapshots) may still run out of space after the allocation.

mod error;
mod header;
mod peek;
mod space;

pub use error::{FileError, FileProblem};
pub(crate) use header::Header;
pub use peek::{Formatted, peek};

use crate::control_memory::ControlMemory;
use crate::copy::{CopyPath, LINE, WORD};
use crate::journal::{self, Journal};
use crate::line::{Atomicity, Lines};
use crate::on_chip::OnChip;
use crate::predecessor::wait_for_predecessor;
use header::{CHIP_OFFSET, HEADER_BYTES, Image, JOURNAL_OFFSET, PAGE};
use sherman_pages::mapped::{LockedFile, Mapping};
use sherman_pages::zeroed::Zeroed;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The path of a file, and the memory in it.
#[derive(Clone, Debug)]
pub struct FileOptions {
    /// The file's path. If nothing is there, the file is made, readable and writable by its owner alone.
    pub path: PathBuf,
    /// Bytes of host memory, a multiple of 64. Fixed when the file is made.
    pub host_bytes: u64,
    /// Bytes of on-chip memory, a multiple of 8. Fixed when the file is made.
    pub on_chip_bytes: u64,
    /// Bytes of memory for the control state, a multiple of 8. Fixed when the file is made, and only then
    /// taken from here. 0 on a server that does not keep it.
    pub control_bytes: u64,
    /// The unit of atomicity among live clients.
    pub atomicity: Atomicity,
    /// Whether the file takes all its disk space now, even if it was made sparse before.
    pub preallocate: bool,
}

/// The state of the memory in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// No usable memory: the file was made just now, or formatting it never ended. The caller must format it.
    Fresh,
    /// A formatted memory. The caller can open it.
    Kept,
}

/// The parts of an open file.
type Opened = (Lines, OnChip, ControlMemory, Header);

/// Opens or makes the file.
pub(crate) fn open(options: &FileOptions) -> Result<Opened, FileError> {
    try_open(options).map_err(|problem| FileError { path: options.path.clone(), problem })
}

fn try_open(options: &FileOptions) -> Result<Opened, FileProblem> {
    let asked = Image::new(options.host_bytes, options.on_chip_bytes, options.control_bytes);
    let places = Places::of(&asked).ok_or(FileProblem::BadSizes)?;
    let (file, before) = open_locked(&options.path)?;
    let undo = Undo { path: &options.path, before };
    let length = file.metadata().map_err(FileProblem::io("read the metadata of"))?.len();
    let found = if length == 0 { None } else { check(&file, &asked, length)? };
    let places = match &found {
        Some(found) => Places::of(found).ok_or(FileProblem::BadSizes)?,
        None => places,
    };
    if let Err(problem) = extend(&file, found.is_none().then_some(&asked), &places, options) {
        undo.run(&file);
        return Err(problem);
    }
    let (lines, chip, control, header) = map(file, &places, options)?;
    if found.is_none() {
        header.finish(&asked);
    }
    Ok((lines, chip, control, header))
}

/// Writes the header if the file must be made, and sets the file's length and disk space.
fn extend(
    file: &File,
    make: Option<&Image>,
    places: &Places,
    options: &FileOptions,
) -> Result<(), FileProblem> {
    if options.preallocate {
        space::check(file, places.end)?;
    }
    if let Some(image) = make {
        // The header goes first and says that the file is unfinished. If the process dies after this, the
        // next open starts again.
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
    /// A file of zero bytes.
    Empty,
    Something,
}

/// Restores a path to its state before a file was made there.
struct Undo<'o> {
    path: &'o Path,
    before: Before,
}

impl Undo<'_> {
    /// Undoes what it can and ignores failures: the caller reports the error that led here. The file is still
    /// locked.
    fn run(self, file: &File) {
        match self.before {
            Before::Nothing => drop(std::fs::remove_file(self.path)),
            Before::Empty => drop(file.set_len(0)),
            Before::Something => {}
        }
    }
}

/// The offsets and sizes of the file's parts, as this process counts them.
struct Places {
    chip_words: usize,
    host_offset: usize,
    host_words: usize,
    control_offset: usize,
    control_words: usize,
    end: u64,
}

impl Places {
    /// Returns `None` if the sizes are not whole lines and words, or are too large.
    fn of(image: &Image) -> Option<Self> {
        let host = usize::try_from(image.host_bytes).ok()?;
        let chip = usize::try_from(image.on_chip_bytes).ok()?;
        let control = usize::try_from(image.control_bytes).ok()?;
        let host_offset = CHIP_OFFSET.checked_add(chip)?.checked_next_multiple_of(PAGE)?;
        let control_offset = host_offset.checked_add(host)?.checked_next_multiple_of(PAGE)?;
        let end = match control {
            0 => host_offset + host,
            control => control_offset.checked_add(control)?,
        };
        let end = u64::try_from(end).ok()?;
        let words = chip.is_multiple_of(WORD) && control.is_multiple_of(WORD);
        let whole = host.is_multiple_of(LINE) && words && i64::try_from(end).is_ok();
        whole.then_some(Self {
            chip_words: chip / WORD,
            host_offset,
            host_words: host / WORD,
            control_offset,
            control_words: control / WORD,
            end,
        })
    }
}

/// Opens and locks the file, and says what was there before.
fn open_locked(path: &Path) -> Result<(LockedFile, Before), FileProblem> {
    let mut open = OpenOptions::new();
    open.read(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut open, 0o600);
    let (file, made) = match open.clone().create_new(true).open(path) {
        Ok(file) => (file, true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // Not `create`: another process may remove the file in between, and then this call must fail.
            (open.open(path).map_err(FileProblem::io("open"))?, false)
        }
        Err(error) => return Err(FileProblem::Io { what: "open", error }),
    };
    let found = file.metadata().map_err(FileProblem::io("read the metadata of"))?;
    if !found.is_file() {
        return Err(FileProblem::NotAFile);
    }
    let lock = || file.try_clone().map_err(TryLockError::Error).and_then(LockedFile::new);
    let in_use = |error: &TryLockError| matches!(error, TryLockError::WouldBlock);
    let file = wait_for_predecessor(lock, in_use).map_err(|error| match error {
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

/// The header of a file of `length` bytes, if its sizes are those asked for. `None` if the file was never
/// finished.
fn check(mut file: &File, asked: &Image, length: u64) -> Result<Option<Image>, FileProblem> {
    let mut bytes = [0; HEADER_BYTES];
    if length < HEADER_BYTES as u64 {
        return Err(FileProblem::NotAMemory);
    }
    file.read_exact(&mut bytes).map_err(FileProblem::io("read the header of"))?;
    let found = Image::decode(&bytes)?;
    // A file whose memory was never formatted may get another control state.
    let remade = !found.is_formatted() && found.control_bytes != asked.control_bytes;
    if !found.is_finished() || remade && found.host_bytes == asked.host_bytes {
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
    let end = Places::of(&found).ok_or(FileProblem::BadSizes)?.end;
    if length < end {
        return Err(FileProblem::Truncated { found: length, expected: end });
    }
    Ok(Some(found))
}

/// Maps the file and undoes the unfinished changes of a dead process.
fn map(file: LockedFile, places: &Places, options: &FileOptions) -> Result<Opened, FileProblem> {
    let end = usize::try_from(places.end).map_err(|_| FileProblem::BadSizes)?;
    let mapping = Arc::new(Mapping::new(file, end).map_err(FileProblem::io("map"))?);
    let words = |offset, len| Zeroed::in_mapping(&mapping, offset, len).ok_or(FileProblem::BadSizes);
    let header = Header::new(words(0, HEADER_BYTES / WORD)?);
    let journal = Journal::new(words(JOURNAL_OFFSET, journal::WORDS)?);
    let host = words(places.host_offset, places.host_words)?;
    journal.undo(&host).map_err(|slot| FileProblem::DamagedJournal { slot })?;
    let chip = OnChip::in_file(words(CHIP_OFFSET, places.chip_words)?);
    let lines = Lines::in_file(host, journal, options.atomicity, CopyPath::fastest());
    let control = match places.control_words {
        0 => ControlMemory::new(0).ok_or(FileProblem::OutOfMemory)?,
        len => ControlMemory::in_file(words(places.control_offset, len)?),
    };
    Ok((lines.ok_or(FileProblem::OutOfMemory)?, chip, control, header))
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod kill_tests;
#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests;
