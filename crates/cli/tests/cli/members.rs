//! `sherman members` and `sherman fence`, by the real command.

use crate::common::{sherman, text};
use serde_json::Value;

/// A cluster inside the command's process.
const HERE: [&str; 2] = ["--cluster", "embedded:?servers=2&memory=64MiB&chunk=1MiB"];

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
fn members_are_listed_with_their_leases() {
    let json = json(&["members", "--json", "--cluster", "embedded:?memory=64MiB&lease=500ms"]);
    assert_eq!(
        (ids(&json), json["this_command"].as_u64(), json["private"].as_bool()),
        (vec![1, 2, 3], Some(1), Some(true))
    );
    for member in json["members"].as_array().expect("members") {
        assert_eq!((member["standing"].as_str(), member["incarnation"].as_u64()), (Some("live"), Some(1)));
        let lease = member["lease_left_seconds"].as_f64().expect("a number");
        assert!(lease > 0.0 && lease <= 0.5 && member["recoverer"].is_null(), "{member}");
    }
}

#[test]
fn it_says_plainly_that_an_embedded_cluster_is_its_own() {
    let output = sherman(&[&["members"][..], &HERE].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let stdout = text(&output.stdout);
    for words in ["a cluster in this process alone", "lease left", "live", "this command"] {
        assert!(stdout.contains(words), "{words}: {stdout}");
    }
    assert_eq!(stdout.lines().count(), 7, "{stdout}");
}

#[test]
fn a_member_that_is_fenced_is_gone_and_its_memory_is_not() {
    let output = sherman(&[&["fence", "2"][..], &HERE].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let stdout = text(&output.stdout);
    assert!(stdout.contains("2 is fenced and recovered") && stdout.contains("places taken over"), "{stdout}");
    let json = json(&[&["fence", "2", "--json"][..], &HERE].concat());
    assert_eq!(
        (json["fenced"].as_u64(), json["outcome"].as_str(), ids(&json)),
        (Some(2), Some("recovered"), vec![1, 3])
    );
    assert!(json["places_taken_over"].as_u64().is_some_and(|places| places > 0), "{json}");
}

#[test]
fn what_cannot_be_fenced_is_refused() {
    refuses(1, &[&["fence", "9"][..], &HERE].concat(), &["no member has the id 9", "1, 2, 3"]);
    refuses(2, &[&["fence", "1"][..], &HERE].concat(), &["this command itself"]);
    refuses(2, &["fence"], &["ID"]);
    for id in ["0", "-1", "two", "65536"] {
        refuses(2, &["fence", id], &["1 to 65535"]);
    }
    refuses(2, &["fence", "2", "--cluster", "carrier-pigeon:"], &["--cluster", "carrier-pigeon"]);
    refuses(2, &["members", "--cluster", "embedded:?lease=never"], &["--cluster", "200ms or 3s"]);
    refuses(2, &["members"], &["give --cluster URL or set SHERMAN_CLUSTER"]);
    refuses(2, &["fence", "2"], &["give --cluster URL or set SHERMAN_CLUSTER"]);
}
