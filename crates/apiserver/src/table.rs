//! The forms an object is answered in: whole, its metadata alone, or a row of a table.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::resources::Resource;

/// What a client wants to see of objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    #[default]
    Whole,
    /// `as=PartialObjectMetadata`
    Metadata,
    /// `as=Table`, with this much of the object in each row.
    Table(IncludeObject),
}

/// `includeObject` of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IncludeObject {
    None,
    #[default]
    Metadata,
    Object,
}

impl Form {
    /// Whether what is stored can be sent without being decoded.
    pub fn is_stored_as_is(self, resource: &Resource) -> bool {
        self == Form::Whole && resource.group != "events.k8s.io"
    }

    /// One object.
    pub fn show_one(
        self,
        resource: &'static Resource,
        object: Value,
        now: Timestamp,
        with_columns: bool,
    ) -> Value {
        let _ = (now, with_columns);
        match self {
            Form::Whole => object,
            Form::Metadata => metadata_alone(&object),
            Form::Table(_) => table(resource, &[object], now),
        }
    }

    /// A list, with its metadata.
    pub fn show_list(
        self,
        resource: &'static Resource,
        objects: Vec<Value>,
        metadata: Value,
        now: Timestamp,
    ) -> Value {
        match self {
            Form::Whole => json!({
                "kind": format!("{}List", resource.kind),
                "apiVersion": resource.api_version(),
                "metadata": metadata,
                "items": objects,
            }),
            Form::Metadata => json!({
                "kind": "PartialObjectMetadataList",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": metadata,
                "items": objects.iter().map(metadata_alone).collect::<Vec<_>>(),
            }),
            Form::Table(_) => {
                let mut table = table(resource, &objects, now);
                table["metadata"] = metadata;
                table
            }
        }
    }

    /// A bookmark, given as an object with nothing but a version.
    pub fn bookmark(self, resource: &'static Resource, bare: Value) -> Value {
        let _ = resource;
        bare
    }
}

fn metadata_alone(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}

fn table(resource: &'static Resource, objects: &[Value], now: Timestamp) -> Value {
    let _ = (resource, objects, now);
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "columnDefinitions": [], "rows": []})
}
