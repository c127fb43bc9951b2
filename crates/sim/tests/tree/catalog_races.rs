//! Races of drops, creations and bulk loads. `SHERMAN_RACES=N` runs N schedules of each.

use super::scene::load;
use sherman_core::mutant::{Mutant, plant};
use sherman_core::root::RootWord;
use sherman_core::{Dropped, Error};
use sherman_fabric::{Clock, Memory, Space, sleep_until, yield_now};
use sherman_sim::tree::{Compute, Fixture, Scenario, Shape};
use sherman_sim::{Knobs, Random};
use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

fn fixture() -> Fixture {
    Fixture::new(
        Scenario { shape: Shape::Four, servers: 1, loaded: 0, ..Scenario::default() },
        Knobs::default(),
    )
}

/// A plain run makes a third of the schedules.
fn schedules(all: u64) -> u64 {
    let few = if super::support::runs_in_full() { all } else { all / 3 };
    let asked = std::env::var("SHERMAN_RACES").map(|text| text.parse().expect("SHERMAN_RACES is a number"));
    asked.unwrap_or(few)
}

/// Two clients drop a tree, and one of them then creates `name` and writes to it. The other client is polled
/// a few times, and then not until that is done. It acts like a thread that the system does not run for a
/// while. Returns what a third client finds, if it differs from what was written.
fn drop_race(seed: u64, name: &'static str) -> Option<String> {
    let mut fixture = fixture();
    let [a, b, c] = [(); 3].map(|()| fixture.join());
    fixture.load(&a, (0..4).map(|key| (10 * key, key)));
    let dropped = a.tree.info().name.clone();
    let done: Rc<Cell<bool>> = Rc::default();
    let (worker, tree, other_is_done) = (a.worker(), dropped.clone(), Rc::clone(&done));
    let first = fixture.sim.spawn_on(&a.fabric, 0, "a drops", async move {
        let mut drop = pin!(worker.drop_tree(&tree));
        for _ in 0..seed % 64 {
            let polled = poll_fn(|cx| Poll::Ready(drop.as_mut().poll(cx))).await;
            if let Poll::Ready(outcome) = polled {
                return outcome;
            }
            yield_now().await;
        }
        while !other_is_done.get() {
            sleep_until(worker.endpoint(), worker.endpoint().now() + 1_000).await;
        }
        drop.await
    });
    let (worker, spec, scenario) = (b.worker(), b.tree.info().spec, fixture.scenario.clone());
    let second = fixture.sim.spawn_on(&b.fabric, 0, "b drops and creates", async move {
        // The other client may hold the root's lane when it stops. So this client waits only for a short time
        // before it lets the other continue.
        let outcome = async {
            worker.drop_tree(&dropped).await?;
            let tree = worker.tree(name, &spec).await?;
            worker.op().insert(&tree, &scenario.key(7), &scenario.value(7), &mut Vec::new()).await
        };
        let mut outcome = pin!(outcome);
        let until = worker.endpoint().now() + 50_000;
        let ended = poll_fn(|cx| match outcome.as_mut().poll(cx) {
            Poll::Ready(ended) => Poll::Ready(Some(ended)),
            Poll::Pending if worker.endpoint().now() >= until => Poll::Ready(None),
            Poll::Pending => {
                worker.endpoint().wake_at(until, cx.waker());
                Poll::Pending
            }
        })
        .await;
        done.set(true);
        match ended {
            Some(ended) => ended.map(drop),
            None => outcome.await.map(drop),
        }
    });
    let run = fixture.sim.run(&mut Random::new(seed));
    assert!(run.is_done(), "seed {seed}: {:?}", run.outcome);
    let (first, second) = (first.take(), second.take());
    // A client that began late may have dropped the new tree, if that has the same name. Then its outcome
    // says so.
    let others = matches!(first, Some(Ok(Dropped { id, .. })) if id != a.tree.info().id);
    if second != Some(Ok(())) || others && name == a.tree.info().name {
        return None;
    }
    let worker = c.worker();
    let found = fixture.quiet(worker.open_tree(name)).and_then(|tree| {
        let (op, mut value) = (worker.op(), Vec::new());
        fixture.quiet(op.get(&tree, &fixture.scenario.key(7), &mut value))
    });
    (found != Ok(true)).then(|| format!("seed {seed}: the other dropped {first:?}; found {found:?}"))
}

#[test]
fn a_drop_never_destroys_another_tree() {
    for name in ["other", "tree"] {
        for seed in 0..schedules(6_400) {
            assert_eq!(drop_race(seed, name), None, "{name}");
        }
    }
    let _planted = plant(Some(Mutant::DropWithoutLane));
    let destroyed = (0..6_400).filter(|&seed| drop_race(seed, "other").is_some()).count();
    assert!(destroyed > 100, "without the root's lane {destroyed} of 6,400 schedules destroy it");
}

/// Creates a tree of several empty leaves, which three compute servers have opened.
fn empty_tree(fixture: &mut Fixture) -> [Compute; 3] {
    let computes = [(); 3].map(|()| fixture.join());
    let other = fixture.create_unmerged(&computes[0], "several", 12);
    assert!(fixture.quiet(computes[0].worker().op().walk(&other)).expect("a sound tree").nodes[0] > 1);
    computes.map(|compute| {
        let worker = compute.worker();
        let tree = fixture.quiet(worker.open_tree("several")).expect("just created");
        Compute { tree, ..compute }
    })
}

