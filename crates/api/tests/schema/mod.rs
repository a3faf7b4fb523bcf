//! Objects made up from a JSON schema.

use k8s_openapi::schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

/// A stream of numbers that a seed decides.
pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn one_of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len() as u64) as usize]
    }
}

/// The schema of one type, with those it refers to.
pub struct Schema(Value);

impl Schema {
    pub fn of<T: JsonSchema>() -> Schema {
        Schema(SchemaGenerator::default().into_root_schema_for::<T>().to_value())
    }

    /// An object with every field, none of them empty.
    pub fn full(&self) -> Value {
        self.value(&self.0, &mut |choice| match choice {
            Choice::Present => Value::Bool(true),
            Choice::Length => json!(1),
            Choice::Int(_) => json!(7),
            Choice::Bool => json!(true),
            Choice::Text => json!("text"),
            Choice::Time => json!("2026-11-15T03:48:00.123456Z"),
            Choice::Quantity => json!("1500m"),
            Choice::Bytes => json!("Ynl0ZXM="),
            Choice::IntOrText => json!("http"),
        })
    }

    /// An object with any of the fields.
    pub fn random(&self, random: &mut Random) -> Value {
        let density = 2 + random.below(4);
        self.value(&self.0, &mut |choice| match choice {
            Choice::Present => Value::Bool(random.below(density) == 0),
            Choice::Length => json!(random.below(3)),
            Choice::Int(bits) => match (random.below(4), bits) {
                (0, _) => json!(0),
                (1, 32) => json!([i32::MAX, i32::MIN][random.below(2) as usize]),
                (1, _) => json!([i64::MAX, i64::MIN][random.below(2) as usize]),
                _ => json!(random.below(100_000) as i64 - 50_000),
            },
            Choice::Bool => json!(random.below(2) == 0),
            Choice::Text => json!(random.one_of(&[
                "",
                "a",
                "Always",
                "Never",
                "None",
                "TCP",
                "True",
                "Running",
                "NoExecute",
                "Exists",
                "example.com/x",
                "größe \u{1f980}\n\"\\\u{0}",
                "a text that is somewhat longer than most names of things are",
            ])),
            Choice::Time => json!(random.one_of(&[
                "2026-11-15T03:48:00Z",
                "2026-11-15T03:48:00.123456Z",
                "1969-12-31T23:59:59.5Z",
                "2026-11-15T03:48:00+02:00",
            ])),
            Choice::Quantity => json!(random.one_of(&[
                "0",
                "1",
                "100m",
                "0.1",
                "1500m",
                "1.5Gi",
                "1024Ki",
                "1e3",
                "-7",
                "123456789012345678",
                "5n",
                "1E",
            ])),
            Choice::Bytes => json!(random.one_of(&["", "AAEC", "czNjcjN0"])),
            Choice::IntOrText => match random.below(3) {
                0 => json!(0),
                1 => json!(8080),
                _ => json!("http"),
            },
        })
    }

    fn value(&self, schema: &Value, choose: &mut dyn FnMut(Choice) -> Value) -> Value {
        if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
            let name = target.trim_start_matches("#/$defs/");
            return match name.ends_with(".Quantity") {
                true => choose(Choice::Quantity),
                false => self.value(&self.0["$defs"][name], choose),
            };
        }
        if schema.get("x-kubernetes-int-or-string").is_some() {
            return choose(Choice::IntOrText);
        }
        let format = schema.get("format").and_then(Value::as_str);
        match schema.get("type").and_then(Value::as_str) {
            Some("string") => match format {
                Some("date-time") => choose(Choice::Time),
                Some("byte") => choose(Choice::Bytes),
                _ => choose(Choice::Text),
            },
            Some("boolean") => choose(Choice::Bool),
            Some("integer") => choose(Choice::Int(if format == Some("int32") { 32 } else { 64 })),
            Some("array") => {
                let length = choose(Choice::Length).as_u64().unwrap_or_default();
                (0..length).map(|_| self.value(&schema["items"], choose)).collect()
            }
            Some("object") => Value::Object(self.object(schema, choose)),
            other => panic!("a schema of type {other:?}: {schema}"),
        }
    }

    fn object(&self, schema: &Value, choose: &mut dyn FnMut(Choice) -> Value) -> Map<String, Value> {
        let mut object = Map::new();
        if let Some(values) = schema.get("additionalProperties").filter(|values| values.is_object()) {
            let length = choose(Choice::Length).as_u64().unwrap_or_default();
            object.extend((0..length).map(|at| (format!("key-{at}"), self.value(values, choose))));
        }
        let required = schema.get("required").and_then(Value::as_array);
        for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            let required = required.is_some_and(|names| names.iter().any(|required| required == name));
            if required || choose(Choice::Present) == Value::Bool(true) {
                object.insert(name.clone(), self.value(property, choose));
            }
        }
        object
    }
}

/// What is left to chance.
enum Choice {
    Present,
    Length,
    Int(u32),
    Bool,
    Text,
    Time,
    Quantity,
    Bytes,
    IntOrText,
}
