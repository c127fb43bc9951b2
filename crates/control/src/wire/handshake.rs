//! How a connection begins, and how it ends.
//!
//! ```text
//! server → Hello      magic, version_min, version_max, needs_secret, server_nonce
//! client → Introduce  version, client_nonce, role, mac
//! server → Welcome    version, boot, server, servers, memory, cluster, lost, client, incarnation, sizes,
//!                     caps, limits, lease, mac
//! client → Also       copy, epoch        a further copy of the same host, as often as wanted
//! server → Welcome    as above, mac zero
//! server → Goodbye    code, error        instead of Welcome, or at any time later
//! ```
//! Each `mac` covers everything before it in its body and the nonces of both sides ([`auth`](crate::auth)).
//! Without a secret it is all zero. Both nonces are fresh, so no part of one handshake is useful in another.
//!
//! **Roles.** A client joins in three steps.
//!
//! 1. It introduces itself as a [`Role::Newcomer`] to every server but 0. The `Welcome` says which memory is
//!    there and which cluster that memory belongs to. A newcomer may do nothing else.
//! 2. It introduces itself as [`Role::Join`] to server 0, and reports its findings. Server 0 compares them
//!    with its server table before it issues an id: a refusal changes nothing. The `Welcome` brings the id,
//!    its incarnation, and the servers that the cluster has declared lost. This connection is the member's
//!    first one.
//! 3. It introduces itself as a [`Role::Member`] to every server that is not lost, and on every later
//!    connection. The server refuses a client that names another cluster or another memory. A memory that
//!    belongs to no cluster yet joins the client's cluster.
//!
//! An operator introduces itself as [`Role::Admin`]. It needs no membership, and no other server.

use super::bytes::{Put, Reader, WireError};
use super::errors::{put_error, read_error};
use super::frame::VERSION;
use sherman_fabric::{Caps, ComputeId, FabricError, FenceMode, Seen};
use std::fmt;

/// The first bytes of every `Hello`.
pub const MAGIC: [u8; 8] = *b"SHERMAN\x01";
/// A number used once.
pub type Nonce = [u8; 32];
/// Proof that the sender knows the secret.
pub type Mac = [u8; 32];

/// The server's first message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The oldest version of the protocol that it speaks.
    pub version_min: u16,
    /// The newest version of the protocol that it speaks.
    pub version_max: u16,
    /// Whether the client must prove that it knows the secret.
    pub needs_secret: bool,
    /// Fresh for this connection.
    pub nonce: Nonce,
}

impl Hello {
    /// Whether it speaks the version that this build speaks.
    pub fn speaks_our_version(&self) -> bool {
        (self.version_min..=self.version_max).contains(&VERSION)
    }

    /// Appends its body.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.put(&MAGIC);
        out.put_u16(self.version_min);
        out.put_u16(self.version_max);
        out.put_u8(self.needs_secret.into());
        out.put(&self.nonce);
    }

    /// Decodes the `Hello` that is all of `body`. A later version may send a longer one: the additional bytes
    /// are skipped.
    pub fn take(body: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(body);
        if reader.array::<8>()? != MAGIC {
            return Err(WireError::NotSherman);
        }
        Ok(Self {
            version_min: reader.u16()?,
            version_max: reader.u16()?,
            needs_secret: reader.flag("flag for a required secret")?,
            nonce: reader.array()?,
        })
    }
}

