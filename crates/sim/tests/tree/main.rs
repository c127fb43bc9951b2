//! The tree under the adversary.
#![allow(unreachable_pub, reason = "a test exports nothing")]

mod adversary;
mod catalog_races;
mod causes;
mod crashes;
mod detached;
mod drops;
mod ended;
mod exhaustive;
mod exhaustive_merge;
mod exploring;
mod growth;
mod lives;
mod lost;
mod records;
mod recoverers;
mod restarts;
mod round_trips;
mod scene;
#[path = "../support/mod.rs"]
mod support;
mod tidying;
mod values;
mod wedged;
