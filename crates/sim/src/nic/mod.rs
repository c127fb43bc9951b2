//! The NIC model: the same fabric in virtual time, with the speed of the paper's machines instead of an
//! adversary.
//!
//! The adversary's world finds errors. This world measures time. Each machine has one NIC, which its memory
//! server and its compute server share. `docs/EVALUATION.md` says what is modelled and what is not.
//!
//! The model has one thread, only its own clock, and no random numbers. The same calls give the same times on
//! every machine.
//!
//! ```
//! use sherman_fabric::{Clock, Counters, Endpoint, Fabric, Space, execute};
//! use sherman_sim::nic::{NicConfig, NicSim};
//!
//! let sim = NicSim::new(&NicConfig::default())?;
//! let endpoint = sim.join(1)?.endpoint()?;
//! let thread = endpoint.thread();
//! let took = sim.spawn_on(thread, async move {
//!     let mut list = endpoint.list(0);
//!     list.read(Space::Host, 0, 64);
//!     let began = endpoint.now();
//!     execute(&endpoint, list, &Counters::default()).await.map(|_| endpoint.now() - began)
//! });
//! sim.run()?;
//! assert!((1_000..3_000).contains(&took.take().expect("it has run")?));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | contents |
//! |---|---|
//! | [`params`] | every number, with its source |
//! | `world` | lists from post to completion, threads and their CPUs |
//! | `receive` | the receiving NIC: link, order, units, buckets, answers |
//! | `machine` | a NIC's resources |
//! | `tear` | READs that overlap WRITEs |
//! | `memory` | memory that is allocated on first touch |
//! | `copies` | volumes in two copies |
//! | `endpoint` | [`NicFabric`], [`NicEndpoint`] |

mod copies;
mod endpoint;
mod events;
mod flight;
mod machine;
mod memory;
pub mod params;
mod receive;
mod tear;
#[cfg(test)]
mod tests;
mod world;

pub use endpoint::{NicEndpoint, NicFabric, NicVolumeEndpoint};
pub use memory::Image;
pub use params::Params;

use crate::tasks::{TaskHandle, TaskName, Tasks, poll_task};
use copies::Copies;
use endpoint::SharedWorld;
use machine::{NANO, Timing};
use memory::{CpuView, Sparse};
use sherman_fabric::{Call, Caps, ComputeId, FabricError, FenceMode, Request, calls};
use sherman_layout::{ControlGeometry, FormatError, FormatOptions, Geometry};
use sherman_memory_server::{Memories, MemoryServer};
use sherman_replica::{TableError, VolumeTable};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use world::{Next, ServerModel, World};

/// The configuration of a world.
#[derive(Clone, Debug)]
pub struct NicConfig {
    /// Number of machines. Each has one NIC.
    pub machines: u16,
    /// The machine of each memory server.
    pub servers: Vec<u16>,
    /// Copies of each volume: 1, or 2 with the backup on the machine of the next memory server.
    pub replicas: u16,
    /// Host memory of each server in bytes. Only touched parts are allocated.
    pub host_bytes: u64,
    /// On-chip memory of each server in bytes.
    pub on_chip_bytes: usize,
    /// Format options of each server. `server` and `servers` are filled in.
    pub format: FormatOptions,
    /// The parameters of the model.
    pub params: Params,
}

impl Default for NicConfig {
    /// Two machines, with a memory server on the first.
    fn default() -> Self {
        Self {
            machines: 2,
            servers: vec![0],
            replicas: 1,
            host_bytes: 64 << 30,
            on_chip_bytes: 256 << 10,
            format: FormatOptions::default(),
            params: Params::PAPER,
        }
    }
}

/// The error of a run that cannot end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// Number of tasks that wait for an event that will not happen.
    pub waiting: usize,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tasks of the simulated world wait for an event that will not happen", self.waiting)
    }
}

impl std::error::Error for Stuck {}

/// Why a world cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NicError {
    /// The memory of a server cannot be laid out.
    Format(FormatError),
    /// The copies of volumes cannot be placed.
    Table(TableError),
    /// There can be one copy of each volume, or two on two memory servers.
    Replicas {
        /// The wanted copies of each volume.
        replicas: u16,
        /// The number of memory servers.
        servers: usize,
    },
}

impl fmt::Display for NicError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Format(error) => error.fmt(f),
            Self::Table(error) => error.fmt(f),
            Self::Replicas { replicas, servers } => {
                write!(
                    f,
                    "volumes can have 1 copy, or 2 on 2 memory servers or more, not {replicas} on {servers}"
                )
            }
        }
    }
}

impl std::error::Error for NicError {}

impl From<FormatError> for NicError {
    fn from(error: FormatError) -> Self {
        Self::Format(error)
    }
}

/// A world in virtual time.
pub struct NicSim {
    world: SharedWorld,
    tasks: Rc<RefCell<Tasks>>,
    alive: Cell<usize>,
}

