//! `sherman drain` lets a host leave its cluster. `sherman rebalance` spreads copies evenly over the hosts.

pub mod args;

use crate::failure::Failure;
use crate::hosts::args::{DrainArgs, RebalanceArgs};
use crate::output::write;
use serde_json::{Value, json};
use sherman::{Admin, Error, HostStatus, Hosts, OpenError, Refusal, Spreading};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The pause between two looks at the cluster.
const LOOK: Duration = Duration::from_millis(100);
/// How often progress is printed at most.
const TELL: Duration = Duration::from_secs(1);
/// For how long the cluster may be out of reach while a command waits.
const PATIENCE: Duration = Duration::from_secs(30);

/// Lets a host leave, or stay after all.
pub fn drain(args: &DrainArgs) -> Result<ExitCode, Failure> {
    let (id, url) = (args.id, args.wait.target.required()?);
    let admin = Admin::open(&url)?;
    expect_hosts(&admin)?;
    if args.cancel {
        admin.cancel_drain(id).map_err(refused)?;
        let report = json!({ "cluster": url, "host": id, "state": "present" });
        write(&format!("host {id} stays"), serde_json::to_string_pretty(&report), args.wait.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    admin.drain(id).map_err(refused)?;
    let began = Instant::now();
    if !args.wait.no_wait {
        let gone = |host: &HostStatus| host.id == id && !host.up;
        wait(&admin, |hosts| {
            let host = hosts.hosts.iter().find(|host| host.id == id);
            match host {
                Some(host) if host.up && !host.leaving => {
                    Err(Failure::Runtime(format!("the drain of host {id} was cancelled")))
                }
                Some(host) if !host.up && !host.leaving => {
                    Err(Failure::Runtime(format!("host {id} was lost before its copies had moved")))
                }
                Some(host) => {
                    let left = host.primaries + host.backups;
                    Ok((gone(host), format!("{left} copies are left on host {id}{}", progress(hosts))))
                }
                // A host that is not on the list left long ago.
                None => Ok((true, String::new())),
            }
        })?;
    }
    let left = !args.wait.no_wait;
    let report = json!({
        "cluster": url,
        "host": id,
        "state": if left { "left" } else { "leaving" },
        "seconds": left.then(|| began.elapsed().as_secs_f64()),
    });
    let text = match left {
        true => format!("host {id} has left the cluster: its copies are on other hosts, its process ends"),
        false => format!("the copies of host {id} move away; \"sherman stats\" shows how far they are"),
    };
    write(&text, serde_json::to_string_pretty(&report), args.wait.json)?;
    Ok(ExitCode::SUCCESS)
}

/// Spreads copies evenly.
pub fn rebalance(args: &RebalanceArgs) -> Result<ExitCode, Failure> {
    let url = args.wait.target.required()?;
    let admin = Admin::open(&url)?;
    expect_hosts(&admin)?;
    let when = match (args.always, args.stop) {
        (_, true) => Spreading::Never,
        (true, _) => Spreading::Always,
        _ => Spreading::Now,
    };
    admin.rebalance(when).map_err(refused)?;
    let began = Instant::now();
    let waits = !args.wait.no_wait && !args.stop;
    if waits {
        wait(&admin, |hosts| {
            let moving = hosts.volumes_moving();
            Ok((!hosts.copies.spreading, format!("{moving} volumes are moving{}", progress(hosts))))
        })?;
    }
    let hosts = expect_hosts(&admin)?;
    let report = json!({
        "cluster": url,
        "spreading": hosts.copies.spreading,
        "always": hosts.copies.always,
        "seconds": waits.then(|| began.elapsed().as_secs_f64()),
        "hosts": hosts.hosts.iter().filter(|host| host.up).map(as_json).collect::<Vec<_>>(),
    });
    let text = match (hosts.copies.spreading, args.stop) {
        (_, true) => "no further copies are moved to make the distribution even".to_owned(),
        (true, _) => "copies are moving; \"sherman stats\" shows how far they are".to_owned(),
        (false, _) => format!("the copies are spread evenly:{}", lines(&hosts)),
    };
    write(&text, serde_json::to_string_pretty(&report), args.wait.json)?;
    Ok(ExitCode::SUCCESS)
}

fn as_json(host: &HostStatus) -> Value {
    json!({
        "id": host.id,
        "memory": host.memory,
        "primaries": host.primaries,
        "backups": host.backups,
    })
}

fn lines(hosts: &Hosts) -> String {
    let up = hosts.hosts.iter().filter(|host| host.up);
    let line = |host: &HostStatus| {
        format!("\n  host {}: {} primaries, {} backups", host.id, host.primaries, host.backups)
    };
    up.map(line).collect()
}

/// Refuses a cluster that has no hosts.
fn expect_hosts(admin: &Admin) -> Result<Hosts, Failure> {
    admin.hosts()?.ok_or_else(|| {
        let what =
            "only a cluster of hosts can move its memory: this one was started with --id and --servers";
        Failure::Usage(what.to_owned())
    })
}

fn refused(error: OpenError) -> Failure {
    match error {
        OpenError::Cluster(Error::Refused(refusal @ Refusal::NoSuchHost { .. })) => {
            Failure::No(refusal.to_string())
        }
        error => error.into(),
    }
}

/// Waits until `look` says that it is done. Shows what it says.
fn wait(admin: &Admin, look: impl Fn(&Hosts) -> Result<(bool, String), Failure>) -> Result<(), Failure> {
    let (mut said, mut told) = (String::new(), None::<Instant>);
    let mut answered = Instant::now();
    loop {
        match admin.hosts() {
            Ok(Some(hosts)) => {
                answered = Instant::now();
                let (done, now) = look(&hosts)?;
                if done {
                    return Ok(());
                }
                if now != said && told.is_none_or(|told| told.elapsed() >= TELL) {
                    eprintln!("{now}");
                    (said, told) = (now, Some(Instant::now()));
                }
            }
            Ok(None) => return Err(Failure::Runtime("the cluster has no hosts any more".to_owned())),
            Err(error) if answered.elapsed() > PATIENCE => return Err(error.into()),
            // A leader may have changed.
            Err(_) => {}
        }
        std::thread::sleep(LOOK);
    }
}

/// How far the copies are, in words; nothing if that is not known.
fn progress(hosts: &Hosts) -> String {
    let (done, total) = hosts.copied_bytes();
    if total == 0 {
        return String::new();
    }
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let time = hosts.copies_take().map(|time| format!(", about {:.0} s", time.as_secs_f64().ceil()));
    format!("; {:.0} of {:.0} MiB copied{}", mib(done), mib(total), time.unwrap_or_default())
}
