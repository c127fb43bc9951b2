//! Reads the files of this workspace for `tests/tidy.rs`, which checks the rules of `CONTRIBUTING.md`.

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};

/// A text file of the workspace.
#[derive(Debug)]
pub struct Source {
    /// Its path from the root of the workspace, with `/` between the parts.
    pub path: String,
    /// Its contents.
    pub text: String,
}

impl Source {
    /// Whether the file is Rust source.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether the file is a document.
    pub fn is_document(&self) -> bool {
        self.path.ends_with(".md")
    }
}

/// The root of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every Rust, Markdown and TOML file of the workspace, of `fuzz` and of `peers`, in the order of their
/// paths.
///
/// # Errors
/// Those of reading files.
pub fn sources() -> std::io::Result<Vec<Source>> {
    let mut sources = Vec::new();
    let root = root();
    for name in ["crates", "docs", "fuzz", "peers"] {
        collect(&root.join(name), name, &mut sources)?;
    }
    for entry in std::fs::read_dir(&root)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            add(&entry.path(), entry.file_name().to_string_lossy().into_owned(), &mut sources)?;
        }
    }
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(sources)
}

fn collect(folder: &Path, name: &str, sources: &mut Vec<Source>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let file = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{name}/{file}");
        if entry.file_type()?.is_dir() {
            // Build output and corpora are not ours to tidy.
            if !matches!(file.as_str(), "target" | "corpus" | "artifacts") {
                collect(&entry.path(), &path, sources)?;
            }
        } else {
            add(&entry.path(), path, sources)?;
        }
    }
    Ok(())
}

fn add(file: &Path, path: String, sources: &mut Vec<Source>) -> std::io::Result<()> {
    if [".rs", ".md", ".toml"].iter().any(|ending| path.ends_with(ending)) {
        sources.push(Source { path, text: std::fs::read_to_string(file)? });
    }
    Ok(())
}
