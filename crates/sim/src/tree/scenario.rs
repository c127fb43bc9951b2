//! The scenario of a schedule.

use super::mix::Mix;
use super::trouble::Trouble;
use crate::knobs::Knobs;
use crate::rng::Rng;
use crate::sim::{Inline, Limits, SimConfig};
use sherman_core::{Format, Techniques};
use sherman_fabric::control::TreeSpec;
use sherman_layout::{FormatOptions, LaneWidth, LockOptions, ReleaseMode};

/// The shapes of trees that scenarios use. They are as small as possible, so that few keys make deep trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// 8-byte keys and values in nodes of 256 bytes: nine entries per `LineStamped` leaf. Hashed leaves are
    /// larger. They are dense or wide: each ten keys lie near each other, and far from all others.
    Pairs,
    /// Four entries per leaf, six or seven children per internal node, fences inside the header line.
    Four,
    /// 40-byte keys: the fences take lines of their own, so every split is logged. Four or five entries per
    /// node.
    WideKeys,
    /// Entries longer than a line.
    LongEntries,
}

impl Shape {
    /// All shapes.
    pub const ALL: [Self; 4] = [Self::Pairs, Self::Four, Self::WideKeys, Self::LongEntries];

    /// Returns the spec of a tree of this shape.
    ///
    /// Hashed leaves need short keys, and hold at least six entries. In leaves of `WideKeys` a key can be in
    /// four of six lines, in those of `LongEntries` in four of five, in all others in every line. Leaves of
    /// `Pairs` and `LongEntries` can be dense.
    pub fn spec(self, format: Format) -> TreeSpec {
        let lined = format == Format::LineStamped;
        let (key_len, value_len, leaf_bytes, internal_bytes) = match self {
            Self::Four if format == Format::LineHashed => (13, 8, 256, 256),
            Self::WideKeys if format == Format::LineHashed => (13, 8, 448, 256),
            Self::LongEntries if format == Format::LineHashed => (8, 8, 384, 256),
            Self::Pairs if format == Format::LineHashed => (8, 8, 320, 256),
            Self::Pairs => (8, 8, 256, 256),
            Self::Four if lined => (19, 12, 320, 256),
            Self::Four => (19, 24, 256, 256),
            Self::WideKeys if matches!(format, Format::LineStamped | Format::SortedStamped) => {
                (40, 8, 448, 448)
            }
            Self::WideKeys => (40, 8, 320, 320),
            Self::LongEntries if lined => (8, 60, 576, 256),
            Self::LongEntries => (8, 60, 384, 256),
        };
        TreeSpec { format: format.number(), key_len, value_len, leaf_bytes, internal_bytes }
    }
}

/// So many keys are near enough to each other for a dense leaf, in trees whose leaves can be dense. The next
/// ones are 2^48 farther: cut to six bytes, their distances from a fence would be those of the former.
pub(super) const NEAR: u64 = 10;

/// Ids of a cluster with replication: every loss of a host ends every identity, and each thread joins again
/// as a compute server of its own.
const MEMBERS_OF_REPLICAS: u32 = 31;
/// How many copies of each volume can be made again in a schedule.
const SPARES: u16 = 4;
/// Virtual nanoseconds per event that the drawn leases assume.
pub(super) const STEP_NANOS_OF_CRASHES: u64 = 100;

/// Bytes of slots in trees whose values have any length.
const SLOT: usize = 16;
/// The lengths of such values: in the slot, in blocks of three sizes, and in a block that is not read under
/// the lane (`core`: more than 4 KiB do not fit a chunk here, so all are).
const LENGTHS: [usize; 7] = [8, 60, 300, 15, 100, 16, 600];

/// Bytes of an index cache with room for all internal nodes of a schedule.
const ROOMY_CACHE: usize = 64 << 10;
/// Bytes of an index cache with room for two or three nodes, so that copies replace each other all the time.
pub(super) const SMALL_CACHE: usize = 800;

