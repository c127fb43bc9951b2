//! Why a host whose memory lies in a file cannot be had.

use crate::file::FileError;
use sherman_memory_server::{FormatError, OpenError};
use std::fmt;

/// Why [`Host::in_file`](super::Host::in_file) failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum HostError {
    /// The file cannot be used.
    File(FileError),
    /// Its memory cannot be formatted as asked; too small, most often. The next attempt formats it.
    Format(FormatError),
    /// Its memory was formatted and cannot be opened any more.
    Open(OpenError),
    /// It is the memory of another server, or of one of another cluster.
    OtherServer {
        /// The server's number.
        server: u16,
        /// How many its cluster has.
        servers: u16,
        /// The number asked for.
        asked: u16,
        /// How many servers were to be in the cluster.
        asked_servers: u16,
    },
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => error.fmt(f),
            Self::Format(error) => error.fmt(f),
            Self::Open(error) => error.fmt(f),
            Self::OtherServer { server, servers, asked, asked_servers } => write!(
                f,
                "the file holds memory server {server} of {servers}, not memory server {asked} of {asked_servers}"
            ),
        }
    }
}

impl std::error::Error for HostError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::File(error) => error.source(),
            Self::Format(error) => error.source(),
            Self::Open(error) => error.source(),
            Self::OtherServer { .. } => None,
        }
    }
}
