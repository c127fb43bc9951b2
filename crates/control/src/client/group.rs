//! How a client joins a cluster of hosts.
//!
//! 1. It asks the hosts that it knows who leads the group. An election may be under way, so it asks again
//!    until [`JoinOptions::connect_timeout`] has passed.
//! 2. It asks the leader to let it join, and gets an id and the table of volumes.
//! 3. It connects to every copy that the table names. A host may still be carrying out this table: then the
//!    client waits for it.
//! 4. It renews its lease. Only then has it joined: it is still a member, and its table is still the newest.
//!
//! If a step after the second fails, the client leaves, so that its id does not stay taken for a lease. If
//! the reason is a newer table, it begins again. If it cannot reach a copy, the host may be lost: then it
//! waits for a newer table, for at most a lease.

use super::admin::exchange;
use super::backoff::Backoff;
use super::connect::{ConnectError, Connected, connect};
use super::error::JoinError;
use super::fabric::{check_servers, introduce, restrict};
use super::options::{Address, JoinOptions};
use super::peers::Known;
use super::places::Places;
use crate::wire::{Also, GoodbyeCode, MAX_MEMORIES, Role, Welcome};
use sherman_fabric::group::{Admission, ClusterInfo};
use sherman_fabric::{Caps, FabricError, Refusal, Request, Response};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The first and the longest pause between two attempts to find the leader.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(50));
/// The parts of the whole time that one host gets to say who leads, at most.
const PARTS: u32 = 4;
/// The time that a host gets at first. It doubles whenever a host is silent for so long: that host may be
/// stopped or cut off, but all of them may also be far away.
const FIRST_PART: Duration = Duration::from_millis(200);
/// The least time that one host gets.
const LEAST: Duration = Duration::from_millis(100);
/// The first and the longest pause between two looks whether there is a newer table.
const TABLE_PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(100));
/// How many hosts in a row may send the client on to another one before it pauses.
const HOPS: u32 = 3;
/// How long a client waits for hosts that have not carried out its table.
const NOT_YET: Duration = Duration::from_secs(2);
/// The pause before it asks such a host again.
const NOT_YET_PAUSE: Duration = Duration::from_millis(4);

/// Which copies a table of volumes names. The caller of [`ControlFabric::join_group`] decodes the table.
///
/// [`ControlFabric::join_group`]: super::ControlFabric::join_group
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyPlan {
    /// The epoch of the table.
    pub epoch: u64,
    /// For every copy, by number, the host that serves it. `None` if no volume names the copy.
    pub copies: Vec<Option<u16>>,
}

/// What answers at the addresses of a cluster.
#[derive(Debug)]
pub(super) enum Probe {
    /// A memory server of a list, with its place in the list.
    Server(u16, Box<Welcome>),
    /// A host of a group.
    Host(Box<ClusterInfo>),
}

/// Asks the first server that answers whether it is a host of a group.
///
/// A silent server may be stopped or cut off, so the others are asked soon. If none of them answers, all get
/// more time.
///
/// # Errors
/// If none answers, the error of the first one.
pub(super) fn probe(options: &JoinOptions) -> Result<Probe, JoinError> {
    check_servers(options)?;
    let give_up = Instant::now() + options.connect_timeout;
    let mut part = if options.servers.len() == 1 { options.connect_timeout } else { FIRST_PART };
    loop {
        let (mut first, mut silent) = (None, false);
        for server in 0..options.servers.len() as u16 {
            let left = give_up.saturating_duration_since(Instant::now());
            let connect_timeout = part.min(left.max(LEAST)).min(options.connect_timeout);
            let until = Instant::now() + connect_timeout;
            match probe_one(&JoinOptions { connect_timeout, ..options.clone() }, server) {
                Err(error) if error.may_pass() => {
                    silent |= Instant::now() >= until;
                    first.get_or_insert(error);
                }
                known => return known,
            }
        }
        part *= 2;
        if !silent || Instant::now() >= give_up {
            return Err(first.unwrap_or(JoinError::NoServers));
        }
    }
}

