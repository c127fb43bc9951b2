//! What is under way between hosts and clients, and what becomes of it.
//!
//! Everything here has a time at which it happens, in the world's own time. The adversary draws from the
//! schedule's seed how long a message takes, whether it is lost, and whether it comes twice. Messages that
//! are under way when a cut begins still arrive.

use super::hosts::SimHost;
use crate::rng::Rng;
use sherman_control::plane::Asker;
use sherman_fabric::{FabricError, Request, Response, Ticket};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap};

/// One end of a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::world) enum End {
    Host(u16),
    /// A process with clients, whatever its identity.
    Process(u32),
}

/// A host that cannot be reached, or cannot reach others, for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostCut {
    /// The host. `u16::MAX` for the one that leads when the cut begins.
    pub host: u16,
    /// How many events it lasts.
    pub steps: u64,
    /// Nothing passes from the host to other hosts.
    pub out: bool,
    /// Nothing passes from other hosts to the host.
    pub into: bool,
    /// A bit for each process: whether it is cut off from the host.
    pub clients: u64,
}

/// How bad the network is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weather {
    /// One message in so many is lost, comes twice, or is late; 0 for none.
    pub loss: u32,
    /// See `loss`.
    pub twice: u32,
    /// See `loss`.
    pub late: u32,
    /// The longest delay of a message that is not late, in nanoseconds.
    pub delay: u64,
}

impl Weather {
    pub(in crate::world) const CALM: Self = Self { loss: 0, twice: 0, late: 0, delay: 400 };
}

/// A request on its way, and who waits for the answer.
#[derive(Clone, Debug)]
pub(in crate::world) struct Asking {
    pub(in crate::world) sender: Sender,
    pub(in crate::world) asker: Asker,
    pub(in crate::world) request: Request,
    /// The host that it goes to.
    pub(in crate::world) target: u16,
    /// How often it was sent. Only the answer to the last one counts, or one that is final.
    pub(in crate::world) sent: u32,
}

impl Asking {
    /// Whether another request of this kind follows soon.
    pub(in crate::world) fn is_sign(&self) -> bool {
        matches!(self.request, Request::Alive { .. } | Request::Return { .. })
    }
}

/// Who waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::world) enum Sender {
    /// A call of a compute server.
    Call { ticket: Ticket, owner: u32 },
    /// A process that joins.
    Joiner { number: u64 },
    /// A host that reports, or says that it is alive.
    Host { host: u16 },
    /// A process that wants to become a host. Its boot number.
    Newcomer { boot: u64 },
    /// Nobody: a client that failed to join gives its id back.
    Nobody,
}

/// Something that happens at its time.
#[derive(Debug)]
pub(in crate::world) enum Item {
    Message {
        from: u16,
        to: u16,
        bytes: Vec<u8>,
    },
    /// A request arrives at a host.
    Ask {
        to: u16,
        ask: u64,
        sent: u32,
    },
    /// An answer arrives.
    Answer {
        ask: u64,
        sent: u32,
        answer: Result<Response, FabricError>,
    },
    /// A request was not answered for too long.
    Silence {
        ask: u64,
        sent: u32,
    },
    /// A pause before a request is sent again is over.
    Resend {
        ask: u64,
        sent: u32,
    },
    /// A node wants to know the time.
    Wake {
        host: u16,
        at: u64,
    },
    /// A host carries out its newest table.
    CarryOut {
        host: u16,
    },
    /// A host works on copies that it makes.
    Work {
        host: u16,
    },
    /// A host says that it is alive.
    Alive {
        host: u16,
    },
    /// The next process of a host starts.
    Return {
        host: u16,
    },
    /// A process that joins goes on.
    Join {
        number: u64,
    },
    /// A call that could not be executed may be tried again.
    Again {
        ticket: Ticket,
        endpoint: u32,
    },
    /// A process wants to become a host.
    Newcomer {
        boot: u64,
    },
}

#[derive(Debug)]
struct Due {
    at: u64,
    order: u64,
    item: Item,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    /// The next one is the greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

/// What is under way.
#[derive(Debug, Default)]
pub(in crate::world) struct Queue {
    heap: BinaryHeap<Due>,
    order: u64,
}

impl Queue {
    pub(in crate::world) fn push(&mut self, at: u64, item: Item) {
        self.order += 1;
        self.heap.push(Due { at, order: self.order, item });
    }

    /// When the next thing happens.
    pub(in crate::world) fn next(&self) -> u64 {
        self.heap.peek().map_or(u64::MAX, |due| due.at)
    }

