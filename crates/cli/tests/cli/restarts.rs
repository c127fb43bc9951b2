//! Memory servers with `--file` restart, one after the other: by kill -9 and by SIGTERM, at rest and under
//! load. Idle members are connected, some writers are killed, and some writers leave. After every round no
//! acknowledged change is lost and every tree is sound. No lane is held by a client that is gone, no record
//! is left, and every place for a node is accounted for.
//!
//! CI runs a few rounds. `SHERMAN_RESTARTS=200 cargo test -p sherman-cli --test cli restarts -- --nocapture`
//! runs 200 on each transport and prints a line for each. The test reports a failed round and begins the next
//! one with a new cluster. Every wait has a limit, so a run of N rounds ends within N minutes.

use crate::common::command;
use crate::common::servers::{Servers, Transport};
use crate::common::writers::{TREE, Writer, verify};
use sherman::{Audit, Cluster, ComputeId, Standing, TreeOptions};
use sherman_conformance::trees::{Failure, Ledger};
use std::collections::{BTreeMap, BTreeSet};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Rounds of each transport in CI.
const ROUNDS: u64 = 3;
/// Writers at a time.
const WRITERS: u64 = 3;
/// How long a cluster may take to recover all dead clients.
const SETTLE: Duration = Duration::from_secs(20);
/// How many observers in a row may be taken for dead.
const OBSERVERS: u32 = 5;
/// How long joining may take.
const JOIN: Duration = Duration::from_secs(10);
const SERVER: [&str; 8] =
    ["--memory", "512MiB", "--chunk", "1MiB", "--lease", "500ms", "--file", "{dir}/{id}.mem"];

fn rounds() -> u64 {
    std::env::var("SHERMAN_RESTARTS").map_or(ROUNDS, |text| text.parse().expect("a number of rounds"))
}

/// What happens in a round.
#[derive(Clone, Copy, Debug)]
struct RestartPlan {
    /// The server that restarts.
    server: usize,
    /// Whether it ends by kill -9 instead of SIGTERM.
    killed: bool,
    /// Whether writers work during the restart.
    under_load: bool,
    /// Whether writers are killed while the server is down.
    deaths_while_down: bool,
}

impl RestartPlan {
    /// Eight rounds contain every combination of the first three fields once. Rounds 0 to 3 and rounds 4 to 7
    /// contain each server, signal and load twice.
    fn of(round: u64) -> Self {
        let bits = [0b001, 0b110, 0b011, 0b100, 0b111, 0b000, 0b101, 0b010][(round % 8) as usize];
        Self {
            server: bits & 1,
            killed: (bits >> 1 & 1 == 1) != (bits & 1 == 1),
            under_load: bits >> 2 & 1 == 1,
            deaths_while_down: round % 3 == 1,
        }
    }
}

/// An idle member: `sherman load`, waiting for its standard input.
struct IdleCommand {
    child: Child,
    _input: Option<ChildStdin>,
}

