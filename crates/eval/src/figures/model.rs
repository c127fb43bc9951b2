//! The model of a figure: panels of curves or bars, tables, and claims of the paper with the measured values.

use serde::Serialize;

/// A figure or table of the paper, with the paper's numbers and the measured ones.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figure {
    /// Its name on the command line, and the name of its files.
    pub name: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// Its place in the paper, as in "Figure 10, §5.2".
    pub paper: &'static str,
    /// A description of the experiment and of the paper's findings, in one to three sentences.
    pub about: String,
    /// The plots.
    pub panels: Vec<Panel>,
    /// The tables.
    pub tables: Vec<Table>,
    /// The paper's numbers against the measured ones.
    pub claims: Vec<Claim>,
}

/// One plot.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Panel {
    /// Its heading.
    pub title: String,
    /// Bars or lines.
    pub kind: PanelKind,
    /// What the x axis says.
    pub x: Axis,
    /// What the y axis says.
    pub y: Axis,
    /// The curves. For bars, each series has one bar in every group.
    pub series: Vec<Series>,
}

/// How a panel is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum PanelKind {
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
    /// The name of the curve or bar.
    pub name: String,
    /// Whether the series is the paper's, which is drawn differently.
    pub paper: bool,
    /// Its points.
    pub points: Vec<Point>,
}

/// A point: the mean of several runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The position on the x axis.
    pub x: f64,
    /// The value.
    pub y: f64,
    /// The lowest value of the runs.
    pub least: f64,
    /// The highest value of the runs.
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

/// A number of the paper, and the measured one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Claim {
    /// Its key in the list of the paper's numbers, as in
    /// `ablation_write_intensive_skew.throughput_step.+combine`.
    pub key: String,
    /// The text of the claim.
    pub what: String,
    /// The paper's number.
    pub paper: f64,
    /// The measured number.
    pub measured: f64,
    /// The unit; empty for a ratio.
    pub unit: &'static str,
    /// Whether the claim is one of the ratios by which the model is judged.
    pub judged: bool,
}

impl Claim {
    /// Returns the factor between the two numbers: 1 if they agree, infinite if exactly one of them is zero.
    pub fn factor(&self) -> f64 {
        if self.paper == self.measured {
            return 1.0;
        }
        let ratio = self.measured / self.paper;
        if ratio > 1.0 { ratio } else { 1.0 / ratio }
    }
}
