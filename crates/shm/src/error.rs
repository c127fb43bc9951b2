//! Why a cluster of shared memory cannot be served or joined.

use sherman_fabric::FabricError;
use sherman_memory_server::FormatError;
use sherman_soft_nic::JoinError;
use std::fmt;
use std::io;

/// Why there is no memory to be served.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServeShmError {
    /// The system has none, or not as much.
    Memory(io::Error),
    /// It cannot be formatted as asked; too small, most often.
    Format(FormatError),
    /// The thread that watches over clients cannot be started.
    Thread(io::Error),
}

impl fmt::Display for ServeShmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(error) => write!(f, "shared memory cannot be had: {error}"),
            Self::Format(error) => error.fmt(f),
            Self::Thread(error) => write!(f, "a thread cannot be started: {error}"),
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
    /// A server cannot be reached, or does not let us in.
    Join(JoinError),
    /// A server lets us in and does not share its memory.
    Refused {
        /// Its index.
        server: u16,
        /// What it says.
        error: FabricError,
    },
    /// A server's memory cannot be mapped.
    Map {
        /// Its index.
        server: u16,
        /// Why.
        error: io::Error,
    },
    /// The system has no more threads or files.
    System(io::Error),
}

impl fmt::Display for JoinShmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Join(error) => error.fmt(f),
            Self::Refused { server, error } => {
                write!(f, "memory server {server} does not share its memory: {error}")
            }
            Self::Map { server, error } => write!(f, "the memory of server {server} cannot be mapped: {error}"),
            Self::System(error) => write!(f, "the system refuses: {error}"),
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
