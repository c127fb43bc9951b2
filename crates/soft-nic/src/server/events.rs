//! Log lines about members, for operators. There is one line when a member joins, leaves, is taken for dead,
//! is recovered, is fenced, or loses its id. Each line names the member and the connection that asked.

use super::remote::{Remote, Who};
use super::served::Served;
use sherman_fabric::{ComputeId, FabricError, Request, Response, Verdict};
use sherman_layout::{MemberEntry, MemberState};

/// A request whose outcome gets a log line. Only for rare requests, because it costs a look at the tables.
pub(super) struct Event {
    kind: EventKind,
    about: ComputeId,
    before: Option<MemberEntry>,
}

#[derive(Clone, Copy)]
enum EventKind {
    Suspect,
    Condemn,
    Succeed,
    Fence,
    Retire,
}

impl Event {
    /// Records the member's state before `request` is answered.
    pub(super) fn before(served: &Served, request: &Request) -> Option<Self> {
        let (kind, about) = match *request {
            Request::Suspect { client } => (EventKind::Suspect, client),
            Request::Condemn { client } => (EventKind::Condemn, client),
            Request::Succeed { client, .. } => (EventKind::Succeed, client),
            Request::Fence { client } => (EventKind::Fence, client),
            Request::Retire { client } if !served.keeps_control() => (EventKind::Retire, client),
            Request::FreeId { client } => (EventKind::Retire, client),
            _ => return None,
        };
        let before =
            served.host.look(|tables| tables.geometry().is_client(about).then(|| tables.member(about)));
        Some(Self { kind, about, before: before.flatten() })
    }

    /// Logs the outcome after the answer.
    pub(super) fn after(self, who: Who, answer: &Result<Response, FabricError>) {
        let Ok(answer) = answer else { return };
        let (about, by) = (self.about.0, who.client());
        let peer = &who.remote;
        let was = |state| self.before.as_ref().is_some_and(|entry| entry.state == state);
        match (self.kind, answer) {
            (EventKind::Suspect, Response::Verdict(Verdict::Alive { .. })) => {}
            (EventKind::Suspect | EventKind::Succeed, Response::Verdict(verdict)) => {
                match self.kind {
                    EventKind::Succeed if was(MemberState::Live) => {
                        tracing::info!(client = about, by, %peer, "a client was succeeded by a new identity");
                    }
                    _ if was(MemberState::Live) => {
                        tracing::warn!(client = about, by, %peer, "the lease of a client ran out");
                    }
                    _ => {}
                }
                // The recoverer gets the same answer each time it asks again.
                let already = self.before.as_ref().is_some_and(|entry| Some(entry.recoverer) == who.client);
                if matches!(verdict, Verdict::Recover) && !already {
                    tracing::info!(client = about, by, %peer, "the recovery of a client begins");
                }
            }
            (EventKind::Condemn, _) => {
                tracing::warn!(client = about, by, %peer, "the lease of a client ended on request")
            }
            (EventKind::Fence, _) => tracing::info!(client = about, by, %peer, "a client was fenced"),
            (EventKind::Retire, _) => {
                tracing::info!(client = about, by, %peer, "a client was recovered and retired")
            }
            (EventKind::Suspect | EventKind::Succeed, _) => {}
        }
    }
}

/// Logs that a client has become a member.
pub(super) fn joined(who: Who, incarnation: u32) {
    tracing::info!(client = who.client(), incarnation, peer = %who.remote, "a client joined");
}

/// Logs that a client has left in order.
pub(super) fn left(who: Who, request: &Request) {
    match request {
        Request::Depart => {
            tracing::info!(
                client = who.client(), peer = %who.remote,
                "a client left; its free nodes wait for recovery"
            );
        }
        _ => tracing::info!(client = who.client(), peer = %who.remote, "a client left"),
    }
}

/// Logs that the last connection of a member to server 0 has ended. A member that owns something must be
/// recovered.
pub(super) fn lost(who: Who, incarnation: u32, owns: bool) {
    let (client, peer) = (who.client(), &who.remote);
    let text = "the last connection of a client ended; its lease ends";
    if owns {
        tracing::warn!(client, incarnation, %peer, "{text}");
    } else {
        tracing::info!(client, incarnation, %peer, "{text}");
    }
}

/// Logs that the server itself has freed an id. `session` is the incarnation and origin of its last holder,
/// if known.
pub(super) fn reaped(client: ComputeId, session: Option<(u32, Remote)>) {
    let (incarnation, peer) =
        (session.map(|(incarnation, _)| incarnation), session.map(|(_, remote)| remote));
    let peer = peer.map(tracing::field::display);
    tracing::info!(
        client = client.0,
        incarnation,
        peer,
        "a client that owned nothing is gone; its id is free"
    );
}
