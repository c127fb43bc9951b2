//! Why a cluster cannot be made.

use sherman_memory_server::FormatError;
use std::fmt;

/// Why [`EmbeddedCluster::new`](crate::EmbeddedCluster::new) failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EmbeddedError {
    /// A cluster has at least one memory server.
    NoServers,
    /// More memory servers than one process keeps.
    TooManyServers {
        /// How many were asked for.
        asked: u16,
        /// How many there may be.
        limit: u16,
    },
    /// More memory than an address can name.
    TooMuchMemory {
        /// Bytes each server was to have.
        bytes: u64,
        /// Bytes it may have.
        limit: u64,
    },
    /// The system has not that much memory.
    OutOfMemory {
        /// The first server without.
        server: u16,
        /// Bytes each server was to have.
        bytes: u64,
    },
    /// The memory cannot be formatted as asked; too small, most often.
    Format {
        /// The server.
        server: u16,
        /// Why.
        error: FormatError,
    },
}

impl fmt::Display for EmbeddedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoServers => write!(f, "a cluster needs at least one memory server"),
            Self::TooManyServers { asked, limit } => {
                write!(f, "{asked} memory servers are too many for one process: at most {limit}")
            }
            Self::TooMuchMemory { bytes, limit } => {
                write!(f, "{bytes} bytes are too many for one memory server: at most {limit}")
            }
            Self::OutOfMemory { server, bytes } => {
                write!(f, "the system has no {bytes} bytes for memory server {server}")
            }
            Self::Format { server, error } => write!(f, "memory server {server}: {error}"),
        }
    }
}

impl std::error::Error for EmbeddedError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Format { error, .. } => Some(error),
            _ => None,
        }
    }
}
