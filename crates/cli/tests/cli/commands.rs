//! The client commands on memory servers that are separate processes: each command reads what the previous
//! one wrote.

use crate::common::servers::{Servers, TRANSPORTS, Transport, wait_until};
use crate::common::{command, fresh_path, secret_file, sherman, text};
use serde_json::Value;
use sherman::{Cluster, ClusterOptions};
use std::io::Write;
use std::process::{Output, Stdio};
use std::time::Duration;

const SMALL: &[&str] = &["--memory", "64MiB", "--chunk", "1MiB"];

/// A cluster, and commands that find it through the environment.
struct Commands {
    _servers: Servers,
    url: String,
}

impl Commands {
    fn on(transport: Transport) -> Self {
        let servers = Servers::start(transport, 2, SMALL);
        let url = servers.url();
        Self { _servers: servers, url }
    }

    fn output(&self, args: &[&str]) -> Output {
        command(args).env("SHERMAN_CLUSTER", &self.url).output().expect("the command starts")
    }

    /// Runs a command and returns its exit code, stdout and stderr.
    fn run(&self, line: &str) -> (i32, String, String) {
        let output = self.output(&line.split(' ').collect::<Vec<_>>());
        (output.status.code().expect("a code"), text(&output.stdout), text(&output.stderr))
    }

    fn says(&self, line: &str, code: i32, stdout: &str) {
        assert_eq!(self.run(line), (code, stdout.to_owned(), String::new()), "{line}");
    }

    fn json(&self, line: &str) -> Value {
        let (code, stdout, stderr) = self.run(line);
        assert_eq!((code, stderr.as_str()), (0, ""), "{line}");
        serde_json::from_str(&stdout).expect("JSON and nothing else on stdout")
    }
}

#[test]
fn keys_are_put_got_scanned_and_deleted() {
    for transport in TRANSPORTS {
        let on = Commands::on(transport);
        on.says("put 7 700 --tree orders --create", 0, "inserted\n");
        on.says("put 7 701", 0, "replaced 700\n");
        on.says("put 7 702 --if-absent", 1, "kept 701\n");
        on.says("get 7", 0, "701\n");
        on.says("get 8", 1, "");
        on.says("put 8 800", 0, "inserted\n");
        on.says("scan --descending", 0, "8\t800\n7\t701\n");
        on.says("scan --from 8 --limit 5", 0, "8\t800\n");
        on.says("del 7", 0, "removed 701\n");
        on.says("del 7", 1, "");
        assert_eq!(on.json("get 8 --json")["value"].as_u64(), Some(800));
        on.says(
            "put -5 ada --tree users --create --key-type i64 --value-type text --value-size 20",
            0,
            "inserted\n",
        );
        on.says("get -5 --tree users --key-type i64 --value-type text", 0, "ada\n");
        let (code, _, stderr) = on.run("get 7");
        assert!(code == 2 && stderr.contains("name the tree; the cluster has orders, users"), "{stderr}");
        let names = on.json("trees --json");
        let names: Vec<_> =
            names["trees"].as_array().expect("trees").iter().map(|tree| tree["name"].as_str()).collect();
        assert_eq!(names, [Some("orders"), Some("users")]);
    }
}

