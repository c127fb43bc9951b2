//! A client of a cluster of hosts. The hosts are threads of the test that speak the wire.

use super::*;
use crate::wire::errors::put_error;
use crate::wire::frame::put_frame;
use crate::wire::requests::take_request;
use crate::wire::responses::put_response;
use crate::wire::{
    FrameHeader, FrameKind, Goodbye, GoodbyeCode, HEADER_BYTES, Hello, Introduce, MAX_FRAME, MAX_REPLY,
    MAX_TRANSFER, MAX_VERBS, Role, VERSION, Welcome,
};
use sherman_executor::block_on;
use sherman_fabric::control::Renewal;
use sherman_fabric::group::{Admission, ClusterInfo, HostInfo};
use sherman_fabric::{
    Call, Caps, ComputeId, Counters, Endpoint, FabricError, FenceMode, Peer, Refusal, Request, Response,
    calls,
};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

const CLIENT: ComputeId = ComputeId(7);
const CLUSTER: u64 = 100;
/// The copy that no volume names.
const GAP: u16 = 1;

type Fabric = ControlFabric<NoLists>;
type Result<T> = std::result::Result<T, FabricError>;

/// Hosts that the test commands.
struct Hosts {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    over: bool,
    paths: Vec<PathBuf>,
    leader: Option<usize>,
    /// Hosts that answer no request.
    silent: BTreeSet<usize>,
    /// Hosts that close new connections.
    dead: BTreeSet<usize>,
    /// The epoch of the newest table, and how many clients get the one before it.
    epoch: u64,
    stale: u32,
    /// How many introductions to copies come too early.
    not_yet: u32,
    /// The host of each copy.
    copies: Vec<Option<u16>>,
    /// What control answers members with, in place of answers.
    error: Option<FabricError>,
    /// Whether the servers are plain ones.
    plain: bool,
    memory: u64,
    /// What each host was asked, by role.
    log: Vec<(usize, Role, Request)>,
    open: Vec<(usize, Role, UnixStream)>,
    incarnation: u32,
}

impl Hosts {
    fn start(hosts: usize) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = |host| {
            let name = format!("sherman-hosts-{}-{number}-{host}.sock", std::process::id());
            std::env::temp_dir().join(name)
        };
        let state = Arc::new(Mutex::new(State {
            paths: (0..hosts).map(path).collect(),
            leader: Some(0),
            epoch: 3,
            copies: vec![Some(0), None, Some(1 % hosts as u16)],
            ..State::default()
        }));
        for host in 0..hosts {
            let _ = std::fs::remove_file(path(host));
            let listener = UnixListener::bind(path(host)).unwrap();
            let served = Arc::clone(&state);
            std::thread::spawn(move || {
                for stream in listener.incoming().map_while(std::result::Result::ok) {
                    if served.lock().unwrap().over {
                        break;
                    }
                    let state = Arc::clone(&served);
                    std::thread::spawn(move || serve(host, stream, &state));
                }
            });
        }
        Self { state }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Options that name these hosts.
    fn options(&self, seeds: &[usize]) -> JoinOptions {
        let state = self.state();
        let seeds = seeds.iter().map(|seed| Address::Unix(state.paths[*seed].clone()));
        let mut options = JoinOptions::new(seeds.collect());
        options.patience = Duration::from_millis(1500);
        options.connect_timeout = Duration::from_secs(3);
        options
    }

    fn join(&self, seeds: &[usize]) -> std::result::Result<Fabric, JoinError> {
        Fabric::join_group(&self.options(seeds), decode)
    }

