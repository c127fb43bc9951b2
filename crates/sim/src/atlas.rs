//! Readable traces: which task executed which verb on which line of which node, in order.
//!
//! An [`Atlas`] maps offsets in the servers' memory to tables, lock lanes, redo slots and nodes. It is built
//! from the memory of a schedule that has ended; this is correct because chunks never change their class. It
//! learns the level, version and marks of a node at each moment from the header lines in the trace.
//!
//! ```text
//!     812      81_200 ns  cs1.t0.client  WRITE leaf 0:0xa000 line 2
//!     815      81_500 ns  cs0.keeper     CAS   lane 5 of server 0: client 2 -> 0, done
//! ```

use crate::choice::{Actor, ChoiceKind};
use crate::sim::Sim;
use crate::tasks::TaskName;
use crate::trace::{Detail, Event, Extent};
use sherman_core::node::header::Header;
use sherman_core::redo::Record;
use sherman_core::root::RootWord;
use sherman_fabric::{GlobalAddress, Memory, Space};
use sherman_layout::{ChunkEntry, Geometry, LaneWidth, SUPERBLOCK_BYTES, Superblock};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

const LINE: u64 = 64;

/// A map of the memory of all servers.
#[derive(Clone, Debug)]
pub struct Atlas {
    servers: Vec<Sheet>,
    tasks: Vec<TaskName>,
}

/// The map of one server.
#[derive(Clone, Debug)]
struct Sheet {
    geometry: Geometry,
    chunks: Vec<ChunkEntry>,
}

/// The meaning of a place in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spot {
    /// Line `line` of the node at `address`.
    Node {
        /// Address of the node.
        address: GlobalAddress,
        /// Index of the line in the node.
        line: u64,
    },
    /// A word of the lock table that begins with this lane.
    Lanes {
        /// The first lane of the word.
        first: u32,
    },
    /// A line of a redo slot.
    Redo {
        /// Offset of the redo area.
        area: u64,
        /// Index of the slot in the area.
        slot: u64,
        /// Index of the line in the slot.
        line: u64,
    },
    /// The root word of the tree with this catalog entry.
    Root {
        /// Index of the catalog entry.
        entry: u64,
    },
    /// A named table, and the index of the entry in it.
    Table(&'static str, u64),
    /// Something else.
    Elsewhere,
}

impl Atlas {
    /// Returns the atlas of a world whose servers are formatted, or `None` if one of them is not.
    pub fn of(sim: &Sim, servers: u16) -> Option<Self> {
        let mut sheets = Vec::new();
        for server in 0..servers {
            let memory = sim.memory(server);
            let mut superblock = [0; SUPERBLOCK_BYTES];
            memory.load(Space::Host, 0, &mut superblock);
            let geometry = Superblock::decode(&superblock).ok()?.geometry;
            let entry =
                |index| ChunkEntry::from_bits(memory.load_u64(Space::Host, geometry.chunk_entry(index)));
            let chunks =
                (0..geometry.chunks).map(|index| entry(index).unwrap_or(ChunkEntry::Unused)).collect();
            sheets.push(Sheet { geometry, chunks });
        }
        Some(Self { servers: sheets, tasks: sim.task_names() })
    }

    /// Returns what lies at an offset.
    pub fn spot(&self, place: &Extent) -> Spot {
        let Some(Sheet { geometry, chunks }) = self.servers.get(usize::from(place.server)) else {
            return Spot::Elsewhere;
        };
        let lock = &geometry.lock;
        if lock.space == place.space
            && (lock.offset..lock.offset + lock.table_bytes()).contains(&place.offset)
        {
            return Spot::Lanes { first: ((place.offset - lock.offset) / lock.width.bytes()) as u32 };
        }
        if place.space == Space::OnChip {
            return Spot::Elsewhere;
        }
        if let Some(index) = geometry.chunk_at(place.offset) {
            let within = place.offset - geometry.chunk_offset(index);
            return match chunks[index as usize] {
                ChunkEntry::Nodes { class } => {
                    let at = within % u64::from(class.node_bytes);
                    let address = GlobalAddress::new(place.server, place.offset - at);
                    Spot::Node { address, line: at / LINE }
                }
                ChunkEntry::Redo => {
                    let at = within % geometry.redo_area_bytes;
                    let slot = u64::from(geometry.redo_slot_bytes);
                    Spot::Redo { area: place.offset - at, slot: at / slot, line: at % slot / LINE }
                }
                ChunkEntry::Unused => Spot::Elsewhere,
            };
        }
        let tables = [
            ("client", geometry.client_offset, geometry.client_table_bytes(), 8),
            ("chunk", geometry.chunk_table_offset, geometry.chunk_table_bytes(), 8),
        ];
        for (name, offset, bytes, entry) in tables {
            if (offset..offset + bytes).contains(&place.offset) {
                return Spot::Table(name, (place.offset - offset) / entry);
            }
        }
        let entry = (0..geometry.catalog_capacity).find(|&entry| geometry.root_word(entry) == place.offset);
        entry.map_or(Spot::Elsewhere, |entry| Spot::Root { entry: u64::from(entry) })
    }

