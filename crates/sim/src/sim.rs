//! The simulation: a world, its tasks, and the loop that runs them.

use crate::endpoint::{SimFabric, SimMemory};
use crate::knobs::Knobs;
use crate::memory::{CpuView, ServerMemory};
use crate::scheduler::Scheduler;
use crate::tasks::{Flag, TaskHandle, TaskName, Tasks, poll_task};
use crate::trace::Event;
use crate::world::flight::NO_TASK;
use crate::world::volumes::{CLUSTER, Volumes};
use crate::world::{HostLoss, Next, World};
use sherman_fabric::{Clock, ComputeId, FabricError, Refusal, Request, sleep_until};
use sherman_layout::{ControlGeometry, FormatError, FormatOptions};
use sherman_memory_server::{ClusterSettings, ClusterState, Memories, MemoryServer};
use sherman_replica::VolumeTable;
use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

pub use crate::world::copier::LaterLoss;
pub use crate::world::group::checks::Wrong;
pub use crate::world::group::{GroupPlan, GroupSeen, HostCut, Weather};

pub use crate::outcome::{Fault, Outcome, Run, Stuck, Waiting};

pub(crate) type SharedWorld = Rc<RefCell<World>>;

/// The bounds of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most events in one run.
    pub steps: u64,
    /// Most lists that one task may post. It bounds a reader that retries endlessly under exhaustive search.
    pub lists_per_task: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { steps: 1_000_000, lists_per_task: u64::MAX }
    }
}

/// The configuration of a world.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// Number of memory servers. With replication: of volumes.
    pub servers: u16,
    /// Copies of each volume: 1 or 2.
    pub replicas: u16,
    /// Hosts on which the copies of volumes lie. Without replication each server is a host.
    pub hosts: u16,
    /// How many copies can be made again after losses, in one schedule.
    pub spares: u16,
    /// Hosts keep their memory when their processes end (I4).
    pub keeps: bool,
    /// A host was lost before, and another one has all its copies as backups. So primaries are not spread
    /// evenly, if there are two volumes.
    pub uneven: bool,
    /// Host memory of each server in bytes.
    pub host_bytes: usize,
    /// On-chip memory of each server in bytes.
    pub on_chip_bytes: usize,
    /// Format options of each server. `server` and `servers` are filled in.
    pub format: FormatOptions,
    /// The compute servers whose lists execute inside `post`, as on mapped memory.
    pub inline: Inline,
    /// The settings of the adversary.
    pub knobs: Knobs,
    /// The bounds of a run.
    pub limits: Limits,
}

/// The compute servers whose lists execute inside `post`, as on memory that they map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Inline {
    /// None of them.
    #[default]
    Nobody,
    /// Every other one: those with odd numbers.
    Some,
    /// All of them.
    Everybody,
}

impl Inline {
    /// Whether lists of this compute server execute inside `post`.
    pub(crate) fn is_on(self, compute_server: u32) -> bool {
        match self {
            Self::Nobody => false,
            Self::Some => !compute_server.is_multiple_of(2),
            Self::Everybody => true,
        }
    }
}

impl Default for SimConfig {
    /// One server of 256 KiB with small chunks: enough for a tree of tiny nodes.
    fn default() -> Self {
        let format = FormatOptions {
            chunk_bytes: 16 << 10,
            redo_slot_bytes: 1 << 10,
            redo_area_bytes: 4 << 10,
            member_capacity: 31,
            catalog_capacity: 4,
            ..FormatOptions::default()
        };
        Self {
            servers: 1,
            replicas: 1,
            hosts: 1,
            spares: 0,
            keeps: false,
            uneven: false,
            host_bytes: 256 << 10,
            on_chip_bytes: 2 << 10,
            format,
            inline: Inline::Nobody,
            knobs: Knobs::default(),
            limits: Limits::default(),
        }
    }
}

impl SimConfig {
    fn volumes(&self) -> Result<Volumes, FormatError> {
        if self.replicas <= 1 {
            return Ok(Volumes::single(self.servers));
        }
        let settings = ClusterSettings {
            replicas: u8::try_from(self.replicas).unwrap_or(u8::MAX),
            volumes: self.servers,
            hosts: self.hosts,
            volume_bytes: self.host_bytes as u64,
            on_chip_bytes: self.on_chip_bytes as u64,
            format: self.format,
        };
        Volumes::replicated(settings, self.keeps)
    }
}

/// A deterministic world. See the [crate].
pub struct Sim {
    world: SharedWorld,
    tasks: Rc<RefCell<Tasks>>,
}

