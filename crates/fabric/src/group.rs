//! The words about hosts: memory server processes whose CPUs keep the control state together.
//!
//! A cluster of hosts has a *group*, which keeps its control state (`docs/CONSENSUS.md`), and volumes in
//! several copies (`docs/REPLICATION.md`). Any host says who leads the group. The leader answers everything
//! else.

use crate::control::ComputeId;

/// One host, as the control state has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostInfo {
    /// Its number. A number is never issued again.
    pub number: u16,
    /// How often the group had registered a host when it registered this one.
    pub incarnation: u32,
    /// Its number in the group.
    pub node: u64,
    /// Where clients and other hosts reach it: `tcp://host:port` or `unix:/path`.
    pub address: String,
    /// Whether the group counts it as present. A host that was declared lost never comes back under this
    /// number.
    pub up: bool,
    /// Whether it votes in the group.
    pub voter: bool,
    /// Bytes of memory that it offers to copies of volumes.
    pub memory_bytes: u64,
    /// Whether its copies move away so that it can leave. If it is not present any more, it has left in
    /// order, and was not lost.
    pub leaving: bool,
}

impl HostInfo {
    /// Whether the group has declared it lost.
    pub const fn is_lost(&self) -> bool {
        !self.up && !self.leaving
    }

    /// Whether it has left in order.
    pub const fn has_left(&self) -> bool {
        !self.up && self.leaving
    }
}

/// What a host knows about its cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterInfo {
    /// The cluster's identity.
    pub cluster: u64,
    /// The host that answers.
    pub host: u16,
    /// The address of the group's leader, if this host knows one.
    pub leader: Option<String>,
    /// The epoch of the newest table that this host knows.
    pub epoch: u64,
    /// Whether the cluster has volumes. It has none before enough hosts have joined.
    pub formed: bool,
    /// The length of a lease.
    pub lease_nanos: u64,
    /// All hosts, by number.
    pub hosts: Vec<HostInfo>,
    /// The bytes of the table of volumes, which `sherman-replica` encodes and decodes.
    pub table: Vec<u8>,
    /// The copies that are being made or moved.
    pub work: CopyWork,
}

/// The copies of a cluster that are being made or moved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyWork {
    /// The copies that are being made, by volume.
    pub makings: Vec<CopyMaking>,
    /// How many volumes wait for their primary and backup to change places.
    pub swaps: u16,
    /// Whether volumes are closed for the copies (J3).
    pub pause: bool,
    /// Whether copies are being spread evenly over the hosts.
    pub spreading: bool,
    /// Whether they are spread whenever a host has joined.
    pub always: bool,
}

/// A copy that is being made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyMaking {
    /// The volume.
    pub volume: u16,
    /// The number of the copy.
    pub copy: u16,
    /// The host that gets it.
    pub host: u16,
    /// The copy whose place it takes; `None` if the volume lost a copy.
    pub replaces: Option<u16>,
    /// Whether it has nearly all bytes.
    pub copied: bool,
    /// How far it is, if its host has said so lately.
    pub progress: CopyProgress,
}

/// How far a copy is that is being made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyProgress {
    /// The number of the copy.
    pub copy: u16,
    /// Bytes that were compared, and sent if they differed.
    pub done: u64,
    /// All bytes of the volume that are in use.
    pub total: u64,
    /// Milliseconds since the beginning.
    pub millis: u64,
}

/// What a new member needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    /// Its id.
    pub client: ComputeId,
    /// How often the id was issued.
    pub incarnation: u32,
    /// The cluster's identity.
    pub cluster: u64,
    /// The length of its lease.
    pub lease_nanos: u64,
    /// The bytes of the table of volumes that it uses until its identity ends (rule E).
    pub table: Vec<u8>,
    /// The number and address of every host that is present.
    pub hosts: Vec<(u16, String)>,
}

/// What a process offers that wants to become a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostOffer {
    /// Where clients and other hosts reach it.
    pub address: String,
    /// Bytes of host memory for copies of volumes.
    pub memory_bytes: u64,
    /// The number of this start of the process: random, never 0. A repeated offer with the same number gets
    /// the same answer.
    pub boot: u64,
    /// The cluster that it means; 0 if it means whatever cluster answers.
    pub cluster: u64,
    /// Whether its memory is in files. Then it may come back with its copies after its process has ended.
    pub keeps: bool,
}

/// The answer to an offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The cluster's identity.
    pub cluster: u64,
    /// The number of the new host.
    pub host: u16,
    /// Its incarnation.
    pub incarnation: u32,
    /// Its number in the group.
    pub node: u64,
    /// The settings of the cluster, which `sherman-memory-server` encodes and decodes.
    pub settings: Vec<u8>,
    /// All hosts, by number.
    pub hosts: Vec<HostInfo>,
}

/// A store of a primary's CPU to host memory, for the other copies of the volume (T5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Store {
    /// These bytes.
    Bytes {
        /// The offset of the first one.
        offset: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// Zeros.
    Zeros {
        /// The offset of the first one.
        offset: u64,
        /// How many.
        len: u32,
    },
    /// The word of a client that has a redo area. A copy that has another word there has not zeroed the area
    /// for this client: it does so first.
    RedoArea {
        /// The offset of the word.
        offset: u64,
        /// The word.
        word: u64,
        /// The offset of the area.
        area: u64,
        /// Its bytes.
        len: u32,
    },
}
