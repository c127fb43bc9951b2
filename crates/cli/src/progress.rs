//! Shows progress on stderr. On a terminal it is a bar. Elsewhere a benchmark prints nothing, a check prints
//! one line per step, and figures print a line at intervals.

use indicatif::{ProgressBar, ProgressStyle};
use sherman_eval::check::CheckProgress;
use sherman_eval::figures;
use sherman_eval::{Length, Progress};
use std::cell::Cell;
use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Steps of the bar per second, if the run measures by time.
const MILLIS: f64 = 1000.0;

/// Makes a bar on stderr, with a message of this many columns. The bar is hidden if stderr is not a terminal.
fn bar(columns: usize) -> ProgressBar {
    let bar = if std::io::stderr().is_terminal() { ProgressBar::new(0) } else { ProgressBar::hidden() };
    if let Ok(style) =
        ProgressStyle::with_template(&format!("{{msg:<{columns}}} {{wide_bar}} {{percent:>3}} %"))
    {
        bar.set_style(style);
    }
    bar
}

/// The bar of a benchmark.
pub struct Bar {
    bar: ProgressBar,
    length: Length,
}

impl Bar {
    /// Makes a bar for a run of `length`.
    pub fn new(length: Length) -> Self {
        Self { bar: bar(20), length }
    }

    /// Shows the progress of run `number` of `runs`.
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

    /// Returns the progress of a run by time. The progress of a run by operations is unknown.
    fn measuring(&self, elapsed: Duration) -> (&'static str, u64, u64) {
        match self.length {
            Length::Seconds(seconds) => ("measuring", elapsed.as_millis() as u64, (seconds * MILLIS) as u64),
            Length::Operations(_) => ("measuring", 0, 1),
        }
    }

    /// Removes the bar.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

/// The bar of a check.
pub struct CheckBar {
    bar: ProgressBar,
    /// The step printed last, if there is no bar.
    step: Cell<u8>,
}

impl Default for CheckBar {
    fn default() -> Self {
        Self { bar: bar(36), step: Cell::new(0) }
    }
}

impl CheckBar {
    /// Shows the progress of the check.
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

    /// Removes the bar.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

/// The bar of an exploration.
pub struct SimBar {
    bar: ProgressBar,
}

impl SimBar {
    /// Makes a bar for this many schedules.
    pub fn new(schedules: u64) -> Self {
        let bar = bar(36);
        bar.set_length(schedules);
        Self { bar }
    }

    /// Shows how many schedules are done, and how many of them violated a property.
    pub fn show(&self, done: u64, violated: u64) {
        self.bar.set_position(done);
        let violations =
            if violated == 0 { "no violation".to_owned() } else { format!("{violated} violations") };
        self.bar.set_message(format!("exploring schedules: {violations}"));
    }

    /// Removes the bar.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

/// The bar of a table of experiments.
pub struct ExperimentsBar {
    bar: ProgressBar,
}

impl Default for ExperimentsBar {
    fn default() -> Self {
        Self { bar: bar(36) }
    }
}

impl ExperimentsBar {
    /// Shows how many of all experiments are done.
    pub fn show(&self, done: usize, all: usize) {
        self.bar.set_length(all as u64);
        self.bar.set_position(done as u64);
        self.bar.set_message(format!("{done} of {all} experiments"));
    }

    /// Removes the bar.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

/// The least time between two lines, if there is no bar.
const SILENCE: Duration = Duration::from_secs(20);

/// The bar of figures. Experiments end on many threads.
pub struct FiguresBar {
    bar: ProgressBar,
    /// The time of the last line, if there is no bar.
    told: Mutex<Option<Instant>>,
}

impl Default for FiguresBar {
    fn default() -> Self {
        let bar = bar(44);
        // An experiment may take long, so the bar also updates while nothing ends.
        bar.enable_steady_tick(Duration::from_millis(500));
        Self { bar, told: Mutex::new(None) }
    }
}

impl FiguresBar {
    /// Shows how many experiments are done, and the estimated time for the rest.
    pub fn show(&self, progress: figures::Progress) {
        let figures::Progress { done, total, experiments, of, left } = progress;
        let left =
            left.filter(|_| done < total).map_or_else(String::new, |left| format!(", {} left", rough(left)));
        let message = format!("{experiments} of {of} experiments{left}");
        if !self.bar.is_hidden() {
            self.bar.set_length(total);
            self.bar.set_position(done);
            self.bar.set_message(message);
            return;
        }
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        // The first line shows the number of experiments. The last line shows that all are done.
        if of > 0 && (done == total || told.is_none_or(|told| told.elapsed() >= SILENCE)) {
            eprintln!("{message}");
            *told = Some(Instant::now());
        }
    }

    /// Removes the bar.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

/// Formats an estimated time.
fn rough(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..100 => format!("about {} s", seconds + 1),
        seconds @ 100..6000 => format!("about {} min", seconds.div_ceil(60)),
        seconds => format!("about {} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// The bar of a load or dump.
pub struct FileBar {
    bar: ProgressBar,
}

impl FileBar {
    /// Makes a bar for a file of this many bytes, or a spinner if the size is unknown.
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

    /// Makes a bar that is never shown.
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

    /// Removes the bar.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}
