//! The member table of the control state: a line per client id. It says whether a compute server has that id,
//! until when that compute server counts as alive, and which member recovers it after that.
//!
//! A compute server is one member, whatever its number of threads (`docs/INVARIANTS.md`). It writes its
//! 16-bit id into lock lanes and free marks. An id that returns too early could be mistaken for its former
//! holder. Therefore the server issues ids round robin and remembers the last id across restarts. The id of a
//! holder that died or departed is not free before its recoverer has retired it. The incarnation counts how
//! often an id was issued.
//!
//! This module has the storage of the entries; [`leases`](crate::leases) has the rules of leases and
//! recovery.

use crate::bytes::load_host;
use crate::server::OpenError;
use sherman_fabric::{ComputeId, Memory, Refusal, Space};
use sherman_layout::bytes::get_u64;
use sherman_layout::control::{LAST_MEMBER_OFFSET, SHORT_AT_OFFSET, SHORT_MEMBER_OFFSET};
use sherman_layout::geometry::MEMBER_ENTRY_BYTES;
use sherman_layout::member::{AT_JOINED, AT_LEASE, AT_RECOVERER, AT_STATE};
use sherman_layout::{ControlGeometry as Geometry, MemberEntry, MemberState};

/// How many ids of `capacity` are reserved for members that recover others.
const fn reserve(capacity: u16) -> u16 {
    let share = capacity / 16;
    if share < 16 { share } else { 16 }
}

/// The table and the cursor of the round robin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemberTable {
    /// By id; the first is unused.
    entries: Vec<MemberEntry>,
    last_issued: u16,
    /// Whether the leases in the table use this server's current clock. They do not between
    /// [`MemberTable::load`] and the first request ([`MemberTable::begin`]).
    pub(crate) begun: bool,
    /// The last member that ran out of memory, and when.
    short: Option<(ComputeId, u64)>,
}

impl MemberTable {
    /// Loads the table from memory.
    pub(crate) fn load(memory: &dyn Memory, geometry: &Geometry) -> Result<Self, OpenError> {
        let corrupt =
            |entry: u32, what| OpenError::Corrupt { table: "member table", entry: u64::from(entry), what };
        let bytes = load_host(memory, geometry.member_offset(), geometry.member_table_bytes());
        let mut entries = Vec::new();
        for (line, id) in bytes.chunks_exact(MEMBER_ENTRY_BYTES as usize).zip(0u32..) {
            let entry = MemberEntry::decode(line).ok_or(corrupt(id, "has an unknown state"))?;
            if id == 0 && entry != MemberEntry::default() {
                return Err(corrupt(id, "is in use, but no member has this id"));
            }
            if entry.recoverer != ComputeId::NOBODY && !geometry.is_client(entry.recoverer) {
                return Err(corrupt(id, "has an impossible recoverer"));
            }
            entries.push(entry);
        }
        let last_issued = memory.load_u64(Space::Host, LAST_MEMBER_OFFSET);
        let last_issued = u16::try_from(last_issued)
            .ok()
            .filter(|&id| u32::from(id) <= geometry.member_capacity)
            .ok_or(corrupt(0, "cannot be read: the last issued id is impossible"))?;
        let begun = entries.iter().all(|entry| entry.state != MemberState::Live);
        let [short, at] =
            [SHORT_MEMBER_OFFSET, SHORT_AT_OFFSET].map(|offset| memory.load_u64(Space::Host, offset));
        let short = u16::try_from(short)
            .ok()
            .filter(|&id| u32::from(id) <= geometry.member_capacity)
            .ok_or(corrupt(0, "cannot be read: the member without memory is impossible"))?;
        let short = (short != 0).then_some((ComputeId(short), at));
        Ok(Self { entries, last_issued, begun, short })
    }

    /// Notes that `client` found no memory.
    pub(crate) fn run_short(&mut self, memory: &dyn Memory, client: ComputeId, now: u64) {
        memory.store_u64(Space::Host, SHORT_AT_OFFSET, now);
        memory.store_u64(Space::Host, SHORT_MEMBER_OFFSET, u64::from(client.0));
        self.short = Some((client, now));
    }

