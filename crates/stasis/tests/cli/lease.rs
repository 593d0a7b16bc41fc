//! `stasis lease`, `events`, `tenant` and `operation` on the default store.

use crate::session::{FILTERS, Session, transcript};
use serde_json::json;
use std::time::Duration;

const ALICE: &str = "acme/alice@131";

#[test]
fn a_lease_is_taken_refused_and_forced() {
    let session = Session::new();
    let text = transcript(
        &session,
        &[
            &["lease", "show", ALICE],
            &[
                "lease", "acquire", ALICE, "--run-id", "run-1", "--host", "e2b", "--ttl", "300s",
            ],
            &[
                "lease", "acquire", ALICE, "--run-id", "run-2", "--host", "modal",
            ],
            &["lease", "show", ALICE],
            &["lease", "force-unlock", ALICE, "--reason", "host is gone"],
            &[
                "lease",
                "force-unlock",
                ALICE,
                "--reason",
                "host is gone",
                "--confirm",
            ],
            &["lease", "show", ALICE],
            &[
                "lease", "acquire", ALICE, "--run-id", "run-2", "--host", "modal",
            ],
            &["lease", "reap"],
            &["events", "--tenant", "acme"],
        ],
    );

    insta::with_settings!({ filters => FILTERS.to_vec() }, { insta::assert_snapshot!(text) });
}

#[test]
fn a_token_renews_and_releases_and_nothing_else_does() {
    let session = Session::new();
    let token = session.data(0, &["lease", "acquire", ALICE, "--run-id", "run-1"]);
    let stranger = "1.00000000-0000-4000-8000-000000000000";

    assert_eq!(
        session
            .run(&["lease", "renew", ALICE, "--token", stranger])
            .code,
        5
    );
    assert_eq!(
        session
            .run(&["lease", "release", ALICE, "--token", stranger])
            .code,
        5
    );
    let renewed = session.json(0, &["lease", "renew", ALICE, "--token", &token]);
    assert_eq!(renewed["renewal_count"], 1);
    session.data(0, &["lease", "release", ALICE, "--token", &token]);
    assert_eq!(session.json(0, &["lease", "show", ALICE])["state"], "free");
    session.data(0, &["lease", "release", ALICE, "--token", &token]);
    let over = session.run(&["lease", "renew", ALICE, "--token", &token]);
    assert_eq!(
        over.code, 5,
        "what was given back does not come back: {}",
        over.err
    );
    session.data(0, &["lease", "acquire", ALICE, "--run-id", "run-2"]);
    assert_eq!(
        session
            .run(&["lease", "renew", ALICE, "--token", &token])
            .code,
        5
    );
}

#[test]
fn a_conflict_gives_the_holder_to_a_script() {
    let session = Session::new();
    session.data(
        0,
        &[
            "lease",
            "acquire",
            ALICE,
            "--run-id",
            "run-1",
            "--host",
            "e2b",
            "--host-run-id",
            "fc-01",
        ],
    );

    let refused = session.json(4, &["lease", "acquire", ALICE, "--run-id", "run-2"]);

    let holder = &refused["error"]["holder"];
    assert_eq!(holder["holder_run_id"], "run-1");
    assert_eq!(holder["holder_host"], "e2b");
    assert_eq!(holder["holder_host_run_id"], "fc-01");
    assert_eq!(refused["error"]["kind"], "conflict");
}

#[test]
fn the_reaper_frees_the_dead_and_its_victim_can_come_back() {
    let session = Session::new();
    let dead = session.data(
        0,
        &[
            "lease", "acquire", ALICE, "--run-id", "dead", "--ttl", "1ms",
        ],
    );
    session.data(
        0,
        &["lease", "acquire", "acme/bob@131", "--run-id", "living"],
    );
    std::thread::sleep(Duration::from_millis(50));

    let within_grace = session.json(0, &["lease", "reap"]);
    let reaped = session.json(0, &["lease", "reap", "--grace", "1ms"]);

    assert_eq!(within_grace["evicted"], json!([]));
    assert_eq!(reaped["scanned"], 2);
    assert_eq!(reaped["evicted"][0]["holder_run_id"], "dead");
    assert_eq!(reaped["fresh"], 1);
    let log = session
        .command(&["lease", "reap", "--grace", "0s"])
        .output()
        .unwrap();
    assert!(log.status.success(), "a free lock is not reaped twice");
    session.data(0, &["lease", "renew", ALICE, "--token", &dead]);
    assert_eq!(session.json(0, &["lease", "show", ALICE])["state"], "held");
}

