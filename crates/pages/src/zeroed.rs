//! Large arrays of atomics, zeroed by the operating system and aligned to cache lines.
//!
//! A memory server of many gigabytes must cost nothing until it is used. So its pages must come zeroed from
//! the kernel and stay untouched. The standard allocator does that (`calloc`) only for layouts of small
//! alignment. For larger alignments it allocates and then writes zeroes over every page. So this code asks
//! for the element's own alignment and for more bytes than needed, and aligns the array itself.
//!
//! Clients read an array of many megabytes at random. With pages of 4 KiB, nearly every access then also
//! waits for a walk of the page table. So a large array is aligned to **huge pages** of 2 MiB, and the kernel
//! is asked for them. That is advice: if the kernel ignores it (other systems, fragmented memory), only the
//! speed differs. A first touch then costs 2 MiB of memory and the time to zero it. Untouched memory still
//! costs nothing.
//!
//! An array of words may also lie in a mapped file ([`mapped`](crate::mapped)). Then it has the file's
//! contents, and is zero only if the file is new. Users of the array pay nothing for the choice: only making
//! and dropping it differ.

use crate::mapped::Mapping;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Alignment of the first element. So a line of data, or the sequence words of 16 lines, never straddles
/// cache lines.
pub const ALIGN: usize = 64;

/// Bytes of a huge page, where there are any.
const HUGE: usize = 2 << 20;
/// The smallest array for which huge pages pay. The TLB soon covers a smaller array anyway, and its few pages
/// need not be zeroed by the megabyte.
const LARGE: usize = 16 << 20;

/// Types for which all-zero bytes are a valid value and which need no drop.
///
/// # Safety
/// Both must be true of the implementing type, and its alignment must be at most [`ALIGN`].
pub unsafe trait Zeroable {}
// SAFETY: an atomic integer has the layout of its integer, for which zero is valid, and no drop.
unsafe impl Zeroable for AtomicU32 {}
// SAFETY: as above.
unsafe impl Zeroable for AtomicU64 {}

/// A fixed array of `T`. It is initially zero, unless it lies in a file.
pub struct Zeroed<T: Zeroable> {
    /// The first element, in memory that `backing` owns.
    first: NonNull<T>,
    len: usize,
    backing: Backing,
}

/// The place of the elements.
enum Backing {
    /// A block from the allocator, with this layout.
    Heap { block: NonNull<u8>, layout: Layout },
    /// A mapped file, which lives as long as any array in it.
    File { _mapping: Arc<Mapping> },
}

impl<T: Zeroable> Zeroed<T> {
    /// An array of `len` elements, or `None` if the system does not have that much memory.
    pub fn new(len: usize) -> Option<Self> {
        let bytes = len.checked_mul(size_of::<T>())?;
        let align = if bytes < LARGE { ALIGN } else { HUGE };
        let layout = Layout::from_size_align(bytes.checked_add(align)?, align_of::<T>()).ok()?;
        // SAFETY: the layout has at least `align` bytes, so it is not empty.
        let block = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        let skip = block.align_offset(align);
        // SAFETY: `align_offset` of a byte pointer is less than `align`, and the block has `align` bytes more
        // than the elements need, so the result and all `len` elements after it lie inside the block.
        let first = unsafe { block.add(skip) };
        if align == HUGE {
            // SAFETY: `bytes` bytes from `first` on, which is a multiple of HUGE, lie inside the block.
            unsafe { ask_for_huge_pages(first, bytes / HUGE * HUGE) };
        }
        Some(Self { first: first.cast(), len, backing: Backing::Heap { block, layout } })
    }
}

/// Types for which any bytes are a value.
///
/// # Safety
/// That must be true of the implementing type.
pub unsafe trait Plain: Zeroable {}
// SAFETY: an atomic integer has the layout of its integer, for which any bytes are a value.
unsafe impl Plain for AtomicU32 {}
// SAFETY: as above.
unsafe impl Plain for AtomicU64 {}

impl<T: Plain> Zeroed<T> {
    /// The `len` elements in `mapping` that begin at byte `offset`. `None` if they are not inside it or do
    /// not begin at a multiple of [`ALIGN`]. Arrays may share bytes, because they are atomics.
    pub fn in_mapping(mapping: &Arc<Mapping>, offset: usize, len: usize) -> Option<Self> {
        let end = len.checked_mul(size_of::<T>())?.checked_add(offset)?;
        if end > mapping.len() || !offset.is_multiple_of(ALIGN) {
            return None;
        }
        // SAFETY: `offset` is at most the mapping's length, so the result is inside it or one past its end.
        // The mapping begins at a page, so the result is aligned to ALIGN, and `len` elements from there on
        // are inside the mapping.
        let first = unsafe { mapping.start().add(offset) };
        Some(Self { first: first.cast(), len, backing: Backing::File { _mapping: Arc::clone(mapping) } })
    }
}

