//! The tree under the adversary.

mod adversary;
mod detached;
mod exhaustive;
mod growth;
mod records;
mod round_trips;
