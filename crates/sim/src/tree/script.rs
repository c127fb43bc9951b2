//! The operations of one client in a schedule, and its reports.

use super::catalog::CatalogCall;
use super::check::{Found, Property};
use super::explored::Causes;
use super::fate::Pending;
use super::members::Members;
use super::mix::Asked;
use super::scenario::Scenario;
use crate::endpoint::VolumeEndpoint;
use crate::history::{History, Op, Outcome};
use crate::linear::{Pair, Sweep};
use crate::rng::Rng;
use crate::sim::Spawner;
use sherman_core::{Cause, Direction, Error, Exchange, Scan, TreeState, Worker};
use sherman_fabric::{Clock, ComputeId, FabricError, Refusal, sleep_until};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::rc::Rc;
use std::sync::Arc;

/// Every operation ends within this many verbs, even if other clients interfere, die or need recovery:
/// bounded progress.
pub(super) const MOST_VERBS: u64 = 2_000;

/// The reports of the clients of a schedule.
#[derive(Default)]
pub(super) struct Record {
    pub history: RefCell<History>,
    pub sweeps: RefCell<Vec<Sweep>>,
    pub trouble: RefCell<Option<Found>>,
    /// The most verbs of any operation.
    pub most_verbs: Cell<u64>,
    /// Number of retries by cause.
    pub causes: Cell<Causes>,
    /// Number of gets that used the READ of another operation.
    pub shared: Cell<u64>,
    /// Number of changes whose outcome stayed unknown.
    pub unknown: Cell<u64>,
    /// The catalog requests of clients.
    pub catalog: RefCell<Vec<CatalogCall>>,
}

impl Record {
    pub(super) fn clear(&self) {
        self.history.borrow_mut().clear();
        self.sweeps.borrow_mut().clear();
        self.trouble.borrow_mut().take();
        self.most_verbs.set(0);
        self.causes.set(Causes::default());
        self.shared.set(0);
        self.unknown.set(0);
        self.catalog.borrow_mut().clear();
    }

    /// Adds the retries of an operation.
    fn count_retries(&self, op: &sherman_core::Op<'_, VolumeEndpoint>) {
        if op.met_obstacles() {
            let mut causes = self.causes.get();
            op.retries().iter().for_each(|(cause, times)| causes[cause as usize] += times);
            self.causes.set(causes);
        }
    }

    pub(super) fn trouble(&self, property: Property, what: String) {
        self.trouble.borrow_mut().get_or_insert(Found::new(property, what));
    }
}

/// Opens when a compute server has died, or has finished its work.
pub(super) struct Gate {
    spawner: Spawner,
    compute_server: u32,
    threads: Cell<u32>,
}

impl Gate {
    pub(super) fn new(spawner: Spawner, compute_server: u32, threads: u32) -> Self {
        Self { spawner, compute_server, threads: Cell::new(threads) }
    }

    /// Records that one of its threads has finished its work.
    pub(super) fn end(&self) {
        self.threads.set(self.threads.get() - 1);
    }

    async fn pass(&self, endpoint: &VolumeEndpoint) {
        while self.threads.get() > 0 && !self.spawner.is_dead(self.compute_server) {
            sleep_until(endpoint, endpoint.now() + 2_000).await;
        }
    }
}

/// The operations of one client.
pub(super) struct Script {
    pub client: u32,
    pub rng: Rng,
    pub scenario: Scenario,
    pub tree: Arc<TreeState>,
    pub record: Rc<Record>,
    /// Whether deadlines may pass at any time.
    pub time_jumps: bool,
    /// The values of the keys as this client last saw them.
    pub known: BTreeMap<u64, u64>,
    /// The members through which it may join again, in schedules with faults.
    pub members: Option<Rc<Members>>,
    /// The largest number of its operations.
    pub operations: u32,
    /// Adds its remarks to a trace.
    pub spawner: Spawner,
    /// The gate that it waits for after its first operation.
    pub gate: Option<Rc<Gate>>,
    /// The key that it removed last, relative to the first hot key.
    pub last: u64,
    /// Offset of the tree's keys in the history, which is shared by all trees.
    pub base: u64,
    /// The number of its compute server.
    pub compute: Cell<u32>,
    /// Its last change, if the outcome is not known yet.
    pub pending: RefCell<Option<Pending>>,
    /// The other trees that it has opened, by name.
    pub others: [Option<Arc<TreeState>>; OTHERS.len()],
}

/// The names of the trees other than the main tree of the scenario.
pub(super) const OTHERS: [&str; 2] = ["other", "another"];
/// Number of keys of one tree in a history. Tree number `id` has the keys from `id * SPAN` on, and the main
/// tree of the scenario those from 0.
pub(super) const SPAN: u64 = 1 << 32;

