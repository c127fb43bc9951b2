//! A mapped file as memory. It is shared with the file, and all accesses are atomics.
//!
//! What must hold: no process shortens the file while it is mapped, and every other process that maps it
//! accesses it by atomics too. So the file is locked as long as it is mapped ([`LockedFile`]), which excludes
//! all processes that respect such locks. Or the file is [sealed](make_sealed), which holds against every
//! process. Then several processes may map it.
//!
//! What may go wrong: the system may have no page at the first touch, because the disk is full, the file was
//! shortened, or the device fails. Then `SIGBUS` ends the process, because a load or a store cannot return an
//! error. Space that is allocated beforehand (`fallocate`) rules out a full disk. However this process ends,
//! the next process that opens the file sees all stores. But the system decides when they reach the disk. So
//! a power loss or a crash of the system loses any part of them, in any order.
//!
//! Linux only, and not under Miri: elsewhere a mapping is refused with [`io::ErrorKind::Unsupported`].

use std::fs::{File, TryLockError};
use std::io;
use std::ops::Deref;
use std::ptr::NonNull;

/// A file that no other process has. It is locked exclusively (`flock`, advisory) until this is dropped or
/// the process ends.
#[derive(Debug)]
pub struct LockedFile(File);

impl LockedFile {
    /// Locks `file` without waiting, or fails.
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
        // Closing is not enough. If another thread is just starting a process, that process also has the open
        // file until it executes its program. The lock would last that long.
        let _ = self.0.unlock();
    }
}

/// A mapped file. [`Zeroed::in_mapping`](crate::zeroed::Zeroed::in_mapping) gives access to its bytes.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
    /// Unlocked after the bytes are unmapped. `None` if the file is sealed.
    _file: Option<LockedFile>,
}

impl Mapping {
    /// Maps the first `len` bytes of `file` for reading and writing. `file` must be open for both.
    pub fn new(file: LockedFile, len: usize) -> io::Result<Self> {
        if usize::try_from(file.metadata()?.len()).is_ok_and(|bytes| bytes < len) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the file is shorter than the range to map",
            ));
        }
        Ok(Self { start: map(&file, len)?, len, _file: Some(file) })
    }

    /// Maps the first `len` bytes of a [sealed](make_sealed) `file` for reading and writing. Uses huge pages
    /// if the system has them for such files.
    pub fn sealed(file: &File, len: usize) -> io::Result<Self> {
        if !is_sealed(file)? {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the file is not sealed: a process could shorten it while it is mapped",
            ));
        }
        if usize::try_from(file.metadata()?.len()).is_ok_and(|bytes| bytes < len) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the file is shorter than the range to map",
            ));
        }
        Ok(Self { start: map_aligned(file, len)?, len, _file: None })
    }

    /// Makes the huge pages around `len` bytes at `offset` now, where possible. Moves data from scattered
    /// small pages into one huge page. For files in memory the system makes none by itself, unless it is
    /// configured to do so for all of them. This is advice: if the system ignores it, only the speed differs.
    pub fn gather(&self, offset: usize, len: usize) {
        let Some(end) = offset.checked_add(len).filter(|end| *end <= self.len) else { return };
        gather(self.start, self.len, offset..end);
    }

    /// The size in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The first byte, at the start of a page.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        unmap(self.start, self.len);
    }
}

// SAFETY: the mapped bytes belong to no thread, and the mapping keeps only their address and length.
unsafe impl Send for Mapping {}
// SAFETY: as above. A shared `Mapping` allows no change of itself.
unsafe impl Sync for Mapping {}

