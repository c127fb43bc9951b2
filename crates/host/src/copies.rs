//! Carries out tables: makes copies, promotes backups, drops what no volume names any more.
//!
//! A thread of its own does this, because memory takes time to make. Only the newest table counts: a host that
//! skips an epoch goes to the next one. That is safe. No client was served here by a table that this host has
//! not carried out, so no client has written to a copy that was not made.

use crate::end::{End, Ended};
use crate::plane::{Identity, Plane};
use sherman_embedded::Atomicity;
use sherman_embedded::copy::CopyPath;
use sherman_embedded::host::Host;
use sherman_embedded::memory::Region;
use sherman_fabric::Role;
use sherman_memory_server::cluster::ClusterSettings;
use sherman_replica::{CopySite, VolumeTable};
use sherman_soft_nic::server::ServerHandle;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// The newest table, for the thread that carries it out.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    newest: Mutex<Newest>,
    came: Condvar,
}

#[derive(Debug, Default)]
struct Newest {
    table: Option<Arc<VolumeTable>>,
    over: bool,
}

impl Orders {
    /// Replaces the table.
    pub(crate) fn put(&self, table: Arc<VolumeTable>) {
        self.change(|newest| newest.table = Some(table));
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
    fn take(&self) -> Option<Arc<VolumeTable>> {
        let newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.came.wait_while(newest, |newest| newest.table.is_none() && !newest.over);
        let mut newest = waited.unwrap_or_else(PoisonError::into_inner);
        if newest.over { None } else { newest.table.take() }
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
}

impl Installer for ServerHandle {
    fn install(&self, copy: u16, host: Arc<Host>) {
        self.install_copy(copy, host);
    }

    fn remove(&self, copy: u16) {
        self.remove_copy(copy);
    }
}

/// A copy on this host.
#[derive(Debug)]
struct Installed {
    role: Role,
    host: Arc<Host>,
}

/// The copies on this host.
#[derive(Debug)]
pub(crate) struct Copies<I> {
    own: Identity,
    settings: ClusterSettings,
    plane: Arc<Plane>,
    server: I,
    installed: BTreeMap<u16, Installed>,
}

impl<I: Installer> Copies<I> {
    pub(crate) fn new(own: Identity, settings: ClusterSettings, plane: Arc<Plane>, server: I) -> Self {
        Self { own, settings, plane, server, installed: BTreeMap::new() }
    }

    /// Carries out every table that comes.
    pub(crate) fn run(mut self, orders: &Orders, end: &End) {
        while let Some(table) = orders.take() {
            if let Err((copy, what)) = self.carry_out(&table) {
                return end.set(Ended::Copy { copy, what });
            }
        }
    }

    /// Carries out a table. If that fails, the error names the copy.
    fn carry_out(&mut self, table: &VolumeTable) -> Result<(), (u16, String)> {
        let here = CopySite { host: self.own.host, incarnation: self.own.incarnation };
        let is_here = |copy: u16| table.sites().get(usize::from(copy)) == Some(&here);
        let mut named = Vec::new();
        for (volume, entry) in (0..).zip(table.volumes()) {
            for (role, copy) in entry.copies().filter(|(_, copy)| is_here(*copy)) {
                self.prepare(volume, copy, role).map_err(|what| (copy, what))?;
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
                self.installed.insert(copy, Installed { role, host });
                tracing::info!(volume, copy, role = ?role, "made a copy");
            }
        }
        Ok(())
    }
}
