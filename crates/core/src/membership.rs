//! What a compute server keeps about its own membership in the cluster, and about other members that may be
//! dead.
//!
//! A compute server runs two tasks or threads of its own. The *keeper*
//! ([`Worker::keep`](crate::Worker::keep)) renews the lease and does nothing else, so that nothing can delay
//! a renewal. The *recoverer* ([`Worker::recover_others`](crate::Worker::recover_others)) recovers dead
//! members. An operation that has waited long for another member records that member's id here and wakes the
//! recoverer. It never asks the control plane itself.
//!
//! A compute server is **terminated** once it cannot continue under its identity. There are four reasons:
//!
//! - A memory server has fenced it.
//! - It cannot reach a memory server that the cluster counts as present.
//! - It left lanes behind that only recovery can free.
//! - One of its threads has held a lane for too long.
//!
//! Then the keeper stops renewing, every operation that waits gets [`Error::Fenced`](crate::Error::Fenced),
//! and other members recover the compute server when its lease has expired.

#[cfg(feature = "mutants")]
pub(crate) mod seam;

use sherman_fabric::{ComputeId, FabricError};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;

/// How many leases a thread may hold a lane without progress before its compute server ends its own identity.
const WEDGED_AFTER_LEASES: u64 = 2;

/// The membership state of a compute server.
#[derive(Debug, Default)]
pub(crate) struct Membership {
    terminated: AtomicBool,
    suspects: Mutex<Suspects>,
    /// Whether some member finds no free memory.
    short: AtomicBool,
    /// Live members that could not be fenced. `stalls` is their number.
    stalled: Mutex<BTreeSet<ComputeId>>,
    stalls: AtomicU32,
    keeper: Mutex<Option<Waker>>,
    recoverer: Mutex<Option<Waker>>,
    next_renewal: AtomicU64,
    renewals: AtomicU64,
    recoveries: AtomicU64,
    recovering: Mutex<BTreeSet<ComputeId>>,
    pulses: Mutex<Vec<Weak<Pulse>>>,
}

/// Members that may be dead.
#[derive(Debug, Default)]
pub(crate) struct Suspects {
    /// Members that operations wait for.
    awaited: BTreeSet<ComputeId>,
    /// Members that control named, or that an earlier batch of the recoverer left.
    named: BTreeSet<ComputeId>,
}

impl Suspects {
    /// The members to ask control about at `now`. `look_again` has the members that were alive at the last
    /// request, and the time when their lease runs out. Operations may name such a member thousands of times
    /// a second, so it is asked about again only at that time. If control names it, its lease has ended
    /// earlier.
    pub(crate) fn due(self, look_again: &mut BTreeMap<ComputeId, u64>, now: u64) -> BTreeSet<ComputeId> {
        let mut due = self.named;
        look_again.retain(|client, _| !due.contains(client));
        due.extend(look_again.extract_if(.., |_, at| now >= *at).map(|(client, _)| client));
        due.extend(self.awaited.into_iter().filter(|client| !look_again.contains_key(client)));
        due
    }
}

/// Counts of a compute server's lease renewals and recoveries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Participation {
    /// How many times it renewed its lease.
    pub renewals: u64,
    /// How many other members it recovered.
    pub recoveries: u64,
}

/// Whether a thread holds lanes, and whether it makes progress. Only its thread writes it; the keeper reads
/// it.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    held: AtomicU32,
    beats: AtomicU32,
}

impl Pulse {
    /// Records that the thread took a lane.
    #[inline]
    pub(crate) fn took(&self) {
        self.held.store(self.held.load(Relaxed).wrapping_add(1), Relaxed);
        self.beat();
    }

    /// Records that the thread gave a lane back.
    #[inline]
    pub(crate) fn gave(&self) {
        self.held.store(self.held.load(Relaxed).wrapping_sub(1), Relaxed);
        self.beat();
    }

