//! Making one entry what it was.

use crate::world::World;
use serde_json::{Value, json};
use std::path::Path;

#[tokio::test]
async fn each_of_three_versions_comes_back() {
    let world = World::with(&[("a", "first")]);
    let client = world.client().await;
    client.checkpoint("v1").await;
    world.write("a", "second");
    client.checkpoint("v2").await;
    world.write("a", "third");
    let last = client.checkpoint("v3").await;

    for (version, content) in [
        ("v1", "first"),
        ("v2", "second"),
        (last.as_str(), "third"),
        ("v1", "first"),
    ] {
        let reverted = client
            .call("revert", json!({ "path": "a", "checkpoint": version }))
            .await;
        assert_eq!(reverted["reverted"], true);
        assert_eq!(reverted["action"], "restored");
        assert_eq!(world.read("a"), content, "{version}");
    }
}

#[tokio::test]
async fn without_a_checkpoint_the_newest_that_differs_is_taken() {
    let world = World::with(&[("a", "first")]);
    let client = world.client().await;
    let one = client.checkpoint("one").await;
    world.write("a", "second");
    client.checkpoint("two").await;

    let reverted = client.call("revert", json!({ "path": "a" })).await;

    assert_eq!(reverted["checkpoint"], json!(one));
    assert_eq!(reverted["path"], "a");
    assert_eq!(world.read("a"), "first");
}

#[tokio::test]
async fn what_did_not_exist_then_is_deleted() {
    let world = World::with(&[("a", "1")]);
    let client = world.client().await;
    client.checkpoint("x").await;
    world.write("new", "2");

    let reverted = client
        .call("revert", json!({ "path": "new", "checkpoint": "x" }))
        .await;

    assert_eq!(reverted["action"], "deleted");
    assert!(!world.exists("new"));
    assert_eq!(world.read("a"), "1");
}

#[tokio::test]
async fn a_deleted_file_comes_back_with_its_directories() {
    let world = World::with(&[("d/e/f/a", "1")]);
    let client = world.client().await;
    client.checkpoint("x").await;
    world.remove("d");

    client.call("revert", json!({ "path": "d/e/f/a" })).await;

    assert_eq!(world.read("d/e/f/a"), "1");
}

#[tokio::test]
async fn permissions_come_back() {
    let world = World::with(&[("run.sh", "#!/bin/sh\n")]);
    world.set_mode("run.sh", 0o750);
    let client = world.client().await;
    client.checkpoint("x").await;
    world.set_mode("run.sh", 0o644);

    client.call("revert", json!({ "path": "run.sh" })).await;

    assert_eq!(world.mode("run.sh"), 0o750);
}

#[tokio::test]
async fn the_time_of_a_file_comes_back() {
    let world = World::with(&[("a", "1")]);
    world.touch("a", 1_234_567_890);
    let before = world.mtime("a");
    let client = world.client().await;
    client.checkpoint("x").await;
    world.write("a", "2");

    client.call("revert", json!({ "path": "a" })).await;

    assert_eq!(world.mtime("a"), before);
}

#[tokio::test]
async fn an_empty_file_comes_back_empty() {
    let world = World::with(&[("a", "")]);
    let client = world.client().await;
    client.checkpoint("x").await;
    world.write("a", "not empty");

    client.call("revert", json!({ "path": "a" })).await;

    assert_eq!(world.read("a"), "");
}

#[tokio::test]
async fn links_come_back_as_links_wherever_they_point() {
    let targets = [
        "nowhere",
        "/etc/hostname",
        "loop",
        "../secret",
        ".",
        "a b\u{e9}",
    ];
    for target in targets {
        let world = World::new();
        world.link("loop", target);
        let client = world.client().await;
        client.checkpoint("x").await;
        world.remove("loop");

        let reverted = client.call("revert", json!({ "path": "loop" })).await;

        assert_eq!(reverted["action"], "restored", "{target}");
        assert_eq!(world.target("loop"), Path::new(target));
        world.assert_outside_untouched();
    }
}

#[tokio::test]
async fn a_link_that_took_the_place_of_a_file_is_replaced_and_not_followed() {
    let world = World::with(&[("a", "mine")]);
    let client = world.client().await;
    client.checkpoint("x").await;
    world.remove("a");
    world.link("a", world.home().join("secret"));

    client.call("revert", json!({ "path": "a" })).await;

    assert_eq!(world.read("a"), "mine");
    assert!(
        !std::fs::symlink_metadata(world.at("a"))
            .unwrap()
            .is_symlink()
    );
    world.assert_outside_untouched();
}

#[tokio::test]
async fn a_directory_that_became_a_file_becomes_a_directory_again() {
    let world = World::with(&[("d/a", "1"), ("d/b", "2")]);
    let client = world.client().await;
    client.checkpoint("x").await;
    world.remove("d");
    world.write("d", "a file now");

    client
        .call("revert", json!({ "path": "d", "checkpoint": "x" }))
        .await;

    assert_eq!(
        (world.read("d/a"), world.read("d/b")),
        ("1".to_owned(), "2".to_owned())
    );
}

