//! Tests the cache against a model: large and small caches, with and without concurrent readers.

use super::*;
use crate::node::{Format, TreeShape};
use sherman_fabric::control::TreeSpec;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;

const ROOT: u64 = 1;
const TOP: u8 = 3;

struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % below
    }

    /// Returns a key made of few different bytes. Long keys often differ only in their last bytes and share
    /// their first words.
    fn key(&mut self, len: usize) -> Vec<u8> {
        let mut key = vec![7; len];
        let first = if len > 8 && self.roll(2) == 0 { len - 2 } else { 0 };
        for byte in &mut key[first..] {
            *byte = [0, 1, 7, 0x80, 0xff, self.roll(256) as u8][self.roll(6)];
        }
        key
    }
}

fn shape(key_len: usize, bytes: u32) -> Shape {
    let spec = TreeSpec {
        format: Format::LineStamped.number(),
        key_len: key_len as u16,
        value_len: 8,
        leaf_bytes: 4096,
        internal_bytes: bytes,
    };
    TreeShape::new(&spec, 1).expect("a legal shape").internal
}

/// Bytes that suffice for so many copies of full nodes.
fn limit_of(copies: usize, shape: &Shape) -> usize {
    IndexCache::new(0, shape).bytes_for(copies)
}

fn address(id: u64) -> GlobalAddress {
    GlobalAddress::new((id % 3) as u16, id * 1024)
}

fn root() -> RootWord {
    RootWord { address: address(ROOT), level: TOP }
}

/// The expected content of the cache for one node.
#[derive(Clone, Debug)]
struct Copy {
    level: u8,
    version: u16,
    low: Vec<u8>,
    high: Option<Vec<u8>>,
    entries: BTreeMap<Vec<u8>, GlobalAddress>,
}

impl Copy {
    fn covers(&self, key: &[u8]) -> bool {
        self.low.as_slice() <= key && self.high.as_deref().is_none_or(|high| key < high)
    }

    fn child(&self, level: u8, key: &[u8]) -> Option<GlobalAddress> {
        let covers = self.level == level && self.covers(key);
        self.entries.range(..=key.to_vec()).next_back().filter(|_| covers).map(|(_, &child)| child)
    }

    fn body(&self, shape: &Shape) -> SortedBody {
        let mut body = SortedBody::empty(shape);
        for (index, (key, child)) in self.entries.iter().enumerate() {
            body.insert(index, key, &child.to_bits().to_le_bytes());
        }
        body
    }
}

/// A cache without a bound, and every copy it ever held.
#[derive(Default)]
struct Model {
    copies: BTreeMap<GlobalAddress, Copy>,
    ever: BTreeMap<GlobalAddress, Vec<Copy>>,
}

impl Model {
    fn locate(&self, key: &[u8], level: u8) -> Found {
        let RootWord { address: mut at, level: mut on } = root();
        while on > level
            && let Some(child) = self.copies.get(&at).and_then(|copy| copy.child(on, key))
        {
            (at, on) = (child, on - 1);
        }
        Found { address: at, level: on, hit: on == level }
    }

    /// Every node that copies led to for `key` at `level` at any time.
    fn ever_at(&self, key: &[u8], level: u8) -> BTreeSet<GlobalAddress> {
        let mut nodes = BTreeSet::from([address(ROOT)]);
        for on in (level + 1..=TOP).rev() {
            let copies = nodes.iter().filter_map(|at| self.ever.get(at)).flatten();
            nodes = copies.filter_map(|copy| copy.child(on, key)).collect();
        }
        nodes
    }

    fn set(&mut self, address: GlobalAddress, copy: Copy) {
        self.ever.entry(address).or_default().push(copy.clone());
        self.copies.insert(address, copy);
    }

    fn keep(&mut self, address: GlobalAddress, copy: Copy) {
        if self.copies.get(&address).is_none_or(|kept| is_newer(copy.version, kept.version)) {
            self.set(address, copy);
        }
    }

    fn learn(&mut self, level: u8, key: &[u8], child: GlobalAddress, room: usize) {
        let parent = self.locate(key, level + 1);
        if level >= TOP || !parent.hit {
            return;
        }
        let Some(mut copy) = self.copies.get(&parent.address).cloned() else { return };
        if copy.child(level + 1, key).is_none() || copy.entries.contains_key(key) {
            return;
        }
        if copy.entries.len() == room {
            self.copies.remove(&parent.address);
        } else {
            copy.entries.insert(key.to_vec(), child);
            self.set(parent.address, copy);
        }
    }

