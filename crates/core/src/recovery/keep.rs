//! The keeper renews the lease; the recoverer recovers other members. This module also leaves the cluster.
//!
//! Keeper and recoverer are two tasks or threads, each with its own endpoint. A recovery takes hundreds of
//! round trips, and its calls wait for the slowest server. The keeper renews the lease in time meanwhile.
//! Renewals are a third of a lease apart, so two may be late before the lease runs out. A compute server that
//! is terminated stops renewing.

use super::BATCH;
use crate::cause::Cause;
use crate::error::Error;
use crate::membership::Watch;
use crate::worker::Worker;
use sherman_fabric::control::MemberInfo;
use sherman_fabric::{ComputeId, Endpoint, FabricError, Peer, Verdict, calls};
use std::collections::{BTreeMap, BTreeSet};
use std::task::{Poll, Waker};
use std::time::Duration;

/// Renewals in one lease.
const RENEWALS_PER_LEASE: u64 = 3;
/// How many leases an identity that lost a copy waits for a table without that copy. Then others recover it.
const LEASES_FOR_A_TABLE: u64 = 8;

/// Fails unless a compute server has nothing on a volume any more: the volume said so, or the cluster has
/// declared it lost.
fn check_released(answer: Result<(), FabricError>) -> Result<(), Error> {
    seam!(recovery::check_released(&answer));
    match answer {
        Err(error) if error.lost().is_some() => Ok(()),
        answer => Ok(answer?),
    }
}

impl<E: Endpoint> Worker<E> {
    fn lease(&self) -> u64 {
        self.compute.geometry().lease_nanos
    }

    /// Renews this compute server's lease with one control request. Returns the members that must be
    /// recovered, if control names any.
    ///
    /// # Errors
    /// [`Error::Fenced`] if the cluster has declared this compute server dead.
    pub async fn renew(&self) -> Result<Vec<ComputeId>, Error> {
        // Read before the request: the server's lease begins later.
        let now = self.endpoint.now();
        self.compute.membership.renew_next(now.saturating_add(self.lease() / RENEWALS_PER_LEASE));
        let renewal = self.op().call(Peer::Control, calls::Renew).await?;
        self.compute.membership.count_renewal();
        if let Some(replicas) = &self.compute.replicas {
            replicas.renewed(now, self.lease());
        }
        if renewal.short {
            self.compute.membership.want_memory();
        }
        Ok(renewal.expired)
    }

    /// Fails once this compute server is terminated.
    pub(super) fn expect_alive(&self) -> Result<(), Error> {
        if self.compute.is_terminated() {
            Err(Error::Fenced { client: self.compute.client() })
        } else {
            Ok(())
        }
    }

    /// Renews if a renewal is due, for a caller that has no keeper.
    async fn renew_if_due(&self) -> Result<(), Error> {
        self.expect_alive()?;
        if self.endpoint.now() < self.compute.membership.next_renewal() {
            return Ok(());
        }
        // Control names the same member again at the next renewal.
        self.renew().await.map(drop)
    }

    /// Keeps this compute server in the cluster: renews its lease three times per lease, until `stop` returns
    /// true. It calls `stop` at least as often. A group without a leader does not end it. Every compute
    /// server needs one task or thread that runs this with a worker of its own, and another that runs
    /// [`Worker::recover_others`].
    ///
    /// # Errors
    /// [`Error::Fenced`] once this compute server is terminated: fenced, disconnected, or with a thread that
    /// has held a lane for more than two leases. [`Error::ServerLost`] if the control state is gone.
    pub async fn keep(&self, stop: impl Fn() -> bool) -> Result<(), Error> {
        let membership = &self.compute.membership;
        // Renews at once, so that a new client learns which members wait for recovery. If clients only come
        // and go, there may be no other recoverer.
        membership.renew_next(self.endpoint.now());
        let mut watch = Watch::default();
        let mut ended = None;
        while !stop() {
            let now = self.endpoint.now();
            if membership.is_wedged(&mut watch, now, self.lease()) {
                self.compute.terminate();
            }
            if self.is_over() {
                let since = *ended.get_or_insert(now);
                let patience = LEASES_FOR_A_TABLE.saturating_mul(self.lease());
                if !self.compute.awaits_table() || now.saturating_sub(since) > patience {
                    return Err(Error::Fenced { client: self.compute.client() });
                }
            }
            if now >= membership.next_renewal() {
                match self.renew().await {
                    Ok(expired) => self.report_expired(&expired).await,
                    // Nobody is known to lead the group. The next leader will say whether this identity is
                    // still a member. Until then, results that rest on READs alone are not returned (R2).
                    Err(Error::Fabric(FabricError::NoLeader)) => {}
                    Err(error) => return Err(error),
                }
            }
            let busy = || self.is_over() && !self.compute.awaits_table() || stop();
            self.rest(membership.next_renewal(), |waker| membership.set_keeper(waker), busy).await;
        }
        Ok(())
    }

