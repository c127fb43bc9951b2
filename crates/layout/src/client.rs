//! A word of the client table: whether a client is fenced on this server, and where its redo area is.

use sherman_fabric::GlobalAddress;

const AREA_MASK: u64 = GlobalAddress::OFFSET_LIMIT - 1;
const FENCED: u64 = 1 << 63;

/// A client's word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientWord {
    /// Where its redo area begins, if it has one.
    pub redo_area: Option<u64>,
    /// Whether the server executes nothing of this client any more (F6).
    pub fenced: bool,
}

impl ClientWord {
    /// The word: bits 0–47 the area's offset or 0, bit 63 fenced.
    pub const fn to_bits(self) -> u64 {
        let area = match self.redo_area {
            Some(offset) => offset & AREA_MASK,
            None => 0,
        };
        area | if self.fenced { FENCED } else { 0 }
    }

    /// The word stored as `bits`, if they are valid.
    pub const fn from_bits(bits: u64) -> Option<Self> {
        if bits & !(AREA_MASK | FENCED) != 0 {
            return None;
        }
        let area = bits & AREA_MASK;
        Some(Self { redo_area: if area == 0 { None } else { Some(area) }, fenced: bits & FENCED != 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_the_one_that_the_layout_draws() {
        let word = ClientWord { redo_area: Some(0x1234_5678_9a00), fenced: true };
        assert_eq!(word.to_bits(), 0x8000_1234_5678_9a00);
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..100_000 {
            let bits = rng.u64(..) >> rng.u32(0..64);
            assert_eq!(
                ClientWord::from_bits(bits).map(ClientWord::to_bits),
                (bits >> 48 & 0x7fff == 0).then_some(bits)
            );
        }
    }
}
