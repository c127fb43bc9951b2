//! What one memory server counts, as it tells whoever asks ([`Request::Stats`](crate::Request::Stats)).
//!
//! Totals since the process that serves the memory was started: of work, of refusals by reason, and of the lock words
//! that were fought over most. Only a backend whose memory servers are processes of their own counts them.

use crate::Space;

/// A reading of one memory server's counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerStats {
    /// The server's index.
    pub server: u16,
    /// Which start of the process this is: a random number.
    pub boot: u64,
    /// For how long it has been serving, in nanoseconds.
    pub uptime_nanos: u64,
    /// Bytes of host memory.
    pub host_bytes: u64,
    /// Bytes of on-chip memory.
    pub on_chip_bytes: u64,
    /// Connections open now.
    pub connections: u64,
    /// Connections accepted so far.
    pub accepted: u64,
    /// Connections and frames refused so far, by reason; reasons that never occurred may be left out.
    pub refused: Vec<RefusedCount>,
    /// Work lists executed to their end.
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
    /// Member ids there are; 0 on a server that keeps no members, as the next five.
    pub ids: u64,
    /// Member ids that nobody has.
    pub ids_free: u64,
    /// Members that take part.
    pub members_live: u64,
    /// Members that left in order and whose records wait for recovery.
    pub members_leaving: u64,
    /// Members whose lease has ended.
    pub members_dead: u64,
    /// Members that must be recovered and that no live member recovers yet.
    pub members_waiting: u64,
    /// Chunks there are.
    pub chunks: u64,
    /// Chunks in use.
    pub chunks_used: u64,
    /// Bytes of spans that members own.
    pub bytes_owned: u64,
    /// Bytes of spans that nobody owns and that may have free places.
    pub bytes_free: u64,
    /// On-chip words whose CAS failed most often, the hottest first. Counted approximately, in bounded space: a word's
    /// count may be too high by what other words left behind, never too low.
    pub hottest: Vec<HotWord>,
}

/// How often something was refused for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefusedCount {
    /// The reason, as one word of lower-case letters and underscores.
    pub reason: String,
    /// How often.
    pub count: u64,
}

/// A word that clients fight over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HotWord {
    /// Its memory.
    pub space: Space,
    /// Its offset there.
    pub offset: u64,
    /// About how many CAS failed on it.
    pub failed: u64,
}
