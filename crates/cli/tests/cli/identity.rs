//! URLs that mix clusters, servers that lost their memory, and servers that are declared lost, by the real
//! command.

use crate::common::servers::{Servers, Transport, wait_until};
use crate::common::{fresh_path, sherman, text};
use serde_json::Value;
use sherman::{Admin, BulkOptions, Cluster, ClusterOptions, Error};
use sherman_conformance::trees::Failure;
use std::time::{Duration, Instant};

const SMALL: &[&str] = &["--memory", "64MiB", "--chunk", "1MiB", "--lease", "500ms", "--threads", "1"];
const ON_FILES: &[&str] = &[
    "--memory",
    "64MiB",
    "--chunk",
    "1MiB",
    "--lease",
    "500ms",
    "--threads",
    "1",
    "--file",
    "{dir}/{id}.mem",
];

/// Fills a tree that needs both servers.
fn fill(url: &str) -> Result<(), Failure> {
    let cluster = Cluster::open(url)?;
    cluster
        .tree::<u64, u64>("nums")?
        .bulk_load((0..40_000).map(|key| (key, key)), &BulkOptions::default())?;
    Ok(())
}

/// Asserts that the command fails within a second, with one line that contains `words`.
fn refused(args: &[&str], words: &[&str]) {
    let begun = Instant::now();
    let output = sherman(args);
    let stderr = text(&output.stderr);
    assert!(begun.elapsed() < Duration::from_secs(1), "{args:?} took {:?}: {stderr}", begun.elapsed());
    assert_ne!(output.status.code(), Some(0), "{args:?}");
    assert!(stderr.starts_with("error: ") && stderr.lines().count() == 1, "{args:?}: {stderr}");
    assert!(words.iter().all(|word| stderr.contains(word)), "{args:?} should say {words:?}: {stderr}");
    assert!(output.stdout.is_empty(), "{args:?}: {}", text(&output.stdout));
}

fn clean(url: &str) {
    let output = sherman(&["check", "--tree", "nums", "--cluster", url]);
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
}

fn json(args: &[&str]) -> Value {
    let output = sherman(args);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON and nothing else on stdout")
}

/// Commands that join, with their arguments.
fn joining(input: &str) -> Vec<Vec<&str>> {
    vec![
        vec!["get", "7", "--tree", "nums"],
        vec!["load", input, "--tree", "nums"],
        vec!["check", "--tree", "nums"],
        vec!["trees"],
    ]
}

fn refused_all(url: &str, words: &[&str]) {
    let path = fresh_path("identity.csv");
    std::fs::write(&path, "key,value\n1,2\n").expect("a file");
    for line in joining(path.to_str().expect("text")) {
        refused(&[&line[..], &["--cluster", url]].concat(), words);
    }
    std::fs::remove_file(path).expect("the file goes");
}

#[test]
fn a_url_that_mixes_two_clusters_is_refused_and_neither_changes() -> Result<(), Failure> {
    for transport in [Transport::Tcp, Transport::Unix] {
        let (one, other) = (Servers::start(transport, 2, SMALL), Servers::start(transport, 2, SMALL));
        fill(&one.url())?;
        fill(&other.url())?;
        let members = |url: &str| Admin::open(url).and_then(|admin| admin.members());
        let before = (members(&one.url())?.len(), members(&other.url())?.len());
        let mixed = one.url().replace(&one.servers[1].address, &other.servers[1].address);
        let at = other.servers[1].address.as_str();
        refused_all(&mixed, &["memory server 1 at", at, "belongs to another cluster"]);
        assert_eq!((members(&one.url())?.len(), members(&other.url())?.len()), before, "no id was issued");
        clean(&one.url());
        clean(&other.url());
    }
    Ok(())
}

#[test]
fn a_server_that_was_restarted_empty_is_refused_by_name() -> Result<(), Failure> {
    for victim in [1, 0] {
        let mut servers = Servers::start(Transport::Tcp, 2, SMALL);
        fill(&servers.url())?;
        servers.servers[victim].kill();
        servers.servers[victim].restart();
        let url = servers.url();
        if victim == 1 {
            refused_all(&url, &["memory server 1 at", "lost its memory", "declare-lost 1"]);
            let stats = json(&["stats", "--json", "--cluster", &url]);
            let problem = stats["servers"][1]["problem"].as_str().unwrap_or_default();
            assert!(problem.contains("lost its memory"), "{stats}");
            let listed = json(&["servers", "--json", "--cluster", &url]);
            assert_ne!(listed["servers"][1]["memory"], listed["servers"][1]["found_memory"], "{listed}");
        } else {
            refused_all(
                &url,
                &["memory server 1 at", "another cluster", "memory server 0 was restarted empty"],
            );
        }
    }
    Ok(())
}

