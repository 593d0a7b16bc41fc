//! As much of JSON Schema as our types make, and stricter: a field that the schema does not name is a fault too.
//!
//! A keyword that it does not know is a panic, so that nothing passes because nobody looked at it.

use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Says everything in which a value is not what a schema says; `root` has the definitions that it refers to.
pub fn misfits(root: &Value, schema: &Value, value: &Value) -> Vec<String> {
    let mut checker = Checker::new(root);
    let _ = checker.check(schema, value, "$", Unknown::Faults);
    checker.faults
}

/// What fields that no schema names are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unknown {
    /// Faults.
    Faults,
    /// Somebody else's: this is one of several schemas of the same value.
    Shared,
}

/// The names that a schema knows of a value.
enum Known {
    All,
    Names(BTreeSet<String>),
}

impl Known {
    fn none() -> Self {
        Self::Names(BTreeSet::new())
    }

    fn add(&mut self, other: Self) {
        match (&mut *self, other) {
            (Self::All, _) => {}
            (_, Self::All) => *self = Self::All,
            (Self::Names(names), Self::Names(more)) => names.extend(more),
        }
    }
}

/// Keywords that say which fields there are.
const OF_FIELDS: [&str; 8] = [
    "required",
    "properties",
    "additionalProperties",
    "patternProperties",
    "$ref",
    "allOf",
    "anyOf",
    "oneOf",
];

/// How much of a value is shown.
const LONGEST_SHOWN: usize = 200;

/// Keywords that say nothing of what a value must be.
const SILENT: [&str; 9] = [
    "$schema",
    "$defs",
    "$id",
    "title",
    "description",
    "default",
    "format",
    "examples",
    "deprecated",
];

struct Checker<'a> {
    root: &'a Value,
    faults: Vec<String>,
}

impl<'a> Checker<'a> {
    fn new(root: &'a Value) -> Self {
        Self {
            root,
            faults: Vec::new(),
        }
    }

    fn check(&mut self, schema: &Value, value: &Value, place: &str, unknown: Unknown) -> Known {
        let keywords = match schema {
            Value::Bool(true) => return Known::All,
            Value::Object(keywords) => keywords,
            other => {
                self.faults.push(format!("{place}: {other} allows nothing"));
                return Known::All;
            }
        };
        // One that says nothing of fields allows all.
        let is_open = !keywords
            .keys()
            .any(|keyword| OF_FIELDS.contains(&keyword.as_str()));
        let mut known = if is_open { Known::All } else { Known::none() };
        for (keyword, said) in keywords {
            known.add(match keyword.as_str() {
                "$ref" | "allOf" | "anyOf" | "oneOf" => self.part(keyword, said, value, place),
                "items" | "prefixItems" => self.items(keyword, said, value, place),
                keyword => self.assertion(keyword, said, value, place),
            });
        }
        if let Some(fields) = value.as_object() {
            known.add(self.fields(keywords, fields, place));
        }
        if let (Unknown::Faults, Known::Names(names), Some(fields)) =
            (unknown, &known, value.as_object())
        {
            let stray = fields.keys().filter(|name| !names.contains(*name));
            let stray = stray.map(|name| format!("{place}.{name}: no schema names it"));
            self.faults.extend(stray);
        }
        known
    }

    /// Other schemas of the same value.
    fn part(&mut self, keyword: &str, said: &Value, value: &Value, place: &str) -> Known {
        match keyword {
            "$ref" => {
                let target = said.as_str().and_then(|path| path.strip_prefix('#'));
                let target = target.and_then(|path| self.root.pointer(path));
                let target = target.unwrap_or_else(|| panic!("{place}: {said} leads nowhere"));
                self.check(target, value, place, Unknown::Shared)
            }
            "allOf" => {
                let mut known = Known::none();
                for one in all(said) {
                    known.add(self.check(one, value, place, Unknown::Shared));
                }
                known
            }
            _ => self.any(said, value, place),
        }
    }

    /// What one of several schemas knows that fits, or the faults of the one that has the fewest.
    fn any(&mut self, said: &Value, value: &Value, place: &str) -> Known {
        let mut best: Option<(Vec<String>, Known)> = None;
        let mut fitting = None;
        for one in all(said) {
            let mut own = Checker::new(self.root);
            let known = own.check(one, value, place, Unknown::Shared);
            if own.faults.is_empty() {
                // Several may fit; what all of them know is known.
                fitting.get_or_insert_with(Known::none).add(known);
            } else if best
                .as_ref()
                .is_none_or(|(few, _)| own.faults.len() < few.len())
            {
                best = Some((own.faults, known));
            }
        }
        if let Some(known) = fitting {
            return known;
        }
        let none = || (vec![format!("{place}: there is no choice")], Known::All);
        let (few, known) = best.unwrap_or_else(none);
        self.faults.extend(few);
        known
    }

