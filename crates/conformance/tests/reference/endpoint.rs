//! The reference backend's endpoint.

use super::world::World;
use sherman_executor::Driver;
use sherman_fabric::{
    Caps, Clock, ComputeId, Counters, Endpoint, FabricError, Peer, Request, Response, Ticket, WorkList,
};
use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

pub struct SeededEndpoint {
    world: Rc<RefCell<World>>,
    port: usize,
    caps: Caps,
    counters: Counters,
}

impl SeededEndpoint {
    pub fn new(world: &Rc<RefCell<World>>, client: ComputeId) -> Self {
        let port = world.borrow_mut().open(client);
        let caps = world.borrow().caps.clone();
        Self { world: Rc::clone(world), port, caps, counters: Counters::default() }
    }
}

impl Clock for SeededEndpoint {
    fn now(&self) -> u64 {
        self.world.borrow().now
    }

    fn wake_at(&self, at: u64, waker: &Waker) {
        self.world.borrow_mut().timers.push((at, waker.clone()));
    }
}

impl Driver for SeededEndpoint {
    fn progress(&self) -> bool {
        false
    }

    fn idle_for(&self) -> Option<Duration> {
        None
    }
}

impl Endpoint for SeededEndpoint {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn servers(&self) -> u16 {
        self.world.borrow().servers()
    }

    fn client(&self) -> ComputeId {
        self.world.borrow().ports[self.port].client
    }

    fn list(&self, server: u16) -> WorkList {
        WorkList::new(server)
    }

    fn recycle(&self, _: WorkList) {}

    fn post(&self, list: WorkList) -> Ticket {
        self.world.borrow_mut().post(self.port, list)
    }

    fn poll(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<WorkList, FabricError>> {
        let port = &mut self.world.borrow_mut().ports[self.port];
        match port.lists.remove(&ticket) {
            Some(result) => Poll::Ready(result),
            None => {
                port.wakers.insert(ticket, cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn forget(&self, ticket: Ticket) {
        let port = &mut self.world.borrow_mut().ports[self.port];
        port.wakers.remove(&ticket);
        if port.lists.remove(&ticket).is_none() {
            port.forgotten.insert(ticket);
        }
    }

    fn call(&self, peer: Peer, request: Request) -> Ticket {
        self.world.borrow_mut().call(self.port, peer.server(), request)
    }

    fn poll_call(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<Response, FabricError>> {
        let port = &mut self.world.borrow_mut().ports[self.port];
        match port.calls.remove(&ticket) {
            Some(answer) => Poll::Ready(answer),
            None => {
                port.wakers.insert(ticket, cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}