    /// Closes the connections of these roles.
    fn cut(&self, which: impl Fn(usize, &Role) -> bool) {
        for (_, _, stream) in self.state().open.extract_if(.., |(host, role, _)| which(*host, role)) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// The hosts that members have asked this, and how often.
    fn asked(&self, request: &Request) -> Vec<usize> {
        let state = self.state();
        state.log.iter().filter(|(_, _, asked)| asked == request).map(|(host, ..)| *host).collect()
    }

    /// The copies that were asked this.
    fn copies_asked(&self, request: &Request) -> Vec<u16> {
        let copy = |(_, role, asked): &(usize, Role, Request)| match role {
            Role::Copy { copy, .. } if asked == request => Some(*copy),
            _ => None,
        };
        self.state().log.iter().filter_map(copy).collect()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.cut(|_, _| true);
        // Each listener ends at its next connection.
        self.state().over = true;
        let paths = self.state().paths.clone();
        for path in paths {
            let _ = UnixStream::connect(&path);
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// A table of the fakes: the epoch, then for each copy its host, or 255.
fn decode(bytes: &[u8]) -> Option<CopyPlan> {
    let (epoch, copies) = bytes.split_first()?;
    let host = |byte: &u8| Some(u16::from(*byte)).filter(|host| *host != 255);
    Some(CopyPlan { epoch: u64::from(*epoch), copies: copies.iter().map(host).collect() })
}

impl State {
    fn address(&self, host: usize) -> String {
        format!("unix:{}", self.paths[host].display())
    }

    fn table(&self, epoch: u64) -> Vec<u8> {
        let hosts = self.copies.iter().map(|host| host.map_or(255, |host| host as u8));
        [epoch as u8].into_iter().chain(hosts).collect()
    }

    /// Admits a connection, or says why not.
    fn admit(&mut self, host: usize, role: &Role) -> std::result::Result<Welcome, GoodbyeCode> {
        let (mut client, mut incarnation, mut server, mut memory) = (CLIENT, 0, host as u16, self.memory);
        match role {
            Role::Copy { client: _, cluster, copy, epoch, incarnation: shown } => {
                assert_eq!((*cluster, self.copies[usize::from(*copy)]), (CLUSTER, Some(host as u16)));
                if *epoch < self.epoch {
                    return Err(GoodbyeCode::Fenced);
                }
                if self.not_yet > 0 {
                    self.not_yet -= 1;
                    return Err(GoodbyeCode::NotYet);
                }
                (server, memory, incarnation) = (*copy, 500 + u64::from(*copy), *shown);
            }
            Role::Control { incarnation: shown, .. } => incarnation = *shown,
            Role::Admin | Role::Newcomer => client = ComputeId::NOBODY,
            other => panic!("a client of a group introduces itself as {other:?}"),
        }
        Ok(welcome(client, incarnation, server, memory))
    }

    /// Answers a request; `None` for silence.
    fn answer(&mut self, host: usize, role: &Role, request: &Request) -> Option<Result<Response>> {
        self.log.push((host, role.clone(), request.clone()));
        let refuse = |refusal| Some(Err(FabricError::Refused(refusal)));
        if self.plain {
            return refuse(Refusal::BadRequest { what: "this server does not know the request" });
        }
        if self.silent.contains(&host) {
            return None;
        }
        let leader = self.leader.map(|leader| self.address(leader));
        if *request == Request::Cluster {
            let info = |number| HostInfo {
                number: number as u16,
                incarnation: 1,
                node: number as u64,
                address: self.address(number),
                up: true,
                voter: true,
                memory_bytes: 1 << 30,
                leaving: false,
            };
            return Some(Ok(Response::Cluster(Box::new(ClusterInfo {
                cluster: CLUSTER,
                host: host as u16,
                leader,
                epoch: self.epoch,
                formed: true,
                lease_nanos: 3_000_000_000,
                hosts: (0..self.paths.len()).map(info).collect(),
                table: self.table(self.epoch),
                ..ClusterInfo::default()
            }))));
        }
        if matches!(role, Role::Copy { .. }) {
            return Some(Ok(Response::Done));
        }
        if self.leader != Some(host) {
            return refuse(Refusal::NotLeader { leader: leader.unwrap_or_default() });
        }
        if let Some(error) = &self.error {
            return Some(Err(error.clone()));
        }
        Some(Ok(match request {
            Request::Join => {
                self.incarnation += 1;
                let stale = self.stale.min(1);
                self.stale -= stale;
                let hosts = (0..self.paths.len()).map(|host| (host as u16, self.address(host)));
                Response::Admitted(Box::new(Admission {
                    client: CLIENT,
                    incarnation: self.incarnation,
                    cluster: CLUSTER,
                    lease_nanos: 3_000_000_000,
                    table: self.table(self.epoch - u64::from(stale)),
                    hosts: hosts.collect(),
                }))
            }
            Request::Renew => Response::Renewed(Renewal::default()),
            Request::ListTrees => Response::Trees(Vec::new()),
            _ => Response::Done,
        }))
    }
}

fn welcome(client: ComputeId, incarnation: u32, server: u16, memory: u64) -> Welcome {
    let caps = Caps {
        atomic_unit: 64,
        crash_unit: 64,
        verb_atomic: false,
        masked_cas: true,
        write_releases: true,
        lock_read: true,
        on_chip_bytes: 64 << server,
        fence: FenceMode::Revoke,
        shortest_write_nanos: 0,
        max_verbs: MAX_VERBS,
        max_transfer: MAX_TRANSFER,
    };
    Welcome {
        version: VERSION,
        boot: 9,
        server,
        servers: 1,
        memory,
        cluster: CLUSTER,
        lost: Vec::new(),
        client,
        incarnation,
        host_bytes: 1 << 20,
        caps,
        max_frame: MAX_FRAME,
        max_reply: MAX_REPLY,
        lease_nanos: 3_000_000_000,
    }
}

fn read_frame(stream: &mut UnixStream) -> Option<(FrameHeader, Vec<u8>)> {
    let mut head = [0; HEADER_BYTES];
    stream.read_exact(&mut head).ok()?;
    let header = FrameHeader::decode(&head).ok()??;
    let mut body = vec![0; header.len as usize];
    stream.read_exact(&mut body).ok()?;
    Some((header, body))
}

fn write_frame(
    stream: &mut UnixStream,
    kind: FrameKind,
    tag: u64,
    write: impl FnOnce(&mut Vec<u8>),
) -> Option<()> {
    let mut out = Vec::new();
    put_frame(&mut out, kind, tag, write).unwrap();
    stream.write_all(&out).ok()
}

fn serve(host: usize, mut stream: UnixStream, state: &Mutex<State>) -> Option<()> {
    if state.lock().unwrap().dead.contains(&host) {
        return None;
    }
    let hello = Hello { version_min: VERSION, version_max: VERSION, needs_secret: false, nonce: [1; 32] };
    write_frame(&mut stream, FrameKind::Hello, 0, |out| hello.put(out))?;
    let (_, body) = read_frame(&mut stream)?;
    let role = Introduce::take(&body).unwrap().message.role;
    let admitted = state.lock().unwrap().admit(host, &role);
    match admitted {
        Ok(welcome) => write_frame(&mut stream, FrameKind::Welcome, 0, |out| welcome.put(out, |_| [0; 32]))?,
        Err(code) => {
            let goodbye = Goodbye { code, error: None };
            return write_frame(&mut stream, FrameKind::Goodbye, 0, |out| goodbye.put(out));
        }
    }
    state.lock().unwrap().open.push((host, role.clone(), stream.try_clone().unwrap()));
    while let Some((header, body)) = read_frame(&mut stream) {
        let request = take_request(&body).unwrap();
        let answer = state.lock().unwrap().answer(host, &role, &request);
        match answer {
            Some(Ok(response)) => write_frame(&mut stream, FrameKind::Answer, header.tag, |out| {
                put_response(out, &response).unwrap();
            })?,
            Some(Err(error)) => {
                write_frame(&mut stream, FrameKind::Refused, header.tag, |out| put_error(out, &error))?;
            }
            None => {}
        }
    }
    None
}

/// Asks as an operation does, and sleeps until the answer arrives.
fn ask<C: Call>(endpoint: &ControlEndpoint<NoLists>, peer: Peer, call: C) -> Result<C::Reply> {
    block_on(endpoint, sherman_fabric::call(endpoint, peer, call, &Counters::default()))
}

fn is_control(_: usize, role: &Role) -> bool {
    matches!(role, Role::Control { .. })
}

#[test]
fn a_client_finds_the_leader_from_any_host_joins_there_and_leaves_everywhere() {
    let hosts = Hosts::start(3);
    hosts.state().leader = Some(2);
    let fabric = hosts.join(&[1]).unwrap();
    assert_eq!((fabric.client(), fabric.cluster_id(), fabric.servers()), (CLIENT, CLUSTER, 3));
    assert_eq!((fabric.epoch(), decode(fabric.table().unwrap()).unwrap().epoch), (Some(3), 3));
    assert_eq!(fabric.hosts().len(), 3);
    assert_eq!(fabric.caps().on_chip_bytes, 64, "capabilities are those that all copies have");
    assert_eq!([0, GAP, 2].map(|copy| fabric.is_lost(copy)), [false, true, false]);
    assert_eq!((hosts.asked(&Request::Join), hosts.asked(&Request::Renew)), (vec![2], vec![2]));
    let endpoint = fabric.endpoint().unwrap();
    assert_eq!(ask(&endpoint, Peer::Control, calls::ListTrees), Ok(Vec::new()));
    assert_eq!(ask(&endpoint, Peer::Volume(2), calls::Release), Ok(()));
    assert_eq!(ask(&endpoint, Peer::Volume(GAP), calls::Release), Err(FabricError::ServerLost { server: 1 }));
    assert_eq!(hosts.copies_asked(&Request::Release), [2]);
    // A second endpoint has connections of its own.
    drop(fabric.endpoint().unwrap());
    drop((endpoint, fabric));
    assert_eq!(hosts.copies_asked(&Request::Release), [2, 2, 0]);
    assert_eq!(hosts.asked(&Request::Leave), [2]);
}

#[test]
fn a_client_waits_for_an_election_and_for_hosts_that_carry_out_the_table() {
    let hosts = Hosts::start(3);
    (hosts.state().leader, hosts.state().not_yet) = (None, 7);
    let state = Arc::clone(&hosts.state);
    let elected = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        state.lock().unwrap().leader = Some(1);
    });
    let fabric = hosts.join(&[0, 1, 2]).unwrap();
    elected.join().unwrap();
    assert_eq!((hosts.asked(&Request::Join), hosts.state().not_yet), (vec![1], 0));
    drop(fabric);
}

#[test]
fn a_join_without_a_leader_and_one_without_a_host_end_in_time_and_may_pass() {
    let hosts = Hosts::start(2);
    hosts.state().leader = None;
    let mut options = hosts.options(&[0, 1]);
    options.connect_timeout = Duration::from_millis(300);
    let began = Instant::now();
    let none = Fabric::join_group(&options, decode).unwrap_err();
    assert!(matches!(none, JoinError::NoLeader { .. }) && none.may_pass(), "{none:?}");
    hosts.state().dead.extend([0, 1]);
    let down = Fabric::join_group(&options, decode).unwrap_err();
    assert!(matches!(down, JoinError::Host { .. }) && down.may_pass(), "{down:?}");
    assert!(began.elapsed() < Duration::from_secs(2));
}

#[test]
fn a_cluster_that_forms_says_so_at_once() {
    let hosts = Hosts::start(1);
    hosts.state().error = Some(FabricError::Refused(Refusal::Forming { hosts: 1, expected: 3 }));
    let refused = hosts.join(&[0]).unwrap_err();
    assert!(refused.may_pass() && refused.to_string().contains("1 of 3"), "{refused}");
    assert_eq!(hosts.asked(&Request::Join).len(), 1);
}

#[test]
fn a_client_that_cannot_reach_a_copy_gives_its_id_back() {
    let hosts = Hosts::start(2);
    hosts.state().dead.insert(1);
    let failed = hosts.join(&[0]).unwrap_err();
    assert!(matches!(failed, JoinError::Copy { copy: 2, host: 1, .. }) && failed.may_pass(), "{failed:?}");
    assert_eq!(hosts.asked(&Request::Leave), [0]);
    hosts.state().copies[2] = Some(77);
    let absent = hosts.join(&[0]).unwrap_err();
    assert!(matches!(absent, JoinError::NoAddress { host: 77 }) && absent.may_pass(), "{absent:?}");
    hosts.state().copies.clear();
    let empty = hosts.join(&[0]).unwrap_err();
    assert!(matches!(empty, JoinError::NoCopies), "{empty:?}");
    let unknown = Fabric::join_group(&hosts.options(&[0]), |_| None).unwrap_err();
    assert!(matches!(unknown, JoinError::BadTable { .. }) && !unknown.may_pass(), "{unknown:?}");
    assert_eq!(hosts.asked(&Request::Leave).len(), 4);
}

#[test]
fn a_client_whose_table_is_replaced_while_it_joins_begins_again() {
    let hosts = Hosts::start(2);
    hosts.state().stale = 2;
    let fabric = hosts.join(&[0]).unwrap();
    assert_eq!((hosts.asked(&Request::Join).len(), hosts.asked(&Request::Leave).len()), (3, 2));
    assert_eq!(fabric.epoch(), Some(3));
}

#[test]
fn the_answer_to_a_call_comes_from_the_next_leader_and_only_once() {
    let hosts = Hosts::start(3);
    let fabric = hosts.join(&[0]).unwrap();
    let endpoint = fabric.endpoint().unwrap();
    hosts.state().silent.insert(0);
    let state = Arc::clone(&hosts.state);
    let elected = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        state.lock().unwrap().leader = Some(1);
    });
    let ticket = endpoint.call(Peer::Control, Request::ListTrees);
    let answer = block_on(&endpoint, std::future::poll_fn(|cx| endpoint.poll_call(ticket, cx)));
    assert_eq!(answer, Ok(Response::Trees(Vec::new())));
    elected.join().unwrap();
    let asked = hosts.asked(&Request::ListTrees);
    assert!(asked.first() == Some(&0) && asked.last() == Some(&1), "{asked:?}");
    let again = block_on(&endpoint, std::future::poll_fn(|cx| endpoint.poll_call(ticket, cx)));
    assert!(again.is_err(), "the same call was answered twice");
    // The old leader answers again: the client goes where it says.
    hosts.state().silent.clear();
    hosts.state().leader = Some(2);
    assert_eq!(ask(&endpoint, Peer::Control, calls::ListTrees), Ok(Vec::new()));
    assert_eq!(hosts.asked(&Request::ListTrees).last(), Some(&2));
}