    /// Whether the keeper must stop renewing.
    fn is_over(&self) -> bool {
        seam!(recovery::is_over());
        self.compute.is_terminated()
    }

    /// Leaves members whose lease expired to the recoverer. The keeper itself must not wait for them.
    async fn report_expired(&self, expired: &[ComputeId]) {
        seam!(recovery::report_expired(self, expired).await);
        self.compute.membership.suspect_all(expired);
    }

    /// Takes the members to ask control about now, also those of `look_again` whose time has come.
    fn take_suspects(&self, look_again: &mut BTreeMap<ComputeId, u64>) -> BTreeSet<ComputeId> {
        seam!(recovery::take_suspects(self));
        self.compute.membership.take_suspects().due(look_again, self.endpoint.now())
    }

    /// Recovers the members that operations wait for or that control names, until `stop` returns true. It
    /// calls `stop` after every batch of members, and at least three times per lease. It also frees the
    /// remaining nodes of trees that operations of this compute server dropped but could not finish.
    ///
    /// # Errors
    /// As [`Worker::keep`].
    pub async fn recover_others(&self, stop: impl Fn() -> bool) -> Result<(), Error> {
        let membership = &self.compute.membership;
        // Members whose lease still ran at the last request, and the time when it runs out.
        let mut look_again: BTreeMap<ComputeId, u64> = BTreeMap::new();
        loop {
            self.expect_alive()?;
            let suspects = self.take_suspects(&mut look_again);
            if !suspects.is_empty() {
                // Each survivor begins at a different suspect, so that they do not all ask about the same
                // one.
                let mut suspects: Vec<ComputeId> = suspects.into_iter().collect();
                let first = usize::from(self.compute.client().0) * 31 % suspects.len();
                suspects.rotate_left(first);
                // Takes one batch at a time: other survivors may recover the rest meanwhile, and `stop` may
                // return true.
                if suspects.len() > BATCH {
                    membership.suspect_all(&suspects.split_off(BATCH));
                }
                let outcomes = match self.recover_many(&suspects).await {
                    Ok(outcomes) => outcomes,
                    Err(error @ Error::Fenced { .. }) => return Err(error),
                    // Control names them again at the next renewal.
                    Err(_) => BTreeMap::new(),
                };
                for (client, outcome) in outcomes {
                    if let Ok(super::Recovery { verdict: Verdict::Alive { lease_left }, .. }) = outcome {
                        look_again.insert(client, self.endpoint.now().saturating_add(lease_left));
                    }
                }
            }
            if membership.take_want() {
                self.give_memory().await?;
            }
            self.finish_drops().await;
            if stop() {
                return Ok(());
            }
            let next = self.endpoint.now().saturating_add(self.lease() / RENEWALS_PER_LEASE);
            let until = look_again.values().copied().chain([next]).min().unwrap_or(next);
            let busy = || membership.is_wanted() || membership.is_terminated() || stop();
            self.rest(until, |waker| membership.set_recoverer(waker), busy).await;
        }
    }

