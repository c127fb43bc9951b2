//! Auditing a whole cluster: every tree, and what no tree shows: lanes, redo records, and places for nodes.
//!
//! Everything in memory that waits for a client names that client: a lane its holder, a record its writer, a pending node its maker, a free
//! place the client that may use it. Recovery mends all of it *before* an id is retired (I36). So whatever names an id that nobody has is damage.
//! What names a member, alive or waiting for its recovery, is not: the audit tolerates clients at work.
//!
//! The audit first collects suspects: it reads the tables, then asks for the members, so that a client that joins meanwhile is no
//! suspect. Then it looks at each suspect again, three times, and reports those that never changed and whose client never appeared.

use crate::error::Error;
use crate::node::{Header, LINE, get_u16, get_u64};
use crate::op::Op;
use crate::redo::{Kind, Record};
use crate::tree::TreeState;
use crate::tree::check::{Check, MOST_TOLD};
use crate::tree::probe::Obstacle;
use crate::worker::Worker;
use sherman_fabric::control::{ChunkClass, MemberInfo, Standing, TreeInfo};
use sherman_fabric::{ClientId, Endpoint, GlobalAddress, Space};
use sherman_memory_server::{ChunkEntry, ClientWord, LaneWidth};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How many times the audit looks at a suspect again.
const LOOKS: u32 = 3;
/// The pause before each look.
const PAUSE_NANOS: u64 = 25_000_000;
/// Suspects that the audit looks at again; it counts more as if they were damage.
const MOST_SUSPECTS: usize = 10_000;
/// Places read by one list.
const PLACES_PER_LIST: usize = 64;
/// Bytes of one READ of a table.
const TABLE_READ: u64 = 32 << 10;

const I33: &str = "I33: a place for a node is in a tree, being made, or some member's";
const I34: &str = "I34: the nodes of a dropped tree are free";
const I36: &str = "I36: an id is retired only when its fence and its redo area are gone from every server";
const I36_RECORD: &str = "I36: an id is retired only when its redo records are replayed";
const I38: &str = "I38: a lane is given back by its holder or by the client that recovers the holder";
const I39: &str = "I39: a pending node that no record accounts for is free";

/// What an audit found.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    /// Every tree and its check.
    pub trees: Vec<(TreeInfo, Check)>,
    /// Clients that take part.
    pub live: Vec<ClientId>,
    /// Clients that died or left, and whose recovery is not finished. What they left is not damage yet.
    pub unrecovered: Vec<ClientId>,
    /// Lanes that members hold.
    pub lanes_held: u64,
    /// Redo records of members: changes in flight.
    pub records: u64,
    /// Places for nodes, by their use.
    pub places: Places,
    /// Damage outside the trees, the first hundred.
    pub findings: Vec<Finding>,
    /// All of it, counted.
    pub finding_count: u64,
}

/// Places for nodes, by their use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// Nodes of a tree.
    pub linked: u64,
    /// Free for use by a member.
    pub free: u64,
    /// Being made by a member.
    pub pending: u64,
    /// Never used, in a member's chunk.
    pub unused: u64,
}

/// Damage outside the trees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The memory server.
    pub server: u16,
    /// What is damaged.
    pub part: Part,
    /// Where it is there: an offset, or a lane's number.
    pub at: u64,
    /// The id that it names.
    pub client: ClientId,
    /// The invariant that is broken: its number and what it says.
    pub invariant: &'static str,
    /// What was found.
    pub detail: String,
}

/// A part of a memory server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A lock lane.
    Lane,
    /// A client's word: its fence and its redo area.
    ClientWord,
    /// A slot of a redo area.
    RedoSlot,
    /// A place for a node.
    Place,
    /// A chunk.
    Chunk,
}

impl Part {
    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lane => "lane",
            Self::ClientWord => "client word",
            Self::RedoSlot => "redo slot",
            Self::Place => "place",
            Self::Chunk => "chunk",
        }
    }
}

impl Audit {
    /// Whether nothing is damaged.
    pub fn is_clean(&self) -> bool {
        self.finding_count == 0 && self.trees.iter().all(|(_, check)| check.is_clean())
    }

    fn tell(&mut self, finding: Finding) {
        self.finding_count += 1;
        if self.findings.len() < MOST_TOLD {
            self.findings.push(finding);
        }
    }
}

