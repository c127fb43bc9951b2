//! Measures the soft NIC's cost on this host:
//! `cargo run --release -p sherman-soft-nic -F measure --example loopback --
//! [--json] [--windows 5] [--only "tcp READ"]`.
//!
//! One memory server with one shard runs in threads of this process. One client thread uses it over TCP and
//! over a Unix socket. It posts READs of 1 KiB, WRITEs of 64 bytes and CASes of a lane, one verb per list. It
//! keeps 64 in flight as tasks of one executor, or one alone under `block_on`.
//!
//! Beside each row, a **bare loop** moves the same bytes: two threads and a socket. Requests and replies have
//! the same sizes, and as many are in flight. One send carries everything that is ready. There is no framing,
//! no memory and no tasks. It runs once with both sides blocking, and once with both spinning (and yielding).
//! The ratio refers to its better figure.
//!
//! The windows of all rows take turns, so that other load on the host affects all rows alike. Figures are
//! medians of 5 windows of 250 ms. CPU is the share of one core that the client's thread, and the rest of the
//! process (the server), used.

mod bare;
mod report;

use bare::Shape;
use report::{Figure, Row, print_json, print_table};
use rustix::time::{ClockId, clock_gettime};
use sherman_control::JoinOptions;
use sherman_embedded::host::Host;
use sherman_embedded::{Atomicity, copy::CopyPath, memory::Region};
use sherman_executor::{LocalExecutor, block_on};
use sherman_fabric::{Counters, Endpoint, FabricError, Space, WorkList, execute};
use sherman_soft_nic::server::{Listen, ServerOptions, SoftNicServer};
use sherman_soft_nic::{SoftNicEndpoint, SoftNicFabric};
use std::cell::Cell;
use std::error::Error;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

const MEMORY: usize = 256 << 20;
/// Where READs and WRITEs go: after the server's tables.
const FIRST: u64 = 128 << 20;
const NODE: u64 = 1024;
const NODES: u64 = 4096;
const WRITE: usize = 64;
const WINDOW: Duration = Duration::from_millis(250);

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Tcp,
    Unix,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Read,
    Write,
    Cas,
}

impl Operation {
    /// Bytes of its request and reply, including headers.
    fn shape(self) -> Shape {
        match self {
            Self::Read => Shape { request: 32, reply: 16 + NODE as usize },
            Self::Write => Shape { request: 32 + WRITE, reply: 16 },
            Self::Cas => Shape { request: 56, reply: 24 },
        }
    }

    fn fill(self, list: &mut WorkList, at: u64) {
        match self {
            Self::Read => list.read(Space::Host, FIRST + at % NODES * NODE, NODE as u32),
            Self::Write => list.write(Space::Host, FIRST + at % NODES * NODE, &[at as u8; WRITE]),
            Self::Cas => list.cas(Space::OnChip, at % NODES * 8, 0, 0),
        };
    }
}

/// Processor time of this thread and of the whole process, in seconds.
fn processor() -> (f64, f64) {
    let seconds = |clock| {
        let time = clock_gettime(clock);
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    };
    (seconds(ClockId::ThreadCPUTime), seconds(ClockId::ProcessCPUTime))
}

/// Measures `run`, which returns how many operations it did.
fn measure(run: impl FnOnce() -> Result<u64, Box<dyn Error>>) -> Result<Figure, Box<dyn Error>> {
    let (begun, before) = (Instant::now(), processor());
    let done = run()? as f64;
    let (seconds, after) = (begun.elapsed().as_secs_f64(), processor());
    let client = after.0 - before.0;
    let server = after.1 - before.1 - client;
    Ok(Figure { rate: done / seconds, client: client / seconds, server: server / seconds })
}

/// One operation after the other.
fn alone(endpoint: &SoftNicEndpoint, operation: Operation) -> Result<u64, Box<dyn Error>> {
    let (begun, counters, mut done) = (Instant::now(), Counters::default(), 0);
    while begun.elapsed() < WINDOW {
        let mut list = endpoint.list(0);
        operation.fill(&mut list, done);
        endpoint.recycle(block_on(endpoint, execute(endpoint, list, &counters))?);
        done += 1;
    }
    Ok(done)
}

