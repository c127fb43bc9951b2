//! The requests of membership and recovery: who is alive, who is fenced, who takes over what and when an id is free again.
//!
//! Recovery of one member by another is a row of requests, each of which may be repeated: fence on every server, look at
//! its spans on every server, retire it on every server, server 0 last (`docs/INVARIANTS.md`). A recoverer that dies
//! half-way leaves a member that is still dead on server 0; whoever is appointed next fences again, also where the fence
//! was lifted already, finds nothing there, and goes on. So every server but 0 takes a fence of any id at any time.

use super::MemoryServer;
use crate::clients::ClientWord;
use crate::members::MemberState;
use sherman_fabric::control::Verdict;
use sherman_fabric::{ClientId, Memory, Refusal, Request, Response};

impl MemoryServer {
    /// What only server 0 answers.
    pub(super) fn membership_request<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        from: ClientId,
        request: &Request,
        now: u64,
    ) -> Result<Response, Refusal> {
        if self.root.is_none() {
            return Err(Refusal::NotHere);
        }
        self.admit(from)?;
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
            Request::Renew => {
                members.renew(memory, geometry, from, now);
                let lease = geometry.lease_nanos;
                self.reap(memory, now);
                let members = &self.root.as_ref().ok_or(Refusal::NotHere)?.members;
                Ok(Response::Renewed { expired: members.expired(from, now), short: members.is_short(from, now, lease) })
            }
            Request::Short => {
                members.short = Some((from, now));
                let expired = members.expired(from, now);
                let others: Vec<ClientId> = members.live().filter(|&client| client != from).collect();
                let short = !expired.is_empty() || others.into_iter().any(|client| !self.owns_nothing(client));
                Ok(Response::Renewed { expired, short })
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
            Request::Suspect { .. } | Request::Succeed { .. } if self.clients.get(from).redo_area.is_none() => {
                Err(Refusal::BadRequest { what: "a member without a redo area cannot recover others" })
            }
            Request::Suspect { client } => Ok(Response::Verdict(members.suspect(memory, geometry, from, *client, now))),
            Request::Succeed { client, incarnation } => {
                Ok(Response::Verdict(members.succeed(memory, geometry, from, (*client, *incarnation), now)))
            }
            Request::Condemn { client } => self.condemn(memory, *client).map(|()| Response::Done),
            _ => Ok(Response::Members(members.infos(now))),
        }
    }

    pub(super) fn fence<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        from: ClientId,
        client: ClientId,
    ) -> Result<Response, Refusal> {
        self.admit(from)?;
        let known = match &self.root {
            Some(root) => root.members.get(client).state != MemberState::Free,
            None => self.geometry().is_client(client),
        };
        // An id that nobody has must not be fenced: nobody would ever retire it, so it could never be issued again.
        if !known {
            return Err(Refusal::NotAMember { client });
        }
        self.clients.fence(memory, &self.superblock.geometry, client);
        Ok(Response::Done)
    }

    /// The spans of `client`, for its recoverer.
    pub(super) fn spans_of(&self, from: ClientId, client: ClientId, offset: u64) -> Result<Response, Refusal> {
        self.admit(from)?;
        self.expect_fenced(client)?;
        Ok(Response::Spans(self.spans.of(self.geometry(), &self.chunks, client, offset)))
    }

    /// Whether nothing of `client` lies in memory, so that nobody need recover it. It has no redo area here, so it has none anywhere, holds
    /// no lane and owns no span.
    fn owns_nothing(&self, client: ClientId) -> bool {
        self.clients.get(client) == ClientWord::default() && !self.spans.owns_any(client)
    }

    /// Frees the ids of members whose lease has run out and that own nothing.
    pub(super) fn reap<M: Memory + ?Sized>(&mut self, memory: &M, now: u64) {
        let run_out = self.root.as_ref().map_or_else(Vec::new, |root| root.members.run_out(now));
        for client in run_out.into_iter().filter(|&client| self.owns_nothing(client)).collect::<Vec<_>>() {
            self.let_go(memory, client);
        }
    }

    fn let_go<M: Memory + ?Sized>(&mut self, memory: &M, client: ClientId) {
        if let Some(root) = &mut self.root {
            root.members.release(memory, &self.superblock.geometry, client);
            self.reaped.push(client);
        }
    }

    /// Those whose ids this server freed by itself since it was last asked. The backend ends their connections, as it does with members
    /// that left: the next holder of the id is another.
    pub fn take_reaped(&mut self) -> Vec<ClientId> {
        std::mem::take(&mut self.reaped)
    }

    /// Ends the lease of `client` now. If it owns nothing, its id is free; else it is to be recovered.
    pub(super) fn condemn<M: Memory + ?Sized>(&mut self, memory: &M, client: ClientId) -> Result<(), Refusal> {
        let nothing = self.owns_nothing(client);
        let root = self.root.as_mut().ok_or(Refusal::NotHere)?;
        if root.members.is_live(client) && nothing {
            self.let_go(memory, client);
            return Ok(());
        }
        root.members.condemn(memory, &self.superblock.geometry, client)
    }

    /// The last connection of `client` has ended, and it cannot come back: as [`Request::Condemn`].
    pub fn lose<M: Memory + ?Sized>(&mut self, memory: &M, client: ClientId) {
        // Nobody has the id: it has been recovered meanwhile.
        let _ = self.condemn(memory, client);
    }

    /// No client of before can come back: ends the lease of every member.
    pub fn lose_all<M: Memory + ?Sized>(&mut self, memory: &M) {
        let live: Vec<ClientId> = self.root.iter().flat_map(|root| root.members.live()).collect();
        for client in live {
            self.lose(memory, client);
        }
    }

    /// Makes those whom `client` was recovering nobody's. Its own recoverer has fenced it everywhere and replayed its records, so nothing
    /// that it did for them is half done.
    pub(super) fn relieve<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        from: ClientId,
        client: ClientId,
    ) -> Result<Response, Refusal> {
        if self.root.is_none() {
            return Err(Refusal::NotHere);
        }
        self.admit(from)?;
        self.expect_fenced(client)?;
        let members = &mut self.root.as_mut().ok_or(Refusal::NotHere)?.members;
        members.may_retire(from, client)?;
        members.give_up(memory, &self.superblock.geometry, client);
        Ok(Response::Done)
    }

    /// Forgets `client`. Its spans become nobody's, as if it had left. The fence goes before the member
    /// entry: cut in between, the member is still dead and must be fenced again; the other way round, an id could be
    /// issued that is fenced.
    pub(super) fn retire<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        from: ClientId,
        client: ClientId,
    ) -> Result<Response, Refusal> {
        self.admit(from)?;
        self.expect_fenced(client)?;
        if let Some(root) = &self.root {
            root.members.may_retire(from, client)?;
        }
        let geometry = &self.superblock.geometry;
        self.spans.disown(memory, geometry, &self.chunks, client);
        self.clients.retire(memory, geometry, client);
        if let Some(root) = &mut self.root {
            root.members.release(memory, geometry, client);
        }
        Ok(Response::Done)
    }

    fn expect_fenced(&self, client: ClientId) -> Result<(), Refusal> {
        if self.is_fenced(client) {
            return Ok(());
        }
        Err(Refusal::BadRequest { what: "who is to be recovered is not fenced here" })
    }
}
