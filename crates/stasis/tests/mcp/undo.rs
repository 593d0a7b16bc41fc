//! Taking back what was taken back.

use crate::world::World;
use serde_json::{Value, json};

#[tokio::test]
async fn a_revert_is_taken_back() {
    let world = World::with(&[("a", "1")]);
    let client = world.client().await;
    client.checkpoint("x").await;
    world.write("a", "precious");
    world.set_mode("a", 0o700);
    let reverted = client.call("revert", json!({ "path": "a" })).await;

    let undone = client.call("undo", json!({})).await;

    assert_eq!(undone["undone"], true);
    assert_eq!(undone["undo"], reverted["undo"]);
    assert_eq!(
        (&undone["act"], &undone["path"]),
        (&json!("revert"), &json!("a"))
    );
    assert_eq!(
        (world.read("a"), world.mode("a")),
        ("precious".to_owned(), 0o700)
    );
}

#[tokio::test]
async fn a_revert_that_deleted_is_taken_back() {
    let world = World::with(&[("a", "1")]);
    let client = world.client().await;
    client.checkpoint("x").await;
    world.write("new", "precious");
    client
        .call("revert", json!({ "path": "new", "checkpoint": "x" }))
        .await;
    assert!(!world.exists("new"));

    client.call("undo", json!({})).await;

    assert_eq!(world.read("new"), "precious");
}

#[tokio::test]
async fn a_restore_is_taken_back() {
    let world = World::with(&[("edited", "1"), ("gone", "1")]);
    let client = world.client().await;
    client.checkpoint("x").await;
    world.write("edited", "2");
    world.write("d/new", "2");
    world.remove("gone");
    client.call("restore", json!({ "checkpoint": "x" })).await;
    assert!(world.exists("gone"));

    let undone = client.call("undo", json!({})).await;

    assert_eq!(
        (&undone["act"], &undone["path"]),
        (&json!("restore"), &Value::Null)
    );
    assert_eq!(
        (world.read("edited"), world.read("d/new")),
        ("2".to_owned(), "2".to_owned())
    );
    assert!(!world.exists("gone"));
}

#[tokio::test]
async fn an_undo_is_taken_back() {
    let world = World::with(&[("a", "1")]);
    let client = world.client().await;
    client.checkpoint("x").await;
    world.write("a", "2");
    client.call("revert", json!({ "path": "a" })).await;
    let undone = client.call("undo", json!({})).await;
    assert_eq!(world.read("a"), "2");

    let redone = client.call("undo", json!({ "undo": undone["redo"] })).await;

    assert_eq!(redone["act"], "undo");
    assert_eq!(world.read("a"), "1");
}

#[tokio::test]
async fn an_older_act_is_taken_back_by_its_name() {
    let world = World::with(&[("a", "1"), ("b", "1")]);
    let client = world.client().await;
    client.checkpoint("x").await;
    world.write("a", "2");
    world.write("b", "2");
    let first = client.call("revert", json!({ "path": "a" })).await;
    client.call("revert", json!({ "path": "b" })).await;

    client.call("undo", json!({ "undo": first["undo"] })).await;

    assert_eq!(
        (world.read("a"), world.read("b")),
        ("2".to_owned(), "1".to_owned())
    );
}

#[tokio::test]
async fn a_new_server_takes_back_what_the_old_one_did() {
    let world = World::with(&[("a", "1")]);
    let first = world.client().await;
    first.checkpoint("x").await;
    world.write("a", "precious");
    first.call("revert", json!({ "path": "a" })).await;
    first.end().await;

    world.client().await.call("undo", json!({})).await;

    assert_eq!(world.read("a"), "precious");
}

#[tokio::test]
async fn a_dry_run_takes_nothing_back() {
    let world = World::with(&[("a", "1")]);
    let client = world.client().await;
    client.checkpoint("x").await;
    world.write("a", "2");
    client.call("revert", json!({ "path": "a" })).await;

    let shown = client.call("undo", json!({ "dry_run": true })).await;

    assert_eq!(
        (&shown["undone"], &shown["dry_run"]),
        (&json!(false), &json!(true))
    );
    assert_eq!(world.read("a"), "1");
}

#[tokio::test]
async fn nothing_is_taken_back_before_anything_was_done() {
    let world = World::with(&[("a", "1")]);
    let client = world.client().await;
    client.checkpoint("x").await;

    let nothing = client.fails("undo", json!({})).await;
    let unknown = client.fails("undo", json!({ "undo": "u-7" })).await;

    assert_eq!(nothing["reason"], "nothing_to_undo");
    assert!(["no_such_undo", "nothing_to_undo"].contains(&unknown["reason"].as_str().unwrap()));
}

#[tokio::test]
async fn an_undo_that_is_spelled_otherwise_is_refused() {
    let world = World::new();
    let client = world.client().await;

    for undo in ["", "4", "u-", "u-x", "u--1", "cp-4", "u-04"] {
        let error = client.refused("undo", json!({ "undo": undo })).await;
        assert_eq!(error.code.0, -32602, "{undo:?}");
    }
}

#[tokio::test]
async fn an_undo_that_deletes_many_files_needs_a_digest_too() {
    let world = World::with(&[]);
    let client = world.client().await;
    for number in 0..30 {
        world.write(format!("f{number}"), "1");
    }
    client.checkpoint("x").await;
    for number in 0..30 {
        world.remove(format!("f{number}"));
    }
    client.call("restore", json!({ "checkpoint": "x" })).await;

    let error = client.fails("undo", json!({})).await;
    assert_eq!(error["reason"], "needs_confirmation");
    assert_eq!(error["details"]["deletes"], 30);
    let shown = client.call("undo", json!({ "dry_run": true })).await;
    let confirm = &shown["plan"]["digest"];
    client.call("undo", json!({ "confirm": confirm })).await;

    assert!(!world.exists("f0"));
}

#[tokio::test]
async fn an_undo_does_not_overwrite_what_came_after_without_keeping_it() {
    let world = World::with(&[("a", "1")]);
    let client = world.client().await;
    client.checkpoint("x").await;
    world.write("a", "2");
    client.call("revert", json!({ "path": "a" })).await;
    world.write("a", "written after the revert");

    let undone = client.call("undo", json!({})).await;
    assert_eq!(world.read("a"), "2");
    client.call("undo", json!({ "undo": undone["redo"] })).await;

    assert_eq!(world.read("a"), "written after the revert");
}
