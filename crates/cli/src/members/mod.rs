//! `sherman members` lists the members of a cluster. `sherman fence` ends the lease of a broken member.
//!
//! Both commands talk to server 0 as an operator, not as a member. They need no free id, and no server other
//! than server 0. In a cluster of hosts they talk to the host that leads.

pub mod args;

use crate::failure::Failure;
use crate::members::args::{FenceArgs, MembersArgs};
use crate::output::write;
use serde_json::{Value, json};
use sherman::{Admin, ComputeId, Error, Member, OpenError, Refusal, ServerStats, Standing};
use std::fmt;
use std::process::ExitCode;
use std::time::Duration;

/// Lists the members.
pub fn list(args: &MembersArgs) -> Result<ExitCode, Failure> {
    let url = args.target.required()?;
    let admin = Admin::open(&url)?;
    let (members, counted) = (admin.members()?, admin.first_stats()?);
    let roll = Roll::of(&members, counted.as_ref());
    let mut report = roll.json();
    report["cluster"] = json!(url);
    report["members"] = members.iter().map(as_json).collect();
    let text = format!("{url}\n\n{}\n\n{roll}", Table(&members));
    write(&text, serde_json::to_string_pretty(&report), args.json)?;
    Ok(ExitCode::SUCCESS)
}

/// Ends the lease of one member.
pub fn fence(args: &FenceArgs) -> Result<ExitCode, Failure> {
    let url = args.target.required()?;
    let admin = Admin::open(&url)?;
    if let Err(error) = admin.fence(args.id) {
        return Err(match error {
            OpenError::Cluster(Error::Refused(Refusal::NotAMember { client })) => {
                Failure::No(format!("no member has the id {client}; {}", known(&admin.members()?)))
            }
            other => other.into(),
        });
    }
    let members = admin.members()?;
    let fenced = Fenced { id: args.id, members: &members };
    let report = json!({
        "cluster": url,
        "fenced": args.id.0,
        "waiting_for_recovery": fenced.waiting().map(|member| member.id.0).collect::<Vec<_>>(),
        "members": members.iter().map(as_json).collect::<Vec<_>>(),
    });
    let text = format!("{url}\n\n{fenced}\n{}", Table(&members));
    write(&text, serde_json::to_string_pretty(&report), args.json)?;
    Ok(ExitCode::SUCCESS)
}

/// Lists the ids of the members.
fn known(members: &[Member]) -> String {
    if members.is_empty() {
        return "the cluster has no members".to_owned();
    }
    let ids: Vec<String> = members.iter().map(|member| member.id.to_string()).collect();
    format!("the members are {}", ids.join(", "))
}

/// The number of members, and of ids.
pub struct Roll {
    live: usize,
    leaving: usize,
    dead: usize,
    /// The number of ids, of free ids, and of members without a recoverer, if server 0 answers.
    ids: Option<(u64, u64, u64)>,
}

impl Roll {
    /// Counts the members by standing.
    pub fn of(members: &[Member], counted: Option<&ServerStats>) -> Self {
        let with = |standing| members.iter().filter(|member| member.standing == standing).count();
        let ids = counted.map(|counted| (counted.ids, counted.ids_free, counted.members_waiting));
        Self { live: with(Standing::Live), leaving: with(Standing::Leaving), dead: with(Standing::Dead), ids }
    }

    /// Returns the counts as JSON.
    pub fn json(&self) -> Value {
        json!({
            "live": self.live,
            "leaving": self.leaving,
            "dead": self.dead,
            "ids": self.ids.map(|(ids, ..)| ids),
            "ids_free": self.ids.map(|(_, free, _)| free),
            "waiting_for_recovery": self.ids.map(|(.., waiting)| waiting),
        })
    }
}

impl fmt::Display for Roll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} live, {} leaving, {} dead", self.live, self.leaving, self.dead)?;
        if let Some((ids, free, waiting)) = self.ids {
            write!(f, "; {waiting} wait for recovery; {free} of {ids} ids are free")?;
        }
        Ok(())
    }
}

/// Returns the name of a standing for reports.
pub fn standing_name(standing: Standing) -> &'static str {
    match standing {
        Standing::Live => "live",
        Standing::Leaving => "leaving",
        Standing::Dead => "dead",
    }
}

/// Returns a member as JSON.
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

/// The result of a fence as text.
struct Fenced<'m> {
    id: ComputeId,
    members: &'m [Member],
}

impl<'m> Fenced<'m> {
    /// Returns the members that wait for recovery.
    fn waiting(&self) -> impl Iterator<Item = &'m Member> {
        self.members.iter().filter(|member| member.standing != Standing::Live)
    }
}

impl fmt::Display for Fenced<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "the lease of member {} has ended", self.id)?;
        let waiting: Vec<String> = self.waiting().map(|member| member.id.to_string()).collect();
        if waiting.is_empty() {
            return writeln!(f, "no member waits for recovery");
        }
        let live = self.members.iter().any(|member| member.standing == Standing::Live);
        let by = if live { "a live member recovers them" } else { "the next client to join recovers them" };
        writeln!(f, "waiting for recovery: {}; {by}", waiting.join(", "))
    }
}

/// The members as a table of text.
struct Table<'m>(&'m [Member]);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(members) = self;
        if members.is_empty() {
            return write!(f, "the cluster has no members");
        }
        let seconds = |time: Duration| format!("{:.3} s", time.as_secs_f64());
        write!(
            f,
            "{:>6}  {:<9}{:>12}{:>14}{:>14}{:>14}",
            "id", "standing", "id issued", "member for", "lease left", "recoverer"
        )?;
        for member in *members {
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
        }
        Ok(())
    }
}
