//! What differs from the checkpoints.

use crate::world::{World, pairs};
use serde_json::{Value, json};

#[tokio::test]
async fn without_checkpoints_there_is_nothing_to_compare_with() {
    let world = World::with(&[("a", "1")]);
    let client = world.client().await;

    let words = client.words("changes", json!({})).await;

    assert!(words.contains("o checkpoints"), "{words}");
}

#[tokio::test]
async fn what_nobody_touched_did_not_change() {
    let world = World::with(&[("a", "1"), ("d/b", "2")]);
    let client = world.client().await;
    client.checkpoint("x").await;

    assert_eq!(client.changed(json!({})).await, pairs(&[]));
}

#[tokio::test]
async fn what_came_what_changed_and_what_went_are_told_apart() {
    let world = World::with(&[("edited", "1"), ("gone", "1"), ("same", "1")]);
    let client = world.client().await;
    client.checkpoint("x").await;
    world.write("edited", "22");
    world.write("new", "1");
    world.remove("gone");

    let changed = client.changed(json!({})).await;

    assert_eq!(
        changed,
        pairs(&[
            ("edited", "modified"),
            ("gone", "deleted"),
            ("new", "created")
        ])
    );
}

#[tokio::test]
async fn an_edit_of_the_same_length_and_time_is_seen() {
    let world = World::with(&[("a", "same")]);
    world.touch("a", 1_000_000_000);
    let client = world.client().await;
    client.checkpoint("x").await;
    world.write("a", "maes");
    world.touch("a", 1_000_000_000);

    assert_eq!(client.changed(json!({})).await, pairs(&[("a", "modified")]));
}

#[tokio::test]
async fn a_bare_touch_is_no_change() {
    let world = World::with(&[("a", "same")]);
    let client = world.client().await;
    client.checkpoint("x").await;
    world.touch("a", 1_000_000_000);

    assert_eq!(client.changed(json!({})).await, pairs(&[]));
}

#[tokio::test]
async fn a_file_written_again_with_the_same_bytes_is_no_change() {
    let world = World::with(&[("a", "same")]);
    let client = world.client().await;
    client.checkpoint("x").await;
    world.remove("a");
    world.write("a", "same");

    assert_eq!(client.changed(json!({})).await, pairs(&[]));
}

#[tokio::test]
async fn other_permissions_are_a_change() {
    let world = World::with(&[("run.sh", "#!/bin/sh")]);
    let client = world.client().await;
    client.checkpoint("x").await;
    world.set_mode("run.sh", 0o755);

    assert_eq!(
        client.changed(json!({})).await,
        pairs(&[("run.sh", "modified")])
    );
}

#[tokio::test]
async fn a_move_is_one_that_went_and_one_that_came() {
    let world = World::with(&[("old", "1")]);
    let client = world.client().await;
    client.checkpoint("x").await;
    std::fs::rename(world.at("old"), world.at("new")).unwrap();

    assert_eq!(
        client.changed(json!({})).await,
        pairs(&[("new", "created"), ("old", "deleted")])
    );
}

#[tokio::test]
async fn a_copy_is_one_that_came() {
    let world = World::with(&[("old", "1")]);
    let client = world.client().await;
    client.checkpoint("x").await;
    std::fs::copy(world.at("old"), world.at("new")).unwrap();

    assert_eq!(
        client.changed(json!({})).await,
        pairs(&[("new", "created")])
    );
}

#[tokio::test]
async fn an_empty_file_comes_and_goes_like_any_other() {
    let world = World::with(&[("old", "")]);
    let client = world.client().await;
    client.checkpoint("x").await;
    world.remove("old");
    world.write("new", "");

    assert_eq!(
        client.changed(json!({})).await,
        pairs(&[("new", "created"), ("old", "deleted")])
    );
}

#[tokio::test]
async fn a_link_that_points_elsewhere_is_a_change_and_is_not_followed() {
    let world = World::with(&[("a", "1")]);
    world.link("link", "a");
    world.link("out", world.home().join("secret"));
    let client = world.client().await;
    client.checkpoint("x").await;
    world.remove("link");
    world.link("link", "b");
    std::fs::write(world.home().join("secret"), "changed outside").unwrap();

    let answer = client.call("changes", json!({ "format": "json" })).await;

    assert_eq!(answer["total"], 1, "{answer}");
    assert_eq!(answer["items"][0]["path"], "link");
    assert_eq!(answer["items"][0]["kind"], "symlink");
}

