//! The tree under the adversary: scenarios, their schedules, and everything that is checked after each.
//!
//! One schedule is a world with a loaded tree, a few compute servers with a few threads each, and a handful of operations on
//! a handful of hot keys. Its seed decides all of it: who asks what, how old the caches are, the adversary's knobs and
//! every pick. After it, one checker per property:
//!
//! - every operation ended, and no error but a deadline's (*progress*);
//! - the history, with a scan at the end, is linearizable key by key (*linear*);
//! - scans keep order and bounds, and what they say of each key is linearizable too (*ranges*, *linear*);
//! - every value read is one that was written, whole (*values*);
//! - the tree at rest keeps its invariants (*walk*);
//! - every lane is free, locally and globally (*lanes*);
//! - every redo slot is free and every record cleared (*redo*);
//! - every place for a node is either part of the tree or free (*space*).
//!
//! Where things go wrong ([`Scenario::crashes`], [`Mishap`]) compute servers keep leases and recover each other during the
//! schedule, and an inspector recovers whoever is left to be. Then also:
//!
//! - an inspector can recover every dead member (*recovery*), and leaves none half gone (*members*);
//! - where clients use the catalog, trees come and go as they were told (*catalog*);
//! - under a fair scheduler, no member is taken for dead that nothing happened to (*health*).

mod case;
mod catalog;
mod check;
mod company;
mod counts;
pub mod crash;
mod explored;
mod hunt;
mod inspect;
mod lab;
mod lives;
mod many;
mod mishap;
mod mix;
mod scenario;
mod schedule;
mod script;
mod shrink;

pub use case::Case;
pub use check::{Property, Violation};
pub use explored::{Causes, Crashes, Explored, Seen, Shares};
pub use hunt::Hunt;
pub use lab::{Compute, Lab, join};
pub use lives::Lives;
pub use many::Many;
pub use mishap::Mishap;
pub use mix::{Asked, Mix};
pub use scenario::{Caches, Scenario, Shape};
pub use schedule::Explorer;
pub use shrink::Shrunk;