#[test]
fn a_connection_to_control_that_breaks_ends_nothing() {
    let hosts = Hosts::start(2);
    let fabric = hosts.join(&[0]).unwrap();
    let endpoint = fabric.endpoint().unwrap();
    for _ in 0..3 {
        hosts.cut(is_control);
        assert!(ask(&endpoint, Peer::Control, calls::Renew).is_ok());
    }
    hosts.state().dead.insert(0);
    hosts.state().leader = Some(1);
    hosts.cut(is_control);
    assert!(ask(&endpoint, Peer::Control, calls::Renew).is_ok());
    assert!(!fabric.is_cut(0) && !endpoint.refuses(0) && !endpoint.refuses(2));
}

#[test]
fn a_call_without_a_leader_ends_within_the_patience_and_the_identity_goes_on() {
    let hosts = Hosts::start(2);
    let mut options = hosts.options(&[0, 1]);
    options.patience = Duration::from_millis(300);
    let fabric = Fabric::join_group(&options, decode).unwrap();
    let endpoint = fabric.endpoint().unwrap();
    for silent in [false, true] {
        hosts.state().leader = None;
        hosts.state().silent.extend(silent.then_some([0, 1]).into_iter().flatten());
        let began = Instant::now();
        assert_eq!(ask(&endpoint, Peer::Control, calls::Renew), Err(FabricError::NoLeader));
        let waited = began.elapsed();
        assert!(waited >= options.patience && waited < 3 * options.patience, "{waited:?}");
        hosts.state().silent.clear();
        hosts.state().leader = Some(1);
        assert!(ask(&endpoint, Peer::Control, calls::Renew).is_ok());
    }
}

