//! Two-stage allocation (paper §4.2.4): memory servers give out spans on request, and compute servers cut
//! nodes from them locally.
//!
//! A *place* is memory for one node; a *span* is a run of places in a chunk. A compute server *owns* a span
//! while it makes nodes there. It owns few spans. It begins with one, and asks for more at a time as it makes
//! more nodes. It gives a span back once every place holds a node. It gives unused spans back when it leaves,
//! or when other compute servers find no memory.
//!
//! Only the owner of a span may use a place in it, and only if the place is free or never held a node. A
//! freed node belongs to its span from the moment its free mark is visible, no matter which client freed it.
//! The list that frees the node then sets the span's *hint*. If the span has no owner, a memory server gives
//! it to the next client that asks. The new owner reads the first line of each place.
//!
//! Invariants:
//!
//! - A compute server does not give back a span with a place that it took and has not yet linked into a tree.
//!   Otherwise the next owner would treat the place as free.
//! - A place appears at most once in the free list here. A compute server adds a node that it frees only if
//!   it already owned the span when it posted the free mark (`Allocator::claim`). If it acquired the span
//!   later, its scan of the new span may already have found the place.
//!
//! A chunk keeps one class (node size and format) permanently. So a stale pointer into it leads to a node of
//! that class, or to memory that never held a node.

#[cfg(feature = "mutants")]
mod seam;

use crate::error::Error;
use crate::node::draft::NodePlace;
use crate::node::{Header, LINE};
use crate::op::Op;
use sherman_fabric::control::{ChunkClass, MOST_FREED, Span};
use sherman_fabric::{Call, ComputeId, Endpoint, FabricError, GlobalAddress, Space, VerbId, calls};
use sherman_fabric::{Peer, WorkList};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The first version of a node in memory that never held one. It is not 0, so zeroed lines never pass for
/// lines of the node.
pub(crate) const FIRST_VERSION: u16 = 1;
/// The most spans that one request asks for: 1 MiB of nodes of 1 KiB.
const MOST_SPANS: u16 = 16;
/// About the bytes of a span whose places have at most 8 KiB.
const SPAN_BYTES: u32 = 64 << 10;
/// One request asks for about so many bytes at most, if one span has not more.
const MOST_BYTES: u32 = 8 << 20;
/// How many requests may return only full spans before the allocator asks the next server.
const MOST_FULL: u32 = 64;

/// The node memory of one compute server.
#[derive(Debug)]
pub struct Allocator {
    servers: u16,
    first: u16,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    pools: BTreeMap<ChunkClass, Pool>,
    /// Lost servers. The allocator takes nothing from them.
    lost: BTreeSet<u16>,
    /// Number of spans obtained so far.
    acquisitions: u64,
}

/// A free place.
#[derive(Clone, Copy, Debug)]
struct FreePlace {
    address: GlobalAddress,
    /// The last version of a node in this place.
    version: u16,
    /// Whether a node was ever written there.
    used: bool,
}

/// A span that this compute server owns.
#[derive(Debug)]
struct Owned {
    bytes: u64,
    /// The number of the acquisition that obtained this span.
    acquisition: u64,
    /// Places taken that are neither linked into a tree nor given back yet.
    out: u64,
    /// Free places available here.
    free: u64,
}

#[derive(Debug, Default)]
struct Pool {
    free: Vec<FreePlace>,
    /// Ranges of places that were never used: server, next offset, end.
    fresh: Vec<(u16, u64, u64)>,
    spans: BTreeMap<GlobalAddress, Owned>,
    /// Spans that held only nodes when a node was last linked there. Saves a scan of all spans.
    full: BTreeSet<GlobalAddress>,
    /// `turn` selects the next server to ask. `requests` counts the requests and determines how many spans
    /// the next one asks for.
    turn: u16,
    requests: u32,
    made: u64,
    freed: u64,
    reused: u64,
}

/// Proof that this compute server owned the span when it posted a free mark.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim(Option<u64>);

