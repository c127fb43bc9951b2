//! `sherman serve --new-cluster` and `--join` with real processes: hosts that die, pause, and come back.

use crate::common::{command, fresh_path, secret_file, sherman, text};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use sherman_control::client::PeerConnection;
use sherman_control::wire::Role;
use sherman_control::{Address, Secret};
use sherman_fabric::group::ClusterInfo;
use sherman_fabric::{Call, calls};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// A host's process. Dropping it kills it.
struct Host {
    child: Child,
    number: u64,
    cluster: String,
    /// Where it listens: `tcp://127.0.0.1:7000`.
    address: String,
    secret: Option<Secret>,
}

impl Host {
    /// Starts a host that finds its place in its cluster.
    fn start(place: &[&str], secret: Option<&Path>) -> Self {
        let mut line = vec!["serve", "--json", "--listen", "tcp://127.0.0.1:0", "--memory", "64MiB"];
        line.extend(["--threads", "1", "--detect", "1s", "--log", "warn"]);
        line.extend(place);
        if let Some(path) = secret {
            line.extend(["--secret-file", path.to_str().expect("UTF-8")]);
        }
        let mut command = command(&line);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut said = String::new();
        let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        stdout.read_line(&mut said).expect("a line");
        if said.is_empty() {
            let mut why = String::new();
            child.stderr.take().expect("a pipe").read_to_string(&mut why).expect("its log");
            panic!("{why}");
        }
        let said: Value = serde_json::from_str(&said).expect("JSON");
        Self {
            number: said["host"].as_u64().expect("a number"),
            cluster: said["cluster"].as_str().expect("a cluster").to_owned(),
            address: said["listen"][0].as_str().expect("an address").to_owned(),
            secret: secret.map(|path| Secret::from_file(path).expect("a secret")),
            child,
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a process");
        kill_process(pid, signal).expect("it runs");
    }

    /// Waits for the end: the exit code, and the log.
    fn end(&mut self) -> (Option<i32>, String) {
        let status = until("the end of a host", || self.child.try_wait().expect("its status"));
        let mut log = String::new();
        self.child.stderr.take().expect("a pipe").read_to_string(&mut log).expect("its log");
        (status.code(), log)
    }

    fn info(&self) -> Option<ClusterInfo> {
        let place = self.address.strip_prefix("tcp://").expect("a TCP address");
        let address = Address::Tcp(place.to_owned());
        let patience = Duration::from_secs(2);
        let connection = PeerConnection::open(&address, self.secret.as_ref(), Role::Newcomer, patience);
        let answer = connection.ok()?.ask(&calls::Cluster.request(), patience).ok()?;
        answer.and_then(calls::Cluster::expect).ok()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until all hosts know the same leader, and of each `holds` is true.
fn agree(hosts: &[Host], what: &str, holds: impl Fn(&ClusterInfo) -> bool) -> ClusterInfo {
    until(what, || {
        let infos: Option<Vec<ClusterInfo>> = hosts.iter().map(Host::info).collect();
        let mut infos = infos?;
        let leader = infos[0].leader.clone()?;
        let same = infos.iter().all(|info| info.leader.as_ref() == Some(&leader) && holds(info));
        same.then(|| infos.swap_remove(0))
    })
}

fn votes(info: &ClusterInfo) -> usize {
    info.hosts.iter().filter(|host| host.up && host.voter).count()
}

#[test]
fn a_replicated_cluster_of_processes_survives_a_kill_a_pause_and_a_restart() {
    let secret = secret_file("hosts-secret", "sixteen bytes at least");
    let new = ["--new-cluster", "--hosts", "3", "--lease", "1s"];
    let mut hosts = vec![Host::start(&new, Some(&secret))];
    for _ in 1..3 {
        let seed = hosts[0].address.clone();
        hosts.push(Host::start(&["--join", &seed], Some(&secret)));
    }
    assert!(hosts.iter().all(|host| host.cluster == hosts[0].cluster));
    let formed = agree(&hosts, "three voters and volumes", |info| info.formed && votes(info) == 3);

    // The leader is killed. A process that is started in its place is a new host.
    let leader = formed.leader.clone().expect("a leader");
    let place = hosts.iter().position(|host| host.address == leader).expect("a host");
    let mut killed = hosts.remove(place);
    killed.signal(Signal::KILL);
    killed.end();
    let after = agree(&hosts, "a table without the lost host", |info| info.epoch > formed.epoch);
    assert_ne!(after.leader, formed.leader);
    let seeds = format!("{leader},{}", hosts[0].address.strip_prefix("tcp://").expect("TCP"));
    let again = Host::start(&["--join", &seeds], Some(&secret));
    assert_eq!((again.number, &again.cluster), (3, &hosts[0].cluster));
    hosts.push(again);
    let whole = agree(&hosts, "three voters again", |info| votes(info) == 3);

    // The next leader pauses for too long, and finds out afterwards.
    let leader = whole.leader.clone().expect("a leader");
    let place = hosts.iter().position(|host| host.address == leader).expect("a host");
    let mut paused = hosts.remove(place);
    paused.signal(Signal::STOP);
    let after = agree(&hosts, "the loss of the paused host", |info| {
        info.hosts.iter().any(|host| u64::from(host.number) == paused.number && !host.up)
    });
    assert_ne!(after.leader, whole.leader);
    paused.signal(Signal::CONT);
    let (code, log) = paused.end();
    assert_eq!(code, Some(3), "{log}");
    assert!(log.contains(&format!("the cluster has declared host {} lost", paused.number)), "{log}");

    // An operator stops a host.
    let mut last = hosts.pop().expect("a host");
    last.signal(Signal::TERM);
    assert_eq!(last.end().0, Some(0));
}

#[test]
fn a_host_without_a_place_says_why() {
    let listen = format!("unix:{}", fresh_path("host.sock").display());
    let gone = format!("unix:{}", fresh_path("gone.sock").display());
    let refused = |line: &[&str]| {
        let output = sherman(&[&["serve", "--listen", &listen, "--log", "warn"], line].concat());
        (output.status.code(), text(&output.stderr))
    };
    let nowhere = fresh_path("nowhere").join("host").display().to_string();
    let (code, said) = refused(&["--new-cluster", "--memory", "1GiB", "--file", &nowhere]);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.starts_with("error: --file: ") && said.contains("cannot make the folder"), "{said}");
    let (code, said) = refused(&["--join", "a:7000", "--memory", "1GiB"]);
    assert!(code == Some(2) && said.starts_with("error: --join: "), "{said}");
    let secret = secret_file("other-secret", "sixteen bytes at least");
    let guarded = Host::start(&["--new-cluster"], Some(&secret));
    let (code, said) = refused(&["--join", &guarded.address, "--memory", "1GiB"]);
    assert!(code == Some(3) && said.contains("requires the cluster's secret"), "{said}");
    assert!(said.contains("--secret-file"), "{said}");
    let (code, said) = refused(&["--join", &gone, "--memory", "1GiB"]);
    assert!(code == Some(3) && said.contains("cannot reach the cluster") && said.contains(&gone), "{said}");
}
