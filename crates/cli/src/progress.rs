//! The bar on a terminal; nothing anywhere else.

use indicatif::{ProgressBar, ProgressStyle};
use sherman_eval::{Length, Progress};
use std::io::IsTerminal;
use std::time::Duration;

/// Steps of the bar while measuring by time.
const MILLIS: f64 = 1000.0;

/// A bar on stderr, if that is a terminal.
pub struct Bar {
    bar: ProgressBar,
    length: Length,
}

impl Bar {
    /// A bar for a run of `length`.
    pub fn new(length: Length) -> Self {
        let bar = if std::io::stderr().is_terminal() { ProgressBar::new(0) } else { ProgressBar::hidden() };
        if let Ok(style) = ProgressStyle::with_template("{msg:<20} {wide_bar} {percent:>3} %") {
            bar.set_style(style);
        }
        Self { bar, length }
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
