//! What is running and how long it will take, on stderr: one line that changes on a terminal, a line per step elsewhere.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Tells how far the benchmark is.
pub struct Progress {
    terminal: bool,
    quiet: bool,
    start: Instant,
    /// Runs done, of all.
    done: usize,
    runs: usize,
    /// What a run is thought to take before any is done.
    guess: Duration,
    /// When the first run could start.
    first: Option<Instant>,
    /// Loads begun, since when, and how many there are yet of this round.
    loads: u32,
    loading: Option<Instant>,
    loads_left: u32,
}

impl Progress {
    /// A benchmark of `runs` runs of about `seconds`.
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

    /// Time since the beginning.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// A load starts; `left` others follow.
    pub fn load(&mut self, what: &str, left: usize) {
        self.loads_left = u32::try_from(left).unwrap_or(u32::MAX);
        self.loading.get_or_insert_with(Instant::now);
        self.show(what, true);
        self.loads += 1;
    }

    /// A cell starts.
    pub fn cell(&mut self, what: &str) {
        (self.loads, self.loading, self.loads_left) = (0, None, 0);
        self.show(what, true);
    }

    /// A run starts.
    pub fn run(&mut self, what: &str) {
        self.first.get_or_insert_with(Instant::now);
        self.show(what, false);
        self.done += 1;
    }

    /// Runs that will not be, since their index cannot.
    pub fn skip(&mut self, runs: usize) {
        self.runs = self.runs.saturating_sub(runs).max(self.done);
    }

    /// How long it will take yet: as runs took so far, loads in between included, and as loads of this round took.
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
        let line = format!("{} gone, about {} left: {what}", clock(self.elapsed()), clock(self.left()));
        let mut out = std::io::stderr().lock();
        // A terminal that has gone away is no reason to stop.
        let _ = if self.terminal { write!(out, "\r\x1b[K{line}") } else { writeln!(out, "{line}") };
        let _ = out.flush();
    }

    /// Takes the line away.
    pub fn clear(&self) {
        if self.terminal && !self.quiet {
            eprint!("\r\x1b[K");
        }
    }
}

/// Minutes and seconds.
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
