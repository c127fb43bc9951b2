//! `sherman members` and `sherman fence`, by the real command.

use crate::common::servers::{Servers, Transport, wait_until};
use crate::common::{sherman, text};
use serde_json::Value;
use sherman::{Cluster, ClusterOptions};
use std::time::Duration;

/// A cluster of one server, with a short lease.
fn servers() -> Servers {
    Servers::start(
        Transport::Unix,
        1,
        &["--memory", "64MiB", "--chunk", "1MiB", "--lease", "500ms", "--threads", "1"],
    )
}

fn json(args: &[&str]) -> Value {
    let output = sherman(args);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", text(&output.stderr));
    assert!(output.stderr.is_empty(), "{args:?}: {}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON and nothing else on stdout")
}

fn ids(json: &Value) -> Vec<u64> {
    let members = json["members"].as_array().expect("members");
    members.iter().map(|member| member["id"].as_u64().expect("an id")).collect()
}

/// Asserts that a command fails with `code` and one line that contains all of `words`.
fn refuses(code: i32, args: &[&str], words: &[&str]) {
    let output = sherman(args);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
    assert!(stderr.starts_with("error: ") && stderr.lines().count() == 1, "{args:?}: {stderr}");
    assert!(words.iter().all(|word| stderr.contains(word)), "{args:?} should say {words:?}: {stderr}");
    assert!(output.stdout.is_empty());
}

#[test]
fn members_are_listed_with_their_leases_and_the_command_is_none_of_them() {
    let servers = servers();
    let url = servers.url();
    assert_eq!(ids(&json(&["members", "--json", "--cluster", &url])), Vec::<u64>::new());
    let _two = [Cluster::open(&url).expect("a cluster"), Cluster::open(&url).expect("a cluster")];
    let json = json(&["members", "--json", "--cluster", &url]);
    assert_eq!((ids(&json), json["cluster"].as_str()), (vec![1, 2], Some(url.as_str())));
    for member in json["members"].as_array().expect("members") {
        assert_eq!((member["standing"].as_str(), member["incarnation"].as_u64()), (Some("live"), Some(1)));
        let lease = member["lease_left_seconds"].as_f64().expect("a number");
        assert!(lease > 0.0 && lease <= 0.5 && member["recoverer"].is_null(), "{member}");
    }
    let output = sherman(&["members", "--cluster", &url]);
    let stdout = text(&output.stdout);
    for words in [url.as_str(), "lease left", "live"] {
        assert!(stdout.contains(words), "{words}: {stdout}");
    }
    assert_eq!(stdout.lines().count(), 7, "{stdout}");
    assert!(
        stdout.contains("2 live, 0 leaving, 0 dead; 0 wait for recovery; 4094 of 4096 ids are free"),
        "{stdout}"
    );
}

#[test]
fn the_lease_of_a_member_ends_and_the_command_names_its_recoverer() {
    let servers = servers();
    let url = servers.url();
    let broken = Cluster::open_with(&url, ClusterOptions::new().rejoin(false)).expect("a cluster");
    let client = broken.tree::<u64, u64>("orders").expect("a tree").client().expect("a client");
    client.insert(1, 1).expect("an insert");
    let output = sherman(&["fence", "1", "--cluster", &url]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let stdout = text(&output.stdout);
    for words in
        ["the lease of member 1 has ended", "waiting for recovery: 1", "the next client to join", "dead"]
    {
        assert!(stdout.contains(words), "{words}: {stdout}");
    }
    wait_until("it is fenced", Duration::from_secs(10), || broken.is_fenced());
    refuses(1, &["fence", "9", "--cluster", &url], &["no member has the id 9", "the members are 1"]);
}

#[test]
fn a_member_that_owns_nothing_is_gone_when_its_lease_is_ended() {
    let servers = servers();
    let url = servers.url();
    let reader = Cluster::open_with(&url, ClusterOptions::new().rejoin(false)).expect("a cluster");
    let stdout = text(&sherman(&["fence", "1", "--cluster", &url]).stdout);
    for words in
        ["the lease of member 1 has ended", "no member waits for recovery", "the cluster has no members"]
    {
        assert!(stdout.contains(words), "{words}: {stdout}");
    }
    wait_until("it is fenced", Duration::from_secs(10), || reader.is_fenced());
}

#[test]
fn a_member_that_is_fenced_is_recovered_by_another_and_its_entries_stay() {
    let servers = servers();
    let url = servers.url();
    let [survivor, broken] =
        [(); 2].map(|()| Cluster::open_with(&url, ClusterOptions::new().rejoin(false)).expect("a cluster"));
    let client = broken.tree::<u64, u64>("orders").expect("a tree").client().expect("a client");
    for key in 0..1_000 {
        client.insert(key, key).expect("an insert");
    }
    let report = json(&["fence", "2", "--json", "--cluster", &url]);
    assert_eq!((report["fenced"].as_u64(), report["cluster"].as_str()), (Some(2), Some(url.as_str())));
    let waiting = report["waiting_for_recovery"].as_array().expect("ids");
    assert!(waiting.iter().all(|id| id.as_u64() == Some(2)), "{report}");
    wait_until("it is recovered", Duration::from_secs(10), || {
        ids(&json(&["members", "--json", "--cluster", &url])) == [1]
    });
    let client = survivor.open_tree::<u64, u64>("orders").expect("the tree").client().expect("a client");
    for key in 0..1_000 {
        assert_eq!(client.get(key).expect("an answer"), Some(key));
    }
}

#[test]
fn what_cannot_be_asked_is_refused() {
    for command in [
        &["members"][..],
        &["fence", "2"],
        &["stats"],
        &["servers"],
        &["declare-lost", "1"],
        &["drain", "1"],
        &["rebalance"],
    ] {
        refuses(2, command, &["give --cluster URL or set SHERMAN_CLUSTER"]);
    }
    refuses(2, &["fence", "--cluster", "unix:/x"], &["ID"]);
    for id in ["0", "-1", "two", "65536"] {
        refuses(2, &["fence", id, "--cluster", "unix:/x"], &["1 to 65535"]);
    }
    refuses(2, &["fence", "2", "--cluster", "carrier-pigeon:"], &["--cluster", "carrier-pigeon"]);
    refuses(2, &["members", "--cluster", "embedded:?lease=never"], &["--cluster", "200ms or 3s"]);
    for command in [
        &["members"][..],
        &["fence", "2"],
        &["stats"],
        &["servers"],
        &["declare-lost", "1", "--yes"],
        &["drain", "1"],
        &["rebalance"],
    ] {
        refuses(2, &[command, &["--cluster", "embedded:"]].concat(), &["--cluster", "private"]);
    }
}
