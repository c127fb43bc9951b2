//! A *host*: a memory server process of a replicated cluster.
//!
//! A host serves copies of volumes to clients, as any memory server does. Beside that it has a part of the
//! control state: a node of the group that all hosts form (`docs/CONSENSUS.md`). One host leads the group.
//! The leader answers requests to control, and declares hosts lost that are silent. Every host carries out
//! the table of volumes: it makes copies, promotes backups, and drops copies that no volume names any more
//! (`docs/REPLICATION.md`).
//!
//! ```no_run
//! use sherman_host::{ClusterSettings, HostCluster, HostOptions, RunningHost};
//! # use sherman_host::{HostError, Listen};
//! # fn start(settings: ClusterSettings, first: Listen, second: Listen) -> Result<(), HostError> {
//! // The first host makes the cluster, the others join it.
//! let cluster = HostCluster::New(settings);
//! let first_host = RunningHost::start(HostOptions::new(vec![first.clone()], 1 << 30, cluster))?;
//! let cluster = HostCluster::Join { seeds: vec![first.into()], cluster: 0 };
//! let second_host = RunningHost::start(HostOptions::new(vec![second], 1 << 30, cluster))?;
//! # Ok(())
//! # }
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`options`] | [`HostOptions`]: where to listen, how much memory, which cluster |
//! | [`error`] | [`HostError`]: why a host cannot be started |
//! | [`running`] | [`RunningHost`]: starts and ends a host |
//! | `join` | asks other hosts for a place in their cluster |
//! | `address` | addresses as text |
//! | `plane` | [`Plane`]: what the sockets ask; passes everything to the driver |
//! | `driver` | the thread that owns the host's node of the group ([`sherman_group::Node`]) |
//! | `peers` | connections to other hosts, a thread each |
//! | `alive` | tells the leader that this host is alive |
//! | `copies` | the thread that carries out tables |
//! | [`memory`] | [`CopyMaker`]: where the memory of copies comes from |
//! | `copier` | makes a lost copy again on another host, a thread for each |
//! | `mirror` | the way from a primary to the other copies of its volume, a thread each |
//! | `folder` | what outlives the process: identity, log, memory |
//! | `kept` | how a process goes on as a host whose process ended |
//! | `end` | how a host ends |
//! | `clock` | a clock that runs while the machine sleeps |
//!
//! **Threads.** Besides the threads of the soft NIC a host has `sherman-group` (the driver),
//! `sherman-copies`, `sherman-alive`, one `sherman-peer` for each other host, and one `sherman-mirror` for
//! each primary here whose volume has other copies. There is one `sherman-copier` for each copy that is being
//! made from a primary here. No thread waits for the lock of another one for longer than a few instructions,
//! with one exception. At the end of a copy, the copier compares the tables of the volume under the lock of
//! the memory. Queues between threads are bounded. A full queue drops messages of the group, which the group
//! repeats, and refuses requests, which clients repeat.
//!
//! **What must hold.**
//!
//! - **Nothing is answered before it is committed.** Only the requests `Cluster` and `Alive` are answered
//!   from one host's memory.
//! - **An epoch is published when it is carried out.** `Plane::epoch` returns an epoch when every copy that
//!   this host has by its table is ready. Clients are not served before.
//! - **A host has one incarnation.** It registers once in its life. When it learns that it was declared lost,
//!   it stops. Started again, it registers anew with empty memory (I2), under a new number in the group.
//! - **A process goes on as a host only with its memory and its log** (I4). It carries out no table before
//!   the state knows it: until then it may have been declared lost.
//!
//! **What may go wrong.** If a majority of the voters is gone, no host leads. Clients then read and write
//! until their leases run out, and the cluster is lost. A pause of the leader's process does not make other
//! hosts look silent: the leader begins to listen anew after a pause.
#![forbid(unsafe_code)]

mod address;
mod alive;
mod clock;
mod copier;
mod copies;
mod driver;
mod end;
pub mod error;
mod folder;
mod join;
mod kept;
pub mod memory;
mod mirror;
pub mod options;
mod peers;
mod plane;
pub mod running;

pub use address::parse_address;
pub use end::Ended;
pub use error::HostError;
pub use folder::FolderProblem;
pub use kept::{KeptHost, peek};
pub use memory::{CopyMaker, PrivateMemory};
pub use options::{HostCluster, HostOptions, MOST_HOSTS};
pub use plane::Plane;
pub use running::{HostHandle, RunningHost};
pub use sherman_group::Machine;
pub use sherman_memory_server::cluster::ClusterSettings;
pub use sherman_soft_nic::server::{Limits, Listen, ServedMemory};
