//! Enums of errors.

/// Defines an enum of errors together with the messages of its variants, so that each variant is listed once.
///
/// A message uses the fields by their names. A message with other arguments stands in parentheses, as in
/// `write!`. A field in parentheses has a name for the message, too. After a message, `because` names the
/// field that is the error's source. `through` names a field whose own source is the error's source: the
/// message already says what that field says.
///
/// ```
/// use std::error::Error;
///
/// sherman_fabric::errors! {
///     /// Why a file cannot be used.
///     #[derive(Debug)]
///     pub enum FileError {
///         /// The file is empty.
///         Empty => "the file is empty",
///         /// The file is too short.
///         Short {
///             /// Bytes that are missing.
///             missing: u64,
///         } => "the file lacks {missing} bytes",
///         /// The file's name is not allowed.
///         Name(name: std::path::PathBuf) => ("{} is not allowed", name.display()),
///         /// The system refused to read it.
///         Read(error: std::io::Error) => "cannot read the file: {error}" because error,
///     }
/// }
///
/// assert_eq!(FileError::Short { missing: 3 }.to_string(), "the file lacks 3 bytes");
/// assert!(FileError::Read(std::io::Error::other("no")).source().is_some());
/// ```
#[macro_export]
macro_rules! errors {
    (
        $(#[$attribute:meta])*
        $visible:vis enum $type:ident {
            $(
                $(#[$note:meta])*
                $variant:ident
                $({ $($(#[$field_note:meta])* $field:ident: $field_type:ty,)+ })?
                $(($inner:ident: $inner_type:ty))?
                => $($text:literal)? $(($($message:tt)+))?
                    $(because $source:ident)? $(through $through:ident)?,
            )+
        }
    ) => {
        $(#[$attribute])*
        $visible enum $type {
            $(
                $(#[$note])*
                $variant $({ $($(#[$field_note])* $field: $field_type,)+ })? $(($inner_type))?,
            )+
        }

        impl std::fmt::Display for $type {
            #[allow(unused_variables)]
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    $(
                        Self::$variant $({ $($field),+ })? $(($inner))? => {
                            write!(f, $($text)? $($($message)+)?)
                        }
                    )+
                }
            }
        }

        impl std::error::Error for $type {
            #[allow(unused_variables)]
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                match self {
                    $(
                        Self::$variant $({ $($field),+ })? $(($inner))? => {
                            $(return Some($source);)?
                            $(return $through.source();)?
                        }
                    )+
                }
                #[allow(unreachable_code)]
                None
            }
        }
    };
}
