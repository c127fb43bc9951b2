//! Carries out tables: makes copies, promotes backups, drops what no volume names any more.
//!
//! A thread of its own does this, because memory takes time to make. Only the newest table counts: a host
//! that skips an epoch goes to the next one. That is safe. No client was served here by a table that this
//! host has not carried out, so no client has written to a copy that was not made.

use crate::address::parse_address;
use crate::end::{End, Ended};
use crate::mirror::MirrorLink;
use crate::plane::{Identity, Plane};
use sherman_control::plane::Mirror;
use sherman_control::{Address, Secret};
use sherman_embedded::Atomicity;
use sherman_embedded::copy::CopyPath;
use sherman_embedded::host::Host;
use sherman_embedded::memory::Region;
use sherman_fabric::Role;
use sherman_fabric::group::HostInfo;
use sherman_memory_server::cluster::ClusterSettings;
use sherman_replica::{CopySite, VolumeEntry, VolumeTable};
use sherman_soft_nic::server::ServerHandle;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// A table, and the hosts that there are.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) table: Arc<VolumeTable>,
    pub(crate) hosts: Vec<HostInfo>,
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

/// Makes the memory of a copy.
fn make(settings: &ClusterSettings, cluster: u64, volume: u16) -> Result<Host, String> {
    let sizes = (usize::try_from(settings.volume_bytes), usize::try_from(settings.on_chip_bytes));
    let region = match sizes {
        (Ok(bytes), Ok(on_chip)) => Region::new(bytes, on_chip, Atomicity::Line, CopyPath::fastest()),
        _ => None,
    };
    let region = region.ok_or_else(|| {
        format!("the system does not provide {} bytes of memory, in whole lines", settings.volume_bytes)
    })?;
    let format = settings.volume_format(cluster, volume);
    Host::format_volume(region, &format, cluster).map_err(|error| error.to_string())
}

/// What this host's server does with copies.
pub(crate) trait Installer {
    /// Serves a copy from now on.
    fn install(&self, copy: u16, host: Arc<Host>);
    /// Serves it no more.
    fn remove(&self, copy: u16);
    /// Sends the stores of its CPU there, if it is a primary whose volume has other copies.
    fn mirror(&self, copy: u16, mirror: Option<Arc<dyn Mirror>>);
}

impl Installer for ServerHandle {
    fn install(&self, copy: u16, host: Arc<Host>) {
        self.install_copy(copy, host);
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
    role: Role,
    host: Arc<Host>,
    mirror: Option<Arc<MirrorLink>>,
}

/// The copies of a volume besides the primary, and the addresses of their hosts.
fn others(table: &VolumeTable, entry: &VolumeEntry, hosts: &[HostInfo]) -> Vec<(u16, Address)> {
    let address = |copy: u16| {
        let site = table.sites().get(usize::from(copy))?;
        let host = hosts.iter().find(|host| host.number == site.host)?;
        Some((copy, parse_address(&host.address)?))
    };
    let others = entry.copies().filter(|(role, _)| *role != Role::Primary);
    others.filter_map(|(_, copy)| address(copy)).collect()
}

/// The copies on this host.
#[derive(Debug)]
pub(crate) struct Copies<I> {
    own: Identity,
    settings: ClusterSettings,
    plane: Arc<Plane>,
    server: I,
    /// For connections to other hosts.
    secret: Option<Secret>,
    patience: Duration,
    installed: BTreeMap<u16, Installed>,
}

impl<I: Installer> Copies<I> {
    pub(crate) fn new(
        own: Identity,
        settings: ClusterSettings,
        plane: Arc<Plane>,
        server: I,
        (secret, patience): (Option<Secret>, Duration),
    ) -> Self {
        Self { own, settings, plane, server, secret, patience, installed: BTreeMap::new() }
    }

    /// Carries out every table that comes.
    pub(crate) fn run(mut self, orders: &Orders, end: &End) {
        while let Some(Order { table, hosts }) = orders.take() {
            if let Err((copy, what)) = self.carry_out(&table, &hosts) {
                return end.set(Ended::Copy { copy, what });
            }
        }
    }

    /// Carries out a table. If that fails, the error names the copy.
    fn carry_out(&mut self, table: &VolumeTable, hosts: &[HostInfo]) -> Result<(), (u16, String)> {
        let here = CopySite { host: self.own.host, incarnation: self.own.incarnation };
        let is_here = |copy: u16| table.sites().get(usize::from(copy)) == Some(&here);
        let mut named = Vec::new();
        for (volume, entry) in (0..).zip(table.volumes()) {
            for (role, copy) in entry.copies().filter(|(_, copy)| is_here(*copy)) {
                self.prepare(volume, copy, role).map_err(|what| (copy, what))?;
                self.aim(copy, role, others(table, entry, hosts), table.epoch())
                    .map_err(|what| (copy, what))?;
                named.push(copy);
            }
        }
        let gone: Vec<u16> = self.installed.keys().filter(|copy| !named.contains(copy)).copied().collect();
        for copy in gone {
            self.server.remove(copy);
            self.installed.remove(&copy);
            tracing::info!(copy, "dropped a copy that no volume names");
        }
        self.plane.publish(table.epoch());
        Ok(())
    }

