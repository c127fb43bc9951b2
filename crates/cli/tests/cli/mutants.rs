//! Planted bugs, by the real command. `.ci/run` runs these tests with the feature `mutants`.

use crate::common::{sherman, text};
use crate::sim::{explore, number};

#[test]
fn a_bug_that_takes_a_death_is_found_without_asking_for_crashes() {
    let json = explore(0, &["--schedules", "20k", "--mutant", "sweeps-others"]);
    assert_eq!((json["mutant"]["found"].as_bool(), json["crashes"].as_bool()), (Some(true), Some(true)));
    let seed = json["first_violations"][0]["seed"].to_string();
    let replay = sherman(&["sim", "replay", "--seed", &seed, "--mutant", "sweeps-others"]);
    assert_eq!(replay.status.code(), Some(0), "{}", text(&replay.stdout));
}

#[test]
fn a_planted_bug_is_found_reported_and_replayed() {
    let json = explore(0, &["--schedules", "5k", "--mutant", "no-right-step"]);
    assert_eq!(
        (json["mutant"]["name"].as_str(), json["mutant"]["found"].as_bool()),
        (Some("no-right-step"), Some(true))
    );
    let first = &json["first_violations"][0];
    let seed = first["seed"].as_u64().expect("a seed");
    assert_eq!((number(&json, "violations"), number(&json, "schedules")), (1.0, seed as f64 + 1.0));
    assert!(first["what"].is_string() && first["scenario"].is_string());

    let seed = seed.to_string();
    let replay = sherman(&["sim", "replay", "--seed", &seed, "--mutant", "no-right-step"]);
    let said = text(&replay.stdout);
    assert_eq!(replay.status.code(), Some(0), "the bug shows: {said}");
    let property = first["property"].as_str().expect("a property");
    assert!(said.to_lowercase().contains(property), "{property}: {said}");
    assert!(said.lines().count() > 20, "a trace: {said}");

    let replay = sherman(&["sim", "replay", "--seed", &seed]);
    assert_eq!(replay.status.code(), Some(0), "without the bug nothing is violated");
    assert!(text(&replay.stdout).contains("violations  none"), "{}", text(&replay.stdout));
}

#[test]
fn a_planted_bug_that_does_not_show_is_exit_code_1() {
    // The bug needs sixteen writes of one node during one read. The first schedule does not have that.
    let json = explore(1, &["--schedules", "1", "--mutant", "narrow-stamp"]);
    assert_eq!((number(&json, "violations"), json["mutant"]["found"].as_bool()), (0.0, Some(false)));
    let replay = sherman(&["sim", "replay", "--seed", "0", "--mutant", "narrow-stamp"]);
    assert_eq!(replay.status.code(), Some(1), "{}", text(&replay.stdout));
}
