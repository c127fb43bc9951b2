//! What the sockets of a host ask of its part of the control state.
//!
//! A host is a memory server process of a cluster with a group (`docs/CONSENSUS.md`). Its sockets serve the
//! copies of volumes themselves. They pass every request to control, and every message of the group, to the
//! host's [`ControlPlane`].

use sherman_fabric::group::Store;
use sherman_fabric::{ComputeId, FabricError, Request, Response};
use std::fmt;

/// Takes the answer to a request.
pub type Answer = Box<dyn FnOnce(Result<Response, FabricError>) + Send>;

/// The sender of a request to control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// A client without an id, or a process that wants to become a host.
    Nobody,
    /// An operator.
    Operator,
    /// A member.
    Member {
        /// Its id.
        client: ComputeId,
        /// The incarnation of the id.
        incarnation: u32,
    },
}

/// The way from a primary to the other copies of its volume (T5).
pub trait Mirror: fmt::Debug + Send + Sync {
    /// Sends stores of the primary's CPU, behind all that were sent before, and perhaps a client that the
    /// primary has fenced. `answer` is called once: when all other copies have made the stores and execute
    /// nothing more of that client, or with the reason why they never will. It does not block.
    fn send(&self, stores: Vec<Store>, fenced: Option<ComputeId>, answer: Answer);
}

/// A host's part of the control state.
pub trait ControlPlane: fmt::Debug + Send + Sync {
    /// Asks the control state. `answer` is called exactly once, on any thread, perhaps before this returns.
    /// It does not block.
    fn ask(&self, asker: Asker, request: Request, answer: Answer);

    /// Takes a message of the group from another host. It does not block.
    fn receive(&self, message: &[u8]);

    /// The epoch of the newest table that this host has carried out. It takes no lock: the caller may hold
    /// the lock of a copy.
    fn epoch(&self) -> u64;

    /// The cluster's identity; 0 while the host does not know it.
    fn cluster(&self) -> u64;

    /// The host's number.
    fn host(&self) -> u16;
}
