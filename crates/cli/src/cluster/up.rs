//! `sherman cluster up`.

use super::args::{ClusterArgs, ClusterCommand, UpArgs};
use super::fleet::{Fleet, ended_within};
use super::place::ClusterFolder;
use crate::failure::Failure;
use crate::output::print;
use crate::serve::options::check_lease;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use sherman::{Admin, Hosts};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The interval between two checks whether a process has ended.
const STEP: Duration = Duration::from_millis(20);
/// How long the servers of a cluster may take to make all copies.
const START: Duration = Duration::from_secs(60);
/// How long a command may take to end after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs the subcommand.
pub fn run(args: &ClusterArgs) -> Result<ExitCode, Failure> {
    let ClusterCommand::Up(args) = &args.command;
    up(args)
}

fn up(args: &UpArgs) -> Result<ExitCode, Failure> {
    check_lease(args.lease.0)?;
    let told = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        let registered = signal_hook::flag::register(signal, Arc::clone(&told));
        registered.map_err(|error| Failure::Runtime(format!("cannot catch signals: {error}")))?;
    }
    let secret = args.secret_file.as_deref().map(absolute).transpose()?;
    // Values drop in reverse order: the file with the URL, then the servers, then their directory.
    let mut place = ClusterFolder::new(args.dir.as_deref())?;
    let secret = secret.as_deref();
    let mut fleet = match args.replicas {
        1 => Fleet::start(args.servers, |id| serve(args, id, &mut place, secret, plain_place(args, id)))?,
        replicas => {
            if args.servers < replicas.into() {
                return Err(Failure::option("servers", "there must be as many as --replicas, at least"));
            }
            Fleet::start_after_first(args.servers, |id, first| {
                serve(args, id, &mut place, secret, host_place(args, first))
            })?
        }
    };
    let url = url(&fleet.addresses(), secret);
    if args.replicas > 1 {
        await_copies(args, &url, &mut fleet, &told)?;
    }
    let _file = args.url_file.as_deref().map(|path| UrlFile::write(path, &url)).transpose()?;
    if args.command.is_empty() {
        announce(args, &fleet, &url)?;
        return wait(args, &mut fleet, &told).map(|()| ExitCode::SUCCESS);
    }
    run_command(args, &url, &mut fleet, &told).map(exit_code)
}

/// Returns the command that starts a server.
fn serve(
    args: &UpArgs,
    id: u16,
    place: &mut ClusterFolder,
    secret: Option<&Path>,
    in_cluster: Vec<String>,
) -> Result<Command, Failure> {
    let own = std::env::current_exe()
        .map_err(|error| Failure::Runtime(format!("cannot find the path of this program: {error}")))?;
    let listen = if args.tcp {
        "tcp://127.0.0.1:0".to_owned()
    } else {
        let path = place.file(&format!("server-{id}.sock"))?;
        format!("{}:{}", if args.shm { "shm" } else { "unix" }, path.display())
    };
    let mut command = Command::new(own);
    command.args(["serve", "--json", "--until-stdin-closes", "--log", "warn", "--listen", &listen]);
    command.args(["--memory", &args.memory.0.to_string()]).args(in_cluster);
    if let Some(secret) = secret {
        command.arg("--secret-file").arg(secret);
    }
    Ok(command)
}

/// The options that say what a server is in a cluster that keeps everything once.
fn plain_place(args: &UpArgs, id: u16) -> Vec<String> {
    let (id, servers) = (id.to_string(), args.servers.to_string());
    let place = ["--id", &id, "--servers", &servers].map(str::to_owned);
    place.into_iter().chain(of_cluster(args)).collect()
}

/// The same for a host: the first one makes the cluster, and the others join it there.
fn host_place(args: &UpArgs, first: Option<&str>) -> Vec<String> {
    if let Some(first) = first {
        return ["--join", first].map(str::to_owned).to_vec();
    }
    let (replicas, hosts) = (args.replicas.to_string(), args.servers.to_string());
    let place = ["--new-cluster", "--replicas", &replicas, "--hosts", &hosts].map(str::to_owned);
    place.into_iter().chain(of_cluster(args)).collect()
}

