//! Where results go: a table or JSON to stdout, and JSON to a file.

use crate::failure::Failure;
use clap::Args;
use std::fmt::Display;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Writes a result to stdout: as JSON if `as_json`, else as text.
pub fn write(report: &dyn Display, json: serde_json::Result<String>, as_json: bool) -> Result<(), Failure> {
    print(&if as_json { document(json)? } else { format!("{report}\n") })
}

fn document(json: serde_json::Result<String>) -> Result<String, Failure> {
    json.map(|text| text + "\n").map_err(|error| Failure::Runtime(format!("cannot write JSON: {error}")))
}

/// Where a measurement goes.
#[derive(Debug, Default, Args)]
pub struct ReportArgs {
    /// Print the result as JSON, and nothing else, to stdout
    #[arg(long, help_heading = "Output")]
    pub json: bool,

    /// Write the result as JSON to FILE, too
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub json_out: Option<PathBuf>,
}

impl ReportArgs {
    /// Refuses a file that cannot be written, before the run instead of after it. Creates nothing.
    pub fn check_path(&self) -> Result<(), Failure> {
        let Some(path) = &self.json_out else { return Ok(()) };
        let refused = |reason: String| Err(Failure::option("json-out", reason));
        if path.as_os_str() == "-" {
            return refused("- is not a file; --json prints JSON to stdout".to_owned());
        }
        if path.is_dir() {
            return refused(format!("{} is a directory, not a file", path.display()));
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if path.file_name().is_none() || !parent.is_dir() {
            return refused(format!("there is no directory {}", parent.display()));
        }
        Ok(())
    }

    /// Writes a result to stdout, and to the file if there is one.
    pub fn write(&self, report: &dyn Display, json: serde_json::Result<String>) -> Result<(), Failure> {
        let json = document(json)?;
        if let Some(path) = &self.json_out {
            std::fs::write(path, &json)
                .map_err(|error| Failure::Runtime(format!("cannot write {}: {error}", path.display())))?;
        }
        print(&if self.json { json } else { format!("{report}\n") })
    }
}

/// Writes to stdout. A reader that closed the pipe is not a failure.
pub fn print(text: &str) -> Result<(), Failure> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::Runtime(format!("cannot write to stdout: {error}")))
        }
        _ => Ok(()),
    }
}
