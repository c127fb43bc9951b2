//! Why a run has no result.

use sherman::{EmbeddedError, Error, OpenError};
use std::fmt;

sherman_fabric::errors! {
    /// Why a run has no result.
    #[derive(Debug)]
    #[non_exhaustive]
    pub enum BenchError {
        /// An option that cannot be met.
        Option {
            /// Its name, as on the command line without dashes.
            option: &'static str,
            /// What is wrong, and what is allowed.
            reason: String,
        } => "{reason}",
        /// The cluster could not be opened.
        Open(error: OpenError) => "{error}" because error,
        /// The tree could not be created.
        Create(error: Error) => "{error}" because error,
        /// An operation failed.
        Operation {
            /// The phase: loading, warming up, measuring, checking or removing new keys.
            phase: &'static str,
            /// The error of the operation.
            error: Error,
        } => "{phase}: {error}" because error,
        /// The index gave a wrong answer.
        Wrong {
            /// Description of the wrong answer.
            what: &'static str,
            /// The index of the key.
            index: u64,
        } => "the index gave a wrong answer: {what} (key number {index})",
        /// The tree does not hold as many entries as were inserted.
        Entries {
            /// How many it holds.
            found: u64,
            /// How many were inserted.
            expected: u64,
        } => "the index holds {found} entries, but {expected} were inserted",
        /// The tree breaks invariants.
        Broken {
            /// The number of violations.
            count: u64,
            /// The first violation: its number and text.
            first: &'static str,
        } => "the tree breaks {count} invariants, first {first}",
        /// The named tree does not exist; the text lists the existing trees.
        NoTree(reason: String) => "{reason}",
        /// The name for the benchmark's own tree is taken. The benchmark does not touch that tree.
        NotOurs {
            /// The name.
            tree: String,
        } => "a tree named {tree:?} already exists and was not changed. Run the command again",
        /// The benchmark's own tree could not be dropped.
        Left {
            /// Its name.
            tree: String,
            /// The reason.
            error: Error,
            /// Why the run itself failed, if it did.
            after: Option<Box<BenchError>>,
        } => (
            "{}cannot drop the benchmark's tree {tree:?}: {error}. Remove it with \"sherman drop\"",
            after.as_ref().map_or_else(String::new, |after| format!("{after}; then ")),
        ) because error,
        /// The system refused to start a thread, or a thread panicked.
        Thread(reason: String) => "a thread of the benchmark failed: {reason}",
    }
}

impl BenchError {
    pub(crate) fn option(option: &'static str, reason: impl fmt::Display) -> Self {
        Self::Option { option, reason: reason.to_string() }
    }

    /// Returns the invalid option, if the error is about the options and not about the run.
    pub fn bad_option(&self) -> Option<&'static str> {
        match self {
            Self::Option { option, .. } => Some(option),
            Self::Open(OpenError::BadUrl { .. }) => Some("cluster"),
            Self::Open(OpenError::Embedded(
                EmbeddedError::NoServers
                | EmbeddedError::TooManyServers { .. }
                | EmbeddedError::Format { .. },
            )) => Some("cluster"),
            Self::Open(OpenError::Cluster(Error::Unsupported { .. })) => Some("cluster"),
            Self::Create(Error::Unsupported { .. }) => Some("cluster"),
            _ => None,
        }
    }

    /// Returns whether the named tree does not exist.
    pub fn is_no_tree(&self) -> bool {
        matches!(self, Self::NoTree(_) | Self::Create(Error::NoSuchTree { .. }))
    }

    /// Returns whether the index answered wrongly, or its tree is broken.
    pub fn is_wrong_answer(&self) -> bool {
        match self {
            Self::Wrong { .. } | Self::Entries { .. } | Self::Broken { .. } => true,
            Self::Create(error) | Self::Operation { error, .. } => matches!(error, Error::Corrupt { .. }),
            _ => false,
        }
    }
}
