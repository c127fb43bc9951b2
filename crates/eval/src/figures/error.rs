//! Why there are no figures.

use crate::error::BenchError;
use crate::experiment::Job;
use std::fmt;
use std::path::{Path, PathBuf};

sherman_fabric::errors! {
    /// Why there are no figures.
    #[derive(Debug)]
    #[non_exhaustive]
    pub enum FiguresError {
        /// No figure has this name.
        Unknown {
            /// The name.
            name: String,
            /// The known names.
            known: Vec<&'static str>,
        } => ("there is no figure {name:?}; available are {}", known.join(", ")),
        /// A file or folder cannot be written.
        Output {
            /// The path.
            path: PathBuf,
            /// The reason.
            reason: String,
        } => ("cannot write {}: {reason}", path.display()),
        /// The running program could not be read, so it is unknown which kept results belong to it.
        Program(reason: String) => "cannot read the file of the running program: {reason}",
        /// An experiment failed.
        Experiment {
            /// The experiment.
            job: Box<Job>,
            /// The error.
            error: BenchError,
        } => "an experiment failed: {error}. Its job: {job:?}" because error,
    }
}

impl FiguresError {
    /// Makes the error for a failure to write `path`.
    pub(crate) fn output(path: &Path, reason: impl fmt::Display) -> Self {
        Self::Output { path: path.to_owned(), reason: reason.to_string() }
    }

    /// Returns the invalid option, if the error is about an option.
    pub fn bad_option(&self) -> Option<&'static str> {
        match self {
            Self::Unknown { .. } => Some("only"),
            Self::Output { .. } => Some("out"),
            Self::Program(_) | Self::Experiment { .. } => None,
        }
    }
}
