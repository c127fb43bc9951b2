//! Volumes in several copies: hosts, the table, and what the control state does when a host is lost.
//!
//! A server of the world is one *copy* of a volume. Without replication every volume has one copy, and
//! nothing here matters. With it, the CPU of a volume's primary sends each of its stores to the other copies
//! before it answers (T5). Here both happen in one event: a primary that dies in between has not answered, so
//! its own stores are the same as none.
//!
//! The control state is correct and immortal here. It has a memory of its own, beside copy 0, which survives
//! the loss of that copy.
//!
//! A host that is declared lost may be alive. Nobody can fence a client there. Clients that still have the
//! old table read and write its copies until their leases have run out.

use super::World;
use crate::knobs::Breach;
use crate::memory::CpuView;
use crate::world::flight::NO_TASK;
use sherman_fabric::{ComputeId, FabricError, Memory, Request, Response, Role, Space};
use sherman_memory_server::{Memories, MemoryServer, Volume};
use sherman_replica::{CopySite, VolumeEntry, VolumeTable};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The control state about volumes.
#[derive(Clone, Debug)]
pub(crate) struct Volumes {
    pub(crate) table: Arc<VolumeTable>,
    /// The table before it.
    former: Option<Arc<VolumeTable>>,
    /// Whether any volume ever had a second copy.
    pub(crate) replicated: bool,
    /// For each host: whether its process runs.
    up: Vec<bool>,
    /// For each id: the epoch in which it was issued last, and when the lease of its holder runs out by the
    /// control state's clock. 0 if its holder has ended its identity itself.
    holders: BTreeMap<ComputeId, (u64, u64)>,
}

impl Volumes {
    /// Spreads `replicas` copies of each volume over the hosts: copy `v + i * volumes` is copy `i` of volume
    /// `v`.
    pub(crate) fn new(volumes: u16, replicas: u16, hosts: u16) -> Self {
        if replicas <= 1 {
            let table = Arc::new(VolumeTable::single(volumes));
            return Self { table, former: None, replicated: false, up: Vec::new(), holders: BTreeMap::new() };
        }
        let site = |copy: u16| CopySite { host: (copy / volumes + copy % volumes) % hosts, incarnation: 1 };
        let entry = |volume| VolumeEntry {
            primary: Some(volume),
            backup: Some(volume + volumes),
            joining: None,
            open: true,
        };
        let sites = (0..volumes * replicas).map(site).collect();
        let table = VolumeTable::new(1, sites, (0..volumes).map(entry).collect());
        let table = Arc::new(table.expect("copies of a volume lie on different hosts"));
        let up = vec![true; usize::from(hosts)];
        Self { table, former: None, replicated: true, up, holders: BTreeMap::new() }
    }

    fn host_of(&self, copy: u16) -> u16 {
        self.table.sites().get(usize::from(copy)).map_or(0, |site| site.host)
    }

    fn is_up(&self, copy: u16) -> bool {
        self.up.get(usize::from(self.host_of(copy))).copied().unwrap_or(true)
    }
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

    /// The primaries of all volumes, by volume.
    pub(crate) fn primaries(&self) -> Vec<u16> {
        (0..self.volumes.table.volumes().len() as u16).map(|volume| self.primary(volume)).collect()
    }

    /// The other copies on which a client is fenced together with `copy`.
    pub(super) fn fenced_beside(&self, copy: u16) -> Vec<u16> {
        if self.breaks(Breach::FencedAtPrimary) { Vec::new() } else { self.copies_beside(copy) }
    }

    /// The other copies of the volume of which `copy` is one.
    pub(super) fn copies_beside(&self, copy: u16) -> Vec<u16> {
        if !self.volumes.replicated {
            return Vec::new();
        }
        let table = &self.volumes.table;
        let entry = table.of_copy(copy).and_then(|(volume, _)| table.volume(volume));
        let copies = entry.into_iter().flat_map(|entry| entry.copies());
        copies.map(|(_, other)| other).filter(|&other| other != copy).collect()
    }

