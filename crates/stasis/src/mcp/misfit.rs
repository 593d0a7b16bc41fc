//! What is wrong with the parameters of a call, said by name.

use rmcp::model::{JsonObject, Tool};
use serde_json::Value;

/// What is wrong with the parameters of a call, by the tool's own schema; the reader of the parameters is stricter still.
pub(super) fn wrong_parameter(tool: &Tool, arguments: &JsonObject) -> Option<String> {
    let (schema, tool) = (&tool.input_schema, &tool.name);
    let properties = schema.get("properties")?.as_object()?;
    let known = || {
        let names: Vec<String> = properties.keys().map(|name| format!("`{name}`")).collect();
        names.join(", ")
    };
    if let Some(unknown) = arguments
        .keys()
        .find(|name| !properties.contains_key(*name))
    {
        return Some(format!(
            "{tool} has no parameter `{unknown}`; it takes {}",
            known()
        ));
    }
    let required = schema.get("required").and_then(Value::as_array)?;
    let missing = required.iter().filter_map(Value::as_str);
    if let Some(missing) = missing
        .into_iter()
        .find(|name| !arguments.contains_key(*name))
    {
        return Some(format!("{tool} needs the parameter `{missing}`"));
    }
    arguments.iter().find_map(|(name, value)| {
        let must = unfit(&properties[name], value)?;
        Some(format!("the parameter `{name}` of {tool} must be {must}"))
    })
}

/// What a value must be, when it is something else.
fn unfit(schema: &Value, value: &Value) -> Option<String> {
    let words = schema["enum"].as_array();
    if let Some(words) = words {
        let fits = value.is_null() || words.contains(value);
        let all: Vec<String> = words.iter().map(ToString::to_string).collect();
        return (!fits).then(|| all.join(" or "));
    }
    let (fits, must) = match schema["type"].as_str()? {
        "string" => (value.is_string(), "a string"),
        "boolean" => (value.is_boolean(), "true or false"),
        "integer" => (value.is_u64(), "a whole number, 0 or more"),
        "array" => {
            let items = value.as_array();
            let fits = items.is_some_and(|items| items.iter().all(Value::is_string));
            (fits, "a list of strings")
        }
        _ => return None,
    };
    (!fits && !value.is_null()).then(|| must.to_owned())
}

#[cfg(test)]
mod tests;
