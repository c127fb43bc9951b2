//! Control requests: what a memory server's CPU answers, and the three that stop somebody's verbs.
//!
//! A fence is answered only when the lists that were being executed have ended (F6), and who leaves or departs says so only
//! then. Such a call waits without holding any lock: whoever polls it looks again.
//!
//! A fence of an id is meant for the incarnation that has the id at that moment. Both ends of that are kept by the server's
//! lock: a request of a member that this server has fenced, or that has left, is refused behind it, and a fence finds and flags its member
//! before the next request is answered. So nothing an old incarnation has sent late reaches the next one.

use crate::cluster::Membership;
use crate::gate::Drain;
use crate::server::Asker;
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
    /// Server 0 is told only when these lists have ended: then somebody may take over what is left.
    Departing(Drain),
    /// Nobody will hear the answer: who asked has stopped dead.
    Never,
}

impl Call {
    /// Sends `request` to `server` in the name of the member.
    pub(crate) fn begin(membership: &Membership, server: u16, request: &Request) -> Self {
        Self::try_begin(membership, server, request).unwrap_or_else(|error| Self::Answered(Err(error)))
    }

    fn try_begin(membership: &Membership, server: u16, request: &Request) -> Result<Self, FabricError> {
        let Membership { cluster, member } = membership;
        let handler = cluster.server(server)?;
        let flag = member.flag(server);
        if flag.is_over() {
            return Err(FabricError::Fenced { client: member.client });
        }
        match *request {
            Request::Leave if server == 0 => return Ok(Self::Leaving(member.leave())),
            Request::Depart if server == 0 => return Ok(Self::Departing(member.leave())),
            _ => {}
        }
        handler.handle(
            Asker::Member(member, flag),
            request,
            || cluster.now(),
            |_, response| match *request {
                Request::Fence { client } => match cluster.member(client) {
                    Some(fenced) => Self::Stopping(fenced.fence(server), response),
                    None => Self::Answered(Ok(response)),
                },
                _ => Self::Answered(Ok(response)),
            },
        )
    }

    /// Whether it can be answered now; if not, because of lists that are being executed at this moment.
    pub(crate) fn is_ready(&mut self) -> bool {
        match self {
            Self::Answered(_) => true,
            Self::Stopping(drain, _) | Self::Leaving(drain) | Self::Departing(drain) => drain.is_over(),
            Self::Never => false,
        }
    }

    /// The answer, once it is ready.
    pub(crate) fn finish(self, membership: &Membership) -> Result<Response, FabricError> {
        let Membership { cluster, member } = membership;
        match self {
            Self::Answered(answer) => answer,
            Self::Stopping(_, response) => Ok(response),
            Self::Leaving(_) if member.may_go() => cluster.say_goodbye(member),
            Self::Departing(_) if member.may_go() => cluster.depart(member),
            Self::Leaving(_) | Self::Departing(_) | Self::Never => Err(FabricError::Fenced { client: member.client }),
        }
    }
}
