//! A host: one process that serves several copies, passes requests to its control plane, and takes messages
//! of other hosts.

use crate::raw::{FREE, Raw, Reply, alone, eventually, host, options, refused, start};
use sherman_control::plane::{Answer, Asker, ControlPlane, Mirror};
use sherman_control::wire::frame::{MAX_FILL, put_frame};
use sherman_control::wire::group::Fill;
use sherman_control::wire::{FrameKind, Goodbye, GoodbyeCode, Role, Welcome};
use sherman_embedded::host::Host;
use sherman_fabric::group::{HostOffer, Store};
use sherman_fabric::{ComputeId, FabricError, Memory, Refusal, Request, Response, Space, WorkList, calls};
use sherman_soft_nic::server::{Limits, Listen, RunningServer, ServeError, ServerOptions, SoftNicServer};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub(crate) const CLUSTER: u64 = 500;
pub(crate) const EPOCH: u64 = 3;
/// The numbers of the copies.
pub(crate) const ONE: u16 = 4;
pub(crate) const OTHER: u16 = 9;
/// The client of most tests.
pub(crate) const CLIENT: ComputeId = ComputeId(7);

/// A control plane that answers when the test says so.
#[derive(Default)]
pub(crate) struct Plane {
    epoch: AtomicU64,
    cluster: AtomicU64,
    /// Whether it answers each request with `Done` before `ask` returns.
    at_once: AtomicBool,
    asked: Mutex<Vec<(Asker, Request, Answer)>>,
    seen: Mutex<Vec<(Asker, Request)>>,
    received: Mutex<Vec<Vec<u8>>>,
}

impl fmt::Debug for Plane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plane").finish_non_exhaustive()
    }
}

impl ControlPlane for Plane {
    fn ask(&self, asker: Asker, request: Request, answer: Answer) {
        self.seen.lock().unwrap().push((asker, request.clone()));
        if self.at_once.load(SeqCst) {
            return answer(Ok(Response::Done));
        }
        self.asked.lock().unwrap().push((asker, request, answer));
    }

    fn receive(&self, message: &[u8]) {
        self.received.lock().unwrap().push(message.to_vec());
    }

    fn epoch(&self) -> u64 {
        self.epoch.load(SeqCst)
    }

    fn cluster(&self) -> u64 {
        self.cluster.load(SeqCst)
    }

    fn host(&self) -> u16 {
        12
    }
}

impl Plane {
    pub(crate) fn new(at_once: bool) -> Arc<Self> {
        let plane = Self::default();
        plane.epoch.store(EPOCH, SeqCst);
        plane.cluster.store(CLUSTER, SeqCst);
        plane.at_once.store(at_once, SeqCst);
        Arc::new(plane)
    }

    /// How many requests wait for an answer.
    fn waiting(&self) -> usize {
        self.asked.lock().unwrap().len()
    }

    /// Takes request `index` of those that wait.
    fn take(&self, index: usize) -> (Asker, Request, Answer) {
        self.asked.lock().unwrap().remove(index)
    }

    fn seen(&self) -> Vec<(Asker, Request)> {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }
}

type Sent = (Vec<Store>, Option<ComputeId>, Answer);

/// The way to other copies that answers when the test says so.
#[derive(Default)]
struct Others {
    sent: Mutex<Vec<Sent>>,
}

impl fmt::Debug for Others {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Others").finish_non_exhaustive()
    }
}

impl Mirror for Others {
    fn send(&self, stores: Vec<Store>, fenced: Option<ComputeId>, answer: Answer) {
        self.sent.lock().unwrap().push((stores, fenced, answer));
    }
}

impl Others {
    /// Waits for the next stores.
    fn next(&self) -> Sent {
        eventually(|| !self.sent.lock().unwrap().is_empty());
        self.sent.lock().unwrap().remove(0)
    }
}

fn of_plane(plane: &Arc<Plane>) -> ServerOptions {
    let plane: Arc<dyn ControlPlane> = Arc::clone(plane) as _;
    let listen = vec![Listen::Tcp("127.0.0.1:0".into())];
    ServerOptions { shards: 2, ..ServerOptions::with_plane(plane, listen) }
}

/// A host with two copies. The memory of the first one is formatted like that of server 0.
pub(crate) fn two_copies(plane: &Arc<Plane>) -> (RunningServer, [Arc<Host>; 2]) {
    let server = start(of_plane(plane));
    let hosts = [host(0, 2), host(1, 2)];
    server.install_copy(ONE, Arc::clone(&hosts[0]));
    server.handle().install_copy(OTHER, Arc::clone(&hosts[1]));
    (server, hosts)
}

pub(crate) fn at_copy(copy: u16) -> Role {
    Role::Copy { client: CLIENT, incarnation: 2, cluster: CLUSTER, copy, epoch: EPOCH }
}

