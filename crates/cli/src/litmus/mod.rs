//! `sherman litmus`: counts how often a fabric breaks F1 to F4.

pub mod args;
pub mod device;

use crate::failure::Failure;
use crate::litmus::args::LitmusArgs;
use crate::litmus::device::Serving;
use crate::output::print;
use crate::target::{announce, described};
use serde_json::{Value, json};
use sherman::{AnyFabric, ComputeId};
use sherman_conformance::litmus::{About, Count, Finding, LitmusSite, all, run as run_programs};
use sherman_fabric::control::{ChunkClass, Standing};
use sherman_fabric::{Call, Caps, Endpoint, Peer, call, calls};
use std::fmt;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

/// The default cluster.
const DEFAULT: &str = "embedded:?memory=64MiB&chunk=1MiB";
/// A chunk class that any server accepts.
const CLASS: ChunkClass = ChunkClass { node_bytes: 1024, format: 1 };

/// Runs the programs and prints the report.
pub fn run(args: &LitmusArgs) -> Result<ExitCode, Failure> {
    args.output.check_path()?;
    let known = all();
    if let Some(unknown) = args.only.iter().find(|name| known.iter().all(|about| about.name != **name)) {
        return Err(Failure::option("only", format!("there is no program {unknown:?}; --list lists them")));
    }
    if args.list {
        return list(&known, args);
    }
    if args.seconds <= 0.0 {
        return Err(Failure::option("seconds", "a program must run for more than 0 s"));
    }
    let serving = args.device.as_deref().map(Serving::start).transpose()?;
    let given = match &serving {
        Some(serving) => Some(serving.url().to_owned()),
        None => args.target.given()?,
    };
    let report = examine(given.as_deref(), args)?;
    let code = if report.violations() == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) };
    args.output.write(&report, serde_json::to_string_pretty(&report.json()))?;
    Ok(code)
}

fn list(known: &[About], args: &LitmusArgs) -> Result<ExitCode, Failure> {
    let wanted = known.iter().filter(|about| is_wanted(about, args));
    if args.output.json {
        let programs = wanted.map(|about| {
            json!({ "program": about.name, "rule": about.rule.to_string(), "violation": about.violation })
        });
        print(&format!("{}\n", json!({ "programs": programs.collect::<Vec<_>>() })))?;
        return Ok(ExitCode::SUCCESS);
    }
    let lines = wanted.map(|about| format!("{:<26} {}  {}\n", about.name, about.rule, about.violation));
    print(&lines.collect::<String>())?;
    Ok(ExitCode::SUCCESS)
}

fn is_wanted(about: &About, args: &LitmusArgs) -> bool {
    args.only.is_empty() || args.only.iter().any(|name| name == about.name)
}

/// Sends a request to `peer`.
fn ask<C: Call>(endpoint: &impl Endpoint, peer: Peer, request: C) -> Result<C::Reply, Failure> {
    let asked = call(endpoint, peer, request, endpoint.counters());
    sherman_executor::block_on(endpoint, asked).map_err(|error| Failure::Runtime(error.to_string()))
}

/// Runs the programs on the cluster `given`, or else on a cluster inside this process.
fn examine(given: Option<&str>, args: &LitmusArgs) -> Result<Report, Failure> {
    let url = given.unwrap_or(DEFAULT).to_owned();
    let first = AnyFabric::open(&url)?;
    let endpoint = first.endpoint().map_err(|error| Failure::Runtime(error.to_string()))?;
    expect_fresh(&endpoint)?;
    let second = first.join_again()?;
    let spans = ask(&endpoint, Peer::Volume(0), calls::AllocSpans { class: CLASS, count: 1 })?;
    let Some(offset) =
        spans.first().filter(|span| span.bytes >= LitmusSite::HOST_BYTES).map(|span| span.offset)
    else {
        return Err(Failure::Runtime("memory server 0 gave too little memory for the programs".to_owned()));
    };
    let caps = endpoint.caps().clone();
    // The cluster has no tree, so no lock is in use.
    let on_chip = (caps.on_chip_bytes >= LitmusSite::ON_CHIP_BYTES).then_some(0);
    let place = LitmusSite { server: 0, host: offset, on_chip };
    announce(&described(given));
    let mut findings = Vec::new();
    let time = Duration::from_secs_f64(args.seconds);
    let bar = std::io::stderr().is_terminal();
    let ran = run_programs(
        [&first, &second],
        &place,
        time,
        |about| is_wanted(about, args),
        |found| {
            if bar {
                eprintln!("{}", Row(found));
            }
            findings.push(found.clone());
        },
    );
    ran.map_err(|interrupted| Failure::Runtime(interrupted.to_string()))?;
    ask(&endpoint, Peer::Volume(0), calls::FreeSpans { spans: vec![(offset, true)] })?;
    Ok(Report { url, caps, findings })
}

