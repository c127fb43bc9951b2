//! Every figure and table of the paper's evaluation and motivation, with ours beside.
//!
//! A figure is one file: which experiments it needs, how it is drawn from them, and which of the paper's numbers it is to be
//! compared with. Those numbers are all in [`paper`].

mod ablation;
mod ablation_skewed;
mod ablation_uniform;
mod cache_size;
mod hocl;
mod hot_keys;
mod internals;
mod key_size;
mod lock_collapse;
mod model;
pub mod paper;
mod parts;
mod plan;
mod range;
mod retries;
mod round_trips;
mod scalability;
mod sensitivity;
mod table_1;
mod table_2;
#[cfg(test)]
mod tests;
mod write_bytes;
mod write_size;

pub use model::{Axis, Claim, Figure, Kind, Panel, Point, Series, Table};
pub use plan::{Outcomes, Scale, Source};

/// Every figure, in the paper's order, and then our own.
pub fn all() -> Vec<Source> {
    vec![
        table_1::SOURCE,
        table_2::SOURCE,
        lock_collapse::SOURCE,
        write_size::SOURCE,
        ablation_skewed::SOURCE,
        ablation_uniform::SOURCE,
        range::SOURCE,
        scalability::SOURCE,
        retries::SOURCE,
        round_trips::SOURCE,
        write_bytes::SOURCE,
        key_size::SOURCE,
        cache_size::SOURCE,
        hocl::SOURCE,
        hot_keys::SOURCE,
        sensitivity::SOURCE,
    ]
}
