//! Control requests: what the memory server's CPU answers, and the three that stop somebody's verbs.
//!
//! A fence is answered only when the turns that did not see it have ended (F6), and the links of another data path are stopped; that somebody leaves or departs is told
//! to the tables only then. Such a call waits without holding a lock: the shard looks again.

use super::events::{self, Event};
use super::greet::Peer;
use super::path::Ending;
use super::remote::Who;
use super::shared::Shared;
use crate::wire::frame::put_frame;
use crate::wire::words::JOIN_BY_CALL;
use crate::wire::{Kind, errors, responses};
use sherman_embedded::host::{Asker, Session};
use sherman_fabric::{ClientId, FabricError, Refusal, Request, Response};
use std::sync::Arc;

/// A control request under way.
#[derive(Debug)]
pub(super) enum Call {
    /// The answer.
    Answered(Result<Response, FabricError>),
    /// The answer waits for these turns.
    Waiting(Wait),
}

/// What a call waits for, and what is done then.
#[derive(Debug)]
pub(super) struct Wait {
    ending: Ending,
    then: Then,
    /// Who asked.
    who: Who,
}

#[derive(Debug)]
enum Then {
    /// This is the answer.
    Answer(Response),
    /// The tables are told that the session goes.
    Go(Arc<Session>, Request),
}

/// Begins to answer `request`.
pub(super) fn begin(shared: &Shared, who: Who, peer: &Peer, request: Request) -> Call {
    let answer = match (peer, request) {
        (Peer::Member(_) | Peer::Admin, Request::Stats) => Ok(Response::Stats(Box::new(shared.stats()))),
        (_, Request::Join) => Err(FabricError::Refused(Refusal::BadRequest { what: JOIN_BY_CALL })),
        (Peer::Newcomer, _) => Err(FabricError::Refused(Refusal::NotAMember { client: ClientId::NOBODY })),
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
    let goes = match request {
        Request::Leave => true,
        Request::Depart => shared.host.superblock().server == 0,
        _ => false,
    };
    if goes {
        let wait = Wait { ending: shared.book.leave(session), then: Then::Go(Arc::clone(session), request), who };
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
                let ending = shared.book.fence(client);
                shared.note_fence();
                (response, ending)
            }
            Request::Retire { client } => {
                // Whoever is retired was fenced here, so nothing of it is in progress.
                shared.book.fence(client);
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
    /// Ends the call, if what it waits for is over.
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
                        shared.book.gone(&session);
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
        // An error is far shorter than a frame may be.
        let _ = put_frame(frame, Kind::Refused, tag, |out| errors::put_error(out, error));
    };
    match answer {
        Ok(response) => {
            let mut body = Vec::new();
            let encoded = responses::put_response(&mut body, response);
            let framed = encoded.and_then(|()| put_frame(&mut frame, Kind::Answer, tag, |out| out.extend(&body)));
            if framed.is_err() {
                let asked = body.len() as u64;
                refuse(&mut frame, &FabricError::TooLarge { asked, limit: Kind::Answer.max_len().into() });
            }
        }
        Err(error) => refuse(&mut frame, error),
    }
    frame
}
