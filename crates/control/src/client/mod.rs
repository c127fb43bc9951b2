//! The client's side: a compute server's identity, and its threads' connections.
//!
//! | module | what |
//! |---|---|
//! | [`options`] | where the servers are, and how long to wait for them |
//! | [`error`] | why a cluster cannot be joined |
//! | `fabric` | [`ControlFabric`]: joins, makes endpoints, leaves |
//! | `endpoint` | [`ControlEndpoint`]: calls, and perhaps lists, over connections |
//! | `connections` | the connections of one endpoint and what is in flight on them |
//! | [`connection`] | one connection: bytes out, bytes in, in order |
//! | [`lists`] | the lists on a connection, if a data path sends them in frames |
//! | `input` | received bytes, cut into frames |
//! | [`flight`] | lists and calls by ticket, and the pool of empty lists |
//! | `peers` | an identity and its servers: when it ends, and which servers are lost |
//! | [`admin`] | [`Operator`]: an operator, which needs no membership |
//! | `attach` | links of another data path |
//! | `group` | how a client joins a cluster of hosts |
//! | `link` | the way to control there: one thread, which finds the leader |
//! | `places` | where the leader may be |
//! | `inbox` | control's answers on their way to an endpoint |
//! | `connect` | a connection and its handshake |
//! | `peer_connection` | [`PeerConnection`]: a connection of a host, or of a process that wants to become one |
//! | `backoff` | the pauses of a client that a crowded server turned away |
//! | [`resolve`](mod@resolve) | host names, looked up within a time limit |
//! | `stream` | sockets of either kind |
//! | `notifier` | how another thread wakes a thread that sleeps on its sockets |
//!
//! **What may go wrong.** A connection may break, or its server may be silent for longer than
//! [`JoinOptions::patience`]. The client then gives the connection up permanently, and every list in flight
//! on it took effect as a prefix (F7). If the server does not say that it has fenced this client, the error
//! is [`Disconnected`](sherman_fabric::FabricError::Disconnected). It ends this identity, which no longer
//! renews its lease (I40).
//!
//! In a cluster of hosts, a connection to control that breaks does not end the identity: the client finds the
//! leader and asks again. A connection to a copy does, but the lease is renewed until the cluster has a table
//! without the copy (`docs/REPLICATION.md`, E2).
//!
//! It makes no difference whether the server still runs: a client never concludes that a server is lost.
//! [`ServerLost`](sherman_fabric::FabricError::ServerLost) means that the cluster has declared it lost.

pub mod admin;
mod attach;
mod backoff;
mod connect;
pub mod connection;
mod connections;
mod endpoint;
pub mod error;
mod fabric;
pub mod flight;
mod group;
mod inbox;
mod input;
mod link;
pub mod lists;
mod notifier;
pub mod options;
mod peer_connection;
mod peers;
mod places;
pub mod resolve;
mod stream;

pub use admin::{AdminError, Operator};
pub use attach::Attachment;
pub use connect::ConnectError;
pub use endpoint::ControlEndpoint;
pub use error::JoinError;
pub use fabric::ControlFabric;
pub use group::CopyPlan;
pub use lists::{Lists, NoLists};
pub use options::{Address, JoinOptions};
pub use peer_connection::PeerConnection;

#[cfg(test)]
mod group_tests;
