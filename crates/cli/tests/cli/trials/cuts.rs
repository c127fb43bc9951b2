//! Hosts that are cut off from the network while workers write and read: from clients, from other hosts, from
//! everybody, and one way only.
//!
//! Every host and every worker has a network namespace of its own. The test makes and removes them. It needs
//! `ip`, `nft` and the right to create namespaces. If it cannot create them, it prints a message and does
//! nothing. The trial itself runs as a process in one more namespace, because it asks the hosts too.
//!
//! A plain run tries two cuts. With `SHERMAN_TRIALS` it tries all, or only those whose description has the
//! words of `SHERMAN_CUTS`, as in `Clients, way: In`.

use super::crew::{Crew, Worker};
use super::fleet::{Fleet, Plan};
use super::judge::{Judge, Judged};
use super::{LONGEST, base, load_average, open};
use crate::common::namespaces::{Network, Way};
use crate::common::writers::this_program;
use crate::common::{program, secret_file};
use sherman_conformance::trees::Failure;
use std::time::{Duration, Instant};

const HOSTS: usize = 3;
const WORKERS: usize = 2;
const THREADS: u32 = 2;
/// The namespace in which the trial runs.
const OBSERVER: usize = HOSTS + WORKERS;
/// The variable with the prefix of the network's names.
const NETWORK: &str = "SHERMAN_TEST_CUTS";
/// How long a host is cut off: four leases.
const CUT: Duration = Duration::from_secs(4);
/// How long the others may take to declare the host lost, and the host to find out after the cut.
const NOTICED: Duration = Duration::from_secs(3);
const FINDS_OUT: Duration = Duration::from_secs(5);
const WHOLE: Duration = Duration::from_secs(20);

/// From whom a host is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Clients,
    Hosts,
    Everybody,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    from: From,
    way: Way,
    /// Whether the leader is cut off, or another host.
    leader: bool,
}

impl Case {
    /// Whether the others declare the host lost. Hosts that hear each other do not, whatever clients see.
    fn loses(self) -> bool {
        self.from != From::Clients
    }
}

/// All cuts; a plain run begins with these, and tries two.
fn cases() -> Vec<Case> {
    let mut cases = vec![
        Case { from: From::Hosts, way: Way::Both, leader: true },
        Case { from: From::Everybody, way: Way::In, leader: false },
    ];
    if std::env::var_os("SHERMAN_TRIALS").is_some() {
        for from in [From::Clients, From::Hosts, From::Everybody] {
            for way in [Way::Both, Way::In, Way::Out] {
                cases.extend([false, true].map(|leader| Case { from, way, leader }));
            }
        }
    }
    if let Ok(words) = std::env::var("SHERMAN_CUTS") {
        cases.retain(|case| format!("{case:?}").contains(&words));
    }
    cases
}

#[test]
fn hosts_that_are_cut_off() -> Result<(), Failure> {
    let _alone = crate::common::alone();
    let network = match Network::new(OBSERVER + 1) {
        Ok(network) => network,
        Err(why) => {
            println!("SKIPPED: network namespaces cannot be made here: {why}");
            return Ok(());
        }
    };
    let mut trial = network.on(OBSERVER, this_program());
    trial.args(["--ignored", "--exact", "trials::cuts::inside", "--nocapture", "--test-threads", "1"]);
    let status = trial.env(NETWORK, network.prefix()).status()?;
    assert!(status.success(), "the trial says why");
    Ok(())
}

/// Not a test: the trial, in a namespace of the network.
#[test]
#[ignore = "run as a process of its own by the test beside it"]
fn inside() -> Result<(), Failure> {
    let prefix = std::env::var(NETWORK)?;
    let network = Network::of(&prefix, OBSERVER + 1);
    let secret = secret_file("cuts-secret", "a secret of this trial alone, long enough\n");
    let secret = secret.to_str().ok_or("a path of text")?.to_owned();
    let mut fleet = Fleet::start(HOSTS, plan(&prefix, &secret))?;
    let cluster = open(&fleet.url())?;
    let mut judge = Judge::new(&cluster, base())?;
    let worker = |worker: usize| {
        let command = network.on(HOSTS + worker, this_program());
        Worker::start_by(command, &fleet.url(), worker as u32 * THREADS, THREADS)
    };
    let mut crew = Crew::ready((0..WORKERS).map(worker).collect())?;
    for (round, case) in (0..).zip(cases()) {
        try_case(case, round, &network, &mut fleet, &mut crew, &mut judge)?;
    }
    crew.leave()?;
    let total = judge.finish(&fleet)?;
    println!(
        "cuts: {} operations, {} of unknown outcome, longest {:?}, load {}",
        total.operations,
        total.unknown,
        total.longest,
        load_average()
    );
    Ok(())
}

