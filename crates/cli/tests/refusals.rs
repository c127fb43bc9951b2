//! What cannot be asked is refused: one line that names the option and says what is allowed, exit code 2, no JSON written.
//! What goes wrong at run time: one line, exit code 1.

mod common;

use common::{fresh_path, sherman, text};

/// Asserts that `sherman bench` with `args` fails with `code` and one line that contains all of `words`.
fn refuses(code: i32, args: &[&str], words: &[&str]) {
    let json = fresh_path(&format!("refused-{}.json", args.join("_").replace(['/', ':', '?', '&', '='], "_")));
    let mut all = vec!["bench", "--json", json.to_str().expect("a UTF-8 path")];
    // A run that is not refused should at least be short.
    all.extend(["--seconds", "0.1"].iter().filter(|_| !args.contains(&"--seconds") && !args.contains(&"--ops")));
    all.extend(args);
    let output = sherman(&all);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
    assert!(stderr.starts_with("error: ") && stderr.lines().count() == 1, "{args:?}: {stderr}");
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
    refuses(2, &["--range", "0"], &["--range", "at least one"]);
    refuses(2, &["--range", "2M"], &["--range", "1000000"]);
    refuses(2, &["--runs", "0"], &["--runs", "1 to 1000"]);
    refuses(2, &["--seed", "x"], &["--seed"]);
    refuses(2, &["--cache", "64Mb"], &["--cache", "64MiB"]);
}

#[test]
fn nodes_that_cannot_be() {
    refuses(2, &["--node-size", "256", "--value-size", "60"], &["--node-size", "entries", "4 are the least"]);
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
    refuses(2, &["--hot-keys", "everywhere"], &["--hot-keys", "scattered, clustered"]);
}

#[test]
fn workloads_with_ranges_are_not_available_yet() {
    for workload in ["range-only", "range-write", "ycsb-e"] {
        let words = ["--workload", "not available yet: range queries", "available are write-only"];
        refuses(2, &["--workload", workload, "--range", "100"], &words);
    }
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
    refuses(2, &["--cluster", small, "--keys", "1M"], &["--cluster", "1000000 keys need at least", "memory="]);
    // Enough for full leaves, but leaves are never all full.
    let tight = "embedded:?memory=33MiB";
    refuses(1, &["--cluster", tight, "--keys", "900k"], &["loading", "no memory server has a free chunk"]);
}

#[test]
fn a_cluster_that_contradicts_the_variant() {
    let tearing = "embedded:?memory=64MiB&atomicity=line";
    refuses(2, &["--variant", "sherman", "--cluster", tearing], &["--cluster", "two-level format", "tear"]);
}

#[test]
fn a_json_file_that_cannot_be_written_is_refused_before_the_run() {
    let missing = fresh_path("no-such-directory").join("x.json");
    let output = sherman(&["bench", "--json", missing.to_str().expect("a UTF-8 path")]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).starts_with("error: --json: there is no directory"), "{}", text(&output.stderr));
    let output = sherman(&["bench", "--json", env!("CARGO_TARGET_TMPDIR")]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("is a directory"), "{}", text(&output.stderr));
}

#[test]
fn help_and_version_are_no_failures() {
    for (args, words) in [
        (&["--help"][..], &["bench", "--version"][..]),
        (&["bench", "--help"], &["--cluster", "Variants", "bytes written are those of WRITE verbs"]),
        (&["bench", "-h"], &["--cluster", "see --help"]),
        (&["--version"], &["sherman ", env!("CARGO_PKG_VERSION")]),
    ] {
        let output = sherman(args);
        let stdout = text(&output.stdout);
        assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "{args:?}");
        for word in words {
            assert!(stdout.to_lowercase().contains(&word.to_lowercase()), "{args:?} should say {word:?}: {stdout}");
        }
    }
}
