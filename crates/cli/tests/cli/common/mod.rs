//! Runs the real command.
#![allow(dead_code)] // Each test file uses its part.

pub mod namespaces;
pub mod servers;
pub mod writers;

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Runs one such test at a time: its clients must keep their leases while other tests load every processor.
pub fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The path of the command: `SHERMAN_BIN` if it is set, otherwise the path where cargo built it.
pub fn program() -> PathBuf {
    std::env::var_os("SHERMAN_BIN").map_or_else(|| env!("CARGO_BIN_EXE_sherman").into(), PathBuf::from)
}

/// `sherman` with these arguments, independent of the environment of the tests.
pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(args).env_remove("SHERMAN_CLUSTER");
    command
}

/// Runs `sherman` with these arguments until it ends.
pub fn sherman(args: &[&str]) -> Output {
    command(args).output().expect("the command starts")
}

/// Runs `sherman` with `input` on its stdin.
pub fn run(args: &[&str], input: &str) -> Output {
    let mut command = command(args);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    // A command that ends early reads only a part.
    let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
    child.wait_with_output().expect("it ends")
}

/// A path for a test's own file. No file exists there.
pub fn fresh_path(name: &str) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{number}-{name}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

/// A file with a secret. Only its owner may read it.
pub fn secret_file(name: &str, secret: &str) -> PathBuf {
    let path = fresh_path(name);
    write_private(&path, secret);
    path
}

/// Writes a file that only its owner may read.
pub fn write_private(path: &Path, text: &str) {
    let mut open = OpenOptions::new();
    let mut file = open.write(true).create_new(true).mode(0o600).open(path).expect("a new file");
    file.write_all(text.as_bytes()).expect("a disk with room");
}

/// Whether the text is a UTC time in RFC 3339 format, with milliseconds.
pub fn is_a_time(text: &str) -> bool {
    let shape: String =
        text.chars().map(|letter| if letter.is_ascii_digit() { '0' } else { letter }).collect();
    shape == "0000-00-00T00:00:00.000Z"
}

/// Output of a command as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}