    fn forget_path(&mut self, key: &[u8], level: u8) {
        let way: Vec<GlobalAddress> = (level + 1..=TOP).map(|on| self.locate(key, on).address).collect();
        for node in way {
            self.copies.remove(&node);
        }
    }
}

/// A random node out of a few at a random level, with random fences and entries.
fn some_node(dice: &mut Dice, shape: &Shape) -> (GlobalAddress, Copy) {
    let level = 1 + dice.roll(TOP as usize) as u8;
    let id = if level == TOP { ROOT } else { u64::from(level) * 100 + dice.roll(8) as u64 };
    let len = shape.key_len();
    let (mut low, mut high) = (vec![0; len], None);
    if dice.roll(3) == 0 {
        low = dice.key(len);
        high = Some(dice.key(len)).filter(|high| *high > low);
    }
    let mut entries = BTreeMap::new();
    for _ in 0..dice.roll(shape.capacity()) {
        let key = dice.key(len);
        if key > low && high.as_ref().is_none_or(|high| key < *high) {
            entries.insert(key, some_child(dice, level - 1));
        }
    }
    entries.insert(low.clone(), some_child(dice, level - 1));
    (address(id), Copy { level, version: 65_530_u16.wrapping_add(dice.roll(12) as u16), low, high, entries })
}

fn some_child(dice: &mut Dice, level: u8) -> GlobalAddress {
    match level {
        0 => address(1000 + dice.roll(1000) as u64),
        level => address(u64::from(level) * 100 + dice.roll(8) as u64),
    }
}

/// Applies one random change to both.
fn change(dice: &mut Dice, cache: &IndexCache, model: &mut Model, shape: &Shape) {
    let key = dice.key(shape.key_len());
    let level = dice.roll(TOP as usize + 1) as u8;
    match dice.roll(40) {
        0..20 => {
            let (address, copy) = some_node(dice, shape);
            cache.keep(address, copy.level, &copy.low, copy.high.as_deref(), copy.version, &copy.body(shape));
            model.keep(address, copy);
        }
        20..37 => {
            let child = some_child(dice, level);
            cache.learn(root(), level, &key, child);
            model.learn(level, &key, child, cache.layout.room);
        }
        37 => {
            let (address, _) = some_node(dice, shape);
            cache.forget(address);
            model.copies.remove(&address);
        }
        38 => {
            cache.forget_path(root(), &key, level);
            model.forget_path(&key, level);
        }
        _ if dice.roll(20) == 0 => {
            cache.clear();
            model.copies.clear();
        }
        _ => {}
    }
}

const SHAPES: [(usize, u32); 6] = [(1, 256), (8, 256), (8, 1024), (8, 8192), (16, 512), (100, 1024)];

#[test]
fn a_cache_that_is_large_enough_answers_exactly_as_the_model_does() {
    for (key_len, bytes) in SHAPES {
        let shape = shape(key_len, bytes);
        let cache = IndexCache::new(1 << 20, &shape);
        let (mut model, mut dice) = (Model::default(), Dice(key_len as u64));
        let (mut hits, mut into) = (0, Vec::new());
        for _ in 0..6_000 {
            change(&mut dice, &cache, &mut model, &shape);
            for level in 0..=TOP {
                let key = dice.key(key_len);
                let found = cache.locate(root(), &key, level);
                assert_eq!(found, model.locate(&key, level), "{key_len} bytes, level {level}");
                hits += usize::from(found.hit && level == 0);
            }
            let (key, backward, most) = (dice.key(key_len), dice.roll(2) == 0, 1 + dice.roll(10));
            let answered = cache.children(root(), &key, backward, most, &mut into);
            assert_eq!(
                (answered, &into),
                (model.locate(&key, 0).hit, &expected(&model, &key, backward, most))
            );
            assert_eq!(cache.nodes(), model.copies.len());
        }
        assert!(hits > 200, "the test must get to the leaves: {hits} times with {key_len} bytes");
    }
}

fn expected(model: &Model, key: &[u8], backward: bool, most: usize) -> Vec<GlobalAddress> {
    let parent = model.locate(key, 1);
    let copy = model.copies.get(&parent.address).filter(|copy| parent.hit && copy.child(1, key).is_some());
    let Some(copy) = copy else { return Vec::new() };
    let before = copy.entries.range(..=key.to_vec()).rev();
    if backward {
        return before.take(most).map(|(_, &child)| child).collect();
    }
    let after = copy.entries.range::<[u8], _>((std::ops::Bound::Excluded(key), std::ops::Bound::Unbounded));
    before.take(1).chain(after).take(most).map(|(_, &child)| child).collect()
}

