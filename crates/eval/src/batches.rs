//! A client that passes its keys to the index in batches. It checks every answer, as a [`Driver`] does, and
//! times none.
//!
//! [`Driver`]: crate::drive::Driver

use crate::drive::{Known, Limits};
use crate::error::BenchError;
use crate::record::Recorder;
use crate::workload::{Action, Generator};
use sherman::RawClient;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Runs batches of `batch` operations, at most `quota` operations together, until time runs out. All
/// operations must be gets, or all must be inserts.
pub(crate) fn run(
    client: &RawClient,
    limits: &Limits<'_>,
    recorder: &mut Recorder,
    generator: &mut Generator,
    known: Known,
    (batch, quota): (usize, u64),
) -> Result<(), BenchError> {
    let mut left = quota;
    let late = || limits.deadline.is_some_and(|deadline| Instant::now() >= deadline);
    while left > 0 && !late() && !limits.abort.load(Ordering::Relaxed) {
        let count = left.min(batch as u64);
        let actions: Vec<Action> = (0..count).map(|_| generator.next_action()).collect();
        let outcome = run_one(client, limits, recorder, generator, known, &actions);
        if outcome.is_err() {
            limits.abort.store(true, Ordering::Relaxed);
            return outcome;
        }
        recorder.operations += count;
        left -= count;
    }
    Ok(())
}

fn run_one(
    client: &RawClient,
    limits: &Limits<'_>,
    recorder: &mut Recorder,
    generator: &Generator,
    known: Known,
    actions: &[Action],
) -> Result<(), BenchError> {
    let keys = generator.keys();
    let key_of = |index: u64| {
        let mut key = vec![0; keys.key_size()];
        keys.write_key(index, &mut key);
        key
    };
    let failed = |error: &sherman::Error| BenchError::Operation { phase: limits.phase, error: error.clone() };
    let wrong = |what, index| Err(BenchError::Wrong { what, index });
    let (mut wanted, mut entries) = (Vec::new(), Vec::new());
    for (version, &action) in (recorder.operations..).zip(actions) {
        match action {
            Action::Get(index) => wanted.push(key_of(index)),
            Action::Update(index) | Action::Insert(index) => {
                let mut value = vec![0; known.value_size];
                keys.write_value(index, version, &mut value);
                entries.push((key_of(index), value));
            }
            _ => return Err(BenchError::option("batch", "only gets and inserts can be batched")),
        }
    }
    let found = if entries.is_empty() {
        client.get_many(&wanted).map_err(|error| failed(error.first().1))?
    } else if wanted.is_empty() {
        client.insert_many(&entries).map_err(|error| failed(error.first().1))?
    } else {
        return Err(BenchError::option("batch", "a batch has gets alone or inserts alone"));
    };
    for (&action, found) in actions.iter().zip(&found) {
        let (Action::Get(index) | Action::Update(index) | Action::Insert(index)) = action else { continue };
        match (action, found) {
            (Action::Insert(_), None) => recorder.added += 1,
            (Action::Insert(_), Some(_)) => return wrong("a new key already existed", index),
            (_, None) => return wrong("an existing key was not found", index),
            (_, Some(value)) if value.len() == known.value_size && keys.value_fits(index, value) => {}
            (_, Some(_)) => return wrong("a value does not belong to its key", index),
        }
    }
    Ok(())
}