/// The age of the index caches when a schedule begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caches {
    /// Empty.
    Cold,
    /// Complete and current.
    Warm,
    /// Warmed before other clients changed the tree. The caches do not know the splits and merges since then,
    /// nor the reuse of places.
    Stale,
}

/// A world with a loaded tree, and the operations on it.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The tree's shape.
    pub shape: Shape,
    /// Its format.
    pub format: Format,
    /// The compute servers' techniques.
    pub techniques: Techniques,
    /// Number of memory servers. With replication: of volumes.
    pub servers: u16,
    /// Copies of each volume. With 2, hosts are lost and backups take their place.
    pub replicas: u16,
    /// Number of hosts, if there is more than one copy.
    pub hosts: u16,
    /// Hosts join, lost copies are made again, and more hosts are lost. Needs `replicas`.
    pub remade: bool,
    /// The hosts form a real control group, and the group loses them by itself. Needs `remade`.
    pub group: bool,
    /// What goes wrong with the hosts of the group.
    pub trouble: Trouble,
    /// Hosts join and leave, and copies move. Needs `remade`.
    pub moved: bool,
    /// Number of compute servers.
    pub computes: u32,
    /// Threads of each compute server.
    pub threads: u32,
    /// Operations of each thread.
    pub operations: u32,
    /// Number of keys loaded before, spread over a range of twice as many.
    pub loaded: u64,
    /// Keys are loaded in descending order, which leaves nodes half full and ready to merge. Ascending order
    /// leaves them full.
    pub sparse: bool,
    /// One in this many loaded keys is removed again before other clients start. 0 means none.
    pub thinned: u32,
    /// Leaves were split, but their separators could not be posted. The index does not know their right
    /// halves.
    pub unposted: bool,
    /// Number of keys that the threads use: a few neighbours in the middle of the loaded keys.
    pub hot: u64,
    /// The operations of a thread in the first half.
    pub first: Mix,
    /// The operations of a thread in the second half.
    pub then: Mix,
    /// Every other thread swaps its two halves, so that some threads split the nodes that others merge.
    pub opposed: bool,
    /// Width of the lock lanes.
    pub lane_width: LaneWidth,
    /// How lock lanes are released.
    pub release: ReleaseMode,
    /// The age of the caches.
    pub caches: Caches,
    /// Opens trees whose readers cannot detect torn READs.
    pub allow_torn_reads: bool,
    /// Compute servers die, sleep and lose connections, keep leases and recover each other. Needs
    /// `techniques.redo`.
    pub crashes: bool,
    /// The length of a lease, in virtual nanoseconds.
    pub lease_nanos: u64,
    /// Clients also create, drop, clear and load other trees, which share lanes and catalog entries. Needs
    /// `crashes`.
    pub catalog: bool,
    /// Members sometimes end the leases of others, as an operator does. Needs `crashes`.
    pub condemned: bool,
    /// The largest number of places in a span. It is small, so that compute servers own several spans and
    /// give them back.
    pub span_places: u32,
    /// In other trees the clients mostly load, and then drop them. Needs `catalog`.
    pub loading: bool,
    /// Whether memory may be too small for the operations.
    pub short: bool,
    /// The most gets that a thread has in flight at once, mostly of one key: 1, or at least 4. Some of them
    /// are dropped before they end.
    pub gets_at_once: u32,
    /// Bytes of a compute server's index cache.
    pub cache_bytes: usize,
    /// The compute servers whose lists execute inside `post`. They begin gets and inserts without futures.
    pub inline: Inline,
    /// Values have any length, and long ones lie in blocks.
    pub values: bool,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            shape: Shape::Pairs,
            format: Format::LineStamped,
            techniques: Techniques::OURS,
            servers: 1,
            replicas: 1,
            hosts: 1,
            remade: false,
            group: false,
            trouble: Trouble::Losses,
            moved: false,
            computes: 2,
            threads: 2,
            operations: 4,
            loaded: 12,
            sparse: false,
            thinned: 0,
            unposted: false,
            hot: 8,
            first: Mix::EVEN,
            then: Mix::EVEN,
            opposed: false,
            lane_width: LaneWidth::Bits16,
            release: ReleaseMode::Write,
            caches: Caches::Warm,
            allow_torn_reads: false,
            crashes: false,
            lease_nanos: FormatOptions::default().lease_nanos,
            catalog: false,
            condemned: false,
            span_places: 4,
            loading: false,
            short: false,
            gets_at_once: 1,
            cache_bytes: ROOMY_CACHE,
            inline: Inline::Nobody,
            values: false,
        }
    }
}

