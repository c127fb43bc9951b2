//! Why a cluster cannot be joined.

use super::connect::ConnectError;
use super::options::Address;
use crate::wire::MAX_SERVERS;
use sherman_fabric::FabricError;
use std::io;

sherman_fabric::errors! {
    /// Why a client could not join a cluster.
    #[derive(Debug)]
    #[non_exhaustive]
    pub enum JoinError {
        /// The list names no memory server, but a cluster has at least one.
        NoServers => "a cluster needs at least one memory server",
        /// The list names more memory servers than a cluster can have.
        TooManyServers {
            /// How many the list names.
            asked: usize,
        } => "{asked} memory servers are too many: a cluster has at most {MAX_SERVERS}",
        /// A server cannot be reached, or refuses this client.
        Connect {
            /// Its number.
            server: u16,
            /// The address that was tried.
            address: Address,
            /// Why.
            error: ConnectError,
        } => (
            "{}memory server {server} at {address}: {error}",
            if error.is_out_of_reach() { "cannot reach " } else { "" },
        ) because error,
        /// The first server of the list is not server 0, which alone admits members.
        NotTheFirst {
            /// The address that was tried.
            address: Address,
        } => "{address} is not memory server 0: list the servers in their order",
        /// The server at an address has another number: the list is in the wrong order.
        WrongServer {
            /// The address of the server.
            address: Address,
            /// Its place in the list.
            expected: u16,
            /// The number of the server found there.
            found: u16,
        } => "{address} is memory server {found}, not {expected}: list the servers in their order",
        /// The cluster and the list have different numbers of servers.
        WrongCount {
            /// The address of the server that reported it.
            address: Address,
            /// Servers in the list.
            listed: u16,
            /// Servers in the cluster.
            found: u16,
        } => "{address} belongs to a cluster of {found} memory servers, not {listed}: list all of them",
        /// The memory of a server belongs to another cluster than the memory of server 0.
        OtherCluster {
            /// Its number.
            server: u16,
            /// The address that was tried.
            address: Address,
            /// The address of server 0.
            first: Address,
        } => "memory server {server} at {address} belongs to another cluster than memory server 0 at \
            {first}: either the list mixes servers of two clusters, or memory server 0 was restarted empty \
            and lost its cluster",
        /// A server has another memory than the one that the cluster knows.
        OtherMemory {
            /// Its number.
            server: u16,
            /// The address that was tried.
            address: Address,
        } => "memory server {server} at {address} lost its memory (it was restarted empty), or is another \
            server than the one that joined this cluster. Start it with its old file. If its memory is \
            permanently gone, run \"sherman declare-lost {server}\"",
        /// Server 0 issued an identity and then refused to renew it: this client was too slow, or the server
        /// is broken.
        Renew(error: FabricError) => "the cluster does not renew the lease of the new compute server: {error}"
            because error,
        /// The system has no event counter for this client.
        System(error: io::Error) => "the system has no event counter for a client: {error}" because error,
    }
}

impl JoinError {
    /// Whether the same attempt may succeed later, while the list of servers and their memory stay the same.
    /// True if a server is down, slow or full now, or a name cannot be looked up now. False for another
    /// cluster, lost memory, a wrong secret or another version.
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