/// The role that a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// A new member; only at server 0.
    Join {
        /// Its findings at each server, by number; `None` for server 0 and for servers that it did not reach.
        seen: Vec<Option<Seen>>,
    },
    /// A connection of a member.
    Member {
        /// Its id.
        client: ComputeId,
        /// The incarnation of the id.
        incarnation: u32,
        /// The server's boot number as the client knows it; 0 if it knows none yet.
        boot: u64,
        /// The cluster it is a member of.
        cluster: u64,
        /// The memory that it expects at this server.
        memory: u64,
    },
    /// A member's connection to one copy of a volume. The host refuses it with [`GoodbyeCode::NotYet`] before
    /// it has carried out the table of this epoch, and with [`GoodbyeCode::Fenced`] if it knows a newer one.
    Copy {
        /// Its id.
        client: ComputeId,
        /// The incarnation of the id.
        incarnation: u32,
        /// The cluster it is a member of.
        cluster: u64,
        /// The copy's number in the table.
        copy: u16,
        /// The table's epoch.
        epoch: u64,
    },
    /// A member's connection to the leader of the group, for control requests.
    Control {
        /// Its id.
        client: ComputeId,
        /// The incarnation of the id.
        incarnation: u32,
        /// The cluster it is a member of.
        cluster: u64,
    },
    /// Another host, which sends messages of the group.
    Host {
        /// Its number.
        host: u16,
        /// Its incarnation.
        incarnation: u32,
        /// The cluster it belongs to.
        cluster: u64,
    },
    /// An operator. It may inspect servers, members and trees, end leases, and declare servers lost.
    Admin,
    /// A client that is about to join, and asks which memory is there.
    Newcomer,
}

/// A member at a copy of a volume asks for a further copy of the same host, on the same connection. The host
/// refuses it as it refuses a [`Role::Copy`], with a [`Goodbye`] that ends the whole connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Also {
    /// The copy's number in the table.
    pub copy: u16,
    /// The table's epoch.
    pub epoch: u64,
}

impl Also {
    /// Appends its body.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.put_u16(self.copy);
        out.put_u64(self.epoch);
    }

    /// Decodes the request that is all of `body`.
    pub fn take(body: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(body);
        let also = Self { copy: reader.u16()?, epoch: reader.u64()? };
        reader.finish()?;
        Ok(also)
    }
}

/// A received message that ends with a mac.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signed<'a, T> {
    /// The message.
    pub message: T,
    /// The bytes that the mac covers.
    pub covered: &'a [u8],
    /// The mac.
    pub mac: Mac,
}

/// Appends a body and the mac that `sign` makes of it.
fn put_signed(out: &mut Vec<u8>, put: impl FnOnce(&mut Vec<u8>), sign: impl FnOnce(&[u8]) -> Mac) {
    let start = out.len();
    put(out);
    let mac = sign(&out[start..]);
    out.put(&mac);
}

/// Separates a body from its mac.
fn take_signed<T>(
    body: &[u8],
    read: impl FnOnce(&mut Reader<'_>) -> Result<T, WireError>,
) -> Result<Signed<'_, T>, WireError> {
    let (covered, mac) = body.split_last_chunk().ok_or(WireError::Truncated)?;
    let mut reader = Reader::new(covered);
    let message = read(&mut reader)?;
    reader.finish()?;
    Ok(Signed { message, covered, mac: *mac })
}

/// The client's answer to `Hello`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Introduce {
    /// The version for this connection.
    pub version: u16,
    /// Fresh for this connection.
    pub nonce: Nonce,
    /// The role that it asks for.
    pub role: Role,
}

impl Introduce {
    /// Appends its body, signed by `sign`.
    pub fn put(&self, out: &mut Vec<u8>, sign: impl FnOnce(&[u8]) -> Mac) {
        let put = |out: &mut Vec<u8>| {
            out.put_u16(self.version);
            out.put(&self.nonce);
            match &self.role {
                Role::Join { seen } => {
                    out.put_u8(1);
                    out.put_several(seen, put_seen);
                }
                Role::Member { client, incarnation, boot, cluster, memory } => {
                    out.put_u8(2);
                    out.put_u16(client.0);
                    out.put_u32(*incarnation);
                    [*boot, *cluster, *memory].into_iter().for_each(|word| out.put_u64(word));
                }
                Role::Admin => out.put_u8(3),
                Role::Newcomer => out.put_u8(4),
                Role::Copy { client, incarnation, cluster, copy, epoch } => {
                    out.put_u8(5);
                    out.put_u16(client.0);
                    out.put_u32(*incarnation);
                    out.put_u64(*cluster);
                    out.put_u16(*copy);
                    out.put_u64(*epoch);
                }
                Role::Control { client, incarnation, cluster } => {
                    out.put_u8(6);
                    out.put_u16(client.0);
                    out.put_u32(*incarnation);
                    out.put_u64(*cluster);
                }
                Role::Host { host, incarnation, cluster } => {
                    out.put_u8(7);
                    out.put_u16(*host);
                    out.put_u32(*incarnation);
                    out.put_u64(*cluster);
                }
            }
        };
        put_signed(out, put, sign);
    }

