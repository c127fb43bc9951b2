//! A command refuses wrong options with exit code 2 and one line that names the option and the allowed
//! values. It writes no JSON. A failure at run time gives exit code 3, with the reason on the last line.

use crate::common::{fresh_path, sherman, text};

/// Asserts that `sherman bench` with `args` fails with `code` and one line that contains all of `words`.
fn refuses(code: i32, args: &[&str], words: &[&str]) {
    command_refuses("bench", code, args, words);
}

/// The same for `sherman check`.
fn check_refuses(args: &[&str], words: &[&str]) {
    let here = ["--cluster", "embedded:"];
    let here = if args.contains(&"--cluster") { &[][..] } else { &here };
    command_refuses("check", 2, &[here, args].concat(), words);
}

fn command_refuses(command: &str, code: i32, args: &[&str], words: &[&str]) {
    let json = fresh_path(&format!(
        "{command}-refused-{}.json",
        args.join("_").replace(['/', ':', '?', '&', '='], "_")
    ));
    let mut all = vec![command, "--json-out", json.to_str().expect("a UTF-8 path")];
    // Keeps a run short that is not refused.
    all.extend(
        ["--seconds", "0.1"].iter().filter(|_| !args.contains(&"--seconds") && !args.contains(&"--ops")),
    );
    all.extend(args);
    let output = sherman(&all);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
    // A run that has started prints the cluster that it runs on.
    let said = stderr
        .strip_prefix("running on ")
        .and_then(|rest| rest.split_once('\n'))
        .map_or(&*stderr, |(_, rest)| rest);
    assert!(said.starts_with("error: ") && said.lines().count() == 1, "{args:?}: {stderr}");
    for word in words {
        assert!(stderr.contains(word), "{args:?} should say {word:?}: {stderr}");
    }
    assert!(output.stdout.is_empty(), "{args:?}: {}", text(&output.stdout));
    assert!(!json.exists(), "{args:?} wrote {}", json.display());
}

#[test]
fn unknown_options_and_commands() {
    refuses(2, &["--sped", "9"], &["--sped"]);
    refuses(2, &["extra"], &["extra"]);
    for args in [&[][..], &["brench"], &["--bench"]] {
        let output = sherman(args);
        assert_eq!((output.status.code(), text(&output.stderr).lines().count()), (Some(2), 1), "{args:?}");
    }
}

#[test]
fn options_that_exclude_each_other() {
    refuses(2, &["--zipf", "0.9", "--uniform"], &["--zipf", "--uniform"]);
    refuses(2, &["--seconds", "1", "--ops", "5"], &["--seconds", "--ops"]);
}

#[test]
fn numbers_out_of_bounds() {
    refuses(2, &["--threads", "0"], &["--threads", "1 to 1024"]);
    refuses(2, &["--threads", "1025"], &["--threads", "1 to 1024"]);
    refuses(2, &["--threads", "two"], &["--threads", "1 to 1024"]);
    refuses(2, &["--coroutines", "0"], &["--coroutines", "1 to 1024"]);
    refuses(2, &["--keys", "0"], &["--keys", "at least one"]);
    refuses(2, &["--keys", "1.5M"], &["--keys", "500k"]);
    refuses(2, &["--keys", "70k", "--key-size", "2"], &["--keys", "65536"]);
    refuses(2, &["--ops", "0"], &["--ops", "at least one"]);
    refuses(2, &["--seconds", "-1"], &["--seconds", "above 0"]);
    refuses(2, &["--seconds", "inf"], &["--seconds", "above 0"]);
    refuses(2, &["--seconds", "2000000"], &["--seconds", "1000000"]);
    refuses(2, &["--zipf", "1"], &["--zipf", "below 1"]);
    refuses(2, &["--zipf", "-0.1"], &["--zipf", "from 0"]);
    refuses(2, &["--range-size", "0"], &["--range-size", "at least one"]);
    refuses(2, &["--range-size", "2M"], &["--range-size", "1000000"]);
    refuses(2, &["--removes", "101"], &["--removes", "0 to 100"]);
    refuses(2, &["--removes", "half"], &["--removes", "0 to 100"]);
    refuses(2, &["--fill", "40"], &["--fill", "50 to 100"]);
    refuses(2, &["--runs", "0"], &["--runs", "1 to 1000"]);
    refuses(2, &["--seed", "x"], &["--seed"]);
    refuses(2, &["--cache", "64Mb"], &["--cache", "64MiB"]);
}

#[test]
fn nodes_that_cannot_be() {
    refuses(2, &["--node-size", "256", "--value-size", "60"], &["--node-size", "entries", "at least 4"]);
    refuses(2, &["--node-size", "1000"], &["--node-size", "multiples of 64 from 256 to 65536"]);
    refuses(2, &["--node-size", "128KiB"], &["--node-size", "65536"]);
    refuses(2, &["--key-size", "0"], &["--key-size", "1 to 1024"]);
    refuses(2, &["--key-size", "2KiB"], &["--key-size", "1 to 1024"]);
}

