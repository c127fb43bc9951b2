//! Small runs of the real command: each variant has the cost that its design predicts.

use crate::common::{fresh_path, sherman, text};
use serde_json::Value;

const KEYS: u64 = 20_000;

/// Runs a small benchmark and returns its JSON.
fn bench(args: &[&str]) -> Value {
    let mut all = vec!["bench", "--keys", "20k", "--check", "--json"];
    all.extend(args);
    let output = sherman(&all);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {stderr}");
    assert!(stderr.starts_with("running on ") && stderr.lines().count() == 1, "{args:?}: {stderr}");
    serde_json::from_slice(&output.stdout).expect("JSON and nothing else on stdout")
}

/// The share of operations of one kind that took this number of round trips.
fn share(json: &Value, operation: &str, round_trips: &str) -> f64 {
    let counts = json["round_trips"][operation].as_object().expect("counts");
    let total: u64 = counts.values().filter_map(Value::as_u64).sum();
    counts.get(round_trips).and_then(Value::as_u64).unwrap_or(0) as f64 / total as f64
}

fn operations(json: &Value, operation: &str) -> u64 {
    let counts =
        json["round_trips"][operation].as_object().map(|counts| counts.values().filter_map(Value::as_u64));
    counts.map_or(0, Iterator::sum)
}

fn written(json: &Value, operation: &str) -> f64 {
    json["bytes_written"][operation].as_f64().expect("bytes")
}