pub(crate) fn at_copy_as(copy: u16, client: u16, incarnation: u32) -> Role {
    Role::Copy { client: ComputeId(client), incarnation, cluster: CLUSTER, copy, epoch: EPOCH }
}

fn control() -> Role {
    Role::Control { client: CLIENT, incarnation: 2, cluster: CLUSTER }
}

fn other_host() -> Role {
    Role::Host { host: 3, incarnation: 1, cluster: CLUSTER }
}

pub(crate) fn enter(server: &RunningServer, role: Role) -> (Raw, Welcome) {
    Raw::enter(server, None, role).unwrap()
}

fn refusal(server: &RunningServer, role: Role) -> Goodbye {
    Raw::enter(server, None, role).err().unwrap()
}

fn write(raw: &mut Raw, byte: u8) -> Result<(), FabricError> {
    let mut list = WorkList::new(0);
    list.write(Space::Host, FREE, &[byte; 8]);
    raw.execute(&mut list)
}

fn read(raw: &mut Raw) -> [u8; 8] {
    let mut list = WorkList::new(0);
    let read = list.read(Space::Host, FREE, 8);
    raw.execute(&mut list).unwrap();
    list.bytes(read).try_into().unwrap()
}

fn send_group(raw: &mut Raw, message: &[u8]) {
    let mut frame = Vec::new();
    put_frame(&mut frame, FrameKind::Group, 0, |out| out.extend_from_slice(message)).unwrap();
    raw.send(&frame);
}

#[test]
fn copies_of_one_host_have_their_own_memory_fences_and_sessions() {
    let plane = Plane::new(false);
    let (server, hosts) = two_copies(&plane);
    let (mut one, welcome) = enter(&server, at_copy(ONE));
    let (mut other, at_other) = enter(&server, at_copy(OTHER));
    assert_eq!((welcome.server, welcome.boot, welcome.cluster), (ONE, server.boot(), CLUSTER));
    assert_eq!((welcome.client, welcome.incarnation, welcome.host_bytes), (CLIENT, 2, 64 << 20));
    assert_eq!(welcome.memory, hosts[0].superblock().memory_id);
    assert_eq!((at_other.server, at_other.memory), (OTHER, hosts[1].superblock().memory_id));
    write(&mut one, 1).unwrap();
    write(&mut other, 2).unwrap();
    assert_eq!((read(&mut one), read(&mut other)), ([1; 8], [2; 8]));
    // A second connection belongs to the same session.
    let (mut again, _) = enter(&server, at_copy(ONE));
    let (mut recoverer, _) = enter(&server, at_copy_as(ONE, 8, 1));
    assert_eq!(recoverer.call(calls::Fence { client: CLIENT }), Ok(()));
    assert_eq!((one.goodbye().code, again.goodbye().code), (GoodbyeCode::Fenced, GoodbyeCode::Fenced));
    assert_eq!(refusal(&server, at_copy(ONE)).code, GoodbyeCode::Fenced);
    // The same client goes on at the other copy.
    write(&mut other, 3).unwrap();
    assert_eq!(enter(&server, at_copy(OTHER)).1.client, CLIENT);
    // The fence lasts for this incarnation, and for the others until the client is retired.
    let code = |incarnation| {
        Raw::enter(&server, None, at_copy_as(ONE, CLIENT.0, incarnation)).err().map(|goodbye| goodbye.code)
    };
    assert_eq!((code(2), code(3)), (Some(GoodbyeCode::Fenced), Some(GoodbyeCode::Fenced)));
    assert_eq!(recoverer.call(calls::SpansOf { client: CLIENT, from: 0 }), Ok(Vec::new()));
    assert_eq!(recoverer.call(calls::Retire { client: CLIENT }), Ok(()));
    assert_eq!((code(2), code(3)), (Some(GoodbyeCode::Fenced), None));
    assert_eq!(read(&mut other), [3; 8]);
    assert_eq!((server.stats().fences, server.stats().server), (1, 12));
    assert_eq!(plane.seen(), [], "none of this concerns the control plane");
}