impl Sim {
    /// Creates and formats the servers. That state is the first checkpoint.
    pub fn new(config: &SimConfig) -> Result<Self, FormatError> {
        let mut servers = Vec::new();
        let volumes = config.volumes()?;
        let plain = |server| {
            let memory_id = u64::from(server) + CLUSTER;
            FormatOptions { server, servers: config.servers, memory_id, ..config.format }
        };
        let mut formats = volumes.formats().unwrap_or_else(|| (0..config.servers).map(plain).collect());
        if volumes.is_replicated() {
            // Memory of hosts, which is formatted again when a copy is made there.
            formats.extend((0..config.spares).filter_map(|_| formats.first().copied()).collect::<Vec<_>>());
        }
        for format in formats {
            let mut memory = ServerMemory::new(config.host_bytes, config.on_chip_bytes);
            let bytes = if format.server == 0 { ControlGeometry::bytes_of(&format) } else { 0 };
            let mut control = ServerMemory::new(bytes as usize, 0);
            let views = (CpuView::new(&mut memory), CpuView::new(&mut control));
            let memories = Memories { volume: &views.0, control: &views.1 };
            let mut cpu = MemoryServer::format(memories, &format)?;
            if volumes.is_replicated() {
                // A host makes its copies members of the cluster, and its control state is beside them.
                cpu.adopt(memories, CLUSTER);
                cpu.control = None;
            }
            servers.push(([memory, control], cpu, format));
        }
        let mut world = World::new(config.knobs.clone(), config.limits, servers, volumes);
        world.inline = config.inline;
        if config.uneven {
            world.make_uneven();
        }
        Ok(Self { world: Rc::new(RefCell::new(world)), tasks: Rc::new(RefCell::new(Tasks::new())) })
    }

    /// Adds a compute server outside any schedule. It joins immediately.
    pub fn join(&mut self) -> Result<SimFabric, Refusal> {
        join(&self.world)
    }

