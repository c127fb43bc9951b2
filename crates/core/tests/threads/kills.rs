//! Compute servers that die, in real time. Eight compute servers write to two trees on embedded memory. Every
//! half second the test halts one of them in the middle of an operation and replaces it. The others continue
//! after a pause of at most one second. No acknowledged change is lost. In the end the trees are sound, every
//! lane is free and every place for a node is accounted for.
//!
//! This runs for six seconds, and for three seconds without any deaths; `SHERMAN_STRESS_SECONDS=60` makes it
//! a minute. `--nocapture` prints the measurements.
#![expect(
    clippy::disallowed_methods,
    reason = "real time, and threads that never end, are what this is about"
)]

use crate::support::runs_in_full;
use sherman_core::survey::{Surveyed, account, survey};
use sherman_core::{ComputeOptions, ComputeServer, Error, TreeState, Worker};
use sherman_embedded::{EmbeddedCluster, EmbeddedEndpoint, EmbeddedFabric, EmbeddedOptions};
use sherman_executor::block_on;
use sherman_fabric::control::{Standing, TreeSpec};
use sherman_fabric::{Clock, Memory, Space};
use sherman_layout::{FormatOptions, LockOptions};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const SERVERS: u16 = 2;
const COMPUTES: usize = 8;
/// Writers of each compute server. Each of them dies in the middle of a different operation.
const THREADS: usize = 3;
const SLOTS: usize = COMPUTES * THREADS;
const KEYS_EACH: usize = 2_000;
const LANES: u32 = 1 << 12;
/// In two trees an entry fits into a line, so that most changes are one unit. One of them has hashed leaves,
/// so that threads combine changes. In the third no entry fits into a line, so that every change has a
/// record.
const SPECS: [(&str, TreeSpec); 3] = [
    ("hashed", TreeSpec { format: 5, key_len: 8, value_len: 8, leaf_bytes: 512, internal_bytes: 256 }),
    ("short", TreeSpec { format: 1, key_len: 8, value_len: 8, leaf_bytes: 256, internal_bytes: 256 }),
    ("long", TreeSpec { format: 1, key_len: 8, value_len: 80, leaf_bytes: 576, internal_bytes: 256 }),
];
type Trees = [Arc<TreeState>; SPECS.len()];

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long a test runs, in seconds, unless `SHERMAN_STRESS_SECONDS` is set.
fn seconds(unless_known: u64) -> u64 {
    let unless_known = if runs_in_full() { unless_known } else { unless_known / 2 };
    std::env::var("SHERMAN_STRESS_SECONDS")
        .map_or(unless_known, |text| text.parse().expect("a number of seconds"))
}

/// The values that a writer's keys may hold. The ledger survives the writer's death. It holds the known value
/// of a key. If the writer died or was fenced during a change, it holds all possible values.
#[derive(Default)]
struct Ledger {
    /// The generation of the present writer of this slot. Notes of earlier writers come too late.
    generation: u64,
    known: Vec<Vec<Option<u64>>>,
    next_value: u64,
    operations: u64,
    longest: Duration,
    false_fencings: u64,
}

/// One compute server: its connection to the cluster, and its keeper.
struct Server {
    fabric: EmbeddedFabric,
    compute: Arc<ComputeServer>,
    stop: AtomicBool,
}

/// The slot of one writer.
struct WriterSlot {
    number: usize,
    ledger: Mutex<Ledger>,
}

struct Arena {
    cluster: Arc<EmbeddedCluster>,
    /// The writers' slots. Each compute server has `THREADS` of them in a row.
    slots: Vec<WriterSlot>,
    /// The compute servers that write at present.
    computes: Vec<Mutex<Arc<Server>>>,
    stop: AtomicBool,
    keepers: Keepers,
}

fn worker(fabric: &EmbeddedFabric, compute: &Arc<ComputeServer>) -> Worker<EmbeddedEndpoint> {
    Worker::new(fabric.endpoint(), Arc::clone(compute))
}

