//! The requests of membership and recovery: who is alive, who is fenced, who takes over what and when an id is free again.
//!
//! Recovery of one member by another is a row of requests, each of which may be repeated: fence on every server, take over
//! its chunks on every server, retire it on every server, server 0 last (`docs/INVARIANTS.md`). A recoverer that dies
//! half-way leaves a member that is still dead on server 0; whoever is appointed next fences again, also where the fence
//! was lifted already, finds nothing there, and goes on. So every server but 0 takes a fence of any id at any time.

use super::MemoryServer;
use crate::members::MemberState;
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
        let geometry = &self.superblock.geometry;
        let members = &mut self.root.as_mut().ok_or(Refusal::NotHere)?.members;
        match request {
            Request::Renew => {
                members.renew(memory, geometry, from, now);
                Ok(Response::Renewed { expired: members.expired(from, now) })
            }
            Request::Depart => {
                members.depart(memory, geometry, from);
                Ok(Response::Done)
            }
            Request::Suspect { client } if *client == from => {
                Err(Refusal::BadRequest { what: "a member suspects itself" })
            }
            Request::Suspect { client } => Ok(Response::Verdict(members.suspect(memory, geometry, from, *client, now))),
            Request::Condemn { client } => {
                members.condemn(memory, geometry, *client)?;
                Ok(Response::Done)
            }
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

    /// Makes the chunks of `client` the sender's.
    pub(super) fn take_over<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        from: ClientId,
        client: ClientId,
    ) -> Result<Response, Refusal> {
        self.admit(from)?;
        self.expect_fenced(client)?;
        self.chunks.pass_on(memory, &self.superblock.geometry, client, from);
        Ok(Response::Done)
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

    /// Forgets `client`. Chunks that nobody took over become nobody's, as if it had left. The fence goes before the member
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
        self.chunks.disown(memory, geometry, client);
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
