//! The CPU of one memory server: its volume and, on server 0, the control state beside it.
//!
//! Each has a memory of its own. The volume's memory is reached by verbs; that of the control state is not.

use crate::control::Control;
use crate::volume::Volume;
use sherman_fabric::control::{Span, TreeInfo};
use sherman_fabric::{ComputeId, Memory, Refusal, Request, Response, Seen, Space};
use sherman_layout::{
    ChunkEntry, ClientWord, FormatError, FormatOptions, Geometry, MemberEntry, Superblock, SuperblockError,
};

mod census;

pub use census::Census;

#[cfg(test)]
mod enlist_tests;
#[cfg(test)]
mod membership_tests;
#[cfg(test)]
mod tests;

sherman_fabric::errors! {
    /// Why a memory cannot be opened. Nothing was written.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum OpenError {
        /// There is no superblock that this build understands.
        Superblock(error: SuperblockError) => "{error}" because error,
        /// The memory is smaller than when it was formatted.
        Truncated {
            /// Which memory.
            space: Space,
            /// Bytes found.
            found: u64,
            /// Bytes needed.
            expected: u64,
        } => "{space:?} memory has {found} bytes; it was formatted with {expected}",
        /// A table is damaged.
        Corrupt {
            /// Which table.
            table: &'static str,
            /// Which of its entries.
            entry: u64,
            /// What is wrong with it.
            what: &'static str,
        } => "the {table} is corrupt: entry {entry} {what}",
    }
}

impl From<SuperblockError> for OpenError {
    fn from(error: SuperblockError) -> Self {
        Self::Superblock(error)
    }
}

/// The memories of one server.
#[derive(Clone, Copy)]
pub struct Memories<'m> {
    /// The memory of its volume.
    pub volume: &'m dyn Memory,
    /// The memory of the control state. Not used on a server other than 0.
    pub control: &'m dyn Memory,
}

/// The CPU of one memory server. It holds no memory: the caller passes the same memories to every call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryServer {
    /// Its volume.
    pub volume: Volume,
    /// The control state, on server 0.
    pub control: Option<Control>,
}

impl MemoryServer {
    /// Formats the memories, whatever was in them, and opens them. If formatting is cut short, at least one
    /// of them is not formatted.
    pub fn format(memories: Memories<'_>, options: &FormatOptions) -> Result<Self, FormatError> {
        // Checked before anything is written.
        let (host, on_chip) = (memories.volume.size(Space::Host), memories.volume.size(Space::OnChip));
        let geometry = options.plan(host, on_chip)?;
        let control = if options.server == 0 {
            Some(Control::format(memories.control, options.memory_id, &geometry)?)
        } else {
            None
        };
        Ok(Self { volume: Volume::format(memories.volume, options)?, control })
    }

    /// Opens formatted memories. The state is the same as when they were last used.
    pub fn open(memories: Memories<'_>) -> Result<Self, OpenError> {
        let volume = Volume::open(memories.volume)?;
        let superblock = volume.superblock();
        if superblock.server != 0 {
            return Ok(Self { volume, control: None });
        }
        let control = Control::open(memories.control)?;
        if control.cluster() != superblock.memory_id {
            let what = "names another cluster than volume 0";
            return Err(OpenError::Corrupt { table: "control block", entry: 0, what });
        }
        Ok(Self { volume, control: Some(control) })
    }

    /// The superblock of the volume.
    pub fn superblock(&self) -> &Superblock {
        self.volume.superblock()
    }

    /// Where everything lies in the volume.
    pub fn geometry(&self) -> &Geometry {
        self.volume.geometry()
    }

    /// As [`Volume::is_fenced`].
    pub fn is_fenced(&self, client: ComputeId) -> bool {
        self.volume.is_fenced(client)
    }

    /// As [`Volume::client`].
    pub fn client(&self, client: ComputeId) -> ClientWord {
        self.volume.client(client)
    }

