//! The schemas of what tools take and answer, from the types that are read and sent.

use super::failure::Refused;
use super::lean;
use rmcp::model::JsonObject;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// What every page says of itself.
#[derive(Serialize, JsonSchema)]
struct PageNumbers {
    notice: String,
    total: usize,
    start_index: usize,
    /// `start_index` of the next page; absent at the end
    next_index: Option<usize>,
}

/// Where an answer comes from.
#[derive(Serialize, JsonSchema)]
struct FromWorkspace {
    /// The workspace's directory
    workspace: String,
}

/// What a tool takes: exactly these.
pub(super) fn parameters<T: JsonSchema>() -> JsonObject {
    let settings = SchemaSettings::draft2020_12().for_deserialize();
    let mut schema = generated::<T>(settings);
    without_null(&mut schema);
    schema.entry("required").or_insert_with(|| json!([]));
    schema
}

/// What a tool answers: the fields of its type that are sent, or an `error`.
pub(super) fn answer<T: JsonSchema>(is_paged: bool) -> JsonObject {
    let settings = || SchemaSettings::draft2020_12().for_serialize();
    let mut schema = generated::<T>(settings());
    without_descriptions(&mut schema);
    if is_paged {
        merge(&mut schema, generated::<PageNumbers>(settings()));
    }
    merge(&mut schema, generated::<FromWorkspace>(settings()));
    without_null(&mut schema);
    lean::lean_schema(&mut schema);
    let required = schema.remove("required").unwrap_or_else(|| json!([]));
    if let Some(properties) = properties(&mut schema) {
        // Its nulls are sent.
        let error = generated::<Refused>(settings());
        properties.insert("error".to_owned(), Value::Object(error));
    }
    let either = json!([{ "required": required }, { "required": ["error"] }]);
    schema.insert("anyOf".to_owned(), either);
    schema
}

fn generated<T: JsonSchema>(settings: SchemaSettings) -> JsonObject {
    let settings = settings.with(|settings| {
        // Some clients do not follow references.
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema: Value = settings.into_generator().into_root_schema_for::<T>().into();
    tidy(&mut schema);
    match schema {
        Value::Object(fields) => fields,
        _ => JsonObject::new(),
    }
}

/// Without what says nothing to a client, and with closed sets as plain lists of their words.
fn tidy(schema: &mut Value) {
    match schema {
        Value::Array(all) => all.iter_mut().for_each(tidy),
        Value::Object(fields) => {
            fields.remove("title");
            fields.remove("format");
            let words = fields.get("oneOf").and_then(words);
            if let Some(words) = words {
                fields.remove("oneOf");
                fields.insert("type".to_owned(), json!("string"));
                fields.insert("enum".to_owned(), json!(words));
            }
            for (name, inner) in fields.iter_mut() {
                match inner {
                    // Its names are those of fields, not of keywords.
                    Value::Object(all) if name == "properties" => all.values_mut().for_each(tidy),
                    inner => tidy(inner),
                }
            }
        }
        _ => {}
    }
}

/// Answers are described by their tool: a description of each field would double what every client reads before its first call.
fn without_descriptions(schema: &mut JsonObject) {
    schema.remove("description");
    if let Some(all) = properties(schema) {
        let inner = all.values_mut().filter_map(Value::as_object_mut);
        inner.for_each(without_descriptions);
    }
    if let Some(Value::Object(items)) = schema.get_mut("items") {
        without_descriptions(items);
    }
}

/// The words of an enum, some of which may have a description of their own.
fn words(choices: &Value) -> Option<Vec<String>> {
    let mut all = Vec::new();
    for choice in choices.as_array()? {
        match (choice.get("const"), choice.get("enum")) {
            (Some(Value::String(word)), _) => all.push(word.clone()),
            (None, Some(Value::Array(some))) => {
                all.extend(some.iter().filter_map(Value::as_str).map(str::to_owned));
            }
            _ => return None,
        }
    }
    Some(all)
}

/// What would be null is left out, in what is sent as in what is taken.
fn without_null(schema: &mut JsonObject) {
    if let Some(all) = properties(schema) {
        let nullable: Vec<String> = all
            .iter_mut()
            .filter_map(|(name, field)| take_null(field).then(|| name.clone()))
            .collect();
        if let Some(Value::Array(required)) = schema.get_mut("required") {
            required.retain(|name| !nullable.iter().any(|one| name == one));
        }
    }
    for name in ["properties", "items"] {
        match schema.get_mut(name) {
            Some(Value::Object(fields)) if name == "properties" => {
                let inner = fields.values_mut().filter_map(Value::as_object_mut);
                inner.for_each(without_null);
            }
            Some(Value::Object(items)) => without_null(items),
            _ => {}
        }
    }
}

/// Takes null from what a field may be; whether it was there.
fn take_null(field: &mut Value) -> bool {
    let is_null = |one: &Value| *one == json!("null") || one["type"] == "null" || one.is_null();
    let Some(fields) = field.as_object_mut() else {
        return false;
    };
    let mut found = false;
    for name in ["type", "enum", "anyOf"] {
        let Some(Value::Array(choices)) = fields.get_mut(name) else {
            continue;
        };
        let before = choices.len();
        choices.retain(|one| !is_null(one));
        found |= choices.len() < before;
    }
    if let Some(Value::Array(types)) = fields.get("type")
        && let [one] = types.as_slice()
    {
        let one = one.clone();
        fields.insert("type".to_owned(), one);
    }
    if let Some(Value::Array(choices)) = fields.get("anyOf")
        && let [Value::Object(one)] = choices.as_slice()
    {
        let one = one.clone();
        fields.remove("anyOf");
        for (name, value) in one {
            fields.entry(name).or_insert(value);
        }
    }
    found
}

fn properties(schema: &mut JsonObject) -> Option<&mut Map<String, Value>> {
    schema.get_mut("properties")?.as_object_mut()
}

/// One object with the fields of two.
fn merge(schema: &mut JsonObject, mut more: JsonObject) {
    if let (Some(into), Some(from)) = (properties(schema), properties(&mut more)) {
        into.append(from);
    }
    let required = more.remove("required").unwrap_or_else(|| json!([]));
    if let (Some(Value::Array(into)), Value::Array(from)) = (schema.get_mut("required"), required) {
        into.extend(from);
    }
}
