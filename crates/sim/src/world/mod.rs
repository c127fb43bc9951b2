//! The world: memory servers, queue pairs, calls, timers, and the steps that the adversary takes among them.
//!
//! Everything that can happen is an *event*. A step executes one event, which the [`Scheduler`] chooses. The
//! same tasks and the same picks give the same events: nothing here draws a random number, reads a clock or
//! iterates in hash order. Every event advances virtual time by `step_nanos`, so that every schedule reaches
//! its deadlines.
//!
//! | module | contents |
//! |---|---|
//! | [`actors`] | the actors that can move now |
//! | [`queue_pair`] | rule F3: which verbs of a queue pair may happen next |
//! | [`flight`] | lists and calls between post and poll |
//! | [`verbs`] | posting, checking and executing verbs; F7's prefixes |
//! | [`control`] | calls, fencing, and faults: clients that die, servers that are lost |
//! | [`volumes`] | volumes in several copies: hosts, the table, promotion |
//! | [`copier`] | what hosts do to make copies again, and second losses |
//! | [`group`] | the control group of a schedule: hosts as processes, messages, cuts, clocks |
//! | [`timers`] | virtual time |
//! | [`state`] | the hash of the whole state, for exhaustive search |

pub(crate) mod actors;
pub(crate) mod control;
pub(crate) mod copier;
pub(crate) mod flight;
pub(crate) mod group;
pub(crate) mod queue_pair;
pub(crate) mod state;
pub(crate) mod timers;
pub(crate) mod verbs;
pub(crate) mod volumes;

use crate::choice::{Actor, Choice, ChoiceKind};
use crate::knobs::{Breach, Knobs};
use crate::memory::ServerMemory;
use crate::scheduler::Scheduler;
use crate::sim::{Fault, Inline, Limits, Outcome};
use crate::tasks::WakeQueue;
use crate::trace::Log;
use actors::Actors;
use flight::{Flights, NO_TASK};
use queue_pair::QueuePair;
use sherman_fabric::{Caps, ComputeId, Verb, WorkList};
use sherman_layout::FormatOptions;
use sherman_memory_server::MemoryServer;
use sherman_replica::VolumeTable;
use std::rc::Rc;
use timers::Timers;

/// The most that happens in a control group in one event, while nobody else can move.
const MOST_SILENT: u32 = 1_000;
/// So many of them count as an event, so that every run ends.
const SILENT_STEP: u32 = 4;
/// The most list buffers kept for reuse.
const POOL: usize = 256;

/// One memory server.
pub(crate) struct Server {
    pub(crate) memory: ServerMemory,
    /// The memory of the control state, which no verb reaches. Empty on servers other than 0.
    pub(crate) control_memory: ServerMemory,
    pub(crate) cpu: MemoryServer,
    /// The format options of the memory.
    pub(crate) format: FormatOptions,
    /// The CPU's state at the checkpoint.
    saved_cpu: MemoryServer,
    /// Whether the CPU has answered any call since the checkpoint.
    pub(crate) cpu_used: bool,
    /// The queue pair whose split atomic has read and not yet written.
    pub(crate) engine: Option<u32>,
    pub(crate) lost: bool,
    /// Hash of the control requests executed, in order.
    pub(crate) calls_hash: u64,
}

/// One compute server.
#[derive(Clone, Debug)]
pub(crate) struct ComputeServer {
    pub(crate) client: ComputeId,
    /// How often the id was issued.
    pub(crate) incarnation: u32,
    pub(crate) dead: bool,
    /// For each server: whether the compute server is fenced there. Stored here too, because an id may be
    /// issued again to another compute server.
    pub(crate) fenced: Vec<bool>,
    /// For each server: whether the compute server has permanently lost it, on every endpoint.
    pub(crate) cut_off: Vec<bool>,
    /// Number of its units, atomics and calls that were executed.
    pub(crate) effects: u64,
    /// The compute server dies right after this many effects.
    pub(crate) dies_after: u64,
    /// No task of it runs before this time.
    pub(crate) asleep_until: u64,
    /// The time until which no member can fence it.
    pub(crate) stalled_until: u64,
    /// The epoch of the table that it uses.
    pub(crate) epoch: u64,
    /// The process whose identity it is. All identities of a process have one clock.
    pub(crate) process: u32,
    pub(crate) clock: group::hosts::DriftingClock,
    /// Until when it may count on its lease, by its own clock. Kept in schedules with a control group.
    pub(crate) lease_until: u64,
    /// Its process has ended the identity.
    pub(crate) ended: bool,
    /// The host that answered it last.
    pub(crate) leader: Option<u16>,
    /// The host that is lost right after this many effects.
    pub(crate) costs: Option<(u64, HostLoss)>,
}

