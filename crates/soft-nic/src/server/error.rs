//! Why a server cannot be started.

use super::listen::Listen;
use std::io;
use std::path::PathBuf;

sherman_fabric::errors! {
    /// Why [`SoftNicServer::start`](super::SoftNicServer::start) failed.
    #[derive(Debug)]
    #[non_exhaustive]
    pub enum ServeError {
        /// The options name no address to listen on.
        NoListeners => "a memory server needs an address to listen on",
        /// The options name neither a memory nor a control plane, or both.
        NotOneThing => "a memory server serves either one memory or the copies of a control plane",
        /// The copies of a control plane are reached by lists in frames alone.
        PathToCopies => "a memory server of copies has no data path but lists in frames",
        /// A server without a secret must listen only where this host alone can reach it.
        Exposed {
            /// The address that other hosts can reach.
            address: String,
        } => "{address} can be reached from other hosts: give the cluster a secret, or allow it as insecure",
        /// The server cannot listen on an address.
        Bind {
            /// The address.
            listen: Listen,
            /// Why.
            error: io::Error,
        } => "cannot listen on {listen}: {error}" because error,
        /// A process already listens on this socket.
        InUse {
            /// The socket.
            path: PathBuf,
        } => ("another process listens on {} already", path.display()),
        /// The path of the socket holds something that is not a socket.
        NotASocket {
            /// The path.
            path: PathBuf,
        } => ("{} exists and is not a socket", path.display()),
        /// The system has no random numbers.
        NoRandomness(error: getrandom::Error) => "the system has no random numbers: {error}" because error,
        /// The system has no more threads or event queues.
        System(error: io::Error) => "cannot start the memory server: {error}" because error,
        /// A thread of the server ended in a panic.
        Panicked => "a thread of the memory server failed",
    }
}
