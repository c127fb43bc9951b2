//! The compute servers of a schedule in which things go wrong: their keepers, and those that come back.
//!
//! Every compute server has a keeper, a task with a worker of its own, that renews the lease and recovers others until every
//! client of a compute server that lives has ended. A client whose compute server is doomed may join again, under a new identity.

use super::check::Property;
use super::lab::{Compute, options};
use super::scenario::Scenario;
use super::script::Record;
use crate::endpoint::SimEndpoint;
use crate::sim::Spawner;
use sherman_core::{ComputeServer, Error, Worker};
use sherman_fabric::Fabric;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

/// How often a client joins again.
const REJOINS: u32 = 2;

/// Everyone in a schedule.
pub(super) struct Company {
    pub spawner: Spawner,
    scenario: Scenario,
    record: Rc<Record>,
    /// Every compute server there was, in order of joining.
    pub members: RefCell<Vec<Compute>>,
    /// For each client, the compute server it is on, by number; `None` once it has ended.
    clients: RefCell<Vec<Option<u32>>>,
    /// How many may yet join again.
    may_rejoin: Cell<u32>,
    /// How many did.
    pub rejoined: Cell<u32>,
}

impl Company {
    pub fn new(spawner: Spawner, scenario: Scenario, record: Rc<Record>, rejoin: bool) -> Rc<Self> {
        Rc::new(Self {
            spawner,
            scenario,
            record,
            members: RefCell::default(),
            clients: RefCell::default(),
            may_rejoin: Cell::new(if rejoin { REJOINS } else { 0 }),
            rejoined: Cell::new(0),
        })
    }

    /// One more client, on a compute server.
    pub fn enrol(&self, client: u32, number: u32) {
        let mut clients = self.clients.borrow_mut();
        if clients.len() <= client as usize {
            clients.resize(client as usize + 1, None);
        }
        clients[client as usize] = Some(number);
    }

    /// A client has ended.
    pub fn end(&self, client: u32) {
        self.clients.borrow_mut()[client as usize] = None;
    }

    fn all_ended(&self) -> bool {
        self.clients.borrow().iter().flatten().all(|&number| self.spawner.is_dead(number))
    }

    /// Lets a keeper run for a compute server.
    pub fn employ_keeper(self: &Rc<Self>, compute: &Compute) {
        let (worker, company) = (compute.worker(), Rc::clone(self));
        let thread = self.scenario.threads;
        let body = async move {
            let kept = worker.keep(|| company.all_ended()).await;
            if let Err(error) = kept
                && !worker.compute().is_doomed()
            {
                company.record.trouble(Property::Progress, format!("a keeper gave up: {error}"));
            }
        };
        drop(self.spawner.spawn(Some(&compute.fabric), thread, "keeper", body));
    }

    /// A new identity for `client`, whose compute server is doomed. `None` if it is not to come back, or was taken for dead
    /// again before it was there.
    pub async fn rejoin(self: &Rc<Self>, client: u32) -> Option<(Worker<SimEndpoint>, Arc<sherman_core::TreeState>)> {
        self.may_rejoin.set(self.may_rejoin.get().checked_sub(1)?);
        let fabric = self.spawner.join().ok()?;
        let endpoint = fabric.endpoint().ok()?;
        let (number, id) = (fabric.number(), fabric.client());
        self.spawner.say(|| format!("client {client} comes back as cs{number}, id {id}"));
        self.enrol(client, number);
        let opened = ComputeServer::open(&endpoint, options(&self.scenario)).await;
        let shared = self.unless_doomed(opened)?;
        let worker = Worker::new(endpoint, Arc::clone(&shared));
        let tree = self.unless_doomed(worker.open_tree(super::lab::TREE).await)?;
        let compute = Compute { fabric, shared, tree: Arc::clone(&tree) };
        self.employ_keeper(&compute);
        self.members.borrow_mut().push(compute);
        self.rejoined.set(self.rejoined.get() + 1);
        Some((worker, tree))
    }

    fn unless_doomed<T>(&self, opened: Result<T, Error>) -> Option<T> {
        match opened {
            Ok(opened) => Some(opened),
            Err(Error::Fenced { .. }) => None,
            Err(error) => {
                self.record.trouble(Property::Progress, format!("who comes back cannot: {error}"));
                None
            }
        }
    }
}