    /// Decodes the `Introduce` that is all of `body`.
    pub fn take(body: &[u8]) -> Result<Signed<'_, Self>, WireError> {
        take_signed(body, |reader| {
            let (version, nonce, number) = (reader.u16()?, reader.array()?, reader.u8()?);
            let role = match number {
                1 => Role::Join { seen: reader.several(SEEN_BYTES, read_seen)? },
                2 => Role::Member {
                    client: ComputeId(reader.u16()?),
                    incarnation: reader.u32()?,
                    boot: reader.u64()?,
                    cluster: reader.u64()?,
                    memory: reader.u64()?,
                },
                3 => Role::Admin,
                4 => Role::Newcomer,
                5 => Role::Copy {
                    client: ComputeId(reader.u16()?),
                    incarnation: reader.u32()?,
                    cluster: reader.u64()?,
                    copy: reader.u16()?,
                    epoch: reader.u64()?,
                },
                6 => Role::Control {
                    client: ComputeId(reader.u16()?),
                    incarnation: reader.u32()?,
                    cluster: reader.u64()?,
                },
                7 => Role::Host { host: reader.u16()?, incarnation: reader.u32()?, cluster: reader.u64()? },
                other => return Err(WireError::Unknown { what: "role", found: other.into() }),
            };
            Ok(Self { version, nonce, role })
        })
    }
}

const SEEN_BYTES: usize = 1 + 8 + 8;

fn put_seen(out: &mut Vec<u8>, seen: &Option<Seen>) {
    let Seen { memory, cluster } = seen.unwrap_or(Seen { memory: 0, cluster: 0 });
    out.put_u8(seen.is_some().into());
    out.put_u64(memory);
    out.put_u64(cluster);
}

fn read_seen(reader: &mut Reader<'_>) -> Result<Option<Seen>, WireError> {
    let (is, memory, cluster) =
        (reader.flag("flag for a server that was seen")?, reader.u64()?, reader.u64()?);
    Ok(is.then_some(Seen { memory, cluster }))
}

/// The server's answer to a client that it accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The version of this connection from now on.
    pub version: u16,
    /// The boot number, which identifies one start of the server: random, never 0.
    pub boot: u64,
    /// The server's index.
    pub server: u16,
    /// How many servers the cluster has.
    pub servers: u16,
    /// The identity of the server's memory.
    pub memory: u64,
    /// The cluster that the memory belongs to; 0 if it belongs to none yet.
    pub cluster: u64,
    /// From server 0: the servers that the cluster has declared lost.
    pub lost: Vec<u16>,
    /// The client's id; a reserved id for a peer that is not a member.
    pub client: ComputeId,
    /// The incarnation of that id.
    pub incarnation: u32,
    /// Bytes of host memory.
    pub host_bytes: u64,
    /// The server's capabilities. Its limits are those of the protocol or smaller.
    pub caps: Caps,
    /// The most bytes of a frame's body.
    pub max_frame: u32,
    /// The most bytes of a list's results.
    pub max_reply: u32,
    /// How long a member counts as alive after its last sign of life, in nanoseconds.
    pub lease_nanos: u64,
}

impl Welcome {
    /// Appends its body, signed by `sign`.
    pub fn put(&self, out: &mut Vec<u8>, sign: impl FnOnce(&[u8]) -> Mac) {
        let put = |out: &mut Vec<u8>| {
            out.put_u16(self.version);
            out.put_u64(self.boot);
            out.put_u16(self.server);
            out.put_u16(self.servers);
            out.put_u64(self.memory);
            out.put_u64(self.cluster);
            out.put_several(&self.lost, |out, server| out.put_u16(*server));
            out.put_u16(self.client.0);
            out.put_u32(self.incarnation);
            out.put_u64(self.host_bytes);
            put_caps(out, &self.caps);
            out.put_u32(self.max_frame);
            out.put_u32(self.max_reply);
            out.put_u64(self.lease_nanos);
        };
        put_signed(out, put, sign);
    }

