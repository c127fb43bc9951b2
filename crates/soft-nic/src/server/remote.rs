//! The peer at the other end of a connection, for log lines.

use rustix::net::{getpeername, sockopt};
use sherman_fabric::ComputeId;
use std::fmt;
use std::net::SocketAddr;
use std::os::fd::AsFd;

/// Where a connection comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remote {
    /// A TCP address.
    Tcp(SocketAddr),
    /// A process of the same host.
    Process {
        /// The process id.
        pid: i32,
        /// The user id.
        uid: u32,
    },
    /// The system does not say; the client may be gone already.
    Unknown,
}

impl Remote {
    /// The peer that `socket` is connected to.
    pub(super) fn of(socket: impl AsFd) -> Self {
        let address = getpeername(&socket).ok().flatten();
        if let Some(address) = address.and_then(|address| SocketAddr::try_from(address).ok()) {
            return Self::Tcp(address);
        }
        match sockopt::socket_peercred(&socket) {
            Ok(process) => {
                Self::Process { pid: process.pid.as_raw_nonzero().get(), uid: process.uid.as_raw() }
            }
            Err(_) => Self::Unknown,
        }
    }
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Process { pid, uid } => write!(f, "pid:{pid},uid:{uid}"),
            Self::Unknown => write!(f, "unknown"),
        }
    }
}

/// The peer of a connection: its origin, and its client id once that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Who {
    pub(super) remote: Remote,
    pub(super) client: Option<ComputeId>,
}

impl Who {
    /// The client id as a field of a log line.
    pub(super) fn client(&self) -> Option<u16> {
        self.client.map(|client| client.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    #[test]
    fn both_kinds_of_sockets_name_their_peer() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        assert_eq!(Remote::of(&server), Remote::Tcp(client.local_addr().unwrap()));
        let (one, _other) = UnixStream::pair().unwrap();
        let expected = format!("pid:{},uid:{}", std::process::id(), rustix_uid());
        assert_eq!(Remote::of(&one).to_string(), expected);
        assert_eq!(Remote::of(&listener), Remote::Unknown);
    }

    fn rustix_uid() -> u32 {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata("/proc/self").unwrap().uid()
    }
}
