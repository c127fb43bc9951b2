//! The world: machines, memory servers, queue pairs, threads, and the events among them.
//!
//! The path of a list:
//! 1. The client's CPU posts it.
//! 2. The list crosses PCIe. The client's NIC fetches the payload that is not inline, and sends verb after
//!    verb.
//! 3. The link and the switch carry the verbs.
//! 4. At the receiver each verb waits for the link, for the verb before it (RC order), and for a processing
//!    unit. An atomic also waits for its bucket, while it occupies its unit.
//! 5. What a verb reads or writes in host memory crosses the receiver's PCIe.
//! 6. The answer takes the link back and crosses the client's PCIe. The client's CPU finds the completion.
//!
//! Each step that needs a shared resource is an event of its own, so each resource serves its requests in the
//! order in which they arrive.
//!
//! `receive.rs` has the receiver's part. A list posted while time stands still (`quiet`) executes at once:
//! trees are opened and caches warmed in this way.

use super::copies::Copies;
use super::events::{Event, Events};
use super::flight::{Flights, NO_TASK};
use super::machine::{Machine, NANO, Timing};
use super::memory::Sparse;
use super::tear::Recent;
use crate::bounds::check_verb;
use crate::tasks::WakeQueue;
use crate::world::timers::Timers;
use sherman_fabric::{Caps, ComputeId, FabricError, Peer, Request, Space, Ticket, Verb, WorkList};
use sherman_memory_server::MemoryServer;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

/// A memory server.
pub(super) struct ServerModel {
    pub machine: u16,
    pub memory: Sparse,
    /// The memory of the control state, which no verb reaches. Empty on servers other than 0.
    pub control: Sparse,
    pub cpu: MemoryServer,
    pub recent: Recent,
}

/// A thread of a compute server. It does one thing at a time.
#[derive(Debug, Default)]
struct Thread {
    /// The time until which it is busy.
    clock: u64,
    ready: VecDeque<(u64, u32)>,
    planned: bool,
}

/// A thread's queue pair to a server. It processes one list after the other.
#[derive(Debug, Default)]
pub(super) struct QueuePair {
    pub busy: bool,
    pub waiting: VecDeque<u32>,
    /// Lists that were posted and not yet sent, in posting order.
    pub posted: VecDeque<u32>,
    /// The time when the last earlier READ takes effect. A fenced WRITE waits for it.
    pub reads_until: u64,
}

/// One endpoint: the client of its thread, and its machine.
#[derive(Debug)]
pub(super) struct Port {
    pub client: ComputeId,
    pub machine: u16,
    /// CPU time of the client per line read, in picoseconds.
    pub line: u64,
}

/// The next action outside of the world's borrow.
pub(super) enum Next {
    Poll {
        task: u32,
        thread: u32,
    },
    /// No events are left.
    End,
}

pub(super) struct World {
    pub timing: Timing,
    pub caps: Rc<Caps>,
    pub now: u64,
    pub quiet: bool,
    pub events: Events,
    pub machines: Vec<Machine>,
    /// Every copy of every volume.
    pub server_models: Vec<ServerModel>,
    pub copies: Copies,
    pub flights: Flights,
    pub ports: Vec<Port>,
    pub queue_pairs: Vec<QueuePair>,
    threads: Vec<Thread>,
    /// The thread of each task.
    task_threads: Vec<u32>,
    /// Each task by the address of its wakers.
    pub task_wakers: HashMap<usize, u32>,
    pub timers: Timers,
    /// The running task and its thread.
    current: Option<(u32, u32)>,
    pool: Vec<WorkList>,
    pub verbs: u64,
}

impl World {
    pub(super) fn new(
        timing: Timing,
        caps: Caps,
        machines: u16,
        server_models: Vec<ServerModel>,
        copies: Copies,
    ) -> Self {
        Self {
            machines: (0..machines).map(|_| Machine::new(&timing.params)).collect(),
            timing,
            caps: Rc::new(caps),
            now: 0,
            quiet: false,
            events: Events::default(),
            server_models,
            copies,
            flights: Flights::default(),
            ports: Vec::new(),
            queue_pairs: Vec::new(),
            threads: Vec::new(),
            task_threads: Vec::new(),
            task_wakers: HashMap::new(),
            timers: Timers::new(),
            current: None,
            pool: Vec::new(),
            verbs: 0,
        }
    }

    /// Adds an endpoint, with a thread of its own that has the same number.
    pub(super) fn add_port(&mut self, port: Port) -> u32 {
        self.ports.push(port);
        self.threads.push(Thread::default());
        self.queue_pairs.extend((0..self.server_models.len()).map(|_| QueuePair::default()));
        self.ports.len() as u32 - 1
    }

