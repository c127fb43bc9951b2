//! A connection and its handshake (`wire::handshake`), bounded by a deadline.

use super::backoff::Backoff;
use super::options::Address;
use super::stream::Stream;
use crate::auth::{self, Secret};
use crate::wire::frame::put_frame;
use crate::wire::{
    Also, FrameHeader, FrameKind, Goodbye, GoodbyeCode, HEADER_BYTES, Hello, Introduce, Role, VERSION,
    Welcome, WireError,
};
use rustix::event::PollFlags;
use rustix::io::Errno;
use sherman_fabric::{FabricError, Refusal};
use std::io;
use std::time::{Duration, Instant};

/// How long a client retries to connect to a server that has too many connections.
const CROWDED: Duration = Duration::from_secs(2);

/// A connection that a server has accepted.
#[derive(Debug)]
pub(crate) struct Connected {
    pub(crate) stream: Stream,
    pub(crate) welcome: Welcome,
}

impl Connected {
    /// Asks the host for a further copy on this connection, and returns its `Welcome`. After an error the
    /// connection is of no use.
    pub(crate) fn also(&self, also: Also, deadline: Instant) -> Result<Welcome, ConnectError> {
        let mut out = Vec::new();
        put_frame(&mut out, FrameKind::Also, 0, |out| also.put(out))?;
        send_all(&self.stream, &out, deadline)?;
        Ok(Welcome::take(&frame(&self.stream, FrameKind::Welcome, deadline)?)?.message)
    }
}

sherman_fabric::errors! {
    /// Why there is no connection to a server.
    #[derive(Debug)]
    #[non_exhaustive]
    pub enum ConnectError {
        /// No process listens there.
        Refused(error: io::Error) => "{error}. Is it running?" because error,
        /// It cannot be reached in time, or the connection broke.
        Unreachable(error: io::Error) => "{error}. Is it running?" because error,
        /// It sent bytes that are not part of the protocol.
        Protocol(error: WireError) => "it does not answer like a memory server: {error}" because error,
        /// It does not speak this build's version of the protocol.
        Version {
            /// The oldest version it speaks.
            min: u16,
            /// The newest version it speaks.
            max: u16,
        } => "it speaks versions {min} to {max} of the protocol, but this build speaks version {VERSION}",
        /// It wants proof of a secret, and this client has none.
        NeedsSecret => "it requires the cluster's secret: name the secret's file with secret-file=",
        /// It does not know the secret.
        Impostor => "it does not know the cluster's secret",
        /// It ended the connection and gave a reason.
        Goodbye(goodbye: Goodbye) => "{goodbye}",
        /// The system has no random numbers.
        NoRandomness => "the system has no random numbers for a handshake",
        /// It was restarted since this client first connected to it.
        Restarted => ("{}", GoodbyeCode::Restarted.says()),
        /// It mistakes this client for another one, or is not the expected server.
        Confused {
            /// The mismatch.
            what: &'static str,
        } => "it is not the expected memory server: {what}",
    }
}

impl ConnectError {
    /// Whether the server did not answer at all.
    pub(super) fn is_out_of_reach(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::Unreachable(_))
    }

    /// The error of an endpoint that cannot be made without this connection.
    pub(crate) fn as_fabric_error(&self, server: u16) -> FabricError {
        match self {
            Self::Goodbye(goodbye) if goodbye.code == GoodbyeCode::TooManyConnections => {
                FabricError::Unsupported {
                    what: "open one more endpoint: a memory server has too many connections",
                }
            }
            Self::Unreachable(error)
                if matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE)) =>
            {
                FabricError::Unsupported { what: "open one more endpoint: too many files are open" }
            }
            _ => FabricError::Disconnected { server },
        }
    }

    /// Whether the same attempt may succeed later.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Refused(_)
            | Self::Unreachable(_)
            | Self::NoRandomness
            | Self::Restarted
            | Self::Confused { .. } => true,
            Self::Protocol(_) | Self::Version { .. } | Self::NeedsSecret | Self::Impostor => false,
            Self::Goodbye(goodbye) => match (goodbye.code, &goodbye.error) {
                (GoodbyeCode::JoinRefused, Some(FabricError::Refused(refusal))) => {
                    matches!(refusal, Refusal::TooManyMembers | Refusal::Unreachable { .. })
                }
                (code, _) => !matches!(
                    code,
                    GoodbyeCode::Malformed
                        | GoodbyeCode::TooLarge
                        | GoodbyeCode::Version
                        | GoodbyeCode::BadSecret
                        | GoodbyeCode::NotAllowed
                        | GoodbyeCode::OtherCluster
                        | GoodbyeCode::OtherMemory
                ),
            },
        }
    }

    /// Whether the server has fenced this client, or let it leave.
    pub(crate) fn means_fenced(&self) -> bool {
        matches!(self, Self::Goodbye(goodbye) if goodbye.code == GoodbyeCode::Fenced)
    }
}

