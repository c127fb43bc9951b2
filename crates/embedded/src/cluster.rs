//! Memory servers inside the process, and the compute servers that join them.

use crate::copy::{CopyPath, LINE};
use crate::endpoint::EmbeddedEndpoint;
use crate::error::EmbeddedError;
use crate::gate::Member;
use crate::line::Atomicity;
use crate::membership::Membership;
use crate::memory::Region;
use crate::server::{Asker, Server};
use crate::verbs::{MAX_TRANSFER, MAX_VERBS};
use sherman_fabric::{
    Call, Caps, ComputeId, Fabric, FabricError, FenceMode, GlobalAddress, Refusal, Request, calls,
};
use sherman_layout::FormatOptions;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

/// The maximum number of servers in one cluster.
pub const MAX_SERVERS: u16 = 1024;

/// The options of a cluster in this process.
#[derive(Clone, Debug)]
pub struct EmbeddedOptions {
    /// Number of memory servers.
    pub servers: u16,
    /// Bytes of host memory per server, rounded down to whole lines of 64. Pages that are never written cost
    /// nothing. Where the system has huge pages, a large memory grows by 2 MiB at a time.
    pub memory_bytes: u64,
    /// Bytes of on-chip memory per server, rounded down to whole words of 8.
    pub on_chip_bytes: u64,
    /// How each server is formatted. The cluster sets `server` and `servers`.
    pub format: FormatOptions,
    /// The unit of atomicity.
    pub atomicity: Atomicity,
}

impl Default for EmbeddedOptions {
    fn default() -> Self {
        Self {
            servers: 1,
            memory_bytes: 1 << 30,
            on_chip_bytes: 256 << 10,
            format: FormatOptions::default(),
            atomicity: Atomicity::Line,
        }
    }
}

/// The memory servers of one cluster. They live until the last handle, fabric or endpoint is dropped.
#[derive(Debug)]
pub struct EmbeddedCluster {
    servers: Vec<Server>,
    caps: Caps,
    /// When [`Clock::now`](sherman_fabric::Clock::now) was 0, for every endpoint.
    epoch: Instant,
    members: Arc<Mutex<Members>>,
}

/// The member that has each id now, if any handle of it lives.
type Members = BTreeMap<ComputeId, Weak<Member>>;

impl EmbeddedCluster {
    /// Allocates and formats the memory of all servers.
    pub fn new(options: EmbeddedOptions) -> Result<Arc<Self>, EmbeddedError> {
        let EmbeddedOptions { servers: count, memory_bytes, on_chip_bytes, format, atomicity } = options;
        if count == 0 {
            return Err(EmbeddedError::NoServers);
        }
        if count > MAX_SERVERS {
            return Err(EmbeddedError::TooManyServers { asked: count, limit: MAX_SERVERS });
        }
        let limit = GlobalAddress::OFFSET_LIMIT;
        if let Some(bytes) = [memory_bytes, on_chip_bytes].into_iter().find(|bytes| *bytes > limit) {
            return Err(EmbeddedError::TooMuchMemory { bytes, limit });
        }
        let path = CopyPath::fastest();
        let mut servers = Vec::with_capacity(usize::from(count));
        for server in 0..count {
            let host = usize::try_from(memory_bytes).ok().map(|bytes| bytes / LINE * LINE);
            let chip = usize::try_from(on_chip_bytes).ok().map(|bytes| bytes / 8 * 8);
            let region = host.zip(chip).and_then(|(host, chip)| Region::new(host, chip, atomicity, path));
            let region = region.ok_or(EmbeddedError::OutOfMemory { server, bytes: memory_bytes })?;
            // `memory_id` 0 makes each server draw its own identity.
            let format = FormatOptions { server, servers: count, memory_id: 0, ..format };
            let formatted = Server::format(region, &format);
            servers.push(formatted.map_err(|error| EmbeddedError::Format { server, error })?);
        }
        make_one_cluster(&servers);
        let caps = caps(on_chip_bytes, atomicity);
        let members = Arc::new(Mutex::new(Members::new()));
        let (registry, all) = (Arc::clone(&members), 0..count);
        servers[0].on_reaped(Box::new(move |client| {
            // The client owned nothing, so its lists in progress only READ. Nothing waits for them.
            let known = lock(&registry).get(&client).and_then(Weak::upgrade);
            known.iter().for_each(|member| all.clone().for_each(|server| _ = member.fence(server)));
        }));
        Ok(Arc::new(Self { servers, caps, epoch: Instant::now(), members }))
    }