    /// Gives back the spans in which no node is being made, because some member finds no memory.
    ///
    /// # Errors
    /// Those of the fabric.
    pub async fn give_memory(&self) -> Result<(), Error> {
        let op = self.op();
        while let Some((server, spans)) = self.compute.alloc.release_unused() {
            match op.call(Peer::Volume(server), calls::FreeSpans { spans }).await {
                Ok(()) => {}
                Err(error) if error.lost().is_some() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Sleeps until the time `until`, or until `busy` returns true. `listen` stores the waker that ends the
    /// sleep early.
    async fn rest(&self, until: u64, listen: impl Fn(&Waker), busy: impl Fn() -> bool) {
        std::future::poll_fn(|cx| {
            listen(cx.waker());
            if busy() || self.endpoint.now() >= until {
                return Poll::Ready(());
            }
            self.endpoint.wake_at(until, cx.waker());
            Poll::Pending
        })
        .await;
    }

    /// Returns every member, as the control state has them.
    pub async fn members(&self) -> Result<Vec<MemberInfo>, Error> {
        Ok(self.op().call(Peer::Control, calls::Members).await?)
    }

    /// Ends the lease of `client` now, even if it is still renewing, and recovers it. An operator uses this
    /// for a client that is known to be broken.
    ///
    /// # Errors
    /// [`Error::Refused`] if it is no member. Otherwise as [`Worker::recover`].
    pub async fn condemn(&self, client: ComputeId) -> Result<super::Recovery, Error> {
        self.op().call(Peer::Control, calls::Condemn { client }).await?;
        self.recover(client).await
    }

    /// Leaves the cluster. No operation of this compute server may be in flight, and it must post nothing
    /// afterwards. Its spans then have no owner. If a record is left behind, the id stays taken until another
    /// member has recovered it.
    ///
    /// # Errors
    /// [`Error::Fenced`] if this compute server is terminated. A terminated compute server does not leave,
    /// because it may hold a lane on a server that it cannot reach. Only recovery frees that lane. The same
    /// holds if a server cannot be reached now.
    pub async fn depart(&self) -> Result<(), Error> {
        self.expect_departure()?;
        if !self.compute.redo.all_free() {
            self.finish_drops().await;
        }
        if !self.compute.redo.all_free() {
            self.op().call(Peer::Control, calls::Depart).await?;
            return Ok(());
        }
        for volume in (0..self.endpoint.servers()).rev() {
            check_released(self.op().call(Peer::Volume(volume), calls::Release).await)?;
        }
        self.op().call(Peer::Control, calls::Leave).await?;
        Ok(())
    }

    /// Fails if this compute server must be recovered instead of leaving.
    fn expect_departure(&self) -> Result<(), Error> {
        seam!(recovery::expect_departure());
        self.expect_alive()
    }

    /// Recovers every member that is not alive, and waits for leases that still run, until all remaining
    /// members are alive. This must happen before an inspection of the whole memory. Returns how many members
    /// were recovered.
    ///
    /// # Errors
    /// [`Error::Timeout`] if that takes longer than `patience`. Otherwise as [`Worker::recover`].
    pub async fn recover_all(
        &self,
        is_alive: impl Fn(ComputeId) -> bool,
        patience: Duration,
    ) -> Result<u64, Error> {
        let op = self.op_within(patience);
        let mut recovered = 0;
        loop {
            let members = self.members().await?;
            let others = members.iter().filter(|member| member.client != self.compute.client());
            let dead: Vec<ComputeId> =
                others.map(|member| member.client).filter(|&client| !is_alive(client)).collect();
            if dead.is_empty() {
                return Ok(recovered);
            }
            for client in dead {
                self.renew_if_due().await?;
                match self.recover(client).await {
                    Ok(report) => recovered += u64::from(report.verdict == Verdict::Recover),
                    // The member may run again, or die, before `patience` ends. Or its recovery waits for
                    // another dead member, which comes next.
                    Err(Error::OwnerStalled { .. } | Error::Timeout { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            op.retry(Cause::LaneHeld).await?;
        }
    }
}
