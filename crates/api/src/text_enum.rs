//! Closed sets of words: enums on our side, text on the wire.

/// Declares an enum whose variants are words on the wire. A word that is not in the set is kept, so that a newer
/// peer never makes us deaf, and so that validation can name it.
#[macro_export]
macro_rules! text_enum {
    ($(#[$meta:meta])* $visibility:vis enum $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
        $visibility enum $name {
            $($(#[$doc])* $variant,)*
            /// A word that is not in the set.
            Other($crate::OtherWord),
        }

        impl $name {
            /// The words of the set.
            pub const WORDS: &'static [&'static str] = &[$($text),*];

            /// The word on the wire.
            pub fn as_str(&self) -> &str {
                match self {
                    $($name::$variant => $text,)*
                    $name::Other(word) => word,
                }
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> $name {
                match text {
                    $($text => $name::$variant,)*
                    other => $name::Other(other.into()),
                }
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl ::serde::Serialize for $name {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                $crate::read_word(deserializer)
            }
        }
    };
}
