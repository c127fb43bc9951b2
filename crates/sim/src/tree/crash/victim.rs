//! What the one that is going to die does, with whom it shares the tree, and what they report.

use super::super::catalog::bulk_load;
use super::super::check::Property;
use super::super::script::Script;
use super::plot::{Deed, OTHER};
use crate::endpoint::SimEndpoint;
use crate::history::{Op, OpId, Outcome};
use sherman_core::{Error, Worker};

/// The first of the clients under whose names a load, or a removal of everything, is written down: one for each key.
const ONE_FOR_EACH: u32 = 1_000;

/// How often a key is removed by one removal of everything.
const MOST_TIMES_CLEARED: u32 = 3;

/// Does one thing after the other.
pub(super) async fn act(mut script: Script, deeds: Vec<Deed>, keys: Vec<u64>, worker: Worker<SimEndpoint>) {
    for deed in deeds {
        match deed {
            Deed::One(key, op) => script.one(&worker, key, op).await,
            Deed::Sweep => script.sweep(&worker).await,
            Deed::Load(keys) => load(&script, &keys, &worker).await,
            Deed::Clear => clear(&script, &keys, &worker).await,
            Deed::Create => {
                let spec = script.scenario.shape.spec(script.scenario.format);
                excuse(&script, &worker, worker.tree(OTHER, &spec).await.map(drop));
            }
            Deed::Drop => excuse(&script, &worker, worker.drop_tree(OTHER).await.map(drop)),
        }
    }
    script.end();
}

/// Uses the second tree, as long as there is one.
pub(super) async fn visit_other(script: Script, create: bool, worker: Worker<SimEndpoint>) {
    for round in 0..3 {
        let visited = async {
            let tree = match create {
                true => worker.tree(OTHER, &script.scenario.shape.spec(script.scenario.format)).await?,
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

/// Trouble, unless the tree is gone, or the client is at its end.
fn excuse(script: &Script, worker: &Worker<SimEndpoint>, outcome: Result<(), Error>) {
    match outcome {
        Ok(()) | Err(Error::NoSuchTree { .. }) => {}
        Err(_) if worker.compute().is_doomed() => {}
        Err(error) => script.record.trouble(Property::Progress, format!("client {}: {error}", script.client)),
    }
}

fn invoke_all(script: &Script, keys: &[u64], op: impl Fn(u64) -> Op) -> Vec<OpId> {
    let mut history = script.record.history.borrow_mut();
    let each = (ONE_FOR_EACH..).zip(keys);
    each.map(|(client, &key)| history.invoke(client, key, op(key))).collect()
}

/// Loads `keys`: all at one moment, or none.
async fn load(script: &Script, keys: &[u64], worker: &Worker<SimEndpoint>) {
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

/// Removes everything, each leaf at a moment of its own: what each key held then is not told. A leaf that was cleared may merge
/// with one that was not yet, so what others have put there meanwhile goes too.
async fn clear(script: &Script, keys: &[u64], worker: &Worker<SimEndpoint>) {
    let calls: Vec<OpId> = (0..MOST_TIMES_CLEARED).flat_map(|_| invoke_all(script, keys, |_| Op::Remove)).collect();
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
