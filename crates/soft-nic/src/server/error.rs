//! Why a server cannot be started.

use super::listen::Listen;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why [`SoftNicServer::start`](super::SoftNicServer::start) failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServeError {
    /// The options name no address to listen on.
    NoListeners,
    /// A server without a secret must listen only where this host alone can reach it.
    Exposed {
        /// The address that other hosts can reach.
        address: String,
    },
    /// The server cannot listen on an address.
    Bind {
        /// The address.
        listen: Listen,
        /// Why.
        error: io::Error,
    },
    /// A process already listens on this socket.
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// The path of the socket holds something that is not a socket.
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The system has no random numbers.
    NoRandomness(getrandom::Error),
    /// The system has no more threads or event queues.
    System(io::Error),
    /// A thread of the server ended in a panic.
    Panicked,
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoListeners => write!(f, "a memory server needs an address to listen on"),
            Self::Exposed { address } => write!(
                f,
                "{address} can be reached from other hosts: give the cluster a secret, or allow it as \
                 insecure"
            ),
            Self::Bind { listen, error } => write!(f, "cannot listen on {listen}: {error}"),
            Self::InUse { path } => write!(f, "another process listens on {} already", path.display()),
            Self::NotASocket { path } => write!(f, "{} exists and is not a socket", path.display()),
            Self::NoRandomness(error) => write!(f, "the system has no random numbers: {error}"),
            Self::System(error) => write!(f, "cannot start the memory server: {error}"),
            Self::Panicked => write!(f, "a thread of the memory server failed"),
        }
    }
}

impl std::error::Error for ServeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Bind { error, .. } | Self::System(error) => Some(error),
            Self::NoRandomness(error) => Some(error),
            _ => None,
        }
    }
}