#[cfg(all(target_os = "linux", not(miri)))]
fn map(file: &File, len: usize) -> io::Result<NonNull<u8>> {
    use rustix::mm::{MapFlags, ProtFlags, mmap};
    // SAFETY: a new mapping, at an address that the kernel chooses, changes no memory of this process.
    let start = unsafe {
        mmap(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, file, 0)
    }?;
    NonNull::new(start.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// Maps the file at a multiple of [`HUGE`], so that huge pages of the file can be mapped as such.
#[cfg(all(target_os = "linux", not(miri)))]
fn map_aligned(file: &File, len: usize) -> io::Result<NonNull<u8>> {
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
    let room =
        len.checked_next_multiple_of(PAGE).and_then(|bytes| bytes.checked_add(HUGE)).filter(|_| len > 0);
    let room = room.ok_or(io::ErrorKind::InvalidInput)?;
    // SAFETY: a new mapping, at an address that the kernel chooses, changes no memory of this process.
    let base = unsafe { mmap_anonymous(std::ptr::null_mut(), room, ProtFlags::empty(), MapFlags::PRIVATE) }?;
    let skip = base.cast::<u8>().align_offset(HUGE);
    let used = len.next_multiple_of(PAGE);
    // SAFETY: `skip` is less than HUGE, and the mapping has HUGE bytes more than what is used.
    let start = unsafe { base.cast::<u8>().add(skip) };
    let (flags, all) = (MapFlags::SHARED | MapFlags::FIXED, ProtFlags::READ | ProtFlags::WRITE);
    // SAFETY: it replaces a part of the mapping just made, which no other code knows.
    if let Err(error) = unsafe { mmap(start.cast(), len, all, flags, file, 0) } {
        // SAFETY: these are the bounds of the whole mapping just made.
        let _ = unsafe { munmap(base, room) };
        return Err(error.into());
    }
    // SAFETY: these are the parts before and behind the used part. Both are whole pages of the mapping just
    // made.
    unsafe {
        if skip > 0 {
            let _ = munmap(base, skip);
        }
        let _ = munmap(start.add(used).cast(), room - skip - used);
        // Advice about pages of this mapping. It changes at most what backs them.
        let _ = madvise(start.cast(), len, Advice::LinuxHugepage);
    }
    NonNull::new(start).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// Bytes of a huge page, and of a page.
#[cfg(all(target_os = "linux", not(miri)))]
const HUGE: usize = 2 << 20;
#[cfg(all(target_os = "linux", not(miri)))]
const PAGE: usize = 4096;

/// As [`Mapping::gather`], for a mapping of `len` bytes at `start`.
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
        // SAFETY: this is the first word of a page of the mapping, which is shared and accessed through
        // atomics alone.
        let word = unsafe { AtomicU64::from_ptr(start.as_ptr().add(page).cast()) };
        // The load touches the page, because the kernel does not make a huge page from empty pages.
        word.load(Relaxed);
        // SAFETY: these are whole pages of the mapping. Their contents stay, and only what backs them
        // changes.
        let _ = unsafe { libc::madvise(start.as_ptr().add(page).cast(), HUGE, MADV_COLLAPSE) };
    }
}

/// Linux 6.1 and later. Older kernels refuse it.
#[cfg(all(target_os = "linux", not(miri)))]
const MADV_COLLAPSE: libc::c_int = 25;

#[cfg(all(target_os = "linux", not(miri)))]
fn is_sealed(file: &File) -> io::Result<bool> {
    Ok(rustix::fs::fcntl_get_seals(file)?.contains(rustix::fs::SealFlags::SHRINK))
}

/// Makes a new file of `len` bytes, all zero. It is in memory only and in no directory. It disappears with
/// the last process that has it. No process can change its length. Pages that were never touched cost
/// nothing.
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
    // SAFETY: these are the bounds of a mapping made by `map`, which its owner's drop unmaps once. Every
    // array in it kept the owner alive, so no reference into it exists any more. The call can fail only for
    // other bounds.
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

/// Always refused: sealed files need Linux.
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
        for (offset, len) in
            [(HUGE - 64, 128), (0, 0), (4 * HUGE, HUGE + 4096), (HUGE, 6 * HUGE), (usize::MAX, 2)]
        {
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
        let unsealed =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&plain).unwrap();
        unsealed.set_len(8192).unwrap();
        assert!(Mapping::sealed(&unsealed, 8192).is_err());
        std::fs::remove_file(&plain).unwrap();
    }
}
