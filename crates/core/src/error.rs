//! What an operation can fail with.

use crate::cause::Cause;
use crate::mutant::{Mutant, planted};
use crate::node::ShapeError;
use sherman_fabric::{ClientId, FabricError, GlobalAddress, Refusal};
use sherman_memory_server::SuperblockError;
use std::fmt;
use std::time::Duration;

/// Why an operation failed. Unless it says otherwise, nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The key does not have the tree's key size.
    KeySize {
        /// Bytes the tree's keys have.
        expected: usize,
        /// Bytes it had.
        found: usize,
    },
    /// The value does not have the tree's value size.
    ValueSize {
        /// Bytes the tree's values have.
        expected: usize,
        /// Bytes it had.
        found: usize,
    },
    /// No node can have this shape.
    Shape(ShapeError),
    /// The tree exists with another shape.
    TreeMismatch {
        /// Its name.
        name: String,
        /// What differs.
        what: &'static str,
        /// What the caller asked for.
        asked: u64,
        /// What the tree has.
        found: u64,
    },
    /// There is no such tree.
    NoSuchTree {
        /// The name asked for.
        name: String,
    },
    /// A range ends before it begins, or begins and ends at the same excluded key.
    BadRange,
    /// A bulk load needs a tree without entries.
    NotEmpty,
    /// A bulk load needs keys in strictly ascending order.
    Unsorted {
        /// The number, from 0, of the first entry whose key is not above the one before.
        at: u64,
    },
    /// No memory server has a free chunk left.
    OutOfMemory,
    /// The deadline passed while the operation waited.
    Timeout {
        /// What it was waiting for.
        cause: Cause,
        /// For how long.
        waited: Duration,
    },
    /// The cluster or its fabric cannot do what was asked.
    Unsupported {
        /// What.
        what: &'static str,
    },
    /// A memory server's memory is not formatted for this version.
    Superblock {
        /// Which server.
        server: u16,
        /// What is wrong with it.
        error: SuperblockError,
    },
    /// A node breaks an invariant of `docs/INVARIANTS.md` that no concurrency explains.
    Corrupt {
        /// Where.
        address: GlobalAddress,
        /// Which.
        invariant: &'static str,
    },
    /// This compute server's identity has ended: others have fenced it, or it gave itself up. The operation changed nothing. A
    /// `Cluster` joins again by itself, so a new call can succeed.
    Fenced {
        /// Its former id.
        client: ClientId,
    },
    /// A memory server is gone. The operation changed nothing.
    ServerLost {
        /// Which.
        server: u16,
    },
    /// Another compute server was stopped in the middle of a change and lives, where only its death could stop it (shared
    /// memory): what it holds is not given back until it runs again or dies. The operation changed nothing.
    OwnerStalled {
        /// Which.
        client: ClientId,
    },
    /// A list that carried the change failed after it was posted: the change may or may not have happened. Never retried
    /// silently; read the key to find out.
    OutcomeUnknown {
        /// How the list failed.
        source: FabricError,
    },
    /// This compute server's identity has ended, and it could not join the cluster again within the operation's deadline, or the
    /// cluster refuses it. The operation changed nothing.
    NotRejoined {
        /// How long the operation waited for a new identity.
        waited: Duration,
        /// Why the last attempt to join failed.
        reason: String,
    },
    /// This compute server's identity ended during a bulk load. Nothing was loaded. The load cannot go on by itself, because it has
    /// consumed entries: start it again with all of them.
    LoadInterrupted,
    /// The session has as many operations in flight as it takes: await some first. Nothing was changed.
    TooManyInFlight {
        /// How many it takes.
        limit: usize,
    },
    /// The session was dropped, and could not finish the operation in time: it may or may not have happened.
    SessionDropped,
    /// The handle was dropped, or its worker threads are gone, before the operation was accepted. Nothing was changed.
    HandleClosed,
    /// The system started no thread.
    Thread {
        /// Why not.
        kind: std::io::ErrorKind,
    },
    /// A memory server refused a request.
    Refused(Refusal),
    /// The fabric failed otherwise.
    Fabric(FabricError),
}

impl Error {
    /// The error of an operation whose change was already on its way.
    pub(crate) fn after_post(source: FabricError) -> Self {
        if planted(Mutant::OutcomeClaimed) {
            return source.into();
        }
        Self::OutcomeUnknown { source }
    }

    /// Whether this is how an operation of `client` fails that changed nothing because the client's identity has ended.
    pub fn ends_identity(&self, client: ClientId) -> bool {
        match self {
            Self::Fenced { .. } | Self::Fabric(FabricError::Disconnected { .. } | FabricError::Fenced { .. }) => true,
            Self::Refused(Refusal::NotAMember { client: named } | Refusal::Fenced { client: named }) => {
                *named == client
            }
            _ => false,
        }
    }
}

impl From<FabricError> for Error {
    fn from(error: FabricError) -> Self {
        match error {
            FabricError::Fenced { client } => Self::Fenced { client },
            FabricError::ServerLost { server } => Self::ServerLost { server },
            FabricError::OwnerStalled { client } => Self::OwnerStalled { client },
            FabricError::Unsupported { what } => Self::Unsupported { what },
            FabricError::Refused(Refusal::OutOfMemory) => Self::OutOfMemory,
            FabricError::Refused(Refusal::NoSuchTree { name }) => Self::NoSuchTree { name },
            FabricError::Refused(refusal) => Self::Refused(refusal),
            other => Self::Fabric(other),
        }
    }
}

