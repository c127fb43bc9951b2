//! The connections of one endpoint, one to each server, and the lists and calls in flight on them. In a
//! cluster of hosts a server is a copy of a volume, and all copies on one host share a connection. So the
//! lists for a host share sends and receives, however many volumes it has.
//!
//! This is the whole client except for wakers and sleep. An endpoint keeps its connections in a cell. A
//! fabric uses idle ones between endpoints, for requests before the first endpoint and after the last.

use super::connection::{Connection, End};
use super::flight::Flight;
use super::inbox::Inbox;
use super::lists::{Lists, error_at};
use super::peers::Peers;
use super::stream::timespec;
use rustix::event::{PollFd, PollFlags, poll};
use sherman_fabric::tickets::NO_ROOM;
use sherman_fabric::{FabricError, Peer, Request, Response, Ticket, WorkList};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// How many times the client waits `patience` for the last lists of an endpoint. The server may answer them
/// one by one.
const FINISH_PATIENCE: u64 = 4;

/// How often a thread that waits for a copy looks whether the copy has left the table.
const LOOK: Duration = Duration::from_millis(50);

/// If the server has been silent for longer than this, the client checks the connection before it posts a
/// change on it.
const STALE: Duration = Duration::from_millis(20);

/// A connection, and the servers that share it: the n-th is the connection's memory n.
#[derive(Debug)]
pub(super) struct Line<L> {
    connection: Connection<L>,
    servers: Vec<u16>,
}

impl<L: Lists> Line<L> {
    /// A connection to these servers.
    pub(super) fn new(connection: Connection<L>, servers: Vec<u16>) -> Self {
        Self { connection, servers }
    }

    /// Stands for a connection to `server` that does not exist, because of `error`.
    pub(super) fn ended(server: u16, error: FabricError) -> Self {
        Self::new(Connection::ended(error), vec![server])
    }
}

/// Where a server is: the connection, and which of its memories.
#[derive(Clone, Copy, Debug)]
struct Door {
    line: usize,
    memory: u8,
}

/// The connections of one endpoint.
#[derive(Debug)]
pub(crate) struct Connections<L> {
    lines: Vec<Line<L>>,
    /// By server.
    doors: Vec<Door>,
    pub(crate) flight: Flight,
    /// Where the answers of control arrive, in a cluster of hosts. Elsewhere they come from server 0.
    inbox: Option<Arc<Inbox>>,
    /// How many of them are awaited.
    awaited: usize,
}

impl<L: Lists> Connections<L> {
    /// The connections of one endpoint, in the order of the servers.
    pub(crate) fn new(connections: Vec<Connection<L>>) -> Self {
        let lines = (0..).zip(connections).map(|(server, connection)| Line::new(connection, vec![server]));
        Self::of(lines.collect(), None)
    }

    /// The connections of one endpoint to the copies of a cluster of hosts.
    pub(super) fn of_group(lines: Vec<Line<L>>, inbox: Arc<Inbox>) -> Self {
        Self::of(lines, Some(inbox))
    }

    /// Every server is on one of `lines`.
    fn of(lines: Vec<Line<L>>, inbox: Option<Arc<Inbox>>) -> Self {
        let servers = lines.iter().map(|line| line.servers.len()).sum();
        let mut doors = vec![Door { line: 0, memory: 0 }; servers];
        for (line, Line { servers, .. }) in lines.iter().enumerate() {
            for (memory, server) in (0..=u8::MAX).zip(servers) {
                if let Some(door) = doors.get_mut(usize::from(*server)) {
                    *door = Door { line, memory };
                }
            }
        }
        Self { lines, doors, flight: Flight::default(), inbox, awaited: 0 }
    }

    /// Adds the connection to the next server.
    pub(crate) fn add(&mut self, connection: Connection<L>) {
        self.doors.push(Door { line: self.lines.len(), memory: 0 });
        self.lines.push(Line::new(connection, vec![self.doors.len() as u16 - 1]));
    }

