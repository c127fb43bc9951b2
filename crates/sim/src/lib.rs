//! Sherman's deterministic world.
//!
//! One thread, virtual time, and an adversary that decides everything the fabric contract (`docs/FABRIC.md`, F1–F7) leaves
//! open: the order of a READ's units, when a WRITE lands, which WRITE overtakes which READ, how late a completion comes,
//! who runs next, who dies. A schedule is a sequence of picks; the same picks give the same events, bytes and trace hash.
//! How to use it for tests is in `docs/TESTING.md`.
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
//! | module | what |
//! |---|---|
//! | [`sim`] | [`Sim`]: make a world, join, spawn, run, rewind |
//! | [`endpoint`] | [`SimFabric`], [`SimEndpoint`], [`SimMemory`] |
//! | [`knobs`] | [`Knobs`]: what the adversary may do; [`Breach`]: what it must not, planted for tests of the contract |
//! | [`scheduler`] | [`Random`], [`Pct`], [`Exhaustive`], [`Replay`] |
//! | [`mod@explore`] | many schedules: all of a small world, or one per seed |
//! | [`choice`] | the events it chooses among |
//! | [`outcome`] | faults, and how runs end |
//! | [`trace`], [`atlas`] | the trace hash, recorded traces, and what their lines say |
//! | [`tasks`] | tasks and their handles |
//! | [`history`], [`linear`] | what clients were told, and whether an atomic map could have told them |
//! | [`tree`] | the tree under the adversary |
//! | `world` | the events themselves |

#![forbid(unsafe_code)]

pub mod atlas;
mod bounds;
pub mod choice;
pub mod endpoint;
pub mod explore;
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
pub mod tree;
mod world;

pub use atlas::Atlas;
pub use choice::{Actor, Choice, Kind};
pub use endpoint::{SimEndpoint, SimFabric, SimMemory};
pub use explore::{explore, for_seeds};
pub use knobs::{Breach, Knobs};
pub use scheduler::{Bounds, Exhaustive, Fair, Pct, Random, Recording, Replay, Report, Scheduler};
pub use sim::{Fault, Limits, Outcome, Run, Sim, SimConfig, Spawner, Stuck, Waiting};
pub use tasks::{TaskHandle, TaskName};
