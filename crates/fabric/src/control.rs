//! The few requests that CPUs answer: about memory, membership and the catalog. Everything else is verbs.
//!
//! A request goes to one [`Peer`]. Each *volume* answers requests about its own memory. The *control state*
//! answers requests about members, leases, servers and the catalog, which exist once in a cluster.
//!
//! [`Request`] and [`Response`] are the words of the wire. [`calls`](crate::calls) pairs each request with
//! the type of its reply.

use crate::address::GlobalAddress;
use crate::group::{Admission, ClusterInfo, CopyProgress, HostOffer, Registration, Store};
use crate::stats::ServerStats;
use crate::tree_types::TreeTypes;
use std::fmt;

/// A compute server's identity, which it writes into lock lanes and free marks. 0 means no client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ComputeId(pub u16);

impl ComputeId {
    /// No client: the value of a free lane.
    pub const NOBODY: Self = Self(0);
}

impl fmt::Display for ComputeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Names a request that control must not carry out twice, even if another host leads by then. It is
/// unique: an identity numbers its own requests. The next identity of the same process repeats a request
/// without an answer under the same name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId {
    /// The client that sent it first.
    pub client: ComputeId,
    /// The incarnation of that id.
    pub incarnation: u32,
    /// The client's number for it. Numbers ascend.
    pub number: u64,
}

/// The receiver of a control request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Peer {
    /// The control state of the cluster: members, leases, the catalog and the table of servers.
    Control,
    /// A volume: the memory that the server number of a [`GlobalAddress`] names.
    Volume(u16),
}

impl Peer {
    /// The memory server whose CPU answers, without hosts: the control state is beside volume 0.
    #[inline]
    pub const fn server(self) -> u16 {
        match self {
            Self::Control => 0,
            Self::Volume(volume) => volume,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Control => f.write_str("control"),
            Self::Volume(volume) => write!(f, "volume {volume}"),
        }
    }
}

/// The use of a chunk. A chunk keeps its class permanently. So a stale pointer into it always finds a node of
/// the size and format it expects (`ARCHITECTURE.md`).
///
/// A chunk of a class is divided into *spans*. A span has a few places for nodes. Clients own spans, not
/// chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChunkClass {
    /// Bytes of a node, a multiple of 64.
    pub node_bytes: u32,
    /// The node format's number.
    pub format: u8,
}

impl ChunkClass {
    /// The format number of blocks: long values, each at a place of its own.
    pub const BLOCK: u8 = 6;

    /// Whether its places hold blocks, not nodes.
    pub const fn is_block(&self) -> bool {
        self.format == Self::BLOCK
    }
}

/// The fixed properties of a tree, set when it is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeSpec {
    /// The node format's number.
    pub format: u8,
    /// Bytes of a key.
    pub key_len: u16,
    /// Bytes of a value. With the bit [`TreeSpec::ANY_LENGTH`] values have any length, and the other bits are
    /// the bytes of an entry's slot.
    pub value_len: u32,
    /// Bytes of a leaf.
    pub leaf_bytes: u32,
    /// Bytes of an internal node.
    pub internal_bytes: u32,
}

impl TreeSpec {
    /// The bit of [`TreeSpec::value_len`] that says that values have any length. An entry's slot then holds a
    /// short value, or refers to a block that holds a long one.
    pub const ANY_LENGTH: u32 = 1 << 31;

    /// Whether values have any length.
    pub const fn has_blocks(&self) -> bool {
        self.value_len & Self::ANY_LENGTH != 0
    }

    /// Bytes of a leaf's entry beyond its key.
    pub const fn slot_len(&self) -> u32 {
        self.value_len & !Self::ANY_LENGTH
    }
}

