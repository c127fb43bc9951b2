//! Audits a whole cluster: every tree, and what no tree shows: lanes, redo records, and places for nodes.
//!
//! Everything in memory that waits for a client names that client. A lane names its holder, a record its
//! writer, a pending node its maker, and a span its owner. Recovery repairs all of it *before* an id is
//! retired (I36). So anything that names an id without a member is damage. Anything that names a member, live
//! or waiting for recovery, is not damage: the audit tolerates clients at work. A span without an owner that
//! has a free place has its hint set. Otherwise no client would ever find that place.
//!
//! The audit first collects suspects. It reads the tables and then asks for the members, so that a client
//! that joins meanwhile is no suspect. Then it reads each suspect again, three times. It reports the suspects
//! that never changed and whose client never appeared.

mod copies;

use crate::error::Error;
use crate::node::block::{self, Slot};
use crate::node::{Header, LINE, get_u16, get_u64};
use crate::op::Op;
use crate::redo::{Record, RecordKind};
use crate::tree::TreeState;
use crate::tree::check::{Check, MOST_REPORTED};
use crate::tree::probe::Obstacle;
use crate::worker::Worker;
use copies::Difference;
use sherman_fabric::control::{ChunkClass, MemberInfo, Standing, TreeInfo};
use sherman_fabric::{ComputeId, Endpoint, GlobalAddress, Space};
use sherman_layout::geometry::SPAN_ENTRY_BYTES;
use sherman_layout::{ChunkEntry, ClientWord, LaneWidth, SpanWord};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How many times the audit reads a suspect again.
const LOOKS: u32 = 3;
/// The pause before each of these reads.
const PAUSE_NANOS: u64 = 25_000_000;
/// The most suspects that the audit reads again. If damage remains, it counts all suspects beyond this number
/// as damage.
const MOST_SUSPECTS: usize = 10_000;
/// Places that one list reads.
const PLACES_PER_LIST: usize = 64;
/// Bytes that one READ of a table fetches.
const TABLE_READ: u64 = 32 << 10;

const I33: &str = "I33: a place for a node is in a tree, being made, or free";
const I58: &str = "I58: a block is free when its entry is replaced or removed";
const I45: &str = "I45: an unowned span that has a free place has its hint set";
const I34: &str = "I34: the nodes of a dropped tree are free";
const I36: &str = "I36: an id is retired only when its fence and its redo area are gone from every server";
const I36_RECORD: &str = "I36: an id is retired only when its redo records are replayed";
const I38: &str = "I38: a lane is given back by its holder or by the client that recovers the holder";
const I39: &str = "I39: a pending node that no record accounts for is free";
const I55: &str = "I55: what no lane protects is equal in both copies of a volume";

/// The result of an audit.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    /// Every tree and its check.
    pub trees: Vec<(TreeInfo, Check)>,
    /// Live members.
    pub live: Vec<ComputeId>,
    /// Clients that died or left, and whose recovery is not finished. Whatever they left behind is not damage
    /// yet.
    pub unrecovered: Vec<ComputeId>,
    /// Lanes that members hold.
    pub lanes_held: u64,
    /// Redo records of members: changes in flight.
    pub records: u64,
    /// Places for nodes, by their use.
    pub places: Places,
    /// Damage outside the trees: the first hundred findings.
    pub findings: Vec<Finding>,
    /// The number of all findings.
    pub finding_count: u64,
}

/// Places for nodes, by their use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// Nodes of a tree.
    pub linked: u64,
    /// Free: the node that was there was freed.
    pub free: u64,
    /// Being made by a member.
    pub pending: u64,
    /// Never used.
    pub unused: u64,
}

/// Damage outside the trees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The memory server, or the volume.
    pub server: u16,
    /// The damaged part.
    pub part: Part,
    /// Its location on the server: an offset, or a lane's number.
    pub at: u64,
    /// The id that it names.
    pub client: ComputeId,
    /// The broken invariant: its number and its text.
    pub invariant: &'static str,
    /// Details of the finding.
    pub detail: String,
}

