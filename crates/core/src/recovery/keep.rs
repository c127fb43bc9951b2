//! The keeper, which renews the lease; the recoverer, which recovers others; and leaving.
//!
//! They are two tasks or threads with an endpoint each. A recovery takes hundreds of round trips, and calls in it wait for the slowest
//! server: whatever it waits for, the keeper renews the lease in time. Renewals are a third of a lease apart, so two may be late before
//! the lease runs out. A compute server that is doomed stops renewing.

use super::{BATCH, SERVER_0};
use crate::cause::Cause;
use crate::error::Error;
use crate::membership::Watch;
use crate::mutant::{Mutant, planted};
use crate::worker::Worker;
use sherman_fabric::control::MemberInfo;
use sherman_fabric::{ClientId, Endpoint, FabricError, Request, Response, Verdict};
use std::collections::BTreeMap;
use std::task::{Poll, Waker};
use std::time::Duration;

/// Renewals in one lease.
const RENEWALS_PER_LEASE: u64 = 3;

impl<E: Endpoint> Worker<E> {
    fn lease(&self) -> u64 {
        self.compute.geometry().lease_nanos
    }

    /// Renews this compute server's lease: one control request. Returns the members that are to be recovered, if server 0 names any.
    ///
    /// # Errors
    /// [`Error::Fenced`] if this compute server has been taken for dead.
    pub async fn renew(&self) -> Result<Vec<ClientId>, Error> {
        // Counted from before the request: the server's lease begins later.
        let now = self.endpoint.now();
        self.compute.membership.renew_next(now.saturating_add(self.lease() / RENEWALS_PER_LEASE));
        match self.op().call(SERVER_0, Request::Renew).await {
            Ok(Response::Renewed { expired, short }) => {
                self.compute.membership.count_renewal();
                if short {
                    self.compute.membership.want_memory();
                }
                Ok(expired)
            }
            Ok(_) => Err(Error::Unsupported { what: "the memory server's answer to a renewal" }),
            Err(error) => Err(error.into()),
        }
    }

    /// Fails once this compute server is doomed.
    pub(super) fn expect_alive(&self) -> Result<(), Error> {
        if self.compute.is_doomed() { Err(Error::Fenced { client: self.compute.client() }) } else { Ok(()) }
    }

    /// Renews if a renewal is due: for a caller that has no keeper.
    async fn renew_if_due(&self) -> Result<(), Error> {
        self.expect_alive()?;
        if self.endpoint.now() < self.compute.membership.next_renewal() {
            return Ok(());
        }
        // Server 0 names the same member again at the next renewal.
        self.renew().await.map(drop)
    }

    /// Keeps this compute server in the cluster: renews its lease three times in its length, until `stop` says so. `stop` is asked at
    /// least as often. Every compute server needs one task or thread that runs this, with a worker of its own, and another that runs
    /// [`Worker::recover_others`].
    ///
    /// # Errors
    /// [`Error::Fenced`] once this compute server is doomed: fenced, disconnected, or with a thread that has held a lane for more than
    /// two leases. [`Error::ServerLost`] if server 0 is gone.
    pub async fn keep(&self, stop: impl Fn() -> bool) -> Result<(), Error> {
        let membership = &self.compute.membership;
        // At once: a newcomer hears who waits to be recovered. Where clients only come and go, there may be nobody else to do it.
        membership.renew_next(self.endpoint.now());
        let mut watch = Watch::default();
        let over = || self.compute.is_doomed() && !planted(Mutant::DoomedRenews);
        while !stop() {
            let now = self.endpoint.now();
            if membership.is_wedged(&mut watch, now, self.lease()) {
                self.compute.doom();
            }
            if over() {
                return Err(Error::Fenced { client: self.compute.client() });
            }
            if now >= membership.next_renewal() {
                let expired = self.renew().await?;
                membership.suspect_all(&expired);
                if planted(Mutant::RecoversInline) {
                    let _ = self.recover_many(&expired).await;
                }
            }
            self.rest(membership.next_renewal(), |waker| membership.set_keeper(waker), || over() || stop()).await;
        }
        Ok(())
    }

