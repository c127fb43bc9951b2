//! The links of one endpoint, one to each server, and the lists in flight on them. This is the whole data
//! path except wakers and sleep.
//!
//! **Order.** Lists of one link are posted in order and their completions come in order. So a completion
//! always belongs to the first list in flight. Lists that find no room in the queue or in registered memory
//! wait in order of arrival.
//!
//! **Bounds.** A queue never holds more requests than its depth. The completion queue has room for the
//! requests of all queues, so it never holds more completions than fit. Tickets are bounded, so the number of
//! waiting lists is bounded too.

use super::device::Device;
use super::link::{Flying, Link, LinkLimits, read_id};
use super::memory::{Access, Buffer};
use super::post::{Batch, Chain};
use super::queue::{Completion, CompletionQueue};
use crate::VerbsError;
use crate::fault::Fault;
use crate::plan::{Task, Work, plan};
use crate::slab::Slab;
use crate::wire::Wire;
use sherman_control::ControlFabric;
use sherman_control::client::flight::Flight;
use sherman_fabric::tickets::NO_ROOM;
use sherman_fabric::{FabricError, Ticket, Verb, WorkList};
use std::convert::Infallible;
use std::sync::Arc;

/// How often, in nanoseconds, the endpoint checks whether servers hung up or are silent for too long.
const LOOK_EVERY: u64 = 2_000_000;
/// How many fruitless rounds pass before the endpoint reads the clock for that check.
const ROUNDS: u32 = 16;

/// The links of one endpoint.
#[derive(Debug)]
pub(super) struct Connections {
    /// First field: queue pairs are destroyed before the objects they use.
    links: Vec<Link>,
    cq: Arc<CompletionQueue>,
    slab: Slab,
    buffer: Buffer,
    pub(super) flight: Flight,
    works: Vec<Work>,
    chain: Chain,
    completions: Vec<Completion>,
    pub(super) wire: Wire,
    /// Lists in flight or waiting.
    busy: usize,
    rounds: u32,
    looked: u64,
}

/// The result of an attempt to post a list.
enum Launch {
    /// It is in flight.
    Posted,
    /// There is no room now.
    NoRoom,
    /// It is finished: it had nothing to do, or must not be posted.
    Over(Result<(), FabricError>),
}

impl Connections {
    /// Connects to every server that the cluster has not declared lost.
    ///
    /// # Errors
    /// If a server does not answer or has no room for this client, or the device has no room. A server that
    /// is declared lost or has fenced this client is no error here: everything posted there ends in that
    /// error.
    pub(super) fn connect(
        device: &Device,
        control: &ControlFabric,
        limits: &LinkLimits,
    ) -> Result<Self, FabricError> {
        let failed = |error: VerbsError| {
            tracing::warn!(%error, "cannot open an endpoint");
            FabricError::Unsupported { what: "open one more endpoint: an RDMA device has no room" }
        };
        let servers = control.servers();
        let cq = CompletionQueue::new(&device.opened, limits.depth * u32::from(servers)).map_err(failed)?;
        let slab = Slab::new(limits.slab);
        let buffer = Buffer::new(&device.opened, slab.bytes() as usize, Access::Local).map_err(failed)?;
        let mut links = Vec::with_capacity(usize::from(servers));
        for server in 0..servers {
            links.push(match Link::connect(device, control, server, &cq, limits) {
                Ok(link) => link,
                Err(error @ (FabricError::ServerLost { .. } | FabricError::Fenced { .. })) => {
                    Link::ended(server, error)
                }
                Err(error) => return Err(error),
            });
        }
        Ok(Self {
            links,
            cq,
            slab,
            buffer,
            flight: Flight::default(),
            works: Vec::new(),
            chain: Chain::default(),
            completions: Vec::new(),
            wire: Wire::default(),
            busy: 0,
            rounds: 0,
            looked: 0,
        })
    }

    /// Posts `list`, or refuses it.
    #[inline]
    pub(super) fn post(&mut self, list: WorkList, now: impl FnOnce() -> u64) -> Ticket {
        let server = list.server();
        let at = usize::from(server);
        let Some(link) = self.links.get_mut(at) else {
            return self.flight.refuse_list(list, FabricError::NoSuchServer { server });
        };
        if let Some(error) = &link.error {
            return self.flight.refuse_list(list, error.clone());
        }
        let ticket = self.flight.begin_list(list);
        // A list whose outcome cannot be kept is not executed: its error must be true.
        if ticket == NO_ROOM {
            return ticket;
        }
        self.busy += 1;
        let idle = link.flying.is_empty();
        let launch = if link.waiting.is_empty() { self.launch(at, ticket) } else { Launch::NoRoom };
        match launch {
            Launch::Posted if idle => self.links[at].since = now(),
            Launch::Posted => {}
            Launch::NoRoom => {
                self.wire.waited += 1;
                self.links[at].waiting.push_back(ticket);
            }
            Launch::Over(outcome) => self.end(ticket, outcome),
        }
        ticket
    }