#[test]
fn an_identity_that_lost_a_copy_renews_until_its_epoch_has_ended() {
    let hosts = Hosts::start(2);
    let fabric = hosts.join(&[0]).unwrap();
    let endpoint = fabric.endpoint().unwrap();
    // Host 1 dies while a request is in flight there.
    hosts.state().silent.insert(1);
    let ticket = endpoint.call(Peer::Volume(2), Request::Usage);
    hosts.state().dead.insert(1);
    hosts.cut(|host, _| host == 1);
    let lost = block_on(&endpoint, std::future::poll_fn(|cx| endpoint.poll_call(ticket, cx)));
    assert_eq!(lost, Err(FabricError::Disconnected { server: 2 }));
    assert!(fabric.is_cut(2) && endpoint.refuses(2));
    assert!(ask(&endpoint, Peer::Control, calls::Renew).is_ok());
    assert_eq!(ask(&endpoint, Peer::Control, calls::Volumes), Err(UNEXPECTED));
    let disconnected = |answer| matches!(answer, Err(FabricError::Disconnected { .. }));
    assert!(disconnected(ask(&endpoint, Peer::Control, calls::Leave)));
    assert!(disconnected(ask(&endpoint, Peer::Volume(0), calls::Release)));
    hosts.state().error = Some(FabricError::EpochEnded { client: CLIENT });
    let ended = ask(&endpoint, Peer::Control, calls::Renew);
    assert_eq!(ended, Err(FabricError::EpochEnded { client: CLIENT }));
    drop((endpoint, fabric));
    assert_eq!(hosts.asked(&Request::Leave), [], "it may hold a lane, which only recovery frees");
}

