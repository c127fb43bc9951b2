//! Enums whose values have names.

/// Defines an enum together with the names of its values, so that each value is listed once.
///
/// ```
/// sherman_fabric::named! {
///     /// A colour.
///     #[derive(Clone, Copy, Debug, PartialEq)]
///     pub enum Colour {
///         /// Like grass.
///         Green => "green",
///         /// Like the sky.
///         DarkBlue => "dark-blue",
///     }
/// }
///
/// assert_eq!(Colour::ALL.map(Colour::name), ["green", "dark-blue"]);
/// assert_eq!(Colour::from_name("green"), Some(Colour::Green));
/// ```
#[macro_export]
macro_rules! named {
    (
        $(#[$attribute:meta])*
        $visible:vis enum $type:ident {
            $($(#[$note:meta])* $value:ident $(= $number:literal)? => $name:literal,)+
        }
    ) => {
        $(#[$attribute])*
        $visible enum $type {
            $($(#[$note])* $value $(= $number)?,)+
        }

        impl $type {
            /// All values, in order.
            $visible const ALL: [Self; [$($name),+].len()] = [$(Self::$value),+];

            /// Its name on the command line and in reports.
            $visible const fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $name,)+
                }
            }

            /// The value with this name.
            $visible fn from_name(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|value| value.name() == name)
            }
        }
    };
}