    /// Adds a task that belongs to no compute server.
    pub fn spawn<T: 'static>(
        &mut self,
        name: impl Into<Cow<'static, str>>,
        future: impl Future<Output = T> + 'static,
    ) -> TaskHandle<T> {
        self.spawner().spawn(None, 0, name, future)
    }

    /// Adds a task of `compute_server`. The task dies with the compute server, and may share process memory
    /// with its other tasks.
    pub fn spawn_on<T: 'static>(
        &mut self,
        compute_server: &SimFabric,
        thread: u32,
        name: impl Into<Cow<'static, str>>,
        future: impl Future<Output = T> + 'static,
    ) -> TaskHandle<T> {
        self.spawner().spawn(Some(compute_server), thread, name, future)
    }

    /// Returns a handle with which tasks add tasks.
    pub fn spawner(&self) -> Spawner {
        Spawner { world: Rc::clone(&self.world), tasks: Rc::clone(&self.tasks) }
    }

    /// Runs the tasks under `scheduler`, until all of them have ended and nothing is in flight.
    pub fn run<S: Scheduler + ?Sized>(&mut self, scheduler: &mut S) -> Run {
        let wakes = self.tasks.borrow().queue();
        if scheduler.wants_state() {
            self.world.borrow_mut().set_tracking(true);
        }
        let outcome = loop {
            let next = self.world.borrow_mut().advance(scheduler, &wakes);
            match next {
                Next::End(outcome) => break outcome,
                Next::Poll(task) => {
                    let finished = poll_task(&self.tasks, task);
                    let mut world = self.world.borrow_mut();
                    world.current = NO_TASK;
                    if finished {
                        world.finish_task(task);
                    }
                }
            }
        };
        let world = self.world.borrow();
        let (steps, verbs, trace_hash, now) = (world.steps, world.verbs, world.log.hash, world.now);
        Run { outcome: self.named(outcome), steps, verbs, trace_hash, now }
    }

    fn named(&self, mut outcome: Outcome) -> Outcome {
        if let Outcome::Deadlock { waiting } = &mut outcome {
            let tasks = self.tasks.borrow();
            for wait in waiting {
                wait.name = tasks.name(wait.task).map(ToString::to_string).unwrap_or_default();
            }
        }
        outcome
    }

    /// Runs `future` outside any schedule: its verbs execute inline and in order, and time jumps when it
    /// sleeps. Lists and calls in flight finish first. Use it to set up a run or to check its result. Tasks
    /// do not run meanwhile.
    pub fn block_on<F: Future>(&mut self, future: F) -> Result<F::Output, Stuck> {
        let quiet = Quiet::begin(&self.world);
        let mut future = pin!(future);
        let flag = Arc::new(Flag::default());
        let waker = Waker::from(Arc::clone(&flag));
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return Ok(output);
            }
            while !flag.take() {
                let mut world = quiet.0.borrow_mut();
                if world.timers.is_empty() {
                    return Err(Stuck);
                }
                world.now = world.now.max(world.timers.next());
                let now = world.now;
                world.timers.fire(now);
            }
        }
    }

    /// Makes the current state the start of later schedules: memory, members, time, and the existing
    /// endpoints. Lists and calls in flight finish first.
    pub fn checkpoint(&mut self) {
        let mut world = self.world.borrow_mut();
        world.drain();
        world.checkpoint();
    }

    /// Returns to the last checkpoint. Tasks, endpoints and compute servers made since are removed. The cost
    /// depends on what the schedule touched, not on the size of memory.
    pub fn rewind(&mut self) {
        self.drop_tasks();
        self.world.borrow_mut().rewind();
    }

    /// Like [`Sim::rewind`], with other adversary settings from now on. Endpoints made before the checkpoint
    /// keep their [`Caps`](sherman_fabric::Caps).
    pub fn rewind_with(&mut self, knobs: Knobs) {
        self.drop_tasks();
        let mut world = self.world.borrow_mut();
        world.set_knobs(knobs);
        world.rewind();
    }

    /// Changes the bounds of a run.
    pub fn set_limits(&mut self, limits: Limits) {
        self.world.borrow_mut().limits = limits;
    }

    /// Makes `fault` happen before event number `step` of this schedule.
    pub fn fault_at(&mut self, step: u64, fault: Fault) {
        self.world.borrow_mut().add_fault(step, fault);
    }

    /// Makes `fault` happen now, outside any schedule.
    pub fn strike(&mut self, fault: Fault) {
        self.world.borrow_mut().strike_now(fault);
    }

    /// Decides how copies are made again in this schedule: hosts do a bit of work every `pace` events, the
    /// leader gives up one pause after `patience` events, and more hosts are lost.
    pub fn plan_copies(&mut self, pace: u64, patience: Option<u64>, later: Vec<LaterLoss>) {
        self.world.borrow_mut().volumes.copier.plan(pace, patience, later);
    }

    /// Replaces the control state, until the schedule has ended, by a group of the hosts.
    pub fn start_group(&mut self, plan: &GroupPlan) {
        self.world.borrow_mut().start_group(plan);
    }

    /// Lets the group come to rest after the schedule. Returns what was wrong with it.
    pub fn rest_group(&mut self) -> Option<(Wrong, String)> {
        self.world.borrow_mut().rest_group()
    }

    /// What happened in the group of this schedule.
    pub fn group_seen(&self) -> GroupSeen {
        self.world.borrow().seen_group
    }

    /// How many copies were made again in this schedule, and how many hosts were declared lost.
    pub fn made_and_lost(&self) -> (u32, u32) {
        let world = self.world.borrow();
        let (now, before) = (&world.volumes, world.saved_volumes());
        (now.copier.made - before.copier.made, now.lost_hosts().saturating_sub(before.lost_hosts()))
    }

    /// How often hosts came back with their memory in this schedule.
    pub fn returns(&self) -> u32 {
        self.world.borrow().volumes.returns
    }

    /// How many copies were to move in this schedule, how many volumes had primary and backup exchanged, and
    /// how many hosts have left.
    pub fn moved_and_left(&self) -> (u32, u32, u32) {
        let copier = &self.world.borrow().volumes.copier;
        (copier.moved, copier.swapped, copier.left)
    }

    /// The hosts that died and were not declared lost.
    pub fn dead_hosts(&self) -> Vec<u16> {
        self.world.borrow().volumes.dead_hosts()
    }

    /// Whether volumes are closed so that copies can be made (J3).
    pub fn is_paused(&self) -> bool {
        let world = self.world.borrow();
        world.volumes.cluster().is_some_and(|state| state.is_closed_for_makings())
    }

    /// Whether volumes are closed so that copies can be made, or will be as soon as nobody needs recovery.
    pub fn awaits_copies(&self) -> bool {
        let world = self.world.borrow();
        world.volumes.cluster().is_some_and(ClusterState::awaits_pause)
    }

    /// Whether the copy was made again.
    pub fn was_made(&self, copy: u16) -> bool {
        copy >= self.world.borrow().volumes.first_made()
    }

    /// Lets hosts work on copies, outside any schedule.
    pub fn work_on_copies(&mut self) {
        self.world.borrow_mut().work_once();
    }

    /// Kills a compute server, by number, right after this many more *effects* of its own. An effect is a
    /// unit of a WRITE that landed, a unit of a READ fetched, or an atomic or control call executed.
    /// Everything else that it has in flight is cut at that moment (F7). [`Sim::effects`] gives the count of
    /// an undisturbed run, so a test can visit every point at which the compute server can die.
    pub fn kill_after(&mut self, compute_server: u32, effects: u64) {
        self.world.borrow_mut().kill_after(compute_server, effects);
    }

    /// Makes a host be lost right after this many more effects of a compute server, by number. If `dead_for`
    /// is given, the host dies, and is declared lost so many events later. Otherwise it lives on.
    pub fn lose_after(&mut self, compute_server: u32, effects: u64, host: u16, dead_for: Option<u64>) {
        let loss = HostLoss { host, dead_for, cuts_off: false };
        self.world.borrow_mut().lose_after(compute_server, effects, loss);
    }

    /// Makes a host be lost right after this many more effects of a compute server, by number. It lives on
    /// for all others, but this compute server loses its connections to it.
    pub fn part_after(&mut self, compute_server: u32, effects: u64, host: u16) {
        let loss = HostLoss { host, dead_for: None, cuts_off: true };
        self.world.borrow_mut().lose_after(compute_server, effects, loss);
    }

    /// Kills the next compute server that begins a recovery (it fences a member), after this many more
    /// effects. May be called several times: each call kills one recoverer, and the last call applies first.
    pub fn ambush(&mut self, effects: u64) {
        self.world.borrow_mut().ambushes.push(effects);
    }

    /// Returns the number of effects of a compute server, by number, since it joined.
    pub fn effects(&self, compute_server: u32) -> u64 {
        self.world.borrow().compute_servers.get(compute_server as usize).map_or(0, |cs| cs.effects)
    }

    /// Whether a compute server, by number, has died.
    pub fn is_dead(&self, compute_server: u32) -> bool {
        self.world.borrow().compute_servers.get(compute_server as usize).is_some_and(|cs| cs.dead)
    }

    /// Returns how many endpoints a compute server, by number, has made.
    pub fn endpoints(&self, compute_server: u32) -> u32 {
        self.world.borrow().endpoints.iter().filter(|endpoint| endpoint.owner == compute_server).count()
            as u32
    }

    /// Starts or stops recording a readable trace.
    pub fn record_trace(&mut self, on: bool) {
        self.world.borrow_mut().log.record(on);
    }

    /// Returns the events of this schedule, if recorded.
    pub fn trace(&self) -> Vec<Event> {
        self.world.borrow().log.events().to_vec()
    }

    /// Returns the names of the tasks of this schedule, by number.
    pub fn task_names(&self) -> Vec<TaskName> {
        let tasks = self.tasks.borrow();
        (0..).map_while(|task| tasks.name(task).cloned()).collect()
    }

    /// Tells exhaustive search about state that tasks share outside the fabric, in the order in which it
    /// changed. Two states with different notes are different.
    pub fn note(&self, what: u64) {
        self.world.borrow_mut().history.note(what);
    }

    /// Returns a server's memory. With replication: that of the volume's primary.
    pub fn memory(&self, server: u16) -> SimMemory {
        let copy = self.world.borrow().primary(server);
        SimMemory::new(Rc::clone(&self.world), copy)
    }

    /// Returns the memory of one copy of a volume, by its number in the [table](Sim::volumes).
    pub fn copy(&self, copy: u16) -> SimMemory {
        SimMemory::new(Rc::clone(&self.world), copy)
    }

    /// Returns the table of volumes.
    pub fn volumes(&self) -> Arc<VolumeTable> {
        Arc::clone(&self.world.borrow().volumes.table)
    }

    /// Returns the virtual time.
    pub fn now(&self) -> u64 {
        self.world.borrow().now
    }

    fn drop_tasks(&mut self) {
        self.world.borrow_mut().closed = true;
        let futures = self.tasks.borrow_mut().clear();
        drop(futures);
    }
}

