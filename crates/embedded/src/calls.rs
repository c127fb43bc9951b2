//! Control requests: those that a memory server's CPU answers, and the three that stop a member's verbs.
//!
//! A server answers a fence only when the lists in progress have ended (F6). A member that leaves or departs
//! also tells the servers only then. Such a call holds no lock while it waits: each poll looks again.
//!
//! A fence of an id targets the incarnation that has the id at that moment. The server's lock ensures this in
//! two ways. Under the lock, the server refuses a request of a member that it has fenced or that has left.
//! Under the same lock, a fence finds and flags its member before the server answers the next request. So a
//! late request of an old incarnation never reaches the next incarnation.

use crate::gate::Drain;
use crate::membership::Seat;
use sherman_fabric::{FabricError, Peer, Request, Response};

/// A control request in progress.
#[derive(Debug)]
pub enum Call {
    /// The answer is known.
    Answered(Result<Response, FabricError>),
    /// The answer is known. The caller gets it only when these lists have ended.
    Stopping(Drain, Response),
    /// The servers hear of it only when these lists have ended, because then the id may be issued again.
    Leaving(Drain),
    /// The control state hears of it only when these lists have ended, because then a recoverer may take over
    /// the member's state.
    Departing(Drain),
    /// The caller never gets the answer, because the member has halted.
    Never,
}

impl Call {
    /// Sends `request` to `peer` in the name of the member.
    pub(crate) fn begin<S: Seat>(seat: &S, peer: Peer, request: &Request) -> Self {
        let begun = seat.admits(peer).and_then(|()| {
            Ok(match *request {
                Request::Leave if peer == Peer::Control => Self::Leaving(seat.member().leave()),
                Request::Depart if peer == Peer::Control => Self::Departing(seat.member().leave()),
                _ => seat.ask(peer, request)?,
            })
        });
        begun.unwrap_or_else(|error| Self::Answered(Err(error)))
    }

    /// Whether the call can be answered now. If not, lists are still being executed, or the member has
    /// halted.
    pub(crate) fn is_ready(&mut self) -> bool {
        match self {
            Self::Answered(_) => true,
            Self::Stopping(drain, _) | Self::Leaving(drain) | Self::Departing(drain) => drain.is_over(),
            Self::Never => false,
        }
    }

    /// The answer, once it is ready.
    pub(crate) fn finish<S: Seat>(self, seat: &S) -> Result<Response, FabricError> {
        match self {
            Self::Answered(answer) => answer,
            Self::Stopping(_, response) => Ok(response),
            Self::Leaving(_) if seat.member().may_go() => seat.say_goodbye(),
            Self::Departing(_) if seat.member().may_go() => seat.depart(),
            Self::Leaving(_) | Self::Departing(_) | Self::Never => {
                Err(FabricError::Fenced { client: seat.member().client })
            }
        }
    }
}
