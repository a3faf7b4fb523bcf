//! The types and their fields, read once from `schema/*.txt`.
//!
//! A type is a line of its own, with `object` if it has `apiVersion` and `kind`. Its fields follow, indented: a name, a
//! number in protobuf, a type, and flags. `always` is written even when empty; `pointer` keeps a zero that was said;
//! `required` and `enum=` (the last, its values with `|` between) are for OpenAPI; `patch=` and `key=` for strategic
//! merge patches; `go=` is the type in Go's words where it has a name of its own; `inline` is embedded: its fields are
//! the parent's in JSON, and a message of its own in protobuf.
//!
//! The text stays where it is in the program; a field is a few numbers and two pieces of its line.

use std::collections::BTreeMap;
use std::sync::LazyLock;

static FILES: &[(&str, &str)] = &[
    ("authentication", include_str!("../../schema/authentication.txt")),
    ("authorization", include_str!("../../schema/authorization.txt")),
    ("certificates", include_str!("../../schema/certificates.txt")),
    ("certificates.v1beta1", include_str!("../../schema/certificates.v1beta1.txt")),
    ("coordination", include_str!("../../schema/coordination.txt")),
    ("core", include_str!("../../schema/core.txt")),
    ("events", include_str!("../../schema/events.txt")),
    // What upstream decodes a JSON patch as before it reads it.
    ("handlers", "jsonPatchOp\n  op 0 string\n  path 0 string\n  from 0 string\n  value 0 raw\n"),
    ("meta", include_str!("../../schema/meta.txt")),
    ("node", include_str!("../../schema/node.txt")),
    ("policy", include_str!("../../schema/policy.txt")),
    ("rbac", include_str!("../../schema/rbac.txt")),
    ("resource", include_str!("../../schema/resource.txt")),
    ("scheduling", include_str!("../../schema/scheduling.txt")),
    ("storage", include_str!("../../schema/storage.txt")),
    // What upstream's cases of strategic merge patches are for.
    #[cfg(test)]
    ("test", include_str!("../../tests/data/strategic_merge_patches.txt")),
];

static TYPES: LazyLock<Types> = LazyLock::new(Types::read);

/// The type of a name such as `core.Pod`.
pub(crate) fn find(name: &str) -> Option<&'static Type> {
    let (file, name) = name.rsplit_once('.')?;
    TYPES.find(file, name)
}

/// What the types are read from.
pub(crate) fn texts() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(_, text)| *text)
}

/// All types of the files, `meta.ObjectMeta` as well as `core.Pod`.
#[cfg(test)]
pub(crate) fn all() -> impl Iterator<Item = &'static Type> {
    TYPES.types.iter()
}

struct Types {
    types: Vec<Type>,
    by_name: BTreeMap<(&'static str, &'static str), u16>,
}

/// A type: what is a struct in Go and a message in protobuf.
pub(crate) struct Type {
    /// The file that it is from, which stands for Go's package.
    pub(crate) file: &'static str,
    pub(crate) name: &'static str,
    /// Whether it has `apiVersion` and `kind`.
    pub(crate) is_object: bool,
    /// In the order of Go.
    pub(crate) fields: Vec<Field>,
    /// The fields' places, by their names.
    sorted: Box<[u16]>,
}

pub(crate) struct Field {
    /// Empty for a type that is embedded.
    pub(crate) name: &'static str,
    /// In protobuf; 0 for what is not in it.
    pub(crate) number: u16,
    pub(crate) shape: Shape,
    flags: u8,
    /// `patch=`, `key=`, `go=` and `enum=`, as they are written.
    rest: &'static str,
}

const ALWAYS: u8 = 1;
const POINTER: u8 = 2;
const REQUIRED: u8 = 4;
const INLINE: u8 = 8;

/// What a field holds: an item, a list of them, a map of them, or a map of lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) is_map: bool,
    pub(crate) is_list: bool,
    pub(crate) item: Item,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    Text,
    Int32,
    Int64,
    Bool,
    Double,
    Bytes,
    Quantity,
    Time,
    MicroTime,
    IntOrString,
    Raw,
    Struct(TypeId),
}

/// Where a type is in the list of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TypeId(u16);

