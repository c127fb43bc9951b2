//! What can go wrong between an endpoint and a memory server.

use crate::{ClientId, GlobalAddress, Refusal, Space};
use std::fmt;

/// A list or call that failed. By F7 a failed list took effect as a prefix of unknown length.
///
/// Its tag is as wide as its fields, like that of [`Refusal`]. With a tag of one byte, the compiler moves a
/// `Result<WorkList, FabricError>` as that byte and the seven behind it, by loads that straddle the stores just made, and
/// each round trip waits for them: 10 of the 28 ns of an empty one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u64)]
pub enum FabricError {
    /// A verb reached outside the server's memory.
    OutOfBounds {
        /// The space named.
        space: Space,
        /// Where the access began.
        address: GlobalAddress,
        /// Its length in bytes.
        len: u64,
    },
    /// A CAS, FAA or on-chip access was not aligned to its width, or crossed a word.
    Misaligned {
        /// The space named.
        space: Space,
        /// Where the access began.
        address: GlobalAddress,
    },
    /// The list or one of its verbs is larger than [`Caps`](crate::Caps) allows.
    TooLarge {
        /// What was asked for.
        asked: u64,
        /// What is allowed.
        limit: u64,
    },
    /// No server has this index.
    NoSuchServer {
        /// The index named.
        server: u16,
    },
    /// The server has fenced this client (F6): nothing of it executes there any more.
    Fenced {
        /// The client's id.
        client: ClientId,
    },
    /// The cluster has declared the server lost: its memory is gone for good. A client never concludes this by itself.
    ServerLost {
        /// The server's index.
        server: u16,
    },
    /// This client cannot reach a server that the cluster counts as present: the connection broke, the server is down, or it was
    /// restarted. Nothing more of this endpoint executes there, and the client's identity is at its end. Other clients
    /// may still reach the server.
    Disconnected {
        /// The server's index.
        server: u16,
    },
    /// A client that lives stopped in the middle of a change (shared memory): what it holds is not given back until it runs
    /// again or dies.
    OwnerStalled {
        /// Who.
        client: ClientId,
    },
    /// A READ did not stay within its window (F8), however often the server or the client's own thread tried: that thread was paused in the
    /// middle each time. Post it again.
    SlowRead {
        /// The server's index.
        server: u16,
    },
    /// The backend cannot do this.
    Unsupported {
        /// What it cannot do.
        what: &'static str,
    },
    /// The memory server refused a control request.
    Refused(Refusal),
}

impl fmt::Display for FabricError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfBounds { space, address, len } => {
                write!(f, "{len} bytes at {address} reach outside the server's {space:?} memory")
            }
            Self::Misaligned { space, address } => write!(f, "misaligned access to {space:?} memory at {address}"),
            Self::TooLarge { asked, limit } => write!(f, "work list too large: {asked} asked, {limit} allowed"),
            Self::NoSuchServer { server } => write!(f, "there is no memory server {server}"),
            Self::Fenced { client } => write!(f, "client {client} has been fenced"),
            Self::ServerLost { server } => write!(f, "memory server {server} was declared lost"),
            Self::Disconnected { server } => {
                write!(f, "the connection to memory server {server} broke")
            }
            Self::OwnerStalled { client } => {
                write!(f, "client {client} was stopped in the middle of a change, and lives: continue or kill it")
            }
            Self::SlowRead { server } => {
                write!(f, "a READ from memory server {server} was paused again and again: the machine is overloaded")
            }
            Self::Unsupported { what } => write!(f, "this backend cannot {what}"),
            Self::Refused(refusal) => write!(f, "{refusal}"),
        }
    }
}

impl std::error::Error for FabricError {}

impl From<Refusal> for FabricError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Fenced { client } => Self::Fenced { client },
            other => Self::Refused(other),
        }
    }
}