/// Opens all trees.
fn open(worker: &Worker<EmbeddedEndpoint>) -> Result<Trees, Error> {
    let [hashed, short, long] =
        SPECS.map(|(name, spec)| block_on(worker.endpoint(), worker.tree(name, &spec)));
    Ok([hashed?, short?, long?])
}

/// Returns a value that repeats `number`, so that a torn value is detected.
fn value(number: u64, len: usize) -> Vec<u8> {
    number.to_be_bytes().repeat(len / 8)
}

/// Returns the number that a value repeats.
fn number(value: &[u8]) -> u64 {
    let words = value.as_chunks::<8>().0;
    assert!(words.iter().all(|word| *word == words[0]), "torn: {value:?}");
    u64::from_be_bytes(words[0])
}

/// Pseudo-random numbers that are the same on every run (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) % limit as u64) as usize
    }
}

type Keepers = Mutex<Vec<(Arc<Server>, JoinHandle<()>)>>;

/// Starts a new compute server with its keeper.
fn join(cluster: &Arc<EmbeddedCluster>, keepers: &Keepers) -> Arc<Server> {
    let fabric = cluster.join().expect("room for one more");
    let endpoint = fabric.endpoint();
    let compute = block_on(&endpoint, ComputeServer::open(&endpoint, ComputeOptions::default()));
    let compute = compute.expect("a compute server");
    let server = Arc::new(Server { fabric, compute, stop: AtomicBool::new(false) });
    let kept = Arc::clone(&server);
    let keeper = thread::spawn(move || {
        let stopped = || kept.stop.load(Ordering::Relaxed);
        // Both threads end on request, or with their compute server.
        thread::scope(|scope| {
            scope.spawn(|| {
                let worker = Worker::new(kept.fabric.endpoint(), Arc::clone(&kept.compute));
                let _ = block_on(worker.endpoint(), worker.recover_others(stopped));
            });
            let worker = Worker::new(endpoint, Arc::clone(&kept.compute));
            let _ = block_on(worker.endpoint(), worker.keep(stopped));
        });
    });
    lock(keepers).push((Arc::clone(&server), keeper));
    server
}

impl Arena {
    fn new(lease: Duration) -> Arc<Self> {
        let locks = LockOptions { lanes: Some(LANES), ..LockOptions::default() };
        let lease_nanos = lease.as_nanos() as u64;
        let format = FormatOptions {
            chunk_bytes: 64 << 10,
            redo_slot_bytes: 1024,
            redo_area_bytes: 8 << 10,
            lease_nanos,
            locks,
            ..FormatOptions::default()
        };
        let options = EmbeddedOptions {
            servers: SERVERS,
            memory_bytes: 256 << 20,
            format,
            ..EmbeddedOptions::default()
        };
        let cluster = EmbeddedCluster::new(options).expect("a cluster");
        let slots = (0..SLOTS).map(|number| WriterSlot {
            number,
            ledger: Mutex::new(Ledger { known: vec![vec![None]; KEYS_EACH], ..Ledger::default() }),
        });
        let keepers = Mutex::default();
        let computes = (0..COMPUTES).map(|_| Mutex::new(join(&cluster, &keepers))).collect();
        Arc::new(Self { slots: slots.collect(), computes, cluster, stop: AtomicBool::new(false), keepers })
    }

    /// Starts the writers of a compute server.
    fn start(self: &Arc<Self>, compute: usize) -> Vec<JoinHandle<()>> {
        let threads = compute * THREADS..(compute + 1) * THREADS;
        let start = |slot: usize| {
            let generation = lock(&self.slots[slot].ledger).generation;
            let arena = Arc::clone(self);
            thread::spawn(move || arena.slots[slot].write(&arena, generation))
        };
        threads.map(start).collect()
    }

