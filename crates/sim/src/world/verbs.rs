//! Posting, checking and executing verbs.

use super::World;
use super::flight::{NO_TASK, Phase};
use super::queue_pair::{Pending, unit_range};
use crate::bounds::check_verb;
use crate::choice::{Actor, Choice, ChoiceKind};
use crate::hash::{mix, mix_bytes};
use crate::trace::{Detail, Extent};
use sherman_fabric::{FabricError, Request, Response, Space, Ticket, Verb, WorkList};

impl World {
    /// Puts a list in flight on the endpoint's queue pair to its server.
    pub(crate) fn post(&mut self, endpoint: u32, mut list: WorkList) -> Ticket {
        let server = list.server();
        let (executable, error) = self.check(endpoint, &list);
        // A list for a server that does not exist completes on the queue pair of server 0.
        let route = if usize::from(server) < self.servers.len() { server } else { 0 };
        let qp = endpoint as usize * self.servers.len() + usize::from(route);
        let slot = self.flights.begin(qp as u32, server, self.current);
        let mut left = 0;
        for (index, verb) in list.verbs()[..executable].iter().enumerate() {
            let shift = self.unit_shift(verb);
            let pair = &mut self.queue_pairs[qp];
            let pending = Pending::new(slot, index as u32, pair.next_sequence, *verb, shift);
            if pending.units > 0 {
                pair.next_sequence += 1;
                pair.pending.push(pending);
                left += 1;
            }
        }
        if let Some(task) = self.tasks.get_mut(self.current as usize) {
            task.lists += 1;
            task.last = list.verbs().first().map(|verb| (server, *verb));
            self.truncated |= task.lists > self.limits.lists_per_task;
        }
        let pair = &mut self.queue_pairs[qp];
        let flight = self.flights.get_mut(slot);
        (flight.left, flight.order) = (left, pair.lists);
        pair.lists += 1;
        flight.posted = if self.history.on { hash_of(&mut list) } else { 0 };
        flight.list = list;
        if error.is_some() && left > 0 {
            pair.failing.push(slot);
        }
        flight.error = error;
        if left == 0 {
            self.finish(slot);
        }
        self.refresh(qp);
        if self.quiet {
            self.drain_queue_pair(qp);
        }
        self.flights.ticket(slot)
    }

    /// Returns the shift that cuts a verb's offset into units. In quiet mode a verb is one unit, because no
    /// other task runs.
    #[inline]
    fn unit_shift(&self, verb: &Verb) -> u32 {
        match verb {
            _ if self.quiet => 63,
            Verb::Read { space: Space::OnChip, .. } | Verb::Write { space: Space::OnChip, .. } => 3,
            _ => self.knobs.unit_shift(),
        }
    }

    /// Returns how many verbs of `list` can execute, and the error if not all of them can.
    fn check(&self, endpoint: u32, list: &WorkList) -> (usize, Option<FabricError>) {
        let server = list.server();
        let Some(target) = self.servers.get(usize::from(server)) else {
            return (0, Some(FabricError::NoSuchServer { server }));
        };
        let owner = &self.compute_servers[self.endpoints[endpoint as usize].owner as usize];
        if target.lost {
            return (0, Some(FabricError::ServerLost { server }));
        }
        if self.queue_pairs[endpoint as usize * self.servers.len() + usize::from(server)].broken {
            return (0, Some(FabricError::Disconnected { server }));
        }
        if owner.fenced[usize::from(server)] {
            return (0, Some(FabricError::Fenced { client: owner.client }));
        }
        let (asked, limit) = (list.len() as u64, u64::from(self.caps.max_verbs));
        if asked > limit {
            return (0, Some(FabricError::TooLarge { asked, limit }));
        }
        for (index, verb) in list.verbs().iter().enumerate() {
            if let Err(error) = check_verb(&self.caps, server, verb, |space| target.memory.size(space)) {
                return (index, Some(error));
            }
        }
        (list.len(), None)
    }

