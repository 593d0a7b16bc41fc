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

#[tokio::test]
async fn a_fork_is_listed_compared_promoted_and_removed() {
    let (world, client) = with_forks().await;
    world.write("a", "1");
    client.call("fork", json!({ "name": "f", "n": 2 })).await;
    let fork = |path: &str| world.home().join("forks").join(path);
    std::fs::write(fork("f-1/a"), "better").unwrap();
    std::fs::write(fork("f-2/new"), "other").unwrap();

    let listed = client.call("fork_list", json!({})).await;
    let diff = client
        .call("fork_diff", json!({ "a": "f-1", "b": "f-2" }))
        .await;
    let patch = client
        .call("fork_diff", json!({ "a": "f-1", "patch": true }))
        .await;
    let promoted = client.call("fork_promote", json!({ "name": "f-1" })).await;

    let names = listed["items"].as_array().unwrap().iter();
    let names: Vec<_> = names.map(|row| row["name"].clone()).collect();
    assert_eq!(names, [json!("f-1"), json!("f-2")]);
    assert_eq!(diff["summary"]["total"], 2);
    let patch = patch["patch"].as_str().unwrap();
    assert!(patch.contains("+better"), "{patch}");
    assert_eq!(promoted["promoted"], true);
    assert_eq!(world.read("a"), "better");
    client.call("undo", json!({})).await;
    assert_eq!(world.read("a"), "1");

    // Work that is nowhere else goes only when its removal was looked at.
    let error = client.fails("fork_rm", json!({ "name": "f-2" })).await;
    assert_eq!(error["reason"], "only_copy");
    let shown = client
        .call("fork_rm", json!({ "name": "f-2", "dry_run": true }))
        .await;
    assert_eq!(shown["only_here"], json!(["new"]));
    std::fs::write(fork("f-2/later"), "1").unwrap();
    let confirm = json!({ "name": "f-2", "confirm": shown["digest"] });
    let error = client.fails("fork_rm", confirm).await;
    assert_eq!(error["reason"], "plan_changed");
    let shown = client
        .call("fork_rm", json!({ "name": "f-2", "dry_run": true }))
        .await;
    let confirm = json!({ "name": "f-2", "confirm": shown["digest"] });
    client.call("fork_rm", confirm).await;
    assert!(!fork("f-2").exists());
    // What was promoted is in a checkpoint.
    client.call("fork_rm", json!({ "name": "f-1" })).await;
    world.assert_outside_untouched();
}

#[tokio::test]
async fn an_agent_overwrites_work_of_the_user_only_by_a_plan_that_still_holds() {
    let (world, client) = with_forks().await;
    client
        .call("fork", json!({ "checkpoint": "x", "name": "f" }))
        .await;
    let fork = world.home().join("forks/f");
    std::fs::write(fork.join("d/b"), "fork").unwrap();

    let error = client.fails("fork_promote", json!({ "name": "f" })).await;
    assert_eq!(error["reason"], "needs_confirmation");
    assert_eq!(error["details"]["paths"], json!(["a"]));
    let dry = json!({ "name": "f", "dry_run": true });
    let shown = client.call("fork_promote", dry.clone()).await;
    assert_eq!(shown["overwrites"][0]["path"], "a");
    // The user goes on: what was agreed to is not what would be done.
    world.write("a", "changed once more");
    let digest = &shown["plan"]["digest"];
    let confirm = json!({ "name": "f", "confirm": digest });
    let error = client.fails("fork_promote", confirm).await;
    assert_eq!(error["reason"], "plan_changed");
    assert_eq!(world.read("a"), "changed once more");
    // And so is another fork.
    let shown = client.call("fork_promote", dry.clone()).await;
    std::fs::write(fork.join("d/b"), "fork went on").unwrap();
    let confirm = json!({ "name": "f", "confirm": shown["plan"]["digest"] });
    let error = client.fails("fork_promote", confirm).await;
    assert_eq!(error["reason"], "plan_changed");

    let shown = client.call("fork_promote", dry).await;
    let confirm = json!({ "name": "f", "confirm": shown["plan"]["digest"] });
    client.call("fork_promote", confirm).await;

    assert_eq!(
        (world.read("a"), world.read("d/b")),
        ("1".into(), "fork went on".into())
    );
    client.call("undo", json!({})).await;
    assert_eq!(world.read("a"), "changed once more");
}

#[tokio::test]
async fn agents_have_so_many_forks_and_no_more() {
    let (_world, client) = with_forks().await;
    client
        .call("fork", json!({ "checkpoint": "x", "name": "f", "n": 15 }))
        .await;

    let error = client.fails("fork", json!({ "n": 2 })).await;

    assert_eq!(error["reason"], "forks_full");
    assert_eq!(error["details"]["max"], 16);
    assert!(error["hint"].as_str().unwrap().contains("fork_rm"));
    client.call("fork_rm", json!({ "name": "f-3" })).await;
    client.call("fork", json!({ "n": 2 })).await;
}

#[tokio::test]
async fn an_agent_removes_only_forks_that_it_made() {
    let (world, client) = with_forks().await;
    let (dir, to) = (world.home().join("w"), world.home().join("users"));
    let (dir, to) = (dir.to_str().unwrap(), to.to_str().unwrap());
    let made = world.stasis(&["fork", dir, "--name", "users", "--to", to]);
    assert!(made.status.success(), "{made:?}");

    let error = client.fails("fork_rm", json!({ "name": "users" })).await;

    assert_eq!(error["reason"], "not_yours");
    assert!(std::path::Path::new(to).exists());
}