    /// Returns every event as a line of text.
    pub fn tell(&self, events: &[Event]) -> Vec<String> {
        let mut known = BTreeMap::new();
        (0..).zip(events).map(|(number, event)| self.line(number, event, &mut known)).collect()
    }

    /// Returns the last `most` lines that concern `key`. These are events on its nodes and their lanes, on
    /// redo slots and root words, control calls, faults and remarks.
    pub fn tell_key(&self, events: &[Event], key: &[u8], most: usize) -> Vec<String> {
        let lines = self.tell(events);
        let about = self.about(events, key);
        let concerned = |event: &Event| match self.spot(&event.place) {
            _ if event.choice.kind == ChoiceKind::Remark => true,
            _ if event.place.len == 0 => matches!(event.choice.kind, ChoiceKind::Execute),
            Spot::Node { address, .. } => about.contains(&address),
            Spot::Lanes { first } => self.has_lane(&about, &event.place, first),
            Spot::Redo { .. } | Spot::Root { .. } => true,
            _ => false,
        };
        let told: Vec<String> =
            events.iter().zip(lines).filter(|(event, _)| concerned(event)).map(|(_, line)| line).collect();
        let skipped = told.len().saturating_sub(most);
        told.into_iter().skip(skipped).collect()
    }

    /// Returns the nodes in which the bytes of `key` appeared.
    fn about(&self, events: &[Event], key: &[u8]) -> BTreeSet<GlobalAddress> {
        let holds = |bytes: &[u8]| !key.is_empty() && bytes.windows(key.len()).any(|window| window == key);
        let seen = |event: &Event| match (&event.detail, self.spot(&event.place)) {
            (Detail::Bytes(bytes), Spot::Node { address, .. }) if holds(bytes) => Some(address),
            _ => None,
        };
        events.iter().filter_map(seen).collect()
    }

    /// Whether the word of lanes that begins with `first` guards one of `nodes`.
    fn has_lane(&self, nodes: &BTreeSet<GlobalAddress>, place: &Extent, first: u32) -> bool {
        let geometry = &self.servers[usize::from(place.server)].geometry;
        let lanes = first..first + (u64::from(place.len) / geometry.lock.width.bytes()).max(1) as u32;
        nodes.iter().any(|node| node.server() == place.server && lanes.contains(&geometry.lane_of(*node)))
    }

    fn line(&self, number: u64, event: &Event, known: &mut BTreeMap<GlobalAddress, Header>) -> String {
        let who = match event.task.and_then(|task| self.tasks.get(task as usize)) {
            Some(name) => name.to_string(),
            None => match event.choice.actor {
                Actor::QueuePair { endpoint, .. } | Actor::Control(endpoint) => {
                    format!("endpoint {endpoint}")
                }
                _ => String::new(),
            },
        };
        format!("{number:>6} {:>10} ns  {who:<16} {}", event.now, self.what(event, known))
    }

    fn what(&self, event: &Event, known: &mut BTreeMap<GlobalAddress, Header>) -> String {
        let place = &event.place;
        match (event.choice.kind, &event.detail) {
            (ChoiceKind::Remark, Detail::Remark(text)) => format!("-- {text}"),
            (ChoiceKind::Run, _) => "runs".to_owned(),
            (ChoiceKind::Advance, _) => "time jumps".to_owned(),
            (ChoiceKind::Complete | ChoiceKind::Fail, Detail::Call(error)) => format!("list ends: {error}"),
            (ChoiceKind::Complete, _) => "list completes".to_owned(),
            (ChoiceKind::Cut, _) => "lists in flight are lost".to_owned(),
            (ChoiceKind::Execute, Detail::Call(text)) => format!("CALL  {text}"),
            (ChoiceKind::Answer, Detail::Call(text)) => format!("is answered: {text}"),
            (
                kind @ (ChoiceKind::Fetch | ChoiceKind::FetchStale | ChoiceKind::Land),
                Detail::Bytes(bytes),
            ) => {
                let verb = if kind == ChoiceKind::Land { "WRITE" } else { "READ " };
                format!("{verb} {} #{:08x}", self.moved(place, bytes, known), event.data as u32)
            }
            (_, Detail::Cas { compare, swap, mask }) => {
                let done = event.data & mask == compare & mask;
                let (from, to) = (self.word(place, event.data, *mask), self.word(place, *swap, *mask));
                let expected = self.word(place, *compare, *mask);
                let spot = self.masked(place, *mask);
                match done {
                    true => format!("CAS   {spot}: {from} -> {to}, done"),
                    false => format!("CAS   {spot}: found {from}, not {expected}"),
                }
            }
            (_, Detail::Faa { add }) => {
                let after = event.data.wrapping_add(*add);
                format!("FAA   {}: {:#x} -> {after:#x}", self.masked(place, event.data ^ after), event.data)
            }
            _ => event.to_string(),
        }
    }

