//! Catalog operations of the clients in a schedule, and their check.
//!
//! Each name is a register that holds the id of its tree, or nothing. Open reads it, create sets it if it is
//! empty, and drop empties it. So the history of a name is one more key for the linearizability checker. So
//! is each key of each tree, by the tree's id. An operation on a tree that another client drops may fail. A
//! tree that no client dropped must keep its contents.

use super::check::{Found, Property};
use super::scenario::Scenario;
use super::script::{OTHERS, SPAN, Script};
use crate::endpoint::VolumeEndpoint;
use crate::history::{Call, Fate, History, Op, OpId, Outcome};
use sherman_core::{Error, Loading, TreeState, Worker};
use sherman_fabric::control::TreeInfo;
use sherman_fabric::{FabricError, Refusal};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The key of the first name in a history. It is above the keys of all trees.
pub(super) const CATALOG: u64 = 1 << 62;
/// Number of keys that clients use in trees other than the main tree of the scenario.
const KEYS: u64 = 12;
/// The first client id for the operations of a bulk load or a clear. The history records one operation per
/// key, each under an id of its own.
const ONE_FOR_EACH: u32 = 1_000;
/// How many times one clear may remove a key. A cleared leaf may merge with a leaf that is not cleared yet,
/// and with entries that other clients insert meanwhile.
const MOST_TIMES_CLEARED: u32 = 3;

/// Returns the key of a name in a history, or `None` for the main tree of the scenario.
pub(super) fn key_of(name: &str) -> Option<u64> {
    OTHERS.iter().position(|other| *other == name).map(|at| CATALOG + at as u64)
}

/// The kind of a catalog request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Create,
    Open,
    Drop,
}

/// One request to the catalog.
#[derive(Clone, Copy, Debug)]
pub(super) struct CatalogCall {
    client: u32,
    key: u64,
    asked: Asked,
    invoked: u64,
    ended: Ended,
}

/// The result of a catalog request.
#[derive(Clone, Copy, Debug)]
enum Ended {
    /// The client died, or does not know the outcome.
    Unknown,
    /// The request changed nothing.
    Failed,
    Returned {
        at: u64,
        /// The tree that was found, dropped or created.
        id: Option<u32>,
        created: bool,
    },
}

impl CatalogCall {
    /// Returns the id that this request showed to exist under its name, and when.
    fn shows(&self) -> Option<(u64, u32)> {
        match self.ended {
            Ended::Returned { at, id: Some(id), .. } => Some((at, id)),
            _ => None,
        }
    }

    fn has_created(&self, tree: u32) -> bool {
        matches!(self.ended, Ended::Returned { id: Some(id), created: true, .. } if id == tree)
    }
}

impl Script {
    /// Runs a catalog operation, or an operation on a tree that it opened earlier.
    pub(super) async fn use_catalog(&mut self, worker: &Worker<VolumeEndpoint>, number: u32) {
        let name = self.rng.below(OTHERS.len());
        let Some(tree) = self.others[name].clone() else {
            let asked = if self.rng.one_in(4) { Asked::Open } else { Asked::Create };
            return self.ask_catalog(worker, name, asked).await;
        };
        let often = if self.scenario.loading { [0, 0, 0, 1, 1, 1, 1, 4] } else { [0, 1, 2, 3, 4, 5, 5, 5] };
        match often[self.rng.below(8)] {
            0 => self.ask_catalog(worker, name, Asked::Drop).await,
            1 if !self.scenario.values => self.load(worker, &tree, number).await,
            2 => self.clear(worker, &tree).await,
            3 => self.ask_catalog(worker, name, Asked::Open).await,
            4 => self.ask_catalog(worker, name, Asked::Create).await,
            _ => self.use_other(worker, &tree, number).await,
        }
    }

    async fn ask_catalog(&mut self, worker: &Worker<VolumeEndpoint>, name: usize, asked: Asked) {
        let invoked = self.record.history.borrow_mut().moment();
        let call = CatalogCall {
            client: self.client,
            key: CATALOG + name as u64,
            asked,
            invoked,
            ended: Ended::Unknown,
        };
        let at = self.record.catalog.borrow().len();
        self.record.catalog.borrow_mut().push(call);
        self.spawner.say(|| format!("client {} begins: {asked:?} {}", self.client, OTHERS[name]));
        let outcome = match asked {
            Asked::Create => {
                let spec = self.scenario.spec();
                worker.tree(OTHERS[name], &spec).await.map(|tree| self.keep_open(name, tree))
            }
            Asked::Open => worker.open_tree(OTHERS[name]).await.map(|tree| self.keep_open(name, tree)),
            Asked::Drop => worker.drop_tree(OTHERS[name]).await.map(|dropped| (dropped.id, false)),
        };
        self.spawner.say(|| format!("client {} ends: {asked:?} {}: {outcome:?}", self.client, OTHERS[name]));
        let returned = |id, created| {
            let at = self.record.history.borrow_mut().moment();
            Ended::Returned { at, id, created }
        };
        let ended = match outcome {
            Ok((id, created)) => returned(Some(id), created),
            Err(Error::NoSuchTree { .. }) => {
                self.others[name] = None;
                returned(None, false)
            }
            // Another name uses the catalog entry that the names share.
            Err(Error::Refused(Refusal::TooManyTrees) | Error::OutOfMemory) => Ended::Failed,
            // The tree may have been created although its creator has been terminated.
            Err(
                Error::Fenced { .. }
                | Error::OutcomeUnknown { .. }
                | Error::Fabric(FabricError::Disconnected { .. }),
            ) => Ended::Unknown,
            Err(error) if self.is_excused(&error) => Ended::Unknown,
            Err(error) => {
                let what = format!("client {}, {asked:?} {}: {error}", self.client, OTHERS[name]);
                self.record.trouble(Property::Progress, what);
                Ended::Unknown
            }
        };
        if asked == Asked::Drop {
            self.others[name] = None;
        }
        self.record.catalog.borrow_mut()[at].ended = ended;
    }

