//! Where a cluster's servers are, and how long to wait for them.

use crate::auth::Secret;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Where a memory server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    /// A host, by name or IP address, and a port.
    Tcp(String),
    /// A socket in the file system.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host) => write!(f, "tcp://{host}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// The options for joining a cluster.
#[derive(Clone, Debug)]
pub struct JoinOptions {
    /// All memory servers of the cluster, in the order of their numbers.
    pub servers: Vec<Address>,
    /// The secret that client and servers must prove to each other; `None` if the servers have no secret.
    pub secret: Option<Secret>,
    /// How long a server may be silent while this client has something in flight there, before its connection
    /// counts as broken.
    pub patience: Duration,
    /// How long a connection and its handshake may take. Name look-ups do not count: the system controls
    /// their time.
    pub connect_timeout: Duration,
}

impl JoinOptions {
    /// Options for the cluster of these servers, without a secret. Both time limits are five seconds.
    pub fn new(servers: Vec<Address>) -> Self {
        Self {
            servers,
            secret: None,
            patience: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(5),
        }
    }
}
