//! Why RDMA cannot be used here.

use crate::address::AddressError;
use crate::facts::Lack;
use std::fmt;
use std::io;

/// Why a device cannot be used, or a queue not be made.
#[derive(Debug)]
#[non_exhaustive]
pub enum VerbsError {
    /// This build has no RDMA.
    NotBuilt,
    /// libibverbs is not installed.
    NoLibrary,
    /// The system says that it has no RDMA, or does not let us.
    NoAccess(io::Error),
    /// There is no RDMA device.
    NoDevice,
    /// No port or address of it can be used.
    Address(AddressError),
    /// The device lacks what is needed.
    Lacks {
        /// Its name.
        device: String,
        /// What it lacks.
        lack: Lack,
    },
    /// The system refused what was asked of it.
    System {
        /// What was asked.
        what: &'static str,
        /// Why it was refused.
        error: io::Error,
    },
}

impl VerbsError {
    /// The last error of the system, in doing `what`.
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
            Self::NoAccess(error) => write!(f, "this system gives no access to RDMA devices: {error}"),
            Self::NoDevice => write!(f, "there is no RDMA device"),
            Self::Address(error) => error.fmt(f),
            Self::Lacks { device, lack } => write!(f, "RDMA device {device} cannot be used: {lack}"),
            Self::System { what, error } => {
                write!(f, "cannot {what}: {error}")?;
                if matches!(error.raw_os_error(), Some(ENOMEM)) {
                    write!(f, " (registered memory counts against the limit of locked memory: ulimit -l)")?;
                }
                Ok(())
            }
        }
    }
}

/// What Linux says where locked memory is at its limit.
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
