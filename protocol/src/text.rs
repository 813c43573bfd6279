//! serde for the newtypes that hold a text: written by reference, read through the constructor.
//!
//! Room: `protocol`. Reading asks for a borrowed text, so that one with a false length is refused before anything is
//! reserved for it.

/// `Serialize` as the text itself, `Deserialize` through `$parse: fn(&str) -> Result<$name, impl Display>`.
macro_rules! text_serde {
    ($name:ident, $what:literal, $parse:expr) => {
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;

                impl serde::de::Visitor<'_> for Text {
                    type Value = $name;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str(concat!($what, " as a string"))
                    }

                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$name, E> {
                        ($parse)(text).map_err(E::custom)
                    }
                }

                deserializer.deserialize_str(Text)
            }
        }
    };
}

pub(crate) use text_serde;
