//! The client's side of the soft NIC: lists in frames, on the connections of the control plane.
//!
//! **Life of a list.** `post` checks the list against the protocol's limits, gives it a ticket and puts it
//! into its connection's queue. The ticket is the frame's tag. If nothing else is in flight there, `post`
//! encodes and sends the list at once. Otherwise the next `progress` sends it with all others, in one send.
//! It leaves sooner if many lists have gathered, a ticket is forgotten or the endpoint is dropped.
//!
//! A list is encoded only while the connection takes its bytes. So a slow server's queue holds lists, which
//! are the caller's memory, and no copies. `progress` receives into one buffer per connection, copies the
//! data of READs into their lists and wakes their tasks, in order.

pub mod lists;

use sherman_control::{ControlEndpoint, ControlFabric};

pub use lists::SocketLists;

/// One compute server's access to a cluster, over sockets.
pub type SoftNicFabric = ControlFabric<SocketLists>;

/// A thread's endpoint, over sockets.
pub type SoftNicEndpoint = ControlEndpoint<SocketLists>;
