//! Trees of values of any length: every face, batches, ranges, and what is refused.

use sherman::{BulkOptions, Cluster, Error, TreeOptions};

fn cluster() -> Cluster {
    Cluster::open("embedded:?servers=2&memory=256MiB").expect("a cluster")
}

fn value(number: u64) -> Vec<u8> {
    let len = [0, 3, 15, 16, 100, 1000, 5000, 70_000][number as usize % 8];
    (0..len).map(|at| (at as u64 ^ number) as u8).collect()
}

#[test]
fn every_face_has_the_same_values() {
    let cluster = cluster();
    let tree = cluster.tree::<u64, Vec<u8>>("blobs").expect("a tree");
    let client = tree.client().expect("a client");
    let entries: Vec<(u64, Vec<u8>)> = (0..200).map(|number| (number, value(number))).collect();
    let replaced = client.insert_many(&entries).expect("a batch");
    assert!(replaced.iter().all(Option::is_none));
    let keys: Vec<u64> = (0..201).collect();
    let found = client.get_many(&keys).expect("a batch");
    for number in 0..200 {
        assert_eq!(found[number as usize], Some(value(number)));
        assert_eq!(client.get(number).expect("a get"), Some(value(number)));
    }
    assert_eq!(found[200], None);

    let scanned: Vec<_> = client.range(..).collect::<Result<_, _>>().expect("a range");
    assert_eq!(scanned, entries);
    let backward: Vec<_> = client.range(50..150).rev().take(60).collect::<Result<_, _>>().expect("a range");
    assert!(backward.iter().eq(entries[90..150].iter().rev()));
    assert_eq!(client.len().expect("a count"), 200);

    let doubled = |old: Option<Vec<u8>>| old.map(|old| [old.clone(), old].concat());
    assert_eq!(client.update(7, doubled).expect("an update"), Some(value(7)));
    assert_eq!(client.get(7).expect("a get").map(|value| value.len()), Some(140_000));
    assert_eq!(client.insert(7, value(5)).expect("an insert").map(|value| value.len()), Some(140_000));
    assert_eq!(client.remove(7).expect("a remove"), Some(value(5)));
    assert_eq!(client.get(7).expect("a get"), None);
    let removed = client.remove_many(&[6, 7, 8]).expect("a batch");
    assert_eq!(removed, [Some(value(6)), None, Some(value(8))]);

    let handle = tree.handle().expect("a handle");
    let put = handle.insert(7, value(7));
    let got = std::thread::scope(|scope| {
        scope.spawn(|| futures_block_on(put).expect("an insert")).join().expect("the thread lives")
    });
    assert_eq!(got, None);
    assert_eq!(client.get(7).expect("a get"), Some(value(7)));

    let check = tree.check().expect("a check");
    assert!(check.is_clean() && check.blocks > 100 && check.value_bytes <= check.block_bytes);
    assert_eq!(client.clear().expect("a clearing"), 198);
    assert!(tree.check().is_ok_and(|check| check.blocks == 0));
    assert!(cluster.drop_tree("blobs").expect("a drop") > 0);
}

