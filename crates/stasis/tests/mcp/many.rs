//! Several clients, several servers, several calls at once.

use crate::world::{World, end_by};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

fn checkpoint_of(made: &Value) -> String {
    made["checkpoint"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn calls_at_once_do_not_disturb_each_other() {
    let world = World::with(&[("a", "1")]);
    let client = world.client().await;

    let calls =
        (0..12).map(|number| client.call("create", json!({ "name": format!("n{number}") })));
    let mut made = BTreeSet::new();
    for call in join(calls).await {
        made.insert(checkpoint_of(&call));
    }

    assert_eq!(made.len(), 12);
    assert_eq!(client.all().await.len(), 12);
}

/// Waits for all of them, which are under way at once.
async fn join<F: Future>(calls: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut calls: Vec<_> = calls.map(|call| (Some(Box::pin(call)), None)).collect();
    std::future::poll_fn(|context| {
        for (call, answer) in &mut calls {
            if let Some(waiting) = call
                && let std::task::Poll::Ready(ready) = waiting.as_mut().poll(context)
            {
                (*call, *answer) = (None, Some(ready));
            }
        }
        if calls.iter().all(|(call, _)| call.is_none()) {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    calls.into_iter().filter_map(|(_, answer)| answer).collect()
}

#[tokio::test]
async fn more_calls_than_there_are_places_are_all_answered() {
    let world = World::with(&[("a", "1")]);
    let client = world.client().await;
    client.checkpoint("x").await;

    let calls = (0..64).map(|_| client.call("list", json!({ "format": "json" })));
    let answers = join(calls).await;

    assert_eq!(answers.len(), 64);
    assert!(answers.iter().all(|answer| answer["total"] == 1));
}

#[tokio::test]
async fn reverts_of_different_files_at_once_are_all_done() {
    let world = World::new();
    let client = world.client().await;
    for number in 0..8 {
        world.write(format!("f{number}"), "first");
    }
    client.checkpoint("x").await;
    for number in 0..8 {
        world.write(format!("f{number}"), "second");
    }

    join((0..8).map(|number| client.call("revert", json!({ "path": format!("f{number}") })))).await;

    for number in 0..8 {
        assert_eq!(world.read(format!("f{number}")), "first");
    }
}

#[tokio::test]
async fn two_servers_of_one_workspace_never_share_a_slot() {
    let world = World::with(&[("a", "1")]);
    let (one, two) = (world.client().await, world.client().await);

    let mut made = BTreeSet::new();
    for round in 0..5 {
        let (first, second) = (format!("one{round}"), format!("two{round}"));
        let (first, second) = tokio::join!(one.checkpoint(&first), two.checkpoint(&second));
        assert!(made.insert(first));
        assert!(made.insert(second));
    }

    assert_eq!(made.len(), 10);
    assert_eq!(one.all().await.len(), 10);
    assert_eq!(one.names().await, two.names().await);
}

#[tokio::test]
async fn what_one_server_makes_the_other_uses_at_once() {
    let world = World::with(&[("a", "1")]);
    let (one, two) = (world.client().await, world.client().await);
    one.checkpoint("x").await;
    world.write("a", "2");

    two.call("revert", json!({ "path": "a", "checkpoint": "x" }))
        .await;
    assert_eq!(world.read("a"), "1");
    one.call("undo", json!({})).await;

    assert_eq!(world.read("a"), "2");
}

#[tokio::test]
async fn two_workspaces_know_nothing_of_each_other() {
    let (here, there) = (
        World::with(&[("a", "here")]),
        World::with(&[("a", "there")]),
    );
    let (one, two) = (here.client().await, there.client().await);

    tokio::join!(one.checkpoint("x"), two.checkpoint("y"));
    here.write("a", "changed");
    one.call("restore", json!({ "checkpoint": "x" })).await;

    assert_eq!(
        (one.names().await, two.names().await),
        (vec!["x".to_owned()], vec!["y".to_owned()])
    );
    assert_eq!(
        (here.read("a"), there.read("a")),
        ("here".to_owned(), "there".to_owned())
    );
}

#[tokio::test]
async fn many_clients_talk_to_one_server_at_a_socket() {
    let world = World::with(&[("a", "1")]);
    let mut server = world.listening().await;
    let mode = std::fs::symlink_metadata(world.socket())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);

    let clients = join((0..5).map(|_| world.connected())).await;
    let names: Vec<String> = (0..5).map(|number| format!("n{number}")).collect();
    let calls = clients.iter().zip(&names);
    join(calls.map(|(client, name)| client.checkpoint(name))).await;

    for client in clients {
        assert_eq!(client.all().await.len(), 5);
        client.end().await;
    }
    assert_eq!(end_by(&mut server, Signal::TERM).await, 0);
    assert!(!world.socket().exists());
}

#[tokio::test]
async fn a_client_that_goes_takes_nobody_with_it() {
    let world = World::with(&[("a", "1")]);
    let mut server = world.listening().await;
    let (goes, stays) = (world.connected().await, world.connected().await);

    goes.end().await;

    stays.checkpoint("x").await;
    assert_eq!(end_by(&mut server, Signal::TERM).await, 0);
}

#[tokio::test]
async fn a_socket_that_a_dead_server_left_is_replaced() {
    let world = World::with(&[("a", "1")]);
    let mut dead = world.listening().await;
    end_by(&mut dead, Signal::KILL).await;
    assert!(world.socket().exists());

    let _server = world.listening().await;

    world.connected().await.checkpoint("x").await;
}

#[tokio::test]
async fn a_server_that_watches_makes_checkpoints_by_itself() {
    let world = World::with(&[("a", "1")]);
    let client = world.client_of(&["--watch"]).await;

    let mut origins = Vec::new();
    for _ in 0..600 {
        origins = client
            .all()
            .await
            .iter()
            .map(|row| row["origin"].clone())
            .collect();
        if !origins.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    assert_eq!(origins, ["auto"]);
    assert_eq!(client.end().await, 0);
}

#[tokio::test]
async fn a_second_server_that_watches_serves_all_the_same() {
    let world = World::with(&[("a", "1")]);
    let first = world.client_of(&["--watch"]).await;
    let second = world.client_of(&["--watch"]).await;

    second.checkpoint("x").await;

    assert!(first.names().await.contains(&"x".to_owned()));
    assert_eq!(second.end().await, 0);
    assert_eq!(first.end().await, 0);
}