fn probe_one(options: &JoinOptions, server: u16) -> Result<Probe, JoinError> {
    let Connected { stream, welcome } = introduce(options, server, Role::Admin)?;
    // A host has copies of volumes, and no memory of its own.
    if welcome.memory != 0 {
        return Ok(Probe::Server(server, Box::new(welcome)));
    }
    match exchange(&stream, &Request::Cluster, Instant::now() + options.connect_timeout) {
        Ok(Ok(Response::Cluster(info))) => Ok(Probe::Host(info)),
        Ok(_) => Ok(Probe::Server(server, Box::new(welcome))),
        // A server that does not know the request.
        Err(ConnectError::Goodbye(goodbye))
            if matches!(goodbye.code, GoodbyeCode::Malformed | GoodbyeCode::NotAllowed) =>
        {
            Ok(Probe::Server(server, Box::new(welcome)))
        }
        Err(error) => {
            let address = options.servers[usize::from(server)].clone();
            Err(JoinError::Connect { server, address, error })
        }
    }
}

/// How long one host may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    /// Until when it must have accepted the connection.
    pub(super) hello: Instant,
    /// Until when it must have answered.
    pub(super) end: Instant,
}

impl Turn {
    /// The same time for both.
    pub(super) fn until(end: Instant) -> Self {
        Self { hello: end, end }
    }
}

/// Connects to a host, sends one request and receives its answer.
pub(super) fn ask(
    options: &JoinOptions,
    address: &Address,
    role: Role,
    request: &Request,
    turn: Turn,
) -> Result<Result<Response, FabricError>, ConnectError> {
    let connected = connect(address, options.secret.as_ref(), role, turn.hello.min(turn.end))?;
    exchange(&connected.stream, request, turn.end)
}

/// What one host says to a request that only the leader answers.
pub(super) enum Said<T> {
    Done(T),
    /// The leader is there; empty if the host knows none.
    Elsewhere(String),
}

/// Finds the leader, and has it admit this client. Returns its address too. Afterwards it is the first of
/// `places`.
pub(super) fn admit(options: &JoinOptions, places: &mut Places) -> Result<(Address, Admission), JoinError> {
    let (leader, admission) = follow(places, options.connect_timeout, |places, address, turn| {
        admit_at(options, places, address, turn)
    })?;
    admission.hosts.iter().for_each(|(_, host)| places.learn_text(host));
    places.hint(&leader.to_string());
    Ok((leader, *admission))
}

