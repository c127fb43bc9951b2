//! The rules of `CONTRIBUTING.md` that a program can check.

use sherman_tidy::{Source, root, sources};
use std::collections::{BTreeMap, BTreeSet};

/// The longest line of source and prose, in characters.
const WIDTH: usize = 110;

/// Files that may contain `unsafe`. Every other crate root forbids it.
const UNSAFE: &[&str] = &[
    "crates/embedded/src/copy.rs",
    "crates/embedded/src/gate.rs",
    "crates/embedded/src/line.rs",
    "crates/embedded/src/memory.rs",
    "crates/executor/src/outlined.rs",
    "crates/executor/src/owner.rs",
    "crates/pages/src/mapped.rs",
    "crates/pages/src/zeroed.rs",
    "crates/shm/src/peer.rs",
    "crates/shm/src/tests.rs",
    "crates/verbs/src/rdma/device.rs",
    "crates/verbs/src/rdma/endpoint.rs",
    "crates/verbs/src/rdma/masked.rs",
    "crates/verbs/src/rdma/memory.rs",
    "crates/verbs/src/rdma/path.rs",
    "crates/verbs/src/rdma/post.rs",
    "crates/verbs/src/rdma/queue.rs",
];

/// Words that hide the actor of a sentence, and private metaphors for things that the field has names for.
const FORBIDDEN: &[&str] = &[
    "whoever",
    "is told",
    "is had",
    "is at its end",
    "what is left of",
    "by and by",
    "of no account",
    "undertaker",
    "truce",
    "doomed",
    "laboratory",
    "for ever",
];

fn all() -> Vec<Source> {
    sources().expect("the files of the workspace")
}

/// Fails with every complaint, not with the first alone.
fn expect_none(rule: &str, complaints: &[String]) {
    assert!(complaints.is_empty(), "{rule}:\n{}", complaints.join("\n"));
}

/// The lines of a document outside of code blocks, with their numbers.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut fenced = false;
    let lines = text.lines().zip(1..).filter(move |(line, _)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fence && !fenced
    });
    lines.map(|(line, number)| (number, line)).collect()
}

#[test]
fn lines_are_at_most_110_characters_wide() {
    let mut complaints = Vec::new();
    for source in all() {
        let lines: Vec<(usize, &str)> = match source.path.as_str() {
            path if path.ends_with(".rs") => (1..).zip(source.text.lines()).collect(),
            path if path.ends_with(".md") => prose(&source.text),
            _ => continue,
        };
        for (number, line) in lines {
            // Rows of tables cannot be wrapped, and neither can a link.
            let is_row = line.trim_start_matches(['/', '!', ' ']).starts_with('|');
            let width = line.chars().count();
            if width > WIDTH && !is_row && !line.contains("http") {
                complaints.push(format!("{}:{number}: {width} characters", source.path));
            }
        }
    }
    expect_none("lines are too wide", &complaints);
}

#[test]
fn prose_names_its_actors_and_uses_the_words_of_the_field() {
    let mut complaints = Vec::new();
    for source in all().iter().filter(|source| source.is_rust() || source.is_document()) {
        if source.path.starts_with("crates/tidy/") || source.path == "CONTRIBUTING.md" {
            continue;
        }
        for (line, number) in source.text.lines().zip(1..) {
            let lower = line.to_lowercase();
            for word in FORBIDDEN {
                let found = lower.match_indices(word).any(|(at, _)| {
                    let ends = |next: Option<char>| next.is_none_or(|next| !next.is_alphanumeric());
                    ends(lower[..at].chars().next_back()) && ends(lower[at + word.len()..].chars().next())
                });
                if found {
                    complaints.push(format!("{}:{number}: {word:?}", source.path));
                }
            }
        }
    }
    expect_none("forbidden words", &complaints);
}

#[test]
fn unsafe_code_lies_in_a_few_known_files() {
    let (mut complaints, mut found) = (Vec::new(), BTreeSet::new());
    for source in all().iter().filter(|source| source.is_rust() && source.path.starts_with("crates/")) {
        let code = source.text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let unsafe_code = code.clone().any(|line| {
            ["unsafe {", "unsafe fn ", "unsafe impl", "unsafe extern ", "unsafe trait "]
                .iter()
                .any(|form| line.contains(form) && !line.contains('"'))
        });
        if unsafe_code {
            found.insert(source.path.clone());
            if !UNSAFE.contains(&source.path.as_str()) {
                complaints.push(format!("{} contains unsafe code and is not listed", source.path));
            }
        }
        let is_root = source.path.ends_with("/src/lib.rs") || source.path.ends_with("/src/main.rs");
        let crate_folder = source.path.split("/src/").next().unwrap_or_default();
        if is_root && !UNSAFE.iter().any(|path| path.starts_with(&format!("{crate_folder}/"))) {
            let forbids = code.clone().any(|line| line.contains("forbid(unsafe_code)"));
            if !forbids {
                complaints.push(format!("{} does not forbid unsafe code", source.path));
            }
        }
    }
    let gone = UNSAFE.iter().filter(|path| !found.contains(**path));
    complaints.extend(gone.map(|path| format!("{path} is listed and contains no unsafe code")));
    expect_none("unsafe code", &complaints);
}