impl Scenario {
    /// Draws a scenario from `seed` for trees of this format. Every technique is on in some scenarios and off
    /// in others.
    pub fn drawn(seed: u64, format: Format) -> Self {
        let mut rng = Rng::new(seed ^ 0x0053_4345_4e45);
        let base = match rng.below(3) {
            0 if format == Format::LineHashed => Techniques::OURS,
            0 => Techniques {
                handover: true,
                combining: false,
                shared_reads: false,
                fair: false,
                ..Techniques::OURS
            },
            1 => Techniques::SHERMAN,
            _ => {
                let hierarchical = rng.one_in(2);
                let queue = rng.one_in(2);
                Techniques {
                    combine: rng.one_in(2),
                    hierarchical,
                    queue,
                    handover: rng.one_in(2),
                    lock_read: rng.one_in(2),
                    cache: !rng.one_in(4),
                    redo: rng.one_in(2),
                    backoff: true,
                    ..Techniques::NONE
                }
            }
        };
        // Drawn apart from the rest: scenarios of formats that do not combine stay as they are.
        let mut others = Rng::new(seed ^ 0x0043_4f4d_4249);
        let base = match others.below(4) {
            _ if format != Format::LineHashed => base,
            0 => base,
            1 => Techniques { fair: true, ..base },
            _ => Techniques {
                hierarchical: true,
                combine: true,
                lock_read: true,
                combining: true,
                fair: others.one_in(2),
                handover: others.one_in(4),
                ..base
            },
        };
        let shared_reads = base.shared_reads || (format == Format::LineHashed && !others.one_in(4));
        let base = Techniques { shared_reads, ..base };
        let gets_at_once = if format == Format::LineHashed { [1, 4, 6, 8][others.below(4)] } else { 1 };
        let inline = match others.below(8) {
            _ if format != Format::LineHashed => Inline::Nobody,
            0 => Inline::Everybody,
            1 => Inline::Some,
            _ => Inline::Nobody,
        };
        let computes = 1 + rng.below(3) as u32;
        let threads = if computes == 1 { 3 + rng.below(2) as u32 } else { 1 + rng.below(2) as u32 };
        let threads = if computes * threads < 3 { 2 } else { threads };
        let aim = [Aim::Grow, Aim::Empty, Aim::Merge, Aim::Deep][rng.below(4)];
        let ScenarioPlan { shape, operations, loaded, sparse, thinned, unposted, hot, first, then } =
            aim.plan(&mut rng);
        Self {
            shape,
            format,
            techniques: base,
            servers: 1 + rng.below(2) as u16,
            computes,
            threads,
            operations: operations as u32,
            loaded: loaded as u64,
            sparse,
            thinned,
            unposted,
            hot: hot as u64,
            first,
            then,
            opposed: rng.one_in(2),
            lane_width: if rng.one_in(3) { LaneWidth::Bits64 } else { LaneWidth::Bits16 },
            release: [ReleaseMode::Write, ReleaseMode::Write, ReleaseMode::Faa, ReleaseMode::Cas]
                [rng.below(4)],
            caches: [Caches::Cold, Caches::Warm, Caches::Stale][rng.below(3)],
            // The smaller its span, the sooner a freed place is reused.
            span_places: if rng.one_in(12) { 4 } else { 1 },
            gets_at_once,
            inline,
            ..Self::default()
        }
    }

