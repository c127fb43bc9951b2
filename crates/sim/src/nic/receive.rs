//! The receiver's part of a list's path: link, RC order, processing units, buckets, memory, answer.

use super::events::{Event, MOST_BUCKET_BITS};
use super::tear::Recent;
use super::world::{World, request_bytes};
use sherman_fabric::{Space, Verb};

/// Bytes of the word of an atomic, which are also those of its answer.
const WORD: u64 = 8;

impl World {
    fn machine_of(&self, slot: u32) -> usize {
        usize::from(self.server_models[usize::from(self.flights.get(slot).server)].machine)
    }

    /// A list has arrived. It starts after the earlier lists of the same queue pair.
    pub(super) fn arrive(&mut self, slot: u32) {
        let flight = self.flights.get(slot);
        let pair = self.pair(flight.endpoint, flight.server);
        let pair = &mut self.queue_pairs[pair];
        if std::mem::replace(&mut pair.busy, true) {
            pair.waiting.push_back(slot);
        } else {
            self.enter(slot);
        }
    }

    /// The next verb of a list takes the receiving link.
    fn enter(&mut self, slot: u32) {
        let flight = self.flights.get(slot);
        let index = usize::from(flight.cursor);
        let verb = flight.list.verbs()[index];
        let mut at = self.now.max(flight.arrivals[index]);
        if let Verb::Write { fenced: true, .. } = verb {
            at = at.max(self.queue_pairs[self.pair(flight.endpoint, flight.server)].reads_until);
        }
        if at > self.now {
            self.events.plan(at, Event::Admit(slot));
            return;
        }
        let duration = self.timing.wire(request_bytes(&verb)).max(self.timing.params.receive_message_picos);
        let machine = self.machine_of(slot);
        let begin = self.machines[machine].receive.begin(at, duration);
        if begin > self.now {
            // The verb has its place on the link and only waits for it.
            self.flights.get_mut(slot).arrivals[index] = 0;
            self.events.plan(begin, Event::Admit(slot));
        } else {
            self.take_unit(slot);
        }
    }

    /// A verb that waited continues.
    pub(super) fn admit(&mut self, slot: u32) {
        let flight = self.flights.get(slot);
        if flight.arrivals[usize::from(flight.cursor)] == 0 { self.take_unit(slot) } else { self.enter(slot) }
    }

    fn take_unit(&mut self, slot: u32) {
        let machine = self.machine_of(slot);
        let now = self.now;
        let nic = &mut self.machines[machine];
        // First come, first served: no verb overtakes the waiting ones.
        if nic.waiting.is_empty() && nic.take_unit(now) {
            self.process(slot);
        } else {
            nic.waiting.push_back(slot);
            self.watch_units(machine);
        }
    }

    /// Plans an event for the next free unit, if verbs wait for one.
    fn watch_units(&mut self, machine: usize) {
        let nic = &mut self.machines[machine];
        if !nic.waiting.is_empty()
            && !nic.watched
            && let Some(at) = nic.next_free()
        {
            nic.watched = true;
            self.events.plan(at.max(self.now), Event::UnitFree(machine as u16));
        }
    }

    pub(super) fn unit_free(&mut self, machine: u16) {
        self.machines[usize::from(machine)].watched = false;
        self.serve_waiting(usize::from(machine));
    }

    fn serve_waiting(&mut self, machine: usize) {
        let now = self.now;
        while !self.machines[machine].waiting.is_empty() && self.machines[machine].take_unit(now) {
            if let Some(slot) = self.machines[machine].waiting.pop_front() {
                self.process(slot);
            }
        }
        self.watch_units(machine);
    }

    fn bucket(&self, offset: u64) -> usize {
        (offset & ((1 << self.timing.params.bucket_bits.clamp(3, MOST_BUCKET_BITS)) - 1)) as usize
    }

    /// Processes a verb that has a unit.
    pub(super) fn process(&mut self, slot: u32) {
        let (timing, now) = (self.timing, self.now);
        let flight = self.flights.get(slot);
        let index = flight.cursor;
        match flight.list.verbs()[usize::from(index)] {
            Verb::Read { space, .. } => {
                let at = now + timing.unit;
                self.read_until(slot, at);
                let host = space == Space::Host;
                self.events
                    .plan(at, if host { Event::Fetch(slot, index) } else { Event::Execute(slot, index) });
                self.leave_unit(slot, at);
            }
            Verb::Write { space, .. } => {
                let at = now + timing.unit;
                let host = space == Space::Host;
                self.events
                    .plan(at, if host { Event::Land(slot, index) } else { Event::Execute(slot, index) });
                self.leave_unit(slot, at);
            }
            Verb::Cas { space: Space::OnChip, offset, .. }
            | Verb::Faa { space: Space::OnChip, offset, .. } => {
                let (machine, bucket) = (self.machine_of(slot), self.bucket(offset));
                let begin =
                    self.machines[machine].buckets[bucket].on_chip.begin(now, timing.on_chip_conflict);
                let at = begin + timing.params.on_chip_unit_picos.max(timing.on_chip_conflict);
                self.events.plan(at, Event::Execute(slot, index));
                self.leave_unit(slot, at);
            }
            Verb::Cas { space: Space::Host, offset, .. } | Verb::Faa { space: Space::Host, offset, .. } => {
                let (machine, at) = (self.machine_of(slot), self.bucket(offset));
                let bucket = &mut self.machines[machine].buckets[at];
                if std::mem::replace(&mut bucket.busy, true) {
                    bucket.waiting.push_back(slot);
                } else {
                    self.fetch_word(slot);
                }
            }
        }
    }

