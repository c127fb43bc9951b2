//! Sherman: an ordered key-value index on disaggregated memory.
//!
//! It is a B+Tree whose nodes live in the memory of passive memory servers. Compute servers read and change
//! the nodes with one-sided verbs only. It follows the SIGMOD'22 paper of the same name.
//!
//! [`Cluster::open`] joins a cluster, or creates one inside this process. [`Cluster::tree`] opens or creates
//! a [`Tree`]. A tree has three faces with the same operations. Names follow `BTreeMap`.
//!
//! | face | for | an operation is |
//! |---|---|---|
//! | [`Client`] | one thread, the simplest | a call that blocks |
//! | [`Session`] | one thread with many operations in flight | a future, run by [`Session::run`] |
//! | [`Handle`] | any number of threads and tasks, also on tokio | a future, awaited on any executor |
//!
//! A client blocks:
//!
//! ```
//! let cluster = sherman::Cluster::open("embedded:?servers=2&memory=64MiB")?;
//! let orders = cluster.tree::<u64, u64>("orders")?; // opens or creates
//! let client = orders.client()?; // one per thread
//! assert_eq!(client.insert(7, 700)?, None);
//! assert_eq!(client.get(7)?, Some(700));
//! for entry in client.range(0..100).rev() {
//!     let (key, value) = entry?;
//!     assert_eq!((key, value), (7, 700));
//! }
//! client.update(7, |value| value.map(|value| value + 1))?;
//! assert_eq!(client.remove(&7)?, Some(701));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A session has many operations in flight on one thread. An operation starts with the call:
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
//! A handle is shared by threads and tasks. Here too an operation starts with the call:
//!
//! ```
//! # let cluster = sherman::Cluster::open("embedded:?memory=64MiB")?;
//! # let orders = cluster.tree::<u64, u64>("orders")?;
//! # let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
//! let handle = orders.handle()?;
//! # runtime.block_on(async {
//! let tasks = [1, 2, 3].map(|key| tokio::spawn(handle.insert(key, key * 10)));
//! for task in tasks {
//!     assert_eq!(task.await??, None);
//! }
//! let mut entries = handle.range(2..);
//! assert_eq!(entries.next().await.transpose()?, Some((2, 20)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - **One key**: [`get`](Client::get), [`insert`](Client::insert), [`remove`](Client::remove),
//!   [`contains_key`](Client::contains_key).
//! - **Changes that depend on the value**: [`insert_if_absent`](Client::insert_if_absent),
//!   [`compare_exchange`](Client::compare_exchange), [`update`](Client::update).
//! - **Many keys**: [`get_many`](Client::get_many), [`insert_many`](Client::insert_many),
//!   [`remove_many`](Client::remove_many). They fail with [`BatchError`].
//! - **In order**: [`range`](Client::range) and [`prefix`](Client::prefix), which return [`Entries`];
//!   [`first`](Client::first), [`last`](Client::last), [`next_after`](Client::next_after),
//!   [`next_before`](Client::next_before).
//! - **The whole tree**: [`len`](Client::len), [`is_empty`](Client::is_empty), [`clear`](Client::clear),
//!   [`check`](Client::check), [`Tree::bulk_load`].
//!
//! Operations fail with [`Error`], and opening a cluster with [`OpenError`].
//!
//! # Keys and values
//!
//! Both have a fixed size. Keys in their own order are integers, tuples, byte arrays, [`ShortBytes`] for
//! strings up to a length, [`Total`] for floats, and structs by [`record!`]. See [`Key`] and [`Value`]. They
//! are passed by value or reference ([`Arg`]). A [`RawTree`] has byte strings whose sizes are known only at
//! run time.
//!
//! # Guarantees
//!
//! - An operation on one key is linearizable for all callers on all hosts.
//! - A range is not a snapshot. It never misses a key that is present throughout, and never returns a key
//!   twice ([`Entries`]).
//! - A batch is not atomic. A bulk load is.
//! - After an error nothing was changed, unless the error is [`Error::OutcomeUnknown`] or
//!   [`Error::SessionDropped`], or the operation documents something else.
//! - An operation waits for other clients no longer than its deadline: the cluster's
//!   [timeout](ClusterOptions::timeout) or that of [`within`](Client::within).
//! - Dropping a future never leaves an operation half done.
//!
//! # When a compute server dies
//!
//! Other compute servers notice it when its lease expires (URL parameter `lease`, three seconds). They finish
//! or undo its unfinished changes, free its locks and take over its memory, while all others keep working:
//! see [Membership](Cluster#membership). A thread that panics is not a death: the process's other threads go
//! on.
//!
//! # When a connection breaks
//!
//! The compute server's *identity* ends when a connection breaks, when a memory server restarts, or when the
//! process pauses for longer than its lease. Nothing else ends: the [`Cluster`] [joins
//! again](Cluster#when-its-identity-ends) automatically, and operations go on.
//!
//! # When a memory server is gone
//!
//! Operations that need the server wait until it is back, or until their deadline. Then they fail with
//! [`Error::NotRejoined`], which names the server. Clients never declare a server lost. An operator does, by
//! [`Admin::declare_lost`].
//!
//! Server 0 holds the root words, the catalog and the membership: it is a single point of failure.
#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
mod admin;
mod any;
mod batch;
mod builder;
mod bulk;
mod catalog;
mod client;
mod cluster;
mod codec;
mod error;
mod event;
mod exchange;
mod handle;
#[cfg(target_os = "linux")]
mod hosts;
mod identity;
mod keeper;
mod local_hosts;
mod many;
mod members;
mod mend;
mod metrics;
mod operations;
mod ops;
mod outlined;
mod range;
mod repeat;
mod seat;
mod session;
mod stats;
mod tree;
mod tree_options;
mod url;
mod within;

