//! How Kubernetes' objects are declared: one line per field, with its name on the wire.
//!
//! Go leaves an empty field out and reads an absent or null one as empty. So do we, and so most fields are plain
//! values instead of options: text, lists and maps are absent when empty, numbers when 0. A field marked `always`
//! is written even so, because upstream does; one marked `word` is a closed set that upstream keeps in plain text,
//! where the empty word means that it is absent.
//!
//! This is serde, but not its derive: a derived decoder refuses nulls and duplicates, buffers what is inlined, and
//! holds every field twice on the stack.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer, Serializer,
    de::{self, IgnoredAny, MapAccess, Visitor},
    ser::SerializeMap,
};

use crate::document::DROPPED;

/// An object of the Kubernetes API, with a kind of its own.
pub trait Object: Sized {
    /// The group and version, such as `v1` or `coordination.k8s.io/v1`.
    const API_VERSION: &'static str;
    const KIND: &'static str;
    /// The kind of a list of such objects.
    const LIST_KIND: &'static str;
}

/// A mapping on the wire whose field names are known.
pub(crate) trait Fields: Default {
    const NAMES: &'static [&'static str];

    /// Reads the value of the field `NAMES[index]`.
    fn read_field<'de, A: MapAccess<'de>>(&mut self, index: usize, map: &mut A) -> Result<(), A::Error>;

    /// Writes all fields that are not absent.
    fn write_fields<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error>;
}

/// A value that Go may leave out of JSON.
pub(crate) trait Absent {
    fn is_absent(&self) -> bool {
        false
    }
}

impl Absent for bool {
    fn is_absent(&self) -> bool {
        !self
    }
}

impl Absent for i32 {
    fn is_absent(&self) -> bool {
        *self == 0
    }
}

impl Absent for i64 {
    fn is_absent(&self) -> bool {
        *self == 0
    }
}

impl Absent for String {
    fn is_absent(&self) -> bool {
        self.is_empty()
    }
}

impl<T> Absent for Box<[T]> {
    fn is_absent(&self) -> bool {
        self.is_empty()
    }
}

impl<T> Absent for Option<T> {
    fn is_absent(&self) -> bool {
        self.is_none()
    }
}

impl Absent for crate::Quantity {}

