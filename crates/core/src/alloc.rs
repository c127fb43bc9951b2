//! Two-stage allocation (paper §4.2.4): spans from memory servers by request, nodes from spans locally.
//!
//! A compute server *owns* a span while it makes nodes there. It owns few: it begins with one, asks for more at a time the more it makes, and
//! gives a span back once all its places are nodes. What it does not use goes back when it leaves, or when others find no memory.
//!
//! Who may use a place: the owner of its span, if the place is free or never held a node. A node that is freed belongs to its span from
//! the moment its free mark is visible, whoever freed it; the freeing list then sets the span's *hint*. If the span is nobody's, a memory server gives
//! it to the next that asks; the new owner looks at the first line of each of its places.
//!
//! What must hold:
//!
//! - A span with a place that was taken and is not yet part of a tree is not given back: the next owner would take the place for free.
//! - A place is at most once among the free ones here. A node that this compute server frees is added only if the span was already its own when
//!   the free mark was posted (`Allocator::claim`): if it became so later, the look at the new span may have found the place already.
//!
//! A chunk keeps one class (node size and format) for ever, so whatever a stale pointer into it meets is a node of that
//! class, or memory that never held one.

use crate::error::Error;
use crate::mutant::{Mutant, planted};
use crate::node::draft::Place;
use crate::node::{Header, LINE};
use crate::op::Op;
use sherman_fabric::WorkList;
use sherman_fabric::control::{ChunkClass, MOST_FREED, Span};
use sherman_fabric::{ClientId, Endpoint, FabricError, GlobalAddress, Request, Response, Space, VerbId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The version of a node in memory that never held one. Not 0, so that zeroed lines never pass for its own.
pub(crate) const FIRST_VERSION: u16 = 1;
/// The most spans asked for at a time: 1 MiB of nodes of 1 KiB.
const MOST_SPANS: u16 = 16;
/// Spans that turn out to be full before the next server is asked.
const MOST_FULL: u32 = 64;

/// Node memory of one compute server.
#[derive(Debug)]
pub struct Allocator {
    servers: u16,
    first: u16,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    pools: BTreeMap<ChunkClass, Pool>,
    /// Servers that are gone: nothing is taken from there any more.
    lost: BTreeSet<u16>,
    /// Spans obtained so far.
    acquisitions: u64,
}

/// A place that is free.
#[derive(Clone, Copy, Debug)]
struct FreePlace {
    address: GlobalAddress,
    /// The last version it had.
    version: u16,
    /// Whether a node was ever written there.
    used: bool,
}

/// A span that this compute server owns.
#[derive(Debug)]
struct Owned {
    bytes: u64,
    /// Which acquisition it came by.
    acquisition: u64,
    /// Places taken that are not yet part of a tree, nor given back.
    out: u64,
    /// Places at hand.
    free: u64,
}

#[derive(Debug, Default)]
struct Pool {
    free: Vec<FreePlace>,
    /// Never used: server, next offset, end.
    fresh: Vec<(u16, u64, u64)>,
    spans: BTreeMap<GlobalAddress, Owned>,
    /// Spans that were all nodes when a node was last linked there: found without a look at all of them.
    full: BTreeSet<GlobalAddress>,
    /// Requests so far: whose turn it is, and how many spans the next asks for.
    turn: u16,
    requests: u32,
    made: u64,
    freed: u64,
    reused: u64,
}

/// Proof that a span was this compute server's when a free mark was posted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim(Option<u64>);

/// Node memory in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Spans that this compute server owns.
    pub spans: u64,
    /// Bytes of them.
    pub span_bytes: u64,
    /// Their places that are free for use.
    pub free: u64,
    /// Nodes that it made part of a tree.
    pub made: u64,
    /// Nodes that it freed.
    pub freed: u64,
    /// How often it used a place again that had held a node.
    pub reused: u64,
}

impl Allocator {
    /// An allocator that asks servers in turn. Compute servers begin at different ones.
    pub(crate) fn new(servers: u16, client: ClientId) -> Self {
        Self { servers, first: client.0 % servers.max(1), state: Mutex::default() }
    }

