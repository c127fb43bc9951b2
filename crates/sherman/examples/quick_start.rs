//! The first minute: a cluster in this process, a tree, and its operations.
//!
//! `cargo run -p sherman-tree --example quick_start`

use sherman::{Cluster, Exchange};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Two memory servers inside this process. Pages that are never written cost nothing.
    let cluster = Cluster::open("embedded:?servers=2&memory=64MiB")?;
    let orders = cluster.tree::<u64, u64>("orders")?; // opens or creates
    let client = orders.client()?; // one per thread

    // As with a BTreeMap, an insert returns the value that it replaces.
    assert_eq!(client.insert(7, 700)?, None);
    assert_eq!(client.insert(7, 701)?, Some(700));
    assert_eq!(client.get(7)?, Some(701));

    client.insert_many(&[(1, 100), (3, 300), (9, 900)])?;
    println!("orders from 2 on:");
    for order in client.range(2..) {
        let (number, cents) = order?;
        println!("  {number}: {cents}");
    }
    assert_eq!(client.range(2..).count(), 3);
    assert_eq!(client.last()?, Some((9, 900)));

    // A change that depends on the present value is atomic for all other clients.
    assert_eq!(client.update(7, |cents| cents.map(|cents| cents + 99))?, Some(701));
    assert_eq!(client.compare_exchange(7, Some(701), Some(0))?, Exchange::Found(800));
    assert_eq!(client.insert_if_absent(7, 0)?, Some(800));

    assert_eq!(client.remove(7)?, Some(800));
    assert!(!client.contains_key(7)?);
    assert_eq!(client.len()?, 3);

    // Another compute server on the same memory sees the same tree.
    let elsewhere = cluster.join()?.open_tree::<u64, u64>("orders")?.client()?;
    assert_eq!(elsewhere.first()?, Some((1, 100)));
    let check = orders.check()?;
    assert!(check.is_clean());
    println!("{} entries in {} leaf, sound", check.entries, check.levels[0].nodes);
    Ok(())
}
