//! The handshake: which peers the server admits (`wire::handshake`).
//!
//! After the protocol version, the server checks the proof of the secret. A client that does not know the
//! secret learns nothing about the cluster, and costs it only the proof. Then the server checks the role. A
//! client that joins becomes a member at once, if it found the cluster's other memories where they belong. A
//! client that claims to be a member must name this cluster, this memory and this boot of the server. Its
//! incarnation must not be over.
//!
//! **Hosts.** A host serves copies of volumes, and its control plane knows the members. So a client joins
//! there by a request, not by a handshake. Then it introduces itself to each copy, and names the epoch of its
//! table. The host has carried out the table of one epoch. A client with a newer table must wait. A client
//! with an older one is refused, because its identity has ended (rule E in `docs/REPLICATION.md`).

use super::events;
use super::remote::{Remote, Who};
use super::served::{Copies, Served, Serves};
use super::shared::Shared;
use sherman_control::auth;
use sherman_control::plane::ControlPlane;
use sherman_control::wire::frame::put_frame;
use sherman_control::wire::handshake::{Mac, Nonce};
use sherman_control::wire::{
    Also, FrameKind, Goodbye, GoodbyeCode, Hello, Introduce, MAX_FRAME, MAX_MEMORIES, MAX_REPLY, Role,
    VERSION, Welcome, WireError,
};
use sherman_embedded::host::{Gate, Session};
use sherman_fabric::{ComputeId, FabricError, Memory, Refusal, Seen, Space};
use sherman_layout::MemberState;
use std::cmp::Ordering;
use std::sync::Arc;

/// The mac of a message on a connection whose handshake is done.
const NO_MAC: Mac = [0; 32];

/// A member, at one memory.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) served: Arc<Served>,
    pub(super) gate: Gate,
}

/// A connection of a member to memories: one, or several copies of volumes on a host.
#[derive(Debug)]
pub(super) struct Members {
    all: Vec<Member>,
    /// The one that the next frames are for.
    at: usize,
}

impl Members {
    /// At one memory.
    fn one(member: Member) -> Self {
        Self { all: vec![member], at: 0 }
    }

    /// Adds a memory. Returns whether there was room.
    fn add(&mut self, member: Member) -> bool {
        let room = self.all.len() < MAX_MEMORIES;
        if room {
            self.all.push(member);
        }
        room
    }

    /// The following frames are for `memory`. Returns whether there is such a memory.
    #[inline]
    pub(super) fn choose(&mut self, memory: u8) -> bool {
        let there = usize::from(memory) < self.all.len();
        if there {
            self.at = usize::from(memory);
        }
        there
    }

    /// The memory that the next frames are for, and its number.
    #[inline]
    pub(super) fn current_mut(&mut self) -> (&mut Member, u8) {
        (&mut self.all[self.at], self.at as u8)
    }

    /// The memory that the next frames are for.
    pub(super) fn current(&self) -> &Member {
        &self.all[self.at]
    }

    /// Every memory.
    pub(super) fn all(&self) -> &[Member] {
        &self.all
    }

    /// Gives the memories away, at the end of the connection.
    pub(super) fn into_all(self) -> Vec<Member> {
        self.all
    }
}

/// The peer at the other end.
#[derive(Debug)]
pub(super) enum Peer {
    /// A member, at one memory or more.
    Member(Members),
    /// A member, at the control plane of a host.
    Control {
        /// Its id.
        client: ComputeId,
        /// The incarnation of the id.
        incarnation: u32,
    },
    /// Another host of the group.
    Host {
        /// The control plane that takes its messages.
        plane: Arc<dyn ControlPlane>,
        /// The number of the connection.
        connection: u64,
    },
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
    let peer = admit(shared, remote, &introduce.role)?;
    let welcome = welcome(shared, &peer);
    let sign = |covered: &[u8]| auth::server_mac(shared.secret.as_ref(), covered, &introduce.nonce, nonce);
    put_frame(frame, FrameKind::Welcome, 0, |out| welcome.put(out, sign))
        .map_err(|_| goodbye(GoodbyeCode::Internal))?;
    if let (Role::Join { .. }, Peer::Member(members)) = (&introduce.role, &peer) {
        let session = members.current().gate.session();
        events::joined(Who { remote, client: Some(session.client()) }, session.incarnation());
    }
    Ok(peer)
}

