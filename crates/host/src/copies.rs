//! Carries out tables: makes copies, promotes backups, drops what no volume names any more. Makes lost copies
//! again with the help of a [`Copier`].
//!
//! A thread of its own does this, because memory takes time to make. Only the newest table counts: a host
//! that skips an epoch goes to the next one. That is safe. No client was served here by a table that this
//! host has not carried out, so no client has written to a copy that was not made.

use crate::address::parse_address;
use crate::alive::Directory;
use crate::copier::{Copier, Plan, Task, Workshop};
use crate::end::{End, Ended};
use crate::folder::{Folder, KeptCopy, Memories};
use crate::memory::CopyMaker;
use crate::mirror::MirrorLink;
use crate::plane::{Identity, Plane};
use sherman_control::plane::Mirror;
use sherman_control::{Address, Secret};
use sherman_embedded::host::Host;
use sherman_fabric::Role;
use sherman_fabric::group::HostInfo;
use sherman_memory_server::cluster::{ClusterSettings, Making};
use sherman_replica::{CopySite, VolumeEntry, VolumeTable};
use sherman_soft_nic::server::{ServedMemory, ServerHandle};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// A table, the hosts that there are, and the copies that are being made.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) table: Arc<VolumeTable>,
    pub(crate) hosts: Vec<HostInfo>,
    pub(crate) makings: Vec<Making>,
    /// Whether nobody writes to the volumes that are closed so that copies can be made (J4).
    pub(crate) quiet: bool,
}

/// The newest table, for the thread that carries it out.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    newest: Mutex<Newest>,
    came: Condvar,
}

#[derive(Debug, Default)]
struct Newest {
    order: Option<Order>,
    over: bool,
}

impl Orders {
    /// Replaces the table.
    pub(crate) fn put(&self, order: Order) {
        self.change(|newest| newest.order = Some(order));
    }

    /// Ends the thread.
    pub(crate) fn close(&self) {
        self.change(|newest| newest.over = true);
    }

    fn change(&self, change: impl FnOnce(&mut Newest)) {
        change(&mut self.newest.lock().unwrap_or_else(PoisonError::into_inner));
        self.came.notify_all();
    }

    /// Waits for a table; `None` at the end.
    fn take(&self) -> Option<Order> {
        let newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.came.wait_while(newest, |newest| newest.order.is_none() && !newest.over);
        let mut newest = waited.unwrap_or_else(PoisonError::into_inner);
        if newest.over { None } else { newest.order.take() }
    }
}

/// What this host's server does with copies.
pub(crate) trait Installer {
    /// Serves a copy from now on.
    fn install(&self, copy: u16, memory: ServedMemory);
    /// Takes the bytes of a copy that is being made.
    fn install_filling(&self, copy: u16, memory: ServedMemory);
    /// Serves it no more.
    fn remove(&self, copy: u16);
    /// Sends the stores of its CPU there, if it is a primary whose volume has other copies.
    fn mirror(&self, copy: u16, mirror: Option<Arc<dyn Mirror>>);
}

impl Installer for ServerHandle {
    fn install(&self, copy: u16, memory: ServedMemory) {
        self.install_copy(copy, memory);
    }

    fn install_filling(&self, copy: u16, memory: ServedMemory) {
        Self::install_filling(self, copy, memory);
    }

    fn remove(&self, copy: u16) {
        self.remove_copy(copy);
    }

    fn mirror(&self, copy: u16, mirror: Option<Arc<dyn Mirror>>) {
        self.set_mirror(copy, mirror);
    }
}

/// A copy on this host.
#[derive(Debug)]
struct Installed {
    /// `None` while it is being made.
    role: Option<Role>,
    memory: ServedMemory,
    mirror: Option<Arc<MirrorLink>>,
    /// Whether it comes from an earlier process, and this one has not carried out a table with it.
    is_kept: bool,
}

impl Installed {
    fn host(&self) -> &Arc<Host> {
        &self.memory.host
    }
}

impl Order {
    /// The address of a copy's host.
    fn address(&self, copy: u16) -> Option<Address> {
        let site = self.table.sites().get(usize::from(copy))?;
        parse_address(&self.hosts.iter().find(|host| host.number == site.host)?.address)
    }

