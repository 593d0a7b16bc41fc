//! Making the whole workspace what it was.

use crate::world::{World, pairs};
use serde_json::{Value, json};

/// A workspace in which so many files came since the checkpoint `x`.
async fn with_new_files(count: usize) -> (World, crate::world::Client) {
    let world = World::with(&[("kept", "1")]);
    let client = world.client().await;
    client.checkpoint("x").await;
    for number in 0..count {
        world.write(format!("new{number}"), "2");
    }
    (world, client)
}

#[tokio::test]
async fn everything_is_as_it_was_and_the_root_is_the_same_directory() {
    let world = World::with(&[("edited", "1"), ("gone/a", "1"), ("same", "1")]);
    world.link("link", "same");
    world.set_mode("edited", 0o600);
    let (root, same) = (world.inode(""), world.inode("same"));
    let client = world.client().await;
    client.checkpoint("x").await;
    world.write("edited", "2");
    world.set_mode("edited", 0o644);
    world.remove("gone");
    world.remove("link");
    world.write("new/deep/b", "2");

    let restored = client.call("restore", json!({ "checkpoint": "x" })).await;

    assert_eq!(restored["restored"], true);
    assert_eq!(client.changed(json!({ "since": "x" })).await, pairs(&[]));
    assert_eq!(
        (world.read("edited"), world.mode("edited")),
        ("1".to_owned(), 0o600)
    );
    assert_eq!(world.read("gone/a"), "1");
    assert!(!world.exists("new"));
    assert_eq!(world.target("link").to_str(), Some("same"));
    assert_eq!((world.inode(""), world.inode("same")), (root, same));
}

#[tokio::test]
async fn a_hundred_files_come_back() {
    let world = World::new();
    let client = world.client().await;
    for number in 0..100 {
        world.write(format!("d{}/f{number}", number % 7), number.to_string());
    }
    client.checkpoint("x").await;
    for number in 0..100 {
        world.write(format!("d{}/f{number}", number % 7), "broken");
    }

    let restored = client.call("restore", json!({ "checkpoint": "x" })).await;

    assert_eq!(restored["plan"]["replaces"], 100);
    for number in 0..100 {
        assert_eq!(
            world.read(format!("d{}/f{number}", number % 7)),
            number.to_string()
        );
    }
}

#[tokio::test]
async fn a_restore_that_deletes_twenty_files_is_done() {
    let (world, client) = with_new_files(20).await;

    client.call("restore", json!({ "checkpoint": "x" })).await;

    assert!(!world.exists("new0"));
    assert_eq!(world.read("kept"), "1");
}

#[tokio::test]
async fn a_restore_that_deletes_more_is_not_done_without_a_digest() {
    let (world, client) = with_new_files(21).await;

    let error = client.fails("restore", json!({ "checkpoint": "x" })).await;

    assert_eq!(error["reason"], "needs_confirmation");
    assert_eq!(error["kind"], "denied");
    assert_eq!(
        error["details"],
        json!({ "deletes": 21, "most_without_confirm": 20 })
    );
    assert!(error["hint"].as_str().unwrap().contains("dry_run"));
    assert!(world.exists("new0") && world.exists("new20"));
}

#[tokio::test]
async fn a_restore_that_deletes_more_is_done_with_the_digest_of_its_dry_run() {
    let (world, client) = with_new_files(21).await;
    let shown = client
        .call("restore", json!({ "checkpoint": "x", "dry_run": true }))
        .await;
    assert_eq!(shown["plan"]["deletes_files"], 21);
    assert!(world.exists("new0"));

    let digest = &shown["plan"]["digest"];
    let restored = client
        .call("restore", json!({ "checkpoint": "x", "confirm": digest }))
        .await;

    assert_eq!(restored["restored"], true);
    assert!(!world.exists("new0") && !world.exists("new20"));
}

