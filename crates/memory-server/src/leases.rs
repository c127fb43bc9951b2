//! Leases: which members are alive, which are dead, and which member recovers them.
//!
//! A member renews its lease from time to time. Nothing happens by itself when a lease runs out. The server
//! decides when a member asks, so a late renewal still counts if no member asked before it. After such a
//! question the member is dead and stays so until it is retired. Its recoverer fences it on every server,
//! replays its records, sweeps its lanes and takes over its places. Only then is its id free
//! (`docs/INVARIANTS.md`).
//!
//! What must hold:
//!
//! - **One recoverer.** A dead or leaving member has at most one. The server appoints another only after the
//!   first has been relieved or retired, has left or has departed. A recoverer that is dead itself may still
//!   be writing, so it must be recovered first, and with that fenced ([`Verdict::Displaced`]). This chain
//!   ends, since a recoverer is alive when it is appointed: a member that died later never waits for a member
//!   that died earlier.
//! - **No return.** A dead or leaving member can only become free, by being retired.
//! - **One word.** Each change commits by one word of the entry (`MemberTable::set`).
//!
//! **Restarts.** The server's clock may restart when its memory is opened again, so the stored leases mean
//! nothing then. The leases of all live members start again with the first request (`MemberTable::begin`). So
//! the server notices one lease later that a member died while the server was down. Ages count from the time
//! when the id was issued. An age is 0 if that time lies in the future.

use crate::members::MemberTable;
use sherman_fabric::control::{MOST_EXPIRED, MemberInfo, Standing, Verdict};
use sherman_fabric::{ComputeId, Memory, Refusal};
use sherman_layout::{ControlGeometry as Geometry, MemberEntry, MemberState};

impl MemberTable {
    /// Called with every request. With the first request after the table was loaded, all leases start again.
    pub(crate) fn begin(&mut self, memory: &dyn Memory, geometry: &Geometry, now: u64) {
        if self.begun {
            return;
        }
        let live: Vec<_> = self.live().collect();
        for client in live {
            self.renew(memory, geometry, client, now);
        }
        self.begun = true;
    }

    /// Starts the lease of `client`, a live member, again from now.
    pub(crate) fn renew(&mut self, memory: &dyn Memory, geometry: &Geometry, client: ComputeId, now: u64) {
        let lease_until = now.saturating_add(geometry.lease_nanos);
        self.set(memory, geometry, client, MemberEntry { lease_until, ..self.get(client) });
    }

    /// The members other than `asker` that need recovery and have no live recoverer, except perhaps `asker`.
    pub(crate) fn expired(&self, asker: ComputeId, now: u64) -> Vec<ComputeId> {
        let unattended = |entry: &MemberEntry| {
            !entry.is_alive(now) && (entry.recoverer == asker || !self.get(entry.recoverer).is_alive(now))
        };
        let expired = self.taken().filter(|(client, entry)| *client != asker && unattended(entry));
        expired.map(|(client, _)| client).take(MOST_EXPIRED).collect()
    }

    /// The live members whose lease has run out.
    pub(crate) fn run_out(&self, now: u64) -> Vec<ComputeId> {
        let run_out = |entry: &MemberEntry| entry.state == MemberState::Live && !entry.is_alive(now);
        self.taken().filter(|(_, entry)| run_out(entry)).map(|(client, _)| client).collect()
    }

    /// Tells `asker`, a live member, what it must do about `client`. A live member whose lease has run out is
    /// dead from now on. This holds for the suspect and for its recoverer.
    pub(crate) fn suspect(
        &mut self,
        memory: &dyn Memory,
        geometry: &Geometry,
        asker: ComputeId,
        client: ComputeId,
        now: u64,
    ) -> Verdict {
        let entry = self.get(client);
        match entry.state {
            MemberState::Free => Verdict::Gone,
            MemberState::Live if entry.is_alive(now) => Verdict::Alive { lease_left: entry.lease_left(now) },
            MemberState::Live | MemberState::Leaving | MemberState::Dead => {
                self.appoint(memory, geometry, asker, client, now)
            }
        }
    }

