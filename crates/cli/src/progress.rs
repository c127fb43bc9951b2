//! How far it is, on stderr: a bar on a terminal; anywhere else nothing from a benchmark, a line for each step of a check, and one
//! now and then from figures.

use indicatif::{ProgressBar, ProgressStyle};
use sherman_eval::check::CheckProgress;
use sherman_eval::figures;
use sherman_eval::{Length, Progress};
use std::cell::Cell;
use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

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

/// How long it is silent where there is no bar.
const SILENCE: Duration = Duration::from_secs(20);

/// That of figures. Experiments end on many threads.
pub struct FiguresBar {
    bar: ProgressBar,
    /// When a line was written last, where there is no bar.
    told: Mutex<Option<Instant>>,
}

impl Default for FiguresBar {
    fn default() -> Self {
        let bar = bar(44);
        // An experiment may take long: the time it takes is seen to pass.
        bar.enable_steady_tick(Duration::from_millis(500));
        Self { bar, told: Mutex::new(None) }
    }
}

impl FiguresBar {
    /// Shows how many experiments are done, and how long the rest may take.
    pub fn show(&self, progress: figures::Progress) {
        let figures::Progress { done, total, experiments, of, left } = progress;
        let left = left.filter(|_| done < total).map_or_else(String::new, |left| format!(", {} left", rough(left)));
        let message = format!("{experiments} of {of} experiments{left}");
        if !self.bar.is_hidden() {
            self.bar.set_length(total);
            self.bar.set_position(done);
            self.bar.set_message(message);
            return;
        }
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        // The first says how many there are, and the last that all are done.
        if of > 0 && (done == total || told.is_none_or(|told| told.elapsed() >= SILENCE)) {
            eprintln!("{message}");
            *told = Some(Instant::now());
        }
    }

    /// Takes it away.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

/// A time that is only guessed.
fn rough(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..100 => format!("about {} s", seconds + 1),
        seconds @ 100..6000 => format!("about {} min", seconds.div_ceil(60)),
        seconds => format!("about {} h {} min", seconds / 3600, seconds % 3600 / 60),
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