#[test]
fn a_copy_answers_for_its_volume_and_refuses_what_is_for_control() {
    let plane = Plane::new(true);
    let (server, _hosts) = two_copies(&plane);
    for copy in [ONE, OTHER] {
        let (mut raw, _) = enter(&server, at_copy(copy));
        assert!(raw.call(calls::RedoArea).is_ok());
        assert_eq!(raw.call(calls::Usage).unwrap().members, [CLIENT]);
        for request in [
            Request::Join,
            Request::Activate,
            Request::Renew,
            Request::Members,
            Request::Leave,
            Request::Depart,
            Request::Volumes,
            Request::Cluster,
            Request::Suspect { client: CLIENT },
        ] {
            assert_eq!(raw.call(request), Err(FabricError::Refused(Refusal::NotHere)));
        }
        assert!(matches!(raw.call(calls::Stats), Ok(stats) if stats.server == 12));
        // It leaves this copy.
        assert_eq!(raw.call(calls::Release), Ok(()));
        assert_eq!(write(&mut raw, 1), Err(FabricError::Fenced { client: CLIENT }));
        assert_eq!(raw.goodbye().code, GoodbyeCode::Fenced);
        assert_eq!(refusal(&server, at_copy(copy)).code, GoodbyeCode::Fenced);
    }
    assert_eq!(plane.seen(), []);
    // A connection that ends means nothing: the same incarnation connects again.
    for _ in 0..2 {
        let (mut raw, _) = enter(&server, at_copy_as(ONE, 8, 1));
        assert!(raw.call(calls::RedoArea).is_ok());
        drop(raw);
        eventually(|| server.stats().connections == 0);
    }
}

#[test]
fn a_primary_answers_when_the_other_copies_have_the_stores_of_its_cpu() {
    let plane = Plane::new(false);
    let server = start(of_plane(&plane));
    server.install_copy(ONE, host(1, 2));
    let others = Arc::new(Others::default());
    server.handle().set_mirror(ONE, Some(Arc::clone(&others) as _));
    let (mut raw, _) = enter(&server, at_copy(ONE));
    // What changes nothing goes nowhere.
    assert!(raw.call(calls::Usage).is_ok());
    let tag = raw.ask(&Request::RedoArea);
    let (stores, fenced, answer) = others.next();
    assert!(!stores.is_empty() && fenced.is_none());
    std::thread::sleep(Duration::from_millis(20));
    answer(Ok(Response::Done));
    assert!(matches!(raw.answer(), (answered, Ok(Response::RedoArea(_))) if answered == tag));
    // The others also hear of a fence, even if it stores nothing.
    let (mut victim, _) = enter(&server, at_copy_as(ONE, 8, 1));
    for _ in 0..2 {
        let tag = raw.ask(&Request::Fence { client: ComputeId(8) });
        let (_, fenced, answer) = others.next();
        assert_eq!(fenced, Some(ComputeId(8)));
        answer(Ok(Response::Done));
        assert_eq!(raw.answer(), (tag, Ok(Response::Done)));
    }
    assert_eq!(victim.goodbye().code, GoodbyeCode::Fenced);
    // If they never will have the stores, the client hears that, and not the answer.
    let tag = raw.ask(&Request::Retire { client: ComputeId(8) });
    let ended = FabricError::EpochEnded { client: ComputeId::NOBODY };
    others.next().2(Err(ended.clone()));
    assert_eq!(raw.answer(), (tag, Err(ended)));
    let tag = raw.ask(&Request::Release);
    others.next().2(Ok(Response::Done));
    assert_eq!(raw.answer(), (tag, Ok(Response::Done)));
    // Without other copies nothing waits.
    server.handle().set_mirror(ONE, None);
    assert!(enter(&server, at_copy_as(ONE, 9, 1)).0.call(calls::RedoArea).is_ok());
    assert!(others.sent.lock().unwrap().is_empty());
}

#[test]
fn a_copy_makes_the_stores_of_its_primary_once_and_stops_whom_the_primary_fenced() {
    let plane = Plane::new(false);
    let (server, hosts) = two_copies(&plane);
    let (mut raw, _) = enter(&server, other_host());
    let stores = |byte| vec![Store::Bytes { offset: FREE, bytes: vec![byte; 8] }];
    let mut mirror =
        |copy, epoch, number, stores, fenced| raw.call(calls::Mirror { copy, epoch, number, stores, fenced });
    let bytes = |index: usize| {
        let mut bytes = [0; 8];
        Memory::load(hosts[index].memory(), Space::Host, FREE, &mut bytes);
        bytes
    };
    assert_eq!(mirror(OTHER, EPOCH, 1, stores(1), None), Ok(()));
    assert_eq!((bytes(0), bytes(1)), ([0; 8], [1; 8]));
    // A repeated request is answered, and changes nothing.
    assert_eq!(mirror(OTHER, EPOCH, 2, stores(2), None), Ok(()));
    assert_eq!(mirror(OTHER, EPOCH, 1, stores(3), None), Ok(()));
    assert_eq!(bytes(1), [2; 8]);
    let outside = vec![Store::Zeros { offset: u64::MAX, len: 8 }];
    assert!(matches!(mirror(OTHER, EPOCH, 3, outside, None), Err(FabricError::OutOfBounds { .. })));
    let over = FabricError::EpochEnded { client: ComputeId::NOBODY };
    assert_eq!(mirror(OTHER, EPOCH - 1, 9, stores(3), None), Err(over.clone()));
    assert_eq!(mirror(77, EPOCH - 1, 9, stores(3), None), Err(over));
    let unreachable = FabricError::Refused(Refusal::Unreachable { server: 77 });
    assert_eq!(mirror(77, EPOCH, 9, stores(3), None), Err(unreachable));
    assert_eq!(bytes(1), [2; 8]);
    let (mut client, _) = enter(&server, at_copy(OTHER));
    let (mut elsewhere, _) = enter(&server, at_copy(ONE));
    assert_eq!(mirror(OTHER, EPOCH, 3, Vec::new(), Some(CLIENT)), Ok(()));
    assert_eq!(client.goodbye().code, GoodbyeCode::Fenced);
    assert_eq!(refusal(&server, at_copy(OTHER)).code, GoodbyeCode::Fenced);
    write(&mut elsewhere, 5).unwrap();
    // A late repetition does not stop the next holder of the id.
    let (mut next, _) = enter(&server, at_copy_as(OTHER, CLIENT.0, 3));
    assert_eq!(mirror(OTHER, EPOCH, 3, Vec::new(), Some(CLIENT)), Ok(()));
    write(&mut next, 6).unwrap();
}