    /// The next thing that happens until `now`, and its time.
    pub(in crate::world) fn pop(&mut self, now: u64) -> Option<(u64, Item)> {
        if self.next() > now {
            return None;
        }
        self.heap.pop().map(|due| (due.at, due.item))
    }
}

/// A cut that has begun.
#[derive(Clone, Copy, Debug)]
pub(in crate::world) struct Begun {
    pub(in crate::world) cut: HostCut,
    pub(in crate::world) until: u64,
}

impl Begun {
    /// Whether nothing passes from one end to the other.
    fn blocks(&self, from: End, to: End) -> bool {
        let HostCut { host, out, into, clients, .. } = self.cut;
        match (from, to) {
            (End::Host(from), End::Host(to)) => from == host && out || to == host && into,
            (End::Host(at), End::Process(process)) | (End::Process(process), End::Host(at)) => {
                at == host && clients >> (process % 64) & 1 == 1
            }
            (End::Process(_), End::Process(_)) => false,
        }
    }
}

/// The hosts, and everything between them.
#[derive(Debug)]
pub(crate) struct Net {
    pub(in crate::world) rng: Rng,
    pub(in crate::world) queue: Queue,
    /// The time of what happens now.
    pub(in crate::world) now: u64,
    pub(in crate::world) weather: Weather,
    pub(in crate::world) cuts: Vec<Begun>,
    /// By number. A host that has not started, or died before it did, is `None`.
    pub(in crate::world) hosts: Vec<Option<SimHost>>,
    pub(in crate::world) asks: BTreeMap<u64, Asking>,
    pub(in crate::world) last_ask: u64,
    pub(in crate::world) joiners: BTreeMap<u64, super::joins::Joiner>,
    pub(in crate::world) last_joiner: u64,
    /// How long a host may be silent, and a lease, in nanoseconds.
    pub(in crate::world) detect: u64,
    pub(in crate::world) lease: u64,
    /// Nanoseconds between two bits of work on copies.
    pub(in crate::world) pace: u64,
    /// The host with the newest state that anybody has, and its last command.
    pub(in crate::world) newest: (u64, u16),
    /// The leader of each term.
    pub(in crate::world) leaders: BTreeMap<u64, u16>,
    /// For each volume: the epoch since which its primary is the one that it is.
    pub(in crate::world) primary_since: Vec<u64>,
    /// When volumes were closed for makings, and how long the leader waits until it gives up.
    pub(in crate::world) pause: Option<u64>,
    pub(in crate::world) patience: Option<u64>,
    /// How long a slow host takes to carry out a table, at most.
    pub(in crate::world) slowest: u64,
    /// How many hosts may be in trouble at the same time.
    pub(in crate::world) at_once: usize,
    /// What was wrong first.
    pub(in crate::world) wrong: Option<(super::Wrong, String)>,
    /// Boot numbers of processes that want to become hosts, and how many started.
    pub(in crate::world) boots: u64,
    pub(in crate::world) seen: super::GroupSeen,
}

impl Net {
    /// Whether a message gets from one end to the other now.
    pub(in crate::world) fn passes(&self, from: End, to: End) -> bool {
        !self.cuts.iter().any(|cut| cut.until > self.now && cut.blocks(from, to))
    }

    /// Sends something: it is lost, delayed, and perhaps comes twice.
    pub(in crate::world) fn send(&mut self, from: End, to: End, make: impl Fn() -> Item) {
        if !self.passes(from, to) {
            return;
        }
        let Weather { loss, twice, late, delay } = self.weather;
        if self.rng.one_in(loss) {
            self.seen.dropped += 1;
            return;
        }
        let copies = 1 + u32::from(self.rng.one_in(twice));
        self.seen.doubled += u64::from(copies - 1);
        for _ in 0..copies {
            let longest = if self.rng.one_in(late) { self.detect / 3 } else { delay };
            let at = self.now + 1 + self.rng.below(longest as usize) as u64;
            self.queue.push(at, make());
        }
    }

    /// When the next thing happens.
    #[inline]
    pub(in crate::world) fn next(&self) -> u64 {
        self.queue.next()
    }

    pub(in crate::world) fn host(&self, number: u16) -> Option<&SimHost> {
        self.hosts.get(usize::from(number))?.as_ref()
    }

    pub(in crate::world) fn host_mut(&mut self, number: u16) -> Option<&mut SimHost> {
        self.hosts.get_mut(usize::from(number))?.as_mut()
    }

    /// A host that runs.
    pub(in crate::world) fn running(&mut self, number: u16) -> Option<&mut SimHost> {
        self.host_mut(number).filter(|host| host.runs)
    }

    /// Notes what is wrong. Only the first finding counts.
    pub(in crate::world) fn found(&mut self, property: super::Wrong, what: String) {
        self.wrong.get_or_insert((property, what));
    }
}
