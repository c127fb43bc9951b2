//! The rounds of one shard. Pure bookkeeping under the shard's mutex: it neither calls nor drops wakers. The
//! caller does that outside the mutex.

use super::LineRange;
use std::task::Waker;

/// Identifies a round within a shard. 2^64 of them do not run out.
pub(super) type RoundId = u64;
/// Identifies a waiter within a shard.
pub(super) type WaiterId = u64;

/// How far a round is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Gets may join.
    Open,
    /// Gets may join. This waiter will post the READ.
    Named(WaiterId),
    /// The READ is posted, or about to be.
    Posted,
    /// The bytes are there.
    Read,
    /// The poster gave up, or its READ failed.
    Failed,
}

#[derive(Debug)]
struct Round {
    id: RoundId,
    slot: usize,
    lines: LineRange,
    stage: Stage,
    /// In order of arrival, until the poster has concluded the round.
    waiters: Vec<(WaiterId, Waker)>,
    /// Waiters that have not picked up the outcome yet.
    untold: usize,
    bytes: Vec<u8>,
}

/// What a waiter finds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    /// It posts the READ of its round, which is closed now.
    IsPoster,
    /// The buffer has the bytes.
    Bytes,
    Failure,
}

/// A waiter that left its round.
#[derive(Debug, Default)]
pub(super) struct Left {
    /// The waker of the waiter that left.
    pub(super) unused: Option<Waker>,
    /// The waker of the waiter that posts the READ in its place.
    pub(super) wake: Option<Waker>,
    /// It was to post the READ, and nobody else waits: the READ is not posted.
    pub(super) unposted: bool,
}

/// The rounds of the slots of one shard.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    /// Few at a time, so a scan beats a tree. Those of a slot are in order of their beginning.
    rounds: Vec<Round>,
    /// Buffers of the last round that ended. The next one uses them.
    spare: (Vec<(WaiterId, Waker)>, Vec<u8>),
    next_id: u64,
}

impl Rounds {
    /// Joins an open round of these lines, if there is one.
    pub(super) fn join(
        &mut self,
        slot: usize,
        lines: LineRange,
        waker: &Waker,
    ) -> Option<(RoundId, WaiterId)> {
        let id = self.next_id();
        let round = self
            .rounds
            .iter_mut()
            .find(|round| round.slot == slot && serves(round.lines, lines) && may_join(round.stage))?;
        round.waiters.push((id, waker.clone()));
        Some((round.id, id))
    }

    /// Begins a round with its first waiter. `named`: this waiter posts the READ.
    pub(super) fn begin(
        &mut self,
        slot: usize,
        lines: LineRange,
        waker: &Waker,
        named: bool,
    ) -> (RoundId, WaiterId) {
        let (id, waiter) = (self.next_id(), self.next_id());
        let (mut waiters, bytes) = std::mem::take(&mut self.spare);
        waiters.push((waiter, waker.clone()));
        let stage = if named { Stage::Named(waiter) } else { Stage::Open };
        self.rounds.push(Round { id, slot, lines, stage, waiters, untold: 0, bytes });
        (id, waiter)
    }

    /// Names the first waiter of the first round without a poster. Returns its waker.
    pub(super) fn name(&mut self, slot: usize) -> Option<Waker> {
        let unnamed = |round: &&mut Round| round.slot == slot && round.stage == Stage::Open;
        let round = self.rounds.iter_mut().find(unnamed)?;
        let (id, waker) = round.waiters.first()?;
        round.stage = Stage::Named(*id);
        Some(waker.clone())
    }

    /// Whether an open round of the slot has no poster.
    pub(super) fn has_unnamed(&self, slot: usize) -> bool {
        self.rounds.iter().any(|round| round.slot == slot && round.stage == Stage::Open)
    }

