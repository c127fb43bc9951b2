//! Waiting for a READ that several gets share.

use super::rounds::{Found, RoundId, WaiterId};
use super::{LineRange, Posting, SharedReads};
use std::task::{Poll, Waker};

/// How a wait ended.
#[derive(Debug)]
pub(crate) enum SharedTurn<'t> {
    /// The caller posts the READ **at once** and delivers its bytes. No get joins any more.
    Post(Posting<'t>),
    /// The caller's buffer has the bytes. They were read after the caller began to wait.
    Read,
    /// The READ failed, or its poster gave up. The caller posts its own.
    Failed,
}

/// A get that waits for the next READ of its lines. Dropping it gives up.
#[derive(Debug)]
pub(crate) struct Share<'t> {
    table: &'t SharedReads,
    slot: usize,
    lines: LineRange,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Unasked,
    Waiting(RoundId, WaiterId),
    /// It returned its turn.
    Over,
}

impl<'t> Share<'t> {
    pub(super) fn new(table: &'t SharedReads, slot: usize, lines: LineRange) -> Self {
        Self { table, slot, lines, state: State::Unasked }
    }

    /// Asks at its first call, and then looks for its turn. Stays pending once it has returned that.
    pub(crate) fn poll(&mut self, waker: &Waker, buffer: &mut Vec<u8>) -> Poll<SharedTurn<'t>> {
        let (table, slot, lines) = (self.table, self.slot, self.lines);
        if let State::Unasked = self.state {
            let (round, waiter) = table.locked(slot, |rounds| {
                let joined = rounds.join(slot, lines, waker);
                // If fewer READs are in flight by now, this get posts the next one at once.
                joined.unwrap_or_else(|| rounds.begin(slot, lines, waker, table.count_or_mark(slot)))
            });
            self.state = State::Waiting(round, waiter);
        }
        let State::Waiting(round, waiter) = self.state else { return Poll::Pending };
        let (found, _unused_waker) = table.locked(slot, |rounds| rounds.look(round, waiter, waker, buffer));
        let turn = match found {
            Found::Nothing => return Poll::Pending,
            Found::IsPoster => SharedTurn::Post(Posting { table, slot, round, told: false }),
            Found::Bytes => SharedTurn::Read,
            Found::Failure => SharedTurn::Failed,
        };
        self.state = State::Over;
        Poll::Ready(turn)
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        let State::Waiting(round, waiter) = self.state else { return };
        let (table, slot) = (self.table, self.slot);
        let left = table.locked(slot, |rounds| {
            let left = rounds.leave(round, waiter);
            table.unmark_if_named(rounds, slot);
            left
        });
        if let Some(waker) = left.wake {
            waker.wake();
        }
        if left.unposted {
            table.end(slot);
        }
    }
}