#[cfg(target_os = "linux")]
pub use admin::{Admin, FoundServer, ServerStatus};
pub use any::{AnyEndpoint, AnyFabric};
pub use batch::BatchError;
pub use builder::EmbeddedBuilder;
#[cfg(target_os = "linux")]
pub use builder::ServersBuilder;
pub use bulk::BulkOptions;
pub use catalog::TreeDescription;
pub use client::{Client, RawClient};
pub use cluster::{Cluster, ClusterOptions, ServerUsage};
pub use codec::{Arg, Key, PrefixKey, ShortBytes, ShortLayout, Stored, TooLong, Total, TreeValue, Value};
pub use error::OpenError;
pub use event::Event;
pub use exchange::Exchange;
pub use handle::{Handle, HandleOperation, HandleOptions, RawHandle};
pub use hosts::{HostStatus, Hosts, VolumeStatus};
pub use local_hosts::LocalHosts;
pub use members::Member;
pub use operations::Started;
#[doc(hidden)]
pub use outlined::compile_operations;
pub use range::{
    Entries, HandleRange, KeyRange, Range, RawEntry, RawEntryRef, RawHandleRange, RawRange, RawSessionRange,
    SessionRange,
};
pub use session::{Operation, RawSession, Session};
#[cfg(target_os = "linux")]
pub use sherman_control::JoinError;
pub use sherman_core::node::ShapeError;
pub use sherman_core::session::MAX_IN_FLIGHT;
pub use sherman_core::{Audit, Finding, Part, Places};
pub use sherman_core::{
    Broken, Cause, Check, Error, Format, Level, Participation, Recovery, Techniques, Walk,
};
pub use sherman_embedded::{Atomicity, EmbeddedError};
pub use sherman_fabric::control::Spreading;
pub use sherman_fabric::control::{ComputeId, Standing, TreeInfo, TreeSpec};
pub use sherman_fabric::group::{CopyMaking, CopyProgress, CopyWork};
pub use sherman_fabric::stats::{HotWord, RefusedCount, ServerStats};
pub use sherman_fabric::{GlobalAddress, Refusal, Space, Verdict};
pub use sherman_fabric::{TreeTypes, TypeName};
pub use sherman_layout::{LaneWidth, ReleaseMode};
pub use sherman_metrics::MetricsListener;
#[cfg(target_os = "linux")]
pub use sherman_shm::JoinShmError;
#[cfg(all(feature = "verbs", target_os = "linux"))]
pub use sherman_verbs::VerbsJoinError;
pub use stats::{KindStats, OpKind, Stats};
pub use tree::{RawTree, Tree};
pub use tree_options::{CacheUsage, TreeOptions};
pub use within::Within;
