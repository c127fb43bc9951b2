//! A memory server in this process behind an RDMA device, for `sherman litmus --device`.

use crate::failure::Failure;

/// A memory server that serves for as long as this is kept.
#[derive(Debug)]
pub struct Serving {
    url: String,
}

impl Serving {
    /// Starts a memory server behind `device`.
    pub fn start(device: &str) -> Result<Self, Failure> {
        let _ = device;
        Err(Failure::option("device", "this build has no RDMA: build it with --features verbs"))
    }

    /// Where it is reached.
    pub fn url(&self) -> &str {
        &self.url
    }
}
