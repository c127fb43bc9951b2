//! Small checks by the real command.

use crate::common::servers::{Servers, Transport};
use crate::common::{fresh_path, sherman, text};
use serde_json::Value;
use sherman_control::{Address, JoinOptions};
use sherman_executor::block_on;
use sherman_fabric::{Counters, Endpoint, Space, execute};
use sherman_soft_nic::SoftNicFabric;

/// Checks a small tree and returns the JSON.
fn check(args: &[&str]) -> Value {
    let output = sherman(&[&["check", "--cluster", "embedded:", "--json"], args].concat());
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON and nothing else on stdout")
}

fn number(json: &Value, field: &str) -> f64 {
    json[field].as_f64().unwrap_or_else(|| panic!("{field} in {json}"))
}

#[test]
fn a_loaded_tree_has_the_size_and_shape_that_loading_gave_it() {
    let json = check(&["--keys", "20k", "--seconds", "0", "--tree", "orders"]);
    assert_eq!((json["clean"].as_bool(), json["tree"].as_str()), (Some(true), Some("orders")));
    assert_eq!((number(&json, "entries"), number(&json, "height")), (20_000.0, 3.0));
    assert!((0.75..0.85).contains(&number(&json, "fill")), "{}", json["fill"]);
    let levels = json["levels"].as_array().expect("levels");
    assert_eq!((levels.len(), number(&levels[0], "entries")), (3, 20_000.0));
    assert_eq!(number(&levels[2], "nodes"), 1.0, "one root");
    for (field, of) in [("nodes", "nodes"), ("bytes", "bytes")] {
        assert_eq!(levels.iter().map(|level| number(level, of)).sum::<f64>(), number(&json, field));
    }
    assert_eq!(number(&levels[1], "entries"), number(&levels[0], "nodes"), "every leaf has its separator");
    assert!((number(&json, "bytes") / 20_000.0 - number(&json, "bytes_per_entry")).abs() < 0.001);
    assert_eq!((number(&json, "missing_separators"), number(&json, "broken_count")), (0.0, 0.0));
    assert!(json["broken"].as_array().is_some_and(Vec::is_empty) && json["broken_by_invariant"].is_object());
    let made = &json["made"];
    assert_eq!((number(made, "keys"), number(made, "checks_while_writing")), (20_000.0, 0.0));
    assert_eq!(made["at_rest"].as_bool(), Some(true));
}

#[test]
fn a_tree_stays_sound_while_writers_work_on_it() {
    for format in ["line-stamped", "two-level"] {
        let json = check(&["--keys", "20k", "--seconds", "0.5", "--threads", "3", "--format", format]);
        assert_eq!((json["clean"].as_bool(), json["format"].as_str()), (Some(true), Some(format)));
        let (made, writers) = (&json["made"], &json["made"]["writers"]);
        assert_eq!(number(made, "threads"), 3.0);
        assert!(number(made, "checks_while_writing") >= 1.0, "{made}");
        for did in ["inserts", "updates", "removes", "gets", "ranges"] {
            assert!(number(writers, did) > 0.0, "{did}: {writers}");
        }
        let left = 20_000.0 + number(writers, "inserts") - number(writers, "removes");
        assert_eq!((number(&json, "entries"), number(made, "expected_entries")), (left, left));
    }
}

#[test]
fn it_says_plainly_what_it_did() {
    let path = fresh_path("check.json");
    let output = sherman(&[
        "check",
        "--cluster",
        "embedded:",
        "--keys",
        "5k",
        "--seconds",
        "0.2",
        "--threads",
        "2",
        "--json-out",
        path.to_str().expect("UTF-8"),
    ]);
    assert_eq!(output.status.code(), Some(0));
    let (said, stdout) = (text(&output.stderr), text(&output.stdout));
    assert_eq!(said, "loading 5000 keys\nchecking while 2 threads write\nchecking\n");
    for words in [
        "the cluster begins empty: loaded 5,000 keys in bulk to 80 %",
        "while 2 threads did",
        "checked once more at rest",
        "B an entry",
        "0 (leaves)",
        "missing separators  ",
        "broken invariants   none",
    ] {
        assert!(stdout.contains(words), "{words}: {stdout}");
    }
    let json: Value = serde_json::from_slice(&std::fs::read(&path).expect("the file")).expect("JSON");
    assert_eq!(json["clean"].as_bool(), Some(true));
    std::fs::remove_file(path).expect("the file goes");
}

/// Changes the first lane of server 0 from holder `from` to holder `to`. 0 means that the lane is free.
fn hold_lane(servers: &Servers, from: u64, to: u64) {
    let addresses =
        servers.servers.iter().map(|server| Address::Unix(server.address.clone().into())).collect();
    let fabric = SoftNicFabric::join(&JoinOptions::new(addresses)).expect("a client");
    let endpoint = fabric.endpoint().expect("an endpoint");
    let mut list = endpoint.list(0);
    let cas = list.masked_cas(Space::OnChip, 0, from, to, 0xffff);
    let list = block_on(&endpoint, execute(&endpoint, list, &Counters::default())).expect("a swap");
    assert!(list.swapped(cas), "the lane is {}", list.old(cas));
}

#[test]
fn without_a_tree_the_whole_cluster_is_checked() {
    let servers = Servers::start(Transport::Unix, 2, &["--memory", "64MiB", "--chunk", "1MiB"]);
    let url = servers.url();
    for tree in ["orders", "users"] {
        let put = sherman(&["put", "--cluster", &url, "7", "700", "--tree", tree, "--create"]);
        assert_eq!(put.status.code(), Some(0), "{}", text(&put.stderr));
    }
    let audit = |code| {
        let output = sherman(&["check", "--cluster", &url, "--json"]);
        assert_eq!(output.status.code(), Some(code), "{} {}", text(&output.stdout), text(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout).expect("JSON and nothing else on stdout")
    };
    let json = audit(0);
    assert_eq!((json["clean"].as_bool(), number(&json, "places_linked")), (Some(true), 2.0), "{json}");
    assert_eq!(
        (json["trees"][0]["tree"].as_str(), json["trees"][1]["tree"].as_str()),
        (Some("orders"), Some("users"))
    );
    // No client has the id 999, but it holds a lane.
    hold_lane(&servers, 0, 999);
    let json = audit(1);
    let found = &json["findings"][0];
    assert_eq!((found["invariant"].as_str(), found["part"].as_str()), (Some("I38"), Some("lane")), "{json}");
    assert_eq!((number(found, "client"), number(&json, "finding_count")), (999.0, 1.0));
    let output = sherman(&["check", "--cluster", &url]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("I38, server 0, lane 0x0") && said.contains("client 999 holds the lane"), "{said}");
    hold_lane(&servers, 999, 0);
    audit(0);
}
