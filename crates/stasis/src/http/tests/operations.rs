//! Requests that are written down: done once for each key, and followed by whoever did not wait.

use super::*;
use stasis_engine::model::digest::RequestDigest;
use stasis_engine::model::format::request::{RENEWED_WITHIN, RequestMade};
use stasis_engine::requests::BegunRequest;

const LEASES: &str = "/v1/leases";

fn wanted(run_id: &str) -> Value {
    json!({ "id": "alice@131", "run_id": run_id, "ttl_ms": 60_000 })
}

async fn get(world: &World, token: &str, path: &str) -> Answered {
    let get = request(&Method::GET, path);
    world.ask(with_token(get, token)).await
}

/// Follows an operation to its end, as events.
async fn followed(world: &World, token: &str, id: &str) -> String {
    let get = request(&Method::GET, &format!("/v1/operations/{id}/events"));
    let following = world.text(with_token(get, token));
    let (head, text) = tokio::time::timeout(Duration::from_mins(1), following)
        .await
        .unwrap();
    assert_eq!(head.headers[CONTENT_TYPE], "text/event-stream");
    text
}

#[tokio::test]
async fn the_same_key_twice_is_done_once_and_answered_twice() {
    let world = World::new().await;
    let token = world.token("acme", TokenScope::Write, None).await;
    let key = [("idempotency-key", "k-1")];
    let ask = async |run: &str| world.post_with(&token, LEASES, &key, &wanted(run)).await;

    let (first, second) = tokio::join!(ask("nightly"), ask("nightly"));
    let third = ask("nightly").await;

    assert_eq!(first.status, 200, "{}", first.body);
    assert_eq!((second.status, &second.body), (200, &first.body));
    assert_eq!((third.status, &third.body), (200, &first.body));
    let other = ask("daily").await;
    assert_eq!(
        (other.status, &other.body["code"]),
        (422, &json!("key_reused"))
    );
    let without = world.post(&token, LEASES, &wanted("nightly")).await;
    assert_eq!(without.status, 409);
    // A key is its tenant's own.
    let stranger = world.token("other", TokenScope::Write, None).await;
    let daily = wanted("daily");
    let elsewhere = world.post_with(&stranger, LEASES, &key, &daily);
    let elsewhere = elsewhere.await;
    assert_eq!(elsewhere.body["subject"], "profile:other/alice@131");
    for bad in ["", "a b"] {
        let key = [("idempotency-key", bad)];
        let refused = world.post_with(&token, LEASES, &key, &wanted("x")).await;
        assert_eq!(refused.status, 400, "{bad:?}");
    }
}

#[tokio::test]
async fn what_was_refused_is_refused_again_under_its_key_with_all_that_was_said() {
    let world = World::new().await;
    let token = world.token("acme", TokenScope::Write, None).await;
    let held = world.post(&token, LEASES, &wanted("nightly")).await;
    let key = [("idempotency-key", "k-1")];
    let ask = async || {
        world
            .post_with(&token, LEASES, &key, &wanted("daily"))
            .await
    };
    let refused = ask().await;
    let release = json!({ "token": held.body["token"] });
    let released = world.post(&token, "/v1/leases/alice@131/release", &release);
    assert_eq!(released.await.status, 200);

    let again = ask().await;

    assert_eq!((refused.status, again.status), (409, 409));
    assert_eq!(without_id(again.body.clone()), without_id(refused.body));
    assert_eq!(again.body["holder"]["holder_run_id"], "nightly");
}

#[tokio::test]
async fn an_operation_is_accepted_followed_and_asked_for_its_end() {
    let world = World::new().await;
    let token = world.token("acme", TokenScope::Write, None).await;
    let other = world.token("other", TokenScope::Admin, None).await;
    let fork = json!({ "target": "bob" });
    let key = [("idempotency-key", "fork-1")];
    let path = "/v1/subjects/profile/alice@131/fork";

    let accepted = world.post_with(&token, path, &key, &fork).await;

    assert_eq!(accepted.status, 202, "{}", accepted.body);
    let id = accepted.body["operation_id"].as_str().unwrap();
    let place = format!("/v1/operations/{id}");
    assert_eq!(accepted.response.headers()["location"], place);
    let events = followed(&world, &token, id).await;
    let (_, end) = events.rsplit_once("event: end\ndata: ").unwrap();
    let end: Value = serde_json::from_str(end.trim_end()).unwrap();
    // There is no such profile.
    assert_eq!(
        (&end["state"], end["problem"]["status"].as_u64()),
        (&json!("failed"), Some(404))
    );
    let shown = get(&world, &token, &place).await;
    assert_eq!(shown.body["problem"], end["problem"]);
    let again = world.post_with(&token, path, &key, &fork).await;
    assert_eq!(
        (again.status, &again.body["state"]),
        (202, &json!("failed"))
    );
    assert_eq!(again.body["operation_id"], id);
    let listed = get(&world, &token, "/v1/operations").await;
    assert_eq!(listed.body["items"][0]["operation_id"], id);
    for path in [place.clone(), format!("{place}/events")] {
        assert_eq!(get(&world, &other, &path).await.status, 404, "{path}");
    }
    assert_eq!(
        get(&world, &other, "/v1/operations").await.body["items"],
        json!([])
    );
}

