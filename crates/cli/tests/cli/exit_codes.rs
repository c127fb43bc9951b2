//! The README's table of exit codes holds for every command, and `--json` means the same everywhere.
//!
//! Every command of `sherman --help` must have a line in [`all`]. A new command fails here until it has one.

use crate::common::servers::{Server, Servers, Transport};
use crate::common::{command, fresh_path, sherman, text};
use serde_json::Value;
use sherman::Cluster;
use std::path::Path;
use std::process::{Output, Stdio};

/// How a command finds its cluster.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    /// The command needs a cluster.
    Needed,
    /// The command makes a cluster inside its process unless the caller names one.
    Optional,
    /// The command uses no cluster.
    None,
}

/// A command line that succeeds.
struct TableRow {
    words: Vec<String>,
    target: Target,
    /// The command line that prints JSON; `None` if the command cannot.
    json: Option<Vec<String>>,
    /// Whether `--json` took a file name in earlier versions.
    json_took_a_file: bool,
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

fn line(line: &str, target: Target) -> TableRow {
    let json = Some([words(line), words("--json")].concat());
    TableRow { words: words(line), target, json, json_took_a_file: false }
}

/// The input of the commands: a cluster with trees, a cluster without trees, a cluster whose server 1 is
/// declared lost, and files.
struct Stage {
    _servers: [Servers; 3],
    _host: Server,
    url: String,
    fresh: String,
    terminated: String,
    hosts: String,
    entries: String,
    socket: String,
    guest: Cluster,
}

impl Stage {
    fn set() -> Self {
        let small = ["--memory", "64MiB", "--chunk", "1MiB"];
        let servers = [1, 1, 2].map(|count| Servers::start(Transport::Unix, count, &small));
        let [url, fresh, terminated] = [0, 1, 2].map(|number: usize| servers[number].url());
        let host = ["--new-cluster", "--hosts", "1", "--replicas", "1", "--listen", "tcp://127.0.0.1:0"];
        let host = Server::start([&host[..], &small].concat().iter().map(ToString::to_string).collect());
        let hosts = format!("tcp://{}", host.address);
        let file = fresh_path("exit-codes.csv");
        std::fs::write(&file, "1,10\n2,20\n").expect("a file");
        let entries = file.to_str().expect("UTF-8").to_owned();
        let socket = fresh_path("exit-codes.sock").to_str().expect("UTF-8").to_owned();
        let guest = Cluster::open(&url).expect("a member");
        let (_servers, _host) = (servers, host);
        let stage = Self { _servers, _host, url, fresh, terminated, hosts, entries, socket, guest };
        stage.make_trees();
        stage
    }

    /// Makes the trees that commands read, drop and clear.
    fn make_trees(&self) {
        for name in ["orders", "dropped", "cleared"] {
            let tree = self.guest.tree::<u64, u64>(name).expect("a tree");
            tree.client().expect("a client").insert(7, 700).expect("an insert");
        }
    }

    fn run(&self, line: &TableRow, words: &[String]) -> Output {
        let args: Vec<&str> = words.iter().map(String::as_str).collect();
        let url = match words[0].as_str() {
            "litmus" => &self.fresh,
            "declare-lost" => &self.terminated,
            "drain" | "rebalance" => &self.hosts,
            _ => &self.url,
        };
        let mut command = command(&args);
        if line.target != Target::None {
            command.env("SHERMAN_CLUSTER", url);
        }
        command.stdin(Stdio::null()).output().expect("the command starts")
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.entries);
        let _ = std::fs::remove_file(format!("{}.out", self.entries));
    }
}

