//! Threads that load an index, or execute a run's operations on it.
//!
//! Threads take operations from a common list, a chunk at a time. So all threads end together, and every
//! index does exactly the same work. Time runs from the first thread's start to the last thread's end.
//! Handles are created before. The threads add up all values they read, and each get must find its key (but
//! see [`Index::MAY_MISS`]). So an index cannot win by doing nothing.

use crate::error::Failure;
use crate::index::{Handle, Index};
use crate::workload::{Kind, Operations, RANGE};
use sherman_eval::Keys;
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Operations that a thread takes at once: far fewer than a run has, and enough to make the cost of taking
/// them negligible.
const CHUNK: usize = 256;

/// The time for a number of operations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Operations done.
    pub operations: u64,
    /// The elapsed time.
    pub elapsed: Duration,
    /// Loaded keys that gets did not find, for an index that may miss some.
    pub misses: u64,
}

impl Pace {
    /// Operations per second.
    pub fn per_second(&self) -> f64 {
        self.operations as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// Any index.
pub trait Subject {
    /// Drops the old index, opens an empty one and inserts all keys.
    fn load(&mut self, keys: &Keys, threads: usize) -> Result<Pace, Failure>;

    /// Executes `operations`, or as many as `limit` allows.
    fn execute(&self, operations: &Operations, threads: usize, limit: Duration) -> Result<Pace, Failure>;
}

/// A slot for an index.
pub struct Tenant<I>(Option<I>);

impl<I: Index + 'static> Tenant<I> {
    /// Returns an empty slot.
    pub fn vacant() -> Box<dyn Subject> {
        Box::new(Self(None))
    }
}

impl<I: Index> Subject for Tenant<I> {
    fn load(&mut self, keys: &Keys, threads: usize) -> Result<Pace, Failure> {
        self.0 = None;
        let index = I::open(keys.count())?;
        let count = usize::try_from(keys.count()).map_err(|_| Failure::OutOfMemory)?;
        let pace = share(&index, count, threads, Duration::MAX, |handle: &mut I::Handle<'_>, nth| {
            let loaded = keys.loaded(nth as u64);
            handle.insert(keys.number(loaded), loaded)?;
            Ok(0)
        })?;
        self.0 = Some(index);
        Ok(pace)
    }

    fn execute(&self, operations: &Operations, threads: usize, limit: Duration) -> Result<Pace, Failure> {
        let Some(index) = &self.0 else { return Err(Failure::Unsupported("not loaded")) };
        let misses = AtomicU64::new(0);
        let miss = |key| match I::MAY_MISS
            && misses.fetch_add(1, Ordering::Relaxed) < most_misses(operations.len())
        {
            true => Ok(0),
            false => Err(Failure::Missing { key }),
        };
        let pace = share(index, operations.len(), threads, limit, |handle: &mut I::Handle<'_>, nth| {
            let key = operations.keys[nth];
            match operations.kinds[nth] {
                Kind::Insert => handle.insert(key, nth as u64).map(|()| 0),
                Kind::Get => handle.get(key)?.map_or_else(|| miss(key), Ok),
                Kind::Range => match handle.range(key, RANGE)? {
                    sum if sum.entries > 0 => Ok(sum.total),
                    _ => miss(key),
                },
            }
        })?;
        Ok(Pace { misses: misses.into_inner(), ..pace })
    }
}

/// The most keys that an index with [`Index::MAY_MISS`] may miss in a run. More misses mean lost keys, not a
/// race.
fn most_misses(operations: usize) -> u64 {
    operations as u64 / 100
}

/// The work of one thread.
struct Part {
    operations: u64,
    start: Instant,
    end: Instant,
}