    /// Draws a scenario with faults from `seed`. It is shorter, because recovery takes time too, and its
    /// lease is a few hundred events.
    pub fn drawn_with_crashes(seed: u64, format: Format) -> Self {
        let drawn = Self::drawn(seed, format);
        let mut rng = Rng::new(seed ^ 0x0043_5241_5348);
        let computes = 2 + rng.below(2) as u32;
        let threads = if computes == 2 { 2 } else { 1 + u32::from(rng.one_in(4)) };
        let operations = 2 + rng.below(3) as u32;
        let lease_nanos = STEP_NANOS_OF_CRASHES * (150 + rng.below(450) as u64);
        let catalog = rng.one_in(4);
        Self {
            techniques: Techniques { redo: true, ..drawn.techniques },
            computes,
            threads,
            operations: if catalog { 2 * operations } else { operations },
            loaded: if rng.one_in(4) { drawn.loaded.min(24) } else { drawn.loaded.min(14) },
            hot: drawn.hot.min(10),
            crashes: true,
            lease_nanos,
            catalog,
            condemned: rng.one_in(8),
            short: rng.one_in(8),
            loading: catalog && rng.one_in(4),
            ..drawn
        }
    }

    /// Draws a scenario with faults from `seed` in which every volume has two copies, and hosts are lost.
    pub fn drawn_with_replicas(seed: u64, format: Format) -> Self {
        let drawn = Self::drawn_with_crashes(seed, format);
        let mut rng = Rng::new(seed ^ 0x0052_4550_4c49);
        let (third, servers) = (rng.one_in(3), 1 + rng.below(2) as u16);
        let remade = rng.one_in(2);
        Self {
            replicas: 2,
            hosts: 2 + u16::from(third),
            servers,
            remade,
            // Drawn apart from the rest: the other scenarios stay as they are.
            moved: remade && Rng::new(seed ^ 0x4d4f_5645).one_in(3),
            // Each copy that is made takes clients two identities more.
            operations: if remade { drawn.operations + 6 } else { drawn.operations },
            // A lease must outlast the loss of a host, and a client's way to its next identity.
            lease_nanos: 2 * drawn.lease_nanos,
            condemned: false,
            short: false,
            // Every list with data verbs waits for its first half.
            inline: Inline::Nobody,
            ..drawn
        }
    }

    /// Draws a scenario as [`drawn_with_replicas`](Self::drawn_with_replicas), with a real control group of
    /// so many hosts. With 3, one in eight scenarios has 5, and those with two hosts in trouble too.
    pub fn drawn_with_group(seed: u64, format: Format, hosts: u16, trouble: Option<Trouble>) -> Self {
        let drawn = Self::drawn_with_replicas(seed, format);
        let crashes = Self::drawn_with_crashes(seed, format);
        let mut rng = Rng::new(seed ^ 0x4752_4f55);
        let more = hosts == 3 && rng.one_in(8);
        let scenario = Self {
            hosts: if more { 5 } else { hosts },
            remade: true,
            moved: false,
            group: true,
            operations: crashes.operations + 2,
            ..drawn
        };
        scenario.with_trouble(trouble.unwrap_or_else(|| Trouble::drawn(seed)))
    }

    /// The same scenario, with this trouble of hosts.
    fn with_trouble(mut self, trouble: Trouble) -> Self {
        self.trouble = trouble;
        match trouble {
            Trouble::Two => self.hosts = 5,
            // A move takes longer than a loss, and needs two volumes to make primaries uneven.
            Trouble::Moves => (self.servers, self.operations) = (2, self.operations + 2),
            Trouble::Losses | Trouble::Returns => {}
        }
        self
    }

    /// Gives the tree values of any length, and the world memory for blocks of several sizes.
    pub fn with_values(self) -> Self {
        // Bulk loads take no such values.
        Self { values: true, short: false, loading: false, ..self }
    }

