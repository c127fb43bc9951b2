//! A file as memory: mapped, shared with the file, read and written through atomics alone.
//!
//! What must hold: nobody shortens the file while it is mapped, and whoever else maps it accesses it by atomics too. So a
//! file is locked as long as it is mapped ([`LockedFile`]), against all who respect such locks; or it is [sealed](make_sealed),
//! which holds against everybody, and then several processes may map it.
//!
//! What may go wrong: a page that cannot be had when it is touched first (the disk is full, the file was shortened, the
//! device fails) ends the process by `SIGBUS`. There is no answer to a load or a store that could say it instead;
//! space that is allocated beforehand (`fallocate`) rules out the first of these. What was stored is in the file for whoever opens it
//! next, however this process ends; when it reaches the disk is the system's affair, so a power loss or a crash of the
//! system loses any part of it, in any order.
//!
//! Linux only, and not under Miri: elsewhere a mapping is refused with [`io::ErrorKind::Unsupported`].

use std::fs::{File, TryLockError};
use std::io;
use std::ops::Deref;
use std::ptr::NonNull;

/// A file that nobody else has: locked exclusively (`flock`, advisory) until this is dropped or the process ends.
#[derive(Debug)]
pub struct LockedFile(File);

impl LockedFile {
    /// Locks `file`, at once or not at all.
    pub fn new(file: File) -> Result<Self, TryLockError> {
        file.try_lock()?;
        Ok(Self(file))
    }
}

impl Deref for LockedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // Closing is not enough: if another thread is just starting a process, that one has the open file too, until it
        // executes its program, and the lock would live on in it for as long.
        let _ = self.0.unlock();
    }
}

/// A mapped file. Its bytes are reached through [`Zeroed::in_mapping`](crate::zeroed::Zeroed::in_mapping).
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
    /// Unlocked after the bytes are unmapped. `None` if the file is sealed.
    _file: Option<LockedFile>,
}

impl Mapping {
    /// Maps the first `len` bytes of `file`, which is open for reading and writing, for reading and writing.
    pub fn new(file: LockedFile, len: usize) -> io::Result<Self> {
        if usize::try_from(file.metadata()?.len()).is_ok_and(|bytes| bytes < len) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the file is shorter than what is to be mapped"));
        }
        Ok(Self { start: map(&file, len)?, len, _file: Some(file) })
    }

    /// Maps the first `len` bytes of `file`, which is [sealed](make_sealed), for reading and writing, in huge pages where the system
    /// has them for such files.
    pub fn sealed(file: &File, len: usize) -> io::Result<Self> {
        if !is_sealed(file)? {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the file could be shortened while it is mapped"));
        }
        if usize::try_from(file.metadata()?.len()).is_ok_and(|bytes| bytes < len) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the file is shorter than what is to be mapped"));
        }
        Ok(Self { start: map_aligned(file, len)?, len, _file: None })
    }

    /// Has the huge pages around `len` bytes at `offset` made now, where there can be any: what was scattered over small
    /// pages is moved into one. For files in memory the system makes none by itself unless it is told to for all of them. It is
    /// advice: if it is not taken nothing changes but the speed.
    pub fn gather(&self, offset: usize, len: usize) {
        let Some(end) = offset.checked_add(len).filter(|end| *end <= self.len) else { return };
        gather(self.start, self.len, offset..end);
    }

    /// How many bytes it has.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Its first byte, at the start of a page.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        unmap(self.start, self.len);
    }
}

// SAFETY: the mapped bytes belong to no thread, and nothing but their address and length is kept.
unsafe impl Send for Mapping {}
// SAFETY: as above; a shared `Mapping` lets nobody change it.
unsafe impl Sync for Mapping {}