/// A load races with an insert of a key that the load does not contain. Returns a description if the insert
/// was acknowledged and is lost.
fn load_race(seed: u64) -> Option<String> {
    let mut fixture = fixture();
    let [a, b, c] = empty_tree(&mut fixture);
    let (worker, tree, scenario) = (a.worker(), Arc::clone(&a.tree), fixture.scenario.clone());
    let loaded =
        fixture.sim.spawn_on(&a.fabric, 0, "load", async move { load(&worker, &tree, &scenario).await });
    let (worker, tree, scenario) = (b.worker(), Arc::clone(&b.tree), fixture.scenario.clone());
    let pause = 100 * (seed % 400);
    let inserted = fixture.sim.spawn_on(&b.fabric, 0, "insert", async move {
        sleep_until(worker.endpoint(), worker.endpoint().now() + pause).await;
        worker.op().insert(&tree, &scenario.key(205), &scenario.value(7), &mut Vec::new()).await
    });
    let run = fixture.sim.run(&mut Random::new(seed));
    assert!(run.is_done(), "seed {seed}: {:?}", run.outcome);
    let (loaded, inserted) = (loaded.take().expect("it ended"), inserted.take().expect("it ended"));
    assert_eq!(inserted, Ok(false), "seed {seed}");
    assert!(matches!(loaded, Ok(14) | Err(Error::NotEmpty)), "seed {seed}: {loaded:?}");
    let (worker, mut value) = (c.worker(), Vec::new());
    let found = fixture.quiet(worker.op().get(&c.tree, &fixture.scenario.key(205), &mut value));
    (found != Ok(true)).then(|| format!("seed {seed}: load {loaded:?}, and what was inserted: {found:?}"))
}

#[test]
fn a_load_never_removes_what_others_insert() {
    for seed in 0..schedules(3_000) {
        assert_eq!(load_race(seed), None);
    }
    let _planted = plant(Some(Mutant::LoadClears));
    let lost = (0..3_000).filter(|&seed| load_race(seed).is_some()).count();
    assert!(lost > 50, "a load that clears loses an insert in {lost} of 3,000 schedules");
}

/// One of two loads wins. The other load reports the truth, and all entries of the winner are there.
#[test]
fn of_two_loads_that_race_one_wins() {
    let mut refused = 0;
    for seed in 0..schedules(1_000) {
        let mut fixture = fixture();
        let [a, b, c] = empty_tree(&mut fixture);
        let loads =
            [&a, &b].map(|compute| {
                let (worker, tree, scenario) =
                    (compute.worker(), Arc::clone(&compute.tree), fixture.scenario.clone());
                fixture.sim.spawn_on(&compute.fabric, 0, "load", async move {
                    load(&worker, &tree, &scenario).await
                })
            });
        let run = fixture.sim.run(&mut Random::new(seed));
        assert!(run.is_done(), "seed {seed}: {:?}", run.outcome);
        let outcomes = loads.map(|load| load.take().expect("it ended"));
        assert!(outcomes.contains(&Ok(14)), "seed {seed}: {outcomes:?}");
        refused += outcomes.iter().filter(|outcome| **outcome == Err(Error::NotEmpty)).count();
        let entries = fixture.walk(&c).unwrap_or_else(|error| panic!("seed {seed}: {error}")).entries.len();
        assert_eq!(entries, 14, "seed {seed}");
    }
    assert!(refused > 0);
}

/// An empty tree can be loaded although merges were postponed shortly before.
#[test]
fn an_empty_tree_is_loaded_whatever_its_number_of_leaves() {
    let mut fixture = fixture();
    let [a, ..] = empty_tree(&mut fixture);
    let (worker, scenario) = (a.worker(), fixture.scenario.clone());
    assert_eq!(fixture.quiet(load(&worker, &a.tree, &scenario)), Ok(14));
}

/// Drops that cannot be finished keep their redo slots, up to a limit.
#[test]
fn drops_leave_slots_to_others_and_are_finished_later() {
    let mut fixture = fixture();
    let [a, b] = [(); 2].map(|()| fixture.join());
    fixture.load(&a, (0..12).map(|key| (key, key)));
    let word = a.tree.info().root_word;
    let root = fixture.sim.memory(word.server()).load_u64(Space::Host, word.offset());
    let root = b.shared.lane(RootWord::from_bits(root).address);
    // A live client holds the lane of a node below the root.
    let places = fixture.walk(&a).expect("a sound tree").places;
    let lane =
        places.iter().map(|&place| b.shared.lane(place)).find(|&lane| lane != root).expect("several lanes");
    let holder = b.worker();
    let op = holder.op();
    let held = fixture
        .quiet(op.take_lane(sherman_core::lock::local::LaneIndex { server: 0, lane }))
        .expect("a free lane");
    let worker = a.worker();
    let name = a.tree.info().name.clone();
    let dropped =
        fixture.sim.block_on(worker.drop_tree(&name)).expect("its waiting ends").expect("the tree is gone");
    assert!(dropped.nodes < 4, "{dropped:?}: a leaf stays");
    assert!(!a.shared.redo_slots().all_free(), "the record tells of it");
    assert_eq!(fixture.quiet(worker.open_tree(&name)).err(), Some(Error::NoSuchTree { name: name.clone() }));
    fixture.quiet(op.give_lane(held)).expect("a lane that is held");
    let (recoverer, over) = (a.worker(), Rc::new(Cell::new(false)));
    let stop = Rc::clone(&over);
    drop(
        fixture.sim.spawn_on(&a.fabric, 1, "recoverer", async move {
            recoverer.recover_others(|| stop.get()).await
        }),
    );
    drop(fixture.sim.spawn_on(&a.fabric, 2, "clock", async move {
        sleep_until(worker.endpoint(), worker.endpoint().now() + 1_000_000).await;
        over.set(true);
    }));
    assert!(fixture.sim.run(&mut Random::new(1)).is_done());
    assert!(a.shared.redo_slots().all_free(), "the rest is free, and the record cleared");
}