    /// Returns the spec of its trees.
    pub fn spec(&self) -> TreeSpec {
        let spec = self.shape.spec(self.format);
        if !self.values {
            return spec;
        }
        let (key_len, lined) = (usize::from(spec.key_len), self.format == Format::LineStamped);
        // Slots hold a reference, or a value of up to 15 bytes. Four entries fit into a leaf.
        let leaf_bytes = match self.shape {
            Shape::LongEntries if lined => 576,
            Shape::LongEntries | Shape::Pairs => 320,
            Shape::Four | Shape::WideKeys => 448,
        };
        let slot = if self.shape == Shape::LongEntries && lined { 60 } else { SLOT };
        let leaf_bytes = leaf_bytes.max(spec.leaf_bytes).max((4 * (key_len + slot) as u32 + 192) / 64 * 64);
        TreeSpec { value_len: slot as u32 | TreeSpec::ANY_LENGTH, leaf_bytes, ..spec }
    }

    /// Returns the configuration of its world: small chunks, few lanes (so that unrelated nodes share them),
    /// short redo slots.
    pub fn config(&self, knobs: Knobs) -> SimConfig {
        let format = FormatOptions {
            // If memory is short, node allocation leaves half a chunk of redo areas: four, as by default.
            chunk_bytes: match (self.short, self.crashes) {
                (true, _) => 16 << 10,
                (false, true) => 4 << 10,
                (false, false) => 8 << 10,
            },
            span_places: self.span_places,
            redo_slot_bytes: 1 << 10,
            redo_area_bytes: if self.short { 2 << 10 } else { 4 << 10 },
            // Few enough that ids are issued again.
            member_capacity: match (self.crashes, self.replicas) {
                (true, 1) => 9,
                (true, _) => MEMBERS_OF_REPLICAS,
                (false, _) => 15,
            },
            lease_nanos: self.lease_nanos,
            // If there are several trees, they share one or two entries.
            catalog_capacity: if self.catalog && self.loaded.is_multiple_of(2) { 3 } else { 2 },
            locks: LockOptions {
                width: self.lane_width,
                lanes: Some(16),
                release: self.release,
                ..LockOptions::default()
            },
            ..FormatOptions::default()
        };
        SimConfig {
            servers: self.servers,
            replicas: self.replicas,
            hosts: self.hosts,
            spares: if self.remade { SPARES * self.servers } else { 0 },
            keeps: self.group && self.trouble == Trouble::Returns,
            uneven: self.group && self.trouble == Trouble::Moves,
            host_bytes: (if self.values { 128 << 10 } else { 0 })
                + match (self.short, self.catalog) {
                    (true, _) => 60 << 10,
                    (false, _) if self.replicas > 1 => 320 << 10,
                    (false, true) => 320 << 10,
                    (false, false) => 188 << 10,
                },
            on_chip_bytes: 128,
            format,
            inline: self.inline,
            knobs,
            limits: Limits { steps: 400_000, ..Limits::default() },
        }
    }

    /// Returns the lowest key that the threads use. It lies in the middle of the loaded keys, so that both
    /// neighbours exist.
    pub fn first_hot(&self) -> u64 {
        self.loaded.saturating_sub(self.hot / 2)
    }

    /// Whether the leaves of the tree can be dense.
    fn can_be_dense(&self) -> bool {
        self.format == Format::LineHashed && matches!(self.shape, Shape::Pairs | Shape::LongEntries)
    }

    /// Returns key number `id` as bytes. The order of keys is the order of `id`.
    pub fn key(&self, id: u64) -> Vec<u8> {
        let number = if self.can_be_dense() { ((id / NEAR) << 48) | (0x5a << 32) | (id % NEAR) } else { id };
        let mut bytes = number.to_be_bytes().to_vec();
        bytes.resize(usize::from(self.shape.spec(self.format).key_len), 0x5a);
        bytes
    }

