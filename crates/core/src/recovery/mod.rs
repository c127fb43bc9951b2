//! Recovery: mending what dead compute servers left behind, so that nobody waits for them and nothing is lost.
//!
//! Membership, kept by server 0, decides who is dead, and appoints who recovers it; nobody else does. The appointed one
//!
//! 1. **fences** the dead one on every memory server: from then on nothing of it executes anywhere (F6);
//! 2. **replays** its redo records ([`mod@replay`]): every change that was under way is finished or undone;
//! 3. **sweeps** its lanes ([`sweep`]): from then on everybody else goes on; and **relieves** it: those whom it was recovering itself may
//!    be recovered now;
//! 4. **clears** the spans that it owned ([`spans`]) of nodes that never became part of a tree, and finishes its loads and drops;
//! 5. **retires** its id on every server, server 0 last: its spans are nobody's then, and the id may be issued again.
//!
//! A recoverer takes several dead members at a time through these steps, with many requests in flight. What it costs is in proportion to what they held: the first line of
//! every slot of their redo areas, the lane table of every server once for all of them, and the first line of every place in the spans that they
//! owned. Nothing of anybody else is looked at, except the nodes of a tree that a dead member was loading or dropping.
//!
//! The first three steps never wait for another client. The fourth may: it frees the nodes of trees that the dead one dropped, under their lanes.
//! If it waits for a member that may be dead, the recovery ends and is done again later, when that member has been recovered. A member whose recovery fails
//! delays none of the others.
//!
//! What must hold: every step can be done again, by another, from the beginning: the recoverer may die at any verb. So a record
//! is cleared only when what it asks for is done, and a recoverer that dies is fenced and recovered itself before another takes its place
//! ([`Verdict::Displaced`]).
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
//! | [`spans`] | spans |

pub mod keep;
pub mod load;
pub mod replay;
pub mod spans;
pub mod sweep;

use crate::compute::ComputeServer;
use crate::doubt::{Doubt, Fate};
use crate::error::Error;
use crate::membership::Recovering;
use crate::mutant::{Mutant, planted};
use crate::node::{LINE, get_u64};
use crate::op::Op;
use crate::redo::Record;
use crate::tree::TreeState;
use crate::worker::Worker;
use sherman_fabric::WorkList;
use sherman_fabric::control::{ChunkClass, TreeInfo};
use sherman_fabric::{ClientId, Endpoint, FabricError, GlobalAddress, Request, Response, Space, VerbId, Verdict};
use sherman_memory_server::{ChunkEntry, ClientWord};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The server that keeps members and catalog.
const SERVER_0: u16 = 0;
/// Bytes of one READ of a table.
const TABLE_READ: u64 = 32 << 10;
/// Lists of a recovery that are in flight at once: a recoverer far away waits for one round trip, not for hundreds.
const LISTS_IN_FLIGHT: usize = 16;
/// Dead members that one pass recovers: others may be recovered by other survivors meanwhile.
const BATCH: usize = 64;

/// What a recovery came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// What server 0 said last. Only after [`Verdict::Recover`] was anything done.
    pub verdict: Verdict,
    /// Records replayed.
    pub records: u64,
    /// Lanes swept.
    pub lanes: u64,
    /// Spans looked at.
    pub spans: u64,
    /// Nodes found there that never became part of a tree.
    pub places: u64,
}

impl Recovery {
    /// Nothing was done yet, or at all.
    fn nothing(verdict: Verdict) -> Self {
        Self { verdict, records: 0, lanes: 0, spans: 0, places: 0 }
    }
}

/// A record of the dead, and where it is.
struct Found {
    server: u16,
    offset: u64,
    record: Record,
}

/// One dead member, and how its recovery goes.
struct Patient<'w> {
    report: Recovery,
    /// Why its recovery cannot go on now.
    failed: Option<Error>,
    /// Loads that happened: the trees, and the records that say so.
    loads: Vec<(Arc<TreeState>, Found)>,
    /// Trees that are gone, and nodes of which all that they lead to is to be freed: with the records that say so.
    drops: Vec<(Arc<TreeState>, Found)>,
    /// Nobody else in this compute server recovers it.
    _alone: Recovering<'w>,
}

