//! Clients, sessions and handles side by side: their cost, and their guarantees while others write.

use sherman::{Client, Cluster, Error, HandleOptions, OpKind, Session, ShortBytes, Stats, Tree};
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

/// Round trips of the operations of this kind, with their counts.
fn round_trips(stats: &Stats, kind: OpKind) -> Vec<(usize, u64)> {
    stats.kind(kind).round_trips().into_iter().collect()
}

#[test]
fn operations_cost_the_round_trips_they_say() {
    let tree = tree();
    let entries = (0..20_000_u64).map(|key| (2 * key, key));
    tree.bulk_load(entries, &sherman::BulkOptions::new()).expect("room");
    // Warms the index cache, which then knows every leaf.
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
    for kind in
        [OpKind::Insert, OpKind::Update, OpKind::Remove, OpKind::InsertIfAbsent, OpKind::CompareExchange]
    {
        assert_eq!(round_trips(&stats, kind), [(2, 1)], "{kind:?}");
    }
    assert_eq!(round_trips(&stats, OpKind::Range), [(1, 1)]);
    assert_eq!(stats.errors, 0);
}

#[test]
fn a_limited_range_reads_no_more_than_it_needs() {
    let tree = tree();
    tree.bulk_load((0..20_000_u64).map(|key| (key, key)), &sherman::BulkOptions::new().fill(1.0))
        .expect("room");
    assert_eq!(tree.client().expect("a client").len(), Ok(20_000));
    let read = |entries: usize| {
        let client = tree.client().expect("a client");
        assert_eq!(client.range(5_000..).limit(entries).count(), entries);
        client.stats().kind(OpKind::Range).bytes_read
    };
    assert!(read(1) <= 2 * 1024, "{}", read(1));
    assert!(read(40) <= 4 * 1024, "{}", read(40));
    assert!(read(1_000) >= 16 * 1024);
}

/// Adds one. It may run several times.
fn one_more(value: Option<u64>) -> Option<u64> {
    Some(value.unwrap_or(0) + 1)
}

