//! The client commands, by the real command. Each command has its own cluster inside its process, so no
//! command reads what another wrote. Unit tests beside the code cover the effects on a tree. `cluster.rs`
//! covers the commands over the network.

use crate::common::servers::{Servers, Transport};
use crate::common::{fresh_path, run, sherman, text};
use serde_json::Value;

const HERE: [&str; 2] = ["--cluster", "embedded:?memory=64MiB&chunk=1MiB"];

fn client(args: &[&str]) -> (i32, String, String) {
    let output = sherman(&[args, &HERE].concat());
    (output.status.code().expect("a code"), text(&output.stdout), text(&output.stderr))
}

/// Asserts that a command fails with `code` and one line that contains all of `words`.
fn refuses(code: i32, args: &[&str], words: &[&str]) {
    let (found, stdout, stderr) = client(args);
    assert_eq!(found, code, "{args:?}: {stderr}");
    assert!(stderr.starts_with("error: ") && stderr.lines().count() == 1, "{args:?}: {stderr}");
    assert!(words.iter().all(|word| stderr.contains(word)), "{args:?} should say {words:?}: {stderr}");
    assert!(stdout.is_empty(), "{args:?}: {stdout}");
}

#[test]
fn a_tree_is_made_by_the_first_put() {
    let put = ["put", "7", "700", "--tree", "orders", "--create"];
    assert_eq!(client(&put), (0, "inserted\n".to_owned(), String::new()));
    let (code, stdout, _) = client(&[&put[..], &["--json"]].concat());
    let json: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!((code, json["key"].as_u64(), json["put"].as_bool()), (0, Some(7), Some(true)));
    let texts =
        ["put", "ada", "-1815", "--tree", "t", "--create", "--key-type", "text", "--value-type", "i64"];
    assert_eq!(client(&texts).0, 0);
}

#[test]
fn a_file_is_loaded_and_said_to_be() {
    let path = fresh_path("load.csv");
    std::fs::write(&path, "key,value\n1,10\n2,20\n1,11\n").expect("a file");
    let file = path.to_str().expect("UTF-8");
    let (code, stdout, stderr) = client(&["load", file, "--tree", "t", "--create", "--json"]);
    let json: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert_eq!((json["entries"].as_u64(), json["replaced"].as_u64()), (Some(3), Some(1)));
    let (code, stdout, stderr) = client(&["load", file, "--tree", "t", "--create"]);
    assert_eq!((code, stderr.as_str()), (0, ""), "no bar where there is no terminal");
    assert!(stdout.starts_with("3 entries loaded in ") && stdout.contains("1 of them"), "{stdout}");
    refuses(
        3,
        &["load", file, "--tree", "t", "--create", "--bulk"],
        &["line 4", "ascending", "nothing has been loaded"],
    );
    std::fs::write(&path, "1,10\n2\n").expect("a file");
    refuses(
        3,
        &["load", file, "--tree", "t", "--create"],
        &["line 2", "1 fields", "nothing has been loaded"],
    );
    std::fs::remove_file(path).expect("the file goes");
}

#[test]
fn stdin_is_loaded_as_it_comes() {
    let input: String =
        (0..10_000).map(|key| format!("{{\"key\":{key},\"value\":\"{key:04x}\"}}\n")).collect();
    let line = [
        "load",
        "-",
        "--format",
        "ndjson",
        "--tree",
        "t",
        "--create",
        "--value-size",
        "2",
        "--bulk",
        "--json",
    ];
    let output = run(&[&line[..], &HERE].concat(), &input);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((json["entries"].as_u64(), json["bulk"].as_bool()), (Some(10_000), Some(true)));
}

#[test]
fn an_empty_cluster_has_servers_and_no_members_or_trees() {
    let servers = Servers::start(Transport::Unix, 1, &["--memory", "64MiB", "--chunk", "1MiB"]);
    let output = sherman(&["stats", "--json", "--cluster", &servers.url()]);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((json["servers"].as_array().map(Vec::len), json["live"].as_u64()), (Some(1), Some(0)));
    assert!(json["servers"][0]["bytes"].as_u64().is_some_and(|bytes| bytes > 1 << 20), "{json}");
    assert!(text(&sherman(&["stats", "--cluster", &servers.url()]).stdout).contains("there are no trees"));
    assert_eq!(client(&["trees"]).1, "there are no trees\n");
    let json: Value = serde_json::from_str(&client(&["trees", "--json"]).1).expect("JSON");
    assert_eq!(json["trees"].as_array().map(Vec::len), Some(0));
}

