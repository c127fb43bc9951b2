//! A memory server in this process behind an RDMA device, for `sherman litmus --device`.

use crate::failure::Failure;
#[cfg(feature = "verbs")]
use crate::serve::config::{Bytes, ServeSettings};
#[cfg(feature = "verbs")]
use crate::serve::options::ServeOptions;
#[cfg(feature = "verbs")]
use crate::serve::start::Server;

/// A memory server in this process, which runs until it is dropped.
#[cfg(feature = "verbs")]
pub struct Serving {
    url: String,
    _server: Server,
}

#[cfg(feature = "verbs")]
impl Serving {
    /// Starts a memory server behind `device`, or behind the first device if the name is empty.
    pub fn start(device: &str) -> Result<Self, Failure> {
        let query = if device.is_empty() { String::new() } else { format!("?device={device}") };
        let listen =
            format!("verbs://127.0.0.1:0{query}").parse().map_err(|said| Failure::option("device", said))?;
        let settings = ServeSettings {
            listen: vec![listen],
            memory: Some(Bytes(64 << 20)),
            chunk: Some(Bytes(1 << 20)),
            ..ServeSettings::default()
        };
        let server = Server::start(&ServeOptions::new(settings)?)?;
        let url = server.addresses().concat() + &query;
        Ok(Self { url, _server: server })
    }

    /// Returns the URL of the server.
    pub fn url(&self) -> &str {
        &self.url
    }
}

/// Placeholder for builds without RDMA.
#[cfg(not(feature = "verbs"))]
pub enum Serving {}

#[cfg(not(feature = "verbs"))]
impl Serving {
    /// Refuses: this build has no RDMA.
    pub fn start(_: &str) -> Result<Self, Failure> {
        Err(Failure::option("device", sherman_verbs::VerbsError::NotBuilt))
    }

    /// Never called.
    pub fn url(&self) -> &str {
        match *self {}
    }
}