/// Dead members being recovered together.
struct Recoverer<'w, E: Endpoint> {
    op: Op<'w, E>,
    dead: BTreeMap<ClientId, Patient<'w>>,
    /// The trees that the catalog lists, and those that records speak of.
    trees: BTreeMap<u32, (Arc<TreeState>, bool)>,
    /// What chunks are cut into, as far as it was asked.
    classes: BTreeMap<(u16, u32), ChunkClass>,
    /// Servers that are gone.
    lost: BTreeSet<u16>,
    /// Changes whose fate is to be told before lanes are swept.
    doubts: Vec<Arc<Doubt>>,
}

impl<E: Endpoint> Worker<E> {
    /// Asks server 0 about `client` and, if it is dead and nobody else recovers it, recovers it: whoever recovered it and died
    /// at it first.
    ///
    /// # Errors
    /// [`Error::Fenced`] if this compute server is at its end itself; [`Error::Corrupt`] if a record makes no sense. What was not
    /// done is done when asked again.
    pub async fn recover(&self, client: ClientId) -> Result<Recovery, Error> {
        let mut outcomes = self.recover_many(&[client]).await?;
        outcomes.remove(&client).unwrap_or(Ok(Recovery::nothing(Verdict::Gone)))
    }

    /// The same for several members at once: what came of each.
    ///
    /// # Errors
    /// [`Error::Fenced`] if this compute server is at its end itself, and other errors that concern all of them.
    pub async fn recover_many(
        &self,
        clients: &[ClientId],
    ) -> Result<BTreeMap<ClientId, Result<Recovery, Error>>, Error> {
        // Whoever recovers changes memory.
        self.activate_to_recover().await?;
        let mut outcomes = BTreeMap::new();
        for some in clients.chunks(BATCH) {
            self.recover_batch(some, &mut outcomes).await?;
        }
        Ok(outcomes)
    }

    async fn recover_batch(
        &self,
        clients: &[ClientId],
        outcomes: &mut BTreeMap<ClientId, Result<Recovery, Error>>,
    ) -> Result<(), Error> {
        let mut wanted: BTreeSet<ClientId> = clients.iter().copied().collect();
        loop {
            let mut recoverer = Recoverer::new(self);
            let mut asked = BTreeSet::new();
            // Those that must be recovered first are asked about too.
            while let Some(next) = recoverer.admit(&wanted, &mut asked, outcomes).await? {
                wanted.extend(next);
            }
            if recoverer.dead.is_empty() {
                return Ok(());
            }
            let outcome = recoverer.run().await;
            let mut any = false;
            for (client, patient) in recoverer.dead {
                wanted.remove(&client);
                let failed = patient.failed.or(outcome.clone().err());
                let stalled = failed == Some(Error::OwnerStalled { client });
                self.compute.membership.set_stalled(client, stalled);
                if failed.is_none() {
                    self.compute.membership.count_recovery();
                    any = true;
                }
                outcomes.insert(client, failed.map_or(Ok(patient.report), Err));
            }
            outcome?;
            // Those that somebody recovered who is relieved by now; nobody else is asked about again.
            wanted.retain(|client| {
                let displaced = |outcome: &Result<Recovery, Error>| {
                    matches!(outcome, Ok(Recovery { verdict: Verdict::Displaced { .. }, .. }))
                };
                outcomes.get(client).is_some_and(displaced)
            });
            // If none of those could be recovered, who waits for them waits for the next time.
            if wanted.is_empty() || !any {
                return Ok(());
            }
        }
    }

    /// Recovers an earlier identity of this process, and before its lanes are swept tells the fates of its changes in doubt.
    pub(crate) async fn succeed(&self, former: &ComputeServer, doubts: &[Arc<Doubt>]) -> Result<(), Error> {
        let client = former.client();
        // One that was never active left nothing.
        let Some(incarnation) = former.incarnation() else { return Ok(()) };
        self.activate_to_recover().await?;
        let Some(alone) = self.compute.membership.begin_recovery(client) else { return Ok(()) };
        let verdict = match self.op().call(SERVER_0, Request::Succeed { client, incarnation }).await? {
            Response::Verdict(verdict) => verdict,
            _ => return Err(Error::Unsupported { what: "the memory server's answer to a suspicion" }),
        };
        if !matches!(verdict, Verdict::Inherit | Verdict::Recover) {
            return Ok(());
        }
        let mut recoverer = Recoverer::new(self);
        let report = Recovery::nothing(verdict);
        let (loads, drops) = (Vec::new(), Vec::new());
        recoverer.dead.insert(client, Patient { report, failed: None, loads, drops, _alone: alone });
        if verdict == Verdict::Inherit {
            recoverer.doubts = doubts.to_vec();
        }
        recoverer.run().await?;
        let failed = recoverer.dead.remove(&client).and_then(|patient| patient.failed);
        if failed.is_none() {
            self.compute.membership.count_recovery();
        }
        failed.map_or(Ok(()), Err)
    }

