//! The names of types, as the catalog stores them.

use super::{TreeValue, Value};
use sherman_fabric::{TreeTypes, TypeName};
use twox_hash::XxHash3_64;

/// How many bytes of a long name stay. A `#` and eight hexadecimal digits follow them.
const KEPT: usize = 22;

/// The types of a tree. `None` if one of them has no name.
pub(crate) fn tree_types<K: Value, V: TreeValue>() -> Option<TreeTypes> {
    Some(TreeTypes { key: stored_name(&K::type_name())?, value: stored_name(&V::value_type_name())? })
}

/// The name as the catalog stores it. A name that is too long keeps its beginning, and ends with a hash of
/// the whole name, so that long names with one beginning differ. `None` if the name is empty.
fn stored_name(name: &str) -> Option<TypeName> {
    TypeName::new(name).or_else(|| {
        let hash = XxHash3_64::oneshot(name.as_bytes()) as u32;
        let kept = &name[..name.floor_char_boundary(KEPT)];
        TypeName::new(&format!("{kept}#{hash:08x}")).filter(|_| !name.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::super::{ShortBytes, Total};
    use super::*;
    use std::cmp::Reverse;

    crate::record! { struct Stop: Key { line: u8, at: i32 } }
    crate::record! { struct Weight(Total<f32>); }

    /// A catalog keeps these names for years, so none of them may change.
    #[test]
    fn the_names_of_types_do_not_change() {
        let names = [
            (u8::type_name(), "u8"),
            (i128::type_name(), "i128"),
            (bool::type_name(), "bool"),
            (char::type_name(), "char"),
            (f64::type_name(), "f64"),
            (<()>::type_name(), "()"),
            (Total::<f32>::type_name(), "Total<f32>"),
            (<[u8; 16]>::type_name(), "[u8; 16]"),
            (ShortBytes::<300>::type_name(), "ShortBytes<300>"),
            (Option::<char>::type_name(), "Option<char>"),
            (Reverse::<u64>::type_name(), "Reverse<u64>"),
            (<(u64,)>::type_name(), "(u64,)"),
            (<(u64, u32)>::type_name(), "(u64, u32)"),
            (<(u8, Stop, Option<i8>, [u8; 0])>::type_name(), "(u8, Stop, Option<i8>, [u8; 0])"),
            (Stop::type_name(), "Stop"),
            (Weight::type_name(), "Weight"),
        ];
        for (name, expected) in names {
            assert_eq!(name, expected);
            assert_eq!(stored_name(&name), TypeName::new(expected));
        }
    }

    #[test]
    fn a_long_name_keeps_its_beginning_and_gets_a_hash() {
        let stored = |name: &str| stored_name(name).expect("a name").as_str().to_owned();
        assert_eq!(stored(&"x".repeat(31)), "x".repeat(31));
        let long = <(ShortBytes<16>, Reverse<u64>, u32)>::type_name();
        assert_eq!(long, "(ShortBytes<16>, Reverse<u64>, u32)");
        assert_eq!(stored(&long), "(ShortBytes<16>, Rever#5cc0fcf7");
        let other = <(ShortBytes<16>, Reverse<u64>, i32)>::type_name();
        assert_ne!(stored(&other), stored(&long));
        assert_eq!(stored(&other)[..22], stored(&long)[..22]);
        // The cut must not divide a letter of several bytes.
        let letters = format!("{}{}", "x".repeat(21), "é".repeat(20));
        assert!(stored(&letters).starts_with("xxxxxxxxxxxxxxxxxxxxx#"), "{}", stored(&letters));
    }

    #[test]
    fn a_type_without_a_name_leaves_the_tree_without_types() {
        struct Nameless;
        impl Value for Nameless {
            const LEN: usize = 0;

            fn type_name() -> String {
                String::new()
            }

            fn encode(&self, _: &mut [u8]) {}

            fn decode(_: &[u8]) -> Self {
                Self
            }
        }
        assert_eq!(tree_types::<u64, Nameless>(), None);
        assert_eq!(tree_types::<u64, u32>(), TreeTypes::new("u64", "u32"));
    }
}