/// Waits for a future of a handle, on any thread.
fn futures_block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unparks(std::thread::Thread);
    impl std::task::Wake for Unparks {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::sync::Arc::new(Unparks(std::thread::current())).into();
    let mut cx = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut cx) {
            std::task::Poll::Ready(done) => return done,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn texts_are_values_of_any_length() {
    let cluster = cluster();
    let notes = cluster.tree::<u64, String>("notes").expect("a tree").client().expect("a client");
    let long = "größer ".repeat(3000);
    assert_eq!(notes.insert(1, &long).expect("an insert"), None);
    assert_eq!(notes.insert(2, "short").expect("an insert"), None);
    assert_eq!(notes.insert_if_absent(1, "other").expect("an insert"), Some(long.clone()));
    assert_eq!(notes.get(2).expect("a get"), Some("short".to_owned()));
    let described = cluster.describe("notes").expect("the tree");
    assert!(described.any_length && described.value_bytes == 15);
    assert_eq!(described.types.map(|types| types.value.to_string()), Some("String".to_owned()));
}

#[test]
fn what_such_trees_do_not_have_is_refused_with_a_reason() {
    let cluster = cluster();
    let tree = cluster.tree::<u64, Vec<u8>>("blobs").expect("a tree");
    let refused = tree.bulk_load([(1, vec![2])], &BulkOptions::new());
    assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
    assert!(tree.client().expect("a client").is_empty().expect("an answer"));
    let too_long = tree.client().expect("a client").insert(1, vec![0; 3 << 20]);
    assert!(matches!(too_long, Err(Error::ValueTooLong { found, .. }) if found == 3 << 20), "{too_long:?}");
    // Neither opens as the other.
    assert!(matches!(cluster.open_tree::<u64, u64>("blobs"), Err(Error::TreeMismatch { .. })));
    assert!(matches!(cluster.open_tree::<u64, String>("blobs"), Err(Error::TypeMismatch { .. })));
    assert!(cluster.open_tree::<u64, Vec<u8>>("blobs").is_ok());
    cluster.tree::<u64, u64>("numbers").expect("a tree");
    assert!(matches!(cluster.open_tree::<u64, Vec<u8>>("numbers"), Err(Error::TreeMismatch { .. })));
    let huge = TreeOptions::new().sizes(8, usize::MAX >> 1);
    assert!(matches!(cluster.raw_tree("huge", &huge), Err(Error::Shape(_))));
}

#[test]
fn a_leaf_holds_as_much_of_a_value_as_its_options_say() {
    let cluster = cluster();
    for (key, inline, expected) in [(8, None, 15), (8, Some(3), 15), (8, Some(100), 100), (40, None, 19)] {
        let options = TreeOptions::new().sizes(key, 0).values_of_any_length();
        let options = inline.map_or(options.clone(), |bytes| options.inline_value_bytes(bytes));
        let name = format!("{key} {inline:?}");
        let tree = cluster.raw_tree(&name, &options).expect("a tree");
        assert_eq!(cluster.describe(&name).expect("the tree").value_bytes, expected, "{name}");
        let session = tree.session().expect("a session");
        let (key, long) = (vec![7; key], vec![1; 10_000]);
        session.run(async {
            assert_eq!(session.insert(&key, &long).await, Ok(None));
            assert_eq!(session.insert(&key, &long[..expected]).await, Ok(Some(long.clone())));
            assert_eq!(session.get(&key).await, Ok(Some(long[..expected].to_vec())));
        });
    }
}

#[test]
fn random_values_of_100_to_10_000_bytes_take_at_most_135_percent() {
    let cluster = cluster();
    let tree = cluster.tree::<u64, Vec<u8>>("blobs").expect("a tree");
    let client = tree.client().expect("a client");
    let (mut state, mut user) = (7_u64, 0);
    let count = 5000;
    for _ in 0..count {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let len = 100 + (state >> 33) as usize % 9901;
        user += 8 + len as u64;
        client.insert(state, vec![7; len]).expect("an insert");
    }
    let check = tree.check().expect("a check");
    let ratio = check.bytes() as f64 / user as f64;
    println!("{} bytes for {user} bytes of the user: {ratio:.3}", check.bytes());
    assert!(check.is_clean() && check.entries == count && ratio <= 1.35, "{ratio}");
}

#[cfg(target_os = "linux")]
#[test]
fn large_values_travel_over_sockets_and_shared_memory() {
    use crate::network::{Servers, Transport};
    for transport in [Transport::Tcp, Transport::Shm] {
        let servers = Servers::start(transport, 2).expect("servers");
        let cluster = Cluster::open(&servers.url).expect("a cluster");
        let client = cluster.tree::<u64, Vec<u8>>("blobs").expect("a tree").client().expect("a client");
        let sizes = [0, 100, 5_000, 200_000, 1_000_000];
        let value = |key: u64, round: u64| vec![(key + round) as u8; sizes[(key + round) as usize % 5]];
        for round in 0..3 {
            for key in 0..15 {
                let old = (round > 0).then(|| value(key, round - 1));
                assert!(client.insert(key, value(key, round)).expect("an insert") == old, "{transport:?}");
            }
            for entry in client.range(..) {
                let (key, found) = entry.expect("an entry");
                assert!(found == value(key, round), "{transport:?}");
            }
        }
        let check = cluster.audit().expect("an audit");
        assert!(check.is_clean(), "{:?}", check.findings);
    }
}

#[test]
fn no_long_value_is_lost_with_a_host() {
    let url = "embedded:?servers=3&replicas=2&memory=192MiB&chunk=1MiB&lease=2s";
    let options = sherman::ClusterOptions::new().timeout(std::time::Duration::from_secs(60));
    let cluster = Cluster::open_with(url, options).expect("a cluster");
    let hosts = cluster.local_hosts().expect("hosts in this process");
    let client = cluster.tree::<u64, Vec<u8>>("blobs").expect("a tree").client().expect("a client");
    let sizes = [5, 3_000, 40_000, 900_000];
    let value = |key: u64, round: u64| vec![(key + round) as u8; sizes[(key + round) as usize % 4]];
    for round in 0..2 {
        for key in 0..40 {
            if (round, key) == (1, 20) {
                hosts.lose(1).expect("a loss");
            }
            let old = (round > 0).then(|| value(key, round - 1));
            match client.insert(key, value(key, round)) {
                Ok(found) => assert!(found == old, "{key}"),
                Err(Error::OutcomeUnknown { .. }) => {
                    let found = client.get(key).expect("a get");
                    assert!(found == old || found == Some(value(key, round)), "{key}");
                    client.insert(key, value(key, round)).expect("an insert");
                }
                Err(error) => panic!("{key}: {error}"),
            }
        }
    }
    for key in 0..40 {
        assert!(client.get(key).expect("a get") == Some(value(key, 1)), "{key}");
    }
    let check = cluster.audit().expect("an audit");
    assert!(check.is_clean(), "{:?}", check.findings);
}
