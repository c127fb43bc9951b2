//! The errors of operations.

use crate::cause::Cause;
use crate::node::ShapeError;
use sherman_fabric::{ComputeId, FabricError, GlobalAddress, Refusal, TreeTypes};
use sherman_layout::SuperblockError;
use std::time::Duration;

sherman_fabric::errors! {
    /// Why an operation failed. Unless the variant says otherwise, the operation changed nothing.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum Error {
        /// The key does not have the tree's key size.
        KeySize {
            /// Key bytes of the tree.
            expected: usize,
            /// Bytes of the given key.
            found: usize,
        } => "this tree's keys have {expected} bytes, not {found}",
        /// The value does not have the tree's value size.
        ValueSize {
            /// Value bytes of the tree.
            expected: usize,
            /// Bytes of the given value.
            found: usize,
        } => "this tree's values have {expected} bytes, not {found}",
        /// The value is longer than a block of this cluster.
        ValueTooLong {
            /// The most bytes of a value.
            most: usize,
            /// Bytes of the given value.
            found: usize,
        } => "values of this tree have at most {most} bytes here, not {found}",
        /// No node can have this shape.
        Shape(error: ShapeError) => "{error}" because error,
        /// The tree exists with another shape.
        TreeMismatch {
            /// Its name.
            name: String,
            /// The property that differs.
            what: &'static str,
            /// The value that the caller asked for.
            asked: u64,
            /// The value that the tree has.
            found: u64,
        } => "tree {name:?} exists with {what} {found}, not {asked}",
        /// The tree was created with other types of keys or values.
        TypeMismatch {
            /// Its name.
            name: String,
            /// The types that the caller asked for.
            asked: Box<TreeTypes>,
            /// The types that the tree has.
            found: Box<TreeTypes>,
        } => (
            "tree {name:?} holds keys of type {} and values of type {}, not {} and {}",
            found.key,
            found.value,
            asked.key,
            asked.value,
        ),
        /// There is no such tree.
        NoSuchTree {
            /// The requested name.
            name: String,
        } => "there is no tree named {name:?}",
        /// A range ends before it begins, or begins and ends at the same excluded key.
        BadRange => "the range ends before it begins",
        /// A bulk load needs a tree without entries.
        NotEmpty => "a bulk load needs an empty tree: clear the tree, or insert the entries",
        /// A bulk load needs keys in strictly ascending order.
        Unsorted {
            /// The number, from 0, of the first entry whose key is not above the key before it.
            at: u64,
        } => "a bulk load needs strictly ascending keys: entry {at} is not above the entry before it",
        /// No memory server has a free chunk left.
        OutOfMemory => "no memory server has a free chunk: give the cluster more memory",
        /// The deadline passed while the operation was waiting.
        Timeout {
            /// The cause of the wait.
            cause: Cause,
            /// How long it waited.
            waited: Duration,
        } => ("gave up after {waited:?}: {}", cause.waiting_for()),
        /// The cluster or its fabric does not support the request.
        Unsupported {
            /// The unsupported thing.
            what: &'static str,
        } => "not supported here: {what}",
        /// A memory server answered a request with a reply that does not fit it. The server may be of another
        /// version.
        UnexpectedReply {
            /// The request's name.
            request: &'static str,
        } => ("{}", FabricError::UnexpectedReply { request }),
        /// A memory server's memory is not formatted for this version.
        Superblock {
            /// The server.
            server: u16,
            /// The problem.
            error: SuperblockError,
        } => "memory server {server}: {error}" because error,
        /// A node breaks an invariant of `docs/INVARIANTS.md` that no concurrency explains.
        Corrupt {
            /// The node.
            address: GlobalAddress,
            /// The broken invariant.
            invariant: &'static str,
        } => "the node at {address} is corrupt: {invariant}",
        /// This compute server's identity has ended: other clients fenced it, or it ended the identity
        /// itself. The operation changed nothing. A `Cluster` joins again by itself, so a new call can
        /// succeed.
        Fenced {
            /// Its former id.
            client: ComputeId,
        } => "identity {client} of this compute server has ended, and nothing was changed: try again",
        /// A memory server is lost. The operation changed nothing.
        ServerLost {
            /// The server.
            server: u16,
        } => "memory server {server} was declared lost",
        /// A volume of a cluster of hosts has lost all its copies. The operation needs something there, and
        /// changed nothing. Other operations go on.
        VolumeLost {
            /// The volume.
            volume: u16,
        } => "volume {volume} has lost all its copies and its data; \"sherman stats\" lists the volumes",
        /// Another compute server is paused in the middle of a change and cannot be fenced, because only its
        /// death can stop it (shared memory). It keeps what it holds until it runs again or dies. The
        /// operation changed nothing.
        OwnerStalled {
            /// That compute server.
            client: ComputeId,
        } => "compute server {client} is stopped in the middle of a change: continue or kill its process",
        /// A list that carried the change failed after it was posted: the change may or may not have
        /// happened. The client never retries it silently. Read the key to find out.
        OutcomeUnknown {
            /// How the list failed.
            source: FabricError,
        } => "the change may or may not have happened ({source}); read the key to find out" because source,
        /// This compute server's identity has ended. It could not join the cluster again within the
        /// operation's deadline, or the cluster refuses it. The operation changed nothing.
        NotRejoined {
            /// How long the operation waited for a new identity.
            waited: Duration,
            /// Why the last attempt to join failed.
            reason: String,
        } => "could not join the cluster again within {waited:.1?}, and nothing was changed: {reason}",
        /// This compute server's identity ended during a bulk load. Nothing was loaded. The load cannot
        /// resume by itself, because it has consumed entries. Start it again with all entries.
        LoadInterrupted => "the connection to the cluster ended during a bulk load, and nothing was loaded: \
            start the load again",
        /// The session has the most operations in flight that it allows. Await some first. Nothing was
        /// changed.
        TooManyInFlight {
            /// The most operations in flight.
            limit: usize,
        } => "{limit} operations are in flight already: await some first",
        /// The session was dropped, and could not finish the operation in time. The operation may or may not
        /// have happened.
        SessionDropped => "the session was dropped before the operation finished",
        /// The handle was dropped, or its worker threads are gone, before the operation was accepted. Nothing
        /// was changed.
        HandleClosed => "the handle's worker threads have ended, and the operation did not begin",
        /// The system could not start a thread.
        Thread {
            /// The reason.
            kind: std::io::ErrorKind,
        } => "the system could not start a thread: {kind}",
        /// A memory server refused a request.
        Refused(refusal: Refusal) => "{refusal}" because refusal,
        /// Another failure of the fabric.
        Fabric(error: FabricError) => "{error}" because error,
    }
}

