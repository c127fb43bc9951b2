//! `sherman servers` lists the memory servers of a cluster. `sherman declare-lost` gives one up permanently.

pub mod args;

use crate::failure::Failure;
use crate::output::write;
use crate::servers::args::{DeclareLostArgs, ServersArgs};
use serde_json::{Value, json};
use sherman::{Admin, ServerStatus};
use std::fmt;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

/// Lists the servers.
pub fn list(args: &ServersArgs) -> Result<ExitCode, Failure> {
    let url = args.target.required()?;
    let servers = Admin::open(&url)?.servers()?;
    let report = json!({ "cluster": url, "servers": servers.iter().map(as_json).collect::<Vec<_>>() });
    let text = format!("{url}\n\n{}", Table(&servers));
    write(&text, serde_json::to_string_pretty(&report), args.json)?;
    Ok(ExitCode::SUCCESS)
}

/// Declares one server lost.
pub fn declare_lost(args: &DeclareLostArgs) -> Result<ExitCode, Failure> {
    let id = args.id;
    let url = args.target.required()?;
    let admin = Admin::open(&url)?;
    let servers = admin.servers()?;
    let last = servers.last().map_or(0, |server| server.id);
    // Hosts that were lost long ago are not on the list.
    let Some(server) = servers.iter().find(|server| server.id == id) else {
        return Err(Failure::No(format!("there is no memory server {id}; the last one is {last}")));
    };
    if id == 0 && admin.hosts()?.is_none() {
        let reason = "memory server 0 keeps the members and the catalog: it cannot be declared lost";
        return Err(Failure::Usage(reason.to_owned()));
    }
    let before = server.lost;
    if !before {
        if server.is_intact() && !args.force {
            return Err(Failure::Usage(format!(
                "memory server {id} at {} answers with its memory; stop it first, or give --force",
                server.address
            )));
        }
        confirm(args, server)?;
        admin.declare_lost(id)?;
    }
    let report = json!({ "cluster": url, "declared_lost": id, "was_lost_before": before });
    let text = match before {
        true if server.left => format!("memory server {id} has left the cluster"),
        true => format!("memory server {id} was already declared lost"),
        false => format!(
            "memory server {id} is declared lost. The lease of every member has ended; clients join again by \
             themselves"
        ),
    };
    write(&text, serde_json::to_string_pretty(&report), args.json)?;
    Ok(ExitCode::SUCCESS)
}

/// Asks for confirmation on the terminal, unless `--yes` was given.
fn confirm(args: &DeclareLostArgs, server: &ServerStatus) -> Result<(), Failure> {
    if args.yes {
        return Ok(());
    }
    let id = args.id;
    if !std::io::stdin().is_terminal() {
        let reason =
            "\"sherman declare-lost\" cannot be undone. Confirm with --yes, because stdin is not a terminal";
        return Err(Failure::Usage(reason.to_owned()));
    }
    let state = server.problem().unwrap_or_else(|| "answers with its memory".to_owned());
    eprint!(
        "memory server {id} at {}: {state}\n\
         Every entry on it will be lost, and every client joins again. This cannot be undone.\n\
         Type the server's number to continue: ",
        server.address
    );
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    read.map_err(|error| Failure::Runtime(format!("cannot read the answer: {error}")))?;
    if answer.trim() == id.to_string() {
        return Ok(());
    }
    Err(Failure::No("the answer is not the server's number; nothing was changed".to_owned()))
}

/// Formats an identity.
fn hex(number: u64) -> String {
    format!("{number:016x}")
}

/// Returns a server as JSON.
fn as_json(server: &ServerStatus) -> Value {
    let found = server.found.as_ref().ok();
    json!({
        "id": server.id,
        "address": server.address,
        "memory": server.memory.map(hex),
        "state": state(server),
        "reachable": found.is_some(),
        "found_memory": found.map(|found| hex(found.memory)),
        "cluster": found.and_then(|found| found.cluster).map(hex),
        "boot": found.map(|found| hex(found.boot)),
        "problem": server.problem(),
    })
}

fn state(server: &ServerStatus) -> &'static str {
    match (server.lost, server.left) {
        (true, true) => "left",
        (true, false) => "lost",
        (false, _) => "present",
    }
}

/// The servers as a table of text.
struct Table<'s>(&'s [ServerStatus]);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(servers) = self;
        let width = servers
            .iter()
            .map(|server| server.address.chars().count())
            .max()
            .unwrap_or(0)
            .max("address".len());
        write!(
            f,
            "{:>6}  {:<width$}  {:<16}  {:<7}  {:<16}  answers",
            "server", "address", "memory", "state", "boot"
        )?;
        for server in *servers {
            let known = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), hex);
            let boot = known(server.found.as_ref().ok().map(|found| found.boot));
            let answers = match (&server.found, server.problem()) {
                (Ok(_), None) => "yes".to_owned(),
                (Ok(_), Some(_)) if server.lost => "yes, but is not used".to_owned(),
                (Err(_), Some(_)) if server.lost => "no".to_owned(),
                (_, problem) => problem.unwrap_or_default(),
            };
            let (id, address, memory) = (server.id, &server.address, known(server.memory));
            write!(
                f,
                "\n{id:>6}  {address:<width$}  {memory:<16}  {:<7}  {boot:<16}  {answers}",
                state(server)
            )?;
        }
        Ok(())
    }
}
