//! Keys and values as bytes of fixed length.

/// A value of fixed size.
pub trait Value: Sized {
    /// Bytes it takes.
    const LEN: usize;

    /// Writes it to `bytes`, which has [`Value::LEN`] bytes.
    fn encode(&self, bytes: &mut [u8]);

    /// Reads it from `bytes`, which has [`Value::LEN`] bytes written by [`Value::encode`].
    fn decode(bytes: &[u8]) -> Self;
}

/// A key: a value whose byte order is its order.
///
/// Implementations must keep `a < b` exactly when `a`'s bytes compare below `b`'s, and encode distinct keys distinctly.
pub trait Key: Value + Ord {}

macro_rules! integers {
    ($($unsigned:ty, $signed:ty);*) => {$(
        impl Value for $unsigned {
            const LEN: usize = size_of::<Self>();

            fn encode(&self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_be_bytes());
            }

            fn decode(bytes: &[u8]) -> Self {
                let mut own = [0; size_of::<Self>()];
                own.copy_from_slice(bytes);
                Self::from_be_bytes(own)
            }
        }

        impl Key for $unsigned {}

        impl Value for $signed {
            const LEN: usize = size_of::<Self>();

            fn encode(&self, bytes: &mut [u8]) {
                // Flipping the sign bit makes the order of the bytes the order of the numbers.
                (*self as $unsigned ^ 1 << (<$unsigned>::BITS - 1)).encode(bytes);
            }

            fn decode(bytes: &[u8]) -> Self {
                (<$unsigned>::decode(bytes) ^ 1 << (<$unsigned>::BITS - 1)) as $signed
            }
        }

        impl Key for $signed {}
    )*};
}

integers!(u8, i8; u16, i16; u32, i32; u64, i64; u128, i128);

impl<const N: usize> Value for [u8; N] {
    const LEN: usize = N;

    fn encode(&self, bytes: &mut [u8]) {
        bytes.copy_from_slice(self);
    }

    fn decode(bytes: &[u8]) -> Self {
        let mut own = [0; N];
        own.copy_from_slice(bytes);
        own
    }
}

impl<const N: usize> Key for [u8; N] {}

impl Value for () {
    const LEN: usize = 0;

    fn encode(&self, _bytes: &mut [u8]) {}

    fn decode(_bytes: &[u8]) -> Self {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes<V: Value>(value: &V) -> Vec<u8> {
        let mut bytes = vec![0; V::LEN];
        value.encode(&mut bytes);
        bytes
    }

    #[test]
    fn the_order_of_bytes_is_the_order_of_keys() {
        let numbers = [i64::MIN, -1_000, -1, 0, 1, 255, 256, i64::MAX];
        for pair in numbers.windows(2) {
            assert!(bytes(&pair[0]) < bytes(&pair[1]));
            assert_eq!(i64::decode(&bytes(&pair[0])), pair[0]);
        }
        assert!(bytes(&255_u32) < bytes(&256_u32));
        assert_eq!(<[u8; 3]>::decode(&bytes(b"abc")), *b"abc");
    }
}