    /// Posts the list under `ticket`, if there is room.
    fn launch(&mut self, at: usize, ticket: Ticket) -> Launch {
        let Self { links, flight, slab, buffer, works, chain, wire, .. } = self;
        let link = &mut links[at];
        let Some(list) = flight.list_mut(ticket) else { return Launch::Over(Ok(())) };
        let bytes = match plan(list, &link.reach, works) {
            Ok(_) if works.is_empty() => return Launch::Over(Ok(())),
            Ok(bytes) => bytes,
            Err(error) => return Launch::Over(Err(error)),
        };
        // At most 64.
        let requests = works.len() as u32;
        if requests > link.room || link.fault.is_some() {
            return Launch::NoRoom;
        }
        let Some(extent) = slab.take(bytes) else { return Launch::NoRoom };
        for work in works.iter() {
            if let (Task::Write { .. }, (Verb::Write { at, len, .. }, arena)) =
                (work.task, list.parts_mut(work.verb as usize))
            {
                buffer.put(extent.start + work.local, &arena[at as usize..][..len as usize]);
                wire.bytes_copied += u64::from(len);
            }
        }
        let (number, id) = link.next_number();
        link.room -= requests;
        link.flying.push_back(Flying { ticket, number, requests, extent });
        let (_, arena) = list.parts_mut(0);
        let batch = Batch { id, host: &link.host, chip: &link.chip, buffer, extent, arena };
        let posted = link.alive.as_mut().map(|alive| chain.post(&mut alive.pair, works, &batch));
        if !matches!(posted, Some(Ok(()))) {
            // Part of the list may have been sent already: so the list counts as in flight, and its link must
            // end.
            tracing::debug!(?posted, "cannot post a list");
            link.fault = Some(Fault::NotPosted);
        }
        wire.lists += 1;
        wire.work_requests += u64::from(requests);
        wire.doorbells += 1;
        wire.signalled += 1;
        wire.inline_writes +=
            works.iter().filter(|work| matches!(work.task, Task::Inline { .. })).count() as u64;
        Launch::Posted
    }

    /// Finishes the list under `ticket` with `outcome`.
    fn end(&mut self, ticket: Ticket, outcome: Result<(), FabricError>) {
        self.busy -= 1;
        let ended: Result<(), Infallible> = self.flight.end_list(ticket, |_| Ok(outcome));
        let Ok(()) = ended;
    }

    /// Delivers completions, posts waiting lists, and ends links that have failed.
    pub(super) fn drive(&mut self, control: &ControlFabric, patience: u64, now: impl Fn() -> u64) {
        if self.busy == 0 {
            return;
        }
        let mut completions = std::mem::take(&mut self.completions);
        let polled = self.cq.poll(|completion| completions.push(completion));
        let any = !completions.is_empty();
        let time = if any { now() } else { 0 };
        for completion in completions.drain(..) {
            self.complete(completion, time);
        }
        self.completions = completions;
        if polled.is_err() {
            // No link will get a completion any more.
            let alive = self.links.iter_mut().filter(|link| link.alive.is_some());
            alive.for_each(|link| _ = link.fault.get_or_insert(Fault::Local));
        }
        if any {
            self.rounds = 0;
        } else {
            self.rounds += 1;
            if self.rounds.is_multiple_of(ROUNDS) {
                self.look(patience, now());
            }
        }
        // A link that ends also makes room.
        if self.break_off(control) || any {
            self.pump(&now);
        }
    }

    /// Handles one completion: its list has completed, or its link has failed.
    fn complete(&mut self, completion: Completion, now: u64) {
        let (at, number) = read_id(completion.id);
        let Self { links, flight, slab, buffer, works, wire, .. } = self;
        wire.completions += 1;
        let Some(link) = links.get_mut(at).filter(|link| link.alive.is_some()) else { return };
        if let Some(fault) = completion.fault {
            // The first fault is the cause; later requests are only flushed.
            link.fault.get_or_insert(fault);
            return;
        }
        // Ignore a completion that does not belong to the first list in flight.
        let Some(flying) = link.flying.pop_front_if(|flying| flying.number == number) else { return };
        link.room += flying.requests;
        link.since = now;
        let reach = link.reach;
        let ended: Result<(), Infallible> = flight.end_list(flying.ticket, |list| {
            if plan(list, &reach, works).is_ok() {
                wire.bytes_copied += fetch(list, works, buffer, flying.extent.start);
            }
            Ok(Ok(()))
        });
        let Ok(()) = ended;
        slab.give(flying.extent);
        self.busy -= 1;
    }