impl TypeId {
    pub(crate) fn get(self) -> &'static Type {
        &TYPES.types[usize::from(self.0)]
    }
}

/// A field that was found by its name in JSON.
pub(crate) struct Found {
    pub(crate) field: &'static Field,
    /// The type that has it: the one that was asked, or one that is embedded in it.
    pub(crate) owner: &'static Type,
    /// A number that no other field of the type has.
    pub(crate) slot: usize,
}

impl Type {
    /// The field of a name, whether it is the type's own or one of what is embedded in it.
    pub(crate) fn find(&'static self, name: &str) -> Option<Found> {
        let place = self.sorted.binary_search_by(|index| self.fields[usize::from(*index)].name.cmp(name));
        if let Ok(place) = place {
            let slot = usize::from(self.sorted[place]);
            return Some(Found { field: &self.fields[slot], owner: self, slot });
        }
        let mut base = self.fields.len();
        for inner in self.embedded() {
            if let Some(found) = inner.find(name) {
                return Some(Found { slot: base + found.slot, ..found });
            }
            base += inner.slots();
        }
        None
    }

    /// Calls for each field, those of embedded types in their places, with its slot.
    pub(crate) fn each(&'static self, visit: &mut impl FnMut(usize, &'static Field, &'static Type)) {
        self.each_from(0, visit);
    }

    fn each_from(
        &'static self,
        first: usize,
        visit: &mut impl FnMut(usize, &'static Field, &'static Type),
    ) -> usize {
        let mut base = first + self.fields.len();
        for (index, field) in self.fields.iter().enumerate() {
            match field.embedded() {
                Some(inner) => base = inner.each_from(base, visit),
                None => visit(first + index, field, self),
            }
        }
        base
    }

    fn slots(&'static self) -> usize {
        self.fields.len() + self.embedded().map(Type::slots).sum::<usize>()
    }

    fn embedded(&'static self) -> impl Iterator<Item = &'static Type> {
        self.fields.iter().filter_map(Field::embedded)
    }

    pub(crate) fn by_number(&self, number: u64) -> Option<&Field> {
        self.fields.iter().find(|field| u64::from(field.number) == number && number != 0)
    }

    /// What Go calls its package.
    pub(crate) fn package(&self) -> &'static str {
        match self.file {
            "certificates.v1beta1" => "v1beta1",
            "handlers" => "handlers",
            _ => "v1",
        }
    }

    /// `v1.Pod`
    pub(crate) fn go_name(&self) -> String {
        format!("{}.{}", self.package(), self.name)
    }
}

impl Field {
    /// Whether it is written when it is empty, too.
    pub(crate) fn is_always(&self) -> bool {
        self.flags & ALWAYS != 0
    }

    /// Whether what was said is told apart from what was not, even if it is zero.
    pub(crate) fn is_pointer(&self) -> bool {
        self.flags & POINTER != 0
    }

    pub(crate) fn is_required(&self) -> bool {
        self.flags & REQUIRED != 0
    }

    pub(crate) fn embedded(&self) -> Option<&'static Type> {
        match self.shape.item {
            Item::Struct(id) if self.flags & INLINE != 0 => Some(id.get()),
            _ => None,
        }
    }

    fn word(&self, name: &str) -> Option<&'static str> {
        self.rest.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    /// `merge`, `replace`, `merge,retainKeys`, or nothing.
    pub(crate) fn patch_strategy(&self) -> &'static str {
        self.word("patch").unwrap_or_default()
    }

    pub(crate) fn merge_key(&self) -> &'static str {
        self.word("key").unwrap_or_default()
    }

    /// The values that OpenAPI lists.
    pub(crate) fn enumeration(&self) -> Option<impl Iterator<Item = &'static str>> {
        let at = self.rest.find("enum=")?;
        Some(self.rest[at + "enum=".len()..].split('|'))
    }

    /// The type in Go's words, where it is not what its shape says: `v1.RestartPolicy`, `v1.ResourceList`.
    fn named_go_type(&self) -> Option<&'static str> {
        self.word("go")
    }

    pub(crate) fn is_fields_v1(&self) -> bool {
        self.named_go_type() == Some("v1.FieldsV1")
    }

    /// The type in Go's words, or that of its elements, or of their elements.
    pub(crate) fn go_type(&self, depth: usize) -> String {
        let mut named = self.named_go_type();
        for _ in 0..depth {
            named = named.and_then(|name| match name.strip_prefix("[]") {
                Some(element) => Some(element),
                None => name.strip_prefix("map[").and_then(|rest| rest.split_once(']')).map(|(_, rest)| rest),
            });
        }
        named.map(str::to_owned).unwrap_or_else(|| self.shape.inner(depth).go_type())
    }
}

