//! Errors of making a host whose memory lies in a file.

use crate::file::FileError;
use sherman_layout::FormatError;
use sherman_memory_server::OpenError;
use std::fmt;

/// Why [`Host::in_file`](super::Host::in_file) failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum HostError {
    /// The file cannot be used.
    File(FileError),
    /// The memory cannot be formatted as asked. Most often it is too small. The next attempt formats it.
    Format(FormatError),
    /// The memory was formatted, but can no longer be opened.
    Open(OpenError),
    /// The memory belongs to another server, or to a server of another cluster.
    OtherServer {
        /// The server's number.
        server: u16,
        /// Number of servers in its cluster.
        servers: u16,
        /// The number asked for.
        asked: u16,
        /// Number of servers asked for.
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
                "the file holds memory server {server} of {servers}, not memory server {asked} of \
                 {asked_servers}"
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