    /// Decodes the `Welcome` that is all of `body`.
    pub fn take(body: &[u8]) -> Result<Signed<'_, Self>, WireError> {
        take_signed(body, |reader| {
            Ok(Self {
                version: reader.u16()?,
                boot: reader.u64()?,
                server: reader.u16()?,
                servers: reader.u16()?,
                memory: reader.u64()?,
                cluster: reader.u64()?,
                lost: reader.several(2, Reader::u16)?,
                client: ComputeId(reader.u16()?),
                incarnation: reader.u32()?,
                host_bytes: reader.u64()?,
                caps: read_caps(reader)?,
                max_frame: reader.u32()?,
                max_reply: reader.u32()?,
                lease_nanos: reader.u64()?,
            })
        })
    }
}

fn put_caps(out: &mut Vec<u8>, caps: &Caps) {
    out.put_u32(caps.atomic_unit);
    out.put_u32(caps.crash_unit);
    let flags = [caps.verb_atomic, caps.masked_cas, caps.write_releases, caps.lock_read];
    flags.into_iter().for_each(|flag| out.put_u8(flag.into()));
    out.put_u64(caps.on_chip_bytes);
    out.put_u8(match caps.fence {
        FenceMode::Revoke => 1,
        FenceMode::DeathOnly => 2,
    });
    out.put_u64(caps.shortest_write_nanos);
    out.put_u32(caps.max_verbs);
    out.put_u32(caps.max_transfer);
}

fn read_caps(reader: &mut Reader<'_>) -> Result<Caps, WireError> {
    Ok(Caps {
        atomic_unit: reader.u32()?,
        crash_unit: reader.u32()?,
        verb_atomic: reader.flag("capability")?,
        masked_cas: reader.flag("capability")?,
        write_releases: reader.flag("capability")?,
        lock_read: reader.flag("capability")?,
        on_chip_bytes: reader.u64()?,
        fence: match reader.u8()? {
            1 => FenceMode::Revoke,
            2 => FenceMode::DeathOnly,
            other => return Err(WireError::Unknown { what: "way to fence", found: other.into() }),
        },
        shortest_write_nanos: reader.u64()?,
        max_verbs: reader.u32()?,
        max_transfer: reader.u32()?,
    })
}

/// Why a server ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u16)]
pub enum GoodbyeCode {
    /// A frame was malformed, or of a kind that is not allowed there.
    Malformed = 1,
    /// A frame, list, verb or reply was over its limit.
    TooLarge = 2,
    /// The server does not speak the client's version.
    Version = 3,
    /// The client did not prove that it knows the secret.
    BadSecret = 4,
    /// This incarnation of the client is fenced here, has left, or has a successor.
    Fenced = 5,
    /// The server was restarted since the client first connected to it.
    Restarted = 6,
    /// The server has reached its limit of connections.
    TooManyConnections = 7,
    /// The handshake took too long.
    TooSlow = 8,
    /// The server is going down.
    ShuttingDown = 9,
    /// The client's role does not allow this.
    NotAllowed = 10,
    /// The server refused to let the client join; the error gives the reason.
    JoinRefused = 11,
    /// The server failed, and the client did not cause it.
    Internal = 12,
    /// The server's memory belongs to another cluster than the client's.
    OtherCluster = 13,
    /// The server has another memory than the one that the client's cluster knows.
    OtherMemory = 14,
    /// A connection without a member was silent for too long.
    Idle = 15,
    /// The host has not carried out the client's table yet, or does not serve the copy yet.
    NotYet = 16,
    /// A reason that this version does not know.
    Unknown = u16::MAX,
}

impl GoodbyeCode {
    /// Every code that may be sent.
    pub const ALL: [Self; 16] = [
        Self::Malformed,
        Self::TooLarge,
        Self::Version,
        Self::BadSecret,
        Self::Fenced,
        Self::Restarted,
        Self::TooManyConnections,
        Self::TooSlow,
        Self::ShuttingDown,
        Self::NotAllowed,
        Self::JoinRefused,
        Self::Internal,
        Self::OtherCluster,
        Self::OtherMemory,
        Self::Idle,
        Self::NotYet,
    ];

