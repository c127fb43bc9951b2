//! Why a cluster cannot be joined.

use super::connect::ConnectError;
use super::options::Address;
use crate::wire::MAX_SERVERS;
use sherman_fabric::{FabricError, Refusal};
use std::io;
use std::time::Duration;

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
        /// A host of a cluster cannot be reached, or refuses this client.
        Host {
            /// The address that was tried.
            address: Address,
            /// Why.
            error: ConnectError,
        } => (
            "{}the memory server at {address}: {error}",
            if error.is_out_of_reach() { "cannot reach " } else { "" },
        ) because error,
        /// The memory server at an address has no group, but this client joins a cluster of hosts.
        NoGroup {
            /// The address that was tried.
            address: Address,
        } => "the memory server at {address} is no host of a replicated cluster",
        /// No host that answered knew the leader of the group, or the leader did not answer.
        NoLeader {
            /// A host that answered.
            asked: Address,
            /// How long the client looked for the leader.
            waited: Duration,
        } => "the cluster of {asked} had no leader for {waited:?}: more than half of the memory servers that \
            vote must run and reach each other",
        /// The leader of the group refused to admit this client.
        Refused {
            /// The leader's address.
            address: Address,
            /// Why.
            error: FabricError,
        } => "the cluster of {address} does not admit this client: {error}" because error,
        /// The table of volumes makes no sense to this client.
        BadTable {
            /// The address of the leader that sent it.
            address: Address,
        } => "the table of volumes from {address} makes no sense: is its version another?",
        /// The table names a copy on a host that the cluster does not count as present.
        NoAddress {
            /// The host's number.
            host: u16,
        } => "memory server {host} holds a copy of a volume, but the cluster does not count it as present",
        /// No copy of any volume is left.
        NoCopies => "the cluster has no copy of any volume",
        /// The host of a copy cannot be reached, or refuses this client.
        Copy {
            /// The copy's number in the table.
            copy: u16,
            /// The number of its host.
            host: u16,
            /// The address that was tried.
            address: Address,
            /// Why.
            error: ConnectError,
        } => (
            "{}memory server {host} at {address}, which holds copy {copy}: {error}",
            if error.is_out_of_reach() { "cannot reach " } else { "" },
        ) because error,
        /// The system has no thread for this client.
        Thread(error: io::Error) => "the system could not start a thread for a client: {error}" because error,
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
            Self::Connect { error, .. } | Self::Host { error, .. } | Self::Copy { error, .. } => {
                error.may_pass()
            }
            Self::Refused { error, .. } => matches!(
                error,
                FabricError::Refused(
                    Refusal::TooManyMembers | Refusal::Forming { .. } | Refusal::Unreachable { .. }
                )
            ),
            Self::Renew(_)
            | Self::System(_)
            | Self::Thread(_)
            | Self::NoLeader { .. }
            | Self::NoAddress { .. } => true,
            Self::NoServers
            | Self::TooManyServers { .. }
            | Self::NotTheFirst { .. }
            | Self::WrongServer { .. }
            | Self::WrongCount { .. }
            | Self::OtherCluster { .. }
            | Self::OtherMemory { .. }
            | Self::NoGroup { .. }
            | Self::BadTable { .. }
            | Self::NoCopies => false,
        }
    }

    /// Whether the host of a copy did not answer at all. It may be about to leave the table.
    pub(super) fn is_copy_out_of_reach(&self) -> bool {
        matches!(self, Self::Copy { error, .. } if error.is_out_of_reach())
    }

    /// Whether the cluster got a newer table of volumes while this client joined. It may try again at once.
    pub(super) fn is_of_older_epoch(&self) -> bool {
        match self {
            Self::Copy { error, .. } => error.means_fenced(),
            Self::Renew(error) => matches!(error, FabricError::EpochEnded { .. }),
            _ => false,
        }
    }
}