    /// Looks for news for a waiter, and copies bytes that have arrived to `buffer`. Otherwise sets its waker.
    /// A poster closes its round by this. A waiter that finds something is no longer in the round. Also
    /// returns a waker that is no longer needed.
    pub(super) fn look(
        &mut self,
        round: RoundId,
        waiter: WaiterId,
        waker: &Waker,
        buffer: &mut Vec<u8>,
    ) -> (Found, Option<Waker>) {
        let Some(at) = self.position(round) else { return (Found::Failure, None) };
        let round = &mut self.rounds[at];
        match round.stage {
            Stage::Named(id) if id == waiter => {
                round.stage = Stage::Posted;
                (Found::IsPoster, round.remove(waiter))
            }
            Stage::Open | Stage::Named(_) | Stage::Posted => (Found::Nothing, round.renew(waiter, waker)),
            Stage::Read => {
                buffer.clear();
                buffer.extend_from_slice(&round.bytes);
                self.tell(at);
                (Found::Bytes, None)
            }
            Stage::Failed => {
                self.tell(at);
                (Found::Failure, None)
            }
        }
    }

    /// Removes a waiter that gives up.
    pub(super) fn leave(&mut self, round: RoundId, waiter: WaiterId) -> Left {
        let mut left = Left::default();
        let Some(at) = self.position(round) else { return left };
        let round = &mut self.rounds[at];
        if matches!(round.stage, Stage::Read | Stage::Failed) {
            self.tell(at);
            return left;
        }
        left.unused = round.remove(waiter);
        let was_named = round.stage == Stage::Named(waiter);
        match round.waiters.first() {
            Some((next, waker)) if was_named => {
                round.stage = Stage::Named(*next);
                left.wake = Some(waker.clone());
            }
            None if round.stage != Stage::Posted => {
                left.unposted = was_named;
                self.remove(at);
            }
            _ => {}
        }
        left
    }

    /// Ends a round, with its bytes unless it failed. Returns the wakers to call.
    pub(super) fn conclude(&mut self, round: RoundId, bytes: Option<&[u8]>) -> Vec<Waker> {
        let Some(at) = self.position(round) else { return Vec::new() };
        let round = &mut self.rounds[at];
        round.stage = if bytes.is_some() { Stage::Read } else { Stage::Failed };
        round.bytes.clear();
        round.bytes.extend_from_slice(bytes.unwrap_or_default());
        round.untold = round.waiters.len();
        let wakers: Vec<Waker> = round.waiters.drain(..).map(|(_, waker)| waker).collect();
        if wakers.is_empty() {
            self.remove(at);
        }
        wakers
    }

    /// Returns the wakers of all waiters.
    pub(super) fn wakers(&self) -> Vec<Waker> {
        self.rounds.iter().flat_map(|round| round.waiters.iter().map(|(_, waker)| waker.clone())).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rounds.is_empty()
    }

    /// One waiter fewer has to pick up the outcome.
    fn tell(&mut self, at: usize) {
        self.rounds[at].untold -= 1;
        if self.rounds[at].untold == 0 {
            self.remove(at);
        }
    }

    /// Removes a round without waiters.
    fn remove(&mut self, at: usize) {
        let Round { waiters, bytes, .. } = self.rounds.remove(at);
        self.spare = (waiters, bytes);
    }

    fn position(&self, round: RoundId) -> Option<usize> {
        self.rounds.iter().position(|known| known.id == round)
    }

    fn next_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }
}

impl Round {
    /// Removes a waiter. Returns its waker.
    fn remove(&mut self, waiter: WaiterId) -> Option<Waker> {
        let at = self.waiters.iter().position(|(id, _)| *id == waiter)?;
        Some(self.waiters.remove(at).1)
    }

    /// Sets the waker of a waiter. If it replaces a different waker, returns that one.
    fn renew(&mut self, waiter: WaiterId, waker: &Waker) -> Option<Waker> {
        let (_, known) = self.waiters.iter_mut().find(|(id, _)| *id == waiter)?;
        if known.will_wake(waker) { None } else { Some(std::mem::replace(known, waker.clone())) }
    }
}

/// Whether a get may join a round: only if its READ is not posted yet (I52).
fn may_join(stage: Stage) -> bool {
    seam!(share::may_join(stage));
    matches!(stage, Stage::Open | Stage::Named(_))
}

/// Whether a round of `known` lines has the bytes that a get of `wanted` lines needs.
fn serves(known: LineRange, wanted: LineRange) -> bool {
    seam!(share::serves());
    known == wanted
}
