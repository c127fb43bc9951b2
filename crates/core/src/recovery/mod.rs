//! Recovery: mending what a dead compute server left behind, so that nobody waits for it and nothing is lost.
//!
//! Membership, kept by server 0, decides who is dead, and appoints who recovers it; nobody else does. The appointed one
//!
//! 1. **fences** the dead one on every memory server: from then on nothing of it executes anywhere (F6);
//! 2. **replays** its redo records ([`mod@replay`]): every change that was under way is finished or undone;
//! 3. **sweeps** its lanes ([`sweep`]): from then on everybody else goes on; and **relieves** it: those whom it was recovering itself may
//!    be recovered now;
//! 4. **reclaims** its memory ([`reclaim`]): free places, and nodes that never became part of a tree;
//! 5. **retires** its id on every server, server 0 last: only then may the id be issued again.
//!
//! The first three never wait for another client. The fourth may: it frees the nodes of trees that the dead one dropped, under their lanes,
//! and waits for nodes that others are making. If it waits for a member that may be dead, the recovery ends and is done again later, when
//! that member has been recovered.
//!
//! What must hold: every step can be done again, by another, from the beginning: the recoverer may die at any verb. So a record
//! is cleared only when what it asks for is done; nodes that end up in no tree are first marked free *as the dead one's*; and a
//! recoverer that dies is fenced and recovered itself before another takes its place ([`Verdict::Displaced`]).
//!
//! A memory server that the cluster has declared lost is passed over: what was there is gone. The control plane alone declares that. A
//! recoverer that cannot reach a server that counts as present is doomed itself: its recovery is not finished, the dead member keeps its
//! id, and another recoverer begins again.
//!
//! | module | what |
//! |---|---|
//! | [`keep`] | the keeper and the recoverer: renewing the lease, recovering suspects, leaving |
//! | [`mod@replay`] | records |
//! | [`sweep`] | lanes |
//! | [`load`] | linking what a loader left pending |
//! | [`reclaim`] | places |

pub mod keep;
pub mod load;
pub mod reclaim;
pub mod replay;
pub mod sweep;

use crate::error::Error;
use crate::mutant::{Mutant, planted};
use crate::node::{TreeShape, get_u64};
use crate::op::Op;
use crate::redo::Record;
use crate::worker::Worker;
use reclaim::Adopted;
use sherman_fabric::control::{ChunkClass, TreeInfo};
use sherman_fabric::{ClientId, Endpoint, FabricError, GlobalAddress, Request, Response, Space, Verdict};
use sherman_memory_server::{ChunkEntry, ClientWord};
use std::collections::BTreeSet;
use std::rc::Rc;

/// The server that keeps members and catalog.
const SERVER_0: u16 = 0;
/// Bytes of one READ of a table.
const TABLE_READ: u64 = 32 << 10;
/// Lists of a recovery that are in flight at once: a recoverer far away waits for one round trip, not for hundreds.
const LISTS_IN_FLIGHT: usize = 16;

/// What a recovery came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// What server 0 said last. Only after [`Verdict::Recover`] was anything done.
    pub verdict: Verdict,
    /// Records replayed.
    pub records: u64,
    /// Lanes swept.
    pub lanes: u64,
    /// Places taken over.
    pub places: u64,
}

impl Recovery {
    /// Nothing was done yet, or at all.
    fn nothing(verdict: Verdict) -> Self {
        Self { verdict, records: 0, lanes: 0, places: 0 }
    }
}

/// A record of the dead, and where it is.
struct Found {
    server: u16,
    offset: u64,
    record: Record,
}

/// A tree that the catalog lists.
struct Known {
    info: TreeInfo,
    shape: TreeShape,
}

/// Somebody being recovered.
struct Recoverer<'w, E: Endpoint> {
    op: Op<'w, E>,
    /// The dead one.
    dead: ClientId,
    /// The trees there are.
    trees: Vec<Rc<Known>>,
    /// Every server's chunks.
    chunks: Vec<Vec<ChunkEntry>>,
    /// Servers that are gone.
    lost: BTreeSet<u16>,
    /// Trees that are no more, of which the dead one may have left nodes.
    ended: BTreeSet<u32>,
    /// Loads that happened: the trees, and the records that say so.
    loads: Vec<(Rc<Known>, Found)>,
    adopted: Vec<Adopted>,
    /// Whether a node was found that another client is still making.
    waits: bool,
    report: Recovery,
}

