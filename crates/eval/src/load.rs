//! Loads the tree: in bulk, as one sorted sequence, or by inserts, in which each thread inserts its share in
//! a shuffled order.

use crate::error::BenchError;
use crate::keys::Keys;
use crate::options::{BenchOptions, Load};
use crate::threads::{on_threads, share};
use sherman::{BulkOptions, Error, RawTree};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The number of keys between two progress updates.
const BATCH: u64 = 1024;

/// Loads all keys. Calls `progress` at intervals with the number of keys, on the calling thread.
pub(crate) fn load(
    tree: &RawTree,
    keys: &Keys,
    options: &BenchOptions,
    progress: &dyn Fn(u64),
) -> Result<(), BenchError> {
    progress(0);
    match options.load {
        Load::Bulk => load_in_bulk(tree, keys, options, progress)?,
        Load::Insert => load_by_inserts(tree, keys, options, progress)?,
    }
    progress(keys.count());
    Ok(())
}

fn failed(error: Error) -> BenchError {
    BenchError::Operation { phase: "loading", error }
}

fn load_in_bulk(
    tree: &RawTree,
    keys: &Keys,
    options: &BenchOptions,
    progress: &dyn Fn(u64),
) -> Result<(), BenchError> {
    let (mut key, mut value) = (vec![0; keys.key_size()], vec![0; options.value_size]);
    let entries = keys.sorted().zip(1..).map(|(number, nth)| {
        // Every number here belongs to an index. If one did not, its value would be wrong, and lookups would
        // notice.
        let index = keys.index_of(number).unwrap_or(u64::MAX);
        keys.write_number(number, &mut key);
        keys.write_value(index, 0, &mut value);
        if nth % BATCH == 0 {
            progress(nth);
        }
        (key.clone(), value.clone())
    });
    let bulk = BulkOptions::new().fill(f64::from(options.fill) / 100.0).threads(options.threads);
    let loaded = tree.bulk_load(entries, &bulk).map_err(failed)?;
    if loaded != keys.count() {
        return Err(BenchError::Entries { found: loaded, expected: keys.count() });
    }
    Ok(())
}

fn load_by_inserts(
    tree: &RawTree,
    keys: &Keys,
    options: &BenchOptions,
    progress: &dyn Fn(u64),
) -> Result<(), BenchError> {
    let (abort, loaded) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut tell = || {
        progress(loaded.load(Ordering::Relaxed));
        Ok(())
    };
    on_threads(vec![(); options.threads], &abort, &mut tell, |thread, ()| {
        insert_share(tree, keys, options, thread, &abort, &loaded)
    })?;
    Ok(())
}

fn insert_share(
    tree: &RawTree,
    keys: &Keys,
    options: &BenchOptions,
    thread: usize,
    abort: &AtomicBool,
    loaded: &AtomicU64,
) -> Result<(), BenchError> {
    let client = tree.client().map_err(failed)?;
    let (mut key, mut value, mut old) = (vec![0; keys.key_size()], vec![0; options.value_size], Vec::new());
    let count = share(keys.count(), thread, options.threads);
    for nth in 0..count {
        // Thread t loads keys t, t + threads, and so on: all threads together load every key once.
        let index = keys.loaded(nth * options.threads as u64 + thread as u64);
        keys.write_key(index, &mut key);
        keys.write_value(index, 0, &mut value);
        if client.insert_into(&key, &value, &mut old).map_err(failed)? {
            return Err(BenchError::Wrong { what: "a key existed before it was loaded", index });
        }
        if (nth + 1).is_multiple_of(BATCH) {
            loaded.fetch_add(BATCH, Ordering::Relaxed);
            if abort.load(Ordering::Relaxed) {
                return Ok(());
            }
        }
    }
    loaded.fetch_add(count % BATCH, Ordering::Relaxed);
    Ok(())
}
