//! The Sherman tree over one-sided verbs, in the paper's reading order.
//!
//! Generic over a [`sherman_fabric::Endpoint`]: no I/O, no clock, no ambient randomness and no `unsafe`, so that one
//! source runs inline on embedded memory, over a network and unit by unit under the simulator's adversary.
#![forbid(unsafe_code)]

pub mod lock;
pub mod node;
mod sync;
