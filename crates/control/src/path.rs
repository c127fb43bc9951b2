//! Other ways to a server's memory than lists in frames: shared memory, a NIC.
//!
//! Such a **data path** shares a server's control plane. A client joins, renews and sends requests over
//! connections as usual. For each *link* of the path it opens one more connection in its member role. It
//! attaches the link with an `Attach` frame, whose content the path defines. The connection then stays open
//! and silent; if either side closes it, the link ends.
//!
//! **What must hold (F6).** When a session's flag is raised, the server calls [`DataPath::stop`] with the
//! host's lock held. It answers the request that raised the flag only when the path reports that nothing of
//! the session executes any more. A link that is attached meanwhile is not missed: `attach` enters it into
//! the path's own table, under the path's own lock, *before* it checks [`Session::is_over`]. `stop` is called
//! after the flag was raised, and takes the same lock. The order of locks is: host, incarnations, path. A
//! path that holds its own lock must not call the host.

use sherman_embedded::host::Session;
use sherman_fabric::{Caps, FabricError};
use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

/// A way to a server's memory besides lists in frames.
pub trait DataPath: fmt::Debug + Send + Sync {
    /// The capabilities of this server, sent in `Welcome`.
    fn caps(&self) -> Caps;

    /// Whether the server also executes lists in frames on the same memory. If not, it refuses them.
    fn takes_frames(&self) -> bool;

    /// Makes a link for a member's connection. Called without any lock.
    fn attach(&self, asking: &Attaching<'_>) -> Result<Attached, FabricError>;

    /// Stops everything of the session that may execute. Called when the session's flag was just raised, or
    /// is still up.
    fn stop(&self, session: &Session) -> Box<dyn Stopping>;

    /// Whether the path itself ends the lease of `session` once nothing of it can execute any more. Otherwise
    /// the lease ends with its last connection to server 0. Called without any lock.
    fn guards(&self, session: &Session) -> bool {
        let _ = session;
        false
    }

    /// The server stops. Lists posted from now on need not execute.
    fn close(&self) {}
}

/// A request for a link.
#[derive(Debug)]
pub struct Attaching<'a> {
    /// The session that the link will belong to.
    pub session: &'a Arc<Session>,
    /// The request, in the path's own format.
    pub body: &'a [u8],
    /// The connection that asks.
    pub socket: BorrowedFd<'a>,
}

/// A link that a path has made.
#[derive(Debug)]
pub struct Attached {
    /// The answer to the client.
    pub reply: Vec<u8>,
    /// The file that goes with the answer; only on a Unix socket.
    pub file: Option<OwnedFd>,
    /// The link, which the server keeps for as long as the connection lasts.
    pub link: Box<dyn Link>,
}

/// A connection's link. Dropped when the connection ends.
pub trait Link: fmt::Debug + Send {}

/// A session that is being stopped.
pub trait Stopping: fmt::Debug + Send {
    /// Whether nothing of it executes any more. The server calls it repeatedly, at short intervals. An error
    /// ends the request that waits for it.
    fn is_over(&mut self) -> Result<bool, FabricError>;
}
