//! Who is at the other end of a connection, for log lines.

use rustix::net::{getpeername, sockopt};
use sherman_fabric::ClientId;
use std::fmt;
use std::net::SocketAddr;
use std::os::fd::AsFd;

/// Where a connection comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remote {
    /// From this address.
    Tcp(SocketAddr),
    /// From this process of the same host.
    Process {
        /// Its id.
        pid: i32,
        /// Its user.
        uid: u32,
    },
    /// The system does not say; the client may be gone already.
    Unknown,
}

impl Remote {
    /// Where `socket` is connected to.
    pub(super) fn of(socket: impl AsFd) -> Self {
        let address = getpeername(&socket).ok().flatten();
        if let Some(address) = address.and_then(|address| SocketAddr::try_from(address).ok()) {
            return Self::Tcp(address);
        }
        match sockopt::socket_peercred(&socket) {
            Ok(process) => Self::Process { pid: process.pid.as_raw_nonzero().get(), uid: process.uid.as_raw() },
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

/// Who is at the other end: an address, and an id once it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Who {
    pub(super) remote: Remote,
    pub(super) client: Option<ClientId>,
}

impl Who {
    /// The id as a field of a log line.
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
    fn both_kinds_of_sockets_say_who_is_there() {
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
