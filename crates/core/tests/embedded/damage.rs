//! Damages memory on purpose. `check` and `audit` name all broken invariants at once, each with its node and
//! keys.

use crate::{LANES, cluster_with, key, tree, value, worker};
use sherman_core::node::Header;
use sherman_core::redo::{Record, RecordKind};
use sherman_core::{Audit, Check, ComputeOptions, Error, Part, TreeState, Worker};
use sherman_embedded::{EmbeddedCluster, EmbeddedEndpoint, EmbeddedFabric};
use sherman_executor::block_on;
use sherman_fabric::{Clock, ComputeId, Counters, Endpoint, GlobalAddress, Memory, Peer, Space, call, calls};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// An id that no client has.
const NOBODYS: u16 = 77;
const LEASE_NANOS: u64 = 60_000_000_000;
const AT_FLAGS: u64 = 3;
const AT_OWNER: u64 = 4;
const AT_SIBLING: u64 = 16;
const FREE: u8 = 1;
const PENDING: u8 = 2;

/// A tree of some forty leaves.
struct Scene {
    cluster: Arc<EmbeddedCluster>,
    fabric: EmbeddedFabric,
    worker: Worker<EmbeddedEndpoint>,
    tree: Arc<TreeState>,
}

impl Scene {
    fn new() -> Self {
        let cluster = cluster_with(LEASE_NANOS);
        let fabric = cluster.join().expect("a compute server");
        let options = ComputeOptions { timeout: Duration::from_secs(2), ..ComputeOptions::default() };
        let worker = worker(&fabric, options, |plain| plain);
        let tree = tree(&worker);
        for number in 0..100 {
            let op = worker.op();
            block_on(worker.endpoint(), op.insert(&tree, &key(number), &value(1), &mut Vec::new()))
                .expect("room");
        }
        Self { cluster, fabric, worker, tree }
    }

    /// Returns the address and header of every leaf, from left to right.
    fn leaves(&self) -> Vec<(GlobalAddress, Header)> {
        let walk = block_on(self.worker.endpoint(), self.worker.op().walk(&self.tree)).expect("a sound tree");
        let leaves = walk.places.len() - walk.nodes[0];
        walk.places[leaves..].iter().map(|&address| (address, self.header(address))).collect()
    }

    fn header(&self, address: GlobalAddress) -> Header {
        let memory = self.cluster.memory(0).expect("server 0");
        let line: Vec<u8> = (0..8)
            .flat_map(|word| memory.load_u64(Space::Host, address.offset() + 8 * word).to_le_bytes())
            .collect();
        Header::decode(&line).expect("a node")
    }

    /// Changes bytes of memory.
    fn write(&self, offset: u64, bytes: &[u8]) {
        let endpoint = self.worker.endpoint();
        let mut list = endpoint.list(0);
        list.write(Space::Host, offset, bytes);
        block_on(endpoint, sherman_fabric::execute(endpoint, list, &Counters::default())).expect("a write");
    }

    fn check(&self) -> Result<Check, Error> {
        let began = self.worker.endpoint().now();
        let check = block_on(self.worker.endpoint(), self.worker.check(&self.tree));
        let took = self.worker.endpoint().now() - began;
        assert!(took < 1_500_000_000 || check.is_err(), "a verdict is not a time-out: {took} ns");
        check
    }

    fn audit(&self) -> Audit {
        block_on(self.worker.endpoint(), self.worker.audit()).expect("an audit")
    }
}

/// Returns the numbers of the broken invariants.
fn numbers(check: &Check) -> BTreeSet<&str> {
    check
        .broken
        .iter()
        .filter_map(|broken| broken.invariant.split_once(':'))
        .map(|(number, _)| number)
        .collect()
}

