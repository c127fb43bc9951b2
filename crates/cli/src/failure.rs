//! One line on stderr and an exit code.
//!
//! | code | of the client commands, `serve` and `cluster up` | of `bench`, `figures`, `members`, `fence` | of `check`, `sim` |
//! |---|---|---|---|
//! | 0 | done | done | all is well |
//! | 1 | the key is not there | it went wrong | it is not well |
//! | 2 | it cannot be asked that | the same | the same, or no answer |
//! | 3 | it went wrong | | |

use clap::error::ErrorKind;
use sherman::{Error, OpenError};
use sherman_eval::BenchError;
use sherman_eval::figures::FiguresError;
use std::fmt;
use std::process::ExitCode;

/// Why the command did not do what it was asked.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// It cannot be asked that.
    Usage(String),
    /// It went wrong.
    Runtime(String),
    /// It went wrong, so that what was asked is not known.
    Unanswered(String),
    /// It went wrong, where "not there" is an answer and has exit code 1.
    Failed(String),
}

impl Failure {
    /// A complaint about an option.
    pub fn option(option: &str, reason: impl fmt::Display) -> Self {
        Self::Usage(format!("--{option}: {reason}"))
    }

    /// The failure that a parse error is, on one line; `None` if it is a call for help.
    pub fn of_parse(error: &clap::Error) -> Option<Self> {
        if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
            return None;
        }
        if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
            return Some(Self::Usage(
                "what to do? \"sherman bench\", \"sherman check\", \"sherman cluster up\", \"sherman get\", \"sherman sim explore\", or see \"sherman --help\""
                    .to_owned(),
            ));
        }
        let text = error.render().to_string();
        let said = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let said = said.take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"));
        let line = said.collect::<Vec<_>>().join(" ");
        Some(Self::Usage(line.strip_prefix("error: ").unwrap_or(&line).to_owned()))
    }

    /// The failure of a check. An index that answers wrongly is an answer, and no good one.
    pub fn of_check(error: BenchError) -> Self {
        if error.is_wrong_answer() { Self::Runtime(error.to_string()) } else { Self::from(error).into_unanswered() }
    }

    /// The failure of a command whose exit code 1 means something else.
    pub fn into_unanswered(self) -> Self {
        match self {
            Self::Runtime(reason) => Self::Unanswered(reason),
            other => other,
        }
    }

    /// The failure of a command that answers "not there" by exit code 1.
    pub fn into_failed(self) -> Self {
        match self {
            Self::Runtime(reason) => Self::Failed(reason),
            other => other,
        }
    }

    /// 2 for what was asked, 1 for what happened; where 1 is an answer, 2 or 3 for that.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Usage(_) | Self::Unanswered(_) => ExitCode::from(2),
            Self::Runtime(_) => ExitCode::from(1),
            Self::Failed(_) => ExitCode::from(3),
        }
    }
}

/// A tree that is not there is named by an option; anything else happened.
impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::NoSuchTree { .. } => Self::option("tree", error),
            other => Self::Runtime(other.to_string()),
        }
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        BenchError::Open(error).into()
    }
}

impl From<BenchError> for Failure {
    fn from(error: BenchError) -> Self {
        match error.bad_option() {
            Some(option) => Self::option(option, error),
            None => Self::Runtime(error.to_string()),
        }
    }
}

impl From<FiguresError> for Failure {
    fn from(error: FiguresError) -> Self {
        match error.bad_option() {
            Some(option) => Self::option(option, error),
            None => Self::Runtime(error.to_string()),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Usage(reason) | Self::Runtime(reason) | Self::Unanswered(reason) | Self::Failed(reason)) = self;
        write!(f, "error: {reason}")
    }
}