impl Script {
    pub(super) async fn run(self, worker: Worker<VolumeEndpoint>) {
        self.run_from(0, worker).await;
    }

    /// Continues with operation number `first`.
    pub(super) async fn run_from(mut self, first: u32, worker: Worker<VolumeEndpoint>) {
        let operations = self.scenario.operations;
        for number in first..operations.min(self.operations) {
            if worker.compute().is_terminated()
                && let Some(members) = self.members.clone()
            {
                // The caches and all other state of the terminated compute server are gone.
                if self.scenario.replicas > 1 {
                    let compute = self.compute.get();
                    return members.bring_back_replicated(self, number, worker, compute).await;
                }
                return members.bring_back(self, number);
            }
            if number == 1
                && let Some(gate) = &self.gate
            {
                gate.pass(worker.endpoint()).await;
            }
            if self.scenario.condemned && self.rng.one_in(8) {
                self.condemn(&worker).await;
                continue;
            }
            if self.scenario.catalog && (self.scenario.loading || self.rng.one_in(2)) {
                self.use_catalog(&worker, number).await;
                continue;
            }
            let opposed = self.scenario.opposed && self.client % 2 == 1;
            let mix =
                if (2 * number < operations) != opposed { self.scenario.first } else { self.scenario.then };
            let asked = mix.draw(&mut self.rng);
            if asked == Asked::Range {
                self.sweep(&worker).await;
                continue;
            }
            let key = self.key(asked);
            if asked == Asked::Get && self.scenario.gets_at_once > 1 {
                self.get_at_once(&worker, key).await;
                continue;
            }
            let value = u64::from(self.client) << 16 | u64::from(number) << 1 | 1;
            let op = match asked {
                Asked::Get | Asked::Range => Op::Get,
                Asked::Insert => Op::Insert(value),
                Asked::Remove => Op::Remove,
                Asked::InsertIfAbsent => Op::InsertIfAbsent(value),
                Asked::CompareExchange => {
                    let expected = self.known.get(&key).copied().filter(|_| !self.rng.one_in(8));
                    let new = (!self.rng.one_in(3)).then_some(value);
                    Op::CompareExchange { expected, new }
                }
            };
            self.one(&worker, key, op).await;
        }
        self.end();
    }

    /// Ends the lease of some member, as an operator does.
    async fn condemn(&mut self, worker: &Worker<VolumeEndpoint>) {
        let most = worker.compute().geometry().member_capacity as usize;
        let client = ComputeId(1 + self.rng.below(most) as u16);
        if client == worker.compute().client() {
            return;
        }
        self.spawner.say(|| format!("client {} condemns {client}", self.client));
        match worker.condemn(client).await {
            Ok(_) | Err(Error::Refused(Refusal::NotAMember { .. }) | Error::OutcomeUnknown { .. }) => {}
            // The recovery waits for another recovery that must finish first.
            Err(Error::Timeout { .. }) => {}
            Err(error) if self.is_excused(&error) => {}
            Err(error) => self.record.trouble(
                Property::Recovery,
                format!("the recovery of condemned client {client} failed: {error}"),
            ),
        }
    }

    /// The script has ended.
    pub(super) fn end(&self) {
        if let Some(members) = &self.members {
            members.end(self.client);
        }
    }

    /// Whether an operation may end with this error in a schedule with faults, without having changed
    /// anything.
    pub(super) fn is_excused(&self, error: &Error) -> bool {
        let over = matches!(
            error,
            Error::Fenced { .. }
                | Error::Fabric(FabricError::Disconnected { .. } | FabricError::CopyFailed { .. })
        );
        match error {
            // A deadline that passed because time jumped.
            Error::Timeout { .. } => self.time_jumps,
            Error::OwnerStalled { .. } => self.members.is_some(),
            Error::OutOfMemory => self.scenario.short,
            // The history of the catalog checks that a client really dropped the tree.
            Error::NoSuchTree { .. } => self.base > 0,
            // A client that cannot reach a server is terminated. The check of the memory it leaves behind
            // verifies that it knows.
            _ => self.members.is_some() && over,
        }
    }

    /// Checks that an operation ended within [`MOST_VERBS`], whatever other clients do.
    fn bound(&self, op: &sherman_core::Op<'_, VolumeEndpoint>) {
        let verbs = op.tally().verbs();
        self.record.most_verbs.set(self.record.most_verbs.get().max(verbs));
        if verbs > MOST_VERBS {
            self.record.trouble(
                Property::Progress,
                format!("an operation of client {} took {verbs} verbs", self.client),
            );
        }
    }

