//! Clients, sessions and handles side by side: what they cost, and what holds while others write.

use sherman::{Client, Cluster, Error, HandleOptions, OpKind, Session, Stats, Tree};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

fn tree() -> Tree<u64, u64> {
    Cluster::open("embedded:?servers=2&memory=64MiB").expect("a cluster").tree("t").expect("a tree")
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("a runtime")
}

#[test]
fn a_client_may_be_made_here_and_used_there() {
    fn is_send<T: Send>(_: &T) {}
    let client: Client<u64, u64> = tree().client().expect("a client");
    is_send(&client);
    std::thread::spawn(move || assert_eq!(client.insert(1, 2), Ok(None))).join().expect("no panic");
}

/// Round trips of the only operation of its kind.
fn round_trips(stats: &Stats, kind: OpKind) -> Vec<(usize, u64)> {
    stats.kind(kind).round_trips().into_iter().collect()
}

#[test]
fn operations_cost_the_round_trips_they_say() {
    let tree = tree();
    let entries = (0..20_000_u64).map(|key| (2 * key, key));
    tree.bulk_load(entries, &sherman::BulkOptions::new()).expect("room");
    // Warm: the index cache knows every leaf.
    assert_eq!(tree.client().expect("a client").len(), Ok(20_000));
    let client = tree.client().expect("a client");
    client.get(1_000).expect("an answer");
    client.insert(1_001, 1).expect("room");
    client.insert(1_001, 2).expect("room");
    client.remove(1_001).expect("an answer");
    client.insert_if_absent(1_000, 1).expect("an answer");
    let _ = client.compare_exchange(1_000, Some(500), Some(501)).expect("an answer");
    client.next_after(1_000).expect("an answer");
    let stats = client.stats();
    assert_eq!(round_trips(&stats, OpKind::Get), [(1, 1)]);
    for kind in [OpKind::Insert, OpKind::Update, OpKind::Remove, OpKind::InsertIfAbsent, OpKind::CompareExchange] {
        assert_eq!(round_trips(&stats, kind), [(2, 1)], "{kind:?}");
    }
    assert_eq!(round_trips(&stats, OpKind::Range), [(1, 1)]);
    assert_eq!(stats.errors, 0);
}

#[test]
fn a_limited_range_reads_no_more_than_it_needs() {
    let tree = tree();
    tree.bulk_load((0..20_000_u64).map(|key| (key, key)), &sherman::BulkOptions::new().fill(1.0)).expect("room");
    assert_eq!(tree.client().expect("a client").len(), Ok(20_000));
    let read = |entries: usize| {
        let client = tree.client().expect("a client");
        assert_eq!(client.range(5_000..).limit(entries).count(), entries);
        client.stats().kind(OpKind::Range).bytes_read
    };
    assert!(read(1) <= 2 * 1024, "{}", read(1));
    assert!(read(40) <= 4 * 1024, "{}", read(40));
    assert!(read(1_000) >= 20 * 1024);
}

/// Adds one, however often it takes.
fn one_more(value: Option<u64>) -> Option<u64> {
    Some(value.unwrap_or(0) + 1)
}

#[test]
fn no_update_is_lost_whoever_makes_it() {
    const EACH: u64 = 400;
    let tree = tree();
    let handle = tree.handle_with(&HandleOptions::new().threads(2)).expect("a handle");
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let client = tree.client().expect("a client");
                for _ in 0..EACH {
                    client.update(7, one_more).expect("room");
                }
            });
        }
        scope.spawn(|| {
            let session: Session<u64, u64> = tree.session().expect("a session");
            let updates: Vec<_> = (0..EACH).map(|_| session.update(7, one_more)).collect();
            session.run(async {
                for update in updates {
                    update.await.expect("room");
                }
            });
        });
        scope.spawn(|| {
            runtime().block_on(async {
                let updates: Vec<_> = (0..EACH).map(|_| tokio::spawn(handle.update(7, one_more))).collect();
                for update in updates {
                    update.await.expect("no panic").expect("room");
                }
            });
        });
    });
    assert_eq!(tree.client().expect("a client").get(7), Ok(Some(4 * EACH)));
}

#[test]
fn a_range_never_misses_what_is_there_throughout() {
    const STABLE: u64 = 600;
    let tree: Tree<u64, u64> = {
        let cluster = Cluster::open("embedded:?servers=2&memory=64MiB").expect("a cluster");
        cluster.tree_with("t", &sherman::TreeOptions::new().node_bytes(256)).expect("a tree")
    };
    let client = tree.client().expect("a client");
    for key in 0..STABLE {
        client.insert(key * 10, key).expect("room");
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 1..3_u64 {
            let (tree, over) = (&tree, &over);
            scope.spawn(move || {
                // Between the stable keys entries come and go: leaves split and merge all the time.
                let client = tree.client().expect("a client");
                while !over.load(Ordering::Relaxed) {
                    let keys: Vec<u64> = (0..STABLE).map(|key| key * 10 + writer).collect();
                    let entries: Vec<_> = keys.iter().map(|&key| (key, key)).collect();
                    assert!(client.insert_many(&entries).iter().all(Result::is_ok));
                    assert!(client.remove_many(&keys).iter().all(Result::is_ok));
                }
            });
        }
        for round in 0..60 {
            let range = client.range(..).prefetch(1 + round % 8);
            let descending = round % 2 == 1;
            let range = if descending { range.descending() } else { range };
            let mut keys: Vec<u64> = range.map(|entry| entry.expect("an answer").0).collect();
            if descending {
                keys.reverse();
            }
            assert!(keys.is_sorted_by(|a, b| a < b), "in order, none twice");
            let stable: Vec<u64> = keys.into_iter().filter(|key| key.is_multiple_of(10)).collect();
            assert_eq!(stable, (0..STABLE).map(|key| key * 10).collect::<Vec<_>>());
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(client.len(), Ok(STABLE));
    assert!(tree.check().expect("a readable tree").is_clean());
}

/// Polls `future` once and drops it; what it gave, if it was ready.
async fn first_poll<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|cx| {
        Poll::Ready(match future.as_mut().poll(cx) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        })
    })
    .await
}

