//! Hosts of a replicated cluster as processes, each at an address of its own that it keeps when it is started
//! again.

use crate::common::{fresh_path, program};
use rustix::process::{Pid, Signal, kill_process};
use sherman::{Admin, Hosts, OpenError};
use sherman_conformance::trees::Failure;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long hosts may take to form a cluster, and to end.
const PATIENCE: Duration = Duration::from_secs(20);
/// The pause between two looks at the cluster.
const LOOK: Duration = Duration::from_millis(25);

/// One running host. Dropping it kills it.
struct Host {
    child: Child,
    log: PathBuf,
}

impl Host {
    fn signal(&self, signal: Signal) {
        // It may have ended by itself.
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How the hosts of a cluster are started.
pub struct Plan {
    /// The command that runs `sherman` for a host.
    pub command: Box<dyn Fn(usize) -> Command>,
    /// The IP address at which a host listens. Its port is chosen by the system when it first starts.
    pub ip: fn(usize) -> String,
    /// More options of every host, and those of the new cluster.
    pub every: Vec<String>,
    pub new: Vec<String>,
    /// Parameters of the URL, with the question mark.
    pub parameters: String,
}

impl Plan {
    /// Hosts on this machine.
    pub fn local(every: &[&str], new: &[&str]) -> Self {
        Self {
            command: Box::new(|_| Command::new(program())),
            ip: |_| "127.0.0.1".to_owned(),
            every: every.iter().map(ToString::to_string).collect(),
            new: new.iter().map(ToString::to_string).collect(),
            parameters: String::new(),
        }
    }
}

/// The hosts of a cluster.
pub struct Fleet {
    plan: Plan,
    hosts: Vec<Option<Host>>,
    /// `ip:port` of each host.
    addresses: Vec<String>,
    /// Parameters of the URL, with the question mark.
    pub parameters: String,
    /// A host that is not asked about the cluster: it may be cut off, and know nothing new.
    pub unasked: Option<usize>,
}

impl Fleet {
    /// Starts a cluster, and waits until it has its volumes.
    pub fn start(count: usize, plan: Plan) -> Result<Self, Failure> {
        let (hosts, addresses, parameters) = (Vec::new(), Vec::new(), plan.parameters.clone());
        let mut fleet = Self { plan, hosts, addresses, parameters, unasked: None };
        for host in 0..count {
            fleet.hosts.push(None);
            fleet.addresses.push(format!("{}:0", (fleet.plan.ip)(host)));
            fleet.launch(host)?;
        }
        fleet.await_whole(PATIENCE)?;
        Ok(fleet)
    }

    /// Starts a host. The first one of all makes the cluster.
    pub fn launch(&mut self, host: usize) -> Result<(), Failure> {
        let log = fresh_path(&format!("host-{host}.log"));
        let mut command = (self.plan.command)(host);
        command.args(["serve", "--json", "--log", "info", "--threads", "1", "--listen"]);
        command.arg(format!("tcp://{}", self.addresses[host])).args(&self.plan.every);
        let others: Vec<&str> = (0..self.hosts.len())
            .filter(|other| *other != host && self.hosts[*other].is_some())
            .map(|other| self.addresses[other].as_str())
            .collect();
        match others.is_empty() {
            true => command.arg("--new-cluster").args(&self.plan.new),
            false => command.args(["--join", &format!("tcp://{}", others.join(","))]),
        };
        let mut child = command.stdout(Stdio::piped()).stderr(File::create(&log)?).spawn()?;
        let mut said = String::new();
        BufReader::new(child.stdout.take().ok_or("piped")?).read_line(&mut said)?;
        self.hosts[host] = Some(Host { child, log });
        let told = serde_json::from_str::<serde_json::Value>(&said).ok();
        let address = told.as_ref().and_then(|told| told["listen"][0].as_str()?.strip_prefix("tcp://"));
        let Some(address) = address else {
            return Err(format!("host {host} does not start: {}", self.log(host)).into());
        };
        address.clone_into(&mut self.addresses[host]);
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.hosts.len()
    }

    pub fn address(&self, host: usize) -> &str {
        &self.addresses[host]
    }

    /// A URL that names all hosts, also those that are gone.
    pub fn url(&self) -> String {
        self.url_of(0..self.len())
    }

    /// A URL that names these hosts.
    pub fn url_of(&self, hosts: impl IntoIterator<Item = usize>) -> String {
        let addresses: Vec<&str> = hosts.into_iter().map(|host| self.address(host)).collect();
        format!("tcp://{}{}", addresses.join(","), self.parameters)
    }

    /// What the process of a host has logged.
    pub fn log(&self, host: usize) -> String {
        let log = self.hosts[host].as_ref().and_then(|host| std::fs::read_to_string(&host.log).ok());
        log.unwrap_or_else(|| "it is gone".to_owned())
    }

    /// What the hosts have logged, for the message of a failed trial.
    pub fn logs(&self) -> String {
        (0..self.len()).map(|host| format!("host {host}:\n{}\n", self.log(host))).collect()
    }

    pub fn kill(&mut self, host: usize) {
        self.hosts[host] = None;
    }

    pub fn signal(&self, host: usize, signal: Signal) {
        if let Some(host) = &self.hosts[host] {
            host.signal(signal);
        }
    }

    /// Whether the process of a host runs.
    pub fn runs(&mut self, host: usize) -> bool {
        self.hosts[host].as_mut().is_some_and(|host| matches!(host.child.try_wait(), Ok(None)))
    }

    /// Waits until a host has ended by itself. Returns its exit code and its log.
    pub fn await_end(&mut self, host: usize, limit: Duration) -> Result<(Option<i32>, String), Failure> {
        let deadline = Instant::now() + limit;
        loop {
            let running = self.hosts[host].as_mut().ok_or("a host that was not killed")?;
            if let Some(status) = running.child.try_wait()? {
                let log = self.log(host);
                self.hosts[host] = None;
                return Ok((status.code(), log));
            }
            if Instant::now() > deadline {
                return Err(format!("host {host} has not ended after {limit:?}: {}", self.log(host)).into());
            }
            std::thread::sleep(LOOK);
        }
    }

    /// The cluster as its hosts see it. Asks the hosts whose processes are there, in their order.
    pub fn look(&self) -> Result<Hosts, OpenError> {
        let asked = |host: &usize| self.hosts[*host].is_some() && Some(*host) != self.unasked;
        let running = (0..self.len()).filter(asked);
        let hosts = Admin::open(&self.url_of(running))?.hosts()?;
        hosts.ok_or_else(|| OpenError::BadUrl { url: self.url(), reason: "these are no hosts".to_owned() })
    }

    /// Which of the hosts leads, if the others know one.
    pub fn leader(&self) -> Option<usize> {
        let leader = self.look().ok()?.leader?;
        self.addresses.iter().position(|address| leader.ends_with(&format!("//{address}")))
    }

    /// Whether a host has a primary.
    pub fn has_primaries(&self, host: usize) -> bool {
        let address = format!("tcp://{}", self.addresses[host]);
        self.look().is_ok_and(|hosts| {
            hosts.hosts.iter().any(|host| host.up && host.address == address && host.primaries > 0)
        })
    }

    /// Whether every volume is open and has two copies, and every running host is a member. Of three or more
    /// hosts three vote: with two voters the group would not survive the next loss.
    pub fn is_whole(&self) -> bool {
        let running = self.hosts.iter().flatten().count();
        self.look().is_ok_and(|hosts| {
            let lacking = hosts.volumes_with_one_copy() + hosts.volumes_closed() + hosts.volumes_lost();
            let up = hosts.hosts.iter().filter(|host| host.up).count();
            let votes = hosts.hosts.iter().filter(|host| host.up && host.votes).count();
            let agrees = up == running && (running < 3 || votes >= 3) && hosts.leader.is_some();
            agrees && lacking == 0 && !hosts.volumes.is_empty()
        })
    }

    /// How many hosts the cluster counts as present.
    pub fn present(&self) -> Option<usize> {
        Some(self.look().ok()?.hosts.iter().filter(|host| host.up).count())
    }

    /// Waits until the cluster is whole. Returns how long that took.
    pub fn await_whole(&self, limit: Duration) -> Result<Duration, Failure> {
        let began = Instant::now();
        while !self.is_whole() {
            if began.elapsed() > limit {
                let members = Admin::open(&self.url()).and_then(|admin| admin.members());
                return Err(format!("not whole after {limit:?}: {:?}, {members:?}", self.look()).into());
            }
            std::thread::sleep(LOOK);
        }
        Ok(began.elapsed())
    }
}
