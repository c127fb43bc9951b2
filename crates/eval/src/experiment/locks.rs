//! Takes and releases locks of one memory server, without a tree: the paper's lock collapse (§3.2.2) and its
//! HOCL micro-benchmark (§5.7).

use super::client::failed;
use super::job::{LockJob, LockKind, Measured};
use super::tally::{Latencies, Meter};
use crate::error::BenchError;
use crate::zipf::Zipf;
use fastrand::Rng;
use sherman_core::lock::local::LaneIndex;
use sherman_core::{ComputeOptions, ComputeServer, Techniques, Worker};
use sherman_fabric::{Clock, Fabric, Space};
use sherman_layout::{FormatOptions, LaneWidth, LockOptions, ReleaseMode};
use sherman_sim::nic::{NicConfig, NicEndpoint, NicSim};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(100);
/// The number of machines in the paper.
const MACHINES: u16 = 8;

fn techniques(kind: LockKind) -> Techniques {
    let hierarchical = matches!(kind, LockKind::Hierarchical | LockKind::Queue | LockKind::Handover);
    Techniques {
        hierarchical,
        queue: matches!(kind, LockKind::Queue | LockKind::Handover),
        handover: kind == LockKind::Handover,
        backoff: false,
        ..Techniques::NONE
    }
}

fn options(kind: LockKind, locks: u32) -> LockOptions {
    LockOptions {
        space: if matches!(kind, LockKind::HostFaa | LockKind::Host) { Space::Host } else { Space::OnChip },
        width: LaneWidth::Bits64,
        lanes: Some(locks.next_power_of_two()),
        release: if kind == LockKind::HostFaa { ReleaseMode::Faa } else { ReleaseMode::Write },
    }
}

struct Notes {
    meter: Meter,
    latencies: Latencies,
    failure: Option<BenchError>,
}

struct Client {
    worker: Worker<NicEndpoint>,
    notes: Rc<RefCell<Notes>>,
    zipf: Zipf,
    locks: u64,
    rng: Rng,
    delay_nanos: u64,
    operation_nanos: u64,
}

impl Client {
    async fn run(mut self) {
        self.worker.endpoint().spend(self.delay_nanos);
        loop {
            {
                let notes = self.notes.borrow();
                if notes.failure.is_some() || notes.meter.is_over() {
                    return;
                }
            }
            if let Err(error) = self.once().await {
                self.notes.borrow_mut().failure.get_or_insert(error);
            }
        }
    }

    async fn once(&mut self) -> Result<(), BenchError> {
        // Ranks are spread over the table, so that hot locks do not share words.
        let rank = self.zipf.sample(&mut self.rng);
        let lane = LaneIndex { server: 0, lane: (rank.wrapping_mul(2_654_435_761) % self.locks) as u32 };
        let endpoint = self.worker.endpoint();
        endpoint.spend(self.operation_nanos);
        let began = endpoint.now();
        let op = self.worker.op();
        let held = op.take_lane(lane).await.map_err(failed)?;
        op.give_lane(held).await.map_err(|error| failed(error.into()))?;
        let now = endpoint.now();
        let mut notes = self.notes.borrow_mut();
        if notes.meter.count(now, || endpoint.verbs()) {
            notes.latencies.record(now - began);
        }
        Ok(())
    }
}

pub(super) fn run(job: &LockJob) -> Result<Measured, BenchError> {
    if job.compute == 0 || job.threads == 0 || job.locks == 0 || job.operations == 0 {
        return Err(BenchError::option("threads", "there must be at least one thread, lock and operation"));
    }
    let zipf =
        Zipf::new(u64::from(job.locks), job.zipf).map_err(|error| BenchError::option("zipf", error))?;
    let machines = MACHINES.max(job.compute);
    let config = NicConfig {
        machines,
        // The memory server is on the last machine. Compute servers are on the first ones.
        servers: vec![machines - 1],
        replicas: 1,
        host_bytes: 256 << 20,
        on_chip_bytes: 256 << 10,
        format: FormatOptions {
            member_capacity: u32::from(job.compute) + 1,
            lease_nanos: PATIENCE.as_nanos() as u64 * 100,
            locks: options(job.kind, job.locks),
            ..FormatOptions::default()
        },
        params: job.params,
    };
    let sim = NicSim::new(&config).map_err(|error| BenchError::option("locks", error))?;
    let notes = Notes { meter: Meter::new(job.operations), latencies: Latencies::new()?, failure: None };
    let notes = Rc::new(RefCell::new(notes));
    for number in 0..job.compute {
        let fabric = sim.join(number).map_err(|error| failed(error.into()))?;
        let options = ComputeOptions {
            techniques: techniques(job.kind),
            timeout: PATIENCE,
            ..ComputeOptions::default()
        };
        let mut compute: Option<Arc<ComputeServer>> = None;
        for thread in 0..job.threads {
            let endpoint = fabric.endpoint().map_err(|error| failed(error.into()))?;
            let shared = match &compute {
                Some(shared) => Arc::clone(shared),
                None => {
                    let opened = sim.quiet().run(ComputeServer::open(&endpoint, options.clone()));
                    let stuck = || BenchError::Thread("the simulated cluster did not answer".to_owned());
                    opened.ok_or_else(stuck)?.map_err(failed)?
                }
            };
            compute = Some(Arc::clone(&shared));
            let number = u64::from(number) * u64::from(job.threads) + u64::from(thread);
            let id = endpoint.thread();
            let client = Client {
                worker: Worker::new(endpoint, shared),
                notes: Rc::clone(&notes),
                zipf,
                locks: u64::from(job.locks),
                rng: Rng::with_seed(job.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number << 17),
                delay_nanos: number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 53,
                operation_nanos: job.params.resume_nanos,
            };
            drop(sim.spawn_on(id, client.run()));
        }
    }
    sim.run().map_err(|stuck| BenchError::Thread(stuck.to_string()))?;
    let mut notes = notes.borrow_mut();
    if let Some(error) = notes.failure.take() {
        return Err(error);
    }
    Ok(Measured { all: notes.latencies.quantiles(), ..notes.meter.measured() })
}
