//! Counters of an endpoint's use of its NIC.

/// Totals of one endpoint, in addition to the counts of verbs and bytes that every backend keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wire {
    /// Lists that were posted.
    pub lists: u64,
    /// Work requests in them.
    pub work_requests: u64,
    /// Calls that posted them: each rings the NIC's doorbell once.
    pub doorbells: u64,
    /// Requests that asked for a completion: the last of each list.
    pub signalled: u64,
    /// Completions that arrived, of any kind.
    pub completions: u64,
    /// WRITEs that travelled inside their request.
    pub inline_writes: u64,
    /// Bytes that were copied to or from registered memory.
    pub bytes_copied: u64,
    /// Lists that waited for room in a queue or in registered memory.
    pub waited: u64,
}