#[test]
fn a_server_that_is_down_is_named_and_comes_back_with_its_file() -> Result<(), Failure> {
    let mut servers = Servers::start(Transport::Unix, 2, ON_FILES);
    let url = servers.url();
    fill(&url)?;
    let members = || json(&["members", "--json", "--cluster", &url])["members"].as_array().map(Vec::len);
    let before = members();
    servers.servers[1].kill();
    refused_all(&url, &["cannot reach memory server 1 at unix:", "Is it running?"]);
    let listed = json(&["servers", "--json", "--cluster", &url]);
    assert_eq!(listed["servers"][1]["reachable"].as_bool(), Some(false));
    assert_eq!(members(), before, "no id was issued");
    servers.servers[1].restart();
    assert_eq!(json(&["get", "7", "--tree", "nums", "--json", "--cluster", &url])["value"].as_u64(), Some(7));
    clean(&url);
    Ok(())
}

#[test]
fn a_server_is_declared_lost_only_on_purpose_and_permanently() -> Result<(), Failure> {
    let mut servers = Servers::start(Transport::Tcp, 2, ON_FILES);
    let url = servers.url();
    fill(&url)?;
    let client = Cluster::open_with(&url, ClusterOptions::new().rejoin(false))?;
    let lost = |more: &[&str]| [&["declare-lost", "1", "--cluster", &url], more].concat().join(" ");
    let line = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let refuse = |text: String, words: &[&str]| {
        let args = line(&text);
        refused(&args.iter().map(String::as_str).collect::<Vec<_>>(), words);
    };
    refuse(lost(&["--yes"]), &["answers with its memory", "--force"]);
    refuse(lost(&["--force"]), &["--yes"]);
    refuse(lost(&["--yes"]).replace("lost 1", "lost 0"), &["memory server 0 keeps the members"]);
    refuse(lost(&["--yes"]).replace("lost 1", "lost 2"), &["there is no memory server 2"]);
    assert!(!client.is_fenced());
    servers.servers[1].kill();
    refuse(lost(&[]), &["--yes"]);
    let told = sherman(&["declare-lost", "1", "--yes", "--cluster", &url]);
    assert_eq!(told.status.code(), Some(0), "{}", text(&told.stderr));
    assert!(text(&told.stdout).contains("memory server 1 is declared lost"), "{}", text(&told.stdout));
    wait_until("every lease has ended", Duration::from_secs(10), || client.is_fenced());
    let again = json(&["declare-lost", "1", "--yes", "--json", "--cluster", &url]);
    assert_eq!(again["was_lost_before"].as_bool(), Some(true));
    servers.servers[1].restart();
    let cluster = Cluster::open(&url)?;
    let nums = cluster.tree::<u64, u64>("nums")?.client()?;
    let gone = (0..40_000).step_by(50).map(|key| nums.get(key)).find_map(Result::err);
    assert!(matches!(gone, Some(Error::ServerLost { server: 1 })), "{gone:?}");
    // New memory comes from the remaining server.
    let fresh = cluster.tree::<u64, u64>("fresh")?.client()?;
    for key in 0..5_000 {
        fresh.insert(key, key)?;
    }
    assert_eq!(fresh.get(4_999)?, Some(4_999));
    let listed = json(&["servers", "--json", "--cluster", &url]);
    assert_eq!(listed["servers"][1]["state"].as_str(), Some("lost"), "{listed}");
    let stats = json(&["stats", "--json", "--cluster", &url]);
    assert!(
        stats["servers"][1]["problem"].as_str().is_some_and(|problem| problem.contains("declared lost")),
        "{stats}"
    );
    Ok(())
}

#[test]
fn a_file_of_another_format_version_is_refused_with_what_to_do() -> Result<(), Failure> {
    let path = fresh_path("format-1.mem");
    let file = path.to_str().expect("text");
    let args = ["--listen", "tcp://127.0.0.1:0", "--memory", "64MiB", "--file", file];
    drop(crate::common::servers::Server::start(args.map(str::to_owned).to_vec()));
    // The superblock begins at the first page boundary after the on-chip memory. Its version follows its
    // magic.
    let mut bytes = std::fs::read(&path)?;
    let at = bytes.windows(8).position(|window| window == b"SHERMAN\0").ok_or("no superblock")?;
    bytes[at + 8] = 1;
    std::fs::write(&path, bytes)?;
    refused(
        &["serve", "--listen", "tcp://127.0.0.1:0", "--memory", "64MiB", "--file", file],
        &["format version 1; this build supports 4", "load them again"],
    );
    std::fs::remove_file(path)?;
    Ok(())
}
