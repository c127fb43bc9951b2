//! Why a command failed: one line on stderr and an exit code. Every command follows the same table, which is
//! also in the README.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | success |
//! | 1 | the answer is no: the named thing does not exist, or a check found a fault |
//! | 2 | invalid usage |
//! | 3 | the operation failed |

use clap::error::{ContextKind, ContextValue, ErrorKind};
use sherman::{Error, OpenError};
use sherman_eval::BenchError;
use sherman_eval::figures::FiguresError;
use std::fmt;
use std::process::ExitCode;

/// Why the command did not succeed.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// The answer is no: a key, a tree or a member does not exist, or a check found a fault.
    No(String),
    /// The command line is wrong, or does not fit the cluster.
    Usage(String),
    /// The operation failed.
    Runtime(String),
}

impl Failure {
    /// Returns a failure about an option.
    pub fn option(option: &str, reason: impl fmt::Display) -> Self {
        Self::Usage(format!("--{option}: {reason}"))
    }

    /// Converts a parse error to a failure on one line; `None` if the user asked for help.
    pub fn of_parse(error: &clap::Error) -> Option<Self> {
        if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
            return None;
        }
        if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
            return Some(Self::Usage(
                "name a command, such as \"sherman cluster up\", \"sherman get\", \"sherman check\", \
                 \"sherman bench\" or \"sherman sim explore\"; \"sherman --help\" lists all"
                    .to_owned(),
            ));
        }
        let text = error.render().to_string();
        let said = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let said =
            said.take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"));
        let line = said.collect::<Vec<_>>().join(" ");
        Some(Self::Usage(line.strip_prefix("error: ").unwrap_or(&line).to_owned()))
    }

    /// Returns the failure for `--json FILE`, which earlier versions accepted: `--json` takes no value now.
    /// `None` for any other parse error.
    pub fn of_json_file(error: &clap::Error, words: &[String]) -> Option<Self> {
        let invalid = match error.get(ContextKind::InvalidArg) {
            Some(ContextValue::String(invalid)) => invalid.as_str(),
            _ => return None,
        };
        let follows = |pair: &[String]| pair[0] == "--json" && pair[1] == invalid;
        let attached = error.kind() == ErrorKind::TooManyValues && invalid.starts_with("--json");
        let detached = error.kind() == ErrorKind::UnknownArgument && words.windows(2).any(follows);
        (attached || detached).then(|| {
            let reason = "takes no file: it prints JSON to stdout. Redirect stdout, or use --json-out FILE \
                          with bench, check, litmus and sim explore";
            Self::option("json", reason)
        })
    }

    /// Appends `more` to the message.
    pub fn and(self, more: impl fmt::Display) -> Self {
        match self {
            Self::No(reason) => Self::No(format!("{reason}; {more}")),
            Self::Usage(reason) => Self::Usage(format!("{reason}; {more}")),
            Self::Runtime(reason) => Self::Runtime(format!("{reason}; {more}")),
        }
    }

    /// Returns the exit code from the table above.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::No(_) => ExitCode::from(1),
            Self::Usage(_) => ExitCode::from(2),
            Self::Runtime(_) => ExitCode::from(3),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::NoSuchTree { .. } => Self::No(error.to_string()),
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
        if error.is_wrong_answer() || error.is_no_tree() {
            return Self::No(error.to_string());
        }
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
        let (Self::No(reason) | Self::Usage(reason) | Self::Runtime(reason)) = self;
        write!(f, "error: {reason}")
    }
}
