//! Starting and stopping the server that options describe.

use crate::failure::Failure;
use crate::serve_options::ServeOptions;

/// A server at work.
pub struct Server;

impl Server {
    /// Starts it.
    pub fn start(_options: &ServeOptions) -> Result<Self, Failure> {
        Err(Failure::Runtime("this build has no network".to_owned()))
    }

    /// Where it listens.
    pub fn addresses(&self) -> Vec<String> {
        Vec::new()
    }

    /// Ends it in order.
    pub fn stop(self) -> Result<(), Failure> {
        Ok(())
    }
}
