//! Why a server cannot be started.

use super::listen::Listen;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why [`SoftNicServer::start`](super::SoftNicServer::start) failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServeError {
    /// There is nothing to listen on.
    NoListeners,
    /// Without a secret a server listens where only this host can reach it.
    Exposed {
        /// The address that others can reach.
        address: String,
    },
    /// An address cannot be listened on.
    Bind {
        /// Which.
        listen: Listen,
        /// Why.
        error: io::Error,
    },
    /// Somebody listens on this socket already.
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// There is something else where the socket should be.
    NotASocket {
        /// Where.
        path: PathBuf,
    },
    /// The system has no random numbers for us.
    NoRandomness(getrandom::Error),
    /// The system has no threads or event queues for us.
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
                "{address} can be reached from other hosts: give the cluster a secret, or allow it as insecure"
            ),
            Self::Bind { listen, error } => write!(f, "cannot listen on {listen}: {error}"),
            Self::InUse { path } => write!(f, "somebody listens on {} already", path.display()),
            Self::NotASocket { path } => write!(f, "{} exists and is not a socket", path.display()),
            Self::NoRandomness(error) => write!(f, "no random numbers: {error}"),
            Self::System(error) => write!(f, "cannot start: {error}"),
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
