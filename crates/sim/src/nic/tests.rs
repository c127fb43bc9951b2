//! The isolated measurements of the paper, and consequences of the model's rules.

use super::*;
use sherman_fabric::{Clock, Counters, Endpoint, Fabric, Space, VerbId, WorkList, execute};

fn sim(machines: u16, servers: Vec<u16>) -> NicSim {
    let config = NicConfig { machines, servers, ..NicConfig::default() };
    NicSim::new(&config).expect("a legal world")
}

/// Returns the duration of one list in nanoseconds, with no other traffic.
fn alone(build: impl Fn(&mut WorkList) -> VerbId + 'static) -> u64 {
    let sim = sim(2, vec![0]);
    let endpoint = sim.join(1).and_then(|fabric| fabric.endpoint()).expect("an endpoint");
    let took = sim.spawn_on(endpoint.thread(), async move {
        let mut list = endpoint.list(0);
        let _ = build(&mut list);
        let began = endpoint.now();
        execute(&endpoint, list, &Counters::default()).await.expect("a legal list");
        endpoint.now() - began
    });
    sim.run().expect("an end");
    took.take().expect("it has run")
}

const AT: u64 = 1 << 30;

#[test]
fn a_round_trip_takes_less_than_two_microseconds() {
    for (name, nanos) in [
        ("READ of 8 B", alone(|list| list.read(Space::Host, AT, 8))),
        ("READ of 1 KB", alone(|list| list.read(Space::Host, AT, 1024))),
        ("WRITE of 17 B", alone(|list| list.write(Space::Host, AT, &[1; 17]))),
        ("WRITE of 1 KB", alone(|list| list.write(Space::Host, AT, &[1; 1024]))),
        ("CAS in host memory", alone(|list| list.cas(Space::Host, AT, 0, 1))),
        ("CAS on chip", alone(|list| list.cas(Space::OnChip, 0, 0, 1))),
    ] {
        println!("{name}: {nanos} ns");
        assert!((1_000..2_050).contains(&nanos), "{name}: {nanos} ns");
    }
}

/// Returns the throughput in millions of lists per second. `clients` names the machine of each client. Each
/// client has 64 threads, with one list in flight per thread.
fn rate(
    clients: &[u16],
    servers: Vec<u16>,
    build: impl Fn(&mut WorkList, u64) -> VerbId + Copy + 'static,
) -> f64 {
    let sim = sim(8, servers.clone());
    let each = 400;
    let mut total = 0;
    for (number, &machine) in clients.iter().enumerate() {
        let fabric = sim.join(machine).expect("a member");
        for thread in 0..64 {
            let endpoint = fabric.endpoint().expect("an endpoint");
            let servers = servers.len() as u64;
            total += each;
            let number_of_thread = endpoint.thread();
            let client = async move {
                for nth in 0..each {
                    let mixed = (number as u64 * 64 + thread) * each + nth;
                    let mut list = endpoint.list((mixed % servers) as u16);
                    let _ = build(&mut list, mixed);
                    let list = execute(&endpoint, list, &Counters::default()).await.expect("a legal list");
                    endpoint.recycle(list);
                }
            };
            drop(sim.spawn_on(number_of_thread, client));
        }
    }
    sim.run().expect("an end");
    total as f64 * 1e3 / sim.now() as f64
}

#[test]
fn small_writes_reach_fifty_million_a_second_and_large_ones_the_bandwidth() {
    for (bytes, least, most) in
        [(16_usize, 50.0, 75.0), (128, 50.0, 75.0), (256, 33.0, 43.0), (1024, 10.0, 12.2)]
    {
        let inbound = rate(&[1, 2, 3, 4, 5, 6, 7], vec![0], move |list, nth| {
            list.write(Space::Host, AT + nth % 4096 * 4096, &[1; 1024][..bytes])
        });
        println!("inbound {bytes} B: {inbound:.1} Mops");
        assert!((least..most).contains(&inbound), "inbound {bytes} B: {inbound}");
    }
}

#[test]
fn atomics_on_chip_reach_110_million_a_second_and_those_on_one_word_far_fewer() {
    let spread = rate(&[1, 2, 3, 4, 5, 6, 7], vec![0], |list, nth| {
        list.cas(Space::OnChip, nth.wrapping_mul(0x9e37_79b9) % 32_768 * 8, 1, 1)
    });
    println!("on chip: {spread:.1} Mops");
    assert!((85.0..115.0).contains(&spread), "{spread}");
    let one = rate(&[1, 2, 3], vec![0], |list, _| list.cas(Space::OnChip, 0, 1, 1));
    println!("on one word: {one:.1} Mops");
    assert!(one < 18.0, "{one}");
    let host = rate(&[1, 2, 3], vec![0], |list, _| list.cas(Space::Host, AT, 1, 1));
    println!("on one word in host memory: {host:.1} Mops");
    assert!((1.5..6.0).contains(&host), "{host}");
}