/// Something that names an id that nobody has, or a node that no tree leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Suspect {
    Lane {
        server: u16,
        lane: u32,
        holder: ClientId,
    },
    ClientWord {
        server: u16,
        client: ClientId,
        bits: u64,
    },
    Record {
        server: u16,
        offset: u64,
        owner: ClientId,
        kind: Kind,
    },
    /// A place whose mark names nobody: its first line.
    Marked {
        address: GlobalAddress,
        header: Header,
    },
    /// A linked node that no check visited.
    Unreached {
        address: GlobalAddress,
        header: Header,
    },
    /// Places of a chunk that were never used, and whose owner is nobody.
    Unused {
        server: u16,
        chunk: u32,
        owner: ClientId,
        places: u64,
    },
}

/// An audit under way.
struct Auditor<'w, E: Endpoint> {
    worker: &'w Worker<E>,
    op: Op<'w, E>,
    audit: Audit,
    /// Everyone that is a member: when the tables had been read.
    members: BTreeSet<ClientId>,
    trees: BTreeMap<u32, Arc<TreeState>>,
    /// Trees that some member drops.
    dropped: BTreeSet<u32>,
    reached: BTreeSet<GlobalAddress>,
    suspects: Vec<Suspect>,
    /// Suspects beyond those that are kept.
    more: u64,
}

impl<E: Endpoint> Worker<E> {
    /// Checks every tree of the cluster, and every lane, redo record and place for a node. Clients may work meanwhile. Costs a READ
    /// for each node of the trees and another, of 64 bytes, for each place.
    ///
    /// # Errors
    /// Those of reading: what is wrong with the cluster is in the answer.
    pub async fn audit(&self) -> Result<Audit, Error> {
        let mut auditor = Auditor {
            worker: self,
            op: self.op(),
            audit: Audit::default(),
            members: BTreeSet::new(),
            trees: BTreeMap::new(),
            dropped: BTreeSet::new(),
            reached: BTreeSet::new(),
            suspects: Vec::new(),
            more: 0,
        };
        auditor.collect().await?;
        auditor.confirm().await?;
        Ok(auditor.audit)
    }
}

/// What one look at the tables found, before anybody knows who is a member.
#[derive(Default)]
struct Tables {
    lanes: Vec<(u16, u32, ClientId)>,
    words: Vec<(u16, ClientId, u64)>,
    records: Vec<(u16, u64, Record)>,
    places: Vec<(GlobalAddress, Header)>,
    unused: Vec<(u16, u32, ClientId, u64)>,
}

