//! A memory server's counters.

use crate::text::Text;
use sherman_fabric::ServerStats;

/// A memory server's counters as text for Prometheus.
pub fn server_text(stats: &ServerStats) -> String {
    let mut text = Text::new();
    text.gauge(
        "sherman_server_uptime_seconds",
        "Time since the server started",
        stats.uptime_nanos as f64 / 1e9,
    );
    text.gauge("sherman_server_memory_bytes", "Bytes of host memory", stats.host_bytes);
    text.gauge("sherman_server_connections", "Connections open now", stats.connections);
    text.counter("sherman_server_accepted_total", "Connections accepted", stats.accepted);
    let refused = stats.refused.iter().map(|refused| (&refused.reason, refused.count));
    text.counters(
        "sherman_server_refused_total",
        "Connections and frames refused, by reason",
        "reason",
        refused,
    );
    text.counter("sherman_server_lists_total", "Work lists executed: round trips of clients", stats.lists);
    text.counter("sherman_server_lists_failed_total", "Work lists that failed", stats.lists_failed);
    let verbs = [("read", stats.reads), ("write", stats.writes), ("cas", stats.cas), ("faa", stats.faa)];
    text.counters("sherman_server_verbs_total", "Verbs executed, by kind", "verb", verbs);
    text.counter(
        "sherman_server_cas_failed_total",
        "CAS verbs that did not swap, mostly while a client waits for a lane",
        stats.cas_failed,
    );
    let moved = [("read", stats.bytes_read), ("written", stats.bytes_written)];
    text.counters("sherman_server_verb_bytes_total", "Bytes moved by verbs", "direction", moved);
    let wire = [("in", stats.bytes_in), ("out", stats.bytes_out)];
    text.counters("sherman_server_wire_bytes_total", "Bytes received and sent", "direction", wire);
    text.counter("sherman_server_calls_total", "Control requests answered", stats.calls);
    text.counter("sherman_server_fences_total", "Clients fenced", stats.fences);
    if stats.ids > 0 {
        text.gauge("sherman_server_member_ids", "Member ids, free or in use", stats.ids);
        text.gauge("sherman_server_member_ids_free", "Member ids that are free", stats.ids_free);
        text.head("sherman_server_members", "Members, by standing", "gauge");
        for (standing, members) in
            [("live", stats.members_live), ("leaving", stats.members_leaving), ("dead", stats.members_dead)]
        {
            text.sample("sherman_server_members", &[("standing", standing)], members);
        }
        let help = "Members that must be recovered and that no live member recovers yet";
        text.gauge("sherman_server_members_waiting", help, stats.members_waiting);
    }
    text.gauge("sherman_server_chunks", "Chunks of memory, used or not", stats.chunks);
    text.gauge("sherman_server_chunks_used", "Chunks of memory in use", stats.chunks_used);
    text.gauge("sherman_server_bytes_owned", "Bytes of chunks that members own", stats.bytes_owned);
    let help = "Bytes of used chunks that no member owns and that may have free places";
    text.gauge("sherman_server_bytes_free", help, stats.bytes_free);
    text.head("sherman_server_hot_lane_failures", "CAS failures of the most contended lock words", "gauge");
    for hot in &stats.hottest {
        text.sample("sherman_server_hot_lane_failures", &[("offset", &hot.offset.to_string())], hot.failed);
    }
    text.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_has_its_line() {
        let stats = ServerStats { lists: 7, cas_failed: 3, ..ServerStats::default() };
        assert!(
            !server_text(&stats).contains("sherman_server_member"),
            "a server that keeps no members says nothing about them"
        );
        let stats =
            ServerStats { ids: 9, ids_free: 4, members_dead: 2, members_waiting: 1, bytes_free: 64, ..stats };
        let text = server_text(&stats);
        for line in [
            "sherman_server_member_ids_free 4",
            "sherman_server_members{standing=\"dead\"} 2",
            "sherman_server_members_waiting 1",
            "sherman_server_bytes_free 64",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
        assert!(
            text.contains("\nsherman_server_lists_total 7\n")
                && text.contains("\nsherman_server_cas_failed_total 3\n")
        );
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            assert!(line.rsplit_once(' ').is_some_and(|(_, value)| value.parse::<f64>().is_ok()), "{line}");
        }
    }
}