impl NicSim {
    /// Creates and formats the servers.
    pub fn new(config: &NicConfig) -> Result<Self, NicError> {
        let mut server_models = Vec::new();
        let machines = copies::machines(config)?;
        for (server, &machine) in (0..config.servers.len() as u16).cycle().zip(&machines) {
            let mut memory = Sparse::new(server, config.host_bytes, config.on_chip_bytes);
            let (servers, memory_id) = (config.servers.len() as u16, u64::from(server) + 1);
            let format = FormatOptions { server, servers, memory_id, ..config.format };
            let bytes = if server == 0 { ControlGeometry::bytes_of(&format) } else { 0 };
            let mut control = Sparse::new(server, bytes, 0);
            let views = (CpuView::new(&mut memory), CpuView::new(&mut control));
            let cpu = MemoryServer::format(Memories { volume: &views.0, control: &views.1 }, &format)?;
            server_models.push(ServerModel {
                machine,
                memory,
                control,
                cpu,
                recent: tear::Recent::default(),
            });
        }
        let caps = Caps {
            atomic_unit: 64,
            crash_unit: 64,
            verb_atomic: false,
            masked_cas: true,
            write_releases: true,
            lock_read: true,
            on_chip_bytes: config.on_chip_bytes as u64,
            fence: FenceMode::Revoke,
            shortest_write_nanos: 0,
            max_verbs: events::MOST_VERBS,
            max_transfer: 1 << 20,
        };
        let geometry = server_models.first().map(|model| *model.cpu.geometry());
        let geometry = geometry.ok_or(NicError::Replicas { replicas: config.replicas, servers: 0 })?;
        let copies = Copies::new(config.servers.len() as u16, &machines, &geometry)?;
        let world = World::new(Timing::new(config.params), caps, config.machines, server_models, copies);
        Ok(Self {
            world: Rc::new(RefCell::new(world)),
            tasks: Rc::new(RefCell::new(Tasks::new())),
            alive: Cell::new(0),
        })
    }

    /// Adds a compute server on `machine`. It joins immediately.
    pub fn join(&self, machine: u16) -> Result<NicFabric, FabricError> {
        let mut world = self.world.borrow_mut();
        let client = calls::Join::expect(world.serve(0, ComputeId::NOBODY, &Request::Join)?)?;
        Ok(NicFabric::new(Rc::clone(&self.world), client, machine))
    }

    /// Returns the table of volumes.
    pub fn table(&self) -> Arc<VolumeTable> {
        Arc::clone(&self.world.borrow().copies.table)
    }

    /// Returns the memory layout of a server.
    pub fn geometry(&self, server: u16) -> Geometry {
        *self.world.borrow().server_models[usize::from(server)].cpu.geometry()
    }

    /// Makes the given chunks (volume, offset, node bytes) hold the nodes of `image`, in every copy.
    pub fn load(&self, image: &Rc<dyn Image>, chunks: &[(u16, u64, u32)]) {
        let mut world = self.world.borrow_mut();
        let volumes = world.copies.volumes() as u16;
        for (server, server_model) in (0..volumes).cycle().zip(&mut world.server_models) {
            let geometry = *server_model.cpu.geometry();
            let here =
                chunks.iter().filter(|(on, ..)| *on == server).map(|&(_, offset, bytes)| (offset, bytes));
            server_model.memory.load(Rc::clone(image), geometry.chunks_offset, geometry.chunk_bytes, here);
        }
    }

    /// Adds a task to a thread.
    pub fn spawn_on<T: 'static>(
        &self,
        thread: u32,
        future: impl Future<Output = T> + 'static,
    ) -> TaskHandle<T> {
        let (handle, body) = TaskHandle::wrap(future);
        let name = TaskName { compute_server: None, thread, name: "client".into() };
        let mut tasks = self.tasks.borrow_mut();
        let task = tasks.spawn(name, body);
        self.world.borrow_mut().add_task(task, thread, tasks.waker_address(task));
        self.alive.set(self.alive.get() + 1);
        handle
    }

    /// Advances time until every task has ended.
    pub fn run(&self) -> Result<(), Stuck> {
        let wakes = self.tasks.borrow().queue();
        while self.alive.get() > 0 {
            let next = self.world.borrow_mut().advance(&wakes);
            match next {
                Next::End => return Err(Stuck { waiting: self.alive.get() }),
                Next::Poll { task, thread } => {
                    let mut ended = poll_task(&self.tasks, task);
                    // A task that only yields to other tasks of its thread continues at once if there are
                    // none.
                    if !ended && self.world.borrow_mut().goes_on(task, thread, &wakes) {
                        ended = poll_task(&self.tasks, task);
                    }
                    self.alive.set(self.alive.get() - usize::from(ended));
                    self.world.borrow_mut().ran(thread, &wakes);
                }
            }
        }
        Ok(())
    }

    /// Returns a handle that runs futures while time stands still. Tasks may keep it.
    pub fn quiet(&self) -> Quiet {
        Quiet(Rc::clone(&self.world))
    }

    /// Returns the virtual time in nanoseconds.
    pub fn now(&self) -> u64 {
        self.world.borrow().now / NANO
    }
}

impl Drop for NicSim {
    /// Futures hold endpoints and endpoints hold the world, so drop the futures first.
    fn drop(&mut self) {
        let bodies = self.tasks.borrow_mut().clear();
        drop(bodies);
    }
}

impl fmt::Debug for NicSim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NicSim({} ns)", self.now())
    }
}

/// Runs futures while time stands still: verbs execute at once and cost nothing.
#[derive(Clone)]
pub struct Quiet(SharedWorld);

impl Quiet {
    /// Runs `future` to its end. If it waits for another task, drops it and returns `None`.
    pub fn run<F: Future>(&self, future: F) -> Option<F::Output> {
        let before = std::mem::replace(&mut self.0.borrow_mut().quiet, true);
        let mut future = pin!(future);
        let mut outcome = None;
        // Several rounds, because the future may yield in between.
        for _ in 0..64 {
            if let Poll::Ready(ready) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                outcome = Some(ready);
                break;
            }
        }
        self.0.borrow_mut().quiet = before;
        outcome
    }
}

impl fmt::Debug for Quiet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Quiet")
    }
}
