//! The compute servers of a schedule in which things go wrong: their keepers, and those that come back.
//!
//! Every compute server has a keeper, a task with a worker of its own that renews the lease, and a recoverer, another one that recovers
//! others. They run until every client of a compute server that lives has ended; in some schedules a compute server whose own clients
//! have ended leaves before that, in the middle of whatever the others do. A client whose compute server is doomed may join again, under
//! a new identity.

use super::check::Property;
use super::lab::{Compute, TREE, options};
use super::scenario::Scenario;
use super::script::{Record, Script};
use crate::endpoint::{SimEndpoint, SimFabric};
use crate::rng::Rng;
use crate::sim::Spawner;
use sherman_core::{ComputeServer, Error, TreeState, Worker};
use sherman_fabric::{Clock, Fabric, FabricError, sleep_until};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

/// How often a client joins again.
const REJOINS: u32 = 2;
/// How often clients join again after a restart, all told: there are ids for so many.
const MOST_REJOINS: u32 = 4;
/// For how long a keeper that is to leave waits for the recoverer, in nanoseconds.
const NAP: u64 = 2_000;

/// Everyone in a schedule.
pub(super) struct Company {
    spawner: Spawner,
    scenario: Scenario,
    record: Rc<Record>,
    /// Every compute server there was, in order of joining.
    pub members: RefCell<Vec<Compute>>,
    /// For each client, the compute server it is on, by number; `None` once it has ended.
    clients: RefCell<Vec<Option<u32>>>,
    /// How many others come and go before each.
    visitors: u32,
    /// Which compute servers, by number, leave when their clients have ended: those whose bit is set, modulo 64.
    leavers: u64,
    /// How many may yet join again.
    may_rejoin: Cell<u32>,
    /// How many did.
    pub rejoined: Cell<u32>,
    /// The compute servers, by number, that left in order while others went on.
    pub departed: RefCell<BTreeSet<u32>>,
}

impl Company {
    /// A company; with a seed for whether, and when, they come back.
    pub fn new(
        spawner: Spawner,
        scenario: Scenario,
        record: Rc<Record>,
        seed: Option<u64>,
        restarts: bool,
    ) -> Rc<Self> {
        let mut rng = Rng::new(seed.unwrap_or(0) ^ 0x434f_4d50);
        let rejoin = seed.is_some() && rng.one_in(2);
        // A restart ends every identity: otherwise nothing would happen after it.
        let all = if restarts { (scenario.computes * scenario.threads).min(MOST_REJOINS) } else { 0 };
        Rc::new(Self {
            visitors: 2 + rng.below(8) as u32,
            leavers: if seed.is_some() && rng.one_in(2) { rng.next_u64() } else { 0 },
            spawner,
            scenario,
            record,
            members: RefCell::default(),
            clients: RefCell::default(),
            may_rejoin: Cell::new(if rejoin { REJOINS.max(all) } else { all }),
            rejoined: Cell::new(0),
            departed: RefCell::default(),
        })
    }

