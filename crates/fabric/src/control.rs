//! The few requests a memory server's CPU answers: memory, membership, the catalog. Everything else is verbs.

use crate::stats::ServerStats;
use std::fmt;

/// A compute server's identity: what it writes into lock lanes and free marks. 0 means nobody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(pub u16);

impl ClientId {
    /// Nobody: the value of a free lane.
    pub const NOBODY: Self = Self(0);
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What a chunk is cut into. A chunk keeps its class for ever, so that a stale pointer into it always meets a node of
/// the size and format it expects (`ARCHITECTURE.md`).
///
/// A chunk of a class is divided into *spans*, each of a few places for nodes. Clients own spans, not chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChunkClass {
    /// Bytes of a node, a multiple of 64.
    pub node_bytes: u32,
    /// The node format's number.
    pub format: u8,
}

/// What is fixed about a tree when it is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeSpec {
    /// The node format's number.
    pub format: u8,
    /// Bytes of a key.
    pub key_len: u16,
    /// Bytes of a value.
    pub value_len: u32,
    /// Bytes of a leaf.
    pub leaf_bytes: u32,
    /// Bytes of an internal node.
    pub internal_bytes: u32,
}

/// A catalog entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeInfo {
    /// Unique in the cluster, never reused; every node of the tree carries it.
    pub id: u32,
    /// The name it was created under.
    pub name: String,
    /// Its shape.
    pub spec: TreeSpec,
    /// Where the root word is: an offset in server 0's host memory.
    pub root_word: u64,
}

/// A control request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Request {
    /// To server 0: become a member. Answered by [`Response::Joined`].
    Join,
    /// To server 0: stop being one. The id may be issued again. To any other server, before that: give up the redo area
    /// and the chunks there.
    Leave,
    /// To any server: up to `count` spans, at least one. The sender owns them then. Answered by [`Response::Spans`].
    AllocSpans {
        /// What their places are for.
        class: ChunkClass,
        /// How many; 0 counts as 1.
        count: u16,
    },
    /// To any server: the sender owns these spans no more, at most [`MOST_FREED`]. Nothing of it may be pending there.
    FreeSpans {
        /// The offset of each, and whether it has free places.
        spans: Vec<(u64, bool)>,
    },
    /// To any server, from the recoverer of `client`: the spans that `client` owns there, from the offset `from` on, the first
    /// [`MOST_LISTED`]. Answered by [`Response::Spans`]. Refused with [`Refusal::BadRequest`] unless `client` is fenced there.
    SpansOf {
        /// Whose.
        client: ClientId,
        /// Where to begin.
        from: u64,
    },
    /// To any server: this client's redo area there, made on first request. Answered by [`Response::RedoArea`]. A client asks server 0
    /// for one before it takes its first lane or span anywhere: a client without one owns nothing, and needs no recovery.
    RedoArea {
        /// Whether it asks because it is going to recover others. The last few areas are kept for those: where all are taken by the dead,
        /// nobody could free them.
        recovers: bool,
    },
    /// To server 0: register a tree whose root leaf is already written. Answered by [`Response::Tree`]; if the name is
    /// taken, by the tree that has it and `created: false`. A tree whose root word is null does not have its name any
    /// more: whoever began to drop it need not come back.
    CreateTree {
        /// Name, 1..=128 bytes of UTF-8.
        name: String,
        /// Shape.
        spec: TreeSpec,
        /// The id every node of it carries, from [`Request::NewTreeId`].
        id: u32,
        /// The first root word.
        root: u64,
    },
    /// To server 0: an id for a tree about to be created, never issued again. Answered by [`Response::TreeId`].
    NewTreeId,
    /// To server 0: look a tree up. Answered by [`Response::Tree`] or [`Refusal::NoSuchTree`], also if its root word is
    /// null.
    OpenTree {
        /// Its name.
        name: String,
    },
    /// To server 0: all trees whose root word is not null.
    ListTrees,
    /// To server 0: forget a tree whose root word the sender has replaced by null, by CAS; its nodes are freed after the
    /// answer. Answered by [`Response::Done`], by [`Refusal::BadRequest`] if the root word is not null, or by
    /// [`Refusal::NoSuchTree`] if no tree has this name and id: who nulled the root word may take that for done, since a
    /// [`Request::CreateTree`] may have finished the drop in its stead.
    DropTree {
        /// Its name.
        name: String,
        /// Its id: not another tree that was meanwhile created under the name.
        id: u32,
    },
    /// To any server: execute nothing of `client` any more (F6). Answered when all its endpoints have stopped there.
    Fence {
        /// Whom.
        client: ClientId,
    },
    /// To any server: its memory and members.
    Usage,
    /// To server 0: the sender is alive. Its lease then runs from now. Answered by [`Response::Renewed`].
    Renew,
    /// To server 0: the sender found no memory on any server. The renewals of others tell them. Renews nothing, but is answered by
    /// [`Response::Renewed`]: the members that are to be recovered, and whether it is any use to wait for others to give memory back.
    Short,
    /// To server 0: stop being a member, but leave records behind. The id is free when another member has recovered the sender.
    Depart,
    /// To server 0: is `client` dead? If its lease has run out, it is from now on, and the sender may be the one to recover
    /// it. Answered by [`Response::Verdict`].
    Suspect {
        /// Whom.
        client: ClientId,
    },
    /// To server 0: end the lease of `client` now, whatever it says itself.
    Condemn {
        /// Whom.
        client: ClientId,
    },
    /// To server 0: the sender is the successor of `client`: the same program, which lost that identity. Ends the lease of `client` and
    /// makes the sender its recoverer, unless another member recovers it already. Answered by [`Response::Verdict`];
    /// [`Verdict::Gone`] if `client` is a member no more or another holds its id.
    Succeed {
        /// Whom.
        client: ClientId,
        /// The incarnation that it had.
        incarnation: u32,
    },
    /// To any server, from who recovers `client`, last of all: forget it there: its spans, its redo area and its fence. Server 0 comes
    /// last: then the id may be issued again. Refused with [`Refusal::BadRequest`] unless `client` is fenced there.
    Retire {
        /// Whom.
        client: ClientId,
    },
    /// To server 0, from the recoverer of `client`, once the records of `client` are replayed and its lanes swept: `client` recovers
    /// nobody any more. Those whom it was recovering when it died may then be recovered before it is retired: what is left to do for
    /// `client` may have to wait for them.
    Relieve {
        /// Whom.
        client: ClientId,
    },
    /// To server 0: every member. Answered by [`Response::Members`].
    Members,
    /// To server 0: the memory servers of the cluster. Answered by [`Response::Servers`].
    Servers,
    /// To server 0: the memory of `server` is gone for good. Ends the lease of every live member, as
    /// [`Request::Condemn`] does: nobody may go on with the old view. Every client that joins later skips the server, and its
    /// lists and calls there end in [`FabricError::ServerLost`](crate::FabricError::ServerLost). Nothing undoes this. Refused with
    /// [`Refusal::BadRequest`] for server 0.
    DeclareLost {
        /// Which.
        server: u16,
    },
    /// To any server that is a process of its own: its counters. Answered by [`Response::Stats`]; elsewhere refused with
    /// [`Refusal::BadRequest`].
    Stats,
}

