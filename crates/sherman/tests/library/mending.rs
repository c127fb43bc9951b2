//! A compute server whose identity ends goes on under another one, and its callers see no error.

use sherman::{Cluster, ClusterOptions, Error, Event, Exchange, HandleOptions, Tree};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A survivor that fences others, and a compute server that will be fenced.
fn two() -> (Cluster, Cluster) {
    let survivor =
        Cluster::open("embedded:?servers=2&memory=64MiB&chunk=1MiB&lease=200ms").expect("a cluster");
    let other = survivor.join().expect("another");
    (survivor, other)
}

fn tree(cluster: &Cluster) -> Tree<u64, u64> {
    cluster.tree("t").expect("a tree")
}

/// Ends the present identity of `victim`.
fn fence(survivor: &Cluster, victim: &Cluster) {
    // The victim may not have noticed yet that its last identity has ended.
    wait_until("it is fenced", || survivor.fence(victim.id()).is_ok());
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(10), "still not so: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn every_operation_of_a_client_goes_on_under_another_identity() {
    let (survivor, other) = two();
    let tree = tree(&other);
    let client = tree.client().expect("a client");
    for key in 0..500 {
        client.insert(key, key).expect("room");
    }
    let rounds = Cell::new(0);
    let again = || {
        fence(&survivor, &other);
        rounds.set(rounds.get() + 1);
    };
    again();
    assert_eq!(client.get(7), Ok(Some(7)));
    again();
    assert_eq!(client.insert(7, 70), Ok(Some(7)));
    again();
    assert_eq!(client.insert(1_000, 1), Ok(None));
    again();
    assert_eq!(client.remove(1_000), Ok(Some(1)));
    again();
    assert_eq!(client.insert_if_absent(7, 71), Ok(Some(70)));
    again();
    assert_eq!(client.compare_exchange(7, Some(70), Some(7)), Ok(Exchange::Done));
    again();
    assert_eq!(client.update(7, |value| value.map(|value| value + 1)), Ok(Some(7)));
    again();
    let nested = client.update(8, |value| {
        again();
        assert_eq!(client.get(9), Ok(Some(9)));
        again();
        value
    });
    assert_eq!(nested, Ok(Some(8)));
    again();
    assert_eq!((client.first(), client.last()), (Ok(Some((0, 0))), Ok(Some((499, 499)))));
    again();
    assert_eq!(client.next_after(10), Ok(Some((11, 11))));
    again();
    assert_eq!(client.len(), Ok(500));
    again();
    assert!(client.check().expect("a check").is_clean());
    again();
    assert_eq!(client.get_many(&[1, 2, 600]), Ok(vec![Some(1), Some(2), None]));
    again();
    let entries: Vec<(u64, u64)> = (0..300).map(|key| (2_000 + key, key)).collect();
    assert_eq!(client.insert_many(&entries), Ok(vec![None; 300]));
    again();
    let keys: Vec<u64> = entries.iter().map(|(key, _)| *key).collect();
    assert_eq!(client.remove_many(&keys), Ok((0..300).map(Some).collect()));
    again();
    assert_eq!(client.clear(), Ok(500));
    let rounds = rounds.into_inner();
    assert_eq!(other.rejoins(), rounds);
    assert!(client.stats().repeated >= rounds - 2 && client.stats().errors == 0, "{:?}", client.stats());
    assert!(survivor.audit().expect("an audit").is_clean());
}

#[test]
fn what_a_cluster_does_itself_goes_on_under_another_identity() {
    let (survivor, other) = two();
    for round in 0..2 {
        let name = format!("t{round}");
        fence(&survivor, &other);
        let tree = other.tree::<u64, u64>(&name).expect("a tree");
        fence(&survivor, &other);
        let client = tree.client().expect("a client");
        client.insert(1, 1).expect("room");
        fence(&survivor, &other);
        assert_eq!(other.trees().expect("trees").len(), 1);
        fence(&survivor, &other);
        assert_eq!(other.describe(&name).expect("a tree").name, name);
        fence(&survivor, &other);
        assert!(tree.check().expect("a check").is_clean());
        fence(&survivor, &other);
        assert_eq!(other.members().expect("members").len(), 2);
        fence(&survivor, &other);
        assert!(other.audit().expect("an audit").is_clean() && other.usage().expect("usage").len() == 2);
        fence(&survivor, &other);
        other.drop_tree(&name).expect("it is dropped");
        assert!(matches!(client.get(1), Err(Error::NoSuchTree { .. })), "also under another identity");
    }
    assert_eq!(other.rejoins(), 16);
    assert!(survivor.audit().expect("an audit").is_clean());
}

