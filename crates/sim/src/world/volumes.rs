//! Volumes in several copies: hosts, their copies, and what they do when the table of volumes changes.
//!
//! A server of the world is one *copy* of a volume. Without replication every volume has one copy, and
//! nothing here matters. With it, the CPU of a volume's primary sends each of its stores to the other copies
//! before it answers (T5). Here both happen in one event: a primary that dies in between has not answered, so
//! its own stores are the same as none.
//!
//! The control state is the one of the product, [`ClusterState`]. It is immortal here: a single one, that
//! answers in one event. The world knows which hosts run; the control state knows which were declared lost.
//!
//! A host that is declared lost may be alive. Nobody can fence a client there. Clients that still have the
//! old table read and write its copies until their leases have run out.

use super::World;
use super::copier::Copier;
use crate::hash::{mix, mix_bytes};
use crate::knobs::Breach;
use crate::memory::CpuView;
use crate::world::flight::NO_TASK;
use sherman_fabric::group::{Admission, HostOffer};
use sherman_fabric::{ComputeId, FabricError, Memory, Refusal, Request, Response, Role, Space};
use sherman_layout::{FormatError, FormatOptions, MemberState};
use sherman_memory_server::{ClusterSettings, ClusterState, Command, Memories, MemoryServer, Volume};
use sherman_replica::{VolumeEntry, VolumeTable};
use std::cell::RefCell;
use std::sync::Arc;

/// The identity of the cluster. It is also that of the memory of volume 0.
pub(crate) const CLUSTER: u64 = 1;

/// More bits of work than the copies of a host need.
const MOST_WORK: u32 = 64;

/// What everybody knows about volumes, and the control state of a cluster with copies.
#[derive(Clone, Debug)]
pub(crate) struct Volumes {
    /// The table of the control state, unless a planted bug bends it.
    pub(crate) table: Arc<VolumeTable>,
    /// The table of the epoch before.
    former: Option<Arc<VolumeTable>>,
    /// The control state. Without replication it is beside volume 0, as in plain clusters.
    cluster: Option<ClusterState>,
    /// For each host: whether its process runs.
    pub(super) up: Vec<bool>,
    /// How often hosts came back.
    pub(crate) returns: u32,
    /// A planted bug: the last epoch in which a host that came back has opened volumes.
    opened_by_return: u64,
    /// What hosts do to make copies again.
    pub(crate) copier: Copier,
}

impl Volumes {
    /// A cluster without replication: each server is a volume.
    pub(crate) fn single(volumes: u16) -> Self {
        let table = Arc::new(VolumeTable::single(volumes));
        Self {
            table,
            former: None,
            cluster: None,
            up: Vec::new(),
            returns: 0,
            opened_by_return: 0,
            copier: Copier::default(),
        }
    }

    /// A cluster of as many hosts as the settings expect.
    /// With `keeps` they keep their memory when their processes end.
    pub(crate) fn replicated(settings: ClusterSettings, keeps: bool) -> Result<Self, FormatError> {
        let mut cluster = ClusterState::new(CLUSTER, settings)?;
        for host in 0..settings.hosts {
            register(&mut cluster, 0, host, keeps);
        }
        let (table, up) = (Arc::clone(cluster.table()), vec![true; usize::from(settings.hosts)]);
        let cluster = Some(cluster);
        Ok(Self {
            table,
            former: None,
            cluster,
            up,
            returns: 0,
            opened_by_return: 0,
            copier: Copier::default(),
        })
    }

    /// The control state of a cluster with copies.
    pub(crate) fn cluster(&self) -> Option<&ClusterState> {
        self.cluster.as_ref()
    }

    /// Takes the state of a control group that has come to rest.
    pub(super) fn set_cluster(&mut self, state: ClusterState) {
        self.cluster = Some(state);
    }

    pub(super) fn cluster_mut(&mut self) -> Option<&mut ClusterState> {
        self.cluster.as_mut()
    }