    /// Executes one event of a queue pair.
    #[inline]
    pub(super) fn take_verb(&mut self, qp: usize, choice: Choice) {
        match choice.kind {
            ChoiceKind::Complete => {
                let pair = &mut self.queue_pairs[qp];
                pair.finished.retain(|&slot| slot != choice.list);
                self.note_event(choice);
                self.deliver(choice.list);
            }
            ChoiceKind::Fail => {
                self.note_event(choice);
                self.queue_pairs[qp].pending.retain(|pending| pending.flight != choice.list);
                self.finish(choice.list);
            }
            ChoiceKind::Cut => {
                self.note_event(choice);
                self.cut(qp, None);
            }
            _ => {
                let at = self.queue_pairs[qp].position(choice.list, choice.verb);
                self.execute(qp, at, choice);
            }
        }
        self.refresh(qp);
    }

    /// Executes a unit or an atomic of the verb at `at`, and finishes the verb if that was all.
    #[inline]
    fn execute(&mut self, qp: usize, at: usize, choice: Choice) {
        let (place, data) = match choice.kind {
            ChoiceKind::Fetch | ChoiceKind::FetchStale => self.fetch(qp, at, choice),
            ChoiceKind::Land => self.land(qp, at, choice.unit),
            _ => self.atomic(qp, at, choice.kind),
        };
        self.log.event(choice, place, data);
        if self.log.is_recording() {
            self.tell(qp, at, place);
        }
        if choice.kind != ChoiceKind::AtomicLoad {
            self.count_effect(self.queue_pairs[qp].owner);
        }
        if self.queue_pairs[qp].pending[at].left == 0 {
            self.finish_verb(qp, at);
        }
        if matches!(choice.kind, ChoiceKind::AtomicLoad | ChoiceKind::AtomicStore) {
            self.refresh_server(place.server);
        }
    }

    /// Adds the details of a unit or an atomic to the trace.
    fn tell(&mut self, qp: usize, at: usize, place: Extent) {
        let pending = &self.queue_pairs[qp].pending[at];
        let detail = match pending.verb {
            Verb::Cas { compare, swap, mask, .. } => Detail::Cas { compare, swap, mask },
            Verb::Faa { add, .. } => Detail::Faa { add },
            _ => {
                let memory = &self.servers[usize::from(place.server)].memory;
                Detail::Bytes(memory.bytes(place.space, place.offset, place.len as usize).to_vec())
            }
        };
        self.log.detail(self.flights.get(pending.flight).task, self.now, detail);
    }

    /// Fetches a unit of a READ.
    #[inline]
    fn fetch(&mut self, qp: usize, at: usize, choice: Choice) -> (Extent, u64) {
        let shift = self.unit_shift(&self.queue_pairs[qp].pending[at].verb);
        let pair = &mut self.queue_pairs[qp];
        let pending = &mut pair.pending[at];
        let (Verb::Read { space, offset, at, len } | Verb::Write { space, offset, at, len, .. }) =
            pending.verb
        else {
            return (Extent::nowhere(pair.server), 0);
        };
        let (start, end) = unit_range(offset, len, shift, choice.unit);
        let (first, length) = (at as usize + (start - offset) as usize, (end - start) as usize);
        let memory = &self.servers[usize::from(pair.server)].memory;
        let bytes = match choice.kind {
            ChoiceKind::FetchStale => memory.previous(start, length),
            _ => memory.bytes(space, start, length),
        };
        let flight = self.flights.get_mut(pending.flight);
        flight.list.parts_mut(pending.index as usize).1[first..first + length].copy_from_slice(bytes);
        let data = mix_bytes(start, bytes);
        flight.fetched = flight.fetched.wrapping_add(mix(data, u64::from(pending.index)));
        pending.done.insert(choice.unit);
        pending.left -= 1;
        (Extent { server: pair.server, space, offset: start, len: length as u32 }, data)
    }