#[tokio::test]
async fn the_digest_of_an_old_dry_run_is_refused() {
    let (world, client) = with_new_files(21).await;
    let shown = client
        .call("restore", json!({ "checkpoint": "x", "dry_run": true }))
        .await;
    world.write("precious", "written after the dry run");

    let confirmed = json!({ "checkpoint": "x", "confirm": shown["plan"]["digest"] });
    let error = client.fails("restore", confirmed).await;

    assert_eq!(error["reason"], "plan_changed");
    assert_eq!(error["kind"], "retry");
    assert_eq!(world.read("precious"), "written after the dry run");
    assert!(world.exists("new0"));
}

#[tokio::test]
async fn a_digest_of_nothing_is_refused() {
    let (world, client) = with_new_files(21).await;

    for digest in ["", "yes", "0000", &"0".repeat(64)] {
        let confirmed = json!({ "checkpoint": "x", "confirm": digest });
        client.fails("restore", confirmed).await;
    }

    assert!(world.exists("new0") && world.exists("new20"));
}

#[tokio::test]
async fn the_digest_of_one_checkpoint_is_none_for_another() {
    let (world, client) = with_new_files(21).await;
    client.checkpoint("y").await;
    for number in 0..22 {
        world.write(format!("more{number}"), "3");
    }
    let shown = client
        .call("restore", json!({ "checkpoint": "y", "dry_run": true }))
        .await;

    let confirmed = json!({ "checkpoint": "x", "confirm": shown["plan"]["digest"] });
    client.fails("restore", confirmed).await;

    assert!(world.exists("new0") && world.exists("more0"));
}

#[tokio::test]
async fn a_dry_run_restores_nothing_and_tells_the_numbers() {
    let world = World::with(&[("edited", "1"), ("gone", "1")]);
    let client = world.client().await;
    client.checkpoint("x").await;
    world.write("edited", "2");
    world.write("new", "2");
    world.remove("gone");

    let shown = client
        .call("restore", json!({ "checkpoint": "x", "dry_run": true }))
        .await;

    let plan = &shown["plan"];
    let numbers =
        ["creates", "replaces", "deletes", "deletes_files"].map(|name| plan[name].clone());
    assert_eq!(numbers, [1, 1, 1, 1]);
    assert_eq!(plan["sample"].as_array().unwrap().len(), 3);
    assert_eq!(
        (&shown["restored"], &shown["undo"]),
        (&json!(false), &Value::Null)
    );
    assert_eq!(world.read("edited"), "2");
    assert!(world.exists("new") && !world.exists("gone"));
}

#[tokio::test]
async fn a_restore_of_what_is_there_changes_nothing() {
    let world = World::with(&[("a", "1")]);
    let client = world.client().await;
    client.checkpoint("x").await;
    let inode = world.inode("a");

    let restored = client.call("restore", json!({ "checkpoint": "x" })).await;

    assert_eq!(restored["restored"], false);
    assert_eq!(world.inode("a"), inode);
}

#[tokio::test]
async fn a_restore_from_nowhere_changes_nothing() {
    let world = World::with(&[("a", "1")]);
    let client = world.client().await;

    for which in ["cp-10", "nobody"] {
        let error = client
            .fails("restore", json!({ "checkpoint": which }))
            .await;
        assert_eq!(error["reason"], "no_such_checkpoint");
    }
    assert_eq!(world.read("a"), "1");
}

#[tokio::test]
async fn directories_and_files_that_changed_places_change_back() {
    let world = World::with(&[("d/a", "1"), ("f", "a file")]);
    let client = world.client().await;
    client.checkpoint("x").await;
    world.remove("d");
    world.remove("f");
    world.write("d", "a file now");
    world.write("f/inside", "1");

    client.call("restore", json!({ "checkpoint": "x" })).await;

    assert_eq!(
        (world.read("d/a"), world.read("f")),
        ("1".to_owned(), "a file".to_owned())
    );
}

#[tokio::test]
async fn directories_do_not_count_as_files_that_are_deleted() {
    let world = World::with(&[("a", "1")]);
    let client = world.client().await;
    client.checkpoint("x").await;
    for number in 0..20 {
        world.write(format!("d{number}/new"), "2");
    }

    let restored = client.call("restore", json!({ "checkpoint": "x" })).await;

    assert_eq!(restored["plan"]["deletes"], 40);
    assert_eq!(restored["plan"]["deletes_files"], 20);
    assert!(!world.exists("d0"));
}
