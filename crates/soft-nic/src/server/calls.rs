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
use sherman_control::plane::{self, Answer, ControlPlane, Mirror};
use sherman_control::wire::frame::put_frame;
use sherman_control::wire::group::Fill;
use sherman_control::wire::words::JOIN_BY_CALL;
use sherman_control::wire::{FrameKind, WireError, errors, responses};
use sherman_embedded::host::{Asker, Made, Session};
use sherman_fabric::group::Store;
use sherman_fabric::{ComputeId, FabricError, Refusal, Request, Response};
use std::sync::{Arc, Mutex, PoisonError};

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

/// The conditions that a call waits for, and the action that follows.
#[derive(Debug)]
pub(super) struct Wait {
    /// Turns and links that must end.
    ending: Option<Ending>,
    /// The other copies, which must make the same stores (T5).
    copied: Option<Copied>,
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

/// The outcome of sending stores to the other copies, once it is known.
#[derive(Clone, Debug, Default)]
struct Copied(Arc<Mutex<Option<Result<Response, FabricError>>>>);

impl Copied {
    fn answer(&self) -> Answer {
        let slot = Arc::clone(&self.0);
        Box::new(move |outcome| *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome))
    }

    fn outcome(&self) -> Option<Result<Response, FabricError>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Starts to answer `request`.
pub(super) fn begin<'s>(shared: &'s Shared, who: Who, peer: &Peer, request: Request) -> Begun<'s> {
    match (peer, &shared.serves) {
        (Peer::Member(_) | Peer::Admin, _) if request == Request::Stats => {
            Begun::Here(Call::Answered(Ok(Response::Stats(Box::new(shared.stats())))))
        }
        (Peer::Member(members), _) => Begun::Here(of_member(shared, who, members.current(), request)),
        (Peer::Host { connection, .. }, Serves::Copies(copies)) => {
            let answer = match request {
                Request::Digest { copy, offset, len } => {
                    digest(copies, *connection, copy, offset, len).map(|answer| Call::Answered(Ok(answer)))
                }
                request => of_host(shared, who, copies, request),
            };
            Begun::Here(answer.unwrap_or_else(|error| Call::Answered(Err(error))))
        }
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
            Request::Join
            | Request::Cluster
            | Request::Register { .. }
            | Request::Return { .. }
            | Request::Alive { .. }
            | Request::Copied { .. }
            | Request::Settled { .. },
        ) => plane::Asker::Nobody,
        _ => return Begun::Here(Call::Answered(Err(not_a_member()))),
    };
    Begun::Passed(&*copies.plane, asker, request)
}

/// The refusal of a request about a copy that this host does not have, perhaps because it has not carried out
/// the sender's table.
fn not_yet(copy: u16) -> FabricError {
    FabricError::Refused(Refusal::Unreachable { server: copy })
}

/// Answers the host of a primary: the digests of a copy that is being made.
fn digest(
    copies: &Copies,
    connection: u64,
    copy: u16,
    offset: u64,
    len: u32,
) -> Result<Response, FabricError> {
    let served = copies.get(copy).ok_or(not_yet(copy))?;
    served.filling(connection, |host| host.digests(offset, len)).map(Response::Digests)
}

/// Takes bytes of the host of a primary, for a copy that is being made.
pub(super) fn fill(shared: &Shared, connection: u64, fill: &Fill<'_>) -> Result<Response, FabricError> {
    let Serves::Copies(copies) = &shared.serves else {
        return Err(FabricError::Refused(Refusal::NotHere));
    };
    let served = copies.get(fill.copy).ok_or(not_yet(fill.copy))?;
    served.filling(connection, |host| {
        if copies.plane.epoch() > fill.epoch {
            return Err(FabricError::EpochEnded { client: ComputeId::NOBODY });
        }
        host.fill(fill.offset, fill.bytes)
    })?;
    Ok(Response::Done)
}