    /// A unit finishes a verb at `at`. It continues with the next verb of the same list if that has arrived
    /// by then. This is so when a list was posted as one: verbs that arrive together do not queue separately.
    fn leave_unit(&mut self, slot: u32, at: u64) {
        let machine = self.machine_of(slot);
        let flight = self.flights.get_mut(slot);
        let next = usize::from(flight.cursor) + 1;
        let fenced = matches!(flight.list.verbs().get(next), Some(Verb::Write { fenced: true, .. }));
        if fenced || flight.arrivals.get(next).is_none_or(|&arrival| arrival > at) {
            self.machines[machine].free_unit_at(at);
            self.move_on(slot, at);
            return;
        }
        flight.cursor += 1;
        let duration = self.timing.wire(request_bytes(&flight.list.verbs()[next]));
        self.machines[machine]
            .receive
            .begin(self.now, duration.max(self.timing.params.receive_message_picos));
        self.events.plan(at, Event::Process(slot));
    }

    /// A READ of the list takes effect at `at` or later. Later fenced WRITEs of its queue pair wait for it.
    fn read_until(&mut self, slot: u32, at: u64) {
        let flight = self.flights.get(slot);
        let pair = self.pair(flight.endpoint, flight.server);
        let until = &mut self.queue_pairs[pair].reads_until;
        *until = (*until).max(at);
    }

    /// Returns how many bytes a verb moves.
    fn payload(&self, slot: u32, index: u16) -> u64 {
        match self.flights.get(slot).list.verbs()[usize::from(index)] {
            Verb::Read { len, .. } | Verb::Write { len, .. } => u64::from(len),
            Verb::Cas { .. } | Verb::Faa { .. } => WORD,
        }
    }

    /// A READ asks for its bytes over PCIe.
    pub(super) fn fetch(&mut self, slot: u32, index: u16) {
        let (machine, duration) = (self.machine_of(slot), self.timing.dma_request(self.payload(slot, index)));
        let at = self.machines[machine].to_host.begin(self.now, duration) + self.timing.pcie;
        self.read_until(slot, at);
        self.events.plan(at, Event::Fetched(slot, index));
    }

    /// An atomic that has its bucket asks for its word over PCIe.
    fn fetch_word(&mut self, slot: u32) {
        let (machine, index) = (self.machine_of(slot), self.flights.get(slot).cursor);
        let transactions = self.timing.params.failed_cas_transactions.max(1);
        let begin =
            self.machines[machine].to_host.begin(self.now, transactions * self.timing.dma_request(WORD));
        self.events.plan(begin + transactions * self.timing.pcie, Event::Fetched(slot, index));
    }

    /// What a READ or an atomic asked for comes over PCIe, after what others asked for earlier.
    pub(super) fn fetched_from_host(&mut self, slot: u32, index: u16) {
        let machine = self.machine_of(slot);
        let duration = self.timing.dma(self.payload(slot, index));
        let begin = self.machines[machine].from_host.begin(self.now, duration);
        let is_read = matches!(self.flights.get(slot).list.verbs()[usize::from(index)], Verb::Read { .. });
        // The duration of an atomic's transaction includes that of its word.
        let at = if is_read { begin + duration } else { begin };
        if is_read {
            self.read_until(slot, at);
        }
        if at > self.now {
            self.events.plan(at, Event::Execute(slot, index));
        } else {
            self.execute(slot, index);
        }
    }

    /// A WRITE goes to host memory over PCIe. It takes effect when its first line lands.
    pub(super) fn land(&mut self, slot: u32, index: u16) {
        let (machine, duration) = (self.machine_of(slot), self.timing.dma(self.payload(slot, index)));
        let at = self.machines[machine].to_host.begin(self.now, duration);
        if at > self.now {
            self.events.plan(at, Event::Execute(slot, index));
        } else {
            self.execute(slot, index);
        }
    }

