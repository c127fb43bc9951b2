//! Lists in frames, on the connections of the control plane.
//!
//! The server answers lists in the order in which they were posted. An answer out of order matches no list,
//! and the client gives the connection up.

use crate::verbs::{list_size, put_list_to, take_results};
use sherman_control::client::connection::End;
use sherman_control::client::flight::Flight;
use sherman_control::client::lists::{Lists, error_at};
use sherman_control::wire::FrameKind;
use sherman_control::wire::errors::take_error;
use sherman_fabric::{FabricError, Ticket, WorkList};
use std::collections::VecDeque;
use std::convert::Infallible;

/// Lists that are sent together without waiting for more. They are enough to make a send worthwhile, and few
/// enough that the server works while the client's tasks still post others.
const BATCH: usize = 32;
/// If the unsent lists are fewer than one in `FEW` of the lists at the server, they may wait once. The
/// server's next answers make the client's tasks post more lists, which then share the send: a send costs as
/// much as several lists. Without this, a batch and one extra list would never share a send.
const FEW: usize = 8;

const NOT_IN_FLIGHT: FabricError = FabricError::Unsupported { what: "encode a list that is not in flight" };

/// The lists in flight on one connection.
#[derive(Debug, Default)]
pub struct SocketLists {
    /// In the order of posting, each with the connection's memory that it is for.
    lists: VecDeque<(Ticket, u8)>,
    /// How many of them, from the front, are encoded.
    encoded: usize,
    /// Whether the unencoded lists have already waited for others.
    waited: bool,
}

impl SocketLists {
    /// Removes the oldest list, which is answered now and must be `ticket`.
    #[inline]
    fn answered(&mut self, ticket: Ticket) -> Result<(), End> {
        if self.encoded == 0 || self.lists.front().is_none_or(|(front, _)| *front != ticket) {
            return Err(End::Broken);
        }
        self.lists.pop_front();
        self.encoded -= 1;
        Ok(())
    }
}

impl Lists for SocketLists {
    #[inline]
    fn check(list: &WorkList) -> Result<(), FabricError> {
        list_size(list).map(drop)
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }

    #[inline]
    fn push(&mut self, ticket: Ticket, memory: u8) {
        self.lists.push_back((ticket, memory));
    }

    #[inline]
    fn is_batch(&self) -> bool {
        self.lists.len() - self.encoded >= BATCH
    }

    #[inline]
    fn waits(&mut self) -> bool {
        let unsent = self.lists.len() - self.encoded;
        unsent > 0 && unsent * FEW < self.encoded && !std::mem::replace(&mut self.waited, true)
    }

    #[inline]
    fn begin_send(&mut self) {
        self.waited = false;
    }

    #[inline]
    fn has_unsent(&self) -> bool {
        self.encoded < self.lists.len()
    }

    #[inline]
    fn encode(&mut self, out: &mut Vec<u8>, flight: &mut Flight) -> Result<(), FabricError> {
        let Some(&(ticket, memory)) = self.lists.get(self.encoded) else { return Ok(()) };
        self.encoded += 1;
        let list = flight.list_mut(ticket).ok_or(NOT_IN_FLIGHT)?;
        put_list_to(out, memory, ticket.0, list).map(drop)
    }

    #[inline]
    fn deliver(
        &mut self,
        kind: FrameKind,
        ticket: Ticket,
        body: &[u8],
        flight: &mut Flight,
    ) -> Result<(), End> {
        if kind == FrameKind::ListDone {
            self.answered(ticket)?;
            return flight.end_list(ticket, |list| take_results(body, list).map(Ok).map_err(End::from));
        }
        let error = take_error(body)?;
        self.answered(ticket)?;
        let fenced = matches!(error, FabricError::Fenced { .. });
        flight.end_list(ticket, |_| Ok::<_, End>(Err(error)))?;
        if fenced { Err(End::Fenced) } else { Ok(()) }
    }

    fn end(&mut self, error: &FabricError, flight: &mut Flight) {
        for (ticket, _) in std::mem::take(self).lists {
            let outcome = |list: &mut WorkList| Ok::<_, Infallible>(Err(error_at(error, list.server())));
            let Ok(()) = flight.end_list(ticket, outcome);
        }
    }
}

#[cfg(test)]
#[path = "lists_tests.rs"]
mod tests;
