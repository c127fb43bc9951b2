//! The connections of one endpoint, one to each server, and what is in flight on them.
//!
//! All of the client but for wakers and sleep. An endpoint has one behind a cell; a fabric uses one that is between two
//! endpoints to ask what must be asked before the first and after the last.

use super::flight::{Flight, NO_ROOM};
use super::line::{End, Line};
use super::peers::Peers;
use super::stream::timespec;
use crate::wire::verbs::list_size;
use rustix::event::{PollFd, PollFlags, poll};
use sherman_fabric::{FabricError, Request, Response, Ticket, WorkList};
use std::os::fd::BorrowedFd;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// How often a server's patience is had with the last lists of an endpoint, which it may be answering one by one.
const FINISH_PATIENCE: u64 = 4;

/// How long ago a server was last heard of, for a connection to be looked at before a change is posted on it.
const STALE: Duration = Duration::from_millis(20);

/// The connections of one endpoint.
#[derive(Debug)]
pub(crate) struct Station {
    lines: Vec<Line>,
    pub(crate) flight: Flight,
}

impl Station {
    /// A station with these connections, by server.
    pub(crate) fn new(lines: Vec<Line>) -> Self {
        Self { lines, flight: Flight::default() }
    }

    /// One more connection, to the next server.
    pub(crate) fn add(&mut self, line: Line) {
        self.lines.push(line);
    }

    /// Connects to every server that the cluster has not declared lost.
    ///
    /// # Errors
    /// [`FabricError::Disconnected`] if a server cannot be reached, which is the end of this identity;
    /// [`FabricError::Unsupported`] if the server has no room for us. A server that is lost or has fenced us is no error here:
    /// everything posted there ends in that error.
    pub(crate) fn connect(peers: &Peers) -> Result<Self, FabricError> {
        let mut lines = Vec::with_capacity(usize::from(peers.servers()));
        for server in 0..peers.servers() {
            if peers.is_lost(server) {
                lines.push(Line::ended(FabricError::ServerLost { server }));
                continue;
            }
            let deadline = Instant::now() + peers.options.connect_timeout;
            lines.push(match peers.connect(server, deadline) {
                Ok(connected) => Line::new(connected),
                Err(error) => match peers.explain(server, &error) {
                    fenced @ FabricError::Fenced { .. } => Line::ended(fenced),
                    error => return Err(error),
                },
            });
        }
        Ok(Self::new(lines))
    }

    /// Posts `list`, or refuses it.
    #[inline]
    pub(crate) fn post(&mut self, list: WorkList, peers: &Peers) -> Ticket {
        let server = list.server();
        let Some(line) = self.lines.get_mut(usize::from(server)) else {
            return self.flight.refuse_list(list, FabricError::NoSuchServer { server });
        };
        if let Some(error) = line.error() {
            return self.flight.refuse_list(list, error.clone());
        }
        if let Err(error) = list_size(&list) {
            return self.flight.refuse_list(list, error);
        }
        let ticket = self.flight.begin_list(list);
        // A list whose outcome cannot be kept is not executed: its error must be the truth.
        if ticket != NO_ROOM {
            line.post(ticket, &mut self.flight, || peers.now());
        }
        ticket
    }

    /// Whether everything that is posted to `server` is refused. If nothing was heard of it for a while, the thread may have been stopped for
    /// longer than its lease: then this looks first whether the server has ended the connection meanwhile.
    #[inline]
    pub(crate) fn has_ended(&mut self, server: u16, peers: &Peers) -> bool {
        let Some(line) = self.lines.get_mut(usize::from(server)) else { return false };
        match line.heard() {
            Some(heard) if peers.now().saturating_sub(heard) > nanos(STALE) => self.look(server, peers),
            heard => heard.is_none(),
        }
    }

    /// Receives what has arrived from `server`. Whether that is the end of the connection.
    #[cold]
    fn look(&mut self, server: u16, peers: &Peers) -> bool {
        let Some(line) = self.lines.get_mut(usize::from(server)) else { return false };
        let error = match line.receive(&mut self.flight, || peers.now()) {
            Ok(_) => return false,
            Err(End::Fenced) => peers.fenced(),
            Err(End::Broken) => peers.explain_break(server),
        };
        line.end(error, &mut self.flight);
        true
    }

    /// Sends `request`, or refuses it.
    pub(crate) fn call(&mut self, server: u16, request: &Request, peers: &Peers) -> Ticket {
        let Some(line) = self.lines.get_mut(usize::from(server)) else {
            return self.flight.refuse_call(FabricError::NoSuchServer { server });
        };
        if let Some(error) = line.error() {
            return self.flight.refuse_call(error.clone());
        }
        let ticket = self.flight.begin_call();
        if ticket != NO_ROOM && line.call(ticket, request, || peers.now()).is_err() {
            self.flight.end_call(ticket, Err(FabricError::Unsupported { what: "send such a request" }));
        }
        ticket
    }

