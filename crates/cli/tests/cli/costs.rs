//! Counts what operations cost on memory servers without hosts, on hosts with one copy of every volume, and
//! on hosts with two: in the client, and in the processes that execute the verbs.

use crate::common::servers::{Server, Servers, Transport, wait_until};
use sherman::{Admin, BulkOptions, Cluster, KindStats, OpKind, Tree};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const KEYS: u64 = 20_000;
/// Every operation runs on these keys.
const USED: [u64; 5] = [0, 4_998, 10_000, 29_998, 39_000];
/// The bytes that release a lane. Lanes exist at the primary alone.
const RELEASE: u64 = 2;
/// How long the counters of a process may lag behind its answers.
const LAG: Duration = Duration::from_secs(20);

/// A cluster of two hosts.
struct Hosts {
    url: String,
    _running: [Server; 2],
    folder: PathBuf,
}

impl Hosts {
    fn start(transport: Transport, replicas: u16) -> Self {
        static CLUSTERS: AtomicU32 = AtomicU32::new(0);
        let number = CLUSTERS.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("sherman-costs-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let (scheme, listen) = match transport {
            Transport::Unix => ("unix:", format!("unix:{}/", folder.display())),
            _ => ("tcp://", "tcp://127.0.0.1:0".to_owned()),
        };
        let place = |name: &str| if scheme == "unix:" { format!("{listen}{name}") } else { listen.clone() };
        let start = |name: &str, how: &[&str]| {
            let listen = place(name);
            let always = ["--listen", &listen, "--memory", "128MiB", "--detect", "20s"];
            Server::start(how.iter().chain(&always).map(ToString::to_string).collect())
        };
        let replicas = replicas.to_string();
        let new = ["--new-cluster", "--replicas", &replicas, "--hosts", "2", "--lease", "30s"];
        let first = start("first", &new);
        let seed = format!("{scheme}{}", first.address);
        let second = start("second", &["--join", &seed]);
        let url = format!("{seed},{}", second.address);
        Self { url, _running: [first, second], folder }
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// What all processes of a cluster have executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Executed {
    lists: u64,
    reads: u64,
    writes: u64,
    cas: u64,
    faa: u64,
    bytes_read: u64,
    bytes_written: u64,
}

impl Executed {
    fn now(admin: &Admin) -> Self {
        let mut all = Self::default();
        for stats in admin.stats().expect("an answer") {
            let stats = stats.expect("it runs");
            all.lists += stats.lists;
            all.reads += stats.reads;
            all.writes += stats.writes;
            all.cas += stats.cas;
            all.faa += stats.faa;
            all.bytes_read += stats.bytes_read;
            all.bytes_written += stats.bytes_written;
        }
        all
    }

    fn since(self, before: Self) -> Self {
        Self {
            lists: self.lists - before.lists,
            reads: self.reads - before.reads,
            writes: self.writes - before.writes,
            cas: self.cas - before.cas,
            faa: self.faa - before.faa,
            bytes_read: self.bytes_read - before.bytes_read,
            bytes_written: self.bytes_written - before.bytes_written,
        }
    }
}

const KINDS: [OpKind; 6] =
    [OpKind::Get, OpKind::Update, OpKind::Remove, OpKind::Insert, OpKind::InsertIfAbsent, OpKind::Range];

/// What the operations cost by kind, and what the processes have executed for them.
#[derive(Debug, PartialEq, Eq)]
struct Costs {
    kinds: [KindStats; KINDS.len()],
    executed: Executed,
}

/// Runs every kind of operation on a tree whose leaves are all in the cache.
fn costs(url: &str) -> Costs {
    let cluster = Cluster::open(url).expect("a cluster");
    let tree: Tree<u64, u64> = cluster.tree("costs").expect("a tree");
    tree.bulk_load((0..KEYS).map(|key| (2 * key, key)), &BulkOptions::new()).expect("room");
    let warm = tree.client().expect("a client");
    assert_eq!(warm.len(), Ok(KEYS));
    // The first change asks for a redo area.
    assert_eq!(warm.insert(2, 1), Ok(Some(1)));
    let admin = Admin::open(url).expect("an operator");
    let mut before = Executed::now(&admin);
    // The counters of a process may lag behind its answers.
    wait_until("the counters rest", LAG, || {
        std::thread::sleep(Duration::from_millis(200));
        let last = std::mem::replace(&mut before, Executed::now(&admin));
        last == before
    });
    let client = tree.client().expect("a client");
    for key in USED {
        assert_eq!(client.get(key), Ok(Some(key / 2)));
        assert_eq!(client.insert(key, 7), Ok(Some(key / 2)));
        assert_eq!(client.remove(key), Ok(Some(7)));
        assert_eq!(client.insert(key, 8), Ok(None));
        assert_eq!(client.insert_if_absent(key, 9), Ok(Some(8)));
        assert_eq!(client.next_after(key + 1).expect("an answer").map(|(key, _)| key), Some(key + 2));
    }
    let stats = client.stats();
    assert_eq!(stats.errors, 0);
    let kinds = KINDS.map(|kind| stats.kind(kind).clone());
    let written: u64 = kinds.iter().map(|kind| kind.bytes_written).sum();
    let mut executed = Executed::default();
    wait_until("the processes have counted all bytes", LAG, || {
        executed = Executed::now(&admin).since(before);
        executed.bytes_written >= written
    });
    Costs { kinds, executed }
}

/// How many round trips each operation of a kind took; all took the same.
fn round_trips(kind: &KindStats) -> usize {
    let trips = kind.round_trips();
    assert_eq!(kind.operations, USED.len() as u64);
    assert_eq!(trips.len(), 1, "{trips:?}");
    trips.into_keys().next().expect("one")
}

fn check(transport: Transport) {
    let servers = Servers::start(transport, 2, &["--memory", "128MiB"]);
    let today = costs(&servers.url());
    let one = costs(&Hosts::start(transport, 1).url);
    // One copy: the same verbs, the same bytes, the same round trips.
    assert_eq!(one, today);

    let two = costs(&Hosts::start(transport, 2).url);
    let count = USED.len() as u64;
    let mut changes = 0;
    let mut data = 0;
    for (at, kind) in KINDS.into_iter().enumerate() {
        let (one, two) = (&one.kinds[at], &two.kinds[at]);
        let expected = match kind {
            OpKind::Get | OpKind::Range => (1, 1),
            OpKind::InsertIfAbsent => (2, 2),
            _ => (2, 3),
        };
        assert_eq!((round_trips(one), round_trips(two)), expected, "{kind:?}");
        assert_eq!(one.bytes_read, two.bytes_read, "{kind:?}");
        if expected.1 == 3 {
            let bytes = one.bytes_written - count * RELEASE;
            assert_eq!(two.bytes_written, 2 * bytes + count * RELEASE, "{kind:?}");
            changes += count;
            data += bytes;
        } else {
            assert_eq!(one.bytes_written, two.bytes_written, "{kind:?}");
        }
    }
    // Each change is one more list, with one WRITE of its data. Nothing else differs.
    let expected = Executed {
        lists: one.executed.lists + changes,
        writes: one.executed.writes + changes,
        bytes_written: one.executed.bytes_written + data,
        ..one.executed
    };
    assert_eq!(two.executed, expected);
}

#[test]
fn one_copy_costs_what_it_costs_without_hosts_and_two_cost_a_round_trip_per_change_over_tcp() {
    check(Transport::Tcp);
}

#[test]
fn one_copy_costs_what_it_costs_without_hosts_and_two_cost_a_round_trip_per_change_over_unix() {
    check(Transport::Unix);
}
