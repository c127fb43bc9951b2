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
    rate_of(NicConfig { machines: 8, servers, ..NicConfig::default() }, clients, build)
}

/// The same for a world of one's own.
fn rate_of(
    config: NicConfig,
    clients: &[u16],
    build: impl Fn(&mut WorkList, u64) -> VerbId + Copy + 'static,
) -> f64 {
    let sim = NicSim::new(&config).expect("a legal world");
    let servers = config.servers;
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

/// Returns the model's parameters, changed.
fn changed(change: impl Fn(&mut Params)) -> Params {
    let mut params = Params::PAPER;
    change(&mut params);
    params
}

/// Returns the throughput of [`rate`] on a model with other parameters.
fn rate_on(
    params: Params,
    clients: &[u16],
    build: impl Fn(&mut WorkList, u64) -> VerbId + Copy + 'static,
) -> f64 {
    rate_of(NicConfig { machines: 8, servers: vec![0], params, ..NicConfig::default() }, clients, build)
}

/// Asserts that a rate is the computed one, or at most two in a hundred below it: queues are empty at the
/// beginning and at the end.
fn is_bound_by(rate: f64, computed: f64) {
    println!("{rate:.2} Mops, computed {computed:.2}");
    assert!(rate <= computed * 1.001 && rate > computed * 0.98, "{rate}, computed {computed}");
}

const SEVEN: [u16; 7] = [1, 2, 3, 4, 5, 6, 7];

#[test]
fn a_saturated_pcie_bounds_the_rate_of_reads_as_computed_by_hand() {
    let read = |list: &mut WorkList, nth: u64| list.read(Space::Host, AT + nth % 4096 * 4096, 1024);
    // 1024 bytes are four packets of 256 bytes and a header of 24 each: 1120 bytes. At 20 Gbit/s a byte takes
    // 400 ps, so a READ occupies PCIe from the host for 448 ns.
    is_bound_by(rate_on(changed(|params| params.pcie_gbps = 20), &SEVEN, read), 1e3 / 448.0);
    // Headers of 280 bytes double the time.
    let headers = changed(|params| (params.pcie_gbps, params.pcie_header_bytes) = (20, 304));
    is_bound_by(rate_on(headers, &SEVEN, read), 1e3 / 896.0);
}

#[test]
fn a_saturated_pcie_bounds_the_rate_of_writes_as_computed_by_hand() {
    // 128 bytes and a header of 24 take 608 ns at 2 Gbit/s. They are inline, so that the clients' PCIe
    // carries three blocks of 88 bytes from the host, 1,056 ns. Seven clients can send more than one server
    // receives.
    let small = rate_on(changed(|params| params.pcie_gbps = 2), &SEVEN, |list, nth| {
        list.write(Space::Host, AT + nth % 4096 * 4096, &[1; 128])
    });
    is_bound_by(small, 1e3 / 608.0);
    // One client alone is bound by its own PCIe.
    let outbound = rate_on(changed(|params| params.pcie_gbps = 2), &[1], |list, nth| {
        list.write(Space::Host, AT + nth % 4096 * 4096, &[1; 128])
    });
    is_bound_by(outbound, 1e3 / 1056.0);
}

#[test]
fn both_directions_of_pcie_and_its_machines_are_queues_of_their_own() {
    let params = changed(|params| params.pcie_gbps = 20);
    let read = |list: &mut WorkList, nth: u64| list.read(Space::Host, AT + nth % 4096 * 4096, 1024);
    let mixed = rate_on(params, &SEVEN, |list, nth| match nth % 2 {
        0 => list.read(Space::Host, AT + nth % 4096 * 4096, 1024),
        _ => list.write(Space::Host, AT + nth % 4096 * 4096, &[1; 1024]),
    });
    // WRITEs go to the host, READs come from it. Only a READ's requests, two packets of 24 bytes, share a
    // direction with WRITEs: 1120 and 48 bytes for two verbs.
    is_bound_by(mixed, 2e3 / (0.4 * 1168.0));
    let config = NicConfig { machines: 8, servers: vec![0, 1], params, ..NicConfig::default() };
    is_bound_by(rate_of(config, &[2, 3, 4, 5, 6, 7], read), 2e3 / 448.0);
}

#[test]
fn an_answer_occupies_its_sender_as_a_request_does() {
    // A client and a server on one machine: requests and answers leave by the same link.
    let params = changed(|params| params.send_message_picos = 200_000);
    let read = |list: &mut WorkList, nth: u64| list.read(Space::Host, AT + nth % 4096 * 4096, 8);
    is_bound_by(rate_on(params, &SEVEN, read), 5.0);
    is_bound_by(rate_on(params, &[0], read), 2.5);
    // Answers to atomics have an interval of their own.
    let params = changed(|params| params.atomic_answer_picos = 200_000);
    is_bound_by(rate_on(params, &SEVEN, |list, nth| list.cas(Space::OnChip, nth % 1024 * 8, 1, 1)), 5.0);
}

#[test]
fn a_list_that_waits_does_not_keep_the_link_from_others() {
    // A thread computes for a while before each READ. Its machine's answers to others do not wait for it.
    let others = |busy: bool| {
        let sim = sim(2, vec![0]);
        if busy {
            let endpoint = sim.join(0).and_then(|fabric| fabric.endpoint()).expect("an endpoint");
            let client = async move {
                for _ in 0..100 {
                    endpoint.spend(5_000);
                    let mut list = endpoint.list(0);
                    list.read(Space::OnChip, 0, 8);
                    let list = execute(&endpoint, list, &Counters::default()).await.expect("a legal list");
                    endpoint.recycle(list);
                }
            };
            drop(sim.spawn_on(0, client));
        }
        let endpoint = sim.join(1).and_then(|fabric| fabric.endpoint()).expect("an endpoint");
        let took = sim.spawn_on(endpoint.thread(), async move {
            let began = endpoint.now();
            for _ in 0..100 {
                let mut list = endpoint.list(0);
                list.read(Space::Host, AT, 64);
                let list = execute(&endpoint, list, &Counters::default()).await.expect("a legal list");
                endpoint.recycle(list);
            }
            (endpoint.now() - began) / 100
        });
        sim.run().expect("an end");
        took.take().expect("it has run")
    };
    let (alone, beside) = (others(false), others(true));
    println!("a READ takes {alone} ns alone, {beside} ns beside a thread that computes");
    assert!(beside < alone + 20);
}

#[test]
fn lists_of_one_thread_are_sent_as_posted_even_if_the_later_one_is_ready_first() {
    let sim = sim(2, vec![0]);
    let endpoint = sim.join(1).and_then(|fabric| fabric.endpoint()).expect("an endpoint");
    let seen = sim.spawn_on(endpoint.thread(), async move {
        let counters = Counters::default();
        // The NIC must fetch the first payload. It has the second list with the doorbell.
        let mut first = endpoint.list(0);
        first.write(Space::Host, AT, &[1; 60_000]);
        let mut second = endpoint.list(0);
        second.write(Space::Host, AT, &[2; 8]);
        let posted = [execute(&endpoint, first, &counters), execute(&endpoint, second, &counters)];
        for list in posted {
            endpoint.recycle(list.await.expect("a legal list"));
        }
        let mut list = endpoint.list(0);
        let read = list.read(Space::Host, AT, 16);
        let list = execute(&endpoint, list, &counters).await.expect("a legal list");
        (list.bytes(read)[0], list.bytes(read)[8])
    });
    sim.run().expect("an end");
    assert_eq!(seen.take(), Some((2, 1)));
}
