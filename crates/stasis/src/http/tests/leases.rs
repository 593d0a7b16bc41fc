//! Leases over HTTP, and that a session is in use.

use super::*;

/// Who has what, as far as a client without the token is told.
async fn listed(world: &World, token: &str, query: &str) -> Value {
    let get = request(&Method::GET, &format!("/v1/leases{query}"));
    world.ask(with_token(get, token)).await.body
}

#[tokio::test]
async fn a_lease_is_acquired_refused_to_others_renewed_and_released() {
    let world = World::new().await;
    let token = world.token("acme", TokenScope::Write, None).await;
    let ask = async |path: &str, body: Value| world.post(&token, path, &body).await;

    let wanted = json!({ "id": "alice@131", "run_id": "nightly", "host": "h1", "ttl_ms": 60_000 });
    let acquired = ask("/v1/leases", wanted.clone()).await;
    assert_eq!(acquired.status, 200, "{}", acquired.body);
    assert_eq!(acquired.body["subject"], "profile:acme/alice@131");
    let held = ask("/v1/leases", wanted).await;
    assert_eq!((held.status, &held.body["code"]), (409, &json!("held")));
    assert_eq!(held.body["holder"]["holder_run_id"], "nightly");
    assert_eq!(held.body["holder"]["holder_host"], "h1");

    let fence = acquired.body["token"].clone();
    world.clock.advance(Duration::from_secs(30));
    let renewed = ask(
        "/v1/leases/alice@131/renew",
        json!({ "token": fence, "ttl_ms": 60_000 }),
    );
    let renewed = renewed.await;
    assert_eq!(renewed.status, 200, "{}", renewed.body);
    assert_eq!(renewed.body["renewal_count"], 1);
    let wrong = format!("{}x", fence.as_str().unwrap());
    let wrong = ask("/v1/leases/alice@131/renew", json!({ "token": wrong })).await;
    assert_eq!(wrong.status, 400, "{}", wrong.body);

    let release = json!({ "token": fence });
    let released = ask("/v1/leases/alice%40131/release", release.clone()).await;
    assert_eq!(
        (released.status, &released.body["state"]),
        (200, &json!("free"))
    );
    let again = ask("/v1/leases/alice@131/release", release.clone()).await;
    assert_eq!(again.status, 200, "{}", again.body);
    let lost = ask("/v1/leases/alice@131/renew", release.clone()).await;
    assert_eq!(
        (lost.status, &lost.body["code"]),
        (409, &json!("lock_lost"))
    );
    let never = ask("/v1/leases/bob@131/release", release).await;
    assert_eq!(never.status, 404, "{}", never.body);
}

#[tokio::test]
async fn what_expires_next_comes_first_and_others_see_nothing_of_it() {
    let world = World::new().await;
    let token = world.token("acme", TokenScope::Write, None).await;
    let reader = world.token("acme", TokenScope::Read, None).await;
    let other = world.token("other", TokenScope::Admin, None).await;
    for (id, ttl_ms) in [("a@1", 90_000), ("b@1", 30_000), ("c@1", 60_000)] {
        let body = json!({ "id": id, "ttl_ms": ttl_ms });
        let acquired = world.post(&token, "/v1/leases", &body).await;
        assert_eq!(acquired.status, 200, "{}", acquired.body);
    }
    // `b` has expired, and nobody holds it.
    world.clock.advance(Duration::from_secs(40));

    let list = listed(&world, &reader, "").await;

    let names = |list: &Value| -> Vec<String> {
        let rows = list["items"].as_array().unwrap().iter();
        let name = |row: &Value| row["subject"].as_str().unwrap().to_owned();
        rows.map(name).collect()
    };
    let wanted = ["c@1", "a@1", "b@1"].map(|id| format!("profile:acme/{id}"));
    assert_eq!(names(&list), wanted);
    assert_eq!(list["items"][0]["expires_in_ms"], 20_000);
    assert_eq!(list["items"][2]["live"], false);
    // What a holder needs to renew is told to nobody else.
    assert!(!list.to_string().contains("op_id"), "{list}");
    let first = listed(&world, &reader, "?limit=1").await;
    assert_eq!((names(&first).len(), &first["total"]), (1, &json!(3)));
    assert_eq!(listed(&world, &other, "").await["total"], 0);
}

#[tokio::test]
async fn a_heartbeat_of_a_session_that_nobody_registered_is_a_404() {
    let world = World::new().await;
    let token = world.token("acme", TokenScope::Write, None).await;

    let beaten = world
        .post(&token, "/v1/sessions/42/heartbeat", &json!({}))
        .await;

    assert_eq!(beaten.status, 404, "{}", beaten.body);
}
