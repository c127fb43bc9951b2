//! Lists that execute inside `post`, as on memory that a process maps.

use sherman_fabric::{
    Counters, Endpoint, Fabric, GlobalAddress, Memory, Space, Ticket, VerbId, WorkList, execute,
};
use sherman_sim::{Fault, Inline, Random, Sim, SimConfig, SimEndpoint};
use std::cell::Cell;
use std::rc::Rc;

const AT: u64 = 0x8000;

fn sim(inline: Inline) -> Sim {
    Sim::new(&SimConfig { host_bytes: 64 << 10, inline, ..SimConfig::default() }).unwrap()
}

/// A list with nine effects, in any order on a queue pair and in this order inside `post`.
fn list(endpoint: &SimEndpoint) -> (WorkList, VerbId) {
    let mut list = endpoint.list(0);
    list.faa(Space::Host, AT, 1);
    list.write(Space::Host, AT + 64, &[1; 256]);
    list.write(Space::Host, AT + 512, &[2; 64]);
    let read = list.read(Space::Host, AT, 192);
    (list, read)
}

fn byte(sim: &Sim, offset: u64) -> u8 {
    sim.memory(0).load_u64(Space::Host, offset) as u8
}

#[test]
fn a_list_executes_inside_post_and_no_earlier_list_of_another_client_does() {
    let mut sim = sim(Inline::Some);
    // The first is no inline client, the second is.
    let (other, own) = (sim.join().unwrap(), sim.join().unwrap());
    let (slow, fast) = (other.endpoint().unwrap(), own.endpoint().unwrap());
    assert!(!slow.executes_inline() && fast.executes_inline());
    let posted = Rc::new(Cell::new(false));
    let told = Rc::clone(&posted);
    sim.spawn_on(&other, 0, "other", async move {
        let mut late = slow.list(0);
        late.write(Space::Host, AT + 64, &[9; 8]);
        let ticket = slow.post_now(late).expect_err("its lists do not execute inside post");
        told.set(true);
        std::future::poll_fn(|cx| slow.poll(ticket, cx)).await.unwrap();
    });
    sim.spawn_on(&own, 0, "own", async move {
        let mut seen = [0; 8];
        while !posted.get() {
            sherman_fabric::yield_now().await;
        }
        assert!(fast.read_now(GlobalAddress::new(0, AT + 64), &mut seen));
        let (list, read) = list(&fast);
        let done = fast.post_now(list).expect("it executes at once");
        let read = done.bytes(read).to_vec();
        assert_eq!((read[0], read[64], read[191]), (1, 1, 1), "a READ sees the WRITEs before it");
        fast.recycle(done);
    });
    assert!(sim.run(&mut Random::new(7)).is_done());
}

#[test]
fn a_client_dies_inside_a_list_after_each_of_its_effects() {
    let mut sim = sim(Inline::Everybody);
    for last in 1..=9 {
        sim.rewind();
        let fabric = sim.join().unwrap();
        let endpoint = fabric.endpoint().unwrap();
        let went_on = Rc::new(Cell::new(false));
        let told = Rc::clone(&went_on);
        sim.spawn_on(&fabric, 0, "victim", async move {
            match endpoint.post_now(list(&endpoint).0) {
                Ok(list) => endpoint.recycle(list),
                Err(ticket) => drop(std::future::poll_fn(|cx| endpoint.poll(ticket, cx)).await),
            }
            told.set(true);
        });
        sim.kill_after(fabric.number(), last);
        assert!(sim.run(&mut Random::new(last)).is_done());
        assert!(sim.is_dead(fabric.number()) && !went_on.get(), "it died after effect {last}");
        assert_eq!(sim.effects(fabric.number()), last);
        let lines: Vec<u8> = (0..4).map(|line| byte(&sim, AT + 64 + 64 * line)).collect();
        let landed = last.saturating_sub(1).min(4) as usize;
        assert_eq!(lines, [[1; 4], [0; 4]].concat()[4 - landed..8 - landed], "in order: {lines:?}");
        assert_eq!((byte(&sim, AT), byte(&sim, AT + 512)), (1, if last > 5 { 2 } else { 0 }));
    }
}

#[test]
fn a_list_that_fails_comes_back_as_a_ticket() {
    let mut sim = sim(Inline::Everybody);
    let fabric = sim.join().unwrap();
    let endpoint = fabric.endpoint().unwrap();
    let refused: Ticket = {
        let mut bad = endpoint.list(0);
        bad.write(Space::Host, AT, &[3; 8]);
        bad.read(Space::Host, 1 << 40, 8);
        bad.write(Space::Host, AT + 8, &[3; 8]);
        endpoint.post_now(bad).expect_err("a READ of what is not there")
    };
    assert!(sim.block_on(std::future::poll_fn(|cx| endpoint.poll(refused, cx))).unwrap().is_err());
    assert_eq!((byte(&sim, AT), byte(&sim, AT + 8)), (3, 0), "the verbs before the bad one took effect");
    sim.strike(Fault::CutOff { compute_server: fabric.number(), server: 0 });
    let ticket = endpoint.post_now(list(&endpoint).0).expect_err("the connection is gone");
    assert!(sim.block_on(std::future::poll_fn(|cx| endpoint.poll(ticket, cx))).unwrap().is_err());
    assert!(!endpoint.read_now(GlobalAddress::new(0, AT), &mut [0; 8]));
    assert!(sim.block_on(execute(&endpoint, list(&endpoint).0, &Counters::default())).unwrap().is_err());
}
