//! The simulator, by the real command: small explorations, replays, refusals.

use crate::common::{fresh_path, sherman, text};
use serde_json::Value;

/// Explores and returns the JSON.
pub fn explore(code: i32, args: &[&str]) -> Value {
    let output = sherman(&[&["sim", "explore", "--json"], args].concat());
    let world = "running on a simulated world, not on a cluster\n";
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(code), world), "{args:?}");
    serde_json::from_slice(&output.stdout).expect("JSON and nothing else on stdout")
}

pub fn number(json: &Value, field: &str) -> f64 {
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
    for happened in ["death", "terminated", "recovery", "rejoin"] {
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
fn every_format_can_be_explored_alone() {
    for format in ["line-stamped", "two-level", "sorted", "sorted-stamped"] {
        let json = explore(0, &["--schedules", "200", "--format", format]);
        assert_eq!(json["format"].as_str(), Some(format));
    }
}

#[test]
fn a_replay_is_the_schedule_of_the_exploration_and_shows_every_event_if_asked() {
    let explored = explore(0, &["--schedules", "1", "--seed", "77"]);
    let hash = explored["trace_hash"].as_str().expect("a hash");
    let brief = text(&sherman(&["sim", "replay", "--seed", "77"]).stdout);
    assert!(
        brief.contains(hash) && brief.contains("violations  none") && brief.lines().count() < 10,
        "{brief}"
    );
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
    for words in
        ["200 schedules from seed 0, mixed trees", "schedules a second", "violations                none"]
    {
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
        (
            &["explore", "--seed", "18446744073709551615", "--schedules", "2"],
            &["--seed", "fewer than 2 seeds"],
        ),
        (&["explore", "--threads", "0"], &["--threads", "1 to 1024"]),
        #[cfg(not(feature = "mutants"))]
        (&["explore", "--mutant", "no-free-mark"], &["--mutant"]),
        #[cfg(feature = "mutants")]
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
        words
            .iter()
            .for_each(|word| assert!(stderr.contains(word), "{args:?} should say {word:?}: {stderr}"));
        assert!(output.stdout.is_empty() && !json.exists());
    }
}

#[test]
fn help_lists_what_is_checked() {
    let output = sherman(&["sim", "explore", "--help"]);
    let help = text(&output.stdout);
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
    for words in ["linearizability", "--crashes", "--json", "Exit code: 0"] {
        assert!(help.contains(words), "{words}: {help}");
    }
    for words in ["--mutant", "merge-without-parent-lane", "no-free-mark"] {
        assert_eq!(help.contains(words), cfg!(feature = "mutants"), "{words}: {help}");
    }
    assert!(text(&sherman(&["sim", "replay", "--help"]).stdout).contains("--trace"));
    assert!(text(&sherman(&["sim", "explore", "-h"]).stdout).contains("see --help"));
}
