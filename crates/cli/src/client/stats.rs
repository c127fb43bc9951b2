//! `sherman stats`: shows the resources and the members of a cluster.

use super::args::StatsArgs;
use super::trees;
use crate::failure::Failure;
use crate::members::{Roll, as_json, standing_name};
use crate::output::write;
use serde_json::{Value, json};
use sherman::{Admin, Hosts, Member, OpenError, ServerStats, ServerUsage, TreeDescription};
use std::fmt;

/// Asks the servers and prints the result.
pub fn run(args: &StatsArgs) -> Result<(), Failure> {
    let url = args.target.required()?;
    let stats = Stats::of(&Admin::open(&url)?, &url)?;
    write(&stats, serde_json::to_string_pretty(&stats.json()), args.json)
}

/// The state of a cluster at about one moment. The command asks the servers one after another.
struct Stats {
    url: String,
    /// The memory of each server, or the reason why the server does not answer.
    servers: Vec<Result<ServerUsage, String>>,
    /// The counters of each server, if it answers.
    counted: Vec<Option<ServerStats>>,
    /// The hosts and volumes, in a cluster of hosts.
    hosts: Option<Hosts>,
    members: Vec<Member>,
    trees: Vec<TreeDescription>,
}

impl Stats {
    fn of(admin: &Admin, url: &str) -> Result<Self, Failure> {
        let hosts = admin.hosts()?;
        let usage = admin.usage()?;
        // Every host that is gone has lost its part of the table, but not every one was lost.
        let host = |at: usize| hosts.as_ref().and_then(|hosts| hosts.hosts.get(at));
        let left = |at: usize| host(at).is_some_and(|host| host.state() == "left");
        let problem = |at: usize, error: &OpenError| match left(at) {
            true => "has left the cluster".to_owned(),
            false => error.to_string(),
        };
        let servers = usage.into_iter().enumerate();
        let servers = servers.map(|(at, usage)| usage.map_err(|error| problem(at, &error))).collect();
        Ok(Self {
            url: url.to_owned(),
            servers,
            counted: admin.stats()?.into_iter().map(Result::ok).collect(),
            hosts,
            members: admin.members()?,
            trees: admin.trees()?,
        })
    }

    /// The number of a server. Hosts that were lost long ago are not on the list.
    fn number(&self, at: usize) -> usize {
        let host = self.hosts.as_ref().and_then(|hosts| hosts.hosts.get(at));
        host.map_or(at, |host| host.id.into())
    }

    fn roll(&self) -> Roll {
        // In a cluster of hosts no single server counts the ids.
        let first = self.counted.first().filter(|_| self.hosts.is_none());
        Roll::of(&self.members, first.and_then(Option::as_ref))
    }

    fn json(&self) -> Value {
        let servers = self.servers.iter().zip(&self.counted).enumerate();
        let servers: Vec<Value> = servers
            .map(|(at, (usage, counted))| server_json(self.number(at), usage, counted.as_ref()))
            .collect();
        let mut json = self.roll().json();
        json["cluster"] = json!(self.url);
        json["servers"] = json!(servers);
        json["group"] = self.hosts.as_ref().map(hosts_json).into();
        json["members"] = self.members.iter().map(as_json).collect();
        json["trees"] = self.trees.iter().map(trees::as_json).collect();
        json
    }
}

fn hosts_json(hosts: &Hosts) -> Value {
    let volumes = hosts
        .volumes
        .iter()
        .map(|volume| json!({ "primary": volume.primary, "backup": volume.backup, "open": volume.open }));
    json!({
        "cluster": format!("{:016x}", hosts.cluster),
        "leader": hosts.leader,
        "epoch": hosts.epoch,
        "volumes": volumes.collect::<Vec<_>>(),
        "volumes_with_one_copy": hosts.volumes_with_one_copy(),
        "volumes_closed": hosts.volumes_closed(),
        "volumes_lost": hosts.volumes_lost(),
        "volumes_in_the_making": hosts.volumes_in_the_making(),
        "volumes_moving": hosts.volumes_moving(),
        "copies_bytes": hosts.copied_bytes().1,
        "copies_bytes_done": hosts.copied_bytes().0,
        "copies_seconds_left": hosts.copies_take().map(|time| time.as_secs_f64()),
        "copies_spreading": hosts.copies.spreading,
        "copies_always_spread": hosts.copies.always,
        "hosts": hosts.hosts.iter().map(|host| json!({
            "id": host.id,
            "address": host.address,
            "up": host.up,
            "state": host.state(),
            "votes": host.votes,
            "memory": host.memory,
            "primaries": host.primaries,
            "backups": host.backups,
        })).collect::<Vec<_>>(),
    })
}

/// The hosts and volumes of a cluster.
struct Group<'h>(&'h Hosts);

