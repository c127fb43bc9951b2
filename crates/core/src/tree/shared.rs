//! Gets that wait for a READ of their lines instead of posting one of their own ([`crate::share`]).
//!
//! ```text
//!  poster   ····· [READ lines] · delivers
//!  sharer   ························ copies the lines: no verb
//! ```
//! Each get looks its own key up in the lines and judges them itself. If they give no answer, it goes on as
//! after a READ of its own.

use crate::cause::Cause;
use crate::error::Error;
use crate::op::Op;
use crate::share::{LineRange, SharedTurn};
use sherman_fabric::{Endpoint, FabricError, Space, VerbId, WorkList};
use std::task::Poll;

/// How long a get waits for the READ of another operation, in nanoseconds. Then it posts its own. That other
/// operation goes on only when its thread does, and no get should depend on a thread that is stopped.
const PATIENCE_NANOS: u64 = 10_000_000;

impl<E: Endpoint> Op<'_, E> {
    /// Reads lines with a READ of its own.
    #[inline]
    pub(super) async fn read_lines(&self, lines: LineRange) -> Result<(WorkList, VerbId), FabricError> {
        let mut list = self.endpoint().list(lines.first.server());
        let read = list.read(Space::Host, lines.first.offset(), lines.bytes as u32);
        Ok((self.execute(list).await?, read))
    }

    /// Reads lines of which enough READs are in flight, by the next READ of them. Has `look` look at the
    /// bytes.
    pub(super) async fn read_shared<T>(
        &self,
        lines: LineRange,
        look: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, Error> {
        let mut bytes = self.worker.buffer();
        let posting = match self.await_shared(lines, &mut bytes).await {
            Some(SharedTurn::Read) => {
                self.endpoint().shared(bytes.len());
                self.count_shared();
                let seen = look(&bytes);
                self.worker.keep_buffer(bytes);
                return Ok(seen);
            }
            Some(SharedTurn::Post(posting)) => Some(posting),
            Some(SharedTurn::Failed) | None => None,
        };
        self.worker.keep_buffer(bytes);
        let (list, read) = self.read_lines(lines).await?;
        if let Some(posting) = posting {
            posting.deliver(list.bytes(read));
        }
        let seen = look(list.bytes(read));
        self.endpoint().recycle(list);
        Ok(seen)
    }

    /// Waits for its turn. Returns `None` if its patience ends or this identity has ended.
    async fn await_shared(&self, lines: LineRange, bytes: &mut Vec<u8>) -> Option<SharedTurn<'_>> {
        let compute = &self.worker.compute;
        let until = self.endpoint().now().saturating_add(PATIENCE_NANOS).min(self.deadline());
        let mut share = compute.reads.share(lines);
        let turn = std::future::poll_fn(|cx| {
            if let Poll::Ready(turn) = share.poll(cx.waker(), bytes) {
                return Poll::Ready(Some(turn));
            }
            if compute.is_terminated() || self.endpoint().now() >= until {
                return Poll::Ready(None);
            }
            self.endpoint().wake_at(until, cx.waker());
            Poll::Pending
        })
        .await;
        if turn.is_none() {
            self.count_retry(Cause::SharedRead);
        }
        turn
    }
}