#[test]
fn a_client_waits_for_its_copy_and_is_refused_when_its_epoch_has_ended() {
    let plane = Plane::new(false);
    let server = start(of_plane(&plane));
    assert_eq!(refusal(&server, at_copy(ONE)).code, GoodbyeCode::NotYet);
    server.install_copy(ONE, host(1, 2));
    let (mut raw, _) = enter(&server, at_copy(ONE));
    assert_eq!(refusal(&server, at_copy(OTHER)).code, GoodbyeCode::NotYet);
    let with = |epoch, cluster, client| Role::Copy { client, incarnation: 2, cluster, copy: ONE, epoch };
    assert_eq!(refusal(&server, with(EPOCH + 1, CLUSTER, CLIENT)).code, GoodbyeCode::NotYet);
    let ended = refusal(&server, with(EPOCH - 1, CLUSTER, CLIENT));
    let error = FabricError::EpochEnded { client: CLIENT };
    assert_eq!(ended, Goodbye { code: GoodbyeCode::Fenced, error: Some(error) });
    for nobody in [ComputeId::NOBODY, ComputeId(u16::MAX)] {
        assert_eq!(refusal(&server, with(EPOCH, CLUSTER, nobody)).code, GoodbyeCode::NotAllowed);
    }
    let nobody = Role::Control { client: ComputeId::NOBODY, incarnation: 2, cluster: CLUSTER };
    assert_eq!(refusal(&server, nobody).code, GoodbyeCode::NotAllowed);
    for cluster in [0, CLUSTER + 1] {
        for role in [
            with(EPOCH, cluster, CLIENT),
            Role::Control { client: CLIENT, incarnation: 2, cluster },
            Role::Host { host: 3, incarnation: 1, cluster },
        ] {
            assert_eq!(refusal(&server, role).code, GoodbyeCode::OtherCluster);
        }
    }
    // A new table is no reason to break a connection: clients are fenced one by one.
    plane.epoch.store(EPOCH + 1, SeqCst);
    write(&mut raw, 1).unwrap();
    assert_eq!(refusal(&server, at_copy(ONE)).code, GoodbyeCode::Fenced);
    assert!(Raw::enter(&server, None, with(EPOCH + 1, CLUSTER, ComputeId(8))).is_ok());
    plane.cluster.store(0, SeqCst);
    for role in [at_copy(ONE), control(), other_host()] {
        assert_eq!(refusal(&server, role).code, GoodbyeCode::NotYet, "the host knows no cluster yet");
    }
    assert_eq!(refused(&server, "not_yet"), 6);
}

