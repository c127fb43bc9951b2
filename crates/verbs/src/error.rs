//! Why RDMA cannot be used here.

use crate::address::AddressError;
use crate::facts::Lack;
use std::io;

sherman_fabric::errors! {
    /// Why a device cannot be used, or a queue cannot be made.
    #[derive(Debug)]
    #[non_exhaustive]
    pub enum VerbsError {
        /// This build has no RDMA.
        NotBuilt => "this build has no RDMA: build with --features verbs",
        /// libibverbs is not installed.
        NoLibrary => "libibverbs.so.1 is not installed (on Debian: libibverbs1, ibverbs-providers)",
        /// The system reports that it has no RDMA, or denies access.
        NoAccess(error: io::Error) => "no access to RDMA devices on this system: {error}" because error,
        /// There is no RDMA device.
        NoDevice => "there is no RDMA device",
        /// No usable port or address was found.
        Address(error: AddressError) => "{error}" because error,
        /// The device lacks a feature that is needed.
        Lacks {
            /// Its name.
            device: String,
            /// What it lacks.
            lack: Lack,
        } => "RDMA device {device} cannot be used: {lack}",
        /// The system refused an operation.
        System {
            /// The operation.
            what: &'static str,
            /// Why it was refused.
            error: io::Error,
        } => ("cannot {what}: {error}{}", hint(error)) because error,
    }
}

impl VerbsError {
    /// The system's last error, from the operation `what`.
    #[cfg(feature = "rdma")]
    pub(crate) fn last(what: &'static str) -> Self {
        Self::System { what, error: io::Error::last_os_error() }
    }
}

/// The error of Linux when the limit of locked memory is reached.
const ENOMEM: i32 = 12;

/// What may help against an error of the system.
fn hint(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(ENOMEM) => " (registered memory counts towards the limit of locked memory: see ulimit -l)",
        _ => "",
    }
}

impl From<AddressError> for VerbsError {
    fn from(error: AddressError) -> Self {
        Self::Address(error)
    }
}
