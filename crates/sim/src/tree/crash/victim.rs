//! The tasks of the victim and of the clients that share a second tree with it, and their reports.

use super::super::catalog::bulk_load;
use super::super::check::Property;
use super::super::script::Script;
use super::operation::{OTHER, VictimStep};
use crate::endpoint::VolumeEndpoint;
use crate::history::{Op, OpId, Outcome};
use sherman_core::{Error, Worker};

/// The first client id for the operations of a bulk load or a clear. The history records one operation per
/// key, each under an id of its own.
const ONE_FOR_EACH: u32 = 1_000;

/// How many times one clear may remove a key.
const MOST_TIMES_CLEARED: u32 = 3;

/// Runs the steps one after the other.
pub(super) async fn act(
    mut script: Script,
    steps: Vec<VictimStep>,
    keys: Vec<u64>,
    worker: Worker<VolumeEndpoint>,
) {
    for step in steps {
        if script.scenario.replicas > 1 && worker.compute().is_terminated() {
            break;
        }
        match step {
            VictimStep::One(key, op) => script.one(&worker, key, op).await,
            VictimStep::Sweep => script.sweep(&worker).await,
            VictimStep::Load(keys) => load(&script, &keys, &worker).await,
            VictimStep::Clear => clear(&script, &keys, &worker).await,
            VictimStep::Create => {
                let spec = script.scenario.spec();
                excuse(&script, &worker, worker.tree(OTHER, &spec).await.map(drop));
            }
            VictimStep::Drop => excuse(&script, &worker, worker.drop_tree(OTHER).await.map(drop)),
        }
    }
    match script.members.clone() {
        // The next identity learns what became of the last change, and does nothing else.
        Some(members) if script.scenario.replicas > 1 && worker.compute().is_terminated() => {
            let compute = script.compute.get();
            members.bring_back_replicated(script, u32::MAX, worker, compute).await;
        }
        _ => script.end(),
    }
}

/// Uses the second tree while it exists.
pub(super) async fn visit_other(script: Script, create: bool, worker: Worker<VolumeEndpoint>) {
    for round in 0..3 {
        let visited = async {
            let tree = match create {
                true => worker.tree(OTHER, &script.scenario.spec()).await?,
                false => worker.open_tree(OTHER).await?,
            };
            let key = script.scenario.key(u64::from(script.client) + 2 * round);
            let mut found = Vec::new();
            worker.op().insert(&tree, &key, &script.scenario.value(round), &mut found).await?;
            worker.op().get(&tree, &key, &mut found).await?;
            Ok(())
        };
        excuse(&script, &worker, visited.await);
    }
    script.end();
}

/// Reports an error as trouble, unless the tree is gone or the client has been terminated.
fn excuse(script: &Script, worker: &Worker<VolumeEndpoint>, outcome: Result<(), Error>) {
    match outcome {
        Ok(()) | Err(Error::NoSuchTree { .. }) => {}
        Err(_) if worker.compute().is_terminated() => {}
        Err(error) => script.record.trouble(Property::Progress, format!("client {}: {error}", script.client)),
    }
}

fn invoke_all(script: &Script, keys: &[u64], op: impl Fn(u64) -> Op) -> Vec<OpId> {
    let mut history = script.record.history.borrow_mut();
    let each = (ONE_FOR_EACH..).zip(keys);
    each.map(|(client, &key)| history.invoke(client, key, op(key))).collect()
}

/// Bulk-loads `keys`: all at one moment, or none.
async fn load(script: &Script, keys: &[u64], worker: &Worker<VolumeEndpoint>) {
    let value = |key: u64| 20_000 + key;
    let calls = invoke_all(script, keys, |key| Op::Insert(value(key)));
    let outcome = bulk_load(worker, &script.tree, &script.scenario, keys.iter().copied(), value).await;
    let mut history = script.record.history.borrow_mut();
    for call in calls {
        let _ = match &outcome {
            Ok(()) => history.ret(call, Outcome::Value(None)),
            Err(Error::OutcomeUnknown { .. }) => history.unknown(call),
            Err(_) => history.failed(call),
        };
    }
    drop(history);
    if !matches!(outcome, Err(Error::NotEmpty | Error::OutcomeUnknown { .. })) {
        excuse(script, worker, outcome);
    }
}

/// Clears the tree, each leaf at a separate moment. The client does not learn the removed values. A cleared
/// leaf may merge with a leaf that is not cleared yet, so entries that other clients insert meanwhile are
/// removed too.
async fn clear(script: &Script, keys: &[u64], worker: &Worker<VolumeEndpoint>) {
    let calls: Vec<OpId> =
        (0..MOST_TIMES_CLEARED).flat_map(|_| invoke_all(script, keys, |_| Op::Remove)).collect();
    let outcome = worker.clear(&script.tree).await.map(drop);
    let mut history = script.record.history.borrow_mut();
    for call in calls {
        let _ = history.unknown(call);
    }
    drop(history);
    if !matches!(outcome, Err(Error::OutcomeUnknown { .. })) {
        excuse(script, worker, outcome);
    }
}