#[test]
fn a_copy_that_is_removed_loses_its_clients_and_its_memory() {
    let plane = Plane::new(false);
    let (server, [one, other]) = two_copies(&plane);
    let (mut at_one, _) = enter(&server, at_copy(ONE));
    let (mut at_other, _) = enter(&server, at_copy(OTHER));
    server.install_copy(ONE, Arc::clone(&one));
    write(&mut at_one, 1).unwrap();
    server.remove_copy(77);
    server.remove_copy(ONE);
    assert!(write(&mut at_one, 2).is_err());
    assert_eq!(refusal(&server, at_copy(ONE)).code, GoodbyeCode::NotYet);
    plane.epoch.store(EPOCH + 1, SeqCst);
    assert_eq!(refusal(&server, at_copy(ONE)).code, GoodbyeCode::Fenced);
    let memory = Arc::downgrade(&one);
    drop(one);
    eventually(|| memory.strong_count() == 0);
    write(&mut at_other, 3).unwrap();
    // Another memory under the same number ends the clients of the former one, though they send nothing.
    let next = host(1, 2);
    server.handle().install_copy(OTHER, Arc::clone(&next));
    assert_eq!(at_other.goodbye().code, GoodbyeCode::Fenced);
    let memory = Arc::downgrade(&other);
    drop(other);
    eventually(|| memory.strong_count() == 0);
    plane.epoch.store(EPOCH, SeqCst);
    let (mut raw, welcome) = enter(&server, at_copy(OTHER));
    assert_eq!((welcome.memory, read(&mut raw)), (next.superblock().memory_id, [0; 8]));
    assert_eq!(plane.seen(), []);
}

#[test]
fn the_control_plane_answers_from_any_thread_in_any_order() {
    let plane = Plane::new(false);
    let (server, _hosts) = two_copies(&plane);
    let (mut raw, welcome) = enter(&server, control());
    assert_eq!((welcome.server, welcome.memory, welcome.boot), (12, 0, server.boot()));
    assert_eq!((welcome.client, welcome.incarnation, welcome.cluster), (CLIENT, 2, CLUSTER));
    let requests = [Request::Renew, Request::Members, Request::Usage, Request::Stats, Request::ListTrees];
    let tags: Vec<u64> = requests.iter().map(|request| raw.ask(request)).collect();
    eventually(|| plane.waiting() == requests.len());
    let asker = Asker::Member { client: CLIENT, incarnation: 2 };
    assert_eq!(plane.seen(), requests.clone().map(|request| (asker, request)));
    let answers = [
        Ok(Response::Trees(Vec::new())),
        Err(FabricError::EpochEnded { client: CLIENT }),
        Ok(Response::Done),
        Err(FabricError::Refused(Refusal::NotLeader { leader: "tcp://there:1".into() })),
        Ok(Response::Members(Vec::new())),
    ];
    for (index, expected) in [4, 0, 2, 1, 0].into_iter().zip(answers) {
        let (_, request, answer) = plane.take(index);
        let expected_tag = tags[requests.iter().position(|each| *each == request).unwrap()];
        let sent = expected.clone();
        std::thread::spawn(move || answer(sent)).join().unwrap();
        assert_eq!(raw.answer(), (expected_tag, expected));
    }
    // An error of the plane does not end the connection.
    plane.at_once.store(true, SeqCst);
    assert_eq!(raw.call(Request::Renew), Ok(Response::Done));
    assert_eq!(server.stats().calls, 6);
    plane.at_once.store(false, SeqCst);
    let tag = raw.ask(&Request::Renew);
    eventually(|| plane.waiting() == 1);
    drop(plane.take(0));
    let forgotten = FabricError::Refused(Refusal::NotLeader { leader: String::new() });
    assert_eq!(raw.answer(), (tag, Err(forgotten)));
    // An address that fits no frame is no reason to answer nothing.
    let tag = raw.ask(&Request::Renew);
    eventually(|| plane.waiting() == 1);
    plane.take(0).2(Err(FabricError::Refused(Refusal::NotLeader { leader: "x".repeat(10_000) })));
    assert!(matches!(raw.answer(), (answered, Err(FabricError::TooLarge { .. })) if answered == tag));
}

#[test]
fn an_answer_for_a_connection_that_has_ended_reaches_no_other() {
    let plane = Plane::new(false);
    let server = start(ServerOptions { shards: 1, ..of_plane(&plane) });
    let (mut gone, _) = enter(&server, control());
    gone.ask(&Request::Renew);
    eventually(|| plane.waiting() == 1);
    drop(gone);
    eventually(|| server.stats().connections == 0);
    // This connection gets the same slot, and its calls have the same tags.
    let (mut next, _) = enter(&server, control());
    let tag = next.ask(&Request::Members);
    eventually(|| plane.waiting() == 2);
    plane.take(0).2(Ok(Response::Done));
    std::thread::sleep(Duration::from_millis(20));
    plane.take(0).2(Ok(Response::Members(Vec::new())));
    assert_eq!(next.answer(), (tag, Ok(Response::Members(Vec::new()))));
}