sherman_fabric::named! {
    /// A part of a memory server.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Part {
        /// A lock lane.
        Lane => "lane",
        /// A client's word: its fence and its redo area.
        ClientWord => "client word",
        /// A slot of a redo area.
        RedoSlot => "redo slot",
        /// A place for a node.
        Place => "place",
        /// A span: a few places of a chunk.
        Span => "span",
        /// A line that differs between the copies of a volume.
        Copy => "copy",
    }
}

impl Audit {
    /// Whether nothing is damaged.
    pub fn is_clean(&self) -> bool {
        self.finding_count == 0 && self.trees.iter().all(|(_, check)| check.is_clean())
    }

    fn tell(&mut self, finding: Finding) {
        self.finding_count += 1;
        if self.findings.len() < MOST_REPORTED {
            self.findings.push(finding);
        }
    }
}

/// Something that names an id without a member, or a node that no tree leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Suspect {
    Lane {
        server: u16,
        lane: u32,
        holder: ComputeId,
    },
    ClientWord {
        server: u16,
        client: ComputeId,
        bits: u64,
    },
    Record {
        server: u16,
        offset: u64,
        owner: ComputeId,
        kind: RecordKind,
    },
    /// A pending node whose maker is no member, with its first line.
    Pending {
        address: GlobalAddress,
        header: Header,
    },
    /// A linked node that no check visited.
    Unreached {
        address: GlobalAddress,
        header: Header,
    },
    /// A span whose owner is no member, or a span without an owner that has free places and no hint.
    Span(SpanSeen),
    /// A line that differs between the copies of a volume.
    Copies(Difference),
}

/// The state of a span when the audit read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SpanSeen {
    server: u16,
    chunk: u32,
    number: u64,
    class: ChunkClass,
    owner: ComputeId,
    hinted: bool,
    /// Its places that are free or were never used.
    free: u64,
}

/// An audit under way.
struct Auditor<'w, E: Endpoint> {
    worker: &'w Worker<E>,
    op: Op<'w, E>,
    audit: Audit,
    /// All members, as listed after the audit read the tables.
    members: BTreeSet<ComputeId>,
    trees: BTreeMap<u32, Arc<TreeState>>,
    /// Trees that a `Drop` record names.
    dropped: BTreeSet<u32>,
    reached: BTreeSet<GlobalAddress>,
    suspects: Vec<Suspect>,
    /// Number of suspects beyond the kept ones.
    more: u64,
}

impl<E: Endpoint> Worker<E> {
    /// Checks every tree of the cluster, and every lane, redo record and place for a node. Clients may work
    /// meanwhile. Costs a READ for each node of the trees, and another READ of 64 bytes for each place.
    ///
    /// # Errors
    /// Only errors of reading. The returned [`Audit`] lists what is wrong with the cluster.
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

/// The contents of the tables after one read, before the audit knows the members.
#[derive(Default)]
struct Tables {
    lanes: Vec<(u16, u32, ComputeId)>,
    words: Vec<(u16, ComputeId, u64)>,
    records: Vec<(u16, u64, Record)>,
    places: Vec<(GlobalAddress, Header)>,
    spans: Vec<SpanSeen>,
    /// Places that were never used.
    unused: u64,
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
        for volume in 0..self.worker.endpoint.servers() {
            self.compare_copies(volume).await?;
        }
        Ok(())
    }

