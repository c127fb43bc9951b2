//! What clients may take of a server: connections, bytes and time.

use std::time::Duration;

/// Descriptors that the process needs beside its connections: listeners, epoll sets, notifiers, its memory,
/// its log, scrapes of its metrics.
const OTHER_DESCRIPTORS: usize = 256;
/// With few descriptors, newcomers get this share of them.
const NEWCOMERS_SHARE: usize = 8;

/// A server's limits for its clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most open connections whose handshake is done.
    pub max_connections: usize,
    /// The most open connections whose handshake is not done, over all shards. One more closes the oldest of
    /// them, never one whose handshake is done.
    pub max_newcomers: usize,
    /// How long a handshake may take.
    pub handshake_time: Duration,
    /// How long a connection without a member may be silent: an operator's, or that of a client that is about
    /// to join.
    pub idle_time: Duration,
    /// With this many unsent bytes for one client, the server executes nothing more of that client.
    pub high_water: usize,
    /// The most bytes that all connections together may make the server hold.
    pub max_buffered: usize,
    /// How long sent data may stay unacknowledged before a TCP connection counts as broken.
    pub user_timeout: Duration,
    /// How long a TCP connection may be silent before the system probes its other end.
    pub keepalive: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_connections: 16_384,
            max_newcomers: 4_096,
            handshake_time: Duration::from_secs(5),
            idle_time: Duration::from_secs(30),
            high_water: 256 << 10,
            max_buffered: 256 << 20,
            user_timeout: Duration::from_secs(20),
            keepalive: Duration::from_secs(15),
        }
    }
}

impl Limits {
    /// Reduces the number of connections to what `descriptors` open files allow. A client above the limit
    /// then gets a reason and tries again. Without this, it would stay in the kernel's queue, where nothing
    /// tells it why.
    pub(super) fn fit(mut self, descriptors: Option<u64>) -> Self {
        let descriptors = descriptors.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX);
        let room = descriptors.saturating_sub(OTHER_DESCRIPTORS);
        // Newcomers count twice: as many may wait to be greeted.
        if self.max_connections.saturating_add(self.max_newcomers.saturating_mul(2)) > room {
            self.max_newcomers = self.max_newcomers.min(room / NEWCOMERS_SHARE).max(1);
            self.max_connections =
                self.max_connections.min(room.saturating_sub(2 * self.max_newcomers)).max(1);
            let (connections, newcomers) = (self.max_connections, self.max_newcomers);
            tracing::info!(descriptors, connections, newcomers, "the limit of open files limits connections");
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_for_everything_else() {
        for most in [0, 200, 256, 300, 1_024, 4_096, 20_000, 24_000] {
            let Limits { max_connections, max_newcomers, .. } = Limits::default().fit(Some(most));
            assert!(max_connections >= 1 && max_newcomers >= 1);
            let all = (max_connections + 2 * max_newcomers + OTHER_DESCRIPTORS) as u64;
            assert!(all <= most.max(OTHER_DESCRIPTORS as u64 + 3), "{most}: {all}");
            assert!(max_connections as u64 >= most.saturating_sub(260) / 2, "{most}: {max_connections}");
        }
    }

    #[test]
    fn enough_descriptors_change_nothing() {
        for most in [None, Some(25_000), Some(u64::MAX)] {
            assert_eq!(Limits::default().fit(most), Limits::default());
        }
        let few = Limits { max_connections: 8, max_newcomers: 6, ..Limits::default() };
        assert_eq!(few.clone().fit(Some(1_024)), few);
    }
}