    /// The lock is held for a few instructions and nothing in them can panic half-way, so a poisoned one is as good.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place at hand, and whether it held a node before.
    fn take(&self, class: ChunkClass, owner: ClientId) -> Option<(Place, bool)> {
        let mut state = self.state();
        let pool = state.pools.entry(class).or_default();
        let FreePlace { address, version, used } = pool.pop(class)?;
        pool.reused += u64::from(used);
        if let Some(span) = pool.span_of(address) {
            span.out += 1;
            span.free = span.free.saturating_sub(1);
        }
        let continued = if planted(Mutant::StampNotContinued) { FIRST_VERSION.wrapping_sub(1) } else { version };
        Some((Place { address, version: continued.wrapping_add(1), owner }, used))
    }

    /// The server whose turn it is to give spans of this class, how many to ask for, and the spans there that are all nodes by now.
    fn next_request(&self, class: ChunkClass) -> (u16, u16, Vec<(u64, bool)>) {
        let mut state = self.state();
        // Classes begin at different servers too, or leaves and internal nodes would march in step.
        let begin = self.first + state.pools.keys().position(|known| *known == class).unwrap_or(0) as u16;
        let pool = state.pools.entry(class).or_default();
        pool.turn = (pool.turn + 1) % self.servers;
        let server = (begin + pool.turn) % self.servers;
        let count = 1 << (pool.requests / u32::from(self.servers)).min(MOST_SPANS.ilog2());
        pool.requests = pool.requests.saturating_add(1);
        (server, count, pool.give_back_full(server))
    }

    /// A place for a node. One request to a memory server per span or few spans, round robin; none otherwise.
    pub(crate) async fn allocate<E: Endpoint>(&self, op: &Op<'_, E>, class: ChunkClass) -> Result<Place, Error> {
        Ok(self.allocate_noting(op, class).await?.0)
    }

    /// The same, with whether the place held a node before: then somebody may still know the way there.
    pub(crate) async fn allocate_noting<E: Endpoint>(
        &self,
        op: &Op<'_, E>,
        class: ChunkClass,
    ) -> Result<(Place, bool), Error> {
        let owner = op.endpoint().client();
        if let Some(place) = self.take(class, owner) {
            return Ok(place);
        }
        let mut refused = Error::OutOfMemory;
        for _ in 0..self.servers {
            match self.refill(op, class).await {
                Ok(()) | Err(Error::OutOfMemory) => {}
                Err(error @ Error::Unsupported { .. }) => return Err(error),
                Err(error) => refused = error,
            }
            // Perhaps another thread has brought some meanwhile.
            if let Some(place) = self.take(class, owner) {
                return Ok(place);
            }
        }
        Err(refused)
    }

    /// Asks the server whose turn it is for spans until there is a free place in them.
    async fn refill<E: Endpoint>(&self, op: &Op<'_, E>, class: ChunkClass) -> Result<(), Error> {
        op.worker.activate().await?;
        let (server, count, full) = self.next_request(class);
        if self.state().lost.contains(&server) {
            return Ok(());
        }
        if !full.is_empty() {
            let _: Response = self.noting(op.call(server, Request::FreeSpans { spans: full }).await)?;
        }
        for _ in 0..MOST_FULL {
            let spans = match self.noting(op.call(server, Request::AllocSpans { class, count }).await)? {
                Response::Spans(spans) if spans.iter().all(|span| is_sound(op, server, class, span)) => spans,
                _ => return Err(Error::Unsupported { what: "the memory server's answer to a request for memory" }),
            };
            if self.look(op, server, class, spans).await? {
                return Ok(());
            }
        }
        Ok(())
    }

    fn noting<T>(&self, outcome: Result<T, FabricError>) -> Result<T, Error> {
        outcome.inspect_err(|error| self.note_failure(error)).map_err(Error::from)
    }

    /// Finds the free places of spans that are this compute server's now: one round trip for those that were used before. Whether there is any.
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
        // Of each span, where the first line of each place is read, and the place.
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
                    None => pool.free.push(FreePlace { address, version: FIRST_VERSION.wrapping_sub(1), used: false }),
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

    /// A place that was taken is part of a tree now.
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

