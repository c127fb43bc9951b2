//! Errors of opening a cluster. Those of operations are [`Error`](crate::Error).

use sherman_core::Error;
use sherman_embedded::EmbeddedError;
#[cfg(target_os = "linux")]
use sherman_shm::JoinShmError;
#[cfg(target_os = "linux")]
use sherman_soft_nic::JoinError;
#[cfg(all(feature = "verbs", target_os = "linux"))]
use sherman_verbs::VerbsJoinError;
use std::fmt;
#[cfg(target_os = "linux")]
use std::sync::Arc;

/// Why a cluster could not be opened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The URL is not one.
    BadUrl {
        /// As it was given.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The in-process memory servers could not be made.
    Embedded(EmbeddedError),
    /// The memory servers could not be reached, or did not let this client in.
    #[cfg(target_os = "linux")]
    Join(Arc<JoinError>),
    /// The memory servers let this client in, but it cannot map their memory.
    #[cfg(target_os = "linux")]
    Shm(Arc<JoinShmError>),
    /// There is no RDMA device to reach their memory with, or they are not reached by RDMA.
    #[cfg(all(feature = "verbs", target_os = "linux"))]
    Verbs(Arc<VerbsJoinError>),
    /// The memory servers are there, but this client cannot use them.
    Cluster(Error),
}

impl OpenError {
    /// Whether the same attempt can succeed later by itself: a server that is down, slow or full now, a name that cannot be looked up now. Not
    /// so for a bad URL, another cluster, lost memory, a wrong secret or another version.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::BadUrl { .. } | Self::Embedded(_) => false,
            #[cfg(target_os = "linux")]
            Self::Join(error) => error.may_pass(),
            #[cfg(target_os = "linux")]
            Self::Shm(_) => true,
            #[cfg(all(feature = "verbs", target_os = "linux"))]
            Self::Verbs(_) => true,
            Self::Cluster(error) => !matches!(error, Error::Superblock { .. }),
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadUrl { url, reason } => write!(f, "bad cluster URL {url:?}: {reason}"),
            Self::Embedded(error) => write!(f, "{error}"),
            #[cfg(target_os = "linux")]
            Self::Join(error) => write!(f, "{error}"),
            #[cfg(target_os = "linux")]
            Self::Shm(error) => write!(f, "{error}"),
            #[cfg(all(feature = "verbs", target_os = "linux"))]
            Self::Verbs(error) => write!(f, "{error}"),
            Self::Cluster(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::BadUrl { .. } => None,
            Self::Embedded(error) => Some(error),
            #[cfg(target_os = "linux")]
            Self::Join(error) => Some(error.as_ref()),
            #[cfg(target_os = "linux")]
            Self::Shm(error) => Some(error.as_ref()),
            #[cfg(all(feature = "verbs", target_os = "linux"))]
            Self::Verbs(error) => Some(error.as_ref()),
            Self::Cluster(error) => Some(error),
        }
    }
}

impl From<EmbeddedError> for OpenError {
    fn from(error: EmbeddedError) -> Self {
        Self::Embedded(error)
    }
}

#[cfg(target_os = "linux")]
impl From<JoinError> for OpenError {
    fn from(error: JoinError) -> Self {
        Self::Join(Arc::new(error))
    }
}

#[cfg(target_os = "linux")]
impl From<JoinShmError> for OpenError {
    fn from(error: JoinShmError) -> Self {
        match error {
            JoinShmError::Join(error) => error.into(),
            error => Self::Shm(Arc::new(error)),
        }
    }
}

#[cfg(all(feature = "verbs", target_os = "linux"))]
impl From<VerbsJoinError> for OpenError {
    fn from(error: VerbsJoinError) -> Self {
        match error {
            VerbsJoinError::Join(error) => error.into(),
            error => Self::Verbs(Arc::new(error)),
        }
    }
}

impl From<Error> for OpenError {
    fn from(error: Error) -> Self {
        Self::Cluster(error)
    }
}