impl Shape {
    /// The shape of the elements.
    fn inner(self, depth: usize) -> Shape {
        match (depth, self.is_map, self.is_list) {
            (0, _, _) => self,
            (_, true, _) => Shape { is_map: false, ..self }.inner(depth - 1),
            (_, false, true) => Shape { is_list: false, ..self }.inner(depth - 1),
            (_, false, false) => self,
        }
    }

    fn go_type(self) -> String {
        let map = if self.is_map { "map[string]" } else { "" };
        let list = if self.is_list { "[]" } else { "" };
        format!("{map}{list}{}", self.item.go_type())
    }
}

impl Item {
    fn go_type(self) -> String {
        match self {
            Item::Text => "string",
            Item::Int32 => "int32",
            Item::Int64 => "int64",
            Item::Bool => "bool",
            Item::Double => "float64",
            Item::Bytes => "[]uint8",
            Item::Quantity => "resource.Quantity",
            Item::Time => "v1.Time",
            Item::MicroTime => "v1.MicroTime",
            Item::IntOrString => "intstr.IntOrString",
            Item::Raw => "runtime.RawExtension",
            Item::Struct(id) => return id.get().go_name(),
        }
        .to_owned()
    }
}

impl Types {
    fn find(&self, file: &str, name: &str) -> Option<&Type> {
        self.by_name.get(&(file, name)).map(|index| &self.types[usize::from(*index)])
    }

    fn read() -> Types {
        let mut by_name = BTreeMap::new();
        for &(file, text) in FILES {
            for line in text.lines().filter(|line| !line.starts_with(' ')) {
                let name = line.split(' ').next().unwrap_or_default();
                by_name.insert((file, name), by_name.len() as u16);
            }
        }
        let mut types: Vec<Type> = Vec::with_capacity(by_name.len());
        for &(file, text) in FILES {
            for line in text.lines() {
                match line.strip_prefix("  ") {
                    None => types.push(Type::read(file, line)),
                    Some(line) => {
                        let field = Field::read(file, line, &by_name);
                        types.last_mut().expect("a file begins with a type").fields.push(field);
                    }
                }
            }
        }
        for each in &mut types {
            let named = (0..each.fields.len() as u16).filter(|index| {
                let field = &each.fields[usize::from(*index)];
                field.flags & INLINE == 0
            });
            let mut sorted: Vec<u16> = named.collect();
            sorted.sort_by_key(|index| each.fields[usize::from(*index)].name);
            each.sorted = sorted.into();
            each.fields.shrink_to_fit();
        }
        Types { types, by_name }
    }
}

impl Type {
    fn read(file: &'static str, line: &'static str) -> Type {
        let (name, flag) = line.split_once(' ').unwrap_or((line, ""));
        Type { file, name, is_object: flag == "object", fields: Vec::new(), sorted: Box::default() }
    }
}

