//! The requests of membership and recovery: leases, fences, takeover of spans, and the release of ids.
//!
//! Recovery of one member by another is a sequence of requests, each of which may be repeated. The recoverer
//! fences the member on every volume, reads its spans on every volume, retires it on every volume, and frees
//! its id last (`docs/INVARIANTS.md`). If the recoverer dies half-way, the member is still dead in the
//! control state. The next recoverer fences again, also where the fence was lifted already, finds nothing
//! there, and continues. So a volume accepts a fence of any id at any time.

use super::{MemoryServer, Root};
use sherman_fabric::control::{Renewal, Verdict};
use sherman_fabric::{ComputeId, Memory, Refusal, Request, Response};
use sherman_layout::ClientWord;

impl MemoryServer {
    /// Answers the requests about members.
    pub(super) fn membership_request(
        &mut self,
        memory: &dyn Memory,
        from: ComputeId,
        request: &Request,
        now: u64,
    ) -> Result<Response, Refusal> {
        self.admit_member(from)?;
        if let Request::Succeed { client, incarnation } = request
            && *client != from
            && self.root.as_ref().is_some_and(|root| root.members.is_live_issue(*client, *incarnation))
            && self.owns_nothing(*client)
        {
            self.let_go(memory, *client);
            return Ok(Response::Verdict(Verdict::Gone));
        }
        let geometry = &self.superblock.geometry;
        let members = &mut self.root.as_mut().ok_or(Refusal::NotHere)?.members;
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
                let members = &self.root.as_ref().ok_or(Refusal::NotHere)?.members;
                Ok(Response::Renewed(Renewal {
                    expired: members.expired(from, now),
                    short: members.is_short(from, now, lease),
                }))
            }
            Request::Short => {
                members.short = Some((from, now));
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
            _ => Ok(Response::Members(members.infos(now))),
        }
    }

    pub(super) fn fence(
        &mut self,
        memory: &dyn Memory,
        from: ComputeId,
        client: ComputeId,
    ) -> Result<Response, Refusal> {
        self.admit(from)?;
        if !self.geometry().is_client(client) {
            return Err(Refusal::NotAMember { client });
        }
        self.clients.fence(memory, &self.superblock.geometry, client);
        Ok(Response::Done)
    }

    /// The spans of `client`, for its recoverer.
    pub(super) fn spans_of(
        &self,
        from: ComputeId,
        client: ComputeId,
        offset: u64,
    ) -> Result<Response, Refusal> {
        self.admit(from)?;
        self.expect_fenced(client)?;
        Ok(Response::Spans(self.spans.of(self.geometry(), &self.chunks, client, offset)))
    }

    /// Whether `client` has nothing in memory, so that it needs no recovery (I43). A member that is not
    /// active has no redo area and owns no span. If it also recovers no other member, it holds no lane and
    /// writes nothing. Members of a memory that an older build wrote are not marked active; they have a redo
    /// area here.
    fn owns_nothing(&self, client: ComputeId) -> bool {
        let acts = |root: &Root| root.members.get(client).active || root.members.recovers_any(client);
        self.clients.get(client) == ClientWord::default()
            && !self.spans.owns_any(client)
            && !self.root.as_ref().is_some_and(acts)
    }

    /// Frees the ids of members whose lease has run out and that own nothing.
    pub(super) fn reap(&mut self, memory: &dyn Memory, now: u64) {
        let run_out = self.root.as_ref().map_or_else(Vec::new, |root| root.members.run_out(now));
        for client in run_out.into_iter().filter(|&client| self.owns_nothing(client)).collect::<Vec<_>>() {
            self.let_go(memory, client);
        }
    }

    fn let_go(&mut self, memory: &dyn Memory, client: ComputeId) {
        if let Some(root) = &mut self.root {
            root.members.release(memory, &self.superblock.geometry, client);
            self.reaped.push(client);
        }
    }

    /// The members whose ids this server freed by itself since the last call. The backend ends their
    /// connections, as for members that left: the next holder of the id is another client.
    pub fn take_reaped(&mut self) -> Vec<ComputeId> {
        std::mem::take(&mut self.reaped)
    }

    /// Ends the lease of `client` now. If the client owns nothing, its id is free; otherwise it needs
    /// recovery.
    pub(super) fn condemn(&mut self, memory: &dyn Memory, client: ComputeId) -> Result<(), Refusal> {
        let nothing = self.owns_nothing(client);
        let root = self.root.as_mut().ok_or(Refusal::NotHere)?;
        if root.members.is_live(client) && nothing {
            self.let_go(memory, client);
            return Ok(());
        }
        root.members.condemn(memory, &self.superblock.geometry, client)
    }

    /// As [`Request::Condemn`]: the last connection of `client` has ended, and the client cannot return.
    pub fn lose(&mut self, memory: &dyn Memory, client: ComputeId) {
        // An error means that the id is free: the client has been recovered meanwhile.
        let _ = self.condemn(memory, client);
    }

    /// Ends the lease of every member: no earlier client can return.
    pub fn lose_all(&mut self, memory: &dyn Memory) {
        let live: Vec<ComputeId> = self.root.iter().flat_map(|root| root.members.live()).collect();
        for client in live {
            self.lose(memory, client);
        }
    }

    /// Forgets `client`. Its spans become unowned, as if it had left. The recoverer frees the id only after
    /// every volume has lifted its fence. If it dies in between, the member is still dead and must be fenced
    /// again. In the other order, the control state could issue an id that is fenced.
    pub(super) fn retire(
        &mut self,
        memory: &dyn Memory,
        from: ComputeId,
        client: ComputeId,
    ) -> Result<Response, Refusal> {
        self.admit(from)?;
        self.expect_fenced(client)?;
        let geometry = &self.superblock.geometry;
        self.spans.disown(memory, geometry, &self.chunks, client);
        self.clients.retire(memory, geometry, client);
        Ok(Response::Done)
    }

    fn expect_fenced(&self, client: ComputeId) -> Result<(), Refusal> {
        if self.is_fenced(client) {
            return Ok(());
        }
        Err(Refusal::BadRequest { what: "the client to recover is not fenced on this server" })
    }
}