impl<E: Endpoint> Worker<E> {
    /// Asks server 0 about `client` and, if it is dead and nobody else recovers it, recovers it: whoever recovered it and died
    /// at it first.
    ///
    /// # Errors
    /// [`Error::Fenced`] if this compute server is at its end itself; [`Error::Corrupt`] if a record makes no sense. What was not
    /// done is done when asked again.
    pub async fn recover(&self, client: ClientId) -> Result<Recovery, Error> {
        let mut chain = vec![client];
        loop {
            let whom = chain[chain.len() - 1];
            let stale = if planted(Mutant::StaleVerdict) { Some(self.ask(whom).await?) } else { None };
            // Before server 0 is asked: otherwise another thread of this compute server could finish in between, the id could be
            // issued again, and this thread would recover its new holder.
            let Some(_alone) = self.compute.membership.begin_recovery(whom) else {
                return Ok(Recovery::nothing(Verdict::Recovering { by: self.compute.client() }));
            };
            let verdict = match stale {
                Some(verdict) => verdict,
                None => self.ask(whom).await?,
            };
            // What was known of it before no longer counts.
            self.compute.membership.set_stalled(whom, false);
            match verdict {
                Verdict::Recover | Verdict::Displaced { .. }
                    if verdict == Verdict::Recover || planted(Mutant::RecoversBeside) =>
                {
                    let mut recoverer = Recoverer::new(self, whom, Recovery::nothing(verdict));
                    let outcome = recoverer.run().await;
                    recoverer.keep_adopted(outcome.is_ok());
                    if outcome == (Err(Error::OwnerStalled { client: whom })) {
                        self.compute.membership.set_stalled(whom, true);
                    }
                    outcome?;
                    self.compute.membership.count_recovery();
                    chain.pop();
                    if chain.is_empty() {
                        return Ok(recoverer.report);
                    }
                }
                Verdict::Displaced { by } if !chain.contains(&by) => chain.push(by),
                _ => return Ok(Recovery::nothing(verdict)),
            }
        }
    }

    /// What server 0 says of `client`.
    async fn ask(&self, client: ClientId) -> Result<Verdict, Error> {
        match self.op().call(SERVER_0, Request::Suspect { client }).await? {
            Response::Verdict(verdict) => Ok(verdict),
            _ => Err(Error::Unsupported { what: "the memory server's answer to a suspicion" }),
        }
    }
}

impl<'w, E: Endpoint> Recoverer<'w, E> {
    fn new(worker: &'w Worker<E>, dead: ClientId, report: Recovery) -> Self {
        Self {
            op: worker.op(),
            dead,
            trees: Vec::new(),
            chunks: Vec::new(),
            lost: BTreeSet::new(),
            ended: BTreeSet::new(),
            loads: Vec::new(),
            adopted: Vec::new(),
            waits: false,
            report,
        }
    }

    async fn run(&mut self) -> Result<(), Error> {
        let fence = |client| Request::Fence { client };
        if !planted(Mutant::ReplayWithoutFencing) && !planted(Mutant::TakeoverWithoutFencing) {
            self.on_every_server(fence).await?;
        }
        self.learn().await?;
        if planted(Mutant::SweepBeforeReplay) {
            self.sweep().await?;
        }
        let records = self.records().await?;
        self.report.records = records.len() as u64;
        self.replay(records).await?;
        if planted(Mutant::ReplayWithoutFencing) {
            self.on_every_server(fence).await?;
        }
        if !planted(Mutant::IdReissuedEarly) {
            self.sweep().await?;
        }
        // What follows may have to wait for others that are dead too, also for those whom this one was recovering.
        self.op.call(SERVER_0, Request::Relieve { client: self.dead }).await?;
        self.link_loads().await?;
        self.reclaim().await?;
        self.forget_loads().await?;
        if planted(Mutant::TakeoverWithoutFencing) {
            self.on_every_server(fence).await?;
        }
        self.on_every_server(|client| Request::TakeOver { client }).await?;
        self.keep_adopted(true);
        if planted(Mutant::FenceLeft) {
            self.op.call(SERVER_0, Request::Retire { client: self.dead }).await?;
            return Ok(());
        }
        self.on_every_server(|client| Request::Retire { client }).await?;
        if planted(Mutant::IdReissuedEarly) {
            self.sweep().await?;
        }
        Ok(())
    }

