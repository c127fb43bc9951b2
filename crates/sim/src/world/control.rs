//! Control calls, fencing, and faults.

use super::flight::{Flight, NO_TASK, Phase};
use super::{HostLoss, Server, World};
use crate::choice::{Actor, Choice, ChoiceKind};
use crate::hash::{mix, mix_bytes};
use crate::memory::CpuView;
use crate::sim::{Fault, Outcome, Waiting};
use crate::trace::Detail;
use sherman_fabric::control::Spreading;
use sherman_fabric::{ComputeId, FabricError, Peer, Refusal, Request, Response, Seen, Ticket};
use sherman_layout::FormatOptions;
use sherman_memory_server::{Memories, MemoryServer};

impl World {
    /// Sends a control request.
    pub(crate) fn call(&mut self, endpoint: u32, peer: Peer, request: Request) -> Ticket {
        let server = peer.server();
        let slot = self.flights.begin(endpoint, server, self.current);
        let flight = self.flights.get_mut(slot);
        if self.history.on {
            flight.posted = mix_bytes(u64::from(server), format!("{request:?}").as_bytes());
        }
        flight.request = Some(request);
        if self.net.is_some() {
            let owner = self.endpoints[endpoint as usize].owner as usize;
            self.flights.get_mut(slot).asked = self.compute_servers[owner].clock.read(self.now);
        }
        let ticket = self.flights.ticket(slot);
        if self.quiet {
            self.execute_call(endpoint, slot);
            self.deliver(slot);
        } else {
            self.endpoints[endpoint as usize].calls.push(slot);
            self.actors.set(Actor::Control(endpoint), true);
        }
        ticket
    }

    /// Adds the enabled events among an endpoint's calls. Each call may be executed, and later answered, in
    /// any order.
    pub(super) fn control_choices(&mut self, endpoint: u32) {
        for &list in &self.endpoints[endpoint as usize].calls {
            let flight = self.flights.get(list);
            if flight.sent {
                continue;
            }
            let kind = if flight.phase == Phase::InFlight { ChoiceKind::Execute } else { ChoiceKind::Answer };
            self.options.push(Choice { actor: Actor::Control(endpoint), kind, list, verb: 0, unit: 0 });
        }
    }

    pub(super) fn take_call(&mut self, endpoint: u32, choice: Choice) {
        self.note_event(choice);
        if choice.kind == ChoiceKind::Execute {
            self.execute_call(endpoint, choice.list);
            if self.log.is_recording() {
                self.tell_answer(choice.list);
            }
        } else {
            self.deliver(choice.list);
        }
        self.tidy_calls(endpoint);
    }

    /// Forgets the calls of an endpoint that are answered.
    pub(super) fn tidy_calls(&mut self, endpoint: u32) {
        let flights = &self.flights;
        let Some(state) = self.endpoints.get_mut(endpoint as usize) else { return };
        state.calls.retain(|&slot| matches!(flights.get(slot).phase, Phase::InFlight | Phase::Finished));
        self.refresh_calls(endpoint);
    }

    /// Whether some call of an endpoint can be executed or answered now.
    pub(super) fn refresh_calls(&mut self, endpoint: u32) {
        let flights = &self.flights;
        let Some(state) = self.endpoints.get(endpoint as usize) else { return };
        let pending = state.calls.iter().any(|&slot| !flights.get(slot).sent);
        self.actors.set(Actor::Control(endpoint), pending);
    }

    /// Adds the answer of a call to the trace.
    fn tell_answer(&mut self, slot: u32) {
        let flight = self.flights.get(slot);
        if let Some(request) = &flight.request {
            let asked = format!("{request:?} to server {}", flight.server);
            let told = match (&flight.response, &flight.error) {
                (_, Some(error)) => format!("{asked}: {error}"),
                (Some(response), None) => format!("{asked}: {response:?}"),
                (None, None) => asked,
            };
            let task = flight.task;
            self.log.detail(task, self.now, Detail::Call(told));
        }
    }

    fn execute_call(&mut self, endpoint: u32, slot: u32) {
        let server = self.flights.get(slot).server;
        let Some(request) = self.flights.get(slot).request.clone() else { return };
        if self.net.is_some() {
            let owner = self.endpoints[endpoint as usize].owner as usize;
            if request.is_for_control() {
                return self.send_call(endpoint, slot);
            }
            if self.cpu_waits(owner, endpoint, slot, server) {
                return;
            }
        }
        let answer = self.answer(endpoint, server, &request);
        self.count_effect(self.endpoints[endpoint as usize].owner);
        let flight = self.flights.get_mut(slot);
        if self.history.on {
            flight.fetched = mix_bytes(flight.posted, format!("{answer:?}").as_bytes());
        }
        match answer {
            Ok(response) => flight.response = Some(response),
            Err(error) => flight.error = Some(error),
        }
        self.finish(slot);
    }