    /// Lands a unit of a WRITE.
    #[inline]
    fn land(&mut self, qp: usize, at: usize, unit: u32) -> (Extent, u64) {
        let shift = self.unit_shift(&self.queue_pairs[qp].pending[at].verb);
        let pair = &mut self.queue_pairs[qp];
        let pending = &mut pair.pending[at];
        let (Verb::Read { space, offset, at, len } | Verb::Write { space, offset, at, len, .. }) =
            pending.verb
        else {
            return (Extent::nowhere(pair.server), 0);
        };
        let (start, end) = unit_range(offset, len, shift, unit);
        let first = at as usize + (start - offset) as usize;
        let arena = self.flights.get_mut(pending.flight).list.parts_mut(pending.index as usize).1;
        let bytes = &arena[first..first + (end - start) as usize];
        self.servers[usize::from(pair.server)].memory.store(space, start, bytes);
        pair.effect_below = pair.effect_below.max(pending.sequence + 1);
        pending.done.insert(unit);
        pending.left -= 1;
        (
            Extent { server: pair.server, space, offset: start, len: bytes.len() as u32 },
            mix_bytes(start, bytes),
        )
    }

    /// Executes an atomic, or the load or the store of a split one.
    fn atomic(&mut self, qp: usize, at: usize, kind: ChoiceKind) -> (Extent, u64) {
        let pair = &mut self.queue_pairs[qp];
        let pending = &mut pair.pending[at];
        let (Verb::Cas { space, offset, .. } | Verb::Faa { space, offset, .. }) = pending.verb else {
            return (Extent::nowhere(pair.server), 0);
        };
        let server = &mut self.servers[usize::from(pair.server)];
        if kind != ChoiceKind::AtomicStore {
            pending.loaded = Some(server.memory.word(space, offset));
            server.engine = Some(qp as u32);
        }
        let old = pending.loaded.unwrap_or_default();
        if kind != ChoiceKind::AtomicLoad {
            if let Some(word) = swapped(&pending.verb, old) {
                server.memory.store(space, offset, &word.to_le_bytes());
            }
            let flight = self.flights.get_mut(pending.flight);
            flight.list.set_old(pending.index as usize, old);
            flight.fetched = flight.fetched.wrapping_add(mix(old, u64::from(pending.index)));
            pair.effect_below = pair.effect_below.max(pending.sequence + 1);
            server.engine = None;
            pending.left = 0;
        }
        (Extent { server: pair.server, space, offset, len: 8 }, old)
    }

    #[inline]
    fn finish_verb(&mut self, qp: usize, at: usize) {
        let slot = self.queue_pairs[qp].pending.remove(at).flight;
        self.verbs += 1;
        let flight = self.flights.get_mut(slot);
        flight.left -= 1;
        if flight.left == 0 {
            self.finish(slot);
        }
    }

    /// Finishes a list or call, of which nothing more will execute.
    pub(super) fn finish(&mut self, slot: u32) {
        let flight = self.flights.get_mut(slot);
        flight.left = 0;
        let is_list = flight.request.is_none();
        let pair = &mut self.queue_pairs[if is_list { flight.route as usize } else { 0 }];
        if is_list && flight.error.is_some() {
            pair.failing.retain(|&failing| failing != slot);
        }
        if flight.forgotten {
            let list = self.flights.end(slot);
            self.recycle(list);
            return;
        }
        flight.phase = Phase::Finished;
        if is_list {
            pair.finished.push(slot);
        }
    }

    /// Records that no task will poll the list or call. It still executes.
    pub(crate) fn forget(&mut self, slot: u32) {
        let flight = self.flights.get_mut(slot);
        flight.forgotten = true;
        let (phase, route, is_call) = (flight.phase, flight.route, flight.request.is_some());
        if phase == Phase::InFlight {
            return;
        }
        let list = self.flights.end(slot);
        self.recycle(list);
        if phase == Phase::Finished && is_call {
            let calls = &mut self.endpoints[route as usize].calls;
            calls.retain(|&call| call != slot);
            self.refresh_calls(route);
        } else if phase == Phase::Finished {
            self.queue_pairs[route as usize].finished.retain(|&finished| finished != slot);
            self.refresh(route as usize);
        }
    }

