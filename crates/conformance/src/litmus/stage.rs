//! The shared state of a program's participants: memory on a server, a clock, and a few words in this
//! process.

use sherman_executor::block_on;
use sherman_fabric::{Counters, Endpoint, FabricError, Space, VerbId, WorkList, execute};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

/// Memory that no other client uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LitmusSite {
    /// The server of the memory.
    pub server: u16,
    /// The offset of [`LitmusSite::HOST_BYTES`] of host memory, a multiple of 64.
    pub host: u64,
    /// The offset of [`LitmusSite::ON_CHIP_BYTES`] of on-chip memory, a multiple of 8. `None` if there is
    /// none to spare.
    pub on_chip: Option<u64>,
}

impl LitmusSite {
    /// Bytes of host memory that the programs need.
    pub const HOST_BYTES: u64 = 4096;
    /// Bytes of on-chip memory that the programs need.
    pub const ON_CHIP_BYTES: u64 = 64;

    /// The offset of line `line` of host memory.
    pub(super) fn line(&self, line: u64) -> u64 {
        self.host + 64 * line
    }

    /// A word for locks or flags, in on-chip memory if there is some.
    pub(super) fn word(&self, word: u64) -> (Space, u64) {
        match self.on_chip {
            Some(chip) => (Space::OnChip, chip + 8 * word),
            None => (Space::Host, self.line(32 + word)),
        }
    }
}

/// The counts of a participant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Number of attempts.
    pub rounds: u64,
    /// Outcomes that the rule forbids.
    pub violations: u64,
    /// Outcomes that the rule allows, and that show that the program looks closely enough.
    pub weak: u64,
    /// The first violation.
    pub first: Option<String>,
}

impl Count {
    /// Counts one violation.
    pub(super) fn violate(&mut self, what: impl FnOnce() -> String) {
        self.violations += 1;
        self.first.get_or_insert_with(what);
    }

    pub(super) fn add(&mut self, other: Self) {
        self.rounds += other.rounds;
        self.violations += other.violations;
        self.weak += other.weak;
        self.first = self.first.take().or(other.first);
    }
}

/// The shared state of the participants in this process.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) place: LitmusSite,
    until: Instant,
    ended: AtomicBool,
    told: AtomicU64,
    rounds: AtomicU64,
}

impl Stage {
    pub(super) fn new(place: LitmusSite, time: Duration) -> Self {
        let (ended, told, rounds) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        Self { place, until: Instant::now() + time, ended, told, rounds }
    }

    /// Whether the program must end.
    pub(super) fn is_over(&self) -> bool {
        self.ended.load(Relaxed) || Instant::now() >= self.until
    }

    /// Ends the program early.
    pub(super) fn end(&self) {
        self.ended.store(true, Relaxed);
    }

    /// Tells the other participant the number of a completed round.
    pub(super) fn tell(&self, what: u64) {
        self.told.store(what, Release);
    }

    /// The last number that was told.
    pub(super) fn told(&self) -> u64 {
        self.told.load(Acquire)
    }

    /// Sets the total number of rounds, for the check at the end.
    pub(super) fn set_rounds(&self, rounds: u64) {
        self.rounds.store(rounds, Relaxed);
    }

    pub(super) fn rounds(&self) -> u64 {
        self.rounds.load(Relaxed)
    }

    /// Repeats `round` until the program ends. `round` gets the counts, with its own number in `rounds`.
    pub(super) fn repeat(
        &self,
        mut round: impl FnMut(&mut Count) -> Result<(), FabricError>,
    ) -> Result<Count, FabricError> {
        let mut count = Count::default();
        while !self.is_over() {
            count.rounds += 1;
            round(&mut count)?;
        }
        Ok(count)
    }

    /// Executes one list, and looks at its results.
    pub(super) fn post<E: Endpoint, T, R>(
        &self,
        endpoint: &E,
        fill: impl FnOnce(&mut WorkList) -> T,
        look: impl FnOnce(&WorkList, T) -> R,
    ) -> Result<R, FabricError> {
        let mut list = endpoint.list(self.place.server);
        let ids = fill(&mut list);
        let list = block_on(endpoint, execute(endpoint, list, &Counters::default()))?;
        let seen = look(&list, ids);
        endpoint.recycle(list);
        Ok(seen)
    }

    /// Executes one list that has no results to look at.
    pub(super) fn send<E: Endpoint, T>(
        &self,
        endpoint: &E,
        fill: impl FnOnce(&mut WorkList) -> T,
    ) -> Result<(), FabricError> {
        self.post(endpoint, fill, |_, _| ())
    }

    /// Reads one word.
    pub(super) fn read<E: Endpoint>(&self, endpoint: &E, at: (Space, u64)) -> Result<u64, FabricError> {
        self.post(endpoint, |list| list.read(at.0, at.1, 8), first_word)
    }

    /// Compares and swaps one word. Returns the old word.
    pub(super) fn cas<E: Endpoint>(
        &self,
        endpoint: &E,
        at: (Space, u64),
        from: u64,
        to: u64,
    ) -> Result<u64, FabricError> {
        self.post(endpoint, |list| list.cas(at.0, at.1, from, to), WorkList::old)
    }
}

/// The words that a READ fetched.
pub(super) fn words(list: &WorkList, read: VerbId) -> impl Iterator<Item = u64> {
    list.bytes(read).as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word))
}

/// The first word that a READ fetched.
pub(super) fn first_word(list: &WorkList, read: VerbId) -> u64 {
    words(list, read).next().unwrap_or(0)
}

/// A line with the same word everywhere.
pub(super) fn line_of(word: u64) -> [u8; 64] {
    let mut line = [0; 64];
    line.as_chunks_mut::<8>().0.iter_mut().for_each(|bytes| *bytes = word.to_le_bytes());
    line
}

/// Zeroes the memory of `place`.
pub(super) fn clear<E: Endpoint>(place: &LitmusSite, endpoint: &E) -> Result<(), FabricError> {
    let stage = Stage::new(place.clone(), Duration::ZERO);
    for at in (0..LitmusSite::HOST_BYTES).step_by(1024) {
        stage.send(endpoint, |list| list.write(Space::Host, place.host + at, &[0; 1024]))?;
    }
    for word in 0..LitmusSite::ON_CHIP_BYTES / 8 * u64::from(place.on_chip.is_some()) {
        let (space, at) = place.word(word);
        stage.send(endpoint, |list| list.write(space, at, &[0; 8]))?;
    }
    Ok(())
}
