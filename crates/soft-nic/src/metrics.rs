//! Counters for Prometheus: what a memory server counted as text, and a listener that answers `GET /metrics` with a text.
//!
//! The listener is small: a thread for each connection, `MAX_CONNECTIONS` of them, a bounded request, a second to send it and two to
//! take the answer. When all threads are busy, a new connection closes the oldest one: so silent connections
//! delay nobody. It asks for no secret, so it belongs on a trusted network.

use sherman_fabric::prometheus::{CONTENT_TYPE, Text};
use sherman_fabric::stats::ServerStats;
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a request may take to arrive.
const REQUEST_TIME: Duration = Duration::from_secs(1);
/// How long an answer may take to leave.
const PATIENCE: Duration = Duration::from_secs(2);
/// Connections served at the same time.
const MAX_CONNECTIONS: usize = 16;
/// Threads that may exist, those that are about to end among them.
const MAX_THREADS: usize = 2 * MAX_CONNECTIONS;
/// Bytes of the longest head of a request.
const MAX_HEAD: usize = 8 << 10;

/// What a memory server counted, for Prometheus.
pub fn server_text(stats: &ServerStats) -> String {
    let mut text = Text::new();
    text.gauge("sherman_server_uptime_seconds", "Time since the server started", stats.uptime_nanos as f64 / 1e9);
    text.gauge("sherman_server_memory_bytes", "Bytes of host memory", stats.host_bytes);
    text.gauge("sherman_server_connections", "Connections open now", stats.connections);
    text.counter("sherman_server_accepted_total", "Connections accepted", stats.accepted);
    let refused = stats.refused.iter().map(|refused| (&refused.reason, refused.count));
    text.counters("sherman_server_refused_total", "Connections and frames refused, by reason", "reason", refused);
    text.counter("sherman_server_lists_total", "Work lists executed: round trips of clients", stats.lists);
    text.counter("sherman_server_lists_failed_total", "Work lists that failed", stats.lists_failed);
    let verbs = [("read", stats.reads), ("write", stats.writes), ("cas", stats.cas), ("faa", stats.faa)];
    text.counters("sherman_server_verbs_total", "Verbs executed, by kind", "verb", verbs);
    text.counter(
        "sherman_server_cas_failed_total",
        "CAS verbs that did not swap: mostly waits for a lane",
        stats.cas_failed,
    );
    let moved = [("read", stats.bytes_read), ("written", stats.bytes_written)];
    text.counters("sherman_server_verb_bytes_total", "Bytes moved by verbs", "direction", moved);
    let wire = [("in", stats.bytes_in), ("out", stats.bytes_out)];
    text.counters("sherman_server_wire_bytes_total", "Bytes received and sent", "direction", wire);
    text.counter("sherman_server_calls_total", "Control requests answered", stats.calls);
    text.counter("sherman_server_fences_total", "Clients fenced", stats.fences);
    if stats.ids > 0 {
        text.gauge("sherman_server_member_ids", "Member ids there are", stats.ids);
        text.gauge("sherman_server_member_ids_free", "Member ids that nobody has", stats.ids_free);
        text.head("sherman_server_members", "Members, by standing", "gauge");
        for (standing, members) in
            [("live", stats.members_live), ("leaving", stats.members_leaving), ("dead", stats.members_dead)]
        {
            text.sample("sherman_server_members", &[("standing", standing)], members);
        }
        let help = "Members that must be recovered and that no live member recovers yet";
        text.gauge("sherman_server_members_waiting", help, stats.members_waiting);
    }
    text.gauge("sherman_server_chunks", "Chunks of memory there are", stats.chunks);
    text.gauge("sherman_server_chunks_used", "Chunks of memory in use", stats.chunks_used);
    text.gauge("sherman_server_bytes_owned", "Bytes of chunks that members own", stats.bytes_owned);
    let help = "Bytes of used chunks that nobody owns and that may have free places";
    text.gauge("sherman_server_bytes_free", help, stats.bytes_free);
    text.head("sherman_server_hot_lane_failures", "CAS failures of the most contended lock words", "gauge");
    for hot in &stats.hottest {
        text.sample("sherman_server_hot_lane_failures", &[("offset", &hot.offset.to_string())], hot.failed);
    }
    text.finish()
}

/// A listener that answers `GET /metrics`. Ends when it is dropped.
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
    /// Listens at `address` and answers with what `text` says.
    ///
    /// # Errors
    /// If the address cannot be had, or no thread.
    pub fn start(address: SocketAddr, text: impl Fn() -> String + Send + Sync + 'static) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let (connections, next, threads) = (Mutex::default(), AtomicU64::new(0), AtomicUsize::new(0));
        let open = Arc::new(Open { text: Box::new(text), connections, next, threads });
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
        // It sleeps in `accept` until somebody comes.
        let woken = TcpStream::connect_timeout(&self.address, PATIENCE);
        if let (Some(thread), Ok(_)) = (self.thread.take(), woken) {
            // It does not panic; if it did, that is no reason for another.
            let _ = thread.join();
        }
    }
}

