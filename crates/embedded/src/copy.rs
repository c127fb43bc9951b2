//! Copies between shared words and private bytes, with defined behaviour under races.
//!
//! A READ may race with a WRITE of the same line. The line's sequence word then says that the copy is invalid
//! ([`line`](crate::line)). But the copy itself must not be undefined behaviour, which rules out `memcpy`.
//! Two ways remain:
//!
//! - **portable**: relaxed loads and stores of [`AtomicU64`]. Works everywhere, and Miri and ThreadSanitizer
//!   see it.
//! - **AVX** (x86-64, found at run time): inline assembly. It is opaque to the compiler, which therefore
//!   assumes nothing about the bytes it moved. To the abstract machine it is the portable loop: an aligned
//!   vector move accesses every 8-byte word once and as a whole. The architecture guarantees this for
//!   naturally aligned quadwords.
//!
//! Measured by `cargo run --release -p sherman-embedded -F measure --example copy` on two 2.8 GHz Ice Lake
//! cores that had other work too; nanoseconds, best of 400 short windows. "Random" is out of 256 MiB. Trust
//! the ratios.
//!
//! | | hot | random |
//! |---|---|---|
//! | `memcpy` of 1 KiB of private memory | 12 | 230–350 |
//! | copy of 1 KiB, portable | 31 | 440 |
//! | copy of 1 KiB, AVX | 14 | 330 |
//! | READ of 1 KiB with its seqlock, portable | 49 | 417 |
//! | READ of 1 KiB with its seqlock, AVX | **16** | **269** |
//! | the same as one whole verb, AVX | 27 | 265 |
//! | WRITE of 64 B, portable / AVX | 12.2 / **12.2** | 88 / 72 |
//! | WRITE of 1 KiB, AVX: 16 lines taken one by one | 150 | 388 |
//! | CAS of a 16-bit lane, on chip / in host memory | 11 / 10 | |
//!
//! The verbs use huge pages (`zeroed`) and the bare copies do not. So a READ of random memory beats a bare
//! copy.
//!
//! AVX pays for READs. A store of one line hardly differs.
//!
//! Neither path orders anything: the callers' sequence words and fences do. The bytes of a word are its
//! little-endian bytes in memory order on every machine.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Bytes of a word.
pub(crate) const WORD: usize = 8;
/// Bytes of a line, the unit of F1.
pub(crate) const LINE: usize = 64;
/// Words of a line.
pub(crate) const LINE_WORDS: usize = LINE / WORD;
/// The bytes of a line.
pub type Line = [u8; LINE];

/// How lines are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyPath(Path);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Path {
    Portable,
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    Avx,
}

impl CopyPath {
    /// Relaxed atomic words.
    pub const PORTABLE: Self = Self(Path::Portable);

    /// The fastest path this machine has.
    pub fn fastest() -> Self {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if std::arch::is_x86_feature_detected!("avx2") {
            return Self(Path::Avx);
        }
        Self::PORTABLE
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self.0 {
            Path::Portable => "portable",
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Path::Avx => "avx",
        }
    }