    /// Returns a hot key. A remove mostly continues after the last removed key and picks loaded keys, so that
    /// leaves become empty one after the other.
    fn key(&mut self, asked: Asked) -> u64 {
        let Scenario { hot, .. } = self.scenario;
        let removing = matches!(asked, Asked::Remove | Asked::CompareExchange) && !self.rng.one_in(4);
        if !removing {
            return self.scenario.first_hot() + self.rng.below(hot as usize) as u64;
        }
        self.last =
            if self.rng.one_in(3) { self.rng.below(hot as usize) as u64 } else { (self.last + 2) % hot };
        (self.scenario.first_hot() + self.last) & !1
    }

    /// Runs one operation on one key.
    pub(super) async fn one(&mut self, worker: &Worker<VolumeEndpoint>, key: u64, asked: Op) {
        if let Some(outcome) = self.call(worker, key, asked).await {
            learn(&mut self.known, self.base + key, asked, outcome);
        }
    }

    /// Runs one operation on one key and records it. Returns its outcome, if that is known.
    pub(super) async fn call(&self, worker: &Worker<VolumeEndpoint>, key: u64, asked: Op) -> Option<Outcome> {
        let call = self.record.history.borrow_mut().invoke(self.client, self.base + key, asked);
        self.spawner.say(|| format!("client {} begins: key {key}, {asked}", self.client));
        let outcome = self.ask(worker, key, asked).await;
        self.spawner.say(|| format!("client {} ends: key {key}, {asked}: {}", self.client, told(&outcome)));
        let mut history = self.record.history.borrow_mut();
        let mut known = None;
        let ended = match outcome {
            Ok(Ok(outcome)) => {
                known = Some(outcome);
                history.ret(call, outcome)
            }
            Ok(Err(NeverWritten(bytes))) => {
                let what = format!("client {} read {bytes:02x?} under {key}", self.client);
                self.record.trouble(Property::Values, what);
                history.unknown(call)
            }
            Err(error) if self.is_excused(&error) => history.failed(call),
            // The client's next identity learns what happened.
            Err(Error::OutcomeUnknown { .. }) if self.pending.borrow().is_some() => {
                self.leave_open(call);
                return None;
            }
            Err(Error::OutcomeUnknown { .. }) if self.members.is_some() => {
                self.record.unknown.set(self.record.unknown.get() + 1);
                history.unknown(call)
            }
            Err(error) => {
                let what = format!("client {} on key {key}, {asked}: {error}", self.client);
                self.record.trouble(Property::Progress, what);
                history.unknown(call)
            }
        };
        if let Err(misuse) = ended {
            self.record.trouble(Property::Progress, misuse.to_string());
        }
        known
    }

    /// Runs the operation on the tree, and returns its outcome in terms of the history.
    async fn ask(
        &self,
        worker: &Worker<VolumeEndpoint>,
        key: u64,
        asked: Op,
    ) -> Result<Result<Outcome, NeverWritten>, Error> {
        let op = worker.op();
        let mut found = Vec::new();
        let answer = self.ask_within(&op, key, asked, &mut found).await;
        if self.scenario.replicas > 1
            && matches!(answer, Err(Error::OutcomeUnknown { .. }))
            && let Some(doubt) = op.take_doubt()
        {
            self.doubt(doubt, asked, op.replaces(), found);
        }
        self.record.count_retries(&op);
        self.record.shared.set(self.record.shared.get() + op.shared());
        if op.retries().get(Cause::SharedRead) > 0 && !self.time_jumps && !worker.compute().is_terminated() {
            let what = format!("a get of client {} waited in vain for a shared READ", self.client);
            self.record.trouble(Property::Progress, what);
        }
        self.bound(&op);
        answer
    }

    async fn ask_within(
        &self,
        op: &sherman_core::Op<'_, VolumeEndpoint>,
        key: u64,
        asked: Op,
        found: &mut Vec<u8>,
    ) -> Result<Result<Outcome, NeverWritten>, Error> {
        let tree = &self.tree;
        let value = |value: u64| self.scenario.value(value);
        let key = self.scenario.key(key);
        let there = match asked {
            Op::Get => op.get(tree, &key, found).await?,
            Op::Insert(new) => op.insert(tree, &key, &value(new), found).await?,
            Op::Remove => op.remove(tree, &key, found).await?,
            Op::InsertIfAbsent(new) => op.insert_if_absent(tree, &key, &value(new), found).await?,
            Op::CompareExchange { expected, new } => {
                let (expected, new) = (expected.map(value), new.map(value));
                let exchange = op.compare_exchange(tree, &key, expected.as_deref(), new.as_deref(), found);
                return Ok(match exchange.await? {
                    Exchange::Done => Ok(Outcome::Exchange(Ok(()))),
                    Exchange::Absent => Ok(Outcome::Exchange(Err(None))),
                    Exchange::Found => {
                        self.id(std::mem::take(found)).map(|id| Outcome::Exchange(Err(Some(id))))
                    }
                });
            }
        };
        Ok(if there {
            self.id(std::mem::take(found)).map(|id| Outcome::Value(Some(id)))
        } else {
            Ok(Outcome::Value(None))
        })
    }