    /// The copies that get the stores of a primary's CPU, and the addresses of their hosts: the other copies
    /// of its volume, and one that gets its last bytes.
    fn others(&self, volume: u16, entry: &VolumeEntry) -> Vec<(u16, Address)> {
        let others = entry.copies().filter(|(role, _)| *role != Role::Primary).map(|(_, copy)| copy);
        let makings = self.makings.iter().filter(|making| self.quiet && making.volume == volume);
        let all = others.chain(makings.map(|making| making.copy));
        all.filter_map(|copy| Some((copy, self.address(copy)?))).collect()
    }
}

/// Where the memory of copies comes from, and the folder that keeps it, if there is one.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    pub(crate) folder: Option<Arc<Folder>>,
    pub(crate) maker: Arc<dyn CopyMaker>,
}

impl Files {
    fn with(&self, act: impl FnOnce(&Folder) -> std::io::Result<()>) -> Result<(), String> {
        let Some(folder) = &self.folder else { return Ok(()) };
        act(folder).map_err(|error| format!("{}: {error}", folder.path().display()))
    }

    fn make(
        &self,
        settings: &ClusterSettings,
        cluster: u64,
        (copy, volume): (u16, u16),
    ) -> Result<ServedMemory, String> {
        match &self.folder {
            Some(folder) => Ok(Arc::new(folder.make(settings, cluster, (copy, volume))?).into()),
            None => self.maker.make(settings, cluster, volume),
        }
    }

    /// The empty memory of a copy that a volume names. Only the first table names empty copies.
    fn make_first(
        &self,
        settings: &ClusterSettings,
        cluster: u64,
        (copy, volume): (u16, u16),
    ) -> Result<ServedMemory, String> {
        if self.folder.as_ref().and_then(|folder| folder.kept()).is_some_and(|kept| kept.served) {
            return Err("its memory is missing in the host's folder".to_owned());
        }
        self.make(settings, cluster, (copy, volume))
    }

    fn note(&self, one: KeptCopy) -> Result<(), String> {
        self.with(|folder| folder.note(one))
    }

    fn forget(&self, copy: u16) -> Result<(), String> {
        self.with(|folder| folder.forget(copy))
    }

    fn note_served(&self) -> Result<(), String> {
        self.with(|folder| folder.change(|kept| kept.served = true))
    }
}

/// How this host reaches others.
#[derive(Clone, Debug)]
pub(crate) struct Links {
    pub(crate) secret: Option<Secret>,
    /// How long an answer may take.
    pub(crate) patience: Duration,
    pub(crate) directory: Arc<Directory>,
    pub(crate) workshop: Arc<Workshop>,
}

/// The copies on this host.
#[derive(Debug)]
pub(crate) struct Copies<I> {
    own: Identity,
    settings: ClusterSettings,
    plane: Arc<Plane>,
    server: I,
    links: Links,
    files: Files,
    installed: BTreeMap<u16, Installed>,
    /// The threads that make copies of primaries here, by the number of the new copy.
    copiers: BTreeMap<u16, Copier>,
}

impl<I: Installer> Copies<I> {
    pub(crate) fn new(
        own: Identity,
        settings: ClusterSettings,
        plane: Arc<Plane>,
        server: I,
        links: Links,
        (files, memories): (Files, Memories),
    ) -> Self {
        let kept = |(one, host): (KeptCopy, Arc<Host>)| Installed {
            role: one.role,
            memory: host.into(),
            mirror: None,
            is_kept: true,
        };
        let installed = memories.into_iter().map(|(copy, memory)| (copy, kept(memory))).collect();
        Self { own, settings, plane, server, links, files, installed, copiers: BTreeMap::new() }
    }

    /// Carries out every table that comes.
    pub(crate) fn run(mut self, orders: &Orders, end: &End) {
        while let Some(order) = orders.take() {
            if let Err((copy, what)) = self.carry_out(&order) {
                return end.set(Ended::Copy { copy, what });
            }
        }
    }