    /// Lets a primary send the stores of its CPU to the other copies of its volume (T5).
    fn aim(&mut self, copy: u16, role: Role, targets: Vec<(u16, Address)>, epoch: u64) -> Result<(), String> {
        let Some(installed) = self.installed.get_mut(&copy).filter(|_| role == Role::Primary) else {
            return Ok(());
        };
        if targets.is_empty() {
            self.server.mirror(copy, None);
            if let Some(mirror) = &installed.mirror {
                mirror.retarget(epoch, targets);
            }
            return Ok(());
        }
        if installed.mirror.is_none() {
            let link = MirrorLink::start(self.own, self.secret.clone(), self.patience);
            installed.mirror = Some(Arc::new(link.map_err(|error| error.to_string())?));
        }
        if let Some(mirror) = &installed.mirror {
            mirror.retarget(epoch, targets);
            self.server.mirror(copy, Some(Arc::clone(mirror) as Arc<dyn Mirror>));
        }
        Ok(())
    }

    /// Makes a copy what the table says.
    fn prepare(&mut self, volume: u16, copy: u16, role: Role) -> Result<(), String> {
        match self.installed.get_mut(&copy) {
            Some(installed) if installed.role == role => {}
            Some(installed) => {
                if role == Role::Primary {
                    installed.host.promote().map_err(|error| error.to_string())?;
                    tracing::info!(volume, copy, "promoted a copy");
                }
                installed.role = role;
            }
            None => {
                let host = Arc::new(make(&self.settings, self.own.cluster, volume)?);
                self.server.install(copy, Arc::clone(&host));
                self.installed.insert(copy, Installed { role, host, mirror: None });
                tracing::info!(volume, copy, role = ?role, "made a copy");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sherman_control::plane::ControlPlane;
    use sherman_fabric::{Memory, Space};
    use sherman_layout::{FormatOptions, LockOptions};
    use sherman_memory_server::cluster::settings::memory_id;

    const CLUSTER: u64 = 7;
    const OWN: Identity = Identity { cluster: CLUSTER, host: 1, incarnation: 2 };

    const QUIET: (Option<Secret>, Duration) = (None, Duration::from_millis(100));

    fn order(volumes: u16) -> Order {
        Order { table: Arc::new(VolumeTable::single(volumes)), hosts: Vec::new() }
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
    struct Served(Mutex<BTreeMap<u16, Arc<Host>>>);

    impl Installer for &Served {
        fn install(&self, copy: u16, host: Arc<Host>) {
            assert!(self.0.lock().unwrap().insert(copy, host).is_none(), "copy {copy} is installed twice");
        }

        fn remove(&self, copy: u16) {
            assert!(self.0.lock().unwrap().remove(&copy).is_some());
        }

        fn mirror(&self, copy: u16, mirror: Option<Arc<dyn Mirror>>) {
            assert!(mirror.is_none() && self.0.lock().unwrap().contains_key(&copy));
        }
    }

    /// Copies 0 and 1 are on host 0, copies 2 and 3 on host 1.
    fn table(epoch: u64, entries: [(Option<u16>, Option<u16>); 2]) -> VolumeTable {
        let site = |host: u16| CopySite { host, incarnation: u32::from(host) + 1 };
        let entry = |(primary, backup): (Option<u16>, Option<u16>)| VolumeEntry {
            primary,
            backup,
            joining: None,
            open: false,
        };
        VolumeTable::new(epoch, vec![site(0), site(0), site(1), site(1)], entries.map(entry).to_vec())
            .unwrap()
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
        let mut copies = Copies::new(OWN, settings(), Arc::clone(&plane), &served, QUIET);
        copies.carry_out(&table(1, [(Some(0), Some(2)), (Some(3), Some(1))]), &[]).unwrap();
        assert_eq!(plane.epoch(), 1);
        let found: Vec<u16> = served.0.lock().unwrap().keys().copied().collect();
        assert_eq!(found, [2, 3]);
        let backup = Arc::clone(&served.0.lock().unwrap()[&2]);
        // A lane that a client of the former primary might have taken here by mistake.
        backup.memory().store_u64(Space::OnChip, 8, 5);
        copies.carry_out(&table(2, [(Some(2), None), (Some(3), None)]), &[]).unwrap();
        assert_eq!((plane.epoch(), backup.memory().load_u64(Space::OnChip, 8)), (2, 0));
        assert!(Arc::ptr_eq(&backup, &served.0.lock().unwrap()[&2]));
        copies.carry_out(&table(3, [(Some(0), None), (Some(3), None)]), &[]).unwrap();
        assert_eq!(served.0.lock().unwrap().keys().copied().collect::<Vec<_>>(), [3]);
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
        let mut copies = Copies::new(OWN, settings, Arc::clone(&plane), &served, QUIET);
        let failed = copies.carry_out(&table(1, [(Some(0), Some(2)), (Some(1), None)]), &[]);
        assert_eq!(failed.map_err(|(copy, _)| copy), Err(2));
        assert_eq!(plane.epoch(), 0);
    }

    #[test]
    fn copies_of_another_incarnation_are_not_ours() {
        let (served, (plane, _inputs)) = (Served::default(), Plane::new());
        let own = Identity { incarnation: 9, ..OWN };
        let mut copies = Copies::new(own, settings(), Arc::new(plane), &served, QUIET);
        copies.carry_out(&table(1, [(Some(0), Some(2)), (Some(1), None)]), &[]).unwrap();
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
