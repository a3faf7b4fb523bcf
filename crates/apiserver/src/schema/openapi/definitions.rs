//! The definitions of the types, each once, with all that they refer to.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::Version;
use crate::resources::Resource;
use crate::schema::types::{self, Field, Item, Type};

/// What a `$ref` is to.
#[derive(Clone, Copy)]
pub(super) enum Reference {
    Type(&'static Type),
    /// The list of the objects of a type.
    List(&'static Type),
    /// What is no type in the files.
    Named(&'static str),
}

impl Reference {
    pub(super) const PATCH: Reference = Reference::Named("apis.meta.v1.Patch");
    pub(super) const DELETE_OPTIONS: Reference = Reference::Named("apis.meta.v1.DeleteOptions");
    pub(super) const STATUS: Reference = Reference::Named("apis.meta.v1.Status");
    const QUANTITY: Reference = Reference::Named("api.resource.Quantity");
    const INT_OR_STRING: Reference = Reference::Named("util.intstr.IntOrString");
    const TIME: Reference = Reference::Named("apis.meta.v1.Time");
    const MICRO_TIME: Reference = Reference::Named("apis.meta.v1.MicroTime");
    const FIELDS_V1: Reference = Reference::Named("apis.meta.v1.FieldsV1");
    const RAW_EXTENSION: Reference = Reference::Named("runtime.RawExtension");

    fn name(self) -> String {
        match self {
            Reference::Type(type_) => name_of(type_),
            Reference::List(type_) => format!("{}List", name_of(type_)),
            Reference::Named(name) => format!("io.k8s.apimachinery.pkg.{name}"),
        }
    }

    pub(super) fn path(self, version: Version) -> String {
        match version {
            Version::V2 => format!("#/definitions/{}", self.name()),
            Version::V3 => format!("#/components/schemas/{}", self.name()),
        }
    }
}

/// `io.k8s.api.core.v1.Pod`
fn name_of(type_: &Type) -> String {
    let (package, name) = (type_.package(), type_.name);
    match type_.file {
        "meta" => format!("io.k8s.apimachinery.pkg.apis.meta.{package}.{name}"),
        file => format!("io.k8s.api.{}.{package}.{name}", file.split('.').next().unwrap_or(file)),
    }
}

/// The API group that the types of a file are in.
fn group_of(type_: &Type) -> String {
    match type_.file.split('.').next().unwrap_or_default() {
        "core" | "meta" => String::new(),
        "policy" => "policy".to_owned(),
        "rbac" => "rbac.authorization.k8s.io".to_owned(),
        file => format!("{file}.k8s.io"),
    }
}

pub(super) struct Definitions {
    version: Version,
    made: BTreeMap<String, Value>,
    /// Referred to, and not made yet.
    waiting: Vec<&'static Type>,
}

impl Definitions {
    pub(super) fn new(version: Version) -> Definitions {
        let mut definitions = Definitions { version, made: BTreeMap::new(), waiting: Vec::new() };
        definitions.made.insert(Reference::PATCH.name(), json!({"type": "object"}));
        // Every operation refers to them.
        definitions.add("meta.DeleteOptions");
        definitions.add("meta.Status");
        definitions
    }

    /// Adds a type of the schema.
    pub(super) fn add(&mut self, schema: &str) -> Reference {
        match types::find(schema) {
            Some(type_) => {
                self.waiting.push(type_);
                Reference::Type(type_)
            }
            // All that resources name is there, which a test holds.
            None => Reference::PATCH,
        }
    }

    pub(super) fn add_list(&mut self, resource: &Resource) -> Reference {
        let (Reference::Type(type_), Some(meta)) = (self.add(resource.schema), types::find("meta.ListMeta"))
        else {
            return Reference::PATCH;
        };
        self.waiting.push(meta);
        let list = Reference::List(type_);
        let definition = json!({
            "type": "object",
            "required": ["items"],
            "properties": {
                "apiVersion": {"type": "string"},
                "items": {"type": "array", "items": self.refer(Reference::Type(type_))},
                "kind": {"type": "string"},
                "metadata": self.refer(Reference::Type(meta)),
            },
            "x-kubernetes-group-version-kind":
                [{"group": resource.group, "version": resource.version, "kind": format!("{}List", resource.kind)}],
        });
        self.made.insert(list.name(), definition);
        list
    }

    /// All definitions, by their names.
    pub(super) fn finish(mut self) -> BTreeMap<String, Value> {
        while let Some(type_) = self.waiting.pop() {
            let name = name_of(type_);
            if !self.made.contains_key(&name) {
                let definition = self.definition(type_);
                self.made.insert(name, definition);
            }
        }
        self.made
    }

    fn definition(&mut self, type_: &'static Type) -> Value {
        let (mut properties, mut required) = (Map::new(), Vec::new());
        if type_.is_object {
            for field in ["apiVersion", "kind"] {
                properties.insert(field.to_owned(), json!({"type": "string"}));
            }
        }
        type_.each(&mut |_, field, _| {
            properties.insert(field.name.to_owned(), self.property(field));
            if field.is_required() {
                required.push(field.name);
            }
        });
        let mut definition = json!({"type": "object"});
        if !properties.is_empty() {
            definition["properties"] = Value::Object(properties);
        }
        if !required.is_empty() {
            definition["required"] = json!(required);
        }
        if type_.is_object {
            definition["x-kubernetes-group-version-kind"] =
                json!([{"group": group_of(type_), "version": type_.package(), "kind": type_.name}]);
        }
        definition
    }

    fn property(&mut self, field: &'static Field) -> Value {
        let mut schema = self.item(field);
        if let Some(values) = field.enumeration() {
            schema["enum"] = values.collect::<Vec<_>>().into();
        }
        // Upstream wraps what has a default, which a quantity among others has not.
        if field.shape.item == Item::Quantity && (field.shape.is_list || field.shape.is_map) {
            schema = json!({"$ref": Reference::QUANTITY.path(self.version)});
        }
        if field.shape.is_list {
            schema = json!({"type": "array", "items": schema});
        }
        if field.shape.is_map {
            schema = json!({"type": "object", "additionalProperties": schema});
        }
        for (name, value) in [
            ("x-kubernetes-patch-strategy", field.patch_strategy()),
            ("x-kubernetes-patch-merge-key", field.merge_key()),
        ] {
            if !value.is_empty() {
                schema[name] = value.into();
            }
        }
        schema
    }

    fn item(&mut self, field: &'static Field) -> Value {
        let v3 = self.version == Version::V3;
        let date = || json!({"type": "string", "format": "date-time"});
        match field.shape.item {
            Item::Text => json!({"type": "string"}),
            Item::Int32 => json!({"type": "integer", "format": "int32"}),
            Item::Int64 => json!({"type": "integer", "format": "int64"}),
            Item::Bool => json!({"type": "boolean"}),
            Item::Double => json!({"type": "number", "format": "double"}),
            Item::Bytes => json!({"type": "string", "format": "byte"}),
            Item::Quantity if v3 => {
                self.special(Reference::QUANTITY, json!({"oneOf": [{"type": "string"}, {"type": "number"}]}))
            }
            Item::Quantity => self.special(Reference::QUANTITY, json!({"type": "string"})),
            Item::IntOrString if v3 => self.special(
                Reference::INT_OR_STRING,
                json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]}),
            ),
            Item::IntOrString => {
                self.special(Reference::INT_OR_STRING, json!({"type": "string", "format": "int-or-string"}))
            }
            Item::Time => self.special(Reference::TIME, date()),
            Item::MicroTime => self.special(Reference::MICRO_TIME, date()),
            Item::Raw if field.is_fields_v1() => {
                self.special(Reference::FIELDS_V1, json!({"type": "object"}))
            }
            Item::Raw => self.special(Reference::RAW_EXTENSION, json!({"type": "object"})),
            Item::Struct(id) => {
                let type_ = id.get();
                self.waiting.push(type_);
                self.refer(Reference::Type(type_))
            }
        }
    }

    /// A type that is not in the files.
    fn special(&mut self, reference: Reference, definition: Value) -> Value {
        self.made.entry(reference.name()).or_insert(definition);
        self.refer(reference)
    }

    /// What stands for a definition. In the third version nothing may stand beside a reference, so it is wrapped.
    fn refer(&self, reference: Reference) -> Value {
        let path = reference.path(self.version);
        match self.version {
            Version::V2 => json!({"$ref": path}),
            Version::V3 => json!({"allOf": [{"$ref": path}]}),
        }
    }
}
