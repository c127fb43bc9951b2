//! The layout of a memory server's memory: where everything lies, and the bytes of every table entry.
//!
//! Memory servers write these bytes, and clients READ them, so both use this crate. It has no state and does
//! no I/O: pure codecs and arithmetic. `docs/LAYOUT.md` shows every byte.
//!
//! | module | what |
//! |---|---|
//! | [`geometry`] | where everything lies, and the arithmetic clients need: lanes, root words, table entries |
//! | [`superblock`] | the first 256 bytes: identity, version, features, geometry, checksum |
//! | [`format`](mod@format) | options of a new server, and the geometry that follows from them |
//! | [`chunk`], [`span`], [`client`] | entries of the tables that every server has |
//! | [`control`] | where everything lies in the memory of the control state |
//! | [`member`], [`catalog`] | entries of its tables |
//! | [`units`] | parses sizes and times with units, for options of servers and clients |
//! | [`bytes`] | little-endian fields at constant offsets |
//! | [`testing`] | a plain memory for tests and simulators |

#![forbid(unsafe_code)]

pub mod bytes;
pub mod catalog;
pub mod chunk;
pub mod client;
pub mod control;
pub mod format;
pub mod geometry;
pub mod member;
pub mod span;
pub mod superblock;
pub mod testing;
pub mod units;

pub use chunk::ChunkEntry;
pub use client::ClientWord;
pub use control::{ControlBlock, ControlGeometry};
pub use format::{FormatError, FormatOptions, LockOptions};
pub use geometry::{Geometry, LaneWidth, LockGeometry, ReleaseMode};
pub use member::{MemberEntry, MemberState};
pub use span::{HINT_FREE, SpanWord};
pub use superblock::{SUPERBLOCK_BYTES, Superblock, SuperblockError};