#[test]
fn a_sound_cluster_has_a_clean_check_and_audit() {
    let scene = Scene::new();
    let check = scene.check().expect("a check");
    assert!(check.is_clean() && check.entries == 100 && check.undecided == 0, "{check:?}");
    let audit = scene.audit();
    assert!(audit.is_clean(), "{:?}", audit.findings);
    assert_eq!(audit.places.linked, check.nodes());
    assert_eq!((audit.trees.len(), audit.live.len(), audit.unrecovered.len()), (1, 1, 0));
    assert!(audit.places.unused > 0, "the rest of a chunk is this client's");
}

#[test]
fn a_pending_node_whose_maker_is_nobody_is_named_with_its_keys() {
    let scene = Scene::new();
    let leaves = scene.leaves();
    let (address, _) = leaves[5];
    scene.write(address.offset() + AT_FLAGS, &[PENDING]);
    scene.write(address.offset() + AT_OWNER, &NOBODYS.to_le_bytes());
    let check = scene.check().expect("a verdict");
    let broken = check.broken.iter().find(|broken| broken.address == address).expect("the node is named");
    assert_eq!((broken.level, &broken.invariant[..3]), (0, "I13"), "{broken:?}");
    assert!(
        broken.from.as_deref().is_some_and(|from| from > &key(0)[..] && from < &key(100)[..]),
        "{broken:?}"
    );
    assert!(broken.detail.contains("client 77"), "{broken:?}");
    // The check covers everything behind the node all the same.
    assert_eq!((check.broken_count, check.levels[0].nodes), (1, leaves.len() as u64 - 1), "{check:?}");
    let audit = scene.audit();
    assert_eq!(audit.findings.len(), 1, "{:?}", audit.findings);
    let finding = &audit.findings[0];
    assert_eq!((finding.part, finding.at, finding.client.0), (Part::Place, address.offset(), NOBODYS));
    assert!(finding.invariant.starts_with("I39"), "{finding:?}");
}

#[test]
fn a_pending_node_of_a_living_member_is_waited_for_and_is_no_damage() {
    let scene = Scene::new();
    let other = scene.cluster.join().expect("another compute server");
    let (address, _) = scene.leaves()[5];
    scene.write(address.offset() + AT_FLAGS, &[PENDING]);
    scene.write(address.offset() + AT_OWNER, &other.client().0.to_le_bytes());
    assert!(matches!(scene.check(), Err(Error::Timeout { .. })), "{:?}", scene.check());
    // Once the maker has linked the node, the check is clean.
    let end = std::thread::scope(|scope| {
        let fabric = &scene.fabric;
        scope.spawn(move || {
            let endpoint = fabric.endpoint();
            let then = endpoint.now() + 300_000_000;
            block_on(&endpoint, sherman_fabric::sleep_until(&endpoint, then));
            let mut list = endpoint.list(0);
            list.write(Space::Host, address.offset() + AT_FLAGS, &[0]);
            block_on(&endpoint, sherman_fabric::execute(&endpoint, list, &Counters::default()))
                .expect("a write");
        });
        scene.check()
    });
    assert!(end.is_ok_and(|check| check.is_clean()));
}

#[test]
fn every_broken_pointer_is_reported_not_only_the_first() {
    let scene = Scene::new();
    let leaves = scene.leaves();
    // A free node, a node of another level, a sibling that points backwards, a sibling outside memory, and a
    // null sibling.
    scene.write(leaves[3].0.offset() + AT_FLAGS, &[FREE]);
    scene.write(leaves[8].0.offset() + 2, &[9]);
    scene.write(leaves[12].0.offset() + AT_SIBLING, &leaves[2].0.to_bits().to_le_bytes());
    scene.write(leaves[17].0.offset() + AT_SIBLING, &GlobalAddress::new(0, 1 << 40).to_bits().to_le_bytes());
    scene.write(leaves[21].0.offset() + AT_SIBLING, &0_u64.to_le_bytes());
    let check = scene.check().expect("a verdict");
    let named: BTreeSet<GlobalAddress> = check.broken.iter().map(|broken| broken.address).collect();
    for at in [3, 8] {
        assert!(named.contains(&leaves[at].0), "leaf {at}: {check:?}");
    }
    assert!(check.broken_count >= 5, "{check:?}");
    assert!(
        ["I1", "I4", "I9"].iter().all(|number| numbers(&check).contains(number)),
        "{:?}",
        numbers(&check)
    );
    assert!(numbers(&check).iter().any(|number| ["I7", "I10"].contains(number)), "{:?}", numbers(&check));
    // The rest of the level is still counted: only the two bad leaves are missing.
    assert_eq!(check.levels[0].nodes, leaves.len() as u64 - 2, "{check:?}");
}