fn join(shared: &SharedWorld) -> Result<SimFabric, Refusal> {
    let mut world = shared.borrow_mut();
    let (client, incarnation) = world.admit()?;
    let newest = Arc::clone(&world.volumes.table);
    let owner = world.add_compute_server(client, incarnation, &newest);
    let table = world.table_for_joiner();
    Ok(SimFabric::new(Rc::clone(shared), owner, client, table))
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let world = self.world.borrow();
        write!(f, "Sim({} servers, step {}, {} ns)", world.servers.len(), world.steps, world.now)
    }
}

impl Drop for Sim {
    /// Futures hold endpoints and endpoints hold the world, so drop the futures first. They may post nothing
    /// while they are dropped.
    fn drop(&mut self) {
        self.drop_tasks();
    }
}

/// Verbs execute inline while this value exists.
struct Quiet<'a>(&'a SharedWorld);

impl<'a> Quiet<'a> {
    fn begin(world: &'a SharedWorld) -> Self {
        let mut inner = world.borrow_mut();
        inner.drain();
        inner.quiet = true;
        inner.current = NO_TASK;
        Self(world)
    }
}

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        if let Ok(mut world) = self.0.try_borrow_mut() {
            world.quiet = false;
        }
    }
}

/// Adds tasks, also from within tasks.
#[derive(Clone)]
pub struct Spawner {
    world: SharedWorld,
    tasks: Rc<RefCell<Tasks>>,
}

