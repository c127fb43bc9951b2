//! The handshake: which peers the server admits (`wire::handshake`).
//!
//! After the protocol version, the server checks the proof of the secret. A client that does not know the
//! secret learns nothing about the cluster, and costs it only the proof. Then the server checks the role. A
//! client that joins becomes a member at once, if it found the cluster's other memories where they belong. A
//! client that claims to be a member must name this cluster, this memory and this boot of the server. Its
//! incarnation must not be over.

use super::events;
use super::remote::{Remote, Who};
use super::shared::Shared;
use sherman_control::auth;
use sherman_control::wire::frame::put_frame;
use sherman_control::wire::handshake::Nonce;
use sherman_control::wire::{
    FrameKind, Goodbye, GoodbyeCode, Hello, Introduce, MAX_FRAME, MAX_REPLY, Role, VERSION, Welcome,
    WireError,
};
use sherman_embedded::host::{Gate, Session};
use sherman_fabric::{ComputeId, FabricError, Memory, Refusal, Seen, Space};
use sherman_layout::MemberState;
use std::sync::Arc;

/// The peer at the other end.
#[derive(Debug)]
pub(super) enum Peer {
    /// A connection of a member.
    Member(Gate),
    /// An operator.
    Admin,
    /// A client that is about to join. It only needs the `Welcome`.
    Newcomer,
}

/// The first frame of a connection.
pub(super) fn hello(shared: &Shared, nonce: Nonce) -> Vec<u8> {
    let hello =
        Hello { version_min: VERSION, version_max: VERSION, needs_secret: shared.secret.is_some(), nonce };
    let mut frame = Vec::new();
    // A `Hello` is much shorter than the limit of a frame.
    let _ = put_frame(&mut frame, FrameKind::Hello, 0, |out| hello.put(out));
    frame
}

/// Admits a client, or returns why not. Appends the answer to `frame`.
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
        Role::Copy { .. } | Role::Control { .. } | Role::Host { .. } => {
            return Err(goodbye(GoodbyeCode::NotAllowed));
        }
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
        client: session.map_or(ComputeId::NOBODY, |session| session.client()),
        incarnation: session.map_or(0, |session| session.incarnation()),
        host_bytes: shared.host.memory().size(Space::Host),
        caps: shared.caps(),
        max_frame: MAX_FRAME,
        max_reply: MAX_REPLY,
        lease_nanos: superblock.geometry.lease_nanos,
    };
    let sign = |covered: &[u8]| auth::server_mac(shared.secret.as_ref(), covered, &introduce.nonce, nonce);
    put_frame(frame, FrameKind::Welcome, 0, |out| welcome.put(out, sign))
        .map_err(|_| goodbye(GoodbyeCode::Internal))?;
    if let (Role::Join { .. }, Peer::Member(gate)) = (&introduce.role, &peer) {
        let session = gate.session();
        events::joined(Who { remote, client: Some(session.client()) }, session.incarnation());
    }
    Ok(peer)
}

/// Issues an id to a client that found `seen`. Records its session before any other request is answered, so
/// that even an immediate suspicion finds it.
fn join(shared: &Shared, remote: Remote, seen: &[Option<Seen>]) -> Result<Arc<Session>, Goodbye> {
    let joined = shared.host.join(seen, |tables, client| {
        let incarnation = tables.member(client).map_or(0, |entry| entry.incarnation);
        shared.incarnations.admit(client, incarnation, remote)
    });
    let refused = |error| Goodbye { code: GoodbyeCode::JoinRefused, error: Some(error) };
    let (session, succeeds) = joined.and_then(|session| session).map_err(refused)?;
    if succeeds {
        shared.note_fence();
    }
    Ok(session)
}

/// Checks that a member means this cluster and this memory.
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

/// Returns the session of a member that connects again, or for the first time to this server. A memory that
/// belongs to no cluster joins the member's cluster.
fn admit(
    shared: &Shared,
    (client, incarnation, remote): (ComputeId, u32, Remote),
    boot: u64,
    cluster: u64,
) -> Result<Arc<Session>, Goodbye> {
    // A client learns the boot number when it examines the server, before it joins.
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
        shared.incarnations.admit(client, incarnation, remote).map_err(|error| match error {
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

/// A goodbye without an error.
pub(super) fn goodbye(code: GoodbyeCode) -> Goodbye {
    Goodbye { code, error: None }
}

/// The goodbye to a peer whose message violates the protocol.
pub(super) fn malformed(error: WireError) -> Goodbye {
    match error {
        WireError::TooLarge { asked, limit, .. } => {
            Goodbye { code: GoodbyeCode::TooLarge, error: Some(FabricError::TooLarge { asked, limit }) }
        }
        _ => goodbye(GoodbyeCode::Malformed),
    }
}