    pub(super) fn id(&self, value: Vec<u8>) -> Result<u64, NeverWritten> {
        self.scenario.value_id(&value).ok_or(NeverWritten(value))
    }

    /// Runs one scan, of the hot keys and a few around them, or of everything on one side.
    pub(super) async fn sweep(&mut self, worker: &Worker<VolumeEndpoint>) {
        let lowest = self.scenario.first_hot().saturating_sub(2);
        let [a, b] = [(); 2].map(|()| lowest + self.rng.below(self.scenario.hot as usize + 4) as u64);
        let (low, high) = (a.min(b), a.max(b));
        let direction = if self.rng.one_in(2) { Direction::Backward } else { Direction::Forward };
        let [from, to] = [low, high].map(|key| self.scenario.key(key));
        let (from, to, low, high) = match self.rng.below(8) {
            0 => (Bound::Unbounded, Bound::Included(&to[..]), 0, high),
            1 => (Bound::Included(&from[..]), Bound::Unbounded, low, SPAN - 1),
            2 if low < high => (Bound::Excluded(&from[..]), Bound::Excluded(&to[..]), low + 1, high - 1),
            3 if low < high => (Bound::Included(&from[..]), Bound::Excluded(&to[..]), low, high - 1),
            _ => (Bound::Included(&from[..]), Bound::Included(&to[..]), low, high),
        };
        let began = self.record.history.borrow_mut().moment();
        let backward = direction == Direction::Backward;
        let (low, high) = (self.base + low, self.base + high);
        let mut sweep =
            Sweep { client: self.client, backward, low, high, began, pairs: Vec::new(), ended: None };
        let outcome = match Scan::new(&self.tree, from, to, direction, 1 + self.rng.below(4)) {
            Ok(scan) => self.scan(worker, scan, &mut sweep.pairs).await,
            Err(error) => Err(error),
        };
        match outcome {
            Ok(()) => sweep.ended = Some(self.record.history.borrow_mut().moment()),
            Err(error) if self.is_excused(&error) => {}
            Err(error) => {
                self.record.trouble(Property::Progress, format!("client {} scans: {error}", self.client));
            }
        }
        self.record.sweeps.borrow_mut().push(sweep);
    }

    /// Reads a scan to its end.
    async fn scan(
        &self,
        worker: &Worker<VolumeEndpoint>,
        mut scan: Scan,
        pairs: &mut Vec<Pair>,
    ) -> Result<(), Error> {
        loop {
            let (op, position) = (worker.op(), scan.position().map(<[u8]>::to_vec));
            let more = op.refill(&self.tree, &mut scan).await;
            self.record.count_retries(&op);
            // The next identity continues such a scan. It must neither skip keys nor deliver what nobody has
            // confirmed (R2).
            let stays = scan.position() == position.as_deref() && scan.is_drained();
            if more.is_err() && self.scenario.replicas > 1 && !stays {
                let what =
                    format!("client {}: a range that failed has moved from {position:02x?}", self.client);
                self.record.trouble(Property::Ranges, what);
            }
            let more = more?;
            self.bound(&op);
            if !more {
                break;
            }
            let at = self.record.history.borrow_mut().moment();
            while let Some((key, value)) = scan.next() {
                let key = self.scenario.key_id(key);
                match self.scenario.value_id(value) {
                    Some(value) => pairs.push(Pair { key: self.base + key, value, at }),
                    None => {
                        let what = format!("client {} scanned {value:02x?} under {key}", self.client);
                        self.record.trouble(Property::Values, what);
                    }
                }
            }
        }
        Ok(())
    }
}

fn told(outcome: &Result<Result<Outcome, NeverWritten>, Error>) -> String {
    match outcome {
        Ok(Ok(outcome)) => format!("{outcome:?}"),
        Ok(Err(NeverWritten(bytes))) => format!("read {bytes:02x?}"),
        Err(error) => error.to_string(),
    }
}

/// Bytes that are not a value of any client.
pub(super) struct NeverWritten(pub(super) Vec<u8>);

/// Updates the value that the client expects for the key, so that an exchange succeeds sometimes.
fn learn(known: &mut BTreeMap<u64, u64>, key: u64, asked: Op, outcome: Outcome) {
    let seen = match outcome {
        Outcome::Value(value) => value,
        Outcome::Exchange(Err(value)) => value,
        Outcome::Exchange(Ok(())) => match asked {
            Op::CompareExchange { expected, .. } => expected,
            _ => None,
        },
    };
    match asked.apply(seen).0 {
        Some(value) => known.insert(key, value),
        None => known.remove(&key),
    };
}
