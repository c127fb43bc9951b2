//! Why a server cannot share its memory, or a client cannot join a cluster of shared memory.

use sherman_control::JoinError;
use sherman_fabric::FabricError;
use sherman_layout::FormatError;
use std::io;

sherman_fabric::errors! {
    /// Why a server has no memory to serve.
    #[derive(Debug)]
    #[non_exhaustive]
    pub enum ServeShmError {
        /// The system has no memory, or not enough.
        Memory(error: io::Error) => "cannot allocate shared memory: {error}" because error,
        /// The memory cannot be formatted as requested; most often it is too small.
        Format(error: FormatError) => "{error}" through error,
        /// The thread that watches over clients cannot be started.
        Thread(error: io::Error) => "cannot start a thread: {error}" because error,
    }
}

sherman_fabric::errors! {
    /// Why a cluster cannot be joined.
    #[derive(Debug)]
    #[non_exhaustive]
    pub enum JoinShmError {
        /// A server cannot be reached, or does not admit this client.
        Join(error: JoinError) => "{error}" through error,
        /// A server admits this client, but does not share its memory.
        Refused {
            /// Its index.
            server: u16,
            /// The server's answer.
            error: FabricError,
        } => "memory server {server} does not share its memory: {error}" because error,
        /// A server's memory cannot be mapped.
        Map {
            /// Its index.
            server: u16,
            /// Why.
            error: io::Error,
        } => "cannot map the memory of memory server {server}: {error}" because error,
        /// The system has no more threads or file descriptors.
        System(error: io::Error) => "cannot start the thread that watches the connections: {error}"
            because error,
    }
}

impl From<JoinError> for JoinShmError {
    fn from(error: JoinError) -> Self {
        Self::Join(error)
    }
}
