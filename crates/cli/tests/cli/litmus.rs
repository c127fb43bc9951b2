//! `sherman litmus`, by the real command.

use crate::common::servers::{Servers, Transport};
use crate::common::{sherman, text};
use serde_json::Value;

#[test]
fn an_embedded_cluster_violates_nothing() {
    let output = sherman(&["litmus", "--seconds", "0.02", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON and nothing else on stdout");
    let programs = json["programs"].as_array().expect("programs");
    assert!(programs.len() >= 14, "{json}");
    for program in programs {
        assert_eq!(program["violations"].as_u64(), Some(0), "{program}");
        assert!(program["rounds"].as_u64() > Some(0), "{program}");
    }
}

#[test]
fn a_cluster_that_shares_its_memory_violates_nothing() {
    let servers = Servers::start(Transport::Shm, 1, &["--memory", "64MiB"]);
    let output = sherman(&["litmus", "--seconds", "0.05", "--cluster", &servers.url()]);
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    assert!(text(&output.stdout).ends_with("no violation\n"), "{}", text(&output.stdout));
}

#[test]
fn programs_are_listed_and_picked_by_name() {
    let output = sherman(&["litmus", "--list"]);
    let names = text(&output.stdout);
    assert!(names.contains("fenced-write") && names.contains("F1") && names.lines().count() >= 14, "{names}");
    let output = sherman(&["litmus", "--only", "faa-sum", "--seconds", "0.02"]);
    let told = text(&output.stdout);
    assert!(
        told.contains("faa-sum") && told.ends_with("no violation\n") && told.lines().count() == 3,
        "{told}"
    );
}

#[test]
fn wrong_options_are_refused_on_one_line() {
    for (args, code, words) in [
        (vec!["litmus", "--only", "nonsense"], 2, "no program \"nonsense\""),
        (vec!["litmus", "--seconds", "0"], 2, "--seconds"),
        (
            vec!["litmus", "--cluster", "tcp://127.0.0.1:1"],
            3,
            "cannot reach memory server 0 at tcp://127.0.0.1:1",
        ),
        (vec!["litmus", "--cluster", "nonsense"], 2, "scheme"),
    ] {
        let output = sherman(&args);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
        assert!(
            stderr.starts_with("error: ") && stderr.lines().count() == 1 && stderr.contains(words),
            "{stderr}"
        );
    }
}
