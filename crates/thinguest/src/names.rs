//! Words for the values of an enumeration, both ways.

macro_rules! names {
    ($type:ident: $($variant:ident $name:literal,)*) => {
        impl $type {
            /// As plans and records have it.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// That of this name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }
    };
}
