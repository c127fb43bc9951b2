//! Why a server cannot share its memory, or a client cannot join a cluster of shared memory.

use sherman_control::JoinError;
use sherman_fabric::FabricError;
use sherman_layout::FormatError;
use std::fmt;
use std::io;

/// Why a server has no memory to serve.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServeShmError {
    /// The system has no memory, or not enough.
    Memory(io::Error),
    /// The memory cannot be formatted as requested; most often it is too small.
    Format(FormatError),
    /// The thread that watches over clients cannot be started.
    Thread(io::Error),
}

impl fmt::Display for ServeShmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(error) => write!(f, "cannot allocate shared memory: {error}"),
            Self::Format(error) => error.fmt(f),
            Self::Thread(error) => write!(f, "cannot start a thread: {error}"),
        }
    }
}

impl std::error::Error for ServeShmError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Memory(error) | Self::Thread(error) => Some(error),
            Self::Format(error) => error.source(),
        }
    }
}

/// Why a cluster cannot be joined.
#[derive(Debug)]
#[non_exhaustive]
pub enum JoinShmError {
    /// A server cannot be reached, or does not admit this client.
    Join(JoinError),
    /// A server admits this client, but does not share its memory.
    Refused {
        /// Its index.
        server: u16,
        /// The server's answer.
        error: FabricError,
    },
    /// A server's memory cannot be mapped.
    Map {
        /// Its index.
        server: u16,
        /// Why.
        error: io::Error,
    },
    /// The system has no more threads or file descriptors.
    System(io::Error),
}

impl fmt::Display for JoinShmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Join(error) => error.fmt(f),
            Self::Refused { server, error } => {
                write!(f, "memory server {server} does not share its memory: {error}")
            }
            Self::Map { server, error } => {
                write!(f, "cannot map the memory of memory server {server}: {error}")
            }
            Self::System(error) => write!(f, "cannot start the thread that watches the connections: {error}"),
        }
    }
}

impl std::error::Error for JoinShmError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Join(error) => error.source(),
            Self::Refused { error, .. } => Some(error),
            Self::Map { error, .. } | Self::System(error) => Some(error),
        }
    }
}

impl From<JoinError> for JoinShmError {
    fn from(error: JoinError) -> Self {
        Self::Join(error)
    }
}
