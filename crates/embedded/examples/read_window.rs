//! Measures the two numbers behind F8 (`docs/FABRIC.md`). The first is how often clients can rewrite one node
//! under its lane within the window of a READ. The second is what the window costs a READ.
//!
//! ```sh
//! cargo run --release -p sherman-embedded -F measure --example read_window
//! ```

use sherman_embedded::{EmbeddedCluster, EmbeddedEndpoint, EmbeddedOptions, READ_WINDOW};
use sherman_executor::block_on;
use sherman_fabric::{Counters, Endpoint, FabricError, Space, WorkList, execute};
use std::time::{Duration, Instant};

/// The number of changes between two fetches of one READ that makes stamps wrap.
const WRAP: f64 = 49_153.0;
const TIME: Duration = Duration::from_millis(500);
const AT: u64 = 32 << 20;

fn post(endpoint: &EmbeddedEndpoint, fill: impl FnOnce(&mut WorkList)) -> Result<(), FabricError> {
    let mut list = endpoint.list(0);
    fill(&mut list);
    let list = block_on(endpoint, execute(endpoint, list, &Counters::default()))?;
    endpoint.recycle(list);
    Ok(())
}

/// Measures how often `work` runs in a second, best of five.
fn rate(mut work: impl FnMut() -> Result<(), FabricError>) -> Result<f64, FabricError> {
    let mut best: f64 = 0.0;
    for _ in 0..5 {
        let (began, mut count) = (Instant::now(), 0_u64);
        while began.elapsed() < TIME / 5 {
            for _ in 0..256 {
                work()?;
            }
            count += 256;
        }
        best = best.max(count as f64 / began.elapsed().as_secs_f64());
    }
    Ok(best)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cluster =
        EmbeddedCluster::new(EmbeddedOptions { memory_bytes: 64 << 20, ..EmbeddedOptions::default() })?;
    let endpoint = cluster.join()?.endpoint();
    let id = u64::from(endpoint.client().0);
    for bytes in [256, 1024, 4096] {
        let node = vec![7; bytes];
        // These are the fewest verbs that raise a node's version. The two lists are those that the tree
        // posts, without the tree's own work.
        let raises = rate(|| {
            post(&endpoint, |list| {
                list.masked_cas(Space::OnChip, 0, 0, id, 0xffff);
                list.read(Space::Host, AT, bytes as u32);
            })?;
            post(&endpoint, |list| {
                list.write(Space::Host, AT, &node);
                list.write(Space::OnChip, 0, &[0; 2]);
            })
        })?;
        let within = raises * READ_WINDOW.as_secs_f64();
        println!(
            "{bytes} B: {raises:.0} rewrites of one node a second, {within:.0} within {READ_WINDOW:?}: a \
             wrap takes {:.0} x as many",
            WRAP / within
        );
    }
    for bytes in [64, 256, 1024, 2048, 4096] {
        let reads = rate(|| post(&endpoint, |list| _ = list.read(Space::Host, AT, bytes)))?;
        println!("READ of {bytes} B: {:.1} ns", 1e9 / reads);
    }
    Ok(())
}
