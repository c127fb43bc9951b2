//! The requests about members: leases, recoverers, and the release of ids.
//!
//! Recovery of one member by another is a sequence of requests, each of which may be repeated. The recoverer
//! fences the member on every volume, replays its records, retires it on every volume, and frees its id last
//! (`docs/INVARIANTS.md`). If the recoverer dies half-way, the member is still dead here.

use super::Control;
use sherman_fabric::control::{Renewal, Verdict};
use sherman_fabric::{ComputeId, Memory, Refusal, Request, Response};

impl Control {
    pub(super) fn membership_request(
        &mut self,
        memory: &dyn Memory,
        from: ComputeId,
        request: &Request,
        now: u64,
    ) -> Result<Response, Refusal> {
        if let Request::Succeed { client, incarnation } = request
            && *client != from
            && self.members.is_live_issue(*client, *incarnation)
            && self.owns_nothing(*client)
        {
            self.let_go(memory, *client);
            return Ok(Response::Verdict(Verdict::Gone));
        }
        let geometry = &self.block.geometry;
        let members = &mut self.members;
        match request {
            Request::Activate => {
                Ok(Response::Active { incarnation: members.activate(memory, geometry, from) })
            }
            Request::Leave => {
                members.release(memory, geometry, from);
                Ok(Response::Done)
            }
            Request::Relieve { client } => {
                members.may_retire(from, *client)?;
                members.give_up(memory, geometry, *client);
                Ok(Response::Done)
            }
            Request::FreeId { client } => {
                members.may_retire(from, *client)?;
                members.release(memory, geometry, *client);
                Ok(Response::Done)
            }
            Request::Renew => {
                members.renew(memory, geometry, from, now);
                let lease = geometry.lease_nanos;
                self.reap(memory, now);
                Ok(Response::Renewed(Renewal {
                    expired: self.members.expired(from, now),
                    short: self.members.is_short(from, now, lease),
                }))
            }
            Request::Short => {
                members.run_short(memory, from, now);
                let expired = members.expired(from, now);
                let others: Vec<ComputeId> = members.live().filter(|&client| client != from).collect();
                let short =
                    !expired.is_empty() || others.into_iter().any(|client| !self.owns_nothing(client));
                Ok(Response::Renewed(Renewal { expired, short }))
            }
            Request::Depart => {
                members.depart(memory, geometry, from);
                Ok(Response::Done)
            }
            Request::Suspect { client } if *client == from => {
                Err(Refusal::BadRequest { what: "a member suspects itself" })
            }
            Request::Succeed { client, .. } if *client == from => {
                Err(Refusal::BadRequest { what: "a member succeeds itself" })
            }
            Request::Suspect { client } => {
                Ok(Response::Verdict(members.suspect(memory, geometry, from, *client, now)))
            }
            Request::Succeed { client, incarnation } => {
                Ok(Response::Verdict(members.succeed(memory, geometry, from, (*client, *incarnation), now)))
            }
            Request::Condemn { client } => self.condemn(memory, *client).map(|()| Response::Done),
            Request::Members => Ok(Response::Members(members.infos(now))),
            _ => Err(Refusal::BadRequest { what: "this server does not know the request" }),
        }
    }

    /// Whether `client` has nothing in memory, so that it needs no recovery (I43). A member that is not
    /// active has no redo area and owns no span. If it also recovers no other member, it holds no lane and
    /// writes nothing.
    fn owns_nothing(&self, client: ComputeId) -> bool {
        !self.members.get(client).active && !self.members.recovers_any(client)
    }

    /// Frees the ids of members whose lease has run out and that own nothing.
    pub(crate) fn reap(&mut self, memory: &dyn Memory, now: u64) {
        for client in self.members.run_out(now) {
            if self.owns_nothing(client) {
                self.let_go(memory, client);
            }
        }
    }

    fn let_go(&mut self, memory: &dyn Memory, client: ComputeId) {
        self.members.release(memory, &self.block.geometry, client);
        self.reaped.push(client);
    }

    /// The members whose ids were freed without a request since the last call. The backend ends their
    /// connections, as for members that left: the next holder of the id is another client.
    pub fn take_reaped(&mut self) -> Vec<ComputeId> {
        std::mem::take(&mut self.reaped)
    }

    /// Ends the lease of `client` now. If the client owns nothing, its id is free; otherwise it needs
    /// recovery.
    pub(super) fn condemn(&mut self, memory: &dyn Memory, client: ComputeId) -> Result<(), Refusal> {
        if self.members.is_live(client) && self.owns_nothing(client) {
            self.let_go(memory, client);
            return Ok(());
        }
        self.members.condemn(memory, &self.block.geometry, client)
    }

    /// As [`Request::Condemn`]: the last connection of `client` has ended, and the client cannot return.
    pub fn lose(&mut self, memory: &dyn Memory, client: ComputeId) {
        // An error means that the id is free: the client has been recovered meanwhile.
        let _ = self.condemn(memory, client);
    }

    /// Ends the lease of every member: no earlier client can return.
    pub fn lose_all(&mut self, memory: &dyn Memory) {
        let live: Vec<ComputeId> = self.members.live().collect();
        for client in live {
            self.lose(memory, client);
        }
    }
}