/// What a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// It takes part.
    Live,
    /// It has gone in order, and its records wait to be replayed.
    Leaving,
    /// Its lease has run out: it is being recovered, or waits for it.
    Dead,
}

/// A member, as server 0 knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemberInfo {
    /// Its id.
    pub client: ClientId,
    /// What it is.
    pub standing: Standing,
    /// How often its id was issued.
    pub incarnation: u32,
    /// For how long it has been a member, in nanoseconds.
    pub age: u64,
    /// What is left of its lease, in nanoseconds; 0 if it has run out.
    pub lease_left: u64,
    /// Who recovers it; nobody's id if nobody does.
    pub recoverer: ClientId,
}

/// A memory server of the cluster, as server 0 knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ServerInfo {
    /// The identity of its memory; 0 until the first member has joined.
    pub memory: u64,
    /// Whether the cluster has declared it lost.
    pub lost: bool,
}

/// What a client that wants to join found at one memory server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seen {
    /// The identity of the server's memory.
    pub memory: u64,
    /// The cluster which that memory belongs to; 0 if it belongs to none yet.
    pub cluster: u64,
}

/// The most members that one renewal names.
pub const MOST_EXPIRED: usize = 1024;
/// The most spans that one request takes back.
pub const MOST_FREED: usize = 4096;
/// The most spans that one answer lists.
pub const MOST_LISTED: usize = 4096;

/// A few places for nodes, side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// What its places are for.
    pub class: ChunkClass,
    /// Where it begins in host memory.
    pub offset: u64,
    /// Its size: a multiple of the class's node size.
    pub bytes: u64,
    /// Whether nobody ever owned it: then none of its places ever held a node.
    pub fresh: bool,
}