/// A catalog entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeInfo {
    /// Unique in the cluster and never reused. Every node of the tree carries it.
    pub id: u32,
    /// The name it was created with.
    pub name: String,
    /// Its shape.
    pub spec: TreeSpec,
    /// The types of its keys and values. `None` if its creator gave none.
    pub types: Option<TreeTypes>,
    /// The address of its root word, in the root table of a volume.
    pub root_word: GlobalAddress,
}

/// A control request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Request {
    /// To control: become a member. The answer is [`Response::Joined`].
    Join,
    /// To control: the sender is about to own memory, so it must be recovered if it dies. The answer is
    /// [`Response::Active`]. A client sends this before it takes its first lane, span or redo area. So a
    /// member that did not send it owns nothing and needs no recovery, unless it recovers others (I43).
    Activate,
    /// To a volume, from a client that leaves: give up the redo area and the spans there.
    Release,
    /// To control, after a [`Request::Release`] on every volume: stop being a member. The id may be issued
    /// again.
    Leave,
    /// To a volume: allocate up to `count` spans, at least one. The sender then owns them. The answer is
    /// [`Response::Spans`].
    AllocSpans {
        /// The class of the spans' places.
        class: ChunkClass,
        /// The number of spans. 0 counts as 1.
        count: u16,
    },
    /// To a volume: the sender gives up these spans, at most [`MOST_FREED`]. No operation of the sender may
    /// be pending there.
    FreeSpans {
        /// The offset of each span, and whether it has free places.
        spans: Vec<(u64, bool)>,
    },
    /// To a volume, from the recoverer of `client`: list the spans that `client` owns there, the first
    /// [`MOST_LISTED`] from the offset `from` on. The answer is [`Response::Spans`]. Refused with
    /// [`Refusal::BadRequest`] unless `client` is fenced there.
    SpansOf {
        /// The owner of the spans.
        client: ComputeId,
        /// The first offset.
        from: u64,
    },
    /// To a volume: get the sender's redo area there. The first request makes it. The answer is
    /// [`Response::RedoArea`].
    RedoArea,
    /// To control: register a tree, under an id that is never issued again. The answer is [`Response::Tree`].
    /// If the name is taken, it names the existing tree and has `created: false`. The tree is empty, and its
    /// root word does not lead to a node yet: the first client that needs a root makes it (I53). If this very
    /// request created the tree before, the answer says so again. If it created nothing before, it creates
    /// nothing now: the answer may be [`Refusal::NoSuchTree`].
    CreateTree {
        /// Name, 1..=128 bytes of UTF-8.
        name: String,
        /// Shape.
        spec: TreeSpec,
        /// The types of its keys and values, if the catalog should keep them. Control does not compare them.
        types: Option<TreeTypes>,
        /// The name of the request. A group gives the same answer to the same request. Elsewhere no request
        /// comes twice, and this does not matter.
        asked: RequestId,
    },
    /// To control: look up a tree. The answer is [`Response::Tree`], or [`Refusal::NoSuchTree`]. Control does
    /// not know the root word. The sender reads there whether the tree has ended.
    OpenTree {
        /// The tree's name.
        name: String,
    },
    /// To control: list all trees, also those that have ended.
    ListTrees,
    /// To control: forget a tree that has ended: its root word says so, permanently (I54). Any client that
    /// has read this may send it. The client that drops the tree frees the nodes after the answer. If no tree
    /// has this name and id, the answer is [`Refusal::NoSuchTree`]. The sender may take that as done, because
    /// another client may have sent it first.
    DropTree {
        /// The tree's name.
        name: String,
        /// The tree's id. It excludes another tree that was meanwhile created with this name.
        id: u32,
    },
    /// To a volume: execute nothing more of `client` (F6). The volume answers when all endpoints of
    /// `client` have stopped there.
    Fence {
        /// The client to fence.
        client: ComputeId,
    },
    /// To a volume: report its memory, and the clients that have a redo area there.
    Usage,
    /// To control: the sender is alive. Its lease starts again now. The answer is [`Response::Renewed`].
    Renew,
    /// To control: the sender found no memory on any server. The renewals of other members report this to
    /// them. Renews nothing, but the answer is [`Response::Renewed`]. It names the members that need
    /// recovery, and says whether the sender should wait for others to give memory back.
    Short,
    /// To control: stop being a member, but leave records behind. The id is free after another member has
    /// recovered the sender.
    Depart,
    /// To control: ask whether `client` is dead. If its lease has expired, it is dead from now on, and the
    /// sender may become its recoverer. The answer is [`Response::Verdict`].
    Suspect {
        /// The suspected client.
        client: ComputeId,
    },
    /// To control: end the lease of `client` now, even if `client` is alive.
    Condemn {
        /// The client whose lease ends.
        client: ComputeId,
    },
    /// To control: the sender is the successor of `client`. It is the same program, which lost that
    /// identity. Ends the lease of `client` and makes the sender its recoverer, unless another member already
    /// recovers it. The answer is [`Response::Verdict`]. It is [`Verdict::Gone`] if `client` is no longer a
    /// member or another incarnation holds its id.
    Succeed {
        /// The former client.
        client: ComputeId,
        /// The incarnation of the former client.
        incarnation: u32,
    },
    /// To a volume, from the recoverer of `client`: forget the spans, the redo area and the fence of `client`
    /// there. Refused with [`Refusal::BadRequest`] unless `client` is fenced there.
    Retire {
        /// The client to forget.
        client: ComputeId,
    },
    /// To control, from the recoverer of `client`, as its last step: `client` is retired on every volume, and
    /// its id may be issued again.
    FreeId {
        /// The client whose id is free.
        client: ComputeId,
    },
    /// To control, from the recoverer of `client`, once it has replayed the records of `client` and swept
    /// its lanes. `client` then no longer recovers any member. Members that `client` was recovering when it
    /// died may then be recovered before `client` is retired. The rest of the recovery of `client` may have
    /// to wait for them.
    Relieve {
        /// The dead client.
        client: ComputeId,
    },
    /// To control: list every member. The answer is [`Response::Members`].
    Members,
    /// To control: list the memory servers of the cluster. The answer is [`Response::Servers`].
    Servers,
    /// To control: the memory of `server` is permanently gone. Ends the lease of every live member, as
    /// [`Request::Condemn`] does, so that no member continues with the old view. Every client that joins
    /// later skips the server. Its lists and calls there end in
    /// [`FabricError::ServerLost`](crate::FabricError::ServerLost). This cannot be undone. Refused with
    /// [`Refusal::BadRequest`] for server 0.
    DeclareLost {
        /// The lost server.
        server: u16,
    },
    /// To a volume whose server is its own process: report its counters. The answer is [`Response::Stats`].
    /// Other servers refuse with [`Refusal::BadRequest`].
    Stats,
    /// To control: the table of volumes. The answer is [`Response::Volumes`]. A cluster without replication
    /// refuses with [`Refusal::BadRequest`].
    Volumes,
    /// To a backup or joining copy, from the host of the primary: the primary's CPU has made these stores,
    /// and answers its client when this copy has made them too (T5).
    Mirror {
        /// The number of the copy that makes the stores.
        copy: u16,
        /// The epoch of the sender's table. The receiver refuses the request under another table.
        epoch: u64,
        /// The number of the request under this table, from 1. The receiver makes stores once, although the
        /// sender may repeat them.
        number: u64,
        /// The stores, in order.
        stores: Vec<Store>,
        /// A client that the primary has fenced (F6). The copy answers when nothing of it executes there.
        fenced: Option<ComputeId>,
    },
    /// To any host: who leads the group, which hosts there are, and the table of volumes. The answer is
    /// [`Response::Cluster`].
    Cluster,
    /// To control, from a process that wants to become a host. The answer is [`Response::Registered`].
    Register {
        /// What it offers.
        offer: HostOffer,
    },
    /// To control, from a process that has the memory and the log of a host whose process ended: it goes on
    /// as that host. The answer is [`Response::Registered`], or `FabricError::ServerLost` if the host was
    /// declared lost meanwhile.
    Return {
        /// The host's number.
        host: u16,
        /// Its incarnation.
        incarnation: u32,
        /// What it offers.
        offer: HostOffer,
    },
    /// To control, from a host, every few milliseconds: it is alive.
    Alive {
        /// Its number.
        host: u16,
        /// Its incarnation.
        incarnation: u32,
        /// How far the copies are that it makes on other hosts.
        progress: Vec<CopyProgress>,
    },
    /// To control, from the host of the primary: the copy that is being made has nearly all bytes of its
    /// volume (J2). The volume may close.
    Copied {
        /// The number of the copy.
        copy: u16,
    },
    /// To control, from the host of the primary: the copy that is being made has all bytes of its volume, and
    /// gets every store that the primary's CPU makes from now on (J4).
    Settled {
        /// The number of the copy.
        copy: u16,
        /// The epoch of the closed table in which this holds.
        epoch: u64,
    },
    /// To control, from an operator: move all copies away from a host, and let it leave. Repeating it changes
    /// nothing.
    Drain {
        /// The host's number.
        host: u16,
        /// Let the host stay, and forget the moves that are planned.
        cancel: bool,
    },
    /// To control, from an operator: spread copies and primaries evenly over the hosts, by memory. Repeating
    /// it changes nothing.
    Rebalance {
        /// When to do it.
        when: Spreading,
    },
    /// To a copy that is being made, from the host of the primary: the digests of its memory, one for each
    /// [`DIGEST_BYTES`] from `offset` on. The last block may be shorter. The answer is
    /// [`Response::Digests`]. From then on the copy takes bytes from this connection alone.
    Digest {
        /// The number of the copy.
        copy: u16,
        /// The offset of the first byte, a multiple of 64.
        offset: u64,
        /// How many bytes, at most [`MOST_DIGESTS`] blocks.
        len: u32,
    },
}

