//! The control state, the copies of all hosts, and what hosts do when the table of volumes changes.

use super::member::CopiesMembership;
use crate::calls::Call;
use crate::copy::CopyPath;
use crate::gate::{Drain, Member};
use crate::line::Atomicity;
use crate::memory::Region;
use crate::server::{Asker, Server};
use sherman_fabric::group::{Admission, ClusterInfo, HostOffer};
use sherman_fabric::{ComputeId, FabricError, Refusal, Request, Response, Role};
use sherman_memory_server::cluster::{ClusterState, Command, Making};
use sherman_replica::VolumeTable;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Weak};

/// The memory of a copy.
#[derive(Debug)]
pub(super) struct CopyMemory {
    pub(super) server: Server,
    /// Whether its host has died.
    dead: Arc<AtomicBool>,
}

impl CopyMemory {
    /// Whether its host has died.
    #[inline]
    pub(super) fn is_gone(&self) -> bool {
        self.dead.load(Acquire)
    }
}

/// A copy that the table names, or that is being made.
#[derive(Debug)]
struct Installed {
    volume: u16,
    /// `None` while it is being made.
    role: Option<Role>,
    memory: Arc<CopyMemory>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct State {
    control: ClusterState,
    atomicity: Atomicity,
    /// The table that was carried out last.
    table: Arc<VolumeTable>,
    /// Whether each host has died.
    hosts: BTreeMap<u16, Arc<AtomicBool>>,
    copies: BTreeMap<u16, Installed>,
    /// The member that has each id now, if any handle of it lives.
    members: BTreeMap<ComputeId, Weak<Member>>,
    /// The identities that may have to hear of a new epoch, and their epochs.
    identities: Vec<(u64, Weak<CopiesMembership>)>,
    /// How many times stores of a primary's CPU went to other copies.
    mirrored: u64,
    /// Changes whenever bytes that were compared before count no more (J4).
    stamp: u64,
    /// Whether a thread makes copies.
    copying: bool,
    /// A host that has no memory for its copies.
    failed: Option<u16>,
}

impl State {
    pub(super) fn new(control: ClusterState, atomicity: Atomicity) -> Self {
        Self {
            control,
            atomicity,
            table: Arc::default(),
            hosts: BTreeMap::new(),
            copies: BTreeMap::new(),
            members: BTreeMap::new(),
            identities: Vec::new(),
            mirrored: 0,
            stamp: 0,
            copying: false,
            failed: None,
        }
    }

    pub(super) fn control(&self) -> &ClusterState {
        &self.control
    }

    pub(super) fn hosts_made(&self) -> u64 {
        self.hosts.len() as u64
    }

    pub(super) fn info(&self) -> ClusterInfo {
        self.control.info(u16::MAX, None)
    }

    pub(super) fn is_whole(&self) -> bool {
        let settings = self.control.settings();
        let whole = |volume: &sherman_replica::VolumeEntry| {
            volume.open && volume.copies().count() == usize::from(settings.copies_per_volume())
        };
        self.table.volumes().iter().all(whole) && self.control.leftovers().next().is_none()
    }

    pub(super) fn look_at_copies(&self, mut look: impl FnMut(u16, u16, &Region)) {
        for (number, copy) in self.copies.iter().filter(|(_, copy)| copy.role.is_some()) {
            look(copy.volume, *number, copy.memory.server.memory());
        }
    }

    /// Executes a command, and carries out the table that follows.
    pub(super) fn apply(&mut self, command: &Command) -> Result<Response, FabricError> {
        let answer = self.control.apply(command);
        self.follow();
        // A host that cannot make its copies is of no use.
        while let Some(host) = self.failed.take() {
            self.kill(host);
            let incarnation = self.control.host(host).map_or(0, |host| host.info.incarnation);
            let _ = self.control.apply(&Command::HostLost { now: command.now(), host, incarnation });
            self.follow();
        }
        answer
    }

    /// Lets time pass, if the control state waits for that.
    pub(super) fn tick(&mut self, now: u64) {
        if self.control.needs_tick() {
            let _ = self.apply(&Command::Tick { now });
        }
        if self.control.is_making_overdue() {
            let _ = self.apply(&Command::AbortMaking { now });
        }
    }

    /// A host registers. Without memory for its copies it is lost at once.
    pub(super) fn register(&mut self, now: u64, offer: HostOffer) -> Result<u16, FabricError> {
        let answer = self.apply(&Command::Register { now, offer })?;
        let Response::Registered(registration) = answer else {
            return Err(FabricError::UnexpectedReply { request: "Register" });
        };
        let lives = self.control.host(registration.host).is_some_and(|host| host.info.up);
        if lives { Ok(registration.host) } else { Err(Refusal::OutOfMemory.into()) }
    }

