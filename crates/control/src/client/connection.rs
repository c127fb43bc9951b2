//! One connection: calls and perhaps lists out, answers in.
//!
//! Calls are answered in any order. Lists, if the data path sends them in frames ([`Lists`]), wait unencoded
//! while [`HIGH_WATER`] bytes wait to be sent. So a server that does not receive costs no memory beyond the
//! lists themselves.

use super::connect::Connected;
use super::flight::Flight;
use super::input::Input;
use super::lists::Lists;
use super::stream::Stream;
use crate::wire::errors::take_error;
use crate::wire::frame::{put_frame, set_memory};
use crate::wire::requests::put_request;
use crate::wire::responses::take_response;
use crate::wire::{FrameHeader, FrameKind, Goodbye, GoodbyeCode, WireError};
use rustix::event::PollFlags;
use sherman_fabric::{FabricError, Request, Ticket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// With this many unsent bytes or more, no further list is encoded.
pub const HIGH_WATER: usize = 1 << 20;
/// The most bytes that an empty send buffer keeps.
const KEPT: usize = 256 << 10;

/// Why a connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It broke, was closed, or delivered bytes that make no sense.
    Broken,
    /// The server has fenced this client (F6).
    Fenced,
}

impl From<WireError> for End {
    fn from(_: WireError) -> Self {
        Self::Broken
    }
}

/// One connection, from its first list to its end.
#[derive(Debug)]
pub struct Connection<L> {
    wire: Result<Wire, FabricError>,
    lists: L,
    calls: Vec<Ticket>,
}

#[derive(Debug)]
struct Wire {
    stream: Stream,
    out: Vec<u8>,
    /// How many bytes of `out` are sent.
    sent: usize,
    input: Input,
    /// When the client last received from the server, or first sent after a silence.
    heard: u64,
    /// Whether sending is no longer possible. There may still be bytes to receive.
    deaf: bool,
}

impl<L: Lists> Connection<L> {
    /// Wraps a new connection.
    pub(crate) fn new(connected: Connected) -> Self {
        Self::with(connected.stream)
    }

    /// Wraps a socket whose handshake is done.
    pub fn over(socket: OwnedFd) -> Self {
        Self::with(socket.into())
    }

    fn with(stream: Stream) -> Self {
        let wire = Wire { stream, out: Vec::new(), sent: 0, input: Input::default(), heard: 0, deaf: false };
        Self { wire: Ok(wire), lists: L::default(), calls: Vec::new() }
    }

    /// Stands for a connection that does not exist, because of `error`.
    pub(crate) fn ended(error: FabricError) -> Self {
        Self { wire: Err(error), lists: L::default(), calls: Vec::new() }
    }

    /// Why nothing can be sent any more; `None` if sending is possible.
    #[inline]
    pub(crate) fn error(&self) -> Option<&FabricError> {
        self.wire.as_ref().err()
    }