impl fmt::Display for Group<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(hosts) = self;
        let leader = hosts.leader.as_deref().unwrap_or("unknown");
        writeln!(f, "leader {leader}, epoch {} of the table of volumes\n", hosts.epoch)?;
        let width = hosts.hosts.iter().map(|host| host.address.chars().count()).max().unwrap_or(0).max(7);
        writeln!(
            f,
            "{:>6}  {:<width$}  {:<7}{:>6}{:>14}{:>11}{:>9}",
            "host", "address", "state", "votes", "memory", "primaries", "backups"
        )?;
        for host in &hosts.hosts {
            let (state, votes) = (host.state(), if host.votes { "yes" } else { "no" });
            writeln!(
                f,
                "{:>6}  {:<width$}  {state:<7}{votes:>6}{:>14}{:>11}{:>9}",
                host.id,
                host.address,
                bytes(host.memory),
                host.primaries,
                host.backups
            )?;
        }
        writeln!(
            f,
            "{} volumes: {} with one copy, {} closed, {} lost",
            hosts.volumes.len(),
            hosts.volumes_with_one_copy(),
            hosts.volumes_closed(),
            hosts.volumes_lost()
        )?;
        let lost: Vec<String> = (0..)
            .zip(&hosts.volumes)
            .filter(|(_, volume)| volume.primary.is_none())
            .map(|(number, _): (usize, _)| number.to_string())
            .collect();
        if !lost.is_empty() {
            writeln!(f, "lost all copies: volume {}", lost.join(", "))?;
        }
        let (made, moving) = (hosts.volumes_in_the_making(), hosts.volumes_moving());
        if made + moving > 0 {
            let (done, total) = hosts.copied_bytes();
            let time =
                hosts.copies_take().map(|time| format!(", about {:.0} s left", time.as_secs_f64().ceil()));
            writeln!(
                f,
                "copies: {made} are made again, {moving} move; {} of {} copied{}",
                bytes(done),
                bytes(total),
                time.unwrap_or_default()
            )?;
        }
        writeln!(f)
    }
}

fn server_json(at: usize, usage: &Result<ServerUsage, String>, counted: Option<&ServerStats>) -> Value {
    let usage = match usage {
        Ok(usage) => usage,
        Err(problem) => return json!({ "server": at, "problem": problem }),
    };
    json!({
        "server": at,
        "chunk_bytes": usage.chunk_bytes,
        "chunks": usage.chunks,
        "chunks_used": usage.chunks_used,
        "bytes": usage.chunks * usage.chunk_bytes,
        "bytes_used": usage.chunks_used * usage.chunk_bytes,
        "bytes_owned": usage.bytes_owned,
        "bytes_free": usage.bytes_free,
        "counted": counted.map(counted_json),
    })
}

fn counted_json(counted: &ServerStats) -> Value {
    let refused = counted.refused.iter().map(|refused| (refused.reason.clone(), json!(refused.count)));
    let lanes = counted.hottest.iter().map(|hot| json!({ "offset": hot.offset, "failed": hot.failed }));
    json!({
        "uptime_seconds": counted.uptime_nanos as f64 / 1e9,
        "connections": counted.connections,
        "accepted": counted.accepted,
        "refused": refused.collect::<serde_json::Map<_, _>>(),
        "lists": counted.lists,
        "lists_failed": counted.lists_failed,
        "reads": counted.reads,
        "writes": counted.writes,
        "cas": counted.cas,
        "cas_failed": counted.cas_failed,
        "faa": counted.faa,
        "bytes_read": counted.bytes_read,
        "bytes_written": counted.bytes_written,
        "bytes_in": counted.bytes_in,
        "bytes_out": counted.bytes_out,
        "calls": counted.calls,
        "fences": counted.fences,
        "members_waiting": counted.members_waiting,
        "hottest_lanes": lanes.collect::<Vec<_>>(),
    })
}

/// The number of hottest lanes shown for each server.
const HOTTEST: usize = 4;

/// The counters of the servers, one line each.
struct Counted<'s>(&'s [Option<ServerStats>]);

impl fmt::Display for Counted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.iter().all(Option::is_none) {
            return Ok(());
        }
        writeln!(
            f,
            "\n{:>6}{:>12}{:>8}{:>12}{:>12}{:>12}{:>12}{:>8}  hottest lanes (failed CAS)",
            "server", "up", "clients", "lists", "READs", "WRITEs", "CAS failed", "fences"
        )?;
        for counted in self.0.iter().flatten() {
            let up = format!("{:.1} s", counted.uptime_nanos as f64 / 1e9);
            let lanes =
                counted.hottest.iter().take(HOTTEST).map(|hot| format!("{} ({})", hot.offset, hot.failed));
            writeln!(
                f,
                "{:>6}{up:>12}{:>8}{:>12}{:>12}{:>12}{:>12}{:>8}  {}",
                counted.server,
                counted.connections,
                counted.lists,
                counted.reads,
                counted.writes,
                counted.cas_failed,
                counted.fences,
                lanes.collect::<Vec<_>>().join(", ")
            )?;
        }
        Ok(())
    }
}

