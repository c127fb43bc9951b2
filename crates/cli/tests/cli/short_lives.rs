//! Thousands of short-lived clients: commands that put one key and end, or are killed; joins that are
//! dropped; many clients that die at once. No resource runs out.
//!
//! These are short forms of soak tests. `SHERMAN_PUTS=100000`, `SHERMAN_JOINS=50000`, `SHERMAN_CROWD=400` and
//! `SHERMAN_KEYS=10000000` run them in full.

use crate::common::command;
use crate::common::servers::{Servers, Transport, wait_until};
use crate::common::writers::{Writer, plant, settle, verify};
use sherman::{Admin, Client, Cluster, Standing};
use sherman_conformance::trees::{Failure, Ledger};
use sherman_control::JoinOptions;
use sherman_soft_nic::SoftNicFabric;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The defaults: the user sets only the amount of memory.
const DEFAULTS: [&str; 2] = ["--memory", "256MiB"];
const TREE: &str = "t";

fn number(name: &str, or: u64) -> u64 {
    std::env::var(name).map_or(or, |text| text.parse().expect("a number"))
}

fn chunks_used(url: &str) -> u64 {
    let usage = Admin::open(url).expect("an operator").usage().expect("usage");
    usage.into_iter().map(|server| server.expect("a server").chunks_used).sum()
}

/// How many chunks are in use after one client has put the keys below `keys`.
fn chunks_of_one_client(keys: u64) -> Result<u64, Failure> {
    let servers = Servers::start(Transport::Tcp, 1, &DEFAULTS);
    let cluster = Cluster::open(&servers.url())?;
    let client = cluster.tree::<u64, u64>(TREE)?.client()?;
    for key in 0..keys {
        client.insert(key, key)?;
    }
    Ok(chunks_used(&servers.url()))
}

/// Puts every key below `keys`, each by its own process, two at a time. With `kills`, the test kills every
/// third process at a random moment, and another process puts its key again. Returns how many processes were
/// killed before they ended.
fn put_by_processes(url: &str, keys: u64, kills: bool) -> u64 {
    let (next, killed) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for seed in 0..2 {
            let (next, killed) = (&next, &killed);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                loop {
                    let key = next.fetch_add(1, Ordering::Relaxed);
                    if key >= keys {
                        break;
                    }
                    let text = key.to_string();
                    let mut put =
                        command(&["put", "--cluster", url, "--tree", TREE, "--create", &text, &text]);
                    put.stdout(Stdio::null()).stderr(Stdio::piped());
                    if kills && key % 3 == 0 {
                        let mut child = put.stderr(Stdio::null()).spawn().expect("a command starts");
                        std::thread::sleep(Duration::from_micros(random.u64(..12_000)));
                        child.kill().expect("it was started");
                        killed.fetch_add(
                            u64::from(!child.wait().expect("it ends").success()),
                            Ordering::Relaxed,
                        );
                        put = command(&["put", "--cluster", url, "--tree", TREE, "--create", &text, &text]);
                        put.stdout(Stdio::null()).stderr(Stdio::piped());
                    }
                    let output = put.output().expect("a command starts");
                    assert!(
                        output.status.success(),
                        "key {key}: {}",
                        String::from_utf8_lossy(&output.stderr)
                    );
                }
            });
        }
    });
    killed.into_inner()
}

#[test]
fn commands_that_put_one_key_each_use_no_more_memory_than_one_client() -> Result<(), Failure> {
    let _alone = crate::common::alone();
    let keys = number("SHERMAN_PUTS", 300);
    let one = chunks_of_one_client(keys)?;
    for kills in [false, true] {
        let servers = Servers::start(Transport::Tcp, 1, &DEFAULTS);
        let url = servers.url();
        let began = Instant::now();
        let killed = put_by_processes(&url, keys, kills);
        let seconds = began.elapsed().as_secs_f64();
        let used = chunks_used(&url);
        println!("{keys} puts, {killed} killed, {seconds:.0} s: {used} chunks; one client: {one}");
        assert!(used <= one + one.div_ceil(10) + 1, "{used} chunks, one client: {one}");
        let cluster = Cluster::open(&url)?;
        settle_tree(&cluster, TREE)?;
        let client: Client<u64, u64> = cluster.open_tree(TREE)?.client()?;
        assert_eq!(client.range(..).count() as u64, keys);
    }
    Ok(())
}

/// Waits until this client is the only member, then checks that the tree is sound.
fn settle_tree(cluster: &Cluster, tree: &str) -> Result<(), Failure> {
    wait_until("all are gone", Duration::from_secs(20), || {
        cluster.members().is_ok_and(|members| members.iter().all(|member| member.id == cluster.id()))
    });
    let check = cluster.open_tree::<u64, u64>(tree)?.client()?.check()?;
    assert!(check.is_clean(), "{check:?}");
    Ok(())
}

#[test]
fn joins_that_are_dropped_keep_nobody_out() -> Result<(), Failure> {
    let _alone = crate::common::alone();
    let joins = number("SHERMAN_JOINS", 6_000);
    let servers = Servers::start(Transport::Tcp, 1, &["--memory", "256MiB", "--lease", "3s"]);
    let url = servers.url();
    let options = JoinOptions::new(vec![servers.servers[0].listen().into()]);
    let began = Instant::now();
    for number in 0..joins {
        match SoftNicFabric::join(&options) {
            Ok(fabric) => fabric.abandon(),
            Err(error) => panic!("join {number}: {error}"),
        }
    }
    let (took, began) = (began.elapsed(), Instant::now());
    let put = command(&["put", "--cluster", &url, "--tree", TREE, "--create", "1", "1"]).output()?;
    println!("{joins} joins dropped in {took:.1?}; the next put took {:.1?}", began.elapsed());
    assert!(put.status.success(), "{}", String::from_utf8_lossy(&put.stderr));
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    Ok(())
}

