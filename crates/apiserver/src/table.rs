//! The forms an object is answered in: whole, its metadata alone, or a row of a table.

mod age;
mod core;
mod events;
mod groups;
mod pods;
mod printer;
mod volumes;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::event_conversion;
use crate::object;
use crate::resources::Resource;
use crate::schema;

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
        self == Form::Whole && resource.storage() == resource
    }

    /// One object. The columns of a table are left out where they were told before.
    pub fn show_one(
        self,
        resource: &'static Resource,
        object: Value,
        now: Timestamp,
        with_columns: bool,
    ) -> Value {
        match self {
            Form::Whole => event_conversion::shown(resource, object),
            Form::Metadata => metadata_alone(object),
            Form::Table(include) => {
                let metadata = match object::meta(&object, "resourceVersion") {
                    "" => json!({}),
                    version => json!({"resourceVersion": version}),
                };
                table(resource, vec![object], metadata, now, include, with_columns)
            }
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
                "items": objects.into_iter().map(|object| item(resource, object)).collect::<Vec<_>>(),
            }),
            Form::Metadata => json!({
                "kind": "PartialObjectMetadataList",
                "apiVersion": META,
                "metadata": metadata,
                "items": objects.into_iter().map(metadata_alone).collect::<Vec<_>>(),
            }),
            Form::Table(include) => table(resource, objects, metadata, now, include, true),
        }
    }

    /// A bookmark, given as an object with nothing but a version. It is shown as any other: in a table, as a row of an
    /// object in which everything is empty.
    pub fn bookmark(
        self,
        resource: &'static Resource,
        bare: Value,
        now: Timestamp,
        with_columns: bool,
    ) -> Value {
        match self {
            Form::Whole => written_out(resource, bare),
            Form::Metadata | Form::Table(_) => self.show_one(resource, bare, now, with_columns),
        }
    }
}

const META: &str = "meta.k8s.io/v1";
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// An object of a list does not repeat what it is.
fn item(resource: &Resource, object: Value) -> Value {
    let mut object = event_conversion::shown(resource, object);
    object::remove(&mut object, "kind");
    object::remove(&mut object, "apiVersion");
    object
}

/// An object with all the fields that Go writes of an empty one.
fn written_out(resource: &Resource, bare: Value) -> Value {
    let Ok(decoded) = schema::normalise(resource.schema, &bare) else { return bare };
    let mut object = decoded.object;
    object["kind"] = resource.kind.into();
    object["apiVersion"] = resource.api_version().into();
    object
}

fn metadata_alone(mut object: Value) -> Value {
    let metadata = object["metadata"].take();
    json!({"kind": "PartialObjectMetadata", "apiVersion": META, "metadata": metadata})
}

fn table(
    resource: &'static Resource,
    objects: Vec<Value>,
    metadata: Value,
    now: Timestamp,
    include: IncludeObject,
    with_columns: bool,
) -> Value {
    let printer = printer::of(resource);
    let rows: Vec<Value> = objects
        .into_iter()
        .map(|object| {
            let mut row = json!({"cells": (printer.cells)(&object, now)});
            if let Some(condition) = (printer.condition)(&object) {
                row["conditions"] = json!([condition]);
            }
            row["object"] = included(resource, object, include);
            row
        })
        .collect();
    let columns = match with_columns {
        true => printer.columns.iter().map(printer::Column::shown).collect(),
        false => Value::Null,
    };
    json!({
        "kind": "Table",
        "apiVersion": META,
        "metadata": metadata,
        "columnDefinitions": columns,
        "rows": match printer.is_default() && rows.is_empty() {
            // Go's own table of a kind without columns begins as no list at all.
            true => Value::Null,
            false => rows.into(),
        },
    })
}