#[test]
fn a_torn_node_whose_lane_nobody_holds_is_named() {
    let scene = Scene::new();
    let (address, _) = scene.leaves()[7];
    // The stamp of the second line.
    scene.write(address.offset() + 64 + 62, &0x7777_u16.to_le_bytes());
    let check = scene.check().expect("a verdict");
    assert_eq!((check.broken_count, check.broken[0].address), (1, address), "{check:?}");
    assert!(check.broken[0].invariant.starts_with("I3"), "{check:?}");
}

#[test]
fn lanes_records_and_fences_of_ids_that_nobody_has_are_found() {
    let scene = Scene::new();
    let endpoint = scene.worker.endpoint();
    let memory = scene.cluster.memory(0).expect("server 0");
    // Two lanes, both in the first word: a member holds one, an id that no client has holds the other.
    const { assert!(LANES >= 4) };
    let held = u64::from(NOBODYS) << 16 | u64::from(endpoint.client().0);
    memory.store_u64(Space::OnChip, 0, held);
    // A record in the redo area of another client.
    let other = scene.cluster.join().expect("another");
    let geometry = *scene.worker.compute().geometry();
    let area = block_on(
        &other.endpoint(),
        call(&other.endpoint(), Peer::Volume(0), calls::RedoArea, &Counters::default()),
    )
    .expect("an area")
    .offset;
    let address = GlobalAddress::new(0, geometry.chunk_offset(0));
    let record = Record {
        owner: ComputeId(NOBODYS),
        kind: RecordKind::Image,
        tree: 1,
        spec: scene.tree.info().spec,
        node: address,
        made: GlobalAddress::NULL,
        version: 1,
        made_version: 0,
        level: 0,
        root: (0, 0),
        pieces: Vec::new(),
    };
    scene.write(area, &record.encode());
    // A fence that no client lifted.
    memory.store_u64(Space::Host, geometry.client_entry(ComputeId(9)), 1 << 63);
    let audit = scene.audit();
    let found: BTreeSet<(&str, u16)> =
        audit.findings.iter().map(|finding| (finding.part.name(), finding.client.0)).collect();
    assert_eq!(
        found,
        BTreeSet::from([("lane", NOBODYS), ("redo slot", NOBODYS), ("client word", 9)]),
        "{:?}",
        audit.findings
    );
    assert_eq!((audit.lanes_held, audit.finding_count), (1, 3), "{:?}", audit.findings);
    assert!(audit.findings.iter().any(|finding| finding.at == 1 && finding.invariant.starts_with("I38")));
}

#[test]
fn a_linked_node_and_a_pending_one_that_nobody_accounts_for_are_found() {
    let scene = Scene::new();
    // Remove until some nodes are free.
    for number in 10..90 {
        let op = scene.worker.op();
        block_on(scene.worker.endpoint(), op.remove(&scene.tree, &key(number), &mut Vec::new()))
            .expect("a remove");
    }
    let free = scene.worker.compute().free_places();
    let memory = scene.cluster.memory(0).expect("server 0");
    let is_free = |address: &&GlobalAddress| {
        let word = memory.load_u64(Space::Host, address.offset());
        word & 0xf0 == 0xa0 && word >> 24 & 1 == 1
    };
    let marked: Vec<GlobalAddress> = free.iter().filter(is_free).copied().collect();
    assert!(marked.len() >= 2, "{}", marked.len());
    assert!(scene.audit().is_clean());
    // One becomes a node of the tree that nothing leads to. The other becomes pending, with a maker that is
    // no member.
    scene.write(marked[0].offset() + AT_FLAGS, &[0]);
    scene.write(marked[1].offset() + AT_FLAGS, &[2]);
    scene.write(marked[1].offset() + AT_OWNER, &NOBODYS.to_le_bytes());
    let audit = scene.audit();
    let found: BTreeSet<(u64, &str)> =
        audit.findings.iter().map(|finding| (finding.at, &finding.invariant[..3])).collect();
    let expected = BTreeSet::from([(marked[0].offset(), "I33"), (marked[1].offset(), "I39")]);
    assert_eq!(found, expected, "{:?}", audit.findings);
}

