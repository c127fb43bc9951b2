//! Runs work on several threads while the starting thread watches them.

use crate::error::BenchError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// The interval between progress updates.
const TICK: Duration = Duration::from_millis(100);

/// Returns the share of `total` for number `part` of `parts`.
pub(crate) fn share(total: u64, part: usize, parts: usize) -> u64 {
    let (part, parts) = (part as u64, parts as u64);
    total / parts + u64::from(part < total % parts)
}

/// Calls `work` for every input, each on its own thread. Calls `tick` on the current thread meanwhile, until
/// all threads have ended. The first failed thread sets `abort`, and so does an error of `tick`. Threads must
/// check `abort` at intervals.
pub(crate) fn on_threads<I: Send, T: Send>(
    inputs: Vec<I>,
    abort: &AtomicBool,
    tick: &mut dyn FnMut() -> Result<(), BenchError>,
    work: impl Fn(usize, I) -> Result<T, BenchError> + Sync,
) -> Result<Vec<T>, BenchError> {
    thread::scope(|scope| {
        let (alive, ended) = channel::<()>();
        let mut handles = Vec::with_capacity(inputs.len());
        for (number, input) in inputs.into_iter().enumerate() {
            let (work, alive) = (&work, alive.clone());
            let spawned =
                thread::Builder::new().name(format!("bench-{number}")).spawn_scoped(scope, move || {
                    let _alive = alive;
                    let outcome = work(number, input);
                    if outcome.is_err() {
                        abort.store(true, Ordering::Relaxed);
                    }
                    outcome
                });
            match spawned {
                Ok(handle) => handles.push(handle),
                Err(error) => {
                    abort.store(true, Ordering::Relaxed);
                    return Err(BenchError::Thread(format!("cannot start thread {number}: {error}")));
                }
            }
        }
        drop(alive);
        let mut ticking = Ok(());
        while ended.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
            if ticking.is_ok() {
                ticking = tick();
                abort.fetch_or(ticking.is_err(), Ordering::Relaxed);
            }
        }
        let panicked = |_| Err(BenchError::Thread("it panicked".to_owned()));
        // Join all threads before looking at the first error.
        let outcomes: Vec<_> =
            handles.into_iter().map(|handle| handle.join().unwrap_or_else(panicked)).collect();
        ticking.and_then(|()| outcomes.into_iter().collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        for (total, parts) in [(0, 3), (10, 3), (2, 5), (1000, 1)] {
            assert_eq!((0..parts).map(|part| share(total, part, parts)).sum::<u64>(), total);
        }
    }

    #[test]
    fn the_first_failure_makes_all_stop() {
        let abort = AtomicBool::new(false);
        let wait = || {
            while !abort.load(Ordering::Relaxed) {
                thread::yield_now();
            }
        };
        let fail = || BenchError::Thread("on purpose".to_owned());
        let outcome = on_threads(vec![false, true, false], &abort, &mut || Ok(()), |number, fails| {
            if fails {
                return Err(fail());
            }
            wait();
            Ok(number)
        });
        assert!(matches!(outcome, Err(BenchError::Thread(reason)) if reason == "on purpose"));
        abort.store(false, Ordering::Relaxed);
        let outcome = on_threads(vec![(); 2], &abort, &mut || Err(fail()), |_, ()| {
            wait();
            Ok(())
        });
        assert!(outcome.is_err());
    }
}
