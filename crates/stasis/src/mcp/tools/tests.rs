use super::*;
use serde_json::json;

fn named(name: &str) -> &'static Tool {
    find(name).unwrap()
}

#[test]
fn what_is_not_in_its_schema_is_refused_by_every_tool() {
    for tool in list() {
        let properties = tool.input_schema["properties"].as_object().unwrap();
        assert!(!properties.contains_key("no such parameter"));
        let unknown = json!({ "no such parameter": 1 });
        let Value::Object(unknown) = unknown else {
            unreachable!("it is an object")
        };
        let said = misfit::wrong_parameter(&tool, &unknown).unwrap();
        assert!(said.contains("no such parameter"), "{said}");
        for name in properties.keys() {
            assert!(said.contains(&format!("`{name}`")), "{said}");
        }
    }
}

#[test]
fn no_tool_takes_a_root_or_a_tenant() {
    for tool in list() {
        for name in tool.input_schema["properties"].as_object().unwrap().keys() {
            assert!(
                !["root", "workspace", "tenant", "session", "directory", "dir"]
                    .contains(&name.as_str()),
                "{}: {name}",
                tool.name
            );
        }
    }
}

#[test]
fn every_tool_says_what_it_is_and_what_its_parameters_are() {
    for tool in list() {
        assert!(tool.title.is_some());
        assert!(tool.output_schema.is_some());
        let description = tool.description.as_ref().unwrap();
        assert!(
            description.len() < 450,
            "{}: {}",
            tool.name,
            description.len()
        );
        assert_eq!(tool.input_schema["additionalProperties"], false);
        for (name, schema) in tool.input_schema["properties"].as_object().unwrap() {
            assert!(schema["description"].is_string(), "{}: {name}", tool.name);
        }
    }
}

#[test]
fn hints_say_what_reads_and_what_destroys() {
    let hints = |name: &str| named(name).annotations.clone().unwrap();
    for name in [
        "list",
        "changes",
        "diff",
        "history",
        "fork_list",
        "fork_diff",
    ] {
        let hints = hints(&format!("snapshots_{name}"));
        assert_eq!(
            (hints.read_only_hint, hints.destructive_hint),
            (Some(true), Some(false)),
            "{name}"
        );
    }
    for name in [
        "revert",
        "restore",
        "delete",
        "compact",
        "undo",
        "fork_promote",
        "fork_rm",
    ] {
        let hints = hints(&format!("snapshots_{name}"));
        assert_eq!(
            (hints.read_only_hint, hints.destructive_hint),
            (Some(false), Some(true)),
            "{name}"
        );
    }
    for name in ["create", "fork"] {
        let hints = hints(&format!("snapshots_{name}"));
        assert_eq!(
            (hints.read_only_hint, hints.destructive_hint),
            (Some(false), Some(false)),
            "{name}"
        );
    }
    assert!(
        list()
            .iter()
            .all(|tool| tool.annotations.as_ref().unwrap().open_world_hint == Some(false))
    );
}

#[test]
fn a_schema_says_what_is_sent_of_a_type_and_no_more() {
    let output = |name: &str| named(name).output_schema.clone().unwrap();
    let list = output("snapshots_list");
    let row = &list["properties"]["items"]["items"];

    // Never sent, not required, required.
    assert!(row["properties"].get("slot").is_none(), "{row}");
    let required = row["required"].as_array().unwrap();
    assert!(row["properties"]["complete"].is_object() && !required.contains(&json!("complete")));
    assert!(required.contains(&json!("files_count")));
    // Nulls are left out, so that nothing may be null.
    assert_eq!(row["properties"]["name"]["type"], "string");
    assert_eq!(
        row["properties"]["changes"]["items"]["properties"]["op"]["enum"],
        json!(["created", "modified", "deleted"])
    );
    let either = &list["anyOf"];
    assert_eq!(either[1]["required"], json!(["error"]));
    for name in ["total", "start_index", "notice", "workspace"] {
        assert!(
            either[0]["required"]
                .as_array()
                .unwrap()
                .contains(&json!(name)),
            "{either}"
        );
    }
    assert_eq!(
        list["properties"]["error"]["properties"]["hint"]["type"],
        json!(["string", "null"])
    );
    assert_eq!(
        named("snapshots_list").input_schema["properties"]["format"]["enum"],
        json!(["text", "json"])
    );
}

#[test]
fn all_tools_together_are_short_enough_to_be_read_before_every_conversation() {
    let all = serde_json::to_string(&list()).unwrap();
    assert!(all.len() < 47_000, "{}", all.len());
}
