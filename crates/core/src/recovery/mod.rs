//! Recovery repairs what dead compute servers left behind, so that no client waits for them and nothing is
//! lost.
//!
//! The control state keeps the membership. It alone decides which member is dead, and it appoints the
//! recoverer. The recoverer
//!
//! 1. **fences** the dead member on every volume: from then on none of its verbs executes anywhere
//!    (F6);
//!    with replication, it makes the copies of every volume equal ([`copies`]);
//! 2. **replays** its redo records ([`mod@replay`]): it finishes or undoes every change that was under way;
//!    Then it settles the blocks of long values that the member was putting or removing ([`blocks`]);
//! 3. **sweeps** its lanes ([`sweep`]), so that all other clients go on; and **relieves** it: the members
//!    that it was recovering itself may be recovered now;
//! 4. **clears** the spans that it owned ([`spans`]) of nodes that never became part of a tree, and finishes
//!    its loads and drops;
//! 5. **retires** it on every volume: its spans then have no owner. Then it **frees** the id: control may
//!    issue it again.
//!
//! `STEPS` is the exact list, and one loop executes it. A lane is a lock in the lane table of a memory
//! server.
//!
//! A recoverer takes several dead members through these steps at a time, with many requests in flight. The
//! cost is proportional to what these members held. The recoverer reads the first line of every slot of their
//! redo areas. It reads the lane table of every server once for all of them. And it reads the first line of
//! every place in the spans that they owned. It reads nothing of other clients, except the nodes of a tree
//! that a dead member was loading or dropping.
//!
//! The first three steps never wait for another client. The fourth may wait: it frees the nodes of trees that
//! the dead member dropped, under their lanes. If it waits for a member that may be dead, the recovery ends.
//! The recoverer repeats it later, when that member has been recovered. A member whose recovery fails delays
//! no other member.
//!
//! What must hold: another recoverer can repeat every step from the beginning, because a recoverer may die at
//! any verb. So a record is cleared only when the work that it asks for is done. A recoverer that dies is
//! fenced and recovered itself before another takes its place ([`Verdict::Displaced`]).
//!
//! A recoverer needs no redo area, so a full memory never prevents a recovery. It changes the dead member's
//! nodes under the lanes that this member holds, and logs these changes in the member's own redo slots.
//!
//! A recoverer skips a memory server that the cluster has declared lost: its contents are gone. The control
//! plane alone declares a server lost. A recoverer that cannot reach a server that counts as present is
//! terminated itself. Its recovery is then not finished, the dead member keeps its id, and another recoverer
//! begins again.
//!
//! | module | what |
//! |---|---|
//! | [`keep`] | the keeper and the recoverer: renewing the lease, recovering suspects, leaving |
//! | [`copies`] | copies of volumes |
//! | [`mod@replay`] | records |
//! | [`blocks`] | long values that it was putting or removing |
//! | [`sweep`] | lanes |
//! | [`load`] | linking what a loader left pending |
//! | `older` | waiting for identities of older epochs before a dropped tree is freed |
//! | [`spans`] | spans |

pub mod blocks;
pub mod copies;
pub mod keep;
pub mod load;
mod older;
pub mod replay;
#[cfg(feature = "mutants")]
mod seam;
pub mod spans;
pub mod sweep;

use crate::compute::ComputeServer;
use crate::doubt::{Doubt, Fate};
use crate::error::Error;
use crate::membership::Recovering;
use crate::node::mark::Marked;
use crate::node::{LINE, get_u64};
use crate::op::Op;
use crate::redo::Record;
use crate::tree::TreeState;
use crate::worker::Worker;
use sherman_fabric::control::{ChunkClass, TreeInfo};
use sherman_fabric::{
    Call, ComputeId, Endpoint, FabricError, GlobalAddress, Peer, Reach, Space, VerbId, Verdict, WorkList,
    calls,
};
use sherman_layout::{ChunkEntry, ClientWord};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Bytes that one READ of a table takes.
const TABLE_READ: u64 = 32 << 10;
/// Lists of a recovery in flight at once. A recoverer far away then waits for one round trip, not for
/// hundreds.
const LISTS_IN_FLIGHT: usize = 16;
/// Dead members that one pass recovers. Other survivors may recover the rest meanwhile.
const BATCH: usize = 64;