impl From<WireError> for ConnectError {
    fn from(error: WireError) -> Self {
        Self::Protocol(error)
    }
}

/// Connects to the server at `address` as `role`.
///
/// A server that has too many connections closes those whose handshake is not done, which changes nothing.
/// The client then retries, for [`CROWDED`] at most.
pub(crate) fn connect(
    address: &Address,
    secret: Option<&Secret>,
    role: Role,
    deadline: Instant,
) -> Result<Connected, ConnectError> {
    let give_up = deadline.min(Instant::now() + CROWDED);
    let mut backoff = Backoff::default();
    loop {
        let outcome = shake_hands(address, secret, &role, deadline);
        let Err(ConnectError::Goodbye(goodbye)) = &outcome else { return outcome };
        let pause = backoff.next();
        if goodbye.code != GoodbyeCode::TooManyConnections || Instant::now() + pause >= give_up {
            return outcome;
        }
        std::thread::sleep(pause);
    }
}

/// Makes one attempt to connect.
fn shake_hands(
    address: &Address,
    secret: Option<&Secret>,
    role: &Role,
    deadline: Instant,
) -> Result<Connected, ConnectError> {
    let stream = Stream::connect(address, deadline).map_err(|error| match error.kind() {
        // The file of a Unix socket may be gone too.
        io::ErrorKind::ConnectionRefused => ConnectError::Refused(error),
        io::ErrorKind::NotFound if matches!(address, Address::Unix(_)) => ConnectError::Refused(error),
        _ => ConnectError::Unreachable(error),
    })?;
    let hello = Hello::take(&frame(&stream, FrameKind::Hello, deadline)?)?;
    if !hello.speaks_our_version() {
        return Err(ConnectError::Version { min: hello.version_min, max: hello.version_max });
    }
    if hello.needs_secret && secret.is_none() {
        return Err(ConnectError::NeedsSecret);
    }
    let nonce = auth::nonce().map_err(|_| ConnectError::NoRandomness)?;
    let introduce = Introduce { version: VERSION, nonce, role: role.clone() };
    let mut out = Vec::new();
    put_frame(&mut out, FrameKind::Introduce, 0, |out| {
        introduce.put(out, |covered| auth::client_mac(secret, covered, &hello.nonce));
    })?;
    send_all(&stream, &out, deadline)?;
    let body = frame(&stream, FrameKind::Welcome, deadline)?;
    let signed = Welcome::take(&body)?;
    if !auth::server_is_genuine(secret, signed.covered, &nonce, &hello.nonce, &signed.mac) {
        return Err(ConnectError::Impostor);
    }
    if signed.message.version != VERSION {
        return Err(ConnectError::Confused { what: "it answers in another version of the protocol" });
    }
    Ok(Connected { stream, welcome: signed.message })
}

/// Receives the body of one frame of `kind`, and no byte after it.
fn frame(stream: &Stream, kind: FrameKind, deadline: Instant) -> Result<Vec<u8>, ConnectError> {
    let mut head = [0; HEADER_BYTES];
    receive_exactly(stream, &mut head, deadline)?;
    let header = FrameHeader::decode(&head)?.ok_or(WireError::Truncated)?;
    // Handshake frames are small, so a larger length is an error.
    if header.kind != kind && header.kind != FrameKind::Goodbye || header.len > kind.max_len() {
        let found = header.kind as u64;
        return Err(WireError::Unknown { what: "kind of frame in a handshake", found }.into());
    }
    let mut body = vec![0; header.len as usize];
    receive_exactly(stream, &mut body, deadline)?;
    if header.kind == FrameKind::Goodbye {
        return Err(ConnectError::Goodbye(Goodbye::take(&body)?));
    }
    Ok(body)
}

pub(crate) fn receive_exactly(
    stream: &Stream,
    into: &mut [u8],
    deadline: Instant,
) -> Result<(), ConnectError> {
    let mut done = 0;
    while done < into.len() {
        match stream.receive(&mut into[done..]).map_err(ConnectError::Unreachable)? {
            Some(0) => return Err(ConnectError::Unreachable(io::ErrorKind::UnexpectedEof.into())),
            Some(received) => done += received,
            None => stream.wait(PollFlags::IN, deadline).map_err(ConnectError::Unreachable)?,
        }
    }
    Ok(())
}

pub(crate) fn send_all(stream: &Stream, mut bytes: &[u8], deadline: Instant) -> Result<(), ConnectError> {
    while !bytes.is_empty() {
        match stream.send(bytes).map_err(ConnectError::Unreachable)? {
            Some(sent) => bytes = &bytes[sent..],
            None => stream.wait(PollFlags::OUT, deadline).map_err(ConnectError::Unreachable)?,
        }
    }
    Ok(())
}