#[test]
fn a_range_in_progress_misses_nothing_and_gives_nothing_twice() {
    const KEYS: u64 = 5_000;
    let (survivor, other) = two();
    let tree = tree(&other);
    tree.bulk_load((0..KEYS).map(|key| (key, key)), &sherman::BulkOptions::new()).expect("a load");
    let client = tree.client().expect("a client");
    for (descending, both) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut range = if descending { client.range(..).descending() } else { client.range(..) };
        // From both ends, the two halves are joined below.
        let mut from_back = Vec::new();
        let mut keys = Vec::new();
        while let Some(entry) = range.next() {
            keys.push(entry.expect("an entry").0);
            if both && let Some(entry) = range.next_back() {
                from_back.push(entry.expect("an entry").0);
            }
            if (keys.len() + from_back.len()) % 2_001 < 1 + usize::from(both) {
                fence(&survivor, &other);
            }
        }
        keys.extend(from_back.into_iter().rev());
        if descending {
            keys.reverse();
        }
        assert_eq!(keys, (0..KEYS).collect::<Vec<_>>());
    }
    let session = tree.session().expect("a session");
    let handle = tree.handle().expect("a handle");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let on_session = session.run(async {
        let (mut range, mut keys) = (session.range(..), Vec::new());
        while let Some(entry) = range.next().await {
            keys.push(entry.expect("an entry").0);
            if keys.len() % 2_001 == 0 {
                fence(&survivor, &other);
            }
        }
        keys
    });
    let on_handle = runtime.block_on(async {
        let (mut range, mut keys) = (handle.range(..).descending(), Vec::new());
        while let Some(entry) = range.next().await {
            keys.push(entry.expect("an entry").0);
            if keys.len() % 2_001 == 0 {
                fence(&survivor, &other);
            }
        }
        keys.reverse();
        keys
    });
    assert_eq!((on_session, on_handle), ((0..KEYS).collect(), (0..KEYS).collect()));
}

/// Fences `victim` every few milliseconds while `work` runs. Also returns how many times.
fn under_fences<T>(survivor: &Cluster, victim: &Cluster, work: impl FnOnce() -> T) -> (T, u64) {
    let (done, fences) = (AtomicBool::new(false), AtomicU64::new(0));
    let result = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(15));
                // The victim may be between two identities.
                if survivor.fence(victim.id()).is_ok() {
                    fences.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let result = work();
        done.store(true, Ordering::Relaxed);
        result
    });
    (result, fences.into_inner())
}

/// Returns the result of a write. An unknown outcome is no error here: it is counted and gives `None`.
fn settle<T>(outcome: Result<T, Error>, unknown: &AtomicU64) -> Option<T> {
    match outcome {
        Ok(value) => Some(value),
        Err(Error::OutcomeUnknown { .. }) => {
            unknown.fetch_add(1, Ordering::Relaxed);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn clients_sessions_and_handles_lose_nothing_while_their_identity_ends_again_and_again() {
    const KEYS: u64 = 20_000;
    let (survivor, other) = two();
    let tree = tree(&other);
    let unknown = AtomicU64::new(0);
    let ((), fences) = under_fences(&survivor, &other, || {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let client = tree.client().expect("a client");
                for key in 0..KEYS {
                    while settle(client.insert(key, key), &unknown).is_none() {}
                    assert_eq!(client.get(key), Ok(Some(key)));
                }
            });
            scope.spawn(|| {
                let session = tree.session().expect("a session");
                let keys: Vec<u64> = (KEYS..2 * KEYS).collect();
                for some in keys.chunks(200) {
                    let inserts: Vec<_> = some.iter().map(|key| (*key, session.insert(*key, *key))).collect();
                    session.run(async {
                        for (key, insert) in inserts {
                            if settle(insert.await, &unknown).is_none() {
                                // Inserting the same entry twice has the effect of one insert.
                                while settle(session.insert(key, key).await, &unknown).is_none() {}
                            }
                        }
                    });
                }
            });
            scope.spawn(|| {
                let handle = tree.handle_with(&HandleOptions::new().threads(2)).expect("a handle");
                let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
                runtime.block_on(async {
                    let keys: Vec<(u64, u64)> = (2 * KEYS..3 * KEYS).map(|key| (key, key)).collect();
                    for some in keys.chunks(200) {
                        let Err(failure) = handle.insert_many(some).await else { continue };
                        for (outcome, (key, value)) in failure.into_results().into_iter().zip(some) {
                            if settle(outcome, &unknown).is_none() {
                                while settle(handle.insert(key, value).await, &unknown).is_none() {}
                            }
                        }
                    }
                });
            });
        });
    });
    let unknown = unknown.into_inner();
    println!("{fences} fences, {unknown} unknown outcomes");
    assert!(fences > 2, "{fences}");
    let client = self::tree(&survivor).client().expect("a client");
    for entry in client.range(..) {
        let (key, value) = entry.expect("an entry");
        assert_eq!(key, value);
    }
    assert_eq!(client.len(), Ok(3 * KEYS));
    assert!(survivor.audit().expect("an audit").is_clean());
}

