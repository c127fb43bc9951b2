//! The lists that share a connection with calls, if a data path sends lists in frames.

use super::connection::End;
use super::flight::Flight;
use crate::wire::FrameKind;
use sherman_fabric::{FabricError, Ticket, WorkList};
use std::fmt;

/// The lists in flight on one connection. The control plane decides when bytes are sent and what becomes of a
/// broken connection. The data path decides how lists are encoded, and which of them share a send.
pub trait Lists: fmt::Debug + Default + Send + 'static {
    /// Checks a list before it is posted.
    ///
    /// # Errors
    /// Why the list cannot be sent.
    fn check(list: &WorkList) -> Result<(), FabricError>;

    /// Whether no list is in flight.
    fn is_empty(&self) -> bool;

    /// Queues a list that is posted to a memory of the connection.
    fn push(&mut self, ticket: Ticket, memory: u8);

    /// Whether so many lists are unsent that they are sent now.
    fn is_batch(&self) -> bool;

    /// Whether the unsent lists are so few that they wait for the next answers. Returns true once until they
    /// are sent.
    fn waits(&mut self) -> bool;

    /// The unsent lists are sent now.
    fn begin_send(&mut self);

    /// Whether a list waits to be encoded.
    fn has_unsent(&self) -> bool;

    /// Encodes the next list as a frame.
    ///
    /// # Errors
    /// If the list does not fit a frame. The order of the lists is then lost, and so is the connection.
    fn encode(&mut self, out: &mut Vec<u8>, flight: &mut Flight) -> Result<(), FabricError>;

    /// Delivers the frame that answers the list `ticket`.
    ///
    /// # Errors
    /// If the frame answers no list, or ends the connection.
    fn deliver(
        &mut self,
        kind: FrameKind,
        ticket: Ticket,
        body: &[u8],
        flight: &mut Flight,
    ) -> Result<(), End>;

    /// Ends every list in flight with `error`, [as its server has it](error_at).
    fn end(&mut self, error: &FabricError, flight: &mut Flight);
}

/// The error of a list posted to `server`, after `error` has ended a connection that several servers share.
pub fn error_at(error: &FabricError, server: u16) -> FabricError {
    match error {
        FabricError::Disconnected { .. } => FabricError::Disconnected { server },
        error => error.clone(),
    }
}

/// No lists: the backend posts them on a data path of its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoLists;

impl Lists for NoLists {
    fn check(_: &WorkList) -> Result<(), FabricError> {
        Err(FabricError::Unsupported { what: "post a list on the control plane" })
    }

    fn is_empty(&self) -> bool {
        true
    }

    fn push(&mut self, _: Ticket, _: u8) {}

    fn is_batch(&self) -> bool {
        false
    }

    fn waits(&mut self) -> bool {
        false
    }

    fn begin_send(&mut self) {}

    fn has_unsent(&self) -> bool {
        false
    }

    fn encode(&mut self, _: &mut Vec<u8>, _: &mut Flight) -> Result<(), FabricError> {
        Ok(())
    }

    fn deliver(&mut self, _: FrameKind, _: Ticket, _: &[u8], _: &mut Flight) -> Result<(), End> {
        Err(End::Broken)
    }

    fn end(&mut self, _: &FabricError, _: &mut Flight) {}
}