/// As much of a row's object as is wanted.
fn included(resource: &Resource, object: Value, include: IncludeObject) -> Value {
    // Who waits for the end of what there is at first finds it in the metadata, whatever else is wanted.
    let is_end = !object["metadata"]["annotations"][INITIAL_EVENTS_END].is_null();
    match include {
        IncludeObject::Object => event_conversion::shown(resource, object),
        IncludeObject::Metadata => metadata_alone(object),
        IncludeObject::None if is_end => metadata_alone(object),
        IncludeObject::None => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::{CLUSTER_ROLES, CONFIG_MAPS, NEW_EVENTS, PODS, RESOURCES};

    fn now() -> Timestamp {
        "2026-01-02T03:04:05Z".parse().unwrap()
    }

    fn config_map() -> Value {
        json!({
            "kind": "ConfigMap",
            "apiVersion": "v1",
            "metadata": {
                "name": "a",
                "namespace": "default",
                "resourceVersion": "7",
                "creationTimestamp": "2026-01-02T03:00:00Z",
            },
            "data": {"b": "c"},
        })
    }

    #[test]
    fn a_table_of_one_object_has_its_version() {
        let table = Form::Table(IncludeObject::Metadata).show_one(&CONFIG_MAPS, config_map(), now(), true);
        let column = |name: &str, format: &str| json!({"name": name, "type": "string", "format": format, "description": "", "priority": 0});
        let expected = json!({
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": {"resourceVersion": "7"},
            "columnDefinitions": [column("Name", "name"), column("Data", ""), column("Age", "")],
            "rows": [{
                "cells": ["a", 1, "4m5s"],
                "object": {
                    "kind": "PartialObjectMetadata",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": config_map()["metadata"],
                },
            }],
        });
        assert_eq!(table, expected);
    }

    #[test]
    fn a_row_has_as_much_of_its_object_as_is_wanted() {
        for (include, expected) in [
            (IncludeObject::None, Value::Null),
            (IncludeObject::Metadata, metadata_alone(config_map())),
            (IncludeObject::Object, config_map()),
        ] {
            let table = Form::Table(include).show_one(&CONFIG_MAPS, config_map(), now(), true);
            assert_eq!(table["rows"][0]["object"], expected);
        }
    }

    #[test]
    fn only_the_first_table_of_a_watch_has_columns() {
        let form = Form::Table(IncludeObject::None);
        let table = form.show_one(&CONFIG_MAPS, config_map(), now(), false);
        assert_eq!(table["columnDefinitions"], Value::Null);
        assert_eq!(table["rows"][0]["cells"][0], "a");
    }

    #[test]
    fn lists_keep_their_metadata_and_their_objects_do_not_say_what_they_are() {
        let metadata = json!({"resourceVersion": "9", "continue": "x", "remainingItemCount": 3});
        let show = |form: Form| form.show_list(&CONFIG_MAPS, vec![config_map()], metadata.clone(), now());
        for form in [Form::Whole, Form::Metadata, Form::Table(IncludeObject::Metadata)] {
            assert_eq!(show(form)["metadata"], metadata);
        }
        let whole = show(Form::Whole);
        assert_eq!((&whole["kind"], &whole["items"][0]["kind"]), (&json!("ConfigMapList"), &Value::Null));
        let alone = show(Form::Metadata);
        assert_eq!(alone["kind"], "PartialObjectMetadataList");
        assert_eq!(alone["items"][0], metadata_alone(config_map()));
    }

    #[test]
    fn an_empty_table_has_no_rows_and_of_a_kind_without_columns_no_list_of_them() {
        let show = |resource| {
            Form::Table(IncludeObject::None).show_list(resource, Vec::new(), json!({}), now())["rows"].clone()
        };
        assert_eq!(show(&PODS), json!([]));
        assert_eq!(show(&CLUSTER_ROLES), Value::Null);
    }

    #[test]
    fn a_bookmark_is_shown_as_an_empty_object() {
        let bare = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {
            "resourceVersion": "5",
            "annotations": {INITIAL_EVENTS_END: "true"},
        }});
        let bookmark = |form: Form| form.bookmark(&PODS, bare.clone(), now(), true);
        assert_eq!(bookmark(Form::Metadata), metadata_alone(bare.clone()));
        let table = bookmark(Form::Table(IncludeObject::None));
        assert_eq!(
            table["rows"],
            json!([{
                "cells": ["", "0/0", "", "0", "<unknown>", "<none>", "<none>", "<none>", "<none>"],
                "object": metadata_alone(bare.clone()),
            }])
        );
        assert_eq!(table["metadata"], json!({"resourceVersion": "5"}));
        assert_eq!(bookmark(Form::Whole)["metadata"]["resourceVersion"], "5");
    }

    #[test]
    fn a_row_of_any_kind_has_a_cell_for_each_column_even_of_nonsense() {
        let nonsense =
            json!({"metadata": 1, "spec": [2], "status": {"conditions": {}, "nodeInfo": "x"}, "data": 3});
        for resource in RESOURCES {
            for object in [json!({}), nonsense.clone()] {
                let table = Form::Table(IncludeObject::Object).show_one(resource, object, now(), true);
                let (columns, row) = (&table["columnDefinitions"], &table["rows"][0]["cells"]);
                assert_eq!(columns.as_array().map(Vec::len), row.as_array().map(Vec::len), "{resource:?}");
            }
        }
    }

    #[test]
    fn events_of_the_new_group_have_the_rows_of_the_old_and_objects_of_their_own() {
        let event = json!({
            "kind": "Event", "apiVersion": "v1", "metadata": {"name": "e"}, "message": "hello",
            "involvedObject": {"kind": "Pod", "name": "p"},
        });
        let show = |form: Form| form.show_one(&NEW_EVENTS, event.clone(), now(), true);
        let row = show(Form::Table(IncludeObject::Object))["rows"][0].take();
        assert_eq!((&row["cells"][3], &row["cells"][6]), (&json!("pod/p"), &json!("hello")));
        assert_eq!(
            (&row["object"]["note"], &row["object"]["apiVersion"]),
            (&json!("hello"), &json!("events.k8s.io/v1"))
        );
        assert_eq!(show(Form::Whole)["regarding"]["name"], "p");
        assert!(!Form::Whole.is_stored_as_is(&NEW_EVENTS) && Form::Whole.is_stored_as_is(&PODS));
    }
}
