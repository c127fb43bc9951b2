//! Errors between an endpoint and a memory server.

use crate::{ComputeId, GlobalAddress, Progress, Refusal, Space};

crate::errors! {
    /// The error of a failed list or call. By F7 a failed list took effect as a prefix of unknown length.
    ///
    /// Its tag is as wide as its fields, like that of [`Refusal`]. With a tag of one byte, the compiler moves
    /// a `Result<WorkList, FabricError>` as that byte and the seven bytes behind it. Those loads straddle the
    /// stores just made, and each round trip waits for them: 10 of the 28 ns of an empty one.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    #[repr(u64)]
    pub enum FabricError {
        /// A verb reached outside the server's memory.
        OutOfBounds {
            /// The accessed space.
            space: Space,
            /// The first address of the access.
            address: GlobalAddress,
            /// The length in bytes.
            len: u64,
        } => "{len} bytes at {address} reach outside the server's {space:?} memory",
        /// A CAS, FAA or on-chip access was not aligned to its width, or crossed a word.
        Misaligned {
            /// The accessed space.
            space: Space,
            /// The first address of the access.
            address: GlobalAddress,
        } => "misaligned access to {space:?} memory at {address}",
        /// The list or one of its verbs is larger than [`Caps`](crate::Caps) allows.
        TooLarge {
            /// The size asked for.
            asked: u64,
            /// The maximum size.
            limit: u64,
        } => "work list too large: {asked} asked, {limit} allowed",
        /// No server has this index.
        NoSuchServer {
            /// The index asked for.
            server: u16,
        } => "there is no memory server {server}",
        /// The server has fenced this client (F6). Nothing of it executes there any more.
        Fenced {
            /// The client's id.
            client: ComputeId,
        } => "client {client} has been fenced",
        /// The cluster has declared the server lost: its memory is permanently gone. A client never concludes
        /// this by itself.
        ServerLost {
            /// The server's index.
            server: u16,
        } => "memory server {server} was declared lost",
        /// A volume of a cluster of hosts has lost all its copies: its memory is gone. The table of volumes
        /// says so.
        VolumeLost {
            /// The volume.
            volume: u16,
        } => "volume {volume} has lost all its copies, and what was on it",
        /// This client cannot reach a server that the cluster counts as present. The connection broke, the
        /// server is down, or it was restarted. Nothing more of this endpoint executes there, and the
        /// client's identity ends. Other clients may still reach the server.
        Disconnected {
            /// The server's index.
            server: u16,
        } => "the connection to memory server {server} is broken",
        /// No leader of the group answered a request to control in time. The request may have been carried
        /// out. This says nothing about the client's identity, which goes on.
        NoLeader => "the cluster has no reachable leader: more than half of the memory servers that vote \
            must run and reach each other",
        /// A list for several copies of a volume failed at one of them, because this client cannot reach the
        /// copy or is fenced there. The client's identity ends.
        CopyFailed {
            /// The volume's number.
            server: u16,
            /// How far the list got.
            progress: Progress,
        } => "a list for the copies of volume {server} failed at one of them",
        /// The cluster has a new table of volumes. This client's identity belongs to an older one, and ends.
        EpochEnded {
            /// The client's id.
            client: ComputeId,
        } => "the identity {client} ended with its epoch: the cluster has a new table of volumes",
        /// A live client stopped in the middle of a change (shared memory). It keeps what it holds until it
        /// runs again or dies.
        OwnerStalled {
            /// The stopped client.
            client: ComputeId,
        } => "client {client} is stopped in the middle of a change: continue or kill its process",
        /// A READ exceeded its window (F8) in every attempt of the server or of the client's own thread. That
        /// thread was paused in the middle each time. Post the list again.
        SlowRead {
            /// The server's index.
            server: u16,
        } => "every attempt of a READ from memory server {server} was paused for too long: the machine is \
            overloaded",
        /// The backend cannot do this.
        Unsupported {
            /// The unsupported operation.
            what: &'static str,
        } => "this backend cannot {what}",
        /// The memory server answered a control request with a reply that does not fit it. The server may be
        /// of another version.
        UnexpectedReply {
            /// The request's name.
            request: &'static str,
        } => "the memory server's reply does not fit the request {request}: is its version another?",
        /// The memory server refused a control request.
        Refused(refusal: Refusal) => "{refusal}",
    }
}

impl From<Refusal> for FabricError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Fenced { client } => Self::Fenced { client },
            other => Self::Refused(other),
        }
    }
}

impl FabricError {
    /// The server or volume whose memory is gone, if that is what the error says.
    #[inline]
    pub const fn lost(&self) -> Option<u16> {
        match *self {
            Self::ServerLost { server } => Some(server),
            Self::VolumeLost { volume } => Some(volume),
            _ => None,
        }
    }
}
