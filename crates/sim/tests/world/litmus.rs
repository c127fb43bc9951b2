//! Litmus tests: every unusual behaviour that F1–F7 allow can really happen here, and nothing that they
//! forbid can.
//!
//! Each test enumerates *all* schedules of a world of one or two tasks and compares the set of outcomes. So
//! "never" means in no schedule, and "can" means in some schedule.

use sherman_fabric::{
    Counters, Endpoint, Fabric, FabricError, Memory, Peer, Space, WorkList, call, calls, execute,
};
use sherman_sim::{
    Bounds, Fault, Knobs, Report, Sim, SimConfig, SimEndpoint, SimFabric, TaskHandle, explore,
};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::rc::Rc;

const AT: u64 = 0x8000;

fn sim(knobs: Knobs) -> Sim {
    Sim::new(&SimConfig { servers: 2, host_bytes: 64 << 10, knobs, ..SimConfig::default() }).unwrap()
}

fn ascending() -> Knobs {
    Knobs { write_units_any_order: false, ..Knobs::default() }
}

fn in_order() -> Knobs {
    Knobs { overtake: false, ..ascending() }
}

/// Returns the set of results of `cast` over all schedules.
fn outcomes<T: Ord + Debug + 'static>(
    knobs: Knobs,
    cast: impl FnMut(&mut Sim) -> TaskHandle<T>,
) -> (BTreeSet<T>, Report) {
    let mut seen = BTreeSet::new();
    let report = explore(&mut sim(knobs), Bounds::default(), cast, |_, handle, run, _| {
        seen.extend(handle.take());
        assert!(!matches!(run.outcome, sherman_sim::Outcome::Deadlock { .. }), "{run:?}");
    });
    assert!(report.finished && report.truncated == 0, "{report:?}");
    (seen, report)
}

fn endpoint(sim: &mut Sim) -> (SimFabric, SimEndpoint) {
    let fabric = sim.join().unwrap();
    let endpoint = fabric.endpoint().unwrap();
    (fabric, endpoint)
}

async fn run(endpoint: &SimEndpoint, list: WorkList) -> WorkList {
    execute(endpoint, list, &Counters::default()).await.unwrap()
}