#[test]
fn names_that_nothing_has() {
    refuses(2, &["--format", "lines"], &["--format", "line-stamped, two-level, sorted, sorted-stamped"]);
    refuses(2, &["--variant", "theirs"], &["--variant", "fg, fg+cache, fg+", "ours"]);
    refuses(2, &["--workload", "ycsb-g"], &["--workload", "write-only, write-intensive", "ycsb-f"]);
    refuses(2, &["--load", "slowly"], &["--load", "bulk, insert"]);
    refuses(2, &["--hot-keys", "everywhere"], &["--hot-keys", "scattered, clustered"]);
}

#[test]
fn clusters_that_cannot_be() {
    refuses(2, &["--cluster", "nowhere"], &["--cluster", "scheme"]);
    refuses(2, &["--cluster", "pigeon://a:1"], &["--cluster", "pigeon", "embedded:"]);
    refuses(2, &["--cluster", "embedded:?servers=0"], &["--cluster", "at least one memory server"]);
    refuses(2, &["--cluster", "embedded:?speed=max"], &["--cluster", "speed", "servers, memory"]);
    refuses(2, &["--cluster", "embedded:?memory=1MiB"], &["--cluster", "too few"]);
}

#[test]
fn too_little_memory_for_the_keys() {
    let small = "embedded:?memory=20MiB";
    refuses(
        2,
        &["--cluster", small, "--keys", "1M"],
        &["--cluster", "1000000 keys need at least", "memory="],
    );
    // Enough memory for full leaves, but the leaves are never all full.
    let tight = "embedded:?memory=33MiB";
    refuses(
        3,
        &["--cluster", tight, "--keys", "900k", "--load", "insert"],
        &["loading", "no memory server has a free chunk"],
    );
}

#[test]
fn a_cluster_that_contradicts_the_variant() {
    let tearing = "embedded:?memory=64MiB&atomicity=line";
    refuses(2, &["--variant", "sherman", "--cluster", tearing], &["--cluster", "two-level format", "tear"]);
}

#[test]
fn checks_that_cannot_be() {
    check_refuses(&["--keys", "0"], &["--keys", "at least one"]);
    check_refuses(&["--keys", "many"], &["--keys", "500k"]);
    check_refuses(&["--seconds", "-1"], &["--seconds", "from 0 on"]);
    check_refuses(&["--threads", "0"], &["--threads", "1 to 1024"]);
    check_refuses(&["--format", "lines"], &["--format", "line-stamped, two-level, sorted, sorted-stamped"]);
    check_refuses(&["--node-size", "1000"], &["--node-size", "multiples of 64 from 256 to 65536"]);
    check_refuses(&["--speed", "9"], &["--speed"]);
    check_refuses(&["--workload", "read-only"], &["--workload"]);
    check_refuses(&["--cluster", "nowhere"], &["--seconds", "begin empty"]);
    check_refuses(&["--cluster", "embedded:?speed=max"], &["--cluster", "speed"]);
    let tearing = "embedded:?memory=64MiB&atomicity=line";
    check_refuses(
        &["--format", "two-level", "--cluster", tearing],
        &["--cluster", "two-level format", "tear"],
    );
    // A cluster outside this process is checked as it is. So the only error is the missing server.
    let output = sherman(&["check", "--cluster", "unix:/no/such/place", "--tree", "orders"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("/no/such/place"), "{}", text(&output.stderr));
}

#[test]
fn a_check_that_runs_out_of_memory_fails() {
    let output = sherman(&["check", "--cluster", "embedded:?memory=33MiB", "--keys", "3M", "--seconds", "0"]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    let stderr = text(&output.stderr);
    let last = stderr.lines().last().expect("a line");
    assert!(last.starts_with("error: loading: no memory server has a free chunk"), "{stderr}");
    assert!(output.stdout.is_empty());
}

#[test]
fn a_json_file_that_cannot_be_written_is_refused_before_the_run() {
    let missing = fresh_path("no-such-directory").join("x.json");
    let output = sherman(&["bench", "--json-out", missing.to_str().expect("a UTF-8 path")]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).starts_with("error: --json-out: there is no directory"),
        "{}",
        text(&output.stderr)
    );
    let output = sherman(&["bench", "--json-out", env!("CARGO_TARGET_TMPDIR")]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("is a directory"), "{}", text(&output.stderr));
}

#[test]
fn help_and_version_are_no_failures() {
    for (args, words) in [
        (&["--help"][..], &["bench", "check", "--version"][..]),
        (&["bench", "--help"], &["--cluster", "Variants", "bytes written are those of WRITE verbs"]),
        (&["bench", "--help"], &["--range-size", "--removes", "--load", "--fill", "range-write", "ycsb-e"]),
        (&["bench", "-h"], &["--cluster", "see --help"]),
        (
            &["check", "--help"],
            &["--cluster", "--tree", "--keys", "--seconds", "--json", "exit code: 0", "begin empty"],
        ),
        (&["check", "-h"], &["--tree", "see --help"]),
        (&["--version"], &["sherman ", env!("CARGO_PKG_VERSION")]),
    ] {
        let output = sherman(args);
        let stdout = text(&output.stdout);
        assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "{args:?}");
        for word in words {
            assert!(
                stdout.to_lowercase().contains(&word.to_lowercase()),
                "{args:?} should say {word:?}: {stdout}"
            );
        }
    }
}
