//! What a figure is: panels of curves or bars, tables, and claims of the paper with what was measured.

use serde::Serialize;

/// A figure or table of the paper, with the paper's numbers and ours.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Its name on the command line and of its files.
    pub name: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// Where the paper has it, as in "Figure 10, §5.2".
    pub paper: &'static str,
    /// What the experiment is, and what the paper says of it, in a sentence or three of our own.
    pub about: String,
    /// The plots.
    pub panels: Vec<Panel>,
    /// The tables.
    pub tables: Vec<Table>,
    /// The paper's numbers against ours.
    pub claims: Vec<Claim>,
}

/// One plot.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Panel {
    /// Its heading.
    pub title: String,
    /// Bars or lines.
    pub kind: Kind,
    /// What the x axis says.
    pub x: Axis,
    /// What the y axis says.
    pub y: Axis,
    /// The curves, or for bars one of each in every group.
    pub series: Vec<Series>,
}

/// How a panel is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Kind {
    /// Groups of bars; the x of a point is the index of its category.
    Bars,
    /// Lines with markers.
    Lines,
}

/// An axis.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Axis {
    /// Its label, with the unit.
    pub label: String,
    /// Whether it is logarithmic.
    pub log: bool,
    /// Names of the groups of bars, or of the x values of lines if they are not numbers.
    pub categories: Vec<String>,
}

/// One curve, or one kind of bar.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// What it is of.
    pub name: String,
    /// Whether it is the paper's: drawn apart.
    pub paper: bool,
    /// Its points.
    pub points: Vec<Point>,
}

/// A point: the mean of several runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Where.
    pub x: f64,
    /// How much.
    pub y: f64,
    /// The least of the runs.
    pub least: f64,
    /// The most.
    pub most: f64,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Table {
    /// Its heading.
    pub title: String,
    /// Names of columns.
    pub columns: Vec<String>,
    /// Rows of cells.
    pub rows: Vec<Vec<String>>,
}

/// A number of the paper, and ours.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Claim {
    /// Its key in the list of the paper's numbers, as in `ablation_write_intensive_skew.throughput_step.+combine`.
    pub key: String,
    /// What it says.
    pub what: String,
    /// The paper's number.
    pub paper: f64,
    /// Ours.
    pub measured: f64,
    /// The unit; empty for a ratio.
    pub unit: &'static str,
    /// Whether it is one of the ratios by which the model is judged.
    pub judged: bool,
}

impl Claim {
    /// By what factor the two differ: 1 if they agree, infinite if one of them is zero and the other is not.
    pub fn factor(&self) -> f64 {
        if self.paper == self.measured {
            return 1.0;
        }
        let ratio = self.measured / self.paper;
        if ratio > 1.0 { ratio } else { 1.0 / ratio }
    }
}
