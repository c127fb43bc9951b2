//! Every figure and table of the paper's evaluation and motivation, with ours beside.

mod model;

pub use model::{Axis, Claim, Figure, Kind, Panel, Point, Series, Table};
