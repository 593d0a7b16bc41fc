use super::*;
use crate::mcp::tools;
use serde_json::json;

#[test]
fn a_wrong_parameter_is_named() {
    let cases = [
        ("snapshots_create", json!({ "nmae": "x" }), "nmae"),
        (
            "snapshots_list",
            json!({ "start_index": "5" }),
            "start_index",
        ),
        (
            "snapshots_list",
            json!({ "start_index": -1 }),
            "start_index",
        ),
        ("snapshots_list", json!({ "format": "xml" }), "format"),
        (
            "snapshots_compact",
            json!({ "checkpoints": "cp-1" }),
            "checkpoints",
        ),
        (
            "snapshots_compact",
            json!({ "checkpoints": [1] }),
            "checkpoints",
        ),
        ("snapshots_restore", json!({}), "checkpoint"),
        ("snapshots_revert", json!({ "path": 5 }), "path"),
    ];

    for (tool, arguments, named) in cases {
        let Value::Object(arguments) = arguments else {
            unreachable!("these are objects")
        };
        let said = wrong_parameter(tools::find(tool).unwrap(), &arguments).unwrap();
        assert!(said.contains(&format!("`{named}`")), "{said}");
    }
}
