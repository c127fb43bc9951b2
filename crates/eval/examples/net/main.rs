//! Measures the index and its soft NIC over loopback, next to a bare loop and next to Redis.
//! `scripts/net-bench` starts the servers and then this program.
//!
//! Rows, each over TCP and over a Unix socket, with 64 operations in flight and with one:
//!
//! - **bare loop**: two threads and a socket move the bytes of a READ of 1 KiB, and nothing else. One row has
//!   both sides blocking, one has both spinning. READs are compared with the better one.
//! - **READ 1 KiB**: one list of one verb, by the soft NIC, at random addresses in as much memory as the
//!   tree's leaves take. **hot** reads from a quarter of a megabyte, which stays in the cache like the bare
//!   loop's buffers.
//! - **lists of an insert**: pairs of the two lists that an insert posts. The first list has a CAS of a lane
//!   and a READ of a leaf. The second has a WRITE of a line and a WRITE of the lane. This rate is the bound
//!   that round trips set for inserts.
//! - **get, insert**: a tree of 1 KiB leaves, 8-byte keys and values, uniform keys that all exist, and a warm
//!   cache. With 64 in flight they are operations of a session, with one in flight a blocking client runs
//!   them. **get_many, insert_many** are batches of [`BATCH`] keys.
//! - **Redis** GET and SET by `redis-benchmark`: one connection, with as many commands in a pipeline.
//!
//! The program measures one window of every row, then the next window of every row. So other load on the host
//! affects all rows alike. A row's figure is its median window, by rate. The spread is from its slowest to
//! its fastest window. CPU is in cores: of this process (or `redis-benchmark`) and of the server process. For
//! the bare loop it is the CPU of its two threads.

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
/// The number of keys in a batch.
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

/// The subject of a row.
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

/// Returns all rows over one kind of socket at one depth, in the order of measurement. SETs come before GETs
/// of the same size, so that Redis GETs find the keys.
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
        sides.push((
            transport,
            raw::Raw::join(&options, transport)?,
            trees::Trees::open(&options, transport)?,
        ));
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
            let Some((transport, raw, trees)) =
                sides.iter().find(|(transport, ..)| *transport == row.transport)
            else {
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
