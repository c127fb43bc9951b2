//! The world without the tasks: servers, streams, requests, timers and virtual time.

use super::bug::Bug;
use super::memory::{self, Memory};
use super::stream::{Flight, Stream};
use fastrand::Rng;
use sherman_fabric::control::{Extent, Verdict};
use sherman_fabric::{Caps, ComputeId, FabricError, Refusal, Request, Response, Ticket, Verb, WorkList};
use std::collections::{BTreeMap, BTreeSet};
use std::task::Waker;

/// One endpoint's part of the world.
#[derive(Debug)]
pub struct Port {
    pub client: ComputeId,
    streams: Vec<Stream>,
    pub lists: BTreeMap<Ticket, Result<WorkList, FabricError>>,
    pub calls: BTreeMap<Ticket, Result<Response, FabricError>>,
    pub wakers: BTreeMap<Ticket, Waker>,
    pub forgotten: BTreeSet<Ticket>,
    fenced: BTreeSet<u16>,
}

#[derive(Debug)]
pub struct World {
    pub rng: Rng,
    pub bug: Bug,
    pub caps: Caps,
    pub now: u64,
    pub ports: Vec<Port>,
    pub timers: Vec<(u64, Waker)>,
    servers: Vec<Memory>,
    requests: Vec<(usize, Ticket, u16, Request)>,
    tickets: u64,
}

impl World {
    pub fn new(seed: u64, bug: Bug, caps: Caps, servers: u16) -> Self {
        Self {
            rng: Rng::with_seed(seed),
            bug,
            caps,
            now: 0,
            ports: vec![],
            timers: vec![],
            servers: (0..servers).map(|_| Memory::new()).collect(),
            requests: vec![],
            tickets: 0,
        }
    }

    pub fn servers(&self) -> u16 {
        self.servers.len() as u16
    }

    /// A new endpoint; returns its index.
    pub fn open(&mut self, client: ComputeId) -> usize {
        self.ports.push(Port {
            client,
            streams: self.servers.iter().map(|_| Stream::default()).collect(),
            lists: BTreeMap::new(),
            calls: BTreeMap::new(),
            wakers: BTreeMap::new(),
            forgotten: BTreeSet::new(),
            fenced: BTreeSet::new(),
        });
        self.ports.len() - 1
    }

    fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }

    pub fn post(&mut self, port: usize, list: WorkList) -> Ticket {
        let ticket = self.ticket();
        let server = list.server();
        let too_large = memory::too_large(&list, &self.caps).filter(|_| self.bug != Bug::LimitsIgnored);
        let client = self.ports[port].client;
        if server >= self.servers() {
            self.complete(port, ticket, Err(FabricError::NoSuchServer { server }));
        } else if self.ports[port].fenced.contains(&server) {
            self.complete(port, ticket, Err(FabricError::Fenced { client }));
        } else if let Some(error) = too_large {
            self.complete(port, ticket, Err(error));
        } else {
            let only_writes = list.verbs().iter().all(|verb| matches!(verb, Verb::Write { .. }));
            let early = self.bug == Bug::CompletesEarly && only_writes;
            let copy = early.then(|| copy_of(&list));
            let flight = Flight::new((!early).then_some(ticket), list, self.bug, &mut self.rng);
            self.ports[port].streams[usize::from(server)].push(flight, self.bug, &mut self.rng);
            if let Some(copy) = copy {
                self.complete(port, ticket, Ok(copy));
            }
        }
        ticket
    }

    pub fn call(&mut self, port: usize, server: u16, request: Request) -> Ticket {
        let ticket = self.ticket();
        self.requests.push((port, ticket, server, request));
        ticket
    }

    fn complete(&mut self, port: usize, ticket: Ticket, result: Result<WorkList, FabricError>) {
        if self.bug == Bug::LosesCompletions && self.rng.u8(..50) == 0 {
            return;
        }
        let port = &mut self.ports[port];
        if !port.forgotten.remove(&ticket) {
            port.lists.insert(ticket, result);
        }
        if let Some(waker) = port.wakers.remove(&ticket) {
            waker.wake();
        }
    }

    /// Makes one step of a random stream or request. Returns false if nothing is in progress.
    pub fn step(&mut self) -> bool {
        self.now += self.rng.u64(1..50);
        let busy: Vec<(usize, usize)> = (0..self.ports.len())
            .flat_map(|port| (0..self.servers.len()).map(move |server| (port, server)))
            .filter(|&(port, server)| !self.ports[port].streams[server].flights.is_empty())
            .collect();
        let choice = busy.len() + self.requests.len();
        if choice == 0 {
            return false;
        }
        match self.rng.usize(..choice) {
            index if index < busy.len() => self.step_stream(busy[index].0, busy[index].1),
            index => self.answer(index - busy.len()),
        }
        true
    }

    fn step_stream(&mut self, port: usize, server: usize) {
        let stream = &mut self.ports[port].streams[server];
        let memory = &mut self.servers[server];
        let Some(flight) = stream.step(memory, &self.caps, server as u16, self.bug, &mut self.rng) else {
            return;
        };
        let Flight { ticket, list, error, .. } = flight;
        if self.bug == Bug::LandsTwice && ticket.is_some() && self.rng.u8(..4) == 0 {
            let ghost = Flight::new(None, copy_of(&list), self.bug, &mut self.rng);
            stream.flights.push_back(ghost);
        }
        if let Some(ticket) = ticket {
            self.complete(port, ticket, error.map_or(Ok(list), Err));
        }
    }

    fn answer(&mut self, index: usize) {
        let (port, ticket, server, request) = self.requests.swap_remove(index);
        let answer = match request {
            _ if server >= self.servers() => Err(FabricError::NoSuchServer { server }),
            _ if self.ports[port].fenced.contains(&server) => {
                Err(FabricError::Fenced { client: self.ports[port].client })
            }
            Request::Fence { client } => {
                self.fence(client, server);
                Ok(Response::Done)
            }
            Request::Retire { client } => {
                if self.bug == Bug::RetireLiftsFence {
                    let ports = self.ports.iter_mut().filter(|port| port.client == client);
                    ports.for_each(|port| port.fenced.clear());
                }
                Ok(Response::Done)
            }
            Request::RedoArea => Ok(Response::RedoArea(Extent { offset: 0, bytes: 0 })),
            Request::Activate => Ok(Response::Active { incarnation: 1 }),
            Request::FreeId { .. } | Request::Condemn { .. } => Ok(Response::Done),
            Request::Suspect { .. } => Ok(Response::Verdict(Verdict::Recover)),
            _ => Err(Refusal::NotHere.into()),
        };
        let port = &mut self.ports[port];
        port.calls.insert(ticket, answer);
        if let Some(waker) = port.wakers.remove(&ticket) {
            waker.wake();
        }
    }

    fn fence(&mut self, client: ComputeId, server: u16) {
        let mut ports: Vec<usize> =
            (0..self.ports.len()).filter(|&port| self.ports[port].client == client).collect();
        match self.bug {
            Bug::FenceMissesEndpoints => ports.truncate(1),
            Bug::FenceStopsAll => ports = (0..self.ports.len()).collect(),
            _ => {}
        }
        for port in ports {
            let client = self.ports[port].client;
            self.ports[port].fenced.insert(server);
            if self.bug == Bug::FenceLeavesInFlight {
                continue;
            }
            for flight in &mut self.ports[port].streams[usize::from(server)].flights {
                flight.cut(FabricError::Fenced { client });
            }
        }
    }

    /// Wakes every task whose timer has expired.
    pub fn fire_timers(&mut self) {
        let now = self.now;
        self.timers.retain(|(at, waker)| {
            if *at <= now {
                waker.wake_by_ref();
            }
            *at > now
        });
    }
}

/// A new list with the WRITEs of `list`.
fn copy_of(list: &WorkList) -> WorkList {
    let mut copy = WorkList::new(list.server());
    let mut bytes = WorkList::new(0);
    for (index, &verb) in list.verbs().iter().enumerate() {
        // Only adding a verb gives a `VerbId`. This one has the same number.
        let id = bytes.read(sherman_fabric::Space::Host, 0, 0);
        if let Verb::Write { space, offset, .. } = verb {
            debug_assert_eq!(bytes.len(), index + 1);
            copy.write(space, offset, list.bytes(id));
        }
    }
    copy
}