#[test]
fn the_calls_of_one_connection_with_the_plane_are_bounded() {
    const MOST: usize = 64;
    let plane = Plane::new(false);
    let server = start(ServerOptions { shards: 1, ..of_plane(&plane) });
    let (mut raw, _) = enter(&server, control());
    let tags: Vec<u64> = (0..MOST + 10).map(|_| raw.ask(&Request::Renew)).collect();
    eventually(|| plane.waiting() == MOST);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(plane.waiting(), MOST);
    // The other connections of the shard go on.
    plane.at_once.store(true, SeqCst);
    assert_eq!(enter(&server, control()).0.call(Request::Renew), Ok(Response::Done));
    plane.at_once.store(false, SeqCst);
    // Each answer makes room for one more.
    for (index, tag) in tags.iter().enumerate() {
        plane.take(0).2(Ok(Response::Done));
        assert_eq!(raw.answer(), (*tag, Ok(Response::Done)));
        eventually(|| plane.waiting() == MOST.min(tags.len() - index - 1));
    }
    // The server notices that such a client is gone, though the plane is silent.
    (0..MOST + 10).for_each(|_| _ = raw.ask(&Request::Renew));
    eventually(|| plane.waiting() == MOST);
    eventually(|| server.stats().connections == 1);
    drop(raw);
    eventually(|| server.stats().connections == 0);
}

#[test]
fn strangers_may_join_and_operators_may_ask_the_plane_for_everything() {
    let plane = Plane::new(true);
    let (server, hosts) = two_copies(&plane);
    let offer =
        HostOffer { address: "tcp://there:1".into(), memory_bytes: 1, boot: 2, cluster: 0, keeps: false };
    let open = [
        Request::Join,
        Request::Cluster,
        Request::Register { offer },
        Request::Alive { host: 3, incarnation: 1, progress: Vec::new() },
        Request::Copied { copy: 5 },
        Request::Settled { copy: 5, epoch: 3 },
    ];
    let closed = [
        Request::Renew,
        Request::Members,
        Request::Usage,
        Request::Stats,
        Request::Volumes,
        Request::DeclareLost { server: 1 },
        Request::Condemn { client: CLIENT },
    ];
    let (mut newcomer, welcome) = enter(&server, Role::Newcomer);
    assert_eq!((welcome.server, welcome.memory, welcome.client), (12, 0, ComputeId::NOBODY));
    for request in &open {
        assert_eq!(newcomer.call(request.clone()), Ok(Response::Done));
    }
    let nobody = FabricError::Refused(Refusal::NotAMember { client: ComputeId::NOBODY });
    for request in &closed {
        assert_eq!(newcomer.call(request.clone()), Err(nobody.clone()));
    }
    assert_eq!(plane.seen(), open.clone().map(|request| (Asker::Nobody, request)));
    let (mut operator, _) = enter(&server, Role::Admin);
    for request in open.iter().chain(&closed) {
        match request {
            Request::Usage | Request::Stats => {}
            request => assert_eq!(operator.call(request.clone()), Ok(Response::Done)),
        }
    }
    assert!(plane.seen().iter().all(|(asker, _)| *asker == Asker::Operator));
    // The host itself counts the memory of all its copies, and its work.
    for copy in [OTHER, ONE] {
        assert!(enter(&server, at_copy(copy)).0.call(calls::RedoArea).is_ok());
    }
    let each = hosts.each_ref().map(|host| host.census());
    let usage = operator.call(calls::Usage).unwrap();
    assert_eq!((usage.chunks, usage.chunk_bytes), (each[0].chunks + each[1].chunks, 1 << 20));
    assert_eq!((usage.chunks_used, usage.members), (each[0].chunks_used + each[1].chunks_used, vec![CLIENT]));
    let stats = operator.call(calls::Stats).unwrap();
    assert_eq!((stats.server, stats.host_bytes, stats.chunks), (12, 128 << 20, usage.chunks));
    assert_eq!(plane.seen(), []);
}

#[test]
fn messages_of_the_group_arrive_in_order_and_whole() {
    let plane = Plane::new(false);
    let server = start(of_plane(&plane));
    let (mut raw, welcome) = enter(&server, other_host());
    assert_eq!((welcome.server, welcome.client), (12, ComputeId::NOBODY));
    let messages = [vec![1; 3], Vec::new(), vec![2; 3 << 20], vec![3; 70_000], vec![4; 1]];
    for message in &messages {
        send_group(&mut raw, message);
    }
    eventually(|| plane.received.lock().unwrap().len() == messages.len());
    assert!(*plane.received.lock().unwrap() == messages);
    // Other hosts have no business with the control plane.
    let refused =
        FabricError::Refused(Refusal::BadRequest { what: "another host may not send this request" });
    for request in [Request::Cluster, Request::Join, Request::Stats, Request::Usage, Request::Renew] {
        assert_eq!(raw.call(request), Err(refused.clone()));
    }
    for (role, code) in [
        (other_host(), GoodbyeCode::NotAllowed),
        (control(), GoodbyeCode::NotAllowed),
        (Role::Newcomer, GoodbyeCode::NotAllowed),
    ] {
        let (mut raw, _) = enter(&server, role);
        let mut list = WorkList::new(0);
        list.read(Space::Host, 0, 8);
        raw.post(&mut list);
        assert_eq!(raw.goodbye().code, code);
    }
    server.install_copy(ONE, host(1, 2));
    for role in [control(), Role::Admin, Role::Newcomer, at_copy(ONE)] {
        let (mut raw, _) = enter(&server, role);
        send_group(&mut raw, b"not a host");
        assert_eq!(raw.goodbye().code, GoodbyeCode::Malformed);
    }
    for role in [control(), other_host(), at_copy(ONE)] {
        let (mut raw, _) = enter(&server, role);
        raw.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(raw.goodbye().code, GoodbyeCode::Malformed);
    }
    assert_eq!((plane.seen(), plane.received.lock().unwrap().len()), (Vec::new(), messages.len()));
}

