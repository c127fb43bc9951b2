//! Medians, as a table or as JSON.

use crate::{Operation, Transport};

/// The measurements of one window.
#[derive(Clone, Copy)]
pub(crate) struct Figure {
    /// Operations per second.
    pub(crate) rate: f64,
    /// Cores that the client used.
    pub(crate) client: f64,
    /// Cores that the other side used.
    pub(crate) server: f64,
}

impl Figure {
    /// Operations per second of processor time, of both sides together.
    fn per_core(&self) -> f64 {
        self.rate / (self.client + self.server)
    }
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

    /// The row's name, such as `tcp READ 1 KiB 64`.
    pub(crate) fn name(&self) -> String {
        format!("{} {} {}", self.transport(), self.operation(), self.depth)
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

    /// The soft NIC's operations per second of processor time, as a fraction of the better bare loop's.
    /// Expect this ratio where the processors have other work too.
    fn frugality(&self) -> f64 {
        median(&self.nic).per_core()
            / median(&self.blocking).per_core().max(median(&self.spinning).per_core())
    }

    /// The soft NIC's rate, as a fraction of the better bare loop's.
    fn ratio(&self) -> f64 {
        median(&self.nic).rate / median(&self.blocking).rate.max(median(&self.spinning).rate)
    }
}

/// The middle window when sorted by rate.
fn median(figures: &[Figure]) -> Figure {
    let mut sorted = figures.to_vec();
    sorted.sort_by(|a, b| a.rate.total_cmp(&b.rate));
    sorted.get(sorted.len() / 2).copied().unwrap_or(Figure { rate: 0.0, client: 0.0, server: 0.0 })
}

pub(crate) fn print_table(rows: &[Row]) {
    println!("operations per second (µs each when alone), medians; CPU: client + server, % of a core");
    println!(
        "{:<5} {:<11} {:>5} | {:>19} {:>19} | {:>19} {:>9} | {:>6} {:>8}",
        "", "", "depth", "bare, blocking", "bare, spinning", "soft NIC", "CPU", "ratio", "per core"
    );
    for row in rows {
        let cell = |figures: &[Figure]| {
            let rate = median(figures).rate;
            if row.depth == 1 { format!("{rate:.0} ({:.1} µs)", 1e6 / rate) } else { format!("{rate:.0}") }
        };
        let nic = median(&row.nic);
        println!(
            "{:<5} {:<11} {:>5} | {:>19} {:>19} | {:>19} {:>3.0} + {:>3.0} | {:>6.2} {:>8.2}",
            row.transport(),
            row.operation(),
            row.depth,
            cell(&row.blocking),
            cell(&row.spinning),
            cell(&row.nic),
            nic.client * 100.0,
            nic.server * 100.0,
            row.ratio(),
            row.frugality(),
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
                "{{\"transport\":\"{}\",\"operation\":\"{}\",\"depth\":{},\"bare_blocking\":{},\
                 \"bare_spinning\":{},\
                 \"soft_nic\":{},\"ratio\":{:.3},\"ratio_per_core\":{:.3}}}",
                row.transport(),
                row.operation(),
                row.depth,
                figure(&row.blocking),
                figure(&row.spinning),
                figure(&row.nic),
                row.ratio(),
                row.frugality(),
            )
        })
        .collect();
    println!("{{\"rows\":[{}]}}", rows.join(","));
}