    #[inline]
    fn beat(&self) {
        self.beats.store(self.beats.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Whether the thread holds any lane.
    pub(crate) fn holds(&self) -> bool {
        self.held.load(Relaxed) != 0
    }
}

/// The keeper's last readings of the threads' pulses.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// For each thread that held a lane: its pulse, its beats, and since when the beats have not changed.
    still: Vec<(Weak<Pulse>, u32, u64)>,
}

/// Nothing in here panics half-way, so the state behind a poisoned mutex is valid.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wake(waker: &Mutex<Option<Waker>>) {
    let waker = lock(waker).take();
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl Membership {
    pub(crate) fn is_terminated(&self) -> bool {
        self.terminated.load(Acquire)
    }

    /// Ends this identity. Returns whether it had not been terminated before.
    pub(crate) fn terminate(&self) -> bool {
        let first = !self.terminated.swap(true, Release);
        wake(&self.keeper);
        wake(&self.recoverer);
        first
    }

    /// Whether an error ends this identity. An unreachable server does, unless the cluster has declared it
    /// lost ([`FabricError::ServerLost`]). A client that continued without that server would leave state
    /// there that no client cleans up (I40).
    pub(crate) fn is_fatal(error: &FabricError) -> bool {
        seam!(membership::is_fatal(error));
        matches!(
            error,
            FabricError::Fenced { .. }
                | FabricError::Disconnected { .. }
                | FabricError::CopyFailed { .. }
                | FabricError::EpochEnded { .. }
        )
    }

    /// Records a suspect for the recoverer.
    pub(crate) fn suspect(&self, client: ComputeId) {
        if lock(&self.suspects).awaited.insert(client) {
            wake(&self.recoverer);
        }
    }

    /// Records suspects that must be asked about at once.
    pub(crate) fn suspect_all(&self, clients: &[ComputeId]) {
        if !clients.is_empty() {
            lock(&self.suspects).named.extend(clients);
            wake(&self.recoverer);
        }
    }

    /// Asks the recoverer to give back unused memory.
    pub(crate) fn want_memory(&self) {
        self.short.store(true, Release);
        wake(&self.recoverer);
    }

    /// Returns whether the recoverer must give back unused memory, and resets the request.
    pub(crate) fn take_want(&self) -> bool {
        self.short.swap(false, Acquire)
    }

    /// Whether the recoverer has work to do.
    pub(crate) fn is_wanted(&self) -> bool {
        self.has_suspects() || self.short.load(Acquire)
    }

    /// Whether the last attempt to fence `client` failed: the client is alive, and paused in the middle of a
    /// change.
    #[inline]
    pub(crate) fn is_stalled(&self, client: ComputeId) -> bool {
        self.stalls.load(Relaxed) != 0 && lock(&self.stalled).contains(&client)
    }

    /// Sets whether `client` is stalled.
    pub(crate) fn set_stalled(&self, client: ComputeId, is: bool) {
        if !is && self.stalls.load(Relaxed) == 0 {
            return;
        }
        let mut stalled = lock(&self.stalled);
        if is {
            stalled.insert(client);
        } else {
            stalled.remove(&client);
        }
        self.stalls.store(stalled.len() as u32, Relaxed);
    }

    /// Takes the suspects recorded since the last call.
    pub(crate) fn take_suspects(&self) -> Suspects {
        std::mem::take(&mut lock(&self.suspects))
    }

    pub(crate) fn has_suspects(&self) -> bool {
        let suspects = lock(&self.suspects);
        !suspects.awaited.is_empty() || !suspects.named.is_empty()
    }

    /// Sets the waker of the keeper, which is woken when this identity ends.
    pub(crate) fn set_keeper(&self, waker: &Waker) {
        *lock(&self.keeper) = Some(waker.clone());
    }

    /// Sets the waker of the recoverer, which is woken when there is a suspect.
    pub(crate) fn set_recoverer(&self, waker: &Waker) {
        *lock(&self.recoverer) = Some(waker.clone());
    }

    /// Wakes the keeper.
    pub(crate) fn wake_keeper(&self) {
        wake(&self.keeper);
    }

    /// Wakes the recoverer.
    pub(crate) fn wake_recoverer(&self) {
        wake(&self.recoverer);
    }

    /// When the keeper must renew the lease next.
    pub(crate) fn next_renewal(&self) -> u64 {
        self.next_renewal.load(Relaxed)
    }

    pub(crate) fn renew_next(&self, at: u64) {
        self.next_renewal.store(at, Relaxed);
    }

    pub(crate) fn count_renewal(&self) {
        self.renewals.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_recovery(&self) {
        self.recoveries.fetch_add(1, Relaxed);
    }

    pub(crate) fn participation(&self) -> Participation {
        Participation { renewals: self.renewals.load(Relaxed), recoveries: self.recoveries.load(Relaxed) }
    }

    /// Begins to recover `client`, unless another thread of this compute server is recovering it.
    pub(crate) fn begin_recovery(&self, client: ComputeId) -> Option<Recovering<'_>> {
        let alone = lock(&self.recovering).insert(client);
        alone.then(|| Recovering { membership: self, client })
    }

    /// Creates a pulse for one more thread.
    pub(crate) fn pulse(&self) -> Arc<Pulse> {
        let pulse = Arc::default();
        let mut pulses = lock(&self.pulses);
        pulses.retain(|known| known.strong_count() > 0);
        pulses.push(Arc::downgrade(&pulse));
        pulse
    }

    /// Whether some thread holds a lane, or has a list in flight that may take or release one.
    pub(crate) fn holds_lanes(&self) -> bool {
        lock(&self.pulses).iter().filter_map(Weak::upgrade).any(|pulse| pulse.holds())
    }

    /// Whether some thread has held a lane for too long without progress.
    pub(crate) fn is_wedged(&self, watch: &mut Watch, now: u64, lease: u64) -> bool {
        let pulses = lock(&self.pulses);
        let mut still = Vec::new();
        let mut wedged = false;
        for known in pulses.iter() {
            let Some(pulse) = known.upgrade().filter(|pulse| pulse.holds()) else { continue };
            let beats = pulse.beats.load(Relaxed);
            let before = watch.still.iter().find(|(seen, at, _)| Weak::ptr_eq(seen, known) && *at == beats);
            let since = before.map_or(now, |(_, _, since)| *since);
            wedged |= now.saturating_sub(since) > WEDGED_AFTER_LEASES.saturating_mul(lease);
            still.push((Weak::clone(known), beats, since));
        }
        watch.still = still;
        wedged
    }
}

/// Proof that this thread is recovering a client, and that no other thread of this compute server does.
#[derive(Debug)]
pub(crate) struct Recovering<'m> {
    membership: &'m Membership,
    client: ComputeId,
}