    fn answer(&mut self, endpoint: u32, server: u16, request: &Request) -> Result<Response, FabricError> {
        let owner = self.endpoints[endpoint as usize].owner as usize;
        let client = self.compute_servers[owner].client;
        if request.is_for_control()
            && let Some(answer) = self.ask_cluster(owner, request)
        {
            return answer;
        }
        let (index, now) = (usize::from(server), self.now);
        let lost = self.servers.get(index).ok_or(FabricError::NoSuchServer { server })?.lost;
        self.check_copy(owner, server)?;
        if lost {
            return Err(FabricError::ServerLost { server });
        }
        if self.queue_pairs[endpoint as usize * self.servers.len() + index].broken {
            return Err(FabricError::Disconnected { server });
        }
        if self.compute_servers[owner].fenced[index] {
            return Err(FabricError::Fenced { client });
        }
        let response = self.serve(server, client, request, now)?;
        if let Request::Fence { client } = *request {
            if self.compute_servers.iter().any(|other| other.client == client && other.stalled_until > now) {
                return Err(FabricError::OwnerStalled { client });
            }
            for copy in self.fenced_beside(server) {
                self.fence(copy, client);
            }
            self.fence(server, client);
            self.spring(owner);
        }
        self.tick();
        Ok(response)
    }

    /// Makes a server's CPU answer `request` at once.
    pub(crate) fn serve(
        &mut self,
        server: u16,
        from: ComputeId,
        request: &Request,
        now: u64,
    ) -> Result<Response, Refusal> {
        let track = self.history.on;
        if track {
            let asked = mix_bytes(u64::from(from.0), format!("{request:?}").as_bytes());
            let target = &mut self.servers[usize::from(server)];
            target.calls_hash = mix(target.calls_hash, asked);
        }
        let answer = self.on_cpu(server, |cpu, memories| cpu.handle(memories, from, request, now));
        self.end_reaped(server);
        answer
    }

    /// Makes the control state answer a compute server at once.
    pub(crate) fn ask_control(&mut self, owner: u32, request: &Request) -> Result<Response, FabricError> {
        if let Some(answer) = self.ask_cluster(owner as usize, request) {
            return answer;
        }
        let (client, now) = (self.compute_servers[owner as usize].client, self.now);
        Ok(self.serve(Peer::Control.server(), client, request, now)?)
    }

    /// Ends the connections to `server` of clients that the control state beside volume 0 reaped by itself.
    fn end_reaped(&mut self, server: u16) {
        for client in self.servers[0].cpu.take_reaped() {
            self.fence(server, client);
        }
    }

    /// F6: nothing of `client` executes on `server` any more. Its lists in flight there end now, so that the
    /// fence can be answered at once.
    pub(super) fn fence(&mut self, server: u16, client: ComputeId) {
        if let Some(net) = &mut self.net {
            net.note_fence(server, client);
        }
        for owner in 0..self.compute_servers.len() {
            let compute_server = &mut self.compute_servers[owner];
            if compute_server.client == client {
                compute_server.fenced[usize::from(server)] = true;
                for qp in 0..self.queue_pairs.len() {
                    let pair = &self.queue_pairs[qp];
                    if pair.server == server && pair.owner == owner as u32 {
                        self.break_off(qp, &FabricError::Fenced { client });
                    }
                }
            }
        }
    }

    /// A compute server that fences a member begins a recovery. If an ambush is planned, the recoverer will
    /// die.
    fn spring(&mut self, owner: usize) {
        let recoverer = &mut self.compute_servers[owner];
        if recoverer.dies_after == u64::MAX
            && let Some(effects) = self.ambushes.pop()
        {
            recoverer.dies_after = recoverer.effects + effects + 1;
        }
    }

    fn cut_all(
        &mut self,
        which: impl Fn(usize, u16, u32) -> bool,
        error: impl Fn(u16) -> Option<FabricError>,
    ) {
        for qp in 0..self.queue_pairs.len() {
            let pair = &self.queue_pairs[qp];
            if which(qp, pair.server, pair.owner) {
                let error = error(pair.server);
                self.cut(qp, error);
            }
        }
    }