/// Statistics of node memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Spans that this compute server owns.
    pub spans: u64,
    /// Total bytes of these spans.
    pub span_bytes: u64,
    /// Free places in these spans.
    pub free: u64,
    /// Nodes that it linked into a tree.
    pub made: u64,
    /// Nodes that it freed.
    pub freed: u64,
    /// How many times it reused a place that had held a node.
    pub reused: u64,
}

impl Allocator {
    /// Creates an allocator that asks servers in turn. Different compute servers begin at different servers.
    pub(crate) fn new(servers: u16, client: ComputeId) -> Self {
        Self { servers, first: client.0 % servers.max(1), state: Mutex::default() }
    }

    /// The lock is held for a few instructions and none of them can panic half-way, so the state behind a
    /// poisoned lock is valid.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an available place, on `server` if that is given.
    fn take(&self, class: ChunkClass, server: Option<u16>, owner: ComputeId) -> Option<NodePlace> {
        let mut state = self.state();
        let pool = state.pools.entry(class).or_default();
        let FreePlace { address, version, used } = match server {
            None => pool.pop(class)?,
            Some(server) => pool.pop_on(class, server)?,
        };
        pool.reused += u64::from(used);
        if let Some(span) = pool.span_of(address) {
            span.out += 1;
            span.free = span.free.saturating_sub(1);
        }
        Some(NodePlace { address, version: next_version(version), owner, used })
    }

    /// Returns the server to ask next for spans of this class, and how many to ask for. Also gives up the
    /// spans there that now hold only nodes, and returns them.
    fn next_request(&self, class: ChunkClass, on: Option<u16>) -> (u16, u16, Vec<(u64, bool)>) {
        let mut state = self.state();
        // Classes begin at different servers too. Otherwise leaves and internal nodes would always use the
        // same server at the same time.
        let begin = self.first + state.pools.keys().position(|known| *known == class).unwrap_or(0) as u16;
        let pool = state.pools.entry(class).or_default();
        pool.turn = (pool.turn + 1) % self.servers;
        let server = on.unwrap_or((begin + pool.turn) % self.servers);
        let most = (MOST_BYTES / (SPAN_BYTES.max(8 * class.node_bytes))).clamp(1, u32::from(MOST_SPANS));
        let count = 1 << (pool.requests / u32::from(self.servers)).min(most.ilog2());
        pool.requests = pool.requests.saturating_add(1);
        (server, count, pool.give_back_full(server))
    }

    /// Returns a place for a node. Sends one request to a memory server per span or few spans, round robin,
    /// and none otherwise.
    pub(crate) async fn allocate<E: Endpoint>(
        &self,
        op: &Op<'_, E>,
        class: ChunkClass,
    ) -> Result<NodePlace, Error> {
        let owner = op.endpoint().client();
        if let Some(place) = self.take(class, None, owner) {
            return Ok(place);
        }
        let mut refused = Error::OutOfMemory;
        for _ in 0..self.servers {
            match self.refill(op, class, None).await {
                Ok(()) | Err(Error::OutOfMemory) => {}
                Err(error @ (Error::Unsupported { .. } | Error::UnexpectedReply { .. })) => {
                    return Err(error);
                }
                Err(error) => refused = error,
            }
            // Another thread may have obtained places meanwhile.
            if let Some(place) = self.take(class, None, owner) {
                return Ok(place);
            }
        }
        Err(refused)
    }

    /// Returns a place on `server`. Sends one request there per span or few spans, and none otherwise.
    pub(crate) async fn allocate_on<E: Endpoint>(
        &self,
        op: &Op<'_, E>,
        class: ChunkClass,
        server: u16,
    ) -> Result<NodePlace, Error> {
        let owner = op.endpoint().client();
        if let Some(place) = self.take(class, Some(server), owner) {
            return Ok(place);
        }
        self.refill(op, class, Some(server)).await?;
        self.take(class, Some(server), owner).ok_or(Error::OutOfMemory)
    }

