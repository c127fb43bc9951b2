//! Where a server listens: TCP addresses and Unix sockets.
//!
//! Without a secret, every process that can connect can read and write all memory. So such a server listens
//! only on loopback addresses and Unix sockets, unless its operator says otherwise. A Unix socket gets mode
//! 0600. The server removes the socket of a dead server, but only if no process listens there, and it never
//! removes anything else.

use super::error::ServeError;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use sherman_control::Address;
use sherman_embedded::predecessor::wait_for_predecessor;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Listen {
    /// A host, by name or IP address, and a port. Port 0 means any free port.
    Tcp(String),
    /// A socket in the file system.
    Unix(PathBuf),
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host) => write!(f, "tcp://{host}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Connections that the kernel queues until they are accepted: as many as may be open. The kernel limits it
/// to `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// A listening socket.
#[derive(Debug)]
pub(super) struct Listener {
    fd: OwnedFd,
    /// Where it listens, with the actual port.
    pub(super) at: Listen,
    /// The socket's file, removed when the server ends.
    file: Option<SocketFile>,
}

/// A socket file, which the server owns as long as its inode is the same.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_some_and(|identity| identity == self.identity) {
            // If it cannot be removed, the next server finds that no process listens there.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Listener {
    /// Starts to listen. `exposed` says whether other hosts may reach the server.
    pub(super) fn open(listen: &Listen, exposed: bool) -> Result<Self, ServeError> {
        let failed = |error| ServeError::Bind { listen: listen.clone(), error };
        match listen {
            Listen::Tcp(host) => {
                let addresses: Vec<SocketAddr> = host.to_socket_addrs().map_err(failed)?.collect();
                if let Some(open) = addresses.iter().find(|address| !exposed && !address.ip().is_loopback()) {
                    return Err(ServeError::Exposed { address: open.to_string() });
                }
                let in_use = |error: &io::Error| error.kind() == io::ErrorKind::AddrInUse;
                let listener = wait_for_predecessor(|| TcpListener::bind(&addresses[..]), in_use);
                let listener = listener.map_err(failed)?;
                listener.set_nonblocking(true).map_err(failed)?;
                // The standard library listens with a backlog of 128; a second call replaces it.
                rustix::net::listen(&listener, BACKLOG).map_err(|error| failed(error.into()))?;
                let at = Listen::Tcp(listener.local_addr().map_err(failed)?.to_string());
                Ok(Self { fd: listener.into(), at, file: None })
            }
            Listen::Unix(path) => {
                remove_stale(path)?;
                let fd = bind_unix(path).map_err(failed)?;
                let file = identity(path).map(|identity| SocketFile { path: path.clone(), identity });
                Ok(Self { fd, at: listen.clone(), file })
            }
        }
    }

    /// Whether its connections use TCP.
    pub(super) fn is_tcp(&self) -> bool {
        self.file.is_none()
    }
}

/// Removes an old socket from `path`, if no process listens on it.
fn remove_stale(path: &Path) -> Result<(), ServeError> {
    let Ok(found) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !found.file_type().is_socket() {
        return Err(ServeError::NotASocket { path: path.to_owned() });
    }
    let in_use = |error: &ServeError| matches!(error, ServeError::InUse { .. });
    wait_for_predecessor(|| remove_unused(path), in_use)
}

/// Removes the socket at `path`, if no process listens on it.
fn remove_unused(path: &Path) -> Result<(), ServeError> {
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            let failed = |error| ServeError::Bind { listen: Listen::Unix(path.to_owned()), error };
            std::fs::remove_file(path).map_err(failed)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // A process answers, is too busy, or refuses this user. In every case the socket is in use.
        Ok(_) | Err(_) => Err(ServeError::InUse { path: path.to_owned() }),
    }
}

fn bind_unix(path: &Path) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // The file inherits the socket's mode, so other users can never connect.
    rustix::fs::fchmod(&fd, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)?;
    rustix::net::bind(&fd, &address)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    rustix::net::listen(&fd, BACKLOG)?;
    Ok(fd)
}

impl From<Listen> for Address {
    /// The address of a server that listens there, as seen from the same host.
    fn from(listen: Listen) -> Self {
        match listen {
            Listen::Tcp(host) => Self::Tcp(host),
            Listen::Unix(path) => Self::Unix(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that is removed together with its content.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("sherman-listen-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn without_leave_only_this_host_is_listened_to() {
        for host in ["0.0.0.0:0", "[::]:0"] {
            let refused = Listener::open(&Listen::Tcp(host.into()), false);
            assert!(matches!(refused, Err(ServeError::Exposed { .. })), "{host}");
        }
        let open = Listener::open(&Listen::Tcp("127.0.0.1:0".into()), false).unwrap();
        let Listen::Tcp(at) = &open.at else { panic!() };
        assert!(!at.ends_with(":0"));
        assert!(Listener::open(&Listen::Tcp("0.0.0.0:0".into()), true).is_ok());
        let taken = Listener::open(&Listen::Tcp(at.clone()), false);
        assert!(matches!(taken, Err(ServeError::Bind { .. })));
        assert!(matches!(
            Listener::open(&Listen::Tcp("nonsense".into()), false),
            Err(ServeError::Bind { .. })
        ));
    }

    #[test]
    fn a_socket_is_private_is_not_taken_from_a_live_server_and_goes_with_its_server() {
        let folder = Folder::new("live");
        let listen = Listen::Unix(folder.0.join("socket"));
        let Listen::Unix(path) = &listen else { panic!() };
        let open = Listener::open(&listen, false).unwrap();
        assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(matches!(Listener::open(&listen, false), Err(ServeError::InUse { .. })));
        assert!(UnixStream::connect(path).is_ok());
        drop(open);
        assert!(!path.exists());
    }

    #[test]
    fn what_a_dead_server_left_is_removed_and_nothing_else_is() {
        let folder = Folder::new("stale");
        let path = folder.0.join("socket");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let open = Listener::open(&Listen::Unix(path.clone()), false).unwrap();
        // The file is replaced, so the server does not own it and must not remove it.
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, b"something else").unwrap();
        drop(open);
        assert!(path.exists());
        let refused = Listener::open(&Listen::Unix(path.clone()), false);
        assert!(matches!(refused, Err(ServeError::NotASocket { .. })));
        assert!(path.exists());
    }
}
