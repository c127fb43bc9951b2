//! Clusters of hosts in this process, which keep their data twice: what they cost, and hosts that die.

use sherman::{Cluster, ClusterOptions, Error, KindStats, LocalHosts, OpKind, Stats};
use sherman_conformance::trees::Failure;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

const URL: &str = "embedded:?servers=3&replicas=2&memory=96MiB&chunk=1MiB&lease=2s";
/// How long a copy may take to be made again.
const PATIENCE: Duration = Duration::from_secs(60);

fn open() -> Result<(Cluster, LocalHosts), Failure> {
    let cluster = Cluster::open_with(URL, options())?;
    let hosts = cluster.local_hosts().ok_or("hosts in this process")?;
    Ok((cluster, hosts))
}

/// Longer than a busy machine needs.
fn options() -> ClusterOptions {
    ClusterOptions::new().timeout(Duration::from_secs(60))
}

#[test]
fn operations_do_what_they_do_to_a_map() -> Result<(), Failure> {
    let (cluster, _) = open()?;
    (0..2).try_for_each(|seed| {
        sherman_conformance::trees::model(&cluster, &format!("model-{seed}"), seed, 4_000)
    })
}

#[test]
fn threads_of_many_compute_servers_lose_nothing() -> Result<(), Failure> {
    let (cluster, _) = open()?;
    let join = || Ok(cluster.join()?);
    let done = sherman_conformance::trees::stress(&join, "stress", 1, 2, 2, Duration::from_secs(1))?;
    assert!(done.operations > 1_000 && done.increments > 10, "{done:?}");
    let read = sherman_conformance::trees::ranges(&join, "ranges", 1, 2, Duration::from_secs(1))?;
    assert!(read > 10, "{read}");
    Ok(())
}

/// What one operation of this kind costs, by the counts before and after it.
fn one(before: &Stats, after: &Stats, kind: OpKind) -> (u64, u64) {
    let [before, after] = [before, after].map(|stats| stats.kind(kind));
    assert_eq!(after.operations, before.operations + 1);
    let trips = |stats: &KindStats| {
        stats.round_trips().iter().map(|(trips, count)| *trips as u64 * count).sum::<u64>()
    };
    (trips(after) - trips(before), after.bytes_written - before.bytes_written)
}

/// The cost of a warm get and a warm update.
fn costs(url: &str) -> Result<[(u64, u64); 2], Failure> {
    let client = Cluster::open_with(url, options())?.tree::<u64, u64>("t")?.client()?;
    for key in 0..100 {
        client.insert(key, key)?;
    }
    client.get(7)?;
    let stats = client.stats();
    client.get(7)?;
    let got = client.stats();
    client.insert(7, 8)?;
    Ok([one(&stats, &got, OpKind::Get), one(&got, &client.stats(), OpKind::Update)])
}

#[test]
fn a_get_takes_one_round_trip_an_update_three_and_its_bytes_go_out_twice() -> Result<(), Failure> {
    let lane = 2;
    let [get, update] = costs("embedded:?servers=3&memory=96MiB&chunk=1MiB")?;
    assert_eq!((get, update.0), ((1, 0), 2));
    let [replicated_get, replicated] = costs(URL)?;
    assert_eq!((replicated_get, replicated.0), ((1, 0), 3));
    assert_eq!(replicated.1 - lane, 2 * (update.1 - lane), "{update:?}, {replicated:?}");
    assert_eq!(costs("embedded:?servers=3&replicas=1&memory=96MiB&chunk=1MiB")?, [get, update]);
    Ok(())
}

/// One key: what its writer has begun, what was acknowledged, and what readers have seen.
#[derive(Default)]
struct Counter {
    begun: AtomicU64,
    acknowledged: AtomicU64,
    seen: AtomicU64,
}

#[derive(Default)]
struct Load {
    counters: Vec<Counter>,
    stop: AtomicBool,
    writes: AtomicU64,
}

const KEYS: u64 = 200;

impl Load {
    fn write(&self, cluster: &Cluster, writer: u64) -> Result<(), Failure> {
        let client = cluster.tree::<u64, u64>("counters")?.client()?;
        let mut random = 7 + writer;
        while !self.stop.load(Relaxed) {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let key = writer * KEYS + (random >> 33) % KEYS;
            let counter = &self.counters[key as usize];
            let next = counter.begun.load(Relaxed) + 1;
            counter.begun.store(next, SeqCst);
            client.insert(key, next)?;
            counter.acknowledged.store(next, SeqCst);
            self.writes.fetch_add(1, Relaxed);
        }
        Ok(())
    }

    fn read(&self, cluster: &Cluster) -> Result<(), Failure> {
        let client = cluster.tree::<u64, u64>("counters")?.client()?;
        for key in (0..self.counters.len() as u64).cycle() {
            if self.stop.load(Relaxed) {
                break;
            }
            self.judge(key, || client.get(key))?;
        }
        Ok(())
    }

    /// Reads a key and judges its value.
    fn judge(&self, key: u64, get: impl FnOnce() -> Result<Option<u64>, Error>) -> Result<(), Failure> {
        let counter = &self.counters[key as usize];
        let least = counter.acknowledged.load(SeqCst).max(counter.seen.load(SeqCst));
        let value = get()?.unwrap_or(0);
        let most = counter.begun.load(SeqCst);
        if !(least..=most).contains(&value) {
            return Err(format!("key {key} holds {value}, and not {least} to {most}").into());
        }
        counter.seen.fetch_max(value, SeqCst);
        Ok(())
    }

