//! Derives from a device's features what clients may expect of it. The decisions are pure, so tests cover
//! devices that are not available.
//!
//! **Lanes.** Without masked CAS a lane is a word of 64 bits. A plain WRITE releases such a lane: a CAS that
//! finds it taken changes nothing, so the WRITE cannot be lost. With 16-bit lanes, a CAS that takes a
//! *neighbour* rewrites the word. In host memory the NIC's read and write are two transfers, so a WRITE in
//! between would be lost. In the device's own memory they are one step. So 16-bit lanes are released by WRITE
//! only there.

use crate::options::{DEPTH, RD_ATOMIC, VerbsOptions};
use sherman_fabric::{Caps, FenceMode};
use std::fmt;

/// Bytes of a cache line, the unit of F1.
pub const LINE: u32 = 64;
/// The most verbs of a list.
pub const MAX_VERBS: u32 = 64;
/// The most bytes of a READ or WRITE.
pub const MAX_TRANSFER: u32 = 1 << 20;

/// The features of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Whether its CAS and FAA are atomic at all.
    pub atomics: bool,
    /// READs and atomics of the other side that one queue pair serves at a time.
    pub serves_rd_atomic: u32,
    /// READs and atomics of its own that one queue pair may have in flight.
    pub starts_rd_atomic: u32,
    /// Bytes of its own memory that it offers; 0 if it has none.
    pub device_memory: u64,
    /// Work requests that one queue holds.
    pub max_work: u32,
    /// Entries that one completion queue holds.
    pub max_completions: u32,
    /// Bytes of one READ or WRITE.
    pub max_message: u32,
    /// Whether a test of masked CAS on the device succeeded.
    pub masked_cas: bool,
}

/// A feature that a device lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lack {
    /// CAS and FAA.
    Atomics,
    /// At least one READ or atomic in flight.
    RdAtomic,
    /// Queues as long as the longest list.
    Queue,
    /// Messages as long as the longest verb.
    Message,
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Atomics => "it has no atomic verbs",
            Self::RdAtomic => "it allows no READ or atomic in flight",
            Self::Queue => "its queues are shorter than the longest list",
            Self::Message => "its longest message is shorter than the longest READ",
        })
    }
}

/// Where lock lanes lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Chip {
    /// Nowhere: there is no on-chip memory.
    None = 0,
    /// In host memory, because the device's memory cannot or must not be used.
    Host = 1,
    /// In the device's memory.
    Device = 2,
}

impl Chip {
    /// The place with this number on the wire.
    pub fn from_code(code: u8) -> Option<Self> {
        [Self::None, Self::Host, Self::Device].into_iter().find(|chip| *chip as u8 == code)
    }
}

impl Facts {
    /// Whether the device can be used at all.
    pub fn check(&self) -> Result<(), Lack> {
        let lacks = [
            (self.atomics, Lack::Atomics),
            (self.serves_rd_atomic > 0 && self.starts_rd_atomic > 0, Lack::RdAtomic),
            (self.max_work >= MAX_VERBS && self.max_completions >= MAX_VERBS, Lack::Queue),
            (self.max_message >= MAX_TRANSFER, Lack::Message),
        ];
        lacks.into_iter().find(|(has, _)| !has).map_or(Ok(()), |(_, lack)| Err(lack))
    }

    /// Where `bytes` bytes of lock lanes go.
    pub fn chip(&self, bytes: u64, options: &VerbsOptions) -> Chip {
        match bytes {
            0 => Chip::None,
            _ if self.device_memory >= bytes && !options.chip_in_host => Chip::Device,
            _ => Chip::Host,
        }
    }

    /// Whether lanes in a lock table of `bytes` bytes can have 16 bits each and be released by a plain WRITE.
    pub fn narrow_lanes(&self, bytes: u64, options: &VerbsOptions) -> bool {
        self.masked_cas && self.chip(bytes, options) == Chip::Device
    }

    /// The capabilities of a server on this device, whose lanes are `narrow` (16 bits) or not. With wide
    /// lanes no client needs a masked CAS, and the server promises none.
    pub fn caps(&self, on_chip_bytes: u64, chip: Chip, narrow: bool) -> Caps {
        let masked_cas = self.masked_cas && narrow;
        Caps {
            atomic_unit: LINE,
            crash_unit: LINE,
            verb_atomic: false,
            masked_cas,
            write_releases: !masked_cas || chip == Chip::Device,
            lock_read: true,
            on_chip_bytes,
            fence: FenceMode::Revoke,
            shortest_write_nanos: 0,
            max_verbs: MAX_VERBS,
            max_transfer: MAX_TRANSFER,
        }
    }

    /// How many READs and atomics a queue pair may have in flight: the client's offer, or with `serves` the
    /// server's limit.
    pub fn rd_atomic(&self, serves: bool, options: &VerbsOptions) -> u8 {
        let own = if serves { self.serves_rd_atomic } else { self.starts_rd_atomic };
        let limit = options.rd_atomic.unwrap_or(RD_ATOMIC);
        u8::try_from(own).unwrap_or(u8::MAX).min(limit)
    }

