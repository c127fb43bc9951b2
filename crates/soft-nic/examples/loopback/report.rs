//! Medians, as a table or as JSON.

use crate::{Operation, Transport};

/// What one window showed.
#[derive(Clone, Copy)]
pub(crate) struct Figure {
    /// Operations per second.
    pub(crate) rate: f64,
    /// Cores that the client used.
    pub(crate) client: f64,
    /// Cores that the other side used.
    pub(crate) server: f64,
}

/// One kind of operation over one kind of socket.
pub(crate) struct Row {
    pub(crate) transport: Transport,
    pub(crate) operation: Operation,
    pub(crate) depth: u64,
    pub(crate) blocking: Vec<Figure>,
    pub(crate) spinning: Vec<Figure>,
    pub(crate) nic: Vec<Figure>,
}

impl Row {
    pub(crate) fn new(transport: Transport, operation: Operation, depth: u64) -> Self {
        Self { transport, operation, depth, blocking: Vec::new(), spinning: Vec::new(), nic: Vec::new() }
    }

    fn transport(&self) -> &'static str {
        match self.transport {
            Transport::Tcp => "tcp",
            Transport::Unix => "unix",
        }
    }

    fn operation(&self) -> &'static str {
        match self.operation {
            Operation::Read => "READ 1 KiB",
            Operation::Write => "WRITE 64 B",
            Operation::Cas => "CAS",
        }
    }

    /// The soft NIC's rate in parts of the better bare loop's.
    fn ratio(&self) -> f64 {
        median(&self.nic).rate / median(&self.blocking).rate.max(median(&self.spinning).rate)
    }
}

/// The window in the middle, by rate.
fn median(figures: &[Figure]) -> Figure {
    let mut sorted = figures.to_vec();
    sorted.sort_by(|a, b| a.rate.total_cmp(&b.rate));
    sorted.get(sorted.len() / 2).copied().unwrap_or(Figure { rate: 0.0, client: 0.0, server: 0.0 })
}

pub(crate) fn print_table(rows: &[Row]) {
    println!("operations per second (µs each when alone), medians; CPU: client + server, % of a core");
    println!(
        "{:<5} {:<11} {:>5} | {:>19} {:>19} | {:>19} {:>9} | {:>6}",
        "", "", "depth", "bare, blocking", "bare, spinning", "soft NIC", "CPU", "ratio"
    );
    for row in rows {
        let cell = |figures: &[Figure]| {
            let rate = median(figures).rate;
            if row.depth == 1 { format!("{rate:.0} ({:.1} µs)", 1e6 / rate) } else { format!("{rate:.0}") }
        };
        let nic = median(&row.nic);
        println!(
            "{:<5} {:<11} {:>5} | {:>19} {:>19} | {:>19} {:>3.0} + {:>3.0} | {:>6.2}",
            row.transport(),
            row.operation(),
            row.depth,
            cell(&row.blocking),
            cell(&row.spinning),
            cell(&row.nic),
            nic.client * 100.0,
            nic.server * 100.0,
            row.ratio(),
        );
    }
}

pub(crate) fn print_json(rows: &[Row]) {
    let figure = |figures: &[Figure]| {
        let Figure { rate, client, server } = median(figures);
        format!("{{\"rate\":{rate:.0},\"client_cores\":{client:.3},\"server_cores\":{server:.3}}}")
    };
    let rows: Vec<String> = rows
        .iter()
        .map(|row| {
            format!(
                "{{\"transport\":\"{}\",\"operation\":\"{}\",\"depth\":{},\"bare_blocking\":{},\"bare_spinning\":{},\
                 \"soft_nic\":{},\"ratio\":{:.3}}}",
                row.transport(),
                row.operation(),
                row.depth,
                figure(&row.blocking),
                figure(&row.spinning),
                figure(&row.nic),
                row.ratio(),
            )
        })
        .collect();
    println!("{{\"rows\":[{}]}}", rows.join(","));
}