#[test]
fn plain_servers_and_hosts_refuse_the_roles_of_each_other() {
    let plane = Plane::new(true);
    let server = start(of_plane(&plane));
    let (client, boot) = (CLIENT, server.boot());
    let as_member = Role::Member { client, incarnation: 2, boot, cluster: CLUSTER, memory: 1 };
    for role in [alone(), as_member] {
        assert_eq!(refusal(&server, role).code, GoodbyeCode::NotAllowed);
    }
    assert!(server.host().is_none());
    let plain = start(options());
    for role in [at_copy(ONE), control(), other_host()] {
        assert_eq!(refusal(&plain, role).code, GoodbyeCode::NotAllowed);
    }
    // Copies are no business of a plain server.
    plain.install_copy(ONE, host(1, 2));
    plain.remove_copy(0);
    assert_eq!(refusal(&plain, at_copy(ONE)).code, GoodbyeCode::NotAllowed);
    let (mut raw, _) = Raw::join(&plain);
    send_group(&mut raw, b"not a host");
    assert_eq!(raw.goodbye().code, GoodbyeCode::Malformed);
    // A client tells the two kinds apart by this request.
    let (mut admin, _) = enter(&plain, Role::Admin);
    let refused = admin.call(calls::Cluster);
    assert!(matches!(refused, Err(FabricError::Refused(Refusal::BadRequest { .. }))), "{refused:?}");
    assert_eq!(enter(&server, Role::Admin).0.call(Request::Cluster), Ok(Response::Done));
    let neither = ServerOptions { host: None, ..options() };
    let both = ServerOptions { plane: Some(Plane::new(true) as _), ..options() };
    for wrong in [neither, both] {
        assert!(matches!(SoftNicServer::start(wrong), Err(ServeError::NotOneThing)));
    }
}

#[test]
fn connections_of_members_and_hosts_may_be_silent_and_an_operator_that_waits_is_not() {
    let idle_time = Duration::from_millis(100);
    let plane = Plane::new(false);
    let limits = Limits { idle_time, ..Limits::default() };
    let server = start(ServerOptions { limits, ..of_plane(&plane) });
    server.install_copy(ONE, host(1, 2));
    let (mut client, _) = enter(&server, control());
    let (mut sender, _) = enter(&server, other_host());
    let (mut at_copy, _) = enter(&server, at_copy(ONE));
    let (mut waits, _) = enter(&server, Role::Admin);
    let (mut silent, _) = enter(&server, Role::Admin);
    let begun = Instant::now();
    let tag = waits.ask(&Request::Members);
    assert_eq!(silent.goodbye().code, GoodbyeCode::Idle);
    assert!(begun.elapsed() < Duration::from_secs(5));
    std::thread::sleep(4 * idle_time);
    plane.take(0).2(Ok(Response::Done));
    assert_eq!(waits.answer(), (tag, Ok(Response::Done)));
    assert_eq!(waits.goodbye().code, GoodbyeCode::Idle);
    plane.at_once.store(true, SeqCst);
    assert_eq!(client.call(Request::Renew), Ok(Response::Done));
    send_group(&mut sender, b"still here");
    eventually(|| plane.received.lock().unwrap().len() == 1);
    write(&mut at_copy, 1).unwrap();
}

#[test]
fn a_host_that_stops_says_goodbye_and_lets_everything_go() {
    let plane = Plane::new(false);
    let (server, hosts) = two_copies(&plane);
    let memory = hosts.each_ref().map(Arc::downgrade);
    drop(hosts);
    let (mut raw, _) = enter(&server, at_copy(ONE));
    let (mut client, _) = enter(&server, control());
    client.ask(&Request::Renew);
    eventually(|| plane.waiting() == 1);
    server.stop();
    for raw in [&mut raw, &mut client] {
        assert!(matches!(raw.receive(), Reply::Frame(FrameKind::Goodbye, ..)));
    }
    server.join().unwrap();
    assert!(memory.iter().all(|memory| memory.strong_count() == 0));
    // A late answer finds nobody.
    plane.take(0).2(Ok(Response::Done));
    assert_eq!(Arc::strong_count(&plane), 1);
}