    /// Makes `asker` the recoverer of `client`, whose lease has ended, unless another member recovers it.
    fn appoint(
        &mut self,
        memory: &dyn Memory,
        geometry: &Geometry,
        asker: ComputeId,
        client: ComputeId,
        now: u64,
    ) -> Verdict {
        let entry = self.get(client);
        let by = entry.recoverer;
        let recoverer = self.get(by);
        if by == ComputeId::NOBODY || by == asker || recoverer.state == MemberState::Free {
            let state = if entry.state == MemberState::Live { MemberState::Dead } else { entry.state };
            self.set(memory, geometry, client, MemberEntry { state, recoverer: asker, begun: true, ..entry });
            return Verdict::Recover;
        }
        if recoverer.is_alive(now) {
            return Verdict::Recovering { by };
        }
        if recoverer.state == MemberState::Live {
            self.set_state(memory, geometry, by, MemberState::Dead);
        }
        Verdict::Displaced { by }
    }

    /// Whether `client` is a live member with this incarnation: its id was issued for the `incarnation`th
    /// time.
    pub(crate) fn is_live_issue(&self, client: ComputeId, incarnation: u32) -> bool {
        self.is_live(client) && self.get(client).incarnation == incarnation
    }

    /// Tells `asker`, a live member, what it must do about its own former identity. The lease of that
    /// identity ends.
    pub(crate) fn succeed(
        &mut self,
        memory: &dyn Memory,
        geometry: &Geometry,
        asker: ComputeId,
        (client, incarnation): (ComputeId, u32),
        now: u64,
    ) -> Verdict {
        let entry = self.get(client);
        if entry.incarnation != incarnation || entry.state == MemberState::Free {
            return Verdict::Gone;
        }
        match self.appoint(memory, geometry, asker, client, now) {
            Verdict::Recover if !entry.begun => Verdict::Inherit,
            verdict => verdict,
        }
    }

    /// Ends the lease of `client` now.
    pub(crate) fn condemn(
        &mut self,
        memory: &dyn Memory,
        geometry: &Geometry,
        client: ComputeId,
    ) -> Result<(), Refusal> {
        match self.get(client).state {
            MemberState::Free => Err(Refusal::NotAMember { client }),
            MemberState::Live => {
                self.set_state(memory, geometry, client, MemberState::Dead);
                Ok(())
            }
            MemberState::Leaving | MemberState::Dead => Ok(()),
        }
    }

    /// Lets `client`, a live member, depart. It keeps its id until another member has taken over its places.
    /// The members that it was recovering lose their recoverer: it departs in order, so it has nothing in
    /// flight.
    pub(crate) fn depart(&mut self, memory: &dyn Memory, geometry: &Geometry, client: ComputeId) {
        self.give_up(memory, geometry, client);
        self.set_state(memory, geometry, client, MemberState::Leaving);
    }

    /// Whether `asker` may retire `client`.
    pub(crate) fn may_retire(&self, asker: ComputeId, client: ComputeId) -> Result<(), Refusal> {
        let entry = self.get(client);
        if !entry.state.needs_recovery() {
            return Err(Refusal::BadRequest { what: "the client to retire is neither dead nor leaving" });
        }
        if entry.recoverer != asker {
            return Err(Refusal::BadRequest {
                what: "the sender is not the recoverer of the client to retire",
            });
        }
        Ok(())
    }

    /// Every member, by id.
    pub(crate) fn infos(&self, now: u64) -> Vec<MemberInfo> {
        let standing = |state| match state {
            MemberState::Free => None,
            MemberState::Live => Some(Standing::Live),
            MemberState::Leaving => Some(Standing::Leaving),
            MemberState::Dead => Some(Standing::Dead),
        };
        let info = |(client, entry): (ComputeId, MemberEntry)| {
            Some(MemberInfo {
                client,
                standing: standing(entry.state)?,
                incarnation: entry.incarnation,
                age: now.saturating_sub(entry.joined_at),
                lease_left: entry.lease_left(now),
                recoverer: entry.recoverer,
            })
        };
        self.taken().filter_map(info).collect()
    }
}
