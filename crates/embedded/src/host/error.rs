//! Errors of making a host whose memory lies in a file.

use crate::file::FileError;
use sherman_layout::FormatError;
use sherman_memory_server::OpenError;

sherman_fabric::errors! {
    /// Why [`Host::in_file`](super::Host::in_file) failed.
    #[derive(Debug)]
    #[non_exhaustive]
    pub enum HostError {
        /// The file cannot be used.
        File(error: FileError) => "{error}" through error,
        /// The memory cannot be formatted as asked. Most often it is too small. The next attempt formats it.
        Format(error: FormatError) => "{error}" through error,
        /// The memory was formatted, but can no longer be opened.
        Open(error: OpenError) => "{error}" through error,
        /// The memory is a copy of a volume of another cluster.
        OtherCluster {
            /// Its cluster.
            found: u64,
            /// The cluster asked for.
            asked: u64,
        } => "the file holds memory of cluster {found:016x}, not of {asked:016x}",
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
        } => "the file holds memory server {server} of {servers}, not memory server {asked} of \
            {asked_servers}",
    }
}
