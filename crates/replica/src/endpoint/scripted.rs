//! A small backend for tests: each test decides when a list executes, and which copies fail.

use sherman_executor::Driver;
use sherman_fabric::{
    Caps, Clock, ComputeId, Counters, Endpoint, FabricError, FenceMode, Peer, Request, Response, Space,
    Ticket, Verb, WorkList,
};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::task::{Context, Poll, Waker};

/// See the module.
#[derive(Debug)]
pub(super) struct Scripted {
    caps: Caps,
    counters: Counters,
    memory: RefCell<Vec<BTreeMap<(bool, u64), u8>>>,
    next: Cell<u64>,
    waiting: RefCell<Vec<(Ticket, WorkList)>>,
    done: RefCell<BTreeMap<u64, Result<WorkList, FabricError>>>,
    wakers: RefCell<BTreeMap<u64, Waker>>,
    /// Copies that cannot be reached, and whether they execute what is posted.
    pub(super) broken: RefCell<BTreeMap<u16, bool>>,
    /// The verbs that executed, in order.
    pub(super) log: RefCell<Vec<String>>,
    /// Lists execute inside `post`.
    pub(super) inline: Cell<bool>,
    calls: RefCell<BTreeMap<u64, u16>>,
}

impl Scripted {
    pub(super) fn new(copies: u16) -> Self {
        let caps = Caps {
            atomic_unit: 64,
            crash_unit: 64,
            verb_atomic: false,
            masked_cas: true,
            write_releases: true,
            lock_read: true,
            on_chip_bytes: 64,
            fence: FenceMode::Revoke,
            shortest_write_nanos: 0,
            max_verbs: 64,
            max_transfer: 1 << 20,
        };
        Self {
            caps,
            counters: Counters::default(),
            memory: RefCell::new(vec![BTreeMap::new(); usize::from(copies)]),
            next: Cell::new(1),
            waiting: RefCell::default(),
            done: RefCell::default(),
            wakers: RefCell::default(),
            broken: RefCell::default(),
            log: RefCell::default(),
            inline: Cell::new(false),
            calls: RefCell::default(),
        }
    }

    /// The copies of the lists that wait, in the order of posting.
    pub(super) fn posted(&self) -> Vec<u16> {
        self.waiting.borrow().iter().map(|(_, list)| list.server()).collect()
    }

    /// Executes and completes the first waiting list of `copy`.
    pub(super) fn complete(&self, copy: u16) {
        let at = self.waiting.borrow().iter().position(|(_, list)| list.server() == copy);
        let (ticket, list) = self.waiting.borrow_mut().remove(at.expect("a list waits there"));
        self.finish(ticket, list);
    }

    fn finish(&self, ticket: Ticket, mut list: WorkList) {
        let copy = list.server();
        let broken = self.broken.borrow().get(&copy).copied();
        if broken != Some(false) {
            self.execute(&mut list);
        }
        let outcome =
            if broken.is_some() { Err(FabricError::Disconnected { server: copy }) } else { Ok(list) };
        self.done.borrow_mut().insert(ticket.0, outcome);
        if let Some(waker) = self.wakers.borrow_mut().remove(&ticket.0) {
            waker.wake();
        }
    }

    pub(super) fn word(&self, copy: u16, space: Space, offset: u64) -> u64 {
        let memory = self.memory.borrow();
        let byte = |at| memory[usize::from(copy)].get(&(space == Space::Host, at)).copied().unwrap_or(0);
        (0..8).rev().fold(0, |word, at| word << 8 | u64::from(byte(offset + at)))
    }

    pub(super) fn set_word(&self, copy: u16, space: Space, offset: u64, word: u64) {
        let mut memory = self.memory.borrow_mut();
        for (at, byte) in (offset..).zip(word.to_le_bytes()) {
            memory[usize::from(copy)].insert((space == Space::Host, at), byte);
        }
    }

    fn execute(&self, list: &mut WorkList) {
        let copy = list.server();
        for index in 0..list.len() {
            let verb = list.verbs()[index];
            let told = match verb {
                Verb::Read { space, offset, at, len } => {
                    for i in 0..u64::from(len) {
                        let byte = self.word(copy, space, offset + i) as u8;
                        list.parts_mut(index).1[at as usize + i as usize] = byte;
                    }
                    format!("{copy}: READ {offset}")
                }
                Verb::Write { space, offset, .. } => {
                    let data = list.data(index).to_vec();
                    let mut memory = self.memory.borrow_mut();
                    for (at, byte) in (offset..).zip(data) {
                        memory[usize::from(copy)].insert((space == Space::Host, at), byte);
                    }
                    format!("{copy}: WRITE {offset}")
                }
                Verb::Cas { space, offset, compare, swap, mask, .. } => {
                    let old = self.word(copy, space, offset);
                    if old & mask == compare & mask {
                        self.set_word(copy, space, offset, old & !mask | swap & mask);
                    }
                    list.set_old(index, old);
                    format!("{copy}: CAS {offset}")
                }
                Verb::Faa { space, offset, add, .. } => {
                    let old = self.word(copy, space, offset);
                    self.set_word(copy, space, offset, old.wrapping_add(add));
                    list.set_old(index, old);
                    format!("{copy}: FAA {offset}")
                }
            };
            self.log.borrow_mut().push(told);
        }
    }
}

impl Clock for Scripted {
    fn now(&self) -> u64 {
        0
    }

    fn wake_at(&self, _at: u64, _waker: &Waker) {}
}

impl Driver for Scripted {
    fn progress(&self) -> bool {
        false
    }

    fn idle_for(&self) -> Option<std::time::Duration> {
        None
    }
}

impl Endpoint for Scripted {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn servers(&self) -> u16 {
        self.memory.borrow().len() as u16
    }

    fn client(&self) -> ComputeId {
        ComputeId(1)
    }

    fn list(&self, server: u16) -> WorkList {
        WorkList::new(server)
    }

    fn recycle(&self, _list: WorkList) {}

    fn post(&self, list: WorkList) -> Ticket {
        let ticket = Ticket(self.next.replace(self.next.get() + 1));
        if self.inline.get() {
            self.finish(ticket, list);
        } else {
            self.waiting.borrow_mut().push((ticket, list));
        }
        ticket
    }

    fn poll(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<WorkList, FabricError>> {
        match self.done.borrow_mut().remove(&ticket.0) {
            Some(outcome) => Poll::Ready(outcome),
            None => {
                self.wakers.borrow_mut().insert(ticket.0, cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn forget(&self, ticket: Ticket) {
        self.done.borrow_mut().remove(&ticket.0);
    }

    fn call(&self, peer: Peer, _request: Request) -> Ticket {
        let ticket = Ticket(self.next.replace(self.next.get() + 1));
        self.calls.borrow_mut().insert(ticket.0, peer.server());
        ticket
    }

    fn refuses(&self, server: u16) -> bool {
        self.broken.borrow().contains_key(&server)
    }

    /// The answer is the number of the copy that was asked.
    fn poll_call(&self, ticket: Ticket, _cx: &mut Context<'_>) -> Poll<Result<Response, FabricError>> {
        let asked = self.calls.borrow_mut().remove(&ticket.0);
        Poll::Ready(asked.map_or(Err(FabricError::Disconnected { server: 0 }), |copy| {
            if self.broken.borrow().contains_key(&copy) {
                return Err(FabricError::Disconnected { server: copy });
            }
            Ok(Response::Joined { client: ComputeId(copy) })
        }))
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}
