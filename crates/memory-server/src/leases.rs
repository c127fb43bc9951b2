//! Leases: who is believed to be alive, who is dead, and who recovers whom.
//!
//! A member says from time to time that it is alive; its lease then runs anew. Nothing happens by itself when a lease runs
//! out: the server decides when it is asked, so a late renewal still counts as long as nobody asked before it. Once
//! somebody asked, the member is dead and stays so until it is retired: it is fenced on every server, its records are
//! replayed, its lanes swept, its places taken over, and only then is its id free (`docs/INVARIANTS.md`).
//!
//! What must hold:
//!
//! - **One recoverer.** A dead or leaving member has at most one, and another is named only after that one has been
//!   relieved or retired, has left or has departed: a recoverer that is dead itself may still be writing, so it must be recovered, and
//!   with that fenced, first ([`Verdict::Displaced`]). That ends, since a recoverer is alive when it is named: whoever died
//!   later never waits for one who died earlier.
//! - **Nobody comes back.** From dead or leaving a member only becomes free, by being retired.
//! - **One word.** Each change commits by one word of the entry (`MemberTable::set`).
//!
//! **Restarts.** The server's time may begin anew when it is opened again, so the leases found then say nothing: those of
//! all live members begin anew with the first request (`MemberTable::begin`). A member that died while the server was
//! down is thus noticed a lease later. Ages count from the time the id was issued and are 0 where that lies ahead.

use crate::geometry::Geometry;
use crate::members::{MemberEntry, MemberState, MemberTable};
use sherman_fabric::control::{MOST_EXPIRED, MemberInfo, Standing, Verdict};
use sherman_fabric::{ClientId, Memory, Refusal};

impl MemberEntry {
    /// What is left of the lease, in nanoseconds; 0 if it has run out, or the holder is not a live member.
    pub fn lease_left(&self, now: u64) -> u64 {
        if self.state == MemberState::Live { self.lease_until.saturating_sub(now) } else { 0 }
    }

    /// Whether the holder is a live member whose lease runs.
    pub fn is_alive(&self, now: u64) -> bool {
        self.lease_left(now) > 0
    }
}

impl MemberTable {
    /// Called with every request: with the first one after the table was loaded, leases begin anew.
    pub(crate) fn begin<M: Memory + ?Sized>(&mut self, memory: &M, geometry: &Geometry, now: u64) {
        if self.begun {
            return;
        }
        let live: Vec<_> = self.live().collect();
        for client in live {
            self.renew(memory, geometry, client, now);
        }
        self.begun = true;
    }

    /// Lets the lease of `client`, a live member, run from now.
    pub(crate) fn renew<M: Memory + ?Sized>(&mut self, memory: &M, geometry: &Geometry, client: ClientId, now: u64) {
        let lease_until = now.saturating_add(geometry.lease_nanos);
        self.set(memory, geometry, client, MemberEntry { lease_until, ..self.get(client) });
    }

    /// Those that are to be recovered, not counting `asker`, and that nobody alive recovers but perhaps `asker`.
    pub(crate) fn expired(&self, asker: ClientId, now: u64) -> Vec<ClientId> {
        let unattended = |entry: &MemberEntry| {
            !entry.is_alive(now) && (entry.recoverer == asker || !self.get(entry.recoverer).is_alive(now))
        };
        let expired = self.taken().filter(|(client, entry)| *client != asker && unattended(entry));
        expired.map(|(client, _)| client).take(MOST_EXPIRED).collect()
    }

    /// The live members whose lease has run out.
    pub(crate) fn run_out(&self, now: u64) -> Vec<ClientId> {
        let run_out = |entry: &MemberEntry| entry.state == MemberState::Live && !entry.is_alive(now);
        self.taken().filter(|(_, entry)| run_out(entry)).map(|(client, _)| client).collect()
    }

    /// Whether a member other than `asker` found no memory within the last lease.
    pub(crate) fn is_short(&self, asker: ClientId, now: u64, lease: u64) -> bool {
        self.short.is_some_and(|(client, at)| client != asker && now.saturating_sub(at) < lease)
    }

    /// Says what `asker`, a live member, is to do about `client`. A live member whose lease has run out is dead from now
    /// on, be it the suspect or the one who recovers it.
    pub(crate) fn suspect<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        geometry: &Geometry,
        asker: ClientId,
        client: ClientId,
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

    /// Makes `asker` the recoverer of `client`, whose lease is at its end, unless another recovers it.
    fn appoint<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        geometry: &Geometry,
        asker: ClientId,
        client: ClientId,
        now: u64,
    ) -> Verdict {
        let entry = self.get(client);
        let by = entry.recoverer;
        let recoverer = self.get(by);
        if by == ClientId::NOBODY || by == asker || recoverer.state == MemberState::Free {
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

    /// Whether `client` is a live member, and the one to which its id was issued for the `incarnation`th time.
    pub(crate) fn is_live_issue(&self, client: ClientId, incarnation: u32) -> bool {
        self.is_live(client) && self.get(client).incarnation == incarnation
    }

    /// Says what `asker`, a live member, is to do about its own former identity, whose lease ends with that.
    pub(crate) fn succeed<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        geometry: &Geometry,
        asker: ClientId,
        (client, incarnation): (ClientId, u32),
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
    pub(crate) fn condemn<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        geometry: &Geometry,
        client: ClientId,
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

    /// Lets `client`, a live member, go and keep its id until somebody has taken over its places. Those whom it was
    /// recovering are nobody's: it has gone in order, so nothing of it is under way.
    pub(crate) fn depart<M: Memory + ?Sized>(&mut self, memory: &M, geometry: &Geometry, client: ClientId) {
        self.give_up(memory, geometry, client);
        self.set_state(memory, geometry, client, MemberState::Leaving);
    }

    /// Whether `asker` may retire `client`.
    pub(crate) fn may_retire(&self, asker: ClientId, client: ClientId) -> Result<(), Refusal> {
        let entry = self.get(client);
        if !entry.state.needs_recovery() {
            return Err(Refusal::BadRequest { what: "who is to be retired is neither dead nor leaving" });
        }
        if entry.recoverer != asker {
            return Err(Refusal::BadRequest { what: "the sender does not recover who is to be retired" });
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
        let info = |(client, entry): (ClientId, MemberEntry)| {
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
