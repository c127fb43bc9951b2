//! Why a memory's file cannot be used.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why [`Region::in_file`](crate::memory::Region::in_file) failed. The file is as it was before, except that one that
/// was made and could not be mapped may be there. It is made anew the next time.
#[derive(Debug)]
pub struct FileError {
    /// Which file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub problem: FileProblem,
}

/// What may be wrong with a file.
#[derive(Debug)]
#[non_exhaustive]
pub enum FileProblem {
    /// Host memory is no multiple of 64 bytes, on-chip memory none of 8, or they are more than a file can have.
    BadSizes,
    /// It is something else, a directory or a device.
    NotAFile,
    /// Another server has it.
    InUse,
    /// It is not empty, and not a memory server's.
    NotAMemory,
    /// It is a memory server's, laid out as this build does not know.
    OtherVersion {
        /// The version of its layout.
        found: u32,
        /// The version that this build knows.
        known: u32,
    },
    /// Its memory has other sizes than asked for; they are fixed when it is made.
    OtherSizes {
        /// Bytes of host memory in it.
        host_bytes: u64,
        /// Bytes of on-chip memory in it.
        on_chip_bytes: u64,
        /// Bytes of host memory asked for.
        asked_host_bytes: u64,
        /// Bytes of on-chip memory asked for.
        asked_on_chip_bytes: u64,
    },
    /// Somebody has shortened it.
    Truncated {
        /// Bytes it has.
        found: u64,
        /// Bytes it must have.
        expected: u64,
    },
    /// A slot of its journal names a line that it does not have: somebody else has written to it, or the system has
    /// crashed.
    DamagedJournal {
        /// Which slot.
        slot: usize,
    },
    /// The disk has no room for it.
    NoSpace {
        /// Bytes of disk space that it needs and does not have.
        needed: u64,
        /// Bytes that the disk has free.
        free: u64,
    },
    /// It is longer than this process may make a file (`ulimit -f`).
    OverLimit {
        /// Bytes it needs.
        needed: u64,
        /// Bytes that are allowed.
        allowed: u64,
    },
    /// The system has no memory for what is kept beside it.
    OutOfMemory,
    /// The system refused.
    Io {
        /// To do what to the file.
        what: &'static str,
        /// Why.
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
                    "{path}: host memory is a multiple of 64 bytes, on-chip memory one of 8, and a file has a limit"
                )
            }
            FileProblem::NotAFile => write!(f, "{path} is not a regular file"),
            FileProblem::InUse => write!(f, "{path} is in use by another memory server"),
            FileProblem::NotAMemory => {
                write!(f, "{path} holds something else than a memory server's memory; name another file or remove it")
            }
            FileProblem::OtherVersion { found, known } => {
                write!(f, "{path} is laid out as version {found}; this build knows version {known}")
            }
            FileProblem::OtherSizes { host_bytes, on_chip_bytes, asked_host_bytes, asked_on_chip_bytes } => write!(
                f,
                "{path} has {host_bytes} bytes of host and {on_chip_bytes} of on-chip memory, \
                 not {asked_host_bytes} and {asked_on_chip_bytes}; they are fixed when it is made"
            ),
            FileProblem::Truncated { found, expected } => {
                write!(f, "{path} has {found} bytes instead of {expected}: somebody has shortened it")
            }
            FileProblem::DamagedJournal { slot } => {
                write!(f, "{path}: slot {slot} of the journal names no line; the file is damaged")
            }
            FileProblem::NoSpace { needed, free } => write!(
                f,
                "the disk has no room for {path}: it needs {needed} more bytes, and {free} are free; \
                 make room, or name a file on another disk"
            ),
            FileProblem::OverLimit { needed, allowed } => write!(
                f,
                "{path} needs {needed} bytes, and this process may make files of at most {allowed} bytes; \
                 raise the limit (ulimit -f)"
            ),
            FileProblem::OutOfMemory => write!(f, "{path}: the system has no memory for what is kept beside the file"),
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