/// Admits a peer in the role that it asks for.
fn admit(shared: &Shared, remote: Remote, role: &Role) -> Result<Peer, Goodbye> {
    let member = |served: &Arc<Served>, session| {
        Ok(Peer::Member(Members::one(Member { served: Arc::clone(served), gate: Gate::new(session) })))
    };
    match (role, &shared.serves) {
        (Role::Admin, _) => Ok(Peer::Admin),
        (Role::Newcomer, _) => Ok(Peer::Newcomer),
        (Role::Join { seen }, Serves::Memory(served)) => member(served, join(shared, served, remote, seen)?),
        (&Role::Member { client, incarnation, boot, cluster, memory }, Serves::Memory(served)) => {
            identify(served, cluster, memory)?;
            // A client learns the boot number when it examines the server, before it joins.
            if boot != shared.boot {
                return Err(goodbye(GoodbyeCode::Restarted));
            }
            if !served.host.adopt(cluster) {
                return Err(goodbye(GoodbyeCode::OtherCluster));
            }
            let session = session(shared, served, (client, incarnation, remote), || Ok(()))?;
            member(served, session)
        }
        (&Role::Copy { client, incarnation, cluster, copy, epoch }, Serves::Copies(copies)) => {
            belongs(copies, cluster)?;
            let also = Also { copy, epoch };
            Ok(Peer::Member(Members::one(at_copy(shared, copies, (client, incarnation, remote), also)?)))
        }
        (&Role::Control { client, incarnation, cluster }, Serves::Copies(copies)) => {
            belongs(copies, cluster)?;
            if client == ComputeId::NOBODY {
                return Err(not_a_client(client));
            }
            Ok(Peer::Control { client, incarnation })
        }
        (&Role::Host { cluster, .. }, Serves::Copies(copies)) => {
            belongs(copies, cluster)?;
            Ok(Peer::Host { plane: Arc::clone(&copies.plane), connection: copies.next_connection() })
        }
        (Role::Join { .. } | Role::Member { .. }, Serves::Copies(_))
        | (Role::Copy { .. } | Role::Control { .. } | Role::Host { .. }, Serves::Memory(_)) => {
            Err(goodbye(GoodbyeCode::NotAllowed))
        }
    }
}

/// Admits a member to a copy.
fn at_copy(
    shared: &Shared,
    copies: &Copies,
    who: (ComputeId, u32, Remote),
    Also { copy, epoch }: Also,
) -> Result<Member, Goodbye> {
    let in_epoch = || check_epoch(copies, who.0, epoch);
    in_epoch()?;
    let made = copies.get(copy).filter(|served| !served.is_filling());
    let served = made.ok_or(goodbye(GoodbyeCode::NotYet))?;
    let session = session(shared, &served, who, in_epoch)?;
    Ok(Member { served, gate: Gate::new(session) })
}

/// Admits a member at a copy to a further one, or returns why not. Appends the answer to `frame`.
pub(super) fn also(
    shared: &Shared,
    remote: Remote,
    body: &[u8],
    members: &mut Members,
    frame: &mut Vec<u8>,
) -> Result<(), Goodbye> {
    let also = Also::take(body).map_err(malformed)?;
    let Serves::Copies(copies) = &shared.serves else { return Err(goodbye(GoodbyeCode::NotAllowed)) };
    let session = members.current().gate.session();
    let who = (session.client(), session.incarnation(), remote);
    let member = at_copy(shared, copies, who, also)?;
    let welcome = welcome_to(shared, Some(&member.served), (who.0, who.1));
    if !members.add(member) {
        return Err(goodbye(GoodbyeCode::TooManyConnections));
    }
    put_frame(frame, FrameKind::Welcome, 0, |out| welcome.put(out, |_| NO_MAC))
        .map_err(|_| goodbye(GoodbyeCode::Internal))
}

/// What the server says to `peer`.
fn welcome(shared: &Shared, peer: &Peer) -> Welcome {
    let (client, incarnation) = match peer {
        Peer::Member(members) => {
            let session = members.current().gate.session();
            (session.client(), session.incarnation())
        }
        &Peer::Control { client, incarnation } => (client, incarnation),
        Peer::Host { .. } | Peer::Admin | Peer::Newcomer => (ComputeId::NOBODY, 0),
    };
    let served = match (peer, &shared.serves) {
        (Peer::Member(members), _) => Some(&members.current().served),
        (_, Serves::Memory(served)) => Some(served),
        (_, Serves::Copies(_)) => None,
    };
    welcome_to(shared, served, (client, incarnation))
}

