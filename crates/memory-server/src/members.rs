//! The member table: on server 0, a line per client id says whether a compute server has that id, until when it is
//! believed to be alive, and who recovers it once it is not.
//!
//! A compute server is one member, whatever its number of threads (`docs/INVARIANTS.md`). Its 16-bit id is what it writes into lock
//! lanes and free marks, so an id that comes back too early could be taken for its former holder: ids are issued round
//! robin, the id issued last is remembered across restarts, and an id whose holder died or went is not free before whoever
//! recovers it has retired it. The incarnation counts how often an id was issued.
//!
//! This module has the entries and how they are stored; what leases and recovery make of them is in
//! [`leases`](crate::leases).

use crate::bytes::{get_u16, get_u32, get_u64, load_host, put};
use crate::geometry::{Geometry, LAST_MEMBER_OFFSET, MEMBER_ENTRY_BYTES};
use crate::server::OpenError;
use sherman_fabric::{ClientId, Memory, Refusal, Space};

const AT_STATE: usize = 0;
const AT_INCARNATION: usize = 4;
const AT_JOINED: usize = 8;
const AT_LEASE: usize = 16;
const AT_RECOVERER: usize = 24;
const AT_BEGUN: usize = 26;
/// Bytes of an entry that mean something.
const USED_BYTES: usize = AT_RECOVERER + 8;

const _: () = assert!(USED_BYTES <= MEMBER_ENTRY_BYTES as usize);
const _: () = assert!(AT_JOINED.is_multiple_of(8) && AT_LEASE.is_multiple_of(8) && AT_RECOVERER.is_multiple_of(8));
const _: () = assert!(AT_INCARNATION + 4 <= 8, "state and incarnation change by one word");

/// What an id is used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemberState {
    /// Nobody has it.
    #[default]
    Free,
    /// A compute server has it.
    Live,
    /// Its holder has gone in order, and its places wait to be taken over.
    Leaving,
    /// Its holder's lease has run out: it is being recovered, or waits for it.
    Dead,
}

impl MemberState {
    /// Whether somebody has to recover the holder before the id is free again.
    pub const fn needs_recovery(self) -> bool {
        matches!(self, Self::Leaving | Self::Dead)
    }
}

/// What the table says about one id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberEntry {
    /// What it is used for.
    pub state: MemberState,
    /// How often it was issued (wrapping).
    pub incarnation: u32,
    /// When it was issued last, in the server's nanoseconds.
    pub joined_at: u64,
    /// Until when its holder is believed to be alive, in the server's nanoseconds.
    pub lease_until: u64,
    /// Who recovers it; nobody, unless its holder is dead or leaving.
    pub recoverer: ClientId,
    /// Whether anybody ever began to recover this holder.
    pub begun: bool,
}

impl MemberEntry {
    /// The words of the entry that mean something.
    fn encode(&self) -> [u8; USED_BYTES] {
        let mut bytes = [0; USED_BYTES];
        let state = match self.state {
            MemberState::Free => 0,
            MemberState::Live => 1,
            MemberState::Leaving => 2,
            MemberState::Dead => 3,
        };
        put(&mut bytes, AT_STATE, [state]);
        put(&mut bytes, AT_BEGUN, [u8::from(self.begun)]);
        put(&mut bytes, AT_INCARNATION, self.incarnation.to_le_bytes());
        put(&mut bytes, AT_JOINED, self.joined_at.to_le_bytes());
        put(&mut bytes, AT_LEASE, self.lease_until.to_le_bytes());
        put(&mut bytes, AT_RECOVERER, self.recoverer.0.to_le_bytes());
        bytes
    }

    /// What an entry's bytes say, if they make sense. A recoverer means nothing in an entry that needs none: it is stored
    /// before the state that makes it count.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..USED_BYTES)?;
        let state = match bytes[AT_STATE] {
            0 => MemberState::Free,
            1 => MemberState::Live,
            2 => MemberState::Leaving,
            3 => MemberState::Dead,
            _ => return None,
        };
        Some(Self {
            state,
            begun: state.needs_recovery() && bytes[AT_BEGUN] != 0,
            incarnation: get_u32(bytes, AT_INCARNATION),
            joined_at: get_u64(bytes, AT_JOINED),
            lease_until: get_u64(bytes, AT_LEASE),
            recoverer: if state.needs_recovery() { ClientId(get_u16(bytes, AT_RECOVERER)) } else { ClientId::NOBODY },
        })
    }
}