    /// What is said of the value itself.
    fn assertion(&mut self, keyword: &str, said: &Value, value: &Value, place: &str) -> Known {
        let is_less = |one: &Value, other: &Value| one.as_f64() < other.as_f64();
        let length = value.as_array().map(|items| items.len() as u64);
        let is_broken = match keyword {
            "type" => !types(said).iter().any(|word| is(word, value)),
            "const" => said != value,
            "enum" => !all(said).contains(value),
            "minimum" => value.is_number() && is_less(value, said),
            "maximum" => value.is_number() && is_less(said, value),
            "minItems" => length.is_some() && length < said.as_u64(),
            "maxItems" => length.is_some() && length > said.as_u64(),
            "required" => {
                let names = all(said).iter().filter_map(Value::as_str);
                names
                    .into_iter()
                    .any(|name| value.is_object() && value.get(name).is_none())
            }
            // Looked at with the fields.
            "properties" | "additionalProperties" | "patternProperties" => false,
            silent if SILENT.contains(&silent) => false,
            other => panic!("{place}: nobody checks `{other}`"),
        };
        if is_broken {
            let mut shown = value.to_string();
            if shown.chars().count() > LONGEST_SHOWN {
                shown = shown
                    .chars()
                    .take(LONGEST_SHOWN)
                    .chain("…".chars())
                    .collect();
            }
            self.faults
                .push(format!("{place}: {shown} breaks `{keyword}`: {said}"));
        }
        Known::none()
    }

    fn items(&mut self, keyword: &str, said: &Value, value: &Value, place: &str) -> Known {
        for (index, item) in value.as_array().into_iter().flatten().enumerate() {
            let schema = match keyword {
                "prefixItems" => said.get(index),
                _ => Some(said),
            };
            if let Some(schema) = schema {
                let place = format!("{place}[{index}]");
                let _ = self.check(schema, item, &place, Unknown::Faults);
            }
        }
        Known::none()
    }

    fn fields(
        &mut self,
        keywords: &Map<String, Value>,
        fields: &Map<String, Value>,
        place: &str,
    ) -> Known {
        let properties = keywords.get("properties").and_then(Value::as_object);
        let others = keywords.get("additionalProperties");
        // A map whose keys follow a pattern: our types make that only of numbers.
        if keywords.contains_key("patternProperties") {
            return Known::All;
        }
        let mut names = BTreeSet::new();
        for (name, field) in fields {
            let own = properties.and_then(|all| all.get(name));
            if let Some(schema) = own.or(others) {
                let place = format!("{place}.{name}");
                let _ = self.check(schema, field, &place, Unknown::Faults);
                names.insert(name.clone());
            }
        }
        Known::Names(names)
    }
}

fn all(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn types(said: &Value) -> Vec<&str> {
    match said {
        Value::String(one) => vec![one],
        several => all(several).iter().filter_map(Value::as_str).collect(),
    }
}

fn is(word: &str, value: &Value) -> bool {
    match word {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("`{other}` is no type"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn faults(schema: &Value, value: &Value) -> Vec<String> {
        misfits(schema, schema, value)
    }

    #[test]
    fn each_breach_is_named_with_its_place() {
        let schema = json!({
            "$defs": { "Row": {
                "type": "object",
                "properties": { "id": { "type": "string" }, "bytes": { "type": "integer", "minimum": 0 } },
                "required": ["id"],
            } },
            "type": "object",
            "properties": {
                "kind": { "enum": ["one", "two"] },
                "rows": { "type": "array", "items": { "$ref": "#/$defs/Row" } },
            },
            "required": ["rows"],
        });

        let well = faults(
            &schema,
            &json!({ "kind": "one", "rows": [{ "id": "a", "bytes": 1 }] }),
        );
        let ill = faults(
            &schema,
            &json!({ "kind": "three", "rows": [{ "bytes": -1, "more": 0 }], "stray": 1 }),
        );

        assert_eq!(well, Vec::<String>::new());
        let said = ill.join("\n");
        for part in [
            "$.kind",
            "breaks `required`",
            "$.rows[0].bytes",
            "$.rows[0].more",
            "$.stray",
        ] {
            assert!(said.contains(part), "{part} in\n{said}");
        }
    }

    #[test]
    fn fields_of_all_parts_are_known_and_no_others() {
        let schema = json!({
            "properties": { "schema": { "const": "s/1" } },
            "anyOf": [
                { "type": "object", "properties": { "a": { "type": "integer" } }, "required": ["a"] },
                { "type": "object", "properties": { "b": { "type": "integer" } }, "required": ["b"] },
            ],
        });

        assert!(faults(&schema, &json!({ "schema": "s/1", "b": 2 })).is_empty());
        assert_eq!(
            faults(&schema, &json!({ "schema": "s/1", "b": 2, "c": 3 })).len(),
            1
        );
        assert_eq!(
            faults(&schema, &json!({ "schema": "s/2", "c": 3 })).len(),
            3
        );
    }

    #[test]
    #[should_panic(expected = "nobody checks `multipleOf`")]
    fn a_keyword_that_nobody_checks_does_not_pass() {
        let _ = faults(&json!({ "multipleOf": 3 }), &json!(4));
    }
}
