//! Making one checkpoint of several.

use crate::world::World;
use serde_json::json;

#[tokio::test]
async fn the_newest_state_wins_and_the_sources_go() {
    let world = World::with(&[("a", "1"), ("b", "1")]);
    let client = world.client().await;
    client.checkpoint("one").await;
    world.write("a", "2");
    client.checkpoint("two").await;
    world.write("b", "2");
    client.checkpoint("three").await;
    world.write("a", "now");
    world.write("b", "now");

    let made = client
        .call(
            "compact",
            json!({ "checkpoints": ["one", "two", "three"], "name": "all" }),
        )
        .await;

    assert_eq!(
        (&made["compacted"], &made["merged_count"]),
        (&json!(true), &json!(3))
    );
    assert_eq!(client.names().await, ["all"]);
    client.call("restore", json!({ "checkpoint": "all" })).await;
    assert_eq!(
        (world.read("a"), world.read("b")),
        ("2".to_owned(), "2".to_owned())
    );
}

#[tokio::test]
async fn the_order_in_which_they_are_named_does_not_matter() {
    let world = World::with(&[("a", "1")]);
    let client = world.client().await;
    client.checkpoint("one").await;
    world.write("a", "2");
    client.checkpoint("two").await;
    world.write("a", "3");

    client
        .call(
            "compact",
            json!({ "checkpoints": ["two", "one"], "name": "all" }),
        )
        .await;

    client.call("restore", json!({ "checkpoint": "all" })).await;
    assert_eq!(world.read("a"), "2");
}

#[tokio::test]
async fn what_was_deleted_in_the_newest_stays_deleted() {
    let world = World::with(&[("a", "1"), ("gone", "1")]);
    let client = world.client().await;
    client.checkpoint("one").await;
    world.remove("gone");
    client.checkpoint("two").await;

    client
        .call(
            "compact",
            json!({ "checkpoints": ["one", "two"], "name": "all" }),
        )
        .await;

    client.call("restore", json!({ "checkpoint": "all" })).await;
    assert!(!world.exists("gone"));
}

#[tokio::test]
async fn a_file_that_became_a_directory_is_one_in_the_result() {
    let world = World::with(&[("x", "a file")]);
    let client = world.client().await;
    client.checkpoint("one").await;
    world.remove("x");
    world.write("x/inside", "1");
    client.checkpoint("two").await;
    world.remove("x");

    client
        .call(
            "compact",
            json!({ "checkpoints": ["one", "two"], "name": "all" }),
        )
        .await;

    client.call("restore", json!({ "checkpoint": "all" })).await;
    assert_eq!(world.read("x/inside"), "1");
}

#[tokio::test]
async fn one_that_is_not_there_changes_nothing() {
    let world = World::with(&[("a", "1")]);
    let client = world.client().await;
    client.checkpoint("one").await;
    client.checkpoint("two").await;

    let error = client
        .fails(
            "compact",
            json!({ "checkpoints": ["one", "two", "nobody"] }),
        )
        .await;

    assert_eq!(error["reason"], "no_such_checkpoint");
    assert_eq!(client.names().await, ["two", "one"]);
}

#[tokio::test]
async fn one_alone_is_refused() {
    let world = World::with(&[("a", "1")]);
    let client = world.client().await;
    client.checkpoint("one").await;

    for checkpoints in [json!([]), json!(["one"])] {
        let error = client
            .refused("compact", json!({ "checkpoints": checkpoints }))
            .await;
        assert_eq!(error.code.0, -32602);
    }
    assert_eq!(client.names().await, ["one"]);
}

#[tokio::test]
async fn a_dry_run_compacts_nothing() {
    let world = World::with(&[("a", "1")]);
    let client = world.client().await;
    client.checkpoint("one").await;
    client.checkpoint("two").await;

    let shown = client
        .call(
            "compact",
            json!({ "checkpoints": ["one", "two"], "dry_run": true }),
        )
        .await;

    assert_eq!(
        (&shown["compacted"], &shown["dry_run"]),
        (&json!(false), &json!(true))
    );
    assert_eq!(client.names().await, ["two", "one"]);
}

#[tokio::test]
async fn a_full_pool_can_be_compacted() {
    let world = World::with(&[("a", "0")]);
    let client = world.client().await;
    for number in 0..12 {
        world.write("a", number.to_string());
        client.checkpoint(&format!("n{number}")).await;
    }

    client
        .call(
            "compact",
            json!({ "checkpoints": ["n0", "n1", "n2"], "name": "early" }),
        )
        .await;

    assert_eq!(client.all().await.len(), 10);
    client
        .call("revert", json!({ "path": "a", "checkpoint": "early" }))
        .await;
    assert_eq!(world.read("a"), "2");
    client.checkpoint("room again").await;
}

#[tokio::test]
async fn a_model_does_not_compact_what_a_person_made() {
    let world = World::with(&[("a", "1")]);
    world.made_by_a_person("theirs");
    let client = world.client().await;
    client.checkpoint("mine").await;

    let error = client
        .fails("compact", json!({ "checkpoints": ["theirs", "mine"] }))
        .await;

    assert_eq!(error["reason"], "not_yours");
    assert_eq!(client.names().await, ["mine", "theirs"]);
}

#[tokio::test]
async fn the_live_tree_is_not_touched() {
    let world = World::with(&[("a", "1")]);
    let client = world.client().await;
    client.checkpoint("one").await;
    client.checkpoint("two").await;
    world.write("a", "precious");
    let inode = world.inode("a");

    client
        .call("compact", json!({ "checkpoints": ["one", "two"] }))
        .await;

    assert_eq!(
        (world.read("a"), world.inode("a")),
        ("precious".to_owned(), inode)
    );
}