    pub(super) fn add_task(&mut self, task: u32, thread: u32, waker: usize) {
        debug_assert_eq!(task as usize, self.task_threads.len());
        self.task_threads.push(thread);
        self.task_wakers.insert(waker, task);
    }

    /// Returns the time in picoseconds, as the running task sees it.
    pub(super) fn time(&self) -> u64 {
        match self.current {
            Some((_, thread)) if !self.quiet => self.threads[thread as usize].clock,
            _ => self.now,
        }
    }

    /// Makes the running task's thread busy for this long.
    pub(super) fn spend(&mut self, picos: u64) {
        if let Some((_, thread)) = self.current.filter(|_| !self.quiet) {
            self.threads[thread as usize].clock += picos;
        }
    }

    pub(super) fn list(&mut self, server: u16) -> WorkList {
        let mut list = self.pool.pop().unwrap_or_default();
        list.reset(server);
        list
    }

    pub(super) fn recycle(&mut self, list: WorkList) {
        self.pool.push(list);
    }

    pub(super) fn pair(&self, endpoint: u32, server: u16) -> usize {
        endpoint as usize * self.server_models.len() + usize::from(server)
    }

    fn check(&self, list: &WorkList) -> Result<(), FabricError> {
        let server = list.server();
        let server_model =
            self.server_models.get(usize::from(server)).ok_or(FabricError::NoSuchServer { server })?;
        let (asked, limit) = (list.len() as u64, u64::from(self.caps.max_verbs));
        if asked > limit {
            return Err(FabricError::TooLarge { asked, limit });
        }
        let size = |space: Space| server_model.memory.size(space);
        list.verbs().iter().try_for_each(|verb| check_verb(&self.caps, server, verb, size))
    }

    /// Posts a list.
    pub(super) fn post(&mut self, endpoint: u32, list: WorkList) -> Ticket {
        let task = self.current.map_or(NO_TASK, |(task, _)| task);
        let (server, verbs) = (list.server(), list.len());
        let refused = self.check(&list).err();
        let slot = self.flights.begin(endpoint, server, task);
        let flight = self.flights.get_mut(slot);
        flight.list = list;
        flight.left = verbs as u16;
        flight.error = refused;
        let ticket = self.flights.ticket(slot);
        if self.quiet || self.flights.get(slot).error.is_some() || verbs == 0 {
            if self.flights.get(slot).error.is_none() {
                for verb in 0..verbs as u16 {
                    self.apply(slot, verb);
                }
            }
            self.flights.get_mut(slot).done = true;
            return ticket;
        }
        self.verbs += verbs as u64;
        let params = &self.timing.params;
        self.spend((params.post_nanos + params.post_verb_nanos * (verbs as u64 - 1)) * NANO);
        let pair = self.pair(endpoint, server);
        self.queue_pairs[pair].posted.push_back(slot);
        self.events.plan(self.time(), Event::Ring(slot));
        ticket
    }

    /// Returns the machine of the client that posted a list.
    fn sender(&mut self, slot: u32) -> &mut Machine {
        let endpoint = self.flights.get(slot).endpoint;
        &mut self.machines[usize::from(self.ports[endpoint as usize].machine)]
    }

    /// The CPU writes a list to its NIC.
    fn ring(&mut self, slot: u32) {
        let timing = self.timing;
        let requests = self.flights.get(slot).list.verbs().iter();
        let duration = timing.ring(requests.map(|verb| work_request(verb, timing.params.inline_bytes)));
        let now = self.now;
        let at = self.sender(slot).from_host.begin(now, duration) + timing.doorbell;
        let next = if self.fetched(slot) > 0 { Event::Pull(slot) } else { Event::Send(slot) };
        self.events.plan(at, next);
    }

    /// The NIC asks for the payload of a list.
    fn pull(&mut self, slot: u32) {
        let (now, duration) = (self.now, self.timing.dma_request(self.fetched(slot)));
        let begin = self.sender(slot).to_host.begin(now, duration);
        self.events.plan(begin + self.timing.pcie, Event::Pulled(slot));
    }

    /// The payload of a list arrives from host memory.
    fn pulled(&mut self, slot: u32) {
        let (now, duration) = (self.now, self.timing.dma(self.fetched(slot)));
        let begin = self.sender(slot).from_host.begin(now, duration);
        self.events.plan(begin + duration, Event::Send(slot));
    }

    /// Returns the bytes of a list that its NIC must fetch from the client's memory.
    fn fetched(&self, slot: u32) -> u64 {
        let inline = self.timing.params.inline_bytes;
        let payload = |verb: &Verb| match *verb {
            Verb::Write { len, .. } if u64::from(len) > inline => u64::from(len),
            _ => 0,
        };
        self.flights.get(slot).list.verbs().iter().map(payload).sum()
    }