    fn keep_open(&mut self, name: usize, tree: Arc<TreeState>) -> (u32, bool) {
        let told = (tree.info().id, tree.was_created());
        self.others[name] = Some(tree);
        told
    }

    /// Runs one operation on one key of another tree, or scans it.
    async fn use_other(&mut self, worker: &Worker<VolumeEndpoint>, tree: &Arc<TreeState>, number: u32) {
        let key = self.rng.below(KEYS as usize) as u64;
        let value = u64::from(self.client) << 16 | u64::from(number) << 1 | 1;
        let home = std::mem::replace(&mut self.tree, Arc::clone(tree));
        self.base = u64::from(tree.info().id) * SPAN;
        match self.rng.below(8) {
            0 => self.sweep(worker).await,
            1 | 2 => self.one(worker, key, Op::Get).await,
            3 => self.one(worker, key, Op::Remove).await,
            _ => self.one(worker, key, Op::Insert(value)).await,
        }
        self.base = 0;
        self.tree = home;
    }

    fn invoke_all(
        &self,
        tree: &TreeState,
        keys: impl Iterator<Item = u64>,
        op: impl Fn(u64) -> Op,
    ) -> Vec<OpId> {
        let base = u64::from(tree.info().id) * SPAN;
        let mut history = self.record.history.borrow_mut();
        (ONE_FOR_EACH..).zip(keys).map(|(client, key)| history.invoke(client, base + key, op(key))).collect()
    }

    /// Bulk-loads another tree. The load takes effect at one moment, at which the tree is empty, or not at
    /// all.
    async fn load(&mut self, worker: &Worker<VolumeEndpoint>, tree: &TreeState, number: u32) {
        let keys = 1 + self.rng.below(KEYS as usize) as u64;
        let value = |key: u64| key << 32 | u64::from(self.client) << 16 | u64::from(number) << 1 | 1;
        let loaded = self.invoke_all(tree, 0..keys, |key| Op::Insert(value(key)));
        let empty = self.invoke_all(tree, keys..KEYS, |_| Op::Get);
        self.spawner
            .say(|| format!("client {} begins: load {keys} keys of tree {}", self.client, tree.info().id));
        let outcome = bulk_load(worker, tree, &self.scenario, 0..keys, value).await;
        self.spawner.say(|| format!("client {} ends: load: {outcome:?}", self.client));
        let mut history = self.record.history.borrow_mut();
        for call in loaded {
            let _ = match &outcome {
                Ok(()) => history.ret(call, Outcome::Value(None)),
                Err(Error::OutcomeUnknown { .. }) => history.unknown(call),
                Err(_) => history.failed(call),
            };
        }
        for call in empty {
            let _ =
                if outcome.is_ok() { history.ret(call, Outcome::Value(None)) } else { history.failed(call) };
        }
        drop(history);
        if let Err(error) = outcome {
            self.excuse("loads", &error);
        }
    }

    /// Clears another tree, each leaf at a separate moment: each key is absent at some moment. The client
    /// does not learn the values that were removed.
    async fn clear(&mut self, worker: &Worker<VolumeEndpoint>, tree: &TreeState) {
        let absent = self.invoke_all(tree, 0..KEYS, |_| Op::Get);
        let removed: Vec<OpId> =
            (0..MOST_TIMES_CLEARED).flat_map(|_| self.invoke_all(tree, 0..KEYS, |_| Op::Remove)).collect();
        let outcome = worker.clear(tree).await;
        let mut history = self.record.history.borrow_mut();
        for call in absent {
            let _ =
                if outcome.is_ok() { history.ret(call, Outcome::Value(None)) } else { history.failed(call) };
        }
        for call in removed {
            let _ = history.unknown(call);
        }
        drop(history);
        if let Err(error) = outcome {
            self.excuse("clears", &error);
        }
    }