    /// Compares the ids in the tables with the members.
    fn judge(&mut self, tables: Tables) {
        let is_member = |client: ComputeId| self.members.contains(&client);
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
            if kind == RecordKind::Drop {
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
                flags if flags.free => places.free += 1,
                _ if !is_member(header.owner) => suspects.push(Suspect::Pending { address, header }),
                _ => places.pending += 1,
            }
        }
        places.unused = tables.unused;
        let lost = |span: &SpanSeen| match span.owner {
            ComputeId::NOBODY => span.free > 0 && !span.hinted,
            owner => !is_member(owner),
        };
        suspects.extend(tables.spans.into_iter().filter(lost).map(Suspect::Span));
        self.more = suspects.len().saturating_sub(MOST_SUSPECTS) as u64;
        suspects.truncate(MOST_SUSPECTS);
        self.suspects = suspects;
    }

    /// Reads every suspect again several times. Reports the suspects that stay.
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
            // A member that died between the mark and the hint left a record. Its recoverer sets the hint,
            // and makes the copies equal.
            let for_recoverer = |suspect: &Suspect| match suspect {
                Suspect::Span(span) => span.owner == ComputeId::NOBODY,
                Suspect::Copies(_) => true,
                _ => false,
            };
            left.retain(|suspect| self.audit.unrecovered.is_empty() || !for_recoverer(suspect));
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

    /// Whether memory still shows what made this a suspect.
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
            Suspect::Pending { address, header } => self.header(*address).await? == Some(*header),
            Suspect::Unreached { address, header } => {
                self.header(*address).await? == Some(*header)
                    && !self.is_accounted_for(*address, header).await?
            }
            Suspect::Span(seen) => {
                let mut tables = Tables::default();
                let now = self.span(seen.server, (seen.chunk, seen.number), seen.class, &mut tables).await?;
                let state = |span: &SpanSeen| (span.owner, span.hinted, span.free > 0);
                now.is_some_and(|now| state(&now) == state(seen))
            }
            Suspect::Copies(difference) => self.still_differs(difference).await?,
        })
    }

    /// Whether a linked node that no check visited has a reason to be there. There are three reasons: a tree
    /// leads to it by now, a member holds its lane, or a client is dropping its tree. A merge frees the node
    /// before it releases the lane.
    async fn is_accounted_for(&mut self, address: GlobalAddress, header: &Header) -> Result<bool, Error> {
        let holder = self.worker.lane_holder(&self.op, address).await?;
        if holder != ComputeId::NOBODY && self.members.contains(&holder)
            || self.dropped.contains(&header.tree)
        {
            return Ok(true);
        }
        if !self.trees.contains_key(&header.tree) {
            self.open_trees().await?;
        }
        let Some(tree) = self.trees.get(&header.tree).map(Arc::clone) else { return Ok(false) };
        if header.format == ChunkClass::BLOCK {
            return self.is_block_accounted_for(address, header, &tree).await;
        }
        let low = match self.worker.low_fence(&self.op, &tree, address, header.level).await? {
            Some(low) => low,
            // The node is just changing, or is torn. The check of its tree reports that.
            None => return Ok(true),
        };
        match self.worker.seek(&tree, header.level, &low).await {
            Ok((found, _)) => Ok(found == address),
            // The tree's check reports damage in the tree.
            Err(Obstacle::Moved | Obstacle::TooLow | Obstacle::Broken(_)) => Ok(false),
            Err(Obstacle::Failed(Error::Timeout { .. } | Error::NoSuchTree { .. })) => Ok(true),
            Err(Obstacle::Failed(error)) => Err(error),
        }
    }

    /// Whether a block that no check visited has a reason to be there: the entry of its key refers to it by
    /// now, or a client that died while it replaced it is not recovered yet.
    async fn is_block_accounted_for(
        &self,
        address: GlobalAddress,
        header: &Header,
        tree: &TreeState,
    ) -> Result<bool, Error> {
        if !self.audit.unrecovered.is_empty() {
            return Ok(true);
        }
        let image = self.op.read_bytes(address, (LINE + tree.shape().leaf.key_len()) as u32).await?;
        let key = match block::name(&image) {
            Some((now, key)) if now == *header && key.len() == tree.shape().leaf.key_len() => key,
            Some((now, _)) => return Ok(now != *header),
            None => return Ok(false),
        };
        let mut slot = Vec::new();
        let there = match self.worker.op().get_slot(tree, key, &mut slot).await {
            Err(Error::Timeout { .. } | Error::NoSuchTree { .. }) => return Ok(true),
            there => there?,
        };
        let refers = matches!(
            block::read_slot(&slot),
            Some(Slot::Long(block)) if (block.address, block.version) == (address, header.version)
        );
        Ok(there && refers)
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
                detail: format!("client {holder} holds the lane, but is not a member"),
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
                    detail: format!("client {client} {what}, but is not a member"),
                }
            }
            Suspect::Record { server, offset, owner, kind } => Finding {
                server,
                part: Part::RedoSlot,
                at: offset,
                client: owner,
                invariant: I36_RECORD,
                detail: format!("client {owner} left a record of kind {kind:?}, but is not a member"),
            },
            Suspect::Pending { address, header } => {
                let (server, at) = server_of(address);
                let client = header.owner;
                let detail = format!("client {client} left the node pending, but is not a member");
                Finding { server, part: Part::Place, at, client, invariant: I39, detail }
            }
            Suspect::Unreached { address, header } => {
                let (server, at) = server_of(address);
                let (invariant, detail) = match self.trees.get(&header.tree) {
                    Some(tree) if header.format == ChunkClass::BLOCK => {
                        let name = &tree.info().name;
                        (I58, format!("a block of tree {name:?} that no entry refers to"))
                    }
                    Some(tree) => {
                        let (name, level) = (&tree.info().name, header.level);
                        (
                            I33,
                            format!(
                                "a node of tree {name:?}, level {level}, that no pointer of the tree leads to"
                            ),
                        )
                    }
                    None => (I34, format!("a node of tree {}, which the catalog does not list", header.tree)),
                };
                Finding { server, part: Part::Place, at, client: ComputeId::NOBODY, invariant, detail }
            }
            Suspect::Span(SpanSeen { server, chunk, number, class, owner, free, .. }) => {
                let (at, _) =
                    self.worker.compute.geometry_of(server).span_range(chunk, class.node_bytes, number);
                let (invariant, detail) = match owner {
                    ComputeId::NOBODY => (
                        I45,
                        format!(
                            "{free} places are free, but no client owns the span and its hint is not set"
                        ),
                    ),
                    owner => (I36, format!("client {owner} still owns the span, but is not a member")),
                };
                Finding { server, part: Part::Span, at, client: owner, invariant, detail }
            }
            Suspect::Copies(difference) => Finding {
                server: difference.volume,
                part: Part::Copy,
                at: difference.at(),
                client: ComputeId::NOBODY,
                invariant: I55,
                detail: format!("the line at {:#x} differs between primary and backup", difference.offset),
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
                // A client dropped it meanwhile.
                Err(Error::NoSuchTree { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Collects every lane that is held.
    async fn lanes(&self, server: u16, tables: &mut Tables) -> Result<(), Error> {
        let lock = self.worker.compute.geometry_of(server).lock;
        let table =
            self.table(server, lock.space, lock.offset, u64::from(lock.count) * lock.width.bytes()).await?;
        for (lane, bytes) in (0..).zip(table.chunks_exact(lock.width.bytes() as usize)) {
            let holder = match lock.width {
                LaneWidth::Bits16 => ComputeId(get_u16(bytes, 0)),
                LaneWidth::Bits64 => ComputeId(get_u64(bytes, 0) as u16),
            };
            if holder != ComputeId::NOBODY {
                tables.lanes.push((server, lane, holder));
            }
        }
        Ok(())
    }

    /// Collects every client word that is not zero, and the records in its redo area.
    async fn clients(&self, server: u16, tables: &mut Tables) -> Result<(), Error> {
        let geometry = *self.worker.compute.geometry_of(server);
        let table =
            self.table(server, Space::Host, geometry.client_offset, geometry.client_table_bytes()).await?;
        for (client, word) in (0..).map(ComputeId).zip(table.chunks_exact(8)) {
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

    /// Collects every place of every chunk of nodes.
    async fn chunks(&self, server: u16, tables: &mut Tables) -> Result<(), Error> {
        let geometry = *self.worker.compute.geometry_of(server);
        let table = self
            .table(server, Space::Host, geometry.chunk_table_offset, geometry.chunk_table_bytes())
            .await?;
        for (chunk, word) in (0..).zip(table.chunks_exact(8)) {
            let Some(ChunkEntry::Nodes { class }) = ChunkEntry::from_bits(get_u64(word, 0)) else { continue };
            if !geometry.allows_class(class) {
                continue;
            }
            for number in 0..geometry.spans_in_chunk(class.node_bytes) {
                let seen = self.span(server, (chunk, number), class, tables).await?;
                tables.spans.extend(seen);
            }
        }
        Ok(())
    }

    /// Reads a span and all its places. Returns `None` if the span was never issued: then all its places are
    /// free, and the server knows that. Reads the places first, because freeing a place after that sets the
    /// hint.
    async fn span(
        &self,
        server: u16,
        (chunk, number): (u32, u64),
        class: ChunkClass,
        tables: &mut Tables,
    ) -> Result<Option<SpanSeen>, Error> {
        let geometry = *self.worker.compute.geometry_of(server);
        let (offset, bytes) = geometry.span_range(chunk, class.node_bytes, number);
        let offsets: Vec<u64> = (offset..offset + bytes).step_by(class.node_bytes as usize).collect();
        let most = (self.worker.endpoint.caps().max_verbs as usize).clamp(1, PLACES_PER_LIST);
        let (mut free, mut unused) = (0, 0);
        for some in offsets.chunks(most) {
            let mut list = self.worker.endpoint.list(server);
            let reads: Vec<_> =
                some.iter().map(|&offset| list.read(Space::Host, offset, LINE as u32)).collect();
            let list = self.op.execute(list).await?;
            for (&offset, &read) in some.iter().zip(&reads) {
                match Header::decode(list.bytes(read)) {
                    Some(header) => {
                        free += u64::from(header.flags.free);
                        tables.places.push((GlobalAddress::new(server, offset), header));
                    }
                    None => unused += 1,
                }
            }
            self.worker.endpoint.recycle(list);
        }
        tables.unused += unused;
        let entry =
            self.table(server, Space::Host, geometry.span_entry(chunk, number), SPAN_ENTRY_BYTES).await?;
        let word = SpanWord::from_bits(get_u64(&entry, 0)).unwrap_or_default();
        let (owner, hinted) = (word.owner, get_u64(&entry, 8) != 0);
        let seen = SpanSeen { server, chunk, number, class, owner, hinted, free: free + unused };
        Ok(word.issued.then_some(seen))
    }

    async fn header(&self, address: GlobalAddress) -> Result<Option<Header>, Error> {
        Ok(Header::decode(&self.op.read_bytes(address, LINE as u32).await?))
    }

    /// Reads a server's table piece by piece.
    async fn table(&self, server: u16, space: Space, offset: u64, bytes: u64) -> Result<Vec<u8>, Error> {
        let endpoint = &self.worker.endpoint;
        let piece = TABLE_READ.min(u64::from(endpoint.caps().max_transfer));
        let mut table = Vec::new();
        for at in (offset..offset + bytes).step_by(piece as usize) {
            let mut list = endpoint.list(server);
            let read = list.read(space, at, piece.min(offset + bytes - at) as u32);
            let list = self.op.execute(list).await?;
            table.extend_from_slice(list.bytes(read));
            endpoint.recycle(list);
        }
        Ok(table)
    }
}

impl Suspect {
    /// The id that the suspect names, if any.
    fn client(&self) -> Option<ComputeId> {
        match self {
            Self::Lane { holder: client, .. }
            | Self::ClientWord { client, .. }
            | Self::Record { owner: client, .. }
            | Self::Span(SpanSeen { owner: client, .. }) => Some(*client),
            Self::Pending { header, .. } => Some(header.owner),
            Self::Unreached { .. } | Self::Copies(_) => None,
        }
    }
}
