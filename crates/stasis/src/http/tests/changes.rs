//! Who destroys says what he saw.

use super::*;

#[tokio::test]
async fn a_holder_is_thrown_out_only_by_whoever_saw_him_and_says_why() {
    let world = World::new().await;
    let admin = world.token("acme", TokenScope::Admin, None).await;
    let path = "/v1/subjects/profile/alice@131/force-unlock";
    let unlock = async |seen: Option<&str>, body: Value| {
        let seen: Vec<(&'static str, &str)> =
            seen.map(|seen| ("if-match", seen)).into_iter().collect();
        world.post_with(&admin, path, &seen, &body).await
    };
    let confirmed = || json!({ "confirm": true, "reason": "the host is gone" });
    let acquired = world
        .post(
            &admin,
            "/v1/leases",
            &json!({ "id": "alice@131", "run_id": "nightly" }),
        )
        .await;

    let plan = unlock(None, json!({})).await;
    assert_eq!((plan.status, &plan.body["applied"]), (200, &json!(false)));
    assert_eq!(plan.body["lock"]["holder_run_id"], "nightly");
    let seen = plan.response.headers()["etag"].to_str().unwrap().to_owned();
    let unseen = unlock(None, confirmed()).await;
    assert_eq!(
        (unseen.status, &unseen.body["code"]),
        (428, &json!("precondition_required"))
    );
    let renew = json!({ "token": acquired.body["token"] });
    let renewed = world
        .post(&admin, "/v1/leases/alice@131/renew", &renew)
        .await;
    let now = renewed.response.headers()["etag"]
        .to_str()
        .unwrap()
        .to_owned();
    let old = unlock(Some(&seen), confirmed()).await;
    assert_eq!(old.status, 412, "{}", old.body);
    assert_eq!(format!("\"{}\"", old.body["generation"]), now);
    let silent = unlock(Some(&now), json!({ "confirm": true })).await;
    assert_eq!(silent.status, 400, "{}", silent.body);

    let done = unlock(Some(&now), confirmed()).await;

    assert_eq!(done.status, 200, "{}", done.body);
    assert_eq!(done.body["applied"], true);
    assert_eq!(done.body["unlocked"]["holder_run_id"], "nightly");
    let lost = world
        .post(&admin, "/v1/leases/alice@131/renew", &renew)
        .await;
    assert_eq!(lost.status, 409, "{}", lost.body);
}

#[tokio::test]
async fn what_a_kind_does_not_have_is_said() {
    let world = World::new().await;
    let admin = world.token("acme", TokenScope::Admin, None).await;
    let host = world.grant("acme", TokenScope::Write, (None, true)).await;
    let post = async |path: &str, body: Value| world.post(&admin, path, &body).await;

    for (path, said) in [
        ("dir/notes/rollback", "on its host"),
        ("session/42/fork", "on its host"),
        ("container/web/snapshots/ab/pin", "stasis container"),
    ] {
        let body = match path.rsplit('/').next() {
            Some("rollback") => json!({ "snapshot": "ab" }),
            Some("fork") => json!({ "target": "b" }),
            _ => json!({}),
        };
        let refused = post(&format!("/v1/subjects/{path}"), body).await;
        if path.ends_with("fork") {
            assert_eq!(refused.status, 202, "{path}");
            continue;
        }
        assert_eq!(refused.status, 404, "{path}");
        assert!(refused.body.to_string().contains(said), "{}", refused.body);
    }
    assert_eq!(
        post("/v1/subjects/planet/x/fork", json!({})).await.status,
        404
    );
    let missing = post("/v1/subjects/dir/notes/snapshots/ab/pin", json!({})).await;
    assert_eq!(missing.status, 404, "{}", missing.body);
    // This server works on no host.
    let woken = world.post(&host, "/v1/sessions/42/wake", &json!({})).await;
    assert_eq!(woken.status, 202, "{}", woken.body);
}