/// Declares a struct that is a mapping on the wire; see the module's own words. With an API version and a kind
/// after its name it is an [`Object`]; `..` before the last field inlines that field's own fields; `_` for a field
/// reads it past.
macro_rules! object {
    ($(#[$meta:meta])* pub struct $name:ident: $version:literal $kind:literal {
        $($field:ident: $type:ty = $wire:literal $($mode:ident)?,)*
    }) => {
        object! { $(#[$meta])* #[derive(Debug)] opaque pub struct $name: $version $kind {
            $($field: $type = $wire $($mode)?,)*
        } }
    };
    // An object that has its own `Debug`.
    ($(#[$meta:meta])* opaque pub struct $name:ident: $version:literal $kind:literal {
        $($field:ident: $type:ty = $wire:literal $($mode:ident)?,)*
    }) => {
        object! { @declare $(#[$meta])* $name { $($field: $type),* } }
        impl $crate::object::Object for $name {
            const API_VERSION: &'static str = $version;
            const KIND: &'static str = $kind;
            const LIST_KIND: &'static str = concat!($kind, "List");
        }
        object! { @serde $name { $($field = $wire $($mode)?),* } kind }
    };
    ($(#[$meta:meta])* pub struct $name:ident {
        $($field:ident: $type:ty = $wire:literal $($mode:ident)?,)*
        $(.. $inline:ident: $inline_type:ty,)?
        $(_ = $dropped:literal,)?
    }) => {
        object! { @declare $(#[$meta])* #[derive(Debug)] $name { $($field: $type,)* $($inline: $inline_type)? } }
        object! { @serde $name { $($field = $wire $($mode)?),* } $(inline $inline: $inline_type)? $(dropped $dropped)? }
    };

    (@declare $(#[$meta:meta])* $name:ident { $($field:ident: $type:ty),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Default, PartialEq, Eq)]
        pub struct $name {
            $(pub $field: $type,)*
        }
    };

    (@serde $name:ident { $($field:ident = $wire:literal $($mode:ident)?),* } $($rest:tt)*) => {
        impl $crate::object::Fields for $name {
            const NAMES: &'static [&'static str] = object!(@names { $($wire),* } $($rest)*);

            #[allow(unused_variables, reason = "some mappings have no fields yet")]
            fn read_field<'de, A: ::serde::de::MapAccess<'de>>(
                &mut self,
                index: usize,
                map: &mut A,
            ) -> Result<(), A::Error> {
                #[allow(non_camel_case_types, clippy::enum_variant_names, reason = "these are field names")]
                enum Index { $($field,)* EndOfFields }
                match index {
                    $(i if i == Index::$field as usize => object!(@read self.$field, map $(, $mode)?),)*
                    rest => {
                        let rest = rest - Index::EndOfFields as usize;
                        object!(@read_rest self, rest, map, $($rest)*)
                    }
                }
            }

            fn write_fields<M: ::serde::ser::SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
                object!(@write_rest self, map, $($rest)*);
                $(object!(@write self.$field, $wire, map $(, $mode)?);)*
                Ok(())
            }
        }

        impl $crate::object::Absent for $name {}

        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                $crate::object::deserialize(deserializer)
            }
        }

        impl ::serde::Serialize for $name {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                $crate::object::serialize(self, serializer)
            }
        }
    };

    (@names { $($wire:literal),* }) => { &[$($wire),*] };
    (@names { $($wire:literal),* } kind) => { &[$($wire,)* "apiVersion", "kind"] };
    (@names { $($wire:literal),* } dropped $dropped:literal) => { &[$($wire,)* $dropped] };
    (@names { $($wire:literal),* } inline $inline:ident: $type:ty) => {{
        const OWN: &[&str] = &[$($wire),*];
        const INLINE: &[&str] = <$type as $crate::object::Fields>::NAMES;
        &$crate::object::joined::<{ OWN.len() + INLINE.len() }>(OWN, INLINE)
    }};

    (@read $self:ident.$field:ident, $map:ident $(, always)?) => { $crate::object::read($map, &mut $self.$field) };
    (@read $self:ident.$field:ident, $map:ident, word) => { $crate::object::read_word($map, &mut $self.$field) };
    (@read_rest $self:ident, $index:ident, $map:ident,) => { $crate::object::read_nothing($map) };
    (@read_rest $self:ident, $index:ident, $map:ident, kind) => {
        $crate::object::read_type::<Self, A>($index, $map)
    };
    (@read_rest $self:ident, $index:ident, $map:ident, dropped $dropped:literal) => {
        $crate::object::read_dropped($map)
    };
    (@read_rest $self:ident, $index:ident, $map:ident, inline $inline:ident: $type:ty) => {
        $crate::object::Fields::read_field(&mut $self.$inline, $index, $map)
    };

    (@write $self:ident.$field:ident, $wire:literal, $map:ident, always) => {
        $map.serialize_entry($wire, &$self.$field)?;
    };
    (@write $self:ident.$field:ident, $wire:literal, $map:ident $(, word)?) => {
        if !$crate::object::Absent::is_absent(&$self.$field) {
            $map.serialize_entry($wire, &$self.$field)?;
        }
    };
    (@write_rest $self:ident, $map:ident, $(dropped $dropped:literal)?) => {};
    (@write_rest $self:ident, $map:ident, kind) => {
        $map.serialize_entry("apiVersion", <Self as $crate::object::Object>::API_VERSION)?;
        $map.serialize_entry("kind", <Self as $crate::object::Object>::KIND)?;
    };
    (@write_rest $self:ident, $map:ident, inline $inline:ident: $type:ty) => {
        $crate::object::Fields::write_fields(&$self.$inline, $map)?;
    };
}

