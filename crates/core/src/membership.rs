//! What a compute server keeps about its own place in the cluster, and about others that may be dead.
//!
//! A compute server runs two tasks or threads of its own. The *keeper* ([`Worker::keep`](crate::Worker::keep)) renews the lease and
//! does nothing else, so that nothing can delay a renewal. The *recoverer* ([`Worker::recover_others`](crate::Worker::recover_others))
//! recovers members that died. An operation that has waited long for another member leaves that member's id here and wakes the
//! recoverer; it never asks the control plane itself.
//!
//! A compute server is **doomed** once it cannot go on under its identity: a memory server has fenced it, it cannot reach a memory
//! server that the cluster counts as present, it left lanes behind that only recovery can free, or one of its threads has held a lane
//! for too long. Then the keeper renews no more, every operation that waits gets [`Error::Fenced`](crate::Error::Fenced), and others
//! recover the compute server when its lease has run out.

use crate::mutant::{Mutant, planted};
use sherman_fabric::{ClientId, FabricError};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;

/// Leases an operation may hold a lane for without any progress of its thread, before the compute server gives itself up.
const WEDGED_AFTER_LEASES: u64 = 2;

/// A compute server's place in the cluster.
#[derive(Debug, Default)]
pub(crate) struct Membership {
    doomed: AtomicBool,
    suspects: Mutex<BTreeSet<ClientId>>,
    /// Whether some member finds no memory.
    short: AtomicBool,
    /// Those who live and could not be fenced, and how many there are.
    stalled: Mutex<BTreeSet<ClientId>>,
    stalls: AtomicU32,
    keeper: Mutex<Option<Waker>>,
    recoverer: Mutex<Option<Waker>>,
    next_renewal: AtomicU64,
    renewals: AtomicU64,
    recoveries: AtomicU64,
    recovering: Mutex<BTreeSet<ClientId>>,
    pulses: Mutex<Vec<Weak<Pulse>>>,
}

/// How a compute server has taken part so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Participation {
    /// How often it renewed its lease.
    pub renewals: u64,
    /// How many others it recovered.
    pub recoveries: u64,
}

/// Whether a thread holds lanes, and whether anything moves: written by its thread alone, read by the keeper.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    held: AtomicU32,
    beats: AtomicU32,
}

impl Pulse {
    /// A lane was taken.
    #[inline]
    pub fn took(&self) {
        self.held.store(self.held.load(Relaxed).wrapping_add(1), Relaxed);
        self.beat();
    }

    /// A lane was given back.
    #[inline]
    pub fn gave(&self) {
        self.held.store(self.held.load(Relaxed).wrapping_sub(1), Relaxed);
        self.beat();
    }

    #[inline]
    fn beat(&self) {
        self.beats.store(self.beats.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Whether it holds any lane.
    pub fn holds(&self) -> bool {
        self.held.load(Relaxed) != 0
    }
}

/// What the keeper remembers of the threads' pulses.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// A thread that held a lane: its pulse, its beats then, and since when they are the same.
    still: Vec<(Weak<Pulse>, u32, u64)>,
}

/// Nothing in here panics half-way, so what a poisoned mutex guards is still whole.
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
    pub fn is_doomed(&self) -> bool {
        self.doomed.load(Acquire)
    }

    /// Ends this identity. Whether it was not doomed before.
    pub fn doom(&self) -> bool {
        let first = !self.doomed.swap(true, Release);
        wake(&self.keeper);
        wake(&self.recoverer);
        first
    }

    /// Whether an error ends this identity. A server that cannot be reached does, unless the cluster has declared it lost
    /// ([`FabricError::ServerLost`]): a client that went on without it would leave there what nobody cleans up (I40).
    pub fn is_fatal(error: &FabricError) -> bool {
        match error {
            FabricError::Fenced { .. } => true,
            FabricError::Disconnected { .. } => !planted(Mutant::PrivateLoss),
            _ => false,
        }
    }

    /// Leaves an id for the recoverer.
    pub fn suspect(&self, client: ClientId) {
        if lock(&self.suspects).insert(client) {
            wake(&self.recoverer);
        }
    }

