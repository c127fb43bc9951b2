//! Copies are made between two memories, over the sockets of a server.

use super::ranges::{BLOCK, differing, pieces, ranges};
use super::worker::Failure;
use super::*;
use crate::memory::make;
use sherman_control::plane::{Answer, Asker as PlaneAsker, ControlPlane, Mirror};
use sherman_control::wire::frame::MAX_FILL;
use sherman_embedded::host::{Asker, Session};
use sherman_fabric::control::ChunkClass;
use sherman_fabric::{ComputeId, FabricError, Memory, Request, Response, Space};
use sherman_layout::{FormatOptions, LockOptions};
use sherman_memory_server::cluster::ClusterSettings;
use sherman_soft_nic::server::{Listen, RunningServer, ServerOptions, SoftNicServer};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Instant;

const CLUSTER: u64 = 7;
const OWN: Identity = Identity { cluster: CLUSTER, host: 1, incarnation: 2 };
const COPY: u16 = 5;
const EPOCH: u64 = 3;
const CLASS: ChunkClass = ChunkClass { node_bytes: 256, format: 1 };
const PATIENCE: Duration = Duration::from_secs(5);

/// The other host, which also leads.
#[derive(Debug, Default)]
struct Other {
    epoch: AtomicU64,
    reports: Mutex<Vec<Request>>,
}

impl ControlPlane for Other {
    fn ask(&self, _asker: PlaneAsker, request: Request, answer: Answer) {
        self.reports.lock().unwrap().push(request);
        answer(Ok(Response::Done));
    }

    fn receive(&self, _message: &[u8]) {}

    fn epoch(&self) -> u64 {
        self.epoch.load(SeqCst)
    }

    fn cluster(&self) -> u64 {
        CLUSTER
    }

    fn host(&self) -> u16 {
        2
    }
}

fn settings(space: Space) -> ClusterSettings {
    let format = FormatOptions {
        chunk_bytes: 128 << 10,
        member_capacity: 64,
        catalog_capacity: 8,
        redo_area_bytes: 64 << 10,
        redo_slot_bytes: 4 << 10,
        locks: LockOptions { lanes: Some(1024), space, ..LockOptions::default() },
        ..FormatOptions::default()
    };
    ClusterSettings {
        replicas: 2,
        volumes: 1,
        hosts: 2,
        volume_bytes: 24 << 20,
        on_chip_bytes: 8 << 10,
        format,
    }
}

struct World {
    plane: Arc<Other>,
    server: Option<RunningServer>,
    path: PathBuf,
    primary: Arc<Host>,
    copy: Arc<Host>,
    session: Session,
}

impl Drop for World {
    fn drop(&mut self) {
        drop(self.server.take());
        let _ = std::fs::remove_file(&self.path);
    }
}

impl World {
    fn new(space: Space) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("sherman-copier-{}-{}.sock", std::process::id(), NEXT.fetch_add(1, SeqCst));
        let path = std::env::temp_dir().join(name);
        let plane = Arc::new(Other { epoch: AtomicU64::new(EPOCH), ..Other::default() });
        let listen = vec![Listen::Unix(path.clone())];
        let options = ServerOptions {
            shards: 1,
            ..ServerOptions::with_plane(Arc::clone(&plane) as Arc<dyn ControlPlane>, listen)
        };
        let server = SoftNicServer::start(options).unwrap();
        let [primary, copy] = [(); 2].map(|()| Arc::new(make(&settings(space), CLUSTER, 0).unwrap()));
        primary.promote().unwrap();
        server.handle().install_filling(COPY, Arc::clone(&copy));
        let session = Session::new(ComputeId(9), 1).unwrap();
        Self { plane, server: Some(server), path, primary, copy, session }
    }

    fn address(&self) -> Address {
        Address::Unix(self.path.clone())
    }

    fn plan(&self) -> Plan {
        let directory = Arc::new(Directory::default());
        directory.set_leader(Some(self.address().to_string()), false);
        Plan {
            own: OWN,
            secret: None,
            patience: PATIENCE,
            directory,
            workshop: Arc::default(),
            volume: 0,
            copy: COPY,
            address: self.address(),
            primary: Arc::clone(&self.primary),
        }
    }

    fn worker(&self, task: Task) -> Worker {
        let state = State { task, stamp: 0, turn: 0, end: None };
        Worker::new(self.plan(), Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() }))
    }

    /// Lets the primary's CPU answer, and sends its stores to `link`.
    fn ask(&self, request: &Request, link: Option<&MirrorLink>) -> Response {
        let asker = Asker::Member(&self.session);
        let answer = self.primary.handle_recorded(asker, request, |_, response, stores| {
            if let Some(link) = link {
                link.send(stores, None, Box::new(|answer| assert!(answer.is_ok())));
            }
            response
        });
        answer.unwrap()
    }

    /// Allocates a span, and fills it. Returns where it is.
    fn write_span(&self, byte: u8, link: Option<&MirrorLink>) -> u64 {
        let Response::Spans(spans) = self.ask(&Request::AllocSpans { class: CLASS, count: 1 }, link) else {
            panic!("no spans")
        };
        let bytes = vec![byte; spans[0].bytes as usize];
        self.primary.memory().store(Space::Host, spans[0].offset, &bytes);
        spans[0].offset
    }

    fn differing_bytes(&self) -> Vec<u64> {
        let [ours, theirs] = [&self.primary, &self.copy].map(|host| bytes(host));
        (0..)
            .zip(ours.iter().zip(&theirs))
            .filter(|(_, (one, other))| one != other)
            .map(|(at, _)| at)
            .collect()
    }

    fn reports(&self) -> Vec<Request> {
        std::mem::take(&mut *self.plane.reports.lock().unwrap())
    }
}