#[test]
fn spans_of_nobody_that_hide_free_places_and_spans_of_ids_that_nobody_has_are_found() {
    let scene = Scene::new();
    let memory = scene.cluster.memory(0).expect("server 0");
    let geometry = *scene.worker.compute().geometry();
    let free = scene.worker.compute().free_places()[0];
    let class = scene.tree.shape().leaf.class();
    let (index, number) = geometry.span_at(free.offset(), class.node_bytes).expect("a span");
    let (entry, hint) = (geometry.span_entry(index, number), geometry.span_hint(index, number));
    let found = |word: u64, hinted: u64| {
        memory.store_u64(Space::Host, entry, word);
        memory.store_u64(Space::Host, hint, hinted);
        let audit = scene.audit();
        audit
            .findings
            .iter()
            .map(|finding| (finding.part.name(), &finding.invariant[..3]))
            .collect::<Vec<_>>()
    };
    const ISSUED: u64 = 1 << 16;
    assert_eq!(found(ISSUED, 0), [("span", "I45")]);
    assert_eq!(found(ISSUED, 1), []);
    assert_eq!(found(ISSUED | u64::from(NOBODYS), 0), [("span", "I36")]);
}

#[test]
fn what_a_dead_member_left_is_no_damage_until_its_id_is_retired() {
    let scene = Scene::new();
    let other = scene.cluster.join().expect("another");
    let dead = other.client();
    // A client that takes a lane is active.
    block_on(
        &other.endpoint(),
        call(&other.endpoint(), Peer::Control, calls::Activate, &Counters::default()),
    )
    .expect("active");
    let memory = scene.cluster.memory(0).expect("server 0");
    memory.store_u64(Space::OnChip, 0, u64::from(dead.0));
    let endpoint = scene.worker.endpoint();
    block_on(endpoint, call(endpoint, Peer::Control, calls::Condemn { client: dead }, &Counters::default()))
        .expect("condemned");
    let audit = scene.audit();
    assert!(audit.is_clean() && audit.unrecovered == [dead], "{audit:?}");
    block_on(endpoint, scene.worker.recover(dead)).expect("recovered");
    assert_eq!(memory.load_u64(Space::OnChip, 0), 0);
    assert!(scene.audit().is_clean());
}

#[test]
fn an_audit_tolerates_clients_at_work() {
    let scene = Scene::new();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2_u8 {
            let (fabric, compute, tree, done) = (&scene.fabric, scene.worker.compute(), &scene.tree, &done);
            scope.spawn(move || {
                let worker = Worker::new(fabric.endpoint(), Arc::clone(compute));
                let mut random = u32::from(thread) + 1;
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    let key = key((random >> 24) as u8);
                    let op = worker.op();
                    let changed = match random >> 20 & 1 {
                        0 => block_on(worker.endpoint(), op.remove(tree, &key, &mut Vec::new())),
                        _ => block_on(worker.endpoint(), op.insert(tree, &key, &value(3), &mut Vec::new())),
                    };
                    changed.expect("a change");
                }
            });
        }
        for _ in 0..10 {
            let audit = scene.audit();
            assert!(audit.is_clean(), "{:?} {:?}", audit.findings, audit.trees);
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}
