//! A tree opens only with the types it was created with.

use sherman::{Cluster, Error, Key, ShortBytes, TreeOptions, TreeTypes, Value};
use std::cmp::Reverse;
use std::sync::Barrier;
use std::thread;

fn cluster() -> Cluster {
    Cluster::open("embedded:?memory=64MiB").expect("a cluster")
}

fn mismatch(name: &str, asked: (&str, &str), found: (&str, &str)) -> Error {
    let types = |(key, value)| Box::new(TreeTypes::new(key, value).expect("short names"));
    Error::TypeMismatch { name: name.to_owned(), asked: types(asked), found: types(found) }
}

/// Both ways to open a tree must refuse these types.
#[track_caller]
fn refused<K: Key, V: Value>(cluster: &Cluster, error: &Error) {
    let name = "orders";
    assert_eq!(cluster.tree::<K, V>(name).map(drop).as_ref(), Err(error));
    assert_eq!(cluster.open_tree::<K, V>(name).map(drop).as_ref(), Err(error));
}

/// Other types of the same sizes are refused, on another compute server too, and change nothing.
pub fn other_types_are_refused(cluster: &Cluster, elsewhere: &Cluster) {
    let orders = cluster.tree::<u64, u64>("orders").expect("a tree");
    let client = orders.client().expect("a client");
    client.insert(1, 2).expect("room");
    let (trees, used) = (cluster.trees().expect("a catalog"), cluster.usage().expect("an answer"));
    assert_eq!(trees[0].types, TreeTypes::new("u64", "u64"));
    for cluster in [cluster, elsewhere] {
        refused::<i64, u64>(cluster, &mismatch("orders", ("i64", "u64"), ("u64", "u64")));
        refused::<[u8; 8], u64>(cluster, &mismatch("orders", ("[u8; 8]", "u64"), ("u64", "u64")));
        refused::<u64, f64>(cluster, &mismatch("orders", ("u64", "f64"), ("u64", "u64")));
        refused::<Reverse<u64>, (u32, i32)>(
            cluster,
            &mismatch("orders", ("Reverse<u64>", "(u32, i32)"), ("u64", "u64")),
        );
        assert_eq!(cluster.open_tree::<u64, u64>("orders").expect("the tree").info().types, trees[0].types);
    }
    assert_eq!((cluster.trees(), cluster.usage()), (Ok(trees), Ok(used)));
    assert_eq!((client.get(1), client.len()), (Ok(Some(2)), Ok(1)));
    let described = elsewhere.describe("orders").expect("the tree");
    assert_eq!(described.types, TreeTypes::new("u64", "u64"));
}

#[test]
fn a_tree_does_not_open_with_other_types() {
    let cluster = cluster();
    other_types_are_refused(&cluster, &cluster.join().expect("a compute server"));
    let said = cluster.tree::<i64, u64>("orders").expect_err("other keys").to_string();
    assert_eq!(said, "tree \"orders\" holds keys of type u64 and values of type u64, not i64 and u64");
}

#[test]
fn a_tree_without_types_opens_with_any_types_of_its_sizes() {
    let cluster = cluster();
    // A tree of byte strings has the same catalog entry as a tree from before there were types.
    let raw = cluster.raw_tree("t", &TreeOptions::new()).expect("a tree");
    raw.client().expect("a client").insert([0; 8], [0x80, 0, 0, 0, 0, 0, 0, 7]).expect("room");
    assert_eq!(cluster.describe("t").expect("the tree").types, None);
    assert_eq!(cluster.tree::<u64, i64>("t").expect("u64").client().expect("a client").get(0), Ok(Some(7)));
    let opened = cluster.open_tree::<i64, [u8; 8]>("t").expect("i64").client().expect("a client");
    assert_eq!(opened.get(i64::MIN), Ok(Some([0x80, 0, 0, 0, 0, 0, 0, 7])));
    assert_eq!(cluster.describe("t").expect("the tree").types, None, "opening records nothing");
    let sizes = cluster.tree::<u32, u64>("t").expect_err("other sizes");
    assert!(matches!(sizes, Error::TreeMismatch { what: "key size", .. }), "{sizes}");
}

#[test]
fn a_typed_tree_opens_as_byte_strings() {
    let cluster = cluster();
    cluster.tree::<u64, u64>("t").expect("a tree").client().expect("a client").insert(1, 2).expect("room");
    let (one, two) = (1_u64.to_be_bytes().to_vec(), 2_u64.to_be_bytes().to_vec());
    let (created, found) = cluster.raw_tree_or_new("t", &TreeOptions::new()).expect("the tree");
    assert!(!found);
    for raw in [
        created,
        cluster.open_raw_tree("t").expect("the tree"),
        cluster.raw_tree("t", &TreeOptions::new()).expect("the tree"),
    ] {
        assert_eq!(raw.client().expect("a client").get(&one), Ok(Some(two.clone())));
        assert_eq!(raw.info().types, TreeTypes::new("u64", "u64"), "it keeps its types");
    }
}

