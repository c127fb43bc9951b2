//! The meaning of a completion that is not a success.
//!
//! In every case the queue pair is finished: everything in flight on it took effect as a prefix (F7), and
//! nothing more of it executes. A NIC cannot say *why* the other side no longer answers. The control plane
//! can, so the endpoint asks it, and the caller gets its answer: fenced or disconnected. The NIC's own reason
//! goes to the log.

use std::fmt;

/// Why a queue pair ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The other side does not answer: it is gone, or a fence has ended its queue pair.
    Unanswered,
    /// The other side refused a request.
    Refused,
    /// This side could not execute a request.
    Local,
    /// The queue pair had ended before, or was ended on purpose.
    Flushed,
    /// The request could not be posted.
    NotPosted,
    /// No completion came for longer than the client waits.
    Silent,
    /// The control connection of the link ended.
    HungUp,
    /// A status that this build does not know.
    Other(u32),
}

impl Fault {
    /// The meaning of a completion's `status`; `None` if it is a success.
    pub fn of_status(status: u32) -> Option<Self> {
        Some(match status {
            0 => return None,
            // Length, operation, protection, access, window, domain, fatal: errors of this side.
            1..=4 | 6 | 8 | 14 | 17..=19 => Self::Local,
            5 => Self::Flushed,
            // Bad response; invalid request, access, operation, invalid read, aborted: errors of the other
            // side.
            7 | 9..=11 | 15 | 16 => Self::Refused,
            // Retries are used up, receivers never ready, no response in time.
            12 | 13 | 20 => Self::Unanswered,
            other => Self::Other(other),
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unanswered => write!(f, "the other side does not answer"),
            Self::Refused => write!(f, "the other side refused a request"),
            Self::Local => write!(f, "a request failed on this side"),
            Self::Flushed => write!(f, "the queue pair has ended"),
            Self::NotPosted => write!(f, "a request could not be posted"),
            Self::Silent => write!(f, "no completion arrived in time"),
            Self::HungUp => write!(f, "the server ended the link"),
            Self::Other(status) => write!(f, "a request ended in status {status}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_but_success_is_a_fault() {
        assert_eq!(Fault::of_status(0), None);
        let names = [
            (1, Fault::Local),
            (4, Fault::Local),
            (5, Fault::Flushed),
            (8, Fault::Local),
            (9, Fault::Refused),
            (10, Fault::Refused),
            (11, Fault::Refused),
            (12, Fault::Unanswered),
            (13, Fault::Unanswered),
            (20, Fault::Unanswered),
            (21, Fault::Other(21)),
            (u32::MAX, Fault::Other(u32::MAX)),
        ];
        for (status, fault) in names {
            assert_eq!(Fault::of_status(status), Some(fault));
        }
        assert!((1..64).all(|status| Fault::of_status(status).is_some()));
    }
}