/// One command line for every command.
fn all(stage: &Stage) -> Vec<TableRow> {
    use Target::{Needed, None as Without, Optional};
    let Stage { entries, socket, .. } = stage;
    let took_a_file = |line: TableRow| TableRow { json_took_a_file: true, ..line };
    vec![
        line("get 7 --tree orders", Needed),
        line("put 7 700 --tree orders", Needed),
        // Each run inserts the key again first.
        line("del 7 --tree orders", Needed),
        line("scan --tree orders", Needed),
        line(&format!("load {entries} --tree orders"), Needed),
        line(&format!("dump {entries}.out --tree orders"), Needed),
        took_a_file(line("trees", Needed)),
        line("drop dropped --yes", Needed),
        line("clear cleared --yes", Needed),
        took_a_file(line("stats", Needed)),
        took_a_file(line("check", Needed)),
        took_a_file(line("check --tree orders", Needed)),
        took_a_file(line("members", Needed)),
        took_a_file(line("fence {guest}", Needed)),
        line("servers", Needed),
        line("declare-lost 1 --yes --force", Needed),
        line("drain 0 --cancel", Needed),
        line("rebalance", Needed),
        took_a_file(line("bench --keys 1k --ops 1k", Optional)),
        took_a_file(line("litmus --only faa-sum --seconds 0.02", Optional)),
        took_a_file(line("sim explore --schedules 10", Without)),
        line("sim replay --seed 1", Without),
        line("figures --list", Without),
        line("sensitivity --base-only --keys 1k --ops 50 --case read-only:uniform:1", Without),
        TableRow { json: None, ..line("completions bash", Without) },
        line(&format!("serve --listen unix:{socket} --memory 64MiB --until-stdin-closes"), Without),
        TableRow {
            json: Some(words("cluster up --memory 64MiB --for 10ms --json")),
            ..line("cluster up --memory 64MiB -- true", Without)
        },
    ]
}

/// The exit code for `what`, from the README's table.
fn code(what: &str) -> i32 {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/COMMANDS.md");
    let readme = std::fs::read_to_string(readme).expect("docs/COMMANDS.md");
    let rows = readme.lines().skip_while(|line| !line.starts_with("| exit code |")).skip(2);
    let mut rows = rows.take_while(|line| line.starts_with('|')).map(|row| row.trim_matches('|').split('|'));
    let found = rows.find_map(|mut cells| {
        let number = cells.next()?.trim().parse().expect("a number");
        cells.flat_map(|cell| cell.split(';')).any(|cause| cause.trim() == what).then_some(number)
    });
    found.unwrap_or_else(|| panic!("docs/COMMANDS.md has no exit code for {what:?}"))
}

fn expect(what: &str, args: &[String], output: &Output) {
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code(what)), "{what}: {args:?}: {stderr}");
    if code(what) != 0 {
        let last = stderr.lines().last().unwrap_or_default();
        assert!(last.starts_with("error: ") && stderr.lines().count() == 1, "{what}: {args:?}: {stderr}");
        assert!(output.stdout.is_empty(), "{what}: {args:?}: {}", text(&output.stdout));
    }
}

/// The names of all commands, including the subcommands of `cluster` and `sim`.
fn names() -> Vec<String> {
    let listed = |path: &[&str]| -> Vec<String> {
        let help = text(&sherman(&[path, &["--help"]].concat()).stdout);
        let lines =
            help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
        let names = lines.filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')));
        names
            .filter_map(|line| line.split(' ').next())
            .filter(|name| *name != "help")
            .map(str::to_owned)
            .collect()
    };
    let nested = |name: String| match name.as_str() {
        "cluster" | "sim" => listed(&[&name]).into_iter().map(|inner| format!("{name} {inner}")).collect(),
        _ => vec![name],
    };
    listed(&[]).into_iter().flat_map(nested).collect()
}

/// Creates again what an earlier run of the command line used up.
fn prepared(stage: &Stage, words: &[String], guests: &mut Vec<Cluster>) -> Vec<String> {
    stage.make_trees();
    let guest =
        words.iter().any(|word| word == "{guest}").then(|| Cluster::open(&stage.url).expect("a member"));
    let id = guest.as_ref().map_or_else(String::new, |guest| guest.id().to_string());
    guests.extend(guest);
    words.iter().map(|word| word.replace("{guest}", &id)).collect()
}

