//! Disk space for copies that are not made yet: a file that only takes room.

use super::FolderProblem;
use rustix::fs::{FallocateFlags, fallocate, fstatvfs};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Makes the file exactly so long, and takes its disk space.
pub(super) fn take(path: &Path, bytes: u64) -> Result<(), FolderProblem> {
    // Beyond this limit the kernel sends SIGXFSZ, which kills the process.
    let limit = getrlimit(Resource::Fsize).current;
    if let Some(allowed) = limit.filter(|allowed| *allowed < bytes) {
        return Err(FolderProblem::OverLimit { needed: bytes, allowed });
    }
    let file = open(path).map_err(FolderProblem::io("open the file \"room\""))?;
    let found = file.metadata().map_err(FolderProblem::io("read the file \"room\""))?;
    let needed = bytes.saturating_sub(found.blocks().saturating_mul(512));
    let free = free(&file);
    let taken = match free {
        Some(free) if needed > free => Err(Errno::NOSPC.into()),
        _ => resize(&file, bytes),
    };
    taken.map_err(|error: io::Error| {
        // What was there before stays; a file that was made just now does not.
        if found.len() == 0 {
            let _ = file.set_len(0);
        }
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOSPC | Errno::DQUOT) => FolderProblem::NoSpace { needed, free: free.unwrap_or(0) },
            _ => FolderProblem::io("take disk space")(error),
        }
    })
}

/// Gives this much of the room to a copy, which takes it at once.
pub(super) fn give(path: &Path, bytes: u64) -> io::Result<()> {
    let file = open(path)?;
    let length = file.metadata()?.len();
    file.set_len(length.saturating_sub(bytes))
}

/// Takes back the room of a copy that is gone.
pub(super) fn take_back(path: &Path, bytes: u64) -> io::Result<()> {
    let file = open(path)?;
    let length = file.metadata()?.len();
    resize(&file, length.saturating_add(bytes))
}

fn resize(file: &File, bytes: u64) -> io::Result<()> {
    file.set_len(bytes)?;
    if bytes == 0 {
        return Ok(());
    }
    match fallocate(file, FallocateFlags::empty(), 0, bytes) {
        // Some file systems cannot: then a copy may be refused later.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        taken => taken.map_err(io::Error::from),
    }
}

/// Bytes free on the file's disk; `None` if its file system does not say.
fn free(file: &File) -> Option<u64> {
    let disk = fstatvfs(file).ok().filter(|disk| disk.f_blocks > 0)?;
    let blocks = if rustix::process::geteuid().is_root() { disk.f_bfree } else { disk.f_bavail };
    Some(blocks.saturating_mul(disk.f_frsize))
}
