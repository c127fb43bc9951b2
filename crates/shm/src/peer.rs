//! Which process is at the other end of a socket.

use rustix::process::Pid;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Returns the process that connected `socket`. It is an error if that process has no id here: it runs on
/// another host, or in another namespace of process ids.
#[allow(unsafe_code)]
pub(crate) fn process_of(socket: BorrowedFd<'_>) -> io::Result<Pid> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `socket` is an open descriptor, and `peer` has room for the three integers that the kernel
    // writes there, as `len` says.
    let failed = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            std::ptr::from_mut(&mut peer).cast(),
            &mut len,
        )
    };
    if failed != 0 {
        return Err(io::Error::last_os_error());
    }
    Pid::from_raw(peer.pid).filter(|_| peer.pid > 0).ok_or_else(|| io::ErrorKind::NotFound.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_process_is_known_by_its_unix_socket_and_by_no_other() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(process_of(one.as_fd()).unwrap(), rustix::process::getpid());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(process_of(near.as_fd()).is_err());
        assert!(process_of(std::fs::File::open("/dev/null").unwrap().as_fd()).is_err());
    }
}