impl Request {
    /// Whether the control state answers this request. Otherwise a volume does.
    pub const fn is_for_control(&self) -> bool {
        !matches!(
            self,
            Self::Release
                | Self::AllocSpans { .. }
                | Self::FreeSpans { .. }
                | Self::SpansOf { .. }
                | Self::RedoArea
                | Self::Fence { .. }
                | Self::Retire { .. }
                | Self::Mirror { .. }
                | Self::Digest { .. }
                | Self::Usage
                | Self::Stats
        )
    }
}

/// When copies are spread evenly over the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Spreading {
    /// Once, now.
    Now,
    /// Now, and whenever a host has joined.
    Always,
    /// Not any more, neither now nor later.
    Never,
}

/// The state of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// The member takes part.
    Live,
    /// The member has left in order, and its records wait to be replayed.
    Leaving,
    /// The member's lease has expired. It is being recovered, or waits for recovery.
    Dead,
}

/// A member, as the control state has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemberInfo {
    /// The member's id.
    pub client: ComputeId,
    /// The member's state.
    pub standing: Standing,
    /// How often the id was issued.
    pub incarnation: u32,
    /// Nanoseconds since it became a member.
    pub age: u64,
    /// Nanoseconds until its lease expires, or 0 if it has expired.
    pub lease_left: u64,
    /// The member's recoverer, or [`ComputeId::NOBODY`] if it has none.
    pub recoverer: ComputeId,
}

