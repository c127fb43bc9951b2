//! Measures the processor time of threads and processes during a run.

use crate::report::Figure;
use rustix::time::{ClockId, clock_gettime};
use std::error::Error;
use std::time::Instant;

fn seconds(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Returns the processor time of a process in seconds, over its threads that still exist. The process is a
/// server.
pub(crate) fn of_process(pid: u32) -> f64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let stats = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("schedstat")).ok());
    let nanos = stats.filter_map(|stat| stat.split(' ').next().and_then(|time| time.parse::<u64>().ok()));
    nanos.sum::<u64>() as f64 / 1e9
}

/// Measures `run`, which returns its number of operations. This thread is the client, all other threads are
/// the server.
pub(crate) fn in_threads(
    run: impl FnOnce() -> Result<u64, Box<dyn Error>>,
) -> Result<Figure, Box<dyn Error>> {
    let server = || seconds(ClockId::ProcessCPUTime) - seconds(ClockId::ThreadCPUTime);
    between(|| seconds(ClockId::ThreadCPUTime), server, run)
}

/// Measures `run`. This process is the client, process `pid` is the server.
pub(crate) fn with_server(
    pid: u32,
    run: impl FnOnce() -> Result<u64, Box<dyn Error>>,
) -> Result<Figure, Box<dyn Error>> {
    between(|| seconds(ClockId::ProcessCPUTime), || of_process(pid), run)
}

/// Measures `run` between two readings of the processor time of both sides.
pub(crate) fn between(
    client: impl Fn() -> f64,
    server: impl Fn() -> f64,
    run: impl FnOnce() -> Result<u64, Box<dyn Error>>,
) -> Result<Figure, Box<dyn Error>> {
    let (begun, client_before, server_before) = (Instant::now(), client(), server());
    let done = run()? as f64;
    let elapsed = begun.elapsed().as_secs_f64();
    let cores = |now: f64, before: f64| (now - before) / elapsed;
    let (client, server) = (cores(client(), client_before), cores(server(), server_before));
    Ok(Figure { rate: done / elapsed, client, server })
}
