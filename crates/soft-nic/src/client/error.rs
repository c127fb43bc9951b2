//! Why a cluster cannot be joined.

use super::connect::ConnectError;
use super::options::Address;
use crate::wire::MAX_SERVERS;
use sherman_fabric::FabricError;
use std::fmt;
use std::io;

/// Why [`SoftNicFabric::join`](super::SoftNicFabric::join) failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum JoinError {
    /// A cluster has at least one memory server.
    NoServers,
    /// More memory servers than an address can name.
    TooManyServers {
        /// How many were named.
        asked: usize,
    },
    /// A server cannot be reached, or does not want us.
    Connect {
        /// Its number.
        server: u16,
        /// Where it was looked for.
        address: Address,
        /// Why.
        error: ConnectError,
    },
    /// The first server of the list is not server 0, which alone makes members.
    NotTheFirst {
        /// Where it was looked for.
        address: Address,
    },
    /// The server at an address has another number: the list is in another order.
    WrongServer {
        /// Where.
        address: Address,
        /// Its place in the list.
        expected: u16,
        /// The number it has.
        found: u16,
    },
    /// The cluster has another number of servers than the list.
    WrongCount {
        /// Where we were told.
        address: Address,
        /// Servers in the list.
        listed: u16,
        /// Servers of the cluster.
        found: u16,
    },
    /// The memory of a server belongs to another cluster than that of server 0.
    OtherCluster {
        /// Its number.
        server: u16,
        /// Where it was looked for.
        address: Address,
        /// Where server 0 was looked for.
        first: Address,
    },
    /// A server has another memory than the cluster knows.
    OtherMemory {
        /// Its number.
        server: u16,
        /// Where it was looked for.
        address: Address,
    },
    /// Server 0 gave us an identity and took it back: we were too slow, or it is broken.
    Renew(FabricError),
    /// The system has no event counter for us.
    System(io::Error),
}

impl JoinError {
    /// Whether the same attempt can succeed later without anybody changing the list of servers or their memory: a server that is down,
    /// slow or full now, a name that cannot be looked up now. Not so for another cluster, memory that is lost, a wrong secret or another version.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Connect { error, .. } => error.may_pass(),
            Self::Renew(_) | Self::System(_) => true,
            Self::NoServers
            | Self::TooManyServers { .. }
            | Self::NotTheFirst { .. }
            | Self::WrongServer { .. }
            | Self::WrongCount { .. }
            | Self::OtherCluster { .. }
            | Self::OtherMemory { .. } => false,
        }
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoServers => write!(f, "a cluster needs at least one memory server"),
            Self::TooManyServers { asked } => {
                write!(f, "{asked} memory servers are more than a cluster has; it has at most {MAX_SERVERS}")
            }
            Self::Connect {
                server,
                address,
                error: error @ (ConnectError::Refused(_) | ConnectError::Unreachable(_)),
            } => {
                write!(f, "cannot reach memory server {server} at {address}: {error}")
            }
            Self::Connect { server, address, error } => write!(f, "memory server {server} at {address}: {error}"),
            Self::NotTheFirst { address } => {
                write!(f, "{address} is not memory server 0: list the servers in their order")
            }
            Self::WrongServer { address, expected, found } => {
                write!(f, "{address} is memory server {found}, not {expected}: list the servers in their order")
            }
            Self::WrongCount { address, listed, found } => {
                write!(f, "{address} belongs to a cluster of {found} memory servers, not {listed}: list all of them")
            }
            Self::OtherCluster { server, address, first } => write!(
                f,
                "memory server {server} at {address} belongs to another cluster than memory server 0 at {first}: either the \
                 list mixes servers of two clusters, or memory server 0 was restarted empty and lost its cluster"
            ),
            Self::OtherMemory { server, address } => write!(
                f,
                "memory server {server} at {address} lost its memory (it was restarted empty), or is another server than \
                 the one that joined this cluster. Start it with the file that it had; if its memory is gone for good, run \
                 \"sherman declare-lost {server}\""
            ),
            Self::Renew(error) => write!(f, "the cluster took the new compute server for dead at once: {error}"),
            Self::System(error) => write!(f, "the system refuses what a client needs: {error}"),
        }
    }
}

impl std::error::Error for JoinError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Connect { error, .. } => Some(error),
            Self::Renew(error) => Some(error),
            Self::System(error) => Some(error),
            _ => None,
        }
    }
}