/// The largest crowd in which every member is a process of its own.
const PROCESSES: u64 = 400;
/// Members of each process of a larger crowd.
const MEMBERS: u64 = 20;
/// The most processes of a crowd that start at the same time.
const STARTING: usize = 8;
/// Changes of each member before all are killed. Most members then own a redo area and a span.
const CHANGES: u64 = 50;

/// Starts the processes of a crowd, a few at a time, and waits until every member is live and writes.
fn gather(
    url: &str,
    survivor: &Cluster,
    members: u64,
    ledgers: &[Arc<Mutex<Ledger>>],
) -> Result<Vec<Writer>, Failure> {
    let began = Instant::now();
    let limit = Duration::from_secs(120 + members * ledgers.len() as u64 / 3);
    let planted: Vec<u64> = ledgers.iter().map(acknowledged).collect();
    let mut writers: Vec<Writer> = Vec::new();
    for (ledger, slot) in ledgers.iter().zip(0..) {
        if let Some(early) = writers.len().checked_sub(STARTING) {
            wait_until("an earlier process writes", limit, || {
                writers[early].ids().len() as u64 >= members
                    && acknowledged(&ledgers[early]) > planted[early] + members
            });
        }
        writers.push(Writer::start_crowd(url, slot, members, ledger));
    }
    for (ledger, planted) in ledgers.iter().zip(planted) {
        wait_until("all write", limit, || acknowledged(ledger) > planted + CHANGES * members);
    }
    let live = || {
        std::thread::sleep(Duration::from_millis(100));
        survivor.members().map_or(0, |all| all.iter().filter(|one| one.standing == Standing::Live).count())
    };
    wait_until("all are live", limit, || live() as u64 > members * ledgers.len() as u64);
    let ids: usize = writers.iter().map(|writer| writer.ids().len()).sum();
    println!(
        "{} processes of {members} write after {:.0?}; identities: {ids}",
        ledgers.len(),
        began.elapsed()
    );
    Ok(writers)
}

fn acknowledged(ledger: &Arc<Mutex<Ledger>>) -> u64 {
    ledger.lock().map_or(0, |ledger| ledger.acknowledged())
}

#[test]
fn many_that_die_at_once_are_recovered_together() -> Result<(), Failure> {
    let _alone = crate::common::alone();
    let crowd = number("SHERMAN_CROWD", 40);
    assert!(crowd <= PROCESSES || crowd.is_multiple_of(MEMBERS), "{crowd} is no multiple of {MEMBERS}");
    let members = if crowd <= PROCESSES { 1 } else { MEMBERS };
    let lease = Duration::from_secs(3);
    // Every writer takes redo areas, 1 MiB each.
    let memory = format!("{}MiB", 2048 + crowd);
    let servers = Servers::start(Transport::Tcp, 2, &["--memory", &memory, "--lease", "3s"]);
    let url = servers.url();
    let survivor = Cluster::open(&url)?;
    let ledgers: Vec<_> =
        (0..crowd.div_ceil(members)).map(|_| Arc::new(Mutex::new(Ledger::default()))).collect();
    let planted = plant(&survivor, &ledgers, members)?;
    let mut writers = gather(&url, &survivor, members, &ledgers)?;
    let before = survivor.participation().recoveries;
    let began = Instant::now();
    for writer in &writers {
        writer.signal(rustix::process::Signal::KILL);
    }
    let killed = began.elapsed();
    settle(&survivor, lease + Duration::from_secs(5))?;
    let settled = began.elapsed();
    let recovered = survivor.participation().recoveries - before;
    let audit = survivor.audit()?;
    assert_eq!((audit.lanes_held, audit.finding_count), (0, 0), "{:?}", audit.findings);
    writers.clear();
    let (acknowledged, uncertain) = verify(&survivor, &ledgers)?;
    let acknowledged = acknowledged - planted;
    println!(
        "{crowd} killed within {killed:.2?}, all gone and the tree checked {settled:.2?} later, {recovered} \
         of them by recovery; {acknowledged} changes acknowledged, {uncertain} keys of unknown outcome"
    );
    assert!(killed < Duration::from_secs(1), "{killed:?}");
    assert!(recovered >= crowd / 2, "{recovered} of {crowd} owned something");
    Ok(())
}

#[test]
fn what_one_client_deletes_another_inserts_into() -> Result<(), Failure> {
    let keys = number("SHERMAN_KEYS", 100_000);
    let inserts = Cluster::open(&format!("embedded:?memory={}", 64 * keys + (64 << 20)))?;
    let deletes = inserts.join()?;
    inserts.tree::<u64, u64>(TREE)?;
    let inserter: Client<u64, u64> = inserts.open_tree(TREE)?.client()?;
    let deleter: Client<u64, u64> = deletes.open_tree(TREE)?.client()?;
    let chunks =
        || -> Result<u64, Failure> { Ok(inserts.usage()?.iter().map(|server| server.chunks_used).sum()) };
    let mut after_first = 0;
    for round in 0..10 {
        for key in 0..keys {
            inserter.insert(key, round)?;
        }
        let full = chunks()?;
        for key in 0..keys {
            deleter.remove(key)?;
        }
        println!("round {round}: {full} chunks when all are there, {} when all are gone", chunks()?);
        if round == 0 {
            after_first = full;
        }
        assert!(full <= after_first, "round {round}: {full} chunks, after the first {after_first}");
    }
    Ok(())
}