    /// Whether a member other than `asker` ran out of memory within the last lease.
    pub(crate) fn is_short(&self, asker: ComputeId, now: u64, lease: u64) -> bool {
        self.short.is_some_and(|(client, at)| client != asker && now.saturating_sub(at) < lease)
    }

    /// What the table says about `client`; free for an id it has no entry for.
    pub(crate) fn get(&self, client: ComputeId) -> MemberEntry {
        self.entries.get(usize::from(client.0)).copied().unwrap_or_default()
    }

    /// Whether `client` is a live member.
    pub(crate) fn is_live(&self, client: ComputeId) -> bool {
        self.get(client).state == MemberState::Live
    }

    /// The ids that are not free, in order.
    pub(crate) fn taken(&self) -> impl Iterator<Item = (ComputeId, MemberEntry)> {
        let members = self.entries.iter().zip(0u16..=u16::MAX);
        members
            .filter(|(entry, _)| entry.state != MemberState::Free)
            .map(|(&entry, id)| (ComputeId(id), entry))
    }

    /// The live members, by id.
    pub(crate) fn live(&self) -> impl Iterator<Item = ComputeId> {
        self.taken().filter(|(_, entry)| entry.state == MemberState::Live).map(|(client, _)| client)
    }

    /// The id that is issued next at `now`, if there is one. The last few ids are issued only while a member
    /// waits for recovery: the new member may recover it, and so free an id.
    pub(crate) fn next_free(&self, geometry: &Geometry, now: u64) -> Option<ComputeId> {
        let (last, capacity) = (self.last_issued, geometry.member_capacity as u16);
        let free = |client: &ComputeId| self.get(*client).state == MemberState::Free;
        let mut ids = (last..capacity).chain(0..last).map(|before| ComputeId(before + 1)).filter(free);
        let next = ids.next()?;
        let enough =
            ids.nth(usize::from(reserve(capacity)).saturating_sub(1)).is_some() || reserve(capacity) == 0;
        let waiting = || self.taken().any(|(_, entry)| !entry.is_alive(now));
        (enough || waiting()).then_some(next)
    }

    /// Issues the next free id, with a lease from now on. The id of a fenced member is not free: a fenced
    /// member cannot leave, and its recoverer lifts the fence before it frees the id.
    pub(crate) fn join(
        &mut self,
        memory: &dyn Memory,
        geometry: &Geometry,
        now: u64,
    ) -> Result<ComputeId, Refusal> {
        let client = self.next_free(geometry, now).ok_or(Refusal::TooManyMembers)?;
        let incarnation = self.get(client).incarnation.wrapping_add(1);
        let lease_until = now.saturating_add(geometry.lease_nanos);
        let recoverer = ComputeId::NOBODY;
        let state = MemberState::Live;
        let (active, begun) = (false, false);
        let entry = MemberEntry { state, active, incarnation, joined_at: now, lease_until, recoverer, begun };
        // The cursor is stored first: if the server stops in between, an id is skipped, never issued early.
        memory.store_u64(Space::Host, LAST_MEMBER_OFFSET, u64::from(client.0));
        self.last_issued = client.0;
        self.set(memory, geometry, client, entry);
        Ok(client)
    }

    /// Notes that `client`, a live member, may own memory from now on. Returns its incarnation.
    pub(crate) fn activate(&mut self, memory: &dyn Memory, geometry: &Geometry, client: ComputeId) -> u32 {
        let entry = self.get(client);
        if !entry.active {
            self.set(memory, geometry, client, MemberEntry { active: true, ..entry });
        }
        entry.incarnation
    }

    /// Takes `client`'s id back. Before that, clears it as the recoverer of other members, so that no entry
    /// ever names a recoverer whose id is free.
    pub(crate) fn release(&mut self, memory: &dyn Memory, geometry: &Geometry, client: ComputeId) {
        self.give_up(memory, geometry, client);
        self.set_state(memory, geometry, client, MemberState::Free);
    }

