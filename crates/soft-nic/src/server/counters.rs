//! A server's counters: its work, its refusals, and the most contended lock words.
//!
//! Each shard counts its work with its own thread alone, in words that other threads only read: no locked
//! instruction, no shared cache line. Refusals are rare and counted for the whole server. The server logs the
//! first of each kind, and then at most one a minute, so that clients that keep connecting cannot fill a
//! disk.

use super::remote::Who;
use sherman_control::wire::GoodbyeCode;
use sherman_fabric::Space;
use sherman_fabric::stats::{HotWord, RefusedCount, ServerStats};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

macro_rules! tally {
    ($($name:ident),*) => {
        /// Work done since some moment.
        #[derive(Clone, Copy, Debug, Default)]
        pub(super) struct Tally { $(pub(super) $name: u64),* }

        /// The total work of one shard.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub(super) struct ShardCounters { $($name: AtomicU64,)* hot: Mutex<HotWords> }

        impl ShardCounters {
            /// Adds work. Only the shard's own thread may call this.
            #[inline]
            pub(super) fn add(&self, done: &Tally) {
                $(if done.$name != 0 {
                    self.$name.store(self.$name.load(Relaxed).wrapping_add(done.$name), Relaxed);
                })*
            }

            /// Adds the shard's totals to `stats`.
            pub(super) fn add_to(&self, stats: &mut ServerStats) {
                $(stats.$name = stats.$name.wrapping_add(self.$name.load(Relaxed));)*
            }
        }
    };
}

tally!(
    lists,
    lists_failed,
    reads,
    writes,
    cas,
    cas_failed,
    faa,
    bytes_read,
    bytes_written,
    bytes_in,
    bytes_out,
    calls,
    fences
);

impl ShardCounters {
    /// Notes that a CAS of the bits under `mask` in the on-chip word at `offset` failed.
    #[cold]
    pub(super) fn note_contention(&self, offset: u64, mask: u64) {
        let lane = offset.saturating_add(u64::from(mask.trailing_zeros().min(63) / 8));
        self.hot.lock().unwrap_or_else(PoisonError::into_inner).note(lane);
    }

    /// The contended lanes of this shard.
    fn hot_words(&self) -> Vec<(u64, u64)> {
        self.hot.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }
}

/// How many lanes the statistics report.
const HOTTEST: usize = 16;

/// The most contended lanes of all shards together.
pub(super) fn hottest(shards: &[ShardCounters]) -> Vec<HotWord> {
    let mut sums = BTreeMap::new();
    for (offset, failed) in shards.iter().flat_map(ShardCounters::hot_words) {
        *sums.entry(offset).or_insert(0u64) += failed;
    }
    let mut words: Vec<_> =
        sums.into_iter().map(|(offset, failed)| HotWord { space: Space::OnChip, offset, failed }).collect();
    words.sort_by_key(|word| std::cmp::Reverse(word.failed));
    words.truncate(HOTTEST);
    words
}

/// The lanes with the highest counts, in bounded space. A new lane replaces the lane with the lowest count
/// and continues from that count. So no count is too low.
#[derive(Debug, Default)]
struct HotWords(Vec<(u64, u64)>);

impl HotWords {
    /// Lanes kept: a few times as many as are reported.
    const KEPT: usize = 4 * HOTTEST;

    fn note(&mut self, lane: u64) {
        if let Some((_, count)) = self.0.iter_mut().find(|(known, _)| *known == lane) {
            *count += 1;
        } else if self.0.len() < Self::KEPT {
            self.0.push((lane, 1));
        } else if let Some(least) = self.0.iter_mut().min_by_key(|(_, count)| *count) {
            *least = (lane, least.1 + 1);
        }
    }
}

sherman_fabric::named! {
    /// Why a request or connection was refused.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Reason {
        Malformed => "malformed",
        TooLarge => "too_large",
        Version => "version",
        BadSecret => "bad_secret",
        Fenced => "fenced",
        Restarted => "restarted",
        TooManyConnections => "too_many_connections",
        TooManyNewcomers => "too_many_newcomers",
        SlowHandshake => "slow_handshake",
        Idle => "idle",
        NotAllowed => "not_allowed",
        JoinRefused => "join_refused",
        OtherCluster => "other_cluster",
        OtherMemory => "other_memory",
        NotYet => "not_yet",
        Internal => "internal",
        BadAddress => "bad_address",
        Overloaded => "overloaded",
        AcceptFailed => "accept_failed",
    }
}

