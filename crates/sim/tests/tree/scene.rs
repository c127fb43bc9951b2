//! Shared helpers of scripted tests: a change during which a client dies, checks of memory as a whole, and
//! operations that stop midway.

use sherman_core::survey::{account, survey};
use sherman_core::{Error, Loading, TreeState, Worker};
use sherman_fabric::{Endpoint, Memory, Peer, Space, call, calls, yield_now};
use sherman_sim::tree::{Compute, Fixture, Scenario, Shape};
use sherman_sim::{Knobs, Random, SimMemory, VolumeEndpoint};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

/// A change of a tree that writes a redo record.
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

    /// Returns the contents of the tree before the change.
    pub fn loaded(self) -> Vec<(u64, u64)> {
        match self {
            Self::Grow => (0..4).map(|key| (10 * key, key)).collect(),
            Self::Shrink => (0..5).map(|key| (10 * key, key)).collect(),
            Self::Load => Vec::new(),
        }
    }

    /// Makes the change.
    pub async fn act(
        self,
        worker: Worker<VolumeEndpoint>,
        tree: Arc<TreeState>,
        scenario: Scenario,
    ) -> Result<(), Error> {
        let mut old = Vec::new();
        match self {
            Self::Grow => {
                worker.op().insert(&tree, &scenario.key(15), &scenario.value(1), &mut old).await.map(drop)
            }
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

/// Loads enough entries for two levels. Returns their number.
pub async fn load(
    worker: &Worker<VolumeEndpoint>,
    tree: &TreeState,
    scenario: &Scenario,
) -> Result<u64, Error> {
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

/// Makes `victim` run the change and die after this many effects of its own. Server 0 knows the victim as
/// active, so that there is something to recover. Returns false if the change was done before.
pub fn die_at(
    fixture: &mut Fixture,
    victim: &Compute,
    deed: Deed,
    effects: u64,
    scheduler: &mut Random,
) -> bool {
    let worker = victim.worker();
    let active = call(worker.endpoint(), Peer::Control, calls::Activate, worker.endpoint().counters());
    fixture.quiet(active).expect("a live member");
    for server in 0..fixture.scenario.servers {
        let area =
            call(worker.endpoint(), Peer::Volume(server), calls::RedoArea, worker.endpoint().counters());
        fixture.quiet(area).expect("a redo area");
    }
    let act = deed.act(victim.worker(), Arc::clone(&victim.tree), fixture.scenario.clone());
    die_during(fixture, victim, act, effects, scheduler)
}

/// Makes `victim` run `act` and die after this many effects of its own. Returns false if it was done before.
pub fn die_during<F: Future + 'static>(
    fixture: &mut Fixture,
    victim: &Compute,
    act: F,
    effects: u64,
    scheduler: &mut Random,
) -> bool
where
    F::Output: 'static,
{
    drop(fixture.sim.spawn_on(&victim.fabric, 0, "victim", act));
    fixture.sim.kill_after(victim.fabric.number(), effects);
    let _ = fixture.sim.run(scheduler);
    fixture.sim.is_dead(victim.fabric.number())
}

/// Returns a world for a tree that grows.
fn to_grow() -> Fixture {
    let scenario = Scenario { shape: Shape::Four, loaded: 0, span_places: 2, ..Scenario::default() };
    Fixture::new(scenario, Knobs::default())
}

/// Returns the number of keys of a tree whose next key, the highest, splits its root.
pub fn about_to_grow() -> u64 {
    let mut fixture = to_grow();
    let loader = fixture.join();
    (0..)
        .find(|&key| {
            fixture.load(&loader, [(key, key)]);
            fixture.walk(&loader).expect("a sound tree").nodes.len() == 3
        })
        .expect("trees grow")
}

/// Makes a client insert the next key into a tree of `keys` keys and die after this many effects. Returns the
/// loader, and the client that recovered the dead one; `None` if the insert was done before.
pub fn die_growing(keys: u64, effects: u64) -> Option<(Fixture, [Compute; 2])> {
    let mut fixture = to_grow();
    let [loader, victim, other] = [(); 3].map(|()| fixture.join());
    fixture.load(&loader, (0..keys).map(|key| (key, key)));
    let (worker, tree) = (victim.worker(), Arc::clone(&victim.tree));
    let (key, value) = (fixture.scenario.key(keys), fixture.scenario.value(keys));
    let insert = async move { worker.op().insert(&tree, &key, &value, &mut Vec::new()).await };
    if !die_during(&mut fixture, &victim, insert, effects, &mut Random::new(effects)) {
        return None;
    }
    fixture.quiet(other.worker().condemn(victim.fabric.client())).expect("it is recovered");
    Some((fixture, [loader, other]))
}

/// Polls `operation` until `reached` returns true, and then stops. Returns false if the operation ended
/// before.
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

/// Returns how many words of lock lanes on a server are not free.
pub fn lanes_held(memory: &SimMemory) -> usize {
    (0..memory.size(Space::OnChip) / 8).filter(|word| memory.load_u64(Space::OnChip, 8 * word) != 0).count()
}

/// Asserts that every lane is free, and that every place is exactly once in a tree or free. Nothing may be in
/// flight, and only the members `alive` may be left.
pub fn assert_nothing_is_lost(fixture: &mut Fixture, alive: &[&Compute], what: &str) {
    let mut nodes = Vec::new();
    let worker = alive[0].worker();
    let trees = fixture.quiet(worker.trees()).expect("a catalog");
    for info in trees {
        let tree = fixture.quiet(worker.open_tree(&info.name)).expect("a listed tree");
        let walk = fixture.quiet(worker.op().walk(&tree)).unwrap_or_else(|error| panic!("{what}: {error}"));
        nodes.extend(walk.places);
    }
    for compute in alive {
        assert!(compute.shared.local_locks().all_free() && compute.shared.redo_slots().all_free(), "{what}");
    }
    let believed_free =
        alive.iter().map(|compute| (compute.fabric.client(), compute.shared.free_places())).collect();
    let mut places = Vec::new();
    for server in 0..fixture.scenario.servers {
        let memory = fixture.sim.memory(server);
        assert_eq!(lanes_held(&memory), 0, "{what}: lanes of server {server}");
        places.extend(survey(&memory, alive[0].shared.geometry_of(server), server));
    }
    account(&places, nodes, &believed_free).unwrap_or_else(|lost| panic!("{what}: {lost}"));
}
