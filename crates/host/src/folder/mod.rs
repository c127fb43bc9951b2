//! The folder of a host (`--file`): what outlives its process.
//!
//! | file | what |
//! |---|---|
//! | `lock` | locked while a process uses the folder |
//! | `host` | who the host is, its cluster, and its copies ([`Kept`]) |
//! | `group.0`, `group.1`, `group.len` | its log of the control group, and how long that must be |
//! | `copy-N` | the memory of copy N ([`mod@sherman_embedded::file`]) |
//! | `room` | disk space for copies that are not made yet |
//!
//! **What survives.** A process may end in any way. The system keeps what it has written. Nothing is synced
//! while the host works, so a power loss or a crash of the machine may leave anything. The folder names the
//! start of the machine under which it was written, and a host that ends in order syncs everything and takes
//! that name away. So after a crash of the machine the folder is refused.
//!
//! **Disk space** for all memory that the host offers is taken when it starts.

mod kept;
mod problem;
mod space;

pub(crate) use kept::{Kept, KeptCopy};
pub use problem::FolderProblem;

use crate::error::HostError;
use sherman_embedded::Atomicity;
use sherman_embedded::file::{FileOptions, peek};
use sherman_embedded::host::{Host, HostError as MemoryError};
use sherman_embedded::predecessor::wait_for_predecessor;
use sherman_memory_server::cluster::ClusterSettings;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const LOCK: &str = "lock";
const HOST: &str = "host";
const NEXT_HOST: &str = "host.new";
const ROOM: &str = "room";
const COPY: &str = "copy-";
/// The name of the log, before the number of its segment.
pub(crate) const LOG: &str = "group";
/// The files of the log.
const LOGS: [&str; 3] = ["group.0", "group.1", "group.len"];

/// The folder of a host, which no other process uses.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    _lock: File,
    /// Whether it was made just now.
    is_new: bool,
    /// What the file of the host says; `None` if there is none yet.
    kept: Mutex<Option<Kept>>,
}

/// The memories of copies in a folder.
pub(crate) type Memories = BTreeMap<u16, (KeptCopy, Arc<Host>)>;

/// A folder in which no host was made is left as it was found.
impl Drop for Folder {
    fn drop(&mut self) {
        if self.locked().is_some() {
            return;
        }
        for name in [ROOM, LOCK] {
            let _ = fs::remove_file(self.path.join(name));
        }
        if self.is_new {
            let _ = fs::remove_dir(&self.path);
        }
    }
}

impl Folder {
    /// Opens a folder, or makes it.
    pub(crate) fn open(path: &Path) -> Result<Self, HostError> {
        Self::try_open(path).map_err(|problem| HostError::Folder { path: path.to_owned(), problem })
    }

    fn try_open(path: &Path) -> Result<Self, FolderProblem> {
        let is_new = match fs::DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            Err(error) => return Err(FolderProblem::io("make the folder")(error)),
        };
        let found = fs::metadata(path).map_err(FolderProblem::io("read the folder"))?;
        if !found.is_dir() {
            return Err(FolderProblem::NotAFolder);
        }
        // Before anything is written: the folder may be somebody else's.
        check_names(path)?;
        let mut lock = OpenOptions::new();
        lock.read(true).write(true).create(true).truncate(false).mode(0o600);
        let lock = lock.open(path.join(LOCK)).map_err(FolderProblem::io("open the file \"lock\""))?;
        let in_use = |error: &TryLockError| matches!(error, TryLockError::WouldBlock);
        wait_for_predecessor(|| lock.try_lock(), in_use).map_err(|error| match error {
            TryLockError::WouldBlock => FolderProblem::InUse,
            TryLockError::Error(error) => FolderProblem::io("lock the folder")(error),
        })?;
        let kept = match fs::read(path.join(HOST)) {
            Ok(bytes) => Some(Kept::decode(&bytes)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(FolderProblem::io("read the file \"host\"")(error)),
        };
        if kept.as_ref().is_some_and(|kept| !kept.machine.is_empty() && kept.machine != machine()) {
            return Err(FolderProblem::MachineRestarted);
        }
        Ok(Self { path: path.to_owned(), _lock: lock, is_new, kept: Mutex::new(kept) })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The error of this folder.
    pub(crate) fn failed(&self, problem: FolderProblem) -> HostError {
        HostError::Folder { path: self.path.clone(), problem }
    }

    fn locked(&self) -> MutexGuard<'_, Option<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the host was, if there was one.
    pub(crate) fn kept(&self) -> Option<Kept> {
        self.locked().clone()
    }

    /// Keeps what the host is now.
    pub(crate) fn keep(&self, kept: Kept) -> io::Result<()> {
        let mut known = self.locked();
        self.write(&kept)?;
        *known = Some(kept);
        Ok(())
    }

    /// Changes what the host is. Writes only what differs. If that fails, nothing changes.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Kept)) -> io::Result<()> {
        let mut known = self.locked();
        let Some(mut next) = known.clone() else { return Ok(()) };
        change(&mut next);
        if known.as_ref() != Some(&next) {
            self.write(&next)?;
            *known = Some(next);
        }
        Ok(())
    }