/// How many ids of `capacity` are kept for those who recover others.
const fn reserve(capacity: u16) -> u16 {
    let share = capacity / 16;
    if share < 16 { share } else { 16 }
}

/// The table and the cursor of the round robin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemberTable {
    /// By id; the first is nobody's.
    entries: Vec<MemberEntry>,
    last_issued: u16,
    /// Whether the leases in the table are of this server's own time: not between [`MemberTable::load`] and the first
    /// request ([`MemberTable::begin`]).
    pub(crate) begun: bool,
    /// The member that found no memory last, and when. Not kept across restarts.
    pub(crate) short: Option<(ClientId, u64)>,
}

impl MemberTable {
    /// The table in memory.
    pub(crate) fn load<M: Memory + ?Sized>(memory: &M, geometry: &Geometry) -> Result<Self, OpenError> {
        let corrupt = |entry: u32, what| OpenError::Corrupt { table: "member table", entry: u64::from(entry), what };
        let bytes = load_host(memory, geometry.member_offset, geometry.member_table_bytes());
        let mut entries = Vec::new();
        for (line, id) in bytes.chunks_exact(MEMBER_ENTRY_BYTES as usize).zip(0u32..) {
            let entry = MemberEntry::decode(line).ok_or(corrupt(id, "has an unknown state"))?;
            if id == 0 && entry != MemberEntry::default() {
                return Err(corrupt(id, "makes nobody a member"));
            }
            if entry.recoverer != ClientId::NOBODY && !geometry.is_client(entry.recoverer) {
                return Err(corrupt(id, "has an impossible recoverer"));
            }
            entries.push(entry);
        }
        let last_issued = memory.load_u64(Space::Host, LAST_MEMBER_OFFSET);
        let last_issued = u16::try_from(last_issued)
            .ok()
            .filter(|&id| u32::from(id) <= geometry.member_capacity)
            .ok_or(corrupt(0, "the id issued last is impossible"))?;
        let begun = entries.iter().all(|entry| entry.state != MemberState::Live);
        Ok(Self { entries, last_issued, begun, short: None })
    }

    /// What the table says about `client`; free for an id it has no entry for.
    pub(crate) fn get(&self, client: ClientId) -> MemberEntry {
        self.entries.get(usize::from(client.0)).copied().unwrap_or_default()
    }

    /// Whether `client` is a live member.
    pub(crate) fn is_live(&self, client: ClientId) -> bool {
        self.get(client).state == MemberState::Live
    }

    /// The ids that are not free, in order.
    pub(crate) fn taken(&self) -> impl Iterator<Item = (ClientId, MemberEntry)> {
        let members = self.entries.iter().zip(0u16..=u16::MAX);
        members.filter(|(entry, _)| entry.state != MemberState::Free).map(|(&entry, id)| (ClientId(id), entry))
    }

    /// The live members, by id.
    pub(crate) fn live(&self) -> impl Iterator<Item = ClientId> {
        self.taken().filter(|(_, entry)| entry.state == MemberState::Live).map(|(client, _)| client)
    }

    /// The id that is issued next at `now`, if there is one. The last few ids are issued only while somebody waits to be recovered: the one
    /// who joins then may do that, and so make room for others.
    pub(crate) fn next_free(&self, geometry: &Geometry, now: u64) -> Option<ClientId> {
        let (last, capacity) = (self.last_issued, geometry.member_capacity as u16);
        let free = |client: &ClientId| self.get(*client).state == MemberState::Free;
        let mut ids = (last..capacity).chain(0..last).map(|before| ClientId(before + 1)).filter(free);
        let next = ids.next()?;
        let enough = ids.nth(usize::from(reserve(capacity)).saturating_sub(1)).is_some() || reserve(capacity) == 0;
        let waiting = || self.taken().any(|(_, entry)| !entry.is_alive(now));
        (enough || waiting()).then_some(next)
    }