impl<E: Endpoint> Auditor<'_, E> {
    async fn collect(&mut self) -> Result<(), Error> {
        let mut tables = Tables::default();
        for server in 0..self.worker.endpoint.servers() {
            self.lanes(server, &mut tables).await?;
            self.clients(server, &mut tables).await?;
            self.chunks(server, &mut tables).await?;
        }
        self.check_trees().await?;
        self.learn_members().await?;
        self.judge(tables);
        Ok(())
    }

    /// Compares what the tables name with the members.
    fn judge(&mut self, tables: Tables) {
        let is_member = |client: ClientId| self.members.contains(&client);
        let mut suspects = Vec::new();
        for (server, lane, holder) in tables.lanes {
            match is_member(holder) {
                true => self.audit.lanes_held += 1,
                false => suspects.push(Suspect::Lane { server, lane, holder }),
            }
        }
        for (server, client, bits) in tables.words.into_iter().filter(|(_, client, _)| !is_member(*client)) {
            suspects.push(Suspect::ClientWord { server, client, bits });
        }
        for (server, offset, record) in tables.records {
            let Record { owner, kind, tree, .. } = record;
            if kind == Kind::Drop {
                self.dropped.insert(tree);
            }
            match is_member(owner) {
                true => self.audit.records += 1,
                false => suspects.push(Suspect::Record { server, offset, owner, kind }),
            }
        }
        let places = &mut self.audit.places;
        for (address, header) in tables.places {
            match header.flags {
                flags if !flags.free && !flags.pending => {
                    places.linked += 1;
                    if !self.reached.contains(&address) {
                        suspects.push(Suspect::Unreached { address, header });
                    }
                }
                _ if !is_member(header.owner) => suspects.push(Suspect::Marked { address, header }),
                flags if flags.free => places.free += 1,
                _ => places.pending += 1,
            }
        }
        for (server, chunk, owner, count) in tables.unused {
            match is_member(owner) {
                true => places.unused += count,
                false => suspects.push(Suspect::Unused { server, chunk, owner, places: count }),
            }
        }
        self.more = suspects.len().saturating_sub(MOST_SUSPECTS) as u64;
        suspects.truncate(MOST_SUSPECTS);
        self.suspects = suspects;
    }

    /// Looks at every suspect again and again; reports those that stay.
    async fn confirm(&mut self) -> Result<(), Error> {
        for _ in 0..LOOKS {
            if self.suspects.is_empty() {
                return Ok(());
            }
            let now = self.worker.endpoint.now();
            sherman_fabric::sleep_until(&self.worker.endpoint, now.saturating_add(PAUSE_NANOS)).await;
            let mut left = Vec::new();
            for suspect in std::mem::take(&mut self.suspects) {
                if self.is_as_it_was(&suspect).await? {
                    left.push(suspect);
                }
            }
            self.learn_members().await?;
            left.retain(|suspect| suspect.client().is_none_or(|client| !self.members.contains(&client)));
            self.suspects = left;
        }
        if self.more > 0 && !self.suspects.is_empty() {
            self.audit.finding_count += self.more;
        }
        for suspect in std::mem::take(&mut self.suspects) {
            let finding = self.finding(suspect);
            self.audit.tell(finding);
        }
        Ok(())
    }

    /// Whether memory still says what made it a suspect.
    async fn is_as_it_was(&mut self, suspect: &Suspect) -> Result<bool, Error> {
        let geometry = |server| *self.worker.compute.geometry_of(server);
        Ok(match suspect {
            Suspect::Lane { server, lane, holder } => {
                let (space, word, mask, shift) = geometry(*server).lane_word(*lane);
                let bits = get_u64(&self.table(*server, space, word, 8).await?, 0);
                (bits & mask) >> shift == u64::from(holder.0)
            }
            Suspect::ClientWord { server, client, bits } => {
                let at = geometry(*server).client_entry(*client);
                get_u64(&self.table(*server, Space::Host, at, 8).await?, 0) == *bits
            }
            Suspect::Record { server, offset, owner, .. } => {
                let bytes = u64::from(geometry(*server).redo_slot_bytes);
                let slot = self.table(*server, Space::Host, *offset, bytes).await?;
                Record::decode(&slot).is_some_and(|record| record.owner == *owner)
            }
            Suspect::Marked { address, header } => self.header(*address).await? == Some(*header),
            Suspect::Unreached { address, header } => {
                self.header(*address).await? == Some(*header) && !self.is_accounted_for(*address, header).await?
            }
            Suspect::Unused { server, chunk, owner, places } => {
                let at = geometry(*server).chunk_entry(*chunk);
                let entry = ChunkEntry::from_bits(get_u64(&self.table(*server, Space::Host, at, 8).await?, 0));
                match entry {
                    Some(ChunkEntry::Issued { class, owner: now }) if now == *owner => {
                        let mut again = Tables::default();
                        self.places(*server, *chunk, class, &mut again).await? == *places
                    }
                    _ => false,
                }
            }
        })
    }

    /// Whether a linked node that no check visited has a reason to be there: a tree leads to it by now, somebody holds its lane (a merge
    /// frees the node before it gives the lane back), or somebody is dropping its tree.
    async fn is_accounted_for(&mut self, address: GlobalAddress, header: &Header) -> Result<bool, Error> {
        let holder = self.worker.lane_holder(&self.op, address).await?;
        if holder != ClientId::NOBODY && self.members.contains(&holder) || self.dropped.contains(&header.tree) {
            return Ok(true);
        }
        if !self.trees.contains_key(&header.tree) {
            self.open_trees().await?;
        }
        let Some(tree) = self.trees.get(&header.tree).map(Arc::clone) else { return Ok(false) };
        let low = match self.worker.low_fence(&self.op, &tree, address, header.level).await? {
            Some(low) => low,
            // It changes just now, or is torn; the check of its tree says more about that.
            None => return Ok(true),
        };
        match self.worker.seek(&tree, header.level, &low).await {
            Ok((found, _)) => Ok(found == address),
            // What is broken in the tree is in the tree's check.
            Err(Obstacle::Moved | Obstacle::TooLow | Obstacle::Broken(_)) => Ok(false),
            Err(Obstacle::Failed(Error::Timeout { .. } | Error::NoSuchTree { .. })) => Ok(true),
            Err(Obstacle::Failed(error)) => Err(error),
        }
    }

    fn finding(&self, suspect: Suspect) -> Finding {
        let server_of = |address: GlobalAddress| (address.server(), address.offset());
        match suspect {
            Suspect::Lane { server, lane, holder } => Finding {
                server,
                part: Part::Lane,
                at: u64::from(lane),
                client: holder,
                invariant: I38,
                detail: format!("client {holder} holds the lane and is no member"),
            },
            Suspect::ClientWord { server, client, bits } => {
                let fenced = ClientWord::from_bits(bits).is_some_and(|word| word.fenced);
                let what = if fenced { "is still fenced" } else { "still has a redo area" };
                Finding {
                    server,
                    part: Part::ClientWord,
                    at: self.worker.compute.geometry_of(server).client_entry(client),
                    client,
                    invariant: I36,
                    detail: format!("client {client} {what} and is no member"),
                }
            }
            Suspect::Record { server, offset, owner, kind } => Finding {
                server,
                part: Part::RedoSlot,
                at: offset,
                client: owner,
                invariant: I36_RECORD,
                detail: format!("client {owner} left a record of kind {kind:?} and is no member"),
            },
            Suspect::Marked { address, header } => {
                let (server, at) = server_of(address);
                let client = header.owner;
                let (invariant, detail) = match header.flags.pending && !header.flags.free {
                    true => (I39, format!("client {client} made the node, left it pending, and is no member")),
                    false => (I33, format!("only client {client} may use this free place, and it is no member")),
                };
                Finding { server, part: Part::Place, at, client, invariant, detail }
            }
            Suspect::Unreached { address, header } => {
                let (server, at) = server_of(address);
                let (invariant, detail) = match self.trees.get(&header.tree) {
                    Some(tree) => {
                        let (name, level) = (&tree.info().name, header.level);
                        (I33, format!("a node of tree {name:?}, level {level}, to which the tree does not lead"))
                    }
                    None => (I34, format!("a node of tree {}, which the catalog does not list", header.tree)),
                };
                Finding { server, part: Part::Place, at, client: ClientId::NOBODY, invariant, detail }
            }
            Suspect::Unused { server, chunk, owner, places } => Finding {
                server,
                part: Part::Chunk,
                at: self.worker.compute.geometry_of(server).chunk_offset(chunk),
                client: owner,
                invariant: I33,
                detail: format!("{places} places were never used, and no member owns the chunk"),
            },
        }
    }

    async fn learn_members(&mut self) -> Result<(), Error> {
        let members = self.worker.members().await?;
        self.members = members.iter().map(|member| member.client).collect();
        let (live, dead): (Vec<&MemberInfo>, Vec<_>) =
            members.iter().partition(|member| member.standing == Standing::Live);
        self.audit.live = live.into_iter().map(|member| member.client).collect();
        self.audit.unrecovered = dead.into_iter().map(|member| member.client).collect();
        Ok(())
    }

    async fn open_trees(&mut self) -> Result<Vec<TreeInfo>, Error> {
        let infos = self.worker.trees().await?;
        for info in &infos {
            if !self.trees.contains_key(&info.id) {
                match self.worker.open_tree(&info.name).await {
                    Ok(tree) => drop(self.trees.insert(tree.info().id, tree)),
                    Err(Error::NoSuchTree { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(infos)
    }

    async fn check_trees(&mut self) -> Result<(), Error> {
        for info in self.open_trees().await? {
            let Some(tree) = self.trees.get(&info.id).map(Arc::clone) else { continue };
            let reached = &mut self.reached;
            match self
                .worker
                .check_noting(&tree, &mut |address| {
                    reached.insert(address);
                })
                .await
            {
                Ok(check) => self.audit.trees.push((info, check)),
                // Somebody dropped it meanwhile.
                Err(Error::NoSuchTree { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Every lane that is held.
    async fn lanes(&self, server: u16, tables: &mut Tables) -> Result<(), Error> {
        let lock = self.worker.compute.geometry_of(server).lock;
        let table = self.table(server, lock.space, lock.offset, u64::from(lock.count) * lock.width.bytes()).await?;
        for (lane, bytes) in (0..).zip(table.chunks_exact(lock.width.bytes() as usize)) {
            let holder = match lock.width {
                LaneWidth::Bits16 => ClientId(get_u16(bytes, 0)),
                LaneWidth::Bits64 => ClientId(get_u64(bytes, 0) as u16),
            };
            if holder != ClientId::NOBODY {
                tables.lanes.push((server, lane, holder));
            }
        }
        Ok(())
    }

    /// Every client's word that says something, and the records in its area.
    async fn clients(&self, server: u16, tables: &mut Tables) -> Result<(), Error> {
        let geometry = *self.worker.compute.geometry_of(server);
        let table = self.table(server, Space::Host, geometry.client_offset, geometry.client_table_bytes()).await?;
        for (client, word) in (0..).map(ClientId).zip(table.chunks_exact(8)) {
            let bits = get_u64(word, 0);
            if bits == 0 {
                continue;
            }
            tables.words.push((server, client, bits));
            let Some(area) = ClientWord::from_bits(bits).and_then(|word| word.redo_area) else { continue };
            let slots = self.table(server, Space::Host, area, geometry.redo_area_bytes).await?;
            for (slot, bytes) in slots.chunks_exact(geometry.redo_slot_bytes as usize).enumerate() {
                let offset = area + slot as u64 * u64::from(geometry.redo_slot_bytes);
                tables.records.extend(Record::decode(bytes).map(|record| (server, offset, record)));
            }
        }
        Ok(())
    }

    /// Every place of every chunk that is issued.
    async fn chunks(&self, server: u16, tables: &mut Tables) -> Result<(), Error> {
        let geometry = *self.worker.compute.geometry_of(server);
        let table = self.table(server, Space::Host, geometry.chunk_table_offset, geometry.chunk_table_bytes()).await?;
        for (chunk, word) in (0..).zip(table.chunks_exact(8)) {
            let Some(ChunkEntry::Issued { class, owner }) = ChunkEntry::from_bits(get_u64(word, 0)) else { continue };
            if !geometry.allows_node_bytes(class.node_bytes) {
                continue;
            }
            let unused = self.places(server, chunk, class, tables).await?;
            if unused > 0 {
                tables.unused.push((server, chunk, owner, unused));
            }
        }
        Ok(())
    }

    /// Looks at every place of a chunk; how many were never used.
    async fn places(&self, server: u16, chunk: u32, class: ChunkClass, tables: &mut Tables) -> Result<u64, Error> {
        let geometry = self.worker.compute.geometry_of(server);
        let (first, bytes) = (geometry.chunk_offset(chunk), u64::from(class.node_bytes));
        let offsets: Vec<u64> = (0..geometry.chunk_bytes / bytes).map(|at| first + at * bytes).collect();
        let most = (self.worker.endpoint.caps().max_verbs as usize).clamp(1, PLACES_PER_LIST);
        let mut unused = 0;
        for some in offsets.chunks(most) {
            let mut list = self.worker.endpoint.list(server);
            let reads: Vec<_> = some.iter().map(|&offset| list.read(Space::Host, offset, LINE as u32)).collect();
            let list = self.op.execute(list).await?;
            for (&offset, &read) in some.iter().zip(&reads) {
                match Header::decode(list.bytes(read)) {
                    Some(header) => tables.places.push((GlobalAddress::new(server, offset), header)),
                    None => unused += 1,
                }
            }
            self.worker.endpoint.recycle(list);
        }
        Ok(unused)
    }

    async fn header(&self, address: GlobalAddress) -> Result<Option<Header>, Error> {
        Ok(Header::decode(&self.op.read_bytes(address, LINE as u32).await?))
    }

    /// A server's table, read piece by piece.
    async fn table(&self, server: u16, space: Space, offset: u64, bytes: u64) -> Result<Vec<u8>, Error> {
        let endpoint = &self.worker.endpoint;
        let (piece, reads_per_list) = match space {
            Space::Host => (TABLE_READ.min(u64::from(endpoint.caps().max_transfer)), 1),
            // On-chip memory is read by words (F1).
            Space::OnChip => (8, endpoint.caps().max_verbs.max(1)),
        };
        let (mut table, mut at) = (Vec::new(), offset);
        while at < offset + bytes {
            let mut list = endpoint.list(server);
            let mut reads = Vec::new();
            while at < offset + bytes && (reads.len() as u32) < reads_per_list {
                let len = piece.min(offset + bytes - at);
                reads.push(list.read(space, at, len as u32));
                at += len;
            }
            let list = self.op.execute(list).await?;
            reads.into_iter().for_each(|read| table.extend_from_slice(list.bytes(read)));
            endpoint.recycle(list);
        }
        Ok(table)
    }
}

impl Suspect {
    /// The id that it names, if it names one.
    fn client(&self) -> Option<ClientId> {
        match self {
            Self::Lane { holder: client, .. }
            | Self::ClientWord { client, .. }
            | Self::Record { owner: client, .. }
            | Self::Unused { owner: client, .. } => Some(*client),
            Self::Marked { header, .. } => Some(header.owner),
            Self::Unreached { .. } => None,
        }
    }
}