    /// The host's memory is out of reach from now on.
    pub(super) fn kill(&mut self, host: u16) {
        if let Some(dead) = self.hosts.get(&host) {
            dead.store(true, Release);
        }
    }

    pub(super) fn declare_lost(&mut self, now: u64, host: u16) -> Result<(), FabricError> {
        let incarnation = self.control.host(host).map_or(0, |host| host.info.incarnation);
        self.apply(&Command::HostLost { now, host, incarnation }).map(drop)
    }

    /// Admits a member. Its id may have had another holder, which is over.
    pub(super) fn join(&mut self, now: u64) -> Result<(Admission, Member), FabricError> {
        let Response::Admitted(admission) = self.apply(&Command::Join { now })? else {
            return Err(FabricError::UnexpectedReply { request: "Join" });
        };
        let member = Member::new(admission.client, self.table.sites().len());
        let member = member.ok_or(FabricError::Refused(Refusal::OutOfMemory))?;
        self.end_holder(admission.client);
        Ok((*admission, member))
    }

    /// Enters a member under its id.
    pub(super) fn enter(&mut self, member: &Arc<Member>, identity: Weak<CopiesMembership>) {
        self.members.insert(member.client, Arc::downgrade(member));
        self.identities.retain(|(_, known)| known.strong_count() > 0);
        self.identities.push((self.table.epoch(), identity));
    }

    /// Forgets a member that leaves. Another one may have its id by now.
    pub(super) fn forget(&mut self, member: &Arc<Member>) {
        let known = self.members.get(&member.client);
        if known.is_some_and(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(member))) {
            self.members.remove(&member.client);
        }
    }

    /// Ends the member that had this id. Nothing waits for its lists in progress.
    fn end_holder(&mut self, client: ComputeId) {
        if let Some(member) = self.members.remove(&client).and_then(|known| known.upgrade()) {
            drop(member.fence_everywhere());
        }
    }

    /// The copy, for a client whose table names it.
    pub(super) fn copy(&self, copy: u16) -> Option<Arc<CopyMemory>> {
        let installed = self.copies.get(&copy).filter(|installed| installed.role.is_some());
        installed.map(|installed| Arc::clone(&installed.memory))
    }

    /// The identities whose epoch is over. They hear of it once. The caller drops them without the lock: it
    /// may have the last handle of one.
    pub(super) fn take_ended(&mut self) -> Vec<Arc<CopiesMembership>> {
        let epoch = self.table.epoch();
        let ended = self.identities.extract_if(.., |(of, _)| *of < epoch);
        ended.filter_map(|(_, identity)| identity.upgrade()).collect()
    }

    /// What hosts do after a command: they end the clients whose ids were freed, and carry out a new table.
    fn follow(&mut self) {
        for client in self.control.reaped().to_vec() {
            self.end_holder(client);
        }
        for host in self.control.hosts().iter().map(|host| host.info.number) {
            self.hosts.entry(host).or_default();
        }
        let (former, table) = (Arc::clone(&self.table), Arc::clone(self.control.table()));
        if former.epoch() != table.epoch() || !self.control.quiet() {
            self.stamp += 1;
        }
        self.make_room();
        if Arc::ptr_eq(&former, &table) {
            return self.drop_unnamed();
        }
        self.table = Arc::clone(&table);
        for (volume, entry) in (0..).zip(table.volumes()) {
            for (role, copy) in entry.copies() {
                if !self.prepare(volume, copy, role) {
                    self.failed = table.sites().get(usize::from(copy)).map(|site| site.host);
                }
            }
        }
        self.drop_unnamed();
    }

    /// Makes a copy what the table says. Returns whether that worked.
    fn prepare(&mut self, volume: u16, copy: u16, role: Role) -> bool {
        let is_new = !self.copies.contains_key(&copy);
        if is_new && !self.install(volume, copy) {
            return false;
        }
        let Some(installed) = self.copies.get_mut(&copy) else { return false };
        let former = installed.role.replace(role);
        match role {
            // A copy of the first table is the primary from the start.
            Role::Primary if !is_new && former != Some(role) => installed.memory.server.promote().is_ok(),
            Role::Backup | Role::Joining if former == Some(Role::Primary) => {
                installed.memory.server.demote();
                true
            }
            _ => true,
        }
    }

    /// Makes the memory of the copies that are being made. Without memory a volume keeps its only copy.
    fn make_room(&mut self) {
        for Making { volume, copy, .. } in self.control.makings().to_vec() {
            if !self.copies.contains_key(&copy) && !self.install(volume, copy) {
                self.failed = self.control.table().sites().get(usize::from(copy)).map(|site| site.host);
                return;
            }
        }
    }

