//! A backend on real threads. One mutex guards all memory, and verbs finish inside `post`.

use super::memory::{self, Memory};
use sherman_conformance::contract::{Breach, Harness, Participant, Scratch, on_threads};
use sherman_executor::Driver;
use sherman_fabric::control::{Extent, Verdict};
use sherman_fabric::{
    Caps, Clock, ComputeId, Counters, Endpoint, FabricError, Peer, Refusal, Request, Response, Ticket, Verb,
    WorkList,
};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// The harness of the locked backend.
pub struct Locked {
    pub caps: Caps,
    pub servers: u16,
    pub rounds: u32,
    /// Plants a breach of F4: the lock is released between reading and writing a word.
    pub split_atomics: bool,
}

struct Shared {
    memories: Vec<Memory>,
    fenced: BTreeSet<(u16, ComputeId)>,
}

pub struct LockedEndpoint {
    shared: Arc<Mutex<Shared>>,
    client: ComputeId,
    caps: Caps,
    servers: u16,
    split_atomics: bool,
    counters: Counters,
    opened: Instant,
    tickets: Cell<u64>,
    lists: RefCell<BTreeMap<Ticket, Result<WorkList, FabricError>>>,
    calls: RefCell<BTreeMap<Ticket, Result<Response, FabricError>>>,
    timers: RefCell<Vec<(u64, Waker)>>,
}

impl Harness for Locked {
    type Endpoint = LockedEndpoint;

    fn scratch(&self) -> Scratch {
        super::scratch(&self.caps, self.servers)
    }

    fn rounds(&self) -> u32 {
        self.rounds
    }

    fn runs(&self) -> u32 {
        2
    }

    fn run(&self, _: u64, participants: Vec<Participant<LockedEndpoint>>) -> Result<(), Breach> {
        let memories = (0..self.servers).map(|_| Memory::new()).collect();
        let shared = Arc::new(Mutex::new(Shared { memories, fenced: BTreeSet::new() }));
        on_threads(participants, |group| {
            Ok::<_, FabricError>(LockedEndpoint {
                shared: Arc::clone(&shared),
                client: ComputeId(group as u16 + 1),
                caps: self.caps.clone(),
                servers: self.servers,
                split_atomics: self.split_atomics,
                counters: Counters::default(),
                opened: Instant::now(),
                tickets: Cell::new(0),
                lists: RefCell::default(),
                calls: RefCell::default(),
                timers: RefCell::default(),
            })
        })
    }
}

impl LockedEndpoint {
    fn ticket(&self) -> Ticket {
        self.tickets.set(self.tickets.get() + 1);
        Ticket(self.tickets.get())
    }

    fn execute(&self, mut list: WorkList) -> Result<WorkList, FabricError> {
        let server = list.server();
        if server >= self.servers {
            return Err(FabricError::NoSuchServer { server });
        }
        if let Some(error) = memory::too_large(&list, &self.caps) {
            return Err(error);
        }
        for index in 0..list.len() {
            let mut shared = self.shared.lock().unwrap();
            if shared.fenced.contains(&(server, self.client)) {
                return Err(FabricError::Fenced { client: self.client });
            }
            let memory = &mut shared.memories[usize::from(server)];
            let (verb, arena) = list.parts_mut(index);
            if let Some(error) = memory::bad(verb, server, &self.caps) {
                return Err(error);
            }
            let (space, offset, len) = memory::extent(verb);
            match verb {
                Verb::Read { at, .. } => {
                    arena[at as usize..][..len].copy_from_slice(memory.bytes(space, offset, len));
                }
                Verb::Write { at, .. } => {
                    memory.bytes(space, offset, len).copy_from_slice(&arena[at as usize..][..len]);
                }
                Verb::Cas { .. } | Verb::Faa { .. } => {
                    let word = memory.word(space, offset);
                    if self.split_atomics {
                        drop(shared);
                        std::thread::yield_now();
                        shared = self.shared.lock().unwrap();
                    }
                    let new = memory::atomic(verb, word).unwrap_or(word);
                    let memory = &mut shared.memories[usize::from(server)];
                    memory.bytes(space, offset, 8).copy_from_slice(&new.to_le_bytes());
                    list.set_old(index, word);
                }
            }
        }
        Ok(list)
    }
}

impl Clock for LockedEndpoint {
    fn now(&self) -> u64 {
        self.opened.elapsed().as_nanos() as u64
    }

    fn wake_at(&self, at: u64, waker: &Waker) {
        self.timers.borrow_mut().push((at, waker.clone()));
    }
}

impl Driver for LockedEndpoint {
    fn progress(&self) -> bool {
        let now = self.now();
        let before = self.timers.borrow().len();
        self.timers.borrow_mut().retain(|(at, waker)| {
            if *at <= now {
                waker.wake_by_ref();
            }
            *at > now
        });
        self.timers.borrow().len() < before
    }

    fn idle_for(&self) -> Option<Duration> {
        self.timers
            .borrow()
            .iter()
            .map(|timer| Duration::from_nanos(timer.0.saturating_sub(self.now())))
            .min()
    }
}

impl Endpoint for LockedEndpoint {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn servers(&self) -> u16 {
        self.servers
    }

    fn client(&self) -> ComputeId {
        self.client
    }

    fn list(&self, server: u16) -> WorkList {
        WorkList::new(server)
    }

    fn recycle(&self, _: WorkList) {}

    fn post(&self, list: WorkList) -> Ticket {
        let ticket = self.ticket();
        let result = self.execute(list);
        self.lists.borrow_mut().insert(ticket, result);
        ticket
    }

    fn poll(&self, ticket: Ticket, _: &mut Context<'_>) -> Poll<Result<WorkList, FabricError>> {
        Poll::Ready(self.lists.borrow_mut().remove(&ticket).expect("a ticket is polled once"))
    }

    fn forget(&self, ticket: Ticket) {
        self.lists.borrow_mut().remove(&ticket);
    }

    fn call(&self, peer: Peer, request: Request) -> Ticket {
        let server = peer.server();
        let ticket = self.ticket();
        let answer = match request {
            _ if server >= self.servers => Err(FabricError::NoSuchServer { server }),
            _ if self.shared.lock().unwrap().fenced.contains(&(server, self.client)) => {
                Err(FabricError::Fenced { client: self.client })
            }
            Request::Fence { client } => {
                self.shared.lock().unwrap().fenced.insert((server, client));
                Ok(Response::Done)
            }
            // No client joins again here, so each id has one incarnation.
            Request::RedoArea => Ok(Response::RedoArea(Extent { offset: 0, bytes: 0 })),
            Request::Activate => Ok(Response::Active { incarnation: 1 }),
            Request::Condemn { .. } | Request::Retire { .. } | Request::FreeId { .. } => Ok(Response::Done),
            Request::Suspect { .. } => Ok(Response::Verdict(Verdict::Recover)),
            _ => Err(Refusal::NotHere.into()),
        };
        self.calls.borrow_mut().insert(ticket, answer);
        ticket
    }

    fn poll_call(&self, ticket: Ticket, _: &mut Context<'_>) -> Poll<Result<Response, FabricError>> {
        Poll::Ready(self.calls.borrow_mut().remove(&ticket).expect("a ticket is polled once"))
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}
