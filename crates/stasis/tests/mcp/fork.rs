//! New directories from a checkpoint.

use crate::world::World;
use serde_json::json;

async fn with_forks() -> (World, crate::world::Client) {
    let world = World::with(&[("a", "1"), ("d/b", "2")]);
    std::fs::create_dir(world.home().join("forks")).unwrap();
    let client = world.client_of(&["--forks", "forks"]).await;
    client.checkpoint("x").await;
    world.write("a", "changed since");
    (world, client)
}

#[tokio::test]
async fn without_a_place_for_them_there_are_no_forks() {
    let world = World::with(&[("a", "1")]);
    let client = world.client().await;
    client.checkpoint("x").await;

    let error = client
        .fails("fork", json!({ "checkpoint": "x", "name": "f" }))
        .await;

    assert_eq!(error["reason"], "forks_not_allowed");
    assert!(error["hint"].as_str().unwrap().contains("--forks"));
}

#[tokio::test]
async fn a_fork_is_what_the_checkpoint_is() {
    let (world, client) = with_forks().await;

    let forked = client
        .call("fork", json!({ "checkpoint": "x", "name": "try-1" }))
        .await;

    assert_eq!(forked["forked"], true);
    assert_eq!(forked["directories"].as_array().unwrap().len(), 1);
    let fork = world.home().join("forks/try-1");
    assert_eq!(std::fs::read_to_string(fork.join("a")).unwrap(), "1");
    assert_eq!(std::fs::read_to_string(fork.join("d/b")).unwrap(), "2");
    assert_eq!(world.read("a"), "changed since");
}

#[tokio::test]
async fn several_forks_are_numbered() {
    let (world, client) = with_forks().await;

    client
        .call("fork", json!({ "checkpoint": "x", "name": "f", "n": 3 }))
        .await;

    for number in 1..=3 {
        let fork = world.home().join(format!("forks/f-{number}"));
        assert_eq!(std::fs::read_to_string(fork.join("a")).unwrap(), "1");
    }
}

#[tokio::test]
async fn a_fork_has_a_plain_name() {
    let (world, client) = with_forks().await;
    let long = "x".repeat(65);

    for name in [
        "", ".", "..", "../x", "/x", "a/b", ".hidden", "-rf", "a b", "a\0", "a\n", &long,
    ] {
        let error = client
            .refused("fork", json!({ "checkpoint": "x", "name": name }))
            .await;
        assert_eq!(error.code.0, -32602, "{name:?}");
    }
    world.assert_outside_untouched();
    assert_eq!(
        std::fs::read_dir(world.home().join("forks"))
            .unwrap()
            .count(),
        0
    );
}

#[tokio::test]
async fn there_are_not_too_many_forks_at_once() {
    let (_world, client) = with_forks().await;

    for n in [0, 17, 4_000_000_000_u64] {
        let error = client
            .refused("fork", json!({ "checkpoint": "x", "name": "f", "n": n }))
            .await;
        assert_eq!(error.code.0, -32602, "{n}");
    }
}

#[tokio::test]
async fn a_fork_does_not_replace_what_is_there() {
    let (world, client) = with_forks().await;
    let there = world.home().join("forks/f");
    std::fs::create_dir(&there).unwrap();
    std::fs::write(there.join("precious"), "1").unwrap();

    client
        .fails("fork", json!({ "checkpoint": "x", "name": "f" }))
        .await;

    assert_eq!(
        std::fs::read_to_string(there.join("precious")).unwrap(),
        "1"
    );
    assert_eq!(std::fs::read_dir(there).unwrap().count(), 1);
}

#[tokio::test]
async fn a_dry_run_forks_nothing() {
    let (world, client) = with_forks().await;

    let shown = client
        .call(
            "fork",
            json!({ "checkpoint": "x", "name": "f", "dry_run": true }),
        )
        .await;

    assert_eq!(
        (&shown["forked"], &shown["dry_run"]),
        (&json!(false), &json!(true))
    );
    assert_eq!(
        std::fs::read_dir(world.home().join("forks"))
            .unwrap()
            .count(),
        0
    );
}

#[tokio::test]
async fn forks_do_not_go_into_the_workspace() {
    let world = World::with(&[("forks/kept", "1")]);

    let server = world.server(&["--forks", "w/forks"]);
    let output = server.wait_with_output().await.unwrap();

    assert_ne!(output.status.code(), Some(0));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("in the workspace"), "{said}");
}
