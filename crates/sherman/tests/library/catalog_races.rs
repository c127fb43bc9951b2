//! Real threads create and drop trees: dropping one tree never destroys another. `SHERMAN_RACE_ROUNDS=N` runs
//! N rounds.

use sherman::{Cluster, Error};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

/// Two threads create and drop "a" as fast as they can. The calling thread creates "b", which may get the
/// former catalog entry of "a".
#[test]
fn a_drop_of_one_tree_never_destroys_another() {
    let rounds =
        std::env::var("SHERMAN_RACE_ROUNDS").map_or(500, |text| text.parse().expect("a number of rounds"));
    let root = Cluster::open("embedded:?memory=256MiB").expect("memory for it");
    let (stop, drops) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let cluster = root.join().expect("another compute server");
                while !stop.load(Relaxed) {
                    let _ = cluster.tree::<u64, u64>("a");
                    drops.fetch_add(u64::from(cluster.drop_tree("a").is_ok()), Relaxed);
                }
            });
        }
        let cluster = root.join().expect("another compute server");
        let round = || {
            let client = cluster.tree::<u64, u64>("b")?.client()?;
            for key in 0..20 {
                client.insert(key, key)?;
            }
            let found = cluster.open_tree::<u64, u64>("b")?.client()?.get(7)?;
            cluster.drop_tree("b")?;
            Ok::<_, Error>(found)
        };
        for number in 0..rounds {
            let outcome = round();
            if outcome != Ok(Some(7)) {
                stop.store(true, Relaxed);
            }
            assert_eq!(outcome, Ok(Some(7)), "round {number}");
        }
        stop.store(true, Relaxed);
    });
    println!("{} drops of the other tree in {rounds} rounds", drops.into_inner());
}
