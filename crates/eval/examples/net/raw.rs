//! Lists as the soft NIC executes them, with nothing behind them that makes sense of their bytes.

use crate::bare::Shape;
use crate::options::Options;
use crate::{Transport, WINDOW, What};
use sherman_executor::{LocalExecutor, block_on};
use sherman_fabric::{Counters, Endpoint, FabricError, Space, WorkList, execute};
use sherman_soft_nic::client::{Address, JoinOptions, SoftNicEndpoint, SoftNicFabric};
use std::cell::Cell;
use std::error::Error;
use std::rc::Rc;
use std::time::Instant;

/// Where lists go: behind the server's tables.
const FIRST: u64 = 128 << 20;
const NODE: u64 = 1024;
/// As many leaves as half a million entries have, so that memory is as cold as the tree's.
const NODES: u64 = 32 << 10;
/// As many as stay in a core's cache.
const HOT_NODES: u64 = 256;
const LANES: u64 = 4096;
const LINE: usize = 64;

/// Bytes of a READ's request and reply, headers and all.
pub(crate) const READ_SHAPE: Shape = Shape { request: 32, reply: 16 + NODE as usize };

/// One client of the server for raw lists.
pub(crate) struct Raw {
    endpoint: Rc<SoftNicEndpoint>,
}

/// One of the first `nodes` leaves and a lane, at random but the same in each run.
fn place(at: u64, nodes: u64) -> (u64, u64) {
    let random = at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    (FIRST + random % nodes * NODE, random % LANES * 8)
}

/// The list of the `turn`th round trip of operation `at`.
fn fill(what: What, list: &mut WorkList, at: u64, turn: u64) {
    let (node, lane) = place(at, if what == What::HotRead { HOT_NODES } else { NODES });
    match (what, turn) {
        (What::InsertLists, 0) => {
            list.masked_cas(Space::OnChip, lane, 0, 1, 0xffff);
            list.read(Space::Host, node, NODE as u32);
        }
        (What::InsertLists, _) => {
            list.write(Space::Host, node, &[at as u8; LINE]);
            list.write(Space::OnChip, lane, &[0; 2]);
        }
        _ => {
            list.read(Space::Host, node, NODE as u32);
        }
    }
}

/// One operation: one list, or the two of an insert. A lane that somebody else has does not matter here.
async fn operation(endpoint: &SoftNicEndpoint, what: What, at: u64, counters: &Counters) -> Result<(), FabricError> {
    for turn in 0..if what == What::InsertLists { 2 } else { 1 } {
        let mut list = endpoint.list(0);
        fill(what, &mut list, at, turn);
        endpoint.recycle(execute(endpoint, list, counters).await?);
    }
    Ok(())
}

impl Raw {
    pub(crate) fn join(options: &Options, transport: Transport) -> Result<Self, Box<dyn Error>> {
        let address = match transport {
            Transport::Tcp => Address::Tcp(options.raw.tcp.clone()),
            Transport::Unix => Address::Unix(options.raw.unix.clone().into()),
        };
        let fabric = SoftNicFabric::join(&JoinOptions::new(vec![address]))?;
        let endpoint = Rc::new(fabric.endpoint()?);
        let counters = Counters::default();
        // The memory is there before it is measured.
        for node in 0..NODES {
            let mut list = endpoint.list(0);
            list.write(Space::Host, FIRST + node * NODE, &[1; NODE as usize]);
            endpoint.recycle(block_on(&*endpoint, execute(&*endpoint, list, &counters))?);
        }
        Ok(Self { endpoint })
    }

    /// How many operations there were in one window.
    pub(crate) fn run(&self, what: What, depth: u64) -> Result<u64, Box<dyn Error>> {
        if depth > 1 {
            return self.together(what, depth);
        }
        let (begun, counters, mut done) = (Instant::now(), Counters::default(), 0);
        while begun.elapsed() < WINDOW {
            block_on(&*self.endpoint, operation(&self.endpoint, what, done, &counters))?;
            done += 1;
        }
        Ok(done)
    }

    fn together(&self, what: What, depth: u64) -> Result<u64, Box<dyn Error>> {
        let executor = LocalExecutor::new();
        let (done, over, begun) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)), Instant::now());
        let tasks: Vec<_> = (0..depth)
            .map(|_| {
                let (endpoint, done, over) = (Rc::clone(&self.endpoint), Rc::clone(&done), Rc::clone(&over));
                executor.spawn(async move {
                    let counters = Counters::default();
                    while !over.get() {
                        let at = done.get();
                        done.set(at + 1);
                        operation(&endpoint, what, at, &counters).await?;
                        // The clock is read now and then.
                        if at % 256 == 0 {
                            over.set(begun.elapsed() >= WINDOW);
                        }
                    }
                    Ok::<_, FabricError>(())
                })
            })
            .collect();
        executor.run_until(&*self.endpoint, async {
            for task in tasks {
                task.await??;
            }
            Ok::<_, Box<dyn Error>>(())
        })?;
        Ok(done.get())
    }
}