    /// Asks a server for spans, until one of them has a free place: the server whose turn it is, if none is
    /// given.
    async fn refill<E: Endpoint>(
        &self,
        op: &Op<'_, E>,
        class: ChunkClass,
        on: Option<u16>,
    ) -> Result<(), Error> {
        op.worker.activate().await?;
        let (server, count, full) = self.next_request(class, on);
        if self.state().lost.contains(&server) {
            return Ok(());
        }
        if !full.is_empty() {
            self.noting(op.call(Peer::Volume(server), calls::FreeSpans { spans: full }).await)?;
        }
        for _ in 0..MOST_FULL {
            let spans =
                self.noting(op.call(Peer::Volume(server), calls::AllocSpans { class, count }).await)?;
            if !spans.iter().all(|span| is_sound(op, server, class, span)) {
                return Err(calls::AllocSpans::UNEXPECTED.into());
            }
            if self.look(op, server, class, spans).await? {
                return Ok(());
            }
        }
        Ok(())
    }

    fn noting<T>(&self, outcome: Result<T, FabricError>) -> Result<T, Error> {
        outcome.inspect_err(|error| self.note_failure(error)).map_err(Error::from)
    }

    /// Finds the free places of newly acquired spans. Takes one round trip for all spans that were used
    /// before. Returns whether it found any.
    async fn look<E: Endpoint>(
        &self,
        op: &Op<'_, E>,
        server: u16,
        class: ChunkClass,
        spans: Vec<Span>,
    ) -> Result<bool, Error> {
        let bytes = u64::from(class.node_bytes);
        let most = (op.endpoint().caps().max_verbs as usize).max(1);
        let mut lists: Vec<WorkList> = Vec::new();
        // For each span: the list and verb that read the first line of each place, and the place's offset.
        let mut reads: Vec<Vec<(usize, VerbId, u64)>> = Vec::new();
        for span in &spans {
            let mut found = Vec::new();
            for at in (span.offset..span.offset + span.bytes).step_by(class.node_bytes as usize) {
                if span.fresh {
                    break;
                }
                if lists.last().is_none_or(|list| list.len() >= most) {
                    lists.push(op.endpoint().list(server));
                }
                let last = lists.len() - 1;
                found.push((last, lists[last].read(Space::Host, at, LINE as u32), at));
            }
            reads.push(found);
        }
        let lists = self.noting(op.execute_all(lists).await)?;
        let mut any = false;
        let mut state = self.state();
        for (span, reads) in spans.iter().zip(reads) {
            state.acquisitions += 1;
            let acquisition = state.acquisitions;
            let pool = state.pools.entry(class).or_default();
            let before = pool.free.len();
            for (list, read, at) in reads {
                let address = GlobalAddress::new(server, at);
                match Header::decode(lists[list].bytes(read)) {
                    None => pool.free.push(FreePlace {
                        address,
                        version: FIRST_VERSION.wrapping_sub(1),
                        used: false,
                    }),
                    Some(header) if header.flags.free => {
                        pool.free.push(FreePlace { address, version: header.version, used: true });
                    }
                    Some(_) => {}
                }
            }
            let mut free = (pool.free.len() - before) as u64;
            if span.fresh {
                pool.fresh.push((server, span.offset, span.offset + span.bytes));
                free = span.bytes / bytes;
            }
            any |= free > 0;
            let start = GlobalAddress::new(server, span.offset);
            pool.spans.insert(start, Owned { bytes: span.bytes, acquisition, out: 0, free });
            if free == 0 {
                pool.full.insert(start);
            }
        }
        drop(state);
        lists.into_iter().for_each(|list| op.endpoint().recycle(list));
        Ok(any)
    }

    /// Records that a taken place is now part of a tree.
    pub(crate) fn linked(&self, class: ChunkClass, address: GlobalAddress) {
        let mut state = self.state();
        let pool = state.pools.entry(class).or_default();
        pool.made += 1;
        let Some((start, span)) = pool.start_of(address) else { return };
        span.out = span.out.saturating_sub(1);
        if span.out == 0 && span.free == 0 {
            pool.full.insert(start);
        }
    }

