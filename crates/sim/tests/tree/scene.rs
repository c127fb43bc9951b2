//! What scripted tests share: something for one that dies to do, looking at memory as a whole, and stopping an operation midway.

use sherman_core::survey::{account, survey};
use sherman_core::{Error, Loading, TreeState, Worker};
use sherman_fabric::{Endpoint, Memory, Request, Space, call, yield_now};
use sherman_sim::tree::{Compute, Lab, Scenario};
use sherman_sim::{SimEndpoint, SimMemory};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

/// What changes a tree such that a record tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// A leaf that is the root splits, and the tree grows.
    Grow,
    /// Leaves merge, and the tree shrinks.
    Shrink,
    /// A bulk load.
    Load,
}

impl Deed {
    pub const ALL: [Self; 3] = [Self::Grow, Self::Shrink, Self::Load];

    /// What the tree holds before.
    pub fn loaded(self) -> Vec<(u64, u64)> {
        match self {
            Self::Grow => (0..4).map(|key| (10 * key, key)).collect(),
            Self::Shrink => (0..5).map(|key| (10 * key, key)).collect(),
            Self::Load => Vec::new(),
        }
    }

    /// Does it.
    pub async fn act(self, worker: Worker<SimEndpoint>, tree: Arc<TreeState>, scenario: Scenario) -> Result<(), Error> {
        let mut old = Vec::new();
        match self {
            Self::Grow => worker.op().insert(&tree, &scenario.key(15), &scenario.value(1), &mut old).await.map(drop),
            Self::Shrink => {
                for (key, _) in self.loaded() {
                    worker.op().remove(&tree, &scenario.key(key), &mut old).await?;
                }
                Ok(())
            }
            Self::Load => load(&worker, &tree, &scenario).await.map(drop),
        }
    }
}

/// Loads enough for two levels: how many entries.
pub async fn load(worker: &Worker<SimEndpoint>, tree: &TreeState, scenario: &Scenario) -> Result<u64, Error> {
    let op = worker.op();
    let mut loading = Loading::new(tree, 1.0);
    let mut batches = Vec::new();
    for key in 0..14 {
        batches.extend(loading.push(&op, tree, &scenario.key(key), &scenario.value(key)).await?);
    }
    batches.extend(loading.finish(&op).await?.into_iter().flatten());
    let mut written = Vec::new();
    for batch in &batches {
        written.push(op.write_leaves(tree, batch).await?);
    }
    op.complete_load(tree, &mut loading, written).await
}

/// Lets `victim` do it and die after so many effects of its own: one that server 0 knows to be active, so that there is something to recover.
/// False if it was done before.
pub fn die_at(lab: &mut Lab, victim: &Compute, deed: Deed, effects: u64, scheduler: &mut sherman_sim::Random) -> bool {
    let worker = victim.worker();
    for server in 0..lab.scenario.servers {
        let area = call(worker.endpoint(), server, Request::RedoArea { recovers: false }, worker.endpoint().counters());
        lab.quiet(area).expect("a redo area");
    }
    let act = deed.act(victim.worker(), Arc::clone(&victim.tree), lab.scenario.clone());
    drop(lab.sim.spawn_on(&victim.fabric, 0, "victim", act));
    lab.sim.kill_after(victim.fabric.number(), effects);
    let _ = lab.sim.run(scheduler);
    lab.sim.is_dead(victim.fabric.number())
}

/// Polls `operation` until `reached` says so, then no more. False if it ended before.
pub async fn poll_until<F: Future>(mut operation: Pin<&mut F>, reached: impl Fn() -> bool) -> bool {
    while !reached() {
        let done = std::future::poll_fn(|cx| Poll::Ready(operation.as_mut().poll(cx).is_ready())).await;
        if done {
            return false;
        }
        yield_now().await;
    }
    true
}

/// How many words of lock lanes on a server are not free.
pub fn lanes_held(memory: &SimMemory) -> usize {
    (0..memory.size(Space::OnChip) / 8).filter(|word| memory.load_u64(Space::OnChip, 8 * word) != 0).count()
}

/// When nothing is in flight and only `alive` are left: every lane is free, and every place is in a tree or free, once.
pub fn assert_nothing_is_lost(lab: &mut Lab, alive: &[&Compute], what: &str) {
    let mut nodes = Vec::new();
    let worker = alive[0].worker();
    let trees = lab.quiet(worker.trees()).expect("a catalog");
    for info in trees {
        let tree = lab.quiet(worker.open_tree(&info.name)).expect("a listed tree");
        let walk = lab.quiet(worker.op().walk(&tree)).unwrap_or_else(|error| panic!("{what}: {error}"));
        nodes.extend(walk.places);
    }
    for compute in alive {
        assert!(compute.shared.local_locks().all_free() && compute.shared.redo_slots().all_free(), "{what}");
    }
    let at_hand = alive.iter().map(|compute| (compute.fabric.client(), compute.shared.free_places())).collect();
    let mut places = Vec::new();
    for server in 0..lab.scenario.servers {
        let memory = lab.sim.memory(server);
        assert_eq!(lanes_held(&memory), 0, "{what}: lanes of server {server}");
        places.extend(survey(&memory, alive[0].shared.geometry_of(server), server));
    }
    account(&places, nodes, &at_hand).unwrap_or_else(|lost| panic!("{what}: {lost}"));
}