#[tokio::test]
async fn a_file_that_became_a_directory_becomes_a_file_again() {
    let world = World::with(&[("a", "a file")]);
    let client = world.client().await;
    client.checkpoint("x").await;
    world.remove("a");
    world.write("a/inside", "1");

    client
        .call("revert", json!({ "path": "a", "checkpoint": "x" }))
        .await;

    assert_eq!(world.read("a"), "a file");
}

#[tokio::test]
async fn a_directory_is_reverted_whole_and_nothing_beside_it() {
    let world = World::with(&[("d/a", "1"), ("d/e/b", "1"), ("beside", "1")]);
    let client = world.client().await;
    client.checkpoint("x").await;
    world.write("d/a", "2");
    world.remove("d/e");
    world.write("d/new", "2");
    world.write("beside", "2");

    client
        .call("revert", json!({ "path": "d", "checkpoint": "x" }))
        .await;

    assert_eq!(
        (world.read("d/a"), world.read("d/e/b")),
        ("1".to_owned(), "1".to_owned())
    );
    assert!(!world.exists("d/new"));
    assert_eq!(world.read("beside"), "2");
}

#[tokio::test]
async fn a_moved_directory_comes_back_where_it_was() {
    let world = World::with(&[("old/a", "1"), ("old/e/b", "2")]);
    let client = world.client().await;
    client.checkpoint("x").await;
    std::fs::rename(world.at("old"), world.at("new")).unwrap();

    client
        .call("revert", json!({ "path": "old", "checkpoint": "x" }))
        .await;

    assert_eq!(
        (world.read("old/a"), world.read("old/e/b")),
        ("1".to_owned(), "2".to_owned())
    );
    assert_eq!(world.read("new/a"), "1");
}

#[tokio::test]
async fn a_file_far_down_comes_back() {
    let path = format!("{}/a", vec!["deeper"; 40].join("/"));
    let world = World::with(&[(&path, "1")]);
    let client = world.client().await;
    client.checkpoint("x").await;
    world.write(&path, "2");

    client.call("revert", json!({ "path": path })).await;

    assert_eq!(world.read(&path), "1");
}

#[tokio::test]
async fn what_is_as_it_was_is_not_touched() {
    let world = World::with(&[("a", "1")]);
    let client = world.client().await;
    client.checkpoint("x").await;
    let inode = world.inode("a");

    let same = client
        .call("revert", json!({ "path": "a", "checkpoint": "x" }))
        .await;
    let error = client.fails("revert", json!({ "path": "a" })).await;

    assert_eq!(
        (&same["reverted"], &same["action"]),
        (&json!(false), &json!("unchanged"))
    );
    assert_eq!(error["reason"], "nothing_differs");
    assert_eq!(world.inode("a"), inode);
}

#[tokio::test]
async fn a_dry_run_reverts_nothing_and_says_what_it_would_do() {
    let world = World::with(&[("a", "1")]);
    let client = world.client().await;
    client.checkpoint("x").await;
    world.write("a", "2");

    let shown = client
        .call("revert", json!({ "path": "a", "dry_run": true }))
        .await;

    assert_eq!(
        (&shown["reverted"], &shown["dry_run"]),
        (&json!(false), &json!(true))
    );
    assert_eq!(
        (&shown["plan"]["replaces"], &shown["undo"]),
        (&json!(1), &Value::Null)
    );
    assert_eq!(world.read("a"), "2");
}

#[tokio::test]
async fn a_revert_from_nowhere_or_of_nothing_is_an_error() {
    let world = World::with(&[("a", "1")]);
    let client = world.client().await;

    let none = client.fails("revert", json!({ "path": "a" })).await;
    client.checkpoint("x").await;
    let unknown = client
        .fails("revert", json!({ "path": "a", "checkpoint": "cp-19" }))
        .await;
    let nothing = client.fails("revert", json!({ "path": "nothing" })).await;

    assert_eq!(none["kind"], "notfound");
    assert_eq!(unknown["reason"], "no_such_checkpoint");
    assert_eq!(nothing["reason"], "no_such_entry");
    assert_eq!(world.read("a"), "1");
}

#[tokio::test]
async fn a_revert_that_deletes_twenty_files_needs_no_digest_and_one_of_more_does() {
    let world = World::with(&[("d/kept", "1")]);
    let client = world.client().await;
    client.checkpoint("x").await;
    for number in 0..21 {
        world.write(format!("d/new{number}"), "2");
    }
    let revert = json!({ "path": "d", "checkpoint": "x" });

    let error = client.fails("revert", revert.clone()).await;
    assert_eq!(error["reason"], "needs_confirmation");
    assert_eq!(error["details"]["deletes"], 21);
    assert!(world.exists("d/new20"));
    world.remove("d/new20");
    client.call("revert", revert).await;

    assert!(!world.exists("d/new0"));
    assert_eq!(world.read("d/kept"), "1");
}
