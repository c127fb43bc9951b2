//! The capabilities of a backend.

/// How a memory server can stop a client (F6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceMode {
    /// The server revokes the client's access. The client may still be alive.
    Revoke,
    /// Only the client's death stops it (shared memory).
    DeathOnly,
}

/// The capabilities of a backend. `core` adapts to them or returns `Unsupported`. It never assumes more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caps {
    /// F1: an aligned unit of this many bytes of [`Space::Host`](crate::Space::Host) is read and written
    /// atomically.
    pub atomic_unit: u32,
    /// F7: the unit at which a dying client's WRITE is cut.
    pub crash_unit: u32,
    /// Whether a whole verb is atomic, not only each of its units. No NIC promises it, but a simulator may.
    pub verb_atomic: bool,
    /// Whether CAS honours a mask, so that 16-bit lanes are possible.
    pub masked_cas: bool,
    /// F4: whether a plain WRITE may release a lane that a CAS took.
    pub write_releases: bool,
    /// Whether CAS and READ may share a list, where the READ sees the CAS's change (F3). True for every RC
    /// transport.
    pub lock_read: bool,
    /// Bytes of on-chip memory per server, or 0 if there is none.
    pub on_chip_bytes: u64,
    /// F6: how a client is fenced.
    pub fence: FenceMode,
    /// The shortest time, in nanoseconds, in which one write operation on a node can complete. 16 times this
    /// guards the paper's 4-bit versions (§4.4). 0 means that no bound is known and no guard is possible.
    pub shortest_write_nanos: u64,
    /// The maximum number of verbs in one list.
    pub max_verbs: u32,
    /// The maximum number of bytes that one READ or WRITE moves.
    pub max_transfer: u32,
}