/// Formats a size, as in `1.5 GiB`.
fn bytes(bytes: u64) -> String {
    match bytes {
        0..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
        _ => format!("{:.1} GiB", bytes as f64 / 1_073_741_824.0),
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.url)?;
        if let Some(hosts) = &self.hosts {
            write!(f, "{}", Group(hosts))?;
        }
        writeln!(
            f,
            "{:>6}{:>14}{:>14}{:>14}{:>8}{:>14}{:>14}",
            "server", "memory", "in use", "chunks", "", "owned", "free in use"
        )?;
        for (at, server) in self.servers.iter().enumerate() {
            let at = self.number(at);
            let ServerUsage { chunks, chunks_used, chunk_bytes, bytes_owned, bytes_free } = match server {
                Ok(usage) => *usage,
                Err(problem) => {
                    writeln!(f, "{at:>6}  {problem}")?;
                    continue;
                }
            };
            let share = if chunks == 0 { 0.0 } else { 100.0 * chunks_used as f64 / chunks as f64 };
            writeln!(
                f,
                "{at:>6}{:>14}{:>14}{:>14}{:>8}{:>14}{:>14}",
                bytes(chunks * chunk_bytes),
                bytes(chunks_used * chunk_bytes),
                format!("{chunks_used} of {chunks}"),
                format!("{share:.0} %"),
                bytes(bytes_owned),
                bytes(bytes_free)
            )?;
        }
        write!(f, "{}", Counted(&self.counted))?;
        writeln!(f, "\n{:>6}  {:<9}{:>14}{:>14}", "member", "standing", "member for", "lease left")?;
        for member in &self.members {
            let (age, left) = (member.age.as_secs_f64(), member.lease_left.as_secs_f64());
            let (age, left) = (format!("{age:.3} s"), format!("{left:.3} s"));
            writeln!(f, "{:>6}  {:<9}{age:>14}{left:>14}", member.id.0, standing_name(member.standing))?;
        }
        writeln!(f, "{}", self.roll())?;
        write!(f, "\n{}", trees::Table(&self.trees))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sherman::Cluster;

    /// Returns the stats of a cluster in this process. Such a cluster has no operator, so its client asks.
    fn of_embedded(cluster: &Cluster, url: &str) -> Result<Stats, Failure> {
        let servers: Vec<_> = cluster.usage()?.into_iter().map(Ok).collect();
        Ok(Stats {
            url: url.to_owned(),
            counted: vec![None; servers.len()],
            hosts: None,
            servers,
            members: cluster.members()?,
            trees: trees::described(cluster)?,
        })
    }

    #[test]
    fn servers_members_and_trees_are_shown() {
        let cluster = Cluster::open("embedded:?servers=2&memory=64MiB&chunk=1MiB").expect("a cluster");
        let _other = cluster.join().expect("another");
        let client = cluster.tree::<u64, u64>("orders").expect("a tree").client().expect("a client");
        for key in 0..100_000 {
            client.insert(key, key).expect("an insert");
        }
        let mut stats = of_embedded(&cluster, "somewhere").expect("stats");
        let json = stats.json();
        assert_eq!((json["live"].as_u64(), json["dead"].as_u64()), (Some(2), Some(0)));
        assert_eq!(json["trees"][0]["name"].as_str(), Some("orders"));
        let servers = json["servers"].as_array().expect("servers");
        assert_eq!(servers.len(), 2);
        for server in servers {
            let (used, all) = (server["bytes_used"].as_u64(), server["bytes"].as_u64());
            assert!(used > Some(0) && used < all && all <= Some(64 << 20), "{server}");
        }
        let said = stats.to_string();
        for words in [
            "somewhere",
            "server",
            "in use",
            "owned",
            "lease left",
            "2 live, 0 leaving, 0 dead",
            "orders",
            " of ",
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
        stats.servers[1] = Err("it is down".to_owned());
        assert!(stats.to_string().contains("     1  it is down"), "{stats}");
        assert_eq!(stats.json()["servers"][1]["problem"].as_str(), Some("it is down"));
    }

    #[test]
    fn sizes_are_short() {
        for (number, text) in
            [(0, "0.0 KiB"), (1 << 20, "1.0 MiB"), (3 << 29, "1.5 GiB"), (64 << 20, "64.0 MiB")]
        {
            assert_eq!(bytes(number), text);
        }
    }
}
