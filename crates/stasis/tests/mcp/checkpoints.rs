//! Making, listing and deleting checkpoints.

use crate::world::World;
use serde_json::{Value, json};
use std::collections::BTreeSet;

#[tokio::test]
async fn a_checkpoint_with_a_name_has_it_and_a_hash() {
    let world = World::with(&[("a", "1")]);
    let client = world.client().await;

    let made = client.call("create", json!({ "name": "before" })).await;

    assert_eq!(made["created"], true);
    assert_eq!(made["checkpoint"], "cp-10");
    assert_eq!(made["name"], "before");
    assert_eq!(made["origin"], "manual");
    assert_eq!(made["available"], 11);
    assert_eq!(made["files_count"], 1);
    assert_eq!(made["hash"].as_str().unwrap().len(), 64);
}

#[tokio::test]
async fn a_checkpoint_needs_no_name() {
    let world = World::with(&[("a", "1")]);
    let client = world.client().await;

    let made = client.call("create", json!({})).await;

    let again = client.call("create", json!({})).await;

    assert_eq!(
        (&made["created"], &again["created"]),
        (&json!(true), &json!(true))
    );
    assert_ne!(made["checkpoint"], again["checkpoint"]);
    assert_ne!(
        made["name"], again["name"],
        "it has one that tells when it was made"
    );
    assert_eq!(client.all().await.len(), 2);
}

#[tokio::test]
async fn a_checkpoint_of_nothing_is_one() {
    let world = World::new();
    let client = world.client().await;

    let made = client.call("create", json!({ "name": "empty" })).await;

    assert_eq!(made["files_count"], 0);
    assert_eq!(client.names().await, ["empty"]);
}

#[tokio::test]
async fn a_dry_run_makes_no_checkpoint() {
    let world = World::with(&[("a", "1")]);
    let client = world.client().await;

    let shown = client
        .call("create", json!({ "name": "x", "dry_run": true }))
        .await;

    assert_eq!(shown["dry_run"], true);
    assert_eq!(client.all().await.len(), 0);
}

#[tokio::test]
async fn two_checkpoints_do_not_share_a_name() {
    let world = World::with(&[("a", "1")]);
    let client = world.client().await;
    client.checkpoint("same").await;

    let error = client.fails("create", json!({ "name": "same" })).await;

    assert_eq!(error["reason"], "name_taken");
    assert_eq!(client.names().await, ["same"]);
}

#[tokio::test]
async fn a_name_that_cannot_be_one_is_refused() {
    let world = World::new();
    let client = world.client().await;
    let long = "x".repeat(101);

    for name in [
        "",
        " ",
        " x",
        "cp-3",
        "CP-x",
        "a\nb",
        "a\u{0}",
        "a\u{200b}",
        "\u{202e}a",
        &long,
    ] {
        let error = client.refused("create", json!({ "name": name })).await;
        assert_eq!(error.code.0, -32602, "{name:?}");
        assert!(error.message.contains("`name`"), "{error}");
    }
    assert_eq!(client.all().await.len(), 0);
}

#[tokio::test]
async fn checkpoints_made_one_upon_the_other_are_all_there() {
    let world = World::with(&[("a", "0")]);
    let client = world.client().await;

    let mut slots = BTreeSet::new();
    for number in 0..10 {
        world.write("a", number.to_string());
        slots.insert(client.checkpoint(&format!("n{number}")).await);
    }

    assert_eq!(slots.len(), 10);
    let newest_first: Vec<String> = (0..10).rev().map(|number| format!("n{number}")).collect();
    assert_eq!(client.names().await, newest_first);
    for number in 0..10 {
        let path = json!({ "path": "a", "checkpoint": format!("n{number}") });
        client.call("revert", path).await;
        assert_eq!(world.read("a"), number.to_string());
    }
}

#[tokio::test]
async fn three_checkpoints_of_the_same_state_have_the_same_hash() {
    let world = World::with(&[("a", "1"), ("d/b", "2")]);
    let client = world.client().await;

    let mut hashes = BTreeSet::new();
    for name in ["x", "y", "z"] {
        let made = client.call("create", json!({ "name": name })).await;
        hashes.insert(made["hash"].as_str().unwrap().to_owned());
    }

    assert_eq!(hashes.len(), 1);
}

#[tokio::test]
async fn one_bit_makes_another_hash() {
    let world = World::with(&[("a", "1")]);
    let client = world.client().await;

    let before = client.call("create", json!({ "name": "x" })).await;
    world.write("a", "0");
    let after = client.call("create", json!({ "name": "y" })).await;

    assert_ne!(before["hash"], after["hash"]);
}

