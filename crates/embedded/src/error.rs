//! Errors of making a cluster.

use sherman_fabric::FabricError;
use sherman_layout::FormatError;

sherman_fabric::errors! {
    /// Why [`EmbeddedCluster::new`](crate::EmbeddedCluster::new) or
    /// [`ReplicatedCluster::new`](crate::ReplicatedCluster::new) failed.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum EmbeddedError {
        /// A cluster needs at least one memory server.
        NoServers => "a cluster needs at least one memory server",
        /// More memory servers than one process can hold.
        TooManyServers {
            /// Number of servers asked for.
            asked: u16,
            /// Maximum number of servers.
            limit: u16,
        } => "{asked} memory servers are too many for one process: the limit is {limit}",
        /// More memory than an address can express.
        TooMuchMemory {
            /// Bytes asked for per server.
            bytes: u64,
            /// Maximum bytes per server.
            limit: u64,
        } => "{bytes} bytes are too many for one memory server: the limit is {limit}",
        /// The system does not have that much memory.
        OutOfMemory {
            /// The first server that got no memory.
            server: u16,
            /// Bytes asked for per server.
            bytes: u64,
        } => "cannot allocate {bytes} bytes for memory server {server}",
        /// The memory cannot be formatted as asked. Most often it is too small.
        Format {
            /// The server.
            server: u16,
            /// The cause.
            error: FormatError,
        } => "memory server {server}: {error}" because error,
        /// A host of a replicated cluster has too little memory for its copies of volumes.
        HostTooSmall {
            /// Bytes that each host offers.
            offered: u64,
            /// Bytes that its copies need.
            needed: u64,
        } => "{offered} bytes of memory are too few: the copies on one memory server need {needed}",
        /// A host of a replicated cluster could not be added.
        Host {
            /// The host.
            host: u16,
            /// The cause.
            error: FabricError,
        } => "memory server {host}: {error}" because error,
    }
}