    /// Posts waiting lists while there is room.
    fn pump(&mut self, now: &impl Fn() -> u64) {
        for at in 0..self.links.len() {
            while let Some(&ticket) = self.links[at].waiting.front() {
                let idle = self.links[at].flying.is_empty();
                match self.launch(at, ticket) {
                    Launch::NoRoom => break,
                    Launch::Over(outcome) => self.end(ticket, outcome),
                    Launch::Posted if idle => self.links[at].since = now(),
                    Launch::Posted => {}
                }
                self.links[at].waiting.pop_front();
            }
        }
    }

    /// Checks whether servers with lists in flight hung up, or are silent for too long.
    fn look(&mut self, patience: u64, now: u64) {
        if now.saturating_sub(self.looked) < LOOK_EVERY {
            return;
        }
        self.looked = now;
        for link in self.links.iter_mut().filter(|link| !link.flying.is_empty() && link.fault.is_none()) {
            link.fault = match &link.alive {
                Some(alive) if alive.attachment.is_over() => Some(Fault::HungUp),
                Some(_) if now.saturating_sub(link.since) > patience => Some(Fault::Silent),
                _ => None,
            };
        }
    }

    /// Ends links with a fault: the client was fenced, or its identity has ended. Returns whether there was
    /// one.
    fn break_off(&mut self, control: &ControlFabric) -> bool {
        let mut any = false;
        for at in 0..self.links.len() {
            let Some(fault) = self.links[at].fault.take() else { continue };
            let error = control.explain_break(at as u16);
            tracing::warn!(server = at, %fault, %error, "an RDMA link ended");
            self.end_link(at, &error);
            any = true;
        }
        any
    }

    fn end_link(&mut self, at: usize, error: &FabricError) {
        let link = &mut self.links[at];
        // Destroy the queue pair first: only after that does the device no longer write to the extents of its
        // lists.
        drop(link.alive.take());
        link.error = Some(error.clone());
        let (flying, waiting) = (std::mem::take(&mut link.flying), std::mem::take(&mut link.waiting));
        for flying in flying {
            self.slab.give(flying.extent);
            self.end(flying.ticket, Err(error.clone()));
        }
        for ticket in waiting {
            self.end(ticket, Err(error.clone()));
        }
    }

    /// Whether nothing is in flight anywhere.
    pub(super) fn is_idle(&self) -> bool {
        self.busy == 0
    }

    /// Whether these connections can serve another endpoint.
    pub(super) fn is_fit(&self) -> bool {
        self.is_idle()
            && self.links.iter().all(|link| {
                link.is_idle() && matches!(link.error, None | Some(FabricError::ServerLost { .. }))
            })
    }

    /// Gives up the lists that are still in flight or waiting.
    pub(super) fn give_up(&mut self, control: &ControlFabric) {
        for link in self.links.iter_mut().filter(|link| !link.is_idle()) {
            link.fault.get_or_insert(Fault::Silent);
        }
        self.break_off(control);
    }

    /// For tests: breaks the link to `server` in the way `how`.
    pub(super) fn sabotage(&mut self, server: u16, how: Sabotage) {
        let Some(link) = self.links.get_mut(usize::from(server)) else { return };
        match (how, &mut link.alive) {
            (Sabotage::End, Some(alive)) => _ = alive.pair.end(),
            (Sabotage::Key, _) => link.host.key ^= 0x5555,
            (Sabotage::Beyond, _) => link.reach.host_bytes += 1 << 20,
            _ => {}
        }
    }
}

/// Ways to break a link on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sabotage {
    /// The queue pair is moved to its error state.
    End,
    /// Verbs name host memory with a key that no server gave out.
    Key,
    /// The client assumes more host memory than there is.
    Beyond,
}

/// Copies the results of READs and atomics into the list. Returns the number of bytes copied.
fn fetch(list: &mut WorkList, works: &[Work], buffer: &Buffer, start: u32) -> u64 {
    let mut copied = 0;
    for work in works {
        let place = start + work.local;
        match work.task {
            Task::Read => {
                if let (Verb::Read { at, len, .. }, arena) = list.parts_mut(work.verb as usize) {
                    buffer.get(place, &mut arena[at as usize..][..len as usize]);
                    copied += u64::from(len);
                }
            }
            Task::Cas { .. } | Task::MaskedCas { .. } | Task::Faa { .. } => {
                list.set_old(work.verb as usize, buffer.word(place));
                copied += 8;
            }
            Task::Write { .. } | Task::Inline { .. } => {}
        }
    }
    copied
}