fn plan(prefix: &str, secret: &str) -> Plan {
    let network = Network::of(prefix, OBSERVER + 1);
    let new = ["--replicas", "2", "--hosts", "3", "--volumes", "6", "--volume-memory", "24MiB"];
    let new = [&new[..], &["--chunk", "1MiB", "--lease", "1s"]].concat();
    let mut plan = Plan::local(&["--memory", "192MiB", "--secret-file", secret], &new);
    plan.command = Box::new(move |host| network.on(host, program()));
    plan.ip = Network::address;
    plan.parameters = format!("?secret-file={secret}");
    plan
}

fn try_case(
    case: Case,
    round: u64,
    network: &Network,
    fleet: &mut Fleet,
    crew: &mut Crew,
    judge: &mut Judge,
) -> Result<(), Failure> {
    let leader = fleet.leader().ok_or("a leader")?;
    let other = (0..HOSTS).find(|host| *host != leader && fleet.has_primaries(*host));
    let victim = if case.leader { leader } else { other.unwrap_or((leader + 1) % HOSTS) };
    crew.go(round)?;
    std::thread::sleep(Duration::from_millis(300));
    let struck = super::record::now();
    let cut = cut_for_a_while(case, victim, network, fleet);
    fleet.unasked = None;
    let ended = cut.and_then(|noticed| Ok((noticed, come_back(case, victim, fleet)?)));
    let (noticed, whole) = ended.map_err(|why| format!("{case:?}: {why}\n{}", fleet.logs()))?;
    std::thread::sleep(Duration::from_millis(300));
    let work = crew.stop()?;
    let judged = judge.judge(round, &work).map_err(|why| format!("{why}\n{}", fleet.logs()))?;
    let Judged { operations, unknown, longest, longest_began } = judged;
    println!(
        "{case:?}, host {victim}: {operations} operations, {unknown} unknown, longest {longest:?} from {:?} \
         after the cut; declared lost after {noticed:?}, whole {whole:?} after the end of the cut, load {}",
        Duration::from_nanos(longest_began.saturating_sub(struck)),
        load_average()
    );
    // Nobody decides about a host that other hosts hear: clients wait until they reach it again. Their leases
    // may run out meanwhile, if that host leads. Then nobody knows what became of a change in flight.
    let allowed = if case.loses() { LONGEST } else { CUT + LONGEST };
    let excused = if case.loses() { 0 } else { unknown };
    if work.errors.len() > excused || longest > allowed {
        let (errors, events) = (work.errors, work.events);
        return Err(format!("{case:?}: {errors:#?}\n{events:#?}\n{}", fleet.logs()).into());
    }
    Ok(())
}

/// Cuts a host off for [`CUT`]. Returns after what time the others declared it lost, if they did.
fn cut_for_a_while(
    case: Case,
    victim: usize,
    network: &Network,
    fleet: &mut Fleet,
) -> Result<Option<Duration>, Failure> {
    let clients = HOSTS..HOSTS + WORKERS;
    let hosts = (0..HOSTS).filter(|host| *host != victim);
    let others: Vec<usize> = match case.from {
        From::Clients => clients.collect(),
        From::Hosts => hosts.collect(),
        From::Everybody => hosts.chain(clients).collect(),
    };
    fleet.unasked = Some(victim);
    let began = Instant::now();
    network.cut(victim, &others, case.way)?;
    let mut noticed = None;
    while began.elapsed() < CUT {
        if noticed.is_none() && fleet.present() == Some(HOSTS - 1) {
            noticed = Some(began.elapsed());
        }
        std::thread::sleep(Duration::from_millis(25));
    }
    network.heal(victim)?;
    match noticed {
        Some(after) if !case.loses() => Err(format!("it was declared lost after {after:?}").into()),
        None if case.loses() => Err("it was not declared lost".into()),
        Some(after) if after > NOTICED => Err(format!("it was declared lost only after {after:?}").into()),
        noticed => Ok(noticed),
    }
}

/// After the cut: a host that was declared lost finds out and ends, and is started again. Returns how long it
/// takes until the cluster is whole.
fn come_back(case: Case, victim: usize, fleet: &mut Fleet) -> Result<Duration, Failure> {
    let began = Instant::now();
    if case.loses() {
        let (code, log) = fleet.await_end(victim, FINDS_OUT)?;
        if code != Some(3) || !log.contains("lost") {
            return Err(format!("the host that was cut off ended with {code:?}: {log}").into());
        }
        fleet.launch(victim)?;
    } else if !fleet.runs(victim) {
        return Err(format!("the host has ended: {}", fleet.log(victim)).into());
    }
    fleet.await_whole(WHOLE)?;
    Ok(began.elapsed())
}
