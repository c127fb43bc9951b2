//! The tree under the adversary: scenarios, their schedules, and the checks after each.
//!
//! One schedule is a world with a loaded tree and a few compute servers with a few threads each. They run a
//! handful of operations on a handful of hot keys. Its seed decides everything: the operations of each
//! client, the age of the caches, the adversary's knobs and every pick. After it, one checker per property
//! runs:
//!
//! - every operation ended, and the only errors are deadlines (*progress*);
//! - the history, with a scan at the end, is linearizable key by key (*linear*);
//! - scans keep order and bounds, and their result for each key is linearizable too (*ranges*, *linear*);
//! - every value read was written as a whole (*values*);
//! - the tree at rest keeps its invariants (*walk*);
//! - every lane is free, locally and globally (*lanes*);
//! - every redo slot is free and every record cleared (*redo*);
//! - every place for a node is either part of the tree or free (*space*).
//!
//! In schedules with faults ([`Scenario::crashes`], [`Mishap`]) compute servers keep leases and recover each
//! other. At the end an inspector recovers the remaining dead members. Then these properties must hold too:
//!
//! - an inspector can recover every dead member (*recovery*), and leaves none partly removed (*members*);
//! - if clients use the catalog, creations and drops of trees match the answers that clients got (*catalog*);
//! - under a fair scheduler, no healthy member is declared dead (*health*).

mod case;
mod catalog;
mod check;
mod counts;
pub mod crash;
mod drops;
mod explored;
mod fate;
mod fixture;
mod gets;
mod hunt;
mod inline;
mod inspect;
mod lives;
mod many;
mod members;
mod mishap;
mod mix;
mod scenario;
mod schedule;
mod script;
mod shrink;
mod trouble;

pub use case::Case;
pub use check::{Property, Violation};
pub use drops::Drops;
pub use explored::{Causes, Crashes, Explored, Seen, Shares};
pub use fixture::{Compute, Fixture, join};
pub use hunt::Hunt;
#[cfg(feature = "mutants")]
pub use hunt::{Directed, DirectedSchedule};
pub use lives::Lives;
pub use many::Many;
pub use mishap::Mishap;
pub use mix::{Asked, Mix};
pub use scenario::{Caches, Scenario, Shape};
pub use schedule::Explorer;
pub use shrink::Shrunk;
pub use trouble::Trouble;
