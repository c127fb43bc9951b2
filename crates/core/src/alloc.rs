//! Two-stage allocation (paper §4.2.4): chunks from memory servers by request, nodes from chunks locally.
//!
//! A chunk keeps one class (node size and format) for ever, so whatever a stale pointer into it meets is a node of that
//! class, or memory that never held one.

use crate::error::Error;
use crate::node::draft::Place;
use crate::op::Op;
use sherman_fabric::control::ChunkClass;
use sherman_fabric::{ClientId, Endpoint, FabricError, GlobalAddress, Refusal, Request, Response};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The version of a node in memory that never held one. Not 0, so that zeroed lines never pass for its own.
const FIRST_VERSION: u16 = 1;

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

#[derive(Debug, Default)]
struct Pool {
    /// Rest of the current chunk: server, next offset, end.
    fresh: Option<(u16, u64, u64)>,
    /// Places given back, with the last version they had.
    returned: Vec<(GlobalAddress, u16)>,
    /// Chunks asked for so far: whose turn it is.
    turn: u16,
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

    fn take(&self, class: ChunkClass, owner: ClientId) -> Option<Place> {
        let mut state = self.state();
        let pool = state.pools.entry(class).or_default();
        if let Some((address, version)) = pool.returned.pop() {
            return Some(Place { address, version: version.wrapping_add(1), owner });
        }
        let (server, next, end) = pool.fresh?;
        let after = next + u64::from(class.node_bytes);
        if after > end {
            return None;
        }
        pool.fresh = Some((server, after, end));
        Some(Place { address: GlobalAddress::new(server, next), version: FIRST_VERSION, owner })
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

    /// Takes back a place that was never linked, with the version it was written under.
    pub(crate) fn give_back(&self, class: ChunkClass, address: GlobalAddress, version: u16) {
        let mut state = self.state();
        if !state.lost.contains(&address.server()) {
            state.pools.entry(class).or_default().returned.push((address, version));
        }
    }

    /// Forgets all places on a server that is gone, so that later operations use those that are there.
    pub(crate) fn note_failure(&self, error: &FabricError) {
        let FabricError::ServerLost { server } = *error else { return };
        let mut state = self.state();
        state.lost.insert(server);
        for pool in state.pools.values_mut() {
            pool.returned.retain(|(address, _)| address.server() != server);
            pool.fresh = pool.fresh.filter(|(on, ..)| *on != server);
        }
    }
}

impl Pool {
    /// Starts on a new chunk; what is left of the old one, if two threads asked at once, is kept.
    fn add_chunk(&mut self, server: u16, offset: u64, bytes: u64, class: ChunkClass) {
        if let Some((server, mut next, end)) = self.fresh.take() {
            while next + u64::from(class.node_bytes) <= end {
                self.returned.push((GlobalAddress::new(server, next), FIRST_VERSION.wrapping_sub(1)));
                next += u64::from(class.node_bytes);
            }
        }
        self.fresh = Some((server, offset, offset + bytes));
    }
}
