//! Bad input gets a clear typed error and changes nothing.

use sherman::{Cluster, EmbeddedError, Error, Format, OpenError, ShapeError, TreeOptions};

fn cluster() -> Cluster {
    Cluster::open("embedded:?memory=64MiB").expect("a cluster")
}

#[test]
fn a_cluster_that_cannot_be_is_refused() {
    assert!(matches!(Cluster::open("nonsense"), Err(OpenError::BadUrl { .. })));
    assert!(matches!(Cluster::open("embedded:?servers=0"), Err(OpenError::Embedded(EmbeddedError::NoServers))));
    for memory in ["0", "1MiB", "8MiB"] {
        let error = Cluster::open(&format!("embedded:?memory={memory}")).expect_err("less than a chunk");
        assert!(matches!(error, OpenError::Embedded(EmbeddedError::Format { .. })), "{memory}: {error}");
        assert!(error.to_string().contains("bytes"), "{error}");
    }
    assert!(Cluster::open("embedded:?on-chip=0").is_err());
}

#[test]
fn keys_and_values_of_another_size_are_refused() {
    let tree = cluster().raw_tree("t", &TreeOptions::new()).expect("a tree");
    let client = tree.client().expect("a client");
    let mut found = Vec::new();
    assert_eq!(client.get(b"short", &mut found), Err(Error::KeySize { expected: 8, found: 5 }));
    assert_eq!(client.insert(b"", &[0; 8], &mut found), Err(Error::KeySize { expected: 8, found: 0 }));
    assert_eq!(client.insert(&[0; 8], &[0; 9], &mut found), Err(Error::ValueSize { expected: 8, found: 9 }));
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
fn a_tree_of_another_shape_is_told_apart() {
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
    let (value, mut found) = ([7; 1_000], Vec::new());
    let mut inserted = Vec::new();
    let refused = (0_u64..1_000_000).find_map(|number| {
        let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        match client.insert(&key, &value, &mut found) {
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
    assert_eq!(client.get(&key, &mut found), Ok(false), "what was refused is not there");
    for key in &inserted {
        assert_eq!(client.get(key, &mut found), Ok(true));
        assert_eq!(client.insert(key, &[8; 1_000], &mut found), Ok(true), "an update needs no memory");
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
