//! `sherman members` and `sherman fence`: who takes part in a cluster, and putting an end to one that is broken.

use crate::failure::Failure;
use crate::members_args::{FenceArgs, MembersArgs};
use crate::output::write;
use serde_json::{Value, json};
use sherman::{ClientId, Cluster, Error, Member, Recovery, Refusal, Standing, Verdict};
use std::fmt;
use std::process::ExitCode;
use std::time::Duration;

/// Compute servers made where otherwise nobody would be.
const GUESTS: u64 = 2;
/// Entries each of them writes.
const ENTRIES: u64 = 1_000;

/// A cluster, opened to look at its members.
struct Opened {
    url: String,
    cluster: Cluster,
    /// Compute servers made for this command: the cluster is private to it.
    guests: Vec<Cluster>,
}

impl Opened {
    fn new(url: String) -> Result<Self, Failure> {
        let cluster = Cluster::open(&url)?;
        let mut opened = Self { url, cluster, guests: Vec::new() };
        if opened.is_private() {
            opened.invite()?;
        }
        Ok(opened)
    }

    fn is_private(&self) -> bool {
        self.url.split(':').next() == Some("embedded")
    }

    /// Makes compute servers that write a little.
    fn invite(&mut self) -> Result<(), Failure> {
        for number in 0..GUESTS {
            let guest = self.cluster.join().map_err(|error| Failure::Runtime(error.to_string()))?;
            let client = guest.tree::<u64, u64>("guests")?.client()?;
            for entry in 0..ENTRIES {
                client.insert(entry * GUESTS + number, entry)?;
            }
            self.guests.push(guest);
        }
        Ok(())
    }

    fn members(&self) -> Result<Vec<Member>, Failure> {
        Ok(self.cluster.members()?)
    }

    fn about(&self) -> String {
        let Self { url, guests, .. } = self;
        if guests.is_empty() {
            return format!("{url}\n");
        }
        format!(
            "{url}\na cluster in this process alone: made for this command with {} compute servers, gone when it ends\n",
            guests.len()
        )
    }
}

/// Lists the members.
pub fn list(args: &MembersArgs) -> Result<ExitCode, Failure> {
    let opened = Opened::new(args.target.required()?)?;
    let (own, members) = (opened.cluster.id(), opened.members()?);
    let report = json!({
        "cluster": opened.url,
        "private": opened.is_private(),
        "this_command": own.0,
        "members": members.iter().map(as_json).collect::<Vec<_>>(),
    });
    let text = format!("{}\n{}", opened.about(), Table { own, members: &members });
    write(&text, serde_json::to_string_pretty(&report), args.json)?;
    Ok(ExitCode::SUCCESS)
}

/// Fences one.
pub fn fence(args: &FenceArgs) -> Result<ExitCode, Failure> {
    let opened = Opened::new(args.target.required()?)?;
    let (own, before) = (opened.cluster.id(), opened.members()?);
    if args.id == own {
        return Err(Failure::Usage(format!("{own} is this command itself; \"sherman members\" lists the others")));
    }
    let recovery = opened.cluster.fence(args.id).map_err(|error| match error {
        Error::Refused(Refusal::NotAMember { client }) => {
            let ids: Vec<String> = before.iter().map(|member| member.id.to_string()).collect();
            Failure::No(format!("no member has the id {client}; there are {}", ids.join(", ")))
        }
        other => other.into(),
    })?;
    let members = opened.members()?;
    let (outcome, by) = outcome(&recovery, own)?;
    let report = json!({
        "cluster": opened.url,
        "private": opened.is_private(),
        "fenced": args.id.0,
        "outcome": outcome,
        "recovered_by": by.0,
        "records_replayed": recovery.records,
        "lanes_freed": recovery.lanes,
        "places_taken_over": recovery.places,
        "this_command": own.0,
        "members": members.iter().map(as_json).collect::<Vec<_>>(),
    });
    let text = format!(
        "{}\n{}\n{}",
        opened.about(),
        Fenced { id: args.id, by, own, recovery: &recovery },
        Table { own, members: &members }
    );
    write(&text, serde_json::to_string_pretty(&report), args.json)?;
    Ok(ExitCode::SUCCESS)
}

/// How it ended, and who recovers it.
fn outcome(recovery: &Recovery, own: ClientId) -> Result<(&'static str, ClientId), Failure> {
    match recovery.verdict {
        Verdict::Recover | Verdict::Gone => Ok(("recovered", own)),
        Verdict::Recovering { by } | Verdict::Displaced { by } => Ok(("recovering", by)),
        Verdict::Alive { .. } => Err(Failure::Runtime("the memory server takes it for alive".to_owned())),
    }
}

/// What it is called.
pub fn standing_name(standing: Standing) -> &'static str {
    match standing {
        Standing::Live => "live",
        Standing::Leaving => "leaving",
        Standing::Dead => "dead",
    }
}

/// A member, for programs.
pub fn as_json(member: &Member) -> Value {
    json!({
        "id": member.id.0,
        "standing": standing_name(member.standing),
        "incarnation": member.incarnation,
        "age_seconds": member.age.as_secs_f64(),
        "lease_left_seconds": member.lease_left.as_secs_f64(),
        "recoverer": member.recoverer.map(|recoverer| recoverer.0),
    })
}

/// What fencing came to, for people.
struct Fenced<'r> {
    id: ClientId,
    by: ClientId,
    own: ClientId,
    recovery: &'r Recovery,
}

impl fmt::Display for Fenced<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, by, own, recovery } = self;
        if by != own {
            return writeln!(f, "{id} is fenced; {by} recovers it");
        }
        let Recovery { records, lanes, places, .. } = recovery;
        writeln!(f, "{id} is fenced and recovered")?;
        writeln!(f, "records replayed    {records}\nlanes freed         {lanes}\nplaces taken over   {places}")
    }
}

/// The members, for people.
struct Table<'m> {
    own: ClientId,
    members: &'m [Member],
}

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |time: Duration| format!("{:.3} s", time.as_secs_f64());
        write!(
            f,
            "{:>6}  {:<9}{:>12}{:>14}{:>14}{:>14}",
            "id", "standing", "id issued", "member for", "lease left", "recoverer"
        )?;
        for member in self.members {
            let recoverer = member.recoverer.map_or("-".to_owned(), |recoverer| recoverer.to_string());
            write!(
                f,
                "\n{:>6}  {:<9}{:>12}{:>14}{:>14}{:>14}",
                member.id.0,
                standing_name(member.standing),
                format!("{} x", member.incarnation),
                seconds(member.age),
                seconds(member.lease_left),
                recoverer
            )?;
            if member.id == self.own {
                write!(f, "  this command")?;
            }
        }
        Ok(())
    }
}
