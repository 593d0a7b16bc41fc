//! One entry through all checkpoints.

use crate::world::{Client, World};
use serde_json::{Value, json};

/// What a path is in each checkpoint, the oldest first.
async fn statuses(client: &Client, path: &str) -> Vec<String> {
    let history = client
        .call("history", json!({ "path": path, "format": "json" }))
        .await;
    let versions = history["items"].as_array().unwrap().iter().rev();
    versions
        .map(|version| version["status"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn a_file_is_new_then_unchanged_then_modified() {
    let world = World::with(&[("a", "1")]);
    let client = world.client().await;
    client.checkpoint("one").await;
    client.checkpoint("two").await;
    world.write("a", "2");
    client.checkpoint("three").await;

    assert_eq!(
        statuses(&client, "a").await,
        ["new", "unchanged", "modified"]
    );
}

#[tokio::test]
async fn a_bare_touch_is_unchanged_and_an_edit_of_the_same_length_is_not() {
    let world = World::with(&[("a", "same")]);
    let client = world.client().await;
    client.checkpoint("one").await;
    world.touch("a", 1_000_000_000);
    client.checkpoint("two").await;
    world.write("a", "maes");
    client.checkpoint("three").await;

    assert_eq!(
        statuses(&client, "a").await,
        ["new", "unchanged", "modified"]
    );
}

#[tokio::test]
async fn a_file_that_went_and_came_again_is_new_deleted_new() {
    let world = World::with(&[("a", "1"), ("b", "1")]);
    let client = world.client().await;
    client.checkpoint("one").await;
    world.remove("a");
    client.checkpoint("two").await;
    world.write("a", "2");
    client.checkpoint("three").await;

    assert_eq!(statuses(&client, "a").await, ["new", "deleted", "new"]);
}

#[tokio::test]
async fn the_same_name_in_two_directories_is_two_files() {
    let world = World::with(&[("d/a", "1"), ("e/a", "1")]);
    let client = world.client().await;
    client.checkpoint("one").await;
    world.write("d/a", "2");
    client.checkpoint("two").await;

    assert_eq!(statuses(&client, "d/a").await, ["new", "modified"]);
    assert_eq!(statuses(&client, "e/a").await, ["new", "unchanged"]);
}

#[tokio::test]
async fn a_history_says_what_is_there_now() {
    let world = World::with(&[("a", "12345")]);
    let client = world.client().await;
    client.checkpoint("one").await;
    let there = client
        .call("history", json!({ "path": "a", "format": "json" }))
        .await;
    world.remove("a");
    let gone = client
        .call("history", json!({ "path": "a", "format": "json" }))
        .await;

    assert_eq!(
        (&there["current_kind"], &there["current_size"]),
        (&json!("file"), &json!(5))
    );
    assert_eq!(
        (&gone["current_kind"], &gone["current_size"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(gone["items"][0]["size"], 5);
}

#[tokio::test]
async fn a_history_in_words_has_a_line_for_each_checkpoint() {
    let world = World::with(&[("a", "1")]);
    let client = world.client().await;
    client.checkpoint("one").await;
    world.write("a", "22");
    client.checkpoint("two").await;

    let words = client.words("history", json!({ "path": "a" })).await;

    assert!(
        words.contains("cp-11  modified  2 bytes  manual  \"two\""),
        "{words}"
    );
    assert!(
        words.contains("cp-10  new  1 bytes  manual  \"one\""),
        "{words}"
    );
    assert!(words.lines().nth(1).unwrap().contains("untrusted"));
}

#[tokio::test]
async fn what_is_nowhere_has_no_history() {
    let world = World::with(&[("a", "1")]);
    let client = world.client().await;
    client.checkpoint("one").await;

    let error = client.fails("history", json!({ "path": "nowhere" })).await;

    assert_eq!(error["kind"], "notfound");
}