    /// Issues the next free id, with a lease from now on. A fenced member's is not free: who is fenced cannot leave, and
    /// who recovers it lifts the fence before it frees the id.
    pub(crate) fn join<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        geometry: &Geometry,
        now: u64,
    ) -> Result<ClientId, Refusal> {
        let client = self.next_free(geometry, now).ok_or(Refusal::TooManyMembers)?;
        let incarnation = self.get(client).incarnation.wrapping_add(1);
        let lease_until = now.saturating_add(geometry.lease_nanos);
        let recoverer = ClientId::NOBODY;
        let state = MemberState::Live;
        let entry = MemberEntry { state, incarnation, joined_at: now, lease_until, recoverer, begun: false };
        // The cursor goes first: if the server stops in between, an id is skipped, never issued early.
        memory.store_u64(Space::Host, LAST_MEMBER_OFFSET, u64::from(client.0));
        self.last_issued = client.0;
        self.set(memory, geometry, client, entry);
        Ok(client)
    }

    /// Takes `client`'s id back, and makes those whom it was recovering nobody's: they go first, so that no entry ever
    /// names a recoverer whose id is free.
    pub(crate) fn release<M: Memory + ?Sized>(&mut self, memory: &M, geometry: &Geometry, client: ClientId) {
        self.give_up(memory, geometry, client);
        self.set_state(memory, geometry, client, MemberState::Free);
    }

    /// Makes those whom `client` was recovering nobody's.
    pub(crate) fn give_up<M: Memory + ?Sized>(&mut self, memory: &M, geometry: &Geometry, client: ClientId) {
        for id in (0..=geometry.member_capacity as u16).map(ClientId) {
            let entry = self.get(id);
            if entry.recoverer == client && entry.state.needs_recovery() {
                self.set(memory, geometry, id, MemberEntry { recoverer: ClientId::NOBODY, ..entry });
            }
        }
    }

    /// Changes the state alone: who was recovering it does so no more.
    pub(crate) fn set_state<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        geometry: &Geometry,
        client: ClientId,
        state: MemberState,
    ) {
        let before = self.get(client);
        let begun = before.begun && state.needs_recovery();
        self.set(memory, geometry, client, MemberEntry { state, recoverer: ClientId::NOBODY, begun, ..before });
    }

    /// Stores an entry: word by word, the word with the state last. Of an entry that needs no recovery the word with the
    /// recoverer means nothing, and stays: else the id's last recoverer would be forgotten a word before the id is free.
    pub(crate) fn set<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        geometry: &Geometry,
        client: ClientId,
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
        if entry.state.needs_recovery() && (recovery(&entry) != recovery(&was) || !was.state.needs_recovery()) {
            store(AT_RECOVERER);
        }
        store(AT_STATE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{VecMemory, small_options};

    fn table() -> (VecMemory, Geometry, MemberTable) {
        let memory = VecMemory::new(64 << 10, 0);
        let geometry = small_options().plan(64 << 10, 0).unwrap();
        let table = MemberTable::load(&memory, &geometry).unwrap();
        (memory, geometry, table)
    }

    #[test]
    fn an_entry_is_the_bytes_that_the_layout_draws() {
        let entry = MemberEntry {
            state: MemberState::Dead,
            incarnation: 0x0102_0304,
            joined_at: 0x1122,
            lease_until: 0x3344,
            recoverer: ClientId(0x5566),
            begun: true,
        };
        let words = [0x0102_0304_0000_0003u64, 0x1122, 0x3344, 0x1_5566];
        assert_eq!(entry.encode(), *words.map(u64::to_le_bytes).as_flattened());
        assert_eq!(MemberEntry::decode(&entry.encode()), Some(entry));
        assert_eq!(MemberEntry::decode(&[4; 64]), None);
        assert_eq!(MemberEntry::decode(&[0; 31]), None);
    }

    #[test]
    fn a_recoverer_counts_only_where_there_is_something_to_recover() {
        let dead = MemberEntry { state: MemberState::Dead, recoverer: ClientId(3), ..MemberEntry::default() };
        for (state, recoverer) in [(0, 0), (1, 0), (2, 3), (3, 3)] {
            let mut bytes = dead.encode();
            bytes[AT_STATE] = state;
            assert_eq!(MemberEntry::decode(&bytes).map(|entry| entry.recoverer), Some(ClientId(recoverer)));
        }
    }

    #[test]
    fn a_freed_id_is_reused_only_after_all_others() {
        let (memory, geometry, mut table) = table();
        let join = |table: &mut MemberTable| table.join(&memory, &geometry, 9);
        assert_eq!(join(&mut table), Ok(ClientId(1)));
        table.release(&memory, &geometry, ClientId(1));
        for id in 2..=16 {
            assert_eq!(join(&mut table), Ok(ClientId(id)));
        }
        assert_eq!(join(&mut table), Err(Refusal::TooManyMembers), "one id is in reserve");
        table.release(&memory, &geometry, ClientId(16));
        assert_eq!(join(&mut table), Ok(ClientId(1)));
    }

    #[test]
    fn the_round_robin_survives_a_restart() {
        let (memory, geometry, mut table) = table();
        table.join(&memory, &geometry, 1).unwrap();
        table.release(&memory, &geometry, ClientId(1));
        let mut again = MemberTable::load(&memory, &geometry).unwrap();
        assert_eq!(again, table);
        assert_eq!(again.join(&memory, &geometry, 2), Ok(ClientId(2)));
    }

    #[test]
    fn an_incarnation_grows_with_each_issue_and_time_is_kept() {
        let (memory, geometry, mut table) = table();
        for round in 1..=3 {
            for id in 1..=16 {
                assert_eq!(table.join(&memory, &geometry, 100 + u64::from(round)), Ok(ClientId(id)));
                table.release(&memory, &geometry, ClientId(id));
            }
            assert_eq!(
                (table.get(ClientId(7)).incarnation, table.get(ClientId(7)).joined_at),
                (round, 100 + u64::from(round))
            );
        }
    }

    #[test]
    fn who_is_dead_or_leaving_is_no_live_member_and_its_id_is_not_issued() {
        for state in [MemberState::Dead, MemberState::Leaving] {
            let (memory, geometry, mut table) = table();
            table.join(&memory, &geometry, 0).unwrap();
            table.set_state(&memory, &geometry, ClientId(1), state);
            let mut table = MemberTable::load(&memory, &geometry).unwrap();
            assert!(!table.is_live(ClientId(1)));
            for id in 2..=16 {
                assert_eq!(table.join(&memory, &geometry, 0), Ok(ClientId(id)), "somebody waits to be recovered");
            }
            assert_eq!(table.join(&memory, &geometry, 0), Err(Refusal::TooManyMembers));
            assert_eq!(table.live().count(), 15);
            table.release(&memory, &geometry, ClientId(1));
            table.release(&memory, &geometry, ClientId(2));
            assert_eq!(table.join(&memory, &geometry, 0), Ok(ClientId(1)));
        }
    }

    #[test]
    fn a_small_share_of_the_ids_is_kept_in_reserve() {
        assert_eq!([1, 15, 16, 100, 256, 4096, u16::MAX].map(reserve), [0, 0, 1, 6, 16, 16, 16]);
        for capacity in [1, 3, 15, 16, 31, 33, 64] {
            let options = crate::FormatOptions { member_capacity: capacity, ..small_options() };
            let geometry = options.plan(64 << 10, 0).unwrap();
            let memory = VecMemory::new(64 << 10, 0);
            let mut table = MemberTable::load(&memory, &geometry).unwrap();
            let issued = (0..).take_while(|_| table.join(&memory, &geometry, 0).is_ok()).count();
            assert_eq!(issued as u32, capacity - u32::from(reserve(capacity as u16)));
            table.set_state(&memory, &geometry, ClientId(1), MemberState::Dead);
            let issued = (0..).take_while(|_| table.join(&memory, &geometry, 0).is_ok()).count();
            assert_eq!(issued, usize::from(reserve(capacity as u16)), "for who comes to recover");
        }
    }

    #[test]
    fn a_damaged_table_is_refused() {
        let (memory, geometry, _) = table();
        for (offset, word) in
            [(geometry.member_offset, 1), (geometry.member_entry(ClientId(2)), 4), (LAST_MEMBER_OFFSET, 17)]
        {
            let copy = memory.clone();
            copy.store_u64(Space::Host, offset, word);
            let refused = MemberTable::load(&copy, &geometry);
            assert!(matches!(refused, Err(OpenError::Corrupt { table: "member table", .. })), "{offset}");
        }
        memory.store_u64(Space::Host, geometry.member_entry(ClientId(2)), 3);
        memory.store_u64(Space::Host, geometry.member_entry(ClientId(2)) + AT_RECOVERER as u64, 17);
        assert!(MemberTable::load(&memory, &geometry).is_err());
    }
}
