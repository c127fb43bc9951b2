//! Disk space for a memory's file, taken before the memory is used.
//!
//! A store to a mapped page that the disk has no room for kills the process by `SIGBUS`. So the server
//! allocates all space first, while it can still report an error.

use super::FileProblem;
use std::fs::File;

/// Refuses a file that will not fit, before anything is changed. The free space may change a moment later, so
/// [`take`] decides.
#[cfg(target_os = "linux")]
pub(super) fn check(file: &File, bytes: u64) -> Result<(), FileProblem> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    // Beyond this limit the kernel sends SIGXFSZ, which kills the process.
    if let Some(allowed) = limit.filter(|allowed| *allowed < bytes) {
        return Err(FileProblem::OverLimit { needed: bytes, allowed });
    }
    let needed = bytes.saturating_sub(allocated(file)?);
    match free(file) {
        Some(free) if needed > free => Err(FileProblem::NoSpace { needed, free }),
        _ => Ok(()),
    }
}

/// Allocates the first `bytes` bytes of `file`. Their contents do not change.
#[cfg(target_os = "linux")]
pub(super) fn take(file: &File, bytes: u64) -> Result<(), FileProblem> {
    use rustix::fs::{FallocateFlags, fallocate};
    use rustix::io::Errno;
    let missing = bytes.saturating_sub(allocated(file)?);
    if missing == 0 {
        return Ok(());
    }
    let mut tries = 0;
    let taken = loop {
        tries += 1;
        match fallocate(file, FallocateFlags::empty(), 0, bytes) {
            Err(Errno::INTR) if tries < 100 => {}
            // On NFS before 4.2 and some FUSE file systems, only a write allocates.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => break fill(file, bytes),
            taken => break taken.map_err(std::io::Error::from),
        }
    };
    taken.map_err(|error| match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOSPC | Errno::DQUOT) => {
            let needed = bytes.saturating_sub(allocated(file).unwrap_or(0));
            FileProblem::NoSpace { needed, free: free(file).unwrap_or(0) }
        }
        _ => FileProblem::Io { what: "allocate disk space for", error },
    })
}

/// Bytes of disk space that the file has.
#[cfg(target_os = "linux")]
fn allocated(file: &File) -> Result<u64, FileProblem> {
    use std::os::unix::fs::MetadataExt;
    let found = file.metadata().map_err(FileProblem::io("read the metadata of"))?;
    Ok(found.blocks().saturating_mul(512))
}

/// Bytes free on the file's disk; `None` if its file system does not say.
#[cfg(target_os = "linux")]
fn free(file: &File) -> Option<u64> {
    let disk = rustix::fs::fstatvfs(file).ok().filter(|disk| disk.f_blocks > 0)?;
    let blocks = if rustix::process::geteuid().is_root() { disk.f_bfree } else { disk.f_bavail };
    Some(blocks.saturating_mul(disk.f_frsize))
}

/// Writes zeros over every page of zeros, so that the file system allocates it.
#[cfg(target_os = "linux")]
fn fill(file: &File, bytes: u64) -> std::io::Result<()> {
    use super::header::PAGE;
    use std::os::unix::fs::FileExt;
    let mut buffer = vec![0; 256 * PAGE];
    let mut at = 0;
    while at < bytes {
        let len = usize::try_from(bytes - at).map_or(buffer.len(), |left| left.min(buffer.len()));
        let part = &mut buffer[..len];
        file.read_exact_at(part, at)?;
        for (page, offset) in part.chunks(PAGE).zip((at..).step_by(PAGE)) {
            if page.iter().all(|byte| *byte == 0) {
                file.write_all_at(page, offset)?;
            }
        }
        at += len as u64;
    }
    file.sync_all()
}

/// On other systems a file cannot be mapped, so its space is never asked for.
#[cfg(not(target_os = "linux"))]
pub(super) fn check(_: &File, _: u64) -> Result<(), FileProblem> {
    Ok(())
}

#[cfg(not(target_os = "linux"))]
pub(super) fn take(_: &File, _: u64) -> Result<(), FileProblem> {
    Err(FileProblem::Io { what: "allocate disk space for", error: std::io::ErrorKind::Unsupported.into() })
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;
    use crate::file::tests::Scratch;
    use std::os::unix::fs::FileExt;

    #[test]
    fn filling_allocates_every_page_and_changes_no_byte() {
        let scratch = Scratch::new();
        let file =
            std::fs::OpenOptions::new().read(true).write(true).create_new(true).open(scratch.path()).unwrap();
        let bytes = (3 << 20) + 100;
        file.set_len(bytes).unwrap();
        file.write_all_at(b"kept", (2 << 20) + 5).unwrap();
        assert!(allocated(&file).unwrap() < 1 << 20);
        fill(&file, bytes).unwrap();
        assert!(allocated(&file).unwrap() >= bytes);
        let read = std::fs::read(scratch.path()).unwrap();
        assert_eq!(read.len() as u64, bytes);
        assert_eq!(read.iter().filter(|byte| **byte != 0).count(), 4);
        assert_eq!(&read[(2 << 20) + 5..][..4], b"kept");
    }
}
