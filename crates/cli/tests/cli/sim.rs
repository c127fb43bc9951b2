//! The simulated world by the real command: small explorations, replays, planted bugs, refusals.

use crate::common::{fresh_path, sherman, text};
use serde_json::Value;

/// Explores and returns the JSON.
fn explore(code: i32, args: &[&str]) -> Value {
    let output = sherman(&[&["sim", "explore", "--json"], args].concat());
    let world = "running on a simulated world, not on a cluster\n";
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(code), world), "{args:?}");
    serde_json::from_slice(&output.stdout).expect("JSON and nothing else on stdout")
}

fn number(json: &Value, field: &str) -> f64 {
    json[field].as_f64().unwrap_or_else(|| panic!("{field} in {json}"))
}

#[test]
fn an_exploration_without_violations_tells_what_it_saw() {
    let json = explore(0, &["--schedules", "600", "--seed", "1000"]);
    assert_eq!((number(&json, "schedules"), number(&json, "seed")), (600.0, 1000.0));
    assert_eq!((number(&json, "violations"), number(&json, "crash_points")), (0.0, 0.0));
    assert!(json["first_violations"].as_array().is_some_and(Vec::is_empty) && json["mutant"].is_null());
    assert!(number(&json, "schedules_per_second") > 0.0 && number(&json, "seconds") > 0.0);
    assert!(number(&json, "median_verbs") >= 60.0 && number(&json, "fewest_clients") >= 3.0);
    assert_eq!((number(&json, "distinct"), json["format"].as_str()), (1.0, Some("mixed")));
    for happened in ["split", "merge", "reuse", "scan"] {
        assert!((0.01..=1.0).contains(&number(&json["shares"], happened)), "{happened}: {}", json["shares"]);
    }
}

#[test]
fn the_same_seeds_are_the_same_schedules_whatever_the_number_of_threads() {
    let hash = |threads: &str, seed: &str| {
        let json = explore(0, &["--schedules", "300", "--seed", seed, "--threads", threads]);
        json["trace_hash"].as_str().expect("a hash").to_owned()
    };
    let once = hash("1", "40");
    assert!(once.len() == 18 && once.starts_with("0x"), "{once}");
    assert_eq!(once, hash("3", "40"));
    assert_ne!(once, hash("3", "41"));
}

#[test]
fn clients_die_where_they_are_asked_to() {
    let json = explore(0, &["--schedules", "600", "--crashes"]);
    assert_eq!((json["crashes"].as_bool(), number(&json, "violations")), (Some(true), 0.0));
    assert!(number(&json, "crash_points") > 100.0, "{}", json["crash_points"]);
    for happened in ["death", "doomed", "recovery", "rejoin"] {
        assert!((0.01..=1.0).contains(&number(&json["shares"], happened)), "{happened}: {}", json["shares"]);
    }
    let output = sherman(&["sim", "explore", "--crashes", "--schedules", "100"]);
    let table = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{table}");
    for words in [", with crashes", "with a death", "crash points"] {
        assert!(table.contains(words), "{words}: {table}");
    }
    let hash = |args: &[&str]| {
        let said = text(&sherman(&[&["sim", "replay", "--seed", "3"], args].concat()).stdout);
        said.lines().find(|line| line.starts_with("trace hash")).expect("a hash").to_owned()
    };
    assert_ne!(hash(&[]), hash(&["--crashes"]), "another schedule");
    assert_eq!(hash(&["--crashes"]), hash(&["--crashes"]));
}

#[test]
fn a_bug_that_takes_a_death_is_found_without_asking_for_crashes() {
    let json = explore(0, &["--schedules", "20k", "--mutant", "sweeps-others"]);
    assert_eq!((json["mutant"]["found"].as_bool(), json["crashes"].as_bool()), (Some(true), Some(true)));
    let seed = json["first_violations"][0]["seed"].to_string();
    let replay = sherman(&["sim", "replay", "--seed", &seed, "--mutant", "sweeps-others"]);
    assert_eq!(replay.status.code(), Some(0), "{}", text(&replay.stdout));
}

#[test]
fn every_format_can_be_explored_alone() {
    for format in ["line-stamped", "two-level", "sorted", "sorted-stamped"] {
        let json = explore(0, &["--schedules", "200", "--format", format]);
        assert_eq!(json["format"].as_str(), Some(format));
    }
}

