//! One connection: lists and calls out, answers in.
//!
//! Lists are answered in the order in which they were posted, and what is not is an answer from nobody: the connection is
//! given up. Calls are answered in any order. Lists wait unencoded while [`HIGH_WATER`] bytes wait to be sent, so a server
//! that does not take them costs no memory beyond theirs.

use super::connect::Connected;
use super::flight::Flight;
use super::input::Input;
use super::stream::Stream;
use crate::wire::errors::take_error;
use crate::wire::frame::put_frame;
use crate::wire::requests::put_request;
use crate::wire::responses::take_response;
use crate::wire::verbs::{put_list, take_results};
use crate::wire::{FrameHeader, Goodbye, GoodbyeCode, Kind, WireError};
use rustix::event::PollFlags;
use sherman_fabric::{FabricError, Request, Ticket};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};

/// Unsent bytes above which no further list is encoded.
const HIGH_WATER: usize = 1 << 20;
/// Lists that are sent together without waiting for more: enough for a send to be worth it, few enough for the server to be at
/// work while the client's tasks still post the others.
const BATCH: usize = 32;
/// Fewer than one in so many of the lists that the server has may wait, once, for those that its next answers make the
/// client's tasks post: a send costs as much as the work of several lists. Without this, a batch and one list more would stay
/// apart for ever.
const FEW: usize = 8;
/// The most bytes that an empty buffer for sending keeps.
const KEPT: usize = 256 << 10;

/// Why a connection is at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It broke, was closed, or said what makes no sense.
    Broken,
    /// The server has fenced us (F6).
    Fenced,
}

impl From<WireError> for End {
    fn from(_: WireError) -> Self {
        Self::Broken
    }
}

/// One connection, from its first list to its end.
#[derive(Debug)]
pub(crate) struct Line {
    wire: Result<Wire, FabricError>,
    pending: Pending,
}

#[derive(Debug)]
struct Wire {
    stream: Stream,
    out: Vec<u8>,
    /// How much of `out` is sent.
    sent: usize,
    input: Input,
    /// When the server was last heard of, or something was sent to it after a silence.
    heard: u64,
    /// Nothing can be sent any more; there may still be something to receive.
    deaf: bool,
}

/// What is in flight.
#[derive(Debug, Default)]
struct Pending {
    /// Lists in the order in which they were posted.
    lists: VecDeque<Ticket>,
    /// How many of them are encoded: the first ones.
    encoded: usize,
    /// Those that are not have waited for others.
    waited: bool,
    calls: Vec<Ticket>,
}

impl Line {
    /// A connection just made.
    pub(crate) fn new(connected: Connected) -> Self {
        Self::over(connected.stream)
    }

    fn over(stream: Stream) -> Self {
        let wire = Wire { stream, out: Vec::new(), sent: 0, input: Input::default(), heard: 0, deaf: false };
        Self { wire: Ok(wire), pending: Pending::default() }
    }

    /// A connection that there is not, for `error`.
    pub(crate) fn ended(error: FabricError) -> Self {
        Self { wire: Err(error), pending: Pending::default() }
    }

    /// Why nothing can be sent any more.
    #[inline]
    pub(crate) fn error(&self) -> Option<&FabricError> {
        self.wire.as_ref().err()
    }

