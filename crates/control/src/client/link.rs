//! The link of an identity to the control state of a cluster of hosts.
//!
//! Control is where the leader of the group is, and the leader changes. So one thread of each identity sends
//! the requests of all its endpoints to control. It looks for the leader again when the connection breaks,
//! when the host no longer leads, and when it is silent. Then it sends every unanswered request again.
//!
//! **What must hold.**
//! - Every request gets exactly one answer: from the leader, or [`FabricError::NoLeader`] after
//!   [`JoinOptions::patience`]. It may be carried out more than once, and after the client has given it up.
//!   Requests to control allow that.
//! - A broken connection to control does not end the identity: it says nothing about the identity's lanes.
//!   Only control's own words end it, [`FabricError::Fenced`] and [`FabricError::EpochEnded`].
//! - Everything is bounded: the number of requests, the time of each attempt, the addresses.
//!
//! A host that is silent, or that cannot be reached in time, may be slow. So the time after which the client
//! asks another one doubles each time, until some host answers.

use super::backoff::Backoff;
use super::connect::{ConnectError, Connected, connect};
use super::connection::{Connection, End};
use super::flight::Flight;
use super::lists::NoLists;
use super::notifier::Notifier;
use super::options::{Address, JoinOptions};
use super::peers::process_time;
use super::places::Places;
use super::stream::timespec;
use crate::plane::Answer;
use crate::wire::{Goodbye, Role};
use rustix::event::{PollFd, PollFlags, poll};
use sherman_executor::Unpark;
use sherman_fabric::tickets::NO_ROOM;
use sherman_fabric::{ComputeId, FabricError, Refusal, Request, Response, Ticket};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// The most requests that wait for an answer.
const MOST: usize = 4096;
/// The parts of `patience`, and of a lease, after which a silent host counts as one that does not lead.
const PART: u32 = 4;
/// The least time that a host has to answer.
const LEAST_SILENCE: Duration = Duration::from_millis(50);
/// The first and the longest pause between two attempts to find the leader.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(50));
/// How many hosts in a row may send the client on to another one before it pauses.
const HOPS: u32 = 2;

/// An identity, as control knows it.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) options: JoinOptions,
    pub(super) client: ComputeId,
    pub(super) incarnation: u32,
    pub(super) cluster: u64,
    pub(super) lease: Duration,
}

/// The link. Dropping it gives up every request that waits for an answer.
pub(super) struct ControlLink {
    shared: Arc<Shared>,
}

impl fmt::Debug for ControlLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControlLink").finish_non_exhaustive()
    }
}

/// The state that the link and its thread share.
struct Shared {
    client: ComputeId,
    patience: Duration,
    queue: Mutex<Queue>,
    /// Wakes the thread.
    wake: Notifier,
    /// The host that answered last.
    leader: Mutex<Option<Address>>,
}

#[derive(Default)]
struct Queue {
    /// Requests that the thread has not seen.
    asked: VecDeque<Pending>,
    /// Requests without an answer, in the queue and at the thread.
    open: usize,
    /// Whether the link has ended.
    over: bool,
}

/// A request without an answer.
struct Pending {
    request: Request,
    answer: Answer,
    deadline: Instant,
    /// Its ticket on the current connection, once it is sent there.
    ticket: Option<Ticket>,
    /// On how many connections it was sent.
    sent: u32,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Nothing panics while the lock is held, so the data behind a poisoned lock is still valid.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fenced(&self) -> FabricError {
        FabricError::Fenced { client: self.client }
    }
}

