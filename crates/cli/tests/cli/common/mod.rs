//! Running the real command.
#![allow(dead_code)] // Each test file uses its part.

pub mod servers;
pub mod writers;

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// For tests whose clients have to keep their leases while others fill every processor: one of them at a time.
pub fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The command: where it was built, unless the environment says where it has been brought.
pub fn program() -> PathBuf {
    std::env::var_os("SHERMAN_BIN").map_or_else(|| env!("CARGO_BIN_EXE_sherman").into(), PathBuf::from)
}

/// `sherman` with these arguments, wherever the tests themselves are run.
pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(args).env_remove("SHERMAN_CLUSTER");
    command
}

/// Runs `sherman` with these arguments to its end.
pub fn sherman(args: &[&str]) -> Output {
    command(args).output().expect("the command starts")
}

/// Runs it with this on its stdin.
pub fn run(args: &[&str], input: &str) -> Output {
    let mut command = command(args);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    // One that ends early reads only a part.
    let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
    child.wait_with_output().expect("it ends")
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
