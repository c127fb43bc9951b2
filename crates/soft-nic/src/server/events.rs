//! What an operator should know about members, one log line each: who joins, leaves, is taken for dead, recovered, fenced,
//! forgotten. Each line names the member it is about and the connection that asked.

use super::remote::{Remote, Who};
use super::shared::Shared;
use sherman_fabric::{ClientId, FabricError, Request, Response, Verdict};
use sherman_memory_server::{MemberEntry, MemberState};

/// A request whose outcome is worth a line. Rare requests only: it costs a look at the tables.
pub(super) struct Event {
    kind: Kind,
    about: ClientId,
    before: Option<MemberEntry>,
}

#[derive(Clone, Copy)]
enum Kind {
    Suspect,
    Condemn,
    Succeed,
    Fence,
    Retire,
}

impl Event {
    /// Before `request` is answered.
    pub(super) fn before(shared: &Shared, request: &Request) -> Option<Self> {
        let (kind, about) = match *request {
            Request::Suspect { client } => (Kind::Suspect, client),
            Request::Condemn { client } => (Kind::Condemn, client),
            Request::Succeed { client, .. } => (Kind::Succeed, client),
            Request::Fence { client } => (Kind::Fence, client),
            Request::Retire { client } => (Kind::Retire, client),
            _ => return None,
        };
        let before = shared.host.look(|tables| tables.geometry().is_client(about).then(|| tables.member(about)));
        Some(Self { kind, about, before: before.flatten() })
    }

    /// It was answered so.
    pub(super) fn after(self, who: Who, answer: &Result<Response, FabricError>) {
        let Ok(answer) = answer else { return };
        let (about, by) = (self.about.0, who.client());
        let peer = &who.remote;
        let was = |state| self.before.as_ref().is_some_and(|entry| entry.state == state);
        match (self.kind, answer) {
            (Kind::Suspect, Response::Verdict(Verdict::Alive { .. })) => {}
            (Kind::Suspect | Kind::Succeed, Response::Verdict(verdict)) => {
                match self.kind {
                    Kind::Succeed if was(MemberState::Live) => {
                        tracing::info!(client = about, by, %peer, "a client was succeeded by a new identity");
                    }
                    _ if was(MemberState::Live) => {
                        tracing::warn!(client = about, by, %peer, "the lease of a client ran out");
                    }
                    _ => {}
                }
                // The same answer is given again whenever the recoverer asks again.
                let already = self.before.as_ref().is_some_and(|entry| Some(entry.recoverer) == who.client);
                if matches!(verdict, Verdict::Recover) && !already {
                    tracing::info!(client = about, by, %peer, "the recovery of a client begins");
                }
            }
            (Kind::Condemn, _) => {
                tracing::warn!(client = about, by, %peer, "the lease of a client was ended by request")
            }
            (Kind::Fence, _) => tracing::info!(client = about, by, %peer, "a client was fenced"),
            (Kind::Retire, _) => tracing::info!(client = about, by, %peer, "a client was recovered and retired"),
            (Kind::Suspect | Kind::Succeed, _) => {}
        }
    }
}

/// A client has become a member.
pub(super) fn joined(who: Who, incarnation: u32) {
    tracing::info!(client = who.client(), incarnation, peer = %who.remote, "a client joined");
}

/// A client has gone in order.
pub(super) fn left(who: Who, request: &Request) {
    match request {
        Request::Depart => {
            tracing::info!(client = who.client(), peer = %who.remote, "a client left; its free nodes wait for recovery");
        }
        _ => tracing::info!(client = who.client(), peer = %who.remote, "a client left"),
    }
}

/// The last connection of a member to server 0 has ended. A member that owns something waits for somebody to recover it.
pub(super) fn lost(who: Who, incarnation: u32, owns: bool) {
    let (client, peer) = (who.client(), &who.remote);
    let text = "the last connection of a client ended; its lease ends";
    if owns {
        tracing::warn!(client, incarnation, %peer, "{text}");
    } else {
        tracing::info!(client, incarnation, %peer, "{text}");
    }
}

/// The server has freed an id by itself. What is known of its last holder: its incarnation, and where it came from.
pub(super) fn reaped(client: ClientId, session: Option<(u32, Remote)>) {
    let (incarnation, peer) = (session.map(|(incarnation, _)| incarnation), session.map(|(_, remote)| remote));
    let peer = peer.map(tracing::field::display);
    tracing::info!(client = client.0, incarnation, peer, "a client that owned nothing is gone; its id is free");
}