    /// The NIC has all of a list. It sends the lists of a queue pair in the order in which they were posted.
    fn send_ready(&mut self, slot: u32) {
        let flight = self.flights.get_mut(slot);
        flight.complete = true;
        let pair = self.pair(self.flights.get(slot).endpoint, self.flights.get(slot).server);
        while let Some(&first) = self.queue_pairs[pair].posted.front()
            && self.flights.get(first).complete
        {
            self.queue_pairs[pair].posted.pop_front();
            self.send(first);
        }
    }

    /// Makes the sender's NIC send the verbs of a list.
    fn send(&mut self, slot: u32) {
        let timing = self.timing;
        let flight = self.flights.get_mut(slot);
        let nic = &mut self.machines[usize::from(self.ports[flight.endpoint as usize].machine)];
        for verb in flight.list.verbs() {
            let wire = timing.wire(request_bytes(verb));
            let begin = nic.send.begin(self.now, wire.max(timing.params.send_message_picos));
            flight.arrivals.push(begin + wire + timing.one_way);
        }
        self.events.plan(flight.arrivals[0], Event::Arrive(slot));
    }

    /// The last answer has reached the sender's NIC.
    fn receive_answer(&mut self, slot: u32) {
        let (timing, now) = (self.timing, self.now);
        let flight = self.flights.get(slot);
        if flight.answers == 0 {
            return self.deliver(slot);
        }
        let messages = flight.answers * timing.params.receive_message_picos;
        let duration = timing.wire(flight.reply).max(messages);
        let begin = self.sender(slot).receive.begin(now, duration);
        if begin > now {
            self.events.plan(begin, Event::Deliver(slot));
        } else {
            self.deliver(slot);
        }
    }

    /// The answers and the completion cross PCIe as they arrive.
    fn deliver(&mut self, slot: u32) {
        let (timing, now) = (self.timing, self.now);
        let flight = self.flights.get(slot);
        let payload = if flight.answers > 0 { timing.dma(flight.reply) } else { 0 };
        let entry = timing.dma(timing.params.completion_bytes);
        let begin = self.sender(slot).to_host.begin(now, payload + entry);
        self.events.plan(begin + payload + timing.completion, Event::Complete(slot));
    }

    /// Sends a control request.
    pub(super) fn call(&mut self, endpoint: u32, peer: Peer, request: Request) -> Ticket {
        let task = self.current.map_or(NO_TASK, |(task, _)| task);
        let slot = self.flights.begin(endpoint, peer.server(), task);
        self.flights.get_mut(slot).request = Some(request);
        if self.quiet {
            self.answer(slot);
            self.flights.get_mut(slot).done = true;
        } else {
            self.spend(self.timing.params.post_nanos * NANO);
            // The CPU of a primary waits until the backup has its stores.
            let mirrored = self.is_replicated() && matches!(peer, Peer::Volume(_));
            let calls = 1 + u64::from(mirrored);
            self.events
                .plan(self.time() + calls * self.timing.params.call_nanos * NANO, Event::Complete(slot));
        }
        self.flights.ticket(slot)
    }

    fn answer(&mut self, slot: u32) {
        let flight = self.flights.get_mut(slot);
        let Some(request) = flight.request.take() else { return };
        let (server, client) = (flight.server, self.ports[flight.endpoint as usize].client);
        let answer = self.serve(server, client, &request);
        let flight = self.flights.get_mut(slot);
        match answer {
            Ok(response) => flight.response = Some(response),
            Err(error) => flight.error = Some(error),
        }
    }

    /// Completes a list or call. Returns the waiting task, if its thread has time now.
    fn complete(&mut self, slot: u32) -> Option<Next> {
        self.answer(slot);
        let flight = self.flights.get_mut(slot);
        flight.done = true;
        let task = flight.task;
        if flight.forgotten {
            let list = self.flights.end(slot);
            self.recycle(list);
            return None;
        }
        if task == NO_TASK {
            return None;
        }
        let number = self.task_threads[task as usize];
        let thread = &self.threads[number as usize];
        if thread.planned || !thread.ready.is_empty() || thread.clock > self.now {
            self.make_ready(task, self.now);
            return None;
        }
        Some(self.begin(task, number))
    }

    fn begin(&mut self, task: u32, number: u32) -> Next {
        let thread = &mut self.threads[number as usize];
        thread.clock = thread.clock.max(self.now) + self.timing.params.resume_nanos * NANO;
        self.current = Some((task, number));
        Next::Poll { task, thread: number }
    }

    /// Gives up interest in a list.
    pub(super) fn forget(&mut self, slot: u32) {
        if self.flights.get(slot).done {
            let list = self.flights.end(slot);
            self.recycle(list);
        } else {
            self.flights.get_mut(slot).forgotten = true;
        }
    }