/// How a host is lost that an effect of a compute server costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostLoss {
    pub(crate) host: u16,
    /// How many events after its death it is declared lost. `None` if it lives on.
    pub(crate) dead_for: Option<u64>,
    /// The compute server loses its connections to the host.
    pub(crate) cuts_off: bool,
}

/// One endpoint.
#[derive(Clone, Debug)]
pub(crate) struct EndpointState {
    /// Distinguishes it from an endpoint of an earlier schedule.
    pub(crate) birth: u64,
    pub(crate) owner: u32,
    /// Slots of its calls that are not answered.
    pub(crate) calls: Vec<u32>,
}

/// The state of a task.
#[derive(Debug)]
pub(crate) struct TaskState {
    pub(crate) alive: bool,
    pub(crate) owner: Option<u32>,
    /// Index of the hash for its history. The tasks of one compute server share it.
    pub(crate) group: u32,
    pub(crate) lists: u64,
    /// The first verb of the list it posted last.
    pub(crate) last: Option<(u16, Verb)>,
}

/// The result of [`World::advance`].
pub(crate) enum Next {
    /// This task must be polled.
    Poll(u32),
    /// The run is over.
    End(Outcome),
}

/// The world. See the module.
pub(crate) struct World {
    pub(crate) knobs: Knobs,
    pub(crate) caps: Rc<Caps>,
    /// The compute servers whose lists execute inside `post`.
    pub(crate) inline: Inline,
    pub(crate) limits: Limits,
    pub(crate) servers: Vec<Server>,
    /// The copies of volumes. Without replication each server is a volume.
    pub(crate) volumes: volumes::Volumes,
    saved_volumes: volumes::Volumes,
    /// The control group of this schedule, if it has one.
    pub(crate) net: Option<Box<group::net::Net>>,
    /// Whether clocks differ in this schedule.
    drifts: bool,
    /// What happened in the group of this schedule.
    pub(crate) seen_group: group::GroupSeen,
    pub(crate) compute_servers: Vec<ComputeServer>,
    saved_compute_servers: Vec<ComputeServer>,
    pub(crate) endpoints: Vec<EndpointState>,
    saved_endpoints: usize,
    births: u64,
    pub(crate) queue_pairs: Vec<QueuePair>,
    pub(crate) flights: Flights,
    pub(crate) actors: Actors,
    options: Vec<Choice>,
    pub(crate) tasks: Vec<TaskState>,
    pub(crate) live_tasks: u32,
    /// The task being polled.
    pub(crate) current: u32,
    /// Verbs execute inline, in order.
    pub(crate) quiet: bool,
    /// No task may post anything: the schedule is over and its futures are being dropped.
    pub(crate) closed: bool,
    pub(crate) truncated: bool,
    faults: Vec<(u64, Fault)>,
    /// Numbers of effects after which the next recoverers die. The next one is last.
    pub(crate) ambushes: Vec<u64>,
    /// The compute server that had its last effect in this step.
    dying: Option<u32>,
    /// The host that is lost in this step, and the compute server whose effect costs it.
    losing: Option<(u32, HostLoss)>,
    /// Tasks that were woken while their compute server sleeps.
    slumber: Vec<u32>,
    pub(crate) timers: Timers,
    pub(crate) now: u64,
    saved_now: u64,
    pub(crate) steps: u64,
    pub(crate) verbs: u64,
    pub(crate) log: Log,
    pub(crate) history: state::History,
    pool: Vec<WorkList>,
}

