//! Control requests: those that the memory server's CPU answers, and those that stop a client's verbs
//! (`Fence`, `Release`, `Leave`, `Depart`).
//!
//! The server answers a fence only after the turns that did not see it have ended (F6). The links of another
//! data path must be stopped too. Only then do the tables learn that a client leaves or departs. Such a call
//! waits without holding a lock; the shard checks it again later.

use super::ending::Ending;
use super::events::{self, Event};
use super::greet::Peer;
use super::remote::Who;
use super::shared::Shared;
use sherman_control::wire::frame::put_frame;
use sherman_control::wire::words::JOIN_BY_CALL;
use sherman_control::wire::{FrameKind, errors, responses};
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

/// The condition that a call waits for, and the action that follows.
#[derive(Debug)]
pub(super) struct Wait {
    ending: Ending,
    then: Then,
    /// The connection that asked.
    who: Who,
}

#[derive(Debug)]
enum Then {
    /// Send this answer.
    Answer(Response),
    /// Tell the tables that the session leaves.
    Go(Arc<Session>, Request),
}

/// Starts to answer `request`.
pub(super) fn begin(shared: &Shared, who: Who, peer: &Peer, request: Request) -> Call {
    let answer = match (peer, request) {
        (Peer::Member(_) | Peer::Admin, Request::Stats) => Ok(Response::Stats(Box::new(shared.stats()))),
        (_, Request::Join) => Err(FabricError::Refused(Refusal::BadRequest { what: JOIN_BY_CALL })),
        (Peer::Newcomer, _) => Err(FabricError::Refused(Refusal::NotAMember { client: ComputeId::NOBODY })),
        (Peer::Admin, request) => {
            let event = Event::before(shared, &request);
            let answer = shared.host.administer(&request);
            if let Some(event) = event {
                event.after(who, &answer);
            }
            answer
        }
        (Peer::Member(gate), request) => return of_member(shared, who, gate.session(), request),
    };
    Call::Answered(answer)
}

fn of_member(shared: &Shared, who: Who, session: &Arc<Session>, request: Request) -> Call {
    if session.is_over() {
        return Call::Answered(Err(FabricError::Fenced { client: session.client() }));
    }
    // The server that keeps the control state hears of a client that leaves twice. The first time it only
    // gives its memory back.
    let keeps_control = shared.host.superblock().server == sherman_fabric::Peer::Control.server();
    let goes = match request {
        Request::Release => !keeps_control,
        Request::Leave | Request::Depart => keeps_control,
        _ => false,
    };
    if goes {
        let wait = Wait {
            ending: shared.incarnations.leave(session),
            then: Then::Go(Arc::clone(session), request),
            who,
        };
        return wait.look(shared);
    }
    let host = &shared.host;
    let event = Event::before(shared, &request);
    let answer = host.handle(
        Asker::Member(session),
        &request,
        || host.now(),
        |_, response| match request {
            Request::Fence { client } => {
                let ending = shared.incarnations.fence(client);
                shared.note_fence();
                (response, ending)
            }
            Request::Retire { client } | Request::FreeId { client } => {
                // A client that is retired was fenced here before, so it has nothing in progress.
                shared.incarnations.fence(client);
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
        (Ok(response), Some(ending)) => Wait { ending, then: Then::Answer(response), who }.look(shared),
        (answer, _) => Call::Answered(answer),
    }
}

impl Wait {
    /// Ends the call, if its condition holds now.
    pub(super) fn look(mut self, shared: &Shared) -> Call {
        match self.ending.is_over() {
            Ok(true) => {}
            Ok(false) => return Call::Waiting(self),
            Err(error) => return Call::Answered(Err(error)),
        }
        let host = &shared.host;
        Call::Answered(match self.then {
            Then::Answer(response) => Ok(response),
            Then::Go(session, request) => {
                let answer = host.handle(
                    Asker::Leaver(&session),
                    &request,
                    || host.now(),
                    |_, response| {
                        shared.incarnations.gone(&session);
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
        // An error is much shorter than the limit of a frame.
        let _ = put_frame(frame, FrameKind::Refused, tag, |out| errors::put_error(out, error));
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