#[tokio::test]
async fn a_directory_that_became_a_file_is_a_change() {
    let world = World::with(&[("d/a", "1")]);
    let client = world.client().await;
    client.checkpoint("x").await;
    world.remove("d");
    world.write("d", "a file now");

    let changed = client.changed(json!({})).await;

    assert!(changed.iter().any(|(path, _)| path == "d"), "{changed:?}");
    assert!(
        changed.contains(&("d/a".to_owned(), "deleted".to_owned())),
        "{changed:?}"
    );
}

#[tokio::test]
async fn changes_are_against_the_newest_checkpoint() {
    let world = World::with(&[("a", "1"), ("b", "1")]);
    let client = world.client().await;
    client.checkpoint("one").await;
    world.write("a", "2");
    let two = client.checkpoint("two").await;
    world.write("b", "2");

    let answer = client.call("changes", json!({ "format": "json" })).await;

    let changes = answer["items"].as_array().unwrap().iter();
    let paths: Vec<&Value> = changes.map(|change| &change["path"]).collect();
    assert_eq!(paths, ["b"]);
    // Named once, not with every path.
    assert_eq!(answer["compared_with"], json!([two]));
}

#[tokio::test]
async fn changes_since_a_checkpoint_are_against_that_one_only() {
    let world = World::with(&[("a", "1"), ("b", "1")]);
    let client = world.client().await;
    client.checkpoint("one").await;
    world.write("a", "2");
    client.checkpoint("two").await;
    world.write("b", "2");

    assert_eq!(
        client.changed(json!({ "since": "one" })).await,
        pairs(&[("a", "modified"), ("b", "modified")])
    );
    assert_eq!(
        client.changed(json!({ "since": "two" })).await,
        pairs(&[("b", "modified")])
    );
}

#[tokio::test]
async fn changes_since_nothing_are_an_error() {
    let world = World::with(&[("a", "1")]);
    let client = world.client().await;
    client.checkpoint("one").await;

    let error = client.fails("changes", json!({ "since": "nobody" })).await;

    assert_eq!(error["reason"], "no_such_checkpoint");
    assert!(error["message"].as_str().unwrap().contains("nobody"));
}

#[tokio::test]
async fn a_hundred_files_are_all_told() {
    let world = World::new();
    let client = world.client().await;
    client.checkpoint("empty").await;
    for number in 0..100 {
        world.write(format!("d{}/f{number}", number % 7), number.to_string());
    }

    let changed = client.changed(json!({})).await;

    let files = changed.iter().filter(|(path, _)| path.contains("/f"));
    assert_eq!(files.count(), 100);
}

/// Half of the agents hand a model the structured answer and nothing else.
#[tokio::test]
async fn a_path_costs_a_model_few_bytes_more_than_its_name() {
    let world = World::new();
    let client = world.client().await;
    client.checkpoint("before the sweeping change").await;
    let path = |number: u32| format!("src/module_{number:03}/handler.rs");
    for number in 0..100 {
        world.write(path(number), "fn handler() {}\n");
    }
    let asked = json!({ "format": "json", "max_length": 100_000 });

    let answer = client.call("changes", asked).await;

    let changes = answer["items"].as_array().unwrap();
    let files = changes.iter().filter(|change| change.get("kind").is_none());
    let (count, bytes) = files.fold((0, 0), |(count, bytes), change| {
        (count + 1, bytes + change.to_string().len() + 1)
    });
    let names = 100 * path(0).len();
    assert_eq!(count, 100, "{answer}");
    println!(
        "{} bytes a path, {} of them its name",
        bytes / 100,
        names / 100
    );
    assert!(
        bytes <= names + 100 * 50,
        "{bytes} bytes for {names} bytes of names"
    );
    assert!(!answer.to_string().contains("null"), "{answer}");
    assert_eq!(
        answer["workspace"],
        world.home().join("w").to_str().unwrap()
    );
}