fn bytes(host: &Host) -> Vec<u8> {
    let mut bytes = vec![0; host.memory().size(Space::Host) as usize];
    host.memory().load(Space::Host, 0, &mut bytes);
    bytes
}

fn task(phase: Phase, link: Option<&Arc<MirrorLink>>) -> Task {
    Task { epoch: EPOCH, phase, quiet: link.is_some(), link: link.cloned() }
}

fn eventually(mut holds: impl FnMut() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < give_up, "waited too long");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn everything_is_copied_but_redo_areas_and_lanes_and_only_once() {
    for space in [Space::OnChip, Space::Host] {
        let world = World::new(space);
        let geometry = world.primary.superblock().geometry;
        let spans: Vec<u64> = (1..=200).map(|byte| world.write_span(byte, None)).collect();
        let Response::RedoArea(area) = world.ask(&Request::RedoArea, None) else { panic!("no area") };
        world.primary.memory().store(Space::Host, area.offset, &[9; 64]);
        world.primary.memory().store_u64(Space::Host, geometry.root_word(2), 77);
        let (in_space, word, ..) = geometry.lane_word(17);
        assert_eq!(in_space, space);
        world.primary.memory().store_u64(space, word, 5);

        let mut worker = world.worker(task(Phase::Planned, None));
        let ranges = ranges(&world.primary);
        let total: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        worker.sync(&ranges, None).unwrap();
        assert_eq!(world.copy.memory().load_u64(Space::Host, spans[199]), u64::from_le_bytes([200; 8]));
        assert_eq!(world.copy.memory().load_u64(Space::Host, geometry.root_word(2)), 77);
        let lanes = geometry.lock.offset..geometry.lock.offset + geometry.lock.table_bytes();
        let is_lane = |at: &u64| space == Space::Host && lanes.contains(at);
        let redo = area.offset..area.offset + area.bytes;
        let other: Vec<u64> =
            world.differing_bytes().into_iter().filter(|at| !redo.contains(at) && !is_lane(at)).collect();
        assert!(other.is_empty(), "{other:?}");
        assert_eq!(world.copy.memory().load_u64(space, word), 0);
        assert_eq!(world.copy.memory().load_u64(Space::Host, area.offset), 0);
        let first = worker.sent;
        assert!(worker.compared == total && first > 200 * 256 && first <= total, "{first} {total}");
        // Nothing differs any more.
        worker.sync(&ranges, None).unwrap();
        assert_eq!((worker.compared, worker.sent), (2 * total, first));
        // One byte costs one block.
        world.primary.memory().store(Space::Host, spans[100] + 3, &[1]);
        worker.sync(&ranges, None).unwrap();
        assert_eq!(
            (worker.sent - first, world.copy.memory().load_u64(Space::Host, spans[100])),
            (BLOCK, { world.primary.memory().load_u64(Space::Host, spans[100]) })
        );
    }
}

#[test]
fn a_copy_is_made_in_two_steps_and_the_stores_of_the_cpu_are_in_it() {
    let world = World::new(Space::OnChip);
    (1..=50).for_each(|byte| _ = world.write_span(byte, None));
    let copier = Copier::start(world.plan(), task(Phase::Planned, None)).unwrap();
    eventually(|| world.reports().contains(&Request::Copied { copy: COPY }));
    // Clients go on until the volume is closed.
    (51..=90).for_each(|byte| _ = world.write_span(byte, None));
    copier.set(task(Phase::Copied, None));
    std::thread::sleep(Duration::from_millis(100));
    world.reports();
    let link = Arc::new(MirrorLink::start(OWN, None, PATIENCE).unwrap());
    link.retarget(EPOCH, vec![(COPY, world.address())]);
    copier.set(task(Phase::Copied, Some(&link)));
    // The CPU goes on at any time.
    let mut fences = (10..60).map(|id| Request::Fence { client: ComputeId(id) });
    let mut reported = Vec::new();
    eventually(|| {
        if let Some(fence) = fences.next() {
            world.ask(&fence, Some(&link));
        }
        reported.extend(world.reports());
        reported.contains(&Request::Settled { copy: COPY, epoch: EPOCH })
    });
    fences.for_each(|fence| _ = world.ask(&fence, Some(&link)));
    eventually(|| world.differing_bytes().is_empty());
    assert!(!reported.contains(&Request::Copied { copy: COPY }));
    // A report that does not count is followed by another comparison.
    world.primary.memory().store(Space::Host, world.write_span(1, Some(&link)), &[7; 64]);
    eventually(|| world.reports().contains(&Request::Settled { copy: COPY, epoch: EPOCH }));
    assert!(world.differing_bytes().is_empty());
    // The copy can take the primary's place.
    copier.finish();
    world.server.as_ref().unwrap().install_copy(COPY, Arc::clone(&world.copy));
    world.copy.promote().unwrap();
    let used = |host: &Host| host.census().chunks_used;
    assert!(used(&world.copy) == used(&world.primary) && used(&world.copy) > 0);
    assert!(world.copy.is_fenced(ComputeId(59)));
}

