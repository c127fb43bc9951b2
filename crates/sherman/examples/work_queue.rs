//! A work queue: several threads claim jobs by compare-and-exchange, and each job runs exactly once.
//!
//! `cargo run -p sherman-tree --example work_queue`

use sherman::{Cluster, Error, Exchange, Tree};
use std::sync::atomic::{AtomicU32, Ordering};

sherman::record! {
    /// The state of a job.
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Job {
        /// The worker that owns the job; 0 if it is free.
        owner: u32,
        done: bool,
        result: u64,
    }
}

const JOBS: u64 = 2_000;
const WORKERS: u32 = 4;
const FREE: Job = Job { owner: 0, done: false, result: 0 };

/// Claims free jobs in order and does them until none is free. Returns how many it did, and how often another
/// worker was faster.
fn work(jobs: &Tree<u64, Job>, me: u32, runs: &[AtomicU32]) -> Result<(u32, u32), Error> {
    let client = jobs.client()?;
    let (mut did, mut lost) = (0, 0);
    let mut from = 0;
    while let Some((number, _)) = next_free(&client, from)? {
        from = number + 1;
        let mine = Job { owner: me, ..FREE };
        match client.compare_exchange(number, Some(FREE), Some(mine))? {
            Exchange::Done => {
                // This worker owns the job: no other worker can have exchanged it.
                runs[number as usize].fetch_add(1, Ordering::Relaxed);
                let finished = Job { done: true, result: number * number, ..mine };
                assert!(client.compare_exchange(number, Some(mine), Some(finished))?.is_done());
                did += 1;
            }
            Exchange::Found(_) | Exchange::Absent => lost += 1,
        }
    }
    Ok((did, lost))
}

/// The first free job at or after `from`.
fn next_free(client: &sherman::Client<u64, Job>, from: u64) -> Result<Option<(u64, Job)>, Error> {
    client.range(from..).find(|entry| entry.as_ref().map_or(true, |(_, job)| *job == FREE)).transpose()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cluster = Cluster::open("embedded:?servers=2&memory=64MiB")?;
    let jobs = cluster.tree::<u64, Job>("jobs")?;
    jobs.bulk_load((0..JOBS).map(|number| (number, FREE)), &sherman::BulkOptions::new())?;

    let runs: Vec<AtomicU32> = (0..JOBS).map(|_| AtomicU32::new(0)).collect();
    let all = std::thread::scope(|scope| {
        let (jobs, runs) = (&jobs, &runs);
        let workers: Vec<_> = (1..=WORKERS).map(|me| scope.spawn(move || work(jobs, me, runs))).collect();
        workers
            .into_iter()
            .map(|worker| worker.join().map_err(|_| "a worker panicked"))
            .collect::<Result<Vec<_>, _>>()
    })?;
    let mut total = 0;
    for (me, outcome) in (1..).zip(all) {
        let (did, lost) = outcome?;
        println!("worker {me}: {did} jobs done, {lost} times another was faster");
        total += did;
    }
    assert_eq!(u64::from(total), JOBS);
    assert!(runs.iter().all(|runs| runs.load(Ordering::Relaxed) == 1), "each job ran once");
    for entry in jobs.client()?.range(..) {
        let (number, job) = entry?;
        assert!(job.done && job.result == number * number && (1..=WORKERS).contains(&job.owner));
    }
    Ok(())
}