    /// Makes `task` ready to run at `at` or later.
    fn make_ready(&mut self, task: u32, at: u64) {
        let number = self.task_threads[task as usize];
        let thread = &mut self.threads[number as usize];
        thread.ready.push_back((at, task));
        if !std::mem::replace(&mut thread.planned, true) {
            self.events.plan(at.max(thread.clock), Event::Resume(number));
        }
    }

    /// Returns the next ready task of thread `number`, if there is one.
    fn resume(&mut self, number: u32) -> Option<Next> {
        let thread = &mut self.threads[number as usize];
        thread.planned = false;
        let (at, task) = *thread.ready.front()?;
        if at > self.now {
            thread.planned = true;
            self.events.plan(at, Event::Resume(number));
            return None;
        }
        thread.ready.pop_front();
        Some(self.begin(task, number))
    }

    /// Whether `task`, which has just been polled, woke only itself and its thread has nothing else to do.
    pub(super) fn goes_on(&mut self, task: u32, number: u32, wakes: &WakeQueue) -> bool {
        let thread = &mut self.threads[number as usize];
        let goes_on = thread.ready.is_empty() && wakes.take_only(task);
        if goes_on {
            thread.clock += self.timing.params.resume_nanos * NANO;
        }
        goes_on
    }

    /// A task of thread `number` has been polled.
    pub(super) fn ran(&mut self, number: u32, wakes: &WakeQueue) {
        self.current = None;
        let at = self.threads[number as usize].clock;
        wakes.drain(|task| self.make_ready(task, at));
        let thread = &mut self.threads[number as usize];
        if let Some(&(ready, _)) = thread.ready.front()
            && !std::mem::replace(&mut thread.planned, true)
        {
            self.events.plan(ready.max(at), Event::Resume(number));
        }
    }

    /// Executes events until a task must run.
    pub(super) fn advance(&mut self, wakes: &WakeQueue) -> Next {
        let now = self.now;
        wakes.drain(|task| self.make_ready(task, now));
        loop {
            let due = self.timers.next().saturating_mul(NANO);
            if due <= self.events.next_at() && due != u64::MAX {
                self.now = self.now.max(due);
                self.timers.fire(self.now / NANO);
                let now = self.now;
                wakes.drain(|task| self.make_ready(task, now));
                continue;
            }
            let Some((at, event)) = self.events.next() else { return Next::End };
            self.now = at;
            match event {
                Event::Ring(slot) => self.ring(slot),
                Event::Pull(slot) => self.pull(slot),
                Event::Pulled(slot) => self.pulled(slot),
                Event::Send(slot) => self.send_ready(slot),
                Event::Arrive(slot) => self.arrive(slot),
                Event::Admit(slot) => self.admit(slot),
                Event::Process(slot) => self.process(slot),
                Event::Fetch(slot, verb) => self.fetch(slot, verb),
                Event::Fetched(slot, verb) => self.fetched_from_host(slot, verb),
                Event::Land(slot, verb) => self.land(slot, verb),
                Event::Execute(slot, verb) => self.execute(slot, verb),
                Event::Stored(machine, bucket) => self.release_bucket(usize::from(machine), bucket as usize),
                Event::UnitFree(machine) => self.unit_free(machine),
                Event::Return(slot) => self.receive_answer(slot),
                Event::Deliver(slot) => self.deliver(slot),
                Event::Complete(slot) => {
                    if let Some(next) = self.complete(slot) {
                        return next;
                    }
                }
                Event::Resume(thread) => {
                    if let Some(next) = self.resume(thread) {
                        return next;
                    }
                }
            }
        }
    }
}

/// Returns the bytes of a verb's work request, as a ConnectX-5 takes it (`mlx5dv.h` in rdma-core): control
/// 16, remote address 16, and then a pointer to the local buffer 16 or an inline payload after its length 4.
/// An atomic has its operands, 16, besides the pointer. The model ignores that masks take 16 more.
fn work_request(verb: &Verb, inline_bytes: u64) -> u64 {
    match *verb {
        Verb::Read { .. } => 48,
        Verb::Write { len, .. } if u64::from(len) > inline_bytes => 48,
        Verb::Write { len, .. } => 36 + u64::from(len),
        Verb::Cas { .. } | Verb::Faa { .. } => 64,
    }
}

/// Returns the payload of a verb's request.
pub(super) fn request_bytes(verb: &Verb) -> u64 {
    match *verb {
        Verb::Read { .. } => 0,
        Verb::Write { len, .. } => u64::from(len),
        // Compare, swap and their masks.
        Verb::Cas { .. } | Verb::Faa { .. } => 28,
    }
}