    /// Applies the faults that are due before this step.
    pub(super) fn strike(&mut self) {
        while let Some(at) = self.faults.iter().position(|&(step, _)| step <= self.steps) {
            let fault = self.faults.remove(at).1;
            self.strike_now(fault);
        }
    }

    /// Applies a fault.
    pub(crate) fn strike_now(&mut self, fault: Fault) {
        if self.strike_host(fault) {
            return;
        }
        self.log.remark(NO_TASK, self.now, fault.to_string());
        match fault {
            Fault::Kill { compute_server } => self.kill(compute_server, false),
            Fault::Sleep { compute_server, steps } => self.lull(compute_server, steps),
            Fault::Stall { compute_server, steps } => {
                self.lull(compute_server, steps);
                if let Some(stalled) = self.compute_servers.get_mut(compute_server as usize) {
                    stalled.stalled_until = stalled.asleep_until;
                }
            }
            Fault::Disconnect { compute_server, endpoint, server } => {
                self.disconnect(compute_server, endpoint, server);
            }
            Fault::CutOff { compute_server, server } => self.cut_off(compute_server, server),
            Fault::Restart { server } => self.restart(server),
            Fault::Wipe { server } => self.wipe(server),
            Fault::Lose { server } => self.lose(server),
            Fault::HostDown { host } => self.take_down(host),
            Fault::HostLost { host } => self.lose_host(host),
            Fault::HostReturns { host } => self.return_host(host),
            Fault::HostJoins => self.join_host(),
            Fault::AbortMaking => self.abort_makings(),
            // Only hosts of a control group have logs, stand still or are cut off.
            Fault::HostRestarts { .. } | Fault::HostStands { .. } | Fault::HostCut { .. } => {}
            Fault::Drain { host, cancel } => self.operate(Request::Drain { host, cancel }),
            Fault::Spread => self.operate(Request::Rebalance { when: Spreading::Now }),
        }
    }

    /// Kills a client: its tasks never run again. Its posted verbs may still execute, or be cut at any unit
    /// (F7). With `at_once` they are cut here.
    pub(super) fn kill(&mut self, owner: u32, at_once: bool) {
        let Some(compute_server) = self.compute_servers.get_mut(owner as usize) else { return };
        compute_server.dead = true;
        compute_server.stalled_until = 0;
        compute_server.dies_after = u64::MAX;
        for task in 0..self.tasks.len() as u32 {
            if self.tasks[task as usize].owner == Some(owner) {
                self.finish_task(task);
                self.actors.set(Actor::Task(task), false);
            }
        }
        let servers = self.servers.len() as u32;
        let endpoints = &self.endpoints;
        let of_owner = |endpoint: u32| endpoints[endpoint as usize].owner == owner;
        let of_dead = |f: &Flight| of_owner(if f.request.is_some() { f.route } else { f.route / servers });
        let open: Vec<u32> =
            self.flights.open_slots().filter(|(_, f)| of_dead(f)).map(|(slot, _)| slot).collect();
        open.into_iter().for_each(|slot| self.forget(slot));
        if at_once {
            self.cut_all(|_, _, qp_owner| qp_owner == owner, |_| None);
            self.drop_calls(|_, endpoint_owner| endpoint_owner == owner);
        }
        (0..self.queue_pairs.len()).for_each(|qp| self.refresh(qp));
    }

    /// Drops the calls that were not executed yet. They never will be.
    fn drop_calls(&mut self, which: impl Fn(u32, u32) -> bool) {
        for endpoint in 0..self.endpoints.len() as u32 {
            if which(endpoint, self.endpoints[endpoint as usize].owner) {
                for slot in std::mem::take(&mut self.endpoints[endpoint as usize].calls) {
                    let list = self.flights.end(slot);
                    self.recycle(list);
                }
                self.actors.set(Actor::Control(endpoint), false);
            }
        }
    }

    /// Stops the client's tasks for a while.
    fn lull(&mut self, owner: u32, steps: u64) {
        let Some(compute_server) = self.compute_servers.get_mut(owner as usize) else { return };
        compute_server.asleep_until = self.now.saturating_add(steps.saturating_mul(self.knobs.step_nanos));
        for task in 0..self.tasks.len() as u32 {
            if self.tasks[task as usize].owner == Some(owner) && self.actors.has_task(task) {
                self.actors.set(Actor::Task(task), false);
                self.slumber.push(task);
            }
        }
    }

