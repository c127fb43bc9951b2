//! Errors of making a cluster.

use sherman_layout::FormatError;
use std::fmt;

/// Why [`EmbeddedCluster::new`](crate::EmbeddedCluster::new) failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EmbeddedError {
    /// A cluster needs at least one memory server.
    NoServers,
    /// More memory servers than one process can hold.
    TooManyServers {
        /// Number of servers asked for.
        asked: u16,
        /// Maximum number of servers.
        limit: u16,
    },
    /// More memory than an address can express.
    TooMuchMemory {
        /// Bytes asked for per server.
        bytes: u64,
        /// Maximum bytes per server.
        limit: u64,
    },
    /// The system does not have that much memory.
    OutOfMemory {
        /// The first server that got no memory.
        server: u16,
        /// Bytes asked for per server.
        bytes: u64,
    },
    /// The memory cannot be formatted as asked. Most often it is too small.
    Format {
        /// The server.
        server: u16,
        /// The cause.
        error: FormatError,
    },
}

impl fmt::Display for EmbeddedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoServers => write!(f, "a cluster needs at least one memory server"),
            Self::TooManyServers { asked, limit } => {
                write!(f, "{asked} memory servers are too many for one process: the limit is {limit}")
            }
            Self::TooMuchMemory { bytes, limit } => {
                write!(f, "{bytes} bytes are too many for one memory server: the limit is {limit}")
            }
            Self::OutOfMemory { server, bytes } => {
                write!(f, "cannot allocate {bytes} bytes for memory server {server}")
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