#[test]
fn a_counter_is_right_however_often_the_identity_of_its_writers_ends() {
    const TURNS: u64 = 60_000;
    let (survivor, other) = two();
    let tree = tree(&other);
    let (unknown, added) = (AtomicU64::new(0), AtomicU64::new(0));
    let ((), fences) = under_fences(&survivor, &other, || {
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let client = tree.client().expect("a client");
                    for turn in 0..TURNS {
                        let outcome = client.update(turn % 4, |value| Some(value.unwrap_or(0) + 1));
                        if settle(outcome, &unknown).is_some() {
                            added.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
    });
    let (unknown, added) = (unknown.into_inner(), added.into_inner());
    println!("{fences} fences, {unknown} unknown outcomes");
    assert!(fences > 2, "{fences}");
    let client = self::tree(&survivor).client().expect("a client");
    let sum: u64 = client.range(..).map(|entry| entry.expect("an entry").1).sum();
    // No acknowledged change is lost, and no change happens twice.
    assert!(sum >= added && sum <= added + unknown, "{sum} of {added} and {unknown}");
    assert_eq!(added + unknown, 2 * TURNS);
}

/// Inserts `parts` times `many` keys from `first` on, with `many` in flight at once, until the identity ends.
/// Returns the outcome of each.
fn insert_many_at_once(
    terminated: &Tree<u64, u64>,
    first: u64,
    parts: u64,
    many: u64,
) -> Vec<(u64, Result<(), Error>)> {
    let session = terminated.session().expect("a session");
    let mut outcomes = Vec::new();
    for part in 0..parts {
        let keys = (0..many).map(|key| first + part * many + key);
        let inserts: Vec<_> = keys.map(|key| (key, session.insert(key, key))).collect();
        session.run(async {
            for (key, insert) in inserts {
                outcomes.push((key, insert.await.map(drop)));
            }
        });
        if outcomes.last().is_some_and(|(_, outcome)| outcome.is_err()) {
            break;
        }
    }
    outcomes
}

/// Checks that acknowledged inserts are in the tree, and that inserts reported as not done are not. Returns
/// how many were reported as not done, and how many have an unknown outcome.
fn compare(survivor: &Cluster, outcomes: &[(u64, Result<(), Error>)]) -> (u64, u64) {
    let client = tree(survivor).client().expect("a client");
    let (mut certain, mut unknown) = (0, 0);
    for (key, outcome) in outcomes {
        let found = client.get(*key).expect("an answer");
        match outcome {
            Ok(()) => assert_eq!(found, Some(*key), "acknowledged"),
            Err(Error::OutcomeUnknown { .. }) => unknown += 1,
            Err(error) => {
                assert_eq!(found, None, "said not to have happened: {error}");
                certain += 1;
            }
        }
    }
    (certain, unknown)
}

#[test]
fn nothing_that_says_it_did_not_happen_happened() {
    let survivor =
        Cluster::open("embedded:?servers=2&memory=64MiB&chunk=1MiB&lease=200ms").expect("a cluster");
    tree(&survivor);
    let mut certain = 0;
    for round in 0..20_u64 {
        let terminated = survivor.join_with(ClusterOptions::new().rejoin(false)).expect("another");
        let theirs = tree(&terminated);
        let outcomes = std::thread::scope(|scope| {
            let fencer = scope.spawn(|| {
                wait_until("it writes", || {
                    tree(&survivor)
                        .client()
                        .is_ok_and(|client| client.contains_key(round * 1_000_000) == Ok(true))
                });
                std::thread::sleep(Duration::from_millis(round / 4));
                fence(&survivor, &terminated);
            });
            let outcomes = insert_many_at_once(&theirs, round * 1_000_000, 4_000, 200);
            fencer.join().expect("no panic");
            outcomes
        });
        certain += compare(&survivor, &outcomes).0;
    }
    assert!(certain > 100, "{certain}");
}

/// Thousands of operations are in flight when the connection to one server breaks. Only those whose change
/// was in flight have an unknown outcome.
#[cfg(target_os = "linux")]
#[test]
fn nothing_that_says_it_did_not_happen_happened_behind_a_connection_that_broke()
-> Result<(), sherman_conformance::trees::Failure> {
    use crate::identity::{Tunnel, address};
    use crate::network::{Servers, Transport};
    const MANY: u64 = 4_095;
    let servers = Servers::start(Transport::Tcp, 2)?;
    let survivor = Cluster::open(&servers.url)?;
    // The odd keys are in the tree, so that most even keys have their own leaf and lock.
    let even = |round: u64, key: u64| 2 * (round * MANY + key * 7_919 % MANY);
    tree(&survivor).bulk_load((0..4 * MANY).map(|key| (2 * key + 1, key)), &sherman::BulkOptions::new())?;
    let (mut certain, mut unknown) = (0, 0);
    for round in 0..4_u64 {
        let server = (round % 2) as usize;
        let tunnel = Tunnel::to(address(&servers, server))?;
        let url = servers.url.replace(&address(&servers, server), &tunnel.address);
        let terminated = Cluster::open_with(&url, ClusterOptions::new().rejoin(false))?;
        let theirs = tree(&terminated);
        let session = theirs.session()?;
        let keys: Vec<u64> = (0..MANY).map(|key| even(round, key)).collect();
        let inserts: Vec<_> = keys.iter().map(|key| session.insert(*key, *key)).collect();
        let done = AtomicU64::new(0);
        let outcomes: Vec<(u64, Result<(), Error>)> = std::thread::scope(|scope| {
            scope.spawn(|| {
                // Some inserts are done, so the others are in every possible state.
                wait_until("some are done", || done.load(Ordering::Relaxed) > 100 * (round + 1));
                tunnel.cut();
            });
            session.run(async {
                let mut outcomes = Vec::new();
                for (key, insert) in keys.iter().zip(inserts) {
                    outcomes.push((*key, insert.await.map(drop)));
                    done.fetch_add(1, Ordering::Relaxed);
                }
                outcomes
            })
        });
        drop((session, theirs, terminated));
        let (some, more) = compare(&survivor, &outcomes);
        println!("round {round}: {} done, {some} did not happen, {more} unknown", MANY - some - more);
        (certain, unknown) = (certain + some, unknown + more);
    }
    assert!(certain > 0, "{certain} did not happen, {unknown} unknown");
    Ok(())
}

#[test]
fn an_idle_cluster_joins_again_and_tells_so() {
    let survivor = Cluster::open("embedded:?memory=64MiB&lease=200ms").expect("a cluster");
    let events: Arc<Mutex<Vec<Event>>> = Arc::default();
    let told = Arc::clone(&events);
    let options = ClusterOptions::new().on_event(move |event| {
        told.lock().expect("whole").push(event.clone());
        // A panic of the listener does no harm: the listener also gets the next event.
        std::panic::resume_unwind(Box::new("on purpose"));
    });
    let idle = survivor.join_with(options).expect("another");
    let former = idle.id();
    fence(&survivor, &idle);
    wait_until("it has joined again", || idle.rejoins() == 1 && !idle.is_fenced());
    assert_ne!(idle.id(), former);
    wait_until("it has reported the end", || events.lock().expect("whole").len() == 2);
    let seen = events.lock().expect("whole").clone();
    assert!(
        matches!(
            (&seen[0], &seen[1]),
            (Event::IdentityEnded { client, .. }, Event::Rejoined { client: next, attempts: 1, .. })
                if *client == former && *next == idle.id()
        ),
        "{seen:?}"
    );
    let text = idle.metrics();
    assert!(text.contains("sherman_client_rejoins_total 1\n"), "{text}");
    let ids: Vec<_> = survivor.members().expect("members").into_iter().map(|member| member.id).collect();
    assert_eq!(ids, [survivor.id(), idle.id()]);
}

#[test]
fn a_bulk_load_that_is_interrupted_says_so_and_may_be_started_again() {
    let (survivor, other) = two();
    let tree = tree(&other);
    let fenced = Cell::new(false);
    let entries = || {
        (0..20_000_u64).map(|key| {
            if key == 10_000 && !fenced.replace(true) {
                fence(&survivor, &other);
            }
            (key, key)
        })
    };
    let options = sherman::BulkOptions::new();
    assert_eq!(tree.bulk_load(entries(), &options), Err(Error::LoadInterrupted));
    assert_eq!(tree.bulk_load(entries(), &options), Ok(20_000));
    assert_eq!(tree.client().expect("a client").len(), Ok(20_000));
    wait_until("what the first load left is recovered", || {
        survivor.audit().is_ok_and(|audit| audit.is_clean())
    });
}

#[test]
fn dropping_the_last_handle_between_two_identities_does_not_hang() {
    let survivor = Cluster::open("embedded:?memory=64MiB&lease=200ms").expect("a cluster");
    let began = Instant::now();
    for _ in 0..50 {
        let other = survivor.join().expect("another");
        let client = tree(&other).client().expect("a client");
        survivor.fence(other.id()).expect("it is fenced");
        let _ = client.get(1);
        survivor.fence(other.id()).expect("it is fenced");
    }
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    wait_until("all are gone", || survivor.members().is_ok_and(|members| members.len() == 1));
}
