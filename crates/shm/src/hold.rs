//! How lines are taken: by a client's thread through its slot, and by the server's own process, which needs none.
//!
//! A wait is bounded by time, and the time runs only while the same holder stands still: as long as lines change hands nobody
//! is blamed. The clock is looked at now and then.

use crate::segment::Segment;
use crate::slot::{self, Slot};
use sherman_embedded::copy::Line;
use sherman_embedded::shared::{Backoff, Holder, Keeper, Stalled};
use sherman_fabric::ClientId;
use sherman_fabric::zeroed::Zeroed;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

/// Waits for whoever holds a line whose word was `seen`.
#[inline]
fn wait(segment: &Segment, patience: Duration, backoff: &mut Backoff, seen: u32) -> Result<(), Stalled> {
    if seen.is_multiple_of(2) {
        // Somebody was faster. That one goes on, and so did the one before.
        backoff.wait_anew();
        return Ok(());
    }
    let slot = || segment.slots.get(slot::holder(seen));
    if !backoff.wait_for(patience, || slot().map_or(0, Slot::pulse) ^ u64::from(seen) << 32) {
        return Ok(());
    }
    Err(Stalled { client: slot().map_or(ClientId::NOBODY, Slot::client) })
}

/// A client's thread, as long as its link lasts.
#[derive(Debug)]
pub(crate) struct Hand {
    segment: Arc<Segment>,
    own: Zeroed<AtomicU64>,
    odd: u32,
    patience: Duration,
}

impl Hand {
    /// The owner of slot `index`; `None` if there is no such slot, or it is the server's.
    pub(crate) fn new(segment: &Arc<Segment>, index: u32, patience: Duration) -> Option<Self> {
        let own = segment.slots.words(index).filter(|_| index > 0)?;
        Some(Self { segment: Arc::clone(segment), own, odd: slot::odd(index), patience })
    }

    /// Its slot.
    #[inline]
    pub(crate) fn slot(&self) -> Slot<'_> {
        Slot::new(&self.own).expect("as many words as a slot has were mapped")
    }
}

impl Holder for Hand {
    type Stalled = Stalled;

    #[inline]
    fn odd(&self, _: u32) -> u32 {
        self.odd
    }

    #[inline]
    fn takes(&self, line: usize, even: u32) {
        self.slot().note(line as u64, even);
    }

    #[inline]
    fn changes(&self, words: &[AtomicU64]) {
        self.slot().save(words);
        #[cfg(test)]
        crate::tests::midway(words);
    }

    #[inline]
    fn wait(&self, backoff: &mut Backoff, seen: u32) -> Result<(), Stalled> {
        wait(&self.segment, self.patience, backoff, seen)
    }
}

/// The server's own process.
#[derive(Debug)]
pub(crate) struct Own {
    segment: Arc<Segment>,
    sequence: Zeroed<AtomicU32>,
    patience: Duration,
}

impl Own {
    pub(crate) fn new(segment: &Arc<Segment>, patience: Duration) -> Option<Self> {
        Some(Self { segment: Arc::clone(segment), sequence: segment.sequence()?, patience })
    }
}

impl Holder for Own {
    type Stalled = Stalled;

    #[inline]
    fn odd(&self, _: u32) -> u32 {
        slot::odd(0)
    }

    #[inline]
    fn takes(&self, _: usize, _: u32) {}

    #[inline]
    fn changes(&self, _: &[AtomicU64]) {}

    #[inline]
    fn wait(&self, backoff: &mut Backoff, seen: u32) -> Result<(), Stalled> {
        wait(&self.segment, self.patience, backoff, seen)
    }
}

impl Keeper for Own {
    fn saved(&self, line: usize) -> Option<Line> {
        let word = self.sequence.get(line)?.load(Acquire);
        let slot = self.segment.slots.get(slot::holder(word)).filter(|_| !word.is_multiple_of(2))?;
        let (saved, words) = slot.saved()?;
        // What was released meanwhile is to be looked for in its place.
        if saved != line as u64 || self.sequence.get(line)?.load(Relaxed) != word {
            return None;
        }
        let mut image = [0; 64];
        for (bytes, word) in image.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *bytes = word.to_ne_bytes();
        }
        Some(image)
    }
}