/// Refuses a cluster that has a tree or another live member, because the programs overwrite memory.
fn expect_fresh(endpoint: &impl Endpoint) -> Result<(), Failure> {
    if let Some(tree) = ask(endpoint, Peer::Control, calls::ListTrees)?.first() {
        return Err(Failure::Usage(format!(
            "the cluster has a tree {:?}. Litmus programs need a fresh cluster",
            tree.name
        )));
    }
    let members = ask(endpoint, Peer::Control, calls::Members)?;
    let own: ComputeId = endpoint.client();
    match members.iter().find(|member| member.client != own && member.standing == Standing::Live) {
        Some(other) => Err(Failure::Usage(format!(
            "compute server {} is a member of the cluster. Litmus programs must be the only members",
            other.client
        ))),
        None => Ok(()),
    }
}

/// The findings of all programs.
struct Report {
    url: String,
    caps: Caps,
    findings: Vec<Finding>,
}

impl Report {
    fn violations(&self) -> u64 {
        self.findings
            .iter()
            .filter_map(|found| found.outcome.as_ref().ok())
            .map(|count| count.violations)
            .sum()
    }

    fn json(&self) -> Value {
        let findings = self.findings.iter().map(|Finding { about, outcome }| {
            let About { name, rule, violation, weak } = about;
            let about = json!({
                "program": name,
                "rule": rule.to_string(),
                "violation": violation,
                "weak": weak,
            });
            let told = match outcome {
                Ok(Count { rounds, violations, weak, first }) => {
                    json!({
                        "rounds": rounds,
                        "violations": violations,
                        "weak_outcomes": weak,
                        "first_violation": first,
                    })
                }
                Err(reason) => json!({ "skipped": reason }),
            };
            merge(about, told)
        });
        json!({
            "cluster": self.url,
            "masked_cas": self.caps.masked_cas,
            "on_chip_bytes": self.caps.on_chip_bytes,
            "violations": self.violations(),
            "programs": findings.collect::<Vec<_>>(),
        })
    }
}

fn merge(mut one: Value, other: Value) -> Value {
    if let (Value::Object(into), Value::Object(from)) = (&mut one, other) {
        into.extend(from);
    }
    one
}

/// One line of the table.
struct Row<'f>(&'f Finding);

impl fmt::Display for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { about, outcome } = self.0;
        write!(f, "{} {:<26}", about.rule, about.name)?;
        match outcome {
            Err(reason) => write!(f, " skipped: {reason}"),
            Ok(Count { rounds, violations, weak, first }) => {
                write!(f, "{rounds:>12} rounds {violations:>6} violations")?;
                if !about.weak.is_empty() {
                    write!(f, " {weak:>10} weak: {}", about.weak)?;
                }
                match first {
                    Some(first) => write!(f, "\n   VIOLATED: {}; the first time: {first}", about.violation),
                    None => Ok(()),
                }
            }
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}, masked CAS {}, {} bytes on-chip",
            self.url,
            yes(self.caps.masked_cas),
            self.caps.on_chip_bytes
        )?;
        for finding in &self.findings {
            writeln!(f, "{}", Row(finding))?;
        }
        match self.violations() {
            0 => write!(f, "no violation"),
            some => write!(f, "{some} violations: this fabric breaks the contract"),
        }
    }
}

fn yes(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}
