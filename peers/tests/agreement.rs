//! Tests that every index agrees with `BTreeMap`, so that all indexes do the same work.

use sherman_peers::error::Failure;
use sherman_peers::index::{Handle, Index, Sum};
use std::collections::BTreeMap;

const OPERATIONS: u64 = 6000;
/// Few enough keys that inserts find existing ones, gets hit and miss, and ranges reach the end.
const DISTINCT: u64 = 2000;

/// Returns key `n`: from all of `u64`, including its ends, except the one that congee's ranges cannot reach.
fn key(n: u64) -> u64 {
    match n {
        0 => 0,
        1 => u64::MAX - 1,
        2 => 1,
        // Neighbours that differ in their last byte only, which matters for a radix tree.
        3..40 => u64::MAX / 3 + n,
        n => n.wrapping_mul(0x9e37_79b9_7f4a_7c15),
    }
}

fn agrees<I: Index>() {
    let index = I::open(DISTINCT).expect("an empty index");
    let mut handle = index.handle().expect("a handle");
    let mut model = BTreeMap::new();
    let mut rng = fastrand::Rng::with_seed(1);
    for value in 0..OPERATIONS {
        let key = key(rng.u64(0..DISTINCT));
        match rng.u8(0..3) {
            0 => {
                // Values also come from all of `u64`.
                let value = value.wrapping_mul(0xbf58_476d_1ce4_e5b9);
                handle.insert(key, value).expect("an insert");
                model.insert(key, value);
            }
            1 => assert_eq!(handle.get(key).expect("a get"), model.get(&key).copied(), "{key}"),
            _ => {
                let limit = rng.usize(1..200);
                let expected = Sum::of(model.range(key..).take(limit).map(|(key, value)| (*key, *value)));
                match handle.range(key, limit) {
                    Err(Failure::Unsupported(_)) => {}
                    found => assert_eq!(found.expect("a range"), expected, "{limit} from {key}"),
                }
            }
        }
    }
    for (key, value) in &model {
        assert_eq!(handle.get(*key).expect("a get"), Some(*value));
    }
}

/// Two threads insert interleaved keys. Afterwards all keys must exist.
fn takes_two_writers<I: Index>() {
    let index = I::open(DISTINCT).expect("an empty index");
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let index = &index;
            scope.spawn(move || {
                let mut handle = index.handle().expect("a handle");
                for n in (0..DISTINCT).filter(|n| n % 2 == thread) {
                    handle.insert(key(n), n).expect("an insert");
                    assert_eq!(handle.get(key(n)).expect("a get"), Some(n));
                }
            });
        }
    });
    let mut handle = index.handle().expect("a handle");
    for n in 0..DISTINCT {
        assert_eq!(handle.get(key(n)).expect("a get"), Some(n), "{n}");
    }
    let everything = Sum::of((0..DISTINCT).map(|n| (key(n), n)));
    match handle.range(0, usize::try_from(2 * DISTINCT).expect("a small number")) {
        Err(Failure::Unsupported(_)) => {}
        found => assert_eq!(found.expect("a range"), everything),
    }
}

macro_rules! peers {
    ($($name:ident: $index:ty,)*) => {
        $(mod $name {
            use sherman_peers::peers::*;

            #[test]
            fn agrees_with_btreemap() {
                super::agrees::<$index>();
            }

            #[test]
            fn takes_two_writers() {
                super::takes_two_writers::<$index>();
            }
        })*
    };
}

peers! {
    our_tree: ours::Ours,
    crossbeam_skiplist: skiplist::Skiplist,
    scc_tree_index: scc::Scc,
    concurrent_map: concurrent::Concurrent,
    ferntree: fern::Fern,
    masstree: mass::Mass,
    congee_radix_tree: congee::Radix,
    rwlock_btreemap: locked::Locked,
}