    /// Joins the cluster as a new compute server. The compute server leaves when the last of its handles is
    /// dropped.
    pub fn join(self: &Arc<Self>) -> Result<EmbeddedFabric, FabricError> {
        let out_of_memory = FabricError::Refused(Refusal::OutOfMemory);
        let mut member = Member::new(ComputeId::NOBODY, self.servers.len()).ok_or(out_of_memory)?;
        // The id enters the registry before server 0 answers any other request. So a client that suspects
        // this id, however soon, finds it there.
        let joined = self.servers[0].handle(
            Asker::Nobody,
            &Request::Join,
            || self.now(),
            |_, response| {
                member.client = calls::Join::expect(response)?;
                let member = Arc::new(member);
                self.members().insert(member.client, Arc::downgrade(&member));
                Ok::<_, FabricError>(member)
            },
        )?;
        let member = joined?;
        // A fence of this id is either already in the tables of a server asked here, or its fencer finds the
        // registry entry just made.
        for server in
            (0..self.servers()).filter(|server| self.servers[usize::from(*server)].is_fenced(member.client))
        {
            member.fence(server);
        }
        Ok(EmbeddedFabric { membership: Arc::new(Membership::new(Arc::clone(self), member)) })
    }

    /// What this backend can do.
    pub fn caps(&self) -> &Caps {
        &self.caps
    }

    /// How many memory servers there are.
    pub fn servers(&self) -> u16 {
        self.servers.len() as u16
    }

    /// The memory of a server, as its own CPU sees it. For tests and tools: it bypasses every protocol.
    pub fn memory(&self, server: u16) -> Option<&Region> {
        self.servers.get(usize::from(server)).map(Server::memory)
    }

    #[inline]
    pub(crate) fn server(&self, server: u16) -> Result<&Server, FabricError> {
        self.servers.get(usize::from(server)).ok_or(FabricError::NoSuchServer { server })
    }

    /// The member that has this id now, if any handle of it lives. An earlier member with this id is not
    /// found and need not be. It left, was retired or was freed by the server, so its flags are up.
    pub(crate) fn member(&self, client: ComputeId) -> Option<Arc<Member>> {
        self.members().get(&client).and_then(Weak::upgrade)
    }

    pub(crate) fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    pub(crate) fn members(&self) -> MutexGuard<'_, Members> {
        lock(&self.members)
    }
}

/// What memory in this process can do.
pub(crate) fn caps(on_chip_bytes: u64, atomicity: Atomicity) -> Caps {
    Caps {
        atomic_unit: LINE as u32,
        crash_unit: LINE as u32,
        verb_atomic: atomicity == Atomicity::Verb,
        masked_cas: true,
        write_releases: true,
        lock_read: true,
        on_chip_bytes: on_chip_bytes / 8 * 8,
        fence: FenceMode::Revoke,
        // A READ has no upper bound, because its thread may be stopped in the middle. So sixteen writes may
        // fit into one READ, however long a write takes. Under `Atomicity::Verb` no guard is needed.
        shortest_write_nanos: 0,
        max_verbs: MAX_VERBS,
        max_transfer: MAX_TRANSFER,
    }
}

fn lock(members: &Mutex<Members>) -> MutexGuard<'_, Members> {
    // Every change is one insertion or removal, so the data under a poisoned lock is still right.
    members.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tells server 0 the memories of all servers, and tells every server its cluster. In other backends the
/// first client that joins does this.
fn make_one_cluster(servers: &[Server]) {
    let identities: Vec<u64> =
        servers.iter().map(|server| server.look(|tables| tables.superblock().memory_id)).collect();
    let Some((first, cluster)) = servers.first().zip(identities.first().copied()) else { return };
    first.change(|tables, memories| tables.enlist_all(memories, &identities));
    for server in servers {
        server.change(|tables, memories| tables.adopt(memories, cluster));
    }
}

/// One compute server's access to the cluster. Clones and endpoints share its identity. Dropping the last of
/// them leaves the cluster.
#[derive(Clone, Debug)]
pub struct EmbeddedFabric {
    membership: Arc<Membership>,
}

impl EmbeddedFabric {
    /// The cluster of this compute server.
    pub fn cluster(&self) -> &Arc<EmbeddedCluster> {
        &self.membership.cluster
    }

    /// Its identity.
    pub fn client(&self) -> ComputeId {
        self.membership.member.client
    }

    /// A new endpoint, for the calling thread.
    pub fn endpoint(&self) -> EmbeddedEndpoint {
        EmbeddedEndpoint::new(Arc::clone(&self.membership))
    }

    /// Halts the compute server, as if its machine had lost power. For tests and tools.
    ///
    /// From now on each of its endpoints does at most one last thing and then nothing more. Either it
    /// executes a prefix of its next list, cut between two verbs or between two 64-byte units of a WRITE. Or
    /// it sends its next request. `seed` determines which. Lists in execution at this moment may end. Nothing
    /// that is posted or asked from now on completes, so a task that waits for it sleeps permanently. No
    /// destructor has any effect on the cluster: the compute server does not leave, and its lease expires.
    ///
    /// A repeated call only changes the seed.
    pub fn halt(&self, seed: u64) {
        self.membership.member.halt(seed);
    }
}

impl Fabric for EmbeddedFabric {
    type Endpoint = EmbeddedEndpoint;

    fn endpoint(&self) -> Result<EmbeddedEndpoint, FabricError> {
        Ok(EmbeddedFabric::endpoint(self))
    }
}