#[test]
fn an_eviction_is_logged_as_a_warning_with_the_run_that_lost_it() {
    let session = Session::new();
    session.data(
        0,
        &[
            "lease", "acquire", ALICE, "--run-id", "dead-run", "--ttl", "1ms",
        ],
    );
    std::thread::sleep(Duration::from_millis(50));

    let said = session.run(&["--log-format", "json", "lease", "reap", "--grace", "1ms"]);

    let line: serde_json::Value = serde_json::from_str(said.err.lines().next().unwrap()).unwrap();
    assert_eq!(line["level"], "WARN");
    assert_eq!(line["fields"]["holder_run_id"], "dead-run");
    let event = &session.json(0, &["events"])["items"][0];
    assert_eq!(
        (&event["kind"], &event["severity"]),
        (&json!("lock_reaped"), &json!("WARNING"))
    );
    assert_eq!(event["details"]["holder_run_id"], "dead-run");
}

#[test]
fn a_take_over_is_told_to_the_one_who_takes_and_to_the_log() {
    let session = Session::new();
    session.data(
        0,
        &[
            "lease", "acquire", ALICE, "--run-id", "slow", "--ttl", "1ms",
        ],
    );
    std::thread::sleep(Duration::from_millis(20));

    let taken = session.json(0, &["lease", "acquire", ALICE, "--run-id", "quick"]);

    assert_eq!(
        taken["warnings"][0],
        json!({ "code": "took_over", "holder_run_id": "slow" })
    );
    assert_eq!(
        session.json(0, &["events"])["items"][0]["kind"],
        "lock_taken_over"
    );
}

#[test]
fn a_tenants_policy_decides_how_long_leases_last() {
    let session = Session::new();
    session.data(
        0,
        &[
            "tenant",
            "policy",
            "set",
            "acme",
            "lease_ttl_s=7",
            "renew_s=2",
        ],
    );

    let acquired = session.json(0, &["lease", "acquire", ALICE]);
    let elsewhere = session.json(0, &["lease", "acquire", "other/alice@131"]);

    assert_eq!(
        (&acquired["ttl_ms"], &elsewhere["ttl_ms"]),
        (&json!(7000), &json!(300_000))
    );
    assert_eq!(
        session
            .run(&["tenant", "policy", "set", "acme", "lease_ttl_s=3"])
            .code,
        2
    );
    assert_eq!(
        session.json(0, &["tenant", "policy", "show", "acme"])["lease_ttl_s"],
        7
    );
    assert_eq!(
        session.json(0, &["events", "--tenant", "acme"])["items"][0]["kind"],
        "policy_changed"
    );
}

#[test]
fn settings_come_from_the_flag_then_the_variable_then_the_file() {
    let session = Session::new();
    let place = |name: &str| format!("file://{}", session.home().join(name).display());
    let config = session.home().join("config/stasis");
    std::fs::create_dir_all(&config).unwrap();
    std::fs::write(
        config.join("config.toml"),
        format!("store = \"{}\"\nhost = \"rack-7\"\n", place("by-file")),
    )
    .unwrap();

    let by_file = session.json(0, &["lease", "acquire", ALICE]);
    let by_variable = session
        .command(&["lease", "acquire", ALICE])
        .env("STASIS_STORE", place("by-variable"))
        .output();
    let by_flag = session
        .command(&["--store", &place("by-flag"), "lease", "acquire", ALICE])
        .env("STASIS_STORE", place("by-variable"))
        .output();

    assert_eq!(by_file["holder_host"], "rack-7");
    assert!(by_variable.unwrap().status.success() && by_flag.unwrap().status.success());
    for name in ["by-file", "by-variable", "by-flag"] {
        assert!(
            session
                .home()
                .join(name)
                .join("snapshots/acme/alice/131/lock.json")
                .exists(),
            "{name}"
        );
    }
    assert!(
        !session.object("").exists(),
        "the default store was not touched"
    );
}

#[test]
fn the_demo_shows_that_the_loser_can_do_no_harm() {
    let demo = Session::new().json(0, &["demo", "lease"]);

    assert_eq!(demo["went_as_promised"], true);
    assert_eq!(demo["updates_lost"], 0);
    assert_eq!(demo["scenes"].as_array().unwrap().len(), 8);
}

#[test]
fn the_doctor_names_what_an_absence_costs() {
    let findings = Session::new().json(0, &["doctor"]);

    for finding in findings["items"].as_array().unwrap() {
        let fine = ["ok", "note"].contains(&finding["health"].as_str().unwrap());
        assert_eq!(fine, finding["costs"] == "", "{finding}");
    }
    assert_eq!(findings["items"][0]["name"], "store");
}

#[test]
fn one_damaged_event_does_not_hide_the_others() {
    let session = Session::new();
    session.data(0, &["tenant", "policy", "set", "acme", "grace_s=30"]);
    session.data(0, &["tenant", "policy", "set", "acme", "grace_s=31"]);
    let day = std::fs::read_dir(session.object("events/acme"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let one = std::fs::read_dir(day)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    std::fs::write(one, "{").unwrap();

    let log = session.json(9, &["events"]);

    assert_eq!(log["items"].as_array().unwrap().len(), 1);
    assert_eq!(log["unreadable"].as_array().unwrap().len(), 1);
}
