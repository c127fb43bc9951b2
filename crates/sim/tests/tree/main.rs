//! The tree under the adversary.

mod adversary;
mod crashes;
mod detached;
mod exhaustive;
mod exhaustive_merge;
mod growth;
mod lost;
mod records;
mod round_trips;
mod wedged;
