//! Which memories belong to the cluster, which servers are declared lost, and which clients may join.
//!
//! Server 0 checks what a client found at every other server *before* it issues an id: a refusal changes
//! nothing on any server.

use super::MemoryServer;
use sherman_fabric::{ComputeId, Memory, Refusal, Request, Response, Seen, ServerInfo, Space};
use sherman_layout::geometry::CLUSTER_OFFSET;

impl MemoryServer {
    /// The cluster that this memory belongs to: the identity of its server 0's memory. 0 if it belongs to
    /// none yet.
    pub fn cluster(&self) -> u64 {
        self.cluster
    }

    /// The servers that the cluster has declared lost; none where there is no server table.
    pub fn lost(&self) -> Vec<u16> {
        let entries = self.root.iter().flat_map(|root| root.servers.entries());
        entries.zip(0u16..).filter(|(entry, _)| entry.lost).map(|(_, server)| server).collect()
    }

    /// Adds this memory to `cluster`, if it belongs to none yet. Returns whether it belongs to `cluster` now.
    pub fn adopt(&mut self, memory: &dyn Memory, cluster: u64) -> bool {
        if self.cluster == 0 && cluster != 0 {
            memory.store_u64(Space::Host, CLUSTER_OFFSET, cluster);
            self.cluster = cluster;
        }
        self.cluster == cluster
    }

    /// Issues an id to a client that found `seen` at the servers, by number. Ignores the entry for server 0.
    /// Memories that the cluster does not know yet belong to it from now on.
    pub fn join_seeing(
        &mut self,
        memory: &dyn Memory,
        seen: &[Option<Seen>],
        now: u64,
    ) -> Result<ComputeId, Refusal> {
        let cluster = self.cluster;
        let servers = self.superblock.servers;
        self.reap(memory, now);
        let root = self.root.as_mut().ok_or(Refusal::NotHere)?;
        if seen.len() != usize::from(servers) {
            return Err(Refusal::OtherCount { servers });
        }
        let mut unknown: Vec<(u16, u64)> = Vec::new();
        for ((entry, found), server) in root.servers.entries().iter().zip(seen).zip(0u16..).skip(1) {
            if entry.lost {
                continue;
            }
            let found = found.filter(|found| found.memory != 0).ok_or(Refusal::Unreachable { server })?;
            if found.cluster != 0 && found.cluster != cluster {
                return Err(Refusal::OtherCluster { server });
            }
            if entry.memory == 0 {
                // Two numbers reach one memory, or a server of this cluster has another number.
                if root.servers.has(found.memory) || unknown.iter().any(|(_, other)| *other == found.memory) {
                    return Err(Refusal::OtherMemory { server });
                }
                unknown.push((server, found.memory));
            } else if entry.memory != found.memory {
                return Err(Refusal::OtherMemory { server });
            }
        }
        root.members.next_free(&self.superblock.geometry, now).ok_or(Refusal::TooManyMembers)?;
        for (server, identity) in unknown {
            root.servers.enlist(memory, &self.superblock.geometry, server, identity);
        }
        root.members.begin(memory, &self.superblock.geometry, now);
        self.join(memory, now)
    }

    /// Makes the memories of all servers one cluster, as if a client that sees them had joined. For a caller
    /// that has just formatted all of them. Does nothing on a server other than 0.
    pub fn enlist_all(&mut self, memory: &dyn Memory, identities: &[u64]) {
        let Some(root) = &mut self.root else { return };
        for (&identity, server) in identities.iter().zip(0u16..) {
            if root.servers.entries().get(usize::from(server)).is_some_and(|entry| entry.memory == 0) {
                root.servers.enlist(memory, &self.superblock.geometry, server, identity);
            }
        }
    }

    pub(super) fn servers_request(
        &mut self,
        memory: &dyn Memory,
        from: ComputeId,
        request: &Request,
    ) -> Result<Response, Refusal> {
        self.admit_member(from)?;
        match request {
            Request::DeclareLost { server } => self.declare_lost(memory, *server),
            _ => self.servers(),
        }
    }

    /// Every server of the cluster, by number.
    pub(super) fn servers(&self) -> Result<Response, Refusal> {
        let root = self.root.as_ref().ok_or(Refusal::NotHere)?;
        let entries: Vec<ServerInfo> = root.servers.entries().to_vec();
        Ok(Response::Servers(entries))
    }

    /// Ends the lease of every live member, then marks `server` lost. If server 0 stops in between, only
    /// leases are lost, and the operator asks again. In the other order, members could continue with the old
    /// view.
    pub(super) fn declare_lost(&mut self, memory: &dyn Memory, server: u16) -> Result<Response, Refusal> {
        let root = self.root.as_ref().ok_or(Refusal::NotHere)?;
        if server == 0 {
            return Err(Refusal::BadRequest {
                what: "memory server 0 keeps the members and cannot be declared lost",
            });
        }
        let Some(entry) = root.servers.entries().get(usize::from(server)) else {
            return Err(Refusal::BadRequest { what: "the cluster has no such memory server" });
        };
        if entry.lost {
            return Ok(Response::Done);
        }
        let live: Vec<ComputeId> = root.members.live().collect();
        for client in live {
            self.condemn(memory, client)?;
        }
        let root = self.root.as_mut().ok_or(Refusal::NotHere)?;
        root.servers.declare_lost(memory, &self.superblock.geometry, server);
        Ok(Response::Done)
    }
}
