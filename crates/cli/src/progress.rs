//! How far it is, on stderr: a bar on a terminal; anywhere else nothing from a benchmark, and a line for each step of a check.

use indicatif::{ProgressBar, ProgressStyle};
use sherman_eval::check::CheckProgress;
use sherman_eval::{Length, Progress};
use std::cell::Cell;
use std::io::IsTerminal;
use std::time::Duration;

/// Steps of the bar while measuring by time.
const MILLIS: f64 = 1000.0;

/// A bar on stderr, if that is a terminal, with a message of so many columns.
fn bar(columns: usize) -> ProgressBar {
    let bar = if std::io::stderr().is_terminal() { ProgressBar::new(0) } else { ProgressBar::hidden() };
    if let Ok(style) = ProgressStyle::with_template(&format!("{{msg:<{columns}}} {{wide_bar}} {{percent:>3}} %")) {
        bar.set_style(style);
    }
    bar
}

/// A benchmark's.
pub struct Bar {
    bar: ProgressBar,
    length: Length,
}

impl Bar {
    /// A bar for a run of `length`.
    pub fn new(length: Length) -> Self {
        Self { bar: bar(20), length }
    }

    /// Shows how far run `number` of `runs` is.
    pub fn show(&self, number: usize, runs: usize, progress: Progress) {
        let (message, done, total) = match progress {
            Progress::Loading(done, total) => ("loading", done, total),
            Progress::WarmingUp => ("warming up", 0, 1),
            Progress::Measuring(elapsed) => self.measuring(elapsed),
            Progress::Checking => ("checking", 0, 1),
        };
        self.bar.set_length(total);
        self.bar.set_position(done);
        let of = if runs > 1 { format!("run {}/{runs} ", number + 1) } else { String::new() };
        self.bar.set_message(format!("{of}{message}"));
    }

    /// By time it is known how far; by operations only that it goes on.
    fn measuring(&self, elapsed: Duration) -> (&'static str, u64, u64) {
        match self.length {
            Length::Seconds(seconds) => ("measuring", elapsed.as_millis() as u64, (seconds * MILLIS) as u64),
            Length::Operations(_) => ("measuring", 0, 1),
        }
    }

    /// Takes it away.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

/// A check's.
pub struct CheckBar {
    bar: ProgressBar,
    /// The step that was told last, where there is no bar.
    step: Cell<u8>,
}

impl Default for CheckBar {
    fn default() -> Self {
        Self { bar: bar(36), step: Cell::new(0) }
    }
}

impl CheckBar {
    /// Shows how far the check is.
    pub fn show(&self, progress: CheckProgress) {
        let (step, message, done, total) = match progress {
            CheckProgress::Loading(done, total) => (1, format!("loading {total} keys"), done, total),
            CheckProgress::WhileWriting(threads, elapsed, length, checks) => {
                let message = format!("checking while {threads} threads write");
                let message = if self.bar.is_hidden() { message } else { format!("{message}: {checks}") };
                (2, message, elapsed.as_millis() as u64, length.as_millis() as u64)
            }
            CheckProgress::AtRest => (3, "checking".to_owned(), 0, 1),
        };
        if self.bar.is_hidden() {
            if self.step.replace(step) != step {
                eprintln!("{message}");
            }
            return;
        }
        self.bar.set_length(total);
        self.bar.set_position(done);
        self.bar.set_message(message);
    }

    /// Takes it away.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

/// An exploration's.
pub struct SimBar {
    bar: ProgressBar,
}

impl SimBar {
    /// A bar for so many schedules.
    pub fn new(schedules: u64) -> Self {
        let bar = bar(36);
        bar.set_length(schedules);
        Self { bar }
    }

    /// Shows how many are done, and how many violated something.
    pub fn show(&self, done: u64, violated: u64) {
        self.bar.set_position(done);
        let violations = if violated == 0 { "no violation".to_owned() } else { format!("{violated} violations") };
        self.bar.set_message(format!("exploring schedules: {violations}"));
    }

    /// Takes it away.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

/// That of entries on their way from or to a file.
pub struct FileBar {
    bar: ProgressBar,
}

impl FileBar {
    /// A bar for a file of so many bytes, if that is known.
    pub fn new(bytes: Option<u64>) -> Self {
        let bar = match bytes {
            Some(bytes) => {
                let bar = bar(24);
                bar.set_length(bytes);
                bar
            }
            None if std::io::stderr().is_terminal() => ProgressBar::new_spinner(),
            None => ProgressBar::hidden(),
        };
        Self { bar }
    }

    /// None to be seen.
    pub fn hidden() -> Self {
        Self { bar: ProgressBar::hidden() }
    }

    /// Shows how many bytes and entries have been read or written.
    pub fn show(&self, bytes: u64, entries: u64) {
        if self.bar.is_hidden() {
            return;
        }
        self.bar.set_position(bytes);
        self.bar.set_message(format!("{} entries", sherman_eval::report::grouped(entries)));
        if self.bar.length().is_none() {
            self.bar.tick();
        }
    }

    /// Takes it away.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}
