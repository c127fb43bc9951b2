//! A compute server that halts, at any unit, and does not affect the rest of the cluster.

use crate::common::{SCRATCH, ask, cluster, options, read_word, run, write};
use sherman_embedded::{Atomicity, EmbeddedCluster, EmbeddedEndpoint, EmbeddedFabric};
use sherman_executor::block_on;
use sherman_fabric::control::Verdict;
use sherman_fabric::{
    ComputeId, Counters, Endpoint, Peer, Request, Response, Space, WorkList, calls, execute,
};
use std::collections::BTreeSet;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

const SEEDS: u64 = if cfg!(miri) { 8 } else { 400 };
const LINES: u64 = 4;

/// Polls once. A list of a halted client never completes and never wakes a task.
fn is_pending(endpoint: &EmbeddedEndpoint, list: WorkList) -> bool {
    let ticket = endpoint.post(list);
    endpoint.poll(ticket, &mut Context::from_waker(Waker::noop())).is_pending()
}

/// WRITE of some lines, FAA of a word on chip, WRITE of some lines.
fn three_verbs(endpoint: &EmbeddedEndpoint) -> WorkList {
    let mut list = endpoint.list(0);
    list.write(Space::Host, SCRATCH, &[1; 64 * LINES as usize]);
    list.faa(Space::OnChip, 0, 1);
    list.write(Space::Host, SCRATCH + 1024, &[1; 64 * LINES as usize]);
    list
}

/// How many lines of each WRITE have taken effect, and whether the FAA has. Asserts that lines take effect
/// whole and in order.
fn seen(endpoint: &EmbeddedEndpoint) -> (usize, u64, usize) {
    let lines = |first: u64| {
        let mut list = endpoint.list(0);
        let read = list.read(Space::Host, first, 64 * LINES as u32);
        let list = run(endpoint, list).unwrap();
        let written: Vec<bool> = list.bytes(read).chunks(64).map(|line| line == [1; 64]).collect();
        for (line, written) in list.bytes(read).chunks(64).zip(&written) {
            assert!(*written || line == [0; 64], "a line is torn");
        }
        assert!(written.is_sorted_by_key(|written| !written), "a later line came first");
        written.iter().filter(|written| **written).count()
    };
    (lines(SCRATCH), read_word(endpoint, Space::OnChip, 0).unwrap(), lines(SCRATCH + 1024))
}

fn halted_after(seed: u64, atomicity: Atomicity) -> (usize, u64, usize) {
    let cluster = EmbeddedCluster::new(common_options(atomicity)).unwrap();
    let watcher = cluster.join().unwrap().endpoint();
    let victim = cluster.join().unwrap();
    let endpoint = victim.endpoint();
    victim.halt(seed);
    assert!(is_pending(&endpoint, three_verbs(&endpoint)));
    let after = seen(&watcher);
    // Nothing more executes, from this endpoint or from a later one.
    let late = victim.endpoint();
    for endpoint in [&endpoint, &late] {
        for server in [0, 1] {
            let mut list = endpoint.list(server);
            list.write(Space::Host, SCRATCH, &[7; 64]);
            assert!(is_pending(endpoint, list));
        }
    }
    assert_eq!(seen(&watcher), after);
    after
}

fn common_options(atomicity: Atomicity) -> sherman_embedded::EmbeddedOptions {
    sherman_embedded::EmbeddedOptions { atomicity, ..options(2) }
}

#[test]
fn the_last_list_is_cut_at_every_unit_and_nowhere_else() {
    let mut cuts = BTreeSet::new();
    for seed in 0..SEEDS {
        let (first, added, second) = halted_after(seed, Atomicity::Line);
        assert!(added == 0 || first == 4, "FAA before the WRITE before it");
        assert!(second == 0 || added == 1, "WRITE before the FAA before it");
        cuts.insert((first, added, second));
    }
    if cfg!(miri) {
        return;
    }
    let all = [
        (0, 0, 0),
        (1, 0, 0),
        (2, 0, 0),
        (3, 0, 0),
        (4, 0, 0),
        (4, 1, 0),
        (4, 1, 1),
        (4, 1, 2),
        (4, 1, 3),
        (4, 1, 4),
    ];
    assert_eq!(cuts, all.into_iter().collect());
}

