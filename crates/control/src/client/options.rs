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

impl Address {
    /// The address that `text` names: `tcp://host:port` or `unix:/path`, as [`Display`](fmt::Display) writes
    /// it.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(host) = text.strip_prefix("tcp://") {
            let port = host.rsplit_once(':').filter(|(host, _)| !host.is_empty())?.1;
            return port.parse::<u16>().is_ok().then(|| Self::Tcp(host.to_owned()));
        }
        text.strip_prefix("unix:").filter(|path| !path.is_empty()).map(|path| Self::Unix(path.into()))
    }
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
    /// All memory servers of the cluster, in the order of their numbers. In a cluster of hosts: some of them,
    /// in any order.
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

/// The shortest time that a connection to a copy may take.
const SHORTEST_CONNECT: Duration = Duration::from_millis(100);

impl JoinOptions {
    /// The same options for connections to copies, in a cluster with this lease. A copy that is silent for a
    /// lease is about to leave the table, so nothing is gained by waiting longer.
    pub(crate) fn within(&self, lease: Duration) -> Self {
        let connect_timeout = self.connect_timeout.min((lease / 2).max(SHORTEST_CONNECT));
        Self { patience: self.patience.min(lease), connect_timeout, ..self.clone() }
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_is_written() {
        for address in [Address::Tcp("[::1]:7000".into()), Address::Unix("/run/größe.sock".into())] {
            assert_eq!(Address::parse(&address.to_string()), Some(address));
        }
        for bad in ["", "tcp://", "tcp://a", "tcp://:7000", "tcp://a:70000", "unix:", "a:7000", "shm:/a"] {
            assert_eq!(Address::parse(bad), None, "{bad}");
        }
    }
}
