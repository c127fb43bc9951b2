//! Two-stage allocation (paper §4.2.4): chunks from memory servers by request, nodes from chunks locally.
//!
//! A chunk keeps one class (node size and format) for ever, so whatever a stale pointer into it meets is a node of that
//! class, or memory that never held one.

use crate::error::Error;
use crate::mutant::{Mutant, planted};
use crate::node::draft::Place;
use crate::op::Op;
use sherman_fabric::control::ChunkClass;
use sherman_fabric::{ClientId, Endpoint, FabricError, GlobalAddress, Refusal, Request, Response};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The version of a node in memory that never held one. Not 0, so that zeroed lines never pass for its own.
pub(crate) const FIRST_VERSION: u16 = 1;

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
}

/// A place that is free.
#[derive(Clone, Copy, Debug)]
struct Returned {
    address: GlobalAddress,
    /// The last version it had.
    version: u16,
    /// Whether a node was ever written there.
    used: bool,
}

#[derive(Debug, Default)]
struct Pool {
    /// Rest of the current chunk: server, next offset, end.
    fresh: Option<(u16, u64, u64)>,
    /// Places given back.
    returned: Vec<Returned>,
    /// Chunks asked for so far: whose turn it is.
    turn: u16,
    /// Chunks obtained, and the nodes they make.
    chunks: u64,
    allocated: u64,
    /// Places handed out that had held a node.
    reused: u64,
}

/// Node memory in numbers: what was obtained is either part of a tree, being made, or free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Chunks obtained from memory servers.
    pub chunks: u64,
    /// Nodes these make.
    pub allocated: u64,
    /// Nodes of them that are free for use.
    pub free: u64,
    /// How often a place that had held a node was used again.
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
        if let Some(Returned { address, version, used }) = pool.returned.pop() {
            pool.reused += u64::from(used);
            let version = if planted(Mutant::StampNotContinued) { FIRST_VERSION.wrapping_sub(1) } else { version };
            return Some((Place { address, version: version.wrapping_add(1), owner }, used));
        }
        let (server, next, end) = pool.fresh?;
        let after = next + u64::from(class.node_bytes);
        if after > end {
            return None;
        }
        pool.fresh = Some((server, after, end));
        Some((Place { address: GlobalAddress::new(server, next), version: FIRST_VERSION, owner }, false))
    }

    /// The server whose turn it is to give a chunk of this class.
    fn next_server(&self, class: ChunkClass) -> u16 {
        let mut state = self.state();
        // Classes begin at different servers too, or leaves and internal nodes would march in step.
        let begin = self.first + state.pools.keys().position(|known| *known == class).unwrap_or(0) as u16;
        let pool = state.pools.entry(class).or_default();
        pool.turn = (pool.turn + 1) % self.servers;
        (begin + pool.turn) % self.servers
    }

    /// A place for a node. One request to a memory server per chunk, round robin; none otherwise.
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
            let server = self.next_server(class);
            if self.state().lost.contains(&server) {
                continue;
            }
            match op.call(server, Request::AllocChunk { class }).await {
                Ok(Response::Chunk { offset, bytes }) if op.worker.compute.is_memory(server, offset, bytes) => {
                    self.state().pools.entry(class).or_default().add_chunk(server, offset, bytes, class);
                    if let Some(place) = self.take(class, owner) {
                        return Ok(place);
                    }
                }
                Ok(_) => return Err(Error::Unsupported { what: "the memory server's answer to a chunk request" }),
                Err(FabricError::Refused(Refusal::OutOfMemory)) => {}
                Err(error) => {
                    self.note_failure(&error);
                    refused = error.into();
                }
            }
        }
        // Another thread may have brought a chunk meanwhile.
        self.take(class, owner).ok_or(refused)
    }

    /// How many nodes' worth of memory this compute server has.
    pub fn census(&self) -> Census {
        let state = self.state();
        let mut census = Census::default();
        for (class, pool) in &state.pools {
            let fresh = pool.fresh.map_or(0, |(_, next, end)| (end - next) / u64::from(class.node_bytes));
            census.free += pool.returned.len() as u64 + fresh;
            census.allocated += pool.allocated;
            census.chunks += pool.chunks;
            census.reused += pool.reused;
        }
        census
    }

    /// Takes back a place that was never linked, or whose node was freed, with the last version it had.
    pub(crate) fn give_back(&self, class: ChunkClass, address: GlobalAddress, version: u16) {
        let mut state = self.state();
        if !state.lost.contains(&address.server()) {
            state.pools.entry(class).or_default().returned.push(Returned { address, version, used: true });
        }
    }

    /// Takes over places that were another's: the address and last version of each, and whether it ever held a node.
    pub(crate) fn adopt(&self, class: ChunkClass, places: impl IntoIterator<Item = (GlobalAddress, u16, bool)>) {
        let mut state = self.state();
        let pool = state.pools.entry(class).or_default();
        for (address, version, used) in places {
            pool.returned.push(Returned { address, version, used });
            pool.allocated += 1;
        }
    }

    /// Every free place: for checking that none is lost.
    pub fn free_places(&self) -> Vec<GlobalAddress> {
        let state = self.state();
        let mut places = Vec::new();
        for (class, pool) in &state.pools {
            places.extend(pool.returned.iter().map(|place| place.address));
            if let Some((server, next, end)) = pool.fresh {
                let fresh = (next..end).step_by(class.node_bytes as usize);
                let whole = fresh.filter(|at| at + u64::from(class.node_bytes) <= end);
                places.extend(whole.map(|at| GlobalAddress::new(server, at)));
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
            pool.returned.retain(|place| place.address.server() != server);
            pool.fresh = pool.fresh.filter(|(on, ..)| *on != server);
        }
    }
}

impl Pool {
    /// Starts on a new chunk; what is left of the old one, if two threads asked at once, is kept.
    fn add_chunk(&mut self, server: u16, offset: u64, bytes: u64, class: ChunkClass) {
        if let Some((server, mut next, end)) = self.fresh.take() {
            while next + u64::from(class.node_bytes) <= end {
                let address = GlobalAddress::new(server, next);
                self.returned.push(Returned { address, version: FIRST_VERSION.wrapping_sub(1), used: false });
                next += u64::from(class.node_bytes);
            }
        }
        self.chunks += 1;
        self.allocated += bytes / u64::from(class.node_bytes);
        self.fresh = Some((server, offset, offset + bytes));
    }
}