    /// Whether nothing is in flight.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.pending.lists.is_empty() && self.pending.calls.is_empty()
    }

    /// Whether no list is in flight.
    pub(crate) fn has_no_list(&self) -> bool {
        self.pending.lists.is_empty()
    }

    /// A list joins the queue, and is sent if nothing else is in flight or many wait. `now` is asked only in the first case.
    #[inline]
    pub(crate) fn post(&mut self, ticket: Ticket, flight: &mut Flight, now: impl FnOnce() -> u64) {
        let idle = self.is_idle();
        self.pending.lists.push_back(ticket);
        if idle {
            self.begin(now());
        }
        if idle || self.pending.lists.len() - self.pending.encoded >= BATCH {
            self.pump(flight);
        }
    }

    /// A call is sent.
    pub(crate) fn call(
        &mut self,
        ticket: Ticket,
        request: &Request,
        now: impl FnOnce() -> u64,
    ) -> Result<(), WireError> {
        let idle = self.is_idle();
        let Ok(wire) = &mut self.wire else { return Ok(()) };
        let mut put = Ok(());
        let start = wire.out.len();
        put_frame(&mut wire.out, Kind::Call, ticket.0, |out| put = put_request(out, request))?;
        if put.is_err() {
            wire.out.truncate(start);
            return put;
        }
        self.pending.calls.push(ticket);
        if idle {
            self.begin(now());
        }
        if let Ok(wire) = &mut self.wire {
            wire.send();
        }
        Ok(())
    }

    /// The silence begins now.
    fn begin(&mut self, now: u64) {
        if let Ok(wire) = &mut self.wire {
            wire.heard = now;
        }
    }

    /// Whether what is not sent yet is so little that it waits for the next answers. Says so once until it is sent.
    #[inline]
    pub(crate) fn waits(&mut self) -> bool {
        let Pending { lists, encoded, waited, .. } = &mut self.pending;
        let unsent = lists.len() - *encoded;
        unsent > 0 && unsent * FEW < *encoded && !std::mem::replace(waited, true)
    }

    /// Encodes and sends as much as the connection takes.
    #[inline]
    pub(crate) fn pump(&mut self, flight: &mut Flight) {
        let Ok(wire) = &mut self.wire else { return };
        let Pending { lists, encoded, waited, .. } = &mut self.pending;
        *waited = false;
        loop {
            let full = wire.out.len() - wire.sent >= HIGH_WATER;
            let next = lists.get(*encoded).copied().filter(|_| !full && !wire.deaf);
            let Some(ticket) = next else {
                let before = wire.out.len() - wire.sent;
                wire.send();
                // Again if what stood in the way is gone.
                if full && wire.out.len() - wire.sent < before.min(HIGH_WATER) {
                    continue;
                }
                return;
            };
            *encoded += 1;
            let encoding = flight.list_mut(ticket).map(|list| put_list(&mut wire.out, ticket.0, list));
            // Its size was looked at when it was posted; if it does not fit after all, the order cannot be kept.
            if !matches!(encoding, Some(Ok(_))) {
                wire.deaf = true;
            }
        }
    }

    /// Receives and delivers what has arrived. Whether anything has.
    pub(crate) fn receive(&mut self, flight: &mut Flight, now: impl FnOnce() -> u64) -> Result<bool, End> {
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
                        self.pending.deliver(header, body, flight)?;
                    }
                    // Less than there was room for is all there was.
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

    /// When the server was last heard of, or something was sent to it after a silence; `None` if the connection has ended.
    #[inline]
    pub(crate) fn heard(&self) -> Option<u64> {
        self.wire.as_ref().ok().map(|wire| wire.heard)
    }

    /// Since when the server is silent although something is in flight.
    pub(crate) fn silent_since(&self) -> Option<u64> {
        self.wire.as_ref().ok().filter(|_| !self.is_idle()).map(|wire| wire.heard)
    }

    /// What to wait for on which socket, if anything is in flight.
    pub(crate) fn interest(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let wire = self.wire.as_ref().ok().filter(|_| !self.is_idle())?;
        let unsent = wire.sent < wire.out.len();
        Some((wire.stream.as_fd(), if unsent { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN }))
    }

    /// Ends it: everything in flight on it ends in `error`, and whatever is posted later.
    pub(crate) fn end(&mut self, error: FabricError, flight: &mut Flight) {
        if let Ok(wire) = &self.wire {
            wire.stream.forget_unsent();
        }
        let pending = std::mem::take(&mut self.pending);
        for ticket in pending.lists {
            let Ok(()) = flight.end_list(ticket, |_| Ok::<_, std::convert::Infallible>(Err(error.clone())));
        }
        for ticket in pending.calls {
            flight.end_call(ticket, Err(error.clone()));
        }
        self.wire = Err(error);
    }
}

impl Wire {
    /// Sends what it can.
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

impl Pending {
    /// Delivers one answer to who waits for it.
    #[inline]
    fn deliver(&mut self, header: FrameHeader, body: &[u8], flight: &mut Flight) -> Result<(), End> {
        let ticket = Ticket(header.tag);
        match header.kind {
            Kind::ListDone => {
                self.answered(ticket)?;
                flight.end_list(ticket, |list| take_results(body, list).map(Ok).map_err(End::from))
            }
            Kind::ListFailed => {
                let error = take_error(body)?;
                self.answered(ticket)?;
                let fenced = matches!(error, FabricError::Fenced { .. });
                flight.end_list(ticket, |_| Ok::<_, End>(Err(error)))?;
                if fenced { Err(End::Fenced) } else { Ok(()) }
            }
            Kind::Answer => self.called(ticket).map(|()| take_response(body))?.map_or_else(
                |error| Err(error.into()),
                |response| {
                    flight.end_call(ticket, Ok(response));
                    Ok(())
                },
            ),
            Kind::Refused => {
                let error = take_error(body)?;
                self.called(ticket)?;
                flight.end_call(ticket, Err(error));
                Ok(())
            }
            Kind::Goodbye if Goodbye::take(body)?.code == GoodbyeCode::Fenced => Err(End::Fenced),
            _ => Err(End::Broken),
        }
    }

    /// The oldest list is answered, and must be this one.
    #[inline]
    fn answered(&mut self, ticket: Ticket) -> Result<(), End> {
        if self.encoded == 0 || self.lists.front() != Some(&ticket) {
            return Err(End::Broken);
        }
        self.lists.pop_front();
        self.encoded -= 1;
        Ok(())
    }

    /// A call is answered.
    fn called(&mut self, ticket: Ticket) -> Result<(), End> {
        let at = self.calls.iter().position(|call| *call == ticket).ok_or(End::Broken)?;
        self.calls.swap_remove(at);
        Ok(())
    }
}

#[cfg(test)]
#[path = "line_tests.rs"]
mod tests;