fn fill(raw: &mut Raw, copy: u16, epoch: u64, offset: u64, bytes: &[u8]) -> Result<Response, FabricError> {
    let mut frame = Vec::new();
    let fill = Fill { copy, epoch, offset, bytes };
    put_frame(&mut frame, FrameKind::Fill, 77, |out| fill.put(out)).unwrap();
    raw.send(&frame);
    let (tag, answer) = raw.answer();
    assert_eq!(tag, 77);
    answer
}

#[test]
fn a_copy_that_is_being_made_takes_bytes_of_the_newest_connection_and_nothing_else() {
    let plane = Plane::new(false);
    let server = start(of_plane(&plane));
    let (made, whole) = (host(1, 2), host(1, 2));
    server.handle().install_filling(ONE, Arc::clone(&made));
    server.install_copy(OTHER, Arc::clone(&whole));
    let refused = |what| Err(FabricError::Refused(Refusal::BadRequest { what }));
    let digest = |copy| Request::Digest { copy, offset: FREE, len: 1 << 20 };
    let (mut first, _) = enter(&server, other_host());
    let bytes = vec![5; MAX_FILL as usize];
    assert_eq!(fill(&mut first, ONE, EPOCH, FREE, &bytes), Ok(Response::Done));
    whole.memory().store(Space::Host, FREE, &bytes);
    let expected = whole.digests(FREE, 1 << 20).unwrap();
    assert_eq!(first.call(digest(ONE)), Ok(Response::Digests(expected)));
    // No member reaches it, and no other copy may be filled.
    assert_eq!(refusal(&server, at_copy(ONE)).code, GoodbyeCode::NotYet);
    assert_eq!(first.call(digest(OTHER)), refused("this copy is not being made"));
    assert_eq!(fill(&mut first, OTHER, EPOCH, FREE, &[1]), refused("this copy is not being made"));
    let unknown = Err(FabricError::Refused(Refusal::Unreachable { server: 1 }));
    assert_eq!(fill(&mut first, 1, EPOCH, FREE, &[1]), unknown);
    // Bytes outside the memory, and those of an older table.
    let outside = fill(&mut first, ONE, EPOCH, (64 << 20) - 64, &[1; 128]);
    assert!(matches!(outside, Err(FabricError::OutOfBounds { .. })));
    assert_eq!(
        fill(&mut first, ONE, EPOCH - 1, FREE, &[1]),
        Err(FabricError::EpochEnded { client: ComputeId::NOBODY })
    );
    // A later connection takes over.
    let (mut second, _) = enter(&server, other_host());
    assert!(second.call(digest(ONE)).is_ok());
    assert_eq!(fill(&mut first, ONE, EPOCH, FREE, &[1]), refused("another connection fills this copy"));
    assert_eq!(first.call(digest(ONE)), refused("another connection fills this copy"));
    assert_eq!(fill(&mut second, ONE, EPOCH, FREE, &[7; 8]), Ok(Response::Done));
    // Stores of the primary's CPU reach it too.
    let stores = vec![Store::Bytes { offset: FREE + 8, bytes: vec![8; 8] }];
    let mirror = Request::Mirror { copy: ONE, epoch: EPOCH, number: 1, stores, fenced: None };
    assert_eq!(first.call(mirror), Ok(Response::Done));

    server.install_copy(ONE, Arc::clone(&made));
    assert_eq!(fill(&mut second, ONE, EPOCH, FREE, &[1]), refused("this copy is not being made"));
    let (mut member, _) = enter(&server, at_copy(ONE));
    assert_eq!(read(&mut member), [7; 8]);
    // A copy that was made never takes bytes again.
    server.handle().install_filling(ONE, made);
    assert_eq!(fill(&mut second, ONE, EPOCH, FREE, &[1]), refused("this copy is not being made"));
}

#[test]
fn only_other_hosts_may_fill_copies() {
    let plane = Plane::new(true);
    let server = start(of_plane(&plane));
    server.handle().install_filling(ONE, host(1, 2));
    for role in [control(), Role::Newcomer, Role::Admin] {
        let (mut raw, _) = enter(&server, role);
        let mut frame = Vec::new();
        let fill = Fill { copy: ONE, epoch: EPOCH, offset: FREE, bytes: &[1] };
        put_frame(&mut frame, FrameKind::Fill, 1, |out| fill.put(out)).unwrap();
        raw.send(&frame);
        assert_eq!(raw.goodbye().code, GoodbyeCode::Malformed);
    }
}
