//! Why there are no figures.

use crate::error::BenchError;
use crate::lab::Job;
use std::fmt;
use std::path::{Path, PathBuf};

/// Why there are no figures.
#[derive(Debug)]
#[non_exhaustive]
pub enum FiguresError {
    /// No figure has this name.
    Unknown {
        /// The name.
        name: String,
        /// The names there are.
        known: Vec<&'static str>,
    },
    /// Something cannot be written.
    Output {
        /// Where.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The running program could not be read, so that nothing can be told of which results are its own.
    Program(String),
    /// An experiment failed.
    Experiment {
        /// Which.
        job: Box<Job>,
        /// How.
        error: BenchError,
    },
    /// A figure was drawn from an experiment that it had not asked for.
    Unplanned {
        /// The figure.
        figure: &'static str,
        /// The experiment.
        job: Box<Job>,
    },
}

impl FiguresError {
    /// A failure to write `path`.
    pub(crate) fn output(path: &Path, reason: impl fmt::Display) -> Self {
        Self::Output { path: path.to_owned(), reason: reason.to_string() }
    }

    /// The option at fault, if this is about what was asked for.
    pub fn bad_option(&self) -> Option<&'static str> {
        match self {
            Self::Unknown { .. } => Some("only"),
            Self::Output { .. } => Some("out"),
            Self::Program(_) | Self::Experiment { .. } | Self::Unplanned { .. } => None,
        }
    }
}

impl fmt::Display for FiguresError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { name, known } => {
                write!(f, "there is no figure {name:?}; there are {}", known.join(", "))
            }
            Self::Output { path, reason } => write!(f, "cannot write {}: {reason}", path.display()),
            Self::Program(reason) => write!(f, "cannot read the running program: {reason}"),
            Self::Experiment { job, error } => write!(f, "an experiment failed: {error}; it was {job:?}"),
            Self::Unplanned { figure, job } => {
                write!(f, "figure {figure} is drawn from an experiment it did not ask for: {job:?}")
            }
        }
    }
}

impl std::error::Error for FiguresError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Experiment { error, .. } => Some(error),
            _ => None,
        }
    }
}
