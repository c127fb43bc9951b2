//! The faults of the world do what they should and nothing more: deaths at a given effect, sleep, broken
//! connections.

use sherman_fabric::{
    Clock, Counters, Endpoint, Fabric, FabricError, Memory, Peer, Space, call, calls, execute,
};
use sherman_sim::{Fault, Knobs, Random, Sim, SimConfig, SimEndpoint, SimFabric};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;

const AT: u64 = 0x8000;

fn config(knobs: Knobs) -> SimConfig {
    SimConfig { servers: 2, host_bytes: 64 << 10, knobs, ..SimConfig::default() }
}

async fn add(endpoint: &SimEndpoint, server: u16, offset: u64) -> Result<u64, FabricError> {
    let mut list = endpoint.list(server);
    let word = list.faa(Space::Host, offset, 1);
    let list = execute(endpoint, list, &Counters::default()).await?;
    let old = list.old(word);
    endpoint.recycle(list);
    Ok(old)
}

/// Spawns a client with nine effects, in any order. It adds to a word, writes four lines and then another
/// one, reads two lines, and makes a control call.
fn busy(sim: &mut Sim) -> SimFabric {
    let fabric = sim.join().unwrap();
    let endpoint = fabric.endpoint().unwrap();
    sim.spawn_on(&fabric, 0, "victim", async move {
        let mut list = endpoint.list(0);
        list.faa(Space::Host, AT, 1);
        list.write(Space::Host, AT + 64, &[1; 256]);
        list.write(Space::Host, AT + 512, &[2; 64]);
        list.read(Space::Host, AT, 128);
        execute(&endpoint, list, &Counters::default()).await.unwrap();
        call(&endpoint, Peer::Volume(1), calls::Usage, &Counters::default()).await.unwrap();
    });
    fabric
}

/// Returns what the client of `busy` left in memory: the word, the four lines, and the last line.
fn left(sim: &Sim) -> (u64, Vec<u8>, u8) {
    let byte = |offset| sim.memory(0).load_u64(Space::Host, offset) as u8;
    (
        sim.memory(0).load_u64(Space::Host, AT),
        (0..4).map(|line| byte(AT + 64 + 64 * line)).collect(),
        byte(AT + 512),
    )
}

#[test]
fn a_client_dies_after_each_of_its_effects_and_a_prefix_is_left() {
    let mut sim = Sim::new(&config(Knobs::default())).unwrap();
    let victim = busy(&mut sim);
    assert!(sim.run(&mut Random::new(1)).is_done());
    let effects = sim.effects(victim.number());
    assert_eq!(effects, 1 + 4 + 1 + 2 + 1);
    let mut subsets = BTreeSet::new();
    for last in 0..=effects {
        for seed in 0..200 {
            sim.rewind();
            let victim = busy(&mut sim);
            sim.kill_after(victim.number(), last);
            assert!(sim.run(&mut Random::new(seed)).is_done(), "no other client is there");
            let (word, lines, end) = left(&sim);
            let written: u64 = lines.iter().map(|&byte| u64::from(byte)).sum();
            // The last line lands after the four lines. A WRITE that overtook the atomic is not visible
            // without it.
            assert!(end == 0 || written == 4, "{lines:?} {end}");
            assert!(word == 1 || written == 0, "a WRITE is visible without the atomic before it");
            assert_eq!(
                sim.is_dead(victim.number()),
                last < effects || sim.effects(victim.number()) >= effects
            );
            assert!(sim.effects(victim.number()) <= last + 1, "an overtaken atomic is all that may follow");
            subsets.insert(lines);
        }
    }
    assert_eq!(subsets.len(), 16, "units land in any order, so any subset of a WRITE may be left");
}

#[test]
fn a_sleeper_does_nothing_while_what_it_posted_lands() {
    let mut sim = Sim::new(&config(Knobs::default())).unwrap();
    let mut early = 0;
    for seed in 0..100 {
        sim.rewind();
        let (sleeper, other) = (sim.join().unwrap(), sim.join().unwrap());
        let (mine, theirs) = (sleeper.endpoint().unwrap(), other.endpoint().unwrap());
        let woke = sim.spawn_on(&sleeper, 0, "sleeper", async move {
            add(&mine, 0, AT).await.unwrap();
            mine.now()
        });
        sim.fault_at(1, Fault::Sleep { compute_server: sleeper.number(), steps: 500 });
        let rounds = Rc::new(Cell::new(0));
        let counted = Rc::clone(&rounds);
        let first = sim.spawn_on(&other, 0, "other", async move {
            let mut first = None;
            for round in 0..150 {
                if add(&theirs, 0, AT).await.unwrap() > round && first.is_none() {
                    first = Some(round);
                }
                counted.set(round);
            }
            first
        });
        assert!(sim.run(&mut Random::new(seed)).is_done());
        // Either the client posted before it fell asleep, and then the verb landed, or it posted after it
        // woke.
        let landed = first.take().unwrap();
        assert!(woke.take().unwrap() >= 500 * 100, "it slept");
        assert_eq!(sim.memory(0).load_u64(Space::Host, AT), 151);
        // The verb landed long before the client woke.
        early += u32::from(landed.is_some_and(|round| round < 100));
    }
    assert!(early > 20, "{early}");
}

