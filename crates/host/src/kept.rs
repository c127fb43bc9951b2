//! How a process goes on as a host whose process ended (I4 in `docs/REPLICATION.md`).
//!
//! The folder has the host's number, its log of the group and the memory of its copies. So the process takes
//! part in the group at once. It tells the leader that it is back. The state ends all identities in a new
//! epoch, and the copies go on as they were. If the host was declared lost meanwhile, it ends. Its folder
//! says so, and the next start makes a new host of the same cluster.

use crate::address::parse_address;
use crate::driver::{Log, owner};
use crate::error::HostError;
use crate::folder::{Folder, FolderProblem, Kept, Memories, machine};
use crate::join::host_at;
use crate::options::{HostCluster, HostOptions};
use crate::plane::Identity;
use sherman_consensus::Recovered;
use sherman_control::Address;
use sherman_fabric::group::Registration;
use sherman_memory_server::cluster::ClusterSettings;
use std::path::Path;
use std::sync::Arc;

/// The host in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptHost {
    /// Its cluster.
    pub cluster: u64,
    /// Its number.
    pub host: u16,
    /// Bytes of memory that it offers.
    pub memory_bytes: u64,
    /// The settings of its cluster.
    pub settings: ClusterSettings,
}

/// The host in a folder, for a caller that checks options before it starts the host. `None` if there is none.
///
/// # Errors
/// If the folder cannot be used, or another process uses it.
pub fn peek(path: &Path) -> Result<Option<KeptHost>, HostError> {
    if !path.try_exists().map_err(HostError::System)? {
        return Ok(None);
    }
    let folder = Folder::open(path)?;
    let Some(kept) = folder.kept() else { return Ok(None) };
    let settings = settings_of(&folder, &kept)?;
    let Kept { own: Identity { cluster, host, .. }, memory_bytes, .. } = kept;
    Ok(Some(KeptHost { cluster, host, memory_bytes, settings }))
}

fn settings_of(folder: &Folder, kept: &Kept) -> Result<ClusterSettings, HostError> {
    let damaged = FolderProblem::Damaged { what: "the settings of its cluster make no sense" };
    ClusterSettings::decode(&kept.settings).ok_or_else(|| folder.failed(damaged))
}

/// What a process finds in its folder.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) folder: Arc<Folder>,
    /// The host that this process goes on as.
    pub(crate) back: Option<Back>,
    /// A host that was declared lost: its cluster, and where the other hosts are.
    pub(crate) lost: Option<(u64, Vec<Address>)>,
}

/// A host that comes back.
#[derive(Debug)]
pub(crate) struct Back {
    pub(crate) kept: Kept,
    pub(crate) settings: ClusterSettings,
    pub(crate) log: Log,
    pub(crate) recovered: Option<Recovered>,
    pub(crate) memories: Memories,
}

/// Opens the folder of the options, if they name one.
pub(crate) fn open(options: &HostOptions) -> Result<Option<Found>, HostError> {
    let Some(path) = &options.file else {
        return match options.cluster {
            HostCluster::Kept => Err(HostError::NothingKept { path: "no folder".into() }),
            _ => Ok(None),
        };
    };
    let folder = Arc::new(Folder::open(path)?);
    let found = match folder.kept() {
        None if matches!(options.cluster, HostCluster::Kept) => {
            return Err(HostError::NothingKept { path: path.clone() });
        }
        None => Found { folder, back: None, lost: None },
        Some(kept) => {
            check_seeds(options, &kept)?;
            if kept.lost {
                folder.clear().map_err(|error| io(&folder, "remove a lost host from", error))?;
                Found { folder, back: None, lost: Some((kept.own.cluster, others(&kept))) }
            } else {
                let back = Some(come_back(options, &folder, kept)?);
                Found { folder, back, lost: None }
            }
        }
    };
    let room = |problem| found.folder.failed(problem);
    found.folder.take_room(options.memory_bytes).map_err(room)?;
    Ok(Some(found))
}

fn io(folder: &Folder, what: &'static str, error: std::io::Error) -> HostError {
    folder.failed(FolderProblem::Io { what, error })
}

/// The addresses of the other hosts that were present.
fn others(kept: &Kept) -> Vec<Address> {
    let others = kept.hosts.iter().filter(|host| host.up && host.number != kept.own.host);
    others.filter_map(|host| parse_address(&host.address)).collect()
}

fn come_back(options: &HostOptions, folder: &Folder, kept: Kept) -> Result<Back, HostError> {
    let settings = settings_of(folder, &kept)?;
    let (used, offered) = (kept.copies.len() as u64 * settings.volume_bytes, options.memory_bytes);
    if used > offered {
        return Err(folder.failed(FolderProblem::LessMemory { used, offered }));
    }
    check_not_running(options, folder, &kept)?;
    if let Some(name) = folder.missing_log().filter(|_| kept.served) {
        return Err(folder.failed(FolderProblem::NoLog { name }));
    }
    let (log, recovered) = Log::open(folder).map_err(|problem| folder.failed(problem))?;
    if recovered.is_none() && kept.served {
        return Err(folder.failed(FolderProblem::LogLength));
    }
    let meant = owner(kept.own.cluster, kept.node);
    if recovered.as_ref().is_some_and(|log| log.owner() != meant) {
        return Err(folder.failed(FolderProblem::OthersLog));
    }
    let memories = folder.open_copies(&kept, &settings)?;
    let machine = machine();
    let changed = folder.change(|kept| (kept.machine, kept.memory_bytes) = (machine, offered));
    changed.map_err(|error| io(folder, "write the file \"host\" of", error))?;
    Ok(Back { kept, settings, log, recovered, memories })
}

impl Back {
    /// Its place in the cluster, as far as it remembers.
    pub(crate) fn registration(&self) -> Registration {
        let Kept { own, node, settings, hosts, .. } = &self.kept;
        Registration {
            cluster: own.cluster,
            host: own.host,
            incarnation: own.incarnation,
            node: *node,
            settings: settings.clone(),
            hosts: hosts.clone(),
        }
    }
}

/// Refuses seeds that belong to another cluster than the host in the folder, as far as they answer.
fn check_seeds(options: &HostOptions, kept: &Kept) -> Result<(), HostError> {
    let HostCluster::Join { seeds, cluster } = &options.cluster else { return Ok(()) };
    let meant = kept.own.cluster;
    for address in seeds {
        let at_seed = || host_at(address, options.secret.as_ref()).map(|(cluster, _)| cluster);
        let found = if *cluster == 0 { at_seed() } else { Some(*cluster) };
        if let Some(found) = found.filter(|found| *found != meant) {
            return Err(HostError::OtherCluster { address: address.clone(), found, meant });
        }
    }
    Ok(())
}

/// Refuses a copy of a folder while the host runs, as far as it answers where it was last. Nothing listens
/// here yet, so it is not this process that answers.
fn check_not_running(options: &HostOptions, folder: &Folder, kept: &Kept) -> Result<(), HostError> {
    let Identity { cluster, host, .. } = kept.own;
    let was = kept.hosts.iter().find(|other| other.number == host);
    let Some(address) = was.and_then(|was| parse_address(&was.address)) else { return Ok(()) };
    match host_at(&address, options.secret.as_ref()) {
        Some(found) if found == (cluster, host) => Err(folder.failed(FolderProblem::Runs { host, address })),
        _ => Ok(()),
    }
}