/// A memory server of the cluster, as the control state has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ServerInfo {
    /// The identity of its memory, or 0 until the first member has joined.
    pub memory: u64,
    /// Whether the cluster has declared it lost.
    pub lost: bool,
}

/// The state of one memory server, as found by a client that wants to join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seen {
    /// The identity of the server's memory.
    pub memory: u64,
    /// The cluster that owns that memory, or 0 if none does yet.
    pub cluster: u64,
}

/// The maximum number of members that one renewal names.
pub const MOST_EXPIRED: usize = 1024;
/// The maximum number of spans that one request gives back.
pub const MOST_FREED: usize = 4096;
/// The maximum number of spans that one answer lists.
pub const MOST_LISTED: usize = 4096;

/// Bytes of memory that one digest stands for.
pub const DIGEST_BYTES: u32 = 64 << 10;
/// The maximum number of digests that one answer has.
pub const MOST_DIGESTS: usize = 1024;

/// A few adjacent places for nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// The class of its places.
    pub class: ChunkClass,
    /// The span's offset in host memory.
    pub offset: u64,
    /// The span's size, a multiple of the class's node size.
    pub bytes: u64,
    /// Whether no client ever owned the span. Then none of its places ever held a node.
    pub fresh: bool,
}

/// Control's answer to a suspicion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The suspect's lease has not expired yet.
    Alive {
        /// Nanoseconds until the lease expires.
        lease_left: u64,
    },
    /// The suspect is dead or has left, and the sender must recover it. No other client recovers it until the
    /// sender's own lease expires. The same sender gets the same answer if it asks again.
    Recover,
    /// As [`Verdict::Recover`], and no member has begun to recover the suspect before. Only a successor
    /// ([`Request::Succeed`]) gets this, and only once.
    Inherit,
    /// Another member recovers the suspect.
    Recovering {
        /// The recoverer.
        by: ComputeId,
    },
    /// The suspect's recoverer is dead too, and must be recovered first.
    Displaced {
        /// The recoverer that died.
        by: ComputeId,
    },
    /// No member has this id, so there is nothing to recover.
    Gone,
}