/// What is fixed when a cluster is made.
fn of_cluster(args: &UpArgs) -> [String; 4] {
    let (lease, name) = (args.lease.0.as_micros(), std::process::id());
    ["--lease".to_owned(), format!("{lease}us"), "--cluster-name".to_owned(), format!("up-{name}")]
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    let failed =
        |error: std::io::Error| Failure::option("secret-file", format!("{}: {error}", path.display()));
    path.metadata().map_err(failed)?;
    std::path::absolute(path).map_err(failed)
}

/// Returns the URL of servers at these addresses. All addresses have the same scheme.
fn url(addresses: &[&str], secret: Option<&Path>) -> String {
    let is_of = |scheme: &&str| addresses.iter().all(|address| address.starts_with(*scheme));
    let scheme = ["unix:", "shm:"].into_iter().find(is_of).unwrap_or("tcp://");
    let hosts: Vec<&str> =
        addresses.iter().map(|address| address.strip_prefix(scheme).unwrap_or(address)).collect();
    let secret = secret.map_or_else(String::new, |path| format!("?secret-file={}", path.display()));
    format!("{scheme}{}{secret}", hosts.join(","))
}

/// Waits until every volume has all its copies and the hosts that vote are as many as can vote: from then on
/// any one server may end.
fn await_copies(args: &UpArgs, url: &str, fleet: &mut Fleet, told: &AtomicBool) -> Result<(), Failure> {
    let admin = Admin::open(url)?;
    let deadline = Instant::now() + START;
    let votes = match args.servers {
        ..3 => 1,
        3 | 4 => 3,
        _ => 5,
    };
    let is_ready = |hosts: &Hosts| {
        let voting = hosts.hosts.iter().filter(|host| host.votes).count();
        let copied = hosts.volumes.iter().all(|volume| volume.backup.is_some());
        voting >= votes && copied && !hosts.volumes.is_empty() && hosts.volumes_closed() == 0
    };
    while !told.load(Ordering::Relaxed) {
        if let Some(server) = fleet.lost() {
            return Err(Failure::Runtime(lost(server)));
        }
        match admin.hosts() {
            Ok(Some(hosts)) if is_ready(&hosts) => return Ok(()),
            Err(error) if Instant::now() >= deadline => return Err(error.into()),
            _ if Instant::now() >= deadline => {
                let waited = format!("the servers have not made all copies within {START:?}");
                return Err(Failure::Runtime(waited));
            }
            _ => sleep(STEP),
        }
    }
    Ok(())
}

fn announce(args: &UpArgs, fleet: &Fleet, url: &str) -> Result<(), Failure> {
    if !args.json {
        return print(&format!("{url}\n"));
    }
    let servers = fleet.addresses().into_iter().zip(fleet.pids()).enumerate();
    let servers = servers.map(|(id, (address, pid))| json!({ "server": id, "address": address, "pid": pid }));
    print(&format!("{}\n", json!({ "url": url, "servers": servers.collect::<Vec<_>>() })))
}

fn lost((id, status): (u16, ExitStatus)) -> String {
    format!("memory server {id} ended by itself: {status}")
}

/// Waits for a signal, or at most for the time of `--for`. A server that ends by itself is a failure, unless
/// others have its data.
fn wait(args: &UpArgs, fleet: &mut Fleet, told: &AtomicBool) -> Result<(), Failure> {
    let deadline = args.length.map(|length| Instant::now() + length.0);
    while !told.load(Ordering::Relaxed) && deadline.is_none_or(|deadline| Instant::now() < deadline) {
        if let Some(server) = fleet.lost() {
            if args.replicas == 1 || !fleet.any_runs() {
                return Err(Failure::Runtime(lost(server)));
            }
            eprintln!("warning: {}", lost(server));
        }
        sleep(STEP);
    }
    Ok(())
}

