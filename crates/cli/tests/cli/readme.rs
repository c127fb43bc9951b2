//! The commands of README.md and docs/OPERATIONS.md work: these tests run every command of the sections about
//! clusters, in order, in one shell.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

/// The shell commands under a heading of a document, block by block.
fn blocks(document: &str, heading: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(document);
    let text = std::fs::read_to_string(path).expect("the document");
    let section = text.split("\n## ").find(|section| section.starts_with(heading)).expect("the section");
    let blocks = section.split("```sh\n").skip(1);
    blocks.map(|block| block.split("```").next().expect("its end").to_owned()).collect()
}

/// A port on which probably no process listens for a while.
fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    listener.local_addr().expect("its address").port()
}

/// Runs a block of commands in one shell, on free ports. Returns what it printed.
fn run(mut block: String, name: &str) -> String {
    let binary = Path::new(env!("CARGO_BIN_EXE_sherman")).parent().expect("a directory");
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").expect("a path"));
    for port in ["7000", "7001", "7002", "7010", "9100"] {
        block = block.replace(&format!(":{port}"), &format!(":{}", free_port()));
    }
    let directory = crate::common::fresh_path(name);
    std::fs::create_dir_all(&directory).expect("a directory");
    let script = format!("set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT\n{block}");
    let output = Command::new("timeout")
        .args(["60", "bash", "-c", &script])
        .env("PATH", &path)
        .env_remove("SHERMAN_CLUSTER")
        .current_dir(&directory)
        .output()
        .expect("a shell");
    let said = format!("{}\n{}", crate::common::text(&output.stdout), crate::common::text(&output.stderr));
    assert!(output.status.success(), "{script}\n{said}");
    std::fs::remove_dir_all(&directory).expect("its files go");
    said
}

#[test]
fn every_command_about_a_cluster_works() {
    let blocks = blocks("README.md", "Run a cluster");
    assert_eq!(blocks.len(), 3);
    for (number, block) in blocks.into_iter().enumerate() {
        let said = run(block, &format!("readme-{number}"));
        let expected = ["1000\t100000", "700", "1815"][number];
        assert!(said.contains(expected), "{said}");
    }
}

/// Runs the one block under a heading of docs/OPERATIONS.md. It prints all of these words.
fn operate(heading: &str, words: &[&str]) {
    let blocks = blocks("docs/OPERATIONS.md", heading);
    assert_eq!(blocks.len(), 1);
    for block in blocks {
        let said = run(block, "operations");
        for words in words {
            assert!(said.contains(words), "{words:?}: {said}");
        }
    }
    for block in self::blocks("docs/OPERATIONS.md", "One host") {
        let said = run(block, "one-host");
        assert!(said.contains("\n700\n"), "{said}");
    }
}

#[test]
fn every_command_about_hosts_works() {
    operate("Start a cluster", &["\n700\n", "leader tcp://127.0.0.1:", "lost"]);
}

#[test]
fn every_command_about_growing_and_shrinking_works() {
    operate("Grow and shrink", &["spread evenly", "host 0 has left the cluster", "\n700\n"]);
}
