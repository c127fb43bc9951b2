//! Other ways to the server's memory than lists in frames: shared memory, a NIC.
//!
//! Such a **data path** shares this server's control plane. A client joins, renews and asks over connections like any other;
//! for each *link* of the path it opens one more connection in its member role and attaches it with an `Attach` frame, whose
//! words are the path's own. The connection then stays, silent; whichever side ends it ends the link.
//!
//! **What must hold (F6).** When a session's flag goes up, [`DataPath::stop`] is called behind the host's lock, and the
//! request that raised it is answered only when the path says that nothing of the session executes any more. A link that is
//! being attached meanwhile is not missed: `attach` enters it into the path's own table under the path's own lock *before* it
//! looks at [`Session::is_over`], and `stop`, which is called after the flag was raised, takes the same lock. Locks are taken
//! in this order: host, book, path. A path that holds its own lock asks the host nothing.

use sherman_embedded::host::{Drain, Session};
use sherman_fabric::{Caps, FabricError};
use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

/// A way to a server's memory besides lists in frames.
pub trait DataPath: fmt::Debug + Send + Sync {
    /// What clients of this server may expect, told in `Welcome`.
    fn caps(&self) -> Caps;

    /// Whether lists in frames are executed on the same memory too. If not they are refused.
    fn takes_frames(&self) -> bool;

    /// A connection of a member asks for a link. Called behind no lock.
    fn attach(&self, asking: &Attaching<'_>) -> Result<Attached, FabricError>;

    /// The session's flag has just gone up, or is up still: stops whatever of it may execute.
    fn stop(&self, session: &Session) -> Box<dyn Stopping>;

    /// Whether the path itself ends the lease of `session` once nothing of it can execute any more. Else its lease ends with its last connection
    /// to server 0. Called behind no lock.
    fn guards(&self, session: &Session) -> bool {
        let _ = session;
        false
    }

    /// The server stops: whatever is posted from now on need not be executed.
    fn close(&self) {}
}

/// Who asks for a link, and in which words.
#[derive(Debug)]
pub struct Attaching<'a> {
    /// Whose the link will be.
    pub session: &'a Arc<Session>,
    /// The path's words.
    pub body: &'a [u8],
    /// The connection that asks.
    pub socket: BorrowedFd<'a>,
}

/// A link that a path has made.
#[derive(Debug)]
pub struct Attached {
    /// What the client is answered.
    pub reply: Vec<u8>,
    /// What comes with the answer; only on a Unix socket.
    pub file: Option<OwnedFd>,
    /// What the server keeps for as long as the connection lasts.
    pub link: Box<dyn Link>,
}

/// What a connection holds of a path. Dropped when the connection ends.
pub trait Link: fmt::Debug + Send {}

/// A session that is being stopped.
pub trait Stopping: fmt::Debug + Send {
    /// Whether nothing of it executes any more. Looked at again and again, soon. An error ends the request that waits for it.
    fn is_over(&mut self) -> Result<bool, FabricError>;
}

/// What is left of a session whose flag is up: turns of its connections, and what the path has of it.
#[derive(Debug)]
pub(super) struct Ending {
    drain: Drain,
    stopping: Option<Box<dyn Stopping>>,
}

impl Ending {
    pub(super) fn new(drain: Drain, path: Option<&dyn DataPath>, session: &Session) -> Self {
        Self { drain, stopping: path.map(|path| path.stop(session)) }
    }

    /// Whether nothing of it executes any more.
    pub(super) fn is_over(&mut self) -> Result<bool, FabricError> {
        if !self.drain.is_over() {
            return Ok(false);
        }
        self.stopping.as_mut().map_or(Ok(true), |stopping| stopping.is_over())
    }
}