impl From<GoodbyeCode> for Reason {
    fn from(code: GoodbyeCode) -> Self {
        match code {
            GoodbyeCode::Malformed => Self::Malformed,
            GoodbyeCode::TooLarge => Self::TooLarge,
            GoodbyeCode::Version => Self::Version,
            GoodbyeCode::BadSecret => Self::BadSecret,
            GoodbyeCode::Fenced => Self::Fenced,
            GoodbyeCode::Restarted => Self::Restarted,
            GoodbyeCode::TooManyConnections => Self::TooManyConnections,
            GoodbyeCode::TooSlow => Self::SlowHandshake,
            GoodbyeCode::Idle => Self::Idle,
            GoodbyeCode::NotAllowed => Self::NotAllowed,
            GoodbyeCode::JoinRefused => Self::JoinRefused,
            GoodbyeCode::OtherCluster => Self::OtherCluster,
            GoodbyeCode::OtherMemory => Self::OtherMemory,
            GoodbyeCode::NotYet => Self::NotYet,
            GoodbyeCode::Internal | GoodbyeCode::ShuttingDown | GoodbyeCode::Unknown => Self::Internal,
        }
    }
}

/// Refusals of one kind.
#[derive(Debug, Default)]
struct Refused {
    count: AtomicU64,
    /// When a refusal of this kind was last logged, in seconds since the server began, plus one; 0 if never.
    told: AtomicU64,
}

/// Refusals of every kind.
#[derive(Debug)]
pub(super) struct Refusals {
    kinds: Vec<Refused>,
    began: Instant,
}

impl Refusals {
    /// Seconds between two log lines about the same kind.
    const PAUSE: u64 = 60;

    pub(super) fn new() -> Self {
        Self { kinds: Reason::ALL.iter().map(|_| Refused::default()).collect(), began: Instant::now() }
    }

    /// Counts a refusal. Logs it if its kind was not logged for a while.
    pub(super) fn note(&self, reason: Reason, who: Option<Who>, detail: impl Display) {
        let refused = &self.kinds[reason as usize];
        let count = refused.count.fetch_add(1, Relaxed) + 1;
        let now = self.began.elapsed().as_secs() + 1;
        let told = refused.told.load(Relaxed);
        let due = told == 0 || now.saturating_sub(told) >= Self::PAUSE;
        if due && refused.told.compare_exchange(told, now, Relaxed, Relaxed).is_ok() {
            let (peer, client) = (who.map(|who| who.remote), who.and_then(|who| who.client()));
            let peer = peer.map(tracing::field::display);
            tracing::warn!(reason = reason.name(), count, peer, client, "refused: {detail}");
        }
    }

    /// The counts of the kinds that occurred.
    pub(super) fn counts(&self) -> Vec<RefusedCount> {
        let counts = Reason::ALL.iter().zip(&self.kinds).map(|(reason, refused)| RefusedCount {
            reason: reason.name().to_owned(),
            count: refused.count.load(Relaxed),
        });
        counts.filter(|refused| refused.count > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hot_lane_is_found_among_many_cold_ones_and_its_count_is_not_too_low() {
        let shards = [ShardCounters::default(), ShardCounters::default()];
        for round in 0..10_000u64 {
            let shard = &shards[round as usize % 2];
            shard.note_contention(8 * (round % 1000), u64::MAX);
            if round % 10 == 0 {
                shard.note_contention(80_000, 0xffff << 16);
            }
        }
        let hottest = hottest(&shards);
        assert_eq!(hottest.len(), HOTTEST);
        assert_eq!(hottest[0].offset, 80_002);
        assert!(hottest[0].failed >= 1000, "{:?}", hottest[0]);
        assert!(shards.iter().all(|shard| shard.hot_words().len() <= HotWords::KEPT));
    }

    #[test]
    fn what_shards_did_is_summed() {
        let shards = [ShardCounters::default(), ShardCounters::default()];
        shards[0].add(&Tally { reads: 3, bytes_read: 30, ..Tally::default() });
        shards[1].add(&Tally { reads: 4, fences: 1, ..Tally::default() });
        let mut stats = ServerStats::default();
        shards.iter().for_each(|shard| shard.add_to(&mut stats));
        assert_eq!((stats.reads, stats.bytes_read, stats.fences), (7, 30, 1));
    }

    #[test]
    fn refusals_are_counted_by_reason_and_named_once() {
        let refusals = Refusals::new();
        (0..3).for_each(|_| refusals.note(Reason::BadSecret, None, "wrong"));
        refusals.note(Reason::Malformed, None, "odd");
        let counts: Vec<_> =
            refusals.counts().into_iter().map(|refused| (refused.reason, refused.count)).collect();
        assert_eq!(counts, [("malformed".to_owned(), 1), ("bad_secret".to_owned(), 3)]);
        assert_eq!(refusals.kinds[Reason::BadSecret as usize].told.load(Relaxed), 1);
        for (index, reason) in Reason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, index);
        }
    }
}
