//! A deterministic simulator for Sherman.
//!
//! It has one thread, virtual time, and an adversary. The adversary decides everything that the fabric
//! contract (`docs/FABRIC.md`, F1–F7) leaves open. It picks the order of a READ's units, when a WRITE lands,
//! which WRITE overtakes which READ, and how late a completion comes. It also picks which task runs next and
//! which client dies. A schedule is a sequence of picks. The same picks give the same events, bytes and trace
//! hash. `docs/TESTING.md` explains how to use it for tests.
//!
//! ```
//! use sherman_fabric::{Counters, Fabric, Space, execute, Endpoint};
//! use sherman_sim::{Random, Sim, SimConfig};
//!
//! let mut sim = Sim::new(&SimConfig::default())?;
//! let compute_server = sim.join()?;
//! let endpoint = compute_server.endpoint()?;
//! let found = sim.spawn_on(&compute_server, 0, "reader", async move {
//!     let mut list = endpoint.list(0);
//!     let word = list.faa(Space::OnChip, 0, 1);
//!     execute(&endpoint, list, &Counters::default()).await.map(|list| list.old(word))
//! });
//! let run = sim.run(&mut Random::new(7));
//! assert!(run.is_done());
//! assert_eq!(found.take(), Some(Ok(0)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | contents |
//! |---|---|
//! | [`sim`] | [`Sim`]: create a world, join, spawn, run, rewind |
//! | [`endpoint`] | [`SimFabric`], [`SimEndpoint`], [`SimMemory`] |
//! | [`knobs`] | [`Knobs`]: the adversary's legal freedoms; [`Breach`]: illegal behaviour, planted for tests of the contract |
//! | [`scheduler`] | [`Random`], [`Pct`], [`Exhaustive`], [`Replay`] |
//! | [`mod@explore`] | many schedules: all of a small world, or one per seed |
//! | [`choice`] | the events that the adversary chooses among |
//! | [`outcome`] | faults, and how runs end |
//! | [`trace`], [`atlas`] | the trace hash, recorded traces, and the meaning of their lines |
//! | [`tasks`] | tasks and their handles |
//! | [`history`], [`linear`] | the answers that clients got, and whether an atomic map could have given them |
//! | [`tree`] | the tree under the adversary |
//! | `world` | the events themselves |

#![forbid(unsafe_code)]

pub mod atlas;
mod bounds;
pub mod choice;
pub mod endpoint;
pub mod explore;
mod flights;
mod hash;
pub mod history;
pub mod knobs;
pub mod linear;
mod memory;
pub mod nic;
pub mod outcome;
pub mod rng;
pub mod scheduler;
pub mod sim;
pub mod tasks;
pub mod trace;
// The unit tests of this crate need no tree. Without it they are built in a third of the time; `tests/` runs
// it.
#[cfg(not(test))]
pub mod tree;
mod world;

pub use atlas::Atlas;
pub use choice::{Actor, Choice, ChoiceKind};
pub use endpoint::{SimEndpoint, SimFabric, SimMemory, VolumeEndpoint};
pub use explore::{explore, for_seeds};
pub use knobs::{Breach, Knobs};
pub use scheduler::{Bounds, Exhaustive, Fair, Pct, Random, Recording, Replay, Report, Scheduler};
pub use sim::{
    Fault, GroupPlan, GroupSeen, HostCut, Inline, LaterLoss, Limits, Outcome, Run, Sim, SimConfig, Spawner,
    Stuck, Waiting, Weather, Wrong,
};
pub use tasks::{TaskHandle, TaskName};