    /// Whether `client` is the recoverer of another member.
    pub(crate) fn recovers_any(&self, client: ComputeId) -> bool {
        self.entries.iter().any(|entry| entry.recoverer == client && entry.state.needs_recovery())
    }

    /// Clears `client` as the recoverer of every member that it was recovering.
    pub(crate) fn give_up(&mut self, memory: &dyn Memory, geometry: &Geometry, client: ComputeId) {
        for id in (0..=geometry.member_capacity as u16).map(ComputeId) {
            let entry = self.get(id);
            if entry.recoverer == client && entry.state.needs_recovery() {
                self.set(memory, geometry, id, MemberEntry { recoverer: ComputeId::NOBODY, ..entry });
            }
        }
    }

    /// Changes the state and clears the recoverer.
    pub(crate) fn set_state(
        &mut self,
        memory: &dyn Memory,
        geometry: &Geometry,
        client: ComputeId,
        state: MemberState,
    ) {
        let before = self.get(client);
        let begun = before.begun && state.needs_recovery();
        let active = before.active && state != MemberState::Free;
        self.set(
            memory,
            geometry,
            client,
            MemberEntry { state, active, recoverer: ComputeId::NOBODY, begun, ..before },
        );
    }

    /// Stores an entry word by word, the word with the state last. In an entry that needs no recovery, the
    /// word with the recoverer has no meaning and is not stored. Otherwise the last recoverer would be lost
    /// one word before the id is free.
    pub(crate) fn set(
        &mut self,
        memory: &dyn Memory,
        geometry: &Geometry,
        client: ComputeId,
        entry: MemberEntry,
    ) {
        let (bytes, at) = (entry.encode(), geometry.member_entry(client));
        let store = |field: usize| memory.store_u64(Space::Host, at + field as u64, get_u64(&bytes, field));
        let was = std::mem::replace(&mut self.entries[usize::from(client.0)], entry);
        if entry.joined_at != was.joined_at {
            store(AT_JOINED);
        }
        if entry.lease_until != was.lease_until {
            store(AT_LEASE);
        }
        let recovery = |entry: &MemberEntry| (entry.recoverer, entry.begun);
        if entry.state.needs_recovery() && (recovery(&entry) != recovery(&was) || !was.state.needs_recovery())
        {
            store(AT_RECOVERER);
        }
        store(AT_STATE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sherman_layout::testing::{VecMemory, small_options};

    fn table() -> (VecMemory, Geometry, MemberTable) {
        let memory = VecMemory::new(64 << 10, 0);
        let geometry = Geometry::plan(&small_options().plan(64 << 10, 0).unwrap());
        let table = MemberTable::load(&memory, &geometry).unwrap();
        (memory, geometry, table)
    }

    #[test]
    fn an_entry_is_the_bytes_that_the_layout_draws() {
        let entry = MemberEntry {
            state: MemberState::Dead,
            active: true,
            incarnation: 0x0102_0304,
            joined_at: 0x1122,
            lease_until: 0x3344,
            recoverer: ComputeId(0x5566),
            begun: true,
        };
        let words = [0x0102_0304_0000_0103u64, 0x1122, 0x3344, 0x1_5566];
        assert_eq!(entry.encode(), *words.map(u64::to_le_bytes).as_flattened());
        assert_eq!(MemberEntry::decode(&entry.encode()), Some(entry));
        assert_eq!(MemberEntry::decode(&[4; 64]), None);
        assert_eq!(MemberEntry::decode(&[0; 31]), None);
    }

    #[test]
    fn a_freed_id_is_reused_only_after_all_others() {
        let (memory, geometry, mut table) = table();
        let join = |table: &mut MemberTable| table.join(&memory, &geometry, 9);
        assert_eq!(join(&mut table), Ok(ComputeId(1)));
        table.release(&memory, &geometry, ComputeId(1));
        for id in 2..=16 {
            assert_eq!(join(&mut table), Ok(ComputeId(id)));
        }
        assert_eq!(join(&mut table), Err(Refusal::TooManyMembers), "one id is in reserve");
        table.release(&memory, &geometry, ComputeId(16));
        assert_eq!(join(&mut table), Ok(ComputeId(1)));
    }

    #[test]
    fn the_round_robin_survives_a_restart() {
        let (memory, geometry, mut table) = table();
        table.join(&memory, &geometry, 1).unwrap();
        table.release(&memory, &geometry, ComputeId(1));
        let mut again = MemberTable::load(&memory, &geometry).unwrap();
        assert_eq!(again, table);
        assert_eq!(again.join(&memory, &geometry, 2), Ok(ComputeId(2)));
    }

    #[test]
    fn an_incarnation_grows_with_each_issue_and_time_is_kept() {
        let (memory, geometry, mut table) = table();
        for round in 1..=3 {
            for id in 1..=16 {
                assert_eq!(table.join(&memory, &geometry, 100 + u64::from(round)), Ok(ComputeId(id)));
                table.release(&memory, &geometry, ComputeId(id));
            }
            assert_eq!(
                (table.get(ComputeId(7)).incarnation, table.get(ComputeId(7)).joined_at),
                (round, 100 + u64::from(round))
            );
        }
    }

    #[test]
    fn a_dead_or_leaving_member_is_not_live_and_its_id_is_not_issued() {
        for state in [MemberState::Dead, MemberState::Leaving] {
            let (memory, geometry, mut table) = table();
            table.join(&memory, &geometry, 0).unwrap();
            table.set_state(&memory, &geometry, ComputeId(1), state);
            let mut table = MemberTable::load(&memory, &geometry).unwrap();
            assert!(!table.is_live(ComputeId(1)));
            for id in 2..=16 {
                assert_eq!(
                    table.join(&memory, &geometry, 0),
                    Ok(ComputeId(id)),
                    "a member waits for recovery"
                );
            }
            assert_eq!(table.join(&memory, &geometry, 0), Err(Refusal::TooManyMembers));
            assert_eq!(table.live().count(), 15);
            table.release(&memory, &geometry, ComputeId(1));
            table.release(&memory, &geometry, ComputeId(2));
            assert_eq!(table.join(&memory, &geometry, 0), Ok(ComputeId(1)));
        }
    }

    #[test]
    fn a_small_share_of_the_ids_is_kept_in_reserve() {
        assert_eq!([1, 15, 16, 100, 256, 4096, u16::MAX].map(reserve), [0, 0, 1, 6, 16, 16, 16]);
        for capacity in [1, 3, 15, 16, 31, 33, 64] {
            let options = sherman_layout::FormatOptions { member_capacity: capacity, ..small_options() };
            let geometry = Geometry::plan(&options.plan(64 << 10, 0).unwrap());
            let memory = VecMemory::new(64 << 10, 0);
            let mut table = MemberTable::load(&memory, &geometry).unwrap();
            let issued = (0..).take_while(|_| table.join(&memory, &geometry, 0).is_ok()).count();
            assert_eq!(issued as u32, capacity - u32::from(reserve(capacity as u16)));
            table.set_state(&memory, &geometry, ComputeId(1), MemberState::Dead);
            let issued = (0..).take_while(|_| table.join(&memory, &geometry, 0).is_ok()).count();
            assert_eq!(issued, usize::from(reserve(capacity as u16)), "reserved for recoverers");
        }
    }

    #[test]
    fn a_damaged_table_is_refused() {
        let (memory, geometry, _) = table();
        for (offset, word) in [
            (geometry.member_offset(), 1),
            (geometry.member_entry(ComputeId(2)), 4),
            (LAST_MEMBER_OFFSET, 17),
            (SHORT_MEMBER_OFFSET, 17),
        ] {
            let copy = memory.clone();
            copy.store_u64(Space::Host, offset, word);
            let refused = MemberTable::load(&copy, &geometry);
            assert!(matches!(refused, Err(OpenError::Corrupt { table: "member table", .. })), "{offset}");
        }
        memory.store_u64(Space::Host, geometry.member_entry(ComputeId(2)), 3);
        memory.store_u64(Space::Host, geometry.member_entry(ComputeId(2)) + AT_RECOVERER as u64, 17);
        assert!(MemberTable::load(&memory, &geometry).is_err());
    }
}