#[test]
fn a_client_that_waits_for_a_bucket_delays_all_others() {
    let reads = |atomics: bool| {
        let sim = sim(8, vec![0]);
        for machine in 1..7 {
            let fabric = sim.join(machine).expect("a member");
            for _ in 0..if atomics { 22 } else { 0 } {
                let endpoint = fabric.endpoint().expect("an endpoint");
                let thread = endpoint.thread();
                let client = async move {
                    for _ in 0..200 {
                        let mut list = endpoint.list(0);
                        list.cas(Space::Host, AT, 1, 1);
                        let list =
                            execute(&endpoint, list, &Counters::default()).await.expect("a legal list");
                        endpoint.recycle(list);
                    }
                };
                drop(sim.spawn_on(thread, client));
            }
        }
        let endpoint = sim.join(7).and_then(|fabric| fabric.endpoint()).expect("an endpoint");
        let took = sim.spawn_on(endpoint.thread(), async move {
            let began = endpoint.now();
            for _ in 0..20 {
                let mut list = endpoint.list(0);
                list.read(Space::Host, 2 * AT, 64);
                let list = execute(&endpoint, list, &Counters::default()).await.expect("a legal list");
                endpoint.recycle(list);
            }
            (endpoint.now() - began) / 20
        });
        sim.run().expect("an end");
        took.take().expect("it has run")
    };
    let (alone, beside) = (reads(false), reads(true));
    println!("a READ takes {alone} ns alone, {beside} ns beside 132 clients on one word");
    assert!(beside > 10 * alone);
}

#[test]
fn a_list_takes_effect_in_order_and_lists_of_one_thread_too() {
    let sim = sim(2, vec![0]);
    let endpoint = sim.join(1).and_then(|fabric| fabric.endpoint()).expect("an endpoint");
    let seen = sim.spawn_on(endpoint.thread(), async move {
        let counters = Counters::default();
        let mut first = endpoint.list(0);
        first.write(Space::Host, AT, &[7; 2048]);
        first.cas(Space::Host, AT + 4096, 0, 5);
        let read = first.read(Space::Host, AT + 4096, 8);
        let mut second = endpoint.list(0);
        let again = second.read(Space::Host, AT, 8);
        let posted = execute(&endpoint, first, &counters);
        let after = execute(&endpoint, second, &counters).await.expect("a legal list");
        let first = posted.await.expect("a legal list");
        (first.bytes(read)[0], after.bytes(again)[0])
    });
    sim.run().expect("an end");
    assert_eq!(seen.take(), Some((5, 7)));
}

#[test]
fn what_cannot_be_executed_is_refused_and_changes_nothing() {
    let sim = sim(2, vec![0]);
    let endpoint = sim.join(1).and_then(|fabric| fabric.endpoint()).expect("an endpoint");
    let refused = sim.spawn_on(endpoint.thread(), async move {
        let mut list = endpoint.list(0);
        list.write(Space::Host, AT, &[1]);
        list.read(Space::Host, u64::MAX, 8);
        let first = execute(&endpoint, list, &Counters::default()).await.is_err();
        let nobody = execute(&endpoint, endpoint.list(9), &Counters::default()).await.is_err();
        let mut list = endpoint.list(0);
        let read = list.read(Space::Host, AT, 1);
        let list = execute(&endpoint, list, &Counters::default()).await.expect("a legal list");
        (first, nobody, list.bytes(read)[0])
    });
    sim.run().expect("an end");
    assert_eq!(refused.take(), Some((true, true, 0)));
}

#[test]
fn a_task_that_waits_for_nothing_is_reported() {
    let sim = sim(2, vec![0]);
    let endpoint = sim.join(1).and_then(|fabric| fabric.endpoint()).expect("an endpoint");
    drop(sim.spawn_on(endpoint.thread(), std::future::pending::<()>()));
    assert_eq!(sim.run(), Err(Stuck { waiting: 1 }));
}

#[test]
fn every_parameter_is_in_the_table_once() {
    let json = |params: &Params| format!("{params:?}");
    let mut seen = std::collections::BTreeSet::new();
    for (name, field) in Params::FIELDS {
        let mut changed = Params::PAPER;
        *field(&mut changed) += 1;
        let expected = format!("{name}: {}", *field(&mut changed));
        assert!(json(&changed).contains(&expected) && seen.insert(name), "{name}");
    }
    assert_eq!(seen.len(), json(&Params::PAPER).matches(": ").count());
}