#[test]
fn a_sleep_ends_when_nothing_else_can_happen() {
    let mut sim = Sim::new(&config(Knobs::default())).unwrap();
    let fabric = sim.join().unwrap();
    let endpoint = fabric.endpoint().unwrap();
    let done = sim.spawn_on(&fabric, 0, "alone", async move { add(&endpoint, 0, AT).await });
    sim.fault_at(0, Fault::Sleep { compute_server: fabric.number(), steps: 1 << 40 });
    let run = sim.run(&mut Random::new(1));
    assert!(run.is_done() && run.steps < 100);
    assert_eq!(done.take(), Some(Ok(0)));
}

#[test]
fn a_broken_connection_ends_what_is_in_flight_as_a_prefix_and_spares_the_others() {
    let mut sim = Sim::new(&config(Knobs::default())).unwrap();
    let mut executed = BTreeSet::new();
    for step in 0..20 {
        for seed in 0..50 {
            sim.rewind();
            let fabric = sim.join().unwrap();
            let (broken, whole) = (fabric.endpoint().unwrap(), fabric.endpoint().unwrap());
            let number = fabric.number();
            sim.fault_at(step, Fault::Disconnect { compute_server: number, endpoint: Some(0), server: 0 });
            let ended = sim.spawn_on(&fabric, 0, "broken", async move {
                let mut list = broken.list(0);
                list.write(Space::Host, AT, &[1; 8]);
                list.write(Space::Host, AT + 64, &[1; 8]);
                let first = execute(&broken, list, &Counters::default()).await.map(drop);
                let asked =
                    call(&broken, Peer::Volume(0), calls::Usage, &Counters::default()).await.map(drop);
                let elsewhere = add(&broken, 1, AT).await;
                (first, asked, elsewhere, add(&broken, 0, AT + 256).await)
            });
            let fine = sim.spawn_on(&fabric, 1, "whole", async move { add(&whole, 0, AT + 128).await });
            assert!(sim.run(&mut Random::new(seed)).is_done());
            let gone = FabricError::Disconnected { server: 0 };
            let (first, asked, elsewhere, later) = ended.take().unwrap();
            assert!(first.is_ok() || (first == Err(gone.clone()) && asked == Err(gone.clone())));
            assert!(asked.is_ok() || asked == Err(gone.clone()));
            assert_eq!((elsewhere, fine.take()), (Ok(0), Some(Ok(0))));
            assert!(later == Err(gone.clone()) || (asked.is_ok() && later == Ok(0)));
            let word = |offset| sim.memory(0).load_u64(Space::Host, offset) != 0;
            assert!(first.is_err() || (word(AT) && word(AT + 64)));
            executed.insert((first.is_ok(), word(AT), word(AT + 64)));
        }
    }
    let failed = [(false, false, false), (false, true, false), (false, true, true)];
    assert!(failed.iter().all(|prefix| executed.contains(prefix)), "{executed:?}");
    assert!(!executed.contains(&(false, false, true)), "not a prefix");
}

#[test]
fn a_fenced_list_may_have_been_executed_whole_without_its_sender_hearing_of_it() {
    let mut sim = Sim::new(&config(Knobs::default())).unwrap();
    let mut seen = BTreeSet::new();
    for seed in 0..2_000 {
        sim.rewind();
        let (zombie, judge) = (sim.join().unwrap(), sim.join().unwrap());
        let (late, fencer) = (zombie.endpoint().unwrap(), judge.endpoint().unwrap());
        let client = zombie.client();
        let told = sim.spawn_on(&zombie, 0, "zombie", async move { add(&late, 0, AT).await.is_ok() });
        sim.spawn_on(&judge, 0, "judge", async move {
            call(&fencer, Peer::Volume(0), calls::Fence { client }, &Counters::default()).await.unwrap();
        });
        assert!(sim.run(&mut Random::new(seed)).is_done());
        seen.insert((told.take().unwrap(), sim.memory(0).load_u64(Space::Host, AT)));
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [(false, 0), (false, 1), (true, 1)]);
}
