//! The suites that every backend runs, on memory servers in this process.

use sherman::Cluster;
use sherman_conformance::trees::Failure;
use std::time::Duration;

const URL: &str = "embedded:?servers=3&memory=64MiB&chunk=1MiB";

#[test]
fn operations_do_what_they_do_to_a_map() -> Result<(), Failure> {
    let cluster = Cluster::open(URL)?;
    (0..4).try_for_each(|seed| {
        sherman_conformance::trees::model(&cluster, &format!("model-{seed}"), seed, 4_000)
    })
}

#[test]
fn threads_of_many_compute_servers_lose_nothing() -> Result<(), Failure> {
    let cluster = Cluster::open(URL)?;
    let done = sherman_conformance::trees::stress(
        &|| Ok(cluster.join()?),
        "stress",
        1,
        3,
        2,
        Duration::from_secs(2),
    )?;
    assert!(done.operations > 1_000 && done.increments > 10, "{done:?}");
    Ok(())
}

#[test]
fn ranges_miss_nothing_that_is_there_throughout() -> Result<(), Failure> {
    let cluster = Cluster::open(URL)?;
    let read =
        sherman_conformance::trees::ranges(&|| Ok(cluster.join()?), "ranges", 1, 2, Duration::from_secs(2))?;
    assert!(read > 10, "{read}");
    Ok(())
}
