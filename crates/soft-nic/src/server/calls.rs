//! Control requests: those that the memory server's CPU answers, and those that stop a client's verbs
//! (`Fence`, `Release`, `Leave`, `Depart`).
//!
//! The server answers a fence only after the turns that did not see it have ended (F6). The links of another
//! data path must be stopped too. Only then do the tables learn that a client leaves or departs. Such a call
//! waits without holding a lock; the shard checks it again later.

use super::ending::Ending;
use super::events::{self, Event};
use super::greet::{Member, Peer};
use super::remote::Who;
use super::served::{Copies, Served, Serves};
use super::shared::Shared;
use sherman_control::plane::{self, ControlPlane};
use sherman_control::wire::frame::put_frame;
use sherman_control::wire::words::JOIN_BY_CALL;
use sherman_control::wire::{FrameKind, WireError, errors, responses};
use sherman_embedded::host::{Asker, Session};
use sherman_fabric::{ComputeId, FabricError, Refusal, Request, Response};
use std::sync::Arc;

/// A control request in progress.
#[derive(Debug)]
pub(super) enum Call {
    /// The answer.
    Answered(Result<Response, FabricError>),
    /// The answer must wait for turns and links to end.
    Waiting(Wait),
}

/// What happens to a request.
#[derive(Debug)]
pub(super) enum Begun<'s> {
    /// The server answers it.
    Here(Call),
    /// The control plane answers it.
    Passed(&'s dyn ControlPlane, plane::Asker, Request),
}

/// The condition that a call waits for, and the action that follows.
#[derive(Debug)]
pub(super) struct Wait {
    ending: Ending,
    then: Then,
    /// The connection that asked.
    who: Who,
    /// The memory that it asked.
    served: Arc<Served>,
}

#[derive(Debug)]
enum Then {
    /// Send this answer.
    Answer(Response),
    /// Tell the tables that the session leaves.
    Go(Arc<Session>, Request),
}

/// Starts to answer `request`.
pub(super) fn begin<'s>(shared: &'s Shared, who: Who, peer: &Peer, request: Request) -> Begun<'s> {
    match (peer, &shared.serves) {
        (Peer::Member(_) | Peer::Admin, _) if request == Request::Stats => {
            Begun::Here(Call::Answered(Ok(Response::Stats(Box::new(shared.stats())))))
        }
        (Peer::Member(member), _) => Begun::Here(of_member(shared, who, member, request)),
        (_, Serves::Copies(copies)) => of_group(copies, peer, request),
        (_, Serves::Memory(served)) => Begun::Here(Call::Answered(of_stranger(served, who, peer, request))),
    }
}

/// The error of a peer that may not send this request, because it is not a member.
fn not_a_member() -> FabricError {
    FabricError::Refused(Refusal::NotAMember { client: ComputeId::NOBODY })
}

/// Answers a peer of a plain server that is not a member.
fn of_stranger(served: &Served, who: Who, peer: &Peer, request: Request) -> Result<Response, FabricError> {
    match (peer, request) {
        (_, Request::Join) => Err(FabricError::Refused(Refusal::BadRequest { what: JOIN_BY_CALL })),
        (Peer::Admin, request) => {
            let event = Event::before(served, &request);
            let answer = served.host.administer(&request);
            if let Some(event) = event {
                event.after(who, &answer);
            }
            answer
        }
        _ => Err(not_a_member()),
    }
}

/// Passes the request of a peer that is not at a copy to the control plane, if the peer may ask it.
fn of_group<'s>(copies: &'s Copies, peer: &Peer, request: Request) -> Begun<'s> {
    let asker = match (peer, &request) {
        (&Peer::Control { client, incarnation }, _) => plane::Asker::Member { client, incarnation },
        (Peer::Admin, Request::Usage) => {
            return Begun::Here(Call::Answered(copies.usage().map(Response::Usage)));
        }
        (Peer::Admin, _) => plane::Asker::Operator,
        (
            Peer::Newcomer,
            Request::Join | Request::Cluster | Request::Register { .. } | Request::Alive { .. },
        ) => plane::Asker::Nobody,
        _ => return Begun::Here(Call::Answered(Err(not_a_member()))),
    };
    Begun::Passed(&*copies.plane, asker, request)
}