    /// The hosts that died and were not declared lost.
    pub(crate) fn dead_hosts(&self) -> Vec<u16> {
        let known = |host: &u16| {
            self.cluster.as_ref().and_then(|state| state.host(*host)).is_some_and(|host| host.info.up)
        };
        (0..).zip(&self.up).filter(|(_, up)| !**up).map(|(host, _)| host).filter(known).collect()
    }

    /// The number of the first copy that was not there when the cluster was formed.
    pub(crate) fn first_made(&self) -> u16 {
        self.cluster.as_ref().map_or(u16::MAX, |state| {
            state.settings().volumes.saturating_mul(state.settings().copies_per_volume())
        })
    }

    /// How many hosts were declared lost.
    pub(crate) fn lost_hosts(&self) -> u32 {
        let hosts = self.cluster.iter().flat_map(|state| state.hosts());
        hosts.filter(|host| !host.info.up && !host.info.has_left()).count() as u32
    }

    /// Whether no volume loses its last complete copy with this host.
    pub(super) fn can_lose(&self, host: u16) -> bool {
        let elsewhere =
            |copy: Option<u16>| copy.is_some_and(|copy| self.host_of(copy) != host && self.is_up(copy));
        self.table.volumes().iter().all(|entry| elsewhere(entry.primary) || elsewhere(entry.backup))
    }

    /// Whether the cluster has copies.
    pub(crate) fn is_replicated(&self) -> bool {
        self.cluster.is_some()
    }

    /// For each copy: its volume, and the options with which it is formatted. `None` without replication.
    pub(crate) fn formats(&self) -> Option<Vec<FormatOptions>> {
        let cluster = self.cluster.as_ref()?;
        let copies = 0..self.table.sites().len() as u16;
        let volumes = copies.filter_map(|copy| self.table.of_copy(copy));
        Some(volumes.map(|(volume, _)| cluster.volume_format(volume)).collect())
    }

    /// A hash of the control state.
    pub(crate) fn state(&self) -> u64 {
        self.cluster.as_ref().map_or(0, |cluster| mix_bytes(1, &cluster.snapshot()))
    }

    pub(super) fn host_of(&self, copy: u16) -> u16 {
        self.table.sites().get(usize::from(copy)).map_or(u16::MAX, |site| site.host)
    }

    /// Whether a host's process runs.
    pub(super) fn is_running(&self, host: u16) -> bool {
        self.up.get(usize::from(host)).copied().unwrap_or(false)
    }

    /// The copies on a host, among so many.
    pub(super) fn copies_on(&self, host: u16, copies: usize) -> Vec<u16> {
        (0..copies as u16).filter(|&copy| self.host_of(copy) == host).collect()
    }

    pub(super) fn is_up(&self, copy: u16) -> bool {
        self.up.get(usize::from(self.host_of(copy))).copied().unwrap_or(true)
    }
}

/// Registers a host with room for a copy of every volume.
fn register(cluster: &mut ClusterState, now: u64, host: u16, keeps: bool) {
    let settings = cluster.settings();
    let (address, boot) = (format!("unix:/host{host}"), u64::from(host) + 1);
    let memory_bytes = settings.volume_bytes.saturating_mul(u64::from(settings.volumes));
    let memory_bytes = memory_bytes.max(settings.bytes_per_host());
    let offer = HostOffer { address, memory_bytes, boot, cluster: CLUSTER, keeps };
    let registered = cluster.apply(&Command::Register { now, offer });
    debug_assert!(registered.is_ok(), "{registered:?}");
}

/// The memory of a primary's CPU, which also keeps what the CPU stores.
struct Mirrored<'a> {
    view: CpuView<'a>,
    stores: RefCell<Vec<(Space, u64, Vec<u8>)>>,
}