/// The result of a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// The last answer of control. The recoverer did something only after [`Verdict::Recover`].
    pub verdict: Verdict,
    /// Records replayed.
    pub records: u64,
    /// Lanes swept.
    pub lanes: u64,
    /// Spans read.
    pub spans: u64,
    /// Nodes found there that never became part of a tree.
    pub places: u64,
}

impl Recovery {
    /// A result with no work done, at the start or because there is none to do.
    fn nothing(verdict: Verdict) -> Self {
        Self { verdict, records: 0, lanes: 0, spans: 0, places: 0 }
    }
}

/// A redo record of a dead member, and its location.
struct Found {
    server: u16,
    offset: u64,
    record: Record,
}

/// The right to recover an earlier identity of this process.
#[derive(Debug)]
pub struct Claim<'w> {
    client: ComputeId,
    verdict: Verdict,
    alone: Recovering<'w>,
}

/// One dead member, and the state of its recovery.
struct Patient<'w> {
    report: Recovery,
    /// Why its recovery cannot continue now.
    failed: Option<Error>,
    /// Loads whose swap happened: each tree, with the record that says so.
    loads: Vec<(Arc<TreeState>, Found)>,
    /// Nodes that must be freed with all that they lead to, because their trees are gone. Each tree comes
    /// with the record that names the node.
    drops: Vec<(Arc<TreeState>, Found)>,
    /// Blocks that its records name.
    blocks: Vec<(Arc<TreeState>, Found)>,
    /// Its redo slots that hold no record, by server and offset.
    empty_slots: BTreeSet<(u16, u64)>,
    /// Keeps other threads of this compute server from recovering this member.
    _alone: Recovering<'w>,
}

impl<'w> Patient<'w> {
    fn new(verdict: Verdict, alone: Recovering<'w>) -> Self {
        let report = Recovery::nothing(verdict);
        let (loads, drops, blocks) = (Vec::new(), Vec::new(), Vec::new());
        Self { report, failed: None, loads, drops, blocks, empty_slots: BTreeSet::new(), _alone: alone }
    }
}

/// A member that may be dead, the guard that keeps other threads from recovering it, and what control says.
type Asked<'w> = (ComputeId, Option<Recovering<'w>>, Verdict);

/// Whether control wants this compute server to recover the member now.
fn may_recover(verdict: Verdict) -> bool {
    seam!(recovery::may_recover(verdict));
    verdict == Verdict::Recover
}

/// A step of a recovery, for all dead members together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// None of their verbs executes any more, on any server.
    Fence,
    /// Makes the copies of every volume equal. Does nothing where there is one copy.
    Level,
    /// Settles changes in doubt. Lanes are still as the members left them.
    TellFates,
    /// Reads the catalog.
    Learn,
    /// Finishes or undoes the changes that were under way.
    Replay,
    /// Links the blocks that they made and that entries refer to, and frees the others. Their lanes still
    /// keep these entries from changing.
    Blocks,
    /// Gives their lanes back.
    Sweep,
    /// The members that they were recovering may be recovered. The next step may wait for those.
    Relieve,
    /// Finishes their loads and drops, and frees the nodes that they made in vain.
    Finish,
    /// Ends their records, spans and fences on every volume.
    Retire,
    /// Their ids may be issued again.
    FreeId,
}

/// The steps of a recovery, in order.
const STEPS: [Step; 11] = {
    use Step::{Blocks, Fence, Finish, FreeId, Learn, Level, Relieve, Replay, Retire, Sweep, TellFates};
    [Fence, Level, TellFates, Learn, Replay, Blocks, Sweep, Relieve, Finish, Retire, FreeId]
};

