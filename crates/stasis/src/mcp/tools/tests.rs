use super::*;
use crate::mcp::wire;
use serde::de::DeserializeOwned;
use serde_json::json;
use std::collections::BTreeSet;

fn named(name: &str) -> &'static Tool {
    TOOLS.iter().find(|tool| tool.name == name).unwrap()
}

/// What the reader of parameters says it takes, when it is given something else.
fn taken<T: DeserializeOwned + std::fmt::Debug>() -> BTreeSet<String> {
    let refused = serde_json::from_value::<T>(json!({ "no such parameter": 1 })).unwrap_err();
    let said = refused.to_string();
    let (_, expected) = said.split_once("expected").unwrap();
    let names = expected.split('`').skip(1).step_by(2);
    names.map(str::to_owned).collect()
}

#[test]
fn a_schema_has_exactly_the_parameters_that_are_read() {
    let readers = [
        ("snapshots_create", taken::<wire::Create>()),
        ("snapshots_list", taken::<wire::List>()),
        ("snapshots_changes", taken::<wire::Changes>()),
        ("snapshots_diff", taken::<wire::Diff>()),
        ("snapshots_revert", taken::<wire::Revert>()),
        ("snapshots_restore", taken::<wire::Restore>()),
        ("snapshots_history", taken::<wire::History>()),
        ("snapshots_delete", taken::<wire::Delete>()),
        ("snapshots_compact", taken::<wire::Compact>()),
        ("snapshots_undo", taken::<wire::Undo>()),
        ("snapshots_fork", taken::<wire::Fork>()),
    ];

    assert_eq!(readers.len(), TOOLS.len());
    for (name, read) in readers {
        let properties = named(name).input_schema["properties"].as_object().unwrap();
        let told: BTreeSet<String> = properties.keys().cloned().collect();
        assert_eq!(told, read, "{name}");
    }
}

#[test]
fn no_tool_takes_a_root_or_a_tenant() {
    for tool in TOOLS.iter() {
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
    for tool in TOOLS.iter() {
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
    for name in ["list", "changes", "diff", "history"] {
        let hints = hints(&format!("snapshots_{name}"));
        assert_eq!(
            (hints.read_only_hint, hints.destructive_hint),
            (Some(true), Some(false)),
            "{name}"
        );
    }
    for name in ["revert", "restore", "delete", "compact", "undo"] {
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
        TOOLS
            .iter()
            .all(|tool| tool.annotations.as_ref().unwrap().open_world_hint == Some(false))
    );
}