#[tokio::test]
async fn automatic_checkpoints_and_those_of_people_are_listed_too() {
    let world = World::with(&[("a", "1")]);
    world.made_automatically();
    world.made_by_a_person("theirs");
    let client = world.client().await;
    client.checkpoint("mine").await;

    let all = client.all().await;

    let column = |name: &str| -> Vec<Value> { all.iter().map(|row| row[name].clone()).collect() };
    assert_eq!(column("origin"), ["manual", "manual", "auto"]);
    assert_eq!(column("checkpoint"), ["cp-11", "cp-10", "cp-0"]);
    assert_eq!(column("made_by")[..2], ["mcp", "cli"]);
}

#[tokio::test]
async fn a_list_says_what_changed_between_checkpoints_if_asked() {
    let world = World::with(&[("a", "1"), ("b", "1")]);
    let client = world.client().await;
    client.checkpoint("one").await;
    world.write("a", "2");
    world.write("c", "3");
    world.remove("b");
    client.checkpoint("two").await;

    let plain = client.all().await;
    let all = client
        .call("list", json!({ "format": "json", "include_changes": true }))
        .await;

    assert!(plain[0].get("changes").is_none());
    let newest = &all["items"][0];
    assert_eq!(newest["name"], "two");
    assert_eq!(
        newest["changes_summary"],
        json!({ "created": 1, "edited": 1, "deleted": 1, "total": 3 })
    );
    assert_eq!(newest["changes"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn a_list_in_words_names_every_checkpoint() {
    let world = World::with(&[("a", "1")]);
    let client = world.client().await;
    client.checkpoint("before the storm").await;

    let words = client.words("list", json!({})).await;

    let lines: Vec<&str> = words.lines().collect();
    assert_eq!(lines[0], "Showing 0..0 of 1");
    assert!(lines[1].contains("untrusted"), "{words}");
    assert!(
        words.contains("cp-10  manual  \"before the storm\""),
        "{words}"
    );
}

#[tokio::test]
async fn a_full_pool_is_an_error_that_says_how_many_there_may_be() {
    let world = World::with(&[("a", "1")]);
    let client = world.client().await;
    for number in 0..12 {
        client.checkpoint(&format!("n{number}")).await;
    }

    let error = client.fails("create", json!({ "name": "one more" })).await;

    assert_eq!(error["reason"], "pool_full");
    assert_eq!(error["kind"], "limit");
    assert_eq!(error["details"]["max"], 12);
    assert!(error["message"].as_str().unwrap().contains("12"));
    assert!(error["hint"].as_str().unwrap().contains("snapshots_delete"));
    assert_eq!(client.all().await.len(), 12);
}

#[tokio::test]
async fn a_checkpoint_takes_the_free_place_and_destroys_nothing() {
    let world = World::with(&[("a", "0")]);
    let client = world.client().await;
    for number in 0..12 {
        world.write("a", number.to_string());
        client.checkpoint(&format!("n{number}")).await;
    }
    let before = client.all().await;
    client.call("delete", json!({ "checkpoint": "n5" })).await;

    world.write("a", "new");
    let made = client.checkpoint("new").await;

    assert_eq!(made, "cp-15");
    let others = |rows: &[Value], without: &str| -> BTreeSet<(String, String)> {
        let rows = rows.iter().filter(|row| row["name"] != without);
        rows.map(|row| (row["name"].to_string(), row["hash"].to_string()))
            .collect()
    };
    let after = client.all().await;
    assert_eq!(others(&after, "new"), others(&before, "n5"));
    for number in (0..12).filter(|number| *number != 5) {
        let path = json!({ "path": "a", "checkpoint": format!("n{number}") });
        client.call("revert", path).await;
        assert_eq!(world.read("a"), number.to_string());
    }
}

#[tokio::test]
async fn a_deleted_checkpoint_is_gone_and_its_name_is_free() {
    let world = World::with(&[("a", "1")]);
    let client = world.client().await;
    client.checkpoint("x").await;

    let gone = client.call("delete", json!({ "checkpoint": "x" })).await;

    assert_eq!(
        (&gone["deleted"], &gone["checkpoint"]),
        (&json!(true), &json!("cp-10"))
    );
    assert_eq!(client.all().await.len(), 0);
    assert_eq!(client.checkpoint("x").await, "cp-10");
}

#[tokio::test]
async fn what_is_deleted_once_is_not_deleted_twice() {
    let world = World::with(&[("a", "1")]);
    let client = world.client().await;
    client.checkpoint("x").await;
    client
        .call("delete", json!({ "checkpoint": "cp-10" }))
        .await;

    for which in ["cp-10", "x", "cp-3", "cp-999", "nobody"] {
        let error = client.fails("delete", json!({ "checkpoint": which })).await;
        assert_eq!(error["reason"], "no_such_checkpoint", "{which}");
        assert_eq!(error["kind"], "notfound");
    }
}

#[tokio::test]
async fn a_dry_run_deletes_nothing() {
    let world = World::with(&[("a", "1")]);
    let client = world.client().await;
    client.checkpoint("x").await;

    let shown = client
        .call("delete", json!({ "checkpoint": "x", "dry_run": true }))
        .await;

    assert_eq!(
        (&shown["deleted"], &shown["dry_run"]),
        (&json!(false), &json!(true))
    );
    assert_eq!(client.names().await, ["x"]);
}

#[tokio::test]
async fn a_model_does_not_delete_what_a_person_or_the_timer_made() {
    let world = World::with(&[("a", "1")]);
    world.made_automatically();
    world.made_by_a_person("theirs");
    let client = world.client().await;

    for which in ["theirs", "cp-10", "cp-0"] {
        let error = client.fails("delete", json!({ "checkpoint": which })).await;
        assert_eq!(error["reason"], "not_yours", "{which}");
        assert_eq!(error["kind"], "denied");
    }
    assert_eq!(client.all().await.len(), 2);
}

#[tokio::test]
async fn a_model_does_not_push_out_what_it_did_not_make() {
    let world = World::with(&[("a", "1")]);
    world.made_by_a_person("theirs");
    let client = world.client().await;
    for number in 0..11 {
        client.checkpoint(&format!("n{number}")).await;
    }

    let error = client.fails("create", json!({ "name": "one more" })).await;

    assert_eq!(error["reason"], "pool_full");
    assert_eq!(client.names().await.last().unwrap(), "theirs");
}

/// Bytes of which no checkpoint keeps fewer, others for each seed.
fn noise(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    std::iter::repeat_with(next).take(400_000).collect()
}

#[tokio::test]
async fn a_model_gets_no_room_from_the_checkpoints_of_the_timer() {
    let world = World::with(&[]);
    let config = world.home().join("s/config.toml");
    std::fs::write(config, "budget_bytes = 1000000\n").unwrap();
    for seed in [1, 2] {
        world.write("data", noise(seed));
        world.made_automatically();
    }
    world.write("data", noise(3));
    let client = world.client().await;

    let error = client.fails("create", json!({ "name": "mine" })).await;
    let left = client.all().await.len();
    // A person gets it.
    world.made_by_a_person("theirs");

    assert_eq!(
        (&error["reason"], &error["kind"]),
        (&json!("over_budget"), &json!("limit"))
    );
    assert_eq!(left, 2);
    assert_eq!(client.names().await, ["theirs", ""]);
    assert_eq!(std::fs::read(world.at("data")).unwrap(), noise(3));
}

#[tokio::test]
async fn an_undo_checkpoint_cannot_be_deleted() {
    let world = World::with(&[("a", "1")]);
    let client = world.client().await;
    client.checkpoint("x").await;
    world.write("a", "2");
    let reverted = client.call("revert", json!({ "path": "a" })).await;
    let undo = reverted["undo"].as_str().unwrap();

    let error = client
        .refused("delete", json!({ "checkpoint": undo }))
        .await;

    assert_eq!(error.code.0, -32602);
    client.call("undo", json!({ "undo": undo })).await;
    assert_eq!(world.read("a"), "2");
}

#[tokio::test]
async fn a_new_server_sees_the_old_checkpoints_and_overwrites_none() {
    let world = World::with(&[("a", "1")]);
    let first = world.client().await;
    first.checkpoint("one").await;
    world.write("a", "2");
    first.checkpoint("two").await;
    assert_eq!(first.end().await, 0);

    let second = world.client().await;
    world.write("a", "3");
    let third = second.checkpoint("three").await;

    assert_eq!(third, "cp-12");
    assert_eq!(second.names().await, ["three", "two", "one"]);
    second
        .call("revert", json!({ "path": "a", "checkpoint": "one" }))
        .await;
    assert_eq!(world.read("a"), "1");
}

#[tokio::test]
async fn a_new_server_still_knows_which_checkpoints_are_a_models() {
    let world = World::with(&[("a", "1")]);
    let first = world.client().await;
    first.checkpoint("mine").await;
    first.end().await;
    world.made_by_a_person("theirs");

    let second = world.client().await;

    second.call("delete", json!({ "checkpoint": "mine" })).await;
    second
        .fails("delete", json!({ "checkpoint": "theirs" }))
        .await;
    assert_eq!(second.names().await, ["theirs"]);
}
