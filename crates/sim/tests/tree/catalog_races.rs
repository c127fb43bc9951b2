//! Drops, creations and bulk loads that race. `SHERMAN_RACES=N` runs N schedules of each.

use super::scene::load;
use sherman_core::mutant::{Mutant, plant};
use sherman_core::root::RootWord;
use sherman_core::{Dropped, Error};
use sherman_fabric::{Clock, Memory, Space, sleep_until, yield_now};
use sherman_sim::tree::{Compute, Lab, Scenario, Shape};
use sherman_sim::{Knobs, Random};
use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

fn lab() -> Lab {
    Lab::new(Scenario { shape: Shape::Four, servers: 1, loaded: 0, ..Scenario::default() }, Knobs::default())
}

fn schedules(few: u64) -> u64 {
    let asked = std::env::var("SHERMAN_RACES").map(|text| text.parse().expect("SHERMAN_RACES is a number"));
    asked.unwrap_or(few)
}

/// Two clients drop a tree; one of them then creates `name` and writes to it. The other is polled a few times and then not before that
/// is done, as a thread that the system does not run for a while. What a third client then finds, if it is not what was written.
fn drop_race(seed: u64, name: &'static str) -> Option<String> {
    let mut lab = lab();
    let [a, b, c] = [(); 3].map(|()| lab.join());
    lab.load(&a, (0..4).map(|key| (10 * key, key)));
    let dropped = a.tree.info().name.clone();
    let done: Rc<Cell<bool>> = Rc::default();
    let (worker, tree, other_is_done) = (a.worker(), dropped.clone(), Rc::clone(&done));
    let first = lab.sim.spawn_on(&a.fabric, 0, "a drops", async move {
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
    let (worker, spec, scenario) = (b.worker(), b.tree.info().spec, lab.scenario.clone());
    let second = lab.sim.spawn_on(&b.fabric, 0, "b drops and creates", async move {
        // The other may hold the root's lane when it stops: then this one's turn is over in a moment.
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
    let run = lab.sim.run(&mut Random::new(seed));
    assert!(run.is_done(), "seed {seed}: {:?}", run.outcome);
    let (first, second) = (first.take(), second.take());
    // A client that began late may have dropped the new tree, if that has the same name: then it says so.
    let others = matches!(first, Some(Ok(Dropped { id, .. })) if id != a.tree.info().id);
    if second != Some(Ok(())) || others && name == a.tree.info().name {
        return None;
    }
    let worker = c.worker();
    let found = lab.quiet(worker.open_tree(name)).and_then(|tree| {
        let (op, mut value) = (worker.op(), Vec::new());
        lab.quiet(op.get(&tree, &lab.scenario.key(7), &mut value))
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

/// A tree of several empty leaves, as clients know it.
fn empty_tree(lab: &mut Lab) -> [Compute; 3] {
    let computes = [(); 3].map(|()| lab.join());
    let other = lab.create_unmerged(&computes[0], "several", 12);
    assert!(lab.quiet(computes[0].worker().op().walk(&other)).expect("a sound tree").nodes[0] > 1);
    computes.map(|compute| {
        let worker = compute.worker();
        let tree = lab.quiet(worker.open_tree("several")).expect("just created");
        Compute { tree, ..compute }
    })
}

/// A load races with an insert of a key that it does not have. What happened, if the insert was acknowledged and is gone.
fn load_race(seed: u64) -> Option<String> {
    let mut lab = lab();
    let [a, b, c] = empty_tree(&mut lab);
    let (worker, tree, scenario) = (a.worker(), Arc::clone(&a.tree), lab.scenario.clone());
    let loaded = lab.sim.spawn_on(&a.fabric, 0, "load", async move { load(&worker, &tree, &scenario).await });
    let (worker, tree, scenario) = (b.worker(), Arc::clone(&b.tree), lab.scenario.clone());
    let pause = 100 * (seed % 400);
    let inserted = lab.sim.spawn_on(&b.fabric, 0, "insert", async move {
        sleep_until(worker.endpoint(), worker.endpoint().now() + pause).await;
        worker.op().insert(&tree, &scenario.key(205), &scenario.value(7), &mut Vec::new()).await
    });
    let run = lab.sim.run(&mut Random::new(seed));
    assert!(run.is_done(), "seed {seed}: {:?}", run.outcome);
    let (loaded, inserted) = (loaded.take().expect("it ended"), inserted.take().expect("it ended"));
    assert_eq!(inserted, Ok(false), "seed {seed}");
    assert!(matches!(loaded, Ok(14) | Err(Error::NotEmpty)), "seed {seed}: {loaded:?}");
    let (worker, mut value) = (c.worker(), Vec::new());
    let found = lab.quiet(worker.op().get(&c.tree, &lab.scenario.key(205), &mut value));
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

/// One of two loads wins; what the other says is true, and all that the winner loaded is there.
#[test]
fn of_two_loads_that_race_one_wins() {
    let mut refused = 0;
    for seed in 0..schedules(1_000) {
        let mut lab = lab();
        let [a, b, c] = empty_tree(&mut lab);
        let loads = [&a, &b].map(|compute| {
            let (worker, tree, scenario) = (compute.worker(), Arc::clone(&compute.tree), lab.scenario.clone());
            lab.sim.spawn_on(&compute.fabric, 0, "load", async move { load(&worker, &tree, &scenario).await })
        });
        let run = lab.sim.run(&mut Random::new(seed));
        assert!(run.is_done(), "seed {seed}: {:?}", run.outcome);
        let outcomes = loads.map(|load| load.take().expect("it ended"));
        assert!(outcomes.contains(&Ok(14)), "seed {seed}: {outcomes:?}");
        refused += outcomes.iter().filter(|outcome| **outcome == Err(Error::NotEmpty)).count();
        let entries = lab.walk(&c).unwrap_or_else(|error| panic!("seed {seed}: {error}")).entries.len();
        assert_eq!(entries, 14, "seed {seed}");
    }
    assert!(refused > 0);
}

/// An empty tree is loaded although merges were put off a moment ago.
#[test]
fn an_empty_tree_is_loaded_whatever_its_number_of_leaves() {
    let mut lab = lab();
    let [a, ..] = empty_tree(&mut lab);
    let (worker, scenario) = (a.worker(), lab.scenario.clone());
    assert_eq!(lab.quiet(load(&worker, &a.tree, &scenario)), Ok(14));
}

/// Drops that could not be finished hold their slots; as many as that may, and no more.
#[test]
fn drops_leave_slots_to_others_and_are_finished_later() {
    let mut lab = lab();
    let [a, b] = [(); 2].map(|()| lab.join());
    lab.load(&a, (0..12).map(|key| (key, key)));
    let root = lab.sim.memory(0).load_u64(Space::Host, a.tree.info().root_word);
    let root = b.shared.lane(RootWord::from_bits(root).address);
    // Somebody holds the lane of a node below the root, and lives.
    let places = lab.walk(&a).expect("a sound tree").places;
    let lane = places.iter().map(|&place| b.shared.lane(place)).find(|&lane| lane != root).expect("several lanes");
    let holder = b.worker();
    let op = holder.op();
    let held = lab.quiet(op.take_lane(sherman_core::lock::local::LaneIndex { server: 0, lane })).expect("a free lane");
    let worker = a.worker();
    let name = a.tree.info().name.clone();
    let dropped = lab.sim.block_on(worker.drop_tree(&name)).expect("its waiting ends").expect("the tree is gone");
    assert!(dropped.nodes < 4, "{dropped:?}: a leaf stays");
    assert!(!a.shared.redo_slots().all_free(), "the record tells of it");
    assert_eq!(lab.quiet(worker.open_tree(&name)).err(), Some(Error::NoSuchTree { name: name.clone() }));
    lab.quiet(op.give_lane(held)).expect("a lane that is held");
    let (recoverer, over) = (a.worker(), Rc::new(Cell::new(false)));
    let stop = Rc::clone(&over);
    drop(lab.sim.spawn_on(&a.fabric, 1, "recoverer", async move { recoverer.recover_others(|| stop.get()).await }));
    drop(lab.sim.spawn_on(&a.fabric, 2, "clock", async move {
        sleep_until(worker.endpoint(), worker.endpoint().now() + 1_000_000).await;
        over.set(true);
    }));
    assert!(lab.sim.run(&mut Random::new(1)).is_done());
    assert!(a.shared.redo_slots().all_free(), "the rest is free, and the record cleared");
}