#[test]
fn where_verbs_are_atomic_it_is_cut_between_them() {
    for seed in 0..SEEDS / 4 {
        let (first, _, second) = halted_after(seed, Atomicity::Verb);
        assert!([0, 4].contains(&first) && [0, 4].contains(&second));
    }
}

#[test]
fn a_halted_client_is_dead_to_the_others_and_can_be_recovered() {
    let cluster = cluster(2);
    let survivor = cluster.join().unwrap().endpoint();
    ask(&survivor, Peer::Control, calls::Activate).unwrap();
    let client = {
        let victim = cluster.join().unwrap();
        let endpoint = victim.endpoint();
        ask(&endpoint, Peer::Control, calls::Activate).unwrap();
        ask(&endpoint, Peer::Volume(1), calls::RedoArea).unwrap();
        victim.halt(1);
        let ticket = endpoint.call(Peer::Control, Request::Leave);
        assert!(endpoint.poll_call(ticket, &mut Context::from_waker(Waker::noop())).is_pending());
        victim.client()
    };
    // The victim's destructors have run, and sent nothing.
    assert_eq!(ask(&survivor, Peer::Control, calls::Condemn { client }), Ok(()));
    assert_eq!(ask(&survivor, Peer::Control, calls::Suspect { client }), Ok(Verdict::Recover));
    for request in
        [Request::Fence { client }, Request::SpansOf { client, from: 0 }, Request::Retire { client }]
    {
        for server in [1, 0] {
            assert!(matches!(
                ask(&survivor, Peer::Volume(server), request.clone()),
                Ok(Response::Done | Response::Spans(_))
            ));
        }
    }
    assert_eq!(ask(&survivor, Peer::Control, calls::FreeId { client }), Ok(()));
}