fn of_member(shared: &Shared, who: Who, member: &Member, request: Request) -> Call {
    let (served, session) = (&member.served, member.gate.session());
    if served.copy.is_none() && request == Request::Join {
        return Call::Answered(Err(FabricError::Refused(Refusal::BadRequest { what: JOIN_BY_CALL })));
    }
    if session.is_over() {
        return Call::Answered(Err(FabricError::Fenced { client: session.client() }));
    }
    // The members, leases and trees of a host's cluster are not beside its copies.
    if served.copy.is_some() && request.is_for_control() {
        return Call::Answered(Err(FabricError::Refused(Refusal::NotHere)));
    }
    // The server that keeps the control state hears of a client that leaves twice. The first time it only
    // gives its memory back.
    let keeps_control = served.keeps_control();
    let goes = match request {
        Request::Release => !keeps_control,
        Request::Leave | Request::Depart => keeps_control,
        _ => false,
    };
    if goes {
        let ending = served.incarnations.leave(session);
        let then = Then::Go(Arc::clone(session), request);
        return Wait { ending, then, who, served: Arc::clone(served) }.look();
    }
    let host = &served.host;
    let event = Event::before(served, &request);
    let answer = host.handle(
        Asker::Member(session),
        &request,
        || host.now(),
        |_, response| match request {
            Request::Fence { client } => {
                let ending = served.incarnations.fence(client);
                shared.note_fence();
                (response, ending)
            }
            Request::Retire { client } | Request::FreeId { client } => {
                // A client that is retired was fenced here before, so it has nothing in progress.
                served.incarnations.fence(client);
                (response, None)
            }
            _ => (response, None),
        },
    );
    let (answer, ending) = match answer {
        Ok((response, ending)) => (Ok(response), ending),
        Err(error) => (Err(error), None),
    };
    if let Some(event) = event {
        event.after(who, &answer);
    }
    match (answer, ending) {
        (Ok(response), Some(ending)) => {
            Wait { ending, then: Then::Answer(response), who, served: Arc::clone(served) }.look()
        }
        (answer, _) => Call::Answered(answer),
    }
}

impl Wait {
    /// Ends the call, if its condition holds now.
    pub(super) fn look(mut self) -> Call {
        match self.ending.is_over() {
            Ok(true) => {}
            Ok(false) => return Call::Waiting(self),
            Err(error) => return Call::Answered(Err(error)),
        }
        let Served { host, incarnations, .. } = &*self.served;
        Call::Answered(match self.then {
            Then::Answer(response) => Ok(response),
            Then::Go(session, request) => {
                let answer = host.handle(
                    Asker::Leaver(&session),
                    &request,
                    || host.now(),
                    |_, response| {
                        incarnations.gone(&session);
                        response
                    },
                );
                if answer.is_ok() {
                    events::left(self.who, &request);
                }
                answer
            }
        })
    }
}

/// The frame that answers call `tag`.
pub(super) fn frame(tag: u64, answer: &Result<Response, FabricError>) -> Vec<u8> {
    let mut frame = Vec::new();
    let refuse = |frame: &mut Vec<u8>, error: &FabricError| {
        let mut put = |error: &FabricError| {
            put_frame(frame, FrameKind::Refused, tag, |out| errors::put_error(out, error))
        };
        // Errors of this server are much shorter than the limit of a frame. The control plane may name a
        // longer address.
        if let Err(WireError::TooLarge { asked, limit, .. }) = put(error) {
            let _ = put(&FabricError::TooLarge { asked, limit });
        }
    };
    match answer {
        Ok(response) => {
            let mut body = Vec::new();
            let encoded = responses::put_response(&mut body, response);
            let framed =
                encoded.and_then(|()| put_frame(&mut frame, FrameKind::Answer, tag, |out| out.extend(&body)));
            if framed.is_err() {
                let asked = body.len() as u64;
                refuse(
                    &mut frame,
                    &FabricError::TooLarge { asked, limit: FrameKind::Answer.max_len().into() },
                );
            }
        }
        Err(error) => refuse(&mut frame, error),
    }
    frame
}