/// A part of a server's host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// Its offset in host memory.
    pub offset: u64,
    /// Its size in bytes.
    pub bytes: u64,
}

/// The catalog's answer about one tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogReply {
    /// The tree's catalog entry.
    pub info: TreeInfo,
    /// Whether this request created the tree.
    pub created: bool,
}

/// Memory and clients of one volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The total number of chunks.
    pub chunks: u64,
    /// The number of chunks in use.
    pub chunks_used: u64,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// Bytes of spans that members own.
    pub bytes_owned: u64,
    /// Bytes of spans that have no owner and may have free places.
    pub bytes_free: u64,
    /// The clients that have a redo area there and are not fenced.
    pub members: Vec<ComputeId>,
}

/// Control's answer to a renewal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Renewal {
    /// The first [`MOST_EXPIRED`] of the members that need recovery and that no live member recovers, except
    /// perhaps the sender.
    pub expired: Vec<ComputeId>,
    /// Some member recently found no memory on any server, so the sender should give back unused memory. In
    /// the answer to [`Request::Short`]: other members may give memory back.
    pub short: bool,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Response {
    /// Done, without further data.
    Done,
    /// A new member's id.
    Joined {
        /// The id.
        client: ComputeId,
    },
    /// The sender may own memory from now on.
    Active {
        /// How often the sender's id was issued.
        incarnation: u32,
    },
    /// Spans.
    Spans(Vec<Span>),
    /// A redo area.
    RedoArea(Extent),
    /// A tree.
    Tree(CatalogReply),
    /// All trees, by name.
    Trees(Vec<TreeInfo>),
    /// Memory and members of one server.
    Usage(Usage),
    /// The sender's lease starts again now.
    Renewed(Renewal),
    /// What the sender must do about a suspect.
    Verdict(Verdict),
    /// Every member, by id.
    Members(Vec<MemberInfo>),
    /// Every memory server of the cluster, by number.
    Servers(Vec<ServerInfo>),
    /// One server's counters.
    Stats(Box<ServerStats>),
    /// The bytes of the table of volumes, which `sherman-replica` encodes and decodes.
    Volumes(Vec<u8>),
    /// What a host knows about its cluster.
    Cluster(Box<ClusterInfo>),
    /// A new host.
    Registered(Box<Registration>),
    /// A new member of a cluster of hosts.
    Admitted(Box<Admission>),
    /// The digests of a copy's memory, in order: XXH3 with 64 bits, without a seed.
    Digests(Vec<u64>),
}

