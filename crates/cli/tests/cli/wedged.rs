//! A load that meets permanently held locks reports that soon after the first time-out.

use crate::common::servers::{Servers, Transport};
use crate::common::{run, text};
use sherman::{AnyFabric, Cluster};
use sherman_executor::block_on;
use sherman_fabric::{Counters, Endpoint, Space, execute};
use std::time::{Duration, Instant};

/// Bytes of all lanes of the server.
const ON_CHIP: u64 = 4096;
/// How long an operation of the load waits.
const TIMEOUT: Duration = Duration::from_secs(4);

#[test]
fn a_load_on_lanes_that_stay_held_ends_soon_after_the_first_timeout() {
    let more = ["--memory", "64MiB", "--chunk", "1MiB", "--on-chip", "4KiB", "--lease", "120s"];
    let servers = Servers::start(Transport::Unix, 1, &more);
    let url = servers.url();
    let cluster = Cluster::open(&url).expect("a member");
    let tree = cluster.tree::<u64, u64>("t").expect("a tree");
    tree.bulk_load((0..10_000).map(|key| (2 * key, key)), &sherman::BulkOptions::default()).expect("a load");

    // A live member takes one lane in eight and never releases it.
    let holder = AnyFabric::open(&url).expect("a member");
    let endpoint = holder.endpoint().expect("an endpoint");
    let held: Vec<u64> = (0..ON_CHIP / 2).step_by(8).collect();
    for lanes in held.chunks(32) {
        let mut list = endpoint.list(0);
        for lane in lanes {
            list.write(Space::OnChip, 2 * lane, &endpoint.client().0.to_le_bytes());
        }
        block_on(&endpoint, execute(&endpoint, list, &Counters::default())).expect("the server is there");
    }

    let input: String =
        (0..10_000_u64).map(|key| format!("{},{key}\n", 2 * (key * 7919 % 10_007) + 1)).collect();
    let began = Instant::now();
    let timeout = TIMEOUT.as_secs().to_string();
    let output = run(&["load", "-", "--tree", "t", "--cluster", &url, "--timeout", &timeout], &input);
    let took = began.elapsed();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(took >= TIMEOUT && took < TIMEOUT + Duration::from_secs(5), "{took:?}: {said}");
    let loaded = tree.client().expect("a client").len().expect("a count") - 10_000;
    let grouped = sherman_eval::report::grouped(loaded);
    assert!(
        said.starts_with("error: line ") && said.contains(&format!("; {grouped} entries have been loaded")),
        "{said}: {loaded}"
    );
}