mod before {
    sherman::record! { pub struct At: Key { pub sensor: u32, pub time: u64 } }
    sherman::record! { pub struct Celsius(pub f32); }
}

mod after {
    sherman::record! { pub struct At: Key { pub sensor: u32, pub time: u64 } }
    sherman::record! { pub struct Fahrenheit(pub f32); }
}

#[test]
fn records_go_by_the_name_of_the_struct() {
    let cluster = cluster();
    let tree = cluster.tree::<before::At, before::Celsius>("orders").expect("a tree");
    assert_eq!(tree.info().types, TreeTypes::new("At", "Celsius"));
    assert!(cluster.tree::<after::At, before::Celsius>("orders").is_ok(), "a struct of the same name");
    let found = ("At", "Celsius");
    refused::<after::At, after::Fahrenheit>(&cluster, &mismatch("orders", ("At", "Fahrenheit"), found));
    refused::<(u32, u64), f32>(&cluster, &mismatch("orders", ("(u32, u64)", "f32"), found));
}

#[test]
fn long_names_that_differ_only_at_the_end_are_told_apart() {
    type Long<T> = (ShortBytes<16>, Reverse<u64>, T);
    let cluster = cluster();
    let tree = cluster.tree::<Long<u32>, ()>("orders").expect("a tree");
    let types = tree.info().types.expect("types");
    assert_eq!(types.key.as_str().len(), 31);
    assert!(types.key.as_str().starts_with("(ShortBytes<16>, Rever#"), "{types:?}");
    assert!(cluster.open_tree::<Long<u32>, ()>("orders").is_ok());
    let refused = cluster.tree::<Long<i32>, ()>("orders").expect_err("other keys");
    assert!(matches!(refused, Error::TypeMismatch { .. }), "{refused}");
    assert!(refused.to_string().matches("(ShortBytes<16>, Rever#").count() == 2, "{refused}");
}

/// A type without a name, whose trees stay as they were before there were types.
struct Nameless(u64);

impl Value for Nameless {
    const LEN: usize = 8;

    fn type_name() -> String {
        String::new()
    }

    fn encode(&self, bytes: &mut [u8]) {
        self.0.encode(bytes);
    }

    fn decode(bytes: &[u8]) -> Self {
        Self(u64::decode(bytes))
    }
}

#[test]
fn a_type_without_a_name_is_not_compared() {
    let cluster = cluster();
    let tree = cluster.tree::<u64, Nameless>("t").expect("a tree");
    tree.client().expect("a client").insert(1, Nameless(2)).expect("room");
    assert_eq!(tree.info().types, None);
    let opened = cluster.tree::<u64, u64>("t").expect("any types of its sizes").client().expect("a client");
    assert_eq!(opened.get(1), Ok(Some(2)));
    cluster.tree::<u64, u64>("typed").expect("a tree");
    assert!(cluster.tree::<u64, Nameless>("typed").is_ok());
}

#[test]
fn a_name_gets_new_types_with_a_new_tree() {
    let cluster = cluster();
    cluster.tree::<u64, u64>("t").expect("a tree");
    cluster.drop_tree("t").expect("the tree");
    assert_eq!(cluster.tree::<i64, u64>("t").expect("a tree").info().types, TreeTypes::new("i64", "u64"));
}

/// Two compute servers create one tree with different types at once. The types of one of them win, and the
/// other gets the error.
#[test]
fn one_of_two_racing_creators_wins() {
    let root = cluster();
    let (first, second) = (root.join().expect("a member"), root.join().expect("a member"));
    let mut wins = [0, 0];
    for round in 0..100 {
        let (name, start) = (format!("tree {round}"), Barrier::new(2));
        let (ours, theirs) = thread::scope(|scope| {
            let other = scope.spawn(|| {
                start.wait();
                second.tree::<i64, u64>(&name).map(drop)
            });
            start.wait();
            (first.tree::<u64, u64>(&name).map(drop), other.join().expect("no panic"))
        });
        let (unsigned, signed) = (("u64", "u64"), ("i64", "u64"));
        let found = root.describe(&name).expect("the tree").types;
        if ours.is_ok() {
            assert_eq!(theirs, Err(mismatch(&name, signed, unsigned)), "round {round}");
            assert_eq!(found, TreeTypes::new("u64", "u64"));
        } else {
            assert_eq!((ours, theirs), (Err(mismatch(&name, unsigned, signed)), Ok(())), "round {round}");
            assert_eq!(found, TreeTypes::new("i64", "u64"));
        }
        wins[usize::from(found == TreeTypes::new("i64", "u64"))] += 1;
    }
    assert_eq!(root.trees().expect("a catalog").len(), 100);
    assert!(root.audit().expect("an audit").is_clean(), "the losers left no nodes");
    println!("{wins:?}");
}