    /// Every compute server that did not leave in order: what an inspector finds of the others is only memory.
    pub fn remaining(&self) -> Vec<Compute> {
        let departed = self.departed.borrow();
        let members = self.members.borrow();
        members.iter().filter(|compute| !departed.contains(&compute.fabric.number())).cloned().collect()
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

    /// Whether a compute server has nothing to do any more.
    fn may_stop(&self, number: u32) -> bool {
        let has_ended = !self.clients.borrow().iter().flatten().any(|&on| on == number);
        self.all_ended() || has_ended && self.leavers >> (number % 64) & 1 == 1
    }

    /// Lets a keeper and a recoverer run for a compute server.
    pub fn employ_keeper(self: &Rc<Self>, compute: &Compute) {
        let (number, thread) = (compute.fabric.number(), self.scenario.threads);
        let recovering = Rc::new(Cell::new(true));
        let (worker, company, busy) = (compute.worker(), Rc::clone(self), Rc::clone(&recovering));
        let keeper = async move {
            // It renews as long as the recoverer works.
            company.report("keeper", &worker, worker.keep(|| company.may_stop(number) && !busy.get()).await);
            while busy.get() {
                sleep_until(worker.endpoint(), worker.endpoint().now() + NAP).await;
            }
            if !company.all_ended() {
                // A doomed one is refused, and stays for others to recover.
                let departed = worker.depart().await;
                company.spawner.say(|| format!("cs{number} departs: {departed:?}"));
                if departed.is_ok() {
                    company.departed.borrow_mut().insert(number);
                }
                let gone = departed.is_ok() || worker.compute().is_doomed();
                company.report("leaver", &worker, if gone { Ok(()) } else { departed });
            }
        };
        let (worker, company) = (compute.worker(), Rc::clone(self));
        let recoverer = async move {
            company.report("recoverer", &worker, worker.recover_others(|| company.may_stop(number)).await);
            recovering.set(false);
        };
        drop(self.spawner.spawn(Some(&compute.fabric), thread, "keeper", keeper));
        drop(self.spawner.spawn(Some(&compute.fabric), thread + 1, "recoverer", recoverer));
    }

    /// Trouble, unless the compute server is doomed.
    fn report(&self, who: &str, worker: &Worker<SimEndpoint>, outcome: Result<(), Error>) {
        if let Err(error) = outcome
            && !worker.compute().is_doomed()
            && !matches!(error, Error::Fabric(FabricError::Disconnected { .. }))
        {
            self.record.trouble(Property::Progress, format!("a {who} gave up: {error}"));
        }
    }

    /// Lets a client whose compute server is doomed go on with its script under a new identity, unless it is not to come back.
    /// It goes on as a task of the new compute server, and may be taken for dead again before it is there.
    pub fn bring_back(self: &Rc<Self>, script: Script, next: u32) {
        let client = script.client;
        let fabric = self.may_rejoin.get().checked_sub(1).and_then(|left| {
            self.may_rejoin.set(left);
            // Ids are issued in turn: so that some are issued again, others come and go meanwhile.
            (0..self.visitors).for_each(|_| drop(self.spawner.visit()));
            self.spawner.join().ok()
        });
        let Some(fabric) = fabric else { return self.end(client) };
        let (number, id) = (fabric.number(), fabric.client());
        self.spawner.say(|| format!("client {client} comes back as cs{number}, id {id}"));
        self.enrol(client, number);
        self.rejoined.set(self.rejoined.get() + 1);
        let company = Rc::clone(self);
        let home = fabric.clone();
        let body: Pin<Box<dyn Future<Output = ()>>> = Box::pin(async move {
            match company.open(fabric).await {
                Some((worker, tree)) => {
                    let others = Default::default();
                    Script { tree, others, ..script }.run_from(next, worker).await;
                }
                None => company.end(client),
            }
        });
        drop(self.spawner.spawn(Some(&home), 0, "client", body));
    }

    async fn open(self: &Rc<Self>, fabric: SimFabric) -> Option<(Worker<SimEndpoint>, Arc<TreeState>)> {
        let endpoint = fabric.endpoint().ok()?;
        let opened = ComputeServer::open(&endpoint, options(&self.scenario)).await;
        let shared = self.unless_doomed(opened)?;
        let worker = Worker::new(endpoint, Arc::clone(&shared));
        let tree = self.unless_doomed(worker.open_tree(TREE).await)?;
        let compute = Compute { fabric, shared, tree: Arc::clone(&tree) };
        self.employ_keeper(&compute);
        self.members.borrow_mut().push(compute);
        Some((worker, tree))
    }

    fn unless_doomed<T>(&self, opened: Result<T, Error>) -> Option<T> {
        match opened {
            Ok(opened) => Some(opened),
            Err(Error::Fenced { .. } | Error::Fabric(FabricError::Disconnected { .. })) => None,
            Err(error) => {
                self.record.trouble(Property::Progress, format!("who comes back cannot: {error}"));
                None
            }
        }
    }
}