    /// Takes back a place that will not become part of a tree, with the last version it had.
    pub(crate) fn give_back(&self, class: ChunkClass, address: GlobalAddress, version: u16) {
        let mut state = self.state();
        let pool = state.pools.entry(class).or_default();
        if let Some(span) = pool.span_of(address) {
            span.out = span.out.saturating_sub(1);
            span.free += 1;
            pool.free.push(FreePlace { address, version, used: true });
        }
    }

    /// Takes back a place that never held a node and still holds none.
    pub(crate) fn return_unused(&self, class: ChunkClass, address: GlobalAddress) {
        let mut state = self.state();
        let pool = state.pools.entry(class).or_default();
        if let Some(span) = pool.span_of(address) {
            span.out = span.out.saturating_sub(1);
            span.free += 1;
            pool.free.push(FreePlace { address, version: FIRST_VERSION.wrapping_sub(1), used: false });
        }
    }

    /// Must be called before the free mark of a node is posted.
    pub(crate) fn claim(&self, class: ChunkClass, address: GlobalAddress) -> Claim {
        let mut state = self.state();
        Claim(state.pools.get_mut(&class).and_then(|pool| pool.span_of(address)).map(|span| span.acquisition))
    }

    /// Must be called when the free mark of a node is visible, with the node's version. The same list also
    /// set the span's hint.
    pub(crate) fn freed(&self, class: ChunkClass, address: GlobalAddress, version: u16, claim: Claim) {
        let mut state = self.state();
        let pool = state.pools.entry(class).or_default();
        pool.freed += 1;
        let Some(span) = pool.span_of(address) else { return };
        if is_same_acquisition(span, claim) {
            span.free += 1;
            pool.free.push(FreePlace { address, version, used: true });
        }
    }

    /// Gives up spans in which no node is being made. Returns the server and the spans to report to it, if
    /// any.
    pub(crate) fn release_unused(&self) -> Option<(u16, Vec<(u64, bool)>)> {
        let mut state = self.state();
        for pool in state.pools.values_mut() {
            pool.requests = 0;
            for server in 0..self.servers {
                let spans = pool.give_back_unused(server);
                if !spans.is_empty() {
                    return Some((server, spans));
                }
            }
        }
        None
    }

    /// Returns statistics of this compute server's node memory.
    pub fn census(&self) -> Census {
        let state = self.state();
        let mut census = Census::default();
        for (class, pool) in &state.pools {
            let fresh = pool.fresh.iter().map(|(_, next, end)| (end - next) / u64::from(class.node_bytes));
            census.free += pool.free.len() as u64 + fresh.sum::<u64>();
            census.spans += pool.spans.len() as u64;
            census.span_bytes += pool.spans.values().map(|span| span.bytes).sum::<u64>();
            census.made += pool.made;
            census.freed += pool.freed;
            census.reused += pool.reused;
        }
        census
    }

    /// Returns every free place, so that a check can verify that none is lost.
    pub fn free_places(&self) -> Vec<GlobalAddress> {
        let state = self.state();
        let mut places = Vec::new();
        for (class, pool) in &state.pools {
            places.extend(pool.free.iter().map(|place| place.address));
            for &(server, next, end) in &pool.fresh {
                let fresh = (next..end).step_by(class.node_bytes as usize);
                places.extend(fresh.map(|at| GlobalAddress::new(server, at)));
            }
        }
        places
    }

    /// Forgets all places on a lost server, so that later operations use the remaining servers.
    pub(crate) fn note_failure(&self, error: &FabricError) {
        let Some(server) = error.lost() else { return };
        let mut state = self.state();
        state.lost.insert(server);
        for pool in state.pools.values_mut() {
            pool.free.retain(|place| place.address.server() != server);
            pool.fresh.retain(|(on, ..)| *on != server);
            pool.spans.retain(|at, _| at.server() != server);
        }
    }
}

/// The first version of the next node at a place whose last node had `version` (I23).
fn next_version(version: u16) -> u16 {
    seam!(alloc::next_version());
    version.wrapping_add(1)
}