/// Asks one host after the other, and goes where they say that the leader is, until one of them has done what
/// `attempt` asks of it. `attempt` gets the time until which a host must have said hello, and the end of all.
///
/// # Errors
/// The first error that does not pass. After `patience`: [`JoinError::NoLeader`] if some host answered,
/// otherwise the first error.
pub(super) fn follow<T>(
    places: &mut Places,
    patience: Duration,
    mut attempt: impl FnMut(&mut Places, &Address, Turn) -> Result<Said<T>, JoinError>,
) -> Result<(Address, T), JoinError> {
    let began = Instant::now();
    let deadline = began + patience;
    let longest = (patience / PARTS).max(LEAST);
    let mut part = FIRST_PART.min(longest);
    let mut pauses = Backoff::between(PAUSES.0, PAUSES.1);
    let (mut unreached, mut reached, mut hops) = (None, None, 0);
    while let Some(address) = places.next() {
        let hello = Instant::now() + part;
        match attempt(places, &address, Turn { hello, end: deadline }) {
            Ok(Said::Done(done)) => {
                places.answered();
                return Ok((address, done));
            }
            Ok(Said::Elsewhere(leader)) => {
                reached = Some(address);
                hops += 1;
                if places.hint(&leader) && hops % HOPS != 0 && Instant::now() < deadline {
                    continue;
                }
            }
            Err(error @ JoinError::Host { .. }) if error.may_pass() => {
                if Instant::now() >= hello {
                    part = (2 * part).min(longest);
                }
                places.failed(address);
                unreached.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
        let pause = pauses.next();
        if Instant::now() + pause >= deadline {
            break;
        }
        std::thread::sleep(pause);
    }
    Err(match (reached, unreached) {
        (Some(asked), _) => JoinError::NoLeader { asked, waited: began.elapsed() },
        (None, Some(error)) => error,
        (None, None) => JoinError::NoServers,
    })
}

/// Asks the host at `address` who leads, and to admit this client if it leads itself.
fn admit_at(
    options: &JoinOptions,
    places: &mut Places,
    address: &Address,
    turn: Turn,
) -> Result<Said<Box<Admission>>, JoinError> {
    let unreached = |error| JoinError::Host { address: address.clone(), error };
    let refused = |error| JoinError::Refused { address: address.clone(), error };
    let answer = ask(options, address, Role::Admin, &Request::Cluster, Turn::until(turn.hello.min(turn.end)));
    let leader = match answer.map_err(unreached)? {
        Ok(Response::Cluster(info)) => {
            let up = info.hosts.iter().filter(|host| host.up);
            up.for_each(|host| places.learn_text(&host.address));
            info.leader.unwrap_or_default()
        }
        Err(error) => match elsewhere(error) {
            Ok(leader) => leader,
            Err(FabricError::Refused(Refusal::BadRequest { .. } | Refusal::NotHere)) => {
                return Err(JoinError::NoGroup { address: address.clone() });
            }
            Err(error) => return Err(refused(error)),
        },
        Ok(_) => return Err(JoinError::NoGroup { address: address.clone() }),
    };
    if Address::parse(&leader).as_ref() != Some(address) {
        return Ok(Said::Elsewhere(leader));
    }
    // A leader that has lost the others does not answer. So some time is kept for the next one.
    let left = turn.end.saturating_duration_since(Instant::now());
    let part = Instant::now() + (left / 2).max(LEAST);
    match ask(options, address, Role::Newcomer, &Request::Join, Turn::until(part)).map_err(unreached)? {
        Ok(Response::Admitted(admission)) => Ok(Said::Done(admission)),
        Ok(_) => Err(refused(FabricError::UnexpectedReply { request: "Join" })),
        Err(error) => elsewhere(error).map(Said::Elsewhere).map_err(refused),
    }
}

/// Waits until the cluster has a newer table than that of `epoch`, but not longer than `limit`. Returns
/// whether it has one.
///
/// For a client that cannot reach a copy: the host may be about to be declared lost. Asking is cheap, because
/// any host answers. Joining again costs the group two commands each time, so a client would have to pause
/// for longer, and would notice the new table later.
pub(super) fn await_table(options: &JoinOptions, places: &mut Places, epoch: u64, limit: Duration) -> bool {
    let until = Instant::now() + limit;
    let mut pauses = Backoff::between(TABLE_PAUSES.0, TABLE_PAUSES.1);
    while let Some(address) = places.next() {
        let turn = Turn::until(until.min(Instant::now() + LEAST));
        match ask(options, &address, Role::Admin, &Request::Cluster, turn) {
            Ok(Ok(Response::Cluster(info))) if info.epoch > epoch => {
                info.leader.iter().for_each(|leader| _ = places.hint(leader));
                return true;
            }
            Err(error) if error.is_out_of_reach() => places.failed(address),
            _ => {}
        }
        let pause = pauses.next();
        if Instant::now() + pause >= until {
            break;
        }
        std::thread::sleep(pause);
    }
    false
}

/// Where the leader is, if that is what an error says.
pub(super) fn elsewhere(error: FabricError) -> Result<String, FabricError> {
    match error {
        FabricError::Refused(Refusal::NotLeader { leader }) => Ok(leader),
        FabricError::NoLeader | FabricError::Disconnected { .. } => Ok(String::new()),
        error => Err(error),
    }
}

/// The connections of a client to the copies of its table.
#[derive(Debug)]
pub(super) struct Copies {
    /// A connection for each host, and the copies that share it.
    pub(super) lines: Vec<(Connected, Vec<u16>)>,
    /// By copy; `None` for a copy that no volume names.
    pub(super) addresses: Vec<Option<Address>>,
    pub(super) known: Vec<Known>,
    pub(super) caps: Caps,
}

/// Connects to every copy that the table names, once to each host.
pub(super) fn connect_copies(
    options: &JoinOptions,
    admission: &Admission,
    plan: &CopyPlan,
) -> Result<Copies, JoinError> {
    let give_up = Instant::now() + NOT_YET.min(options.connect_timeout);
    let mut hosts = BTreeMap::<u16, Vec<u16>>::new();
    for (copy, host) in (0u16..).zip(&plan.copies) {
        if let Some(host) = *host {
            hosts.entry(host).or_default().push(copy);
        }
    }
    let nowhere = Known { lost: true, ..Known::default() };
    let (mut addresses, mut known) = (vec![None; plan.copies.len()], vec![nowhere; plan.copies.len()]);
    let (mut lines, mut caps) = (Vec::new(), None::<Caps>);
    for (host, copies) in hosts {
        let address = admission.hosts.iter().find(|(number, _)| *number == host);
        let address = address.and_then(|(_, address)| Address::parse(address));
        let address = address.ok_or(JoinError::NoAddress { host })?;
        for copies in copies.chunks(MAX_MEMORIES) {
            let made = connect_host(options, &address, (admission, plan.epoch), copies, give_up);
            let (connected, welcomes) = made.map_err(|(copy, error)| JoinError::Copy {
                copy,
                host,
                address: address.clone(),
                error,
            })?;
            for (&copy, welcome) in copies.iter().zip(&welcomes) {
                match &mut caps {
                    Some(caps) => restrict(caps, &welcome.caps),
                    None => caps = Some(welcome.caps.clone()),
                }
                let copy = usize::from(copy);
                known[copy] = Known { boot: welcome.boot, memory: welcome.memory, lost: false };
                addresses[copy] = Some(address.clone());
            }
            lines.push((connected, copies.to_vec()));
        }
    }
    Ok(Copies { lines, addresses, known, caps: caps.ok_or(JoinError::NoCopies)? })
}

/// Connects to copies on one host. Until `give_up` it waits for a host that has not carried out the table.
/// Names the copy that fails.
fn connect_host(
    options: &JoinOptions,
    address: &Address,
    member: (&Admission, u64),
    copies: &[u16],
    give_up: Instant,
) -> Result<(Connected, Vec<Welcome>), (u16, ConnectError)> {
    loop {
        let outcome = connect_once(options, address, member, copies);
        let not_yet = matches!(
            &outcome,
            Err((_, ConnectError::Goodbye(said))) if said.code == GoodbyeCode::NotYet
        );
        if !not_yet || Instant::now() >= give_up {
            return outcome;
        }
        std::thread::sleep(NOT_YET_PAUSE);
    }
}

/// Makes one attempt to connect to copies on one host.
fn connect_once(
    options: &JoinOptions,
    address: &Address,
    (admission, epoch): (&Admission, u64),
    copies: &[u16],
) -> Result<(Connected, Vec<Welcome>), (u16, ConnectError)> {
    let deadline = Instant::now() + options.connect_timeout;
    let Admission { client, incarnation, cluster, .. } = *admission;
    let check = |copy, welcome: Welcome| {
        let confused = |what| Err((copy, ConnectError::Confused { what }));
        if (welcome.client, welcome.incarnation) != (client, incarnation) {
            return confused("it takes this client for another one");
        }
        if (welcome.server, welcome.cluster) != (copy, cluster) {
            return confused("it has another copy or cluster");
        }
        Ok(welcome)
    };
    let Some((&first, others)) = copies.split_first() else {
        return Err((0, ConnectError::Confused { what: "a connection to no copy" }));
    };
    let role = Role::Copy { client, incarnation, cluster, copy: first, epoch };
    let connected = connect(address, options.secret.as_ref(), role, deadline);
    let connected = connected.map_err(|error| (first, error))?;
    let mut welcomes = vec![check(first, connected.welcome.clone())?];
    for &copy in others {
        let welcome = connected.also(Also { copy, epoch }, deadline).map_err(|error| (copy, error))?;
        welcomes.push(check(copy, welcome)?);
    }
    Ok((connected, welcomes))
}