/// Declares a closed set of words, as [`text_enum!`](crate::text_enum) does but in 16 bytes. Where nothing says which
/// word it is, it is the empty one.
macro_rules! words {
    ($(#[$meta:meta])* pub enum $name:ident { $($variant:ident = $text:literal,)* }) => {
        $crate::text_enum! {
            $(#[$meta])*
            pub enum $name { $($variant = $text,)* }
        }

        impl Default for $name {
            fn default() -> $name {
                $name::from("")
            }
        }

        impl $crate::object::Absent for $name {
            fn is_absent(&self) -> bool {
                self.as_str().is_empty()
            }
        }
    };
}

pub(crate) use {object, words};

pub(crate) const fn joined<const N: usize>(
    first: &[&'static str],
    second: &[&'static str],
) -> [&'static str; N] {
    let mut names = [""; N];
    let mut index = 0;
    while index < N {
        names[index] = if index < first.len() { first[index] } else { second[index - first.len()] };
        index += 1;
    }
    names
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>, T: Fields>(deserializer: D) -> Result<T, D::Error> {
    deserializer.deserialize_struct("", T::NAMES, MappingVisitor(PhantomData))
}

pub(crate) fn serialize<S: Serializer, T: Fields>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    value.write_fields(&mut map)?;
    map.end()
}

/// Reads a field; a null is as good as an absent one.
pub(crate) fn read<'de, A: MapAccess<'de>, T: Deserialize<'de> + Default>(
    map: &mut A,
    field: &mut T,
) -> Result<(), A::Error> {
    *field = map.next_value::<Option<T>>()?.unwrap_or_default();
    Ok(())
}

/// Reads a closed set that is absent when it is the empty word.
pub(crate) fn read_word<'de, A: MapAccess<'de>, T: Deserialize<'de> + Absent>(
    map: &mut A,
    field: &mut Option<T>,
) -> Result<(), A::Error> {
    *field = map.next_value::<Option<T>>()?.filter(|word| !word.is_absent());
    Ok(())
}

pub(crate) fn read_nothing<'de, A: MapAccess<'de>>(map: &mut A) -> Result<(), A::Error> {
    map.next_value::<IgnoredAny>().map(drop)
}

/// Checks the API version (0) or the kind (1) of an object.
pub(crate) fn read_type<'de, T: Object, A: MapAccess<'de>>(
    index: usize,
    map: &mut A,
) -> Result<(), A::Error> {
    map.next_value_seed(ExactText(if index == 0 { T::API_VERSION } else { T::KIND }))
}

struct ExactText(&'static str);

impl<'de> de::DeserializeSeed<'de> for ExactText {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Visitor<'_> for ExactText {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<(), E> {
        match text.is_empty() || text == self.0 {
            true => Ok(()),
            false => {
                let found: String = text.chars().take(100).collect();
                Err(E::custom(format_args!("expected {}, found {found:?}", self.0)))
            }
        }
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        Ok(())
    }
}

struct MappingVisitor<T>(PhantomData<T>);

impl<'de, T: Fields> Visitor<'de> for MappingVisitor<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a mapping")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
        let mut value = T::default();
        let mut next = 0;
        while let Some(found) = map.next_key_seed(Name { names: T::NAMES, next })? {
            match found {
                Some(index) => {
                    value.read_field(index, &mut map)?;
                    next = index + 1;
                }
                None => read_nothing(&mut map)?,
            }
        }
        Ok(value)
    }
}

/// Finds the index of a name. Go writes fields in the order of the struct, so the search begins after the last one.
struct Name {
    names: &'static [&'static str],
    next: usize,
}

impl<'de> de::DeserializeSeed<'de> for Name {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<usize>, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for Name {
    type Value = Option<usize>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a field name")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Option<usize>, E> {
        let (before, after) = self.names.split_at(self.next);
        let found = after.iter().position(|name| *name == text).map(|index| index + self.next);
        Ok(found.or_else(|| before.iter().position(|name| *name == text)))
    }
}

/// Reads past a field that is known but not kept.
pub(crate) fn read_dropped<'de, A: MapAccess<'de>>(map: &mut A) -> Result<(), A::Error> {
    map.next_value::<Dropped>().map(drop)
}

struct Dropped;

impl<'de> Deserialize<'de> for Dropped {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Dropped, D::Error> {
        deserializer.deserialize_newtype_struct(DROPPED, DroppedVisitor)
    }
}

struct DroppedVisitor;

impl<'de> Visitor<'de> for DroppedVisitor {
    type Value = Dropped;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("anything")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Dropped, E> {
        Ok(Dropped)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Dropped, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Dropped)
    }
}