    /// Halts a compute server, and puts another in its place.
    fn replace(self: &Arc<Self>, compute: usize, seed: u64) -> Vec<JoinHandle<()>> {
        let mut server = lock(&self.computes[compute]);
        server.fabric.halt(seed);
        // Later notes of the halted writers do not count: a change that has just happened is among the
        // possible values already.
        for slot in &self.slots[compute * THREADS..(compute + 1) * THREADS] {
            lock(&slot.ledger).generation += 1;
        }
        *server = join(&self.cluster, &self.keepers);
        drop(server);
        self.start(compute)
    }

    /// Returns the compute server that took the place of `fenced`, which was declared dead although it is
    /// alive.
    fn rejoin(&self, compute: usize, fenced: &Arc<Server>) -> Arc<Server> {
        let mut server = lock(&self.computes[compute]);
        if Arc::ptr_eq(&server, fenced) {
            *server = join(&self.cluster, &self.keepers);
        }
        Arc::clone(&server)
    }

    fn lanes_are_free(&self) -> bool {
        (0..SERVERS).all(|server| {
            let memory = self.cluster.memory(server).expect("it has so many");
            (0..u64::from(LANES) * 2 / 8).all(|word| memory.load_u64(Space::OnChip, 8 * word) == 0)
        })
    }

    /// Returns all places for nodes.
    fn places(&self, compute: &ComputeServer) -> Vec<Surveyed> {
        let places = (0..SERVERS).flat_map(|server| {
            let memory = self.cluster.memory(server).expect("it has so many");
            survey(memory, compute.geometry_of(server), server)
        });
        places.collect()
    }
}

/// The outcome of a change, as its writer sees it.
enum Noted {
    Yes,
    /// The cluster declared the writer dead.
    Fenced,
    /// Another writer uses this slot now, or it is time to stop.
    Over,
}

impl WriterSlot {
    fn key(&self, index: usize) -> [u8; 8] {
        // The keys of all writers are interleaved, so that all writers share all leaves.
        ((index * SLOTS + self.number) as u64).to_be_bytes()
    }

    /// Inserts half of its keys, so that the trees have some size and then grow no more than they shrink.
    fn fill(&self, worker: &Worker<EmbeddedEndpoint>, trees: &Trees) {
        let mut ledger = lock(&self.ledger);
        for index in (0..KEYS_EACH).filter(|index| index / 2 % 2 == 0) {
            let at = index % SPECS.len();
            let value = value(0, SPECS[at].1.value_len as usize);
            let (op, key, mut old) = (worker.op(), self.key(index), Vec::new());
            let insert = op.insert(&trees[at], &key, &value, &mut old);
            assert_eq!(block_on(worker.endpoint(), insert), Ok(false));
            ledger.known[index] = vec![Some(0)];
        }
    }

    /// Writes until it is time to stop, whatever happens to its compute server.
    fn write(&self, arena: &Arena, generation: u64) {
        let mut numbers = Numbers(generation << 8 | self.number as u64);
        let compute = self.number / THREADS;
        let mut server = Arc::clone(&lock(&arena.computes[compute]));
        loop {
            let worker = worker(&server.fabric, &server.compute);
            let trees = match open(&worker) {
                Ok(trees) => Some(trees),
                Err(Error::Fenced { .. }) => None,
                Err(other) => panic!("{other}"),
            };
            let mut noted = Noted::Fenced;
            if let Some(trees) = trees {
                noted = Noted::Yes;
                while matches!(noted, Noted::Yes) && !arena.stop.load(Ordering::Relaxed) {
                    noted = self.change(&worker, &trees, generation, &mut numbers);
                }
            }
            if !matches!(noted, Noted::Fenced) || arena.stop.load(Ordering::Relaxed) {
                return;
            }
            // The writer is alive and continues under another identity, unless it has been replaced
            // meanwhile.
            drop(worker);
            let mut ledger = lock(&self.ledger);
            if ledger.generation != generation {
                return;
            }
            ledger.false_fencings += 1;
            drop(ledger);
            server = arena.rejoin(compute, &server);
        }
    }

