//! A small 64-bit hash for traces and states: folded 64x64-bit multiplication.
//!
//! It has fixed constants and no dependency, so that a schedule has the same trace hash in every version. It
//! protects against accidental collisions, not against attackers.

const A: u64 = 0xa076_1d64_78bd_642f;
const B: u64 = 0xe703_7ed1_a0b4_28db;

/// Mixes `word` into `hash`, order-dependent.
#[inline]
pub(crate) fn mix(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash ^ A) * u128::from(word ^ B);
    (product as u64) ^ ((product >> 64) as u64)
}

/// Mixes bytes into `hash`, 16 at a time.
#[inline]
pub(crate) fn mix_bytes(mut hash: u64, bytes: &[u8]) -> u64 {
    let mut chunks = bytes.chunks_exact(16);
    for chunk in &mut chunks {
        let low = u64::from_le_bytes(chunk[..8].try_into().unwrap_or_default());
        let high = u64::from_le_bytes(chunk[8..].try_into().unwrap_or_default());
        let product = u128::from(hash ^ low ^ A) * u128::from(high ^ hash.rotate_left(32) ^ B);
        hash = (product as u64) ^ ((product >> 64) as u64);
    }
    let mut tail = [0; 16];
    let rest = chunks.remainder();
    if rest.is_empty() {
        return hash;
    }
    tail[..rest.len()].copy_from_slice(rest);
    let word = u128::from_le_bytes(tail);
    mix(mix(hash, word as u64), ((word >> 64) as u64) ^ ((rest.len() as u64) << 56))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_length_and_every_byte_count() {
        assert_ne!(mix(mix(0, 1), 2), mix(mix(0, 2), 1));
        assert_ne!(mix_bytes(0, &[0; 3]), mix_bytes(0, &[0; 4]));
        let base = mix_bytes(9, &[5; 70]);
        for i in 0..70 {
            let mut bytes = [5; 70];
            bytes[i] = 6;
            assert_ne!(mix_bytes(9, &bytes), base, "byte {i}");
        }
    }
}
