//! Trees that are dropped while a client that worked on them, or that was dropping them, is recovered.

use super::scene::{Deed, assert_nothing_is_lost, die_at, lanes_held, poll_until};
use sherman_core::root::RootWord;
use sherman_core::survey::{Content, survey};
use sherman_core::{Cause, ComputeServer, Error, Recovery, Techniques};
use sherman_fabric::{Clock, Memory, Space, Verdict, sleep_until};
use sherman_sim::tree::{Fixture, Scenario, Shape};
use sherman_sim::{Knobs, Random, SimEndpoint, SimMemory};
use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

fn fixture(techniques: Techniques, lease_nanos: u64) -> Fixture {
    let scenario = Scenario {
        shape: Shape::Four,
        techniques,
        servers: 2,
        loaded: 0,
        lease_nanos,
        ..Scenario::default()
    };
    Fixture::new(scenario, Knobs::default())
}

/// A client dies in the middle of a change, another client recovers it, and a third drops the tree meanwhile,
/// sooner or later. With a `rival`, a client creates a tree of the same name as soon as possible, so the root
/// word belongs to another tree. Returns false if the change was done before the client could die.
fn race(deed: Deed, effects: u64, seed: u64, rival: bool) -> bool {
    let techniques = Techniques { combine: !seed.is_multiple_of(3), ..Techniques::OURS };
    let mut fixture = fixture(techniques, Scenario::default().lease_nanos);
    let [dropper, victim, recoverer] = [(); 3].map(|()| fixture.join());
    fixture.load(&dropper, deed.loaded());
    if !die_at(&mut fixture, &victim, deed, effects, &mut Random::new(seed)) {
        return false;
    }
    let (worker, client) = (recoverer.worker(), victim.fabric.client());
    let recovered =
        fixture.sim.spawn_on(&recoverer.fabric, 0, "recovers", async move { worker.condemn(client).await });
    let (worker, name) = (dropper.worker(), dropper.tree.info().name.clone());
    let pause = 1_000 * (seed * 7_919 % 64);
    let dropped = fixture.sim.spawn_on(&dropper.fabric, 0, "drops", async move {
        sleep_until(worker.endpoint(), worker.endpoint().now() + pause).await;
        worker.drop_tree(&name).await
    });
    if rival {
        let (worker, tree) = (recoverer.worker(), Arc::clone(&dropper.tree));
        let root_word = tree.info().root_word;
        let memory = fixture.sim.memory(root_word.server());
        let ended = RootWord::ended(tree.info().id);
        drop(fixture.sim.spawn_on(&recoverer.fabric, 1, "rival", async move {
            while memory.load_u64(Space::Host, root_word.offset()) != ended {
                sleep_until(worker.endpoint(), worker.endpoint().now() + 300).await;
            }
            worker.tree(&tree.info().name, &tree.info().spec).await.expect("the name is free");
        }));
    }
    let what = format!("{deed:?}, dies after {effects}, seed {seed}, rival {rival}");
    let run = fixture.sim.run(&mut Random::new(seed));
    assert!(run.is_done(), "{what}: {:?}", run.outcome);
    let recovered = recovered.take().expect("it ended");
    assert!(matches!(recovered, Ok(Recovery { verdict: Verdict::Recover, .. })), "{what}: {recovered:?}");
    let dropped = dropped.take().expect("it ended");
    assert!(dropped.is_ok(), "{what}: {dropped:?}");
    assert_nothing_is_lost(&mut fixture, &[&dropper, &recoverer], &what);
    true
}

#[test]
fn a_tree_that_is_dropped_while_a_record_about_it_is_replayed_leaves_nothing_behind() {
    for deed in Deed::ALL {
        let points = (1..).step_by(3).take_while(|&effects| {
            let seeds = (0..8).map(|seed| 8 * effects + seed);
            seeds.filter(|&seed| race(deed, effects, seed, seed % 2 == 1)).count() > 0
        });
        let points = points.count();
        println!("{deed:?}: {points} points");
        assert!(points > 8);
    }
}

/// Waits until `stage` reaches `wanted`.
async fn reach(stage: &Cell<u32>, wanted: u32, clock: &SimEndpoint) {
    while stage.get() < wanted {
        sleep_until(clock, clock.now() + 1_000).await;
    }
}

/// The point at which a client that splits a leaf is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stopped {
    /// Only the new leaf is written.
    UnderTheLane,
    /// The old leaf also points to the new one, and its lane is free.
    BeforeTheLink,
}