    /// Performs one operation on one of its keys.
    fn change(
        &self,
        worker: &Worker<EmbeddedEndpoint>,
        trees: &Trees,
        generation: u64,
        numbers: &mut Numbers,
    ) -> Noted {
        let (index, what) = (numbers.below(KEYS_EACH), numbers.below(10));
        let at = index % SPECS.len();
        let (key, tree, mut found) = (self.key(index), &trees[at], Vec::new());
        let wanted = {
            let mut ledger = lock(&self.ledger);
            if ledger.generation != generation {
                return Noted::Over;
            }
            ledger.next_value += 1;
            let wanted = (what < 6).then_some(ledger.next_value);
            if what < 9 {
                ledger.known[index].push(wanted);
            }
            wanted
        };
        let began = Instant::now();
        let op = worker.op();
        let outcome = block_on(worker.endpoint(), async {
            match wanted {
                _ if what == 9 => crate::get(&op, tree, &key, &mut found).await,
                Some(number) => {
                    let value = value(number, SPECS[at].1.value_len as usize);
                    crate::insert(&op, tree, &key, &value, &mut found).await
                }
                None => op.remove(tree, &key, &mut found).await,
            }
        });
        let took = began.elapsed();
        let mut ledger = lock(&self.ledger);
        if ledger.generation != generation {
            return Noted::Over;
        }
        let known = &mut ledger.known[index];
        match outcome {
            Ok(there) => {
                let value = there.then(|| number(&found));
                let before = if what == 9 { &known[..] } else { &known[..known.len() - 1] };
                assert!(
                    before.contains(&value),
                    "slot {} key {index}: {value:?} is none of {before:?}",
                    self.number
                );
                if what < 9 {
                    *known = vec![wanted];
                }
                ledger.operations += 1;
                ledger.longest = ledger.longest.max(took);
                Noted::Yes
            }
            Err(Error::Fenced { .. }) => {
                if what < 9 {
                    known.pop();
                }
                Noted::Fenced
            }
            // The change may or may not have happened: both values stay possible.
            Err(Error::OutcomeUnknown { .. }) => Noted::Fenced,
            Err(other) => panic!("slot {}: {other}", self.number),
        }
    }
}

/// The result of a run.
#[derive(Debug)]
struct Outcome {
    kills: u64,
    operations: u64,
    longest: Duration,
    recoveries: u64,
    false_fencings: u64,
}

impl Outcome {
    fn tell(&self, what: &str) {
        let Self { kills, operations, longest, recoveries, false_fencings } = self;
        println!("{what}: {operations} operations, the longest {longest:?}");
        println!("  {kills} killed, {recoveries} recovered, {false_fencings} fenced though alive");
    }
}

/// Writes for `length`, with a kill every `kill_every`, and then checks the result.
fn run(lease: Duration, length: Duration, kill_every: Option<Duration>) -> Outcome {
    // The tests of this file measure time.
    let _alone = crate::ALONE.write().unwrap_or_else(PoisonError::into_inner);
    let arena = Arena::new(lease);
    // Created before the kills: a death during creation, or a wait for it, is not the subject of this test.
    let first = join(&arena.cluster, &arena.keepers);
    let creator = worker(&first.fabric, &first.compute);
    let trees = open(&creator).expect("room for both");
    arena.slots.iter().for_each(|slot| slot.fill(&creator, &trees));
    let mut writers: Vec<Vec<JoinHandle<()>>> = (0..COMPUTES).map(|compute| arena.start(compute)).collect();
    let (began, mut kills) = (Instant::now(), 0);
    let mut numbers = Numbers(length.as_nanos() as u64);
    while began.elapsed() < length {
        thread::sleep(kill_every.unwrap_or(Duration::from_millis(100)));
        if kill_every.is_some() {
            let compute = numbers.below(COMPUTES);
            // The replaced threads never wake again, or end.
            writers[compute] = arena.replace(compute, kills);
            kills += 1;
        }
    }
    arena.stop.store(true, Ordering::Relaxed);
    for writer in writers.into_iter().flatten() {
        writer.join().expect("no writer found anything wrong");
    }
    settle(&arena, &creator);
    verify(&arena, &creator, &trees);
    let keepers = lock(&arena.keepers);
    let ledgers = || arena.slots.iter().map(|slot| lock(&slot.ledger));
    Outcome {
        kills,
        operations: ledgers().map(|ledger| ledger.operations).sum(),
        longest: ledgers().map(|ledger| ledger.longest).max().unwrap_or_default(),
        recoveries: keepers.iter().map(|(server, _)| server.compute.participation().recoveries).sum(),
        false_fencings: ledgers().map(|ledger| ledger.false_fencings).sum(),
    }
}