    /// Delivers the result to the task that polls for it.
    pub(super) fn deliver(&mut self, slot: u32) {
        let flight = self.flights.get_mut(slot);
        flight.phase = Phase::Delivered;
        let (asked, route) = (flight.asked, flight.route);
        let renewed = matches!(flight.response, Some(Response::Renewed(_)))
            && matches!(flight.request, Some(Request::Renew));
        if flight.request.is_none() && flight.error.is_none() {
            let pair = &mut self.queue_pairs[flight.route as usize];
            pair.told_below = pair.told_below.max(flight.order + 1);
        }
        if let Some(waker) = flight.waker.take() {
            waker.wake();
        }
        if renewed && self.net.is_some() {
            self.learn_lease(self.endpoints[route as usize].owner, asked);
        }
    }

    /// Updates whether the queue pair can move.
    #[inline]
    pub(super) fn refresh(&mut self, qp: usize) {
        let pair = &self.queue_pairs[qp];
        let mut enabled = !pair.finished.is_empty() || !pair.pending.is_empty();
        let blocked = self.servers[usize::from(pair.server)].engine.is_some() && !self.engine_is_open();
        if enabled && blocked {
            let mut options = Vec::new();
            let dead = self.compute_servers[pair.owner as usize].dead;
            pair.choices(&self.knobs, false, dead, &mut options);
            enabled = !options.is_empty();
        }
        self.actors.set(self.queue_pairs[qp].actor(), enabled);
    }

    /// Updates all queue pairs of a server after a split atomic has taken or left its atomic engine. Other
    /// atomics may have to wait now, or may continue.
    fn refresh_server(&mut self, server: u16) {
        let pairs = self.queue_pairs.len();
        (usize::from(server)..pairs).step_by(self.servers.len()).for_each(|qp| self.refresh(qp));
    }

    /// Ends everything in flight on a queue pair now: with `error`, or without a completion if the client is
    /// dead. By F7 the executed part is a prefix, so atomics that a landed WRITE has overtaken still execute.
    pub(super) fn cut(&mut self, qp: usize, error: Option<FabricError>) {
        let server = self.queue_pairs[qp].server;
        if let Some(other) = self.servers[usize::from(server)].engine {
            self.finish_split_atomic(other as usize);
        }
        while let Some(at) = self.overtaken_atomic(qp) {
            let pending = &self.queue_pairs[qp].pending[at];
            let actor = self.queue_pairs[qp].actor();
            let choice = Choice {
                actor,
                kind: ChoiceKind::Atomic,
                list: pending.flight,
                verb: pending.index,
                unit: 0,
            };
            self.execute(qp, at, choice);
        }
        while let Some(pending) = self.queue_pairs[qp].pending.first() {
            let slot = pending.flight;
            self.queue_pairs[qp].pending.retain(|pending| pending.flight != slot);
            let flight = self.flights.get_mut(slot);
            flight.error = flight.error.take().or_else(|| error.clone());
            self.finish(slot);
        }
        self.refresh(qp);
    }

    fn overtaken_atomic(&self, qp: usize) -> Option<usize> {
        let pair = &self.queue_pairs[qp];
        let overtaken = |p: &Pending| {
            matches!(p.verb, Verb::Cas { .. } | Verb::Faa { .. }) && p.sequence < pair.effect_below
        };
        pair.pending.iter().position(overtaken)
    }

    fn finish_split_atomic(&mut self, qp: usize) {
        let pair = &self.queue_pairs[qp];
        if let Some(at) = pair.pending.iter().position(|pending| pending.loaded.is_some()) {
            let pending = &pair.pending[at];
            let (list, verb) = (pending.flight, pending.index);
            let choice = Choice { actor: pair.actor(), kind: ChoiceKind::AtomicStore, list, verb, unit: 0 };
            self.execute(qp, at, choice);
            self.refresh(qp);
        }
    }

    /// Executes and delivers everything on one queue pair, in order.
    pub(crate) fn drain_queue_pair(&mut self, qp: usize) {
        self.drain_until_death(qp, false);
    }