    fn excuse(&self, does: &str, error: &Error) {
        let legal = matches!(error, Error::NotEmpty | Error::NoSuchTree { .. } | Error::OutOfMemory);
        let unknown = matches!(error, Error::OutcomeUnknown { .. });
        if !legal && !unknown && !self.is_excused(error) {
            self.record.trouble(Property::Progress, format!("client {} {does}: {error}", self.client));
        }
    }
}

/// Loads `keys`, ascending, into an empty tree.
pub(super) async fn bulk_load(
    worker: &Worker<VolumeEndpoint>,
    tree: &TreeState,
    scenario: &Scenario,
    keys: impl IntoIterator<Item = u64>,
    value: impl Fn(u64) -> u64,
) -> Result<(), Error> {
    let op = worker.op();
    let mut loading = Loading::new(tree, 1.0);
    let mut batches = Vec::new();
    let cut = async {
        for key in keys {
            batches.extend(loading.push(&op, tree, &scenario.key(key), &scenario.value(value(key))).await?);
        }
        batches.extend(loading.finish(&op).await?.into_iter().flatten());
        let mut written = Vec::new();
        for batch in &batches {
            written.push(op.write_leaves(tree, batch).await?);
        }
        Ok(written)
    };
    match cut.await {
        Ok(written) => op.complete_load(tree, &mut loading, written).await.map(drop),
        Err(error) => {
            loading.abandon(&op, tree).await;
            Err(error)
        }
    }
}

/// Adds the catalog operations of the clients to the history. A creation with unknown outcome may have made a
/// tree whose id other clients saw. This function finds out which.
pub(super) fn settle(
    history: &mut History,
    calls: &[CatalogCall],
    initial: &BTreeMap<u64, u64>,
    listed: &[(TreeInfo, sherman_core::Walk)],
) -> Result<(), Found> {
    // Time of the first sighting, by name and id.
    let mut seen: BTreeMap<(u64, u32), u64> = BTreeMap::new();
    for call in calls {
        if let Some((at, id)) = call.shows() {
            let first = seen.entry((call.key, id)).or_insert(at);
            *first = at.min(*first);
        }
    }
    let shown = listed.iter().filter_map(|(info, _)| Some(((key_of(&info.name)?, info.id), u64::MAX)));
    for (tree, at) in shown {
        seen.entry(tree).or_insert(at);
    }
    let known = |key: &u64, id: u32| {
        initial.get(key) == Some(&u64::from(id)) || calls.iter().any(|call| call.has_created(id))
    };
    let mut claims: Vec<Option<u32>> = vec![None; calls.len()];
    let mut orphans: Vec<((u64, u32), u64)> =
        seen.into_iter().filter(|((key, id), _)| !known(key, *id)).collect();
    orphans.sort_by_key(|(_, at)| *at);
    for ((key, id), at) in orphans {
        let maker = (0..calls.len()).find(|&number| {
            let call = &calls[number];
            let unknown = matches!(call.ended, Ended::Unknown) && call.asked == Asked::Create;
            unknown && call.key == key && claims[number].is_none() && call.invoked < at
        });
        match maker {
            Some(number) => claims[number] = Some(id),
            None => {
                return Err(Found::new(
                    Property::Catalog,
                    format!("a client saw tree {id}, which no client created"),
                ));
            }
        }
    }
    for (call, claim) in calls.iter().zip(claims) {
        let CatalogCall { client, key, asked, invoked, ended } = *call;
        let value = |id: Option<u32>| Outcome::Value(id.map(u64::from));
        let (op, fate) = match (asked, ended) {
            (_, Ended::Failed) => continue,
            (Asked::Create, Ended::Returned { at, id: Some(id), created: true }) => {
                (Op::InsertIfAbsent(u64::from(id)), Fate::Returned { at, outcome: value(None) })
            }
            // The tree already existed, so the request counts as a read.
            (Asked::Create | Asked::Open, Ended::Returned { at, id, .. }) => {
                (Op::Get, Fate::Returned { at, outcome: value(id) })
            }
            (Asked::Drop, Ended::Returned { at, id, .. }) => {
                (Op::Remove, Fate::Returned { at, outcome: value(id) })
            }
            (Asked::Create, Ended::Unknown) => match claim {
                Some(id) => (Op::InsertIfAbsent(u64::from(id)), Fate::Unknown),
                None => (Op::InsertIfAbsent(UNSEEN + u64::from(client)), Fate::Unknown),
            },
            (Asked::Drop, Ended::Unknown) => (Op::Remove, Fate::Unknown),
            (Asked::Open, Ended::Unknown) => continue,
        };
        let recorded = history.record(Call { client, key, op, invoked, fate });
        recorded.map_err(|misuse| Found::new(Property::Catalog, misuse.to_string()))?;
    }
    Ok(())
}

/// Stands for the id of a tree that no client ever saw.
const UNSEEN: u64 = 1 << 40;
