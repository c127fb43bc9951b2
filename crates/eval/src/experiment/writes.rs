//! WRITEs of one size at the highest rate: the paper's figure on the speed of WRITEs (§3.2.3).

use super::job::{Direction, Measured, WriteJob};
use super::tally::{Latencies, Meter};
use crate::error::BenchError;
use sherman_fabric::{Clock, Counters, Endpoint, Fabric, FabricError, Space, execute};
use sherman_sim::nic::{NicConfig, NicSim};
use std::cell::RefCell;
use std::rc::Rc;

const MACHINES: u16 = 8;
/// Threads of all writing machines together: more than any NIC needs to be busy.
const THREADS: u16 = 448;
/// The number of places that WRITEs go to.
const PLACES: u64 = 4096;
const FIRST: u64 = 128 << 20;

pub(super) fn run(job: &WriteJob) -> Result<Measured, BenchError> {
    if job.operations == 0 || job.bytes == 0 || job.bytes > 1 << 20 {
        return Err(BenchError::option(
            "bytes",
            "a WRITE has 1 to 1048576 bytes, and there must be at least one",
        ));
    }
    let (writers, servers) = match job.direction {
        Direction::Inbound => ((1..MACHINES).collect::<Vec<_>>(), vec![0]),
        Direction::Outbound => (vec![0], (1..MACHINES).collect()),
    };
    let count = servers.len() as u64;
    let config = NicConfig { machines: MACHINES, servers, params: job.params, ..NicConfig::default() };
    let sim = NicSim::new(&config).map_err(|error| BenchError::option("memory", error))?;
    let notes = Rc::new(RefCell::new((Meter::new(job.operations), Latencies::new()?, None::<FabricError>)));
    let failed = |error: FabricError| BenchError::Operation { phase: "measuring", error: error.into() };
    let stride = u64::from(job.bytes).next_multiple_of(64);
    let each = THREADS / writers.len() as u16;
    let mut number = 0;
    for machine in writers {
        let fabric = sim.join(machine).map_err(failed)?;
        for _ in 0..each {
            let endpoint = fabric.endpoint().map_err(failed)?;
            let (notes, data) = (Rc::clone(&notes), vec![1; job.bytes as usize]);
            let thread = endpoint.thread();
            let mut nth: u64 = number;
            number += 1;
            let client = async move {
                while !notes.borrow().0.is_over() && notes.borrow().2.is_none() {
                    nth += u64::from(THREADS);
                    let began = endpoint.now();
                    let mut list = endpoint.list((nth % count) as u16);
                    list.write(Space::Host, FIRST + nth / count % PLACES * stride, &data);
                    let outcome = execute(&endpoint, list, &Counters::default()).await;
                    let now = endpoint.now();
                    let mut notes = notes.borrow_mut();
                    match outcome {
                        Ok(list) => endpoint.recycle(list),
                        Err(error) => notes.2 = Some(error),
                    }
                    if notes.0.count(now, || endpoint.verbs()) {
                        notes.1.record(now - began);
                    }
                }
            };
            drop(sim.spawn_on(thread, client));
        }
    }
    sim.run().map_err(|stuck| BenchError::Thread(stuck.to_string()))?;
    let notes = notes.borrow();
    match &notes.2 {
        Some(error) => Err(failed(error.clone())),
        None => Ok(Measured { all: notes.1.quantiles(), ..notes.0.measured() }),
    }
}
