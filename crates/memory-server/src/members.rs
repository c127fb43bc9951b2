//! The member table: on server 0, a line per client id says whether a compute server has that id.
//!
//! A compute server is one member, whatever its number of threads (`docs/INVARIANTS.md`). Its 16-bit id is what it writes into lock
//! lanes and free marks, so an id that comes back too early could be taken for its former holder: ids are issued round
//! robin, and the id issued last is remembered across restarts. The incarnation counts how often an id was issued.
//!
//! Leases are not kept yet; the line has room for them. [`MemberState::Leaving`] and [`MemberState::Dead`] are numbers
//! reserved for recovery: this version reads them, issues no such id again, and never writes them.

use crate::bytes::{get_u32, get_u64, load_host, put};
use crate::geometry::{Geometry, LAST_MEMBER_OFFSET, MEMBER_ENTRY_BYTES};
use crate::server::OpenError;
use sherman_fabric::{ClientId, Memory, Refusal, Space};

const AT_STATE: usize = 0;
const AT_INCARNATION: usize = 4;
const AT_JOINED: usize = 8;
/// Room for a lease: until when, and who recovers.
const AT_LEASE: usize = 16;

const _: () = assert!(AT_LEASE < MEMBER_ENTRY_BYTES as usize && AT_JOINED.is_multiple_of(8));
const _: () = assert!(AT_INCARNATION + 4 <= 8, "state and incarnation change by one word");

/// What an id is used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemberState {
    /// Nobody has it.
    #[default]
    Free,
    /// A compute server has it.
    Live,
    /// Reserved: its holder is going.
    Leaving,
    /// Reserved: its holder is being recovered.
    Dead,
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
}

impl MemberEntry {
    /// The entry's first two words.
    fn encode(&self) -> [u8; AT_LEASE] {
        let mut bytes = [0; AT_LEASE];
        let state = match self.state {
            MemberState::Free => 0,
            MemberState::Live => 1,
            MemberState::Leaving => 2,
            MemberState::Dead => 3,
        };
        put(&mut bytes, AT_STATE, [state]);
        put(&mut bytes, AT_INCARNATION, self.incarnation.to_le_bytes());
        put(&mut bytes, AT_JOINED, self.joined_at.to_le_bytes());
        bytes
    }

    /// What an entry's bytes say, if they make sense.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..AT_LEASE)?;
        let state = match bytes[AT_STATE] {
            0 => MemberState::Free,
            1 => MemberState::Live,
            2 => MemberState::Leaving,
            3 => MemberState::Dead,
            _ => return None,
        };
        Some(Self { state, incarnation: get_u32(bytes, AT_INCARNATION), joined_at: get_u64(bytes, AT_JOINED) })
    }
}

