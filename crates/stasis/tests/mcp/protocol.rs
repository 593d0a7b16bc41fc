//! What every client sees, whatever it does.

use crate::world::{World, end_by, ended};
use rmcp::ServiceError;
use rmcp::model::CallToolRequestParams;
use rustix::process::Signal;
use serde_json::{Value, json};

const TOOLS: [&str; 15] = [
    "snapshots_changes",
    "snapshots_compact",
    "snapshots_create",
    "snapshots_delete",
    "snapshots_diff",
    "snapshots_fork",
    "snapshots_fork_diff",
    "snapshots_fork_list",
    "snapshots_fork_promote",
    "snapshots_fork_rm",
    "snapshots_history",
    "snapshots_list",
    "snapshots_restore",
    "snapshots_revert",
    "snapshots_undo",
];

/// Parameters with which a tool is content, as far as they go.
fn needed(tool: &str) -> Value {
    match tool {
        "diff" | "revert" | "history" => json!({ "path": "a" }),
        "restore" | "delete" => json!({ "checkpoint": "cp-10" }),
        "compact" => json!({ "checkpoints": ["cp-10", "cp-11"] }),
        "fork" => json!({ "checkpoint": "cp-10", "name": "f" }),
        _ => json!({}),
    }
}

#[tokio::test]
async fn the_server_says_who_it_is_and_how_it_is_used() {
    let world = World::new();
    let client = world.client().await;

    let info = client.service().peer_info().unwrap();

    let server = info.server_info.as_ref().unwrap();
    assert_eq!(server.name, "stasis");
    assert_eq!(server.version, env!("CARGO_PKG_VERSION"));
    let instructions = info.instructions.as_ref().unwrap();
    assert!(instructions.chars().count() <= 1_500);
    assert!(instructions.contains("dry_run"));
    assert!(info.capabilities.tools.is_some());
}

#[tokio::test]
async fn there_are_exactly_these_tools() {
    let world = World::new();
    let client = world.client().await;

    let mut names: Vec<&str> = client
        .tools()
        .iter()
        .map(|tool| tool.name.as_ref())
        .collect();
    names.sort_unstable();

    assert_eq!(names, TOOLS);
}

#[tokio::test]
async fn every_tool_has_a_title_schemas_and_hints() {
    let world = World::new();
    let client = world.client().await;

    for tool in client.tools() {
        assert!(
            tool.title.is_some() && tool.description.is_some(),
            "{}",
            tool.name
        );
        assert_eq!(tool.input_schema["type"], "object");
        assert_eq!(tool.output_schema.as_ref().unwrap()["type"], "object");
        let hints = tool.annotations.as_ref().unwrap();
        let reads = ["list", "changes", "diff", "history"];
        let is_reader = reads.iter().any(|verb| tool.name.ends_with(verb));
        assert_eq!(hints.read_only_hint, Some(is_reader), "{}", tool.name);
        let adds = ["create", "fork"]
            .iter()
            .any(|verb| tool.name.ends_with(verb));
        assert_eq!(
            hints.destructive_hint,
            Some(!is_reader && !adds),
            "{}",
            tool.name
        );
        assert_eq!(hints.open_world_hint, Some(false), "{}", tool.name);
    }
}

#[tokio::test]
async fn a_tool_that_is_not_there_is_refused() {
    let world = World::new();
    let client = world.client().await;

    let call = CallToolRequestParams::new("snapshots_purge");
    let refused = client.service().call_tool(call).await.unwrap_err();

    let ServiceError::McpError(error) = refused else {
        panic!("{refused:?}")
    };
    assert!([-32601, -32602].contains(&error.code.0), "{error}");
    assert!(error.message.contains("snapshots_purge"));
}

#[tokio::test]
async fn a_parameter_that_is_not_known_is_refused_by_every_tool() {
    let world = World::new();
    let client = world.client().await;

    for tool in TOOLS.map(|name| name.strip_prefix("snapshots_").unwrap()) {
        for unknown in ["root", "workspace", "tenant", "dryrun"] {
            let mut arguments = needed(tool);
            arguments[unknown] = json!("x");
            let error = client.refused(tool, arguments).await;
            assert_eq!(error.code.0, -32602, "{tool}");
            assert!(error.message.contains(&format!("`{unknown}`")), "{error}");
        }
    }
    assert_eq!(client.all().await.len(), 0);
}