crate::errors! {
    /// Why a memory server refused a request. The request changed nothing. For the width of its tag see
    /// [`FabricError`](crate::FabricError).
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    #[repr(u64)]
    pub enum Refusal {
        /// No span of the class and no chunk is free.
        OutOfMemory => "the memory server has no free memory",
        /// No member id is free.
        TooManyMembers => "the cluster has no free member id",
        /// The catalog is full.
        TooManyTrees => "the cluster's catalog of trees is full",
        /// No tree has this name.
        NoSuchTree {
            /// The name asked for.
            name: String,
        } => "there is no tree named {name:?}",
        /// The name is empty or longer than 128 bytes.
        BadName => "bad tree name: it must have 1 to 128 bytes",
        /// This server does not answer this request: it does not keep the control state.
        NotHere => "only memory server 0 answers this request",
        /// The client is not a member.
        NotAMember {
            /// The sender, or the client to fence.
            client: ComputeId,
        } => "client {client} is not a member of the cluster",
        /// The client is fenced on this server (F6).
        Fenced {
            /// The sender.
            client: ComputeId,
        } => "client {client} has been fenced",
        /// The cluster counts a memory server as present, but the client did not reach it.
        Unreachable {
            /// The unreachable server.
            server: u16,
        } => "the client cannot reach memory server {server}, which the cluster counts as present",
        /// The memory of a server belongs to another cluster.
        OtherCluster {
            /// The server with that memory.
            server: u16,
        } => "memory server {server} belongs to another cluster",
        /// A memory server has another memory than the cluster knows. It was restarted empty, or another
        /// server is in its place.
        OtherMemory {
            /// The server with that memory.
            server: u16,
        } => "memory server {server} lost its memory: it was restarted empty, or is another server",
        /// The client expects another number of memory servers than the cluster has.
        OtherCount {
            /// Number of servers in the cluster.
            servers: u16,
        } => "the client lists another number of memory servers than the cluster has ({servers})",
        /// Another host leads the group.
        NotLeader {
            /// The address of the leader; empty if the host knows none.
            leader: String,
        } => "this host does not lead the group: {leader:?} does",
        /// The cluster has no volumes yet.
        Forming {
            /// How many hosts it has.
            hosts: u16,
            /// How many it waits for.
            expected: u16,
        } => "the cluster has no volumes yet: {hosts} of {expected} memory servers have joined",
        /// No host with this number is present.
        NoSuchHost {
            /// The number asked for.
            host: u16,
        } => "the cluster has no host {host}, or it was lost or has left",
        /// A host cannot leave: it has the last copy of a volume, and no other host is there.
        LastCopy {
            /// A volume whose last copy it has.
            volume: u16,
        } => "no other host is there, and volume {volume} has its last copy on this one",
        /// A host cannot leave: a volume would have fewer copies than the cluster keeps.
        TooFewHosts {
            /// How many hosts would be left.
            left: u16,
            /// How many copies every volume has.
            replicas: u16,
        } => "{left} hosts would be left, too few for {replicas} copies of every volume",
        /// A host cannot leave: the others have no room for its copies.
        NoRoom {
            /// How many copies it has.
            copies: u16,
            /// For how many of them the others have room.
            room: u16,
        } => "the other hosts have room for {room} of its {copies} copies: add a host first",
        /// The host has left in order.
        HostLeft {
            /// The host.
            host: u16,
        } => "host {host} has left the cluster",
        /// The request's values are invalid.
        BadRequest {
            /// The invalid value.
            what: &'static str,
        } => "malformed request: {what}",
    }
}
