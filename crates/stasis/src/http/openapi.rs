//! The description of the service in `OpenAPI` 3.1, from the table of routes: schemas are those of the types that are read and written.

use super::endpoint::{Route, SeenBefore};
use super::problem::Problem;
use super::table;
use http::Method;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};

/// Where all schemas stand to which others refer.
const DEFINITIONS: &str = "/components/schemas";

/// The document.
pub(crate) fn document() -> Value {
    let mut answers = generator(SchemaSettings::draft2020_12().for_serialize());
    let problem = answers.subschema_for::<Problem>().to_value();
    let mut paths = Map::new();
    for route in table::routes() {
        let methods = paths
            .entry(route.path)
            .or_insert_with(|| Value::Object(Map::new()));
        methods[route.method.as_str().to_ascii_lowercase()] = operation(route, &mut answers);
    }
    let schemas = answers.take_definitions(true);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Stasis",
            "description": "Saves, restores, rewinds and forks what AI agents' computers hold.",
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "Apache-2.0 OR MIT", "identifier": "Apache-2.0 OR MIT" },
        },
        "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "What `stasis token create` printed.",
                },
            },
            "responses": {
                "Problem": {
                    "description": "What went wrong.",
                    "content": { "application/problem+json": { "schema": problem } },
                },
            },
        },
    })
}

fn generator(settings: SchemaSettings) -> SchemaGenerator {
    let settings = settings.with(|settings| {
        settings.definitions_path = DEFINITIONS.into();
        settings.meta_schema = None;
    });
    settings.into_generator()
}

/// What is read stands where it is used: it may be called as something that is written and looks otherwise.
fn inlined() -> SchemaGenerator {
    let settings = SchemaSettings::draft2020_12().for_deserialize();
    generator(settings.with(|settings| settings.inline_subschemas = true))
}

fn operation(route: &Route, answers: &mut SchemaGenerator) -> Value {
    let answer = (route.answer)(answers);
    let described_answer = json!({
        "description": "Done.",
        "content": { answer.media_type: { "schema": answer.schema } },
    });
    let mut described = json!({
        "operationId": route.name,
        "summary": route.summary,
        "parameters": parameters(route),
        "responses": {
            answer.status.as_str(): described_answer,
            "default": { "$ref": "#/components/responses/Problem" },
        },
    });
    if let Some(body) = route.body {
        let schema = body(&mut inlined());
        described["requestBody"] = json!({
            "required": true,
            "content": { "application/json": { "schema": schema } },
        });
    }
    if let Some(scope) = route.access.scope() {
        described["security"] = json!([{ "token": [] }]);
        described["x-stasis-scope"] = json!(scope);
    }
    if route.access.is_of_host() {
        described["x-stasis-host-token"] = json!(true);
    }
    described
}

/// What is said in the head of a request.
fn headers(route: &Route) -> Vec<Value> {
    let mut all = Vec::new();
    if route.method == Method::POST {
        all.push(json!({
            "name": "Idempotency-Key",
            "in": "header",
            "required": false,
            "description": "The same request with the same key is done once, within a day; whoever asks again gets the first answer.",
            "schema": { "type": "string", "minLength": 1, "maxLength": 255 },
        }));
    }
    if route.seen != SeenBefore::Unused {
        let needed = match route.seen {
            SeenBefore::Needed => " Needed where something is changed.",
            SeenBefore::Optional | SeenBefore::Unused => "",
        };
        all.push(json!({
            "name": "If-Match",
            "in": "header",
            "required": false,
            "description": format!("The generation that was seen, in quotes.{needed}"),
            "schema": { "type": "string", "pattern": "^\"[0-9]+\"$" },
        }));
    }
    all
}

/// Those of the path are needed, those of the query as their type says.
fn parameters(route: &Route) -> Vec<Value> {
    let schema = (route.parameters)(&mut inlined()).to_value();
    let required = schema["required"].as_array();
    let is_required =
        |name: &str| required.is_some_and(|all| all.iter().any(|one| one.as_str() == Some(name)));
    let Some(fields) = schema["properties"].as_object() else {
        return headers(route);
    };
    let described = fields.iter().map(|(name, field)| {
        let is_of_path = route.path.contains(&format!("{{{name}}}"));
        let mut field = field.clone();
        let description = field
            .as_object_mut()
            .and_then(|all| all.remove("description"));
        without_null(&mut field);
        let mut one = json!({
            "name": name,
            "in": if is_of_path { "path" } else { "query" },
            "required": is_of_path || is_required(name),
            "schema": field,
        });
        if let Some(description) = description {
            one["description"] = description;
        }
        one
    });
    described.chain(headers(route)).collect()
}

/// What may be left out is not sent as null.
fn without_null(field: &mut Value) {
    if let Some(Value::Array(types)) = field.get_mut("type") {
        types.retain(|one| one != "null");
        if let [one] = types.as_slice() {
            field["type"] = one.clone();
        }
    }
    if let Some(Value::Array(words)) = field.get_mut("enum") {
        words.retain(|one| !one.is_null());
    }
    let choices = field.get("anyOf").and_then(Value::as_array);
    let rest = choices.map(|all| all.iter().filter(|one| one["type"] != "null"));
    let rest: Vec<Value> = rest.into_iter().flatten().cloned().collect();
    if let [one] = &rest[..] {
        *field = one.clone();
    }
    if let Some(all) = field.as_object_mut() {
        all.retain(|name, value| name != "default" || !value.is_null());
    }
}
