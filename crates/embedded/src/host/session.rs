//! One incarnation of a client id on one host, and its connections. [`host`](crate::host) has the rules. The
//! module `gate` explains why they hold.

use crate::gate::{self, Drain, Flag, Member, Passed, RMW_IS_BARRIER, full_barrier};
use crate::host::Host;
use crate::memory::BadAccess;
use crate::verbs::explain;
use sherman_fabric::{ComputeId, FabricError, Refusal, Space};
use std::sync::Arc;

/// One incarnation of a client id, as long as any connection of it lives.
#[derive(Debug)]
pub struct Session {
    member: Member,
    incarnation: u32,
}

impl Session {
    /// A session with no connection yet. Refused if memory has run out.
    pub fn new(client: ComputeId, incarnation: u32) -> Result<Self, FabricError> {
        let member = Member::new(client, 1).ok_or(FabricError::Refused(Refusal::OutOfMemory))?;
        Ok(Self { member, incarnation })
    }

    /// The client's id.
    pub fn client(&self) -> ComputeId {
        self.member.client
    }

    /// How often the id had been issued when this session got it.
    pub fn incarnation(&self) -> u32 {
        self.incarnation
    }

    /// Stops the session at another client's request. After the drain has ended, nothing of it executes here
    /// (F6).
    pub fn fence(&self) -> Drain {
        self.member.fence(0)
    }

    /// Stops the session at its own request. The caller tells the server's CPU after the drain, as
    /// [`Asker::Leaver`](super::Asker::Leaver).
    pub fn leave(&self) -> Drain {
        self.member.leave()
    }

    /// Whether the session was fenced.
    pub fn is_fenced(&self) -> bool {
        self.flag().is_fenced()
    }

    /// Whether the session was fenced, or is leaving or has left. Then every turn and request of it is
    /// refused.
    pub fn is_over(&self) -> bool {
        self.flag().is_over()
    }

    /// Whether any connection of the session is open.
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
    /// A connection of `session`. If the session is already over, every turn is refused.
    pub fn new(session: Arc<Session>) -> Self {
        Self { gate: session.member.new_gate(), session }
    }

    /// The session of this connection.
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Begins a turn on `host`, unless the session is over ([`FabricError::Fenced`]). Dropping the turn ends
    /// it.
    #[inline]
    pub fn enter<'g>(&'g mut self, host: &'g Host) -> Result<Turn<'g>, FabricError> {
        match self.gate.enter(self.session.flag()) {
            Some(passed) => Ok(Turn { gate: &self.gate, passed: Some(passed), settled: true, host }),
            None => Err(FabricError::Fenced { client: self.session.client() }),
        }
    }
}

/// Verbs in progress. They execute in order, and each ends before the next begins. They copy directly between
/// the host's memory and the caller's bytes. A refused verb changes nothing.
#[derive(Debug)]
pub struct Turn<'g> {
    gate: &'g gate::Gate,
    /// `Some` until the drop.
    passed: Option<Passed>,
    /// Whether no later load can overtake the stores of this turn.
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
        self.host
            .memory()
            .write(space, offset, from)
            .map_err(|bad| self.explain(bad, space, offset, from.len()))
    }

    /// CAS of the bits under `mask`. Returns the old word.
    #[inline]
    pub fn cas(
        &mut self,
        space: Space,
        offset: u64,
        compare: u64,
        swap: u64,
        mask: u64,
    ) -> Result<u64, FabricError> {
        self.settled = RMW_IS_BARRIER;
        let old = self.host.memory().cas(space, offset, compare, swap, mask);
        old.map_err(|bad| self.explain(bad, space, offset, 8))
    }

    /// Fetch-and-add. Returns the old word.
    #[inline]
    pub fn faa(&mut self, space: Space, offset: u64, add: u64) -> Result<u64, FabricError> {
        self.settled = RMW_IS_BARRIER;
        self.host.memory().faa(space, offset, add).map_err(|bad| self.explain(bad, space, offset, 8))
    }

    /// Prefetches the first lines of a future READ. This pays when several READs follow each other. Does
    /// nothing if the READ would be refused.
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
