//! The compute servers of a schedule with faults: their keepers, and clients that join again.
//!
//! Every compute server has a keeper and a recoverer. The keeper is a task with its own worker that renews
//! the lease. The recoverer is another such task that recovers dead members. They run until every client of a
//! live compute server has ended. In some schedules a compute server leaves before that, when its own clients
//! have ended and others still work. A client whose compute server is terminated may join again, under a new
//! identity.

use super::check::Property;
use super::fixture::{Compute, TREE, options};
use super::scenario::Scenario;
use super::script::{Record, Script};
use crate::endpoint::{SimFabric, VolumeEndpoint};
use crate::rng::Rng;
use crate::sim::Spawner;
use sherman_core::{ComputeServer, Error, TreeState, Worker};
use sherman_fabric::{Clock, FabricError, sleep_until};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

/// How many times all clients together join again, without a restart.
const REJOINS: u32 = 2;
/// How many times all clients together join again after a restart: there are enough ids for that.
const MOST_REJOINS: u32 = 4;
/// Interval in nanoseconds at which a leaving keeper checks whether the recoverer has ended.
const NAP: u64 = 2_000;
/// How many naps a client waits for a cluster that lets it join again, or for its former identity to be
/// quiet.
const MOST_NAPS: u32 = 2_000;

/// All compute servers and clients of a schedule.
pub(super) struct Members {
    spawner: Spawner,
    scenario: Scenario,
    record: Rc<Record>,
    /// All compute servers so far, in order of joining.
    pub computes: RefCell<Vec<Compute>>,
    /// The number of each client's compute server, or `None` if the client has ended.
    clients: RefCell<Vec<Option<u32>>>,
    /// How many other compute servers join and leave before each rejoin.
    visitors: u32,
    /// Bit set of the compute servers, by number modulo 64, that leave when their clients have ended.
    leavers: u64,
    /// How many more rejoins are allowed.
    may_rejoin: Cell<u32>,
    /// Number of rejoins so far.
    pub rejoined: Cell<u32>,
    /// The compute servers, by number, that left in order while others continued.
    pub departed: RefCell<BTreeSet<u32>>,
    /// The former identities, by number, that another identity of the same process settles.
    settled: RefCell<BTreeSet<u32>>,
}

impl Members {
    /// Creates the members. `seed` decides whether and when clients join again.
    pub(super) fn new(
        spawner: Spawner,
        scenario: Scenario,
        record: Rc<Record>,
        seed: Option<u64>,
        restarts: bool,
    ) -> Rc<Self> {
        let mut rng = Rng::new(seed.unwrap_or(0) ^ 0x434f_4d50);
        let rejoin = seed.is_some() && rng.one_in(2);
        // A restart ends every identity. Without rejoins, nothing would happen after it.
        let all = if restarts { (scenario.computes * scenario.threads).min(MOST_REJOINS) } else { 0 };
        // Every loss of a host ends every identity too.
        let tables = if scenario.remade { 16 } else { 4 };
        let all = if scenario.replicas > 1 { tables * scenario.computes * scenario.threads } else { all };
        Rc::new(Self {
            visitors: 2 + rng.below(8) as u32,
            leavers: if seed.is_some() && rng.one_in(2) { rng.next_u64() } else { 0 },
            spawner,
            scenario,
            record,
            computes: RefCell::default(),
            clients: RefCell::default(),
            may_rejoin: Cell::new(if rejoin { REJOINS.max(all) } else { all }),
            rejoined: Cell::new(0),
            departed: RefCell::default(),
            settled: RefCell::default(),
        })
    }

    /// Returns every compute server that did not leave in order. An inspector finds only the memory of the
    /// others.
    pub(super) fn remaining(&self) -> Vec<Compute> {
        let departed = self.departed.borrow();
        let computes = self.computes.borrow();
        computes.iter().filter(|compute| !departed.contains(&compute.fabric.number())).cloned().collect()
    }

    /// Adds a client to a compute server.
    pub(super) fn enrol(&self, client: u32, number: u32) {
        let mut clients = self.clients.borrow_mut();
        if clients.len() <= client as usize {
            clients.resize(client as usize + 1, None);
        }
        clients[client as usize] = Some(number);
    }

    /// Records that a client has ended.
    pub(super) fn end(&self, client: u32) {
        self.clients.borrow_mut()[client as usize] = None;
    }

