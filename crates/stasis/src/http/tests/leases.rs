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
async fn pages_of_leases_have_each_of_them_once_also_while_time_goes_on() {
    let world = World::new().await;
    let token = world.token("acme", TokenScope::Write, None).await;
    for number in 1..=5_u64 {
        let body = json!({ "id": format!("p{number}@1"), "ttl_ms": number * 60_000 });
        let acquired = world.post(&token, "/v1/leases", &body).await;
        assert_eq!(acquired.status, 200, "{}", acquired.body);
    }

    let (mut names, mut query) = (Vec::new(), "?limit=2".to_owned());
    loop {
        let page = listed(&world, &token, &query).await;
        assert_eq!(page["total"], 5, "{page}");
        for row in page["items"].as_array().unwrap() {
            names.push(row["subject"].as_str().unwrap().to_owned());
        }
        world.clock.advance(Duration::from_secs(10));
        let Some(cursor) = page["next_cursor"].as_str() else {
            break;
        };
        let cursor: String = form_urlencoded::byte_serialize(cursor.as_bytes()).collect();
        query = format!("?limit=2&cursor={cursor}");
    }

    let wanted = [1, 2, 3, 4, 5].map(|number| format!("profile:acme/p{number}@1"));
    assert_eq!(names, wanted);
}

#[tokio::test]
async fn the_log_is_read_page_by_page_to_its_beginning() {
    let world = World::new().await;
    // Each of them is an event, two at each moment.
    for _ in 0..3 {
        world.token("acme", TokenScope::Write, None).await;
        world.token("acme", TokenScope::Write, None).await;
        world.clock.advance(Duration::from_hours(20));
    }
    let reader = world.token("acme", TokenScope::Read, None).await;
    world.token("other", TokenScope::Read, None).await;
    let get = async |query: &str| {
        let get = request(&Method::GET, &format!("/v1/events?{query}"));
        world.ask(with_token(get, &reader)).await
    };
    let ids = |page: &Value| -> Vec<String> {
        let rows = page["items"].as_array().unwrap().iter();
        let id = |row: &Value| row["id"].as_str().unwrap().to_owned();
        rows.map(id).collect()
    };
    let all = ids(&get("limit=100").await.body);
    assert_eq!(all.len(), 7);

    let (mut pages, mut query) = (Vec::new(), "limit=3".to_owned());
    loop {
        let page = get(&query).await.body;
        pages.push(ids(&page));
        let Some(cursor) = page["next_cursor"].as_str() else {
            break;
        };
        query = format!("limit=3&cursor={cursor}");
    }

    // The newest page first, and in each of them the oldest first.
    let lengths: Vec<usize> = pages.iter().map(Vec::len).collect();
    assert_eq!(lengths, [3, 3, 1]);
    let found: Vec<String> = pages.into_iter().rev().flatten().collect();
    assert_eq!(found, all);
    assert_eq!(get("cursor=nonsense").await.status, 400);
}

#[tokio::test]
async fn a_subject_has_its_own_events_however_much_happens_besides() {
    let world = World::new().await;
    let admin = world.token("acme", TokenScope::Admin, None).await;
    let lease = json!({ "id": "alice@131", "run_id": "nightly" });
    let acquired = world.post(&admin, "/v1/leases", &lease).await;
    assert_eq!(acquired.status, 200, "{}", acquired.body);
    let path = "/v1/profile-snapshots/acme/alice/force-unlock";
    let unlock = json!({ "confirm": true, "reason": "it hangs" });
    assert_eq!(world.post(&admin, path, &unlock).await.status, 200);
    // Much happens besides.
    for _ in 0..30 {
        world.token("acme", TokenScope::Read, None).await;
    }
    let tenant = "acme".parse().unwrap();
    let profile = stasis_engine::subjects::SubjectKind::Profile;
    let host = looking_host();
    let found = world.engine.stored(&tenant, profile, "alice@131", &host);

    let events = found.await.unwrap().events(20).await.unwrap();

    let kinds: Vec<String> = events
        .events
        .iter()
        .map(|one| one.kind.to_string())
        .collect();
    assert_eq!(kinds, ["force_unlock"]);
    assert_eq!((events.ended_on, events.unreadable), (None, 0));
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
