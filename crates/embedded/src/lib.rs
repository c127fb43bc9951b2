//! Memory servers inside the process: Sherman's default backend (`docs/FABRIC.md`).
//!
//! ```
//! use sherman_embedded::{EmbeddedCluster, EmbeddedOptions};
//! use sherman_executor::block_on;
//! use sherman_fabric::{Counters, Endpoint, Space, execute};
//!
//! let cluster = EmbeddedCluster::new(EmbeddedOptions { memory_bytes: 64 << 20, ..Default::default() })?;
//! let endpoint = cluster.join()?.endpoint();
//! let mut list = endpoint.list(0);
//! list.write(Space::Host, 32 << 20, b"one line");
//! let read = list.read(Space::Host, 32 << 20, 8);
//! let list = block_on(&endpoint, execute(&endpoint, list, &Counters::default()))?;
//! assert_eq!(list.bytes(read), b"one line");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`cluster`] | [`EmbeddedCluster`], its options, and [`EmbeddedFabric`]: one compute server's identity |
//! | [`endpoint`] | [`EmbeddedEndpoint`]: verbs finish inside `post` |
//! | [`replicated`] | [`ReplicatedCluster`]: hosts that keep volumes in two copies, die and come |
//! | `membership` | what endpoints need of their cluster |
//! | `calls` | control requests, fences among them |
//! | `verbs` | executes a work list |
//! | `halt` | a halted compute server, for tests and tools |
//! | `gate` | fencing (F6) and when a WRITE counts as completed |
//! | [`host`] | one memory server for many connections: the base of a server that offers verbs over a network |
//! | [`shared`] | memory that several processes map |
//! | `server` | a memory, and the state machine that keeps its superblock |
//! | [`memory`] | checked verbs on one server's memory |
//! | [`line`](mod@line) | host memory: a seqlock per 64-byte line (F1) |
//! | `on_chip` | on-chip memory: words of lock lanes (F4) |
//! | [`file`](mod@file) | memory in a file, which outlives the process |
//! | `journal` | the undo journal of a file: the death of the process tears no line |
//! | [`copy`](mod@copy) | copies that may race |
//! | [`predecessor`] | waits for a process that is ending |
//!
//! `unsafe` is in `copy` (assembly and prefetches), where `line` calls it, and in one marker impl in `gate`.
//! Everything else, the seqlock included, is safe code over atomics.
//!
//! **Tests.** `cargo test -p sherman-embedded` runs the fabric contract F1–F7 on threads
//! (`tests/embedded/contract.rs`) and stresses single rules (`lines.rs`, `lanes.rs`, `fences.rs`,
//! `halts.rs`). `file/kill_tests.rs` kills a process that writes to a file 120 times and looks for torn
//! lines. With `SHERMAN_KILL_NO_JOURNAL=1` it finds some, and fails. Under Miri the portable copy is used,
//! counts shrink and the contract is left out; it takes some minutes. AddressSanitizer sees everything except
//! the assembly, whose bounds the callers check.
//!
//! ```sh
//! MIRIFLAGS=-Zmiri-disable-isolation cargo +nightly miri test -p sherman-embedded --tests
//! ASAN_OPTIONS=allocator_may_return_null=1 RUSTFLAGS=-Zsanitizer=address \
//!     cargo +nightly test -p sherman-embedded --tests --target x86_64-unknown-linux-gnu
//! cargo run --release -p sherman-embedded -F measure --example copy         # what verbs cost
//! cargo run --release -p sherman-embedded -F measure --example round_trips  # the same, on cold memory too
//! ```

mod calls;
pub mod cluster;
mod control_memory;
pub mod copy;
pub mod endpoint;
pub mod error;
pub mod file;
mod gate;
mod halt;
pub mod host;
mod journal;
pub mod line;
mod membership;
pub mod memory;
mod mirror;
mod on_chip;
pub mod predecessor;
pub mod replicated;
mod server;
pub mod shared;
mod verbs;

pub use cluster::{EmbeddedCluster, EmbeddedFabric, EmbeddedOptions, MAX_SERVERS};
pub use endpoint::EmbeddedEndpoint;
pub use error::EmbeddedError;
pub use line::{Atomicity, READ_WINDOW};
pub use replicated::{ReplicatedCluster, ReplicatedFabric, ReplicatedOptions};