#[test]
fn a_shrunk_cache_keeps_its_bound_and_answers_what_was_true_once() {
    for (key_len, bytes) in SHAPES {
        for slots in [1, 2, 5] {
            let shape = shape(key_len, bytes);
            let limit = limit_of(slots, &shape);
            let cache = IndexCache::new(limit, &shape);
            let (mut model, mut dice) = (Model::default(), Dice(slots as u64));
            let mut answers = 0;
            for _ in 0..2_000 {
                // The model evicts nothing, so eviction may have undone what `keep` and `learn` do to the
                // cache. Therefore both receive every copy as a new one.
                let (address, mut copy) = some_node(&mut dice, &shape);
                cache.forget(address);
                copy.version = 0;
                cache.keep(address, copy.level, &copy.low, copy.high.as_deref(), 0, &copy.body(&shape));
                let kept = cache.locate(RootWord { address, level: copy.level }, &copy.low, copy.level - 1);
                assert!(kept.hit, "what was just kept is there");
                model.set(address, copy);
                assert!(cache.bytes() <= limit && cache.nodes() >= 1);
                let (key, level) = (dice.key(key_len), dice.roll(TOP as usize) as u8);
                let found = cache.locate(root(), &key, level);
                assert!(model.ever_at(&key, found.level).contains(&found.address));
                answers += usize::from(found.level < TOP);
            }
            assert!(answers > 50, "{answers} answers from {slots} slots");
        }
    }
}

#[test]
fn without_room_for_one_copy_nothing_is_kept() {
    let shape = shape(8, 1024);
    for limit in [0, 1, limit_of(1, &shape) - 1] {
        let cache = IndexCache::new(limit, &shape);
        let (mut model, mut dice) = (Model::default(), Dice(1));
        for _ in 0..500 {
            change(&mut dice, &cache, &mut model, &shape);
            let found = cache.locate(root(), &dice.key(8), 0);
            assert_eq!(found, Found { address: root().address, level: TOP, hit: false });
            assert_eq!((cache.nodes(), cache.bytes(), cache.limit()), (0, 0, limit));
        }
        assert!(cache.locate(root(), &[0; 8], TOP).hit, "the root word itself needs no copy");
    }
}

#[test]
fn an_unused_cache_takes_no_memory_whatever_its_limit() {
    assert_eq!(IndexCache::new(usize::MAX, &shape(8, 1024)).bytes(), 0);
}

#[test]
fn the_upper_levels_outlive_the_lower_ones() {
    let shape = shape(8, 1024);
    let cache = IndexCache::new(limit_of(64, &shape), &shape);
    let keep = |id: u64, level: u8| {
        let mut body = SortedBody::empty(&shape);
        body.insert(0, &[0; 8], &address(id + 1).to_bits().to_le_bytes());
        cache.keep(address(id), level, &[0; 8], None, 1, &body);
    };
    (0..4).for_each(|id| keep(id + 1, 2));
    (0..2_000).for_each(|id| keep(id + 100, 1));
    let upper = (0..4).filter(|id| cache.forget_counts(address(id + 1))).count();
    assert!(upper >= 3, "{upper} of 4 upper copies are left");
}

impl IndexCache {
    /// Forgets a copy. Returns whether the cache held it.
    fn forget_counts(&self, address: GlobalAddress) -> bool {
        let before = self.nodes();
        self.forget(address);
        self.nodes() < before
    }
}

/// Nodes whose separators move with every version. A child's address encodes its node, version and entry.
mod moving {
    use super::*;

    pub(super) const VERSIONS: u64 = 64;
    pub(super) const ENTRIES: u64 = 40;

    pub(super) fn separator(version: u64, index: u64) -> u64 {
        if index == 0 { 0 } else { index * 1000 + version * 7 }
    }

    pub(super) fn copy(node: u64, version: u64) -> Copy {
        let child = |index| GlobalAddress::new(node as u16, (1 + version * ENTRIES + index) * 64);
        let entry = |index| (key(separator(version, index)), child(index));
        Copy { level: 1, version: 0, low: key(0), high: None, entries: (0..ENTRIES).map(entry).collect() }
    }

    pub(super) fn key(number: u64) -> Vec<u8> {
        let mut key = vec![0; 8];
        key.extend(number.to_be_bytes());
        key
    }