impl ControlLink {
    /// The host that answered last: the leader, as far as this client knows.
    pub(super) fn leader(&self) -> Option<Address> {
        self.shared.leader.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Starts the thread. It looks for the leader at `places` when there is a request.
    ///
    /// # Errors
    /// If the system has no event counter or no thread.
    pub(super) fn start(member: Member, places: Places) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            client: member.client,
            patience: member.options.patience,
            queue: Mutex::default(),
            wake: Notifier::new()?,
            leader: Mutex::default(),
        });
        let silence = (member.options.patience / PART).min(member.lease / PART).max(LEAST_SILENCE);
        let driver = Driver {
            shared: Arc::clone(&shared),
            places,
            pending: Vec::new(),
            wire: None,
            silence: Silence { first: silence, now: silence, most: member.options.patience / 2 },
            pauses: Backoff::between(PAUSES.0, PAUSES.1),
            not_before: Instant::now(),
            hops: 0,
            member,
        };
        std::thread::Builder::new().name("sherman-control".to_owned()).spawn(move || driver.run())?;
        Ok(Self { shared })
    }

    /// Sends a request to control. `answer` is called exactly once, perhaps before this returns.
    pub(super) fn submit(&self, request: Request, answer: Answer) {
        let deadline = Instant::now() + self.shared.patience;
        let mut queue = self.shared.queue();
        let refused = if queue.over {
            self.shared.fenced()
        } else if queue.open >= MOST {
            FabricError::Unsupported { what: "have more than 4096 requests to control in flight" }
        } else {
            queue.open += 1;
            queue.asked.push_back(Pending { request, answer, deadline, ticket: None, sent: 0 });
            self.shared.wake.unpark();
            return;
        };
        drop(queue);
        answer(Err(refused));
    }

    /// Sends a request to control, and waits for the answer.
    ///
    /// # Errors
    /// [`FabricError::NoLeader`] if there is no answer `within` this time, and control's own errors.
    pub(super) fn ask(&self, request: Request, within: Duration) -> Result<Response, FabricError> {
        let (tell, hear) = sync_channel(1);
        self.submit(request, Box::new(move |answer| _ = tell.try_send(answer)));
        hear.recv_timeout(within).unwrap_or(Err(FabricError::NoLeader))
    }

    /// Ends the link. Every request ends in [`FabricError::Fenced`], now and later.
    pub(super) fn stop(&self) {
        self.shared.queue().over = true;
        self.shared.wake.unpark();
    }
}

impl Drop for ControlLink {
    fn drop(&mut self) {
        self.stop();
    }
}

/// How long a host may be silent.
struct Silence {
    first: Duration,
    now: Duration,
    most: Duration,
}

impl Silence {
    fn double(&mut self) {
        self.now = (2 * self.now).min(self.most).max(self.first);
    }
}

/// The connection to the host that leads, or that is believed to lead.
struct Wire {
    address: Address,
    connection: Connection<NoLists>,
    flight: Flight,
}

/// The thread of a link.
struct Driver {
    shared: Arc<Shared>,
    member: Member,
    places: Places,
    /// In the order in which they were submitted.
    pending: Vec<Pending>,
    wire: Option<Wire>,
    silence: Silence,
    pauses: Backoff,
    /// When the next host may be asked.
    not_before: Instant,
    /// How many hosts have sent the client on since some host has answered.
    hops: u32,
}

/// What an answer says about its sender.
enum Verdict {
    /// It is the answer.
    Final(Result<Response, FabricError>),
    /// The sender does not lead; the leader is there, if it knows one.
    Elsewhere(String),
}

impl Driver {
    fn run(mut self) {
        while self.collect() {
            self.expire();
            if self.pending.is_empty() {
                self.rest(None);
            } else if self.wire.is_some() || self.reach() {
                self.exchange();
            }
        }
    }

    /// Takes the submitted requests. Returns whether the link goes on.
    fn collect(&mut self) -> bool {
        let mut queue = self.shared.queue();
        self.pending.extend(queue.asked.drain(..));
        !queue.over
    }

