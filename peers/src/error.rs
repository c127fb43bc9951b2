//! Errors of the benchmark.

use std::fmt;

/// Why an index, or the whole benchmark, has no result.
#[derive(Debug)]
#[non_exhaustive]
pub enum Failure {
    /// The index does not support the operation, for the given reason.
    Unsupported(&'static str),
    /// A loaded key was not found.
    Missing {
        /// The key.
        key: u64,
    },
    /// A thread panicked inside the index.
    Panicked,
    /// The index ran out of memory.
    OutOfMemory,
    /// Our tree could not be opened.
    Open(sherman::OpenError),
    /// An operation on our tree failed.
    Tree(sherman::Error),
    /// The workload cannot be generated.
    Workload(String),
    /// A file could not be written.
    Write {
        /// The path.
        path: std::path::PathBuf,
        /// The reason.
        error: std::io::Error,
    },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported(reason) => write!(f, "{reason}"),
            Self::Missing { key } => write!(f, "did not find key {key}"),
            Self::Panicked => write!(f, "panicked"),
            Self::OutOfMemory => write!(f, "out of memory"),
            Self::Open(error) => write!(f, "{error}"),
            Self::Tree(error) => write!(f, "{error}"),
            Self::Workload(reason) => write!(f, "{reason}"),
            Self::Write { path, error } => write!(f, "cannot write {}: {error}", path.display()),
        }
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Open(error) => Some(error),
            Self::Tree(error) => Some(error),
            Self::Write { error, .. } => Some(error),
            _ => None,
        }
    }
}

impl From<sherman::OpenError> for Failure {
    fn from(error: sherman::OpenError) -> Self {
        Self::Open(error)
    }
}

impl From<sherman::Error> for Failure {
    fn from(error: sherman::Error) -> Self {
        Self::Tree(error)
    }
}
