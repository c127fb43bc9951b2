//! A compute server's counters for Prometheus.

use crate::cluster::Cluster;
use crate::stats::{OpKind, Stats};
use sherman_metrics::MetricsListener;
use sherman_metrics::Text;
use std::io;
use std::net::SocketAddr;
use std::sync::PoisonError;

/// # Metrics
impl Cluster {
    /// The cost of the operations of all clients, sessions and handles of this compute server so far. Each of
    /// them reports after every 1024 operations, and when it is dropped. So the sum may lag by that much.
    pub fn stats(&self) -> Stats {
        self.total().lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The same counters with leases and recoveries, in the Prometheus text format.
    ///
    /// ```
    /// # let cluster = sherman::Cluster::open("embedded:?memory=64MiB")?;
    /// let client = cluster.tree::<u64, u64>("orders")?.client()?;
    /// client.insert(7, 700)?;
    /// drop(client); // tells its costs
    /// assert!(cluster.metrics().contains("sherman_client_operations_total{kind=\"insert\"} 1\n"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn metrics(&self) -> String {
        let stats = self.stats();
        let mut text = Text::new();
        let each =
            |value: fn(&Stats, OpKind) -> u64| OpKind::ALL.map(|kind| (kind.name(), value(&stats, kind)));
        let operations = each(|stats, kind| stats.kind(kind).operations);
        text.counters("sherman_client_operations_total", "Operations that succeeded", "kind", operations);
        let round_trips = each(|stats, kind| {
            stats
                .kind(kind)
                .round_trips()
                .into_iter()
                .map(|(trips, operations)| trips as u64 * operations)
                .sum()
        });
        text.counters("sherman_client_round_trips_total", "Round trips of operations", "kind", round_trips);
        let read = each(|stats, kind| stats.kind(kind).bytes_read);
        text.counters("sherman_client_bytes_read_total", "Bytes fetched by READs", "kind", read);
        let written = each(|stats, kind| stats.kind(kind).bytes_written);
        text.counters("sherman_client_bytes_written_total", "Bytes stored by WRITEs", "kind", written);
        let retries = stats.all_retries();
        text.counters(
            "sherman_client_retries_total",
            "Retries, by cause; lane_held: waits for a lock that another compute server holds",
            "cause",
            retries,
        );
        text.counter(
            "sherman_client_handovers_total",
            "Locks obtained from a thread of the same process",
            stats.handovers,
        );
        text.counter("sherman_client_errors_total", "Operations that failed", stats.errors);
        text.counter(
            "sherman_client_operations_retried_total",
            "Attempts repeated because the identity had ended",
            stats.repeated,
        );
        text.counter(
            "sherman_client_rejoins_total",
            "Times that this compute server joined the cluster again",
            self.rejoins(),
        );
        let lookups = [("hit", stats.cache_hits), ("miss", stats.cache_misses)];
        text.counters(
            "sherman_client_cache_total",
            "Lookups of leaves in the index cache",
            "outcome",
            lookups,
        );
        let participation = self.participation();
        text.counter("sherman_client_lease_renewals_total", "Renewals of the lease", participation.renewals);
        text.counter(
            "sherman_client_recoveries_total",
            "Dead compute servers recovered",
            participation.recoveries,
        );
        text.gauge(
            "sherman_client_fenced",
            "1 while this compute server has no identity, else 0",
            u8::from(self.is_fenced()),
        );
        text.finish()
    }

    /// Answers `GET /metrics` at `address` with [`Cluster::metrics`], until the returned value is dropped.
    /// That value keeps this compute server in the cluster.
    ///
    /// # Errors
    /// If the address is not available, or the system cannot start a thread.
    pub fn serve_metrics(&self, address: SocketAddr) -> io::Result<MetricsListener> {
        let cluster = self.clone();
        MetricsListener::start(address, move || cluster.metrics())
    }
}