/// The fakes answer `Volumes` with `Done`.
const UNEXPECTED: FabricError = FabricError::UnexpectedReply { request: "Volumes" };

#[test]
fn a_copy_that_knows_a_newer_table_has_fenced_this_client() {
    let hosts = Hosts::start(2);
    let fabric = hosts.join(&[0]).unwrap();
    hosts.state().epoch += 1;
    assert_eq!(fabric.explain_break(2), FabricError::Fenced { client: CLIENT });
    hosts.state().epoch -= 1;
    hosts.state().dead.insert(1);
    assert_eq!(fabric.explain_break(2), FabricError::Disconnected { server: 2 });
}

#[test]
fn an_abandoned_identity_asks_nothing_more_and_does_not_leave() {
    let hosts = Hosts::start(2);
    let fabric = hosts.join(&[0]).unwrap();
    let endpoint = fabric.endpoint().unwrap();
    hosts.state().silent.insert(0);
    let ticket = endpoint.call(Peer::Control, Request::ListTrees);
    fabric.abandon();
    let ended = block_on(&endpoint, std::future::poll_fn(|cx| endpoint.poll_call(ticket, cx)));
    let fenced = FabricError::Fenced { client: CLIENT };
    assert_eq!(ended, Err(fenced.clone()));
    assert_eq!(ask(&endpoint, Peer::Control, calls::Renew), Err(fenced));
    hosts.state().silent.clear();
    drop((endpoint, fabric));
    assert_eq!(hosts.asked(&Request::Leave), []);
}

