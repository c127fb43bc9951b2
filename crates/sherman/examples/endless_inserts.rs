//! Inserts numbers in order, and prints each acknowledged number.
//!
//! `SHERMAN_CLUSTER=tcp://10.0.0.1:7000 NUMBERS=0..1000000 cargo run -p sherman-tree --example
//! endless_inserts`
//!
//! Restart the memory server (with its `--file`), cut the network for some seconds, or stop either process
//! for a while: the program continues. It has no code for that.

use sherman::Cluster;

/// Runs the program.
pub fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("SHERMAN_CLUSTER").unwrap_or_else(|_| "embedded:?memory=64MiB".to_owned());
    let range = std::env::var("NUMBERS").unwrap_or_else(|_| "0..1000".to_owned());
    let (first, end) = range.split_once("..").ok_or("NUMBERS is a range, as in 0..1000")?;

    let numbers = Cluster::open(&url)?.tree::<u64, u64>("numbers")?.client()?;
    for number in first.parse::<u64>()?..end.parse()? {
        numbers.insert(number, number)?;
        println!("{number}");
    }
    Ok(())
}