#[test]
fn a_halted_client_that_is_fenced_executes_nothing_more_though_its_last_list_is_due() {
    for seed in 0..SEEDS / 8 {
        let cluster = cluster(1);
        let survivor = cluster.join().unwrap().endpoint();
        let victim = cluster.join().unwrap();
        let endpoint = victim.endpoint();
        victim.halt(seed);
        let client = victim.client();
        assert_eq!(ask(&survivor, Peer::Volume(0), calls::Fence { client }), Ok(()));
        assert!(is_pending(&endpoint, three_verbs(&endpoint)), "a dead client gets no answer at all");
        let ticket = endpoint.call(Peer::Volume(0), Request::RedoArea);
        assert!(endpoint.poll_call(ticket, &mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(seen(&survivor), (0, 0, 0));
    }
}

#[test]
fn the_last_request_is_heard_or_not_and_never_answered() {
    let (mut heard, mut unheard) = (0, 0);
    for seed in 0..SEEDS / 4 {
        let cluster = cluster(1);
        let watcher = cluster.join().unwrap().endpoint();
        let victim = cluster.join().unwrap();
        let endpoint = victim.endpoint();
        // Only an active client is recovered.
        for member in [&watcher, &endpoint] {
            assert!(ask(member, Peer::Control, calls::Activate).is_ok());
        }
        victim.halt(seed);
        let condemn = Request::Condemn { client: victim.client() };
        let ticket = endpoint.call(Peer::Control, condemn.clone());
        assert!(endpoint.poll_call(ticket, &mut Context::from_waker(Waker::noop())).is_pending());
        let verdict = ask(&watcher, Peer::Control, calls::Suspect { client: victim.client() });
        match verdict {
            Ok(Verdict::Recover) => heard += 1,
            Ok(Verdict::Alive { .. }) => {
                unheard += 1;
                let _ = endpoint.call(Peer::Control, condemn);
                assert_eq!(
                    ask(&watcher, Peer::Control, calls::Suspect { client: victim.client() }).map(|_| ()),
                    Ok(())
                );
                assert!(is_alive(&watcher, victim.client()), "one request, not two");
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(cfg!(miri) || heard > 5 && unheard > 5, "{heard} {unheard}");
}

fn is_alive(endpoint: &EmbeddedEndpoint, client: ComputeId) -> bool {
    matches!(ask(endpoint, Peer::Control, calls::Suspect { client }), Ok(Verdict::Alive { .. }))
}

#[test]
fn others_are_not_halted() {
    let cluster = cluster(1);
    let (victim, other) = (cluster.join().unwrap(), cluster.join().unwrap());
    victim.halt(0);
    assert!(write(&other.endpoint(), Space::Host, SCRATCH, &[1]).is_ok());
}

/// Writes until the client is halted, on a thread that then sleeps permanently. Returns the thread's path
/// under `/proc`.
fn write_repeatedly(victim: &EmbeddedFabric) -> std::path::PathBuf {
    let (victim, (told, path)) = (victim.clone(), std::sync::mpsc::channel());
    std::thread::spawn(move || {
        let endpoint = victim.endpoint();
        told.send(std::fs::read_link("/proc/thread-self").unwrap_or_default()).unwrap();
        loop {
            let mut list = endpoint.list(0);
            list.write(Space::Host, SCRATCH, &[1; 1024]);
            block_on(&endpoint, execute(&endpoint, list, &Counters::default())).unwrap();
        }
    });
    std::path::Path::new("/proc").join(path.recv().unwrap())
}

#[test]
#[cfg_attr(miri, ignore = "threads that are left behind")]
fn a_fence_of_threads_that_were_halted_at_work_is_answered() {
    for seed in 0..20 {
        let cluster = cluster(1);
        let survivor = cluster.join().unwrap().endpoint();
        let victim = cluster.join().unwrap();
        write_repeatedly(&victim);
        write_repeatedly(&victim);
        while read_word(&survivor, Space::Host, SCRATCH) == Ok(0) {
            std::thread::yield_now();
        }
        victim.halt(seed);
        assert_eq!(ask(&survivor, Peer::Volume(0), calls::Fence { client: victim.client() }), Ok(()));
        write(&survivor, Space::Host, SCRATCH, &[2; 1024]).unwrap();
        for _ in 0..100 {
            assert_eq!(read_word(&survivor, Space::Host, SCRATCH), Ok(0x0202_0202_0202_0202));
        }
    }
}

#[test]
#[cfg(all(target_os = "linux", not(miri)))]
fn the_threads_of_a_halted_client_sleep() {
    let cpu_ticks = |thread: &std::path::Path| {
        let stat = std::fs::read_to_string(thread.join("stat")).unwrap();
        // The name, in parentheses, may hold any character. After it, fields 14 and 15 are user and system
        // time.
        let fields: Vec<&str> = stat[stat.rfind(')').unwrap() + 2..].split(' ').collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    let cluster = cluster(1);
    let victim = cluster.join().unwrap();
    let thread = write_repeatedly(&victim);
    std::thread::sleep(std::time::Duration::from_millis(300));
    let at_work = cpu_ticks(&thread);
    victim.halt(3);
    std::thread::sleep(std::time::Duration::from_millis(50));
    let at_rest = cpu_ticks(&thread);
    std::thread::sleep(std::time::Duration::from_millis(400));
    assert!(cpu_ticks(&thread) <= at_rest + 1, "{at_work}, {at_rest}, {}", cpu_ticks(&thread));
    assert!(at_work > 1, "it was at work before");
}

#[test]
fn a_list_that_ended_before_the_halt_still_has_its_outcome() {
    let cluster = cluster(1);
    let victim = cluster.join().unwrap();
    let endpoint = victim.endpoint();
    let done = pin!(execute(&endpoint, three_verbs(&endpoint), &Counters::default()));
    victim.halt(0);
    assert!(matches!(done.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(Ok(_))));
}