fn steps() -> &'static [Step] {
    seam!(recovery::steps());
    &STEPS
}

/// Dead members being recovered together.
struct Recoverer<'w, E: Endpoint> {
    op: Op<'w, E>,
    dead: BTreeMap<ComputeId, Patient<'w>>,
    /// The trees that the catalog lists, and the trees that records name.
    trees: BTreeMap<u32, (Arc<TreeState>, bool)>,
    /// The class of each chunk that was read so far.
    classes: BTreeMap<(u16, u32), ChunkClass>,
    /// Servers that the cluster has declared lost.
    lost: BTreeSet<u16>,
    /// Changes in doubt. Their fate must be settled before lanes are swept.
    doubts: Vec<Arc<Doubt>>,
    /// Changes that happened, but may be acknowledged only when all volumes are open (W5).
    happened: Vec<Arc<Doubt>>,
    /// The copies that it reads.
    reach: Reach,
}

impl<E: Endpoint> Worker<E> {
    /// Asks control about `client`. If it is dead and no other member recovers it, recovers it. If an
    /// earlier recoverer of `client` died during that work, recovers that recoverer first.
    ///
    /// # Errors
    /// [`Error::Fenced`] if this compute server is terminated itself; [`Error::Corrupt`] if a record makes no
    /// sense. A later call does the work that was not done.
    pub async fn recover(&self, client: ComputeId) -> Result<Recovery, Error> {
        let mut outcomes = self.recover_many(&[client]).await?;
        outcomes.remove(&client).unwrap_or(Ok(Recovery::nothing(Verdict::Gone)))
    }

    /// Does the work of [`Worker::recover`] for several members at once. Returns the result for each.
    ///
    /// # Errors
    /// [`Error::Fenced`] if this compute server is terminated itself, and other errors that concern all of
    /// them.
    pub async fn recover_many(
        &self,
        clients: &[ComputeId],
    ) -> Result<BTreeMap<ComputeId, Result<Recovery, Error>>, Error> {
        let mut outcomes = BTreeMap::new();
        for some in clients.chunks(BATCH) {
            self.recover_batch(some, &mut outcomes).await?;
        }
        Ok(outcomes)
    }

    async fn recover_batch(
        &self,
        clients: &[ComputeId],
        outcomes: &mut BTreeMap<ComputeId, Result<Recovery, Error>>,
    ) -> Result<(), Error> {
        let mut wanted: BTreeSet<ComputeId> = clients.iter().copied().collect();
        loop {
            let mut recoverer = Recoverer::new(self);
            let mut asked = BTreeSet::new();
            // Also asks about members that must be recovered first.
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
            // Only members whose former recoverer has just been recovered are asked about again.
            wanted.retain(|client| {
                let displaced = |outcome: &Result<Recovery, Error>| {
                    matches!(outcome, Ok(Recovery { verdict: Verdict::Displaced { .. }, .. }))
                };
                outcomes.get(client).is_some_and(displaced)
            });
            // If no recovery succeeded, the members that wait for one wait until the next call.
            if wanted.is_empty() || !any {
                return Ok(());
            }
        }
    }

