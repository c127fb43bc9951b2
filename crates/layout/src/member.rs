//! An entry of the member table, on server 0: one line per client id.

use crate::bytes::{get_u16, get_u32, get_u64, put};
use crate::geometry::MEMBER_ENTRY_BYTES;
use sherman_fabric::ComputeId;

/// Offset of the state and, in the same word, of the active mark and the incarnation.
pub const AT_STATE: usize = 0;
const AT_ACTIVE: usize = 1;
const AT_INCARNATION: usize = 4;
/// Offset of the time of issue.
pub const AT_JOINED: usize = 8;
/// Offset of the end of the lease.
pub const AT_LEASE: usize = 16;
/// Offset of the recoverer.
pub const AT_RECOVERER: usize = 24;
const AT_BEGUN: usize = 26;
/// Used bytes of an entry.
pub const USED_BYTES: usize = AT_RECOVERER + 8;

const _: () = assert!(USED_BYTES <= MEMBER_ENTRY_BYTES as usize);
const _: () =
    assert!(AT_JOINED.is_multiple_of(8) && AT_LEASE.is_multiple_of(8) && AT_RECOVERER.is_multiple_of(8));
const _: () = assert!(AT_INCARNATION + 4 <= 8, "state and incarnation change by one word");

/// The state of an id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemberState {
    /// No compute server has it.
    #[default]
    Free,
    /// A compute server has it.
    Live,
    /// Its holder has departed in order, and its places wait for another member to take them over.
    Leaving,
    /// The lease of its holder has run out: the holder is being recovered, or waits for a recoverer.
    Dead,
}

impl MemberState {
    /// Whether a member must recover the holder before the id is free again.
    pub const fn needs_recovery(self) -> bool {
        matches!(self, Self::Leaving | Self::Dead)
    }
}

/// What the member table says about one id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberEntry {
    /// The state of the id.
    pub state: MemberState,
    /// Whether its holder may own memory.
    pub active: bool,
    /// How often it was issued (wrapping).
    pub incarnation: u32,
    /// When it was issued last, in the server's nanoseconds.
    pub joined_at: u64,
    /// Until when its holder counts as alive, in the server's nanoseconds.
    pub lease_until: u64,
    /// The member that recovers it; none unless its holder is dead or leaving.
    pub recoverer: ComputeId,
    /// Whether any member ever began to recover this holder.
    pub begun: bool,
}

impl MemberEntry {
    /// The used words of the entry.
    pub fn encode(&self) -> [u8; USED_BYTES] {
        let mut bytes = [0; USED_BYTES];
        let state = match self.state {
            MemberState::Free => 0,
            MemberState::Live => 1,
            MemberState::Leaving => 2,
            MemberState::Dead => 3,
        };
        put(&mut bytes, AT_STATE, [state]);
        put(&mut bytes, AT_ACTIVE, [u8::from(self.active)]);
        put(&mut bytes, AT_BEGUN, [u8::from(self.begun)]);
        put(&mut bytes, AT_INCARNATION, self.incarnation.to_le_bytes());
        put(&mut bytes, AT_JOINED, self.joined_at.to_le_bytes());
        put(&mut bytes, AT_LEASE, self.lease_until.to_le_bytes());
        put(&mut bytes, AT_RECOVERER, self.recoverer.0.to_le_bytes());
        bytes
    }

    /// Decodes an entry's bytes, if they are valid. Ignores the recoverer in an entry that needs none: it is
    /// stored before the state that makes it valid.
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
            active: state != MemberState::Free && bytes[AT_ACTIVE] != 0,
            begun: state.needs_recovery() && bytes[AT_BEGUN] != 0,
            incarnation: get_u32(bytes, AT_INCARNATION),
            joined_at: get_u64(bytes, AT_JOINED),
            lease_until: get_u64(bytes, AT_LEASE),
            recoverer: if state.needs_recovery() {
                ComputeId(get_u16(bytes, AT_RECOVERER))
            } else {
                ComputeId::NOBODY
            },
        })
    }

    /// The remaining lease in nanoseconds; 0 if it has run out, or the holder is not a live member.
    pub fn lease_left(&self, now: u64) -> u64 {
        if self.state == MemberState::Live { self.lease_until.saturating_sub(now) } else { 0 }
    }

    /// Whether the holder is a live member whose lease has not run out.
    pub fn is_alive(&self, now: u64) -> bool {
        self.lease_left(now) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recoverer_counts_only_where_there_is_something_to_recover() {
        let dead =
            MemberEntry { state: MemberState::Dead, recoverer: ComputeId(3), ..MemberEntry::default() };
        for (state, recoverer) in [(0, 0), (1, 0), (2, 3), (3, 3)] {
            let mut bytes = dead.encode();
            bytes[AT_STATE] = state;
            assert_eq!(MemberEntry::decode(&bytes).map(|entry| entry.recoverer), Some(ComputeId(recoverer)));
        }
    }
}