/// Asks for huge pages behind `len` bytes at `first`. The kernel decides whether to give them.
///
/// # Safety
/// The bytes belong to the caller and begin at a multiple of the page size.
#[cfg(all(target_os = "linux", not(miri)))]
unsafe fn ask_for_huge_pages(first: NonNull<u8>, len: usize) {
    use rustix::mm::{Advice, madvise};
    // SAFETY: this advice changes neither contents nor protection of the pages, only what backs them. It may
    // outlast the array if the allocator keeps the memory. Then it only makes the next user of that memory
    // faster or slower.
    let _ = unsafe { madvise(first.as_ptr().cast(), len, Advice::LinuxHugepage) };
}

/// As above, on systems without such advice.
///
/// # Safety
/// None is needed.
#[cfg(not(all(target_os = "linux", not(miri))))]
unsafe fn ask_for_huge_pages(_: NonNull<u8>, _: usize) {}

impl<T: Zeroable> Deref for Zeroed<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `first` is aligned and `len` elements lie inside the block or mapping, which lives as long
        // as `self`. On the heap they were zeroed, which is a valid value (`Zeroable`). In a file any bytes
        // are a valid value (`Plain`). No code makes `&mut` references to them.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

impl<T: Zeroable> Drop for Zeroed<T> {
    fn drop(&mut self) {
        if let Backing::Heap { block, layout } = self.backing {
            // SAFETY: `block` came from this allocator under this layout and is freed once.
            unsafe { dealloc(block.as_ptr(), layout) }
        }
    }
}

// SAFETY: the array is owned memory, or shares a mapping that is `Send` and `Sync` itself. Sending it sends
// its elements.
unsafe impl<T: Zeroable + Send> Send for Zeroed<T> {}
// SAFETY: sharing it gives out only `&[T]`.
unsafe impl<T: Zeroable + Sync> Sync for Zeroed<T> {}

impl<T: Zeroable> fmt::Debug for Zeroed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Zeroed({} x {})", self.len, size_of::<T>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn an_array_is_aligned_and_zero() {
        for len in [0, 1, 7, 8, 1000] {
            let words = Zeroed::<AtomicU64>::new(len).unwrap();
            assert_eq!(words.as_ptr() as usize % ALIGN, 0);
            assert_eq!(words.len(), len);
            assert!(words.iter().all(|w| w.load(Relaxed) == 0));
            if let Some(last) = words.last() {
                last.store(u64::MAX, Relaxed);
            }
        }
    }

    #[test]
    fn a_large_array_begins_at_a_huge_page_and_is_zero_to_its_end() {
        for bytes in [LARGE - 8, LARGE, LARGE + 8, LARGE + HUGE - 8, 2 * LARGE] {
            let words = Zeroed::<AtomicU64>::new(bytes / 8).unwrap();
            let align = if bytes < LARGE { ALIGN } else { HUGE };
            assert_eq!(words.as_ptr() as usize % align, 0, "{bytes}");
            let step = if cfg!(miri) { 1 << 16 } else { 64 };
            assert!(words.iter().step_by(step).chain(words.last()).all(|word| word.load(Relaxed) == 0));
            words.iter().step_by(step).chain(words.last()).for_each(|word| word.store(u64::MAX, Relaxed));
        }
    }

    /// An untouched page is not resident: the resident memory of this process shows it.
    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn what_is_not_touched_costs_nothing() {
        let resident = || {
            let status = std::fs::read_to_string("/proc/self/statm").unwrap();
            let pages: usize = status.split(' ').nth(1).unwrap().parse().unwrap();
            pages * 4096
        };
        let before = resident();
        let words = Zeroed::<AtomicU64>::new((1 << 30) / 8).unwrap();
        for at in [0, words.len() / 2, words.len() - 1] {
            words[at].store(1, Relaxed);
        }
        let grown = resident().saturating_sub(before);
        // Three pages, huge or not, and the memory of tests that run meanwhile.
        assert!(grown < 256 << 20, "{grown}");
    }

    #[test]
    fn an_absurd_size_is_an_answer_not_a_crash() {
        assert!(Zeroed::<AtomicU64>::new(usize::MAX / 8).is_none());
        assert!(Zeroed::<AtomicU64>::new(usize::MAX).is_none());
    }
}