    /// Whether the table names this copy.
    pub(super) fn is_named(&self, copy: u16) -> bool {
        !self.volumes.replicated || self.volumes.table.of_copy(copy).is_some()
    }

    /// For each copy: whether a client that joins now cannot reach it. It has no connection to copies that
    /// the table does not name (I2).
    pub(super) fn unreachable(&self) -> Vec<bool> {
        let reached = |copy: u16| self.is_named(copy) && self.volumes.is_up(copy);
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
        let others = self.copies_beside(copy);
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
        self.volumes.replicated
            && matches!(
                request,
                Request::Activate
                    | Request::Leave
                    | Request::FreeId { .. }
                    | Request::CreateTree { .. }
                    | Request::OpenTree { .. }
                    | Request::ListTrees
                    | Request::DropTree { .. }
                    | Request::Renew
                    | Request::Short
                    | Request::Depart
                    | Request::Suspect { .. }
                    | Request::Succeed { .. }
                    | Request::Condemn { .. }
                    | Request::Relieve { .. }
                    | Request::Members
                    | Request::Servers
                    | Request::Volumes
            )
    }

    /// Answers what concerns tables, and refuses what a table forbids. `None` if the request is like any
    /// other.
    pub(super) fn answer_about_volumes(
        &mut self,
        owner: usize,
        copy: u16,
        request: &Request,
    ) -> Option<Result<Response, FabricError>> {
        if !self.volumes.replicated {
            return None;
        }
        let client = self.compute_servers[owner].client;
        // E1: an identity of an older epoch gets no answer but this one.
        if self.compute_servers[owner].epoch < self.volumes.table.epoch()
            && !self.breaks(Breach::OldEpochServed)
        {
            return Some(Err(FabricError::EpochEnded { client }));
        }
        if *request == Request::Volumes {
            return Some(Ok(Response::Volumes(self.volumes.table.encode())));
        }
        // T5: a primary that cannot send its stores to another copy does not answer.
        let broken = self.copies_beside(copy).into_iter().any(|other| !self.volumes.is_up(other));
        let deposed = self.volumes.table.of_copy(copy).is_none_or(|(_, role)| role != Role::Primary);
        if (broken || deposed) && !self.is_immortal(request) {
            return Some(Err(FabricError::Disconnected { server: copy }));
        }
        None
    }

    /// Notes the epoch of a new member.
    pub(super) fn note_joined(&mut self, client: ComputeId) {
        if self.volumes.replicated {
            let until = self.now.saturating_add(self.lease());
            self.volumes.holders.insert(client, (self.volumes.table.epoch(), until));
        }
    }

    fn lease(&self) -> u64 {
        self.servers.first().map_or(0, |server| server.cpu.geometry().lease_nanos)
    }

    /// Notes until when a client may believe that it is a member (L2).
    pub(super) fn note_lease(&mut self, from: ComputeId, request: &Request, done: bool, now: u64) {
        if !self.volumes.replicated || !done {
            return;
        }
        let lease = self.lease();
        let mut set = |client, until| {
            if let Some(holder) = self.volumes.holders.get_mut(client) {
                holder.1 = until;
            }
        };
        match request {
            Request::Renew => set(&from, now.saturating_add(lease)),
            Request::Leave | Request::Depart => set(&from, 0),
            // Its process says that it has ended the identity.
            Request::Succeed { client, .. } => set(client, 0),
            _ => {}
        }
    }

    /// E6: opens the closed volumes when no identity of an older epoch is left, and none can believe that it
    /// is a member.
    pub(super) fn try_to_open(&mut self) {
        if !self.volumes.replicated || self.volumes.table.all_open() {
            return;
        }
        let epoch = self.volumes.table.epoch();
        let first = &self.servers[0].cpu;
        let holds = |client: &ComputeId| {
            first.member(*client).is_some_and(|entry| entry.state != sherman_layout::MemberState::Free)
        };
        let waits = self.volumes.holders.iter().any(|(client, &(issued, until))| {
            let silent = until > self.now;
            let ignored = silent && self.breaks(Breach::OpenedBeforeLeases);
            issued < epoch && (holds(client) || silent) && !ignored
        });
        if !waits {
            self.open_all();
        }
    }