/// Waits until all dead members have been recovered, then stops the keepers.
fn settle(arena: &Arc<Arena>, worker: &Worker<EmbeddedEndpoint>) {
    let began = worker.endpoint().now();
    loop {
        let members = block_on(worker.endpoint(), worker.members()).expect("server 0 answers");
        let live = members
            .iter()
            .filter(|member| member.standing == Standing::Live && member.lease_left > 0)
            .count();
        if live == members.len() && live == COMPUTES + 1 {
            break;
        }
        assert!(worker.endpoint().now() - began < 10_000_000_000, "a member stays dead: {members:?}");
        thread::sleep(Duration::from_millis(20));
    }
    for (server, _) in lock(&arena.keepers).iter() {
        server.stop.store(true, Ordering::Relaxed);
    }
}

/// Asserts that the trees are sound and hold possible values, no lane is held, and every place is part of a
/// tree or free.
fn verify(arena: &Arena, worker: &Worker<EmbeddedEndpoint>, trees: &Trees) {
    let (mut entries, mut nodes) = (BTreeMap::new(), Vec::new());
    for tree in trees {
        let check = block_on(worker.endpoint(), worker.check(tree)).expect("a check");
        assert!(check.is_clean(), "{:?}", check.broken);
        let walk = block_on(worker.endpoint(), async { worker.op().walk(tree).await }).expect("a walk");
        entries.extend(walk.entries);
        nodes.extend(walk.places);
    }
    let mut held = 0;
    for slot in &arena.slots {
        for (index, known) in lock(&slot.ledger).known.iter().enumerate() {
            let value = entries.get(&slot.key(index)[..]).map(|value| number(value));
            assert!(
                known.contains(&value),
                "slot {} key {index}: {value:?} is none of {known:?}",
                slot.number
            );
            held += usize::from(value.is_some());
        }
    }
    assert_eq!(held, entries.len(), "the tree holds only written entries");
    assert!(arena.lanes_are_free());
    let mut believed_free = BTreeMap::from([(worker.compute().client(), worker.compute().free_places())]);
    for server in &arena.computes {
        let server = lock(server);
        assert!(server.compute.redo_slots().all_free());
        believed_free.insert(server.compute.client(), server.compute.free_places());
    }
    account(&arena.places(worker.compute()), nodes, &believed_free).unwrap_or_else(|what| panic!("{what}"));
}

#[test]
fn survivors_go_on_when_others_stop_dead() {
    let lease = Duration::from_millis(200);
    let outcome = run(lease, Duration::from_secs(seconds(6)), Some(Duration::from_millis(500)));
    outcome.tell("a compute server stopped dead every 500 ms, lease 200 ms");
    assert!(outcome.kills >= seconds(6) && outcome.recoveries >= outcome.kills, "{outcome:?}");
    assert!(outcome.longest <= Duration::from_secs(1), "{outcome:?}");
}

#[test]
fn no_live_client_is_fenced() {
    let outcome = run(Duration::from_secs(3), Duration::from_secs(seconds(3)), None);
    outcome.tell("nobody stopped, the default lease");
    assert_eq!((outcome.false_fencings, outcome.recoveries), (0, 0), "{outcome:?}");
    assert!(outcome.operations > 1_000, "{outcome:?}");
}