/// Runs the command until it ends. If a server ends by itself, prints a warning and lets the command
/// continue.
fn run_command(
    args: &UpArgs,
    url: &str,
    fleet: &mut Fleet,
    told: &AtomicBool,
) -> Result<ExitStatus, Failure> {
    let Some((program, rest)) = args.command.split_first() else {
        return Err(Failure::Usage("no command is given".to_owned()));
    };
    let mut child = Command::new(program)
        .args(rest)
        .env("SHERMAN_CLUSTER", url)
        .spawn()
        .map_err(|error| Failure::Usage(format!("cannot run {}: {error}", program.display())))?;
    let failed = |error: std::io::Error| Failure::Runtime(format!("cannot wait for the command: {error}"));
    loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            return Ok(status);
        }
        if told.load(Ordering::Relaxed) {
            return end(&mut child).map_err(failed);
        }
        if let Some(server) = fleet.lost() {
            eprintln!("warning: {}", lost(server));
        }
        sleep(STEP);
    }
}

/// Stops a command with SIGTERM, and after [`PATIENCE`] with SIGKILL.
fn end(child: &mut Child) -> std::io::Result<ExitStatus> {
    // The process has not been waited for, so its id is still valid.
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::TERM);
    }
    match ended_within(child, PATIENCE) {
        Some(status) => Ok(status),
        None => {
            child.kill()?;
            child.wait()
        }
    }
}

/// Returns the exit code that a shell would return: 128 plus the signal if a signal ended the command.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(3);
    ExitCode::from(u8::try_from(code).unwrap_or(3))
}

/// The file with the URL. It appears complete, by a rename, and is removed with the cluster.
struct UrlFile(PathBuf);

impl UrlFile {
    fn write(path: &Path, url: &str) -> Result<Self, Failure> {
        let mut beside = path.as_os_str().to_owned();
        beside.push(".new");
        let written = fs::write(&beside, format!("{url}\n")).and_then(|()| fs::rename(&beside, path));
        written.map_err(|error| {
            Failure::option("url-file", format!("cannot write {}: {error}", path.display()))
        })?;
        Ok(Self(path.to_owned()))
    }
}

impl Drop for UrlFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_every_server_in_order() {
        assert_eq!(url(&["unix:/a.sock", "unix:/b.sock"], None), "unix:/a.sock,/b.sock");
        assert_eq!(url(&["tcp://127.0.0.1:1", "tcp://127.0.0.1:2"], None), "tcp://127.0.0.1:1,127.0.0.1:2");
        assert_eq!(url(&["shm:/a.sock", "shm:/b.sock"], None), "shm:/a.sock,/b.sock");
        assert_eq!(url(&["unix:/a"], Some(Path::new("/s"))), "unix:/a?secret-file=/s");
    }

    #[test]
    fn a_command_that_a_signal_ended_has_the_exit_code_of_shells() {
        assert_eq!(exit_code(ExitStatus::from_raw(0)), ExitCode::SUCCESS);
        assert_eq!(exit_code(ExitStatus::from_raw(7 << 8)), ExitCode::from(7));
        assert_eq!(exit_code(ExitStatus::from_raw(9)), ExitCode::from(137));
    }

    #[test]
    fn a_command_that_does_not_listen_to_sigterm_is_killed() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("it starts");
        assert_eq!(end(&mut child).expect("it ends").signal(), Some(SIGTERM));
        let mut shell = Command::new("sh");
        shell.args(["-c", "trap '' TERM; while :; do sleep 1; done"]);
        let mut deaf = shell.spawn().expect("it starts");
        sleep(Duration::from_millis(300));
        assert_eq!(end(&mut deaf).expect("it ends").signal(), Some(9));
    }

    #[test]
    fn the_file_with_the_url_goes_with_the_cluster() {
        let path = std::env::temp_dir().join(format!("sherman-url-{}", std::process::id()));
        let file = UrlFile::write(&path, "unix:/a").expect("a file");
        assert_eq!(fs::read_to_string(&path).expect("the file"), "unix:/a\n");
        drop(file);
        assert!(!path.exists());
        assert!(UrlFile::write(Path::new("/no/such/place"), "x").is_err());
    }
}