impl Field {
    fn read(
        file: &'static str,
        line: &'static str,
        by_name: &BTreeMap<(&'static str, &'static str), u16>,
    ) -> Field {
        let malformed = || -> ! { panic!("schema/{file}.txt: {line:?}") };
        let mut parts = line.splitn(3, ' ');
        let (Some(name), Some(number), Some(mut rest)) = (parts.next(), parts.next(), parts.next()) else {
            malformed()
        };
        let mut shape = Shape { is_map: false, is_list: false, item: Item::Text };
        if let Some(inner) = rest.strip_prefix("map ") {
            (shape.is_map, rest) = (true, inner);
        }
        if let Some(inner) = rest.strip_prefix("[]") {
            (shape.is_list, rest) = (true, inner);
        }
        let (item, mut rest) = rest.split_once(' ').unwrap_or((rest, ""));
        shape.item = match item {
            "string" => Item::Text,
            "int32" => Item::Int32,
            "int64" => Item::Int64,
            "bool" => Item::Bool,
            "double" => Item::Double,
            "bytes" => Item::Bytes,
            "quantity" => Item::Quantity,
            "time" => Item::Time,
            "microtime" => Item::MicroTime,
            "intstr" => Item::IntOrString,
            "raw" => Item::Raw,
            name => {
                let key = name.rsplit_once('.').unwrap_or((file, name));
                Item::Struct(TypeId(by_name.get(&key).copied().unwrap_or_else(|| malformed())))
            }
        };
        let mut flags = 0;
        loop {
            let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
            flags |= match word {
                "always" => ALWAYS,
                "pointer" => POINTER,
                "required" => REQUIRED,
                "inline" => INLINE,
                _ => break,
            };
            rest = after;
        }
        let number = number.parse().unwrap_or_else(|_| malformed());
        let name = if flags & INLINE != 0 { "" } else { name };
        Field { name, number, shape, flags, rest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::RESOURCES;

    #[test]
    fn every_line_of_the_schema_is_read_and_every_type_that_is_named_is_there() {
        // Reading panics at a line that is malformed or names what is not there.
        assert!(all().count() > 250, "{}", all().count());
        for each in all() {
            for field in &each.fields {
                let words = field.rest.split(" enum=").next().unwrap_or_default().split(' ');
                for word in words.filter(|word| !word.is_empty()) {
                    let known =
                        ["patch=", "key=", "go=", "enum="].iter().any(|known| word.starts_with(known));
                    assert!(known, "{}.{}: {word}", each.name, field.name);
                }
            }
            let mut numbers: Vec<u16> = each.fields.iter().map(|field| field.number).collect();
            numbers.retain(|number| *number != 0);
            let count = numbers.len();
            numbers.sort_unstable();
            numbers.dedup();
            assert_eq!(numbers.len(), count, "{}: a number is there twice", each.name);
            assert!(each.slots() <= 128, "{}: more fields than a set of bits has", each.name);
        }
    }

    #[test]
    fn every_resource_has_its_schema() {
        for resource in RESOURCES {
            let found = find(resource.schema).unwrap_or_else(|| panic!("{}", resource.schema));
            assert!(found.is_object && found.name == resource.kind, "{}", resource.schema);
        }
    }

    #[test]
    fn fields_of_embedded_types_are_found_as_the_types_own() {
        let volume = find("core.Volume").unwrap();
        let found = volume.find("hostPath").unwrap();
        assert_eq!(
            (found.owner.name, found.field.go_type(0).as_str()),
            ("VolumeSource", "v1.HostPathVolumeSource")
        );
        assert!(volume.find("nothing").is_none() && volume.find("").is_none());
        let mut slots = Vec::new();
        volume.each(&mut |slot, field, _| slots.push((slot, field.name)));
        for (slot, name) in slots {
            assert_eq!(volume.find(name).unwrap().slot, slot, "{name}");
        }
    }

    #[test]
    fn types_are_named_as_go_names_them() {
        for (owner, field, depth, expected) in [
            ("core.PodSpec", "containers", 0, "[]v1.Container"),
            ("core.PodSpec", "containers", 1, "v1.Container"),
            ("core.PodSpec", "restartPolicy", 0, "v1.RestartPolicy"),
            ("core.PodSpec", "nodeSelector", 0, "map[string]string"),
            ("core.ResourceRequirements", "limits", 0, "v1.ResourceList"),
            ("core.PersistentVolumeSpec", "accessModes", 1, "v1.PersistentVolumeAccessMode"),
            ("meta.ObjectMeta", "uid", 0, "types.UID"),
            ("core.Secret", "data", 0, "map[string][]uint8"),
            ("core.Secret", "data", 1, "[]uint8"),
            ("authentication.UserInfo", "extra", 1, "v1.ExtraValue"),
            ("authentication.UserInfo", "extra", 2, "string"),
            ("certificates.v1beta1.PodCertificateRequest", "spec", 0, "v1beta1.PodCertificateRequestSpec"),
        ] {
            let found = find(owner).unwrap().find(field).unwrap();
            assert_eq!(found.field.go_type(depth), expected, "{owner}.{field}");
        }
    }
}