#[test]
fn no_update_of_any_caller_is_lost() {
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
                // Inserts and removes entries between the stable keys, so that leaves split and merge all the
                // time.
                let client = tree.client().expect("a client");
                while !over.load(Ordering::Relaxed) {
                    let keys: Vec<u64> = (0..STABLE).map(|key| key * 10 + writer).collect();
                    let entries: Vec<_> = keys.iter().map(|&key| (key, key)).collect();
                    client.insert_many(&entries).expect("room");
                    client.remove_many(&keys).expect("an answer");
                }
            });
        }
        for round in 0..60 {
            let mut range = client.range(..).prefetch(1 + round % 8);
            let key = |entry: Result<(u64, u64), Error>| entry.expect("an answer").0;
            let mut keys: Vec<u64> = match round % 3 {
                0 => range.map(key).collect(),
                1 => range.rev().map(key).collect(),
                _ => {
                    // From both ends in turn, at another ratio in each round.
                    let mut low = Vec::new();
                    let mut high = Vec::new();
                    while let Some(entry) = range.next() {
                        low.push(key(entry));
                        high.extend(range.by_ref().rev().take(round % 7).map(key));
                    }
                    low.extend(high.into_iter().rev());
                    low
                }
            };
            if round % 3 == 1 {
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

#[test]
fn a_range_may_be_taken_from_both_ends() {
    let tree = tree();
    let entries: Vec<(u64, u64)> = (0..2_000).map(|key| (3 * key, key)).collect();
    tree.bulk_load(entries.iter().copied(), &sherman::BulkOptions::new()).expect("room");
    let client = tree.client().expect("a client");
    let key = |entry: Result<(u64, u64), Error>| entry.expect("an entry").0;
    let backwards: Vec<u64> = client.range(30..=90).rev().map(key).collect();
    assert_eq!(backwards, (10..=30).rev().map(|at| 3 * at).collect::<Vec<_>>());
    // One end takes `front` entries for every `back` entries of the other end.
    for (front, back) in [(1, 1), (7, 1), (1, 40), (0, 3), (600, 1), (2_000, 1), (1, 2_000)] {
        for range in [client.range(..), client.range(..).descending(), client.range(..).prefetch(32)] {
            let mut range = range;
            let (mut low, mut high) = (Vec::new(), Vec::new());
            loop {
                let before = low.len() + high.len();
                low.extend(range.by_ref().take(front).map(key));
                high.extend(range.by_ref().rev().take(back).map(key));
                if low.len() + high.len() == before {
                    break;
                }
            }
            assert_eq!((range.next(), range.next_back()), (None, None), "it is over for both ends");
            low.extend(high.into_iter().rev());
            if low.first() > low.last() {
                low.reverse();
            }
            assert!(low.iter().copied().eq(entries.iter().map(|entry| entry.0)), "{front} and {back}");
        }
    }
    let mut few = client.range(..).limit(3);
    assert_eq!((few.next().map(key), few.next_back().map(key)), (Some(0), Some(5_997)));
    assert_eq!((few.next_back().map(key), few.next(), few.next_back()), (Some(5_994), None, None));
    // Both ends share a limit, however often each of them reads.
    for limit in [0, 1, 40, 400, 1_999, 2_000, 3_000] {
        for (front, back) in [(1, 1), (100, 7), (3, 300), (0, 9), (400, 1), (3_000, 1)] {
            let mut range = client.range(..).limit(limit);
            let (mut low, mut high) = (0, 0);
            loop {
                let before = low + high;
                for entry in range.by_ref().take(front) {
                    assert_eq!(key(entry), entries[low].0);
                    low += 1;
                }
                for entry in range.by_ref().rev().take(back) {
                    high += 1;
                    assert_eq!(key(entry), entries[entries.len() - high].0);
                }
                if low + high == before {
                    break;
                }
            }
            assert_eq!(low + high, limit.min(entries.len()), "{front} and {back} of {limit}");
        }
    }
    let session = tree.session().expect("a session");
    session.run(async {
        let mut range = session.range(..=9);
        assert_eq!(range.next_back().await, Some(Ok((9, 3))));
        assert_eq!(range.next().await, Some(Ok((0, 0))));
        assert_eq!(range.next_back().await, Some(Ok((6, 2))));
        assert_eq!(range.next_back().await, Some(Ok((3, 1))));
        assert_eq!((range.next_back().await, range.next().await), (None, None));
    });
}

#[test]
fn a_prefix_selects_the_keys_that_begin_with_it() {
    type Name = ShortBytes<8>;
    let name = |text: &[u8]| Name::new(text).expect("short enough");
    let cluster = Cluster::open("embedded:?memory=64MiB").expect("a cluster");
    let tree: Tree<Name, u8> = cluster.tree("names").expect("a tree");
    let client = tree.client().expect("a client");
    let names: [&[u8]; 9] =
        [b"", b"user", b"user\0", b"user:", b"user:ada", b"user:bob", b"user;", b"\xff", b"\xff\xffxxxxxx"];
    for (text, number) in names.iter().zip(0_u8..) {
        client.insert(name(text), number).expect("room");
    }
    let (session, handle) = (tree.session().expect("a session"), tree.handle().expect("a handle"));
    for prefix in
        [&b""[..], b"user", b"user\0", b"user:", b"user:a", b"v", b"\xff", b"\xff\xff", b"user:bobby"]
    {
        let expected: Vec<Name> =
            names.iter().filter(|text| text.starts_with(prefix)).map(|text| name(text)).collect();
        let found: Vec<Name> = client.prefix(prefix).map(|entry| entry.expect("an entry").0).collect();
        assert_eq!(found, expected, "{prefix:?}");
        session.run(async {
            let (mut of_session, mut of_handle) =
                (session.prefix(prefix), handle.prefix(prefix).descending());
            for name in &expected {
                assert_eq!(of_session.next().await.map(|entry| entry.expect("an entry").0), Some(*name));
                assert_eq!(of_handle.next_back().await.map(|entry| entry.expect("an entry").0), Some(*name));
            }
            assert_eq!((of_session.next().await, of_handle.next().await), (None, None));
        });
    }
    assert_eq!(client.prefix("user:").next_back(), Some(Ok((name(b"user:bob"), 5))));
    let raw = cluster.raw_tree("raw", &sherman::TreeOptions::new().sizes(3, 1)).expect("a tree");
    let raw = raw.client().expect("a client");
    raw.insert_many(&[("abc", [1]), ("abd", [2]), ("b\0\0", [3])]).expect("room");
    assert_eq!(raw.prefix("ab").count(), 2);
    assert_eq!(raw.prefix("b").next(), Some(Ok((b"b\0\0".to_vec(), vec![3]))));
    assert_eq!(raw.prefix("abcd").next(), None, "no key is that long");
}

#[test]
fn operations_of_sessions_and_handles_start_with_the_call() {
    let tree = tree();
    let client = tree.client().expect("a client");
    let session = tree.session().expect("a session");
    // Nobody polls these futures.
    let (kept, dropped) = (session.insert(1, 1), session.insert(2, 2));
    drop(dropped);
    assert_eq!(session.in_flight(), 2);
    session.drain();
    assert_eq!((client.get(1), client.get(2)), (Ok(Some(1)), Ok(Some(2))));
    assert_eq!(session.run(kept), Ok(None));
    let handle = tree.handle().expect("a handle");
    let (kept, dropped) = (handle.insert(3, 3), handle.insert(4, 4));
    drop(dropped);
    drop(handle);
    assert_eq!((client.get(3), client.get(4)), (Ok(Some(3)), Ok(Some(4))));
    assert_eq!(runtime().block_on(kept), Ok(None));
}

#[test]
#[expect(clippy::needless_borrows_for_generic_args, reason = "that is the point")]
fn keys_and_values_are_taken_by_value_or_reference() {
    let tree = tree();
    let client = tree.client().expect("a client");
    let (key, value) = (7, 70);
    assert_eq!(client.insert(key, value), Ok(None));
    assert_eq!(client.insert(&key, &value), Ok(Some(70)));
    assert_eq!(
        (client.get(7), client.get(&7), client.contains_key(&key)),
        (Ok(Some(70)), Ok(Some(70)), Ok(true))
    );
    assert_eq!(client.get_many(&[&key]), Ok(vec![Some(70)]));
    assert_eq!(client.range(&key..).next(), Some(Ok((7, 70))));
    let session = tree.session().expect("a session");
    let get = {
        let short_lived = 7;
        session.get(&short_lived)
    };
    assert_eq!(session.run(get), Ok(Some(70)), "the future does not borrow the key");
}

/// Polls `future` once and drops it. Returns its output if it was ready.
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
    tree.client().expect("a client").insert_many(&entries).expect("room");
    let session = tree.session().expect("a session");
    let (of_session, dropped) = session
        .run(async {
            let mut range = session.range(..).prefetch(1);
            let (mut found, mut dropped) = (Vec::new(), 0);
            loop {
                // The first poll returns a buffered entry. Otherwise it only begins to read, and the future
                // is dropped here.
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
    assert_eq!(client.into_raw().timeout(), Duration::from_secs(1));
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
        assert_eq!(client.insert_many(&entries), Ok(vec![None; size as usize]));
        assert_eq!(client.get_many(&keys), Ok((0..size).map(Some).collect()));
        assert_eq!(client.remove_many(&keys), Ok((0..size).map(Some).collect()));
        assert_eq!(client.is_empty(), Ok(true));
    }
}

/// Keys and values on both sides of the size limit for storage without an allocation.
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
            let before = Ok(vec![None, Some([4; V]), Some([6; V])]);
            assert_eq!(is_unpin(session.insert_many(&entries)).await, before);
            let now = Ok(vec![Some([7; V]), None, Some([8; V])]);
            assert_eq!(is_unpin(handle.get_many(&[key, [9; K], other])).await, now);
            assert_eq!(is_unpin(session.get_many(&[key, [9; K], other])).await, now);
            assert_eq!(is_unpin(handle.remove_many(&[other, other])).await, Ok(vec![Some([8; V]), None]));
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