/// The crates of ARCHITECTURE's map, from the top down.
fn map(architecture: &str) -> Vec<&str> {
    let map = architecture.split("## The map").nth(1).and_then(|rest| rest.split("```").nth(1));
    let lines = map.expect("a map").lines().filter_map(|line| line.trim().strip_prefix("crates/"));
    lines.filter_map(|line| line.split_whitespace().next()).collect()
}

/// The folders of the crates by package, and the packages of this workspace that each depends on.
fn manifests(sources: &[Source]) -> BTreeMap<String, (String, Vec<String>)> {
    let mut manifests = BTreeMap::new();
    for source in sources.iter().filter(|source| source.path.ends_with("/Cargo.toml")) {
        let Some(folder) =
            source.path.strip_prefix("crates/").and_then(|path| path.strip_suffix("/Cargo.toml"))
        else {
            continue;
        };
        let (mut name, mut section, mut depends) = (String::new(), "", Vec::new());
        for line in source.text.lines() {
            if line.starts_with('[') {
                section = line;
            } else if let Some(quoted) = line.strip_prefix("name = \"").filter(|_| section == "[package]") {
                name = quoted.trim_end_matches('"').to_owned();
            } else if section.ends_with("dependencies]") && !section.contains("dev-dependencies") {
                let package = line.split([' ', '=']).next().unwrap_or_default();
                depends.extend(package.starts_with("sherman-").then(|| package.to_owned()));
            }
        }
        manifests.insert(name, (folder.to_owned(), depends));
    }
    manifests
}

#[test]
fn dependencies_point_down_the_map_of_the_architecture() {
    let sources = all();
    let architecture =
        sources.iter().find(|source| source.path == "ARCHITECTURE.md").expect("ARCHITECTURE.md");
    let (map, manifests) = (map(&architecture.text), manifests(&sources));
    let row = |folder: &str| map.iter().position(|row| *row == folder);
    let mut complaints = Vec::new();
    for (folder, depends) in manifests.values() {
        let Some(own) = row(folder) else {
            complaints.push(format!("crates/{folder} is missing in the map"));
            continue;
        };
        for package in depends {
            let below = manifests.get(package).and_then(|(folder, _)| row(folder));
            if below.is_none_or(|below| below <= own) {
                complaints.push(format!("crates/{folder} depends on {package}, which is not below it"));
            }
        }
    }
    let folders: BTreeSet<&str> = manifests.values().map(|(folder, _)| folder.as_str()).collect();
    let unknown = map.iter().filter(|row| !folders.contains(**row));
    complaints.extend(unknown.map(|row| format!("the map names crates/{row}, which does not exist")));
    expect_none("the map of ARCHITECTURE.md", &complaints);
}

/// The rows of ARCHITECTURE's table of dependencies: each crate, and the crates that it depends on.
fn table(architecture: &str) -> Vec<(&str, Vec<&str>)> {
    let table = architecture.split("## The map").nth(1).and_then(|rest| rest.split("```").nth(3));
    let rows = table.expect("a table").lines().skip(1).map(str::split_whitespace);
    rows.filter_map(|mut row| Some((row.next()?, row.collect()))).collect()
}

#[test]
fn the_table_of_dependencies_is_what_the_manifests_say() {
    let sources = all();
    let architecture =
        sources.iter().find(|source| source.path == "ARCHITECTURE.md").expect("ARCHITECTURE.md");
    let (map, manifests) = (map(&architecture.text), manifests(&sources));
    let row = |folder: &str| map.iter().position(|row| *row == folder);
    let mut depends = BTreeMap::new();
    for (folder, packages) in manifests.values() {
        let folders = packages.iter().filter_map(|package| manifests.get(package));
        let mut folders: Vec<&str> = folders.map(|(folder, _)| folder.as_str()).collect();
        folders.sort_by_key(|folder| row(folder));
        folders.dedup();
        depends.insert(folder.as_str(), folders);
    }
    let due: Vec<(&str, Vec<&str>)> =
        map.iter().map(|folder| (*folder, depends.get(folder).cloned().unwrap_or_default())).collect();
    let found = table(&architecture.text);
    let wrong = due.iter().enumerate().filter(|(at, row)| found.get(*at) != Some(row));
    let mut complaints: Vec<String> =
        wrong.map(|(_, (folder, depends))| format!("must say: {folder} {}", depends.join(" "))).collect();
    complaints.extend(found.iter().skip(due.len()).map(|(folder, _)| format!("{folder}: no such row")));
    expect_none("the dependencies of ARCHITECTURE.md", &complaints);
}