    /// Sends what waits to be sent.
    pub(crate) fn flush(&mut self) {
        for line in &mut self.lines {
            if !line.is_idle() {
                line.pump(&mut self.flight);
            }
        }
    }

    /// Sends, receives and delivers; gives up connections that are at their end.
    pub(crate) fn drive(&mut self, peers: &Peers) {
        for (server, line) in self.lines.iter_mut().enumerate() {
            if line.is_idle() {
                continue;
            }
            let waits = line.waits();
            if !waits {
                line.pump(&mut self.flight);
            }
            let received = line.receive(&mut self.flight, || peers.now());
            // Nobody who is woken will post what it could wait for.
            if waits && !(matches!(received, Ok(true)) && self.flight.has_woken()) {
                line.pump(&mut self.flight);
            }
            let end = match received {
                Ok(true) => continue,
                Ok(false) => match line.silent_since() {
                    Some(since) if peers.now().saturating_sub(since) > nanos(peers.options.patience) => End::Broken,
                    _ => continue,
                },
                Err(end) => end,
            };
            let error = match end {
                End::Fenced => peers.fenced(),
                End::Broken => peers.explain_break(server as u16),
            };
            line.end(error, &mut self.flight);
        }
    }

    /// Whether nothing is in flight anywhere.
    pub(crate) fn is_idle(&self) -> bool {
        self.lines.iter().all(Line::is_idle)
    }

    /// Whether it can serve another endpoint: nothing is in flight, and no connection was given up that need not be.
    pub(crate) fn is_fit(&self) -> bool {
        self.is_idle()
            && self.lines.iter().all(|line| matches!(line.error(), None | Some(FabricError::ServerLost { .. })))
    }

    /// When the first connection counts as broken for silence.
    fn patience_ends(&self, peers: &Peers) -> Option<u64> {
        let since = self.lines.iter().filter_map(Line::silent_since).min()?;
        Some(since.saturating_add(nanos(peers.options.patience)))
    }

    /// Sleeps until something arrives or can be sent, `bell` is readable, `until` (by [`Peers::now`]) or somebody's patience
    /// has come. Whether the bell is.
    pub(crate) fn sleep(&self, peers: &Peers, bell: Option<BorrowedFd<'_>>, until: Option<u64>) -> bool {
        let until = [until, self.patience_ends(peers)].into_iter().flatten().min();
        let limit = until.map(|until| timespec(Duration::from_nanos(until.saturating_sub(peers.now()))));
        let interests = self.lines.iter().filter_map(Line::interest);
        let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(self.lines.len() + 1);
        fds.extend(bell.map(|bell| PollFd::from_borrowed_fd(bell, PollFlags::IN)));
        fds.extend(interests.map(|(fd, what)| PollFd::from_borrowed_fd(fd, what)));
        // Whatever goes wrong here shows when the sockets are used.
        let _ = poll(&mut fds, limit.as_ref());
        bell.is_some() && fds.first().is_some_and(|bell| !bell.revents().is_empty())
    }

    /// Asks and waits for the answer, for as long as a server may be silent.
    pub(crate) fn ask(&mut self, server: u16, request: &Request, peers: &Peers) -> Result<Response, FabricError> {
        let ticket = self.call(server, request, peers);
        let deadline = peers.now().saturating_add(nanos(peers.options.patience));
        let mut cx = Context::from_waker(Waker::noop());
        loop {
            if let Poll::Ready(answer) = self.flight.poll_call(ticket, &mut cx) {
                return answer;
            }
            if peers.now() > deadline {
                self.flight.forget(ticket);
                return Err(FabricError::Disconnected { server });
            }
            self.sleep(peers, None, Some(deadline));
            self.drive(peers);
        }
    }

    /// Waits until every list that was posted has executed, or its connection is given up: for silence, as ever, and at last
    /// because there is an end to waiting.
    pub(crate) fn finish_lists(&mut self, peers: &Peers) {
        let deadline = peers.now().saturating_add(nanos(peers.options.patience).saturating_mul(FINISH_PATIENCE));
        self.drive(peers);
        while !self.lines.iter().all(Line::has_no_list) && peers.now() < deadline {
            self.sleep(peers, None, Some(deadline));
            self.drive(peers);
        }
        for (server, line) in self.lines.iter_mut().enumerate().filter(|(_, line)| !line.has_no_list()) {
            line.end(peers.explain_break(server as u16), &mut self.flight);
        }
    }
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