    /// The code that `number` means.
    pub fn from_number(number: u16) -> Self {
        Self::ALL.into_iter().find(|code| *code as u16 == number).unwrap_or(Self::Unknown)
    }

    /// Its meaning as text for people.
    pub fn says(self) -> &'static str {
        match self {
            Self::Malformed => "the client sent a malformed message",
            Self::TooLarge => "the client sent or asked for more than the protocol allows",
            Self::Version => "client and server speak different versions of the protocol",
            Self::BadSecret => "the client does not know the cluster's secret",
            Self::Fenced => "the client has been fenced or has left",
            Self::Restarted => "the memory server was restarted",
            Self::TooManyConnections => "the memory server has too many connections",
            Self::TooSlow => "the handshake took too long",
            Self::ShuttingDown => "the memory server is shutting down",
            Self::NotAllowed => "the client's role does not allow this request",
            Self::JoinRefused => "the memory server does not let the client join",
            Self::Internal => "the memory server failed",
            Self::OtherCluster => "the memory server belongs to another cluster",
            Self::OtherMemory => {
                "the memory server lost its memory: it was restarted empty, or is another server"
            }
            Self::Idle => "the connection was silent for too long",
            Self::NotYet => "the memory server does not serve this copy yet",
            Self::Unknown => "the memory server gave a reason that this version does not know",
        }
    }
}

/// The last frame of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Goodbye {
    /// The reason.
    pub code: GoodbyeCode,
    /// The error behind the reason, if there is one.
    pub error: Option<FabricError>,
}

impl fmt::Display for Goodbye {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code.says())?;
        self.error.as_ref().map_or(Ok(()), |error| write!(f, ": {error}"))
    }
}

