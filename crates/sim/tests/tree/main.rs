//! The tree under the adversary.

mod adversary;
mod detached;
mod exhaustive;
mod growth;
mod round_trips;