    /// Asks control to let this compute server recover an earlier identity of its process. From then on no
    /// other client recovers that identity. `None` if there is nothing to recover, or somebody else does.
    pub(crate) async fn claim(&self, former: &ComputeServer) -> Result<Option<Claim<'_>>, Error> {
        let client = former.client();
        // An identity that was never active left nothing. Without replication nobody waits for its end.
        let Some(incarnation) = former.incarnation() else { return Ok(None) };
        let Some(alone) = self.compute.membership.begin_recovery(client) else { return Ok(None) };
        let verdict = self.op().call(Peer::Control, calls::Succeed { client, incarnation }).await?;
        let ours = matches!(verdict, Verdict::Inherit | Verdict::Recover);
        Ok(ours.then_some(Claim { client, verdict, alone }))
    }

    /// Recovers an earlier identity of this process. Settles the fates of its changes in doubt before its
    /// lanes are swept.
    /// Returns those that happened and may be acknowledged when all volumes are open.
    pub(crate) async fn succeed(
        &self,
        claim: Claim<'_>,
        doubts: &[Arc<Doubt>],
    ) -> Result<Vec<Arc<Doubt>>, Error> {
        let Claim { client, verdict, alone } = claim;
        let mut recoverer = Recoverer::new(self);
        recoverer.dead.insert(client, Patient::new(verdict, alone));
        if verdict == Verdict::Inherit {
            recoverer.doubts = doubts.to_vec();
        }
        recoverer.run().await?;
        let failed = recoverer.dead.remove(&client).and_then(|patient| patient.failed);
        match failed {
            None => self.compute.membership.count_recovery(),
            // The fates are settled. The rest comes later.
            Some(_) => self.compute.membership.suspect_all(&[client]),
        }
        Ok(recoverer.happened)
    }

    /// Takes each client for this thread, and then asks control about it. A client that another thread of
    /// this compute server recovers comes without a guard.
    ///
    /// The order matters. Otherwise the other thread could finish in between, and the id could be issued
    /// again. Then this thread would recover the new holder of the id.
    async fn ask_alone(&self, clients: &[ComputeId]) -> Result<Vec<Asked<'_>>, Error> {
        seam!(recovery::ask_alone(self, clients).await);
        let mut guards = self.take_alone(clients);
        let alone: Vec<ComputeId> = clients.iter().copied().filter(|id| guards.contains_key(id)).collect();
        let verdicts: BTreeMap<_, _> = alone.iter().copied().zip(self.ask(&alone).await?).collect();
        let busy = Verdict::Recovering { by: self.compute.client() };
        let asked = clients
            .iter()
            .map(|&client| (client, guards.remove(&client), verdicts.get(&client).copied().unwrap_or(busy)));
        Ok(asked.collect())
    }

    /// Takes the clients that no other thread of this compute server recovers.
    fn take_alone(&self, clients: &[ComputeId]) -> BTreeMap<ComputeId, Recovering<'_>> {
        let membership = &self.compute.membership;
        clients.iter().filter_map(|&client| Some((client, membership.begin_recovery(client)?))).collect()
    }

    /// Asks control for its verdict on each client.
    async fn ask(&self, clients: &[ComputeId]) -> Result<Vec<Verdict>, Error> {
        let op = self.op();
        let requests = clients.iter().map(|&client| (Peer::Control, calls::Suspect { client })).collect();
        op.call_all(requests).await.into_iter().map(|verdict| verdict.map_err(Error::from)).collect()
    }
}

impl<'w, E: Endpoint> Recoverer<'w, E> {
    fn new(worker: &'w Worker<E>) -> Self {
        Self {
            op: Op::to_recover(worker, worker.compute.timeout()),
            dead: BTreeMap::new(),
            trees: BTreeMap::new(),
            classes: BTreeMap::new(),
            lost: BTreeSet::new(),
            doubts: Vec::new(),
            happened: Vec::new(),
            reach: Reach::All,
        }
    }