impl Drop for Recovering<'_> {
    fn drop(&mut self) {
        lock(&self.membership.recovering).remove(&self.client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_holds_a_lane_and_does_nothing_else_is_noticed() {
        let (membership, mut watch) = (Membership::default(), Watch::default());
        let pulse = membership.pulse();
        pulse.took();
        assert!(!membership.is_wedged(&mut watch, 0, 10));
        assert!(!membership.is_wedged(&mut watch, 20, 10));
        assert!(membership.is_wedged(&mut watch, 21, 10));
        pulse.took();
        assert!(!membership.is_wedged(&mut watch, 30, 10), "it moved");
        pulse.gave();
        pulse.gave();
        assert!(!membership.is_wedged(&mut watch, 100, 10), "it holds nothing");
    }

    #[test]
    fn a_live_member_is_asked_about_once_a_lease_unless_server_0_names_it() {
        let (membership, mut look_again) = (Membership::default(), BTreeMap::new());
        let [one, other] = [1, 2].map(ComputeId);
        let mut due = |suspect: &[ComputeId], named: &[ComputeId], now| {
            suspect.iter().for_each(|&client| membership.suspect(client));
            membership.suspect_all(named);
            let due: Vec<ComputeId> =
                membership.take_suspects().due(&mut look_again, now).into_iter().collect();
            // Server 0 answers that the lease of each runs for 100 more.
            look_again.extend(due.iter().map(|&client| (client, now + 100)));
            due
        };
        assert_eq!(due(&[one], &[], 0), [one]);
        for now in 1..100 {
            assert_eq!(due(&[one], &[], now), []);
        }
        assert_eq!(due(&[], &[], 100), [one], "its lease has run out by now");
        assert_eq!(due(&[one, other], &[], 110), [other]);
        assert_eq!(due(&[], &[one], 120), [one], "control names it");
        assert_eq!(due(&[one, other], &[], 209), []);
        assert_eq!(due(&[], &[], 210), [other]);
    }

    #[test]
    fn one_thread_recovers_a_member_at_a_time() {
        let membership = Membership::default();
        let first = membership.begin_recovery(ComputeId(3));
        assert!(first.is_some() && membership.begin_recovery(ComputeId(3)).is_none());
        assert!(membership.begin_recovery(ComputeId(4)).is_some());
        drop(first);
        assert!(membership.begin_recovery(ComputeId(3)).is_some());
    }
}