    /// Asks something of every server about the dead one; server 0 last.
    async fn on_every_server(&mut self, request: impl Fn(ClientId) -> Request) -> Result<(), Error> {
        for server in (0..self.op.endpoint().servers()).rev() {
            self.expect_alive()?;
            let answer = self.op.call(server, request(self.dead)).await;
            self.unless_lost(server, answer)?;
        }
        Ok(())
    }

    /// The outcome, unless the cluster has declared the server lost.
    fn unless_lost<T>(&mut self, server: u16, outcome: Result<T, FabricError>) -> Result<Option<T>, Error> {
        match outcome {
            Ok(value) => Ok(Some(value)),
            Err(FabricError::ServerLost { .. }) if server != SERVER_0 => {
                self.lost.insert(server);
                Ok(None)
            }
            Err(FabricError::Disconnected { .. }) if server != SERVER_0 && planted(Mutant::PrivateLoss) => {
                self.lost.insert(server);
                Ok(None)
            }
            Err(FabricError::OwnerStalled { .. }) if planted(Mutant::StallIgnored) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Fails once the recoverer itself is doomed.
    fn expect_alive(&self) -> Result<(), Error> {
        self.op.worker.expect_alive()
    }

    /// Reads catalog and chunk tables.
    async fn learn(&mut self) -> Result<(), Error> {
        let Response::Trees(infos) = self.op.call(SERVER_0, Request::ListTrees).await? else {
            return Err(Error::Unsupported { what: "the memory server's answer to a catalog request" });
        };
        for info in infos {
            let shape = TreeShape::new(&info.spec, info.id)?;
            self.trees.push(Rc::new(Known { info, shape }));
        }
        self.learn_chunks().await
    }

    /// Reads the chunk tables.
    async fn learn_chunks(&mut self) -> Result<(), Error> {
        self.chunks.clear();
        for server in 0..self.op.endpoint().servers() {
            let geometry = *self.op.worker.compute.geometry_of(server);
            let table = self.read_table(server, Space::Host, geometry.chunk_table_offset, geometry.chunk_table_bytes());
            let table = table.await?;
            let entries = table.chunks_exact(8).map(|word| {
                ChunkEntry::from_bits(get_u64(word, 0)).filter(|entry| match entry {
                    ChunkEntry::Free { class } | ChunkEntry::Issued { class, .. } => {
                        geometry.allows_node_bytes(class.node_bytes)
                    }
                    ChunkEntry::Unused | ChunkEntry::Redo => true,
                })
            });
            let entries: Option<Vec<ChunkEntry>> = entries.collect();
            let address = GlobalAddress::new(server, geometry.chunk_table_offset);
            let corrupt = Error::Corrupt { address, invariant: "I11: a chunk has one class" };
            self.chunks.push(entries.ok_or(corrupt)?);
        }
        Ok(())
    }

    /// A server's table, read piece by piece, many pieces in flight at once; empty if the server is lost.
    async fn read_table(&mut self, server: u16, space: Space, offset: u64, bytes: u64) -> Result<Vec<u8>, Error> {
        let mut table = Vec::new();
        if self.lost.contains(&server) {
            return Ok(table);
        }
        let caps = self.op.endpoint().caps();
        let (piece, reads_per_list) = match space {
            Space::Host => (TABLE_READ.min(u64::from(caps.max_transfer)), 1),
            // On-chip memory is read by words (F1).
            Space::OnChip => (8, caps.max_verbs.max(1)),
        };
        let mut at = offset;
        while at < offset + bytes {
            self.expect_alive()?;
            let (mut lists, mut reads) = (Vec::new(), Vec::new());
            while at < offset + bytes && lists.len() < LISTS_IN_FLIGHT {
                let mut list = self.op.endpoint().list(server);
                while at < offset + bytes && (list.len() as u32) < reads_per_list {
                    let len = piece.min(offset + bytes - at);
                    reads.push((lists.len(), list.read(space, at, len as u32)));
                    at += len;
                }
                lists.push(list);
            }
            let outcome = self.op.execute_all(lists).await;
            let Some(lists) = self.unless_lost(server, outcome)? else { return Ok(Vec::new()) };
            reads.into_iter().for_each(|(list, read)| table.extend_from_slice(lists[list].bytes(read)));
            lists.into_iter().for_each(|list| self.op.endpoint().recycle(list));
        }
        Ok(table)
    }

    /// Every record of the dead one, on every server.
    async fn records(&mut self) -> Result<Vec<Found>, Error> {
        let mut found = Vec::new();
        for server in 0..self.op.endpoint().servers() {
            let geometry = *self.op.worker.compute.geometry_of(server);
            let word = self.read_table(server, Space::Host, geometry.client_entry(self.dead), 8).await?;
            let word = word.first_chunk::<8>().map_or(0, |word| u64::from_le_bytes(*word));
            let Some(area) = ClientWord::from_bits(word).and_then(|word| word.redo_area) else { continue };
            self.expect_alive()?;
            let bytes = self.read_table(server, Space::Host, area, geometry.redo_area_bytes).await?;
            let slot_bytes = geometry.redo_slot_bytes as usize;
            for (slot, bytes) in bytes.chunks_exact(slot_bytes).enumerate() {
                let offset = area + (slot * slot_bytes) as u64;
                let record = Record::decode(bytes).filter(|record| record.owner == self.dead);
                found.extend(record.map(|record| Found { server, offset, record }));
            }
        }
        Ok(found)
    }

    fn tree(&self, id: u32) -> Option<Rc<Known>> {
        self.trees.iter().find(|tree| tree.info.id == id).map(Rc::clone)
    }

    /// What the place at `address` is cut for; an address that is no place is corrupt.
    fn class_at(&self, address: GlobalAddress) -> Result<ChunkClass, Error> {
        let entry = self.chunks.get(usize::from(address.server())).and_then(|chunks| {
            let index = self.op.worker.compute.geometry_of(address.server()).chunk_at(address.offset())?;
            chunks.get(index as usize)
        });
        match entry {
            Some(ChunkEntry::Issued { class, .. }) => {
                self.op.worker.compute.check_pointer(address, class.node_bytes as usize)?;
                Ok(*class)
            }
            _ => Err(Error::Corrupt { address, invariant: "I1: a pointer names memory of the cluster" }),
        }
    }

    /// The whole node at `address`; `None` if its server is gone.
    async fn read_node(&mut self, address: GlobalAddress) -> Result<Option<Vec<u8>>, Error> {
        if self.lost.contains(&address.server()) {
            return Ok(None);
        }
        let bytes = self.class_at(address)?.node_bytes;
        self.read_bytes(address, bytes).await
    }

    /// Bytes of a node, or all of it; `None` if its server is gone.
    async fn read_bytes(&mut self, address: GlobalAddress, bytes: u32) -> Result<Option<Vec<u8>>, Error> {
        let mut list = self.op.endpoint().list(address.server());
        let read = list.read(Space::Host, address.offset(), bytes);
        let outcome = self.op.execute(list).await;
        let Some(list) = self.unless_lost(address.server(), outcome)? else { return Ok(None) };
        let image = list.bytes(read).to_vec();
        self.op.endpoint().recycle(list);
        Ok(Some(image))
    }

    /// Writes bytes of a node.
    async fn write_node(&mut self, address: GlobalAddress, at: usize, bytes: &[u8]) -> Result<(), Error> {
        let mut list = self.op.endpoint().list(address.server());
        list.write(Space::Host, address.offset() + at as u64, bytes);
        let outcome = self.op.execute(list).await;
        if let Some(list) = self.unless_lost(address.server(), outcome)? {
            self.op.endpoint().recycle(list);
        }
        Ok(())
    }

    /// The root word of a tree.
    async fn root_word(&mut self, root_word: u64) -> Result<u64, Error> {
        Ok(get_u64(&self.read_table(SERVER_0, Space::Host, root_word, 8).await?, 0))
    }
}