    /// Describes a place and the bytes that moved there.
    fn moved(&self, place: &Extent, bytes: &[u8], known: &mut BTreeMap<GlobalAddress, Header>) -> String {
        match self.spot(place) {
            Spot::Node { address, line } => {
                if line == 0
                    && let Some(header) = Header::decode(bytes)
                {
                    known.insert(address, header);
                    return format!("{} {address} header: {}", level(&header), marks(&header));
                }
                let kind = known.get(&address).map_or("node".to_owned(), level);
                format!("{kind} {address} line {line}")
            }
            Spot::Redo { area, slot, line } => {
                let mut text = format!("redo slot {slot} of area {}:{area:#x} line {line}", place.server);
                if line == 0 {
                    let kind = Record::decode(bytes).map(|record| format!("{:?}", record.kind));
                    let kind = kind.unwrap_or_else(|| {
                        let magic = bytes.get(..4).is_some_and(|magic| magic == b"RDO1");
                        if magic {
                            format!("begins, kind {}", bytes.get(6).copied().unwrap_or(0))
                        } else {
                            "none".into()
                        }
                    });
                    let _ = write!(text, ": {kind}");
                }
                text
            }
            Spot::Lanes { .. } if bytes.len() <= 8 => {
                let mut word = [0; 8];
                word[..bytes.len()].copy_from_slice(bytes);
                let mask = if bytes.len() == 8 { u64::MAX } else { (1 << (8 * bytes.len())) - 1 };
                let whole = Extent { len: bytes.len() as u32, ..*place };
                format!(
                    "{}: {}",
                    self.masked(&whole, mask),
                    self.word(&whole, u64::from_le_bytes(word), mask)
                )
            }
            Spot::Root { entry } if bytes.len() >= 8 => {
                let mut word = [0; 8];
                word.copy_from_slice(&bytes[..8]);
                format!("root word {entry}: {}", root(u64::from_le_bytes(word)))
            }
            _ => format!("{}+{}", self.masked(place, u64::MAX), place.len),
        }
    }

    /// Describes a place, and the lane that the mask selects.
    fn masked(&self, place: &Extent, mask: u64) -> String {
        match self.spot(place) {
            Spot::Node { address, line } => format!("node {address} line {line}"),
            Spot::Lanes { first } => {
                let width = self.servers[usize::from(place.server)].geometry.lock.width;
                let lane = match width {
                    LaneWidth::Bits16 if mask != 0 => first + mask.trailing_zeros() / 16,
                    _ => first,
                };
                format!("lane {lane} of server {}", place.server)
            }
            Spot::Redo { area, slot, line } => {
                format!("redo slot {slot} of area {}:{area:#x} line {line}", place.server)
            }
            Spot::Root { entry } => format!("root word {entry}"),
            Spot::Table(name, entry) => format!("{name} table of server {}, entry {entry}", place.server),
            Spot::Elsewhere => format!("{:?} {}:{:#x}", place.space, place.server, place.offset),
        }
    }

    /// Describes a word that was read at a place.
    fn word(&self, place: &Extent, word: u64, mask: u64) -> String {
        match self.spot(place) {
            Spot::Lanes { .. } => match (word & mask) >> mask.trailing_zeros().min(63) {
                0 => "free".to_owned(),
                client => format!("client {client}"),
            },
            Spot::Root { .. } => root(word),
            _ => format!("{word:#x}"),
        }
    }
}

fn root(word: u64) -> String {
    let root = RootWord::from_bits(word);
    if word == 0 { "null".to_owned() } else { format!("{} on level {}", root.address, root.level) }
}

fn level(header: &Header) -> String {
    if header.level == 0 { "leaf".to_owned() } else { format!("internal node (level {})", header.level) }
}

fn marks(header: &Header) -> String {
    let mut text = format!("version {} floor {}", header.version, header.floor);
    if !header.sibling.is_null() {
        let _ = write!(text, " sibling {}", header.sibling);
    }
    if header.flags.free {
        let _ = write!(text, " FREE of {}", header.owner);
    }
    if header.flags.pending {
        let _ = write!(text, " PENDING by {}", header.owner);
    }
    text
}