#[test]
fn published_packages_depend_on_published_ones() {
    let sources = all();
    let script = std::fs::read_to_string(root().join(".ci/run")).expect(".ci/run");
    let list = script.split("cargo package ").nth(1).and_then(|rest| rest.split("\nrm ").next());
    let published: BTreeSet<&str> = list
        .expect("a list of packages")
        .split_whitespace()
        .filter(|word| word.starts_with("sherman-"))
        .collect();
    let manifests = manifests(&sources);
    let mut complaints = Vec::new();
    for package in &published {
        let Some((folder, depends)) = manifests.get(*package) else {
            complaints.push(format!("{package} does not exist"));
            continue;
        };
        let manifest = format!("crates/{folder}/Cargo.toml");
        let text = sources.iter().find(|source| source.path == manifest).map_or("", |source| &source.text);
        if text.contains("publish = false") {
            complaints.push(format!("{package} says that it is not published"));
        }
        // With a version it would have to be in the registry before it can be packaged.
        if text.contains(&format!("\n{package} = {{ workspace")) {
            complaints.push(format!("{package} depends on itself by version: write path = \".\""));
        }
        let missing = depends.iter().filter(|depends| !published.contains(depends.as_str()));
        complaints.extend(missing.map(|depends| format!("{package} depends on {depends}, which is missing")));
    }
    assert!(published.len() > 8, "{published:?}");
    expect_none("the packages of .ci/run", &complaints);
}

/// The links of a document: their text and target.
fn links(text: &str) -> Vec<(&str, &str)> {
    let mut links = Vec::new();
    for (_, line) in prose(text) {
        for (at, _) in line.match_indices("](") {
            let target = line[at + 2..].split(')').next().unwrap_or_default();
            let label = line[..at].rsplit('[').next().unwrap_or_default();
            links.push((label, target));
        }
    }
    links
}

#[test]
fn links_of_documents_lead_to_files_and_headings() {
    let (root, mut complaints) = (root(), Vec::new());
    for source in all().iter().filter(|source| source.is_document()) {
        let folder = source.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (label, target) in links(&source.text) {
            if target.contains("://") || target.is_empty() {
                continue;
            }
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let path = if file.is_empty() { root.join(&source.path) } else { root.join(folder).join(file) };
            if !path.exists() {
                complaints
                    .push(format!("{}: [{label}] leads to {target}, which does not exist", source.path));
                continue;
            }
            if !heading.is_empty() {
                let text = std::fs::read_to_string(&path).expect("a document");
                if !headings(&text).contains(heading) {
                    complaints.push(format!("{}: {target} leads to no heading", source.path));
                }
            }
        }
    }
    expect_none("links", &complaints);
}

/// The anchors of a document's headings.
fn headings(text: &str) -> BTreeSet<String> {
    let lines = prose(text).into_iter().map(|(_, line)| line).filter(|line| line.starts_with('#'));
    let anchor = |line: &str| {
        let words = line.trim_start_matches('#').trim().to_lowercase();
        let kept =
            words.chars().filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
        kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
    };
    lines.map(anchor).collect()
}

/// ARCHITECTURE names functions as "`Type::function` in [`file`](file)": the file must define the function.
#[test]
fn functions_of_the_architecture_s_walk_exist_where_it_says() {
    let sources = all();
    let text = &sources.iter().find(|source| source.path == "ARCHITECTURE.md").expect("ARCHITECTURE.md").text;
    let text: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (mut complaints, mut seen) = (Vec::new(), 0);
    for (at, _) in text.match_indices("` in [`") {
        let name = text[..at].rsplit('`').next().unwrap_or_default();
        let file = text[at + 7..].split('`').next().unwrap_or_default();
        let Some(source) = sources.iter().find(|source| source.path == file) else {
            complaints.push(format!("{name}: no file {file}"));
            continue;
        };
        let item = name.rsplit("::").next().unwrap_or_default().trim_end_matches("()");
        let defines = ["fn ", "struct ", "enum ", "trait ", "const ", "mod "]
            .iter()
            .any(|kind| source.text.contains(&format!("{kind}{item}")));
        seen += 1;
        if !defines {
            complaints.push(format!("{file} does not define {name}"));
        }
    }
    assert!(seen > 10, "the walk names {seen} functions");
    expect_none("the walk of ARCHITECTURE.md", &complaints);
}