    /// Makes the memory of a copy.
    fn install(&mut self, volume: u16, copy: u16) -> bool {
        let settings = *self.control.settings();
        let sizes = (usize::try_from(settings.volume_bytes), usize::try_from(settings.on_chip_bytes));
        let (Ok(bytes), Ok(on_chip)) = sizes else { return false };
        let region = Region::new(bytes, on_chip, self.atomicity, CopyPath::fastest());
        let format = self.control.volume_format(volume);
        let server = region.map(|region| Server::format_volume(region, &format, self.control.cluster()));
        let host = self.control.table().sites().get(usize::from(copy)).map(|site| site.host);
        let dead = host.and_then(|host| self.hosts.get(&host));
        let (Some(Ok(server)), Some(dead)) = (server, dead) else { return false };
        let memory = Arc::new(CopyMemory { server, dead: Arc::clone(dead) });
        self.copies.insert(copy, Installed { volume, role: None, memory });
        true
    }

    fn drop_unnamed(&mut self) {
        let (table, makings) = (&self.table, self.control.makings());
        let wanted =
            |copy: &u16| table.of_copy(*copy).is_some() || makings.iter().any(|making| making.copy == *copy);
        self.copies.retain(|copy, _| wanted(copy));
    }

    /// The copies that get the stores of a primary's CPU: the others of its volume, and one that gets its
    /// last bytes (J4).
    fn others(&self, volume: u16, primary: u16) -> Vec<Arc<CopyMemory>> {
        let quiet = self.control.quiet();
        let gets = |(number, copy): &(&u16, &Installed)| {
            copy.volume == volume && **number != primary && (copy.role.is_some() || quiet)
        };
        self.copies.iter().filter(gets).map(|(_, copy)| Arc::clone(&copy.memory)).collect()
    }

    /// Lets the CPU of a primary answer a member, and makes its stores in the other copies (T5).
    pub(super) fn ask_copy(
        &mut self,
        from: &CopiesMembership,
        copy: u16,
        request: &Request,
        leaves: bool,
    ) -> Result<Call, FabricError> {
        let client = from.client();
        if from.epoch() < self.table.epoch() {
            return Err(FabricError::EpochEnded { client });
        }
        let primary = self.table.of_copy(copy).filter(|(_, role)| *role == Role::Primary);
        let lost = FabricError::Disconnected { server: copy };
        let (volume, _) = primary.ok_or(lost.clone())?;
        let memory = self.copy(copy).filter(|memory| !memory.is_gone()).ok_or(lost)?;
        let (others, epoch) = (self.others(volume, copy), self.table.epoch());
        self.mirrored += 1;
        let number = self.mirrored;
        let (member, flag) = from.member_at(copy);
        let asker = if leaves { Asker::Leaver(member, flag) } else { Asker::Member(member, flag) };
        let response = memory.server.handle_recorded(asker, request, |_, response, stores| {
            for other in &others {
                other.server.make_stores((epoch, number), &stores, || ())?;
            }
            Ok::<_, FabricError>(response)
        })??;
        Ok(match *request {
            Request::Fence { client } => match self.fence(client, volume) {
                Some(drain) => Call::Stopping(drain, response),
                None => Call::Answered(Ok(response)),
            },
            _ => Call::Answered(Ok(response)),
        })
    }

    /// X1: fences a client on every copy of a volume.
    fn fence(&self, client: ComputeId, volume: u16) -> Option<Drain> {
        let member = self.members.get(&client)?.upgrade()?;
        let mut drain = None;
        let of_volume = self.copies.iter().filter(|(_, copy)| copy.volume == volume);
        for (number, _) in of_volume.filter(|(number, _)| member.knows(**number)) {
            // The last drain waits for what executes on any of them.
            drain = Some(member.fence(*number));
        }
        drain
    }

    /// Whether a thread shall be started that makes copies.
    pub(super) fn wants_copier(&mut self) -> bool {
        let starts = !self.copying && !self.control.makings().is_empty();
        self.copying |= starts;
        starts
    }

    pub(super) fn copier_ended(&mut self) {
        self.copying = false;
    }

    /// What [`stamp`](Self::stamp) is now.
    pub(super) fn stamp(&self) -> u64 {
        self.stamp
    }

    /// The primary of the volume of a making, and the new copy.
    pub(super) fn pair(&self, making: &Making) -> Option<(Arc<CopyMemory>, Arc<CopyMemory>)> {
        let primary = self.table.volume(making.volume)?.primary?;
        let [from, into] = [primary, making.copy].map(|copy| self.copies.get(&copy));
        Some((Arc::clone(&from?.memory), Arc::clone(&into?.memory)))
    }
}
