//! Long answers.

use crate::world::{Client, World};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const FILES: usize = 1_000;

async fn with_a_thousand_changes() -> (World, Client) {
    let world = World::new();
    let client = world.client().await;
    client.checkpoint("x").await;
    for number in 0..FILES {
        world.write(format!("file-{number:04}"), "1");
    }
    (world, client)
}

#[tokio::test]
async fn a_thousand_changes_come_in_pages_of_whole_json() {
    let (_world, client) = with_a_thousand_changes().await;

    let mut seen = BTreeSet::new();
    let mut pages = 0;
    let mut start = json!(0);
    while !start.is_null() {
        let arguments = json!({ "format": "json", "start_index": start, "max_length": 10_000 });
        let text = client.words("changes", arguments).await;
        assert!(text.chars().count() <= 10_000);
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(answer["total"], FILES);
        assert_eq!(answer["start_index"], start);
        for change in answer["items"].as_array().unwrap() {
            assert!(seen.insert(change["path"].to_string()), "{change}");
        }
        (start, pages) = (answer["next_index"].clone(), pages + 1);
    }

    assert_eq!(seen.len(), FILES);
    assert!(pages > 3, "{pages}");
}

#[tokio::test]
async fn a_thousand_changes_come_in_pages_of_whole_lines() {
    let (_world, client) = with_a_thousand_changes().await;

    let mut seen = BTreeSet::new();
    let mut start = 0;
    loop {
        let text = client
            .words("changes", json!({ "start_index": start }))
            .await;
        assert!(text.chars().count() <= 5_000);
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0].starts_with(&format!("Showing {start}..")),
            "{}",
            lines[0]
        );
        let changes = lines.iter().filter(|line| line.starts_with("created  "));
        for line in changes {
            assert!(line.ends_with(')'), "{line}");
            assert!(seen.insert((*line).to_owned()), "{line}");
        }
        match lines[0].split_once("use start_index=") {
            None => break,
            Some((_, rest)) => start = rest.split_once(' ').unwrap().0.parse().unwrap(),
        }
    }

    assert_eq!(seen.len(), FILES);
}

#[tokio::test]
async fn both_forms_of_an_answer_have_the_same_items() {
    let (_world, client) = with_a_thousand_changes().await;

    let in_words = client.call("changes", json!({ "start_index": 990 })).await;
    let in_json = client
        .call("changes", json!({ "start_index": 990, "format": "json" }))
        .await;

    assert_eq!(in_words, in_json);
    assert_eq!(in_words["items"].as_array().unwrap().len(), 10);
}

#[tokio::test]
async fn the_shortest_page_still_gets_on() {
    let (_world, client) = with_a_thousand_changes().await;

    let arguments = json!({ "format": "json", "start_index": 5, "max_length": 200 });
    let answer = client.call("changes", arguments).await;

    assert_eq!(answer["items"].as_array().unwrap().len(), 1);
    assert_eq!(answer["next_index"], 6);
}

#[tokio::test]
async fn behind_the_end_there_is_nothing() {
    let (_world, client) = with_a_thousand_changes().await;

    let answer = client
        .call("changes", json!({ "start_index": 5_000, "format": "json" }))
        .await;

    assert_eq!(answer["items"], json!([]));
    assert_eq!(
        (&answer["total"], &answer["next_index"]),
        (&json!(FILES), &Value::Null)
    );
}

#[tokio::test]
async fn a_list_with_a_thousand_changes_in_a_checkpoint_stays_short() {
    let (_world, client) = with_a_thousand_changes().await;
    client.checkpoint("many").await;

    let answer = client
        .call("list", json!({ "format": "json", "include_changes": true }))
        .await;

    let newest = &answer["items"][0];
    assert_eq!(newest["changes_summary"]["created"], FILES);
    assert_eq!(newest["changes"].as_array().unwrap().len(), 20);
    assert!(answer.to_string().len() <= 20_000);
}

#[tokio::test]
async fn a_plan_with_a_thousand_deletions_stays_short() {
    let (_world, client) = with_a_thousand_changes().await;

    let shown = client
        .call("restore", json!({ "checkpoint": "x", "dry_run": true }))
        .await;

    assert_eq!(shown["plan"]["deletes_files"], FILES);
    assert!(shown.to_string().len() <= 20_000);
}