    /// The same. Stops where the client dies, if it is `mortal`.
    fn drain_until_death(&mut self, qp: usize, mortal: bool) {
        while !(mortal && self.dying.is_some())
            && let Some(pending) = self.queue_pairs[qp].pending.first()
        {
            let (list, verb, units) = (pending.flight, pending.index, pending.units);
            let whole = |kind, unit| Choice { actor: self.queue_pairs[qp].actor(), kind, list, verb, unit };
            let choice = match pending.verb {
                Verb::Read { .. } => {
                    whole(ChoiceKind::Fetch, (0..units).find(|&u| !pending.done.has(u)).unwrap_or(0))
                }
                Verb::Write { .. } => {
                    whole(ChoiceKind::Land, (0..units).find(|&u| !pending.done.has(u)).unwrap_or(0))
                }
                _ if pending.loaded.is_some() => whole(ChoiceKind::AtomicStore, 0),
                _ => whole(ChoiceKind::Atomic, 0),
            };
            self.now += self.knobs.step_nanos;
            self.execute(qp, 0, choice);
        }
        while !(mortal && self.dying.is_some())
            && let Some(slot) = self.queue_pairs[qp].finished.pop()
        {
            self.deliver(slot);
        }
        self.refresh(qp);
    }

    /// Executes a list of an inline endpoint inside `post`, and everything that the endpoint posted to that
    /// server before. Stops where the client dies.
    pub(crate) fn execute_inline(&mut self, ticket: Ticket) {
        let Some(slot) = self.flights.find(ticket) else { return };
        let qp = self.flights.get(slot).route as usize;
        let server = usize::from(self.queue_pairs[qp].server);
        if let Some(other) = self.servers[server].engine.filter(|_| !self.engine_is_open()) {
            self.finish_split_atomic(other as usize);
        }
        self.drain_until_death(qp, true);
    }

    /// Adds an event that moves no data to the trace.
    #[inline]
    pub(super) fn note_event(&mut self, choice: Choice) {
        let server = match choice.actor {
            Actor::QueuePair { server, .. } => server,
            _ => u16::MAX,
        };
        self.log.event(choice, Extent::nowhere(server), self.now);
        if self.log.is_recording() {
            let (task, detail) = match (choice.kind, choice.actor) {
                (ChoiceKind::Run, Actor::Task(task)) => (task, Detail::None),
                (ChoiceKind::Execute | ChoiceKind::Answer, _) => {
                    let flight = self.flights.get(choice.list);
                    let asked = flight
                        .request
                        .as_ref()
                        .map(|request| format!("{request:?} to server {}", flight.server));
                    (flight.task, Detail::Call(asked.unwrap_or_default()))
                }
                (ChoiceKind::Complete | ChoiceKind::Fail, _) => {
                    let flight = self.flights.get(choice.list);
                    let error = flight.error.as_ref().map(ToString::to_string);
                    (flight.task, error.map_or(Detail::None, Detail::Call))
                }
                _ => (NO_TASK, Detail::None),
            };
            self.log.detail(task, self.now, detail);
        }
    }
}

/// Returns the word that an atomic stores, if it changes the word.
fn swapped(verb: &Verb, old: u64) -> Option<u64> {
    match *verb {
        Verb::Cas { compare, swap, mask, .. } if old & mask == compare & mask => {
            Some(old & !mask | swap & mask)
        }
        Verb::Faa { add, .. } => Some(old.wrapping_add(add)),
        _ => None,
    }
}

/// Returns the hash of a list as posted.
fn hash_of(list: &mut WorkList) -> u64 {
    let mut hash = u64::from(list.server());
    let kind =
        |kind: u64, space: Space, offset: u64| mix(kind << 1 | u64::from(space == Space::OnChip), offset);
    for index in 0..list.len() {
        let (verb, arena) = list.parts_mut(index);
        hash = match verb {
            Verb::Read { space, offset, len, .. } => mix(mix(hash, kind(1, space, offset)), u64::from(len)),
            Verb::Write { space, offset, at, len, fenced } => {
                let head = mix(mix(hash, kind(2, space, offset)), u64::from(fenced));
                mix_bytes(mix(head, u64::from(len)), &arena[at as usize..(at + len) as usize])
            }
            Verb::Cas { space, offset, compare, swap, mask, .. } => {
                mix(mix(mix(mix(hash, kind(3, space, offset)), compare), swap), mask)
            }
            Verb::Faa { space, offset, add, .. } => mix(mix(hash, kind(4, space, offset)), add),
        };
    }
    hash
}