    /// Whether `node` had `child` for `number` in the version that `child` encodes.
    pub(super) fn is_true(child: GlobalAddress, node: u64, number: u64) -> bool {
        let Some(told) = (child.offset() / 64).checked_sub(1) else { return false };
        let (version, index) = (told / ENTRIES, told % ENTRIES);
        let next = if index + 1 == ENTRIES { u64::MAX } else { separator(version, index + 1) };
        u64::from(child.server()) == node
            && version < VERSIONS
            && (separator(version, index)..next).contains(&number)
    }
}

#[test]
fn a_reader_meets_only_children_that_some_node_had_for_the_key() {
    for (key_len, from) in [(8, 8), (16, 0)] {
        let shape = shape(key_len, 2048);
        let cache = IndexCache::new(limit_of(4, &shape), &shape);
        let copies: Vec<Vec<(Copy, SortedBody)>> = (1..=6)
            .map(|node| {
                let copies = (0..moving::VERSIONS).map(|version| moving::copy(node, version));
                let body = |copy: &Copy| {
                    let mut body = SortedBody::empty(&shape);
                    for (index, (key, child)) in copy.entries.iter().enumerate() {
                        body.insert(index, &key[from..], &child.to_bits().to_le_bytes());
                    }
                    body
                };
                copies.map(|copy| (copy.clone(), body(&copy))).collect()
            })
            .collect();
        let done = AtomicBool::new(false);
        let hits = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for reader in 0..2 {
                let (cache, done, hits) = (&cache, &done, &hits);
                scope.spawn(move || {
                    let mut dice = Dice(reader);
                    let mut into = Vec::new();
                    while !done.load(Ordering::Relaxed) {
                        let node = 1 + dice.roll(6) as u64;
                        let number = dice.roll(45_000) as u64;
                        let start = RootWord { address: address(node), level: 1 };
                        let found = cache.locate(start, &moving::key(number)[from..], 0);
                        if found.hit {
                            hits.fetch_add(1, Ordering::Relaxed);
                            assert!(
                                moving::is_true(found.address, node, number),
                                "{found:?} for {number} of {node}"
                            );
                        } else {
                            assert_eq!(found.address, start.address);
                        }
                        if cache.children(start, &moving::key(number)[from..], false, 3, &mut into) {
                            assert!(moving::is_true(into[0], node, number));
                            let consecutive =
                                |pair: &[GlobalAddress]| pair[0].offset() + 64 == pair[1].offset();
                            assert!(into.windows(2).all(consecutive), "children of one moment: {into:?}");
                        }
                    }
                });
            }
            let mut dice = Dice(99);
            for round in 0..60_000_u64 {
                let node = dice.roll(6);
                let (copy, body) = &copies[node][dice.roll(moving::VERSIONS as usize)];
                let address = address(node as u64 + 1);
                if dice.roll(8) == 0 {
                    cache.forget(address);
                }
                cache.keep(address, 1, &copy.low[from..], None, (round / 8) as u16, body);
            }
            done.store(true, Ordering::Relaxed);
        });
        assert!(hits.load(Ordering::Relaxed) > 1000);
    }
}

/// Caches copies of all nodes above `leaves` leaves with random keys, and counts the children of all copies.
fn fill_tree(
    cache: &IndexCache,
    shape: &Shape,
    leaves: usize,
    mut place: impl FnMut() -> GlobalAddress,
) -> usize {
    let mut dice = Dice(5);
    let mut keys = BTreeSet::from([0]);
    while keys.len() < leaves {
        keys.insert((dice.roll(1 << 31) as u64) << 32);
    }
    let mut below: Vec<(u64, GlobalAddress)> = keys.into_iter().map(|key| (key, place())).collect();
    let (mut level, mut children) = (0, 0);
    while below.len() > 1 {
        level += 1;
        children += below.len();
        let nodes: Vec<&[(u64, GlobalAddress)]> = below.chunks(48).collect();
        let mut above = Vec::new();
        for (number, node) in nodes.iter().enumerate() {
            let mut body = SortedBody::empty(shape);
            for (index, (key, child)) in node.iter().enumerate() {
                body.insert(index, &key.to_be_bytes(), &child.to_bits().to_le_bytes());
            }
            let high = nodes.get(number + 1).map(|next| next[0].0.to_be_bytes());
            let address = place();
            let low = node[0].0.to_be_bytes();
            cache.keep(address, level, &low, high.as_ref().map(|high| &high[..]), 1, &body);
            above.push((node[0].0, address));
        }
        below = above;
    }
    children
}