    /// Returns the number of the key with these bytes.
    pub fn key_id(&self, key: &[u8]) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&key[..8]);
        let number = u64::from_be_bytes(bytes);
        if self.can_be_dense() { (number >> 48) * NEAR + (number & u64::from(u32::MAX)) } else { number }
    }

    /// Returns value number `id` as bytes. Every byte depends on it, so that a torn value shows.
    pub fn value(&self, id: u64) -> Vec<u8> {
        let len = match self.values {
            true => LENGTHS[(id ^ id >> 1 ^ id >> 16) as usize % LENGTHS.len()],
            false => self.shape.spec(self.format).value_len as usize,
        };
        let tail = (8..len).map(|at| (id as u8).wrapping_mul(31).wrapping_add(at as u8));
        id.to_le_bytes().into_iter().chain(tail).take(len).collect()
    }

    /// Returns the number of the value with these bytes, or `None` if it was never written like that.
    pub fn value_id(&self, value: &[u8]) -> Option<u64> {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(value.get(..8)?);
        let id = u64::from_le_bytes(bytes);
        (self.value(id) == value).then_some(id)
    }
}

/// The effect that a scenario aims at.
#[derive(Clone, Copy)]
enum Aim {
    /// Nodes split.
    Grow,
    /// A few leaves become one, and the root is removed.
    Empty,
    /// Leaves merge, and their places are reused.
    Merge,
    /// Internal nodes merge too.
    Deep,
}

/// The parts of a scenario that an [`Aim`] decides.
struct ScenarioPlan {
    shape: Shape,
    operations: usize,
    loaded: usize,
    sparse: bool,
    thinned: u32,
    unposted: bool,
    hot: usize,
    first: Mix,
    then: Mix,
}

impl Aim {
    fn plan(self, rng: &mut Rng) -> ScenarioPlan {
        let any = Shape::ALL[rng.below(4)];
        let small = [Shape::Four, Shape::WideKeys][rng.below(2)];
        let shrinking = [
            (Mix::SHRINK, Mix::GROW),
            (Mix::SHRINK, Mix::SHRINK),
            (Mix::SHRINK, Mix::EVEN),
            (Mix::GROW, Mix::SHRINK),
        ][rng.below(4)];
        // Only full leaves split.
        let unposted = rng.one_in(4);
        let plan = ScenarioPlan {
            shape: any,
            operations: 5 + rng.below(6),
            loaded: 10 + rng.below(12),
            sparse: !unposted,
            thinned: if unposted { 0 } else { [0, 4, 6, 8][rng.below(4)] },
            unposted,
            hot: 6 + rng.below(16),
            first: shrinking.0,
            then: shrinking.1,
        };
        match self {
            Self::Grow => {
                let (first, then) = [(Mix::GROW, Mix::GROW), (Mix::EVEN, Mix::EVEN)][rng.below(2)];
                let (loaded, hot) = (4 + rng.below(16), 3 + rng.below(6));
                let sparse = !unposted && rng.one_in(3);
                ScenarioPlan {
                    operations: 4 + rng.below(4),
                    loaded,
                    sparse,
                    thinned: 0,
                    hot,
                    first,
                    then,
                    ..plan
                }
            }
            Self::Empty => {
                let loaded = 3 + rng.below(6);
                let shape = if rng.one_in(3) { any } else { small };
                ScenarioPlan { shape, loaded, hot: 2 * loaded, ..plan }
            }
            Self::Merge => plan,
            Self::Deep => {
                // Three levels of the smallest nodes. The leaves of one or two parents are hot.
                let (operations, loaded, hot) = (7 + rng.below(6), 18 + rng.below(12), 10 + rng.below(10));
                ScenarioPlan {
                    shape: small,
                    operations,
                    loaded,
                    sparse: true,
                    thinned: 3 + rng.below(3) as u32,
                    hot,
                    ..plan
                }
            }
        }
    }
}
