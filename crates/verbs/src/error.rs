//! Why RDMA cannot be used here.

use crate::address::AddressError;
use crate::facts::Lack;
use std::fmt;
use std::io;

/// Why a device cannot be used, or a queue cannot be made.
#[derive(Debug)]
#[non_exhaustive]
pub enum VerbsError {
    /// This build has no RDMA.
    NotBuilt,
    /// libibverbs is not installed.
    NoLibrary,
    /// The system reports that it has no RDMA, or denies access.
    NoAccess(io::Error),
    /// There is no RDMA device.
    NoDevice,
    /// No usable port or address was found.
    Address(AddressError),
    /// The device lacks a feature that is needed.
    Lacks {
        /// Its name.
        device: String,
        /// What it lacks.
        lack: Lack,
    },
    /// The system refused an operation.
    System {
        /// The operation.
        what: &'static str,
        /// Why it was refused.
        error: io::Error,
    },
}

impl VerbsError {
    /// The system's last error, from the operation `what`.
    #[cfg(feature = "rdma")]
    pub(crate) fn last(what: &'static str) -> Self {
        Self::System { what, error: io::Error::last_os_error() }
    }
}

impl fmt::Display for VerbsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotBuilt => write!(f, "this build has no RDMA: build with --features verbs"),
            Self::NoLibrary => {
                write!(f, "libibverbs.so.1 is not installed (on Debian: libibverbs1, ibverbs-providers)")
            }
            Self::NoAccess(error) => write!(f, "no access to RDMA devices on this system: {error}"),
            Self::NoDevice => write!(f, "there is no RDMA device"),
            Self::Address(error) => error.fmt(f),
            Self::Lacks { device, lack } => write!(f, "RDMA device {device} cannot be used: {lack}"),
            Self::System { what, error } => {
                write!(f, "cannot {what}: {error}")?;
                if matches!(error.raw_os_error(), Some(ENOMEM)) {
                    write!(
                        f,
                        " (registered memory counts towards the limit of locked memory: see ulimit -l)"
                    )?;
                }
                Ok(())
            }
        }
    }
}

/// The error of Linux when the limit of locked memory is reached.
const ENOMEM: i32 = 12;

impl std::error::Error for VerbsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NoAccess(error) | Self::System { error, .. } => Some(error),
            Self::Address(error) => Some(error),
            _ => None,
        }
    }
}

impl From<AddressError> for VerbsError {
    fn from(error: AddressError) -> Self {
        Self::Address(error)
    }
}
