//! Large arrays of atomics, zeroed by the operating system and aligned to cache lines.
//!
//! A memory server of many gigabytes must cost nothing until it is used, so its pages must come zeroed from the kernel
//! and stay untouched. The standard allocator does that (`calloc`) only for layouts of small alignment; asked for more
//! it allocates and then writes zeroes over every page. So this asks for the element's own alignment, one cache line
//! more than needed, and aligns by hand.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Alignment of the first element: a line of data, or the sequence words of 16 lines, never straddles cache lines.
pub(crate) const ALIGN: usize = 64;

/// Types for which all-zero bytes are a valid value and which need no drop.
///
/// # Safety
/// Both must be true of the implementing type, and its alignment at most [`ALIGN`].
pub(crate) unsafe trait Zeroable {}
// SAFETY: an atomic integer has the layout of its integer, for which zero is valid, and no drop.
unsafe impl Zeroable for AtomicU32 {}
// SAFETY: as above.
unsafe impl Zeroable for AtomicU64 {}

/// A fixed array of `T`, all zero at first.
pub(crate) struct Zeroed<T: Zeroable> {
    /// What the allocator gave, and under which layout.
    block: NonNull<u8>,
    layout: Layout,
    /// The first element: the first aligned address in `block`.
    first: NonNull<T>,
    len: usize,
}

impl<T: Zeroable> Zeroed<T> {
    /// An array of `len` elements, or `None` if the system has no such memory.
    pub(crate) fn new(len: usize) -> Option<Self> {
        let bytes = len.checked_mul(size_of::<T>())?.checked_add(ALIGN)?;
        let layout = Layout::from_size_align(bytes, align_of::<T>()).ok()?;
        // SAFETY: `bytes` is at least ALIGN, so the layout is not empty.
        let block = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        let skip = block.align_offset(ALIGN);
        // SAFETY: `align_offset` of a byte pointer is less than ALIGN, and the block has ALIGN bytes more than the
        // elements need, so the result and all `len` elements after it lie inside the block.
        let first = unsafe { block.add(skip) }.cast();
        Some(Self { block, layout, first, len })
    }
}

impl<T: Zeroable> Deref for Zeroed<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `first` is aligned and `len` elements lie inside the block, which lives as long as `self`; they were
        // zeroed, which is a valid value (`Zeroable`). Nobody makes `&mut` references to them.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

impl<T: Zeroable> Drop for Zeroed<T> {
    fn drop(&mut self) {
        // SAFETY: `block` came from this allocator under this layout and is freed once.
        unsafe { dealloc(self.block.as_ptr(), self.layout) }
    }
}

// SAFETY: the array is owned memory; sending it sends its elements.
unsafe impl<T: Zeroable + Send> Send for Zeroed<T> {}
// SAFETY: sharing it gives out `&[T]` and nothing else.
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
    fn an_absurd_size_is_an_answer_not_a_crash() {
        assert!(Zeroed::<AtomicU64>::new(usize::MAX / 8).is_none());
        assert!(Zeroed::<AtomicU64>::new(usize::MAX).is_none());
    }
}