#[test]
fn a_dump_loaded_elsewhere_is_the_same_tree() {
    let (from, to) = (Commands::on(Transport::Unix), Commands::on(Transport::Tcp));
    let path = fresh_path("entries.csv");
    let name = path.to_str().expect("UTF-8");
    let csv = (0..20_000_u64)
        .fold("key,value\n".to_owned(), |text, key| text + &format!("{},{key}\n", key * 7919 % 20_011));
    std::fs::write(&path, csv).expect("a file");
    let loaded = from.json(&format!("load {name} --tree t --create --json"));
    assert_eq!((loaded["entries"].as_u64(), loaded["replaced"].as_u64()), (Some(20_000), Some(0)));
    for (format, how) in [("csv", "--bulk"), ("ndjson", "")] {
        let dumped = from.output(&["dump", "--format", format]);
        assert_eq!((dumped.status.code(), dumped.stderr.len()), (Some(0), 0));
        let tree = format!("t-{format}");
        let mut line = vec!["load", "-", "--format", format, "--tree", &tree, "--create"];
        line.extend(Some(how).filter(|how| !how.is_empty()));
        let mut load = command(&line)
            .env("SHERMAN_CLUSTER", &to.url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the command starts");
        load.stdin.take().expect("a pipe").write_all(&dumped.stdout).expect("it reads all");
        assert!(load.wait_with_output().expect("it ends").status.success());
        let again = to.output(&["dump", "--tree", &tree, "--format", format]);
        assert!(again.stdout == dumped.stdout, "{format}");
        assert_eq!(text(&again.stdout).lines().count(), 20_000 + usize::from(format == "csv"));
        // The command prints its progress on stderr.
        let check = to.output(&["check", "--tree", &tree, "--json"]);
        let check: Value = serde_json::from_slice(&check.stdout).expect("JSON and nothing else on stdout");
        assert_eq!((check["clean"].as_bool(), check["entries"].as_u64()), (Some(true), Some(20_000)));
    }
    let written = from.json(&format!("dump {name} --json"));
    assert_eq!(written["entries"].as_u64(), Some(20_000));
    assert_eq!(std::fs::read_to_string(&path).expect("the file").lines().next(), Some("key,value"));
    std::fs::remove_file(path).expect("the file goes");
}

#[test]
fn others_are_seen_and_fenced() {
    let on = Commands::on(Transport::Unix);
    let other = Cluster::open_with(&on.url, ClusterOptions::new().rejoin(false)).expect("a cluster");
    let client = other.tree::<u64, u64>("orders").expect("a tree").client().expect("a client");
    client.insert(7, 700).expect("an insert");
    let survivor = Cluster::open(&on.url).expect("a cluster");
    let stats = on.json("stats --json");
    assert_eq!((stats["servers"].as_array().map(Vec::len), stats["live"].as_u64()), (Some(2), Some(2)));
    assert_eq!(stats["trees"][0]["name"].as_str(), Some("orders"));
    let members = || on.json("members --json")["members"].as_array().map(Vec::len);
    assert_eq!(members(), Some(2), "the command itself is no member");
    let fenced = on.json(&format!("fence {} --json", other.id()));
    let id = u64::from(other.id().0);
    assert_eq!(fenced["fenced"].as_u64(), Some(id));
    assert_eq!(fenced["waiting_for_recovery"][0].as_u64(), Some(id), "{fenced}");
    wait_until("it is fenced", Duration::from_secs(10), || other.is_fenced());
    assert!(client.get(7).is_err());
    wait_until("a survivor recovers it", Duration::from_secs(10), || members() == Some(1));
    // The id is free before the survivor counts the recovery.
    wait_until("the survivor counts it", Duration::from_secs(10), || {
        survivor.participation().recoveries == 1
    });
    on.says("get 7", 0, "700\n");
}

#[test]
fn a_cluster_that_is_not_there_is_exit_code_3() {
    for url in ["unix:/no/such/place", "tcp://127.0.0.1:1"] {
        for line in
            [&["get", "7"][..], &["stats"], &["load", "/dev/null", "--tree", "t", "--create"], &["dump"]]
        {
            let output = sherman(&[line, &["--cluster", url]].concat());
            let stderr = text(&output.stderr);
            assert_eq!(output.status.code(), Some(3), "{line:?}: {stderr}");
            assert!(stderr.starts_with("error: ") && stderr.lines().count() == 1, "{line:?}: {stderr}");
            assert!(
                stderr.contains(url.trim_start_matches("unix:").trim_start_matches("tcp://")),
                "{stderr}"
            );
            assert!(output.stdout.is_empty());
        }
    }
}

#[test]
fn a_command_in_a_cluster_of_its_own_needs_no_url() {
    let sherman_path = env!("CARGO_BIN_EXE_sherman");
    let script = format!("{sherman_path} put 7 700 --tree orders --create && {sherman_path} get 7 --json");
    for kind in ["--unix", "--tcp", "--shm"] {
        let line = ["cluster", "up", "--servers", "3", kind, "--memory", "64MiB", "--", "sh", "-c", &script];
        let output = sherman(&line);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "inserted\n{\"found\":true,\"key\":7,\"value\":700}\n");
    }
}

#[test]
fn only_a_client_with_the_secret_gets_in() {
    let secret = secret_file("secret", "the secret of this cluster, long enough to be one\n");
    let wrong = secret_file("wrong-secret", "another secret of this cluster, as long as that\n");
    let (secret, wrong) = (secret.to_str().expect("UTF-8"), wrong.to_str().expect("UTF-8"));
    let sherman_path = env!("CARGO_BIN_EXE_sherman");
    let script = format!(
        "{sherman_path} put 7 700 --tree t --create || exit 9; \
         {sherman_path} get 7 --cluster \"${{SHERMAN_CLUSTER%\\?*}}\"; echo $?; \
         {sherman_path} get 7 --cluster \"${{SHERMAN_CLUSTER%\\?*}}?secret-file={wrong}\"; echo $?"
    );
    let output = sherman(&[
        "cluster",
        "up",
        "--tcp",
        "--memory",
        "64MiB",
        "--secret-file",
        secret,
        "--",
        "sh",
        "-c",
        &script,
    ]);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), "inserted\n3\n3\n"));
    let said = text(&output.stderr);
    assert!(said.contains("error: ") && !said.contains("long enough to be one"), "{said}");
    [secret, wrong].iter().for_each(|path| std::fs::remove_file(path).expect("the file goes"));
}
