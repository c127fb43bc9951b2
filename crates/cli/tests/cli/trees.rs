//! Whole trees, by the real command: `drop`, `clear`, failed commands that must leave no tree behind, and the
//! trees of `bench`.

use crate::common::servers::{Servers, Transport};
use crate::common::{command, text};
use sherman::Cluster;
use std::io::Write;
use std::process::{Output, Stdio};

const SMALL: &[&str] = &["--memory", "64MiB", "--chunk", "1MiB"];

fn on(url: &str, line: &str, input: &str) -> Output {
    let args: Vec<&str> = line.split(' ').collect();
    let mut child = command(&args)
        .env("SHERMAN_CLUSTER", url)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    // A command that ends early reads only a part.
    let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
    child.wait_with_output().expect("it ends")
}

fn names(cluster: &Cluster) -> Vec<String> {
    cluster.trees().expect("trees").into_iter().map(|tree| tree.name).collect()
}

#[test]
fn a_tree_is_cleared_and_dropped() {
    let servers = Servers::start(Transport::Unix, 2, SMALL);
    let url = servers.url();
    let cluster = Cluster::open(&url).expect("a member");
    let entries: String = (0..5_000).map(|key| format!("{key},{key}\n")).collect();
    for name in ["orders", "users"] {
        assert!(on(&url, &format!("load - --tree {name} --create"), &entries).status.success());
    }
    let cleared = on(&url, "clear orders --yes", "");
    assert_eq!(text(&cleared.stdout), "cleared orders: 5,000 entries removed\n", "{}", text(&cleared.stderr));
    let left = |name: &str| cluster.open_raw_tree(name).expect("a tree").client().expect("a client").len();
    assert_eq!((left("orders"), left("users")), (Ok(0), Ok(5_000)));
    let dropped = on(&url, "drop users --yes", "");
    assert!(text(&dropped.stdout).starts_with("dropped users: "), "{}", text(&dropped.stderr));
    assert_eq!(names(&cluster), ["orders"]);
    // The name is free again.
    assert!(on(&url, "put 1 2 --tree users --create", "").status.success());
    assert_eq!(text(&on(&url, "scan --tree users", "").stdout), "1\t2\n");
}

#[test]
fn the_command_shows_the_types_of_trees_and_creates_trees_without_types() {
    let servers = Servers::start(Transport::Unix, 1, SMALL);
    let url = servers.url();
    let cluster = Cluster::open(&url).expect("a member");
    cluster.tree::<i64, (u32, u32)>("typed").expect("a tree");
    assert!(on(&url, "put 1 100 --tree plain --create --key-type u64", "").status.success());
    let plain = cluster.tree::<u64, u64>("plain").expect("a tree").client().expect("a client");
    assert_eq!(plain.get(1), Ok(Some(100)));
    for line in ["trees", "stats"] {
        let shown = text(&on(&url, line, "").stdout);
        assert!(shown.contains("  key type  value type\n"), "{shown}");
        assert!(shown.contains("  -         -\n") && shown.contains("  i64       (u32, u32)\n"), "{shown}");
        let json = on(&url, &format!("{line} --json"), "").stdout;
        let json: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
        let types = [&json["trees"][0]["types"], &json["trees"][1]["types"]];
        let expected = [serde_json::Value::Null, serde_json::json!({ "key": "i64", "value": "(u32, u32)" })];
        assert_eq!(types, expected.each_ref(), "{json}");
    }
    // The command works with bytes, so it opens the typed tree too.
    assert!(on(&url, "put -1 7 --tree typed --key-type i64", "").status.success());
    let typed = cluster.open_tree::<i64, (u32, u32)>("typed").expect("a tree").client().expect("a client");
    assert_eq!(typed.get(-1), Ok(Some((0, 7))));
}

#[test]
fn a_command_that_fails_leaves_no_empty_tree_behind() {
    let servers = Servers::start(Transport::Unix, 1, SMALL);
    let url = servers.url();
    let cluster = Cluster::open(&url).expect("a member");
    for (line, input) in [
        ("load - --tree new --create --bulk", "2,20\n1,10\n"),
        ("load - --tree new --create --bulk", "1,10\nnonsense\n"),
        ("load - --tree new --create", "nonsense\n"),
        ("load - --tree new --create --format ndjson", "[1,2]\n"),
        ("put 7 nonsense --tree new --create", ""),
    ] {
        let output = on(&url, line, input);
        assert!(!output.status.success(), "{line}");
        assert!(names(&cluster).is_empty(), "{line} left {:?}", names(&cluster));
    }
    // A tree with entries stays, and so does a tree that existed before.
    assert_eq!(on(&url, "load - --tree half --create", "1,10\nnonsense\n").status.code(), Some(3));
    cluster.tree::<u64, u64>("before").expect("a tree");
    assert_eq!(on(&url, "load - --tree before --create --bulk", "2,20\n1,10\n").status.code(), Some(3));
    assert_eq!(names(&cluster), ["before", "half"]);
}