#[test]
fn what_cannot_be_asked_is_exit_code_2() {
    for command in ["get", "del"] {
        refuses(
            1,
            &[command, "7", "--tree", "t"],
            &["there is no tree named \"t\"", "the cluster has no trees"],
        );
        refuses(2, &[command, "7"], &["--tree: name the tree"]);
        refuses(2, &[command], &["KEY"]);
    }
    refuses(2, &["scan"], &["--tree: name the tree"]);
    refuses(1, &["dump", "--tree", "t"], &["there is no tree named \"t\""]);
    refuses(2, &["dump", "--tree", "t", "--json"], &["--json", "the entries go to stdout"]);
    refuses(2, &["dump", "--format", "ndjson", "--no-header"], &["--no-header"]);
    refuses(2, &["put", "7"], &["VALUE"]);
    refuses(2, &["put", "7", "x", "--tree", "t", "--create"], &["VALUE: \"x\" is not a valid u64"]);
    refuses(2, &["put", "7", "8", "--create"], &["--tree"]);
    refuses(2, &["put", "7", "8", "--tree", "t", "--key-size", "8"], &["--create"]);
    refuses(
        2,
        &["put", "7", "8", "--tree", "t", "--create", "--key-type", "u7"],
        &["--key-type", "u128, i8"],
    );
    refuses(2, &["load", "/no/such/file", "--tree", "t", "--create"], &["FILE: cannot open /no/such/file"]);
    refuses(2, &["load", env!("CARGO_TARGET_TMPDIR"), "--tree", "t", "--create"], &["FILE", "directory"]);
    refuses(2, &["load", "-", "--tree", "t", "--format", "xml"], &["--format", "csv, ndjson"]);
    refuses(2, &["load", "-", "--tree", "t", "--fill", "90"], &["--bulk"]);
    refuses(2, &["scan", "--limit", "0"], &["--limit", "at least one"]);
    refuses(2, &["stats", "--json", "/no/such/place/x"], &["--json: takes no file"]);
}

#[test]
fn the_cluster_is_named_by_an_option_or_the_environment() {
    let output = sherman(&["trees"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("give --cluster URL or set SHERMAN_CLUSTER"),
        "{}",
        text(&output.stderr)
    );
    let mut command = crate::common::command(&["trees"]);
    let output =
        command.env("SHERMAN_CLUSTER", "embedded:?memory=64MiB&chunk=1MiB").output().expect("it starts");
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), "there are no trees\n"));
    let output = command.args(["--cluster", "carrier-pigeon:"]).output().expect("it starts");
    assert_eq!(output.status.code(), Some(2), "the option wins");
    assert!(text(&output.stderr).starts_with("error: --cluster: "), "{}", text(&output.stderr));
}

#[test]
fn every_client_command_has_help_with_examples() {
    for command in [
        "get",
        "put",
        "del",
        "scan",
        "load",
        "dump",
        "trees",
        "drop",
        "clear",
        "stats",
        "completions",
        "serve",
    ] {
        let output = sherman(&[command, "--help"]);
        let said = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{command}");
        assert!(
            said.contains("Examples:") && said.contains(&format!("  sherman {command} ")),
            "{command}: {said}"
        );
    }
    let said = text(&sherman(&["cluster", "up", "--help"]).stdout);
    assert!(said.contains("Examples:") && said.contains("SHERMAN_CLUSTER"), "{said}");
}

#[test]
fn shells_learn_every_command() {
    for (shell, words) in
        [("bash", "complete -F"), ("zsh", "#compdef sherman"), ("fish", "complete -c sherman")]
    {
        let output = sherman(&["completions", shell]);
        let script = text(&output.stdout);
        assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "{shell}");
        for word in [words, "get", "cluster", "key-type", "until-stdin-closes"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    let output = sherman(&["completions", "csh"]);
    assert!(
        output.status.code() == Some(2) && text(&output.stderr).contains("bash"),
        "{}",
        text(&output.stderr)
    );
}
