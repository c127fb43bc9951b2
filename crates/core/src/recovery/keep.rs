//! The keeper: renews the lease, recovers others, and leaves.
//!
//! Renewals are control requests of a task of their own, a third of a lease apart: no operation ever waits for one, and two may
//! be late before the lease runs out. A compute server that is doomed stops renewing.

use super::SERVER_0;
use crate::cause::Cause;
use crate::error::Error;
use crate::membership::Watch;
use crate::mutant::{Mutant, planted};
use crate::worker::Worker;
use sherman_fabric::control::MemberInfo;
use sherman_fabric::{ClientId, Endpoint, FabricError, Refusal, Request, Response, Verdict};
use std::task::Poll;
use std::time::Duration;

/// Renewals in one lease.
const RENEWALS_PER_LEASE: u64 = 3;

impl<E: Endpoint> Worker<E> {
    fn lease(&self) -> u64 {
        self.compute.geometry().lease_nanos
    }

    /// Renews this compute server's lease: one control request. Somebody whose lease has run out, if server 0 names one.
    ///
    /// # Errors
    /// [`Error::Fenced`] if this compute server has been taken for dead: its identity is at its end.
    pub async fn renew(&self) -> Result<Option<ClientId>, Error> {
        // Counted from before: the server's lease begins later.
        let now = self.endpoint.now();
        self.compute.membership.renew_next(now.saturating_add(self.lease() / RENEWALS_PER_LEASE));
        match self.op().call(SERVER_0, Request::Renew).await {
            Ok(Response::Renewed { expired }) => {
                self.compute.membership.count_renewal();
                Ok(expired)
            }
            Ok(_) => Err(Error::Unsupported { what: "the memory server's answer to a renewal" }),
            Err(FabricError::Refused(Refusal::Fenced { .. } | Refusal::NotAMember { .. })) => {
                self.compute.doom();
                Err(Error::Fenced { client: self.compute.client() })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Renews if it is time, while something else takes long.
    pub(super) async fn renew_if_due(&self) -> Result<(), Error> {
        if self.compute.is_doomed() {
            return Err(Error::Fenced { client: self.compute.client() });
        }
        if self.endpoint.now() < self.compute.membership.next_renewal() {
            return Ok(());
        }
        // Whom it names is named again at the next.
        self.renew().await.map(drop)
    }

    /// Keeps this compute server in the cluster: renews its lease three times in its length, and recovers those that operations
    /// wait for or that server 0 names. Runs until `stop` says so, which is asked at least as often; one task or thread of
    /// every compute server must run it, with a worker of its own.
    ///
    /// # Errors
    /// [`Error::Fenced`] once this compute server is at its end: fenced, disconnected, or with a thread that has held a lane
    /// for more than two leases. [`Error::ServerLost`] if server 0 is gone.
    pub async fn keep(&self, stop: impl Fn() -> bool) -> Result<(), Error> {
        let membership = &self.compute.membership;
        membership.renew_next(self.endpoint.now().saturating_add(self.lease() / RENEWALS_PER_LEASE));
        let mut watch = Watch::default();
        let mut look_again = None;
        while !stop() {
            let now = self.endpoint.now();
            if membership.is_wedged(&mut watch, now, self.lease()) {
                self.compute.doom();
            }
            if self.compute.is_doomed() && !planted(Mutant::DoomedRenews) {
                return Err(Error::Fenced { client: self.compute.client() });
            }
            let mut suspects = membership.take_suspects();
            if now >= membership.next_renewal() {
                suspects.extend(self.renew().await?);
            }
            if planted(Mutant::ExpiredUnnoticed) {
                suspects.clear();
            }
            if let Some((client, _)) = look_again.take_if(|(_, at)| now >= *at) {
                suspects.insert(client);
            }
            for client in suspects {
                match self.recover(client).await {
                    Ok(report) => {
                        if let Verdict::Alive { lease_left } = report.verdict {
                            look_again = Some((client, self.endpoint.now().saturating_add(lease_left)));
                        }
                    }
                    // Whatever went wrong with that one, this one goes on; it is asked again when it is named again.
                    Err(error @ (Error::Fenced { .. } | Error::ServerLost { server: SERVER_0 })) => return Err(error),
                    Err(_) => {}
                }
            }
            let until = membership.next_renewal().min(look_again.map_or(u64::MAX, |(_, at)| at));
            self.rest(until, &stop).await;
        }
        Ok(())
    }

    /// Until a moment, or until there is something to do.
    async fn rest(&self, until: u64, stop: &impl Fn() -> bool) {
        let membership = &self.compute.membership;
        std::future::poll_fn(|cx| {
            membership.set_keeper(cx.waker());
            let doomed = membership.is_doomed() && !planted(Mutant::DoomedRenews);
            let busy = membership.has_suspects() || doomed || stop();
            if busy || self.endpoint.now() >= until {
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

    /// Leaves the cluster: nothing of this compute server may be in flight, and nothing may be posted afterwards. If it has free
    /// places, or records that were left behind, its id is free only when another has taken them over.
    pub async fn depart(&self) -> Result<(), Error> {
        let census = self.compute.census();
        let clean = census.free == 0 && self.compute.redo.all_free() && !self.compute.is_doomed();
        if !clean {
            self.op().call(SERVER_0, Request::Depart).await?;
            return Ok(());
        }
        for server in (0..self.endpoint.servers()).rev() {
            match self.op().call(server, Request::Leave).await {
                Ok(_) => {}
                Err(FabricError::ServerLost { .. }) if server != SERVER_0 => {}
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
                    // It may run again, or die, while there is patience.
                    Err(Error::OwnerStalled { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            op.retry(Cause::LaneHeld).await?;
        }
    }
}