#[cfg(all(target_os = "linux", not(miri)))]
fn map(file: &File, len: usize) -> io::Result<NonNull<u8>> {
    use rustix::mm::{MapFlags, ProtFlags, mmap};
    // SAFETY: a new mapping, at an address that the kernel chooses, changes no memory of this process.
    let start =
        unsafe { mmap(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, file, 0) }?;
    NonNull::new(start.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// A mapping that begins at a multiple of [`HUGE`], so that huge pages of the file can be mapped as such.
#[cfg(all(target_os = "linux", not(miri)))]
fn map_aligned(file: &File, len: usize) -> io::Result<NonNull<u8>> {
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
    let room = len.checked_next_multiple_of(PAGE).and_then(|bytes| bytes.checked_add(HUGE)).filter(|_| len > 0);
    let room = room.ok_or(io::ErrorKind::InvalidInput)?;
    // SAFETY: a new mapping, at an address that the kernel chooses, changes no memory of this process.
    let base = unsafe { mmap_anonymous(std::ptr::null_mut(), room, ProtFlags::empty(), MapFlags::PRIVATE) }?;
    let skip = base.cast::<u8>().align_offset(HUGE);
    let used = len.next_multiple_of(PAGE);
    // SAFETY: `skip` is less than HUGE, and the mapping has HUGE bytes more than what is used.
    let start = unsafe { base.cast::<u8>().add(skip) };
    let (flags, all) = (MapFlags::SHARED | MapFlags::FIXED, ProtFlags::READ | ProtFlags::WRITE);
    // SAFETY: it replaces a part of the mapping just made, which nobody else knows of.
    if let Err(error) = unsafe { mmap(start.cast(), len, all, flags, file, 0) } {
        // SAFETY: the mapping just made, whole.
        let _ = unsafe { munmap(base, room) };
        return Err(error.into());
    }
    // SAFETY: what lies before and behind the part that is used; both are whole pages of the mapping just made.
    unsafe {
        if skip > 0 {
            let _ = munmap(base, skip);
        }
        let _ = munmap(start.add(used).cast(), room - skip - used);
        // Advice about pages that are ours: it changes what backs them, if anything.
        let _ = madvise(start.cast(), len, Advice::LinuxHugepage);
    }
    NonNull::new(start).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// Bytes of a huge page, and of a page.
#[cfg(all(target_os = "linux", not(miri)))]
const HUGE: usize = 2 << 20;
#[cfg(all(target_os = "linux", not(miri)))]
const PAGE: usize = 4096;

/// As [`Mapping::gather`], of a mapping of `len` bytes at `start`.
#[cfg(all(target_os = "linux", not(miri)))]
fn gather(start: NonNull<u8>, len: usize, range: std::ops::Range<usize>) {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    if !start.addr().get().is_multiple_of(HUGE) || range.is_empty() {
        return;
    }
    for page in (range.start / HUGE..range.end.div_ceil(HUGE)).map(|page| page * HUGE) {
        if page + HUGE > len {
            return;
        }
        // SAFETY: the first word of a page of the mapping, which is shared and accessed through atomics alone.
        let word = unsafe { AtomicU64::from_ptr(start.as_ptr().add(page).cast()) };
        // A huge page that has nothing in it is not made.
        word.load(Relaxed);
        // SAFETY: whole pages of the mapping; what is in them stays, only what backs them changes.
        let _ = unsafe { libc::madvise(start.as_ptr().add(page).cast(), HUGE, MADV_COLLAPSE) };
    }
}

/// Linux 6.1 and later; others refuse it.
#[cfg(all(target_os = "linux", not(miri)))]
const MADV_COLLAPSE: libc::c_int = 25;

#[cfg(all(target_os = "linux", not(miri)))]
fn is_sealed(file: &File) -> io::Result<bool> {
    Ok(rustix::fs::fcntl_get_seals(file)?.contains(rustix::fs::SealFlags::SHRINK))
}

/// A new file of `len` bytes, all zero, in memory alone and in no folder: it goes with the last process that has it. Nobody can
/// change its length. Pages that were never touched cost nothing.
#[cfg(all(target_os = "linux", not(miri)))]
pub fn make_sealed(name: &str, len: u64) -> io::Result<File> {
    use rustix::fs::{MemfdFlags, Mode, SealFlags, fchmod, fcntl_add_seals, ftruncate, memfd_create};
    let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    fchmod(&file, Mode::RUSR | Mode::WUSR)?;
    ftruncate(&file, len)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file.into())
}

#[cfg(all(target_os = "linux", not(miri)))]
fn unmap(start: NonNull<u8>, len: usize) {
    // SAFETY: these are the bounds of a mapping made by `map` and unmapped once, by its owner's drop; every array in it kept
    // the owner alive, so nobody has a reference into it any more. It can fail only for other bounds.
    let _ = unsafe { rustix::mm::munmap(start.as_ptr().cast(), len) };
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn map(_: &File, _: usize) -> io::Result<NonNull<u8>> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "memory in a file needs Linux"))
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn map_aligned(file: &File, len: usize) -> io::Result<NonNull<u8>> {
    map(file, len)
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn gather(_: NonNull<u8>, _: usize, _: std::ops::Range<usize>) {}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn is_sealed(_: &File) -> io::Result<bool> {
    Ok(false)
}

/// As on Linux, where it is refused.
#[cfg(not(all(target_os = "linux", not(miri))))]
pub fn make_sealed(_: &str, _: u64) -> io::Result<File> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "memory in a sealed file needs Linux"))
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn unmap(_: NonNull<u8>, _: usize) {}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;
    use crate::zeroed::{ALIGN, Zeroed};
    use std::fs::OpenOptions;
    use std::sync::Arc;
    use std::sync::atomic::Ordering::Relaxed;
    use std::sync::atomic::{AtomicU32, AtomicU64};

    #[test]
    fn what_is_stored_is_in_the_file_and_bounds_are_kept() {
        let path = std::env::temp_dir().join(format!("sherman-mapped-{}", std::process::id()));
        let open = || {
            let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
            LockedFile::new(file.unwrap())
        };
        let file = open().unwrap();
        file.set_len(8192).unwrap();
        assert!(matches!(open(), Err(TryLockError::WouldBlock)));
        drop(file);
        assert!(Mapping::new(open().unwrap(), 8193).is_err());
        assert!(Mapping::new(open().unwrap(), 0).is_err());
        let file = open().unwrap();
        let mapping = Arc::new(Mapping::new(file, 8192).unwrap());
        assert!(Zeroed::<AtomicU64>::in_mapping(&mapping, 4096, 513).is_none());
        assert!(Zeroed::<AtomicU64>::in_mapping(&mapping, 4096 + ALIGN / 2, 1).is_none());
        assert!(Zeroed::<AtomicU64>::in_mapping(&mapping, 0, usize::MAX / 4).is_none());
        assert_eq!(Zeroed::<AtomicU64>::in_mapping(&mapping, 8192, 0).unwrap().len(), 0);
        let words = Zeroed::<AtomicU64>::in_mapping(&mapping, 4096, 512).unwrap();
        drop(mapping);
        assert!(matches!(open(), Err(TryLockError::WouldBlock)), "an array keeps the mapping");
        assert!(words.iter().all(|word| word.load(Relaxed) == 0));
        words[511].store(7u64.to_le(), Relaxed);
        drop(words);
        assert!(open().is_ok());
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(bytes[8184..], 7u64.to_le_bytes());
        assert!(bytes[..8184].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn what_is_gathered_is_what_it_was() {
        let file = make_sealed("sherman-test", 5 * HUGE as u64 + 4096).unwrap();
        let mapping = Arc::new(Mapping::sealed(&file, 5 * HUGE + 4096).unwrap());
        let words = Zeroed::<AtomicU64>::in_mapping(&mapping, 0, 5 * HUGE / 8 + 512).unwrap();
        words.iter().zip(1..).step_by(1000).for_each(|(word, i)| word.store(i, Relaxed));
        for (offset, len) in [(HUGE - 64, 128), (0, 0), (4 * HUGE, HUGE + 4096), (HUGE, 6 * HUGE), (usize::MAX, 2)] {
            mapping.gather(offset, len);
        }
        assert!(words.iter().zip(1..).step_by(1000).all(|(word, i)| word.load(Relaxed) == i));
    }

    #[test]
    fn a_sealed_file_is_shared_and_keeps_its_length() {
        let file = make_sealed("sherman-test", 8192).unwrap();
        assert!(file.set_len(4096).is_err() && file.set_len(16384).is_err());
        assert!(Mapping::sealed(&file, 8193).is_err());
        assert!(Mapping::sealed(&file, 0).is_err());
        let map = || Arc::new(Mapping::sealed(&file, 8192).unwrap());
        let (one, other) = (Zeroed::<AtomicU64>::in_mapping(&map(), 4096, 512).unwrap(), map());
        assert_eq!(one.as_ptr().addr() % HUGE, 4096);
        let half = Zeroed::<AtomicU32>::in_mapping(&other, 4096, 1024).unwrap();
        assert!(Zeroed::<AtomicU32>::in_mapping(&other, 4096, 1025).is_none());
        one[511].store(7 | 9 << 32, Relaxed);
        let halves = [half[1022].load(Relaxed), half[1023].load(Relaxed)];
        assert_eq!(halves.map(u64::from).iter().sum::<u64>(), 16);
        let plain = std::env::temp_dir().join(format!("sherman-unsealed-{}", std::process::id()));
        let unsealed = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&plain).unwrap();
        unsealed.set_len(8192).unwrap();
        assert!(Mapping::sealed(&unsealed, 8192).is_err());
        std::fs::remove_file(&plain).unwrap();
    }
}