    /// The verb at the cursor no longer blocks its queue pair from `at` on. The next verb of the queue pair
    /// may enter then.
    fn move_on(&mut self, slot: u32, at: u64) {
        let flight = self.flights.get_mut(slot);
        flight.cursor += 1;
        if usize::from(flight.cursor) < flight.list.len() {
            let index = usize::from(flight.cursor);
            flight.arrivals[index] = flight.arrivals[index].max(at);
            self.enter(slot);
            return;
        }
        let (endpoint, server) = (flight.endpoint, flight.server);
        let pair = self.pair(endpoint, server);
        let pair = &mut self.queue_pairs[pair];
        pair.busy = false;
        if let Some(next) = pair.waiting.pop_front() {
            pair.busy = true;
            let arrival = &mut self.flights.get_mut(next).arrivals[0];
            *arrival = (*arrival).max(at);
            self.enter(next);
        }
    }

    /// Lets a verb take effect.
    pub(super) fn execute(&mut self, slot: u32, index: u16) {
        let stores = self.apply(slot, index);
        let timing = self.timing;
        let machine = self.machine_of(slot);
        let verb = self.flights.get(slot).list.verbs()[usize::from(index)];
        let payload = match verb {
            Verb::Read { len, .. } => u64::from(len),
            Verb::Write { .. } => 0,
            Verb::Cas { .. } | Verb::Faa { .. } => WORD,
        };
        if let Verb::Cas { space: Space::Host, offset, .. } | Verb::Faa { space: Space::Host, offset, .. } =
            verb
        {
            let more = timing
                .params
                .atomic_transactions
                .saturating_sub(timing.params.failed_cas_transactions.max(1));
            let bucket = self.bucket(offset);
            if stores && more > 0 {
                let begin = self.machines[machine].to_host.begin(self.now, more * timing.dma(WORD));
                self.events.plan(begin + more * timing.pcie, Event::Stored(machine as u16, bucket as u32));
            } else {
                self.release_bucket(machine, bucket);
            }
            self.move_on(slot, self.now);
        }
        // An acknowledgement travels with others. An answer with payload is a message of its own.
        let returned = if payload == 0 {
            self.now + timing.one_way
        } else {
            let interval = match verb {
                Verb::Cas { .. } | Verb::Faa { .. } => timing.params.atomic_answer_picos,
                _ => timing.params.send_message_picos,
            };
            let wire = timing.wire(payload);
            let begin = self.machines[machine].send.begin(self.now, wire.max(interval));
            begin + wire + timing.one_way
        };
        let flight = self.flights.get_mut(slot);
        flight.returned = flight.returned.max(returned);
        flight.reply += payload;
        flight.answers += u64::from(payload > 0);
        flight.left -= 1;
        if flight.left == 0 {
            self.events.plan(flight.returned, Event::Return(slot));
        }
    }

    /// An atomic in host memory has finished. Its bucket goes to the next atomic, and its unit to a waiting
    /// verb.
    pub(super) fn release_bucket(&mut self, machine: usize, bucket: usize) {
        let now = self.now;
        let nic = &mut self.machines[machine];
        nic.free_unit_at(now);
        let next = nic.buckets[bucket].waiting.pop_front();
        nic.buckets[bucket].busy = next.is_some();
        if let Some(next) = next {
            self.fetch_word(next);
        }
        self.serve_waiting(machine);
    }

    /// Moves the bytes of a verb. Returns whether the verb stored anything.
    pub(super) fn apply(&mut self, slot: u32, index: u16) -> bool {
        let (timing, now, quiet) = (self.timing, self.now, self.quiet);
        let flight = self.flights.get_mut(slot);
        let server_model = &mut self.server_models[usize::from(flight.server)];
        let (verb, arena) = flight.list.parts_mut(usize::from(index));
        match verb {
            Verb::Read { space, offset, at, len } => {
                let image = &mut arena[at as usize..(at + len) as usize];
                server_model.memory.load_bytes(space, offset, image);
                if !quiet && space == Space::Host {
                    server_model.recent.tear(now, offset, image, &timing);
                }
                false
            }
            Verb::Write { space, offset, at, len, .. } => {
                let data = &arena[at as usize..(at + len) as usize];
                if !quiet && space == Space::Host && Recent::concerns(offset, u64::from(len)) {
                    let mut old = server_model.recent.buffer(data.len());
                    server_model.memory.load_bytes(space, offset, &mut old);
                    server_model.recent.note(now, offset, old, &timing);
                }
                server_model.memory.store_bytes(space, offset, data);
                true
            }
            Verb::Cas { space, offset, compare, swap, mask, .. } => {
                let old = server_model.memory.word(space, offset);
                let swaps = old & mask == compare & mask;
                if swaps {
                    let new = old & !mask | swap & mask;
                    server_model.memory.store_bytes(space, offset, &new.to_le_bytes());
                }
                flight.list.set_old(usize::from(index), old);
                swaps
            }
            Verb::Faa { space, offset, add, .. } => {
                let old = server_model.memory.word(space, offset);
                server_model.memory.store_bytes(space, offset, &old.wrapping_add(add).to_le_bytes());
                flight.list.set_old(usize::from(index), old);
                true
            }
        }
    }
}