/// The connections of a listener.
struct Open {
    text: Box<dyn Fn() -> String + Send + Sync>,
    /// By number, the oldest first.
    connections: Mutex<VecDeque<(u64, TcpStream)>>,
    next: AtomicU64,
    threads: AtomicUsize,
}

impl Open {
    /// Answers in a thread of its own. Who comes when nothing can be done for it sees its connection end.
    fn serve(self: &Arc<Self>, stream: TcpStream) {
        if self.threads.load(Ordering::Relaxed) >= MAX_THREADS {
            return;
        }
        let Ok(same) = stream.try_clone() else { return };
        let number = {
            let mut connections = self.connections();
            if connections.len() >= MAX_CONNECTIONS
                && let Some((_, oldest)) = connections.pop_front()
            {
                // Its thread finds the end of the connection, and ends.
                let _ = oldest.shutdown(Shutdown::Both);
            }
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            connections.push_back((number, same));
            number
        };
        let guard = Served { open: Arc::clone(self), number };
        self.threads.fetch_add(1, Ordering::Relaxed);
        // Without a thread the guard is dropped, and the connection with it.
        let _ = std::thread::Builder::new().name("sherman-scrape".to_owned()).spawn(move || {
            // Whoever breaks off is gone.
            let _ = answer(stream, &guard.open.text);
        });
    }

    fn connections(&self) -> MutexGuard<'_, VecDeque<(u64, TcpStream)>> {
        // Every change is one insertion or one removal, so what a poisoned lock guards is still right.
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
        self.open.connections().retain(|(number, _)| *number != self.number);
        self.open.threads.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The next connection. A connection that broke before it was accepted, or a lack of files, is waited out.
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
            return respond(&mut stream, "400 Bad Request", "the request is too long, or too slow\n");
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => head.extend_from_slice(&buffer[..read]),
            // Time is up: the loop says so.
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let line = head.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|&byte| byte == b' ');
    match (words.next(), words.next()) {
        (Some(b"GET"), Some(b"/metrics")) => respond(&mut stream, "200 OK", &text()),
        (Some(b"GET"), _) => respond(&mut stream, "404 Not Found", "there is /metrics\n"),
        _ => respond(&mut stream, "405 Method Not Allowed", "only GET\n"),
    }
}

fn respond(stream: &mut TcpStream, status: &str, body: &str) -> io::Result<()> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
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
        let listener = MetricsListener::start(([127, 0, 0, 1], 0).into(), || "up 1\n".to_owned()).expect("a port");
        let address = listener.address();
        let answer = ask(address, "GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nup 1\n"), "{answer}");
        assert!(ask(address, "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
        assert!(ask(address, "POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
        // Who goes without a word is forgotten.
        drop(TcpStream::connect(address).expect("it listens"));
        assert!(ask(address, "GET /metrics HTTP/1.0\r\n\r\n").contains("up 1"));
        drop(listener);
        assert!(TcpStream::connect(address).is_err());
    }

    #[test]
    fn silent_connections_delay_nobody() {
        let listener = MetricsListener::start(([127, 0, 0, 1], 0).into(), || "up 1\n".to_owned()).expect("a port");
        let connect = || TcpStream::connect(listener.address()).expect("it listens");
        // Few, and more than there are places for.
        for silent in [5, 3 * MAX_CONNECTIONS] {
            let began = Instant::now();
            let mut silent: Vec<_> = (0..silent).map(|_| connect()).collect();
            let answer = ask(listener.address(), "GET /metrics HTTP/1.1\r\n\r\n");
            assert!(answer.ends_with("up 1\n"), "{answer}");
            assert!(began.elapsed() < REQUEST_TIME, "{:?}", began.elapsed());
            for stream in &mut silent {
                // Each gets an end, and some an answer before.
                stream.set_read_timeout(Some(2 * REQUEST_TIME)).expect("a time-out");
                let mut answer = Vec::new();
                let read = stream.read_to_end(&mut answer);
                assert!(read.is_ok() && (answer.is_empty() || answer.starts_with(b"HTTP/1.1 4")), "{read:?}");
            }
        }
    }

    #[test]
    fn every_counter_has_its_line() {
        let stats = ServerStats { lists: 7, cas_failed: 3, ..ServerStats::default() };
        assert!(
            !server_text(&stats).contains("sherman_server_member"),
            "a server that keeps no members says nothing about them"
        );
        let stats = ServerStats { ids: 9, ids_free: 4, members_dead: 2, members_waiting: 1, bytes_free: 64, ..stats };
        let text = server_text(&stats);
        for line in [
            "sherman_server_member_ids_free 4",
            "sherman_server_members{standing=\"dead\"} 2",
            "sherman_server_members_waiting 1",
            "sherman_server_bytes_free 64",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
        assert!(
            text.contains("\nsherman_server_lists_total 7\n") && text.contains("\nsherman_server_cas_failed_total 3\n")
        );
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            assert!(line.rsplit_once(' ').is_some_and(|(_, value)| value.parse::<f64>().is_ok()), "{line}");
        }
    }
}
