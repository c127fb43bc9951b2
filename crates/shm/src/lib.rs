//! Memory servers whose clients map their memory: several processes of one host (`docs/FABRIC.md`).
//!
//! A memory server is a process, as with the soft NIC. Joining, leases, fences and all requests use the soft
//! NIC's Unix sockets unchanged. But the server's memory lies in a file without a name (`memfd`). A client
//! receives this file through the socket and maps it. Its verbs are loads, stores and compare-exchanges of
//! its own threads, finished inside `post`; the server's process is not on their path.
//!
//! A **link** connects one client thread to one server: a connection that stays open, and a slot in the
//! server's file.
//!
//! | module | what |
//! |---|---|
//! | [`segment`] | the file: what lies where in it |
//! | `slot` | what one link keeps there: its turn, and the data to repair the line it holds |
//! | `hold` | how lines are taken, by a client's thread and by the server's own |
//! | `words` | the messages that attach a link |
//! | [`path`] | the server's side: links, fences (F6), deaths |
//! | `peer` | which process is at the other end of a socket |
//! | `table` | the existing links, and the processes they belong to |
//! | [`fabric`], [`endpoint`] | the client's side |
//! | `watch` | how a client learns that a server was killed |
//! | [`error`](mod@error) | why a cluster cannot be served or joined |
//!
//! **Death.** A process may die anywhere, even between two stores to one line. The line's sequence word names
//! its holder, and the holder's slot keeps the old content of the line. The kernel reports the death to the
//! server's process, which puts the old content back. So a line changes as a whole or not at all
//! (`caps.crash_unit` is that of `embedded`). Server 0 ends the lease of the dead client at once.
//!
//! **A process that stops** without dying (a debugger, `SIGSTOP`) while it holds a line stops every client
//! that needs the line. Those clients wait for a bounded time, then report
//! [`OwnerStalled`](sherman_fabric::FabricError::OwnerStalled).
//!
//! **Trust.** A process that may map the segment can write all of it. The sockets have mode 0600, and a
//! client must know the secret, if there is one. Beyond that, processes of one user trust each other not to
//! write nonsense on purpose. The server checks everything that it reads from the segment.
//!
//! Only `peer` contains `unsafe`, for one question to the kernel. Mappings and copies are those of
//! `sherman-fabric` and `sherman-embedded`.
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
