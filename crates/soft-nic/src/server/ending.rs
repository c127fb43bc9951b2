//! Sessions that are being stopped.

use sherman_control::path::{DataPath, Stopping};
use sherman_embedded::host::{Drain, Session};
use sherman_fabric::FabricError;

/// The work in progress of a session whose flag is up: turns of its connections, and its links of the path.
#[derive(Debug)]
pub(super) struct Ending {
    drain: Drain,
    stopping: Option<Box<dyn Stopping>>,
}

impl Ending {
    pub(super) fn new(drain: Drain, path: Option<&dyn DataPath>, session: &Session) -> Self {
        Self { drain, stopping: path.map(|path| path.stop(session)) }
    }

    /// Whether nothing of the session executes any more.
    pub(super) fn is_over(&mut self) -> Result<bool, FabricError> {
        if !self.drain.is_over() {
            return Ok(false);
        }
        self.stopping.as_mut().map_or(Ok(true), |stopping| stopping.is_over())
    }
}
