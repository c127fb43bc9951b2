//! Prints medians and ratios, as a table and as JSON.

use crate::{Transport, What};

/// The result of one window.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figure {
    /// Operations per second.
    pub(crate) rate: f64,
    /// Cores that the client used.
    pub(crate) client: f64,
    /// Cores that the server used.
    pub(crate) server: f64,
}

impl Figure {
    /// Returns the processor time of one operation in microseconds, on both sides together.
    fn cost(&self) -> f64 {
        (self.client + self.server) / self.rate * 1e6
    }
}

/// One row of the table.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) transport: Transport,
    pub(crate) depth: u64,
    pub(crate) what: What,
    pub(crate) figures: Vec<Figure>,
}

/// The ratios of a row to its bound.
struct Compared {
    to: &'static str,
    rate: f64,
    /// The ratio of processor time per operation.
    cost: f64,
}

impl Row {
    pub(crate) fn new(transport: Transport, depth: u64, what: What) -> Self {
        Self { transport, depth, what, figures: Vec::new() }
    }

    /// Returns the name of the row, such as `get_many`.
    pub(crate) fn name(&self) -> String {
        match self.what {
            What::BareBlocking => "bare loop, blocking".to_owned(),
            What::BareSpinning => "bare loop, spinning".to_owned(),
            What::Read => "READ 1 KiB".to_owned(),
            What::HotRead => "READ 1 KiB, hot".to_owned(),
            What::InsertLists => "lists of an insert".to_owned(),
            What::Get => "get".to_owned(),
            What::GetMany => "get_many".to_owned(),
            What::Insert => "insert".to_owned(),
            What::InsertMany => "insert_many".to_owned(),
            What::Redis { sets, bytes } => format!("Redis {} {bytes} B", if sets { "SET" } else { "GET" }),
        }
    }

    fn sorted(&self) -> Vec<Figure> {
        let mut sorted = self.figures.clone();
        sorted.sort_by(|a, b| a.rate.total_cmp(&b.rate));
        sorted
    }

    /// Returns the median window, by rate.
    fn median(&self) -> Figure {
        let sorted = self.sorted();
        sorted.get(sorted.len() / 2).copied().unwrap_or_default()
    }

    /// Returns the rates of the slowest and the fastest window.
    fn spread(&self) -> (f64, f64) {
        let sorted = self.sorted();
        (sorted.first().map_or(0.0, |figure| figure.rate), sorted.last().map_or(0.0, |figure| figure.rate))
    }

    /// Returns the ratio to the row that bounds this one.
    fn compared(&self, rows: &[Self]) -> Option<Compared> {
        let (to, bounds): (_, &[What]) = match self.what {
            What::Read | What::HotRead => ("bare loop", &[What::BareBlocking, What::BareSpinning]),
            What::Get | What::GetMany => ("READ 1 KiB", &[What::Read]),
            What::Insert | What::InsertMany => ("lists", &[What::InsertLists]),
            _ => return None,
        };
        let like = |row: &&Self| {
            row.transport == self.transport && row.depth == self.depth && bounds.contains(&row.what)
        };
        let bounds: Vec<Figure> = rows.iter().filter(like).map(Self::median).collect();
        let rate = bounds.iter().map(|bound| bound.rate).reduce(f64::max)?;
        let cost = bounds.iter().map(Figure::cost).reduce(f64::min)?;
        let median = self.median();
        Some(Compared { to, rate: median.rate / rate, cost: median.cost() / cost })
    }
}

pub(crate) fn print_table(rows: &[Row]) {
    println!(
        "| | depth | | per second | slowest–fastest | CPU client | CPU server | CPU µs each | \
         ratio of rates | of CPU |"
    );
    println!("|---|--:|---|--:|--:|--:|--:|--:|---|--:|");
    for row in rows {
        let (median, (slowest, fastest)) = (row.median(), row.spread());
        let compared = row.compared(rows);
        let (ratio, cost) = compared.map_or_else(Default::default, |compared| {
            (format!("**{:.2}** of {}", compared.rate, compared.to), format!("{:.2}", compared.cost))
        });
        println!(
            "| {} | {} | {} | {:.0} | {slowest:.0}–{fastest:.0} | {:.2} | {:.2} | {:.2} | {ratio} | {cost} |",
            row.transport.name(),
            row.depth,
            row.name(),
            median.rate,
            median.client,
            median.server,
            median.cost(),
        );
    }
}

/// Returns the table and every window as JSON.
pub(crate) fn json(rows: &[Row]) -> String {
    let rows: Vec<serde_json::Value> = rows
        .iter()
        .map(|row| {
            let median = row.median();
            let compared = row.compared(rows);
            serde_json::json!({
                "transport": row.transport.name(),
                "depth": row.depth,
                "row": row.name(),
                "rate": median.rate,
                "client_cores": median.client,
                "server_cores": median.server,
                "cpu_micros": median.cost(),
                "windows": row.figures.iter().map(|figure| figure.rate).collect::<Vec<_>>(),
                "compared_to": compared.as_ref().map(|compared| compared.to),
                "ratio": compared.as_ref().map(|compared| compared.rate),
                "cpu_ratio": compared.as_ref().map(|compared| compared.cost),
            })
        })
        .collect();
    format!("{}\n", serde_json::json!({ "rows": rows }))
}