    /// Takes back a place that was taken and is not going to be part of a tree, with the last version it had.
    pub(crate) fn give_back(&self, class: ChunkClass, address: GlobalAddress, version: u16) {
        let mut state = self.state();
        let pool = state.pools.entry(class).or_default();
        if let Some(span) = pool.span_of(address) {
            span.out = span.out.saturating_sub(1);
            span.free += 1;
            pool.free.push(FreePlace { address, version, used: true });
        }
    }

    /// Called before the free mark of a node is posted.
    pub(crate) fn claim(&self, class: ChunkClass, address: GlobalAddress) -> Claim {
        let mut state = self.state();
        Claim(state.pools.get_mut(&class).and_then(|pool| pool.span_of(address)).map(|span| span.acquisition))
    }

    /// Called when the free mark of a node is visible, with the version it had. The list set the span's hint too.
    pub(crate) fn freed(&self, class: ChunkClass, address: GlobalAddress, version: u16, claim: Claim) {
        let mut state = self.state();
        let pool = state.pools.entry(class).or_default();
        pool.freed += 1;
        let Some(span) = pool.span_of(address) else { return };
        if Some(span.acquisition) == claim.0 || planted(Mutant::FreedTwice) {
            span.free += 1;
            pool.free.push(FreePlace { address, version, used: true });
        }
    }

    /// Stops owning spans in which nothing is being made: what a server is to be told, if there are any.
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

    /// How many nodes' worth of memory this compute server has.
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

    /// Every free place: for checking that none is lost.
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

    /// Forgets all places on a server that is gone, so that later operations use those that are there.
    pub(crate) fn note_failure(&self, error: &FabricError) {
        let FabricError::ServerLost { server } = *error else { return };
        let mut state = self.state();
        state.lost.insert(server);
        for pool in state.pools.values_mut() {
            pool.free.retain(|place| place.address.server() != server);
            pool.fresh.retain(|(on, ..)| *on != server);
            pool.spans.retain(|at, _| at.server() != server);
        }
    }
}

/// Whether a memory server's answer names memory it has, for the class that was asked for.
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

    /// The span that a place lies in, if this compute server owns it.
    fn span_of(&mut self, address: GlobalAddress) -> Option<&mut Owned> {
        self.start_of(address).map(|(_, span)| span)
    }

    /// The same with where it begins.
    fn start_of(&mut self, address: GlobalAddress) -> Option<(GlobalAddress, &mut Owned)> {
        let (&start, span) = self.spans.range_mut(..=address).next_back()?;
        let inside = start.server() == address.server() && address.offset() - start.offset() < span.bytes;
        inside.then_some((start, span))
    }

    /// Stops owning spans of a server that are all nodes, as many as one request takes. Their offsets, each without free places.
    fn give_back_full(&mut self, server: u16) -> Vec<(u64, bool)> {
        let mut gone = Vec::new();
        for start in self.full.extract_if(.., |start| start.server() == server).take(MOST_FREED) {
            let full = |span: &Owned| (span.out == 0 || planted(Mutant::SpanBackEarly)) && span.free == 0;
            if self.spans.get(&start).is_some_and(full) {
                self.spans.remove(&start);
                gone.push((start.offset(), false));
            }
        }
        gone
    }

    /// Stops owning spans of a server in which nothing is being made, as many as one request takes. Their offsets, each said to have free places.
    fn give_back_unused(&mut self, server: u16) -> Vec<(u64, bool)> {
        let unused = |at: &GlobalAddress, span: &mut Owned| {
            at.server() == server && (span.out == 0 || planted(Mutant::SpanBackEarly))
        };
        let gone: Vec<(u64, u64)> =
            self.spans.extract_if(.., unused).take(MOST_FREED).map(|(at, span)| (at.offset(), span.bytes)).collect();
        let kept = |on: u16, offset: u64| {
            on != server || !gone.iter().any(|(start, bytes)| (*start..start + bytes).contains(&offset))
        };
        self.free.retain(|place| kept(place.address.server(), place.address.offset()));
        self.fresh.retain(|(on, next, _)| kept(*on, *next));
        gone.into_iter().map(|(offset, _)| (offset, true)).collect()
    }
}