impl World {
    pub(crate) fn new(
        knobs: Knobs,
        limits: Limits,
        servers: Vec<([ServerMemory; 2], MemoryServer, FormatOptions)>,
        volumes: volumes::Volumes,
    ) -> Self {
        let on_chip =
            servers.first().map_or(0, |([memory, _], ..)| memory.size(sherman_fabric::Space::OnChip));
        let count = servers.len();
        let servers = servers.into_iter().map(|([memory, control_memory], cpu, format)| Server {
            memory,
            control_memory,
            format,
            saved_cpu: cpu.clone(),
            cpu,
            cpu_used: false,
            engine: None,
            lost: false,
            calls_hash: 0,
        });
        let mut world = Self {
            caps: Rc::new(knobs.caps(on_chip)),
            inline: Inline::Nobody,
            knobs,
            limits,
            servers: servers.collect(),
            saved_volumes: volumes.clone(),
            volumes,
            net: None,
            drifts: false,
            seen_group: group::GroupSeen::default(),
            compute_servers: Vec::new(),
            saved_compute_servers: Vec::new(),
            endpoints: Vec::new(),
            saved_endpoints: 0,
            births: 0,
            queue_pairs: Vec::new(),
            flights: Flights::default(),
            actors: Actors::new(count),
            options: Vec::new(),
            tasks: Vec::new(),
            live_tasks: 0,
            current: NO_TASK,
            quiet: false,
            closed: false,
            truncated: false,
            faults: Vec::new(),
            ambushes: Vec::new(),
            dying: None,
            losing: None,
            slumber: Vec::new(),
            timers: Timers::new(),
            now: 0,
            saved_now: 0,
            steps: 0,
            verbs: 0,
            log: Log::default(),
            history: state::History::default(),
            pool: Vec::new(),
        };
        world.checkpoint();
        world.rewind();
        world
    }

    /// The volumes as of the last checkpoint.
    pub(crate) fn saved_volumes(&self) -> &volumes::Volumes {
        &self.saved_volumes
    }

    pub(crate) fn set_knobs(&mut self, knobs: Knobs) {
        self.caps = Rc::new(knobs.caps(self.caps.on_chip_bytes));
        self.knobs = knobs;
    }

    /// Makes the current state the start of every later schedule. Nothing may be in flight.
    pub(crate) fn checkpoint(&mut self) {
        for server in &mut self.servers {
            server.memory.checkpoint();
            server.control_memory.checkpoint();
            server.saved_cpu = server.cpu.clone();
            server.cpu_used = false;
        }
        self.saved_compute_servers = self.compute_servers.clone();
        self.saved_volumes = self.volumes.clone();
        self.saved_endpoints = self.endpoints.len();
        self.saved_now = self.now;
    }

    /// Returns to the checkpoint. The tasks have already been dropped.
    pub(crate) fn rewind(&mut self) {
        let previous = self.knobs.breach == Some(Breach::StaleRead);
        for server in &mut self.servers {
            server.memory.rewind(previous);
            server.memory.set_tracking(false);
            server.control_memory.rewind(false);
            server.control_memory.set_tracking(false);
            if std::mem::take(&mut server.cpu_used) {
                server.cpu.clone_from(&server.saved_cpu);
            }
            (server.engine, server.lost, server.calls_hash) = (None, false, 0);
        }
        let open: Vec<u32> = self.flights.open_slots().map(|(slot, _)| slot).collect();
        for slot in open {
            let list = self.flights.end(slot);
            self.recycle(list);
        }
        self.compute_servers.clone_from(&self.saved_compute_servers);
        self.volumes.clone_from(&self.saved_volumes);
        (self.net, self.drifts) = (None, false);
        self.seen_group = group::GroupSeen::default();
        self.endpoints.truncate(self.saved_endpoints);
        self.endpoints.iter_mut().for_each(|endpoint| endpoint.calls.clear());
        self.queue_pairs.truncate(self.saved_endpoints * self.servers.len());
        for qp in &mut self.queue_pairs {
            *qp = QueuePair::new(qp.endpoint, qp.server, qp.owner);
        }
        self.actors.clear();
        self.tasks.clear();
        self.timers.clear();
        self.faults.clear();
        self.slumber.clear();
        self.ambushes.clear();
        (self.dying, self.losing) = (None, None);
        (self.live_tasks, self.current) = (0, NO_TASK);
        (self.quiet, self.closed, self.truncated) = (false, false, false);
        (self.now, self.steps, self.verbs) = (self.saved_now, 0, 0);
        self.log.reset();
        self.history.reset();
    }

    pub(crate) fn add_compute_server(
        &mut self,
        client: ComputeId,
        incarnation: u32,
        table: &VolumeTable,
    ) -> u32 {
        let process = self.compute_servers.len() as u32;
        self.compute_servers.push(ComputeServer {
            client,
            incarnation,
            dead: false,
            cut_off: self.unreachable(table),
            fenced: vec![false; self.servers.len()],
            effects: 0,
            dies_after: u64::MAX,
            asleep_until: 0,
            stalled_until: 0,
            epoch: table.epoch(),
            process,
            clock: group::hosts::DriftingClock::TRUE,
            lease_until: 0,
            ended: false,
            leader: None,
            costs: None,
        });
        self.compute_servers.len() as u32 - 1
    }

