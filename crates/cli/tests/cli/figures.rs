//! `sherman figures`, by the real command.

use crate::common::{fresh_path, sherman, text};
use serde_json::Value;

/// Asserts that `sherman figures` with `args` is refused on one line with all of `words`.
fn refuses(args: &[&str], words: &[&str]) {
    let output = sherman(&[&["figures"], args].concat());
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
    assert!(stderr.starts_with("error: ") && stderr.lines().count() == 1, "{args:?}: {stderr}");
    for word in words {
        assert!(stderr.contains(word), "{args:?} should say {word:?}: {stderr}");
    }
    assert!(output.stdout.is_empty(), "{args:?}: {}", text(&output.stdout));
}

#[test]
fn what_cannot_be_asked_is_refused_before_any_experiment() {
    let out = fresh_path("figures-refused");
    let name = out.to_str().expect("UTF-8");
    refuses(&[], &["--out"]);
    refuses(
        &["--quick", "--out", name, "--only", "figure-99"],
        &["--only", "\"figure-99\"", "hocl", "scalability"],
    );
    refuses(&["--out", name, "--threads", "0"], &["--threads", "1 to 1024"]);
    refuses(&["--out", name, "--threads", "some"], &["--threads", "1 to 1024"]);
    refuses(&["--out", name, "--seed", "-1"], &["--seed"]);
    refuses(&["--out", name, "--slow"], &["--slow"]);
    assert!(!out.exists(), "what is refused creates nothing");
}

#[test]
fn a_folder_that_cannot_be_written_is_refused_before_any_experiment() {
    let file = fresh_path("figures-file");
    std::fs::write(&file, "").expect("a file");
    for out in [file.clone(), file.join("below")] {
        refuses(&["--out", out.to_str().expect("UTF-8")], &["--out", "cannot write", "is a file"]);
    }
    refuses(&["--out", "/proc/figures"], &["--out", "cannot write /proc/figures"]);
    refuses(&["--out", ""], &["--out"]);
    std::fs::remove_file(file).expect("the file goes");
}

#[test]
fn figures_are_listed_without_a_folder() {
    let output = sherman(&["figures", "--list"]);
    let names = text(&output.stdout);
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
    assert!(
        names.contains("ablation-skewed") && names.contains("table-2") && names.lines().count() >= 16,
        "{names}"
    );
    let output = sherman(&["figures", "--list", "--json", "--only", "hocl"]);
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON and nothing else on stdout");
    assert_eq!(
        (json["figures"].as_array().map(Vec::len), json["figures"][0]["name"].as_str()),
        (Some(1), Some("hocl"))
    );
}

#[test]
fn a_figure_without_experiments_is_made_at_once_and_again_the_same() {
    let out = fresh_path("figures-made");
    let name = out.to_str().expect("UTF-8");
    let mut made = Vec::new();
    for _ in 0..2 {
        let output = sherman(&["figures", "--quick", "--only", "table-2", "--out", name, "--json"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let json: Value = serde_json::from_slice(&output.stdout).expect("JSON and nothing else on stdout");
        assert_eq!(json["figures"], serde_json::json!(["table-2"]));
        assert!(json["page"].as_str().expect("a page").ends_with("index.html"));
        let files = ["results.json", "claims.md", "table-2.svg", "index.html"];
        made.push(files.map(|file| std::fs::read_to_string(out.join(file)).expect("a file")));
    }
    assert!(made[0] == made[1]);
    let results: Value = serde_json::from_str(&made[0][0]).expect("JSON");
    assert_eq!((results["schema"].as_u64(), results["scale"]["quick"].as_bool()), (Some(1), Some(true)));
    let told = sherman(&["figures", "--quick", "--only", "table-2", "--out", name]);
    let told = text(&told.stdout);
    assert!(told.contains("index.html") && told.contains("judged 0"), "{told}");
    std::fs::remove_dir_all(out).expect("the folder goes");
}

#[test]
fn help_says_what_is_written() {
    let output = sherman(&["figures", "--help"]);
    let help = text(&output.stdout);
    for word in ["--quick", "--only", "--out", "results.json", "claims.md", ".cache", "Examples", "Exit code"]
    {
        assert!(help.contains(word), "{word}: {help}");
    }
}
