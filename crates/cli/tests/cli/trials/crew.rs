//! The workers of a trial, as the process sees them that judges it.

use super::record::parse;
use super::worker::ORDERS;
use crate::common::writers::this_program;
use sherman_conformance::trees::Failure;
use sherman_sim::history::Call;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How long a worker may take to join, and to stop. An operation fails after 25 s.
const PATIENCE: Duration = Duration::from_secs(40);

/// What workers did in a round.
#[derive(Default)]
pub struct Work {
    pub calls: Vec<Call>,
    /// Operations that failed: when they began and ended, and why.
    pub errors: Vec<(u64, u64, String)>,
    /// Identities that ended, and joins.
    pub events: Vec<String>,
}

/// A worker process. Dropping it kills it.
pub struct Worker {
    child: Child,
    orders: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Worker {
    /// Starts a worker with `command`, to which its arguments are appended.
    pub fn start_by(mut command: Command, url: &str, first: u32, threads: u32) -> Self {
        let mut child = command
            .args(["--ignored", "--exact", "trials::worker_process", "--nocapture", "--test-threads", "1"])
            .env(ORDERS, format!("{url} {first} {threads}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("a worker starts");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        let (tell, lines) = channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if tell.send(line).is_err() {
                    return;
                }
            }
        });
        let orders = child.stdin.take();
        Self { child, orders, lines }
    }

    pub fn start(url: &str, first: u32, threads: u32) -> Self {
        Self::start_by(Command::new(this_program()), url, first, threads)
    }

    /// Waits until the worker has joined the cluster.
    pub fn await_ready(&mut self) -> Result<(), Failure> {
        self.read_until("ready", &mut Work::default())
    }

    pub fn order(&mut self, order: &str) -> Result<(), Failure> {
        let orders = self.orders.as_mut().ok_or("a worker that listens")?;
        Ok(writeln!(orders, "{order}")?)
    }

    fn read_until(&mut self, end: &str, work: &mut Work) -> Result<(), Failure> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = match self.lines.recv_timeout(left) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => {
                    return Err(format!("a worker hangs: it does not say {end:?}; {:?}", work.events).into());
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(format!("a worker has died before {end:?}; {:?}", work.events).into());
                }
            };
            if line == end {
                return Ok(());
            }
            if let Some(call) = parse(&line) {
                work.calls.push(call);
            } else if let Some(error) = line.strip_prefix("error ") {
                let mut words = error.splitn(3, ' ');
                let mut time = || words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
                let (began, ended) = (time(), time());
                work.errors.push((began, ended, words.next().unwrap_or_default().to_owned()));
            } else if let Some(event) = line.strip_prefix("event ") {
                work.events.push(event.to_owned());
            }
        }
    }

    /// Asks the worker to leave the cluster, and waits for its end.
    pub fn leave(mut self) -> Result<(), Failure> {
        drop(self.orders.take());
        let deadline = Instant::now() + PATIENCE;
        while self.child.try_wait()?.is_none() {
            if Instant::now() > deadline {
                return Err("a worker does not end".into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// All workers of a trial.
pub struct Crew(pub Vec<Worker>);

impl Crew {
    /// Starts `processes` workers with `threads` threads each.
    pub fn start(url: &str, processes: u32, threads: u32) -> Result<Self, Failure> {
        let start = |process| Worker::start(url, process * threads, threads);
        Self::ready((0..processes).map(start).collect())
    }

    /// Waits until all have joined.
    pub fn ready(mut workers: Vec<Worker>) -> Result<Self, Failure> {
        workers.iter_mut().try_for_each(Worker::await_ready)?;
        Ok(Self(workers))
    }

    pub fn go(&mut self, round: u64) -> Result<(), Failure> {
        self.0.iter_mut().try_for_each(|worker| worker.order(&format!("go {round}")))
    }

    /// Stops the work of a round, and returns it.
    pub fn stop(&mut self) -> Result<Work, Failure> {
        let mut work = Work::default();
        self.0.iter_mut().try_for_each(|worker| worker.order("stop"))?;
        for worker in &mut self.0 {
            worker.read_until("done", &mut work)?;
        }
        Ok(work)
    }

    pub fn leave(self) -> Result<(), Failure> {
        self.0.into_iter().try_for_each(Worker::leave)
    }
}
