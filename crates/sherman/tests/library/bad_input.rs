//! Bad input returns a clear typed error and changes nothing.

use sherman::{
    BulkOptions, Cluster, EmbeddedError, Error, Exchange, Format, OpenError, ShapeError, TreeOptions,
};
use std::ops::Bound;

fn cluster() -> Cluster {
    Cluster::open("embedded:?memory=64MiB").expect("a cluster")
}

#[test]
fn a_cluster_that_cannot_be_is_refused() {
    assert!(matches!(Cluster::open("nonsense"), Err(OpenError::BadUrl { .. })));
    assert!(matches!(
        Cluster::open("embedded:?servers=0"),
        Err(OpenError::Embedded(EmbeddedError::NoServers))
    ));
    for memory in ["0", "1MiB", "8MiB"] {
        let error = Cluster::open(&format!("embedded:?memory={memory}")).expect_err("less than a chunk");
        assert!(matches!(error, OpenError::Embedded(EmbeddedError::Format { .. })), "{memory}: {error}");
        assert!(error.to_string().contains("bytes"), "{error}");
    }
    assert!(Cluster::open("embedded:?on-chip=0").is_err());
}

#[test]
fn a_builder_is_checked_like_a_url() {
    let bad = |cluster: Result<Cluster, OpenError>| match cluster {
        Err(OpenError::BadUrl { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    let short = std::time::Duration::from_millis(99);
    assert_eq!(
        bad(Cluster::embedded().lease(short).open()),
        bad(Cluster::open("embedded:?lease=99ms")),
        "one check for both"
    );
    assert!(matches!(
        Cluster::embedded().servers(0).open(),
        Err(OpenError::Embedded(EmbeddedError::NoServers))
    ));
    let cluster = Cluster::embedded().servers(2).memory(64 << 20).open().expect("a cluster");
    assert_eq!(cluster.usage().expect("an answer").len(), 2);
    #[cfg(target_os = "linux")]
    for (built, url) in [
        (Cluster::tcp(["a"]), "tcp://a"),
        (Cluster::tcp(["a:7000", ""]), "tcp://a:7000,"),
        (Cluster::unix([""]), "unix:"),
        (Cluster::shm(["/a", ""]), "shm:/a,"),
        (Cluster::tcp(["a:7000"]).patience(std::time::Duration::ZERO), "tcp://a:7000?patience=0s"),
        (Cluster::tcp(["a:7000"]).secret_file("/nowhere/at/all"), "tcp://a:7000?secret-file=/nowhere/at/all"),
    ] {
        assert_eq!(bad(built.open()), bad(Cluster::open(url)), "{url}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn an_error_of_opening_says_each_cause_once() {
    let failures = [
        Cluster::open("nonsense"),
        Cluster::open("embedded:?servers=0"),
        Cluster::open("embedded:?memory=1MiB"),
        Cluster::open("unix:/nowhere/at/all.sock"),
        Cluster::open("shm:/nowhere/at/all.sock"),
        Cluster::open("tcp://127.0.0.1:1?connect=1s"),
    ];
    for failure in failures {
        let failure = failure.expect_err("no cluster");
        let mut said = vec![failure.to_string()];
        let mut cause = std::error::Error::source(&failure);
        while let Some(error) = cause {
            assert!(said.iter().all(|before| !before.contains(&error.to_string())), "{said:?}: {error}");
            said.push(error.to_string());
            cause = error.source();
        }
    }
}

#[test]
fn keys_and_values_of_another_size_are_refused() {
    let tree = cluster().raw_tree("t", &TreeOptions::new()).expect("a tree");
    let client = tree.client().expect("a client");
    let mut found = Vec::new();
    let key = Error::KeySize { expected: 8, found: 5 };
    let value = Error::ValueSize { expected: 8, found: 9 };
    assert_eq!(client.get("short"), Err(key.clone()));
    assert_eq!(client.get_into(b"short", &mut found), Err(key.clone()));
    assert_eq!(client.insert(b"", [0; 8]), Err(Error::KeySize { expected: 8, found: 0 }));
    assert_eq!(client.insert([0; 8], [0; 9]), Err(value.clone()));
    assert_eq!(client.insert_into(&[0; 8], &[0; 9], &mut found), Err(value.clone()));
    assert_eq!(client.remove(b"short"), Err(key.clone()));
    assert_eq!(client.remove_into(b"short", &mut found), Err(key.clone()));
    assert_eq!(client.contains_key(b"short"), Err(key.clone()));
    assert_eq!(client.insert_if_absent(b"short", [0; 8]), Err(key.clone()));
    assert_eq!(client.insert_if_absent([0; 8], [0; 9]), Err(value.clone()));
    for (expected, new) in [(None, Some(vec![0; 9])), (Some(vec![0; 9]), None)] {
        assert_eq!(client.compare_exchange([0; 8], expected, new), Err(value.clone()));
    }
    assert_eq!(client.update([0; 8], |_| Some(vec![0; 9])), Err(value.clone()));
    assert_eq!(client.range(&b"short"[..]..).next(), Some(Err(key.clone())));
    assert_eq!(client.next_after(b"short"), Err(key.clone()));
    let failure = client.get_many(&[&[0; 8][..], b"short", b"short"]).expect_err("two bad keys");
    assert_eq!(failure.first(), (1, &key));
    assert_eq!(failure.results(), [Ok(None), Err(key.clone()), Err(key.clone())]);
    let said = failure.to_string();
    assert!(said.starts_with("2 of 3 operations of the batch failed; the first is number 1: "), "{said}");
    assert_eq!(Error::from(failure), key);
    let failure = client.insert_many(&[(&b"short"[..], &[0; 8])]).expect_err("a bad key");
    assert_eq!(failure.into_results(), [Err(key.clone())]);
    assert_eq!(client.remove_many(&[b"short"]).expect_err("a bad key").results(), [Err(key)]);
    assert!(tree.walk().expect("a sound tree").entries.is_empty());
}

#[test]
fn a_tree_that_cannot_be_is_refused_and_not_created() {
    let cluster = cluster();
    let shape = |options: TreeOptions| match cluster.raw_tree("t", &options) {
        Err(Error::Shape(error)) => error,
        other => panic!("{other:?}"),
    };
    assert!(matches!(shape(TreeOptions::new().sizes(8, 300)), ShapeError::TooSmall { entries: 2, .. }));
    assert_eq!(shape(TreeOptions::new().sizes(0, 8)), ShapeError::KeyLength { asked: 0 });
    assert_eq!(shape(TreeOptions::new().sizes(70_000, 8)), ShapeError::KeyLength { asked: 70_000 });
    assert_eq!(shape(TreeOptions::new().node_bytes(100)), ShapeError::NodeSize { asked: 100 });
    let torn = cluster.raw_tree("t", &TreeOptions::new().format(Format::TwoLevel));
    assert!(matches!(torn, Err(Error::Unsupported { .. })), "{torn:?}");
    for name in ["", &"n".repeat(129)] {
        assert!(matches!(cluster.raw_tree(name, &TreeOptions::new()), Err(Error::Refused(_))));
    }
    assert_eq!(cluster.trees().expect("a catalog"), []);
}

#[test]
fn a_tree_of_another_shape_is_recognized() {
    let cluster = cluster();
    let orders = cluster.tree::<u64, u64>("orders").expect("a tree");
    orders.client().expect("a client").insert(1, 2).expect("room");
    let other = cluster.tree::<u64, u32>("orders").expect_err("another value size");
    let mismatch = Error::TreeMismatch { name: "orders".into(), what: "value size", asked: 4, found: 8 };
    assert_eq!(other, mismatch);
    let other = cluster.tree_with::<u64, u64>("orders", &TreeOptions::new().format(Format::Sorted));
    assert!(matches!(other, Err(Error::TreeMismatch { what: "node format", .. })));
    assert_eq!(orders.client().expect("a client").get(1), Ok(Some(2)));
}

#[test]
fn a_full_cluster_says_so_and_stays_usable() {
    let cluster = Cluster::open("embedded:?memory=40MiB").expect("a cluster");
    let tree = cluster.raw_tree("t", &TreeOptions::new().sizes(8, 1_000).node_bytes(8_192)).expect("a tree");
    let client = tree.client().expect("a client");
    let value = [7; 1_000];
    let mut inserted = Vec::new();
    let refused = (0_u64..1_000_000).find_map(|number| {
        let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        match client.insert(key, value) {
            Ok(_) => {
                inserted.push(key);
                None
            }
            Err(error) => Some((key, error)),
        }
    });
    let (key, error) = refused.expect("40 MiB are full at some point");
    assert_eq!(error, Error::OutOfMemory);
    assert!(inserted.len() > 5_000, "{} entries", inserted.len());
    assert_eq!(client.get(key), Ok(None), "what was refused is not there");
    for key in &inserted {
        assert_eq!(client.contains_key(key), Ok(true));
        assert_eq!(client.insert(key, [8; 1_000]), Ok(Some(value.to_vec())), "an update needs no memory");
    }
    assert_eq!(tree.walk().expect("a sound tree").entries.len(), inserted.len());
}

#[test]
fn a_session_takes_only_so_many_operations_at_once() {
    use sherman::MAX_IN_FLIGHT;
    let tree = cluster().raw_tree("t", &TreeOptions::new()).expect("a tree");
    let session = tree.session().expect("a session");
    let waiting: Vec<_> = (0..MAX_IN_FLIGHT).map(|_| session.get(vec![1; 8])).collect();
    let refused = session.insert(vec![1; 8], vec![2; 8]);
    assert_eq!(session.run(refused), Err(Error::TooManyInFlight { limit: MAX_IN_FLIGHT }));
    for operation in waiting {
        assert_eq!(session.run(operation), Ok(None), "what was refused was not inserted");
    }
    assert_eq!(session.run(session.insert(vec![1; 8], vec![2; 8])), Ok(None));
}

#[test]
fn a_range_that_ends_before_it_begins_is_refused() {
    let tree = cluster().tree::<u64, u64>("t").expect("a tree");
    let client = tree.client().expect("a client");
    client.insert(5, 5).expect("room");
    #[expect(clippy::reversed_empty_ranges, reason = "that is the point")]
    let mut inverted = client.range(9..3);
    assert_eq!(inverted.next(), Some(Err(Error::BadRange)));
    assert_eq!(inverted.next(), None, "an error is the last item");
    let nothing = (Bound::Excluded(5), Bound::Excluded(5));
    assert_eq!(client.range(nothing).descending().next(), Some(Err(Error::BadRange)));
    assert_eq!(client.range(5..5).next(), None, "an empty range is one");
    let session = tree.session().expect("a session");
    assert_eq!(session.run(session.range(nothing).next()), Some(Err(Error::BadRange)));
    let handle = tree.handle().expect("a handle");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    assert_eq!(runtime.block_on(handle.range(nothing).next()), Some(Err(Error::BadRange)));
    assert_eq!(client.range(..).next(), Some(Ok((5, 5))));
}

#[test]
fn a_tree_that_is_not_there_is_not_opened() {
    let cluster = cluster();
    let missing = Error::NoSuchTree { name: "t".into() };
    assert_eq!(cluster.open_tree::<u64, u64>("t").expect_err("no tree"), missing);
    assert_eq!(cluster.open_raw_tree("t").expect_err("no tree"), missing);
    assert_eq!(cluster.describe("t").expect_err("no tree"), missing);
    assert_eq!(cluster.drop_tree("t"), Err(missing));
    assert_eq!(cluster.trees().expect("a catalog"), []);
}

#[test]
fn a_tree_is_opened_as_it_is_but_not_with_other_types() {
    let cluster = cluster();
    let options = TreeOptions::new().format(Format::Sorted).leaf_bytes(512);
    let tree = cluster.tree_with::<u32, [u8; 5]>("t", &options).expect("a tree");
    tree.client().expect("a client").insert(1, *b"hello").expect("room");
    let opened = cluster.open_tree::<u32, [u8; 5]>("t").expect("the tree");
    assert_eq!(opened.client().expect("a client").get(1), Ok(Some(*b"hello")));
    let mismatch = |what, asked, found| Error::TreeMismatch { name: "t".into(), what, asked, found };
    assert_eq!(cluster.open_tree::<u64, [u8; 5]>("t").expect_err("other keys"), mismatch("key size", 8, 4));
    assert_eq!(cluster.open_tree::<u32, u32>("t").expect_err("other values"), mismatch("value size", 4, 5));
    let described = cluster.describe("t").expect("the tree");
    assert_eq!((described.format, described.key_bytes, described.value_bytes), (Format::Sorted, 4, 5));
    assert_eq!((described.leaf_bytes, described.internal_bytes), (512, 1024));
    assert_eq!((described.entries_per_leaf, described.entries_per_internal), options_entries(&options));
}

fn options_entries(options: &TreeOptions) -> (usize, usize) {
    options.clone().sizes(4, 5).entries_per_node().expect("a shape")
}

#[test]
fn clients_of_a_dropped_tree_get_an_error() {
    let cluster = cluster();
    let elsewhere = cluster.join().expect("a compute server");
    let tree = cluster.tree::<u64, u64>("t").expect("a tree");
    let other = elsewhere.open_tree::<u64, u64>("t").expect("the tree");
    let clients = [tree.client().expect("a client"), other.client().expect("a client")];
    for key in 0..2_000 {
        clients[key as usize % 2].insert(key, key).expect("room");
    }
    assert!(cluster.drop_tree("t").expect("the tree") > 20, "it had many nodes");
    assert_eq!(cluster.trees().expect("a catalog"), []);
    let gone = Error::NoSuchTree { name: "t".into() };
    for client in &clients {
        assert_eq!(client.get(500), Err(gone.clone()));
        assert_eq!(client.insert(500, 1), Err(gone.clone()));
        assert_eq!(client.remove(500), Err(gone.clone()));
        assert_eq!(client.compare_exchange(500, None, Some(1)), Err(gone.clone()));
        assert_eq!(client.range(..).next(), Some(Err(gone.clone())));
        assert_eq!(client.len(), Err(gone.clone()));
        assert_eq!(client.clear(), Err(gone.clone()));
    }
    assert_eq!(tree.check().expect_err("no tree"), gone);
    assert_eq!(tree.bulk_load([(1, 1)], &BulkOptions::new()), Err(gone.clone()));
    // The name is free again. A new tree with this name is another tree.
    let again = cluster.tree::<u64, u64>("t").expect("a tree").client().expect("a client");
    assert_eq!(again.is_empty(), Ok(true));
    assert_eq!(again.insert(500, 2), Ok(None));
    assert_eq!(clients[0].get(500), Err(gone));
}

#[test]
fn a_bulk_load_that_cannot_be_changes_nothing() {
    let cluster = cluster();
    let tree = cluster.tree::<u64, u64>("t").expect("a tree");
    let used = cluster.usage().expect("a cluster");
    for threads in [1, 3] {
        let options = BulkOptions::new().threads(threads);
        let long = || (0..20_000_u64).map(|key| (key, key));
        assert_eq!(tree.bulk_load([(2, 0), (1, 0)], &options), Err(Error::Unsorted { at: 1 }));
        assert_eq!(tree.bulk_load([(1, 0), (3, 0), (3, 1)], &options), Err(Error::Unsorted { at: 2 }));
        let unsorted = long().chain([(7, 7)]);
        assert_eq!(tree.bulk_load(unsorted, &options), Err(Error::Unsorted { at: 20_000 }));
        let raw = tree.raw();
        let short = long().map(|(key, _)| (key.to_be_bytes(), vec![0; if key == 15_000 { 7 } else { 8 }]));
        assert_eq!(raw.bulk_load(short, &options), Err(Error::ValueSize { expected: 8, found: 7 }));
        assert_eq!(raw.bulk_load([(b"k", [0; 8])], &options), Err(Error::KeySize { expected: 8, found: 1 }));
        let panics = std::panic::catch_unwind(|| {
            let entries = long().inspect(|&(key, _)| assert!(key < 15_000, "on purpose"));
            tree.bulk_load(entries, &options)
        });
        assert!(panics.is_err());
        assert!(tree.raw().walk().expect("a sound tree").entries.is_empty());
    }
    let again = cluster.usage().expect("a cluster");
    assert!(
        again[0].chunks_used <= used[0].chunks_used + 1,
        "what a failed load took is used again: {again:?}"
    );
    assert_eq!(tree.bulk_load((0..20_000).map(|key| (key, key)), &BulkOptions::new()), Ok(20_000));
    assert_eq!(tree.bulk_load([(1, 1)], &BulkOptions::new()), Err(Error::NotEmpty));
    let client = tree.client().expect("a client");
    assert_eq!((client.len(), client.get(1)), (Ok(20_000), Ok(Some(1))));
    assert!(tree.check().expect("a readable tree").is_clean());
}

#[test]
fn a_bulk_load_that_does_not_fit_gives_its_memory_back() {
    let cluster = Cluster::open("embedded:?memory=40MiB").expect("a cluster");
    let tree = cluster.tree::<u64, [u8; 100]>("t").expect("a tree");
    for threads in [1, 2] {
        let entries = (0..1_000_000_u64).map(|key| (key, [1; 100]));
        assert_eq!(tree.bulk_load(entries, &BulkOptions::new().threads(threads)), Err(Error::OutOfMemory));
    }
    let client = tree.client().expect("a client");
    assert_eq!(client.is_empty(), Ok(true));
    for key in 0..10_000 {
        assert_eq!(client.insert(key, [2; 100]), Ok(None), "there is memory for {key}");
    }
}

#[test]
fn others_that_keep_changing_a_value_do_not_block_an_update_forever() {
    use std::time::{Duration, Instant};
    let tree = cluster().tree::<u64, u64>("t").expect("a tree");
    let (client, rival) = (tree.client().expect("a client"), tree.client().expect("a client"));
    client.insert(1, 0).expect("room");
    let started = Instant::now();
    let mut tries = 0;
    let outcome = client.within(Duration::from_millis(30)).update(1, |value| {
        tries += 1;
        rival.insert(1, value.unwrap_or(0) + 1).expect("room");
        Some(1 << 40)
    });
    assert!(
        matches!(outcome, Err(Error::Timeout { cause: sherman::Cause::ValueChanged, .. })),
        "{outcome:?}"
    );
    assert!(started.elapsed() < Duration::from_secs(5) && tries > 1);
    assert_eq!(client.get(1), Ok(Some(tries)), "only the rival changed it");
    assert_eq!(client.timeout(), Duration::from_secs(10), "the deadline was that update's alone");
    assert_eq!(client.compare_exchange(1, Some(tries), None), Ok(Exchange::Done));
}
