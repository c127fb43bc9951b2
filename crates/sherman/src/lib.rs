//! Sherman: an ordered key-value index on disaggregated memory.
//!
//! A B+Tree whose nodes live in the memory of passive memory servers and are read and changed by compute servers through
//! one-sided verbs alone, after the SIGMOD'22 paper of the same name.
//!
//! ```
//! let cluster = sherman::Cluster::open("embedded:?servers=2&memory=64MiB")?;
//! let orders = cluster.tree::<u64, u64>("orders")?; // opens or creates
//! let client = orders.client()?; // one per thread
//! assert_eq!(client.insert(7, 700)?, None);
//! assert_eq!(client.insert(7, 701)?, Some(700));
//! assert_eq!(client.get(7)?, Some(701));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Three ways to call
//!
//! All three have the same operations, named as `BTreeMap`'s where it has them: `get`, `insert`, `remove`, `range`, `first`,
//! `last`, and for changes that depend on what is there `insert_if_absent`, `compare_exchange` and `update`; batches by
//! `get_many`, `insert_many` and `remove_many`.
//!
//! | | for | an operation is |
//! |---|---|---|
//! | [`Client`] | one thread, the simplest | a call that blocks |
//! | [`Session`] | one thread with many operations in flight | a future, run by [`Session::run`] |
//! | [`Handle`] | any number of threads and tasks, tokio among them | a future, run by whoever awaits it |
//!
//! Many operations in flight on one thread:
//!
//! ```
//! # let cluster = sherman::Cluster::open("embedded:?memory=64MiB")?;
//! # let orders = cluster.tree::<u64, u64>("orders")?;
//! let session = orders.session()?;
//! let (first, second) = (session.insert(1, 10), session.insert(2, 20));
//! session.run(async {
//!     first.await?;
//!     second.await?;
//!     assert_eq!(session.get(2).await?, Some(20));
//!     Ok::<(), sherman::Error>(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Keys and values
//!
//! Both have a fixed size. Integers, tuples, byte arrays, [`ShortBytes`] for strings up to a length, [`Total`] for floats and
//! structs by [`record!`] are keys in their own order; see [`Key`] and [`Value`]. The `Raw` types work on byte strings whose
//! sizes are learnt at run time.
//!
//! # What holds
//!
//! - An operation on one key is linearizable, whoever calls from wherever.
//! - A range is not a snapshot; it never misses a key that is there throughout, and gives none twice ([`Range`]).
//! - A batch is not atomic. A bulk load is.
//! - An error says what was changed: nothing, unless it is [`Error::OutcomeUnknown`] or [`Error::SessionDropped`], or the
//!   operation says otherwise.
//! - An operation waits for others no longer than its deadline: the cluster's [timeout](ClusterOptions::timeout) or that
//!   of [`within`](Client::within).
//! - Dropping a future never leaves an operation half done.
//!
//! # When a compute server dies
//!
//! Others notice when its lease runs out (URL parameter `lease`, three seconds), finish or undo what it was at, free its locks and
//! take over its memory, while everyone works on: see [Membership](Cluster#membership). A thread that panics is not a death: the
//! process's other threads go on.
//!
//! # When a connection breaks
//!
//! A connection that breaks, a memory server that restarts, or a pause of the process that is longer than its lease ends the compute server's
//! *identity*, and nothing else: the [`Cluster`] [joins again](Cluster#when-its-identity-ends) by itself, and operations go on.
//!
//! # When a memory server is gone
//!
//! Operations that need it wait until it is back, or until their deadline: then they fail with [`Error::NotRejoined`], which names the server. No
//! client decides that a server is lost. An operator does, by [`Admin::declare_lost`].
//!
//! Server 0 holds the root words, the catalog and the membership: it is a single point of failure.
#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
mod admin;
mod any;
mod bulk;
mod catalog;
mod client;
mod cluster;
mod codec;
mod error;
mod event;
mod exchange;
mod handle;
mod identity;
mod keeper;
mod many;
mod members;
mod mend;
mod metrics;
mod operations;
mod ops;
mod range;
mod raw;
mod repeat;
mod seat;
mod session;
mod stats;
mod tree;
mod url;
mod within;

#[cfg(target_os = "linux")]
pub use admin::{Admin, FoundServer, ServerStatus};
pub use any::{AnyEndpoint, AnyFabric};
pub use bulk::BulkOptions;
pub use catalog::TreeDescription;
pub use client::{Client, RawClient};
pub use cluster::{Cluster, ClusterOptions, ServerUsage};
pub use codec::{Key, ShortBytes, ShortLayout, TooLong, Total, Value};
pub use error::OpenError;
pub use event::Event;
pub use exchange::Exchange;
pub use handle::{Handle, HandleOperation, HandleOptions, RawHandle};
pub use members::Member;
pub use range::{HandleRange, Range, RawEntry, RawEntryRef, RawHandleRange, RawRange, RawSessionRange, SessionRange};
pub use raw::{CacheUsage, RawTree, TreeOptions};
pub use session::{RawSession, Session};
pub use sherman_core::node::ShapeError;
pub use sherman_core::session::{MAX_IN_FLIGHT, Operation};
pub use sherman_core::{Audit, Finding, Part, Places};
pub use sherman_core::{Broken, Cause, Check, Error, Format, Level, Participation, Recovery, Techniques, Walk};
pub use sherman_embedded::EmbeddedError;
pub use sherman_fabric::control::{ClientId, Standing, TreeInfo, TreeSpec};
pub use sherman_fabric::stats::{HotWord, RefusedCount, ServerStats};
pub use sherman_fabric::{GlobalAddress, Refusal, Verdict};
#[cfg(target_os = "linux")]
pub use sherman_shm::JoinShmError;
#[cfg(target_os = "linux")]
pub use sherman_soft_nic::JoinError;
pub use sherman_soft_nic::metrics::MetricsListener;
#[cfg(all(feature = "verbs", target_os = "linux"))]
pub use sherman_verbs::VerbsJoinError;
pub use stats::{KindStats, OpKind, Stats};
pub use tree::Tree;
pub use url::{parse_bytes, parse_time};
pub use within::Within;
