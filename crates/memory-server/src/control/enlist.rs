//! Which memories belong to the cluster, which servers are declared lost, and which clients may join.
//!
//! The control state checks what a client found at every server *before* it issues an id: a refusal changes
//! nothing on any server.

use super::Control;
use sherman_fabric::{ComputeId, Memory, Refusal, Response, Seen};

impl Control {
    /// The servers that the cluster has declared lost.
    pub fn lost(&self) -> Vec<u16> {
        let entries = self.servers.entries().iter().zip(0u16..);
        entries.filter(|(entry, _)| entry.lost).map(|(_, server)| server).collect()
    }

    /// Issues an id to a client that found `seen` at the servers, by number. Ignores the entry for volume 0.
    /// Memories that the cluster does not know yet belong to it from now on.
    pub fn join_seeing(
        &mut self,
        memory: &dyn Memory,
        seen: &[Option<Seen>],
        now: u64,
    ) -> Result<ComputeId, Refusal> {
        let (cluster, geometry) = (self.block.cluster, self.block.geometry);
        self.reap(memory, now);
        if seen.len() != geometry.server_capacity as usize {
            return Err(Refusal::OtherCount { servers: geometry.server_capacity as u16 });
        }
        let mut unknown: Vec<(u16, u64)> = Vec::new();
        for ((entry, found), server) in self.servers.entries().iter().zip(seen).zip(0u16..).skip(1) {
            if entry.lost {
                continue;
            }
            let found = found.filter(|found| found.memory != 0).ok_or(Refusal::Unreachable { server })?;
            if found.cluster != 0 && found.cluster != cluster {
                return Err(Refusal::OtherCluster { server });
            }
            if entry.memory == 0 {
                // Two numbers reach one memory, or a server of this cluster has another number.
                if self.servers.has(found.memory) || unknown.iter().any(|(_, other)| *other == found.memory) {
                    return Err(Refusal::OtherMemory { server });
                }
                unknown.push((server, found.memory));
            } else if entry.memory != found.memory {
                return Err(Refusal::OtherMemory { server });
            }
        }
        self.members.next_free(&geometry, now).ok_or(Refusal::TooManyMembers)?;
        for (server, identity) in unknown {
            self.servers.enlist(memory, &geometry, server, identity);
        }
        self.members.begin(memory, &geometry, now);
        self.join(memory, now)
    }

    /// Makes the memories of all servers one cluster, as if a client that sees them had joined. For a caller
    /// that has just formatted all of them.
    pub fn enlist_all(&mut self, memory: &dyn Memory, identities: &[u64]) {
        for (&identity, server) in identities.iter().zip(0u16..) {
            if self.servers.entries().get(usize::from(server)).is_some_and(|entry| entry.memory == 0) {
                self.servers.enlist(memory, &self.block.geometry, server, identity);
            }
        }
    }

    /// Every server of the cluster, by number.
    pub(super) fn list_servers(&self) -> Response {
        Response::Servers(self.servers.entries().to_vec())
    }

    /// Ends the lease of every live member, then marks `server` lost. If the control state stops in between,
    /// only leases are lost, and the operator asks again. In the other order, members could continue with the
    /// old view.
    pub(super) fn declare_lost(&mut self, memory: &dyn Memory, server: u16) -> Result<Response, Refusal> {
        if server == 0 {
            return Err(Refusal::BadRequest {
                what: "memory server 0 keeps the members and cannot be declared lost",
            });
        }
        let Some(entry) = self.servers.entries().get(usize::from(server)) else {
            return Err(Refusal::BadRequest { what: "the cluster has no such memory server" });
        };
        if entry.lost {
            return Ok(Response::Done);
        }
        let live: Vec<ComputeId> = self.members.live().collect();
        for client in live {
            self.condemn(memory, client)?;
        }
        self.servers.declare_lost(memory, &self.block.geometry, server);
        Ok(Response::Done)
    }
}
