//! Counts for an operator: members by standing, and the ids and memory that remain.

use super::{Memories, MemoryServer};
use sherman_layout::MemberState;

/// Members and memory of one server at one moment. The member counts are 0 on a server that keeps no members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// The number of member ids.
    pub ids: u64,
    /// Ids that no member has.
    pub ids_free: u64,
    /// Members that take part.
    pub live: u64,
    /// Members that have departed in order and wait for recovery, or are being recovered.
    pub leaving: u64,
    /// Members whose lease has ended.
    pub dead: u64,
    /// Members that need recovery and have no live recoverer yet. A member whose lease has run out unnoticed
    /// counts too.
    pub waiting: u64,
    /// The number of chunks.
    pub chunks: u64,
    /// Chunks in use.
    pub chunks_used: u64,
    /// Bytes of spans that members own.
    pub bytes_owned: u64,
    /// Bytes of unowned spans that may have free places.
    pub bytes_free: u64,
}

impl MemoryServer {
    /// Counts members and memory. `now` is the server's time in nanoseconds.
    pub fn census(&self, memories: Memories<'_>, now: u64) -> Census {
        let volume = &self.volume;
        let (bytes_owned, bytes_free) = volume.spans.usage(memories.volume, self.geometry(), &volume.chunks);
        let (chunks, chunks_used) = (u64::from(self.geometry().chunks), volume.chunks.used());
        let mut census = Census { chunks, chunks_used, bytes_owned, bytes_free, ..Census::default() };
        let Some(control) = &self.control else { return census };
        census.ids = u64::from(control.geometry().member_capacity);
        for (_, entry) in control.members.taken() {
            match entry.state {
                MemberState::Free => {}
                MemberState::Live => census.live += 1,
                MemberState::Leaving => census.leaving += 1,
                MemberState::Dead => census.dead += 1,
            }
            census.waiting +=
                u64::from(!entry.is_alive(now) && !control.members.get(entry.recoverer).is_alive(now));
        }
        census.ids_free = census.ids - census.live - census.leaving - census.dead;
        census
    }
}