/// What the server says to a client, at a memory if it is at one.
fn welcome_to(
    shared: &Shared,
    served: Option<&Arc<Served>>,
    (client, incarnation): (ComputeId, u32),
) -> Welcome {
    let (cluster, lost) = match &shared.serves {
        Serves::Memory(served) => served.host.look(|tables| (tables.cluster(), tables.lost())),
        Serves::Copies(copies) => (copies.plane.cluster(), Vec::new()),
    };
    let superblock = served.map(|served| served.host.superblock());
    let bytes = |space| served.map_or(0, |served| served.host.memory().size(space));
    Welcome {
        version: VERSION,
        boot: shared.boot,
        server: served.map_or_else(|| shared.serves.number(), |served| served.number()),
        servers: superblock.map_or(0, |superblock| superblock.servers),
        memory: superblock.map_or(0, |superblock| superblock.memory_id),
        cluster,
        lost,
        client,
        incarnation,
        host_bytes: bytes(Space::Host),
        caps: Shared::caps(served.and_then(|served| served.path()), bytes(Space::OnChip)),
        max_frame: MAX_FRAME,
        max_reply: MAX_REPLY,
        lease_nanos: superblock.map_or(0, |superblock| superblock.geometry.lease_nanos),
    }
}

/// Issues an id to a client that found `seen`. Records its session before any other request is answered, so
/// that even an immediate suspicion finds it.
fn join(
    shared: &Shared,
    served: &Served,
    remote: Remote,
    seen: &[Option<Seen>],
) -> Result<Arc<Session>, Goodbye> {
    let joined = served.host.join(seen, |tables, client| {
        let incarnation = tables.member(client).map_or(0, |entry| entry.incarnation);
        served.incarnations.admit(client, incarnation, remote)
    });
    let refused = |error| Goodbye { code: GoodbyeCode::JoinRefused, error: Some(error) };
    let (session, succeeds) = joined.and_then(|session| session).map_err(refused)?;
    if succeeds {
        shared.note_fence();
    }
    Ok(session)
}

/// Checks that a member means this cluster and this memory.
fn identify(served: &Served, cluster: u64, memory: u64) -> Result<(), Goodbye> {
    let ours = served.host.look(|tables| tables.cluster());
    if cluster == 0 || (ours != 0 && ours != cluster) {
        return Err(goodbye(GoodbyeCode::OtherCluster));
    }
    if memory != served.host.superblock().memory_id {
        return Err(goodbye(GoodbyeCode::OtherMemory));
    }
    Ok(())
}

/// Checks that a peer means the cluster of this host.
fn belongs(copies: &Copies, cluster: u64) -> Result<(), Goodbye> {
    match copies.plane.cluster() {
        // The host does not know its own cluster before the group has registered it.
        0 if cluster != 0 => Err(goodbye(GoodbyeCode::NotYet)),
        ours if ours == cluster && cluster != 0 => Ok(()),
        _ => Err(goodbye(GoodbyeCode::OtherCluster)),
    }
}

/// Checks that the table of `client` is the one that this host has carried out.
fn check_epoch(copies: &Copies, client: ComputeId, epoch: u64) -> Result<(), Goodbye> {
    match epoch.cmp(&copies.plane.epoch()) {
        Ordering::Equal => Ok(()),
        Ordering::Greater => Err(goodbye(GoodbyeCode::NotYet)),
        Ordering::Less => {
            Err(Goodbye { code: GoodbyeCode::Fenced, error: Some(FabricError::EpochEnded { client }) })
        }
    }
}

/// The goodbye to a client whose id no member can have.
fn not_a_client(client: ComputeId) -> Goodbye {
    let error = Some(FabricError::Refused(Refusal::NotAMember { client }));
    Goodbye { code: GoodbyeCode::NotAllowed, error }
}

/// Returns the session of a member that connects again, or for the first time to this memory.
///
/// `still` is checked under the memory's lock. So a client of an ended epoch is refused, or its session is
/// there before any client of the next epoch can fence it.
fn session(
    shared: &Shared,
    served: &Served,
    (client, incarnation, remote): (ComputeId, u32, Remote),
    still: impl FnOnce() -> Result<(), Goodbye>,
) -> Result<Arc<Session>, Goodbye> {
    let fenced = || Goodbye { code: GoodbyeCode::Fenced, error: Some(FabricError::Fenced { client }) };
    let admitted = served.host.look(|tables| {
        still()?;
        if !tables.geometry().is_client(client) {
            return Err(not_a_client(client));
        }
        // The group, not a copy, knows which incarnation is current.
        let current = served.copy.is_some()
            || tables
                .member(client)
                .is_none_or(|entry| entry.state == MemberState::Live && entry.incarnation == incarnation);
        // The tables of a copy that is no primary are out of date.
        let is_fenced = match served.copy {
            Some(_) => served.host.is_fenced_in_memory(client),
            None => tables.is_fenced(client),
        };
        if !current || is_fenced {
            return Err(fenced());
        }
        served.incarnations.admit(client, incarnation, remote).map_err(|error| match error {
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
