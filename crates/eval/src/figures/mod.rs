//! Every figure and table of the paper's evaluation and motivation, with ours beside.

mod model;
mod plan;

pub use model::{Axis, Claim, Figure, Kind, Panel, Point, Series, Table};
pub use plan::{Outcomes, Scale, Source};

/// Every figure, in the paper's order, and then our own.
pub fn all() -> Vec<Source> {
    Vec::new()
}