    /// What server 0 says of some clients.
    async fn ask(&self, clients: &[ClientId]) -> Result<Vec<Verdict>, Error> {
        let op = self.op();
        let requests = clients.iter().map(|&client| (SERVER_0, Request::Suspect { client })).collect();
        let verdicts = op.call_all(requests).await.into_iter().map(|answer| match answer? {
            Response::Verdict(verdict) => Ok(verdict),
            _ => Err(Error::Unsupported { what: "the memory server's answer to a suspicion" }),
        });
        verdicts.collect()
    }
}

impl<'w, E: Endpoint> Recoverer<'w, E> {
    fn new(worker: &'w Worker<E>) -> Self {
        Self {
            op: worker.op(),
            dead: BTreeMap::new(),
            trees: BTreeMap::new(),
            classes: BTreeMap::new(),
            lost: BTreeSet::new(),
            doubts: Vec::new(),
        }
    }

    /// Asks about those of `wanted` that it has not asked about, and takes in those that it is to recover. Those that must be recovered
    /// before some of them; `None` if there is nobody left to ask about.
    async fn admit(
        &mut self,
        wanted: &BTreeSet<ClientId>,
        asked: &mut BTreeSet<ClientId>,
        outcomes: &mut BTreeMap<ClientId, Result<Recovery, Error>>,
    ) -> Result<Option<Vec<ClientId>>, Error> {
        let worker = self.op.worker;
        let new: Vec<ClientId> = wanted.difference(asked).copied().collect();
        asked.extend(&new);
        if new.is_empty() {
            return Ok(None);
        }
        let stale = if planted(Mutant::StaleVerdict) { Some(worker.ask(&new).await?) } else { None };
        // Before server 0 is asked: otherwise another thread of this compute server could finish in between, the id could be
        // issued again, and this thread would recover its new holder.
        let mut alone = Vec::new();
        for &client in &new {
            match worker.compute.membership.begin_recovery(client) {
                Some(guard) => alone.push((client, guard)),
                None => {
                    let by = Verdict::Recovering { by: worker.compute.client() };
                    outcomes.insert(client, Ok(Recovery::nothing(by)));
                }
            }
        }
        let clients: Vec<ClientId> = alone.iter().map(|(client, _)| *client).collect();
        let verdicts = match stale {
            Some(verdicts) => {
                let verdicts = verdicts.into_iter().zip(&new).filter(|(_, client)| clients.contains(client));
                verdicts.map(|(verdict, _)| verdict).collect()
            }
            None => worker.ask(&clients).await?,
        };
        let mut first = Vec::new();
        for ((client, guard), verdict) in alone.into_iter().zip(verdicts) {
            // What was known of it before no longer counts.
            worker.compute.membership.set_stalled(client, false);
            let report = Recovery::nothing(verdict);
            match verdict {
                Verdict::Recover | Verdict::Displaced { .. }
                    if verdict == Verdict::Recover || planted(Mutant::RecoversBeside) =>
                {
                    let (loads, drops) = (Vec::new(), Vec::new());
                    self.dead.insert(client, Patient { report, failed: None, loads, drops, _alone: guard });
                }
                Verdict::Displaced { by } => {
                    outcomes.insert(client, Ok(report));
                    first.push(by);
                }
                _ => {
                    outcomes.insert(client, Ok(report));
                }
            }
        }
        Ok(Some(first))
    }

    /// The members whose recovery goes on.
    fn going(&self) -> Vec<ClientId> {
        let going = self.dead.iter().filter(|(_, patient)| patient.failed.is_none());
        going.map(|(&client, _)| client).collect()
    }

