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
//! Server 0 holds the root words, the catalog and the membership: it is a single point of failure.
#![forbid(unsafe_code)]

mod bulk;
mod catalog;
mod client;
mod cluster;
mod codec;
mod error;
mod exchange;
mod handle;
mod many;
mod operations;
mod ops;
mod range;
mod raw;
mod session;
mod stats;
mod tree;
mod url;
mod within;

pub use bulk::BulkOptions;
pub use catalog::TreeDescription;
pub use client::{Client, RawClient};
pub use cluster::{Cluster, ClusterOptions, ServerUsage};
pub use codec::{Key, ShortBytes, TooLong, Total, Value};
pub use error::OpenError;
pub use exchange::Exchange;
pub use handle::{Handle, HandleOperation, HandleOptions, RawHandle};
pub use range::{HandleRange, Range, RawEntry, RawEntryRef, RawHandleRange, RawRange, RawSessionRange, SessionRange};
pub use raw::{CacheUsage, RawTree, TreeOptions};
pub use session::{RawSession, Session};
pub use sherman_core::node::ShapeError;
pub use sherman_core::session::{MAX_IN_FLIGHT, Operation};
pub use sherman_core::{Broken, Cause, Check, Error, Format, Level, Techniques, Walk};
pub use sherman_embedded::EmbeddedError;
pub use sherman_fabric::GlobalAddress;
pub use sherman_fabric::control::{TreeInfo, TreeSpec};
pub use stats::{KindStats, OpKind, Stats};
pub use tree::Tree;
pub use url::parse_bytes;
pub use within::Within;
