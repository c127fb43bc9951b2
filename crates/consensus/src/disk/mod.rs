//! Where a node's log lies: two byte strings that grow at their end.
//!
//! The group does no I/O. It gives its caller [`Write`]s, and the caller executes them in order with
//! [`perform`] on a [`Disk`], and then says so to the group.

mod file;
mod memory;

pub use file::FileDisk;
pub use memory::MemoryDisk;

use std::io;

/// How many segments a log has.
pub const SEGMENTS: usize = 2;

/// What a node must have on disk before it may go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Its number. The caller passes it to `Group::persisted` when the write is done.
    pub number: u64,
    /// The segment to write.
    pub segment: usize,
    /// What to do.
    pub kind: WriteKind,
    /// Whether the bytes must survive a crash before the write is done.
    pub sync: bool,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// What a [`Write`] does with its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteKind {
    /// Adds them to the end of the segment.
    Append,
    /// Makes them the segment's whole contents. Once they are durable, the other segment is not needed any
    /// more.
    Replace {
        /// The contents of the other segment from then on: they say that this one has the log.
        other: Vec<u8>,
    },
}

/// Two segments that survive a crash as far as they were synced.
pub trait Disk {
    /// Adds `bytes` to the end of a segment. A crash may lose or garble them until the next sync.
    ///
    /// # Errors
    /// Those of the device. The group must stop then.
    fn append(&mut self, segment: usize, bytes: &[u8]) -> io::Result<()>;

    /// Makes everything in a segment durable.
    ///
    /// # Errors
    /// Those of the device. The group must stop then: what is durable is unknown.
    fn sync(&mut self, segment: usize) -> io::Result<()>;

    /// Makes `bytes` the whole contents of a segment. Until the next sync of the segment, a crash may leave
    /// the old contents, the new ones, or garbage.
    ///
    /// # Errors
    /// Those of the device. The group must stop then.
    fn replace(&mut self, segment: usize, bytes: &[u8]) -> io::Result<()>;

    /// The contents of a segment; empty if there is none.
    ///
    /// # Errors
    /// Those of the device.
    fn read(&mut self, segment: usize) -> io::Result<Vec<u8>>;
}

/// Executes a write. When this returns, the caller may pass its number to `Group::persisted`.
///
/// # Errors
/// Those of the device. The caller must tell the group by `Group::storage_failed`.
pub fn perform(disk: &mut impl Disk, write: &Write) -> io::Result<()> {
    match &write.kind {
        WriteKind::Append => {
            disk.append(write.segment, &write.bytes)?;
            if write.sync { disk.sync(write.segment) } else { Ok(()) }
        }
        WriteKind::Replace { other } => {
            disk.replace(write.segment, &write.bytes)?;
            disk.sync(write.segment)?;
            let before = (write.segment + 1) % SEGMENTS;
            disk.replace(before, other)?;
            disk.sync(before)
        }
    }
}

/// Reads both segments, for [`recover`](crate::recover).
///
/// # Errors
/// Those of the device.
pub fn read(disk: &mut impl Disk) -> io::Result<[Vec<u8>; SEGMENTS]> {
    Ok([disk.read(0)?, disk.read(1)?])
}