#[test]
fn a_line_that_is_no_object_changes_nothing() {
    let servers = Servers::start(Transport::Unix, 1, SMALL);
    let url = servers.url();
    assert!(on(&url, "put 1 100 --tree t --create", "").status.success());
    for bad in ["[1,2]", "[1,2,3]", "7", "{\"key\":1,\"value\":2,\"more\":3}"] {
        let output = on(&url, "load - --format ndjson", &format!("{bad}\n{{\"key\":2,\"value\":200}}\n"));
        assert_eq!(output.status.code(), Some(3), "{bad}");
        assert!(text(&output.stderr).starts_with("error: line 1: "), "{bad}: {}", text(&output.stderr));
    }
    assert_eq!(text(&on(&url, "scan", "").stdout), "1\t100\n");
    // The command reads the whole file before it inserts the first entry.
    let path = crate::common::fresh_path("bad.ndjson");
    std::fs::write(&path, "{\"key\":1,\"value\":2}\n[3,4]\n").expect("a file");
    let output = on(&url, &format!("load {}", path.display()), "");
    assert_eq!(output.status.code(), Some(3));
    let said = text(&output.stderr);
    assert!(said.contains("line 2: ") && said.contains("nothing has been loaded"), "{said}");
    assert_eq!(text(&on(&url, "scan", "").stdout), "1\t100\n");
    std::fs::remove_file(path).expect("the file goes");
}

#[test]
fn a_sorted_load_into_an_empty_tree_hints_at_bulk_once() {
    let servers = Servers::start(Transport::Unix, 1, SMALL);
    let url = servers.url();
    let sorted: String = (0..20_000).map(|key| format!("{key},{key}\n")).collect();
    let shuffled: String = (0..20_000_u64).map(|key| format!("{},{key}\n", key * 7919 % 20_011)).collect();
    for (line, input, hints) in [
        ("load - --tree a --create", &sorted, 1),
        ("load - --tree a --create", &sorted, 0),
        ("load - --tree b --create", &shuffled, 0),
        ("load - --tree c --create --bulk", &sorted, 0),
    ] {
        let output = on(&url, line, input);
        assert_eq!(output.status.code(), Some(0), "{line}: {}", text(&output.stderr));
        assert_eq!(text(&output.stderr).matches("--bulk").count(), hints, "{line}: {}", text(&output.stderr));
    }
    let cluster = Cluster::open(&url).expect("a member");
    let check = cluster.open_raw_tree("a").expect("a tree").check().expect("a check");
    assert!(check.is_clean() && check.entries == 20_000, "{check:?}");
}

#[test]
fn a_benchmark_runs_again_and_again_and_touches_no_other_tree() {
    let servers =
        Servers::start(Transport::Unix, 1, &["--memory", "16MiB", "--chunk", "1MiB", "--lease", "500ms"]);
    let url = servers.url();
    // Opened briefly each time: a member that stays would take over the memory that each run frees.
    let open = || Cluster::open(&url).expect("a member");
    for name in ["bench", "sherman-bench"] {
        let client = open().tree::<u64, u64>(name).expect("a tree").client().expect("a client");
        client.insert(7, 700).expect("an insert");
    }
    // All runs together need more memory than the cluster has, so each run must free its memory.
    for round in 0..3 {
        let output = on(&url, "bench --keys 150k --ops 2k --check", "");
        assert_eq!(output.status.code(), Some(0), "{round}: {}", text(&output.stderr));
        assert_eq!(text(&output.stderr), format!("running on {url}\n"));
    }
    let cluster = open();
    assert_eq!(names(&cluster), ["bench", "sherman-bench"]);
    for name in ["bench", "sherman-bench"] {
        let client = cluster.open_tree::<u64, u64>(name).expect("a tree").client().expect("a client");
        assert_eq!((client.get(7), client.len()), (Ok(Some(700)), Ok(1)), "{name}");
    }
}
