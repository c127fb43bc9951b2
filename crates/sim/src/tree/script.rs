//! What one client of a schedule does, and what it reports.

use super::catalog::CatalogCall;
use super::check::{Found, Property};
use super::company::Company;
use super::explored::Causes;
use super::mix::Asked;
use super::scenario::Scenario;
use crate::endpoint::SimEndpoint;
use crate::history::{History, Op, Outcome};
use crate::linear::{Pair, Sweep};
use crate::rng::Rng;
use crate::sim::Spawner;
use sherman_core::{Direction, Error, Exchange, Scan, TreeState, Worker};
use sherman_fabric::{ClientId, Clock, FabricError, Refusal, sleep_until};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::rc::Rc;
use std::sync::Arc;

/// The verbs within which every operation ends, whatever others do, die or are recovered from: bounded progress.
pub(super) const MOST_VERBS: u64 = 2_000;

/// What the clients of a schedule report.
#[derive(Default)]
pub(super) struct Record {
    pub history: RefCell<History>,
    pub sweeps: RefCell<Vec<Sweep>>,
    pub trouble: RefCell<Option<Found>>,
    /// The most verbs that an operation took.
    pub most_verbs: Cell<u64>,
    /// How often operations tried again.
    pub causes: Cell<Causes>,
    /// What clients did with the catalog.
    pub catalog: RefCell<Vec<CatalogCall>>,
}

impl Record {
    pub fn clear(&self) {
        self.history.borrow_mut().clear();
        self.sweeps.borrow_mut().clear();
        self.trouble.borrow_mut().take();
        self.most_verbs.set(0);
        self.causes.set(Causes::default());
        self.catalog.borrow_mut().clear();
    }

    /// Adds the retries of an operation.
    fn count_retries(&self, op: &sherman_core::Op<'_, SimEndpoint>) {
        if op.met_obstacles() {
            let mut causes = self.causes.get();
            op.retries().iter().for_each(|(cause, times)| causes[cause as usize] += times);
            self.causes.set(causes);
        }
    }

    pub fn trouble(&self, property: Property, what: String) {
        self.trouble.borrow_mut().get_or_insert(Found::new(property, what));
    }
}

/// Opens when a compute server has died, or has done all it had to do.
pub(super) struct Gate {
    spawner: Spawner,
    compute_server: u32,
    threads: Cell<u32>,
}

impl Gate {
    pub fn new(spawner: Spawner, compute_server: u32, threads: u32) -> Self {
        Self { spawner, compute_server, threads: Cell::new(threads) }
    }

    /// One of its threads has done all it had to do.
    pub fn end(&self) {
        self.threads.set(self.threads.get() - 1);
    }

    async fn pass(&self, endpoint: &SimEndpoint) {
        while self.threads.get() > 0 && !self.spawner.is_dead(self.compute_server) {
            sleep_until(endpoint, endpoint.now() + 2_000).await;
        }
    }
}

/// What one client does.
pub(super) struct Script {
    pub client: u32,
    pub rng: Rng,
    pub scenario: Scenario,
    pub tree: Arc<TreeState>,
    pub record: Rc<Record>,
    /// Whether deadlines may come at any time.
    pub time_jumps: bool,
    /// What it believes the keys hold.
    pub known: BTreeMap<u64, u64>,
    /// Whom it may come back with, where things go wrong.
    pub company: Option<Rc<Company>>,
    /// The most operations it has.
    pub operations: u32,
    /// By which it says in a trace what it does.
    pub spawner: Spawner,
    /// What it waits for after its first operation.
    pub gate: Option<Rc<Gate>>,
    /// The key it removed last, counted from the first hot one.
    pub last: u64,
    /// What is added to the keys of the tree in a history, which is one for all trees.
    pub base: u64,
    /// The other trees that it has open, by name.
    pub others: [Option<Arc<TreeState>>; OTHERS.len()],
}

