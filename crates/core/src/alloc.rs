//! Two-stage allocation (paper §4.2.4): chunks from memory servers by request, nodes from chunks locally.
//!
//! A chunk keeps one class (node size and format) for ever, so whatever a stale pointer into it meets is a node of that
//! class, or memory that never held one.

use crate::error::Error;
use crate::node::draft::Place;
use crate::op::Op;
use sherman_fabric::control::ChunkClass;
use sherman_fabric::{ClientId, Endpoint, FabricError, GlobalAddress, Refusal, Request, Response};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The version of a node in memory that never held one. Not 0, so that zeroed lines never pass for its own.
const FIRST_VERSION: u16 = 1;

/// Node memory of one compute server.
#[derive(Debug)]
pub struct Allocator {
    servers: u16,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    pools: BTreeMap<ChunkClass, Pool>,
    next_server: u16,
}

#[derive(Debug, Default)]
struct Pool {
    /// Rest of the current chunk: server, next offset, end.
    fresh: Option<(u16, u64, u64)>,
    /// Places given back, with the last version they had.
    returned: Vec<(GlobalAddress, u16)>,
}

impl Allocator {
    pub(crate) fn new(servers: u16) -> Self {
        Self { servers, state: Mutex::default() }
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

    /// A place for a node. One request to a memory server per chunk, round robin; none otherwise.
    pub(crate) async fn allocate<E: Endpoint>(&self, op: &Op<'_, E>, class: ChunkClass) -> Result<Place, Error> {
        let owner = op.endpoint().client();
        if let Some(place) = self.take(class, owner) {
            return Ok(place);
        }
        for _ in 0..self.servers {
            let server = {
                let mut state = self.state();
                let server = state.next_server % self.servers;
                state.next_server = (server + 1) % self.servers;
                server
            };
            match op.call(server, Request::AllocChunk { class }).await {
                Ok(Response::Chunk { offset, bytes }) => {
                    self.state().pools.entry(class).or_default().add_chunk(server, offset, bytes, class);
                    if let Some(place) = self.take(class, owner) {
                        return Ok(place);
                    }
                }
                Ok(_) => return Err(Error::Unsupported { what: "the memory server's answer to a chunk request" }),
                Err(FabricError::Refused(Refusal::OutOfMemory)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // Another thread may have brought a chunk meanwhile.
        self.take(class, owner).ok_or(Error::OutOfMemory)
    }

    /// Takes back a place that was never linked, with the version it was written under.
    pub(crate) fn give_back(&self, class: ChunkClass, address: GlobalAddress, version: u16) {
        self.state().pools.entry(class).or_default().returned.push((address, version));
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
