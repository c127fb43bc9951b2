//! Where a cluster's servers are, and how long to wait for them.

use crate::auth::Secret;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Where a memory server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    /// A host, by name or number, and a port.
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

/// What it takes to join a cluster.
#[derive(Clone, Debug)]
pub struct JoinOptions {
    /// Its memory servers, all of them, in the order of their numbers.
    pub servers: Vec<Address>,
    /// What its servers want proved, and have to prove; `None` if they have no secret.
    pub secret: Option<Secret>,
    /// How long a server may be silent while something of ours is in flight there, before its connection counts as broken.
    pub patience: Duration,
    /// How long a connection and its handshake may take, names not counted: their look-up is the system's.
    pub connect_timeout: Duration,
}

impl JoinOptions {
    /// The cluster of these servers, without a secret: five seconds for either kind of waiting.
    pub fn new(servers: Vec<Address>) -> Self {
        Self { servers, secret: None, patience: Duration::from_secs(5), connect_timeout: Duration::from_secs(5) }
    }
}
