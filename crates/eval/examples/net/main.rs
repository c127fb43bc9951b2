//! What the index and its soft NIC do over loopback, beside a bare loop and beside Redis. `scripts/net-bench` starts the
//! servers and then this.
//!
//! Rows, each over TCP and over a Unix socket, with 64 in flight and with one:
//! - **bare loop**: two threads and a socket that move the bytes of a READ of 1 KiB, without anything around it; once with
//!   both sides blocking, once with both spinning. The better one is what READs are compared with;
//! - **READ 1 KiB**: one list of one verb, by the soft NIC, at random in as much memory as the tree's leaves take; **hot** in
//!   a quarter of a megabyte, which stays in the cache as the bare loop's buffers do;
//! - **lists of an insert**: pairs of the two lists that an insert posts: CAS of a lane and READ of a leaf; WRITE of a line and
//!   WRITE of the lane. What the round trips of inserts allow;
//! - **get, insert**: a tree of 1 KiB leaves, 8-byte keys and values, uniform keys that are all there, a warm cache; with 64 in
//!   flight as operations of a session, with one by a blocking client; **get_many, insert_many** are batches of [`BATCH`] keys;
//! - **Redis** GET and SET by `redis-benchmark`, one connection, as many commands in a pipeline.
//!
//! One window of every row, then the next one of every row, so that what else the host does strikes all alike. A row's figure
//! is its median window, by rate; the spread is from its slowest to its fastest. CPU is in cores: of this process (or
//! `redis-benchmark`) and of the server process; for the bare loop of its two threads.

#[path = "../../../soft-nic/examples/loopback/bare.rs"]
mod bare;
mod options;
mod processor;
mod raw;
mod redis;
mod report;
mod trees;

use options::Options;
use report::Row;
use std::error::Error;
use std::time::Duration;

/// How long one measurement lasts.
pub(crate) const WINDOW: Duration = Duration::from_millis(250);
/// Keys of a batch.
pub(crate) const BATCH: usize = 2048;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Tcp,
    Unix,
}

impl Transport {
    const ALL: [Self; 2] = [Self::Tcp, Self::Unix];

    fn parse(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|transport| transport.name() == text);
        found.ok_or_else(|| format!("{text}: sockets are tcp or unix"))
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Unix => "unix",
        }
    }
}

/// What a row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    BareBlocking,
    BareSpinning,
    Read,
    HotRead,
    InsertLists,
    Get,
    GetMany,
    Insert,
    InsertMany,
    Redis { sets: bool, bytes: usize },
}

/// All rows over one kind of socket at one depth, in the order in which they are measured: Redis GETs find what SETs of the
/// same size left.
fn rows(transport: Transport, depth: u64, redis: bool) -> Vec<Row> {
    let mut what = vec![What::BareBlocking, What::BareSpinning, What::HotRead, What::Read, What::InsertLists];
    what.extend([What::Get, What::Insert]);
    if depth > 1 {
        what.extend([What::GetMany, What::InsertMany]);
    }
    if redis {
        for bytes in [1024, 8] {
            what.extend([true, false].map(|sets| What::Redis { sets, bytes }));
        }
    }
    what.into_iter().map(|what| Row::new(transport, depth, what)).collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse()?;
    let mut sides = Vec::new();
    for transport in
        Transport::ALL.into_iter().filter(|transport| options.transport.is_none_or(|only| only == *transport))
    {
        sides.push((transport, raw::Raw::join(&options, transport)?, trees::Trees::open(&options, transport)?));
    }
    let depths = [64, 1];
    let mut rows: Vec<Row> = sides
        .iter()
        .flat_map(|(transport, ..)| depths.map(|depth| (*transport, depth)))
        .flat_map(|(transport, depth)| rows(transport, depth, options.redis.is_some()))
        .filter(|row| options.only.is_empty() || options.only.contains(&row.name()))
        .filter(|row| options.depth.is_none_or(|depth| depth == row.depth))
        .collect();
    for _ in 0..options.windows {
        for row in &mut rows {
            let Some((transport, raw, trees)) = sides.iter().find(|(transport, ..)| *transport == row.transport) else {
                continue;
            };
            let figure = match row.what {
                What::BareBlocking | What::BareSpinning => {
                    let (near, far) = bare::pair(*transport)?;
                    let spins = row.what == What::BareSpinning;
                    processor::in_threads(|| bare::run(near, far, raw::READ_SHAPE, row.depth, spins, WINDOW))?
                }
                What::Read | What::HotRead | What::InsertLists => {
                    processor::with_server(options.raw.pid, || raw.run(row.what, row.depth))?
                }
                What::Get | What::Insert | What::GetMany | What::InsertMany => {
                    processor::with_server(options.tree.pid, || trees.run(row.what, row.depth))?
                }
                What::Redis { sets, bytes } => {
                    let Some(server) = &options.redis else { continue };
                    redis::run(server, *transport, row.depth, sets, bytes)?
                }
            };
            row.figures.push(figure);
        }
    }
    report::print_table(&rows);
    for (transport, _, trees) in &sides {
        trees.print_round_trips(*transport);
    }
    if let Some(path) = &options.json {
        std::fs::write(path, report::json(&rows))?;
    }
    Ok(())
}