    /// Recovers the members that operations wait for or that server 0 names, until `stop` says so, which is asked after every part of them and at least three times
    /// in a lease. Also finishes what operations of this compute server could not: freeing the nodes of trees that it dropped.
    ///
    /// # Errors
    /// As [`Worker::keep`].
    pub async fn recover_others(&self, stop: impl Fn() -> bool) -> Result<(), Error> {
        let membership = &self.compute.membership;
        // Members whose lease still ran when it was last asked about, and when it runs out.
        let mut look_again: BTreeMap<ClientId, u64> = BTreeMap::new();
        loop {
            self.expect_alive()?;
            let now = self.endpoint.now();
            let mut suspects = membership.take_suspects();
            suspects.extend(look_again.extract_if(.., |_, at| now >= *at).map(|(client, _)| client));
            if planted(Mutant::ExpiredUnnoticed) || planted(Mutant::RecoversInline) {
                suspects.clear();
            }
            if !suspects.is_empty() {
                // Survivors begin at different ones, so that they do not ask about the same all the time.
                let mut suspects: Vec<ClientId> = suspects.into_iter().collect();
                let first = usize::from(self.compute.client().0) * 31 % suspects.len();
                suspects.rotate_left(first);
                // A part at a time: the others may be somebody else's by then, and this one may be asked to stop.
                if suspects.len() > BATCH {
                    membership.suspect_all(&suspects.split_off(BATCH));
                }
                let outcomes = match self.recover_many(&suspects).await {
                    Ok(outcomes) => outcomes,
                    Err(error @ (Error::Fenced { .. } | Error::ServerLost { server: SERVER_0 })) => return Err(error),
                    // Server 0 names them again at the next renewal.
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
            let busy = || membership.is_wanted() || membership.is_doomed() || stop();
            self.rest(until, |waker| membership.set_recoverer(waker), busy).await;
        }
    }

    /// Gives back the spans in which nothing is being made: some member finds no memory.
    ///
    /// # Errors
    /// Those of the fabric.
    pub async fn give_memory(&self) -> Result<(), Error> {
        let op = self.op();
        while let Some((server, spans)) = self.compute.alloc.release_unused() {
            match op.call(server, Request::FreeSpans { spans }).await {
                Ok(_) | Err(FabricError::ServerLost { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Sleeps until a moment, or until `busy`. `listen` stores the waker that ends the sleep early.
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

    /// Every member, as server 0 knows them.
    pub async fn members(&self) -> Result<Vec<MemberInfo>, Error> {
        match self.op().call(SERVER_0, Request::Members).await? {
            Response::Members(members) => Ok(members),
            _ => Err(Error::Unsupported { what: "the memory server's answer about its members" }),
        }
    }

    /// Ends the lease of `client` now, whatever it says itself, and recovers it: what an operator does with one that is known to
    /// be broken.
    ///
    /// # Errors
    /// [`Error::Refused`] if it is no member. Otherwise as [`Worker::recover`].
    pub async fn condemn(&self, client: ClientId) -> Result<super::Recovery, Error> {
        self.op().call(SERVER_0, Request::Condemn { client }).await?;
        self.recover(client).await
    }

    /// Leaves the cluster: nothing of this compute server may be in flight, and nothing may be posted afterwards. Its spans are nobody's
    /// then. If a record is left behind, its id stays taken until another member has recovered it.
    ///
    /// # Errors
    /// [`Error::Fenced`] if this compute server is doomed. A doomed one does not leave: it may have left a lane taken on a server
    /// that it cannot reach, and only recovery frees that. The same holds if a server cannot be reached now.
    pub async fn depart(&self) -> Result<(), Error> {
        let careless = planted(Mutant::LeavesDoomed);
        if !careless {
            self.expect_alive()?;
        }
        if !self.compute.redo.all_free() {
            self.finish_drops().await;
        }
        if !self.compute.redo.all_free() {
            self.op().call(SERVER_0, Request::Depart).await?;
            return Ok(());
        }
        for server in (0..self.endpoint.servers()).rev() {
            match self.op().call(server, Request::Leave).await {
                Ok(_) => {}
                Err(FabricError::ServerLost { .. }) if server != SERVER_0 => {}
                Err(FabricError::Disconnected { .. }) if server != SERVER_0 && careless => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Recovers everyone that is not alive, and waits for those whose lease may yet run out, until all members that are left are
    /// alive: what must be done before memory is looked at as a whole. How many were recovered.
    ///
    /// # Errors
    /// [`Error::Timeout`] if that takes longer than `patience`. Otherwise as [`Worker::recover`].
    pub async fn recover_all(&self, is_alive: impl Fn(ClientId) -> bool, patience: Duration) -> Result<u64, Error> {
        let op = self.op_within(patience);
        let mut recovered = 0;
        loop {
            let members = self.members().await?;
            let others = members.iter().filter(|member| member.client != self.compute.client());
            let dead: Vec<ClientId> = others.map(|member| member.client).filter(|&client| !is_alive(client)).collect();
            if dead.is_empty() {
                return Ok(recovered);
            }
            for client in dead {
                self.renew_if_due().await?;
                match self.recover(client).await {
                    Ok(report) => recovered += u64::from(report.verdict == Verdict::Recover),
                    // It may run again, or die, while there is patience; or it waits for another that is dead, and comes next.
                    Err(Error::OwnerStalled { .. } | Error::Timeout { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            op.retry(Cause::LaneHeld).await?;
        }
    }
}
