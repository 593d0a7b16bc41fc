//! What a client says that no client should say, line by line.

use crate::world::{World, ended};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};

struct Wire {
    server: Child,
    write: ChildStdin,
    read: Lines<BufReader<ChildStdout>>,
}

impl Wire {
    async fn begin(world: &World) -> Self {
        let mut server = world.server(&[]);
        let write = server.stdin.take().unwrap();
        let read = BufReader::new(server.stdout.take().unwrap()).lines();
        let mut wire = Self {
            server,
            write,
            read,
        };
        let hello = json!({
            "jsonrpc": "2.0", "id": 0, "method": "initialize",
            "params": { "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "raw", "version": "1" } },
        });
        let answer = wire.ask(&hello.to_string()).await;
        assert_eq!(answer["result"]["serverInfo"]["name"], "stasis");
        wire.say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
            .await;
        wire
    }

    async fn say(&mut self, line: &str) {
        let line = format!("{line}\n");
        self.write.write_all(line.as_bytes()).await.unwrap();
    }

    /// The next line, which must be a message.
    async fn hear(&mut self) -> Value {
        let line = self.read.next_line().await.unwrap().unwrap();
        let message: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(message["jsonrpc"], "2.0");
        message
    }

    async fn ask(&mut self, line: &str) -> Value {
        self.say(line).await;
        self.hear().await
    }

    async fn assert_alive(&mut self) {
        let mut answer = self
            .ask(r#"{"jsonrpc":"2.0","id":"alive","method":"ping"}"#)
            .await;
        while answer["id"] != "alive" {
            answer = self.hear().await;
        }
        assert!(answer["error"].is_null(), "{answer}");
    }
}

#[tokio::test]
async fn arguments_that_are_no_object_are_refused() {
    let world = World::new();
    let mut wire = Wire::begin(&world).await;

    for arguments in ["[]", "\"x\"", "5"] {
        let call = format!(
            r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"snapshots_list","arguments":{arguments}}}}}"#
        );
        let answer = wire.ask(&call).await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        assert_eq!(answer["id"], 7);
    }
    wire.assert_alive().await;
}

#[tokio::test]
async fn a_call_without_a_name_is_refused() {
    let world = World::new();
    let mut wire = Wire::begin(&world).await;

    let answer = wire
        .ask(r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{}}"#)
        .await;

    assert_eq!(answer["error"]["code"], -32602, "{answer}");
}

#[tokio::test]
async fn a_method_that_is_not_there_is_refused() {
    let world = World::new();
    let mut wire = Wire::begin(&world).await;

    let answer = wire
        .ask(r#"{"jsonrpc":"2.0","id":7,"method":"snapshots/purge"}"#)
        .await;

    assert_eq!(answer["error"]["code"], -32601, "{answer}");
}

#[tokio::test]
async fn what_is_no_json_is_answered_and_does_not_end_the_server() {
    let world = World::new();
    let mut wire = Wire::begin(&world).await;

    for nonsense in ["{", "nonsense", "\u{0}\u{1}", "\u{feff}"] {
        let answer = wire.ask(nonsense).await;
        assert_eq!(answer["error"]["code"], -32700, "{answer}");
        assert!(answer["id"].is_null() && answer.get("id").is_some());
    }

    wire.say("").await;
    wire.assert_alive().await;
}

#[tokio::test]
async fn parameters_that_are_a_list_are_answered_with_the_id_of_the_request() {
    let world = World::new();
    let mut wire = Wire::begin(&world).await;

    for method in [
        "tools/call",
        "tools/list",
        "ping",
        "resources/list",
        "unheard-of",
    ] {
        let request = json!({ "jsonrpc": "2.0", "id": method, "method": method, "params": [] });
        let answer = wire.ask(&request.to_string()).await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        assert_eq!(answer["id"], method);
    }

    wire.say(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":[]}"#)
        .await;
    wire.assert_alive().await;
}

#[tokio::test]
async fn nonsense_before_the_first_greeting_is_answered_too() {
    let world = World::new();
    let mut server = world.server(&[]);
    let mut write = server.stdin.take().unwrap();
    let mut read = BufReader::new(server.stdout.take().unwrap()).lines();

    write.write_all(b"nonsense\n").await.unwrap();

    let answer: Value = serde_json::from_str(&read.next_line().await.unwrap().unwrap()).unwrap();
    assert_eq!(answer["error"]["code"], -32700, "{answer}");
    drop(write);
    assert_eq!(ended(&mut server).await, 0);
}

#[tokio::test]
async fn a_message_that_is_too_long_is_answered_and_does_not_end_the_server() {
    let world = World::new();
    let mut wire = Wire::begin(&world).await;

    let long = "x".repeat(2 << 20);
    let answer = wire
        .ask(&format!(
            r#"{{"jsonrpc":"2.0","id":7,"method":"ping","params":{{"x":"{long}"}}}}"#
        ))
        .await;
    assert_eq!(answer["id"], 7);
    assert_eq!(answer["error"]["code"], -32600, "{answer}");
    let answer = wire.ask(&long).await;
    assert!(answer["id"].is_null());
    assert_eq!(answer["error"]["code"], -32700, "{answer}");

    wire.assert_alive().await;
}

#[tokio::test]
async fn a_call_that_began_is_brought_to_its_end_though_its_client_goes() {
    let world = World::with(&[("a", "1")]);
    let mut wire = Wire::begin(&world).await;
    let call = json!({
        "jsonrpc": "2.0", "id": 7, "method": "tools/call",
        "params": { "name": "snapshots_create", "arguments": { "name": "last words" } },
    });

    wire.say(&call.to_string()).await;
    let Wire {
        mut server, write, ..
    } = wire;
    drop(write);

    assert_eq!(ended(&mut server).await, 0);
    assert_eq!(world.client().await.names().await, ["last words"]);
}