async fn read_word(endpoint: &SimEndpoint, space: Space, offset: u64) -> u64 {
    let mut list = endpoint.list(0);
    let read = list.read(space, offset, 8);
    word(run(endpoint, list).await.bytes(read), 0)
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn set<T: Ord, const N: usize>(items: [T; N]) -> BTreeSet<T> {
    items.into()
}

/// Spawns a writer of three lines with one WRITE, and a reader of them with one READ. Returns the images that
/// the reader sees.
fn torn_reads(knobs: Knobs) -> BTreeSet<Vec<u64>> {
    outcomes(knobs, |sim| {
        let (writer, to_write) = endpoint(sim);
        let (reader, to_read) = endpoint(sim);
        sim.spawn_on(&writer, 0, "writer", async move {
            let mut list = to_write.list(0);
            list.write(Space::Host, AT, &1u64.to_le_bytes().repeat(24));
            run(&to_write, list).await;
        });
        sim.spawn_on(&reader, 0, "reader", async move {
            let mut list = to_read.list(0);
            let read = list.read(Space::Host, AT, 192);
            let list = run(&to_read, list).await;
            let bytes = list.bytes(read);
            (0..3)
                .map(|line| {
                    let whole = &bytes[line * 64..(line + 1) * 64];
                    assert!(whole.chunks(8).all(|chunk| chunk == &whole[..8]), "a torn unit");
                    word(whole, 0)
                })
                .collect()
        })
    })
    .0
}

#[test]
fn a_read_is_torn_in_every_way_even_by_an_ascending_write() {
    let all: BTreeSet<Vec<u64>> = (0..8).map(|bits| (0..3).map(|line| bits >> line & 1).collect()).collect();
    assert_eq!(torn_reads(ascending()), all);
    assert_eq!(torn_reads(Knobs::default()), all);
}

#[test]
fn an_atomic_verb_is_never_torn() {
    let verb_atomic = Knobs { verb_atomic: true, ..Knobs::default() };
    assert_eq!(torn_reads(verb_atomic), set([vec![0; 3], vec![1; 3]]));
}

/// Returns what the first verb of [READ or CAS of a word, WRITE of 1 to it] finds.
fn overtaking(knobs: Knobs, atomic: bool, fenced: bool) -> BTreeSet<u64> {
    outcomes(knobs, |sim| {
        let (fabric, endpoint) = endpoint(sim);
        sim.spawn_on(&fabric, 0, "both", async move {
            let mut list = endpoint.list(0);
            let first = if atomic { list.cas(Space::Host, AT, 7, 7) } else { list.read(Space::Host, AT, 8) };
            match fenced {
                true => list.write_fenced(Space::Host, AT, &1u64.to_le_bytes()),
                false => list.write(Space::Host, AT, &1u64.to_le_bytes()),
            };
            let list = run(&endpoint, list).await;
            if atomic { list.old(first) } else { word(list.bytes(first), 0) }
        })
    })
    .0
}

#[test]
fn a_write_can_overtake_an_earlier_read_or_atomic_unless_fenced() {
    for atomic in [false, true] {
        assert_eq!(overtaking(Knobs::default(), atomic, false), set([0, 1]));
        assert_eq!(overtaking(Knobs::default(), atomic, true), set([0]));
        assert_eq!(overtaking(in_order(), atomic, false), set([0]));
    }
}

#[test]
fn a_read_and_an_atomic_see_every_write_and_atomic_posted_before() {
    let (seen, _) = outcomes(Knobs::default(), |sim| {
        let (fabric, endpoint) = endpoint(sim);
        sim.spawn_on(&fabric, 0, "both", async move {
            let mut first = endpoint.list(0);
            first.write(Space::Host, AT, &[1; 8]);
            first.cas(Space::OnChip, 8, 0, 5);
            let mut second = endpoint.list(0);
            let (read, lane) = (second.read(Space::Host, AT, 8), second.read(Space::OnChip, 8, 8));
            let add = second.faa(Space::Host, AT, 1);
            let counters = Counters::default();
            let (first, second) =
                (execute(&endpoint, first, &counters), execute(&endpoint, second, &counters));
            let second = second.await.unwrap();
            first.await.unwrap();
            (word(second.bytes(read), 0), word(second.bytes(lane), 0), second.old(add))
        })
    });
    let one = u64::from_le_bytes([1; 8]);
    assert_eq!(seen, set([(one, 5, one)]));
}

/// Returns what a reader sees of two writes, each in a round trip of its own. It reads the second place
/// first.
fn two_writes(knobs: Knobs, spaces: [Space; 2], two_endpoints: bool) -> BTreeSet<(u64, u64)> {
    outcomes(knobs, |sim| {
        let (writer, first) = endpoint(sim);
        let second = writer.endpoint().unwrap();
        let (reader, to_read) = endpoint(sim);
        sim.spawn_on(&writer, 0, "writer", async move {
            let counters = Counters::default();
            let mut list = first.list(0);
            list.write(spaces[0], 64, &1u64.to_le_bytes());
            let one = execute(&first, list, &counters);
            let other = if two_endpoints { &second } else { &first };
            let mut list = other.list(0);
            list.write(spaces[1], 128, &1u64.to_le_bytes());
            execute(other, list, &counters).await.unwrap();
            one.await.unwrap();
        });
        sim.spawn_on(&reader, 0, "reader", async move {
            let second = read_word(&to_read, spaces[1], 128).await;
            (second, read_word(&to_read, spaces[0], 64).await)
        })
    })
    .0
}

#[test]
fn writes_of_one_endpoint_appear_in_order_across_spaces_and_lists() {
    // Host offsets 64 and 128 belong to the superblock: they do not hold 1 at first.
    for spaces in [[Space::Host, Space::OnChip], [Space::OnChip, Space::Host], [Space::OnChip, Space::OnChip]]
    {
        let seen = two_writes(Knobs::default(), spaces, false);
        assert!(
            seen.contains(&(1, 1)) && seen.iter().all(|&(second, first)| second != 1 || first == 1),
            "{seen:?}"
        );
    }
}

#[test]
fn no_order_holds_between_endpoints() {
    let seen = two_writes(in_order(), [Space::OnChip, Space::OnChip], true);
    assert_eq!(seen, set([(0, 0), (0, 1), (1, 0), (1, 1)]));
}

#[test]
fn a_completion_can_come_long_after_its_effect_but_never_before() {
    let (seen, _) = outcomes(Knobs::default(), |sim| {
        let (writer, to_write) = endpoint(sim);
        let (reader, to_read) = endpoint(sim);
        let spawner = sim.spawner();
        let done = Rc::new(std::cell::Cell::new(false));
        let seen_done = Rc::clone(&done);
        let noting = spawner.clone();
        sim.spawn_on(&writer, 0, "writer", async move {
            let mut list = to_write.list(0);
            list.write(Space::Host, AT, &1u64.to_le_bytes());
            run(&to_write, list).await;
            done.set(true);
            noting.note(1);
        });
        sim.spawn_on(&reader, 0, "reader", async move {
            let before = seen_done.get();
            spawner.note(2);
            let value = read_word(&to_read, Space::Host, AT).await;
            spawner.note(3);
            (before, value, seen_done.get())
        })
    });
    let (known_early, late, normal, overlap) =
        ((true, 1, true), (false, 1, false), (false, 0, false), (false, 0, true));
    assert_eq!(seen, set([known_early, late, normal, overlap, (false, 1, true)]));
}

/// Returns the value of a word after an FAA of 1 and a WRITE of 10 by different clients.
fn add_against_write(knobs: Knobs) -> BTreeSet<u64> {
    let mut left = BTreeSet::new();
    let report = explore(
        &mut sim(knobs),
        Bounds::default(),
        |sim| {
            for which in 0..2 {
                let (fabric, endpoint) = endpoint(sim);
                sim.spawn_on(&fabric, 0, "one", async move {
                    let mut list = endpoint.list(0);
                    match which {
                        0 => list.faa(Space::OnChip, 8, 1),
                        _ => list.write(Space::OnChip, 8, &10u64.to_le_bytes()),
                    };
                    run(&endpoint, list).await;
                });
            }
        },
        |sim, (), run, _| {
            if run.is_done() {
                left.insert(sim.memory(0).load_u64(Space::OnChip, 8));
            }
        },
    );
    assert!(report.finished);
    left
}

#[test]
fn a_write_is_lost_in_an_atomic_only_where_caps_say_so() {
    assert_eq!(add_against_write(Knobs::default()), set([10, 11]));
    assert_eq!(add_against_write(Knobs { write_releases: false, ..Knobs::default() }), set([1, 10, 11]));
}

/// Returns the memory after a client posted [CAS lane 0→9, WRITE of two lines, WRITE of lane] and died before
/// step `0..12`.
fn after_death(knobs: Knobs) -> BTreeSet<(u64, u64, u64, u64)> {
    let mut left = BTreeSet::new();
    let mut world = sim(knobs);
    for step in 0..12 {
        let cast = |sim: &mut Sim| {
            let (fabric, endpoint) = endpoint(sim);
            sim.fault_at(step, Fault::Kill { compute_server: fabric.number() });
            sim.spawn_on(&fabric, 0, "victim", async move {
                let mut list = endpoint.list(0);
                list.cas(Space::OnChip, 8, 0, 9);
                list.write(Space::Host, AT, &1u64.to_le_bytes().repeat(16));
                list.write(Space::OnChip, 16, &1u64.to_le_bytes());
                run(&endpoint, list).await;
            });
        };
        let report = explore(&mut world, Bounds::default(), cast, |sim, (), run, _| {
            if run.is_done() {
                let memory = sim.memory(0);
                let host = |offset| memory.load_u64(Space::Host, offset);
                let chip = |offset| memory.load_u64(Space::OnChip, offset);
                left.insert((chip(8), host(AT), host(AT + 64), chip(16)));
            }
        });
        assert!(report.finished && report.truncated == 0);
    }
    left
}

#[test]
fn death_leaves_a_prefix_cut_at_any_unit() {
    let ascending_prefixes = set([(0, 0, 0, 0), (9, 0, 0, 0), (9, 1, 0, 0), (9, 1, 1, 0), (9, 1, 1, 1)]);
    assert_eq!(after_death(in_order()), ascending_prefixes);
    // An atomic that a WRITE has overtaken still executes, so overtaking alone adds no outcome.
    assert_eq!(after_death(ascending()), ascending_prefixes);
    let mut any_units = ascending_prefixes;
    any_units.insert((9, 0, 1, 0));
    assert_eq!(after_death(Knobs::default()), any_units);
}

/// Returns the memory after a client's [CAS of a lane, WRITE of two lines, verb out of bounds, WRITE] has
/// ended in error.
fn after_error(knobs: Knobs) -> BTreeSet<(u64, u64, u64, u64)> {
    let mut left = BTreeSet::new();
    let cast = |sim: &mut Sim| {
        let (fabric, endpoint) = endpoint(sim);
        sim.spawn_on(&fabric, 0, "careless", async move {
            let mut list = endpoint.list(0);
            list.cas(Space::OnChip, 8, 0, 9);
            list.write(Space::Host, AT, &1u64.to_le_bytes().repeat(16));
            list.read(Space::Host, 1 << 40, 8);
            list.write(Space::OnChip, 16, &1u64.to_le_bytes());
            let error = execute(&endpoint, list, &Counters::default()).await.unwrap_err();
            assert!(matches!(error, FabricError::OutOfBounds { len: 8, .. }), "{error}");
        })
    };
    let report = explore(&mut sim(knobs), Bounds::default(), cast, |sim, handle, run, _| {
        if run.is_done() && handle.take().is_some() {
            let memory = sim.memory(0);
            let host = |offset| memory.load_u64(Space::Host, offset);
            let chip = |offset| memory.load_u64(Space::OnChip, offset);
            left.insert((chip(8), host(AT), host(AT + 64), chip(16)));
        }
    });
    assert!(report.finished && report.truncated == 0);
    left
}

#[test]
fn an_error_leaves_a_prefix_of_whole_verbs_of_any_length() {
    for knobs in [in_order(), Knobs::default()] {
        assert_eq!(after_error(knobs), set([(0, 0, 0, 0), (9, 0, 0, 0), (9, 1, 1, 0)]));
    }
}

#[test]
fn two_writes_of_the_same_lines_mix_in_every_way() {
    let mut left = BTreeSet::new();
    // The first client writes the existing contents. Its landed units show only in the effect of later units.
    let cast = |sim: &mut Sim| {
        for value in 0..2u64 {
            let (fabric, endpoint) = endpoint(sim);
            sim.spawn_on(&fabric, 0, "writer", async move {
                let mut list = endpoint.list(0);
                list.write(Space::Host, AT, &value.to_le_bytes().repeat(16));
                run(&endpoint, list).await;
            });
        }
    };
    let report = explore(&mut sim(Knobs::default()), Bounds::default(), cast, |sim, (), run, _| {
        if run.is_done() {
            let host = |offset| sim.memory(0).load_u64(Space::Host, offset);
            left.insert((host(AT), host(AT + 64)));
        }
    });
    assert!(report.finished);
    assert_eq!(left, set([(0, 0), (0, 1), (1, 0), (1, 1)]));
}

#[test]
fn a_fenced_client_executes_nothing_after_the_answer_and_hears_of_it() {
    let (seen, _) = outcomes(Knobs::default(), |sim| {
        let (victim, to_write) = endpoint(sim);
        let (judge, to_judge) = endpoint(sim);
        sim.spawn_on(&victim, 0, "victim", async move {
            for value in 1..=2u64 {
                let mut list = to_write.list(0);
                list.write(Space::Host, AT, &value.to_le_bytes());
                list.write(Space::Host, AT + 64, &value.to_le_bytes());
                match execute(&to_write, list, &Counters::default()).await {
                    Ok(list) => to_write.recycle(list),
                    Err(error) => assert_eq!(error, FabricError::Fenced { client: to_write.client() }),
                }
            }
        });
        let client = victim.client();
        sim.spawn_on(&judge, 0, "judge", async move {
            call(&to_judge, Peer::Volume(0), calls::Fence { client }, &Counters::default()).await.unwrap();
            let first = (
                read_word(&to_judge, Space::Host, AT).await,
                read_word(&to_judge, Space::Host, AT + 64).await,
            );
            let again = (
                read_word(&to_judge, Space::Host, AT).await,
                read_word(&to_judge, Space::Host, AT + 64).await,
            );
            (first, first == again)
        })
    });
    assert!(seen.iter().all(|&(_, still)| still), "{seen:?}");
    let prefixes: BTreeSet<(u64, u64)> = seen.iter().map(|&(values, _)| values).collect();
    assert_eq!(prefixes, set([(0, 0), (1, 0), (1, 1), (2, 1), (2, 2)]));
}