#[test]
fn a_child_takes_14_bytes_after_a_bulk_load_and_18_if_children_lie_anywhere() {
    let shape = shape(8, 1024);
    let mut last = 1 << 20;
    let side_by_side = || {
        last += 1024;
        GlobalAddress::new(1, last)
    };
    let mut dice = Dice(9);
    let anywhere = || GlobalAddress::new(dice.roll(8) as u16, (1 + dice.roll(1 << 27) as u64) * 1024);
    let bytes_per_child = |place: &mut dyn FnMut() -> GlobalAddress| {
        let cache = IndexCache::new(64 << 20, &shape);
        let children = fill_tree(&cache, &shape, 40_000, place);
        let nodes = cache.nodes();
        assert!(nodes > 40_000 / 48, "nothing was evicted");
        cache.bytes() as f64 / children as f64
    };
    let (near, far) = (bytes_per_child(&mut { side_by_side }), bytes_per_child(&mut { anywhere }));
    assert!(near <= 14.0 && far <= 18.0, "{near} and {far} bytes");
}

#[test]
fn the_cache_counts_the_bytes_that_it_takes() {
    let shape = shape(8, 1024);
    let cache = IndexCache::new(64 << 20, &shape);
    let mut last = 0;
    let place = || {
        last += 1024;
        GlobalAddress::new(0, last)
    };
    // 100 nodes of 48 children, side by side, and three above them, the last of four children.
    fill_tree(&cache, &shape, 4_800, place);
    let copies = cache.bytes_for_copies(102, 48, 1)
        + cache.bytes_for_copies(1, 4, 1)
        + cache.bytes_for_copies(1, 3, 1);
    let tables = table::bytes_for(102) + 2 * table::bytes_for(1);
    assert_eq!(cache.nodes(), 104);
    assert_eq!(cache.bytes(), copies - tables + table::bytes_for(104));
    let all: usize = cache.writer().counted_again(cache.store().expect("in use"));
    assert_eq!(cache.bytes(), all + table::bytes_for(104));
}

#[test]
fn runs_of_all_lengths_replace_each_other_within_the_bound() {
    let shape = shape(8, 1024);
    let limit = limit_of(12, &shape);
    let cache = IndexCache::new(limit, &shape);
    let mut dice = Dice(3);
    let mut used = 0;
    for round in 0..6_000_u64 {
        // Long runs of small copies, then of large ones, then of both.
        let most = [4, 60, 2 + dice.roll(58)][round as usize / 500 % 3].min(shape.capacity());
        let wide = dice.roll(4) == 0;
        let mut body = SortedBody::empty(&shape);
        for index in 0..most {
            let child = if wide { dice.roll(1 << 30) as u64 * 64 } else { 64 * (1 + index as u64) };
            let child = GlobalAddress::new(if wide { dice.roll(9) as u16 } else { 1 }, child);
            body.insert(index, &(index as u64).to_be_bytes(), &child.to_bits().to_le_bytes());
        }
        let address = address(1 + dice.roll(40) as u64);
        cache.keep(address, 1, &[0; 8], None, round as u16, &body);
        let key = dice.roll(most) as u64;
        let found = cache.locate(RootWord { address, level: 1 }, &key.to_be_bytes(), 0);
        let child = child_address(&body, key as usize);
        assert_eq!(found, Found { address: child, level: 0, hit: true }, "round {round}");
        if dice.roll(10) == 0 {
            cache.forget(super::tests::address(1 + dice.roll(40) as u64));
        }
        cache.writer().check(cache.store().expect("in use"));
        used = used.max(cache.nodes());
        assert!(cache.bytes() <= limit);
    }
    assert!(used > 20, "small copies leave room for more: {used}");
}

impl Writer {
    /// Checks that tiles cover the used lines, and that each copy has its own.
    fn check(&self, store: &Store) {
        let (mut at, mut free, mut copies, mut hand) = (0, 0, 0, false);
        let counts = self.counts();
        while at < counts.lines {
            hand |= at == counts.hand;
            at += match store.tile(at) {
                store::Tile::Free(lines) => {
                    free += lines;
                    lines
                }
                store::Tile::Taken(slot) => {
                    let slot = store.slot(slot).expect("a slot");
                    assert!(slot.word(ADDRESS) != 0 && slot.run().first == at);
                    copies += 1;
                    slot.run().lines
                }
            };
        }
        assert!(hand || counts.hand == counts.lines);
        assert_eq!((at, free, copies), (counts.lines, counts.free, self.nodes));
    }

    /// Bytes of the heads and lines in use.
    fn counted_again(&self, store: &Store) -> usize {
        self.check(store);
        let counts = self.counts();
        counts.heads as usize * 128 + counts.lines as usize * LINE_BYTES
    }
}