impl Spawner {
    /// Adds a task of `compute_server`, or of none.
    pub fn spawn<T: 'static>(
        &self,
        compute_server: Option<&SimFabric>,
        thread: u32,
        name: impl Into<Cow<'static, str>>,
        future: impl Future<Output = T> + 'static,
    ) -> TaskHandle<T> {
        let owner = compute_server.map(|cs| cs.owner);
        let (handle, body) = TaskHandle::wrap(future);
        self.world.borrow_mut().add_task(owner);
        self.tasks.borrow_mut().spawn(TaskName { compute_server: owner, thread, name: name.into() }, body);
        handle
    }

    /// Adds a compute server, which joins immediately. A task uses it when its own compute server has been
    /// fenced.
    pub fn join(&self) -> Result<SimFabric, Refusal> {
        join(&self.world)
    }

    /// Gives the process of a compute server, by number, another identity. In a control group that takes
    /// time, and may have to wait: at most `most` times `nap` nanoseconds.
    ///
    /// # Errors
    /// If the cluster refuses it for so long.
    pub async fn join_again(
        &self,
        parent: u32,
        clock: &impl Clock,
        nap: u64,
        most: u32,
    ) -> Result<SimFabric, Refusal> {
        let mut number = None;
        for _ in 0..most {
            let joined = {
                let mut world = self.world.borrow_mut();
                if world.net.is_some() {
                    let known = number.or_else(|| world.begin_join(parent));
                    number = known;
                    Some(known.and_then(|number| world.take_joined(number)))
                } else {
                    None
                }
            };
            match joined {
                Some(Some((owner, client, table))) => {
                    return Ok(SimFabric::new(Rc::clone(&self.world), owner, client, table));
                }
                Some(None) => {}
                None => {
                    if let Ok(fabric) = self.join() {
                        return Ok(fabric);
                    }
                }
            }
            sleep_until(clock, clock.now() + nap).await;
        }
        if let Some(number) = number {
            self.world.borrow_mut().forget_joiner(number);
        }
        Err(Refusal::NotHere)
    }

    /// Adds a compute server that joins and leaves immediately, so that the next one gets another id.
    pub fn visit(&self) -> Result<ComputeId, Refusal> {
        let fabric = join(&self.world)?;
        match self.world.borrow_mut().ask_control(fabric.owner, &Request::Leave) {
            Ok(_) => Ok(fabric.client()),
            Err(FabricError::Refused(refusal)) => Err(refusal),
            Err(_) => Err(Refusal::NotAMember { client: fabric.client() }),
        }
    }

    /// Like [`Sim::kill_after`], from within a schedule.
    pub fn kill_after(&self, compute_server: u32, effects: u64) {
        self.world.borrow_mut().kill_after(compute_server, effects);
    }

    /// Whether a compute server, by number, has died.
    pub fn is_dead(&self, compute_server: u32) -> bool {
        self.world.borrow().compute_servers.get(compute_server as usize).is_some_and(|cs| cs.dead)
    }

    /// Adds a remark of the running task to a recorded trace. `text` is called only if a trace is recorded.
    pub fn say(&self, text: impl FnOnce() -> String) {
        let mut world = self.world.borrow_mut();
        if world.log.is_recording() {
            let (task, now) = (world.current, world.now);
            world.log.remark(task, now, text());
        }
    }

    /// See [`Sim::note`].
    pub fn note(&self, what: u64) {
        self.world.borrow_mut().history.note(what);
    }
}

impl fmt::Debug for Spawner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Spawner")
    }
}
