//! Two compute servers that use one key: each with 64 threads, or with one thread that has 64 tasks.
//!
//! A plain run takes a second for each case. With `SHERMAN_ONE_KEY_SECS` it takes as many seconds as that
//! says. The runs with tasks then also check that no operation waits longer than 100 times the median. They
//! do not count the time for which the operating system kept threads waiting for a processor. With more
//! threads than processors, that is almost all of the time.

use super::network::{Servers, Transport};
use sherman::Cluster;
use sherman_conformance::trees::{Failure, one_key};
use std::time::Duration;

const COMPUTES: u64 = 2;
/// Threads of each compute server, and tasks of each thread.
const CASES: [(u64, u64); 2] = [(64, 1), (1, 64)];
/// The longest that an operation may wait, in medians.
const MOST_MEDIANS: u32 = 100;

fn check(what: &str, open: &(dyn Fn() -> Result<Cluster, Failure> + Sync)) -> Result<(), Failure> {
    let asked = std::env::var("SHERMAN_ONE_KEY_SECS").ok().and_then(|seconds| seconds.parse().ok());
    let time = Duration::from_secs(asked.unwrap_or(1));
    for (threads, tasks) in CASES {
        let done = one_key(open, &format!("one-key-{tasks}"), COMPUTES, threads, tasks, time)?;
        println!("{what}, 2 x {threads} threads of {tasks} tasks: {done:?}");
        assert!(done.updates > 100 && done.gets > 30, "{what}: {done:?}");
        if asked.is_some() && threads == 1 {
            assert!(done.longest_wait <= MOST_MEDIANS * done.median, "{what}: {done:?}");
        }
    }
    Ok(())
}

#[test]
fn all_operations_on_one_key_have_a_legal_order_in_one_process() -> Result<(), Failure> {
    let cluster = Cluster::open("embedded:?servers=1&memory=64MiB&chunk=1MiB")?;
    check("embedded", &|| Ok(cluster.join()?))
}

#[test]
fn all_operations_on_one_key_have_a_legal_order_over_tcp() -> Result<(), Failure> {
    let servers = Servers::start(Transport::Tcp, 1)?;
    check("tcp", &|| servers.open())
}