/// Runs a small benchmark whose keys are loaded by inserts.
fn loaded_by_inserts(args: &[&'static str]) -> Value {
    bench(&[&["--load", "insert"], args].concat())
}

/// Checks the facts that hold for every variant and every mix of plain lookups and inserts.
fn assert_plausible(json: &Value, variant: &str) {
    assert_eq!((json["variant"].as_str(), json["keys"].as_u64()), (Some(variant), Some(KEYS)));
    let counted: u64 = ["get", "insert", "update"].iter().map(|kind| operations(json, kind)).sum();
    assert_eq!(json["operations"].as_u64(), Some(counted), "{variant}: operations add up");
    let mops = json["throughput_mops"].as_f64().expect("a throughput");
    let seconds = json["seconds"].as_f64().expect("seconds");
    assert!((mops * seconds * 1e6 / counted as f64 - 1.0).abs() < 0.01, "{variant}: {mops} in {seconds} s");
    for operation in ["get", "insert", "update"] {
        let of = |percentile: &str| json["latency_us"][operation][percentile].as_f64().expect(percentile);
        assert!(
            0.0 < of("p50") && of("p50") <= of("p90") && of("p90") <= of("p99") && of("p99") <= of("p999")
        );
        // A leaf, or the four lines in which a key can be. The holder of a lane reads for changes that wait.
        let by_the_line = ["ours", "+combining", "+lines"].contains(&variant);
        let least = match (by_the_line, operation) {
            (false, _) => 1024.0,
            (true, "get") => 256.0,
            (true, _) => 1.0,
        };
        let read = json["bytes_read"][operation].as_f64().expect("bytes");
        assert!(read >= least, "{variant}: {operation} reads {read} bytes");
    }
    assert_eq!(written(json, "get"), 0.0);
    let entries = json["entries"].as_u64().expect("entries");
    assert!(entries >= KEYS + operations(json, "insert"), "{variant}: new keys are entries");
    assert!(json["far_memory_bytes"].as_u64().expect("far memory") > entries * 16);
    let hits = json["cache_hit_ratio"].as_f64().expect("a ratio");
    assert!(if variant == "fg" { hits == 0.0 } else { hits > 0.95 && hits <= 1.0 }, "{variant}: {hits}");
    assert!(json["handovers"].is_u64() && json["retries"].is_object());
}

/// For each variant: the usual round trips and bytes of an update, on uniform keys.
#[test]
fn every_variant_costs_what_its_design_says() {
    for (variant, round_trips, bytes) in [
        // Read: the root, one or two internal nodes, the leaf.
        ("fg", None, 1024.0..1025.0),
        ("fg+cache", Some("4"), 1024.0..1025.0),
        // Written: a whole leaf, and a lane of two bytes.
        ("fg+", Some("4"), 1026.0..1027.0),
        ("+combine", Some("3"), 1026.0..1027.0),
        ("+on-chip", Some("3"), 1026.0..1027.0),
        // Handovers save the two bytes, and are rare.
        ("+hierarchical", Some("3"), 1025.5..1027.0),
        // The paper's 17 bytes.
        ("sherman", Some("3"), 18.5..19.5),
        // At most one line.
        ("+stamped", Some("2"), 18.0..67.0),
        ("+lines", Some("2"), 18.0..67.0),
        ("+combining", Some("2"), 18.0..67.0),
        ("ours", Some("2"), 18.0..67.0),
    ] {
        let json = loaded_by_inserts(&["--variant", variant, "--uniform", "--seconds", "0.3"]);
        assert_plausible(&json, variant);
        match round_trips {
            Some(round_trips) => {
                let usual = share(&json, "update", round_trips);
                assert!(
                    usual > 0.9,
                    "{variant}: {usual} of updates in {round_trips}: {}",
                    json["round_trips"]
                );
                assert!(share(&json, "get", "1") > 0.95, "{variant}: {}", json["round_trips"]["get"]);
            }
            None => {
                assert_eq!(
                    share(&json, "get", "1") + share(&json, "get", "2"),
                    0.0,
                    "{}",
                    json["round_trips"]["get"]
                );
                assert!(share(&json, "get", "3") > 0.9, "{}", json["round_trips"]["get"]);
            }
        }
        let mean = written(&json, "update");
        assert!(bytes.contains(&mean), "{variant}: an update writes {mean} bytes");
    }
}

#[test]
fn skew_threads_and_coroutines_run_and_add_up() {
    for variant in ["ours", "sherman", "fg+"] {
        let json = bench(&["--variant", variant, "--threads", "3", "--coroutines", "4", "--ops", "30k"]);
        assert_plausible(&json, variant);
        assert_eq!((json["operations"].as_u64(), json["zipf"].as_f64()), (Some(30_000), Some(0.99)));
    }
}

#[test]
fn a_format_replaces_the_variant_s() {
    for format in ["line-hashed", "line-stamped", "two-level", "sorted", "sorted-stamped"] {
        let json = bench(&["--format", format, "--ops", "10k"]);
        assert_eq!(json["format"].as_str(), Some(format));
        assert_eq!(
            format == "two-level",
            json["cluster"].as_str().is_some_and(|url| url.contains("atomicity=verb"))
        );
    }
}

#[test]
fn every_workload_runs_and_read_only_writes_nothing() {
    for workload in [
        "write-only",
        "write-intensive",
        "read-intensive",
        "read-only",
        "range-only",
        "range-write",
        "ycsb-a",
        "ycsb-b",
        "ycsb-c",
        "ycsb-d",
        "ycsb-e",
        "ycsb-f",
    ] {
        let json = bench(&["--workload", workload, "--ops", "12k"]);
        assert_eq!(json["workload"].as_str(), Some(workload));
        let ranges = json["ranges"]["ranges"].as_u64();
        assert_eq!(
            ranges.is_some(),
            matches!(workload, "range-only" | "range-write" | "ycsb-e"),
            "{workload}"
        );
        let (gets, inserts, updates) =
            (operations(&json, "get"), operations(&json, "insert"), operations(&json, "update"));
        assert_eq!(gets == 0, workload == "write-only" || ranges.is_some());
        let writes_nothing = matches!(workload, "read-only" | "range-only" | "ycsb-c");
        assert_eq!(inserts + updates == 0, writes_nothing, "{workload}");
        if workload == "write-only" {
            assert!(
                (0.63..0.70).contains(&(updates as f64 / 12e3)),
                "two thirds of inserts update: {updates}"
            );
        }
        if workload == "ycsb-f" {
            assert_eq!(
                (gets, json["operations"].as_u64()),
                (12_000, Some(12_000)),
                "all read, half of them write too"
            );
            assert!((5_500..6_500).contains(&updates));
        }
    }
}

#[test]
fn ranges_have_the_requested_size_and_their_costs_are_reported() {
    for (workload, size, ranges, entries) in [
        ("range-only", "100", 6_000..=6_000, 97.0..=100.0),
        ("range-write", "300", 2_700..=3_300, 290.0..=300.0),
        ("ycsb-e", "50", 5_500..=5_900, 24.0..=27.0),
    ] {
        let json = bench(&["--workload", workload, "--range-size", size, "--uniform", "--ops", "6k"]);
        assert_eq!(json["range_size"].as_u64().map(|size| size.to_string()).as_deref(), Some(size));
        let of = &json["ranges"];
        assert!(ranges.contains(&of["ranges"].as_u64().expect("a count")), "{workload}: {of}");
        assert!(entries.contains(&of["entries"].as_f64().expect("entries")), "{workload}: {of}");
        let (reads, trips) =
            (of["reads"].as_f64().expect("reads"), of["round_trips"].as_f64().expect("round trips"));
        // A range finds the end of the tree without a round trip.
        assert!((1.0..4.0).contains(&reads) && trips >= 0.98 * reads && trips < 16.0, "{workload}: {of}");
        assert!(json["latency_us"]["range"]["p50"].as_f64() > Some(0.0));
        assert!(json["cache_hits"].as_u64() > Some(0) && json["cache_misses"].is_u64());
        let kinds = json["latency_us"].as_object().expect("latencies").len();
        assert_eq!(
            kinds,
            if workload == "range-only" {
                1
            } else if workload == "ycsb-e" {
                2
            } else {
                3
            }
        );
    }
}

#[test]
fn removes_take_their_share_and_the_entries_left_are_those_the_answers_say() {
    // --check compares the number of entries that the answers imply with the number in the tree.
    let json = bench(&["--removes", "40", "--uniform", "--ops", "20k"]);
    let removes = operations(&json, "remove");
    assert!((7_500..8_500).contains(&removes), "{removes}");
    assert!(json["latency_us"]["remove"]["p99"].as_f64() > Some(0.0));
    assert!(json["entries"].as_u64() < Some(KEYS), "more go than come");
    let gone = bench(&["--removes", "100", "--uniform", "--ops", "200k"]);
    assert!(gone["entries"].as_u64() < Some(KEYS / 100), "nearly all go: {}", gone["entries"]);
    assert!(gone["far_memory_bytes"].is_u64());
}

#[test]
fn keys_are_loaded_in_bulk_or_one_by_one() {
    let bulk = bench(&["--workload", "read-only", "--ops", "1k"]);
    assert_eq!((bulk["load"].as_str(), bulk["fill"].as_u64()), (Some("bulk"), Some(80)));
    let full = bench(&["--workload", "read-only", "--ops", "1k", "--fill", "100", "--hot-keys", "clustered"]);
    assert_eq!(full["fill"].as_u64(), Some(100));
    let insert = bench(&["--workload", "read-only", "--ops", "1k", "--load", "insert"]);
    assert!(insert["load"].as_str() == Some("insert") && insert["fill"].is_null());
    for json in [bulk, full, insert] {
        assert!(json["load_seconds"].as_f64() > Some(0.0) && json["entries"].as_u64() == Some(KEYS));
    }
}

#[test]
fn the_same_seed_asks_for_the_same_operations() {
    let counts = |seed| {
        let json = bench(&["--ops", "9k", "--threads", "2", "--seed", seed]);
        ["get", "insert", "update"].map(|kind| operations(&json, kind))
    };
    assert_eq!(counts("7"), counts("7"));
    assert_ne!(counts("7"), counts("8"));
}

#[test]
fn the_table_goes_to_stdout_and_the_json_to_its_file() {
    let path = fresh_path("result.json");
    let output = sherman(&[
        "bench",
        "--keys",
        "5k",
        "--ops",
        "5k",
        "--runs",
        "3",
        "--json-out",
        path.to_str().expect("UTF-8"),
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    for word in [
        "loaded in bulk to 80 %",
        "throughput",
        "the median of 3 runs",
        "latency, us",
        "round trips",
        "cache hits",
        "far memory",
    ] {
        assert!(table.contains(word), "{word}: {table}");
    }
    let json: Value = serde_json::from_slice(&std::fs::read(&path).expect("the file")).expect("JSON");
    assert_eq!(json["runs_mops"].as_array().map(Vec::len), Some(3));
    std::fs::remove_file(path).expect("the file goes");
}