#[test]
fn every_command_keeps_the_table_of_exit_codes() {
    let stage = Stage::set();
    let all = all(&stage);
    let tried: Vec<String> = all.iter().map(|line| line.words.join(" ")).collect();
    for name in names() {
        assert!(tried.iter().any(|line| line.starts_with(&name)), "no line for \"sherman {name}\"");
    }
    let mut guests = Vec::new();
    for line in &all {
        let words = prepared(&stage, &line.words, &mut guests);
        expect("success", &words, &stage.run(line, &words));
        let and = |more: &[&str]| {
            [&words[..1], &more.iter().map(|&word| word.to_owned()).collect::<Vec<_>>()].concat()
        };

        // The flag must stand before a "--".
        let flag = match words[0].as_str() {
            "cluster" | "sim" => and(&[&words[1], "--no-such-flag"]),
            _ => and(&["--no-such-flag"]),
        };
        expect("unknown flag", &flag, &stage.run(line, &flag));
        if line.target == Target::None {
            continue;
        }
        let on = |url: &str| [&words[..], &["--cluster".to_owned(), url.to_owned()]].concat();
        for url in ["unix:/no/such/socket", "tcp://127.0.0.1:1"] {
            expect("connection refused", &on(url), &stage.run(line, &on(url)));
        }
        for url in ["carrier-pigeon:", "nonsense", "tcp://", "embedded:?speed=max", ""] {
            expect("malformed URL", &on(url), &stage.run(line, &on(url)));
        }
        for variable in [None, Some("")] {
            let mut command = command(&words.iter().map(String::as_str).collect::<Vec<_>>());
            variable.map(|value| command.env("SHERMAN_CLUSTER", value));
            let output = command.stdin(Stdio::null()).output().expect("it starts");
            if line.target == Target::Optional {
                expect("success", &words, &output);
                assert!(
                    text(&output.stderr).starts_with("running on memory servers inside this process"),
                    "{words:?}"
                );
                continue;
            }
            expect("missing cluster", &words, &output);
            let said = text(&output.stderr);
            assert!(
                said.contains("needs a cluster: give --cluster URL or set SHERMAN_CLUSTER"),
                "{words:?}: {said}"
            );
            assert_eq!(said.contains("is empty"), variable.is_some(), "{words:?}: {said}");
        }
    }
    let listening =
        words(&format!("serve --listen unix:/no/such/place/{} --memory 64MiB", std::process::id()));
    expect("I/O error", &listening, &sherman(&listening.iter().map(String::as_str).collect::<Vec<_>>()));
    let nowhere = words("serve --listen nonsense");
    expect("malformed URL", &nowhere, &sherman(&["serve", "--listen", "nonsense"]));
}

#[test]
fn json_is_a_flag_of_every_command_that_prints_a_result() {
    let stage = Stage::set();
    let mut guests = Vec::new();
    for line in &all(&stage) {
        let Some(json) = &line.json else { continue };
        let words = prepared(&stage, json, &mut guests);
        let output = stage.run(line, &words);
        expect("success", &words, &output);
        let document = serde_json::from_slice::<Value>(&output.stdout);
        assert!(document.is_ok_and(|json| json.is_object()), "{words:?}: {}", text(&output.stdout));
        if line.json_took_a_file {
            for file in ["result.json", "-"] {
                let words = [&words[..], &[file.to_owned()]].concat();
                let output = stage.run(line, &words);
                expect("unknown flag", &words, &output);
                let said = text(&output.stderr);
                assert!(
                    said.contains("--json: takes no file") && said.contains("--json-out"),
                    "{words:?}: {said}"
                );
            }
        }
    }
}

#[test]
fn a_measurement_goes_to_a_file_as_well() {
    let path = fresh_path("json-out.json");
    let file = path.to_str().expect("UTF-8");
    for line in [
        "bench --keys 1k --ops 1k",
        "check --cluster embedded: --keys 1k --seconds 0",
        "litmus --only faa-sum --seconds 0.02",
        "sensitivity --base-only --keys 1k --ops 50 --case read-only:uniform:1",
        "sim explore --schedules 10",
    ] {
        let args: Vec<&str> = line.split(' ').chain(["--json-out", file]).collect();
        let output = sherman(&args);
        assert_eq!(output.status.code(), Some(0), "{line}: {}", text(&output.stderr));
        assert!(
            !output.stdout.starts_with(b"{") && !output.stdout.is_empty(),
            "{line}: the table goes to stdout"
        );
        let json: Value = serde_json::from_slice(&std::fs::read(&path).expect("the file")).expect("JSON");
        assert!(json.is_object(), "{line}");
        std::fs::remove_file(&path).expect("the file goes");
    }
}