    /// Ends the requests that have waited for too long.
    fn expire(&mut self) {
        let now = Instant::now();
        let (late, pending): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.pending).into_iter().partition(|pending| pending.deadline <= now);
        self.pending = pending;
        for pending in late {
            if let (Some(wire), Some(ticket)) = (&mut self.wire, pending.ticket) {
                wire.flight.forget(ticket);
            }
            tracing::warn!(request = ?pending.request, "the cluster has no reachable leader");
            self.end(pending.answer, Err(FabricError::NoLeader));
        }
    }

    /// Connects to the next host, if its time has come. Returns whether there is a connection.
    fn reach(&mut self) -> bool {
        let now = Instant::now();
        if now < self.not_before {
            self.rest(Some(self.not_before));
            return false;
        }
        let Some(address) = self.places.next() else {
            self.pause();
            return false;
        };
        let Member { options, client, incarnation, cluster, .. } = &self.member;
        let role = Role::Control { client: *client, incarnation: *incarnation, cluster: *cluster };
        let part = self.silence.now.min(options.connect_timeout);
        let limit = self.first_deadline().map_or(now + part, |first| first.min(now + part));
        match connect(&address, options.secret.as_ref(), role, limit) {
            Ok(connected) if self.is_meant(&connected) => {
                let connection = Connection::new(connected);
                self.wire = Some(Wire { address, connection, flight: Flight::default() });
                return true;
            }
            Ok(_) => tracing::warn!(%address, "a memory server takes this client for another one"),
            Err(error) if error.means_fenced() => {
                let ended = match error {
                    ConnectError::Goodbye(Goodbye {
                        error: Some(ended @ FabricError::EpochEnded { .. }),
                        ..
                    }) => ended,
                    _ => self.shared.fenced(),
                };
                self.end_all(&ended);
            }
            Err(error) => {
                tracing::debug!(%address, %error, "cannot reach a memory server");
                if Instant::now() >= limit {
                    self.silence.double();
                }
                if error.is_out_of_reach() {
                    self.places.failed(address);
                }
            }
        }
        self.pause();
        false
    }

    fn is_meant(&self, Connected { welcome, .. }: &Connected) -> bool {
        let Member { client, incarnation, cluster, .. } = &self.member;
        (welcome.client, welcome.incarnation, welcome.cluster) == (*client, *incarnation, *cluster)
    }

    /// Sends what is unsent, waits, and takes what arrives.
    fn exchange(&mut self) {
        let Some(wire) = &mut self.wire else { return };
        for pending in self.pending.iter_mut().filter(|pending| pending.ticket.is_none()) {
            let ticket = wire.flight.begin_call();
            if ticket == NO_ROOM {
                break;
            }
            if wire.connection.call(ticket, 0, &pending.request, process_time).is_err() {
                wire.flight.end_call(ticket, Err(FabricError::Unsupported { what: "encode this request" }));
            }
            (pending.ticket, pending.sent) = (Some(ticket), pending.sent + 1);
        }
        // Requests without an encoding are answered already. Then nothing may be in flight.
        if !wire.connection.is_idle() {
            self.rest(self.silent_until());
        }
        self.receive();
    }

    /// Until when the host may be silent.
    fn silent_until(&self) -> Option<Instant> {
        let silent = process_time().saturating_sub(self.wire.as_ref()?.connection.silent_since()?);
        Some(Instant::now() + self.silence.now.saturating_sub(Duration::from_nanos(silent)))
    }

    /// Takes what has arrived, and gives up a host that does not lead.
    fn receive(&mut self) {
        let Some(wire) = &mut self.wire else { return };
        wire.connection.pump(&mut wire.flight);
        let received = wire.connection.receive(&mut wire.flight, process_time);
        // No task waits: `deliver` looks at every request.
        drop(wire.flight.take_woken());
        let (elsewhere, silent) = (self.deliver(), self.silent_until());
        match (received, elsewhere) {
            (Err(End::Fenced), _) => {
                self.let_go();
                let fenced = self.shared.fenced();
                self.end_all(&fenced);
            }
            (_, Some(leader)) => {
                self.let_go();
                self.hops += 1;
                if !self.places.hint(&leader) || self.hops > HOPS {
                    self.pause();
                }
            }
            (Err(End::Broken), None) => {
                self.let_go();
                self.pause();
            }
            (Ok(_), None) if silent.is_some_and(|until| until <= Instant::now()) => {
                tracing::debug!("the memory server that leads is silent");
                self.silence.double();
                if let Some(wire) = self.wire.take() {
                    self.places.failed(wire.address);
                }
                self.let_go();
                self.pause();
            }
            (Ok(_), None) => {}
        }
    }

    /// Delivers the answers. Returns where the leader is, if this host does not lead.
    fn deliver(&mut self) -> Option<String> {
        let wire = self.wire.as_mut()?;
        let (mut elsewhere, mut answered) = (None, Vec::new());
        let mut cx = Context::from_waker(Waker::noop());
        let mut at = 0;
        while let Some(pending) = self.pending.get_mut(at) {
            let polled = pending.ticket.map(|ticket| wire.flight.poll_call(ticket, &mut cx));
            let Some(Poll::Ready(answer)) = polled else {
                at += 1;
                continue;
            };
            match judge(self.shared.client, pending, answer) {
                Verdict::Final(answer) => answered.push((self.pending.remove(at).answer, answer)),
                Verdict::Elsewhere(leader) => {
                    pending.ticket = None;
                    elsewhere = Some(leader);
                    at += 1;
                }
            }
        }
        if !answered.is_empty() {
            self.silence.now = self.silence.first;
            self.hops = 0;
            self.pauses.reset();
            self.places.answered();
            if let Some(wire) = &self.wire {
                let mut leader = self.shared.leader.lock().unwrap_or_else(PoisonError::into_inner);
                leader.clone_from(&Some(wire.address.clone()));
            }
        }
        answered.into_iter().for_each(|(answer, result)| self.end(answer, result));
        elsewhere
    }

    /// Gives the connection up. What was sent on it will be sent again.
    fn let_go(&mut self) {
        self.wire = None;
        self.pending.iter_mut().for_each(|pending| pending.ticket = None);
    }

    fn pause(&mut self) {
        self.not_before = Instant::now() + self.pauses.next();
    }

    fn first_deadline(&self) -> Option<Instant> {
        self.pending.iter().map(|pending| pending.deadline).min()
    }

    /// Sleeps until something arrives or is submitted, a request has waited for too long, or `until`.
    fn rest(&self, until: Option<Instant>) {
        let until = [until, self.first_deadline()].into_iter().flatten().min();
        let limit = until.map(|until| timespec(until.saturating_duration_since(Instant::now())));
        let mut fds = vec![PollFd::from_borrowed_fd(self.shared.wake.as_fd(), PollFlags::IN)];
        let interest = self.wire.as_ref().and_then(|wire| wire.connection.interest());
        fds.extend(interest.map(|(fd, what)| PollFd::from_borrowed_fd(fd, what)));
        // An error here shows again when the socket is used.
        let _ = poll(&mut fds, limit.as_ref());
        if !fds[0].revents().is_empty() {
            self.shared.wake.clear();
        }
    }

    fn end(&self, answer: Answer, result: Result<Response, FabricError>) {
        let mut queue = self.shared.queue();
        queue.open = queue.open.saturating_sub(1);
        drop(queue);
        answer(result);
    }

    /// Ends every request.
    fn end_all(&mut self, error: &FabricError) {
        self.collect();
        for pending in std::mem::take(&mut self.pending) {
            self.end(pending.answer, Err(error.clone()));
        }
    }
}

impl Drop for Driver {
    /// Answers what is open, also if the thread panics.
    fn drop(&mut self) {
        self.shared.queue().over = true;
        let fenced = self.shared.fenced();
        self.end_all(&fenced);
    }
}

/// What the answer to a request of `client` says.
fn judge(client: ComputeId, pending: &Pending, answer: Result<Response, FabricError>) -> Verdict {
    let about_us = |named: &ComputeId| *named == client;
    let leaves = matches!(pending.request, Request::Leave | Request::Depart);
    match answer {
        Err(FabricError::Refused(Refusal::NotLeader { leader })) => Verdict::Elsewhere(leader),
        // The host is about to stop, or has lost the others.
        Err(FabricError::NoLeader | FabricError::Disconnected { .. }) => Verdict::Elsewhere(String::new()),
        // The client is no member any more, because an earlier leader has carried out the same request.
        Err(FabricError::Fenced { client } | FabricError::Refused(Refusal::NotAMember { client }))
            if leaves && pending.sent > 1 && about_us(&client) =>
        {
            Verdict::Final(Ok(Response::Done))
        }
        answer => Verdict::Final(answer),
    }
}
