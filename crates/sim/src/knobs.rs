//! Settings of the adversary: its legal freedoms, and the planted breaches that the contract tests must
//! catch.

use crate::rng::Rng;
use sherman_fabric::{Caps, FenceMode};

/// A rule that is broken on purpose. Breaches only test the tests: the contract suite must find each of them
/// (`docs/FABRIC.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breach {
    /// F1: units tear at 8 bytes while [`Caps`] still promises `atomic_unit`.
    TornUnit,
    /// F2: a READ may return the contents of a line before its last overwrite, however long ago that was.
    StaleRead,
    /// F3: WRITEs of one queue pair land in any order.
    WritesReordered,
    /// F3: a READ does not wait for earlier WRITEs and atomics of its queue pair.
    ReadPasses,
    /// F4: an atomic is a load and a store, and any event may happen in between.
    SplitAtomic,
    /// E5: a promoted copy is open at once.
    NeverClosed,
    /// E6, L2: volumes open although a silent client may still count on its lease.
    OpenedBeforeLeases,
    /// L2: the control state declares a client dead after an eighth of its lease.
    LeaseTooShort,
    /// E1: the control state serves identities of older epochs, and renews their leases.
    OldEpochServed,
    /// T1: a client that joins gets the table of an older epoch.
    StaleTable,
    /// T5: a primary's CPU answers before the backup has its stores.
    CpuAnswersEarly,
    /// X1: a client is fenced at the primary alone.
    FencedAtPrimary,
    /// J4: a host copies the last differences while recoverers still write.
    CopiedBeforeQuiet,
    /// J4: a host takes what it copied while clients wrote for a complete copy.
    TrustsFirstCopy,
    /// J5: the control state names a copy before its host has settled it.
    OpenedUnsettled,
    /// T3: a host takes the remains of a dropped copy for a complete one.
    DroppedCopyReused,
    /// T5, J4: a primary's CPU does not send its stores to a copy that was made again.
    MakingNotMirrored,
    /// A host greets clients of a table that its node has learnt, before it has carried the table out. Needs
    /// a control group.
    ServesEarly,
    /// T5: a host makes the stores of a deposed primary on a copy that it has promoted. Needs a control
    /// group.
    StoresAfterPromotion,
    /// J4: as [`TrustsFirstCopy`](Self::TrustsFirstCopy), for copies that move alone.
    MoveTrustsFirstCopy,
    /// J7: a copy that moves gets the lanes of the primary, and keeps them when it is promoted.
    MovedLanesKept,
    /// J7: a host drops a copy that has moved before a table names the new one.
    SourceDroppedEarly,
    /// I4: a host that was declared lost comes back with its copies, and they count as complete.
    LostHostTrusted,
    /// I4: a host that comes back has lost its lanes, and its volumes stay open.
    LanesLostOnReturn,
    /// I4, P3: a host that comes back opens volumes that are closed for recovery.
    OpenedByReturn,
}

impl Breach {
    /// The breaches of replication.
    pub const OF_REPLICATION: &[Self] = &[
        Self::NeverClosed,
        Self::OpenedBeforeLeases,
        Self::LeaseTooShort,
        Self::OldEpochServed,
        Self::StaleTable,
        Self::CpuAnswersEarly,
        Self::FencedAtPrimary,
        Self::CopiedBeforeQuiet,
        Self::TrustsFirstCopy,
        Self::OpenedUnsettled,
        Self::DroppedCopyReused,
        Self::MakingNotMirrored,
        Self::MoveTrustsFirstCopy,
        Self::MovedLanesKept,
        Self::SourceDroppedEarly,
        Self::LostHostTrusted,
        Self::LanesLostOnReturn,
        Self::OpenedByReturn,
    ];

    /// The breaches of hosts in a control group.
    pub const OF_GROUPS: &[Self] = &[Self::ServesEarly, Self::StoresAfterPromotion];
}

/// The adversary's settings. Every field except `breach` selects among legal behaviours. [`Knobs::default`]
/// allows the full freedom of the contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Knobs {
    /// F1: size of an atomic unit in bytes. It is a power of two and at least 8.
    pub unit: u32,
    /// A whole READ or WRITE is one event. `caps.verb_atomic` has the same value.
    pub verb_atomic: bool,
    /// F3: a WRITE that is not fenced may overtake earlier READs and atomics.
    pub overtake: bool,
    /// The units of one WRITE land in any order, not only ascending.
    pub write_units_any_order: bool,
    /// Time may jump to the next timer while other events are enabled. This models a client that is slow for
    /// no visible reason.
    pub time_jumps: bool,
    /// Whether CAS honours masks. `caps.masked_cas` has the same value.
    pub masked_cas: bool,
    /// F4: whether atomics exclude plain WRITEs. If not, an atomic is a load event and a store event. Other
    /// atomics of the server wait in between, READs and WRITEs do not. `caps.write_releases` has the same
    /// value.
    pub write_releases: bool,
    /// Virtual nanoseconds that every event takes.
    pub step_nanos: u64,
    /// A rule that is broken on purpose.
    pub breach: Option<Breach>,
}

impl Default for Knobs {
    fn default() -> Self {
        Self {
            unit: 64,
            verb_atomic: false,
            overtake: true,
            write_units_any_order: true,
            time_jumps: false,
            masked_cas: true,
            write_releases: true,
            step_nanos: 100,
            breach: None,
        }
    }
}

impl Knobs {
    /// Draws legal knobs from `seed`. Each freedom is on in some seeds and off in others, because a freedom
    /// that is always on can hide a bug that needs it off. The unit stays at 64 bytes and the lane width is
    /// that of [`Knobs::default`], so that one tree image serves every seed.
    pub fn swarm(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x5741_524d);
        Self {
            overtake: rng.one_in(2),
            write_units_any_order: rng.one_in(2),
            time_jumps: rng.one_in(4),
            step_nanos: [20, 100, 100, 1_000][rng.below(4)],
            ..Self::default()
        }
    }

    /// The same as [`swarm`](Self::swarm), for schedules with faults: the time per event is fixed, because
    /// leases are measured in it.
    pub fn swarm_with_crashes(seed: u64) -> Self {
        let swarm = Self::swarm(seed);
        Self {
            step_nanos: Self::default().step_nanos,
            time_jumps: swarm.time_jumps && seed.is_multiple_of(2),
            ..swarm
        }
    }

    /// Returns these knobs with a planted breach.
    pub fn with_breach(self, breach: Breach) -> Self {
        Self { breach: Some(breach), ..self }
    }

    /// Returns the capabilities that an endpoint under these knobs reports.
    pub fn caps(&self, on_chip_bytes: u64) -> Caps {
        Caps {
            atomic_unit: self.unit,
            crash_unit: self.unit,
            verb_atomic: self.verb_atomic,
            masked_cas: self.masked_cas,
            write_releases: self.write_releases,
            lock_read: true,
            on_chip_bytes,
            fence: FenceMode::Revoke,
            // Every change of a node takes at least one landing event.
            shortest_write_nanos: self.step_nanos,
            max_verbs: 128,
            max_transfer: 1 << 18,
        }
    }

    /// Returns the shift that turns an offset into a unit number.
    pub(crate) fn unit_shift(&self) -> u32 {
        if self.breach == Some(Breach::TornUnit) {
            3
        } else if self.verb_atomic {
            63
        } else {
            self.unit.max(8).ilog2()
        }
    }

    /// Whether atomics take two events.
    pub(crate) fn splits_atomics(&self) -> bool {
        !self.write_releases || self.breach == Some(Breach::SplitAtomic)
    }
}