impl Memory for Mirrored<'_> {
    fn size(&self, space: Space) -> u64 {
        self.view.size(space)
    }

    fn load(&self, space: Space, offset: u64, into: &mut [u8]) {
        self.view.load(space, offset, into);
    }

    fn store(&self, space: Space, offset: u64, from: &[u8]) {
        self.view.store(space, offset, from);
        self.stores.borrow_mut().push((space, offset, from.to_vec()));
    }
}

impl World {
    /// The copy that is the primary of a volume. A volume without one keeps its first copy here.
    pub(crate) fn primary(&self, volume: u16) -> u16 {
        self.volumes.table.volume(volume).and_then(|entry| entry.primary).unwrap_or(volume)
    }

    /// The other copies on which a client is fenced together with `copy`.
    pub(super) fn fenced_beside(&self, copy: u16) -> Vec<u16> {
        if self.breaks(Breach::FencedAtPrimary) { Vec::new() } else { self.copies_beside(copy) }
    }

    /// The other copies of the volume of which `copy` is one.
    pub(super) fn copies_beside(&self, copy: u16) -> Vec<u16> {
        if !self.volumes.is_replicated() {
            return Vec::new();
        }
        let table = self.table_at(copy);
        let entry = table.of_copy(copy).and_then(|(volume, _)| table.volume(volume));
        let copies = entry.into_iter().flat_map(|entry| entry.copies());
        copies.map(|(_, other)| other).filter(|&other| other != copy).collect()
    }

    /// The table that the host of a copy has carried out.
    pub(super) fn table_at(&self, copy: u16) -> &VolumeTable {
        let host = self.net.as_ref().and_then(|net| net.host(self.volumes.host_of(copy)));
        let Some(host) = host else { return &self.volumes.table };
        let learnt = host.node.state().filter(|_| self.breaks(Breach::ServesEarly));
        learnt.map_or(&host.done.table, |state| state.table())
    }

    /// Whether the table names this copy.
    pub(super) fn is_named(&self, copy: u16) -> bool {
        !self.volumes.is_replicated() || self.volumes.table.of_copy(copy).is_some()
    }

    /// For each copy: whether a client that joins now cannot reach it. It has no connection to copies that
    /// the table does not name (I2).
    pub(super) fn unreachable(&self, table: &VolumeTable) -> Vec<bool> {
        let named = |copy: u16| !self.volumes.is_replicated() || table.of_copy(copy).is_some();
        let reached = |copy: u16| named(copy) && self.volumes.is_up(copy);
        (0..self.servers.len() as u16).map(|copy| !reached(copy)).collect()
    }

    /// A volume one of whose copies cannot be reached, or that has none. No client joins then: it would need
    /// another table at once.
    pub(super) fn is_crippled(&self) -> Option<u16> {
        let down = |entry: &VolumeEntry| {
            entry.primary.is_none() || entry.copies().any(|(_, copy)| !self.volumes.is_up(copy))
        };
        (0..).zip(self.volumes.table.volumes()).find(|(_, entry)| down(entry)).map(|(volume, _)| volume)
    }