    /// The connection to `server`, and which of its memories the server is.
    #[inline]
    fn to<'l>(lines: &'l mut [Line<L>], doors: &[Door], server: u16) -> Option<(&'l mut Line<L>, u8)> {
        let door = *doors.get(usize::from(server))?;
        Some((lines.get_mut(door.line)?, door.memory))
    }

    /// Connects to every server that the cluster has not declared lost.
    ///
    /// # Errors
    /// [`FabricError::Disconnected`] if a server cannot be reached, which ends this identity;
    /// [`FabricError::Unsupported`] if the server has no room for this client. If a server is lost or has
    /// fenced this client, that is no error here: everything posted there ends in that error.
    pub(crate) fn connect(peers: &Peers) -> Result<Self, FabricError> {
        let lost = (0..peers.servers()).filter(|server| peers.is_lost(*server));
        let mut lines: Vec<Line<L>> =
            lost.map(|server| Line::ended(server, FabricError::ServerLost { server })).collect();
        for servers in peers.lines() {
            let deadline = Instant::now() + peers.options.connect_timeout;
            let connection = match peers.connect_line(&servers, deadline) {
                Ok(connected) => Connection::new(connected),
                Err((server, error)) => match peers.explain(server, &error) {
                    fenced @ FabricError::Fenced { .. } => Connection::ended(fenced),
                    error => return Err(error),
                },
            };
            lines.push(Line::new(connection, servers));
        }
        let what = "open one more endpoint: too many files are open";
        let inbox = peers.group().map(|_| Inbox::new().map_err(|_| FabricError::Unsupported { what }));
        Ok(Self::of(lines, inbox.transpose()?))
    }

    /// Posts `list`, or refuses it.
    #[inline]
    pub(crate) fn post(&mut self, list: WorkList, peers: &Peers) -> Ticket {
        let server = list.server();
        let Some((Line { connection, .. }, memory)) = Self::to(&mut self.lines, &self.doors, server) else {
            return self.flight.refuse_list(list, FabricError::NoSuchServer { server });
        };
        if let Some(error) = connection.error() {
            let error = error_at(error, server);
            return self.flight.refuse_list(list, error);
        }
        if let Err(error) = L::check(&list) {
            return self.flight.refuse_list(list, error);
        }
        let ticket = self.flight.begin_list(list);
        // A list executes only if its outcome can be kept. Otherwise its ticket reports an error, and that
        // error must be true.
        if ticket != NO_ROOM {
            connection.post(ticket, memory, &mut self.flight, || peers.now());
        }
        ticket
    }

    /// Whether everything posted to `server` is refused. After a long silence, this thread may have been
    /// stopped for longer than its lease. So this method first checks whether the server has ended the
    /// connection meanwhile.
    #[inline]
    pub(crate) fn has_ended(&mut self, server: u16, peers: &Peers) -> bool {
        let line = Self::to(&mut self.lines, &self.doors, server);
        let Some((Line { connection, .. }, _)) = line else { return false };
        match connection.heard() {
            Some(heard) if peers.now().saturating_sub(heard) > nanos(STALE) => self.look(server, peers),
            heard => heard.is_none(),
        }
    }

    /// Receives everything that has arrived from `server`. Returns whether that ends the connection.
    #[cold]
    fn look(&mut self, server: u16, peers: &Peers) -> bool {
        let line = Self::to(&mut self.lines, &self.doors, server);
        let Some((Line { connection, servers }, _)) = line else { return false };
        let error = match connection.receive(&mut self.flight, || peers.now()) {
            Ok(_) => return false,
            Err(End::Fenced) => peers.fenced(),
            Err(End::Broken) => peers.explain_break_of(servers),
        };
        connection.end(error, &mut self.flight);
        true
    }

    /// Sends `request`, or refuses it.
    pub(crate) fn call(&mut self, peer: Peer, request: &Request, peers: &Peers) -> Ticket {
        let server = peer.server();
        if let (Peer::Control, Some(group), Some(inbox)) = (peer, peers.group(), &self.inbox) {
            let ticket = self.flight.begin_call();
            if ticket != NO_ROOM {
                self.awaited += 1;
                let inbox = Arc::clone(inbox);
                group.link.submit(request.clone(), Box::new(move |answer| inbox.put((ticket, answer))));
            }
            return ticket;
        }
        let Some((Line { connection, .. }, memory)) = Self::to(&mut self.lines, &self.doors, server) else {
            return self.flight.refuse_call(FabricError::NoSuchServer { server });
        };
        if let Some(error) = connection.error() {
            let error = error_at(error, server);
            return self.flight.refuse_call(error);
        }
        let ticket = self.flight.begin_call();
        if ticket != NO_ROOM && connection.call(ticket, memory, request, || peers.now()).is_err() {
            self.flight.end_call(ticket, Err(FabricError::Unsupported { what: "encode this request" }));
        }
        ticket
    }

    /// Sends all waiting lists.
    pub(crate) fn flush(&mut self) {
        for Line { connection, .. } in &mut self.lines {
            if !connection.is_idle() {
                connection.pump(&mut self.flight);
            }
        }
    }

    /// Sends, receives and delivers. Gives up connections that have ended.
    pub(crate) fn drive(&mut self, peers: &Peers) {
        self.take_answers();
        for Line { connection, servers } in &mut self.lines {
            if connection.is_idle() {
                continue;
            }
            let waits = connection.waits();
            if !waits {
                connection.pump(&mut self.flight);
            }
            let received = connection.receive(&mut self.flight, || peers.now());
            // No woken task will post another list that these could wait for.
            if waits && !(matches!(received, Ok(true)) && self.flight.has_woken()) {
                connection.pump(&mut self.flight);
            }
            let end = match received {
                Ok(true) => continue,
                Ok(false) => match connection.silent_since() {
                    Some(since)
                        if servers.iter().all(|server| peers.is_dropped(*server))
                            || peers.now().saturating_sub(since) > nanos(peers.options.patience) =>
                    {
                        End::Broken
                    }
                    _ => continue,
                },
                Err(end) => end,
            };
            let error = match end {
                End::Fenced => peers.fenced(),
                End::Broken => peers.explain_break_of(servers),
            };
            connection.end(error, &mut self.flight);
        }
    }

    /// Takes the answers that control has sent to a cluster's client.
    fn take_answers(&mut self) {
        if self.awaited == 0 {
            return;
        }
        for (ticket, answer) in self.inbox.iter().flat_map(|inbox| inbox.take()) {
            self.awaited -= 1;
            self.flight.end_call(ticket, answer);
        }
    }

    /// Whether nothing is in flight anywhere.
    pub(crate) fn is_idle(&self) -> bool {
        self.awaited == 0 && self.lines.iter().all(|line| line.connection.is_idle())
    }

    /// Whether another endpoint can use it: nothing is in flight, and every connection works, except those to
    /// lost servers.
    pub(crate) fn is_fit(&self) -> bool {
        self.is_idle()
            && self
                .lines
                .iter()
                .all(|line| matches!(line.connection.error(), None | Some(FabricError::ServerLost { .. })))
    }

    /// When the first silent connection counts as broken.
    fn patience_ends(&self, peers: &Peers) -> Option<u64> {
        let since = self.lines.iter().filter_map(|line| line.connection.silent_since()).min()?;
        let ends = since.saturating_add(nanos(peers.options.patience));
        // A copy may leave the table meanwhile.
        let looks = peers.group().map(|_| peers.now().saturating_add(nanos(LOOK)));
        Some(looks.map_or(ends, |looks| looks.min(ends)))
    }

    /// Sleeps until something arrives or can be sent, `notifier` is readable, `until` (by [`Peers::now`]) has
    /// come, or a server has been silent for too long. Returns whether the notifier is readable.
    pub(crate) fn sleep(&self, peers: &Peers, notifier: Option<BorrowedFd<'_>>, until: Option<u64>) -> bool {
        let until = [until, self.patience_ends(peers)].into_iter().flatten().min();
        let limit = until.map(|until| timespec(Duration::from_nanos(until.saturating_sub(peers.now()))));
        let interests = self.lines.iter().filter_map(|line| line.connection.interest());
        let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(self.lines.len() + 2);
        fds.extend(notifier.map(|notifier| PollFd::from_borrowed_fd(notifier, PollFlags::IN)));
        let inbox = self.inbox.as_ref().filter(|_| self.awaited > 0);
        fds.extend(inbox.map(|inbox| PollFd::from_borrowed_fd(inbox.as_fd(), PollFlags::IN)));
        fds.extend(interests.map(|(fd, what)| PollFd::from_borrowed_fd(fd, what)));
        // An error here shows again when the sockets are used.
        let _ = poll(&mut fds, limit.as_ref());
        notifier.is_some() && fds.first().is_some_and(|notifier| !notifier.revents().is_empty())
    }

    /// Sends a request and waits for the answer, for as long as a server may be silent.
    pub(crate) fn ask(
        &mut self,
        peer: Peer,
        request: &Request,
        peers: &Peers,
    ) -> Result<Response, FabricError> {
        let server = peer.server();
        let ticket = self.call(peer, request, peers);
        let patience = nanos(peers.options.patience);
        let (patience, late) = match (peer, peers.group()) {
            // The link gives up by itself, after its last attempt to reach a host.
            (Peer::Control, Some(_)) => (patience.saturating_mul(2), FabricError::NoLeader),
            _ => (patience, FabricError::Disconnected { server }),
        };
        let deadline = peers.now().saturating_add(patience);
        let mut cx = Context::from_waker(Waker::noop());
        loop {
            if let Poll::Ready(answer) = self.flight.poll_call(ticket, &mut cx) {
                return answer;
            }
            if peers.now() > deadline {
                self.flight.forget(ticket);
                return Err(late);
            }
            self.sleep(peers, None, Some(deadline));
            self.drive(peers);
        }
    }

    /// Waits until every posted list has executed. Gives a connection up after the usual silence, or when the
    /// total time limit has passed.
    pub(crate) fn finish_lists(&mut self, peers: &Peers) {
        let deadline =
            peers.now().saturating_add(nanos(peers.options.patience).saturating_mul(FINISH_PATIENCE));
        self.drive(peers);
        while !self.lines.iter().all(|line| line.connection.has_no_list()) && peers.now() < deadline {
            self.sleep(peers, None, Some(deadline));
            self.drive(peers);
        }
        for Line { connection, servers } in
            self.lines.iter_mut().filter(|line| !line.connection.has_no_list())
        {
            connection.end(peers.explain_break_of(servers), &mut self.flight);
        }
    }
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
