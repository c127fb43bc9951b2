//! Numbers, booleans and characters.

use super::{Key, Value};
use std::cmp::Ordering;

macro_rules! integers {
    ($($unsigned:ident, $signed:ident);*) => {$(
        impl Value for $unsigned {
            const LEN: usize = size_of::<Self>();

            fn type_name() -> String {
                stringify!($unsigned).to_owned()
            }

            #[inline]
            fn encode(&self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_be_bytes());
            }

            #[inline]
            fn decode(bytes: &[u8]) -> Self {
                let mut own = [0; size_of::<Self>()];
                own.copy_from_slice(bytes);
                Self::from_be_bytes(own)
            }
        }

        impl Key for $unsigned {}

        impl Value for $signed {
            const LEN: usize = size_of::<Self>();

            fn type_name() -> String {
                stringify!($signed).to_owned()
            }

            #[inline]
            fn encode(&self, bytes: &mut [u8]) {
                // Flipping the sign bit makes the order of the bytes the order of the numbers.
                (*self as $unsigned ^ 1 << (<$unsigned>::BITS - 1)).encode(bytes);
            }

            #[inline]
            fn decode(bytes: &[u8]) -> Self {
                (<$unsigned>::decode(bytes) ^ 1 << (<$unsigned>::BITS - 1)) as $signed
            }
        }

        impl Key for $signed {}
    )*};
}

integers!(u8, i8; u16, i16; u32, i32; u64, i64; u128, i128);

impl Value for bool {
    const LEN: usize = 1;

    fn type_name() -> String {
        "bool".to_owned()
    }

    fn encode(&self, bytes: &mut [u8]) {
        u8::from(*self).encode(bytes);
    }

    /// Any byte but 0 is true.
    fn decode(bytes: &[u8]) -> Self {
        u8::decode(bytes) != 0
    }
}

impl Key for bool {}

impl Value for char {
    const LEN: usize = 4;

    fn type_name() -> String {
        "char".to_owned()
    }

    fn encode(&self, bytes: &mut [u8]) {
        u32::from(*self).encode(bytes);
    }

    /// Bytes that encode no character become U+FFFD.
    fn decode(bytes: &[u8]) -> Self {
        Self::from_u32(u32::decode(bytes)).unwrap_or(Self::REPLACEMENT_CHARACTER)
    }
}

impl Key for char {}

/// A float as a key, ordered by `total_cmp`, which orders all bit patterns.
///
/// −NaN < −∞ < … < −0 < +0 < … < ∞ < NaN. So −0 and +0 are two keys, and NaNs with different payloads are
/// different keys. Normalise floats first if this is not intended.
///
/// ```
/// use sherman::Total;
///
/// let cluster = sherman::Cluster::open("embedded:?memory=64MiB")?;
/// let client = cluster.tree::<Total<f64>, u32>("by weight")?.client()?;
/// client.insert(Total(-1.5), 1)?;
/// assert_eq!(client.get(Total(-1.5))?, Some(1));
/// assert!(Total(-1.5) < Total(0.25) && Total(f64::INFINITY) < Total(f64::NAN));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Total<F>(pub F);

macro_rules! floats {
    ($($float:ident, $bits:ident);*) => {$(
        impl Value for $float {
            const LEN: usize = size_of::<Self>();

            fn type_name() -> String {
                stringify!($float).to_owned()
            }

            fn encode(&self, bytes: &mut [u8]) {
                self.to_bits().encode(bytes);
            }

            fn decode(bytes: &[u8]) -> Self {
                Self::from_bits(<$bits>::decode(bytes))
            }
        }

        impl Value for Total<$float> {
            const LEN: usize = size_of::<$float>();

            fn type_name() -> String {
                format!("Total<{}>", <$float>::type_name())
            }

            fn encode(&self, bytes: &mut [u8]) {
                const SIGN: $bits = 1 << (<$bits>::BITS - 1);
                let bits = self.0.to_bits();
                // Below zero a larger magnitude is a smaller number, so all bits are flipped. Above zero only
                // the sign bit is flipped.
                (if bits & SIGN == 0 { bits | SIGN } else { !bits }).encode(bytes);
            }

            fn decode(bytes: &[u8]) -> Self {
                const SIGN: $bits = 1 << (<$bits>::BITS - 1);
                let bits = <$bits>::decode(bytes);
                Self(<$float>::from_bits(if bits & SIGN == 0 { !bits } else { bits ^ SIGN }))
            }
        }

        impl PartialEq for Total<$float> {
            fn eq(&self, other: &Self) -> bool {
                self.cmp(other).is_eq()
            }
        }

        impl Eq for Total<$float> {}

        impl PartialOrd for Total<$float> {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }

        impl Ord for Total<$float> {
            fn cmp(&self, other: &Self) -> Ordering {
                self.0.total_cmp(&other.0)
            }
        }

        impl Key for Total<$float> {}
    )*};
}

floats!(f32, u32; f64, u64);
