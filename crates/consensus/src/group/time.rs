//! Time: ticks from the caller's clock, and election timeouts from the seed.

use super::Group;
use crate::machine::StateMachine;
use crate::settings::Settings;
use raft::{SnapshotStatus, StateRole};

/// The node's time.
#[derive(Debug)]
pub(super) struct Time {
    /// The caller's clock at the last tick.
    last: u64,
    /// Ticks since the node was opened.
    pub(super) ticks: u64,
    /// State of the generator of random numbers: SplitMix64.
    random: u64,
    /// The election timeout in ticks, and for which term and role the node drew it.
    timeout: usize,
    drawn_for: Option<(u64, StateRole)>,
}

impl Time {
    pub(super) fn new(settings: &Settings, now: u64) -> Self {
        let random = settings.seed ^ settings.id.rotate_left(32);
        let timeout = settings.election_ticks as usize;
        Self { last: now, ticks: 0, random, timeout, drawn_for: None }
    }

    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

impl<S: StateMachine> Group<S> {
    /// Tells the node the time. The caller does so at [`next_tick`](Self::next_tick), or more often.
    ///
    /// The clock must go on while the machine sleeps. A clock that goes back is ignored. After a pause the
    /// node counts at most two election timeouts: enough to step down, or to ask for votes.
    pub fn tick(&mut self, now: u64) {
        let due = now.saturating_sub(self.time.last) / self.settings.tick;
        if due == 0 || self.stopped.is_some() {
            return;
        }
        self.time.last += due * self.settings.tick;
        for _ in 0..due.min(2 * u64::from(self.settings.election_ticks)) {
            self.drive(Self::tick_once);
        }
    }

    /// When the node wants to know the time next.
    pub fn next_tick(&self) -> u64 {
        self.time.last.saturating_add(self.settings.tick)
    }

    fn tick_once(&mut self) {
        self.time.ticks += 1;
        self.draw_timeout();
        if self.raw.raft.state == StateRole::Leader || self.may_campaign() {
            let before = self.raw.raft.state;
            let acted = self.raw.tick();
            if acted && before != StateRole::Leader {
                self.time.drawn_for = None;
            }
        }
        self.retry_snapshots();
        self.give_up_late();
    }

    /// Sets the election timeout for the node's term and role, in place of the one that Raft has drawn.
    fn draw_timeout(&mut self) {
        let now = (self.raw.raft.term, self.raw.raft.state);
        if self.time.drawn_for != Some(now) {
            let ticks = u64::from(self.settings.election_ticks);
            self.time.timeout = (ticks + self.time.draw() % ticks) as usize;
            self.time.drawn_for = Some(now);
        }
        self.raw.raft.set_randomized_election_timeout(self.time.timeout);
    }

    /// Whether the node may ask for votes: only with all that it has on disk.
    pub(super) fn may_campaign(&self) -> bool {
        self.writes.waiting.is_empty()
    }

    /// Sends a snapshot again that was not answered for an election timeout. The network may have lost it,
    /// and Raft waits until somebody says so.
    fn retry_snapshots(&mut self) {
        let (now, patience) = (self.time.ticks, u64::from(self.settings.election_ticks));
        let late: Vec<u64> =
            self.snapshots.iter().filter(|(_, at)| now - **at >= patience).map(|(to, _)| *to).collect();
        for to in late {
            self.snapshots.remove(&to);
            self.raw.report_snapshot(to, SnapshotStatus::Failure);
        }
    }
}