#[tokio::test]
async fn a_parameter_of_another_type_is_refused_and_named() {
    let world = World::new();
    let client = world.client().await;
    let cases = [
        ("create", json!({ "name": 5 }), "name"),
        ("create", json!({ "dry_run": "yes" }), "dry_run"),
        ("list", json!({ "start_index": "0" }), "start_index"),
        ("list", json!({ "start_index": -1 }), "start_index"),
        ("list", json!({ "max_length": 1.5 }), "max_length"),
        ("list", json!({ "include_changes": 1 }), "include_changes"),
        ("list", json!({ "format": "xml" }), "format"),
        ("changes", json!({ "since": ["cp-1"] }), "since"),
        ("diff", json!({ "path": { "a": 1 } }), "path"),
        ("revert", json!({ "path": "a", "confirm": true }), "confirm"),
        ("restore", json!({ "checkpoint": 10 }), "checkpoint"),
        ("compact", json!({ "checkpoints": "cp-10" }), "checkpoints"),
        ("compact", json!({ "checkpoints": [10, 11] }), "checkpoints"),
        ("undo", json!({ "undo": 4 }), "undo"),
        (
            "fork",
            json!({ "checkpoint": "cp-10", "name": "f", "n": "2" }),
            "n",
        ),
    ];

    for (tool, arguments, named) in cases {
        let error = client.refused(tool, arguments).await;
        assert_eq!(error.code.0, -32602, "{tool}");
        assert!(error.message.contains(&format!("`{named}`")), "{error}");
    }
}

#[tokio::test]
async fn a_parameter_that_is_missing_is_named() {
    let world = World::new();
    let client = world.client().await;
    let cases = [
        ("diff", "path"),
        ("revert", "path"),
        ("history", "path"),
        ("restore", "checkpoint"),
        ("delete", "checkpoint"),
        ("compact", "checkpoints"),
        ("fork_promote", "name"),
        ("fork_diff", "a"),
    ];

    for (tool, named) in cases {
        let error = client.refused(tool, json!({})).await;
        assert_eq!(error.code.0, -32602, "{tool}");
        assert!(error.message.contains(&format!("`{named}`")), "{error}");
    }
}

#[tokio::test]
async fn an_answer_of_an_impossible_length_is_refused() {
    let world = World::new();
    let client = world.client().await;

    for length in [0, 199, 100_001, 4_000_000_000_u64] {
        let error = client
            .refused("list", json!({ "max_length": length }))
            .await;
        assert_eq!(error.code.0, -32602);
        assert!(error.message.contains("100000"), "{error}");
    }
}

#[tokio::test]
async fn what_names_no_checkpoint_is_refused() {
    let world = World::new();
    let client = world.client().await;

    for name in [
        "",
        " ",
        "cp-",
        "cp-x",
        "cp-01",
        "CP-3",
        "a\nb",
        "a\u{202e}b",
    ] {
        let error = client
            .refused("restore", json!({ "checkpoint": name }))
            .await;
        assert_eq!(error.code.0, -32602, "{name:?}");
    }
}

#[tokio::test]
async fn a_server_whose_client_goes_ends_well() {
    let world = World::new();
    let client = world.client().await;

    assert_eq!(client.end().await, 0);
}

#[tokio::test]
async fn a_server_that_nobody_ever_talked_to_ends_well() {
    let world = World::new();
    let mut server = world.server(&[]);

    drop(server.stdin.take());

    assert_eq!(ended(&mut server).await, 0);
}

#[tokio::test]
async fn a_server_that_is_told_to_end_ends_well() {
    for signal in [Signal::TERM, Signal::INT] {
        let world = World::new();
        let mut client = world.client().await;
        client.checkpoint("kept").await;

        assert_eq!(end_by(client.server(), signal).await, 0);

        assert_eq!(world.client().await.names().await, ["kept"]);
    }
}

#[tokio::test]
async fn a_directory_that_is_no_workspace_is_not_served() {
    let world = World::plain();

    let server = world.server(&[]);
    let output = server.wait_with_output().await.unwrap();

    assert_eq!(output.status.code(), Some(3));
    assert!(output.stdout.is_empty());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("is not inside a workspace"), "{said}");
}