/// Performs `operation` on `0..count`, divided among `threads`.
fn share<I, F>(
    index: &I,
    count: usize,
    threads: usize,
    limit: Duration,
    operation: F,
) -> Result<Pace, Failure>
where
    I: Index,
    F: Fn(&mut I::Handle<'_>, usize) -> Result<u64, Failure> + Sync,
{
    let (next, barrier) = (AtomicUsize::new(0), Barrier::new(threads));
    // Join all threads before returning the failure of one.
    let parts: Vec<Result<Part, Failure>> = std::thread::scope(|scope| {
        let work = || {
            let handle = index.handle();
            barrier.wait();
            work_off(&mut handle?, &next, count, limit, &operation)
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or(Err(Failure::Panicked))).collect()
    });
    let parts = parts.into_iter().collect::<Result<Vec<Part>, Failure>>()?;
    let start = parts.iter().map(|part| part.start).min();
    let end = parts.iter().map(|part| part.end).max();
    let elapsed = start.zip(end).map_or(Duration::ZERO, |(start, end)| end - start);
    Ok(Pace { operations: parts.iter().map(|part| part.operations).sum(), elapsed, misses: 0 })
}

/// Performs the work of one thread.
#[inline]
fn work_off<H: Handle>(
    handle: &mut H,
    next: &AtomicUsize,
    count: usize,
    limit: Duration,
    operation: impl Fn(&mut H, usize) -> Result<u64, Failure>,
) -> Result<Part, Failure> {
    let start = Instant::now();
    let (mut operations, mut total) = (0, 0_u64);
    loop {
        let from = next.fetch_add(CHUNK, Ordering::Relaxed);
        if from >= count || start.elapsed() > limit {
            break;
        }
        let to = count.min(from + CHUNK);
        for nth in from..to {
            total = total.wrapping_add(black_box(operation(handle, nth)?));
        }
        operations += (to - from) as u64;
    }
    black_box(total);
    Ok(Part { operations, start, end: Instant::now() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Sum;
    use crate::workload::{Dice, Distribution, Mix, keys};
    use std::sync::Mutex;

    /// An index that records its inserts.
    struct Diary(Mutex<Vec<u64>>);

    impl Index for Diary {
        type Handle<'a> = &'a Diary;

        fn open(_keys: u64) -> Result<Self, Failure> {
            Ok(Self(Mutex::default()))
        }

        fn handle(&self) -> Result<&Self, Failure> {
            Ok(self)
        }
    }

    impl Handle for &Diary {
        fn insert(&mut self, key: u64, _value: u64) -> Result<(), Failure> {
            self.0.lock().expect("no panic").push(key);
            Ok(())
        }

        fn get(&mut self, _key: u64) -> Result<Option<u64>, Failure> {
            std::thread::sleep(Duration::from_micros(50));
            Ok(None)
        }

        fn range(&mut self, _from: u64, _limit: usize) -> Result<Sum, Failure> {
            panic!("as an index with a bug does");
        }
    }

    fn diary(count: u64) -> Tenant<Diary> {
        let mut tenant = Tenant::<Diary>(None);
        tenant.load(&keys(count).expect("legal keys"), 2).expect("a diary takes everything");
        tenant
    }

    fn operations(mix: Mix) -> Operations {
        Dice::new(1000, 1)
            .and_then(|mut dice| dice.draw(mix, Distribution::Uniform, 1000))
            .expect("a legal run")
    }

    #[test]
    fn every_key_is_loaded_once_whatever_the_number_of_threads() {
        for (count, threads) in [(1, 2), (256, 1), (1000, 3)] {
            let keys = keys(count).expect("legal keys");
            let mut tenant = Tenant::<Diary>(None);
            let pace = tenant.load(&keys, threads).expect("a diary takes everything");
            let mut seen = tenant.0.expect("loaded").0.into_inner().expect("no panic");
            let mut expected: Vec<u64> = (0..count).map(|index| keys.number(index)).collect();
            seen.sort_unstable();
            expected.sort_unstable();
            assert_eq!((pace.operations, seen), (count, expected));
        }
    }

    #[test]
    fn an_index_that_loses_a_key_or_panics_has_no_result() {
        let limit = Duration::from_secs(5);
        let missing = diary(1000).execute(&operations(Mix::ReadOnly), 2, limit);
        assert!(matches!(missing, Err(Failure::Missing { .. })), "{missing:?}");
        let panicked = diary(1000).execute(&operations(Mix::Range), 2, limit);
        assert!(matches!(panicked, Err(Failure::Panicked)), "{panicked:?}");
    }

    #[test]
    fn an_index_that_may_miss_is_allowed_a_few_misses_and_no_more() {
        /// An index that misses one key in `ONE_IN`.
        struct Leaky<const ONE_IN: u64>(AtomicU64);
        impl<const ONE_IN: u64> Index for Leaky<ONE_IN> {
            type Handle<'a> = &'a Self;
            const MAY_MISS: bool = true;
            fn open(_keys: u64) -> Result<Self, Failure> {
                Ok(Self(AtomicU64::new(0)))
            }
            fn handle(&self) -> Result<&Self, Failure> {
                Ok(self)
            }
        }
        impl<const ONE_IN: u64> Handle for &Leaky<ONE_IN> {
            fn insert(&mut self, _key: u64, _value: u64) -> Result<(), Failure> {
                Ok(())
            }
            fn get(&mut self, key: u64) -> Result<Option<u64>, Failure> {
                Ok(Some(key).filter(|_| !self.0.fetch_add(1, Ordering::Relaxed).is_multiple_of(ONE_IN)))
            }
            fn range(&mut self, _from: u64, _limit: usize) -> Result<Sum, Failure> {
                Ok(Sum::default())
            }
        }
        let execute =
            |tenant: &dyn Subject| tenant.execute(&operations(Mix::ReadOnly), 1, Duration::from_secs(5));
        let few = execute(&Tenant(Some(Leaky::<200>(AtomicU64::new(0)))));
        assert!(few.as_ref().is_ok_and(|pace| pace.misses == 5), "{few:?}");
        let many = execute(&Tenant(Some(Leaky::<50>(AtomicU64::new(0)))));
        assert!(matches!(many, Err(Failure::Missing { .. })), "{many:?}");
    }

    #[test]
    fn a_run_ends_when_its_time_is_over() {
        let pace =
            diary(1).execute(&operations(Mix::Insert), 1, Duration::ZERO).expect("a diary takes everything");
        assert!(pace.operations < 1000, "{pace:?}");
    }
}