    /// Breaks queue pairs of a client. Every list without a delivered completion ends in error, although it
    /// may have been executed.
    fn disconnect(&mut self, owner: u32, which: Option<u32>, server: u16) {
        let owned = (0u32..).zip(&self.endpoints).filter(|(_, endpoint)| endpoint.owner == owner);
        let concerned: Vec<u32> = (0u32..)
            .zip(owned)
            .filter(|(nth, _)| which.is_none_or(|which| which == *nth))
            .map(|(_, (number, _))| number)
            .collect();
        if usize::from(server) >= self.servers.len() {
            return;
        }
        for endpoint in concerned {
            let qp = endpoint as usize * self.servers.len() + usize::from(server);
            self.queue_pairs[qp].broken = true;
            self.break_off(qp, &FabricError::Disconnected { server });
            for at in 0..self.endpoints[endpoint as usize].calls.len() {
                let slot = self.endpoints[endpoint as usize].calls[at];
                let immortal = self.flights.get(slot).request.as_ref().is_some_and(|r| self.is_immortal(r));
                let flight = self.flights.get_mut(slot);
                if flight.server == server && flight.phase == Phase::Finished && !immortal {
                    flight.error = Some(FabricError::Disconnected { server });
                }
            }
        }
    }

    /// Breaks a client's connections to a server permanently.
    pub(super) fn cut_off(&mut self, owner: u32, server: u16) {
        let reached = self
            .compute_servers
            .get_mut(owner as usize)
            .and_then(|cs| cs.cut_off.get_mut(usize::from(server)));
        if let Some(cut_off) = reached {
            *cut_off = true;
            self.disconnect(owner, None, server);
        }
    }

    /// Ends a server's process and starts it again on the same memory. Every existing client stays bound to
    /// the boot that it knows, and the new boot refuses it.
    fn restart(&mut self, server: u16) {
        if usize::from(server) >= self.servers.len() || self.servers[usize::from(server)].lost {
            return;
        }
        for owner in 0..self.compute_servers.len() as u32 {
            self.cut_off(owner, server);
        }
        let target = &mut self.servers[usize::from(server)];
        let views = (CpuView::new(&mut target.memory), CpuView::new(&mut target.control_memory));
        let opened = MemoryServer::open(Memories { volume: &views.0, control: &views.1 });
        match opened {
            Ok(cpu) => (target.cpu, target.cpu_used) = (cpu, true),
            // Client verbs must never damage the tables.
            Err(error) => {
                self.log.remark(NO_TASK, self.now, format!("server {server} does not open: {error}"));
                self.lose(server);
            }
        }
    }

    /// Ends a server's process and starts it again with an empty memory, which has another identity.
    fn wipe(&mut self, server: u16) {
        self.restart(server);
        let Some(target) = self.servers.get_mut(usize::from(server)).filter(|target| !target.lost) else {
            return;
        };
        let format =
            FormatOptions { memory_id: target.format.memory_id + u64::from(u32::MAX), ..target.format };
        let views = (CpuView::new(&mut target.memory), CpuView::new(&mut target.control_memory));
        let formatted = MemoryServer::format(Memories { volume: &views.0, control: &views.1 }, &format);
        if let Ok(cpu) = formatted {
            target.cpu = cpu;
        }
    }

    /// Admits a new member. Returns its id and the incarnation of the id.
    pub(crate) fn admit(&mut self) -> Result<(ComputeId, u32), Refusal> {
        if let Some(server) = self.is_crippled() {
            return Err(Refusal::Unreachable { server });
        }
        let joined = match self.join_cluster() {
            Some(joined) => joined,
            None => self.join_seeing(),
        };
        // Every server learns the new member, and refuses the previous owner of its id.
        if let Ok((client, _)) = joined {
            self.fence_everywhere(client);
        }
        joined
    }

    /// Admits a new member, if the memories are those that the cluster knows. The handshakes of a network do
    /// the same.
    fn join_seeing(&mut self) -> Result<(ComputeId, u32), Refusal> {
        // An operator declares a server lost. The operator's part is not simulated.
        let found = |server: &Server| {
            Some(Seen { memory: server.cpu.superblock().memory_id, cluster: server.cpu.cluster() })
        };
        let seen: Vec<Option<Seen>> = self.servers.iter().map(found).collect();
        let now = self.now;
        if self.servers.first().ok_or(Refusal::NotHere)?.lost {
            return Err(Refusal::Unreachable { server: 0 });
        }
        let joined = self.on_cpu(0, |cpu, memories| cpu.join_seeing(memories, &seen, now));
        let cluster = self.servers[0].cpu.cluster();
        for server in 1..self.servers.len() as u16 {
            if !self.servers[usize::from(server)].lost {
                self.on_cpu(server, |cpu, memories| cpu.adopt(memories, cluster));
            }
        }
        self.end_reaped(0);
        let incarnation = |client| self.servers[0].cpu.member(client).map_or(0, |entry| entry.incarnation);
        joined.map(|client| (client, incarnation(client)))
    }

