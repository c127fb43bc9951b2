//! Sockets of either kind. Send and receive never block.

use super::options::Address;
use super::resolve::resolve;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, recv, recvmsg, send, socket_with, sockopt,
};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// The pause between two attempts to connect to a Unix socket whose queue is full.
const BACKLOG_PAUSE: Duration = Duration::from_millis(1);
/// How long a connection may be idle before the system probes whether the other side still exists.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// A connected socket.
#[derive(Debug)]
pub(crate) struct Stream(OwnedFd);

impl Stream {
    /// Connects to `address`, by `deadline` at the latest.
    pub(crate) fn connect(address: &Address, deadline: Instant) -> io::Result<Self> {
        match address {
            Address::Tcp(host) => Self::connect_tcp(host, deadline),
            Address::Unix(path) => Self::connect_unix(path, deadline),
        }
    }

    fn connect_tcp(host: &str, deadline: Instant) -> io::Result<Self> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the host name has no address");
        for address in resolve(host, deadline)? {
            match TcpStream::connect_timeout(&address, left(deadline)?) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    sockopt::set_socket_keepalive(&stream, true)?;
                    sockopt::set_tcp_keepidle(&stream, KEEPALIVE)?;
                    return Ok(Self(stream.into()));
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn connect_unix(path: &Path, deadline: Instant) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let stream = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let address = SocketAddrUnix::new(path)?;
        loop {
            match connect(&stream, &address) {
                Ok(()) => return Ok(Self(stream)),
                // The server's queue of connections is full. The system offers no timed wait for it.
                Err(Errno::AGAIN) => std::thread::sleep(left(deadline)?.min(BACKLOG_PAUSE)),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends as much as the socket takes at once; `None` if it takes nothing now.
    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<Option<usize>> {
        now_or_never(|| send(&self.0, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL))
    }

    /// Receives the available bytes; `None` if there are none now, 0 if the connection has ended.
    pub(crate) fn receive(&self, into: &mut [u8]) -> io::Result<Option<usize>> {
        now_or_never(|| recv(&self.0, &mut *into, RecvFlags::DONTWAIT).map(|(received, _)| received))
    }

    /// Receives the available bytes, and the file that came with them. Returns 0 bytes if there are none now,
    /// or if the connection has ended.
    pub(crate) fn receive_with_file(&self, into: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let received = now_or_never(|| {
            recvmsg(&self.0, &mut [IoSliceMut::new(into)], &mut control, flags).map(|got| got.bytes)
        })?;
        let files = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(files) => Some(files),
            _ => None,
        });
        Ok((received.unwrap_or(0), files.flatten().last()))
    }

    /// Waits until the socket is ready for `what`, but not beyond `deadline`.
    pub(crate) fn wait(&self, what: PollFlags, deadline: Instant) -> io::Result<()> {
        loop {
            let mut fds = [PollFd::new(&self.0, what)];
            match poll(&mut fds, Some(&timespec(left(deadline)?))) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Makes the system discard unsent bytes when the socket is closed.
    pub(crate) fn forget_unsent(&self) {
        // Has no effect on a Unix socket, which has no unsent bytes.
        let _ = sockopt::set_socket_linger(&self.0, Some(Duration::ZERO));
    }
}

impl From<OwnedFd> for Stream {
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Retries an attempt that a signal interrupted.
#[inline]
fn now_or_never(mut attempt: impl FnMut() -> rustix::io::Result<usize>) -> io::Result<Option<usize>> {
    loop {
        match attempt() {
            Ok(moved) => return Ok(Some(moved)),
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The time left until `deadline`.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// A duration in the system's format.
pub(crate) fn timespec(duration: Duration) -> Timespec {
    // A duration that does not fit, beyond 292 billion years, becomes the longest one.
    Timespec::try_from(duration).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 })
}