    /// Asks about the members of `wanted` that are not in `asked`, and admits the members that this compute
    /// server must recover. Returns the members that must be recovered before some of them; `None` if there
    /// is no member left to ask about.
    async fn admit(
        &mut self,
        wanted: &BTreeSet<ComputeId>,
        asked: &mut BTreeSet<ComputeId>,
        outcomes: &mut BTreeMap<ComputeId, Result<Recovery, Error>>,
    ) -> Result<Option<Vec<ComputeId>>, Error> {
        let worker = self.op.worker;
        let new: Vec<ComputeId> = wanted.difference(asked).copied().collect();
        asked.extend(&new);
        if new.is_empty() {
            return Ok(None);
        }
        let mut first = Vec::new();
        for (client, guard, verdict) in worker.ask_alone(&new).await? {
            let Some(guard) = guard else {
                outcomes.insert(client, Ok(Recovery::nothing(verdict)));
                continue;
            };
            // An earlier stall no longer counts.
            worker.compute.membership.set_stalled(client, false);
            let report = Recovery::nothing(verdict);
            match verdict {
                verdict if may_recover(verdict) => {
                    self.dead.insert(client, Patient::new(verdict, guard));
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

    /// Returns the members whose recovery has not failed.
    fn going(&self) -> Vec<ComputeId> {
        let going = self.dead.iter().filter(|(_, patient)| patient.failed.is_none());
        going.map(|(&client, _)| client).collect()
    }

    /// Ends the recovery of one member for now. An error that concerns this compute server ends all
    /// recoveries.
    fn fail(&mut self, client: ComputeId, error: Error) -> Result<(), Error> {
        let lost = matches!(error, Error::ServerLost { .. } | Error::VolumeLost { .. });
        if lost || matches!(error, Error::Fenced { .. } | Error::Fabric(_)) {
            return Err(error);
        }
        if let Some(patient) = self.dead.get_mut(&client) {
            patient.failed = Some(error);
        }
        Ok(())
    }

    async fn run(&mut self) -> Result<(), Error> {
        for step in steps() {
            match step {
                Step::Fence => self.on_volumes(|client| calls::Fence { client }).await?,
                Step::Level => self.level().await?,
                Step::TellFates => self.tell_fates().await?,
                Step::Learn => self.learn().await?,
                Step::Replay => self.replay_all().await?,
                Step::Blocks => self.settle_all_blocks().await?,
                Step::Sweep => self.sweep().await?,
                Step::Relieve => self.on_control(|client| calls::Relieve { client }).await?,
                Step::Finish => self.finish_all().await?,
                Step::Retire => self.on_volumes(|client| calls::Retire { client }).await?,
                Step::FreeId => self.on_control(|client| calls::FreeId { client }).await?,
            }
        }
        Ok(())
    }

    async fn replay_all(&mut self) -> Result<(), Error> {
        for (client, records) in self.records().await? {
            if let Err(error) = self.replay(client, records).await {
                self.fail(client, error)?;
            }
        }
        Ok(())
    }

    async fn finish_all(&mut self) -> Result<(), Error> {
        for client in self.going() {
            if let Err(error) = self.finish(client).await {
                self.fail(client, error)?;
            }
        }
        Ok(())
    }

    /// Settles changes of one line whose outcome is unknown. None of their client's verbs executes any more,
    /// and its lanes are as it left them. If the client does not hold the lane, the list that gave it back
    /// was executed completely. If it holds the lane, the line shows whether the change happened.
    async fn tell_fates(&mut self) -> Result<(), Error> {
        let Some(dead) = self.going().first().copied() else { return Ok(()) };
        let compute = Arc::clone(&self.op.worker.compute);
        for doubt in std::mem::take(&mut self.doubts) {
            let server = doubt.node().server();
            match compute.volumes().and_then(|table| doubt.judged(table)) {
                Some(Fate::Done) => {
                    self.happened.push(doubt);
                    continue;
                }
                Some(fate) => {
                    doubt.settle(fate);
                    continue;
                }
                // Neither the lanes of a promoted copy nor a change of several lines say what happened.
                None if doubt.bytes().is_empty() || compute.lost_lanes(server) => continue,
                None => {}
            }
            let stretch = (doubt.offset(), doubt.bytes().len() as u32);
            let line = self.read_all(server, Space::Host, &[stretch]).await?.pop();
            let Some(line) = line else { continue };
            let held = self.holds_lane(doubt.node(), dead).await?;
            doubt.settle(if !held || line == doubt.bytes() { Fate::Done } else { Fate::NotDone });
        }
        Ok(())
    }

    /// Does the work that may wait for other clients: the loads and drops of one dead member, and the nodes
    /// that it made in vain.
    async fn finish(&mut self, client: ComputeId) -> Result<(), Error> {
        self.link_loads(client).await?;
        self.clear_spans(client).await?;
        self.finish_drops(client).await?;
        self.forget_loads(client).await
    }

    /// Sends a request about each dead member to every volume that is not lost.
    async fn on_volumes<C: Call<Reply = ()>>(
        &mut self,
        request: impl Fn(ComputeId) -> C,
    ) -> Result<(), Error> {
        self.expect_alive()?;
        let volumes: Vec<u16> = (0..self.op.endpoint().servers()).rev().collect();
        let going = self.going();
        let asked: Vec<(ComputeId, u16)> =
            going.iter().flat_map(|&client| volumes.iter().map(move |&volume| (client, volume))).collect();
        let requests = asked.iter().map(|&(client, volume)| (Peer::Volume(volume), request(client)));
        let answers = self.op.call_all(requests.collect()).await;
        for ((client, volume), answer) in asked.into_iter().zip(answers) {
            if let Err(error) = self.unless_lost(volume, answer) {
                self.fail(client, error)?;
            }
        }
        self.expect_alive()
    }

    /// Sends a request about each dead member to control.
    async fn on_control<C: Call<Reply = ()>>(
        &mut self,
        request: impl Fn(ComputeId) -> C,
    ) -> Result<(), Error> {
        let going = self.going();
        let requests = going.iter().map(|&client| (Peer::Control, request(client))).collect();
        let answers = self.op.call_all(requests).await;
        for (client, answer) in going.into_iter().zip(answers) {
            if let Err(error) = answer {
                self.fail(client, error.into())?;
            }
        }
        self.expect_alive()
    }

    /// Returns the outcome, or `None` if the cluster has declared the server lost.
    fn unless_lost<T>(&mut self, server: u16, outcome: Result<T, FabricError>) -> Result<Option<T>, Error> {
        seam!(let outcome = recovery::unless_lost(self, server, outcome));
        match outcome {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.lost().is_some() => {
                self.lost.insert(server);
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Fails once the recoverer itself is terminated.
    fn expect_alive(&self) -> Result<(), Error> {
        self.op.worker.expect_alive()
    }

    /// Reads the catalog.
    async fn learn(&mut self) -> Result<(), Error> {
        for info in self.op.call(Peer::Control, calls::ListTrees).await? {
            let id = info.id;
            self.trees.insert(id, (TreeState::new(info, 0, false)?, true));
        }
        Ok(())
    }

    /// Returns the tree that a record is about, and whether the catalog listed it.
    fn tree_of(&mut self, record: &Record) -> Result<(Arc<TreeState>, bool), Error> {
        if let Some((tree, listed)) = self.trees.get(&record.tree) {
            return Ok((Arc::clone(tree), *listed));
        }
        let (name, spec) = (String::new(), record.spec);
        let info = TreeInfo { id: record.tree, name, spec, types: None, root_word: GlobalAddress::NULL };
        let invariant = "I25: a record has the shape of its tree";
        let tree =
            TreeState::new(info, 0, false).map_err(|_| Error::Corrupt { address: record.node, invariant })?;
        self.trees.insert(record.tree, (Arc::clone(&tree), false));
        Ok((tree, false))
    }

    /// Reads several ranges of a server's memory, with many lists in flight at once. Returns nothing if the
    /// server is lost.
    async fn read_all(
        &mut self,
        server: u16,
        space: Space,
        stretches: &[(u64, u32)],
    ) -> Result<Vec<Vec<u8>>, Error> {
        let mut read = Vec::with_capacity(stretches.len());
        if self.lost.contains(&server) {
            return Ok(read);
        }
        let most = self.op.endpoint().caps().max_transfer;
        if stretches.iter().any(|&(_, len)| len > most) {
            return self.read_long(server, space, stretches).await;
        }
        let caps = self.op.endpoint().caps();
        let (most_verbs, most_bytes) =
            (caps.max_verbs.max(1) as usize, TABLE_READ.min(u64::from(caps.max_transfer)));
        let mut left = stretches.iter().peekable();
        while left.peek().is_some() {
            self.expect_alive()?;
            let (mut lists, mut reads): (Vec<WorkList>, Vec<(usize, VerbId)>) = (Vec::new(), Vec::new());
            while left.peek().is_some() && lists.len() < LISTS_IN_FLIGHT {
                let (mut list, mut bytes) = (self.op.endpoint().list(server), 0);
                list.set_reach(self.reach);
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

    /// Does the work of `read_all` for ranges that may be longer than one READ: whole blocks.
    async fn read_long(
        &mut self,
        server: u16,
        space: Space,
        stretches: &[(u64, u32)],
    ) -> Result<Vec<Vec<u8>>, Error> {
        let most = self.op.endpoint().caps().max_transfer;
        let mut read = Vec::with_capacity(stretches.len());
        for &(at, len) in stretches {
            let pieces = (0..len).step_by(most as usize);
            let pieces: Vec<(u64, u32)> =
                pieces.map(|from| (at + u64::from(from), most.min(len - from))).collect();
            let whole = Box::pin(self.read_all(server, space, &pieces)).await?.concat();
            if whole.len() != len as usize {
                // The server is lost.
                return Ok(Vec::new());
            }
            read.push(whole);
        }
        Ok(read)
    }

    /// Reads a server's table piece by piece. Returns an empty table if the server is lost.
    async fn read_table(
        &mut self,
        server: u16,
        space: Space,
        offset: u64,
        bytes: u64,
    ) -> Result<Vec<u8>, Error> {
        let piece = TABLE_READ.min(u64::from(self.op.endpoint().caps().max_transfer));
        let pieces = (offset..offset + bytes).step_by(piece as usize);
        let pieces: Vec<(u64, u32)> = pieces.map(|at| (at, piece.min(offset + bytes - at) as u32)).collect();
        Ok(self.read_all(server, space, &pieces).await?.concat())
    }

    /// Reads every record of the dead members, on every server. Reads the first line of each slot, and the
    /// rest only if the slot holds a record.
    async fn records(&mut self) -> Result<BTreeMap<ComputeId, Vec<Found>>, Error> {
        let going = self.going();
        let mut found: BTreeMap<ComputeId, Vec<Found>> =
            going.iter().map(|&client| (client, Vec::new())).collect();
        for server in 0..self.op.endpoint().servers() {
            let geometry = *self.op.worker.compute.geometry_of(server);
            let words: Vec<(u64, u32)> =
                going.iter().map(|&client| (geometry.client_entry(client), 8)).collect();
            let words = self.read_all(server, Space::Host, &words).await?;
            let mut slots = Vec::new();
            for (&client, word) in going.iter().zip(words) {
                let Some(area) = ClientWord::from_bits(get_u64(&word, 0)).and_then(|word| word.redo_area)
                else {
                    continue;
                };
                let offsets = (0..u64::from(geometry.redo_slots(geometry.redo_area_bytes)))
                    .map(|slot| area + slot * u64::from(geometry.redo_slot_bytes));
                slots.extend(offsets.map(|offset| (client, offset)));
            }
            let lines: Vec<(u64, u32)> = slots.iter().map(|&(_, offset)| (offset, LINE as u32)).collect();
            let lines = self.read_all(server, Space::Host, &lines).await?;
            for ((client, offset), line) in slots.into_iter().zip(lines) {
                let mut record = None;
                if let Some(len) = Record::length(&line, client, geometry.redo_slot_bytes) {
                    let bytes = self.read_table(server, Space::Host, offset, u64::from(len)).await?;
                    record = Record::decode(&bytes).filter(|record| record.owner == client);
                }
                match record {
                    Some(record) => found.entry(client).or_default().push(Found { server, offset, record }),
                    None => self.note_empty(client, (server, offset)),
                }
            }
        }
        for (client, records) in &found {
            if let Some(patient) = self.dead.get_mut(client) {
                patient.report.records = records.len() as u64;
            }
        }
        Ok(found)
    }

    /// Notes that a redo slot of a dead member holds no record.
    fn note_empty(&mut self, client: ComputeId, slot: (u16, u64)) {
        if let Some(patient) = self.dead.get_mut(&client) {
            patient.empty_slots.insert(slot);
        }
    }

    /// Returns the class of the place at `address`; `None` if its server is lost. An address that is no place
    /// is corrupt.
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
                match entry
                    .first_chunk::<8>()
                    .and_then(|word| ChunkEntry::from_bits(u64::from_le_bytes(*word)))
                {
                    Some(ChunkEntry::Nodes { class }) if geometry.allows_class(class) => class,
                    _ if self.lost.contains(&server) => return Ok(None),
                    _ => return Err(corrupt()),
                }
            }
        };
        self.classes.insert((server, index), class);
        self.op.worker.compute.check_pointer(address, class.node_bytes as usize)?;
        Ok(Some(class))
    }

    /// Reads the whole node at `address`. Returns `None` if its server is lost.
    async fn read_node(&mut self, address: GlobalAddress) -> Result<Option<Vec<u8>>, Error> {
        if self.lost.contains(&address.server()) {
            return Ok(None);
        }
        match self.class_at(address).await? {
            Some(class) => self.read_bytes(address, class.node_bytes).await,
            None => Ok(None),
        }
    }

    /// Reads the first `bytes` bytes of a node. Returns `None` if its server is lost.
    async fn read_bytes(&mut self, address: GlobalAddress, bytes: u32) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.read_all(address.server(), Space::Host, &[(address.offset(), bytes)]).await?.pop())
    }

    /// Writes bytes of a node.
    async fn write_node(&mut self, address: GlobalAddress, at: usize, bytes: &[u8]) -> Result<(), Error> {
        let mut list = self.op.endpoint().list(address.server());
        list.write(Space::Host, address.offset() + at as u64, bytes);
        self.execute(list).await
    }

    /// Writes the marks of a node.
    async fn write_marked(
        &mut self,
        address: GlobalAddress,
        marked: &Marked,
        image: &[u8],
    ) -> Result<(), Error> {
        let mut list = self.op.endpoint().list(address.server());
        marked.push(&mut list, address, image);
        self.execute(list).await
    }

    /// Executes a list, unless its server is lost.
    async fn execute(&mut self, list: WorkList) -> Result<(), Error> {
        let server = list.server();
        let outcome = self.op.execute(list).await;
        if let Some(list) = self.unless_lost(server, outcome)? {
            self.op.endpoint().recycle(list);
        }
        Ok(())
    }

    /// Writes the free mark of a node, if it has none, and then the hint of its span.
    async fn write_free(
        &mut self,
        address: GlobalAddress,
        marked: Option<(&Marked, &[u8])>,
    ) -> Result<(), Error> {
        let Some(class) = self.class_at(address).await? else { return Ok(()) };
        let mut list = self.op.endpoint().list(address.server());
        if let Some((marked, image)) = marked {
            marked.push(&mut list, address, image);
        }
        self.op.push_hint(&mut list, address, class);
        self.execute(list).await
    }

    /// Where the root word that a record changes lies; `None` if the catalog does not list its tree.
    async fn root_place(&mut self, record: &Record) -> Result<Option<GlobalAddress>, Error> {
        let trees = self.op.call(Peer::Control, calls::ListTrees).await?;
        let tree = trees.into_iter().find(|info| info.id == record.tree);
        Ok(tree.map(|info| info.root_word))
    }

    /// Reads the root word at `address`. Returns `None` if its volume is lost.
    async fn root_word(&mut self, address: GlobalAddress) -> Result<Option<u64>, Error> {
        let word = self.read_table(address.server(), Space::Host, address.offset(), 8).await?;
        Ok(word.first_chunk().map(|word| u64::from_le_bytes(*word)))
    }
}
