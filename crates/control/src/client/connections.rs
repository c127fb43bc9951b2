//! The connections of one endpoint, one to each server, and the lists and calls in flight on them.
//!
//! This is the whole client except for wakers and sleep. An endpoint keeps its connections in a cell. A
//! fabric uses idle ones between endpoints, for requests before the first endpoint and after the last.

use super::connection::{Connection, End};
use super::flight::Flight;
use super::inbox::Inbox;
use super::lists::Lists;
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

/// The connections of one endpoint.
#[derive(Debug)]
pub(crate) struct Connections<L> {
    connections: Vec<Connection<L>>,
    pub(crate) flight: Flight,
    /// Where the answers of control arrive, in a cluster of hosts. Elsewhere they come from server 0.
    inbox: Option<Arc<Inbox>>,
    /// How many of them are awaited.
    awaited: usize,
}

impl<L: Lists> Connections<L> {
    /// The connections of one endpoint, in the order of the servers.
    pub(crate) fn new(connections: Vec<Connection<L>>) -> Self {
        Self { connections, flight: Flight::default(), inbox: None, awaited: 0 }
    }

    /// The connections of one endpoint to the copies of a cluster of hosts.
    pub(super) fn of_group(connections: Vec<Connection<L>>, inbox: Arc<Inbox>) -> Self {
        Self { inbox: Some(inbox), ..Self::new(connections) }
    }

    /// Adds the connection to the next server.
    pub(crate) fn add(&mut self, connection: Connection<L>) {
        self.connections.push(connection);
    }

    /// Connects to every server that the cluster has not declared lost.
    ///
    /// # Errors
    /// [`FabricError::Disconnected`] if a server cannot be reached, which ends this identity;
    /// [`FabricError::Unsupported`] if the server has no room for this client. If a server is lost or has
    /// fenced this client, that is no error here: everything posted there ends in that error.
    pub(crate) fn connect(peers: &Peers) -> Result<Self, FabricError> {
        let mut connections = Vec::with_capacity(usize::from(peers.servers()));
        for server in 0..peers.servers() {
            if peers.is_lost(server) {
                connections.push(Connection::ended(FabricError::ServerLost { server }));
                continue;
            }
            let deadline = Instant::now() + peers.options.connect_timeout;
            connections.push(match peers.connect(server, deadline) {
                Ok(connected) => Connection::new(connected),
                Err(error) => match peers.explain(server, &error) {
                    fenced @ FabricError::Fenced { .. } => Connection::ended(fenced),
                    error => return Err(error),
                },
            });
        }
        match peers.group() {
            None => Ok(Self::new(connections)),
            Some(_) => {
                let what = "open one more endpoint: too many files are open";
                let inbox = Inbox::new().map_err(|_| FabricError::Unsupported { what })?;
                Ok(Self::of_group(connections, inbox))
            }
        }
    }

    /// Posts `list`, or refuses it.
    #[inline]
    pub(crate) fn post(&mut self, list: WorkList, peers: &Peers) -> Ticket {
        let server = list.server();
        let Some(connection) = self.connections.get_mut(usize::from(server)) else {
            return self.flight.refuse_list(list, FabricError::NoSuchServer { server });
        };
        if let Some(error) = connection.error() {
            return self.flight.refuse_list(list, error.clone());
        }
        if let Err(error) = L::check(&list) {
            return self.flight.refuse_list(list, error);
        }
        let ticket = self.flight.begin_list(list);
        // A list executes only if its outcome can be kept. Otherwise its ticket reports an error, and that
        // error must be true.
        if ticket != NO_ROOM {
            connection.post(ticket, &mut self.flight, || peers.now());
        }
        ticket
    }

    /// Whether everything posted to `server` is refused. After a long silence, this thread may have been
    /// stopped for longer than its lease. So this method first checks whether the server has ended the
    /// connection meanwhile.
    #[inline]
    pub(crate) fn has_ended(&mut self, server: u16, peers: &Peers) -> bool {
        let Some(connection) = self.connections.get_mut(usize::from(server)) else { return false };
        match connection.heard() {
            Some(heard) if peers.now().saturating_sub(heard) > nanos(STALE) => self.look(server, peers),
            heard => heard.is_none(),
        }
    }

    /// Receives everything that has arrived from `server`. Returns whether that ends the connection.
    #[cold]
    fn look(&mut self, server: u16, peers: &Peers) -> bool {
        let Some(connection) = self.connections.get_mut(usize::from(server)) else { return false };
        let error = match connection.receive(&mut self.flight, || peers.now()) {
            Ok(_) => return false,
            Err(End::Fenced) => peers.fenced(),
            Err(End::Broken) => peers.explain_break(server),
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
        let Some(connection) = self.connections.get_mut(usize::from(server)) else {
            return self.flight.refuse_call(FabricError::NoSuchServer { server });
        };
        if let Some(error) = connection.error() {
            return self.flight.refuse_call(error.clone());
        }
        let ticket = self.flight.begin_call();
        if ticket != NO_ROOM && connection.call(ticket, request, || peers.now()).is_err() {
            self.flight.end_call(ticket, Err(FabricError::Unsupported { what: "encode this request" }));
        }
        ticket
    }

    /// Sends all waiting lists.
    pub(crate) fn flush(&mut self) {
        for connection in &mut self.connections {
            if !connection.is_idle() {
                connection.pump(&mut self.flight);
            }
        }
    }

    /// Sends, receives and delivers. Gives up connections that have ended.
    pub(crate) fn drive(&mut self, peers: &Peers) {
        self.take_answers();
        for (server, connection) in self.connections.iter_mut().enumerate() {
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
                        if peers.is_dropped(server as u16)
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
                End::Broken => peers.explain_break(server as u16),
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
        self.awaited == 0 && self.connections.iter().all(Connection::is_idle)
    }

    /// Whether another endpoint can use it: nothing is in flight, and every connection works, except those to
    /// lost servers.
    pub(crate) fn is_fit(&self) -> bool {
        self.is_idle()
            && self
                .connections
                .iter()
                .all(|connection| matches!(connection.error(), None | Some(FabricError::ServerLost { .. })))
    }

    /// When the first silent connection counts as broken.
    fn patience_ends(&self, peers: &Peers) -> Option<u64> {
        let since = self.connections.iter().filter_map(Connection::silent_since).min()?;
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
        let interests = self.connections.iter().filter_map(Connection::interest);
        let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(self.connections.len() + 2);
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
        while !self.connections.iter().all(Connection::has_no_list) && peers.now() < deadline {
            self.sleep(peers, None, Some(deadline));
            self.drive(peers);
        }
        for (server, connection) in
            self.connections.iter_mut().enumerate().filter(|(_, connection)| !connection.has_no_list())
        {
            connection.end(peers.explain_break(server as u16), &mut self.flight);
        }
    }
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