    fn open_all(&mut self) {
        let table = &self.volumes.table;
        let open = |entry: &VolumeEntry| VolumeEntry { open: entry.primary.is_some(), ..*entry };
        let volumes = table.volumes().iter().map(open).collect();
        if let Ok(table) = VolumeTable::new(table.epoch(), table.sites().to_vec(), volumes) {
            self.volumes.table = Arc::new(table);
            self.log.remark(NO_TASK, self.now, "all volumes are open".into());
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

    /// E1, P1: declares a host lost. Its copies leave the table, and backups of its primaries take their
    /// place, closed.
    pub(super) fn lose_host(&mut self, host: u16) {
        let table = Arc::clone(&self.volumes.table);
        let lost = |copy: u16| self.volumes.host_of(copy) == host;
        let named = table.volumes().iter().flat_map(|entry| entry.copies()).any(|(_, copy)| lost(copy));
        if !self.volumes.replicated || !named {
            return;
        }
        let mut volumes = Vec::new();
        let mut promoted = Vec::new();
        for entry in table.volumes() {
            let keep = |copy: Option<u16>| copy.filter(|&copy| !lost(copy));
            let [primary, backup, joining] = [entry.primary, entry.backup, entry.joining].map(keep);
            volumes.push(match (primary, backup) {
                (Some(_), _) => VolumeEntry { primary, backup, joining, open: entry.open },
                (None, Some(copy)) => {
                    promoted.push(copy);
                    VolumeEntry { primary: backup, backup: None, joining: None, open: false }
                }
                // T3: a copy that is not complete is never promoted.
                (None, None) => VolumeEntry::default(),
            });
        }
        let sites = table.sites().to_vec();
        let Ok(table) = VolumeTable::new(table.epoch() + 1, sites, volumes) else { return };
        self.volumes.former = Some(std::mem::replace(&mut self.volumes.table, Arc::new(table)));
        for copy in promoted {
            self.promote(copy);
        }
        self.log.remark(NO_TASK, self.now, format!("new table: {:?}", self.volumes.table.volumes()));
        if self.breaks(Breach::NeverClosed) {
            self.open_all();
        }
    }

    /// Makes a copy the primary: its lanes are zero (P4), and its CPU opens its memory.
    fn promote(&mut self, copy: u16) {
        let target = &mut self.servers[usize::from(copy)];
        target.cpu_used = true;
        let lanes = vec![0; target.memory.size(Space::OnChip) as usize];
        target.memory.store(Space::OnChip, 0, &lanes);
        match Volume::promote(&CpuView::new(&mut target.memory)) {
            Ok(volume) => target.cpu.volume = volume,
            Err(error) => {
                self.log.remark(NO_TASK, self.now, format!("copy {copy} does not open: {error}"));
            }
        }
    }

    /// Whether this rule of replication is broken on purpose.
    fn breaks(&self, breach: Breach) -> bool {
        self.knobs.breach == Some(breach)
    }

    /// The table that a client gets when it joins.
    pub(crate) fn table_for_joiner(&self) -> Arc<VolumeTable> {
        match &self.volumes.former {
            Some(former) if self.breaks(Breach::StaleTable) => Arc::clone(former),
            _ => Arc::clone(&self.volumes.table),
        }
    }

    /// The time at which the control state judges a request.
    pub(super) fn judging_time(&self, request: &Request) -> u64 {
        let early = self.volumes.replicated && !self.quiet && self.breaks(Breach::LeaseTooShort);
        match request {
            Request::Suspect { .. } if early => self.now.saturating_add(self.lease() / 8 * 7),
            _ => self.now,
        }
    }
}
