//! The outcome of a batch.

use crate::codec::{Rows, Stored};
use sherman_core::Error;
use std::fmt;

/// What the operations of a batch found.
pub struct Answers {
    /// For each key, whether it was present, or why its operation failed.
    pub(crate) found: Vec<Result<bool, Error>>,
    /// For each key that was present, its value.
    pub(crate) values: Rows,
}

/// At least one operation of a batch failed. The others are done: a batch is not atomic.
///
/// It has the result of every operation. `?` converts it into the [`Error`] of the first operation that
/// failed.
///
/// ```
/// # let cluster = sherman::Cluster::open("embedded:?memory=64MiB")?;
/// # let tree = cluster.raw_tree("words", &sherman::TreeOptions::new().sizes(3, 1))?;
/// # let client = tree.client()?;
/// let failure = client.insert_many(&[("one", [1]), ("three", [3])]).unwrap_err();
/// assert_eq!(failure.first().0, 1, "a key has three bytes in this tree");
/// assert_eq!(failure.results()[0], Ok(None));
/// assert_eq!(client.get("one")?, Some(vec![1]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct BatchError<V> {
    results: Vec<Result<Option<V>, Error>>,
    /// The number of the first operation that failed, and its error.
    first: (usize, Error),
}

impl<V> BatchError<V> {
    /// The number of the first operation that failed, and its error.
    pub fn first(&self) -> (usize, &Error) {
        (self.first.0, &self.first.1)
    }

    /// The result of every operation, in the order of the keys.
    pub fn results(&self) -> &[Result<Option<V>, Error>] {
        &self.results
    }

    /// The result of every operation, in the order of the keys.
    pub fn into_results(self) -> Vec<Result<Option<V>, Error>> {
        self.results
    }

    fn failures(&self) -> usize {
        self.results.iter().filter(|result| result.is_err()).count()
    }
}

/// All values, if no operation failed.
pub(crate) fn all_or_error<V>(
    results: impl Iterator<Item = Result<Option<V>, Error>>,
) -> Result<Vec<Option<V>>, BatchError<V>> {
    let mut found = Vec::with_capacity(results.size_hint().0);
    let mut results = results;
    while let Some(result) = results.next() {
        match result {
            Ok(value) => found.push(value),
            Err(error) => {
                let first = (found.len(), error.clone());
                let before = found.into_iter().map(Ok);
                return Err(BatchError {
                    results: before.chain([Err(error)]).chain(results).collect(),
                    first,
                });
            }
        }
    }
    Ok(found)
}

/// Decodes the answers of a batch of `count` operations. An error of the whole batch is the result of each
/// operation.
pub(crate) fn decode_all<V: Stored>(
    answers: Result<Answers, Error>,
    count: usize,
) -> Result<Vec<Option<V>>, BatchError<V>> {
    match answers {
        Ok(Answers { found, values }) => {
            let value = |(at, found): (usize, Result<bool, Error>)| {
                found.map(|found| found.then(|| V::read(values.row(at))))
            };
            all_or_error(found.into_iter().enumerate().map(value))
        }
        Err(error) => all_or_error((0..count).map(|_| Err(error.clone()))),
    }
}

impl<V> fmt::Display for BatchError<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (failures, all, (at, error)) = (self.failures(), self.results.len(), self.first());
        write!(f, "{failures} of {all} operations of the batch failed; the first is number {at}: {error}")
    }
}

impl<V> fmt::Debug for BatchError<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = f.debug_struct("BatchError");
        all.field("operations", &self.results.len()).field("failures", &self.failures());
        all.field("first", &self.first).finish_non_exhaustive()
    }
}

/// The message has the first failure, so it is not its [`source`](std::error::Error::source) too.
impl<V> std::error::Error for BatchError<V> {}

impl<V> From<BatchError<V>> for Error {
    fn from(batch: BatchError<V>) -> Self {
        batch.first.1
    }
}
