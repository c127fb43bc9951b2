//! A range read by operations that are awaited.

use super::{Cursor, Plan, RawEntryRef, Reading};
use sherman_core::{Error, Scan};
use std::fmt;

/// A range and the operation that reads on in it, of type `F`.
pub(super) struct Pull<F> {
    cursor: Cursor,
    /// Kept here, so that a `next` that is dropped half-way loses nothing.
    reading: Option<F>,
}

impl<F> fmt::Debug for Pull<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cursor.fmt(f)
    }
}

impl<F: Future<Output = Result<Option<Scan>, Error>> + Unpin> Pull<F> {
    pub(super) fn new(plan: Plan) -> Self {
        Self { cursor: Cursor::new(plan), reading: None }
    }

    pub(super) fn replan(&mut self, change: impl FnOnce(Plan) -> Plan) {
        self.cursor.replan(change);
    }

    /// The next entry, read by what `start` starts if none is buffered.
    pub(super) async fn advance(&mut self, start: impl FnOnce(Reading) -> F) -> Result<Option<RawEntryRef<'_>>, Error> {
        if self.cursor.has_none_buffered() {
            let reading = match &mut self.reading {
                Some(reading) => reading,
                None => {
                    let Some(next) = self.cursor.take() else { return Ok(None) };
                    self.reading.insert(start(next))
                }
            };
            let read = reading.await;
            self.reading = None;
            self.cursor.resume(read)?;
        }
        Ok(self.cursor.buffered())
    }
}