#[test]
fn a_client_that_has_left_twice_has_left() {
    let hosts = Hosts::start(2);
    let fabric = hosts.join(&[0]).unwrap();
    let endpoint = fabric.endpoint().unwrap();
    // The first leader carries the request out and is silent. The next one knows no such member.
    hosts.state().silent.insert(0);
    let state = Arc::clone(&hosts.state);
    let next = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        let mut state = state.lock().unwrap();
        state.leader = Some(1);
        state.error = Some(FabricError::Refused(Refusal::NotAMember { client: CLIENT }));
    });
    assert_eq!(ask(&endpoint, Peer::Control, calls::Leave), Ok(()));
    next.join().unwrap();
}

#[test]
fn an_operator_goes_where_the_leader_is_and_to_hosts_by_number() {
    let hosts = Hosts::start(3);
    hosts.state().leader = Some(2);
    hosts.state().dead.insert(0);
    let options = hosts.options(&[0, 1]);
    assert!(Fabric::is_group(&options).unwrap());
    let operator = Operator::open(&options).unwrap();
    assert!(operator.is_group());
    assert_eq!(operator.cluster().unwrap().host, 2);
    assert_eq!(operator.ask(Peer::Control, calls::ListTrees).unwrap(), []);
    hosts.state().leader = Some(1);
    assert_eq!(operator.ask(Peer::Control, calls::ListTrees).unwrap(), []);
    assert_eq!(hosts.asked(&Request::ListTrees), [2, 2, 1], "host 2 said where the leader is");
    assert_eq!(operator.find(1).unwrap().boot, 9);
    let absent = operator.ask(Peer::Volume(7), calls::Usage);
    assert!(matches!(absent, Err(AdminError::Refused(FabricError::NoSuchServer { server: 7 }))));
}

#[test]
fn a_plain_server_is_no_host_of_a_group() {
    let hosts = Hosts::start(1);
    hosts.state().plain = true;
    for memory in [0, 5] {
        hosts.state().memory = memory;
        assert!(!Fabric::is_group(&hosts.options(&[0])).unwrap());
    }
    let refused = hosts.join(&[0]).unwrap_err();
    assert!(matches!(refused, JoinError::NoGroup { .. }) && !refused.may_pass(), "{refused:?}");
    hosts.state().dead.insert(0);
    let down = Fabric::is_group(&hosts.options(&[0])).unwrap_err();
    assert!(matches!(down, JoinError::Connect { server: 0, .. }), "{down:?}");
}