/// Lets the tasks of the session run.
async fn let_others_run() {
    let mut asked = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut asked, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[test]
fn a_next_that_is_dropped_loses_no_entry() {
    let tree = tree();
    let entries: Vec<(u64, u64)> = (0..500).map(|key| (key, key)).collect();
    tree.client().expect("a client").insert_many(&entries);
    let session = tree.session().expect("a session");
    let (of_session, dropped) = session
        .run(async {
            let mut range = session.range(..).prefetch(1);
            let (mut found, mut dropped) = (Vec::new(), 0);
            loop {
                // What is buffered is given by the first poll; else that only begins to read, and is dropped here.
                match first_poll(range.next()).await {
                    Some(Some(entry)) => found.push(entry?),
                    Some(None) => return Ok::<_, Error>((found, dropped)),
                    None => dropped += 1,
                }
                let_others_run().await;
            }
        })
        .expect("an answer");
    assert_eq!(of_session, entries);
    assert!(dropped > 0);
}

#[test]
fn deadlines_are_those_of_the_view() {
    let tree = tree();
    let client = tree.client().expect("a client");
    let before = client.timeout();
    {
        let quick = client.within(Duration::from_millis(7));
        assert_eq!(quick.timeout(), Duration::from_millis(7));
        assert_eq!(quick.within(Duration::from_millis(3)).timeout(), Duration::from_millis(3));
        assert_eq!(quick.timeout(), Duration::from_millis(7));
        assert_eq!(quick.insert(1, 1), Ok(None));
    }
    assert_eq!(client.timeout(), before);
    client.set_timeout(Duration::from_secs(1));
    assert_eq!(client.raw().timeout(), Duration::from_secs(1));
    let session = tree.session().expect("a session");
    assert_eq!(session.run(session.within(Duration::from_millis(7)).get(1)), Ok(Some(1)));
    assert_eq!(session.timeout(), before);
}

#[test]
fn batches_of_every_size_answer_in_order() {
    let tree = tree();
    let client = tree.client().expect("a client");
    for size in [0, 1, 63, 64, 65, 1_000] {
        let entries: Vec<(u64, u64)> = (0..size).map(|at| (at * 7_919 % 1_000, at)).collect();
        let keys: Vec<u64> = entries.iter().map(|&(key, _)| key).collect();
        let ok = |outcomes: Vec<Result<Option<u64>, Error>>| outcomes.into_iter().collect::<Result<Vec<_>, _>>();
        assert_eq!(ok(client.insert_many(&entries)), Ok(vec![None; size as usize]));
        assert_eq!(ok(client.get_many(&keys)), Ok((0..size).map(Some).collect()));
        assert_eq!(ok(client.remove_many(&keys)), Ok((0..size).map(Some).collect()));
        assert_eq!(client.is_empty(), Ok(true));
    }
}

/// Keys and values on both sides of what is kept without an allocation.
#[test]
fn keys_and_values_of_any_length_pass_through_sessions_and_handles() {
    fn is_unpin<T: Unpin>(future: T) -> T {
        future
    }
    fn pass<const K: usize, const V: usize>() {
        let cluster = Cluster::open("embedded:?memory=64MiB").expect("a cluster");
        let tree: Tree<[u8; K], [u8; V]> = cluster.tree("t").expect("a tree");
        let (session, handle) = (tree.session().expect("a session"), tree.handle().expect("a handle"));
        let (key, other) = ([1; K], [2; K]);
        session.run(async {
            assert_eq!(is_unpin(session.insert(key, [3; V])).await, Ok(None));
            assert_eq!(is_unpin(handle.insert(key, [4; V])).await, Ok(Some([3; V])));
            assert_eq!(is_unpin(session.insert_if_absent(key, [5; V])).await, Ok(Some([4; V])));
            assert_eq!(is_unpin(handle.get(key)).await, Ok(Some([4; V])));
            assert_eq!(is_unpin(session.get(other)).await, Ok(None));
            let entries = [(other, [6; V]), (key, [7; V]), (other, [8; V])];
            let before = [Ok(None), Ok(Some([4; V])), Ok(Some([6; V]))];
            assert_eq!(is_unpin(session.insert_many(&entries)).await, before);
            let now = [Ok(Some([7; V])), Ok(None), Ok(Some([8; V]))];
            assert_eq!(is_unpin(handle.get_many(&[key, [9; K], other])).await, now);
            assert_eq!(is_unpin(session.get_many(&[key, [9; K], other])).await, now);
            assert_eq!(is_unpin(handle.remove_many(&[other, other])).await, [Ok(Some([8; V])), Ok(None)]);
            assert_eq!(is_unpin(session.remove(key)).await, Ok(Some([7; V])));
            assert_eq!(is_unpin(session.is_empty()).await, Ok(true));
        });
    }
    pass::<8, 8>();
    pass::<30, 31>();
    pass::<64, 1>();
    pass::<40, 90>();
    pass::<16, 0>();
}