#[test]
fn a_planted_bug_is_found_told_and_replayed() {
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
    // Sixteen writes of one node past one reader do not happen in the first schedule.
    let json = explore(1, &["--schedules", "1", "--mutant", "narrow-stamp"]);
    assert_eq!((number(&json, "violations"), json["mutant"]["found"].as_bool()), (0.0, Some(false)));
    let replay = sherman(&["sim", "replay", "--seed", "0", "--mutant", "narrow-stamp"]);
    assert_eq!(replay.status.code(), Some(1), "{}", text(&replay.stdout));
}

#[test]
fn a_replay_is_the_schedule_of_the_exploration_and_shows_every_event_if_asked() {
    let explored = explore(0, &["--schedules", "1", "--seed", "77"]);
    let hash = explored["trace_hash"].as_str().expect("a hash");
    let brief = text(&sherman(&["sim", "replay", "--seed", "77"]).stdout);
    assert!(brief.contains(hash) && brief.contains("violations  none") && brief.lines().count() < 10, "{brief}");
    let long = text(&sherman(&["sim", "replay", "--seed", "77", "--trace"]).stdout);
    assert!(long.contains(hash) && long.lines().count() > 200, "{long}");
}

#[test]
fn the_table_goes_to_stdout_and_the_json_to_its_file() {
    let path = fresh_path("sim.json");
    let args = ["sim", "explore", "--schedules", "200", "--json-out", path.to_str().expect("UTF-8")];
    let output = sherman(&args);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    for words in ["200 schedules from seed 0, mixed trees", "schedules a second", "violations                none"] {
        assert!(table.contains(words), "{words}: {table}");
    }
    let json: Value = serde_json::from_slice(&std::fs::read(&path).expect("the file")).expect("JSON");
    assert_eq!(number(&json, "schedules"), 200.0);
    std::fs::remove_file(path).expect("the file goes");
}

#[test]
fn what_cannot_be_explored_is_refused() {
    let json = fresh_path("sim-refused.json");
    let to = ["--json-out", json.to_str().expect("UTF-8")];
    for (args, words) in [
        (&["explore", "--schedules", "0"][..], &["--schedules", "at least one"][..]),
        (&["explore", "--schedules", "many"], &["--schedules", "500k"]),
        (&["explore", "--seed", "-1"], &["-1"]),
        (&["explore", "--seed", "18446744073709551615", "--schedules", "2"], &["--seed", "no 2 seeds"]),
        (&["explore", "--threads", "0"], &["--threads", "1 to 1024"]),
        (&["explore", "--mutant", "gremlin"], &["--mutant", "no planted bug", "no-free-mark", "torn-root"]),
        (&["explore", "--format", "lines"], &["--format", "line-stamped, two-level"]),
        (&["explore", "--trace"], &["--trace"]),
        (&["replay", "--schedules", "2"], &["--schedules"]),
        (&["replay"], &["--seed"]),
        (&["relay"], &["relay"]),
        (&[], &["sim"]),
    ] {
        let mut all = vec!["sim"];
        all.extend(args);
        all.extend(to.iter().filter(|_| args.first() == Some(&"explore")));
        let output = sherman(&all);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.starts_with("error: ") && stderr.lines().count() == 1, "{args:?}: {stderr}");
        words.iter().for_each(|word| assert!(stderr.contains(word), "{args:?} should say {word:?}: {stderr}"));
        assert!(output.stdout.is_empty() && !json.exists());
    }
}

#[test]
fn help_lists_what_is_checked_and_every_planted_bug() {
    let output = sherman(&["sim", "explore", "--help"]);
    let help = text(&output.stdout);
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
    for words in [
        "linearizability",
        "--crashes",
        "--mutant",
        "--json",
        "Exit code: 0",
        "merge-without-parent-lane",
        "no-free-mark",
    ] {
        assert!(help.contains(words), "{words}: {help}");
    }
    assert!(text(&sherman(&["sim", "replay", "--help"]).stdout).contains("--trace"));
    assert!(text(&sherman(&["sim", "explore", "-h"]).stdout).contains("see --help"));
}