    /// As [`Volume::spans_owned`].
    pub fn spans_owned(&self, client: ComputeId) -> Vec<Span> {
        self.volume.spans_owned(client)
    }

    /// As [`Volume::chunk`].
    pub fn chunk(&self, index: u32) -> Option<ChunkEntry> {
        self.volume.chunk(index)
    }

    /// As [`Volume::cluster`].
    pub fn cluster(&self) -> u64 {
        self.volume.cluster()
    }

    /// As [`Volume::adopt`].
    pub fn adopt(&mut self, memories: Memories<'_>, cluster: u64) -> bool {
        self.volume.adopt(memories.volume, cluster)
    }

    /// What the member table says about `client`; `None` where there is no control state.
    pub fn member(&self, client: ComputeId) -> Option<MemberEntry> {
        self.control.as_ref().map(|control| control.member(client))
    }

    /// All trees, by name; none where there is no control state.
    pub fn trees(&self) -> Vec<TreeInfo> {
        self.control.as_ref().map_or_else(Vec::new, Control::trees)
    }

    /// The servers that the cluster has declared lost; none where there is no control state.
    pub fn lost(&self) -> Vec<u16> {
        self.control.as_ref().map_or_else(Vec::new, Control::lost)
    }

    /// Answers one request of `from`: as [`Control::apply`] or as [`Volume::handle`].
    pub fn handle(
        &mut self,
        memories: Memories<'_>,
        from: ComputeId,
        request: &Request,
        now: u64,
    ) -> Result<Response, Refusal> {
        if !request.is_for_control() {
            return self.volume.handle(memories.volume, from, request);
        }
        self.control.as_mut().ok_or(Refusal::NotHere)?.apply(memories.control, from, request, now)
    }

    /// Answers one request of an operator. An operator needs no membership. `now` is the server's time in
    /// nanoseconds.
    pub fn administer(
        &mut self,
        memories: Memories<'_>,
        request: &Request,
        now: u64,
    ) -> Result<Response, Refusal> {
        match request {
            Request::Usage => Ok(self.volume.usage(memories.volume)),
            Request::Members
            | Request::ListTrees
            | Request::Condemn { .. }
            | Request::Servers
            | Request::DeclareLost { .. } => {
                self.control.as_mut().ok_or(Refusal::NotHere)?.administer(memories.control, request, now)
            }
            _ => Err(Refusal::BadRequest { what: "an operator may not send this request" }),
        }
    }

    /// As [`Control::join_seeing`].
    pub fn join_seeing(
        &mut self,
        memories: Memories<'_>,
        seen: &[Option<Seen>],
        now: u64,
    ) -> Result<ComputeId, Refusal> {
        self.control.as_mut().ok_or(Refusal::NotHere)?.join_seeing(memories.control, seen, now)
    }

    /// As [`Control::enlist_all`]. Does nothing where there is no control state.
    pub fn enlist_all(&mut self, memories: Memories<'_>, identities: &[u64]) {
        if let Some(control) = &mut self.control {
            control.enlist_all(memories.control, identities);
        }
    }

    /// As [`Control::lose`]. Does nothing where there is no control state.
    pub fn lose(&mut self, memories: Memories<'_>, client: ComputeId) {
        if let Some(control) = &mut self.control {
            control.lose(memories.control, client);
        }
    }

    /// As [`Control::lose_all`]. Does nothing where there is no control state.
    pub fn lose_all(&mut self, memories: Memories<'_>) {
        if let Some(control) = &mut self.control {
            control.lose_all(memories.control);
        }
    }

    /// As [`Control::take_reaped`].
    pub fn take_reaped(&mut self) -> Vec<ComputeId> {
        self.control.as_mut().map_or_else(Vec::new, Control::take_reaped)
    }

    /// Copies from `other` the state that is not kept in memory.
    #[cfg(test)]
    pub(crate) fn with_clock_of(mut self, other: &Self) -> Self {
        self.control = self.control.zip(other.control.as_ref()).map(|(one, other)| one.with_clock_of(other));
        self
    }
}
