//! The names of a tree's key and value types, which the catalog keeps.
//!
//! Servers and the index know only the lengths of keys and values. The client that creates a typed tree also
//! gives the names of its types, so that later clients do not misread the bytes as other types.

use std::fmt;

/// The longest name of a type in bytes.
pub const TYPE_NAME_BYTES_MAX: usize = 31;

/// The name of a type of keys or values: 1 to 31 bytes of UTF-8.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TypeName {
    len: u8,
    bytes: [u8; TYPE_NAME_BYTES_MAX],
}

impl TypeName {
    /// The name `name`. `None` if it is empty or longer than [`TYPE_NAME_BYTES_MAX`].
    pub fn new(name: &str) -> Option<Self> {
        let mut bytes = [0; TYPE_NAME_BYTES_MAX];
        bytes.get_mut(..name.len()).filter(|own| !own.is_empty())?.copy_from_slice(name.as_bytes());
        Some(Self { len: name.len() as u8, bytes })
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        // The bytes come from a text, so they are UTF-8.
        std::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }
}

/// The name, with control characters escaped, because another client chose it.
impl fmt::Display for TypeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.as_str().escape_debug().to_string())
    }
}

impl fmt::Debug for TypeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TypeName({:?})", self.as_str())
    }
}

/// The types of a tree's keys and values, set when it is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TreeTypes {
    /// The type of the keys.
    pub key: TypeName,
    /// The type of the values.
    pub value: TypeName,
}

impl TreeTypes {
    /// The types with these names. `None` if [`TypeName::new`] refuses one of them.
    pub fn new(key: &str, value: &str) -> Option<Self> {
        Some(Self { key: TypeName::new(key)?, value: TypeName::new(value)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_1_to_31_bytes() {
        let longest = format!("{}é", "x".repeat(29));
        for name in ["u", "u64", &longest] {
            assert_eq!(TypeName::new(name).map(|own| own.as_str().to_owned()).as_deref(), Some(name));
        }
        for name in ["", &"x".repeat(32), &"x".repeat(300)] {
            assert_eq!(TypeName::new(name), None, "{name:?}");
            assert_eq!((TreeTypes::new("u64", name), TreeTypes::new(name, "u64")), (None, None));
        }
    }

    #[test]
    fn a_name_is_shown_in_one_line() {
        let shown = |name| TypeName::new(name).map(|name| format!("{name:>6}"));
        assert_eq!(shown("u64").as_deref(), Some("   u64"));
        assert_eq!(shown("a\n\u{1b}").as_deref(), Some("a\\n\\u{1b}"));
    }
}
