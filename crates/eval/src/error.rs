//! Why a run has no result.

use sherman::{EmbeddedError, Error, OpenError};
use std::fmt;

/// Why a run has no result.
#[derive(Debug)]
#[non_exhaustive]
pub enum BenchError {
    /// An option cannot be met.
    Option {
        /// Its name, as on the command line without dashes.
        option: &'static str,
        /// What is wrong, and what is allowed.
        reason: String,
    },
    /// The cluster could not be opened.
    Open(OpenError),
    /// The tree could not be made.
    Create(Error),
    /// An operation failed.
    Operation {
        /// Loading, warming up, measuring or checking.
        phase: &'static str,
        /// How.
        error: Error,
    },
    /// The index gave an answer that cannot be right.
    Wrong {
        /// Which.
        what: &'static str,
        /// About which key, by index.
        index: u64,
    },
    /// The tree does not hold as many entries as were inserted.
    Entries {
        /// How many it holds.
        found: u64,
        /// How many were inserted.
        expected: u64,
    },
    /// The tree breaks invariants.
    Broken {
        /// How many times.
        count: u64,
        /// The first: its number and what it says.
        first: &'static str,
    },
    /// The named tree does not exist; which trees do.
    NoTree(String),
    /// The name for the benchmark's own tree is taken: that tree is not touched.
    NotOurs {
        /// The name.
        tree: String,
    },
    /// The benchmark's own tree could not be dropped.
    Left {
        /// Its name.
        tree: String,
        /// Why.
        error: Error,
        /// Why the run itself failed, if it did.
        after: Option<Box<BenchError>>,
    },
    /// The system refused a thread, or one ended by a panic.
    Thread(String),
}

impl BenchError {
    pub(crate) fn option(option: &'static str, reason: impl fmt::Display) -> Self {
        Self::Option { option, reason: reason.to_string() }
    }

    /// The option at fault, if this is about what was asked for and not about what happened.
    pub fn bad_option(&self) -> Option<&'static str> {
        match self {
            Self::Option { option, .. } => Some(option),
            Self::Open(OpenError::BadUrl { .. }) => Some("cluster"),
            Self::Open(OpenError::Embedded(
                EmbeddedError::NoServers | EmbeddedError::TooManyServers { .. } | EmbeddedError::Format { .. },
            )) => Some("cluster"),
            Self::Open(OpenError::Cluster(Error::Unsupported { .. })) => Some("cluster"),
            Self::Create(Error::Unsupported { .. }) => Some("cluster"),
            _ => None,
        }
    }

    /// Whether the named tree does not exist.
    pub fn is_no_tree(&self) -> bool {
        matches!(self, Self::NoTree(_) | Self::Create(Error::NoSuchTree { .. }))
    }

    /// Whether the index answered wrongly, or its tree is broken.
    pub fn is_wrong_answer(&self) -> bool {
        match self {
            Self::Wrong { .. } | Self::Entries { .. } | Self::Broken { .. } => true,
            Self::Create(error) | Self::Operation { error, .. } => matches!(error, Error::Corrupt { .. }),
            _ => false,
        }
    }
}

impl fmt::Display for BenchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Option { reason, .. } => write!(f, "{reason}"),
            Self::Open(error) => write!(f, "{error}"),
            Self::Create(error) => write!(f, "{error}"),
            Self::Operation { phase, error } => write!(f, "{phase}: {error}"),
            Self::Wrong { what, index } => write!(f, "the index answered wrongly: {what} (key number {index})"),
            Self::Entries { found, expected } => {
                write!(f, "the index holds {found} entries, but {expected} were inserted")
            }
            Self::Broken { count, first } => write!(f, "the tree breaks {count} invariants, the first of them {first}"),
            Self::NoTree(reason) => write!(f, "{reason}"),
            Self::NotOurs { tree } => write!(f, "a tree named {tree:?} exists already; it was not touched. Run again"),
            Self::Left { tree, error, after } => {
                if let Some(after) = after {
                    write!(f, "{after}; then ")?;
                }
                write!(f, "the benchmark's tree {tree:?} could not be dropped: {error}. \"sherman drop\" removes it")
            }
            Self::Thread(reason) => write!(f, "a thread of the benchmark: {reason}"),
        }
    }
}

impl std::error::Error for BenchError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Open(error) => Some(error),
            Self::Create(error) | Self::Operation { error, .. } | Self::Left { error, .. } => Some(error),
            _ => None,
        }
    }
}
