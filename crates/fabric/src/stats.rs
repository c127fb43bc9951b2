//! The counters of one memory server, as its answer to [`Request::Stats`](crate::Request::Stats).
//!
//! They are totals since the server's process started: of work, of refusals by reason, and of the most
//! contended lock words. Only a backend whose memory servers are separate processes counts them.

use crate::Space;

/// A reading of one memory server's counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerStats {
    /// The server's index.
    pub server: u16,
    /// A random number that identifies this start of the process.
    pub boot: u64,
    /// Nanoseconds since the process began to serve.
    pub uptime_nanos: u64,
    /// Bytes of host memory.
    pub host_bytes: u64,
    /// Bytes of on-chip memory.
    pub on_chip_bytes: u64,
    /// Connections open now.
    pub connections: u64,
    /// Connections accepted so far.
    pub accepted: u64,
    /// Connections and frames refused so far, by reason. Reasons that never occurred may be missing.
    pub refused: Vec<RefusedCount>,
    /// Work lists executed completely.
    pub lists: u64,
    /// Work lists that failed, by a bad verb or a fence.
    pub lists_failed: u64,
    /// READ verbs.
    pub reads: u64,
    /// WRITE verbs.
    pub writes: u64,
    /// CAS verbs.
    pub cas: u64,
    /// CAS verbs that did not swap.
    pub cas_failed: u64,
    /// FAA verbs.
    pub faa: u64,
    /// Bytes fetched by READs.
    pub bytes_read: u64,
    /// Bytes stored by WRITEs.
    pub bytes_written: u64,
    /// Bytes received from clients, of all kinds.
    pub bytes_in: u64,
    /// Bytes sent to clients, of all kinds.
    pub bytes_out: u64,
    /// Control requests answered.
    pub calls: u64,
    /// Fences answered.
    pub fences: u64,
    /// Total number of member ids. This and the next five fields are 0 on a server that keeps no members.
    pub ids: u64,
    /// Member ids that no member has.
    pub ids_free: u64,
    /// Members that take part.
    pub members_live: u64,
    /// Members that left in order and whose records wait for recovery.
    pub members_leaving: u64,
    /// Members whose lease has expired.
    pub members_dead: u64,
    /// Members that must be recovered and that no live member recovers yet.
    pub members_waiting: u64,
    /// Total number of chunks.
    pub chunks: u64,
    /// Chunks in use.
    pub chunks_used: u64,
    /// Bytes of spans that members own.
    pub bytes_owned: u64,
    /// Bytes of spans that have no owner and may have free places.
    pub bytes_free: u64,
    /// The on-chip words whose CAS failed most often, the hottest first. The counts are approximate and need
    /// bounded space. A word's count may be too high by counts left over from other words, never too low.
    pub hottest: Vec<HotWord>,
}

/// The number of refusals for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefusedCount {
    /// The reason, as one word of lower-case letters and underscores.
    pub reason: String,
    /// The number of refusals.
    pub count: u64,
}

/// A contended word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HotWord {
    /// The word's memory.
    pub space: Space,
    /// The word's offset.
    pub offset: u64,
    /// Approximate number of failed CAS verbs on the word.
    pub failed: u64,
}