    /// Whether [`read_group`](crate::copy::avx::read_group) may be used.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    pub(crate) fn is_avx(self) -> bool {
        self.0 == Path::Avx
    }

    /// Copies lines out of shared memory.
    ///
    /// # Panics
    /// If `from` and `into` differ in their number of lines.
    #[inline]
    pub fn load(self, from: &[AtomicU64], into: &mut [Line]) {
        assert_eq!(from.len(), into.len() * LINE_WORDS, "a copy has one length");
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if self.is_avx() && from.as_ptr().addr().is_multiple_of(LINE) {
            // SAFETY: AVX was detected; `from` is a whole number of aligned lines and `into` has as many.
            return unsafe { avx::load_lines(from.as_ptr(), into.as_mut_ptr().cast(), into.len()) };
        }
        for (words, line) in from.as_chunks::<LINE_WORDS>().0.iter().zip(into) {
            *line = bytes_of(words.each_ref().map(|word| word.load(Relaxed)));
        }
    }

    /// Copies lines into shared memory.
    ///
    /// # Panics
    /// If `from` and `into` differ in their number of lines.
    #[inline]
    pub fn store(self, into: &[AtomicU64], from: &[Line]) {
        assert_eq!(into.len(), from.len() * LINE_WORDS, "a copy has one length");
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if self.is_avx() && into.as_ptr().addr().is_multiple_of(LINE) {
            // SAFETY: AVX was detected; `into` is a whole number of aligned lines of `UnsafeCell`s and `from`
            // has as many lines.
            return unsafe { avx::store_lines(into.as_ptr(), from.as_ptr().cast(), from.len()) };
        }
        for (words, line) in into.as_chunks::<LINE_WORDS>().0.iter().zip(from) {
            for (word, bytes) in words.iter().zip(line.as_chunks::<WORD>().0) {
                word.store(u64::from_ne_bytes(*bytes), Relaxed);
            }
        }
    }
}

