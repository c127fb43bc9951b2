//! One phase of a measurement: threads with their own clients, until time or operations run out.

use crate::batches;
use crate::drive::{Driver, Known, Limits, run_at_once, run_together};
use crate::error::BenchError;
use crate::options::{BenchOptions, Length, seconds};
use crate::record::Recorder;
use crate::threads::{on_threads, share};
use crate::workload::Generator;
use sherman::{RawTree, Stats};
use std::cell::RefCell;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// The work of a phase's clients.
pub(super) struct Phase {
    pub(super) stats: Stats,
    pub(super) recorder: Recorder,
    pub(super) elapsed: Duration,
    pub(super) generators: Vec<Vec<Generator>>,
}

struct OfThread {
    stats: Stats,
    recorder: Recorder,
    began: Instant,
    ended: Instant,
    generators: Vec<Generator>,
}

/// Drives all clients for `length`.
pub(super) fn phase(
    tree: &RawTree,
    options: &BenchOptions,
    known: Known,
    name: &'static str,
    length: Length,
    generators: Vec<Vec<Generator>>,
    tick: &dyn Fn(Duration),
) -> Result<Phase, BenchError> {
    let abort = AtomicBool::new(false);
    let began = Instant::now();
    let (deadline, operations) = match length {
        Length::Seconds(length) => (began.checked_add(seconds(length)), None),
        Length::Operations(operations) => (None, Some(operations)),
    };
    let limits = Limits { deadline, abort: &abort, phase: name };
    tick(Duration::ZERO);
    let mut tick = || {
        tick(began.elapsed());
        Ok(())
    };
    let threads = on_threads(generators, &abort, &mut tick, |thread, generators| {
        let quota = |slot| {
            let client = thread * options.coroutines + slot;
            operations.map_or(u64::MAX, |operations| share(operations, client, options.clients()))
        };
        drive_thread(tree, known, &limits, generators, options.batch, quota)
    })?;
    merge(threads)
}

fn merge(threads: Vec<OfThread>) -> Result<Phase, BenchError> {
    let mut whole = Phase {
        stats: Stats::default(),
        recorder: Recorder::new()?,
        elapsed: Duration::ZERO,
        generators: Vec::new(),
    };
    if let (Some(began), Some(ended)) =
        (threads.iter().map(|thread| thread.began).min(), threads.iter().map(|thread| thread.ended).max())
    {
        whole.elapsed = ended.duration_since(began);
    }
    for thread in threads {
        whole.stats.merge(&thread.stats);
        whole.recorder.merge(&thread.recorder);
        whole.generators.push(thread.generators);
    }
    Ok(whole)
}

/// Drives the clients of one thread.
fn drive_thread(
    tree: &RawTree,
    known: Known,
    limits: &Limits<'_>,
    mut generators: Vec<Generator>,
    batch: usize,
    quota: impl Fn(usize) -> u64,
) -> Result<OfThread, BenchError> {
    let failed = |error| BenchError::Operation { phase: limits.phase, error };
    let recorder = RefCell::new(Recorder::new()?);
    let began;
    let stats;
    if let [generator] = &mut generators[..] {
        let client = tree.client().map_err(failed)?;
        began = Instant::now();
        if batch > 1 {
            let recorder = &mut *recorder.borrow_mut();
            batches::run(&client, limits, recorder, generator, known, (batch, quota(0)))?;
        } else {
            run_at_once(Driver::new(&client, limits, &recorder, generator, known).run(quota(0)))?;
        }
        stats = client.stats();
    } else {
        let session = tree.session().map_err(failed)?;
        began = Instant::now();
        session.run(run_together(generators.iter_mut().enumerate().map(|(slot, generator)| {
            Driver::new(&session, limits, &recorder, generator, known).run(quota(slot))
        })))?;
        stats = session.stats();
    }
    Ok(OfThread { stats, recorder: recorder.into_inner(), began, ended: Instant::now(), generators })
}
