//! Taking back what was taken back.

use crate::world::World;
use serde_json::{Value, json};
use std::path::Path;

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
async fn an_undo_leaves_alone_what_it_is_told_to() {
    let world = World::with(&[("a", "1"), ("b", "1")]);
    let client = world.client().await;
    client.checkpoint("x").await;
    world.write("a", "2");
    world.write("b", "2");
    client.call("restore", json!({ "checkpoint": "x" })).await;

    let undone = client.call("undo", json!({ "except": ["b"] })).await;

    assert_eq!(undone["undone"], true);
    assert_eq!(
        (world.read("a"), world.read("b")),
        ("2".to_owned(), "1".to_owned())
    );
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

/// How many undo checkpoints there may be before a model changes nothing more.
const MOST: u32 = 200;

/// Copies an undo checkpoint, with the backup in it, under other numbers.
fn multiply(session: &Path, from: u32, to: std::ops::RangeInclusive<u32>) {
    let undo = session.join("undo");
    let text = std::fs::read(undo.join(format!("{from}/metadata.json"))).unwrap();
    let mut metadata: Value = serde_json::from_slice(&text).unwrap();
    for number in to {
        let copied = std::process::Command::new("cp")
            .arg("-a")
            .args([undo.join(from.to_string()), undo.join(number.to_string())])
            .status();
        assert!(copied.unwrap().success());
        metadata["slot"] = json!(number);
        metadata["sequence"] = json!(1000 + number);
        std::fs::write(
            undo.join(format!("{number}/metadata.json")),
            metadata.to_string(),
        )
        .unwrap();
    }
}

fn count(world: &World) -> usize {
    std::fs::read_dir(world.home().join("s/undo"))
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_type().unwrap().is_dir())
        .count()
}

/// A workspace of which a model may change something once more, and the model.
async fn nearly_full() -> (World, crate::world::Client) {
    let world = World::with(&[("a", "1"), ("b", "1"), ("c", "1")]);
    let client = world.client().await;
    client.checkpoint("x").await;
    world.write("a", "2");
    let reverted = client.call("revert", json!({ "path": "a" })).await;
    assert_eq!(reverted["undo"], "u-1");
    multiply(&world.home().join("s"), 1, 2..=MOST - 1);
    for file in ["a", "b", "c"] {
        world.write(file, "precious");
    }
    (world, client)
}

#[tokio::test]
async fn a_model_that_replaced_as_much_as_it_may_changes_nothing_until_a_person_lets_it_go() {
    let (world, client) = nearly_full().await;

    let last = client.call("revert", json!({ "path": "a" })).await;
    let again = client.fails("revert", json!({ "path": "b" })).await;
    let whole = client.fails("restore", json!({ "checkpoint": "x" })).await;
    let undo = client.fails("undo", json!({})).await;
    let shown = client
        .call("revert", json!({ "path": "b", "dry_run": true }))
        .await;
    let (kept, read) = (count(&world), world.read("b"));
    let forgotten = world.stasis(&["workspace", "undo", "--forget", "--workspace", "w"]);
    let after = client.call("revert", json!({ "path": "b" })).await;

    assert_eq!(last["undo"], "u-200");
    for error in [again, whole, undo] {
        assert_eq!(error["kind"], "limit", "{error:#}");
        let (message, hint) = (error["message"].as_str(), error["hint"].as_str());
        assert!(message.unwrap().contains("200"), "{error:#}");
        assert!(hint.unwrap().contains("undo --forget"), "{error:#}");
    }
    assert_eq!(shown["plan"]["replaces"], 1);
    assert_eq!((kept, read.as_str()), (200, "precious"));
    let text = String::from_utf8(forgotten.stdout).unwrap();
    assert!(text.starts_with("Deleted 200 undo checkpoints"), "{text}");
    assert_eq!(after["undo"], "u-201");
    assert_eq!((count(&world), world.read("b").as_str()), (1, "1"));
}

#[tokio::test]
async fn people_are_not_held_up_by_what_a_model_replaced_and_push_none_of_it_out() {
    let (world, client) = nearly_full().await;
    client.call("revert", json!({ "path": "a" })).await;

    for number in 0..12 {
        world.write("b", format!("version {number}"));
        let done = world.stasis(&["workspace", "revert", "b", "x", "--workspace", "w"]);
        assert!(done.status.success(), "{done:?}");
    }

    assert_eq!(count(&world), 200 + 12, "their own acts of a week besides");
    for number in [1, 2, 199, 200] {
        let kept = world
            .home()
            .join(format!("s/undo/{number}/workspace/backup"));
        assert!(kept.exists(), "u-{number}");
    }
}

#[tokio::test]
async fn what_a_model_replaced_outlives_many_later_acts() {
    let world = World::with(&[("a", "1"), ("b", "1")]);
    let client = world.client().await;
    client.checkpoint("x").await;
    world.write("a", "precious");
    let first = client.call("revert", json!({ "path": "a" })).await;

    for number in 0..12 {
        world.write("b", format!("version {number}"));
        client.call("revert", json!({ "path": "b" })).await;
    }
    client.call("undo", json!({ "undo": first["undo"] })).await;

    assert_eq!(world.read("a"), "precious");
}