    /// Whether nothing is in flight.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.lists.is_empty() && self.calls.is_empty()
    }

    /// Whether no list is in flight.
    pub(crate) fn has_no_list(&self) -> bool {
        self.lists.is_empty()
    }

    /// The lists in flight.
    pub fn lists(&self) -> &L {
        &self.lists
    }

    /// How many bytes are encoded and not yet sent completely.
    pub fn unsent(&self) -> usize {
        self.wire.as_ref().map_or(0, |wire| wire.out.len())
    }

    /// Queues a list for a memory of the connection. Sends it if nothing else is in flight, or if many lists
    /// wait. Calls `now` only in the first case.
    #[inline]
    pub fn post(&mut self, ticket: Ticket, memory: u8, flight: &mut Flight, now: impl FnOnce() -> u64) {
        let idle = self.is_idle();
        self.lists.push(ticket, memory);
        if idle {
            self.begin(now());
        }
        if idle || self.lists.is_batch() {
            self.pump(flight);
        }
    }

    /// Sends a call to a memory of the connection.
    ///
    /// # Errors
    /// If this version of the protocol does not know the request.
    pub fn call(
        &mut self,
        ticket: Ticket,
        memory: u8,
        request: &Request,
        now: impl FnOnce() -> u64,
    ) -> Result<(), WireError> {
        let idle = self.is_idle();
        let Ok(wire) = &mut self.wire else { return Ok(()) };
        let mut put = Ok(());
        let start = wire.out.len();
        put_frame(&mut wire.out, FrameKind::Call, ticket.0, |out| put = put_request(out, request))?;
        if put.is_err() {
            wire.out.truncate(start);
            return put;
        }
        set_memory(&mut wire.out[start..], memory);
        self.calls.push(ticket);
        if idle {
            self.begin(now());
        }
        if let Ok(wire) = &mut self.wire {
            wire.send();
        }
        Ok(())
    }

    /// The time of silence starts now.
    fn begin(&mut self, now: u64) {
        if let Ok(wire) = &mut self.wire {
            wire.heard = now;
        }
    }

    /// Whether the unsent lists are so few that they wait for the next answers. Returns true once until they
    /// are sent.
    #[inline]
    pub fn waits(&mut self) -> bool {
        self.lists.waits()
    }

    /// Encodes and sends as much as the connection takes.
    #[inline]
    pub fn pump(&mut self, flight: &mut Flight) {
        let Ok(wire) = &mut self.wire else { return };
        self.lists.begin_send();
        loop {
            let full = wire.out.len() - wire.sent >= HIGH_WATER;
            if full || wire.deaf || !self.lists.has_unsent() {
                let before = wire.out.len() - wire.sent;
                wire.send();
                // Continues if this send has made room.
                if full && wire.out.len() - wire.sent < before.min(HIGH_WATER) {
                    continue;
                }
                return;
            }
            // The size was checked when the list was posted. If the list does not fit after all, the order is
            // lost.
            if self.lists.encode(&mut wire.out, flight).is_err() {
                wire.deaf = true;
            }
        }
    }

    /// Receives and delivers everything that has arrived. Returns whether anything has.
    ///
    /// # Errors
    /// Why the connection has ended.
    pub fn receive(&mut self, flight: &mut Flight, now: impl FnOnce() -> u64) -> Result<bool, End> {
        let Ok(wire) = &mut self.wire else { return Ok(false) };
        let mut any = false;
        loop {
            let room = wire.input.room();
            let asked = room.len();
            match wire.stream.receive(room) {
                Ok(None) => break,
                Ok(Some(0)) | Err(_) => return Err(End::Broken),
                Ok(Some(received)) => {
                    any = true;
                    wire.input.received(received);
                    while let Some((header, body)) = wire.input.next()? {
                        deliver(&mut self.lists, &mut self.calls, header, body, flight)?;
                    }
                    // The receive did not fill the buffer, so nothing more has arrived.
                    if received < asked {
                        break;
                    }
                }
            }
        }
        if any {
            wire.heard = now();
        }
        if wire.deaf { Err(End::Broken) } else { Ok(any) }
    }

    /// When the client last received from the server, or first sent after a silence; `None` if the connection
    /// has ended.
    #[inline]
    pub(crate) fn heard(&self) -> Option<u64> {
        self.wire.as_ref().ok().map(|wire| wire.heard)
    }

    /// Since when the server has been silent while something is in flight.
    pub(crate) fn silent_since(&self) -> Option<u64> {
        self.wire.as_ref().ok().filter(|_| !self.is_idle()).map(|wire| wire.heard)
    }

    /// The socket to wait on and the events to wait for, if anything is in flight.
    pub(crate) fn interest(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let wire = self.wire.as_ref().ok().filter(|_| !self.is_idle())?;
        let unsent = wire.sent < wire.out.len();
        Some((wire.stream.as_fd(), if unsent { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN }))
    }

    /// Ends the connection. Everything in flight on it ends in `error`, and so does everything posted later.
    pub fn end(&mut self, error: FabricError, flight: &mut Flight) {
        if let Ok(wire) = &self.wire {
            wire.stream.forget_unsent();
        }
        self.lists.end(&error, flight);
        for ticket in self.calls.drain(..) {
            flight.end_call(ticket, Err(error.clone()));
        }
        self.wire = Err(error);
    }
}

impl Wire {
    /// Sends as much as the socket takes.
    fn send(&mut self) {
        while self.sent < self.out.len() && !self.deaf {
            match self.stream.send(&self.out[self.sent..]) {
                Ok(Some(sent)) => self.sent += sent,
                Ok(None) => break,
                Err(_) => self.deaf = true,
            }
        }
        if self.sent == self.out.len() {
            self.out.clear();
            self.out.shrink_to(KEPT);
            self.sent = 0;
        } else if self.sent >= HIGH_WATER {
            self.out.drain(..self.sent);
            self.sent = 0;
        }
    }
}

/// Delivers one answer to its list or call.
#[inline]
fn deliver<L: Lists>(
    lists: &mut L,
    calls: &mut Vec<Ticket>,
    header: FrameHeader,
    body: &[u8],
    flight: &mut Flight,
) -> Result<(), End> {
    let ticket = Ticket(header.tag);
    match header.kind {
        FrameKind::ListDone | FrameKind::ListFailed => lists.deliver(header.kind, ticket, body, flight),
        FrameKind::Answer => {
            take_call(calls, ticket)?;
            flight.end_call(ticket, Ok(take_response(body)?));
            Ok(())
        }
        FrameKind::Refused => {
            let error = take_error(body)?;
            take_call(calls, ticket)?;
            flight.end_call(ticket, Err(error));
            Ok(())
        }
        FrameKind::Goodbye if Goodbye::take(body)?.code == GoodbyeCode::Fenced => Err(End::Fenced),
        _ => Err(End::Broken),
    }
}

/// Removes a call that is answered.
fn take_call(calls: &mut Vec<Ticket>, ticket: Ticket) -> Result<(), End> {
    let at = calls.iter().position(|call| *call == ticket).ok_or(End::Broken)?;
    calls.swap_remove(at);
    Ok(())
}
