//! A comparison of tree indexes over RDMA (table 2, §3.1).

use super::model::Figure;
use super::parts::table;
use super::plan::{Outcomes, Scale, Source};

/// The figure.
pub(super) const SOURCE: Source = Source { name: "table-2", title: "Tree indexes over RDMA", draw };

const COLUMNS: [&str; 5] = ["index", "reads", "writes", "no change of hardware", "disaggregated memory"];
const ROWS: [[&str; 5]; 6] = [
    ["Cell", "medium", "medium", "yes", "no"],
    ["FaRM-Tree", "high", "high", "yes", "no"],
    ["FG", "medium", "low", "yes", "yes"],
    ["HT-Tree", "high", "high", "no", "yes"],
    ["Sherman", "high", "high", "yes", "yes"],
    ["ours", "high", "high", "yes", "yes"],
];

fn draw(_: &Scale, _: &dyn Outcomes) -> Figure {
    Figure {
        paper: "Table 2, §3.1",
        about: "How the paper rates Sherman and earlier indexes; nothing is measured here. Cell and \
                FaRM-Tree leave writes to the server's CPU, which disaggregated memory does not have. \
                HT-Tree needs NICs that do not exist, and was never built. The last row is our own \
                judgement of this project, based on the figures below."
            .to_owned(),
        tables: vec![table(
            "Tree indexes over RDMA",
            &COLUMNS,
            ROWS.iter().map(|row| row.iter().map(|&cell| cell.to_owned()).collect()).collect(),
        )],
        ..Figure::default()
    }
}