/// Whether a node is pending.
fn is_pending(memories: &[SimMemory], shared: &ComputeServer) -> bool {
    (0..).zip(memories).any(|(server, memory)| {
        let places = survey(memory, shared.geometry_of(server), server);
        places.into_iter().any(|place| matches!(place.content, Content::Pending(_)))
    })
}

/// Stops a client (the maker) that splits a leaf of a tree, and then drops the tree. The dropper goes silent
/// when the tree's end is recorded, but no node is freed yet. A recoverer recovers the dropper: it must free
/// all nodes of the tree, and one of them belongs to the maker alone. The maker continues when the recoverer
/// has given up. Returns the recoverer's first result.
fn recover_dropper(stopped: Stopped) -> Result<Recovery, Error> {
    let mut fixture = fixture(Techniques { combine: false, ..Techniques::OURS }, 400_000);
    let [maker, dropper, recoverer] = [(); 3].map(|()| fixture.join());
    // With three leaves, a client that splits one holds no lane that a drop needs for the root.
    fixture.load(&maker, (0..12).map(|key| (10 * key, key)));
    // 1: a node is pending. 2: the tree is dropped. 3: the maker continues. 4: the maker is done.
    let stage: Rc<Cell<u32>> = Rc::default();

    let (act, clock) =
        (Deed::Grow.act(maker.worker(), Arc::clone(&maker.tree), fixture.scenario.clone()), maker.worker());
    let (memories, at) = ([0, 1].map(|server| fixture.sim.memory(server)), Rc::clone(&stage));
    let made = fixture.sim.spawn_on(&maker.fabric, 0, "maker", async move {
        let mut act = pin!(act);
        let is_there = || {
            let free = memories.iter().all(|memory| lanes_held(memory) == 0);
            free == (stopped == Stopped::BeforeTheLink) && is_pending(&memories, clock.compute())
        };
        assert!(poll_until(act.as_mut(), is_there).await, "a split is never {stopped:?}");
        at.set(1);
        reach(&at, 3, clock.endpoint()).await;
        let outcome = act.await;
        at.set(4);
        outcome
    });
    let (worker, tree, at) = (dropper.worker(), Arc::clone(&dropper.tree), Rc::clone(&stage));
    let (root_word, ended) = (tree.info().root_word, RootWord::ended(tree.info().id));
    let memory = fixture.sim.memory(root_word.server());
    drop(fixture.sim.spawn_on(&dropper.fabric, 0, "dropper", async move {
        reach(&at, 1, worker.endpoint()).await;
        let mut end = pin!(worker.drop_tree(&tree.info().name));
        let has_ended = || memory.load_u64(Space::Host, root_word.offset()) == ended;
        assert!(poll_until(end.as_mut(), has_ended).await);
        at.set(2);
    }));
    let (worker, client, at) = (recoverer.worker(), dropper.fabric.client(), Rc::clone(&stage));
    let recovered = fixture.sim.spawn_on(&recoverer.fabric, 0, "recoverer", async move {
        reach(&at, 2, worker.endpoint()).await;
        let first = worker.condemn(client).await;
        at.set(at.get().max(3));
        reach(&at, 4, worker.endpoint()).await;
        (first, worker.recover(client).await)
    });
    let run = fixture.sim.run(&mut Random::new(5));
    assert!(run.is_done(), "{:?}", run.outcome);
    assert_eq!(made.take(), Some(Ok(())), "its own change was done before it heard of the end");
    let (first, again) = recovered.take().expect("it ended");
    let verdict = if first.is_ok() { Verdict::Gone } else { Verdict::Recover };
    assert_eq!(again.map(|recovery| recovery.verdict), Ok(verdict));
    assert_nothing_is_lost(&mut fixture, &[&maker, &recoverer], "a dropper that is recovered");
    first
}

/// A recovery does not wait long for another client, which may be dead and need recovery next. It gives up,
/// and succeeds when it is called again.
#[test]
fn a_waiter_for_a_node_of_an_ended_tree_gives_way_and_can_be_asked_again() {
    for stopped in [Stopped::UnderTheLane, Stopped::BeforeTheLink] {
        let first = recover_dropper(stopped);
        assert!(
            matches!(first, Err(Error::Timeout { cause: Cause::NodePending, .. })),
            "{stopped:?}: {first:?}"
        );
    }
}