    /// Adds an endpoint. Returns its number and birth.
    pub(crate) fn add_endpoint(&mut self, owner: u32) -> (u32, u64) {
        let endpoint = self.endpoints.len() as u32;
        self.births += 1;
        self.endpoints.push(EndpointState { birth: self.births, owner, calls: Vec::new() });
        let cut_off = &self.compute_servers[owner as usize].cut_off;
        self.queue_pairs.extend((0u16..).zip(cut_off).map(|(server, &broken)| {
            let mut pair = QueuePair::new(endpoint, server, owner);
            pair.broken = broken;
            pair
        }));
        (endpoint, self.births)
    }

    pub(crate) fn add_task(&mut self, owner: Option<u32>) {
        let group = self.history.group(owner);
        self.tasks.push(TaskState { alive: true, owner, group, lists: 0, last: None });
        self.live_tasks += 1;
    }

    pub(crate) fn finish_task(&mut self, task: u32) {
        if std::mem::replace(&mut self.tasks[task as usize].alive, false) {
            self.live_tasks -= 1;
        }
    }

    pub(crate) fn add_fault(&mut self, step: u64, fault: Fault) {
        self.faults.push((step, fault));
    }

    /// Returns a list from the pool.
    pub(crate) fn list(&mut self, server: u16) -> WorkList {
        let mut list = self.pool.pop().unwrap_or_default();
        list.reset(server);
        list
    }

    pub(crate) fn recycle(&mut self, list: WorkList) {
        if self.pool.len() < POOL && list.capacity() > 0 {
            self.pool.push(list);
        }
    }

    /// Executes events until a task must be polled or no event is left.
    pub(crate) fn advance<S: Scheduler + ?Sized>(&mut self, scheduler: &mut S, wakes: &WakeQueue) -> Next {
        // A list may have had its last effect inside `post`.
        self.reap_dying();
        loop {
            self.wake(wakes);
            if self.truncated {
                return Next::End(Outcome::ListLimit);
            }
            if self.steps >= self.limits.steps {
                return Next::End(Outcome::StepLimit);
            }
            if !self.faults.is_empty() {
                self.strike();
            }
            if self.history.on && !scheduler.enter(self.state()) {
                return Next::End(Outcome::Pruned);
            }
            if !self.slumber.is_empty() && self.actors.choices().is_empty() && self.sleep_through() {
                continue;
            }
            let Some(choice) = self.choose(scheduler) else {
                return Next::End(if self.live_tasks == 0 { Outcome::Done } else { self.deadlock() });
            };
            self.steps += 1;
            self.now += self.knobs.step_nanos;
            let polled = self.take(choice);
            self.timers.fire(self.now);
            if self.net_due() <= self.now {
                self.run_net();
            }
            if self.volumes.copier.is_busy() {
                self.work_on_copies();
            }
            if let Some((owner, loss)) = self.losing.take() {
                self.cost(owner, loss);
            }
            self.reap_dying();
            // Its compute server may have had its last effect in the control group meanwhile.
            if let Some(task) = polled.filter(|&task| self.tasks[task as usize].alive) {
                return Next::Poll(task);
            }
        }
    }

    /// Kills the compute server that had its last effect.
    #[inline]
    fn reap_dying(&mut self) {
        if let Some(owner) = self.dying.take() {
            let effects = self.compute_servers[owner as usize].effects;
            self.log.remark(NO_TASK, self.now, format!("cs{owner} dies after its effect {effects}"));
            self.kill(owner, true);
        }
    }

    /// When the next thing happens in the control group of the schedule.
    #[inline]
    fn net_due(&self) -> u64 {
        self.net.as_ref().map_or(u64::MAX, |net| net.next())
    }

    /// Makes woken tasks ready, unless their compute server sleeps.
    #[inline]
    fn wake(&mut self, wakes: &WakeQueue) {
        let (tasks, actors, slumber) = (&self.tasks, &mut self.actors, &mut self.slumber);
        let (computes, now) = (&self.compute_servers, self.now);
        wakes.drain(|task| match tasks.get(task as usize) {
            Some(state) if state.alive => {
                if state.owner.is_some_and(|owner| computes[owner as usize].asleep_until > now) {
                    slumber.push(task);
                } else {
                    actors.set(Actor::Task(task), true);
                }
            }
            _ => {}
        });
        if !self.slumber.is_empty() {
            self.rouse();
        }
    }