    /// Carries out a table. If that fails, the error names the copy.
    fn carry_out(&mut self, order: &Order) -> Result<(), (u16, String)> {
        let table = &*order.table;
        let here = CopySite { host: self.own.host, incarnation: self.own.incarnation };
        let is_here = |copy: u16| table.sites().get(usize::from(copy)) == Some(&here);
        let mut named = Vec::new();
        for (volume, entry) in (0..).zip(table.volumes()) {
            for (role, copy) in entry.copies().filter(|(_, copy)| is_here(*copy)) {
                self.prepare(volume, copy, role).map_err(|what| (copy, what))?;
                self.files.note(KeptCopy { copy, volume, role: Some(role) }).map_err(|what| (copy, what))?;
                self.aim(copy, role, order.others(volume, entry), table.epoch())
                    .map_err(|what| (copy, what))?;
                named.push(copy);
            }
        }
        for making in order.makings.iter().filter(|making| is_here(making.copy)) {
            self.prepare_filling(making);
            named.push(making.copy);
        }
        self.direct_copiers(order);
        let gone: Vec<u16> = self.installed.keys().filter(|copy| !named.contains(copy)).copied().collect();
        for copy in gone {
            self.server.remove(copy);
            self.installed.remove(&copy);
            self.files.forget(copy).map_err(|what| (copy, what))?;
            tracing::info!(copy, "dropped a copy that no volume names");
        }
        // From now on clients may write, so no copy of this host is made empty again.
        self.files.note_served().map_err(|what| (named.first().copied().unwrap_or(0), what))?;
        self.plane.publish(table.epoch());
        Ok(())
    }

    /// Lets a primary send the stores of its CPU to the other copies of its volume (T5).
    fn aim(&mut self, copy: u16, role: Role, targets: Vec<(u16, Address)>, epoch: u64) -> Result<(), String> {
        if role != Role::Primary {
            self.stop_mirror(copy);
            return Ok(());
        }
        let Some(installed) = self.installed.get_mut(&copy) else {
            return Ok(());
        };
        let is_kept = std::mem::take(&mut installed.is_kept);
        if targets.is_empty() {
            self.server.mirror(copy, None);
            if let Some(mirror) = &installed.mirror {
                mirror.retarget(epoch, targets);
            }
            return Ok(());
        }
        if installed.mirror.is_none() {
            let Links { secret, patience, .. } = &self.links;
            let link = MirrorLink::start(self.own, secret.clone(), *patience);
            installed.mirror = Some(Arc::new(link.map_err(|error| error.to_string())?));
        }
        if let Some(mirror) = &installed.mirror {
            mirror.retarget(epoch, targets);
            if is_kept {
                // Stores of the former process that it had answered nobody for may have reached no other
                // copy. No client is served yet, so these are the first ones on the way.
                mirror.send_tables(installed.host());
            }
            self.server.mirror(copy, Some(Arc::clone(mirror) as Arc<dyn Mirror>));
        }
        Ok(())
    }

    /// A copy that is no primary any more sends nothing.
    fn stop_mirror(&mut self, copy: u16) {
        let mirror = self.installed.get_mut(&copy).and_then(|installed| installed.mirror.take());
        if mirror.is_some() {
            self.server.mirror(copy, None);
        }
    }

    /// Makes a copy what the table says.
    fn prepare(&mut self, volume: u16, copy: u16, role: Role) -> Result<(), String> {
        match self.installed.get_mut(&copy) {
            Some(installed) if installed.role == Some(role) && !installed.is_kept => {}
            Some(installed) => {
                if installed.role.is_none() || installed.is_kept {
                    self.server.install(copy, installed.memory.clone());
                    tracing::info!(volume, copy, role = ?role, "a copy is complete");
                }
                if installed.role == Some(Role::Primary) && role != Role::Primary {
                    installed.host().demote();
                    tracing::info!(volume, copy, "a primary is the backup now");
                }
                // A primary of the former process has its lanes, which say what clients held there.
                if role == Role::Primary && installed.role != Some(Role::Primary) {
                    installed.host().promote().map_err(|error| error.to_string())?;
                    tracing::info!(volume, copy, "promoted a copy");
                }
                installed.role = Some(role);
                installed.is_kept &= role == Role::Primary;
            }
            None => {
                let memory = self.files.make_first(&self.settings, self.own.cluster, (copy, volume))?;
                self.server.install(copy, memory.clone());
                let made = Installed { role: Some(role), memory, mirror: None, is_kept: false };
                self.installed.insert(copy, made);
                tracing::info!(volume, copy, role = ?role, "made a copy");
            }
        }
        Ok(())
    }

    /// Makes the memory of a copy that the host of the primary fills. Without memory the copy is not made,
    /// and the host goes on with those that it has.
    fn prepare_filling(&mut self, making: &Making) {
        let Making { volume, copy, .. } = *making;
        if self.installed.contains_key(&copy) {
            return;
        }
        let made = self.files.make(&self.settings, self.own.cluster, (copy, volume));
        let noted = made.and_then(|memory| {
            self.files.note(KeptCopy { copy, volume, role: None })?;
            Ok(memory)
        });
        match noted {
            Ok(memory) => {
                self.server.install_filling(copy, memory.clone());
                let made = Installed { role: None, memory, mirror: None, is_kept: false };
                self.installed.insert(copy, made);
                tracing::info!(volume, copy, "made room for a copy");
            }
            Err(what) => tracing::error!(volume, copy, "cannot make room for a copy: {what}"),
        }
    }

