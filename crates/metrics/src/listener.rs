//! A listener that answers `GET /metrics` with a text.
//!
//! It is small. Each connection has a thread, and `MAX_CONNECTIONS` are served at a time. A request
//! is bounded in size, may take one second to arrive, and its answer two seconds to leave. When all threads
//! are busy, a new connection closes the oldest one, so silent connections delay no other client. The next
//! connection waits until the closed one's thread has ended. The listener asks for no secret, so it belongs
//! on a trusted network.

use crate::text::CONTENT_TYPE;
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a request may take to arrive.
const REQUEST_TIME: Duration = Duration::from_secs(1);
/// How long an answer may take to leave.
const PATIENCE: Duration = Duration::from_secs(2);
/// Connections served at the same time.
const MAX_CONNECTIONS: usize = 16;
/// The most threads, including those that are about to end.
const MAX_THREADS: usize = 2 * MAX_CONNECTIONS;
/// The most bytes in the head of a request.
const MAX_HEAD: usize = 8 << 10;

/// A listener that answers `GET /metrics`. Dropping it stops it.
pub struct MetricsListener {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for MetricsListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetricsListener").field("address", &self.address).finish_non_exhaustive()
    }
}

impl MetricsListener {
    /// Listens at `address` and answers with the result of `text`.
    ///
    /// # Errors
    /// If the address is not available, or no thread can be started.
    pub fn start(address: SocketAddr, text: impl Fn() -> String + Send + Sync + 'static) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let open =
            Arc::new(Open { text: Box::new(text), connections: Mutex::default(), ended: Condvar::new() });
        let thread = std::thread::Builder::new().name("sherman-metrics".to_owned()).spawn(move || {
            while let Ok((stream, _)) = accept(&listener) {
                if stopped.load(Ordering::Acquire) {
                    return;
                }
                open.serve(stream);
            }
        })?;
        Ok(Self { address, stop, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MetricsListener {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // The thread sleeps in `accept` until a connection comes.
        let woken = TcpStream::connect_timeout(&self.address, PATIENCE);
        if let (Some(thread), Ok(_)) = (self.thread.take(), woken) {
            // The thread does not panic. If it did, this thread must not panic too.
            let _ = thread.join();
        }
    }
}

/// The connections of a listener.
struct Open {
    text: Box<dyn Fn() -> String + Send + Sync>,
    connections: Mutex<Connections>,
    /// Signalled when a thread ends.
    ended: Condvar,
}

/// The connections that are served, and their threads.
#[derive(Default)]
struct Connections {
    /// By number, oldest first.
    served: VecDeque<(u64, TcpStream)>,
    next: u64,
    /// Threads that run, including those whose connection was closed for a newer one.
    threads: usize,
}

impl Open {
    /// Answers in a thread of its own. If no thread or descriptor is available, the connection is closed.
    fn serve(self: &Arc<Self>, stream: TcpStream) {
        let Ok(same) = stream.try_clone() else { return };
        let mut connections = self.connections();
        // More threads than connections run only until they notice that theirs was closed.
        while connections.threads >= MAX_THREADS {
            connections = self.ended.wait(connections).unwrap_or_else(PoisonError::into_inner);
        }
        if connections.served.len() >= MAX_CONNECTIONS
            && let Some((_, oldest)) = connections.served.pop_front()
        {
            // Its thread sees the connection end, and ends.
            let _ = oldest.shutdown(Shutdown::Both);
        }
        let number = connections.next;
        connections.next += 1;
        connections.threads += 1;
        connections.served.push_back((number, same));
        drop(connections);
        let guard = Served { open: Arc::clone(self), number };
        // If no thread starts, the guard is dropped, and the connection with it.
        let _ = std::thread::Builder::new().name("sherman-scrape".to_owned()).spawn(move || {
            // A client that breaks the connection needs no answer.
            let _ = answer(stream, &guard.open.text);
        });
    }

    fn connections(&self) -> MutexGuard<'_, Connections> {
        // No change can panic halfway, so the data behind a poisoned lock is still valid.
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that is being served, until it is dropped.
struct Served {
    open: Arc<Open>,
    number: u64,
}

impl Drop for Served {
    fn drop(&mut self) {
        let mut connections = self.open.connections();
        connections.served.retain(|(number, _)| *number != self.number);
        connections.threads -= 1;
        self.open.ended.notify_one();
    }
}

/// Returns the next connection. Waits if a connection broke before it was accepted, or if descriptors are
/// exhausted.
fn accept(listener: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    loop {
        match listener.accept() {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
            accepted => return accepted,
        }
    }
}

fn answer(mut stream: TcpStream, text: &impl Fn() -> String) -> io::Result<()> {
    let deadline = Instant::now() + REQUEST_TIME;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    while !head.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || head.len() > MAX_HEAD {
            return respond(&mut stream, "400 Bad Request", "the request is too long or too slow\n");
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => head.extend_from_slice(&buffer[..read]),
            // The time limit has passed; the loop handles that.
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let line = head.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|&byte| byte == b' ');
    match (words.next(), words.next()) {
        (Some(b"GET"), Some(b"/metrics")) => respond(&mut stream, "200 OK", &text()),
        (Some(b"GET"), _) => respond(&mut stream, "404 Not Found", "not found: ask for /metrics\n"),
        _ => respond(&mut stream, "405 Method Not Allowed", "only GET is allowed\n"),
    }
}

fn respond(stream: &mut TcpStream, status: &str, body: &str) -> io::Result<()> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {length}\r\nConnection: \
         close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.write_all(request.as_bytes()).expect("it takes the request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer
    }

    #[test]
    fn metrics_are_answered_and_nothing_else() {
        let listener =
            MetricsListener::start(([127, 0, 0, 1], 0).into(), || "up 1\n".to_owned()).expect("a port");
        let address = listener.address();
        let answer = ask(address, "GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nup 1\n"), "{answer}");
        assert!(ask(address, "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
        assert!(ask(address, "POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
        // A client that hangs up without a request is forgotten.
        drop(TcpStream::connect(address).expect("it listens"));
        assert!(ask(address, "GET /metrics HTTP/1.0\r\n\r\n").contains("up 1"));
        drop(listener);
        assert!(TcpStream::connect(address).is_err());
    }

    #[test]
    fn silent_connections_delay_nobody() {
        let listener =
            MetricsListener::start(([127, 0, 0, 1], 0).into(), || "up 1\n".to_owned()).expect("a port");
        let connect = || TcpStream::connect(listener.address()).expect("it listens");
        // A few silent connections, and more than can be served.
        for silent in [5, 3 * MAX_CONNECTIONS] {
            let began = Instant::now();
            let mut silent: Vec<_> = (0..silent).map(|_| connect()).collect();
            let answer = ask(listener.address(), "GET /metrics HTTP/1.1\r\n\r\n");
            assert!(answer.ends_with("up 1\n"), "{answer}");
            assert!(began.elapsed() < REQUEST_TIME, "{:?}", began.elapsed());
            for stream in &mut silent {
                // Each connection is closed; some get an answer first.
                stream.set_read_timeout(Some(2 * REQUEST_TIME)).expect("a time-out");
                let mut answer = Vec::new();
                let read = stream.read_to_end(&mut answer);
                assert!(read.is_ok() && (answer.is_empty() || answer.starts_with(b"HTTP/1.1 4")), "{read:?}");
            }
        }
    }
}
