//! Errors of using a memory's file.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why [`Region::in_file`](crate::memory::Region::in_file) failed. The file is as it was before, with one
/// exception: a file that was made and could not be mapped may remain. The next open makes it again.
#[derive(Debug)]
pub struct FileError {
    /// The file's path.
    pub path: PathBuf,
    /// The problem.
    pub problem: FileProblem,
}

/// The problems that a file may have.
#[derive(Debug)]
#[non_exhaustive]
pub enum FileProblem {
    /// Host memory is not a multiple of 64 bytes, on-chip memory is not a multiple of 8, or together they
    /// exceed what a file can hold.
    BadSizes,
    /// The path is something else: a directory or a device.
    NotAFile,
    /// Another server uses the file.
    InUse,
    /// The file is not empty, and does not hold a memory server's memory.
    NotAMemory,
    /// The file holds a memory server's memory, in a layout that this build does not know.
    OtherVersion {
        /// The version of the file's layout.
        found: u32,
        /// The version that this build knows.
        known: u32,
    },
    /// The file's memory has other sizes than asked for. The sizes are fixed when the file is made.
    OtherSizes {
        /// Bytes of host memory in the file.
        host_bytes: u64,
        /// Bytes of on-chip memory in the file.
        on_chip_bytes: u64,
        /// Bytes of host memory asked for.
        asked_host_bytes: u64,
        /// Bytes of on-chip memory asked for.
        asked_on_chip_bytes: u64,
    },
    /// Another process has shortened the file.
    Truncated {
        /// Bytes that the file has.
        found: u64,
        /// Bytes that the file must have.
        expected: u64,
    },
    /// A slot of the file's journal names a line that the file does not have. Another process has written to
    /// the file, or the system has crashed.
    DamagedJournal {
        /// The slot's index.
        slot: usize,
    },
    /// The disk has no room for the file.
    NoSpace {
        /// Bytes of disk space that the file still needs.
        needed: u64,
        /// Bytes that the disk has free.
        free: u64,
    },
    /// The file is longer than this process may make a file (`ulimit -f`).
    OverLimit {
        /// Bytes that the file needs.
        needed: u64,
        /// Bytes that are allowed.
        allowed: u64,
    },
    /// The system has no memory for the tables beside the file.
    OutOfMemory,
    /// The system refused an operation.
    Io {
        /// The operation on the file.
        what: &'static str,
        /// The cause.
        error: io::Error,
    },
}

impl FileProblem {
    pub(super) fn io(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Io { what, error }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.problem {
            FileProblem::BadSizes => {
                write!(
                    f,
                    "{path}: bad sizes. Host memory must be a multiple of 64 bytes, on-chip memory a \
                     multiple of 8, and the file must not exceed the system's limit"
                )
            }
            FileProblem::NotAFile => write!(f, "{path} is not a regular file"),
            FileProblem::InUse => write!(f, "{path} is in use by another memory server"),
            FileProblem::NotAMemory => {
                write!(
                    f,
                    "{path} does not hold a memory server's memory: name another file, or remove this one"
                )
            }
            FileProblem::OtherVersion { found, known } => {
                write!(
                    f,
                    "{path} has layout version {found}, but this build knows version {known}. Dump its \
                     trees with the build that made it, start on a new file, and load them again"
                )
            }
            FileProblem::OtherSizes { host_bytes, on_chip_bytes, asked_host_bytes, asked_on_chip_bytes } => {
                write!(
                    f,
                    "{path} has {host_bytes} bytes of host and {on_chip_bytes} of on-chip memory, not \
                     {asked_host_bytes} and {asked_on_chip_bytes}: the sizes of a file cannot change"
                )
            }
            FileProblem::Truncated { found, expected } => {
                write!(f, "{path} has {found} bytes instead of {expected}: the file was shortened")
            }
            FileProblem::DamagedJournal { slot } => {
                write!(f, "{path} is damaged: slot {slot} of its journal names a line that does not exist")
            }
            FileProblem::NoSpace { needed, free } => write!(
                f,
                "the disk has no room for {path}: it needs {needed} more bytes, and {free} are free. Make \
                 room, or name a file on another disk"
            ),
            FileProblem::OverLimit { needed, allowed } => write!(
                f,
                "{path} needs {needed} bytes, but this process may make files of at most {allowed} bytes: \
                 raise the limit (ulimit -f)"
            ),
            FileProblem::OutOfMemory => {
                write!(f, "{path}: the system has no memory for the tables beside the file")
            }
            FileProblem::Io { what, error } => write!(f, "cannot {what} {path}: {error}"),
        }
    }
}

impl std::error::Error for FileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.problem {
            FileProblem::Io { error, .. } => Some(error),
            _ => None,
        }
    }
}
