//! Host names, looked up within a time limit.
//!
//! The system's resolver may block for any time, and nothing can interrupt it. So a separate thread waits for
//! the resolver, and the caller waits for that thread only until its deadline. If the caller gives up, the
//! thread ends when the resolver answers. There are at most `MOST` such threads.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Instant;

/// The most look-ups in progress in this process at the same time.
const MOST: usize = 16;

/// Returns the addresses of `host`, which is a name or IP address and a port, by `deadline` at the latest.
///
/// # Errors
/// If the name has no address, the resolver takes too long, or too many look-ups are in progress.
pub fn resolve(host: &str, deadline: Instant) -> io::Result<Vec<SocketAddr>> {
    static IN_PROGRESS: std::sync::OnceLock<Arc<AtomicUsize>> = std::sync::OnceLock::new();
    let in_progress = IN_PROGRESS.get_or_init(Arc::default);
    resolve_by(host, deadline, in_progress, |host| host.to_socket_addrs().map(Iterator::collect))
}

fn resolve_by(
    host: &str,
    deadline: Instant,
    in_progress: &Arc<AtomicUsize>,
    resolver: impl FnOnce(&str) -> io::Result<Vec<SocketAddr>> + Send + 'static,
) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse() {
        return Ok(vec![address]);
    }
    let place = ResolverPermit::take(in_progress)?;
    let (tell, hear) = channel();
    let name = host.to_owned();
    std::thread::Builder::new().name("sherman-resolve".to_owned()).spawn(move || {
        let found = resolver(&name);
        drop(place);
        // The caller may have given up.
        let _ = tell.send(found);
    })?;
    match hear.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        Ok(found) => found,
        Err(RecvTimeoutError::Timeout) => {
            let what = format!("the system did not find the address of {host:?} in time");
            Err(io::Error::new(io::ErrorKind::TimedOut, what))
        }
        Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("the look-up of a host name failed")),
    }
}

/// A look-up in progress, until it is dropped.
struct ResolverPermit(Arc<AtomicUsize>);

impl ResolverPermit {
    fn take(in_progress: &Arc<AtomicUsize>) -> io::Result<Self> {
        let next = |used: usize| (used < MOST).then_some(used + 1);
        match in_progress.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) {
            Ok(_) => Ok(Self(Arc::clone(in_progress))),
            Err(_) => {
                let what = format!(
                    "{MOST} look-ups of host names are in progress, and the system answers none of them"
                );
                Err(io::Error::new(io::ErrorKind::ResourceBusy, what))
            }
        }
    }
}

impl Drop for ResolverPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::time::Duration;

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(50)
    }

    #[test]
    fn names_and_numbers_are_found() {
        let deadline = Instant::now() + Duration::from_secs(20);
        assert_eq!(resolve("127.0.0.1:80", deadline).unwrap(), [([127, 0, 0, 1], 80).into()]);
        // Not every system knows this name.
        match "localhost:80".to_socket_addrs() {
            Ok(known) => assert_eq!(resolve("localhost:80", deadline).unwrap(), known.collect::<Vec<_>>()),
            Err(_) => assert!(resolve("localhost:80", deadline).is_err()),
        }
        assert!(resolve("no port", deadline).is_err());
    }

    #[test]
    fn a_resolver_that_does_not_answer_is_given_up_and_so_many_threads_wait_for_it_and_no_more() {
        let (in_progress, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Barrier::new(MOST + 1)));
        let ask = |gate: Option<Arc<Barrier>>| {
            resolve_by("somewhere:1", soon(), &in_progress, move |_| {
                gate.map(|gate| gate.wait());
                Ok(vec![([127, 0, 0, 1], 1).into()])
            })
        };
        let began = Instant::now();
        for _ in 0..MOST {
            assert_eq!(ask(Some(Arc::clone(&gate))).unwrap_err().kind(), io::ErrorKind::TimedOut);
        }
        assert!(began.elapsed() < Duration::from_secs(10));
        assert_eq!(ask(None).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        // An IP address needs no resolver.
        assert!(resolve_by("[::1]:7", soon(), &in_progress, |_| Err(io::ErrorKind::Other.into())).is_ok());
        gate.wait();
        while in_progress.load(Ordering::Relaxed) > 0 {
            assert!(began.elapsed() < Duration::from_secs(20));
            std::thread::yield_now();
        }
        let deadline = Instant::now() + Duration::from_secs(20);
        assert!(resolve_by("somewhere:1", deadline, &in_progress, |_| Ok(Vec::new())).is_ok());
    }
}
