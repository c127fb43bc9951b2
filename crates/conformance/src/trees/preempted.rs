//! How long the operating system kept a thread waiting for a processor.
//!
//! A test that bounds how long an operation waits for others must not count this time: on a machine with few
//! processors it can be a hundred times the duration of the operation.

use std::fs::File;
use std::time::Instant;

/// The times at which one thread was ready to run and did not run, from the kernel's statistics. Without
/// these statistics it stays empty.
#[derive(Debug)]
pub(super) struct Preempted {
    start: Instant,
    statistics: Option<File>,
    /// The time and the kernel's sum at the last look.
    last: (u64, u64),
    gaps: Vec<Gap>,
}

/// Between two looks, a thread waited for a processor for some of the time. All in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) waited: u64,
}

impl Preempted {
    /// For the calling thread. Times count from `start`.
    pub(super) fn new(start: Instant) -> Self {
        let statistics = File::open("/proc/thread-self/schedstat").ok();
        let mut new = Self { start, statistics, last: (0, 0), gaps: Vec::new() };
        new.last = (new.now(), new.waited().unwrap_or(0));
        new
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// The second number of the statistics: the time that the thread has spent in run queues.
    fn waited(&self) -> Option<u64> {
        let mut bytes = [0; 64];
        let len = read_at_start(self.statistics.as_ref()?, &mut bytes)?;
        std::str::from_utf8(bytes.get(..len)?).ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
    }

    /// Notes the time that the thread has waited since the last look.
    pub(super) fn look(&mut self) {
        let Some(waited) = self.waited() else { return };
        let (from, before) = self.last;
        let to = self.now();
        self.last = (to, waited);
        if waited > before {
            self.gaps.push(Gap { from, to, waited: waited - before });
        }
    }

    pub(super) fn into_gaps(self) -> Vec<Gap> {
        self.gaps
    }
}

#[cfg(unix)]
fn read_at_start(file: &File, bytes: &mut [u8]) -> Option<usize> {
    std::os::unix::fs::FileExt::read_at(file, bytes, 0).ok()
}

#[cfg(not(unix))]
fn read_at_start(_: &File, _: &mut [u8]) -> Option<usize> {
    None
}

/// The gaps of several threads, in order.
#[derive(Debug, Default)]
pub(super) struct Gaps(Vec<Gap>);

impl Gaps {
    pub(super) fn new(mut gaps: Vec<Gap>) -> Self {
        gaps.sort_unstable_by_key(|gap| gap.to);
        Self(gaps)
    }

    /// How long any thread waited for a processor between the two times, at most.
    pub(super) fn within(&self, from: u64, to: u64) -> u64 {
        let first = self.0.partition_point(|gap| gap.to <= from);
        // The gaps of different threads overlap, so that a later one may begin earlier. None is longer than
        // a few looks, and a look comes with every poll.
        self.0[first..]
            .iter()
            .take_while(|gap| gap.to < to || gap.from < to)
            .map(|gap| gap.waited.min(gap.to.min(to).saturating_sub(gap.from.max(from))))
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_count_as_far_as_they_overlap_an_operation() {
        let gap = |from, to, waited| Gap { from, to, waited };
        let gaps = Gaps::new(vec![gap(50, 60, 10), gap(10, 20, 4), gap(100, 200, 30)]);
        assert_eq!(gaps.within(0, 300), 44);
        assert_eq!(gaps.within(20, 50), 0);
        assert_eq!((gaps.within(18, 55), gaps.within(12, 20)), (2 + 5, 4));
        assert_eq!(gaps.within(190, 1000), 10);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_thread_that_shares_its_processor_waits() {
        let start = Instant::now();
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
        let waited: u64 = std::thread::scope(|scope| {
            let spin = || {
                let mut preempted = Preempted::new(start);
                while start.elapsed().as_millis() < 200 {
                    preempted.look();
                }
                preempted.into_gaps().iter().map(|gap| gap.waited).sum::<u64>()
            };
            let threads: Vec<_> = (0..4 * processors).map(|_| scope.spawn(spin)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
        });
        assert!(waited > 100_000_000, "{waited}");
    }
}
