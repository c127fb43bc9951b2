//! Control requests: what a memory server's CPU answers, and the two that stop somebody's verbs.
//!
//! A fence is answered only when the lists that were being executed have ended (F6), and who leaves gives up its id only
//! then. Such a call waits without holding any lock: whoever polls it looks again.

use crate::cluster::Membership;
use crate::gate::Drain;
use sherman_fabric::{FabricError, Request, Response};

/// A control request under way.
#[derive(Debug)]
pub(crate) enum Call {
    /// The answer is known.
    Answered(Result<Response, FabricError>),
    /// The answer is known, but is told only when these lists have ended.
    Stopping(Drain, Response),
    /// The servers are told only when these lists have ended: then the id may be issued again.
    Leaving(Drain),
}

impl Call {
    /// Sends `request` to `server` in the name of the member.
    pub(crate) fn begin(membership: &Membership, server: u16, request: &Request) -> Self {
        Self::try_begin(membership, server, request).unwrap_or_else(|error| Self::Answered(Err(error)))
    }

    fn try_begin(membership: &Membership, server: u16, request: &Request) -> Result<Self, FabricError> {
        let Membership { cluster, member } = membership;
        let handler = cluster.server(server)?;
        if member.flag(server).is_up() {
            return Err(FabricError::Fenced { client: member.client });
        }
        if *request == Request::Leave && server == 0 {
            return Ok(Self::Leaving(member.leave()));
        }
        let response = handler.handle(member.client, request, cluster.now())?;
        match *request {
            Request::Fence { client } => Ok(match cluster.member(client) {
                Some(fenced) => Self::Stopping(fenced.fence(server), response),
                None => Self::Answered(Ok(response)),
            }),
            _ => Ok(Self::Answered(Ok(response))),
        }
    }

    /// Whether it can be answered now; if not, because of lists that are being executed at this moment.
    pub(crate) fn is_ready(&mut self) -> bool {
        match self {
            Self::Answered(_) => true,
            Self::Stopping(drain, _) | Self::Leaving(drain) => drain.is_over(),
        }
    }

    /// The answer, once it is ready.
    pub(crate) fn finish(self, membership: &Membership) -> Result<Response, FabricError> {
        let Membership { cluster, member } = membership;
        match self {
            Self::Answered(answer) => answer,
            Self::Stopping(_, response) => Ok(response),
            Self::Leaving(_) if member.may_go() => cluster.say_goodbye(member.client),
            Self::Leaving(_) => Err(FabricError::Fenced { client: member.client }),
        }
    }
}
