//! The fabric: one-sided verbs as Sherman sees them.
//!
//! A client thread owns an [`Endpoint`]. It fills a [`WorkList`] with verbs for *one* memory server, posts it
//! and polls the ticket: one **round trip**. The contract F1–F7 states what `core` may assume about the order
//! and atomicity of those verbs. `docs/FABRIC.md` has its text, all code cites its rules by number, and
//! `sherman-conformance` tests any backend against it.
//!
//! | module | what |
//! |---|---|
//! | [`address`] | [`GlobalAddress`] (16-bit server, 48-bit offset) and [`Space`] |
//! | [`work`] | [`WorkList`]: verbs, their bytes and their results in one reusable buffer |
//! | [`endpoint`] | the [`Endpoint`] and [`Fabric`] traits, [`Ticket`], the async helpers [`execute`] and [`call`] |
//! | [`copies`] | the copies of a volume, and how far a list for several of them got |
//! | [`caps`] | the capabilities of a backend: units, lanes, fencing |
//! | [`counters`] | round trips, verbs and bytes, counted the same for every backend |
//! | [`control`] | the few requests that CPUs answer, and their [`Peer`] |
//! | [`calls`] | those requests, each with the type of its reply |
//! | [`tree_types`] | the names of a tree's key and value types |
//! | [`stats`] | the counters of a memory server |
//! | [`tickets`] | tables of what is in flight, by ticket, for backends |
//! | [`memory`] | a memory server's access to its own memory |
//! | [`named!`], [`errors!`] | enums whose values have names or messages |

#![forbid(unsafe_code)]

pub mod address;
pub mod calls;
pub mod caps;
pub mod control;
pub mod copies;
pub mod counters;
pub mod endpoint;
pub mod error;
mod errors;
pub mod group;
pub mod memory;
mod named;
pub mod stats;
pub mod tickets;
pub mod tree_types;
pub mod work;

pub use address::{GlobalAddress, Space};
pub use calls::Call;
pub use caps::{Caps, FenceMode};
pub use control::{ComputeId, Peer, Refusal, Request, RequestId, Response, Seen, ServerInfo, Verdict};
pub use copies::{Progress, Reach, Role, Roles};
pub use counters::{Counters, Tally};
pub use endpoint::{Clock, Endpoint, Fabric, Ticket};
pub use endpoint::{call, count_now, count_read, execute, execute_now, read_now, sleep_until, yield_now};
pub use error::FabricError;
pub use memory::Memory;
pub use stats::ServerStats;
pub use tree_types::{TreeTypes, TypeName};
pub use work::{Verb, VerbId, WorkList};