    /// How deep each of `queues` queues that share a completion queue may be. After a failure every request
    /// leaves one completion, and none may be lost.
    pub fn depth(&self, queues: u32) -> Result<u32, Lack> {
        let depth = DEPTH.min(self.max_work).min(self.max_completions / queues.max(1));
        if depth < MAX_VERBS { Err(Lack::Queue) } else { Ok(depth) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Soft-RoCE, with the values that it reports.
    fn soft_roce() -> Facts {
        Facts {
            atomics: true,
            serves_rd_atomic: 128,
            starts_rd_atomic: 128,
            device_memory: 0,
            max_work: 1 << 20,
            max_completions: 32_767,
            max_message: 1 << 23,
            masked_cas: false,
        }
    }

    /// A NIC with all features.
    fn complete() -> Facts {
        Facts {
            device_memory: 256 << 10,
            masked_cas: true,
            serves_rd_atomic: 16,
            starts_rd_atomic: 16,
            ..soft_roce()
        }
    }

    const CHIP: u64 = 256 << 10;

    #[test]
    fn lanes_are_where_they_fit_and_release_by_write_only_where_none_is_lost() {
        let any = VerbsOptions::default();
        for (facts, bytes, narrow, chip, masked, releases) in [
            (soft_roce(), CHIP, false, Chip::Host, false, true),
            (soft_roce(), CHIP, true, Chip::Host, false, true),
            (soft_roce(), 0, false, Chip::None, false, true),
            (complete(), CHIP, true, Chip::Device, true, true),
            (complete(), CHIP, false, Chip::Device, false, true),
            (complete(), CHIP + 8, true, Chip::Host, true, false),
            (complete(), CHIP + 8, false, Chip::Host, false, true),
            (Facts { device_memory: 0, ..complete() }, CHIP, true, Chip::Host, true, false),
            (Facts { masked_cas: false, ..complete() }, CHIP, false, Chip::Device, false, true),
        ] {
            assert_eq!(facts.chip(bytes, &any), chip, "{facts:?}");
            let caps = facts.caps(bytes, chip, narrow);
            assert_eq!((caps.masked_cas, caps.write_releases, caps.on_chip_bytes), (masked, releases, bytes));
            assert_eq!((caps.atomic_unit, caps.crash_unit, caps.fence), (64, 64, FenceMode::Revoke));
            assert!(!caps.verb_atomic && caps.lock_read);
            // A server that may choose never chooses lanes that a WRITE cannot release.
            assert!(facts.caps(bytes, chip, facts.narrow_lanes(bytes, &any)).write_releases);
        }
        assert!(complete().narrow_lanes(CHIP, &any) && !complete().narrow_lanes(CHIP + 8, &any));
        let in_host = VerbsOptions { chip_in_host: true, ..any };
        assert_eq!(
            (complete().chip(CHIP, &in_host), complete().narrow_lanes(CHIP, &in_host)),
            (Chip::Host, false)
        );
    }

    #[test]
    fn what_cannot_do_the_least_is_not_used() {
        assert_eq!((soft_roce().check(), complete().check()), (Ok(()), Ok(())));
        for (facts, lack) in [
            (Facts { atomics: false, ..soft_roce() }, Lack::Atomics),
            (Facts { serves_rd_atomic: 0, ..soft_roce() }, Lack::RdAtomic),
            (Facts { starts_rd_atomic: 0, ..soft_roce() }, Lack::RdAtomic),
            (Facts { max_work: 63, ..soft_roce() }, Lack::Queue),
            (Facts { max_completions: 63, ..soft_roce() }, Lack::Queue),
            (Facts { max_message: MAX_TRANSFER - 1, ..soft_roce() }, Lack::Message),
        ] {
            assert_eq!(facts.check(), Err(lack));
            assert!(!lack.to_string().is_empty());
        }
    }

    #[test]
    fn reads_in_flight_are_what_both_and_the_options_allow() {
        let any = VerbsOptions::default();
        let one = VerbsOptions { rd_atomic: Some(1), ..VerbsOptions::default() };
        let poor = Facts { serves_rd_atomic: 1, starts_rd_atomic: 4, ..soft_roce() };
        assert_eq!((soft_roce().rd_atomic(true, &any), soft_roce().rd_atomic(false, &one)), (RD_ATOMIC, 1));
        assert_eq!((poor.rd_atomic(true, &any), poor.rd_atomic(false, &any)), (1, 4));
        let many = Facts { serves_rd_atomic: 1 << 20, ..soft_roce() };
        let most = VerbsOptions { rd_atomic: Some(200), ..VerbsOptions::default() };
        assert_eq!(many.rd_atomic(true, &most), 200);
    }

    #[test]
    fn queues_share_a_completion_queue_that_never_overflows() {
        assert_eq!(soft_roce().depth(1), Ok(DEPTH));
        let few = Facts { max_completions: 300, ..soft_roce() };
        assert_eq!((few.depth(1), few.depth(3), few.depth(4)), (Ok(DEPTH), Ok(100), Ok(75)));
        assert_eq!(few.depth(5), Err(Lack::Queue));
    }
}
