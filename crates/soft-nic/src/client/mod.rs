//! The client's side of the soft NIC: a compute server's identity, and its threads' endpoints.
//!
//! | module | what |
//! |---|---|
//! | [`options`] | where the servers are, and how long to wait for them |
//! | [`error`] | why a cluster cannot be joined |
//! | `fabric` | [`SoftNicFabric`]: joins, makes endpoints, leaves |
//! | `endpoint` | [`SoftNicEndpoint`]: the fabric's verbs and calls over connections |
//! | `station` | the connections of one endpoint and what is in flight on them |
//! | `line` | one connection: bytes out, bytes in, in order |
//! | `input` | received bytes, cut into frames |
//! | `flight` | lists and calls by ticket, and the pool of empty lists |
//! | `peers` | an identity and the servers it is known to: when it ends, and what is lost |
//! | [`admin`] | [`SoftNicAdmin`]: an operator, who needs no membership |
//! | `attach` | links of another data path |
//! | `connect` | a connection and its handshake |
//! | [`resolve`](mod@resolve) | names of hosts, looked up within a time limit |
//! | `stream` | sockets of either kind |
//! | `bell` | how a thread that sleeps on its sockets is woken by another |
//!
//! **Life of a list.** `post` checks it against the protocol's limits, gives it a ticket and puts it into its connection's
//! queue; the ticket is the frame's tag. If nothing else is in flight there it is encoded and sent at once; otherwise with all
//! others by the next `progress`, in one send, or sooner if many have gathered, a ticket is forgotten or the endpoint is
//! dropped. Its bytes are encoded only while the connection takes them, so a slow server's queue holds lists, which are the
//! caller's memory, and no copies. `progress` receives into one buffer per connection, copies what READs brought into their
//! lists and wakes their tasks, in order.
//!
//! **What may go wrong.** A connection that breaks, or on which a server is silent for longer than
//! [`JoinOptions::patience`], is given up for good: whatever is in flight on it took effect as a prefix (F7). Unless the server
//! says that it has fenced us, that is [`Disconnected`](sherman_fabric::FabricError::Disconnected) and the end of this
//! identity, which renews its lease no more (I40). It makes no difference whether the server still runs: a client never
//! concludes that a server is lost. [`ServerLost`](sherman_fabric::FabricError::ServerLost) is what the cluster has declared.

pub mod admin;
mod attach;
mod bell;
mod connect;
mod endpoint;
pub mod error;
mod fabric;
pub mod flight;
mod input;
mod line;
pub mod options;
mod peers;
pub mod resolve;
mod station;
mod stream;

pub use admin::{AdminError, SoftNicAdmin};
pub use attach::Attachment;
pub use connect::ConnectError;
pub use endpoint::SoftNicEndpoint;
pub use error::JoinError;
pub use fabric::SoftNicFabric;
pub use options::{Address, JoinOptions};
