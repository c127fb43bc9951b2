//! Structs as keys and values.

/// Defines a struct of fixed size that can be a value, or with `: Key` a key, of a tree.
///
/// Its bytes are the bytes of its fields, one after the other. Every field must be a [`Value`](crate::Value),
/// or for a key a [`Key`](crate::Key). For a key the macro derives `PartialEq`, `Eq`, `PartialOrd` and `Ord`.
/// So the order is certain to be that of its fields from first to last, which is the order of the bytes. The
/// macro keeps attributes and other derives.
///
/// The name of the struct is its [type name](crate::Value::type_name). A tree does not open with a struct of
/// another name, not even if only the name has changed. If the fields change and their total size stays the
/// same, the tree opens and its bytes are misread: give the changed struct a new name.
///
/// ```
/// sherman::record! {
///     /// Readings are ordered by sensor, then by time.
///     #[derive(Clone, Copy, Debug)]
///     pub struct At: Key {
///         /// Which sensor.
///         pub sensor: u32,
///         /// Seconds.
///         pub time: u64,
///     }
/// }
///
/// sherman::record! {
///     #[derive(Debug, PartialEq)]
///     struct Reading { celsius: f32, humidity: Option<f32> }
/// }
///
/// let cluster = sherman::Cluster::open("embedded:?memory=64MiB")?;
/// let client = cluster.tree::<At, Reading>("readings")?.client()?;
/// client.insert(At { sensor: 3, time: 60 }, Reading { celsius: 21.5, humidity: None })?;
/// let found = client.get(At { sensor: 3, time: 60 })?;
/// assert_eq!(found, Some(Reading { celsius: 21.5, humidity: None }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A struct around one value is written with parentheses:
///
/// ```
/// sherman::record! {
///     #[derive(Clone, Copy, Debug)]
///     pub struct UserId: Key(pub u64);
/// }
/// # use sherman::Value;
/// let mut bytes = [0; 8];
/// UserId(7).encode(&mut bytes);
/// assert_eq!(UserId::decode(&bytes), UserId(7));
/// ```
///
/// The macro refuses a field in a key if the field's order is not that of its bytes:
///
/// ```compile_fail
/// sherman::record! { struct Weight: Key { kilograms: f64 } }
/// ```
#[macro_export]
macro_rules! record {
    ($(#[$meta:meta])* $vis:vis struct $name:ident: Key { $($fields:tt)* }) => {
        $crate::record! {
            $(#[$meta])* #[derive(PartialEq, Eq, PartialOrd, Ord)] $vis struct $name { $($fields)* }
        }
        $crate::record! { @key $name { $($fields)* } }
    };
    ($(#[$meta:meta])* $vis:vis struct $name:ident: Key($field_vis:vis $field:ty $(,)?);) => {
        $crate::record! {
            $(#[$meta])* #[derive(PartialEq, Eq, PartialOrd, Ord)] $vis struct $name($field_vis $field);
        }
        $crate::record! { @key $name { field: $field } }
    };
    ($(#[$meta:meta])* $vis:vis struct $name:ident {
        $($(#[$field_meta:meta])* $field_vis:vis $field:ident: $type:ty),* $(,)?
    }) => {
        $(#[$meta])*
        $vis struct $name {
            $($(#[$field_meta])* $field_vis $field: $type,)*
        }

        impl $crate::Value for $name {
            const LEN: usize = 0 $(+ <$type as $crate::Value>::LEN)*;

            fn type_name() -> ::std::string::String {
                ::std::string::String::from(::std::stringify!($name))
            }

            #[allow(unused_variables)]
            fn encode(&self, bytes: &mut [u8]) {
                $(
                    let (own, bytes) = bytes.split_at_mut(<$type as $crate::Value>::LEN);
                    <$type as $crate::Value>::encode(&self.$field, own);
                )*
            }

            #[allow(unused_variables)]
            fn decode(bytes: &[u8]) -> Self {
                $(
                    let (own, bytes) = bytes.split_at(<$type as $crate::Value>::LEN);
                    let $field = <$type as $crate::Value>::decode(own);
                )*
                Self { $($field),* }
            }
        }
    };
    ($(#[$meta:meta])* $vis:vis struct $name:ident($field_vis:vis $field:ty $(,)?);) => {
        $(#[$meta])*
        $vis struct $name($field_vis $field);

        impl $crate::Value for $name {
            const LEN: usize = <$field as $crate::Value>::LEN;

            fn type_name() -> ::std::string::String {
                ::std::string::String::from(::std::stringify!($name))
            }

            fn encode(&self, bytes: &mut [u8]) {
                <$field as $crate::Value>::encode(&self.0, bytes);
            }

            fn decode(bytes: &[u8]) -> Self {
                Self(<$field as $crate::Value>::decode(bytes))
            }
        }
    };
    (@key $name:ident {
        $($(#[$field_meta:meta])* $field_vis:vis $field:ident: $type:ty),* $(,)?
    }) => {
        // A struct is a key only if all its fields are keys.
        const _: () = {
            const fn is_key<K: $crate::Key>() {}
            $(is_key::<$type>();)*
        };

        impl $crate::Key for $name {}
    };
}