    fn all_ended(&self) -> bool {
        self.clients.borrow().iter().flatten().all(|&number| self.spawner.is_dead(number))
    }

    /// Whether a compute server has nothing left to do.
    fn may_stop(&self, number: u32) -> bool {
        let has_ended = !self.clients.borrow().iter().flatten().any(|&on| on == number);
        self.all_ended() || has_ended && self.leavers >> (number % 64) & 1 == 1
    }

    /// Spawns a keeper and a recoverer for a compute server.
    pub(super) fn employ_keeper(self: &Rc<Self>, fabric: &SimFabric, shared: &Arc<ComputeServer>) {
        let (number, thread) = (fabric.number(), self.scenario.threads);
        let worker = || {
            let endpoint = fabric.volumes().expect("a compute server of this schedule");
            Worker::new(endpoint, Arc::clone(shared))
        };
        let recovering = Rc::new(Cell::new(true));
        let (keeping, recoverer) = (worker(), worker());
        let (worker, members, busy) = (keeping, Rc::clone(self), Rc::clone(&recovering));
        let keeper = async move {
            // The keeper renews the lease as long as the recoverer works.
            members.report("keeper", &worker, worker.keep(|| members.may_stop(number) && !busy.get()).await);
            while busy.get() {
                sleep_until(worker.endpoint(), worker.endpoint().now() + NAP).await;
            }
            if !members.all_ended() {
                // A terminated compute server is refused, and other members recover it.
                let departed = worker.depart().await;
                members.spawner.say(|| format!("cs{number} departs: {departed:?}"));
                if departed.is_ok() {
                    members.departed.borrow_mut().insert(number);
                }
                let gone = departed.is_ok() || worker.compute().is_terminated();
                members.report("leaver", &worker, if gone { Ok(()) } else { departed });
            }
        };
        let (worker, members) = (recoverer, Rc::clone(self));
        let recoverer = async move {
            members.report("recoverer", &worker, worker.recover_others(|| members.may_stop(number)).await);
            recovering.set(false);
        };
        drop(self.spawner.spawn(Some(fabric), thread, "keeper", keeper));
        drop(self.spawner.spawn(Some(fabric), thread + 1, "recoverer", recoverer));
    }

    /// Reports an error as trouble, unless the compute server is terminated.
    fn report(&self, who: &str, worker: &Worker<VolumeEndpoint>, outcome: Result<(), Error>) {
        if let Err(error) = outcome
            && !worker.compute().is_terminated()
            && !matches!(
                error,
                Error::Fabric(FabricError::Disconnected { .. } | FabricError::CopyFailed { .. })
            )
        {
            self.record.trouble(Property::Progress, format!("a {who} gave up: {error}"));
        }
    }

    /// Continues the script of a client whose compute server is terminated, under a new identity, if rejoins
    /// are left. The script continues as a task of the new compute server. That compute server may be
    /// declared dead again before it has joined completely.
    pub(super) fn bring_back(self: &Rc<Self>, script: Script, next: u32) {
        let client = script.client;
        let fabric = self.may_rejoin.get().checked_sub(1).and_then(|left| {
            self.may_rejoin.set(left);
            // Ids are issued in turn. Other compute servers join and leave meanwhile, so that some ids are
            // issued again.
            (0..self.visitors).for_each(|_| drop(self.spawner.visit()));
            self.spawner.join().ok()
        });
        let Some(fabric) = fabric else { return self.end(client) };
        let (number, id) = (fabric.number(), fabric.client());
        self.spawner.say(|| format!("client {client} comes back as cs{number}, id {id}"));
        self.enrol(client, number);
        self.rejoined.set(self.rejoined.get() + 1);
        let members = Rc::clone(self);
        let home = fabric.clone();
        let body: Pin<Box<dyn Future<Output = ()>>> = Box::pin(async move {
            match members.open(fabric).await {
                Some((worker, tree)) => {
                    let others = Default::default();
                    Script { tree, others, ..script }.run_from(next, worker).await;
                }
                None => members.end(client),
            }
        });
        drop(self.spawner.spawn(Some(&home), 0, "client", body));
    }