    fn write(&self, kept: &Kept) -> io::Result<()> {
        let next = self.path.join(NEXT_HOST);
        let mut open = OpenOptions::new();
        open.write(true).create(true).truncate(true).mode(0o600);
        open.open(&next)?.write_all(&kept.encode())?;
        fs::rename(next, self.path.join(HOST))
    }

    /// Takes disk space for this much memory. Copies that exist are part of it.
    pub(crate) fn take_room(&self, bytes: u64) -> Result<(), FolderProblem> {
        let mut used = 0;
        for name in self.copies().map_err(FolderProblem::io("read the folder"))?.values() {
            used += fs::metadata(name).map_or(0, |found| found.len());
        }
        space::take(&self.path.join(ROOM), bytes.saturating_sub(used))
    }

    /// The memory of a new copy. A file of an earlier attempt is removed.
    pub(crate) fn make(
        &self,
        settings: &ClusterSettings,
        cluster: u64,
        (copy, volume): (u16, u16),
    ) -> Result<Host, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        self.remove_file(copy).map_err(|error| text(&error))?;
        let room = self.path.join(ROOM);
        space::give(&room, settings.volume_bytes).map_err(|error| text(&error))?;
        let made = self.memory(settings, cluster, (copy, volume));
        if made.is_err() {
            let _ = self.remove_file(copy);
            let _ = space::take_back(&room, settings.volume_bytes);
        }
        made.map_err(|error| text(&error))
    }

    fn memory(
        &self,
        settings: &ClusterSettings,
        cluster: u64,
        (copy, volume): (u16, u16),
    ) -> Result<Host, MemoryError> {
        let file = FileOptions {
            path: self.copy(copy),
            host_bytes: settings.volume_bytes,
            on_chip_bytes: settings.on_chip_bytes,
            control_bytes: 0,
            atomicity: Atomicity::Line,
            preallocate: true,
        };
        let format = settings.volume_format(cluster, volume);
        Ok(Host::volume_in_file(&file, &format, cluster)?.0)
    }

    /// Opens the memory of every copy that the host had.
    pub(crate) fn open_copies(&self, kept: &Kept, settings: &ClusterSettings) -> Result<Memories, HostError> {
        let mut memories = BTreeMap::new();
        for &one in &kept.copies {
            let KeptCopy { copy, volume, role } = one;
            if !self.copy(copy).is_file() {
                return Err(self.failed(FolderProblem::NoCopy { copy }));
            }
            // Opening a file without a memory would make one.
            if peek(&self.copy(copy)).is_none() {
                return Err(self.failed(FolderProblem::DamagedCopy { copy }));
            }
            let failed = |error| self.failed(FolderProblem::Copy { copy, error });
            let host = self.memory(settings, kept.own.cluster, (copy, volume)).map_err(failed)?;
            if role == Some(sherman_fabric::Role::Primary) {
                host.lead();
            }
            memories.insert(copy, (one, Arc::new(host)));
        }
        let unknown = self.copies().map_err(HostError::System)?;
        for copy in unknown.keys().filter(|copy| !memories.contains_key(copy)) {
            // The process died before it noted that it has the copy, so nobody has used it.
            self.remove_file(*copy).map_err(HostError::System)?;
        }
        Ok(memories)
    }

    /// Notes a copy and its part.
    pub(crate) fn note(&self, one: KeptCopy) -> io::Result<()> {
        self.change(|kept| {
            kept.copies.retain(|other| other.copy != one.copy);
            kept.copies.push(one);
            kept.copies.sort_unstable_by_key(|one| one.copy);
        })
    }

    /// Forgets a copy: it will never be used again.
    pub(crate) fn forget(&self, copy: u16) -> io::Result<()> {
        self.change(|kept| kept.copies.retain(|other| other.copy != copy))?;
        let bytes = fs::metadata(self.copy(copy)).map_or(0, |found| found.len());
        self.remove_file(copy)?;
        // Without the room a later copy may be refused, and is tried again on another host.
        let _ = space::take_back(&self.path.join(ROOM), bytes);
        Ok(())
    }

    /// Removes the memory and the log of a host that was declared lost. Its cluster and the addresses of the
    /// others stay.
    pub(crate) fn clear(&self) -> io::Result<()> {
        self.change(|kept| (kept.lost, kept.copies) = (true, Vec::new()))?;
        for copy in self.copies()?.keys() {
            self.remove_file(*copy)?;
        }
        for name in LOGS {
            unless_missing(fs::remove_file(self.path.join(name)))?;
        }
        Ok(())
    }

    /// A file of the log of the control group that is missing. Opening the log would make it.
    pub(crate) fn missing_log(&self) -> Option<&'static str> {
        LOGS.into_iter().find(|name| !self.path.join(name).is_file())
    }

    /// Syncs everything, so that the folder survives a restart of the machine too. The host has ended.
    pub(crate) fn close(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.path)? {
            File::open(entry?.path())?.sync_all()?;
        }
        self.change(|kept| kept.machine.clear())?;
        File::open(self.path.join(HOST))?.sync_all()?;
        File::open(&self.path)?.sync_all()
    }

    fn copy(&self, copy: u16) -> PathBuf {
        self.path.join(format!("{COPY}{copy}"))
    }

    /// The files of copies, by number.
    fn copies(&self) -> io::Result<BTreeMap<u16, PathBuf>> {
        let mut copies = BTreeMap::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            if let Some(copy) = entry.file_name().to_str().and_then(copy_number) {
                copies.insert(copy, entry.path());
            }
        }
        Ok(copies)
    }

    fn remove_file(&self, copy: u16) -> io::Result<()> {
        unless_missing(fs::remove_file(self.copy(copy)))
    }
}

/// Says which start of the machine this is.
pub(crate) fn machine() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().to_owned()
}

fn unless_missing(result: io::Result<()>) -> io::Result<()> {
    result.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

fn copy_number(name: &str) -> Option<u16> {
    name.strip_prefix(COPY)?.parse().ok()
}

/// Refuses a folder with files that a host does not make.
fn check_names(path: &Path) -> Result<(), FolderProblem> {
    let failed = FolderProblem::io("read the folder");
    let known = [LOCK, HOST, NEXT_HOST, ROOM];
    for entry in fs::read_dir(path).map_err(&failed)? {
        let name = entry.map_err(&failed)?.file_name();
        let name = name.to_str().unwrap_or_default();
        if !known.contains(&name) && !LOGS.contains(&name) && copy_number(name).is_none() {
            return Err(FolderProblem::NotAHost);
        }
    }
    // A host has its file before it has anything else of value.
    let made = path.join(HOST).exists();
    if !made && fs::metadata(path.join("group.len")).is_ok_and(|found| found.len() > 0) {
        return Err(FolderProblem::Damaged { what: "it is missing" });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