impl From<ShapeError> for Error {
    fn from(error: ShapeError) -> Self {
        Self::Shape(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KeySize { expected, found } => write!(f, "this tree's keys have {expected} bytes, not {found}"),
            Self::ValueSize { expected, found } => write!(f, "this tree's values have {expected} bytes, not {found}"),
            Self::Shape(error) => write!(f, "{error}"),
            Self::TreeMismatch { name, what, asked, found } => {
                write!(f, "tree {name:?} exists with {what} {found}, {asked} was asked for")
            }
            Self::NoSuchTree { name } => write!(f, "there is no tree named {name:?}"),
            Self::BadRange => write!(f, "the range ends before it begins"),
            Self::NotEmpty => write!(f, "a bulk load needs an empty tree: clear it, or insert"),
            Self::Unsorted { at } => {
                write!(f, "a bulk load needs strictly ascending keys: entry {at} is not above the one before")
            }
            Self::OutOfMemory => write!(f, "no memory server has a free chunk: give the cluster more memory"),
            Self::Timeout { cause, waited } => write!(f, "gave up after {waited:?}: {}", cause.waiting_for()),
            Self::Unsupported { what } => write!(f, "not supported here: {what}"),
            Self::Superblock { server, error } => write!(f, "memory server {server}: {error}"),
            Self::Corrupt { address, invariant } => write!(f, "the node at {address} is corrupt: {invariant}"),
            Self::Fenced { client } => {
                write!(f, "the identity {client} of this compute server has ended; nothing was changed: try again")
            }
            Self::ServerLost { server } => write!(f, "memory server {server} was declared lost"),
            Self::OwnerStalled { client } => {
                write!(f, "compute server {client} was stopped in the middle of a change: continue or kill its process")
            }
            Self::OutcomeUnknown { source } => {
                write!(f, "the change may or may not have happened ({source}); read the key to find out")
            }
            Self::NotRejoined { waited, reason } => {
                write!(
                    f,
                    "the cluster could not be joined again within {waited:.1?}, and nothing was changed: {reason}"
                )
            }
            Self::LoadInterrupted => {
                write!(f, "the connection to the cluster ended during a bulk load; nothing was loaded: start it again")
            }
            Self::TooManyInFlight { limit } => write!(f, "{limit} operations are in flight already: await some first"),
            Self::SessionDropped => write!(f, "the session was dropped before the operation finished"),
            Self::HandleClosed => write!(f, "the handle's worker threads are gone; the operation did not begin"),
            Self::Thread { kind } => write!(f, "the system started no thread: {kind}"),
            Self::Refused(refusal) => write!(f, "{refusal}"),
            Self::Fabric(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Shape(error) => Some(error),
            Self::Superblock { error, .. } => Some(error),
            Self::OutcomeUnknown { source } | Self::Fabric(source) => Some(source),
            Self::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    #[test]
    fn every_error_says_what_happened_in_one_line() {
        let address = GlobalAddress::new(1, 64);
        let lost = FabricError::ServerLost { server: 3 };
        let errors = [
            Error::KeySize { expected: 8, found: 9 },
            Error::ValueSize { expected: 8, found: 9 },
            Error::TreeMismatch { name: "t".into(), what: "key size", asked: 1, found: 2 },
            Error::NoSuchTree { name: "t".into() },
            Error::BadRange,
            Error::NotEmpty,
            Error::Unsorted { at: 7 },
            Error::OutOfMemory,
            Error::Timeout { cause: Cause::LaneHeld, waited: Duration::from_millis(5) },
            Error::Unsupported { what: "this" },
            Error::Superblock { server: 1, error: SuperblockError::NotFormatted },
            Error::Corrupt { address, invariant: "I1" },
            Error::Fenced { client: ClientId(4) },
            Error::ServerLost { server: 3 },
            Error::after_post(lost.clone()),
            Error::NotRejoined { waited: Duration::from_secs(10), reason: "connection refused".into() },
            Error::LoadInterrupted,
            Error::TooManyInFlight { limit: 9 },
            Error::SessionDropped,
            Error::HandleClosed,
            Error::Thread { kind: std::io::ErrorKind::OutOfMemory },
            Error::Refused(Refusal::BadName),
            Error::Fabric(lost),
        ];
        for error in &errors {
            let said = error.to_string();
            assert!(said.len() > 8 && !said.contains('\n') && !said.ends_with('.'), "{said:?}");
        }
        let with_source = errors.iter().filter(|error| error.source().is_some()).count();
        assert_eq!(with_source, 4);
    }

    #[test]
    fn what_the_fabric_says_keeps_its_meaning() {
        let same = [
            (FabricError::Fenced { client: ClientId(4) }, Error::Fenced { client: ClientId(4) }),
            (FabricError::ServerLost { server: 3 }, Error::ServerLost { server: 3 }),
            (FabricError::Unsupported { what: "this" }, Error::Unsupported { what: "this" }),
            (FabricError::Refused(Refusal::OutOfMemory), Error::OutOfMemory),
            (FabricError::Refused(Refusal::NoSuchTree { name: "t".into() }), Error::NoSuchTree { name: "t".into() }),
            (FabricError::Refused(Refusal::BadName), Error::Refused(Refusal::BadName)),
            (FabricError::Disconnected { server: 1 }, Error::Fabric(FabricError::Disconnected { server: 1 })),
        ];
        for (fabric, ours) in same {
            assert_eq!(Error::from(fabric), ours);
        }
    }

    #[test]
    fn every_cause_has_a_name_and_says_what_is_waited_for() {
        let retries = crate::cause::Retries::default();
        for (at, cause) in Cause::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, at);
            assert!(cause.name().chars().all(|letter| letter.is_ascii_lowercase() || letter == '_'));
            assert!(cause.waiting_for().len() > 8);
            retries.add_many(cause, at as u64);
        }
        assert!(retries.iter().enumerate().all(|(at, (_, count))| count == at as u64));
    }
}