    /// Ends the recovery of one member for now. An error that concerns this compute server ends all of them.
    fn fail(&mut self, client: ClientId, error: Error) -> Result<(), Error> {
        if matches!(error, Error::Fenced { .. } | Error::Fabric(_) | Error::ServerLost { .. }) {
            return Err(error);
        }
        if let Some(patient) = self.dead.get_mut(&client) {
            patient.failed = Some(error);
        }
        Ok(())
    }

    async fn run(&mut self) -> Result<(), Error> {
        let fence = |client| Request::Fence { client };
        if !planted(Mutant::ReplayWithoutFencing) && !planted(Mutant::TakeoverWithoutFencing) {
            self.on_every_server(fence).await?;
        }
        self.tell_fates().await?;
        self.learn().await?;
        if planted(Mutant::SweepBeforeReplay) {
            self.sweep().await?;
        }
        for (client, records) in self.records().await? {
            if let Err(error) = self.replay(client, records).await {
                self.fail(client, error)?;
            }
        }
        if planted(Mutant::ReplayWithoutFencing) {
            self.on_every_server(fence).await?;
        }
        if !planted(Mutant::IdReissuedEarly) {
            self.sweep().await?;
        }
        // What follows may have to wait for others that are dead too, also for those whom these were recovering.
        self.on_server_0(|client| Request::Relieve { client }).await?;
        for client in self.going() {
            if let Err(error) = self.finish(client).await {
                self.fail(client, error)?;
            }
        }
        if planted(Mutant::TakeoverWithoutFencing) {
            self.on_every_server(fence).await?;
        }
        if planted(Mutant::FenceLeft) {
            return self.on_server_0(|client| Request::Retire { client }).await;
        }
        self.on_every_server(|client| Request::Retire { client }).await?;
        if planted(Mutant::IdReissuedEarly) {
            self.sweep().await?;
        }
        Ok(())
    }

    /// Tells what became of changes of one line whose outcome is unknown. Nothing of their client executes any more, and its lanes are as it left
    /// them: where it does not hold the lane, the list that gave it back was executed to its end; where it does, the line shows it.
    async fn tell_fates(&mut self) -> Result<(), Error> {
        let Some(dead) = self.going().first().copied() else { return Ok(()) };
        for doubt in std::mem::take(&mut self.doubts) {
            let server = doubt.node().server();
            let stretch = (doubt.offset(), doubt.bytes().len() as u32);
            let line = self.read_all(server, Space::Host, &[stretch]).await?.pop();
            let Some(line) = line else { continue };
            let held = self.holds_lane(doubt.node(), dead).await?;
            doubt.settle(if !held || line == doubt.bytes() { Fate::Done } else { Fate::NotDone });
        }
        Ok(())
    }

    /// What may wait for others: the loads and drops of one dead member, and the nodes that it made in vain.
    async fn finish(&mut self, client: ClientId) -> Result<(), Error> {
        self.link_loads(client).await?;
        self.clear_spans(client).await?;
        self.finish_drops(client).await?;
        self.forget_loads(client).await
    }

    /// Asks something of every server about each of the dead; server 0 last.
    async fn on_every_server(&mut self, request: impl Fn(ClientId) -> Request) -> Result<(), Error> {
        self.expect_alive()?;
        let others: Vec<u16> = (1..self.op.endpoint().servers()).rev().collect();
        self.on_servers(&others, &request).await?;
        self.on_servers(&[SERVER_0], &request).await
    }

    async fn on_server_0(&mut self, request: impl Fn(ClientId) -> Request) -> Result<(), Error> {
        self.on_servers(&[SERVER_0], &request).await
    }