/// Runs `depth` operations at a time, as tasks of one executor.
fn together(endpoint: &Rc<SoftNicEndpoint>, operation: Operation, depth: u64) -> Result<u64, Box<dyn Error>> {
    let executor = LocalExecutor::new();
    let (done, over, begun) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)), Instant::now());
    let tasks: Vec<_> = (0..depth)
        .map(|_| {
            let (endpoint, done, over) = (Rc::clone(endpoint), Rc::clone(&done), Rc::clone(&over));
            executor.spawn(async move {
                let counters = Counters::default();
                while !over.get() {
                    let at = done.get();
                    done.set(at + 1);
                    let mut list = endpoint.list(0);
                    operation.fill(&mut list, at);
                    endpoint.recycle(execute(&*endpoint, list, &counters).await?);
                    // Reads the clock only now and then.
                    if at % 256 == 0 {
                        over.set(begun.elapsed() >= WINDOW);
                    }
                }
                Ok::<_, FabricError>(())
            })
        })
        .collect();
    executor.run_until(&**endpoint, async {
        for task in tasks {
            task.await??;
        }
        Ok::<_, Box<dyn Error>>(())
    })?;
    Ok(done.get())
}

/// Whether to print JSON, how many windows to run, and which rows: all, or those whose name contains a word.
fn options() -> Result<(bool, usize, String), Box<dyn Error>> {
    let (mut json, mut windows, mut only) = (false, 5, String::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--json" => json = true,
            "--windows" => windows = arguments.next().ok_or("--windows needs a number")?.parse()?,
            "--only" => only = arguments.next().ok_or("--only needs a part of a row's name")?,
            other => {
                return Err(format!("unknown option {other}: there are --json, --windows and --only").into());
            }
        }
    }
    Ok((json, windows, only))
}

fn main() -> Result<(), Box<dyn Error>> {
    let (json, windows, only) = options()?;
    let socket = std::env::temp_dir().join(format!("sherman-loopback-{}.sock", std::process::id()));
    let listen = vec![Listen::Tcp("127.0.0.1:0".to_owned()), Listen::Unix(socket)];
    let region = Region::new(MEMORY, 256 << 10, Atomicity::Line, CopyPath::fastest()).ok_or("no memory")?;
    let host = Arc::new(Host::format(region, &Default::default())?);
    let server = SoftNicServer::start(ServerOptions { shards: 1, ..ServerOptions::new(host, listen) })?;
    let mut endpoints = Vec::new();
    for (transport, address) in [Transport::Tcp, Transport::Unix].into_iter().zip(server.addresses()) {
        let fabric = SoftNicFabric::join(&JoinOptions::new(vec![address.clone().into()]))?;
        endpoints.push((transport, Rc::new(fabric.endpoint()?)));
    }
    let mut rows = Vec::new();
    for (transport, _) in &endpoints {
        for operation in [Operation::Read, Operation::Write, Operation::Cas] {
            rows.extend([64, 1].map(|depth| Row::new(*transport, operation, depth)));
        }
    }
    rows.retain(|row| row.name().contains(&only));
    for _ in 0..windows {
        for row in &mut rows {
            let Some((_, endpoint)) = endpoints.iter().find(|(transport, _)| *transport == row.transport)
            else {
                continue;
            };
            let (shape, depth) = (row.operation.shape(), row.depth);
            for (spins, figures) in [(false, &mut row.blocking), (true, &mut row.spinning)] {
                let (near, far) = bare::pair(row.transport)?;
                figures.push(measure(|| bare::run(near, far, shape, depth, spins, WINDOW))?);
            }
            row.nic.push(measure(|| match depth {
                1 => alone(endpoint, row.operation),
                _ => together(endpoint, row.operation, depth),
            })?);
        }
    }
    if json {
        print_json(&rows)
    } else {
        print_table(&rows)
    }
    Ok(())
}