    /// Ends everything on a queue pair in error, including finished lists whose completion was not delivered.
    /// It spares a finished list if a later list was delivered, because completions of a connection come in
    /// order.
    fn break_off(&mut self, qp: usize, error: &FabricError) {
        // Overtaken verbs execute first, and may finish a list.
        self.cut(qp, Some(error.clone()));
        let pair = &self.queue_pairs[qp];
        for &slot in &pair.finished {
            let flight = self.flights.get_mut(slot);
            if flight.order >= pair.told_below {
                flight.error.get_or_insert_with(|| error.clone());
            }
        }
    }

    /// Counts an effect of a compute server. It may be the last one.
    #[inline]
    pub(super) fn count_effect(&mut self, owner: u32) {
        let compute_server = &mut self.compute_servers[owner as usize];
        compute_server.effects += 1;
        if compute_server.effects == compute_server.dies_after {
            self.dying = Some(owner);
        }
        let effects = compute_server.effects;
        if let Some((_, loss)) = compute_server.costs.filter(|(after, _)| *after == effects) {
            self.losing = Some((owner, loss));
        }
    }

    /// Loses a host, as planned for an effect of a compute server.
    pub(super) fn cost(&mut self, owner: u32, loss: HostLoss) {
        let HostLoss { host, dead_for, cuts_off } = loss;
        if cuts_off {
            for copy in self.volumes.copies_on(host, self.servers.len()) {
                self.cut_off(owner, copy);
            }
        }
        if dead_for.is_some() {
            self.strike_now(Fault::HostDown { host });
        }
        self.add_fault(self.steps + dead_for.unwrap_or(0), Fault::HostLost { host });
    }

    /// Makes a host be lost after this many more effects of a compute server.
    pub(crate) fn lose_after(&mut self, owner: u32, effects: u64, host: HostLoss) {
        if let Some(compute_server) = self.compute_servers.get_mut(owner as usize) {
            compute_server.costs = Some((compute_server.effects + effects, host));
        }
    }

    /// Kills a compute server after this many more effects.
    pub(crate) fn kill_after(&mut self, owner: u32, effects: u64) {
        let Some(compute_server) = self.compute_servers.get_mut(owner as usize) else { return };
        compute_server.dies_after = compute_server.effects + effects;
        if effects == 0 {
            self.kill(owner, true);
        }
    }

    fn lose(&mut self, server: u16) {
        if let Some(target) = self.servers.get_mut(usize::from(server)) {
            target.lost = true;
            self.cut_all(
                |_, qp_server, _| qp_server == server,
                |server| Some(FabricError::ServerLost { server }),
            );
        }
    }

    /// Executes and delivers everything in flight, in order of queue pairs. Verbs of dead clients do not
    /// execute.
    pub(crate) fn drain(&mut self) {
        for qp in 0..self.queue_pairs.len() {
            let pair = &self.queue_pairs[qp];
            if pair.pending.is_empty() && pair.finished.is_empty() {
                continue;
            }
            if self.compute_servers[pair.owner as usize].dead {
                self.cut(qp, None);
            } else {
                self.drain_queue_pair(qp);
            }
        }
        for endpoint in 0..self.endpoints.len() as u32 {
            if self.endpoints[endpoint as usize].calls.is_empty() {
                continue;
            }
            while let Some(slot) = self.endpoints[endpoint as usize].calls.pop() {
                if self.flights.get(slot).phase == Phase::InFlight {
                    self.execute_call(endpoint, slot);
                }
                if self.flights.get(slot).phase == Phase::Finished {
                    self.deliver(slot);
                }
            }
            self.actors.set(Actor::Control(endpoint), false);
        }
    }

    /// Returns the waiting tasks, and the last list of each.
    pub(super) fn deadlock(&self) -> Outcome {
        let alive = (0u32..).zip(&self.tasks).filter(|(_, task)| task.alive);
        let waiting = alive.map(|(task, state)| Waiting { task, name: String::new(), last: state.last });
        Outcome::Deadlock { waiting: waiting.collect() }
    }
}