    async fn on_servers(&mut self, servers: &[u16], request: &impl Fn(ClientId) -> Request) -> Result<(), Error> {
        let going = self.going();
        let asked: Vec<(ClientId, u16)> =
            going.iter().flat_map(|&client| servers.iter().map(move |&server| (client, server))).collect();
        let requests = asked.iter().map(|&(client, server)| (server, request(client))).collect();
        let answers = self.op.call_all(requests).await;
        for ((client, server), answer) in asked.into_iter().zip(answers) {
            match self.unless_lost(server, answer) {
                Ok(_) => {}
                Err(error) => self.fail(client, error)?,
            }
        }
        self.expect_alive()
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

    /// Reads the catalog.
    async fn learn(&mut self) -> Result<(), Error> {
        let Response::Trees(infos) = self.op.call(SERVER_0, Request::ListTrees).await? else {
            return Err(Error::Unsupported { what: "the memory server's answer to a catalog request" });
        };
        for info in infos {
            let id = info.id;
            self.trees.insert(id, (TreeState::new(info, 0, false)?, true));
        }
        Ok(())
    }

    /// The tree that a record is about, and whether the catalog listed it.
    fn tree_of(&mut self, record: &Record) -> Result<(Arc<TreeState>, bool), Error> {
        if let Some((tree, listed)) = self.trees.get(&record.tree) {
            return Ok((Arc::clone(tree), *listed));
        }
        let info = TreeInfo { id: record.tree, name: String::new(), spec: record.spec, root_word: 0 };
        let invariant = "I25: a record has the shape of its tree";
        let tree = TreeState::new(info, 0, false).map_err(|_| Error::Corrupt { address: record.node, invariant })?;
        self.trees.insert(record.tree, (Arc::clone(&tree), false));
        Ok((tree, false))
    }

    /// Reads several stretches of a server's memory, many lists in flight at once; nothing if the server is lost.
    async fn read_all(&mut self, server: u16, space: Space, stretches: &[(u64, u32)]) -> Result<Vec<Vec<u8>>, Error> {
        let mut read = Vec::with_capacity(stretches.len());
        if self.lost.contains(&server) {
            return Ok(read);
        }
        let caps = self.op.endpoint().caps();
        let (most_verbs, most_bytes) = (caps.max_verbs.max(1) as usize, TABLE_READ.min(u64::from(caps.max_transfer)));
        let mut left = stretches.iter().peekable();
        while left.peek().is_some() {
            self.expect_alive()?;
            let (mut lists, mut reads): (Vec<WorkList>, Vec<(usize, VerbId)>) = (Vec::new(), Vec::new());
            while left.peek().is_some() && lists.len() < LISTS_IN_FLIGHT {
                let (mut list, mut bytes) = (self.op.endpoint().list(server), 0);
                while let Some(&&(at, len)) = left.peek()
                    && list.len() < most_verbs
                    && (list.is_empty() || bytes + u64::from(len) <= most_bytes)
                {
                    reads.push((lists.len(), list.read(space, at, len)));
                    bytes += u64::from(len);
                    left.next();
                }
                lists.push(list);
            }
            let outcome = self.op.execute_all(lists).await;
            let Some(lists) = self.unless_lost(server, outcome)? else { return Ok(Vec::new()) };
            read.extend(reads.into_iter().map(|(list, read)| lists[list].bytes(read).to_vec()));
            lists.into_iter().for_each(|list| self.op.endpoint().recycle(list));
        }
        Ok(read)
    }

    /// A server's table, read piece by piece; empty if the server is lost.
    async fn read_table(&mut self, server: u16, space: Space, offset: u64, bytes: u64) -> Result<Vec<u8>, Error> {
        let piece = TABLE_READ.min(u64::from(self.op.endpoint().caps().max_transfer));
        let pieces = (offset..offset + bytes).step_by(piece as usize);
        let pieces: Vec<(u64, u32)> = pieces.map(|at| (at, piece.min(offset + bytes - at) as u32)).collect();
        Ok(self.read_all(server, space, &pieces).await?.concat())
    }

    /// Every record of the dead, on every server: the first line of each slot, and the rest of those that have one.
    async fn records(&mut self) -> Result<BTreeMap<ClientId, Vec<Found>>, Error> {
        let going = self.going();
        let mut found: BTreeMap<ClientId, Vec<Found>> = going.iter().map(|&client| (client, Vec::new())).collect();
        for server in 0..self.op.endpoint().servers() {
            let geometry = *self.op.worker.compute.geometry_of(server);
            let words: Vec<(u64, u32)> = going.iter().map(|&client| (geometry.client_entry(client), 8)).collect();
            let words = self.read_all(server, Space::Host, &words).await?;
            let mut slots = Vec::new();
            for (&client, word) in going.iter().zip(words) {
                let Some(area) = ClientWord::from_bits(get_u64(&word, 0)).and_then(|word| word.redo_area) else {
                    continue;
                };
                let offsets = (0..u64::from(geometry.redo_slots(geometry.redo_area_bytes)))
                    .map(|slot| area + slot * u64::from(geometry.redo_slot_bytes));
                slots.extend(offsets.map(|offset| (client, offset)));
            }
            let lines: Vec<(u64, u32)> = slots.iter().map(|&(_, offset)| (offset, LINE as u32)).collect();
            let lines = self.read_all(server, Space::Host, &lines).await?;
            for ((client, offset), line) in slots.into_iter().zip(lines) {
                let Some(len) = Record::length(&line, client, geometry.redo_slot_bytes) else { continue };
                let bytes = self.read_table(server, Space::Host, offset, u64::from(len)).await?;
                let record = Record::decode(&bytes).filter(|record| record.owner == client);
                let records = found.entry(client).or_default();
                records.extend(record.map(|record| Found { server, offset, record }));
            }
        }
        for (client, records) in &found {
            if let Some(patient) = self.dead.get_mut(client) {
                patient.report.records = records.len() as u64;
            }
        }
        Ok(found)
    }

    /// What the place at `address` is cut for; `None` if its server is gone. An address that is no place is corrupt.
    async fn class_at(&mut self, address: GlobalAddress) -> Result<Option<ChunkClass>, Error> {
        let corrupt = || Error::Corrupt { address, invariant: "I1: a pointer names memory of the cluster" };
        let server = address.server();
        if server >= self.op.endpoint().servers() {
            return Err(corrupt());
        }
        let geometry = *self.op.worker.compute.geometry_of(server);
        let index = geometry.chunk_at(address.offset()).ok_or_else(corrupt)?;
        let class = match self.classes.get(&(server, index)) {
            Some(class) => *class,
            None => {
                let entry = self.read_table(server, Space::Host, geometry.chunk_entry(index), 8).await?;
                match entry.first_chunk::<8>().and_then(|word| ChunkEntry::from_bits(u64::from_le_bytes(*word))) {
                    Some(ChunkEntry::Nodes { class }) if geometry.allows_node_bytes(class.node_bytes) => class,
                    _ if self.lost.contains(&server) => return Ok(None),
                    _ => return Err(corrupt()),
                }
            }
        };
        self.classes.insert((server, index), class);
        self.op.worker.compute.check_pointer(address, class.node_bytes as usize)?;
        Ok(Some(class))
    }

    /// The whole node at `address`; `None` if its server is gone.
    async fn read_node(&mut self, address: GlobalAddress) -> Result<Option<Vec<u8>>, Error> {
        if self.lost.contains(&address.server()) {
            return Ok(None);
        }
        match self.class_at(address).await? {
            Some(class) => self.read_bytes(address, class.node_bytes).await,
            None => Ok(None),
        }
    }

    /// Bytes of a node, or all of it; `None` if its server is gone.
    async fn read_bytes(&mut self, address: GlobalAddress, bytes: u32) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.read_all(address.server(), Space::Host, &[(address.offset(), bytes)]).await?.pop())
    }

    /// Writes bytes of a node.
    async fn write_node(&mut self, address: GlobalAddress, at: usize, bytes: &[u8]) -> Result<(), Error> {
        let mut list = self.op.endpoint().list(address.server());
        list.write(Space::Host, address.offset() + at as u64, bytes);
        self.execute(list).await
    }

    /// Executes a list, unless its server is gone.
    async fn execute(&mut self, list: WorkList) -> Result<(), Error> {
        let server = list.server();
        let outcome = self.op.execute(list).await;
        if let Some(list) = self.unless_lost(server, outcome)? {
            self.op.endpoint().recycle(list);
        }
        Ok(())
    }

    /// Writes the free mark of a node, if it has none, and the hint of its span behind it.
    async fn write_free(&mut self, address: GlobalAddress, line: Option<&[u8]>) -> Result<(), Error> {
        let Some(class) = self.class_at(address).await? else { return Ok(()) };
        let mut list = self.op.endpoint().list(address.server());
        if let Some(line) = line {
            list.write(Space::Host, address.offset(), line);
        }
        self.op.push_hint(&mut list, address, class);
        self.execute(list).await
    }

    /// The root word of a tree.
    async fn root_word(&mut self, root_word: u64) -> Result<u64, Error> {
        Ok(get_u64(&self.read_table(SERVER_0, Space::Host, root_word, 8).await?, 0))
    }
}
