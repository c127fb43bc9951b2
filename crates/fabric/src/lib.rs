//! The fabric: one-sided verbs as Sherman sees them.
//!
//! A client thread owns an [`Endpoint`]. It fills a [`WorkList`] with verbs for *one* memory server, posts it and polls
//! the ticket: one **round trip**. What `core` may assume about the order and atomicity of those verbs is the contract
//! F1–F7, written out in `docs/FABRIC.md`, cited by number everywhere, and executed against any backend by
//! [`contract`].
//!
//! | module | what |
//! |---|---|
//! | [`address`] | [`GlobalAddress`] (16-bit server, 48-bit offset) and [`Space`] |
//! | [`work`] | [`WorkList`]: verbs, their bytes and their results in one reusable buffer |
//! | [`endpoint`] | the [`Endpoint`] and [`Fabric`] traits, [`Ticket`], the async sugar [`execute`] and [`call`] |
//! | [`caps`] | what a backend can do: units, lanes, fencing |
//! | [`counters`] | round trips, verbs and bytes, counted alike for every backend |
//! | [`control`] | the few requests a memory server's CPU answers |
//! | [`stats`] | what a memory server counts |
//! | [`memory`] | how the memory server reaches its own memory |
//! | [`prometheus`] | counters as the text that Prometheus reads |
//! | [`zeroed`] | large arrays that cost nothing until used, in huge pages |
//! | [`mapped`] | such an array in a file |
//! | [`contract`] | F1–F7 as a test suite |
//! | [`litmus`] | programs that count how often hardware breaks F1–F4 |
//!
//! `unsafe` is in [`zeroed`] and [`mapped`] alone: an allocation or a mapped file as a slice, and advice about its pages.

pub mod address;
pub mod caps;
pub mod contract;
pub mod control;
pub mod counters;
pub mod endpoint;
pub mod error;
pub mod litmus;
pub mod mapped;
pub mod memory;
pub mod prometheus;
pub mod stats;
pub mod work;
pub mod zeroed;

pub use address::{GlobalAddress, Space};
pub use caps::{Caps, FenceMode};
pub use control::{ClientId, Refusal, Request, Response, Seen, ServerInfo, Verdict};
pub use counters::{Counters, Tally};
pub use endpoint::{Clock, Endpoint, Fabric, Ticket, call, execute, sleep_until, yield_now};
pub use error::FabricError;
pub use memory::Memory;
pub use stats::ServerStats;
pub use work::{Verb, VerbId, WorkList};
