//! Shows the current step and the estimated time left on stderr: one changing line on a terminal, one line
//! per step elsewhere.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Shows the progress of the benchmark.
pub struct Progress {
    terminal: bool,
    quiet: bool,
    start: Instant,
    /// Runs done, and all runs.
    done: usize,
    runs: usize,
    /// The estimated time of a run, until one is done.
    guess: Duration,
    /// The start time of the first run.
    first: Option<Instant>,
    /// The loads of this round: how many began, the time of the first, and how many are left.
    loads: u32,
    loading: Option<Instant>,
    loads_left: u32,
}

impl Progress {
    /// Starts the progress of a benchmark of `runs` runs of about `seconds`.
    pub fn new(runs: usize, seconds: f64, quiet: bool) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let guess = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        Self {
            terminal,
            quiet,
            start: Instant::now(),
            done: 0,
            runs,
            guess,
            first: None,
            loads: 0,
            loading: None,
            loads_left: 0,
        }
    }

    /// Returns the time since the start.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Reports that a load starts, with `left` more to follow.
    pub fn load(&mut self, what: &str, left: usize) {
        self.loads_left = u32::try_from(left).unwrap_or(u32::MAX);
        self.loading.get_or_insert_with(Instant::now);
        self.show(what, true);
        self.loads += 1;
    }

    /// Reports that a cell starts.
    pub fn cell(&mut self, what: &str) {
        (self.loads, self.loading, self.loads_left) = (0, None, 0);
        self.show(what, true);
    }

    /// Reports that a run starts.
    pub fn run(&mut self, what: &str) {
        self.first.get_or_insert_with(Instant::now);
        self.show(what, false);
        self.done += 1;
    }

    /// Subtracts runs that will not happen because their index does not support them.
    pub fn skip(&mut self, runs: usize) {
        self.runs = self.runs.saturating_sub(runs).max(self.done);
    }

    /// Estimates the time left, from the runs so far, including the loads between them, and from the loads of
    /// this round.
    fn left(&self) -> Duration {
        let load = self.loading.map_or(Duration::ZERO, |since| since.elapsed() / self.loads.max(1));
        let loads = load.saturating_mul(self.loads_left.saturating_add(1));
        let left = u32::try_from(self.runs.saturating_sub(self.done)).unwrap_or(u32::MAX);
        match (self.first, u32::try_from(self.done)) {
            (Some(first), Ok(done @ 1..)) => loads + first.elapsed() / done * left,
            _ => loads + self.guess * left,
        }
    }

    fn show(&self, what: &str, step: bool) {
        if self.quiet || !(self.terminal || step) {
            return;
        }
        let line = format!("{} elapsed, about {} left: {what}", clock(self.elapsed()), clock(self.left()));
        let mut out = std::io::stderr().lock();
        // A closed terminal does not stop the benchmark.
        let _ = if self.terminal { write!(out, "\r\x1b[K{line}") } else { writeln!(out, "{line}") };
        let _ = out.flush();
    }

    /// Removes the line.
    pub fn clear(&self) {
        if self.terminal && !self.quiet {
            eprint!("\r\x1b[K");
        }
    }
}

/// Formats minutes and seconds.
fn clock(time: Duration) -> String {
    format!("{}:{:02}", time.as_secs() / 60, time.as_secs() % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_shrinks_with_every_run_and_is_never_negative() {
        let mut progress = Progress::new(3, 2.0, true);
        assert_eq!(progress.left(), Duration::from_secs(6));
        for _ in 0..5 {
            progress.run("");
        }
        assert_eq!(progress.left(), Duration::ZERO);
        assert_eq!(clock(Duration::from_secs(125)), "2:05");
    }
}
