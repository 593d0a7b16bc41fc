//! The tools of models over HTTP: a real server, and messages as clients of the protocol send them.

use crate::serve::{Answer, Served, token};
use crate::session::Session;
use serde_json::{Value, json};
use std::fs;

/// Version, and the name of a tool, as a client of today says them.
const PROTOCOL: &str = "MCP-Protocol-Version: 2025-06-18\r\n";

fn send(served: &Served, token: &str, workspace: &str, message: &Value) -> Answer {
    let headers = format!(
        "{PROTOCOL}Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
    );
    let line = format!("POST /mcp/{workspace}");
    served.ask(token, &line, &headers, &message.to_string())
}

fn call(served: &Served, token: &str, tool: &str, arguments: &Value) -> Value {
    let params = json!({ "name": tool, "arguments": arguments });
    let message = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params });
    let answer = send(served, token, "shop", &message);
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.body["id"], 7, "{}", answer.text);
    answer.body["result"].clone()
}

#[test]
fn a_model_with_a_token_makes_checkpoints_of_a_workspace_that_was_named() {
    let session = Session::new();
    let shop = session.home().join("shop");
    fs::create_dir(&shop).unwrap();
    fs::write(shop.join("price"), "5").unwrap();
    let dir = shop.to_str().unwrap();
    session.data(0, &["workspace", "init", dir]);
    let config = session.home().join("serve.toml");
    let text = format!("[serve.workspaces.shop]\ndir = \"{dir}\"\ntenant = \"acme\"\n");
    fs::write(&config, text).unwrap();
    let on_host = |tenant: &str, scope: &str| {
        let words = [
            "token", "create", "--tenant", tenant, "--scope", scope, "--host",
        ];
        session.data(0, &words).lines().last().unwrap().to_owned()
    };
    let (model, other) = (on_host("acme", "write"), on_host("other", "admin"));
    let served = Served::start(&session, &["--config", config.to_str().unwrap()]);

    let client = json!({ "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": { "name": "test", "version": "1" } });
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client });
    let hello = send(&served, &model, "shop", &hello);
    assert_eq!(hello.status, 200, "{}", hello.text);
    assert_eq!(hello.body["result"]["serverInfo"]["name"], "stasis");
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    assert_eq!(send(&served, &model, "shop", &ready).status, 202);
    let list = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" });
    let list = send(&served, &model, "shop", &list);
    let tools = list.body["result"]["tools"].as_array().unwrap();
    assert!(tools.iter().any(|tool| tool["name"] == "snapshots_restore"));

    let made = call(
        &served,
        &model,
        "snapshots_create",
        &json!({ "name": "before" }),
    );
    assert_ne!(made["isError"], json!(true), "{made}");
    fs::write(shop.join("price"), "6").unwrap();
    let restored = call(
        &served,
        &model,
        "snapshots_revert",
        &json!({ "checkpoint": "before", "path": "price" }),
    );
    assert_ne!(restored["isError"], json!(true), "{restored}");
    assert_eq!(fs::read_to_string(shop.join("price")).unwrap(), "5");

    let create = json!({ "jsonrpc": "2.0", "id": 3, "method": "tools/list" });
    let plain = token(&session, "acme", "admin");
    assert_eq!(send(&served, &plain, "shop", &create).status, 403);
    assert_eq!(
        send(&served, &on_host("acme", "read"), "shop", &create).status,
        403
    );
    assert_eq!(send(&served, &other, "shop", &create).status, 404);
    assert_eq!(send(&served, &model, "till", &create).status, 404);
    assert_eq!(send(&served, "", "shop", &create).status, 401);
    assert_eq!(served.get(&model, "/mcp/shop").status, 405);
    let nonsense = send(&served, &model, "shop", &json!({ "a": 1 }));
    assert!((400..500).contains(&nonsense.status), "{}", nonsense.text);
    assert_eq!(served.stop(), 0);
}

#[test]
fn a_workspace_that_is_none_is_said_at_the_start() {
    let session = Session::new();
    let config = session.home().join("serve.toml");
    fs::write(&config, "[serve.workspaces.shop]\ndir = \"/nowhere\"\n").unwrap();

    let said = session.run(&["--config", config.to_str().unwrap(), "serve"]);

    assert_ne!(said.code, 0);
    assert!(said.err.contains("[serve.workspaces.shop]"), "{}", said.err);
}