    /// Starts, directs and ends the threads that make copies of the primaries here.
    fn direct_copiers(&mut self, order: &Order) {
        let is_named = |copy: u16| order.table.of_copy(copy).is_some();
        let ended = |copy: &u16| !order.makings.iter().any(|making| making.copy == *copy);
        let ended: Vec<u16> = self.copiers.keys().copied().filter(ended).collect();
        for copy in ended {
            match self.copiers.remove(&copy) {
                Some(copier) if is_named(copy) => copier.finish(),
                dropped => drop(dropped),
            }
        }
        for Making { volume, copy, phase, .. } in order.makings.iter().copied() {
            let primary = order.table.volume(volume).and_then(|entry| entry.primary);
            let Some(installed) = primary.and_then(|primary| self.installed.get(&primary)) else { continue };
            let link = installed.mirror.clone();
            let task = Task { epoch: order.table.epoch(), phase, quiet: order.quiet, link };
            if let Some(copier) = self.copiers.get(&copy) {
                copier.set(task);
                continue;
            }
            let Some(address) = order.address(copy) else { continue };
            let Links { secret, patience, directory, workshop } = self.links.clone();
            let (own, primary) = (self.own, Arc::clone(installed.host()));
            let plan = Plan { own, secret, patience, directory, workshop, volume, copy, address, primary };
            match Copier::start(plan, task) {
                Ok(copier) => drop(self.copiers.insert(copy, copier)),
                Err(error) => tracing::error!(volume, copy, "cannot make a copy: {error}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{PrivateMemory, make};
    use sherman_control::plane::ControlPlane;
    use sherman_embedded::host::Made;
    use sherman_fabric::{Memory, Space};
    use sherman_layout::{FormatOptions, LockOptions};
    use sherman_memory_server::cluster::Phase;
    use sherman_memory_server::cluster::settings::memory_id;

    const CLUSTER: u64 = 7;
    const OWN: Identity = Identity { cluster: CLUSTER, host: 1, incarnation: 2 };

    fn links() -> Links {
        Links {
            secret: None,
            patience: Duration::from_millis(100),
            directory: Arc::default(),
            workshop: Arc::default(),
        }
    }

    fn nothing() -> (Files, Memories) {
        (Files { folder: None, maker: Arc::new(PrivateMemory) }, Memories::new())
    }

    fn order(volumes: u16) -> Order {
        order_of(VolumeTable::single(volumes))
    }

    fn order_of(table: VolumeTable) -> Order {
        Order { table: Arc::new(table), hosts: Vec::new(), makings: Vec::new(), quiet: false }
    }

    fn settings() -> ClusterSettings {
        let format = FormatOptions {
            chunk_bytes: 4096,
            redo_slot_bytes: 512,
            redo_area_bytes: 1024,
            member_capacity: 2,
            catalog_capacity: 1,
            locks: LockOptions { lanes: Some(64), ..LockOptions::default() },
            ..FormatOptions::default()
        };
        ClusterSettings {
            replicas: 2,
            volumes: 2,
            hosts: 2,
            volume_bytes: 64 << 10,
            on_chip_bytes: 128,
            format,
        }
    }

    #[derive(Debug, Default)]
    struct Served(Mutex<BTreeMap<u16, Arc<Host>>>, Mutex<Vec<u16>>);

    impl Installer for &Served {
        fn install(&self, copy: u16, ServedMemory { host, .. }: ServedMemory) {
            let before = self.0.lock().unwrap().insert(copy, Arc::clone(&host));
            let mut filling = self.1.lock().unwrap();
            let filled = filling.contains(&copy);
            assert!(before.is_none_or(|before| filled && Arc::ptr_eq(&before, &host)), "{copy} twice");
            filling.retain(|other| *other != copy);
        }

        fn install_filling(&self, copy: u16, ServedMemory { host, .. }: ServedMemory) {
            assert!(self.0.lock().unwrap().insert(copy, host).is_none(), "copy {copy} is installed twice");
            self.1.lock().unwrap().push(copy);
        }

        fn remove(&self, copy: u16) {
            assert!(self.0.lock().unwrap().remove(&copy).is_some());
        }

        fn mirror(&self, copy: u16, mirror: Option<Arc<dyn Mirror>>) {
            assert!(self.0.lock().unwrap().contains_key(&copy));
            drop(mirror);
        }
    }

    /// Copies 0 and 1 are on host 0, copies 2 and 3 on host 1.
    fn table(epoch: u64, entries: [(Option<u16>, Option<u16>); 2]) -> Order {
        let site = |host: u16| CopySite { host, incarnation: u32::from(host) + 1 };
        let entry = |(primary, backup): (Option<u16>, Option<u16>)| VolumeEntry {
            primary,
            backup,
            joining: None,
            open: false,
        };
        let sites = vec![site(0), site(0), site(1), site(1)];
        order_of(VolumeTable::new(epoch, sites, entries.map(entry).to_vec()).unwrap())
    }

    fn host(number: u16) -> HostInfo {
        let address = format!("unix:/nowhere/{number}");
        let (up, voter, leaving) = (true, true, false);
        HostInfo { number, incarnation: 1, node: 1, address, up, voter, memory_bytes: 1, leaving }
    }

    fn bytes(host: &Host) -> Vec<u8> {
        let mut bytes = vec![0; host.memory().size(Space::Host) as usize];
        host.memory().load(Space::Host, 0, &mut bytes);
        bytes
    }

    #[test]
    fn a_backup_is_made_promoted_and_dropped_as_the_table_says() {
        let (served, (plane, _inputs)) = (Served::default(), Plane::new());
        let plane = Arc::new(plane);
        let mut copies = Copies::new(OWN, settings(), Arc::clone(&plane), &served, links(), nothing());
        copies.carry_out(&table(1, [(Some(0), Some(2)), (Some(3), Some(1))])).unwrap();
        assert_eq!(plane.epoch(), 1);
        let found: Vec<u16> = served.0.lock().unwrap().keys().copied().collect();
        assert_eq!(found, [2, 3]);
        let backup = Arc::clone(&served.0.lock().unwrap()[&2]);
        // A lane that a client of the former primary might have taken here by mistake.
        backup.memory().store_u64(Space::OnChip, 8, 5);
        copies.carry_out(&table(2, [(Some(2), None), (Some(3), None)])).unwrap();
        assert_eq!((plane.epoch(), backup.memory().load_u64(Space::OnChip, 8)), (2, 0));
        assert!(Arc::ptr_eq(&backup, &served.0.lock().unwrap()[&2]));
        copies.carry_out(&table(3, [(Some(0), None), (Some(3), None)])).unwrap();
        assert_eq!(served.0.lock().unwrap().keys().copied().collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn a_copy_that_is_being_made_is_served_when_the_table_names_it_and_keeps_its_bytes() {
        let (served, (plane, _inputs)) = (Served::default(), Plane::new());
        let plane = Arc::new(plane);
        let mut copies = Copies::new(OWN, settings(), Arc::clone(&plane), &served, links(), nothing());
        let making = Making { volume: 0, copy: 2, phase: Phase::Planned, replaces: None };
        let open = table(1, [(Some(0), None), (Some(1), None)]);
        copies.carry_out(&Order { makings: vec![making], ..open }).unwrap();
        assert_eq!((plane.epoch(), &served.1.lock().unwrap()[..]), (1, &[2][..]));
        let filled = Arc::clone(&served.0.lock().unwrap()[&2]);
        filled.fill(32 << 10, &[5; 64]).unwrap();
        copies.carry_out(&table(2, [(Some(0), Some(2)), (Some(1), None)])).unwrap();
        assert!(served.1.lock().unwrap().is_empty());
        assert!(Arc::ptr_eq(&filled, &served.0.lock().unwrap()[&2]) && bytes(&filled)[32 << 10] == 5);
        // A copy that is wanted no more goes with its memory.
        let making = Making { volume: 1, copy: 3, phase: Phase::Planned, replaces: None };
        let open = table(3, [(Some(0), Some(2)), (Some(1), None)]);
        copies.carry_out(&Order { makings: vec![making], ..open.clone() }).unwrap();
        assert_eq!(served.0.lock().unwrap().keys().copied().collect::<Vec<_>>(), [2, 3]);
        copies.carry_out(&open).unwrap();
        assert_eq!(served.0.lock().unwrap().keys().copied().collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn a_copy_that_takes_the_place_of_a_primary_is_promoted_and_a_swap_exchanges_the_parts() {
        let (served, (plane, _inputs)) = (Served::default(), Plane::new());
        let mut copies = Copies::new(OWN, settings(), Arc::new(plane), &served, links(), nothing());
        let making = Making { volume: 0, copy: 2, phase: Phase::Planned, replaces: Some(0) };
        let open = table(1, [(Some(0), None), (Some(1), Some(3))]);
        copies.carry_out(&Order { makings: vec![making], ..open }).unwrap();
        let moved = Arc::clone(&served.0.lock().unwrap()[&2]);
        let backup = Arc::clone(&served.0.lock().unwrap()[&3]);
        let takes =
            |host: &Host, epoch| matches!(host.make_stores((epoch, 1), &[], || ()), Ok(Made::Now(())));
        assert!(takes(&moved, 1) && takes(&backup, 1));
        let swapped = table(2, [(Some(2), None), (Some(3), Some(1))]);
        copies.carry_out(&Order { hosts: vec![host(0), host(1)], ..swapped }).unwrap();
        assert!(served.1.lock().unwrap().is_empty(), "the copy is complete");
        assert!(!takes(&moved, 2) && !takes(&backup, 2), "a primary takes no stores");
        assert!(copies.installed[&3].mirror.is_some() && copies.installed[&2].mirror.is_none());
        copies.carry_out(&table(3, [(Some(2), None), (Some(1), Some(3))])).unwrap();
        assert!(takes(&backup, 3) && !takes(&moved, 3));
        assert!(copies.installed[&3].mirror.is_none());
        assert!(Arc::ptr_eq(&backup, &served.0.lock().unwrap()[&3]), "nothing was copied");
    }

    #[test]
    fn a_copy_gets_the_stores_of_the_cpu_while_the_state_is_quiet() {
        let makings = vec![Making { volume: 0, copy: 2, phase: Phase::Copied, replaces: None }];
        let open = table(1, [(Some(0), None), (Some(1), Some(3))]);
        let order = Order { makings, hosts: vec![host(0), host(1)], ..open };
        let targets = |quiet, volume| {
            let order = Order { quiet, ..order.clone() };
            let others = order.others(volume, order.table.volume(volume).unwrap());
            others.into_iter().map(|(copy, _)| copy).collect::<Vec<_>>()
        };
        assert_eq!((targets(false, 0), targets(true, 0)), (vec![], vec![2]));
        assert_eq!((targets(false, 1), targets(true, 1)), (vec![3], vec![3]));
    }

    #[test]
    fn the_copies_of_a_volume_are_the_same_bytes_and_know_their_cluster() {
        for volume in [0, 1] {
            let [one, other] = [(); 2].map(|()| make(&settings(), CLUSTER, volume).unwrap());
            assert_eq!(bytes(&one), bytes(&other));
            assert_eq!(one.superblock().memory_id, memory_id(CLUSTER, volume));
            assert_eq!((one.superblock().server, one.superblock().servers), (volume, 2));
            one.look(|tables| assert!(tables.cluster() == CLUSTER && tables.control.is_none()));
        }
    }

    #[test]
    fn a_copy_that_cannot_be_made_is_named_and_its_epoch_is_not_published() {
        let (served, (plane, _inputs)) = (Served::default(), Plane::new());
        let plane = Arc::new(plane);
        let settings = ClusterSettings { volume_bytes: 100, ..settings() };
        let mut copies = Copies::new(OWN, settings, Arc::clone(&plane), &served, links(), nothing());
        let failed = copies.carry_out(&table(1, [(Some(0), Some(2)), (Some(1), None)]));
        assert_eq!(failed.map_err(|(copy, _)| copy), Err(2));
        assert_eq!(plane.epoch(), 0);
    }

    #[test]
    fn copies_of_another_incarnation_are_not_ours() {
        let (served, (plane, _inputs)) = (Served::default(), Plane::new());
        let own = Identity { incarnation: 9, ..OWN };
        let mut copies = Copies::new(own, settings(), Arc::new(plane), &served, links(), nothing());
        copies.carry_out(&table(1, [(Some(0), Some(2)), (Some(1), None)])).unwrap();
        assert!(served.0.lock().unwrap().is_empty());
    }

    #[test]
    fn only_the_newest_table_is_carried_out() {
        let orders = Orders::default();
        orders.put(order(1));
        orders.put(order(2));
        assert_eq!(orders.take().map(|order| order.table.volumes().len()), Some(2));
        orders.put(order(1));
        orders.close();
        assert!(orders.take().is_none());
    }
}