#[test]
fn tables_that_were_overwritten_with_older_bytes_are_right_after_the_last_comparison() {
    let world = World::new(Space::OnChip);
    world.write_span(1, None);
    let link = Arc::new(MirrorLink::start(OWN, None, PATIENCE).unwrap());
    link.retarget(EPOCH, vec![(COPY, world.address())]);
    let mut worker = world.worker(task(Phase::Copied, Some(&link)));
    let everything = ranges(&world.primary);
    worker.sync(&everything, None).unwrap();
    // The CPU's store is mirrored, and then a block arrives that was loaded before the store.
    let entry = world.primary.superblock().geometry.client_entry(ComputeId(9));
    let mut before = [0; 64];
    world.primary.memory().load(Space::Host, entry / 64 * 64, &mut before);
    world.ask(&Request::Fence { client: ComputeId(9) }, Some(&link));
    eventually(|| world.differing_bytes().is_empty());
    world.copy.fill(entry / 64 * 64, &before).unwrap();
    assert!(!world.differing_bytes().is_empty());
    worker.sync_tables(&link, 0).unwrap();
    assert!(world.differing_bytes().is_empty());
}

#[test]
fn a_copy_is_not_settled_before_it_has_the_stores_of_the_cpu() {
    let world = World::new(Space::OnChip);
    world.write_span(1, None);
    let link = Arc::new(MirrorLink::start(OWN, None, Duration::from_millis(50)).unwrap());
    link.retarget(EPOCH, vec![(COPY, Address::Unix("/nowhere/at/all".into()))]);
    let copier = Copier::start(world.plan(), task(Phase::Copied, Some(&link))).unwrap();
    world.ask(&Request::Fence { client: ComputeId(9) }, Some(&link));
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(world.reports(), []);
    link.retarget(EPOCH, vec![(COPY, world.address())]);
    eventually(|| !world.reports().is_empty());
    assert!(world.differing_bytes().is_empty());
    drop(copier);
}

#[test]
fn what_was_compared_before_the_state_changed_is_not_reported() {
    let world = World::new(Space::OnChip);
    world.write_span(1, None);
    let link = Arc::new(MirrorLink::start(OWN, None, PATIENCE).unwrap());
    link.retarget(EPOCH, vec![(COPY, world.address())]);
    let quiet = task(Phase::Copied, Some(&link));
    let mut worker = world.worker(quiet.clone());
    worker.shared.lock().stamp = 1;
    assert!(matches!(worker.copy_quiet(&quiet, 0), Err(Failure::Moved)));
    assert_eq!(world.reports(), []);
    worker.copy_quiet(&quiet, 1).unwrap();
    assert_eq!(world.reports(), [Request::Settled { copy: COPY, epoch: EPOCH }]);
}

#[test]
fn a_copy_under_a_newer_table_takes_no_bytes_and_the_thread_ends_when_nobody_wants_the_copy() {
    let world = World::new(Space::OnChip);
    world.write_span(1, None);
    world.plane.epoch.store(EPOCH + 1, SeqCst);
    let mut worker = world.worker(task(Phase::Planned, None));
    let refused = worker.copy_open();
    assert!(matches!(refused, Err(Failure::Refused(FabricError::EpochEnded { .. }))), "{refused:?}");
    let shared = {
        let copier = Copier::start(world.plan(), task(Phase::Planned, None)).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        Arc::clone(&copier.shared)
    };
    eventually(|| Arc::strong_count(&shared) == 1);
    assert_eq!(world.reports(), []);
}

#[test]
fn differing_blocks_are_sent_in_runs_of_a_bounded_length() {
    let most = u64::from(MAX_FILL) / BLOCK;
    let blocks = most + 4;
    let part = 64..64 + blocks * BLOCK - 100;
    let ours: Vec<u64> = (0..blocks).collect();
    assert!(differing(&part, &ours, &ours).is_empty());
    let all = differing(&part, &ours, &vec![u64::MAX; blocks as usize]);
    assert_eq!(all, [64..64 + most * BLOCK, 64 + most * BLOCK..part.end]);
    let mut theirs = ours.clone();
    (theirs[1], theirs[3]) = (99, 99);
    assert_eq!(differing(&part, &ours, &theirs), [1, 3].map(|at| 64 + at * BLOCK..64 + (at + 1) * BLOCK));
    assert_eq!(pieces(5..12, 3).collect::<Vec<_>>(), [5..8, 8..11, 11..12]);
}
