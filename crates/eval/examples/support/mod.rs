//! Options and result files of the examples.

use serde::Serialize;
use sherman_eval::BenchError;
use std::fmt::Display;
use std::path::PathBuf;
use std::process::ExitCode;

/// Options that have not been taken yet.
pub struct Options {
    usage: &'static str,
    left: Vec<(String, String)>,
}

/// Prints the error and the usage, and exits.
fn refuse(usage: &str, reason: impl Display) -> ! {
    eprintln!("error: {reason}\n{usage}");
    std::process::exit(2)
}

impl Options {
    /// Reads the options of the command line: names with dashes, each with a value.
    pub fn of_command_line(usage: &'static str) -> Self {
        let mut words = std::env::args().skip(1);
        let mut left = Vec::new();
        while let Some(word) = words.next() {
            if word == "--help" || word == "-h" {
                println!("{usage}");
                std::process::exit(0)
            }
            let Some(name) = word.strip_prefix("--") else { refuse(usage, format!("{word} is no option")) };
            let Some(value) = words.next() else { refuse(usage, format!("--{name} needs a value")) };
            left.push((name.to_owned(), value));
        }
        Self { usage, left }
    }

    fn take(&mut self, name: &str) -> Option<String> {
        let at = self.left.iter().position(|(given, _)| given == name)?;
        Some(self.left.remove(at).1)
    }

    /// Takes a number, as in 500k or 10M.
    pub fn number(&mut self, name: &str, otherwise: u64) -> u64 {
        let Some(text) = self.take(name) else { return otherwise };
        let (digits, unit) = match text.as_bytes().last() {
            Some(b'k') => (&text[..text.len() - 1], 1_000),
            Some(b'M') => (&text[..text.len() - 1], 1_000_000),
            _ => (&text[..], 1),
        };
        let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
        number.unwrap_or_else(|| {
            refuse(self.usage, format!("--{name}: write a whole number, as in 500k or 10M"))
        })
    }

    /// Takes the path for JSON. No other option may be left.
    pub fn json(mut self) -> Option<PathBuf> {
        let json = self.take("json").map(PathBuf::from);
        if let Some((name, _)) = self.left.first() {
            refuse(self.usage, format!("there is no option --{name}"));
        }
        json
    }
}

/// Prints a result, and writes it to its file if there is one. `holds` says whether the result meets the
/// claim.
pub fn finish<T: Display + Serialize>(
    result: Result<T, BenchError>,
    json: Option<PathBuf>,
    holds: impl FnOnce(&T) -> bool,
) -> ExitCode {
    let result = match result {
        Ok(result) => result,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    println!("{result}");
    if let Some(path) = json {
        let written = serde_json::to_string_pretty(&result).map_err(|error| error.to_string());
        let written =
            written.and_then(|text| std::fs::write(&path, text + "\n").map_err(|error| error.to_string()));
        if let Err(error) = written {
            eprintln!("error: writing {}: {error}", path.display());
            return ExitCode::from(2);
        }
    }
    if holds(&result) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