    /// The same for several.
    pub fn suspect_all(&self, clients: &[ClientId]) {
        if !clients.is_empty() {
            lock(&self.suspects).extend(clients);
            wake(&self.recoverer);
        }
    }

    /// Has the recoverer give back memory that is not used.
    pub fn want_memory(&self) {
        self.short.store(true, Release);
        wake(&self.recoverer);
    }

    /// Whether it is to, which is forgotten with that.
    pub fn take_want(&self) -> bool {
        self.short.swap(false, Acquire)
    }

    /// Whether there is anything for the recoverer to do.
    pub fn is_wanted(&self) -> bool {
        self.has_suspects() || self.short.load(Acquire)
    }

    /// Whether `client` could not be fenced when that was last tried: it lives, and stands still in the middle of a change.
    #[inline]
    pub fn is_stalled(&self, client: ClientId) -> bool {
        self.stalls.load(Relaxed) != 0 && lock(&self.stalled).contains(&client)
    }

    /// Remembers whether `client` is.
    pub fn set_stalled(&self, client: ClientId, is: bool) {
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

    /// The names that were left since.
    pub fn take_suspects(&self) -> BTreeSet<ClientId> {
        std::mem::take(&mut lock(&self.suspects))
    }

    pub fn has_suspects(&self) -> bool {
        !lock(&self.suspects).is_empty()
    }

    /// Sets the waker of the keeper, for when this identity ends.
    pub fn set_keeper(&self, waker: &Waker) {
        *lock(&self.keeper) = Some(waker.clone());
    }

    /// Sets the waker of the recoverer, for when there is a suspect.
    pub fn set_recoverer(&self, waker: &Waker) {
        *lock(&self.recoverer) = Some(waker.clone());
    }

    /// Wakes the recoverer.
    pub fn wake_recoverer(&self) {
        wake(&self.recoverer);
    }

    /// When the lease is to be renewed next.
    pub fn next_renewal(&self) -> u64 {
        self.next_renewal.load(Relaxed)
    }

    pub fn renew_next(&self, at: u64) {
        self.next_renewal.store(at, Relaxed);
    }

    pub fn count_renewal(&self) {
        self.renewals.fetch_add(1, Relaxed);
    }

    pub fn count_recovery(&self) {
        self.recoveries.fetch_add(1, Relaxed);
    }

    pub fn participation(&self) -> Participation {
        Participation { renewals: self.renewals.load(Relaxed), recoveries: self.recoveries.load(Relaxed) }
    }

    /// Begins to recover `client`, unless another thread of this compute server does.
    pub fn begin_recovery(&self, client: ClientId) -> Option<Recovering<'_>> {
        let alone = lock(&self.recovering).insert(client);
        alone.then(|| Recovering { membership: self, client })
    }

    /// A pulse for one more thread.
    pub fn pulse(&self) -> Arc<Pulse> {
        let pulse = Arc::default();
        let mut pulses = lock(&self.pulses);
        pulses.retain(|known| known.strong_count() > 0);
        pulses.push(Arc::downgrade(&pulse));
        pulse
    }

    /// Whether some thread holds a lane, or has a list in flight that may take one or give one back.
    pub fn holds_lanes(&self) -> bool {
        lock(&self.pulses).iter().filter_map(Weak::upgrade).any(|pulse| pulse.holds())
    }

    /// Whether some thread has held a lane, and done nothing else, for too long.
    pub fn is_wedged(&self, watch: &mut Watch, now: u64, lease: u64) -> bool {
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

/// Proof of recovering somebody, alone in this compute server.
#[derive(Debug)]
pub(crate) struct Recovering<'m> {
    membership: &'m Membership,
    client: ClientId,
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
    fn one_thread_recovers_somebody_at_a_time() {
        let membership = Membership::default();
        let first = membership.begin_recovery(ClientId(3));
        assert!(first.is_some() && membership.begin_recovery(ClientId(3)).is_none());
        assert!(membership.begin_recovery(ClientId(4)).is_some());
        drop(first);
        assert!(membership.begin_recovery(ClientId(3)).is_some());
    }
}
