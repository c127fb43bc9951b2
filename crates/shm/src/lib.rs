//! Memory servers whose memory their clients map: several processes of one host (`docs/FABRIC.md`).
//!
//! A memory server is a process, as with the soft NIC, and joining, leases, fences and every request go through the soft NIC's
//! Unix sockets unchanged. But its memory lies in a file that has no name (`memfd`), which a client receives through that socket
//! and maps. Verbs are then loads, stores and compare-exchanges of the client's own threads, finished inside `post`; the server's process is not on their path.
//!
//! | module | what |
//! |---|---|
//! | [`segment`] | the file: what lies where in it |
//! | `slot` | what one link keeps there: its turn, and what it takes to mend the line it holds |
//! | `hold` | how lines are taken, by a client's thread and by the server's own |
//! | `words` | what is said when a link is attached |
//! | [`path`] | the server's side: links, fences (F6), deaths |
//! | `peer` | which process is at the other end of a socket |
//! | `table` | the links there are, and the processes they belong to |
//! | [`fabric`], [`endpoint`] | the client's side |
//! | `watch` | how a client learns that a server was killed |
//! | [`error`](mod@error) | why a cluster cannot be served or joined |
//!
//! **Death.** A process may die anywhere, between two stores to one line. What it held is named by the line's own word, and
//! what was in it is in the process's slot; the server's process, which the kernel tells of the death, puts it back. So a line is changed
//! whole or not at all (`caps.crash_unit` is that of `embedded`), and server 0 ends the lease of the dead at once.
//!
//! **A process that stops** and does not die (a debugger, `SIGSTOP`) with a line held stops whoever needs that line. Those wait
//! for a bounded time and then say so: [`OwnerStalled`](sherman_fabric::FabricError::OwnerStalled).
//!
//! **Trust.** Whoever may map the segment can write all of it. The sockets have mode 0600, and the secret, if there is one, must
//! be known; beyond that, processes of one user trust each other, as far as not to write nonsense on purpose. What the server
//! itself takes from the segment it checks.
//!
//! `unsafe` is in `peer` alone, one question to the kernel: mappings and copies are those of `sherman-fabric` and `sherman-embedded`.
#![deny(unsafe_code)]
#![cfg(target_os = "linux")]

pub mod endpoint;
pub mod error;
pub mod fabric;
mod hold;
pub mod path;
mod peer;
pub mod segment;
mod slot;
mod table;
mod watch;
mod words;

pub use endpoint::ShmEndpoint;
pub use error::{JoinShmError, ServeShmError};
pub use fabric::ShmFabric;
pub use path::{ShmOptions, ShmPath};

#[cfg(test)]
mod tests;