#[tokio::test]
async fn what_nobody_renews_any_more_is_interrupted_and_its_stream_ends() {
    let world = World::new().await;
    let token = world.token("acme", TokenScope::Read, None).await;
    let made = RequestMade {
        tenant: "acme".parse().unwrap(),
        route: "fork_subject".parse().unwrap(),
        scope: TokenScope::Write,
        by: Label::nobody(),
        request_sha256: RequestDigest::of(b"x"),
    };
    let begun = world.engine.requests().begin(None, made).await.unwrap();
    let BegunRequest::New(running, _) = begun else {
        panic!("{begun:?}");
    };
    let place = format!("/v1/operations/{}", running.id);
    assert_eq!(get(&world, &token, &place).await.body["state"], "running");

    world
        .clock
        .advance(RENEWED_WITHIN + Duration::from_millis(1));

    assert_eq!(
        get(&world, &token, &place).await.body["state"],
        "interrupted"
    );
    let events = followed(&world, &token, &running.id.to_string()).await;
    assert!(events.contains(r#""state":"interrupted""#), "{events}");
}

#[tokio::test]
async fn an_answer_is_shown_only_to_whoever_could_have_asked_for_it() {
    let world = World::new().await;
    let writer = world.token("acme", TokenScope::Write, None).await;
    let reader = world.token("acme", TokenScope::Read, None).await;
    let key = [("idempotency-key", "k-1")];
    let nightly = wanted("nightly");
    let acquired = world.post_with(&writer, LEASES, &key, &nightly);
    let lease = acquired.await.body["token"].clone();

    let listed = get(&world, &reader, "/v1/operations").await.body;

    let id = listed["items"][0]["operation_id"].as_str().unwrap();
    let place = format!("/v1/operations/{id}");
    let seen = get(&world, &writer, &place).await.body;
    assert_eq!(seen["answer"]["token"], lease);
    let events = followed(&world, &reader, id).await;
    let shown = get(&world, &reader, &place).await.body;
    for text in [listed.to_string(), shown.to_string(), events] {
        assert!(!text.contains(lease.as_str().unwrap()), "{text}");
    }
}

#[tokio::test]
async fn pages_of_operations_go_back_in_time_and_miss_none() {
    let world = World::new().await;
    let token = world.token("acme", TokenScope::Write, None).await;
    for number in 0..5 {
        let key = format!("k-{number}");
        let key = [("idempotency-key", key.as_str())];
        let body = json!({ "id": format!("p{number}@1") });
        let done = world.post_with(&token, LEASES, &key, &body).await;
        assert_eq!(done.status, 200, "{}", done.body);
        world.clock.advance(Duration::from_millis(number % 2));
    }

    let mut seen = Vec::new();
    let mut path = "/v1/operations?limit=2".to_owned();
    loop {
        let page = get(&world, &token, &path).await.body;
        let rows = page["items"].as_array().unwrap();
        seen.extend(rows.iter().map(|row| row["operation_id"].clone()));
        match page["next_cursor"].as_str() {
            Some(next) => path = format!("/v1/operations?limit=2&cursor={next}"),
            None => break,
        }
    }

    let all = get(&world, &token, "/v1/operations").await.body;
    let rows = all["items"].as_array().unwrap();
    let all: Vec<Value> = rows.iter().map(|row| row["operation_id"].clone()).collect();
    assert_eq!((seen.len(), seen), (5, all));
}

#[tokio::test]
async fn a_tenant_has_only_so_many_streams_and_gets_them_back() {
    let world = World::new().await;
    let tenant = "acme".parse().unwrap();
    let operations = world.service.operations();
    let mut rooms = Vec::new();
    while let Ok(room) = operations.stream_room(&tenant) {
        rooms.push(room);
        assert!(rooms.len() <= 100, "there is no limit");
    }
    assert!(operations.stream_room(&"other".parse().unwrap()).is_ok());

    rooms.pop();

    assert!(operations.stream_room(&tenant).is_ok());
}
