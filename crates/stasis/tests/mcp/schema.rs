//! As much of JSON Schema as our tools use.

use serde_json::Value;

/// Panics where a value is not what a schema says.
pub(crate) fn assert_fits(schema: &Value, value: &Value, place: &str) {
    assert_type(schema, value, place);
    if let Some(words) = schema["enum"].as_array() {
        assert!(
            words.contains(value),
            "{place}: {value} is none of {words:?}"
        );
    }
    if let Some(least) = schema["minimum"].as_i64() {
        assert!(
            value.is_null() || value.as_i64().unwrap() >= least,
            "{place}: {value}"
        );
    }
    assert_has(schema, value, place);
    if let Some(choices) = schema["anyOf"].as_array() {
        let fits = |choice: &Value| missing(choice, value).is_empty();
        let missing: Vec<_> = choices
            .iter()
            .map(|choice| missing(choice, value))
            .collect();
        assert!(
            choices.iter().any(fits),
            "{place}: {missing:?} are missing in {value}"
        );
    }
    if let (Some(properties), Some(fields)) = (schema["properties"].as_object(), value.as_object())
    {
        for (name, field) in fields {
            let Some(schema) = properties.get(name) else {
                panic!("{place}: nobody was told of `{name}`");
            };
            assert_fits(schema, field, &format!("{place}.{name}"));
        }
    }
    if let (Some(items), Some(values)) = (schema.get("items"), value.as_array()) {
        for (index, value) in values.iter().enumerate() {
            assert_fits(items, value, &format!("{place}[{index}]"));
        }
    }
}

fn assert_type(schema: &Value, value: &Value, place: &str) {
    let types = match &schema["type"] {
        Value::String(one) => vec![one.as_str()],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => return,
    };
    let is = |word: &&str| match *word {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("{place}: `{other}` is no type"),
    };
    assert!(types.iter().any(is), "{place}: {value} is not {types:?}");
}

fn assert_has(schema: &Value, value: &Value, place: &str) {
    let missing = missing(schema, value);
    assert!(
        missing.is_empty(),
        "{place}: {missing:?} are missing in {value}"
    );
}

fn missing<'a>(schema: &'a Value, value: &Value) -> Vec<&'a str> {
    let required = schema["required"].as_array();
    let names = required.into_iter().flatten().filter_map(Value::as_str);
    names.filter(|name| value.get(name).is_none()).collect()
}
