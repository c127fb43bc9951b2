//! Executes lists on the soft NIC, without an index that uses their bytes.

use crate::bare::Shape;
use crate::options::Options;
use crate::{Transport, WINDOW, What};
use sherman_control::{Address, JoinOptions};
use sherman_executor::{LocalExecutor, block_on};
use sherman_fabric::{Counters, Endpoint, FabricError, Space, WorkList, execute};
use sherman_soft_nic::{SoftNicEndpoint, SoftNicFabric};
use std::cell::Cell;
use std::error::Error;
use std::rc::Rc;
use std::time::Instant;

/// The first address that lists use, after the server's tables.
const FIRST: u64 = 128 << 20;
const NODE: u64 = 1024;
/// As many leaves as a tree of half a million entries has, so that the memory is as cold as the tree's.
const NODES: u64 = 32 << 10;
/// Few enough leaves to stay in a core's cache.
const HOT_NODES: u64 = 256;
const LANES: u64 = 4096;
const LINE: usize = 64;

/// Bytes of the request and of the reply of a READ, headers included.
pub(crate) const READ_SHAPE: Shape = Shape { request: 32, reply: 16 + NODE as usize };

/// One client of the server for raw lists.
pub(crate) struct Raw {
    endpoint: Rc<SoftNicEndpoint>,
}

/// Returns one of the first `nodes` leaves and a lane, pseudo-random and the same in each run.
fn place(at: u64, nodes: u64) -> (u64, u64) {
    let random = at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    (FIRST + random % nodes * NODE, random % LANES * 8)
}

/// Fills the list for round trip `turn` of operation `at`.
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

/// Executes one operation: one list, or the two lists of an insert. It does not matter here if another
/// operation holds the lane.
async fn operation(
    endpoint: &SoftNicEndpoint,
    what: What,
    at: u64,
    counters: &Counters,
) -> Result<(), FabricError> {
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
        // Touch all memory before the measurement.
        for node in 0..NODES {
            let mut list = endpoint.list(0);
            list.write(Space::Host, FIRST + node * NODE, &[1; NODE as usize]);
            endpoint.recycle(block_on(&*endpoint, execute(&*endpoint, list, &counters))?);
        }
        Ok(Self { endpoint })
    }

    /// Runs for one window and returns the number of operations.
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
                        // Read the clock only once in 256 operations.
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