#[test]
fn no_is_an_answer_with_a_code_of_its_own() {
    let stage = Stage::set();
    let ask_of = |url: &str, line: &str| {
        let args: Vec<&str> = line.split(' ').collect();
        let output = command(&args).env("SHERMAN_CLUSTER", url).stdin(Stdio::null()).output();
        output.expect("the command starts")
    };
    let ask = |line: &str| ask_of(&stage.url, line);
    for (what, line) in [
        ("no such key", "get 8 --tree orders"),
        ("no such key", "del 8 --tree orders"),
        ("the key exists", "put 7 701 --tree orders --if-absent"),
        ("no such tree", "get 7 --tree cats"),
        ("no such tree", "put 7 8 --tree cats"),
        ("no such tree", "del 7 --tree cats"),
        ("no such tree", "scan --tree cats"),
        ("no such tree", "dump --tree cats"),
        ("no such tree", "load - --tree cats"),
        ("no such tree", "check --tree cats"),
        ("no such tree", "drop cats --yes"),
        ("no such tree", "clear cats --yes"),
        ("no such member", "fence 4000"),
        ("no such server", "declare-lost 1 --yes"),
        // Only a planted bug makes the command find a fault.
        #[cfg(feature = "mutants")]
        ("fault found", "sim explore --schedules 1 --mutant narrow-stamp"),
    ] {
        let output = ask(line);
        assert_eq!(output.status.code(), Some(code(what)), "{line}: {}", text(&output.stderr));
        assert_eq!(code(what), 1, "{what}");
    }
    for (what, line) in [
        ("option that does not fit the tree", "get x --tree orders"),
        ("option that does not fit the tree", "get 7 --tree orders --key-type u32"),
        ("option that does not fit the tree", "get 7"),
        ("file that cannot be opened", "load /no/such/file --tree orders"),
        ("missing --yes", "drop orders"),
        ("missing --yes", "clear orders"),
        ("embedded: for an operator's command", "members --cluster embedded:"),
        ("embedded: for an operator's command", "fence 1 --cluster embedded:"),
        ("embedded: for an operator's command", "stats --cluster embedded:"),
        ("embedded: for an operator's command", "servers --cluster embedded:"),
        ("embedded: for an operator's command", "declare-lost 1 --yes --cluster embedded:"),
        ("embedded: for an operator's command", "drain 0 --cluster embedded:"),
        ("embedded: for an operator's command", "rebalance --cluster embedded:"),
        ("cluster without hosts", "drain 0"),
        ("cluster without hosts", "rebalance"),
    ] {
        expect(what, &words(line), &ask(line));
        assert_eq!(code(what), 2, "{what}");
    }
    for (what, line) in [
        ("missing --yes", "declare-lost 1 --force"),
        ("server that cannot be declared lost", "declare-lost 1 --yes"),
        ("server that cannot be declared lost", "declare-lost 0 --yes --force"),
    ] {
        expect(what, &words(line), &ask_of(&stage.terminated, line));
        assert_eq!(code(what), 2, "{what}");
    }
    for (what, line, number) in [("no such host", "drain 7", 1), ("refused by a server", "drain 0", 3)] {
        expect(what, &words(line), &ask_of(&stage.hosts, line));
        assert_eq!(code(what), number, "{what}");
    }
    let listed = text(&ask_of(&stage.terminated, "servers --json").stdout);
    assert!(listed.contains("\"present\"") && !listed.contains("\"lost\""), "nothing was changed: {listed}");
    assert_eq!(text(&ask("get 7 --tree orders").stdout), "700\n", "nothing was changed");
}
