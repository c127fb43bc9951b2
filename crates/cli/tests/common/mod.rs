//! Running the real command.
#![allow(dead_code)] // Each test file uses its part.

pub mod servers;
pub mod writers;

use std::path::PathBuf;
use std::process::{Command, Output};

/// Runs `sherman` with these arguments to its end.
pub fn sherman(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sherman")).args(args).output().expect("the command starts")
}

/// A path for a test's own file, where none is.
pub fn fresh_path(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

/// What it said.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}
