//! Answers without what a reader knows already or did not ask for: half of the agents hand a model the structured answer, and
//! every byte of it costs.
//!
//! What goes: nulls; what a path's entry repeats of the checkpoint, which the answer names once; what says the same as another
//! field beside it; what is as always (`kind` of a file, `complete`); digests, unless they were asked for.

use serde_json::{Map, Value};

/// What a path's entry repeats of the answer it is in.
const OF_CHECKPOINT: [&str; 4] = [
    "checkpoint",
    "checkpoint_age",
    "checkpoint_origin",
    "checkpoint_name",
];
/// What other fields of a checkpoint say: `cp-N` has the slot, `age` the time.
const OF_ROW: [&str; 4] = ["slot", "epoch_millis", "timestamp", "form"];
const DIGESTS: [&str; 2] = ["hash", "digest"];

/// Makes an answer lean; `digests` stay if they were asked for.
pub(super) fn lean(answer: &mut Value, digests: bool) {
    match answer {
        Value::Array(items) => items.iter_mut().for_each(|item| lean(item, digests)),
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                // The digest of a plan is what its reader needs to confirm it.
                lean(field, digests || name == "plan");
            }
            lean_fields(fields, digests);
        }
        _ => {}
    }
}

/// What an object is, by the fields it has.
#[derive(Clone, Copy)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "an object can be several of these at once"
)]
struct Shape {
    is_change: bool,
    is_row: bool,
    is_version: bool,
    is_side: bool,
}

impl Shape {
    fn of(fields: &Map<String, Value>) -> Self {
        let has = |name: &str| fields.contains_key(name);
        Self {
            is_change: has("path") && has("op"),
            is_row: has("checkpoint") && has("files_count") && has("age"),
            is_version: has("checkpoint") && has("status") && has("age"),
            is_side: has("kind") && has("mode"),
        }
    }

    /// Fields that are never sent.
    fn drops(self, name: &str) -> bool {
        (self.is_change && (OF_CHECKPOINT.contains(&name) || name == "is_symlink"))
            || ((self.is_row || self.is_version) && OF_ROW.contains(&name))
    }

    /// Fields that are sent only with some values, or when they were asked for.
    fn may_drop(self, name: &str) -> bool {
        (self.is_change && name == "kind")
            || (self.is_row && ["complete", "events"].contains(&name))
            || self.drops_unasked(name)
    }

    fn drops_unasked(self, name: &str) -> bool {
        (self.is_row || self.is_side) && DIGESTS.contains(&name)
    }
}

/// The times that an object has as text and in milliseconds: the text is enough.
fn texts_with_millis(fields: &Map<String, Value>) -> Vec<String> {
    let names = fields.keys();
    let texts = names.filter_map(|name| name.strip_suffix("_ms"));
    let texts = texts.filter(|text| fields.contains_key(*text));
    texts.map(str::to_owned).collect()
}

fn is_millis_of(name: &str, text: &str) -> bool {
    name.strip_suffix("_ms") == Some(text)
}

fn lean_fields(fields: &mut Map<String, Value>, digests: bool) {
    let shape = Shape::of(fields);
    let times = texts_with_millis(fields);
    fields.retain(|name, value| {
        let name = name.as_str();
        let says_nothing = match name {
            "kind" => value == "file",
            "complete" => *value == Value::Bool(true),
            "events" => is_all_zero(value),
            _ => false,
        };
        let goes = value.is_null()
            || times.iter().any(|text| is_millis_of(name, text))
            || shape.drops(name)
            || (shape.may_drop(name) && says_nothing)
            || (!digests && shape.drops_unasked(name));
        !goes
    });
}

/// The schema of what is left of an answer.
pub(super) fn lean_schema(schema: &mut Map<String, Value>) {
    let shape = schema.get("properties").and_then(Value::as_object);
    let times = shape.map(texts_with_millis).unwrap_or_default();
    let is_millis = |name: &str| times.iter().any(|text| is_millis_of(name, text));
    if let Some(shape) = shape.map(Shape::of) {
        if let Some(Value::Array(required)) = schema.get_mut("required") {
            required.retain(|name| {
                let name = name.as_str().unwrap_or_default();
                !shape.drops(name) && !shape.may_drop(name) && !is_millis(name)
            });
        }
        if let Some(Value::Object(properties)) = schema.get_mut("properties") {
            properties.retain(|name, _| !shape.drops(name) && !is_millis(name));
            let inner = properties.values_mut().filter_map(Value::as_object_mut);
            inner.for_each(lean_schema);
        }
    }
    if let Some(Value::Object(items)) = schema.get_mut("items") {
        lean_schema(items);
    }
}

fn is_all_zero(counts: &Value) -> bool {
    let counts = counts.as_object();
    counts.is_some_and(|counts| counts.values().all(|count| count.as_u64() == Some(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn leaned(mut value: Value) -> Value {
        lean(&mut value, false);
        value
    }

    #[test]
    fn a_path_says_only_what_is_its_own() {
        let change = |kind: &str| {
            json!({ "path": "a", "op": "modified", "kind": kind, "size": null, "is_symlink": false, "checkpoint": "cp-10",
                    "checkpoint_age": "3 s ago", "checkpoint_origin": "manual", "checkpoint_name": "x" })
        };
        let answer = json!({ "compared_with": ["cp-10"], "changes": [change("file"), change("symlink")], "next_index": null });

        assert_eq!(
            leaned(answer),
            json!({ "compared_with": ["cp-10"], "changes": [
                { "path": "a", "op": "modified" }, { "path": "a", "op": "modified", "kind": "symlink" }
            ] })
        );
    }

    #[test]
    fn a_time_is_sent_as_text_alone() {
        let row = json!({ "name": "fork-1", "timestamp": "2026-11-15T01:23:45Z", "timestamp_ms": 1_794_705_825_000_u64,
                          "elapsed_ms": 3 });
        let mut schema = json!({ "required": ["timestamp", "timestamp_ms"],
                                 "properties": { "timestamp": {}, "timestamp_ms": {} } });

        lean_schema(schema.as_object_mut().unwrap());

        assert_eq!(
            leaned(row),
            json!({ "name": "fork-1", "timestamp": "2026-11-15T01:23:45Z", "elapsed_ms": 3 })
        );
        let text_only = json!({ "required": ["timestamp"], "properties": { "timestamp": {} } });
        assert_eq!(schema, text_only);
    }

    #[test]
    fn digests_come_only_when_they_were_asked_for_and_with_plans() {
        let row = json!({ "checkpoint": "cp-1", "slot": 1, "files_count": 2, "age": "1 s ago", "hash": "ab", "complete": true,
                          "events": { "created": 0 } });
        let plain = json!({ "checkpoint": "cp-1", "files_count": 2, "age": "1 s ago" });
        assert_eq!(leaned(row.clone()), plain);
        let mut asked = row;
        lean(&mut asked, true);
        assert_eq!(asked["hash"], "ab");
        let planned = json!({ "plan": { "digest": "cd", "sample": [] } });
        assert_eq!(leaned(planned.clone()), planned);
        let made = json!({ "created": true, "checkpoint": "cp-1", "hash": "ab" });
        assert_eq!(leaned(made.clone()), made);
    }
}