    /// Makes the tasks ready whose compute servers have slept long enough.
    fn rouse(&mut self) {
        let mut slumber = std::mem::take(&mut self.slumber);
        slumber.retain(|&task| {
            let TaskState { alive, owner, .. } = self.tasks[task as usize];
            let asleep =
                owner.is_some_and(|owner| self.compute_servers[owner as usize].asleep_until > self.now);
            if alive && !asleep {
                self.actors.set(Actor::Task(task), true);
            }
            alive && asleep
        });
        self.slumber = slumber;
    }

    /// If no actor can move, advances time to the end of the next sleep, unless a timer is due before.
    fn sleep_through(&mut self) -> bool {
        let owners = self.slumber.iter().filter_map(|&task| self.tasks[task as usize].owner);
        let ends = owners.map(|owner| self.compute_servers[owner as usize].asleep_until).min();
        let Some(end) = ends.filter(|&end| end <= self.timers.next().min(self.net_due())) else {
            return false;
        };
        self.now = self.now.max(end);
        self.rouse();
        true
    }

    /// Picks the next event: first the actor, then the event.
    #[inline]
    fn choose<S: Scheduler + ?Sized>(&mut self, scheduler: &mut S) -> Option<Choice> {
        let timers = self.live_tasks > 0 && (!self.timers.is_empty() || self.net_due() < u64::MAX);
        let who = if timers && self.knobs.time_jumps && !self.actors.choices().is_empty() {
            self.actors.push_jump();
            let who = pick(scheduler, self.actors.choices());
            self.actors.pop_jump();
            who?
        } else if let Some(who) = pick(scheduler, self.actors.choices()) {
            who
        } else {
            return timers.then_some(Choice::of(Actor::Clock, ChoiceKind::Advance));
        };
        if who.kind != ChoiceKind::Step {
            return Some(who);
        }
        self.options.clear();
        match who.actor {
            Actor::QueuePair { endpoint, server } => {
                let qp = endpoint as usize * self.servers.len() + usize::from(server);
                self.queue_pair_choices(qp);
            }
            Actor::Control(endpoint) => self.control_choices(endpoint),
            Actor::Task(_) | Actor::Clock => {}
        }
        pick(scheduler, &self.options)
    }

    fn queue_pair_choices(&mut self, qp: usize) {
        let qp = &self.queue_pairs[qp];
        let atomics = self.servers[usize::from(qp.server)].engine.is_none() || self.engine_is_open();
        let dead = self.compute_servers[qp.owner as usize].dead;
        qp.choices(&self.knobs, atomics, dead, &mut self.options);
    }

    /// Whether a split atomic does not exclude other atomics (a breach of F4).
    pub(crate) fn engine_is_open(&self) -> bool {
        self.knobs.breach == Some(Breach::SplitAtomic)
    }

    /// Lets time pass until something happens. While nobody can move, what the control group does for itself
    /// is not an event of its own.
    fn jump(&mut self) {
        let idle = self.actors.choices().is_empty();
        for silent in 0..MOST_SILENT {
            self.steps += u64::from(silent % SILENT_STEP == SILENT_STEP - 1);
            self.now = self.now.max(self.timers.next().min(self.net_due()));
            if self.net_due() <= self.now {
                self.run_net();
            }
            if !idle || self.timers.next() <= self.now || !self.actors.choices().is_empty() {
                return;
            }
        }
    }

    /// Executes one event. Returns the task to poll, if the event is a task's turn.
    #[inline]
    fn take(&mut self, choice: Choice) -> Option<u32> {
        match (choice.kind, choice.actor) {
            (ChoiceKind::Run, Actor::Task(task)) => {
                self.actors.set(choice.actor, false);
                self.current = task;
                self.note_event(choice);
                if self.history.on {
                    self.history.ran(self.tasks[task as usize].group, task);
                }
                return Some(task);
            }
            (ChoiceKind::Advance, _) => {
                self.jump();
                self.note_event(choice);
            }
            (ChoiceKind::Execute | ChoiceKind::Answer, Actor::Control(endpoint)) => {
                self.take_call(endpoint, choice)
            }
            (_, Actor::QueuePair { endpoint, server }) => {
                let qp = endpoint as usize * self.servers.len() + usize::from(server);
                self.take_verb(qp, choice);
            }
            _ => {}
        }
        None
    }
}

/// Asks the scheduler if there is more than one choice.
#[inline]
fn pick<S: Scheduler + ?Sized>(scheduler: &mut S, choices: &[Choice]) -> Option<Choice> {
    match choices {
        [] => None,
        [only] => Some(*only),
        _ => Some(choices[scheduler.pick(choices).min(choices.len() - 1)]),
    }
}
