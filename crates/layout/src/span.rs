//! The two words of a span: the server's word, and the hint that clients write.

use sherman_fabric::ComputeId;

const OWNER_MASK: u64 = 0xffff;
const ISSUED: u64 = 1 << 16;
/// The hint of a span that may have free places. Any value but 0 has this meaning.
pub const HINT_FREE: u64 = 1;

/// The server's word of a span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanWord {
    /// Whether a client ever owned it.
    pub issued: bool,
    /// Its owner, or [`ComputeId::NOBODY`].
    pub owner: ComputeId,
}

impl SpanWord {
    /// The word: bits 0–15 the owner, bit 16 whether it was ever issued.
    pub const fn to_bits(self) -> u64 {
        self.owner.0 as u64 | if self.issued { ISSUED } else { 0 }
    }

    /// The word stored as `bits`, if they are valid.
    pub const fn from_bits(bits: u64) -> Option<Self> {
        let word = Self { issued: bits & ISSUED != 0, owner: ComputeId((bits & OWNER_MASK) as u16) };
        let known = bits & !(OWNER_MASK | ISSUED) == 0 && (word.issued || word.owner.0 == 0);
        if known { Some(word) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_the_one_that_the_layout_draws() {
        assert_eq!(SpanWord::default().to_bits(), 0);
        assert_eq!(SpanWord { issued: true, owner: ComputeId(0xabcd) }.to_bits(), 0x1_abcd);
        assert_eq!(SpanWord { issued: true, owner: ComputeId::NOBODY }.to_bits(), 0x1_0000);
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..100_000 {
            let bits = rng.u64(..) >> rng.u32(0..64);
            let makes_sense = bits == 0 || bits >> 16 == 1;
            assert_eq!(
                SpanWord::from_bits(bits).map(SpanWord::to_bits),
                makes_sense.then_some(bits),
                "{bits:#x}"
            );
        }
    }
}