    /// Does the work of [`Members::bring_back`] where volumes have several copies. The new identity first
    /// settles the former one, whose worker is `former`: it recovers it, and determines the outcome of its
    /// changes (E3).
    pub(super) async fn bring_back_replicated(
        self: &Rc<Self>,
        script: Script,
        next: u32,
        former: Worker<VolumeEndpoint>,
        number: u32,
    ) {
        let client = script.client;
        let mut fabric = None;
        if let Some(left) = self.may_rejoin.get().checked_sub(1) {
            self.may_rejoin.set(left);
            for _ in 0..MOST_NAPS {
                fabric = self.spawner.join().ok();
                if fabric.is_some() {
                    break;
                }
                sleep_until(former.endpoint(), former.endpoint().now() + NAP).await;
            }
        }
        let Some(fabric) = fabric else {
            script.give_up();
            return self.end(client);
        };
        let (home, id, epoch) = (fabric.clone(), fabric.client(), fabric.table().epoch());
        self.spawner
            .say(|| format!("client {client} comes back as cs{}, id {id}, epoch {epoch}", home.number()));
        self.enrol(client, fabric.number());
        self.rejoined.set(self.rejoined.get() + 1);
        let (members, shared, on) = (Rc::clone(self), Arc::clone(former.compute()), fabric.number());
        drop(former);
        let body: Pin<Box<dyn Future<Output = ()>>> = Box::pin(async move {
            match members.reopen(fabric, &shared, number, &script).await {
                Some((worker, tree)) => {
                    let (compute, others) = (Cell::new(on), Default::default());
                    Script { tree, compute, others, ..script }.run_from(next, worker).await;
                }
                None => {
                    script.give_up();
                    members.end(client);
                }
            }
        });
        drop(self.spawner.spawn(Some(&home), 0, "client", body));
    }

    /// Opens the cluster as a new identity, and settles the former one. Volumes may be closed: until they are
    /// open, only the recoverer works.
    async fn reopen(
        self: &Rc<Self>,
        fabric: SimFabric,
        former: &Arc<ComputeServer>,
        number: u32,
        script: &Script,
    ) -> Option<(Worker<VolumeEndpoint>, Arc<TreeState>)> {
        let endpoint = fabric.volumes().ok()?;
        let table = Arc::clone(fabric.table());
        let opened = ComputeServer::open_replicated(&endpoint, options(&self.scenario), table).await;
        let shared = self.unless_terminated(opened)?;
        let worker = Worker::new(endpoint, Arc::clone(&shared));
        self.employ_keeper(&fabric, &shared);
        if self.settled.borrow_mut().insert(number) {
            let claim = worker.claim_former(former).await;
            // E2: no list of the former identity is in flight.
            for _ in 0..MOST_NAPS {
                if former.is_quiet() {
                    break;
                }
                sleep_until(worker.endpoint(), worker.endpoint().now() + NAP).await;
            }
            let doubts = former.take_doubts();
            worker.settle_doubts(former, claim, &doubts).await;
        }
        script.learn_fate(&worker).await;
        let tree = self.unless_terminated(worker.open_tree(TREE).await)?;
        self.computes.borrow_mut().push(Compute { fabric, shared, tree: Arc::clone(&tree) });
        Some((worker, tree))
    }

    async fn open(self: &Rc<Self>, fabric: SimFabric) -> Option<(Worker<VolumeEndpoint>, Arc<TreeState>)> {
        let endpoint = fabric.volumes().ok()?;
        let table = Arc::clone(fabric.table());
        let opened = ComputeServer::open_replicated(&endpoint, options(&self.scenario), table).await;
        let shared = self.unless_terminated(opened)?;
        let worker = Worker::new(endpoint, Arc::clone(&shared));
        let tree = self.unless_terminated(worker.open_tree(TREE).await)?;
        let compute = Compute { fabric, shared, tree: Arc::clone(&tree) };
        self.employ_keeper(&compute.fabric, &compute.shared);
        self.computes.borrow_mut().push(compute);
        Some((worker, tree))
    }

    fn unless_terminated<T>(&self, opened: Result<T, Error>) -> Option<T> {
        match opened {
            Ok(opened) => Some(opened),
            Err(
                Error::Fenced { .. }
                | Error::Fabric(FabricError::Disconnected { .. } | FabricError::CopyFailed { .. }),
            ) => None,
            Err(error) => {
                self.record.trouble(Property::Progress, format!("a client cannot come back: {error}"));
                None
            }
        }
    }
}
