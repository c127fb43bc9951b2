//! Executes one kind of operation again and again, for a profiler that counts instructions:
//!
//! ```text
//! cargo build --release -p sherman-tree -F measure --example op_cost
//! valgrind --tool=callgrind --collect-atstart=no --toggle-collect='op_cost::work*' \
//!     target/release/examples/op_cost update ours 20000 4000
//! ```
//! The arguments: `get`, `update`, `insert` (of new keys) or `range` (of 100 entries); `ours` or `stamped`,
//! the format and the techniques; the keys to load; the operations. Without arguments it does as above.
//! Divide what the profiler has collected by the number of operations.

use sherman::{Client, Cluster, ClusterOptions, Error, Format, Techniques, TreeOptions};

/// The key with this number: a fixed bijection that spreads keys over the whole range.
fn key(number: u64) -> u64 {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    mixed ^ mixed >> 32
}

/// Executes the operations. Never inlined: the profiler knows it by its name.
#[inline(never)]
fn work(client: &Client<u64, u64>, kind: &str, keys: u64, operations: u64) -> Result<u64, Error> {
    let mut sum = 0_u64;
    for number in 0..operations {
        let loaded = key(key(number) % keys);
        match kind {
            "get" => sum ^= client.get(loaded)?.unwrap_or(0),
            "update" => sum ^= client.insert(loaded, number)?.unwrap_or(0),
            "insert" => sum ^= client.insert(key(keys + number), number)?.unwrap_or(0),
            _ => {
                for entry in client.range(loaded..).limit(100) {
                    let (key, value) = entry?;
                    sum ^= key ^ value;
                }
            }
        }
    }
    Ok(sum)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.is_empty() {
        arguments = ["update", "ours", "20000", "4000"].map(str::to_owned).to_vec();
    }
    let [kind, variant, keys, operations] = &arguments[..] else {
        return Err("usage: op_cost get|update|insert|range ours|stamped KEYS OPERATIONS".into());
    };
    let (keys, operations) = (keys.parse()?, operations.parse()?);
    let (mut cluster, mut tree) = (ClusterOptions::new(), TreeOptions::new());
    if variant == "stamped" {
        cluster = cluster.techniques(Techniques { lock_read: true, redo: true, ..Techniques::SHERMAN });
        tree = tree.format(Format::LineStamped);
    }
    let cluster = Cluster::open_with("embedded:?memory=1GiB", cluster)?;
    let client = cluster.tree_with::<u64, u64>("op-cost", &tree)?.client()?;
    for number in 0..keys {
        client.insert(key(number), number)?;
    }
    let began = std::time::Instant::now();
    let sum = work(&client, kind, keys, operations)?;
    let each = began.elapsed().as_nanos() as f64 / operations as f64;
    println!("{operations} times {kind}: {each:.0} ns each ({sum:x})");
    Ok(())
}