    /// Runs a piece of a primary's CPU. All copies have its stores when it ends (T5).
    pub(super) fn on_cpu<T>(
        &mut self,
        copy: u16,
        act: impl FnOnce(&mut MemoryServer, Memories<'_>) -> T,
    ) -> T {
        let others = self.mirrors_of(copy);
        let target = &mut self.servers[usize::from(copy)];
        target.cpu_used = true;
        let view = CpuView::new(&mut target.memory);
        let control = CpuView::new(&mut target.control_memory);
        if others.is_empty() {
            return act(&mut target.cpu, Memories { volume: &view, control: &control });
        }
        let mirrored = Mirrored { view, stores: RefCell::default() };
        let done = act(&mut target.cpu, Memories { volume: &mirrored, control: &control });
        let stores = mirrored.stores.into_inner();
        if !self.breaks(Breach::CpuAnswersEarly) {
            for copy in others {
                for (space, offset, bytes) in &stores {
                    self.servers[usize::from(copy)].memory.store(*space, *offset, bytes);
                }
            }
        }
        done
    }

    /// Whether a request is for the control state, which outlives every host.
    pub(super) fn is_immortal(&self, request: &Request) -> bool {
        self.volumes.is_replicated() && request.is_for_control()
    }

    /// Refuses a request to a copy that the table forbids. A host does that without its control state.
    pub(super) fn check_copy(&self, owner: usize, copy: u16) -> Result<(), FabricError> {
        if !self.volumes.is_replicated() {
            return Ok(());
        }
        if self.net.is_some() {
            let deposed = self.table_at(copy).of_copy(copy).is_none_or(|(_, role)| role != Role::Primary);
            let down = deposed || !self.volumes.is_up(copy);
            return if down { Err(FabricError::Disconnected { server: copy }) } else { Ok(()) };
        }
        let compute_server = &self.compute_servers[owner];
        // E1: an identity of an older epoch gets no answer but this one.
        if compute_server.epoch < self.volumes.table.epoch() && !self.breaks(Breach::OldEpochServed) {
            return Err(FabricError::EpochEnded { client: compute_server.client });
        }
        // T5: a primary that cannot send its stores to another copy does not answer.
        let broken = self.mirrors_of(copy).into_iter().any(|other| !self.volumes.is_up(other));
        let deposed = self.volumes.table.of_copy(copy).is_none_or(|(_, role)| role != Role::Primary);
        if broken || deposed { Err(FabricError::Disconnected { server: copy }) } else { Ok(()) }
    }

    /// Makes the control state answer a member. `None` if the control state is beside volume 0.
    pub(super) fn ask_cluster(
        &mut self,
        owner: usize,
        request: &Request,
    ) -> Option<Result<Response, FabricError>> {
        let (served, too_short) = (self.breaks(Breach::OldEpochServed), self.breaks(Breach::LeaseTooShort));
        let fenced = self.compute_servers[owner].fenced[usize::from(self.primary(0))];
        let (now, quiet) = (self.now, self.quiet);
        let super::ComputeServer { client, incarnation, .. } = self.compute_servers[owner];
        let cluster = self.volumes.cluster.as_mut()?;
        if self.history.on {
            let asked = mix_bytes(u64::from(client.0), format!("{request:?}").as_bytes());
            self.servers[0].calls_hash = mix(self.servers[0].calls_hash, asked);
        }
        if let Request::Suspect { client } = *request
            && too_short
            && !quiet
        {
            let member = cluster.member(client);
            let early = now.saturating_add(cluster.settings().format.lease_nanos / 8 * 7);
            if member.state == MemberState::Live && !member.is_alive(early) {
                let _ = cluster.apply(&Command::Operate { now, request: Request::Condemn { client } });
            }
        }
        let answer = match served {
            true if fenced => Err(FabricError::Fenced { client }),
            true => cluster.ask_unchecked(now, client, request),
            false => cluster.apply(&Command::Ask { now, client, incarnation, request: request.clone() }),
        };
        self.follow();
        Some(answer)
    }

    /// Admits a new member: its id and the incarnation of the id. `None` if the control state is beside
    /// volume 0.
    pub(super) fn join_cluster(&mut self) -> Option<Result<(ComputeId, u32), Refusal>> {
        let now = self.now;
        let admitted = self.volumes.cluster.as_mut()?.apply(&Command::Join { now });
        self.follow();
        Some(match admitted {
            Ok(Response::Admitted(admission)) => {
                let Admission { client, incarnation, .. } = *admission;
                Ok((client, incarnation))
            }
            Err(FabricError::Refused(refusal)) => Err(refusal),
            other => {
                self.log.remark(NO_TASK, now, format!("the answer to Join: {other:?}"));
                Err(Refusal::NotHere)
            }
        })
    }

    /// Lets the control state see that time has passed, while it waits for that.
    pub(super) fn tick(&mut self) {
        let now = self.now;
        if self.net.is_some() {
            return;
        }
        if let Some(cluster) = self.volumes.cluster.as_mut().filter(|cluster| cluster.needs_tick()) {
            let _ = cluster.apply(&Command::Tick { now });
            self.follow();
        }
    }

    /// What hosts do after a command of the control state: they end the connections of ids that it freed, and
    /// carry out a new table.
    pub(super) fn follow(&mut self) {
        let Some(cluster) = &self.volumes.cluster else { return };
        let (next, reaped) = (Arc::clone(cluster.table()), cluster.reaped().to_vec());
        for client in reaped {
            self.fence_everywhere(client);
        }
        self.follow_makings();
        let next = self.bend(next);
        if Arc::ptr_eq(&next, &self.volumes.table) || *next == *self.volumes.table {
            self.end_left_hosts();
            return;
        }
        let former = std::mem::replace(&mut self.volumes.table, next);
        let table = Arc::clone(&self.volumes.table);
        if former.epoch() == table.epoch() {
            if table.all_open() && !former.all_open() {
                self.log.remark(NO_TASK, self.now, "all volumes are open".into());
            }
            return;
        }
        for (was, is) in former.volumes().iter().zip(table.volumes()) {
            if let Some(copy) = is.primary.filter(|&copy| was.primary != Some(copy)) {
                self.promote(copy);
            }
        }
        self.note_made(&former);
        self.volumes.former = Some(former);
        self.end_left_hosts();
        self.log.remark(NO_TASK, self.now, format!("new table: {:?}", table.volumes()));
    }

    /// The table, with its volumes opened too early by a planted bug.
    fn bend(&self, table: Arc<VolumeTable>) -> Arc<VolumeTable> {
        let Some(cluster) = &self.volumes.cluster else { return table };
        let opens = match self.knobs.breach {
            Some(Breach::NeverClosed) => true,
            Some(Breach::OpenedByReturn) => table.epoch() == self.volumes.opened_by_return,
            Some(Breach::OpenedBeforeLeases) => {
                cluster.leftovers().all(|leftover| leftover.until > self.now)
                    || self.volumes.table.epoch() == table.epoch() && self.volumes.table.all_open()
            }
            _ => false,
        };
        if !opens {
            return table;
        }
        let open = |entry: &VolumeEntry| VolumeEntry { open: entry.primary.is_some(), ..*entry };
        let volumes = table.volumes().iter().map(open).collect();
        VolumeTable::new(table.epoch(), table.sites().to_vec(), volumes).map_or(table, Arc::new)
    }

    /// Fences a client on every copy that the table names. Nobody can fence anybody on a lost host.
    pub(super) fn fence_everywhere(&mut self, client: ComputeId) {
        for copy in 0..self.servers.len() as u16 {
            if self.is_named(copy) {
                self.fence(copy, client);
            }
        }
    }

    /// Ends a host's process. Its memory is gone.
    pub(super) fn take_down(&mut self, host: u16) {
        if let Some(up) = self.volumes.up.get_mut(usize::from(host)) {
            *up = false;
        }
        for copy in 0..self.servers.len() as u16 {
            if self.volumes.host_of(copy) != host {
                continue;
            }
            for owner in 0..self.compute_servers.len() as u32 {
                self.cut_off(owner, copy);
            }
        }
    }

    /// The control state declares a host lost.
    pub(super) fn lose_host(&mut self, host: u16) {
        let now = self.now;
        let Some(cluster) = &mut self.volumes.cluster else { return };
        let Some(incarnation) = cluster.host(host).map(|host| host.info.incarnation) else { return };
        let _ = cluster.apply(&Command::HostLost { now, host, incarnation });
        self.follow();
    }

    /// Loses a host before any client has joined, and makes its copies again on a new one. The other hosts
    /// have all primaries then.
    pub(crate) fn make_uneven(&mut self) {
        let lease = self.volumes.cluster().map_or(0, |state| state.settings().format.lease_nanos);
        self.join_host();
        self.take_down(0);
        self.lose_host(0);
        for _ in 0..MOST_WORK {
            if self.volumes.cluster().is_none_or(|state| state.makings().is_empty()) {
                break;
            }
            // A pause begins when the table has been the same for a while (J3).
            self.now += lease;
            self.work_once();
        }
        self.checkpoint();
    }

    /// A new host registers.
    pub(super) fn join_host(&mut self) {
        let (now, host) = (self.now, self.volumes.up.len() as u16);
        let Some(cluster) = &mut self.volumes.cluster else { return };
        register(cluster, now, host, false);
        self.volumes.up.push(true);
        self.follow();
    }

    /// The process of a host ends, if it still runs, and the next one goes on with its memory (I4).
    pub(super) fn return_host(&mut self, host: u16) {
        self.take_down(host);
        let (now, boot) = (self.now, 1_000_000 + self.steps);
        let trusted = self.breaks(Breach::LostHostTrusted);
        let Some(cluster) = &mut self.volumes.cluster else { return };
        let Some(known) = cluster.host(host) else { return };
        let incarnation = known.info.incarnation;
        let (address, memory_bytes) = (known.info.address.clone(), known.info.memory_bytes);
        let offer = HostOffer { address, memory_bytes, boot, cluster: CLUSTER, keeps: true };
        if trusted {
            cluster.trust_lost(host);
        }
        if cluster.apply(&Command::HostReturned { now, host, incarnation, offer }).is_err() {
            return;
        }
        self.volumes.returns += 1;
        self.volumes.opened_by_return = cluster.table().epoch();
        if let Some(up) = self.volumes.up.get_mut(usize::from(host)) {
            *up = true;
        }
        for copy in 0..self.servers.len() as u16 {
            if self.volumes.host_of(copy) == host {
                self.reopen(copy);
            }
        }
        self.follow();
    }

    /// The next process of a host opens the memory of a copy.
    pub(super) fn reopen(&mut self, copy: u16) {
        let zeroed = self.breaks(Breach::LanesLostOnReturn);
        let target = &mut self.servers[usize::from(copy)];
        if zeroed {
            let lanes = vec![0; target.memory.size(Space::OnChip) as usize];
            target.memory.store(Space::OnChip, 0, &lanes);
        }
        match Volume::open(&CpuView::new(&mut target.memory)) {
            Ok(volume) => (target.cpu.volume, target.cpu_used) = (volume, true),
            Err(error) => {
                self.log.remark(NO_TASK, self.now, format!("copy {copy} does not open: {error}"));
            }
        }
    }

    /// Makes a copy the primary: its lanes are zero (P4), and its CPU opens its memory.
    pub(super) fn promote(&mut self, copy: u16) {
        let kept = self.breaks(Breach::MovedLanesKept);
        let target = &mut self.servers[usize::from(copy)];
        target.cpu_used = true;
        if !kept {
            let lanes = vec![0; target.memory.size(Space::OnChip) as usize];
            target.memory.store(Space::OnChip, 0, &lanes);
        }
        match Volume::promote(&CpuView::new(&mut target.memory)) {
            Ok(volume) => target.cpu.volume = volume,
            Err(error) => {
                self.log.remark(NO_TASK, self.now, format!("copy {copy} does not open: {error}"));
            }
        }
    }

    /// Whether this rule of replication is broken on purpose.
    pub(super) fn breaks(&self, breach: Breach) -> bool {
        self.knobs.breach == Some(breach)
    }

    /// The table that a client gets when it joins.
    pub(crate) fn table_for_joiner(&self) -> Arc<VolumeTable> {
        match &self.volumes.former {
            Some(former) if self.breaks(Breach::StaleTable) => Arc::clone(former),
            _ => Arc::clone(&self.volumes.table),
        }
    }
}