/// What server 0 says to a suspicion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Its lease has not run out yet.
    Alive {
        /// What is left of it, in nanoseconds.
        lease_left: u64,
    },
    /// It is dead, or has gone, and the one who asks is to recover it: nobody else does, until its own lease runs out. Said
    /// again whenever the same one asks again.
    Recover,
    /// As [`Verdict::Recover`], and nobody has begun to recover it before. Said to a successor ([`Request::Succeed`]) alone, once.
    Inherit,
    /// Somebody else recovers it.
    Recovering {
        /// Who.
        by: ClientId,
    },
    /// Somebody recovered it and is dead itself: that one must be recovered first.
    Displaced {
        /// Who.
        by: ClientId,
    },
    /// Nobody has this id: there is nothing to recover.
    Gone,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Response {
    /// Nothing to say.
    Done,
    /// A new member's id.
    Joined {
        /// The id.
        client: ClientId,
    },
    /// Spans.
    Spans(Vec<Span>),
    /// A redo area.
    RedoArea {
        /// Its offset in host memory.
        offset: u64,
        /// Its size.
        bytes: u64,
    },
    /// A fresh tree id.
    TreeId {
        /// The id.
        id: u32,
    },
    /// A tree.
    Tree {
        /// Its catalog entry.
        info: TreeInfo,
        /// Whether this request created it.
        created: bool,
    },
    /// All trees, by name.
    Trees(Vec<TreeInfo>),
    /// Memory and members of one server.
    Usage {
        /// Chunks there are.
        chunks: u64,
        /// Chunks given out.
        chunks_used: u64,
        /// Bytes of a chunk.
        chunk_bytes: u64,
        /// Bytes of spans that members own.
        bytes_owned: u64,
        /// Bytes of spans that nobody owns and that may have free places.
        bytes_free: u64,
        /// Members known here.
        members: Vec<ClientId>,
    },
    /// The sender's lease runs from now.
    Renewed {
        /// The members that are to be recovered, and that nobody alive recovers but perhaps the sender: the first
        /// [`MOST_EXPIRED`].
        expired: Vec<ClientId>,
        /// Some member lately found no memory on any server: the sender is to give back what it does not use. In the answer to
        /// [`Request::Short`]: there are others who may.
        short: bool,
    },
    /// What is to be done about a suspect.
    Verdict(Verdict),
    /// Every member, by id.
    Members(Vec<MemberInfo>),
    /// Every memory server of the cluster, by number.
    Servers(Vec<ServerInfo>),
    /// One server's counters.
    Stats(Box<ServerStats>),
}

/// Why a memory server said no. Nothing was changed. For the width of its tag see
/// [`FabricError`](crate::FabricError).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u64)]
pub enum Refusal {
    /// No span of the class, and no chunk, is left.
    OutOfMemory,
    /// No member id is left.
    TooManyMembers,
    /// The catalog is full.
    TooManyTrees,
    /// No tree has this name.
    NoSuchTree {
        /// The name asked for.
        name: String,
    },
    /// The name is empty or longer than 128 bytes.
    BadName,
    /// This server does not answer this request (only server 0 keeps members and catalog).
    NotHere,
    /// The client is not a member.
    NotAMember {
        /// Who asked, or who was to be fenced.
        client: ClientId,
    },
    /// The client is fenced on this server (F6).
    Fenced {
        /// Who asked.
        client: ClientId,
    },
    /// The cluster counts a memory server as present, and the client did not reach it.
    Unreachable {
        /// Which.
        server: u16,
    },
    /// The memory of a server belongs to another cluster.
    OtherCluster {
        /// Which.
        server: u16,
    },
    /// A memory server has another memory than the cluster knows: it was restarted empty, or another server is in its place.
    OtherMemory {
        /// Which.
        server: u16,
    },
    /// The client names another number of memory servers than the cluster has.
    OtherCount {
        /// How many the cluster has.
        servers: u16,
    },
    /// The request's numbers make no sense.
    BadRequest {
        /// Which.
        what: &'static str,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfMemory => write!(f, "the memory server has no free memory"),
            Self::TooManyMembers => write!(f, "the cluster has no free member id"),
            Self::TooManyTrees => write!(f, "the cluster's catalog of trees is full"),
            Self::NoSuchTree { name } => write!(f, "there is no tree named {name:?}"),
            Self::BadName => write!(f, "a tree's name has 1 to 128 bytes"),
            Self::NotHere => write!(f, "only memory server 0 answers this"),
            Self::NotAMember { client } => write!(f, "client {client} is not a member of the cluster"),
            Self::Fenced { client } => write!(f, "client {client} has been fenced"),
            Self::Unreachable { server } => {
                write!(f, "the cluster counts memory server {server} as present, and the client cannot reach it")
            }
            Self::OtherCluster { server } => write!(f, "memory server {server} belongs to another cluster"),
            Self::OtherMemory { server } => {
                write!(f, "memory server {server} lost its memory: it was restarted empty, or is another server")
            }
            Self::OtherCount { servers } => write!(f, "the cluster has {servers} memory servers"),
            Self::BadRequest { what } => write!(f, "malformed request: {what}"),
        }
    }
}

impl std::error::Error for Refusal {}
