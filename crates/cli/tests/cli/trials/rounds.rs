//! Rounds of losses: a host is killed or stopped while workers write and read at full speed, and started
//! again.

use super::crew::{Crew, Work};
use super::fleet::{Fleet, Plan};
use super::judge::{Judge, Judged};
use super::{LONGEST, base, load_average, open, rounds};
use rustix::process::Signal;
use sherman_conformance::trees::Failure;
use std::time::{Duration, Instant};

const HOSTS: usize = 3;
/// Processes that work, and threads of each.
const PROCESSES: u32 = 3;
const THREADS: u32 = 2;
/// How long a host is stopped.
const PAUSE: Duration = Duration::from_secs(10);
/// The workers work for so long before a host is lost, at least, and after it is back.
const BEFORE: Duration = Duration::from_millis(300);
const AFTER: Duration = Duration::from_millis(300);
/// How long two copies may take where there is room for them without the lost host, and with a new one.
const COPIES: Duration = Duration::from_secs(20);
/// How long a host that was stopped may take to find out that it was declared lost.
const FINDS_OUT: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Kill,
    Stop,
}

/// Whether the hosts that are left have room for the copies of a lost one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    Spare,
    None,
}

#[test]
fn killed_hosts_with_room_for_their_copies() -> Result<(), Failure> {
    lose(Fault::Kill, Room::Spare, rounds(1).div_ceil(2))
}

#[test]
fn killed_hosts_without_room_for_their_copies() -> Result<(), Failure> {
    lose(Fault::Kill, Room::None, rounds(1).div_ceil(2))
}

/// A plain run stops a host where there is no room: the other case differs little, and takes as long.
#[test]
fn stopped_hosts() -> Result<(), Failure> {
    lose(Fault::Stop, Room::Spare, rounds(0) / 2)?;
    lose(Fault::Stop, Room::None, rounds(1).div_ceil(2))
}

fn lose(fault: Fault, room: Room, rounds: u64) -> Result<(), Failure> {
    if rounds == 0 {
        return Ok(());
    }
    let _alone = crate::common::alone();
    let memory = if room == Room::Spare { "192MiB" } else { "96MiB" };
    let new = ["--replicas", "2", "--hosts", "3", "--volumes", "6", "--volume-memory", "24MiB"];
    let new = [&new[..], &["--chunk", "1MiB", "--lease", "1s"]].concat();
    let mut fleet = Fleet::start(HOSTS, Plan::local(&["--memory", memory], &new))?;
    let cluster = open(&fleet.url())?;
    let mut judge = Judge::new(&cluster, base())?;
    let mut crew = Crew::start(&fleet.url(), PROCESSES, THREADS)?;
    let (mut random, mut late) = (fastrand::Rng::with_seed(7), Vec::new());
    for round in 0..rounds {
        let victim = choose(&fleet, round, &mut random)?;
        crew.go(round)?;
        std::thread::sleep(BEFORE);
        let struck = super::record::now();
        let (copied, whole) = strike(&mut fleet, victim, fault, room)?;
        std::thread::sleep(AFTER);
        let work = crew.stop()?;
        let judged = judge.judge(round, &work).map_err(|why| format!("{why}\n{}", fleet.logs()))?;
        report(round, (victim, fault, room), (copied, whole), struck, &judged);
        blame(&work, &fleet)?;
        if judged.longest > LONGEST {
            late.push((round, judged.longest));
        }
    }
    crew.leave()?;
    let total = judge.finish(&fleet)?;
    println!(
        "{fault:?}, {room:?} room: {rounds} rounds, {} operations, {} of unknown outcome, longest {:?}, load \
         {}",
        total.operations,
        total.unknown,
        total.longest,
        load_average()
    );
    assert!(late.is_empty(), "operations took longer than {LONGEST:?}: {late:?}");
    Ok(())
}

/// The leader every third time, otherwise any other host. A host without primaries would make it easy.
fn choose(fleet: &Fleet, round: u64, random: &mut fastrand::Rng) -> Result<usize, Failure> {
    let leader = fleet.leader().ok_or("a leader")?;
    if round.is_multiple_of(3) {
        return Ok(leader);
    }
    let others: Vec<usize> = (0..fleet.len()).filter(|host| *host != leader).collect();
    let busy: Vec<usize> = others.iter().copied().filter(|host| fleet.has_primaries(*host)).collect();
    Ok(*random.choice(if busy.is_empty() { &others } else { &busy }).ok_or("hosts")?)
}

/// Loses a host and starts it again. Returns how long the copies took without it, if there was room, and how
/// long until everything was as before.
fn strike(
    fleet: &mut Fleet,
    victim: usize,
    fault: Fault,
    room: Room,
) -> Result<(Option<Duration>, Duration), Failure> {
    let began = Instant::now();
    match fault {
        Fault::Kill => fleet.kill(victim),
        Fault::Stop => {
            fleet.signal(victim, Signal::STOP);
            std::thread::sleep(PAUSE);
            fleet.signal(victim, Signal::CONT);
            let (code, log) = fleet.await_end(victim, FINDS_OUT)?;
            if code != Some(3) || !log.contains("lost") {
                return Err(format!("the host that was stopped ended with {code:?}: {log}").into());
            }
        }
    }
    let copied = match room {
        Room::Spare => Some(fleet.await_whole(COPIES).map_err(|why| format!("{why}\n{}", fleet.logs()))?),
        Room::None => {
            std::thread::sleep(Duration::from_millis(1500));
            None
        }
    };
    fleet.launch(victim)?;
    fleet.await_whole(COPIES).map_err(|why| format!("{why}\n{}", fleet.logs()))?;
    Ok((copied, began.elapsed()))
}

fn report(
    round: u64,
    what: (usize, Fault, Room),
    (copied, whole): (Option<Duration>, Duration),
    struck: u64,
    judged: &Judged,
) {
    let (victim, fault, room) = what;
    let began = Duration::from_nanos(judged.longest_began.saturating_sub(struck));
    println!(
        "round {round}: host {victim}, {fault:?}, {room:?} room: {} operations, {} unknown, longest {:?} \
         from {began:?} after the fault; two copies after {copied:?}, whole after {whole:?}, load {}",
        judged.operations,
        judged.unknown,
        judged.longest,
        load_average()
    );
}

/// No operation may fail or end with an unknown outcome.
fn blame(work: &Work, fleet: &Fleet) -> Result<(), Failure> {
    if work.errors.is_empty() {
        return Ok(());
    }
    Err(format!("failed: {:#?}\nevents: {:#?}\n{}", work.errors, work.events, fleet.logs()).into())
}