impl IdleCommand {
    fn start(url: &str) -> Self {
        let mut command = command(&["load", "--cluster", url, "--tree", TREE, "-"]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the command starts");
        let input = child.stdin.take();
        Self { child, _input: input }
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for IdleCommand {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A cluster with all its clients.
struct Trial {
    servers: Servers,
    ledgers: Vec<Arc<Mutex<Ledger>>>,
    /// Idle members: a command, and a handle in this process.
    idle_command: IdleCommand,
    idle: Cluster,
    writers: Vec<Writer>,
    /// All ids of the writers of this round.
    gone: BTreeSet<ComputeId>,
    seed: u64,
}

/// Opens the cluster. Retries, because a restart may be in progress.
fn open(url: &str) -> Result<Cluster, Failure> {
    let end = Instant::now() + JOIN;
    loop {
        match Cluster::open(url) {
            Ok(cluster) => return Ok(cluster),
            Err(error) if Instant::now() > end => return Err(format!("no client can join: {error}").into()),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// An audit's findings in one line: how often each invariant is broken, with the first case of each.
fn damage(audit: &Audit) -> String {
    let mut found: BTreeMap<String, (u64, String)> = BTreeMap::new();
    let mut add = |what: String, first: String| found.entry(what).or_insert((0, first)).0 += 1;
    let number = |invariant: &'static str| invariant.split(':').next().unwrap_or(invariant);
    for broken in audit.trees.iter().flat_map(|(_, check)| &check.broken) {
        add(
            format!("{} in a tree", number(broken.invariant)),
            format!("{}: {}", broken.address, broken.detail),
        );
    }
    for finding in &audit.findings {
        let what = format!("{} of a {}", number(finding.invariant), finding.part.name());
        add(what, format!("server {}: {}", finding.server, finding.detail));
    }
    let lines = found.into_iter().map(|(what, (count, first))| format!("{what} x {count} ({first})"));
    lines.collect::<Vec<_>>().join("; ")
}

fn pause(millis: u64) {
    std::thread::sleep(Duration::from_millis(millis));
}

impl Trial {
    fn new(transport: Transport) -> Result<Self, Failure> {
        let servers = Servers::start(transport, 2, &SERVER);
        let url = servers.url();
        let idle = open(&url)?;
        // Small nodes cause many splits and merges.
        idle.tree_with::<u64, u64>(TREE, &TreeOptions::new().node_bytes(256))?;
        let idle_command = IdleCommand::start(&url);
        let ledgers = (0..2 * WRITERS).map(|_| Arc::default()).collect();
        Ok(Self { servers, ledgers, idle_command, idle, writers: Vec::new(), gone: BTreeSet::new(), seed: 0 })
    }

    /// Starts idle members that have ended again. An idle member that has not noticed the restart stays.
    fn wake_idle(&mut self) -> Result<(), Failure> {
        let url = self.servers.url();
        if self.idle_command.has_ended() {
            self.idle_command = IdleCommand::start(&url);
        }
        if self.idle.is_fenced() {
            self.idle = open(&url)?;
        }
        Ok(())
    }

    /// Starts writers. Each shift has its own keys, so that two shifts can work at the same time.
    fn start_writers(&mut self, shift: u64) {
        let url = self.servers.url();
        for slot in shift * WRITERS..(shift + 1) * WRITERS {
            self.seed += 1;
            self.writers.push(Writer::start_polite(&url, slot, self.seed, &self.ledgers[slot as usize]));
        }
    }

    /// Looks at the cluster as a new member. Joins again and repeats, up to [`OBSERVERS`] times in all, if a
    /// busy machine let its lease end.
    fn observe<T>(&self, look: impl Fn(&Self, &Cluster) -> Result<T, Failure>) -> Result<T, Failure> {
        let mut tries = 0;
        loop {
            let observer = open(&self.servers.url())?;
            let seen = look(self, &observer);
            tries += 1;
            if seen.is_ok() || !observer.is_fenced() || tries == OBSERVERS {
                return seen;
            }
        }
    }

    /// Ends all writers: kills some and lets the others leave.
    fn end_writers(&mut self, round: u64) -> Result<(), Failure> {
        let mut stuck = Vec::new();
        for (mut writer, slot) in std::mem::take(&mut self.writers).into_iter().zip(0..) {
            match (round + slot) % 3 {
                0 => writer.kill(),
                _ if !writer.leave() => stuck.push(writer.id()),
                _ => {}
            }
            self.gone.extend(writer.ids());
        }
        if stuck.is_empty() {
            Ok(())
        } else {
            Err(format!("writers did not leave in time: {stuck:?}").into())
        }
    }

    fn kill_writers(&mut self) {
        for mut writer in std::mem::take(&mut self.writers) {
            writer.kill();
            self.gone.extend(writer.ids());
        }
    }

    /// Waits until only live members remain that are no writers of this round, and all dead clients are
    /// recovered.
    fn settle(&self, observer: &Cluster) -> Result<(), Failure> {
        let end = Instant::now() + SETTLE;
        loop {
            let members = observer.members()?;
            let unsettled: Vec<_> = members
                .iter()
                .filter(|member| member.standing != Standing::Live || self.gone.contains(&member.id))
                .collect();
            if unsettled.is_empty() {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(format!("not recovered within {SETTLE:?}: {unsettled:?}").into());
            }
            pause(10);
        }
    }

    fn restart(&mut self, plan: RestartPlan, round: u64) {
        let server = &mut self.servers.servers[plan.server];
        match plan.killed {
            true => server.kill(),
            false => drop(server.terminate()),
        }
        if plan.deaths_while_down {
            self.kill_writers();
            pause(200 + round % 5 * 150);
        }
        self.servers.servers[plan.server].restart();
    }

    fn round(&mut self, round: u64) -> Result<String, Failure> {
        let plan = RestartPlan::of(round);
        self.gone.clear();
        self.wake_idle()?;
        self.start_writers(0);
        pause(250 + round % 7 * 20);
        if !plan.under_load {
            self.end_writers(round)?;
            self.observe(Self::settle)?;
        }
        self.restart(plan, round);
        // The first writers go on as other clients, and more writers join.
        self.start_writers(1);
        pause(400 + round % 4 * 30);
        self.end_writers(round + 1)?;
        self.observe(Self::inspect)
    }

    /// Checks everything that must hold at the end of a round.
    fn inspect(&self, observer: &Cluster) -> Result<String, Failure> {
        self.settle(observer)?;
        let (acknowledged, uncertain) = verify(observer, &self.ledgers)?;
        let audit = observer.audit()?;
        if !audit.is_clean() {
            return Err(damage(&audit).into());
        }
        let entries = audit.trees.first().map_or(0, |(_, check)| check.entries);
        Ok(format!("{acknowledged} acknowledged so far, {uncertain} uncertain, {entries} entries"))
    }
}

fn run(transport: Transport, first: u64, rounds: u64) -> Result<(), Failure> {
    let mut trial = Trial::new(transport)?;
    let mut failures = Vec::new();
    for round in first..first + rounds {
        let began = Instant::now();
        let outcome = trial.round(round);
        let (plan, seconds) = (RestartPlan::of(round), began.elapsed().as_secs_f64());
        match outcome {
            Ok(line) => println!("{transport:?} round {round}, {seconds:.1} s, {plan:?}: {line}"),
            Err(error) => {
                println!("{transport:?} round {round}, {seconds:.1} s, {plan:?}: FAILED: {error}");
                failures.push(format!("round {round}, {plan:?}: {error}"));
                trial = Trial::new(transport)?;
            }
        }
    }
    match failures.first() {
        None => Ok(()),
        Some(first) => {
            Err(format!("{} of {rounds} rounds failed; the first: {first}", failures.len()).into())
        }
    }
}

#[test]
fn servers_that_restart_over_tcp_lose_nothing_and_leave_nothing_behind() -> Result<(), Failure> {
    let _alone = crate::common::alone();
    run(Transport::Tcp, 0, rounds())
}

#[test]
fn servers_that_restart_over_unix_sockets_lose_nothing_and_leave_nothing_behind() -> Result<(), Failure> {
    let _alone = crate::common::alone();
    run(Transport::Unix, 4, rounds())
}

#[test]
fn eight_rounds_have_every_combination() {
    let all: BTreeSet<(usize, bool, bool)> =
        (0..8).map(RestartPlan::of).map(|plan| (plan.server, plan.killed, plan.under_load)).collect();
    assert_eq!(all.len(), 8);
    for first in [0, 4] {
        let some: Vec<RestartPlan> = (first..first + 4).map(RestartPlan::of).collect();
        for twice in [
            some.iter().filter(|plan| plan.server == 0).count(),
            some.iter().filter(|plan| plan.killed).count(),
            some.iter().filter(|plan| plan.under_load).count(),
        ] {
            assert_eq!(twice, 2, "{some:?}");
        }
    }
}
