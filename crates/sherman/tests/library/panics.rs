//! A panic of one thread does not affect others: the process's other threads go on, and no lock stays held.

use sherman::{Cluster, Error, HandleOptions, Tree};
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The payload of the panics in these tests. The hook does not print them on stderr, where they would look
/// like failures.
struct OnPurpose;

fn quietly() {
    let told = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !panic.payload().is::<OnPurpose>() {
            told(panic);
        }
    }));
}

/// A tree with short deadlines, so that a lock that stays held gives an error instead of a long wait.
fn tree() -> Tree<u64, u64> {
    let options = sherman::ClusterOptions::new().timeout(Duration::from_secs(2));
    let cluster = Cluster::open_with("embedded:?servers=2&memory=64MiB", options).expect("a cluster");
    cluster.tree("t").expect("a tree")
}

#[test]
fn an_update_whose_closure_panics_changes_nothing_and_holds_nothing() {
    quietly();
    let tree = &tree();
    let client = tree.client().expect("a client");
    client.insert(7, 70).expect("room");
    for _ in 0..100 {
        let panicked = catch_unwind(AssertUnwindSafe(|| client.update(7, |_| panic_any(OnPurpose))));
        assert!(panicked.is_err());
        // The same thread, the same client, the same key.
        assert_eq!(
            client.update(7, |value| value.map(|value| value + 1)).map(|value| value.is_some()),
            Ok(true)
        );
    }
    let other = tree.client().expect("a client");
    assert_eq!(other.insert(7, 1), Ok(Some(170)));
    assert!(tree.check().expect("a check").is_clean());
}

#[test]
fn threads_that_panic_in_updates_leave_the_others_working() {
    quietly();
    const KEYS: u64 = 16;
    let tree = &tree();
    let (stop, added) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let survivor = || {
            let client = tree.client().expect("a client");
            let mut turn = 0;
            while !stop.load(Ordering::Relaxed) {
                client
                    .update(turn % KEYS, |value| Some(value.unwrap_or(0) + 1))
                    .expect("a panic of another thread does not end this one");
                added.fetch_add(1, Ordering::Relaxed);
                turn += 1;
            }
        };
        let survivors = [scope.spawn(survivor), scope.spawn(survivor)];
        for round in 0..50 {
            let terminated = scope.spawn(move || {
                let client = tree.client().expect("a client");
                let _ = client.update(round % KEYS, |_| panic_any(OnPurpose));
            });
            assert!(terminated.join().is_err(), "it panicked");
        }
        stop.store(true, Ordering::Relaxed);
        survivors.into_iter().for_each(|thread| thread.join().expect("it did not panic"));
    });
    let client = tree.client().expect("a client");
    let sum: u64 = client.range(..).map(|entry| entry.expect("an entry").1).sum();
    assert_eq!(
        sum,
        added.load(Ordering::Relaxed),
        "every update of a live thread counts, and none of a thread that panicked"
    );
}

#[test]
fn a_session_thread_that_panics_finishes_what_it_had_in_flight() {
    quietly();
    const IN_FLIGHT: u64 = 200;
    let tree = &tree();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Another thread competes for the same leaves, so that operations wait in the local queues.
        let fighter = scope.spawn(|| {
            let client = tree.client().expect("a client");
            let mut key = 0;
            while !stop.load(Ordering::Relaxed) {
                client.insert(key % IN_FLIGHT, 0).expect("a panic of another thread does not end this one");
                key += 7;
            }
        });
        for round in 1..=20 {
            let terminated = scope.spawn(move || {
                let session = tree.session().expect("a session");
                for key in 0..IN_FLIGHT {
                    drop(session.insert(1_000 + key, round));
                    drop(session.insert(key, round));
                }
                session.run(async { panic_any(OnPurpose) })
            });
            let panicked: Result<(), _> = terminated.join();
            assert!(panicked.is_err());
            let client = tree.client().expect("a client");
            for key in 0..IN_FLIGHT {
                assert_eq!(client.get(1_000 + key), Ok(Some(round)), "what was in flight is done");
            }
        }
        stop.store(true, Ordering::Relaxed);
        fighter.join().expect("it did not panic");
    });
    assert!(tree.check().expect("a check").is_clean());
}

#[test]
fn a_handle_survives_what_its_callers_do() {
    quietly();
    let tree = &tree();
    let handle = tree.handle_with(&HandleOptions::new().threads(2)).expect("a handle");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("a runtime");
    runtime.block_on(async {
        for round in 0..50 {
            let panicked = tokio::spawn(handle.update(round, |_| panic_any(OnPurpose))).await;
            assert!(panicked.is_err_and(|error| error.is_panic()), "the panic is its caller's");
            assert_eq!(handle.update(round, |_| Some(1)).await, Ok(None));
        }
        assert_eq!(handle.get(49).await, Ok::<_, Error>(Some(1)));
    });
}