impl Error {
    /// Returns the error of an operation whose change was already posted.
    pub(crate) fn after_post(source: FabricError) -> Self {
        seam!(tree::after_post(&source));
        Self::OutcomeUnknown { source }
    }

    /// Whether an operation of `client` fails with this error when the client's identity has ended and the
    /// operation changed nothing.
    pub fn ends_identity(&self, client: ComputeId) -> bool {
        match self {
            Self::Fenced { .. }
            | Self::Fabric(
                FabricError::Disconnected { .. }
                | FabricError::Fenced { .. }
                | FabricError::CopyFailed { .. },
            ) => true,
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
            FabricError::Fenced { client } | FabricError::EpochEnded { client } => Self::Fenced { client },
            FabricError::ServerLost { server } => Self::ServerLost { server },
            FabricError::VolumeLost { volume } => Self::VolumeLost { volume },
            FabricError::OwnerStalled { client } => Self::OwnerStalled { client },
            FabricError::Unsupported { what } => Self::Unsupported { what },
            FabricError::UnexpectedReply { request } => Self::UnexpectedReply { request },
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    #[test]
    fn every_error_says_what_happened_in_one_line() {
        let address = GlobalAddress::new(1, 64);
        let lost = FabricError::ServerLost { server: 3 };
        let types = |key| Box::new(TreeTypes::new(key, "u64").unwrap());
        let errors = [
            Error::KeySize { expected: 8, found: 9 },
            Error::ValueSize { expected: 8, found: 9 },
            Error::TreeMismatch { name: "t".into(), what: "key size", asked: 1, found: 2 },
            Error::TypeMismatch { name: "t".into(), asked: types("i64"), found: types("u64\n") },
            Error::NoSuchTree { name: "t".into() },
            Error::BadRange,
            Error::NotEmpty,
            Error::Unsorted { at: 7 },
            Error::OutOfMemory,
            Error::Timeout { cause: Cause::LaneHeld, waited: Duration::from_millis(5) },
            Error::Unsupported { what: "this" },
            Error::UnexpectedReply { request: "Renew" },
            Error::Superblock { server: 1, error: SuperblockError::NotFormatted },
            Error::Corrupt { address, invariant: "I1" },
            Error::Fenced { client: ComputeId(4) },
            Error::ServerLost { server: 3 },
            Error::VolumeLost { volume: 3 },
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
            (FabricError::Fenced { client: ComputeId(4) }, Error::Fenced { client: ComputeId(4) }),
            (FabricError::ServerLost { server: 3 }, Error::ServerLost { server: 3 }),
            (FabricError::VolumeLost { volume: 3 }, Error::VolumeLost { volume: 3 }),
            (FabricError::Unsupported { what: "this" }, Error::Unsupported { what: "this" }),
            (FabricError::UnexpectedReply { request: "Renew" }, Error::UnexpectedReply { request: "Renew" }),
            (FabricError::Refused(Refusal::OutOfMemory), Error::OutOfMemory),
            (
                FabricError::Refused(Refusal::NoSuchTree { name: "t".into() }),
                Error::NoSuchTree { name: "t".into() },
            ),
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
