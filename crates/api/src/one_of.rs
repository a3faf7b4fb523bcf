//! [`OneOf`]: one of several things, each under its own name in the same mapping.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::MapAccess, ser::SerializeMap};

use crate::object::{self, Absent, Fields};

/// One thing of a closed choice. Kubernetes writes a choice as a mapping with a field for each kind of thing, of
/// which exactly one should be there. An invalid object has none or several, and so has one of a newer peer that
/// knows a kind that we do not; validation can tell.
#[derive(Clone, PartialEq, Eq, Default)]
pub enum OneOf<T> {
    /// Nothing that we know.
    #[default]
    Nothing,
    /// As it should be.
    One(T),
    /// More than one, in the order in which they were read.
    #[allow(
        clippy::box_collection,
        reason = "this never happens in a valid object and must not take space there"
    )]
    Several(Box<Vec<T>>),
}

impl<T> OneOf<T> {
    /// The thing, where there is exactly one.
    pub fn one(&self) -> Option<&T> {
        match self {
            OneOf::One(one) => Some(one),
            OneOf::Nothing | OneOf::Several(_) => None,
        }
    }

    /// The thing, where there is exactly one.
    pub fn one_mut(&mut self) -> Option<&mut T> {
        match self {
            OneOf::One(one) => Some(one),
            OneOf::Nothing | OneOf::Several(_) => None,
        }
    }

    /// All the things that are there.
    pub fn as_slice(&self) -> &[T] {
        match self {
            OneOf::Nothing => &[],
            OneOf::One(one) => std::slice::from_ref(one),
            OneOf::Several(all) => all,
        }
    }

    /// All the things that are there.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        match self {
            OneOf::Nothing => &mut [],
            OneOf::One(one) => std::slice::from_mut(one),
            OneOf::Several(all) => all,
        }
    }
}

impl<T> From<T> for OneOf<T> {
    fn from(one: T) -> OneOf<T> {
        OneOf::One(one)
    }
}

impl<T: fmt::Debug> fmt::Debug for OneOf<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OneOf::One(one) => one.fmt(formatter),
            other => other.as_slice().fmt(formatter),
        }
    }
}

/// The things of a choice; `one_of!` implements it.
pub(crate) trait Choice: Sized {
    const NAMES: &'static [&'static str];

    /// Reads the thing under the name `NAMES[index]`; a null is none.
    fn read<'de, A: MapAccess<'de>>(index: usize, map: &mut A) -> Result<Option<Self>, A::Error>;

    /// Writes the thing under its name.
    fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error>;

    /// Where its name is in `NAMES`.
    fn index(&self) -> usize;
}

/// Declares the things of a choice, each with its name on the wire.
macro_rules! one_of {
    ($(#[$meta:meta])* pub enum $name:ident { $($variant:ident($type:ty) = $wire:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum $name {
            $($variant(Box<$type>),)*
        }

        $(impl From<$type> for $name {
            fn from(thing: $type) -> $name {
                $name::$variant(Box::new(thing))
            }
        })*

        const _: () = {
            #[allow(clippy::enum_variant_names, reason = "these are the names of the things")]
            enum Index { $($variant,)* }

            impl $crate::one_of::Choice for $name {
                const NAMES: &'static [&'static str] = &[$($wire),*];

                fn read<'de, A: ::serde::de::MapAccess<'de>>(
                    index: usize,
                    map: &mut A,
                ) -> Result<Option<Self>, A::Error> {
                    match index {
                        $(i if i == Index::$variant as usize => {
                            Ok(map.next_value::<Option<Box<$type>>>()?.map($name::$variant))
                        })*
                        _ => $crate::object::read_nothing(map).map(|()| None),
                    }
                }

                fn write<M: ::serde::ser::SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
                    match self {
                        $($name::$variant(thing) => map.serialize_entry($wire, thing),)*
                    }
                }

                fn index(&self) -> usize {
                    match self {
                        $($name::$variant(_) => Index::$variant as usize,)*
                    }
                }
            }
        };
    };
}

pub(crate) use one_of;

impl<T: Choice> Fields for OneOf<T> {
    const NAMES: &'static [&'static str] = T::NAMES;

    fn read_field<'de, A: MapAccess<'de>>(&mut self, index: usize, map: &mut A) -> Result<(), A::Error> {
        let Some(thing) = T::read(index, map)? else { return Ok(()) };
        if let Some(same) = self.as_mut_slice().iter_mut().find(|other| other.index() == index) {
            *same = thing;
            return Ok(());
        }
        *self = match std::mem::take(self) {
            OneOf::Nothing => OneOf::One(thing),
            OneOf::One(first) => OneOf::Several(Box::new(vec![first, thing])),
            OneOf::Several(mut all) => {
                all.push(thing);
                OneOf::Several(all)
            }
        };
        Ok(())
    }

    fn write_fields<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        self.as_slice().iter().try_for_each(|thing| thing.write(map))
    }
}

impl<T> Absent for OneOf<T> {}

impl<'de, T: Choice> Deserialize<'de> for OneOf<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<OneOf<T>, D::Error> {
        object::deserialize(deserializer)
    }
}

impl<T: Choice> Serialize for OneOf<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        object::serialize(self, serializer)
    }
}
