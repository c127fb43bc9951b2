//! Keys and values made of others: options, reversals, tuples.

use super::{Key, Value};
use std::cmp::Reverse;

/// The first byte tells whether there is a value. The other bytes are zero if not.
impl<T: Value> Value for Option<T> {
    const LEN: usize = 1 + T::LEN;

    fn type_name() -> String {
        format!("Option<{}>", T::type_name())
    }

    fn encode(&self, bytes: &mut [u8]) {
        let (there, value) = bytes.split_at_mut(1);
        self.is_some().encode(there);
        match self {
            Some(own) => own.encode(value),
            None => value.fill(0),
        }
    }

    fn decode(bytes: &[u8]) -> Self {
        let (there, value) = bytes.split_at(1);
        bool::decode(there).then(|| T::decode(value))
    }
}

/// `None` sorts first, as in `Ord`.
impl<T: Key> Key for Option<T> {}

/// Inverts every bit of `T`'s bytes, which reverses their order.
impl<T: Value> Value for Reverse<T> {
    const LEN: usize = T::LEN;

    fn type_name() -> String {
        format!("Reverse<{}>", T::type_name())
    }

    fn encode(&self, bytes: &mut [u8]) {
        self.0.encode(bytes);
        bytes.iter_mut().for_each(|byte| *byte = !*byte);
    }

    fn decode(bytes: &[u8]) -> Self {
        let invert = |own: &mut [u8]| own.iter_mut().zip(bytes).for_each(|(own, byte)| *own = !byte);
        Self(T::decode(&super::OnStack::filled(T::LEN, invert)))
    }
}

impl<T: Key> Key for Reverse<T> {}

fn tuple_name(elements: &[String]) -> String {
    match elements {
        [only] => format!("({only},)"),
        several => format!("({})", several.join(", ")),
    }
}

macro_rules! tuples {
    ($(($($name:ident $at:tt),+))*) => {$(
        /// The elements one after the other. Each has a fixed length, so the order of the bytes is the order
        /// of the tuple.
        impl<$($name: Value),+> Value for ($($name,)+) {
            const LEN: usize = 0 $(+ $name::LEN)+;

            fn type_name() -> String {
                tuple_name(&[$($name::type_name()),+])
            }

            #[inline]
            fn encode(&self, bytes: &mut [u8]) {
                $(
                    let (own, bytes) = bytes.split_at_mut($name::LEN);
                    self.$at.encode(own);
                )+
                debug_assert!(bytes.is_empty(), "a tuple is its elements");
            }

            #[inline]
            fn decode(bytes: &[u8]) -> Self {
                let mut rest = bytes;
                ($({
                    let (own, after) = rest.split_at($name::LEN);
                    rest = after;
                    let _ = rest;
                    $name::decode(own)
                },)+)
            }
        }

        impl<$($name: Key),+> Key for ($($name,)+) {}
    )*};
}

tuples! { (A 0) (A 0, B 1) (A 0, B 1, C 2) (A 0, B 1, C 2, D 3) }
