//! Where results go: a table to stdout, JSON to its file or instead of the table.

use crate::failure::Failure;
use std::fmt::Display;
use std::io::Write;
use std::path::Path;

/// Writes a result: to stdout for people, and, where it is asked for, as `json`.
pub fn write(report: &dyn Display, json: serde_json::Result<String>, path: Option<&Path>) -> Result<(), Failure> {
    let json = json.map(|text| text + "\n").map_err(|error| Failure::Runtime(format!("writing JSON: {error}")));
    match path {
        Some(path) if is_stdout(path) => print(&json?),
        Some(path) => {
            std::fs::write(path, json?)
                .map_err(|error| Failure::Runtime(format!("writing {}: {error}", path.display())))?;
            print(&format!("{report}\n"))
        }
        None => print(&format!("{report}\n")),
    }
}

fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Complains about a file that cannot be written before the run, not after; creates nothing.
pub fn check_path(path: Option<&Path>) -> Result<(), Failure> {
    let Some(path) = path.filter(|path| !is_stdout(path)) else { return Ok(()) };
    if path.is_dir() {
        return Err(Failure::option("json", format!("{} is a directory, not a file", path.display())));
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if path.file_name().is_none() || !parent.is_dir() {
        return Err(Failure::option("json", format!("there is no directory {}", parent.display())));
    }
    Ok(())
}

/// Writes to stdout. A reader that went away is no failure of ours.
pub fn print(text: &str) -> Result<(), Failure> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::Runtime(format!("writing to stdout: {error}")))
        }
        _ => Ok(()),
    }
}