impl Goodbye {
    /// Appends its body.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.put_u16(self.code as u16);
        out.put_u8(self.error.is_some().into());
        if let Some(error) = &self.error {
            put_error(out, error);
        }
    }

    /// Decodes the `Goodbye` that is all of `body`.
    pub fn take(body: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(body);
        let code = GoodbyeCode::from_number(reader.u16()?);
        let error = if reader.flag("flag for an error")? { Some(read_error(&mut reader)?) } else { None };
        reader.finish()?;
        Ok(Self { code, error })
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    fn welcome() -> Welcome {
        let caps = Caps {
            atomic_unit: 64,
            crash_unit: 32,
            verb_atomic: false,
            masked_cas: true,
            write_releases: false,
            lock_read: true,
            on_chip_bytes: 1,
            fence: FenceMode::DeathOnly,
            shortest_write_nanos: 2,
            max_verbs: 3,
            max_transfer: 4,
        };
        Welcome {
            version: 1,
            boot: 2,
            server: 3,
            servers: 4,
            memory: 11,
            cluster: 12,
            lost: vec![1, 3],
            client: ComputeId(5),
            incarnation: 6,
            host_bytes: 7,
            caps,
            max_frame: 8,
            max_reply: 9,
            lease_nanos: 10,
        }
    }

    fn roles() -> [Role; 8] {
        let seen =
            vec![None, Some(Seen { memory: u64::MAX, cluster: 0 }), Some(Seen { memory: 1, cluster: 2 })];
        let member = Role::Member { client: ComputeId(7), incarnation: 8, boot: 9, cluster: 10, memory: 11 };
        let (client, incarnation, cluster) = (ComputeId(7), 8, 10);
        [
            Role::Join { seen: Vec::new() },
            Role::Join { seen },
            member,
            Role::Admin,
            Role::Newcomer,
            Role::Copy { client, incarnation, cluster, copy: 12, epoch: 13 },
            Role::Control { client, incarnation, cluster },
            Role::Host { host: 14, incarnation, cluster },
        ]
    }

    #[test]
    fn signed_messages_are_decoded_to_what_was_encoded_and_the_mac_covers_all_before_it() {
        let introductions = roles().map(|role| Introduce { version: 3, nonce: [4; 32], role });
        let cover = |covered: &[u8]| [covered.len() as u8; 32];
        samples::round_trips(
            &introductions,
            |out, each| each.put(out, cover),
            |bytes| {
                let signed = Introduce::take(bytes)?;
                // The mac does not cover a body that is cut as a whole, and a body with an extra byte has
                // another mac.
                let whole = signed.mac == cover(signed.covered) && signed.covered.len() + 32 == bytes.len();
                if whole { Ok(signed.message) } else { Err(WireError::Leftover) }
            },
        );
        let mut out = Vec::new();
        welcome().put(&mut out, cover);
        let signed = Welcome::take(&out).unwrap();
        assert_eq!((signed.message, signed.mac), (welcome(), cover(signed.covered)));
        assert_eq!(signed.covered, &out[..out.len() - 32]);
        (0..out.len()).for_each(|end| assert!(Welcome::take(&out[..end]).is_err()));
    }

    #[test]
    fn what_a_client_saw_at_as_many_servers_as_there_may_be_fits_a_frame() {
        use super::super::frame::{MAX_SERVERS, put_frame};
        let seen = vec![Some(Seen { memory: 1, cluster: 2 }); MAX_SERVERS];
        let introduce = Introduce { version: 2, nonce: [0; 32], role: Role::Join { seen } };
        let welcome = Welcome { lost: vec![1; MAX_SERVERS], ..welcome() };
        let mut out = Vec::new();
        put_frame(&mut out, super::super::FrameKind::Introduce, 0, |out| introduce.put(out, |_| [0; 32]))
            .unwrap();
        put_frame(&mut out, super::super::FrameKind::Welcome, 0, |out| welcome.put(out, |_| [0; 32]))
            .unwrap();
    }

    #[test]
    fn a_hello_of_something_else_or_of_another_version_is_recognized() {
        let hello =
            Hello { version_min: VERSION - 1, version_max: VERSION + 1, needs_secret: true, nonce: [7; 32] };
        let mut out = Vec::new();
        hello.put(&mut out);
        assert_eq!(Hello::take(&out), Ok(hello));
        assert!(hello.speaks_our_version());
        assert!(!Hello { version_min: VERSION + 1, ..hello }.speaks_our_version());
        assert!(!Hello { version_max: VERSION - 1, ..hello }.speaks_our_version());
        assert_eq!(Hello::take(b"HTTP/1.1 400 Bad Request\r\n"), Err(WireError::NotSherman));
        (0..out.len()).for_each(|end| assert!(Hello::take(&out[..end]).is_err()));
    }

    #[test]
    fn goodbyes_are_decoded_to_what_was_encoded() {
        let all = GoodbyeCode::ALL.map(|code| Goodbye { code, error: None });
        let errors = samples::errors().into_iter();
        let with = errors.map(|error| Goodbye { code: GoodbyeCode::JoinRefused, error: Some(error) });
        let samples: Vec<_> = all.into_iter().chain(with).collect();
        samples::round_trips(&samples, |out, each| each.put(out), Goodbye::take);
        samples::garbage(&samples, |out, each| each.put(out), Goodbye::take);
        assert_eq!(GoodbyeCode::from_number(999), GoodbyeCode::Unknown);
        let mut said: Vec<_> = GoodbyeCode::ALL.iter().map(|code| code.says()).collect();
        said.sort_unstable();
        said.dedup();
        assert_eq!(said.len(), GoodbyeCode::ALL.len());
    }

    #[test]
    fn a_request_for_a_further_copy_is_decoded_to_what_was_encoded() {
        let all = [Also { copy: 0, epoch: u64::MAX }, Also { copy: u16::MAX, epoch: 7 }];
        samples::round_trips(&all, |out, each| each.put(out), Also::take);
        samples::garbage(&all, |out, each| each.put(out), Also::take);
    }

    #[test]
    fn garbage_is_no_introduction() {
        let introductions = roles().map(|role| Introduce { version: 3, nonce: [4; 32], role });
        samples::garbage(
            &introductions,
            |out, each| each.put(out, |_| [0; 32]),
            |bytes| Introduce::take(bytes).map(|signed| signed.message),
        );
    }
}
