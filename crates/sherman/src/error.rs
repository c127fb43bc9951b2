//! Errors of opening a cluster. Operations return [`Error`](crate::Error).

#[cfg(target_os = "linux")]
use sherman_control::JoinError;
use sherman_core::Error;
use sherman_embedded::EmbeddedError;
#[cfg(target_os = "linux")]
use sherman_shm::JoinShmError;
#[cfg(all(feature = "verbs", target_os = "linux"))]
use sherman_verbs::VerbsJoinError;
use std::fmt;
#[cfg(target_os = "linux")]
use std::sync::Arc;

/// Why a cluster could not be opened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The URL, or what a builder was given instead, is malformed.
    BadUrl {
        /// The URL, as the caller gave it. Of a builder: the scheme and the servers.
        url: String,
        /// The defect of the URL.
        reason: String,
    },
    /// The in-process memory servers could not be created.
    Embedded(EmbeddedError),
    /// The memory servers are not reachable, or refused this client.
    #[cfg(target_os = "linux")]
    Join(Arc<JoinError>),
    /// The memory servers accepted this client, but it cannot map their memory.
    #[cfg(target_os = "linux")]
    Shm(Arc<JoinShmError>),
    /// There is no RDMA device to reach the memory servers with, or the memory servers do not use RDMA.
    #[cfg(all(feature = "verbs", target_os = "linux"))]
    Verbs(Arc<VerbsJoinError>),
    /// The memory servers answer, but this client cannot use them.
    Cluster(Error),
}

impl OpenError {
    /// Whether the same attempt can succeed later without a repair. That holds for a server that is down,
    /// slow or full now, and for a name that cannot be resolved now. It does not hold for a bad URL, another
    /// cluster, lost memory, a wrong secret or another version.
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

/// The message has the whole reason in one line. A [`source`](std::error::Error::source) would repeat a part
/// of it, so there is none. The variants have the causes.
impl std::error::Error for OpenError {}

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