/// Prefetches the cache line of `place`. Only the time of a later access changes.
#[inline]
pub(crate) fn prefetch<T>(place: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every x86-64 has SSE, and a prefetch neither faults nor changes memory.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(
            std::ptr::from_ref(place).cast(),
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = place;
}

fn bytes_of(words: [u64; LINE_WORDS]) -> Line {
    let mut line = [0; LINE];
    for (bytes, word) in line.as_chunks_mut::<WORD>().0.iter_mut().zip(words) {
        *bytes = word.to_ne_bytes();
    }
    line
}

/// Copies bytes of the line `from`, beginning at byte `skip`, into `into`.
#[inline]
pub(crate) fn load_part(from: &[AtomicU64], skip: usize, into: &mut [u8]) {
    let line = bytes_of(std::array::from_fn(|i| from[i].load(Relaxed)));
    into.copy_from_slice(&line[skip..skip + into.len()]);
}

/// Copies `from` over the bytes of the line `into`, beginning at byte `skip`. Partly covered words are read,
/// merged and written back, so the caller must keep every other writer of the line away.
#[inline]
pub(crate) fn store_part(into: &[AtomicU64], skip: usize, from: &[u8]) {
    let within = skip % WORD;
    let (head, rest) = from.split_at(((WORD - within) % WORD).min(from.len()));
    let mut index = skip / WORD;
    if !head.is_empty() {
        merge(&into[index], within, head);
        index += 1;
    }
    let (whole, tail) = rest.as_chunks::<WORD>();
    for bytes in whole {
        into[index].store(u64::from_ne_bytes(*bytes), Relaxed);
        index += 1;
    }
    if !tail.is_empty() {
        merge(&into[index], 0, tail);
    }
}

/// Replaces the bytes of `word` from byte `skip` on by `part`. `part` ends inside the word.
#[inline]
fn merge(word: &AtomicU64, skip: usize, part: &[u8]) {
    let mask = (u64::MAX >> (8 * (WORD - part.len()))) << (8 * skip);
    let old = u64::from_le(word.load(Relaxed));
    word.store(((old & !mask) | (gather(part) << (8 * skip))).to_le(), Relaxed);
}

/// Reads up to eight bytes as a little-endian number, by two overlapping loads instead of a loop.
#[inline]
fn gather(bytes: &[u8]) -> u64 {
    if let (Some(low), Some(high)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let shift = 8 * (bytes.len() - 4);
        return u64::from(u32::from_le_bytes(*low)) | (u64::from(u32::from_le_bytes(*high)) << shift);
    }
    if let (Some(low), Some(high)) = (bytes.first_chunk::<2>(), bytes.last_chunk::<2>()) {
        let shift = 8 * (bytes.len() - 2);
        return u64::from(u16::from_le_bytes(*low)) | (u64::from(u16::from_le_bytes(*high)) << shift);
    }
    bytes.first().map_or(0, |byte| u64::from(*byte))
}

/// The fast path.
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) mod avx {
    use std::arch::asm;
    use std::sync::atomic::{AtomicU32, AtomicU64};

    /// A block of instructions. It clobbers all vector registers, because its `vzeroupper` changes them.
    macro_rules! vector_asm {
        ($($part:tt)*) => {
            asm!(
                $($part)*
                out("ymm0") _, out("ymm1") _, out("ymm2") _, out("ymm3") _,
                out("ymm4") _, out("ymm5") _, out("ymm6") _, out("ymm7") _,
                out("ymm8") _, out("ymm9") _, out("ymm10") _, out("ymm11") _,
                out("ymm12") _, out("ymm13") _, out("ymm14") _, out("ymm15") _,
                options(nostack)
            )
        };
    }

    /// Copies `lines` lines out of shared memory.
    ///
    /// # Safety
    /// The machine has AVX. `from` is 64-byte aligned and `lines * 64` bytes are readable there. As many
    /// bytes are writable at `into`, and nothing else accesses those.
    #[inline]
    pub(crate) unsafe fn load_lines(from: *const AtomicU64, into: *mut u8, lines: usize) {
        // SAFETY: the moves stay within the caller's ranges. The loop runs `lines` times, so not at all for
        // 0.
        unsafe {
            vector_asm!(
                "test {n}, {n}",
                "jz 3f",
                "2:",
                "vmovdqa ymm0, [{from}]",
                "vmovdqa ymm1, [{from} + 32]",
                "add {from}, 64",
                "vmovdqu [{into}], ymm0",
                "vmovdqu [{into} + 32], ymm1",
                "add {into}, 64",
                "dec {n}",
                "jnz 2b",
                "vzeroupper",
                "3:",
                n = inout(reg) lines => _,
                from = inout(reg) from => _,
                into = inout(reg) into => _,
            );
        }
    }

    /// Copies `lines` lines into shared memory.
    ///
    /// # Safety
    /// The machine has AVX. `into` is 64-byte aligned and points to `lines * 64` bytes of interior-mutable
    /// memory. As many bytes are readable at `from`.
    #[inline]
    pub(crate) unsafe fn store_lines(into: *const AtomicU64, from: *const u8, lines: usize) {
        // SAFETY: as in `load_lines`.
        unsafe {
            vector_asm!(
                "test {n}, {n}",
                "jz 3f",
                "2:",
                "vmovdqu ymm0, [{from}]",
                "vmovdqu ymm1, [{from} + 32]",
                "add {from}, 64",
                "vmovdqa [{into}], ymm0",
                "vmovdqa [{into} + 32], ymm1",
                "add {into}, 64",
                "dec {n}",
                "jnz 2b",
                "vzeroupper",
                "3:",
                n = inout(reg) lines => _,
                from = inout(reg) from => _,
                into = inout(reg) into => _,
            );
        }
    }

    /// Makes one optimistic READ of `lines` neighbouring lines whose sequence words lie in one cache line.
    /// Samples all 16 words, copies, and samples again. Returns a bit per word of `group`, set if the word
    /// was odd or changed.
    ///
    /// x86 performs loads in program order. So this code gets the acquire loads, the acquire fence and the
    /// relaxed re-loads of a seqlock reader for free.
    ///
    /// # Safety
    /// As [`load_lines`]. Also, the machine has AVX2, and `group` is 64-byte aligned and points to 16
    /// sequence words.
    #[inline]
    pub(crate) unsafe fn read_group(
        group: *const AtomicU32,
        from: *const AtomicU64,
        into: *mut u8,
        lines: usize,
    ) -> u32 {
        let moved: u32;
        // SAFETY: the moves stay within the caller's ranges. The loop runs `lines` times, so not at all for
        // 0.
        unsafe {
            vector_asm!(
                "vmovdqa ymm4, [{group}]",
                "vmovdqa ymm5, [{group} + 32]",
                "test {n}, {n}",
                "jz 3f",
                "2:",
                "vmovdqa ymm0, [{from}]",
                "vmovdqa ymm1, [{from} + 32]",
                "add {from}, 64",
                "vmovdqu [{into}], ymm0",
                "vmovdqu [{into} + 32], ymm1",
                "add {into}, 64",
                "dec {n}",
                "jnz 2b",
                "3:",
                // Changed words become all zeros, unchanged words all ones.
                "vpcmpeqd ymm0, ymm4, [{group}]",
                "vpcmpeqd ymm1, ymm5, [{group} + 32]",
                // The sign bit becomes one in odd words and zero in even words.
                "vpslld ymm4, ymm4, 31",
                "vpslld ymm5, ymm5, 31",
                "vpandn ymm0, ymm4, ymm0",
                "vpandn ymm1, ymm5, ymm1",
                // The sign bits now mean "even and unchanged".
                "vmovmskps {moved:e}, ymm0",
                "vmovmskps {n:e}, ymm1",
                "shl {n:e}, 8",
                "or {moved:e}, {n:e}",
                "xor {moved:e}, 0xffff",
                "vzeroupper",
                group = in(reg) group,
                n = inout(reg) lines => _,
                from = inout(reg) from => _,
                into = inout(reg) into => _,
                moved = out(reg) moved,
            );
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(n: usize) -> sherman_pages::zeroed::Zeroed<AtomicU64> {
        sherman_pages::zeroed::Zeroed::new(n).unwrap()
    }

    fn noise(len: usize, seed: &mut u8) -> Vec<u8> {
        let next = || {
            *seed = seed.wrapping_mul(5).wrapping_add(17);
            *seed
        };
        std::iter::repeat_with(next).take(len).collect()
    }

    #[test]
    fn every_path_moves_the_same_lines() {
        let mut seed = 3;
        for path in [CopyPath::PORTABLE, CopyPath::fastest()] {
            for count in (0..20).step_by(if cfg!(miri) { 6 } else { 1 }) {
                let shared = words(20 * LINE_WORDS);
                let data = noise(count * LINE + 1, &mut seed);
                let (from, _) = data[1..].as_chunks::<LINE>();
                path.store(&shared[..count * LINE_WORDS], from);
                let mut back = vec![[0; LINE]; 20];
                path.load(&shared, &mut back);
                assert_eq!(&back[..count], from, "{}", path.name());
                assert!(back[count..].iter().flatten().all(|byte| *byte == 0), "{}", path.name());
            }
        }
    }

    #[test]
    fn a_part_of_a_line_leaves_the_rest_alone() {
        let step = if cfg!(miri) { 19 } else { 1 };
        let shared = words(LINE_WORDS);
        let (mut image, mut seed) = ([0; LINE], 5);
        for skip in (0..LINE).step_by(step) {
            for len in (0..=LINE - skip).step_by(step) {
                let data = noise(len, &mut seed);
                store_part(&shared, skip, &data);
                image[skip..skip + len].copy_from_slice(&data);
                let mut back = vec![0; len];
                load_part(&shared, skip, &mut back);
                assert_eq!(back, data, "{skip} {len}");
                let mut all = [[0; LINE]];
                CopyPath::PORTABLE.load(&shared, &mut all);
                assert_eq!(all, [image], "{skip} {len}");
            }
        }
    }

    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[test]
    fn a_group_read_names_exactly_the_odd_words() {
        if !CopyPath::fastest().is_avx() {
            return;
        }
        let (shared, seqs) =
            (words(16 * 8), sherman_pages::zeroed::Zeroed::<std::sync::atomic::AtomicU32>::new(16).unwrap());
        let mut into = [0u8; 1024];
        for odd in 0..16 {
            for (i, seq) in seqs.iter().enumerate() {
                seq.store(0xffff_fff0 + 2 * (i as u32 % 3) + u32::from(i == odd), Relaxed);
            }
            // SAFETY: AVX was detected; 16 aligned sequence words, 16 aligned lines, 1024 bytes.
            let moved = unsafe { avx::read_group(seqs.as_ptr(), shared.as_ptr(), into.as_mut_ptr(), 16) };
            assert_eq!(moved, 1 << odd);
        }
    }
}
