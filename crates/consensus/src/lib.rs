//! Sherman's control group: one state machine, replicated over up to five servers by Raft.
//!
//! The group holds what no single server may lose: members and leases, the catalog, the table of volumes. It
//! is never on the path of data. The hosts of a replicated cluster (`sherman-host`) form such a group.
//!
//! The crate is sans-IO and deterministic. A [`Group`] is one node. Its caller passes in the time, messages,
//! requests and finished writes, and takes out messages, writes and events. The same inputs give the same
//! outputs, so a test with a seeded scheduler can replay every run. `docs/CONSENSUS.md` says why Raft comes
//! from the `raft` crate, and what this crate adds to it.
//!
//! A single server is a group of one: it leads from its first call on, needs no ticks, and commits a command
//! when its disk has it.
//!
//! ```
//! use sherman_consensus::{Event, Group, MemoryDisk, Settings, Start, StateMachine, perform, read, recover};
//!
//! struct Sum(u8);
//!
//! impl StateMachine for Sum {
//!     type Answer = u8;
//!     fn apply(&mut self, _index: u64, command: &[u8]) -> u8 {
//!         self.0 = command.iter().fold(self.0, |sum, byte| sum.wrapping_add(*byte));
//!         self.0
//!     }
//!     fn snapshot(&self) -> Vec<u8> {
//!         vec![self.0]
//!     }
//!     fn restore(&mut self, snapshot: &[u8]) -> bool {
//!         snapshot.first().map(|sum| self.0 = *sum).is_some()
//!     }
//! }
//!
//! let mut disk = MemoryDisk::new();
//! let log = recover(&read(&mut disk)?)?;
//! let mut group = Group::open(Settings::new(1, 0), Sum(0), log, Start::NewGroup, 0)?;
//! let ticket = group.propose(vec![3, 4])?;
//! let mut answer = None;
//! loop {
//!     let output = group.take_output();
//!     for event in output.events {
//!         if let Event::Proposed { result: Ok(sum), .. } = event {
//!             answer = Some(sum);
//!         }
//!     }
//!     if output.writes.is_empty() {
//!         break;
//!     }
//!     for write in output.writes {
//!         perform(&mut disk, &write)?;
//!         group.persisted(write.number);
//!     }
//! }
//! assert_eq!((ticket, answer), (1, Some(7)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | what |
//! |---|---|
//! | `group` | [`Group`]: one node; requests, members, time, snapshots |
//! | `machine` | [`StateMachine`]: what the group replicates |
//! | `output` | [`Output`], [`Event`]: what a node asks of its caller and tells it |
//! | `log` | the log in memory, as Raft reads it |
//! | `journal` | the log as bytes on disk, and how a node reads it after a crash |
//! | `disk` | [`Disk`], [`MemoryDisk`], [`FileDisk`]: where these bytes lie |
//! | `wire` | messages as bytes |

#![forbid(unsafe_code)]

/// Lets a planted bug answer in place of the rest of this function.
#[cfg(feature = "mutants")]
macro_rules! seam {
    ($layer:ident::$($rule:tt)*) => {
        if let Some(broken) = crate::$layer::seam::$($rule)* {
            return broken;
        }
    };
}

/// No bug can be planted in this build.
#[cfg(not(feature = "mutants"))]
macro_rules! seam {
    ($($rule:tt)*) => {};
}

mod bytes;
mod disk;
mod error;
mod group;
mod journal;
mod log;
mod machine;
#[cfg(feature = "mutants")]
pub mod mutant;
mod output;
mod settings;
mod wire;

pub use disk::{Disk, FileDisk, MemoryDisk, SEGMENTS, Write, WriteKind, perform, read};
pub use error::{BadMessage, LogCorrupt, OpenError, Refused, Stopped};
pub use group::{Group, MAX_VOTERS, Start, Status};
pub use journal::{Recovered, recover, recover_kept};
pub use machine::StateMachine;
pub use output::{Change, Envelope, Event, Members, Output, Ticket, Unanswered};
pub use settings::Settings;

/// The number of a node, from 1.
pub type NodeId = u64;
