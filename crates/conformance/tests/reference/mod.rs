//! Two small backends to test the contract's suite. [`Seeded`] is seeded and single-threaded. It uses the
//! freedoms that F1–F7 leave, and can have a [`Bug`]. [`Locked`] has one mutex around everything, on real
//! threads.

mod bug;
mod endpoint;
mod locked;
mod memory;
mod runner;
mod stream;
mod world;

pub use bug::Bug;
pub use locked::Locked;
pub use runner::Seeded;

use sherman_conformance::contract::Scratch;
use sherman_fabric::{Caps, FenceMode};

/// Bytes of host memory per server.
pub const HOST_BYTES: u64 = 8192;
/// Bytes of on-chip memory per server.
pub const CHIP_BYTES: u64 = 256;

/// The caps of a backend that can do everything.
pub fn full_caps() -> Caps {
    Caps {
        atomic_unit: 64,
        crash_unit: 64,
        verb_atomic: false,
        masked_cas: true,
        write_releases: true,
        lock_read: true,
        on_chip_bytes: CHIP_BYTES,
        fence: FenceMode::Revoke,
        shortest_write_nanos: 0,
        max_verbs: 16,
        max_transfer: 4096,
    }
}

/// The caps of a backend that can do as little as the contract allows.
pub fn least_caps() -> Caps {
    Caps {
        atomic_unit: 8,
        crash_unit: 8,
        masked_cas: false,
        write_releases: false,
        lock_read: false,
        on_chip_bytes: 0,
        fence: FenceMode::DeathOnly,
        ..full_caps()
    }
}

/// Scratch memory in the middle of each server's memory.
pub fn scratch(caps: &Caps, servers: u16) -> Scratch {
    let on_chip = if caps.on_chip_bytes == 0 { 0..0 } else { 64..192 };
    Scratch { servers, host_bytes: HOST_BYTES, host: 1024..5120, on_chip }
}