/// Answers another host: makes the stores of the CPU of a primary there.
fn of_host(shared: &Shared, who: Who, copies: &Copies, request: Request) -> Result<Call, FabricError> {
    let Request::Mirror { copy, epoch, number, stores, fenced } = request else {
        return Err(FabricError::Refused(Refusal::BadRequest {
            what: "another host may not send this request",
        }));
    };
    let over = FabricError::EpochEnded { client: ComputeId::NOBODY };
    let Some(served) = copies.get(copy) else {
        return Err(if copies.plane.epoch() > epoch { over } else { not_yet(copy) });
    };
    let made = served.host.make_stores((epoch, number), &stores, || {
        let ending = fenced.and_then(|client| served.incarnations.fence(client));
        if fenced.is_some() {
            shared.note_fence();
        }
        ending
    })?;
    let ending = match made {
        Made::Now(ending) => ending,
        // The first answer may be lost although the client's turns have not ended. If this request is very
        // late, its id may have another holder, which nobody has fenced.
        Made::Before => fenced.and_then(|client| served.incarnations.fenced(client)),
        Made::Refused => return Err(over),
    };
    Ok(Wait { ending, copied: None, then: Then::Answer(Response::Done), who, served }.look())
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
        let ending = Some(served.incarnations.leave(session));
        let then = Then::Go(Arc::clone(session), request);
        return Wait { ending, copied: None, then, who, served: Arc::clone(served) }.look();
    }
    let event = Event::before(served, &request);
    let answer = handle(served, Asker::Member(session), &request, |response| match request {
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
    });
    let (answer, ending, copied) = match answer {
        Ok(((response, ending), copied)) => (Ok(response), ending, copied),
        Err(error) => (Err(error), None, None),
    };
    if let Some(event) = event {
        event.after(who, &answer);
    }
    match answer {
        Ok(response) if ending.is_some() || copied.is_some() => {
            Wait { ending, copied, then: Then::Answer(response), who, served: Arc::clone(served) }.look()
        }
        answer => Call::Answered(answer),
    }
}

/// Lets the CPU of a memory answer. `then` runs under the lock of the memory. If the memory has other copies,
/// they get the stores of the CPU, and the caller waits for them.
fn handle<T>(
    served: &Served,
    asker: Asker<'_>,
    request: &Request,
    then: impl FnOnce(Response) -> T,
) -> Result<(T, Option<Copied>), FabricError> {
    let host = &served.host;
    if served.copy.is_none() {
        return host.handle(asker, request, || host.now(), |_, response| (then(response), None));
    }
    host.handle_recorded(asker, request, |_, response, stores| {
        let fenced = match *request {
            Request::Fence { client } => Some(client),
            _ => None,
        };
        let mirror = served.mirror().filter(|_| !stores.is_empty() || fenced.is_some());
        (then(response), mirror.map(|mirror| send(&*mirror, stores, fenced)))
    })
}

fn send(mirror: &dyn Mirror, stores: Vec<Store>, fenced: Option<ComputeId>) -> Copied {
    let copied = Copied::default();
    mirror.send(stores, fenced, copied.answer());
    copied
}

impl Wait {
    /// Ends the call, if its conditions hold now.
    pub(super) fn look(mut self) -> Call {
        if let Some(ending) = &mut self.ending {
            match ending.is_over() {
                Ok(true) => self.ending = None,
                Ok(false) => return Call::Waiting(self),
                Err(error) => return Call::Answered(Err(error)),
            }
        }
        if let Some(copied) = &self.copied {
            match copied.outcome() {
                Some(Ok(_)) => self.copied = None,
                Some(Err(error)) => return Call::Answered(Err(error)),
                None => return Call::Waiting(self),
            }
        }
        let Served { incarnations, .. } = &*self.served;
        match self.then {
            Then::Answer(response) => Call::Answered(Ok(response)),
            Then::Go(session, request) => {
                let answer = handle(&self.served, Asker::Leaver(&session), &request, |response| {
                    incarnations.gone(&session);
                    response
                });
                if answer.is_ok() {
                    events::left(self.who, &request);
                }
                match answer {
                    Ok((response, copied @ Some(_))) => {
                        Self { ending: None, copied, then: Then::Answer(response), ..self }.look()
                    }
                    Ok((response, None)) => Call::Answered(Ok(response)),
                    Err(error) => Call::Answered(Err(error)),
                }
            }
        }
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
