//! The handshake: who may come in (`wire::handshake`).
//!
//! What is checked first is the proof of the secret: who does not know it learns nothing about the cluster, and costs it
//! nothing but the proof. Then the role. A client that joins becomes a member here and now, if it sees the cluster's other
//! memories where they belong. A client that says it is a member must mean this cluster, this memory and this start of the
//! server, and be an incarnation that is not over.

use super::events;
use super::remote::{Remote, Who};
use super::shared::Shared;
use crate::auth;
use crate::wire::frame::put_frame;
use crate::wire::handshake::Nonce;
use crate::wire::{
    Goodbye, GoodbyeCode, Hello, Introduce, Kind, MAX_FRAME, MAX_REPLY, Role, VERSION, Welcome, WireError,
};
use sherman_embedded::host::{Gate, Session};
use sherman_fabric::{ClientId, FabricError, Memory, Refusal, Response, Seen, Space};
use sherman_memory_server::MemberState;
use std::sync::Arc;

/// Who is at the other end.
#[derive(Debug)]
pub(super) enum Peer {
    /// A connection of a member.
    Member(Gate),
    /// An operator.
    Admin,
    /// A client that is about to join: it has seen what it came for.
    Newcomer,
}

/// The first frame of a connection.
pub(super) fn hello(shared: &Shared, nonce: Nonce) -> Vec<u8> {
    let hello = Hello { version_min: VERSION, version_max: VERSION, needs_secret: shared.secret.is_some(), nonce };
    let mut frame = Vec::new();
    // A `Hello` is far shorter than a frame may be.
    let _ = put_frame(&mut frame, Kind::Hello, 0, |out| hello.put(out));
    frame
}

/// Lets a client in, or says why not. What it is answered is appended to `frame`.
pub(super) fn introduce(
    shared: &Shared,
    remote: Remote,
    body: &[u8],
    nonce: &Nonce,
    frame: &mut Vec<u8>,
) -> Result<Peer, Goodbye> {
    let signed = Introduce::take(body).map_err(malformed)?;
    let introduce = signed.message;
    if introduce.version != VERSION {
        return Err(goodbye(GoodbyeCode::Version));
    }
    if !auth::client_is_genuine(shared.secret.as_ref(), signed.covered, nonce, &signed.mac) {
        return Err(goodbye(GoodbyeCode::BadSecret));
    }
    let peer = match &introduce.role {
        Role::Join { seen } => Peer::Member(Gate::new(join(shared, remote, seen)?)),
        Role::Member { client, incarnation, boot, cluster, memory } => {
            identify(shared, *cluster, *memory)?;
            let member = (*client, *incarnation, remote);
            Peer::Member(Gate::new(admit(shared, member, *boot, *cluster)?))
        }
        Role::Admin => Peer::Admin,
        Role::Newcomer => Peer::Newcomer,
    };
    let session = match &peer {
        Peer::Member(gate) => Some(gate.session()),
        Peer::Admin | Peer::Newcomer => None,
    };
    let superblock = shared.host.superblock();
    let (cluster, lost) = shared.host.look(|tables| (tables.cluster(), tables.lost()));
    let welcome = Welcome {
        version: VERSION,
        boot: shared.boot,
        server: superblock.server,
        servers: superblock.servers,
        memory: superblock.memory_id,
        cluster,
        lost,
        client: session.map_or(ClientId::NOBODY, |session| session.client()),
        incarnation: session.map_or(0, |session| session.incarnation()),
        host_bytes: shared.host.memory().size(Space::Host),
        caps: shared.caps(),
        max_frame: MAX_FRAME,
        max_reply: MAX_REPLY,
        lease_nanos: superblock.geometry.lease_nanos,
    };
    let sign = |covered: &[u8]| auth::server_mac(shared.secret.as_ref(), covered, &introduce.nonce, nonce);
    put_frame(frame, Kind::Welcome, 0, |out| welcome.put(out, sign)).map_err(|_| goodbye(GoodbyeCode::Internal))?;
    if let (Role::Join { .. }, Peer::Member(gate)) = (&introduce.role, &peer) {
        let session = gate.session();
        events::joined(Who { remote, client: Some(session.client()) }, session.incarnation());
    }
    Ok(peer)
}

/// Issues an id to a client that found `seen`. It is in the book before anybody else is answered: who suspects it, however
/// soon, finds it there.
fn join(shared: &Shared, remote: Remote, seen: &[Option<Seen>]) -> Result<Arc<Session>, Goodbye> {
    let joined = shared.host.join(seen, |tables, response| match response {
        Response::Joined { client } => {
            let incarnation = tables.member(client).map_or(0, |entry| entry.incarnation);
            shared.book.admit(client, incarnation, remote)
        }
        _ => Err(FabricError::Refused(Refusal::NotHere)),
    });
    let refused = |error| Goodbye { code: GoodbyeCode::JoinRefused, error: Some(error) };
    let (session, succeeds) = joined.and_then(|session| session).map_err(refused)?;
    if succeeds {
        shared.note_fence();
    }
    Ok(session)
}

/// Whether a member means this memory of this cluster.
fn identify(shared: &Shared, cluster: u64, memory: u64) -> Result<(), Goodbye> {
    let ours = shared.host.look(|tables| tables.cluster());
    if cluster == 0 || (ours != 0 && ours != cluster) {
        return Err(goodbye(GoodbyeCode::OtherCluster));
    }
    if memory != shared.host.superblock().memory_id {
        return Err(goodbye(GoodbyeCode::OtherMemory));
    }
    Ok(())
}

/// The session of a member that connects once more, or for the first time to this server. A memory that belongs to no cluster
/// belongs to the member's from now on.
fn admit(
    shared: &Shared,
    (client, incarnation, remote): (ClientId, u32, Remote),
    boot: u64,
    cluster: u64,
) -> Result<Arc<Session>, Goodbye> {
    // A client learns the boot when it looks at the server, before it joins.
    if boot != shared.boot {
        return Err(goodbye(GoodbyeCode::Restarted));
    }
    if !shared.host.adopt(cluster) {
        return Err(goodbye(GoodbyeCode::OtherCluster));
    }
    let fenced = || Goodbye { code: GoodbyeCode::Fenced, error: Some(FabricError::Fenced { client }) };
    let admitted = shared.host.look(|tables| {
        if !tables.geometry().is_client(client) {
            let error = Some(FabricError::Refused(Refusal::NotAMember { client }));
            return Err(Goodbye { code: GoodbyeCode::NotAllowed, error });
        }
        let current = tables
            .member(client)
            .is_none_or(|entry| entry.state == MemberState::Live && entry.incarnation == incarnation);
        if !current || tables.is_fenced(client) {
            return Err(fenced());
        }
        shared.book.admit(client, incarnation, remote).map_err(|error| match error {
            FabricError::Fenced { .. } => fenced(),
            other => Goodbye { code: GoodbyeCode::Internal, error: Some(other) },
        })
    });
    let (session, succeeds) = admitted?;
    if succeeds {
        shared.note_fence();
    }
    Ok(session)
}

/// A farewell with nothing to add.
pub(super) fn goodbye(code: GoodbyeCode) -> Goodbye {
    Goodbye { code, error: None }
}

/// The farewell to somebody who sent what this protocol does not have.
pub(super) fn malformed(error: WireError) -> Goodbye {
    match error {
        WireError::TooLarge { asked, limit, .. } => {
            Goodbye { code: GoodbyeCode::TooLarge, error: Some(FabricError::TooLarge { asked, limit }) }
        }
        _ => goodbye(GoodbyeCode::Malformed),
    }
}