/// The names of the trees besides the one that scenarios are about.
pub(super) const OTHERS: [&str; 2] = ["other", "another"];
/// Keys of one tree in a history: tree number `id` has those from `id * SPAN` on, the one that scenarios are about those from 0.
pub(super) const SPAN: u64 = 1 << 32;

impl Script {
    pub async fn run(self, worker: Worker<SimEndpoint>) {
        self.run_from(0, worker).await;
    }

    /// Goes on with the operation number `first`.
    pub async fn run_from(mut self, first: u32, worker: Worker<SimEndpoint>) {
        let operations = self.scenario.operations;
        for number in first..operations.min(self.operations) {
            if worker.compute().is_doomed()
                && let Some(company) = self.company.clone()
            {
                // The caches of the doomed one, and whatever else it knew, are gone with it.
                return company.bring_back(self, number);
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
            let mix = if (2 * number < operations) != opposed { self.scenario.first } else { self.scenario.then };
            let asked = mix.draw(&mut self.rng);
            if asked == Asked::Range {
                self.sweep(&worker).await;
                continue;
            }
            let key = self.key(asked);
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

    /// Ends somebody's lease, as an operator does.
    async fn condemn(&mut self, worker: &Worker<SimEndpoint>) {
        let most = worker.compute().geometry().member_capacity as usize;
        let client = ClientId(1 + self.rng.below(most) as u16);
        if client == worker.compute().client() {
            return;
        }
        self.spawner.say(|| format!("client {} condemns {client}", self.client));
        match worker.condemn(client).await {
            Ok(_) | Err(Error::Refused(Refusal::NotAMember { .. }) | Error::OutcomeUnknown { .. }) => {}
            // It waits for another, who comes first.
            Err(Error::Timeout { .. }) => {}
            Err(error) if self.is_excused(&error) => {}
            Err(error) => self.record.trouble(Property::Recovery, format!("{client} was condemned: {error}")),
        }
    }

    /// It has nothing more to do.
    pub fn end(&self) {
        if let Some(company) = &self.company {
            company.end(self.client);
        }
    }

    /// Whether an operation may end like this where things go wrong, without having changed anything.
    pub fn is_excused(&self, error: &Error) -> bool {
        let over = matches!(error, Error::Fenced { .. } | Error::Fabric(FabricError::Disconnected { .. }));
        match error {
            // A deadline, met because time jumped.
            Error::Timeout { .. } => self.time_jumps,
            Error::OwnerStalled { .. } => self.company.is_some(),
            Error::OutOfMemory => self.scenario.short,
            // That nobody dropped it without being asked to is checked by the history of the catalog.
            Error::NoSuchTree { .. } => self.base > 0,
            // A client that cannot reach a server is at its end; that it knows so is checked by what it leaves behind.
            _ => self.company.is_some() && over,
        }
    }

    /// An operation must end within so many verbs, whatever others do.
    fn bound(&self, op: &sherman_core::Op<'_, SimEndpoint>) {
        let verbs = op.tally().verbs();
        self.record.most_verbs.set(self.record.most_verbs.get().max(verbs));
        if verbs > MOST_VERBS {
            self.record
                .trouble(Property::Progress, format!("an operation of client {} took {verbs} verbs", self.client));
        }
    }

    /// A hot key. Who wants to remove something goes on from where it last did, most of the time, and asks for what was
    /// loaded: so leaves become empty one after the other.
    fn key(&mut self, asked: Asked) -> u64 {
        let Scenario { hot, .. } = self.scenario;
        let removing = matches!(asked, Asked::Remove | Asked::CompareExchange) && !self.rng.one_in(4);
        if !removing {
            return self.scenario.first_hot() + self.rng.below(hot as usize) as u64;
        }
        self.last = if self.rng.one_in(3) { self.rng.below(hot as usize) as u64 } else { (self.last + 2) % hot };
        (self.scenario.first_hot() + self.last) & !1
    }

    /// One operation on one key.
    pub async fn one(&mut self, worker: &Worker<SimEndpoint>, key: u64, asked: Op) {
        let call = self.record.history.borrow_mut().invoke(self.client, self.base + key, asked);
        self.spawner.say(|| format!("client {} begins: key {key}, {asked}", self.client));
        let outcome = self.ask(worker, key, asked).await;
        self.spawner.say(|| format!("client {} ends: key {key}, {asked}: {}", self.client, told(&outcome)));
        let mut history = self.record.history.borrow_mut();
        let ended = match outcome {
            Ok(Ok(outcome)) => {
                learn(&mut self.known, self.base + key, asked, outcome);
                history.ret(call, outcome)
            }
            Ok(Err(NeverWritten(bytes))) => {
                let what = format!("client {} read {bytes:02x?} under {key}", self.client);
                self.record.trouble(Property::Values, what);
                history.unknown(call)
            }
            Err(error) if self.is_excused(&error) => history.failed(call),
            Err(Error::OutcomeUnknown { .. }) if self.company.is_some() => history.unknown(call),
            Err(error) => {
                let what = format!("client {} on key {key}, {asked}: {error}", self.client);
                self.record.trouble(Property::Progress, what);
                history.unknown(call)
            }
        };
        if let Err(misuse) = ended {
            self.record.trouble(Property::Progress, misuse.to_string());
        }
    }

    /// Asks the tree, and tells its answer in the history's terms.
    async fn ask(
        &self,
        worker: &Worker<SimEndpoint>,
        key: u64,
        asked: Op,
    ) -> Result<Result<Outcome, NeverWritten>, Error> {
        let op = worker.op();
        let answer = self.ask_within(&op, key, asked).await;
        self.record.count_retries(&op);
        self.bound(&op);
        answer
    }

    async fn ask_within(
        &self,
        op: &sherman_core::Op<'_, SimEndpoint>,
        key: u64,
        asked: Op,
    ) -> Result<Result<Outcome, NeverWritten>, Error> {
        let tree = &self.tree;
        let value = |value: u64| self.scenario.value(value);
        let key = self.scenario.key(key);
        let mut found = Vec::new();
        let there = match asked {
            Op::Get => op.get(tree, &key, &mut found).await?,
            Op::Insert(new) => op.insert(tree, &key, &value(new), &mut found).await?,
            Op::Remove => op.remove(tree, &key, &mut found).await?,
            Op::InsertIfAbsent(new) => op.insert_if_absent(tree, &key, &value(new), &mut found).await?,
            Op::CompareExchange { expected, new } => {
                let (expected, new) = (expected.map(value), new.map(value));
                let exchange = op.compare_exchange(tree, &key, expected.as_deref(), new.as_deref(), &mut found);
                return Ok(match exchange.await? {
                    Exchange::Done => Ok(Outcome::Exchange(Ok(()))),
                    Exchange::Absent => Ok(Outcome::Exchange(Err(None))),
                    Exchange::Found => self.id(found).map(|id| Outcome::Exchange(Err(Some(id)))),
                });
            }
        };
        Ok(if there { self.id(found).map(|id| Outcome::Value(Some(id))) } else { Ok(Outcome::Value(None)) })
    }

    fn id(&self, value: Vec<u8>) -> Result<u64, NeverWritten> {
        self.scenario.value_id(&value).ok_or(NeverWritten(value))
    }

    /// One scan, of the hot keys and a little around them, or of everything on one side.
    pub async fn sweep(&mut self, worker: &Worker<SimEndpoint>) {
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
        let mut sweep = Sweep { client: self.client, backward, low, high, began, pairs: Vec::new(), ended: None };
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

    /// Takes everything a scan has.
    async fn scan(&self, worker: &Worker<SimEndpoint>, mut scan: Scan, pairs: &mut Vec<Pair>) -> Result<(), Error> {
        loop {
            let op = worker.op();
            let more = op.refill(&self.tree, &mut scan).await;
            self.record.count_retries(&op);
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

/// Bytes that are no value of any client.
struct NeverWritten(Vec<u8>);

/// What a client then believes of the key: an exchange should succeed now and then.
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