/// Whether this compute server has owned the span since the claim. If it got the span again in between, the
/// scan of the span may have found the free place already.
fn is_same_acquisition(span: &Owned, claim: Claim) -> bool {
    seam!(alloc::is_same_acquisition());
    Some(span.acquisition) == claim.0
}

impl Owned {
    /// Whether no node is being made in this span.
    fn is_idle(&self) -> bool {
        seam!(alloc::is_idle());
        self.out == 0
    }
}

/// Whether a memory server's answer names memory that it has, for the requested class.
fn is_sound<E: Endpoint>(op: &Op<'_, E>, server: u16, class: ChunkClass, span: &Span) -> bool {
    span.class == class
        && span.bytes > 0
        && span.bytes.is_multiple_of(u64::from(class.node_bytes))
        && op.worker.compute.is_memory(server, span.offset, span.bytes)
}

impl Pool {
    fn pop(&mut self, class: ChunkClass) -> Option<FreePlace> {
        if let Some(place) = self.free.pop() {
            return Some(place);
        }
        let (server, next, end) = self.fresh.last_mut()?;
        let address = GlobalAddress::new(*server, *next);
        *next += u64::from(class.node_bytes);
        if *next >= *end {
            self.fresh.pop();
        }
        Some(FreePlace { address, version: FIRST_VERSION.wrapping_sub(1), used: false })
    }

    /// Like `pop`, for a place on `server`.
    fn pop_on(&mut self, class: ChunkClass, server: u16) -> Option<FreePlace> {
        if let Some(at) = self.free.iter().rposition(|place| place.address.server() == server) {
            return Some(self.free.swap_remove(at));
        }
        let at = self.fresh.iter().rposition(|(on, ..)| *on == server)?;
        let (_, next, end) = &mut self.fresh[at];
        let address = GlobalAddress::new(server, *next);
        *next += u64::from(class.node_bytes);
        if *next >= *end {
            self.fresh.remove(at);
        }
        Some(FreePlace { address, version: FIRST_VERSION.wrapping_sub(1), used: false })
    }

    /// The span that contains a place, if this compute server owns it.
    fn span_of(&mut self, address: GlobalAddress) -> Option<&mut Owned> {
        self.start_of(address).map(|(_, span)| span)
    }

    /// Like `span_of`, and also returns the start of the span.
    fn start_of(&mut self, address: GlobalAddress) -> Option<(GlobalAddress, &mut Owned)> {
        let (&start, span) = self.spans.range_mut(..=address).next_back()?;
        let inside = start.server() == address.server() && address.offset() - start.offset() < span.bytes;
        inside.then_some((start, span))
    }

    /// Gives up spans of a server that hold only nodes, as many as one request takes. Returns their offsets,
    /// each marked as without free places.
    fn give_back_full(&mut self, server: u16) -> Vec<(u64, bool)> {
        let mut gone = Vec::new();
        for start in self.full.extract_if(.., |start| start.server() == server).take(MOST_FREED) {
            let full = |span: &Owned| span.is_idle() && span.free == 0;
            if self.spans.get(&start).is_some_and(full) {
                self.spans.remove(&start);
                gone.push((start.offset(), false));
            }
        }
        gone
    }

    /// Gives up spans of a server in which no node is being made, as many as one request takes. Returns their
    /// offsets, each marked as having free places.
    fn give_back_unused(&mut self, server: u16) -> Vec<(u64, bool)> {
        let unused = |at: &GlobalAddress, span: &mut Owned| at.server() == server && span.is_idle();
        let gone: Vec<(u64, u64)> = self
            .spans
            .extract_if(.., unused)
            .take(MOST_FREED)
            .map(|(at, span)| (at.offset(), span.bytes))
            .collect();
        let kept = |on: u16, offset: u64| {
            on != server || !gone.iter().any(|(start, bytes)| (*start..start + bytes).contains(&offset))
        };
        self.free.retain(|place| kept(place.address.server(), place.address.offset()));
        self.fresh.retain(|(on, next, _)| kept(*on, *next));
        gone.into_iter().map(|(offset, _)| (offset, true)).collect()
    }
}