/// The table and the cursor of the round robin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemberTable {
    /// By id; the first is nobody's.
    entries: Vec<MemberEntry>,
    last_issued: u16,
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
            entries.push(entry);
        }
        let last_issued = memory.load_u64(Space::Host, LAST_MEMBER_OFFSET);
        let last_issued = u16::try_from(last_issued)
            .ok()
            .filter(|&id| u32::from(id) <= geometry.member_capacity)
            .ok_or(corrupt(0, "the id issued last is impossible"))?;
        Ok(Self { entries, last_issued })
    }

    /// What the table says about `client`; free for an id it has no entry for.
    pub(crate) fn get(&self, client: ClientId) -> MemberEntry {
        self.entries.get(usize::from(client.0)).copied().unwrap_or_default()
    }

    /// Whether `client` is a live member.
    pub(crate) fn is_live(&self, client: ClientId) -> bool {
        self.get(client).state == MemberState::Live
    }

    /// The live members, by id.
    pub(crate) fn live(&self) -> impl Iterator<Item = ClientId> {
        let members = self.entries.iter().zip(0u16..=u16::MAX);
        members.filter(|(entry, _)| entry.state == MemberState::Live).map(|(_, id)| ClientId(id))
    }

    /// Issues the next free id. A fenced member's is not free: who is fenced cannot leave.
    pub(crate) fn join<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        geometry: &Geometry,
        now: u64,
    ) -> Result<ClientId, Refusal> {
        let (last, capacity) = (self.last_issued, geometry.member_capacity as u16);
        let client = (last..capacity)
            .chain(0..last)
            .map(|before| ClientId(before + 1))
            .find(|&client| self.get(client).state == MemberState::Free)
            .ok_or(Refusal::TooManyMembers)?;
        let incarnation = self.get(client).incarnation.wrapping_add(1);
        let entry = MemberEntry { state: MemberState::Live, incarnation, joined_at: now };
        // The cursor goes first: if the server stops in between, an id is skipped, never issued early.
        memory.store_u64(Space::Host, LAST_MEMBER_OFFSET, u64::from(client.0));
        self.last_issued = client.0;
        self.set(memory, geometry, client, entry);
        Ok(client)
    }

    /// Takes `client`'s id back.
    pub(crate) fn leave<M: Memory + ?Sized>(&mut self, memory: &M, geometry: &Geometry, client: ClientId) {
        let entry = MemberEntry { state: MemberState::Free, ..self.get(client) };
        self.set(memory, geometry, client, entry);
    }

    /// Stores an entry, the word with the state last.
    fn set<M: Memory + ?Sized>(&mut self, memory: &M, geometry: &Geometry, client: ClientId, entry: MemberEntry) {
        let (bytes, at) = (entry.encode(), geometry.member_entry(client));
        memory.store_u64(Space::Host, at + AT_JOINED as u64, entry.joined_at);
        memory.store_u64(Space::Host, at + AT_STATE as u64, get_u64(&bytes, AT_STATE));
        self.entries[usize::from(client.0)] = entry;
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
        let entry = MemberEntry { state: MemberState::Live, incarnation: 0x0102_0304, joined_at: 0x1122 };
        assert_eq!(entry.encode(), [1, 0, 0, 0, 4, 3, 2, 1, 0x22, 0x11, 0, 0, 0, 0, 0, 0]);
        assert_eq!(MemberEntry::decode(&entry.encode()), Some(entry));
        assert_eq!(MemberEntry::decode(&[4; 64]), None);
        assert_eq!(MemberEntry::decode(&[0; 15]), None);
    }

    #[test]
    fn a_freed_id_is_reused_only_after_all_others() {
        let (memory, geometry, mut table) = table();
        let join = |table: &mut MemberTable| table.join(&memory, &geometry, 9);
        assert_eq!(join(&mut table), Ok(ClientId(1)));
        table.leave(&memory, &geometry, ClientId(1));
        for id in (2..=16).chain([1]) {
            assert_eq!(join(&mut table), Ok(ClientId(id)));
        }
        assert_eq!(join(&mut table), Err(Refusal::TooManyMembers));
        table.leave(&memory, &geometry, ClientId(16));
        assert_eq!(join(&mut table), Ok(ClientId(16)));
    }

    #[test]
    fn the_round_robin_survives_a_restart() {
        let (memory, geometry, mut table) = table();
        table.join(&memory, &geometry, 1).unwrap();
        table.leave(&memory, &geometry, ClientId(1));
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
                table.leave(&memory, &geometry, ClientId(id));
            }
            assert_eq!(
                (table.get(ClientId(7)).incarnation, table.get(ClientId(7)).joined_at),
                (round, 100 + u64::from(round))
            );
        }
    }

    #[test]
    fn a_reserved_state_is_no_live_member_and_its_id_is_not_issued() {
        let (memory, geometry, _) = table();
        let dead = MemberEntry { state: MemberState::Dead, incarnation: 1, joined_at: 0 };
        memory.store(Space::Host, geometry.member_entry(ClientId(1)), &dead.encode());
        let mut table = MemberTable::load(&memory, &geometry).unwrap();
        assert!(!table.is_live(ClientId(1)));
        assert_eq!(table.join(&memory, &geometry, 0), Ok(ClientId(2)));
        assert_eq!(table.live().collect::<Vec<_>>(), [ClientId(2)]);
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
    }
}
