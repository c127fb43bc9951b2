//! Many schedules on several threads, with the same result as one thread that runs them in order.
//!
//! Threads take seeds in blocks that share a scenario, and the results of the blocks are added in the order
//! of seeds. So the totals, including the first violations, do not depend on the number of threads or on
//! their speed.

use super::explored::Explored;
use super::schedule::{Explorer, SEEDS_PER_SCENARIO};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The schedules to explore, and how.
#[derive(Clone, Debug)]
pub struct Many {
    /// The seeds.
    pub seeds: Range<u64>,
    /// Number of threads.
    pub threads: usize,
    /// Whether to stop at the first violation.
    pub only_first: bool,
}

/// The totals of all blocks up to `next`, and later blocks that finished early.
#[derive(Default)]
struct Sum {
    total: Explored,
    next: u64,
    early: BTreeMap<u64, Explored>,
}

impl Sum {
    /// Adds the result of block `number`, and of all blocks that waited for it. Returns false if further
    /// blocks do not count.
    fn add(&mut self, number: u64, explored: Explored, only_first: bool) -> bool {
        self.early.insert(number, explored);
        while let Some(explored) = self.early.remove(&self.next) {
            if only_first && self.total.violated > 0 {
                return false;
            }
            self.next += 1;
            self.total.merge(explored);
            self.total.violations.truncate(8);
        }
        !(only_first && self.total.violated > 0)
    }
}

impl Many {
    /// Explores the seeds. `make` gives each thread its explorer, together with any value that must live on
    /// that thread meanwhile. `tell` is called now and then with the number of schedules done, and the number
    /// with a violation.
    ///
    /// # Panics
    /// If a schedule panics. Its seed is printed.
    pub fn explore<G>(
        &self,
        make: impl Fn() -> (Explorer, G) + Sync,
        tell: impl Fn(u64, u64) + Sync,
    ) -> Explored {
        let first_block = self.seeds.start / SEEDS_PER_SCENARIO;
        let blocks = self.seeds.end.div_ceil(SEEDS_PER_SCENARIO) - first_block;
        let (taken, done) = (AtomicU64::new(0), AtomicU64::new(0));
        let sum = Mutex::new(Sum::default());
        let work = || {
            let (mut explorer, _kept) = make();
            loop {
                let number = taken.fetch_add(1, Ordering::Relaxed);
                if number >= blocks {
                    return;
                }
                let start = (first_block + number) * SEEDS_PER_SCENARIO;
                let seeds = start.max(self.seeds.start)..(start + SEEDS_PER_SCENARIO).min(self.seeds.end);
                let explored = self.block(&mut explorer, seeds);
                let done = done.fetch_add(explored.schedules, Ordering::Relaxed) + explored.schedules;
                let mut sum = lock(&sum);
                if !sum.add(number, explored, self.only_first) {
                    taken.store(blocks, Ordering::Relaxed);
                }
                tell(done, sum.total.violated);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..self.threads {
                scope.spawn(work);
            }
            work();
        });
        std::mem::take(&mut lock(&sum).total)
    }

    fn block(&self, explorer: &mut Explorer, seeds: Range<u64>) -> Explored {
        let mut explored = Explored::default();
        for seed in seeds {
            let announced = crate::explore::Announce(seed);
            explored.add(explorer.run(seed));
            drop(announced);
            if self.only_first && explored.violated > 0 {
                break;
            }
        }
        explored
    }
}

fn lock(sum: &Mutex<Sum>) -> MutexGuard<'_, Sum> {
    sum.lock().unwrap_or_else(PoisonError::into_inner)
}
