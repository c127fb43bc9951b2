//! One incarnation of a client id on one host, and its connections. The rules are in [`host`](crate::host), why they hold
//! in the module `gate`.

use crate::gate::{self, Drain, Flag, Member, Passed, RMW_IS_BARRIER, full_barrier};
use crate::host::Host;
use crate::memory::BadAccess;
use crate::verbs::explain;
use sherman_fabric::{ClientId, FabricError, Refusal, Space};
use std::sync::Arc;

/// One incarnation of a client id, as long as any connection of it lives.
#[derive(Debug)]
pub struct Session {
    member: Member,
    incarnation: u32,
}

impl Session {
    /// A session with no connection yet. Refused if memory has run out.
    pub fn new(client: ClientId, incarnation: u32) -> Result<Self, FabricError> {
        let member = Member::new(client, 1).ok_or(FabricError::Refused(Refusal::OutOfMemory))?;
        Ok(Self { member, incarnation })
    }

    /// Whose it is.
    pub fn client(&self) -> ClientId {
        self.member.client
    }

    /// How often the id had been issued when this one got it.
    pub fn incarnation(&self) -> u32 {
        self.incarnation
    }

    /// Stops it at somebody else's wish. From the end of the drain on, nothing of it executes here (F6).
    pub fn fence(&self) -> Drain {
        self.member.fence(0)
    }

    /// Stops it at its own wish. The server's CPU is told after the drain, as [`Asker::Leaver`](super::Asker::Leaver).
    pub fn leave(&self) -> Drain {
        self.member.leave()
    }

    /// Whether it was fenced.
    pub fn is_fenced(&self) -> bool {
        self.flag().is_fenced()
    }

    /// Whether it was fenced, or is about to go or has gone: every turn and request of it is refused.
    pub fn is_over(&self) -> bool {
        self.flag().is_over()
    }

    /// Whether any connection of it is open.
    pub fn is_connected(&self) -> bool {
        self.member.has_gates()
    }

    pub(super) fn member(&self) -> &Member {
        &self.member
    }

    #[inline]
    pub(super) fn flag(&self) -> &Flag {
        self.member.flag(0)
    }
}

/// One connection of a session.
#[derive(Debug)]
pub struct Gate {
    gate: Arc<gate::Gate>,
    session: Arc<Session>,
}

impl Gate {
    /// A connection of `session`; if that is over already, every turn is refused.
    pub fn new(session: Arc<Session>) -> Self {
        Self { gate: session.member.new_gate(), session }
    }

    /// Whose it is.
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Begins a turn on `host`, unless the session is over ([`FabricError::Fenced`]). Dropping the turn ends it.
    #[inline]
    pub fn enter<'g>(&'g mut self, host: &'g Host) -> Result<Turn<'g>, FabricError> {
        match self.gate.enter(self.session.flag()) {
            Some(passed) => Ok(Turn { gate: &self.gate, passed: Some(passed), settled: true, host }),
            None => Err(FabricError::Fenced { client: self.session.client() }),
        }
    }
}

/// Verbs in progress. They execute in order, each to its end before the next begins, straight between the host's memory and
/// the caller's bytes. A refused verb has changed nothing.
#[derive(Debug)]
pub struct Turn<'g> {
    gate: &'g gate::Gate,
    /// Always there until the drop.
    passed: Option<Passed>,
    /// Whether no later load can overtake what was stored in this turn.
    settled: bool,
    host: &'g Host,
}

impl Turn<'_> {
    /// READ.
    #[inline]
    pub fn read(&mut self, space: Space, offset: u64, into: &mut [u8]) -> Result<(), FabricError> {
        if !self.settled {
            full_barrier();
            self.settled = true;
        }
        let len = into.len();
        self.host.memory().read(space, offset, into).map_err(|bad| self.explain(bad, space, offset, len))
    }

    /// WRITE.
    #[inline]
    pub fn write(&mut self, space: Space, offset: u64, from: &[u8]) -> Result<(), FabricError> {
        self.settled = RMW_IS_BARRIER;
        self.host.memory().write(space, offset, from).map_err(|bad| self.explain(bad, space, offset, from.len()))
    }

    /// CAS of the bits under `mask`; answers the word as it was.
    #[inline]
    pub fn cas(&mut self, space: Space, offset: u64, compare: u64, swap: u64, mask: u64) -> Result<u64, FabricError> {
        self.settled = RMW_IS_BARRIER;
        let old = self.host.memory().cas(space, offset, compare, swap, mask);
        old.map_err(|bad| self.explain(bad, space, offset, 8))
    }

    /// Fetch-and-add; answers the word as it was.
    #[inline]
    pub fn faa(&mut self, space: Space, offset: u64, add: u64) -> Result<u64, FabricError> {
        self.settled = RMW_IS_BARRIER;
        self.host.memory().faa(space, offset, add).map_err(|bad| self.explain(bad, space, offset, 8))
    }

    /// Asks the caches for the first lines of a READ to come, which pays when several READs follow each other; nothing
    /// happens if it would be refused.
    #[inline]
    pub fn prefetch(&self, space: Space, offset: u64, len: usize) {
        self.host.memory().prefetch(space, offset, len);
    }

    #[cold]
    fn explain(&self, bad: BadAccess, space: Space, offset: u64, len: usize) -> FabricError {
        explain(bad, self.host.superblock().server, space, offset, len as u64)
    }
}

impl Drop for Turn<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(passed) = self.passed.take() {
            self.gate.leave(passed, self.settled);
        }
    }
}
