//! How a process takes a line. A client thread takes it through its slot; the server's own process needs no
//! slot.
//!
//! A wait has a time limit, and the limit applies to one holder that makes no progress. As long as lines pass
//! from holder to holder, no client is reported as stalled. The waiter reads the clock only now and then.

use crate::segment::Segment;
use crate::slot::{self, JournalSlot};
use sherman_embedded::copy::Line;
use sherman_embedded::shared::{Backoff, Holder, Keeper, Stalled};
use sherman_fabric::ComputeId;
use sherman_pages::zeroed::Zeroed;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

/// Waits for the holder of a line whose sequence word was `seen`.
#[inline]
fn wait(segment: &Segment, patience: Duration, backoff: &mut Backoff, seen: u32) -> Result<(), Stalled> {
    if seen.is_multiple_of(2) {
        // Another thread took the line first. Both that thread and the holder before it make progress, so the
        // wait starts over.
        backoff.wait_again();
        return Ok(());
    }
    let slot = || segment.slots.get(slot::holder(seen));
    if !backoff.wait_for(patience, || slot().map_or(0, JournalSlot::pulse) ^ u64::from(seen) << 32) {
        return Ok(());
    }
    Err(Stalled { client: slot().map_or(ComputeId::NOBODY, JournalSlot::client) })
}

/// A client thread as a holder of lines, for as long as its link lasts.
#[derive(Debug)]
pub(crate) struct LineHolder {
    segment: Arc<Segment>,
    own: Zeroed<AtomicU64>,
    odd: u32,
    patience: Duration,
}

impl LineHolder {
    /// The owner of slot `index`; `None` if the slot does not exist or belongs to the server.
    pub(crate) fn new(segment: &Arc<Segment>, index: u32, patience: Duration) -> Option<Self> {
        let own = segment.slots.words(index).filter(|_| index > 0)?;
        Some(Self { segment: Arc::clone(segment), own, odd: slot::odd(index), patience })
    }

    /// Its slot.
    #[inline]
    pub(crate) fn slot(&self) -> JournalSlot<'_> {
        JournalSlot::new(&self.own).expect("as many words as a slot has were mapped")
    }
}

impl Holder for LineHolder {
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

/// The server's own process as a holder of lines.
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
        // If the holder has released the line meanwhile, the caller must read the line itself.
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