    /// Waits until there were this many more writes.
    fn go_on(&self, writes: u64) {
        let (before, began) = (self.writes.load(Relaxed), Instant::now());
        while self.writes.load(Relaxed) < before + writes && !self.stop.load(Relaxed) {
            assert!(began.elapsed() < PATIENCE, "nobody writes");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// How often a host dies. `SHERMAN_LOSSES` gives another number, for a soak.
fn rounds() -> u16 {
    std::env::var("SHERMAN_LOSSES").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(4)
}

#[test]
fn hosts_that_die_under_load_lose_no_acknowledged_change() -> Result<(), Failure> {
    const WRITERS: u64 = 2;
    let (first, hosts) = open()?;
    first.tree::<u64, u64>("counters")?;
    let counters = (0..WRITERS * KEYS).map(|_| Counter::default()).collect();
    let load = Arc::new(Load { counters, ..Load::default() });
    let computes = [first.join_with(options())?, first.join_with(options())?];
    let threads: Vec<_> = (0..=WRITERS)
        .map(|thread| {
            let (load, cluster) = (Arc::clone(&load), computes[thread as usize % 2].clone());
            std::thread::spawn(move || {
                let done = match thread {
                    WRITERS => load.read(&cluster),
                    writer => load.write(&cluster, writer),
                };
                done.inspect_err(|_| load.stop.store(true, SeqCst))
            })
        })
        .collect();
    for round in 0..rounds() {
        load.go_on(500);
        // The host that came last has backups alone, and the one that came first has most of the primaries.
        let up: Vec<u16> = hosts.status()?.hosts.iter().filter(|host| host.up).map(|host| host.id).collect();
        hosts.lose(up[usize::from(round) % up.len()])?;
        load.go_on(500);
        hosts.add()?;
        assert!(hosts.wait_until_whole(PATIENCE), "round {round}: {:?}", hosts.status());
    }
    load.stop.store(true, SeqCst);
    for thread in threads {
        thread.join().map_err(|_| "a thread panicked")??;
    }
    assert!(computes[0].rejoins() >= u64::from(rounds()));
    let client = first.tree::<u64, u64>("counters")?.client()?;
    for key in 0..load.counters.len() as u64 {
        load.judge(key, || client.get(key))?;
    }
    let check = client.check()?;
    assert!(check.is_clean(), "{check:?}");
    Ok(())
}

#[test]
fn a_program_that_does_nothing_goes_on_after_a_death_as_soon_as_it_wants_to() -> Result<(), Failure> {
    let url = "embedded:?servers=2&replicas=2&memory=64MiB&chunk=1MiB&lease=1h";
    let cluster = Cluster::open_with(url, options())?;
    let idle = cluster.join_with(options())?;
    let client = cluster.tree::<u64, u64>("t")?.client()?;
    client.insert(1, 10)?;
    let hosts = cluster.local_hosts().ok_or("hosts")?;
    hosts.lose(0)?;
    // With a lease of an hour, nobody waits for a lease here.
    assert_eq!(client.get(1)?, Some(10));
    client.insert(2, 20)?;
    assert_eq!(idle.tree::<u64, u64>("t")?.client()?.get(2)?, Some(20));
    let status = hosts.status()?;
    assert_eq!((status.volumes_with_one_copy(), status.volumes_lost()), (2, 0));
    assert!(!hosts.is_whole() && !status.hosts[0].up && status.hosts[1].primaries == 2);
    Ok(())
}

#[test]
fn data_without_a_copy_is_an_error_and_no_hang() -> Result<(), Failure> {
    let url = "embedded:?servers=2&replicas=2&memory=64MiB&chunk=1MiB&lease=200ms";
    let cluster = Cluster::open_with(url, ClusterOptions::new().timeout(Duration::from_millis(500)))?;
    let hosts = cluster.local_hosts().ok_or("hosts")?;
    let client = cluster.tree::<u64, u64>("t")?.client()?;
    client.insert(1, 10)?;
    hosts.lose(0)?;
    hosts.lose(0)?;
    assert_eq!(client.get(1)?, Some(10));
    hosts.lose(1)?;
    let error = client.get(1).expect_err("its data is lost");
    assert!(matches!(error, Error::NotRejoined { .. }), "{error}");
    assert_eq!(hosts.status()?.volumes_lost(), 2);
    assert!(cluster.join().is_err());
    let refused = hosts.lose(9).expect_err("there is no such host");
    assert!(matches!(refused, Error::Refused(_)), "{refused}");
    Ok(())
}

#[test]
fn only_a_replicated_cluster_in_this_process_has_local_hosts() -> Result<(), Failure> {
    assert!(Cluster::open("embedded:?servers=2&memory=64MiB")?.local_hosts().is_none());
    let built = Cluster::embedded().servers(2).replicas(2).memory(64 << 20).chunk(1 << 20).open()?;
    assert!(built.local_hosts().is_some_and(|hosts| hosts.is_whole()));
    let small = Cluster::open("embedded:?servers=2&replicas=2&volumes=64&memory=64MiB");
    let error = small.expect_err("volumes of one MiB").to_string();
    assert!(error.contains("memory"), "{error}");
    Ok(())
}
