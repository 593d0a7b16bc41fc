//! The same program against a real S3 server, and against a store that lies.

use crate::session::{Session, real_store};

const ALICE: &str = "acme/alice@131";

#[test]
fn the_probe_passes_a_real_s3_server() {
    let Some(store) = real_store("STASIS_TEST_S3") else {
        return;
    };

    let report = Session::new().json(0, &["store", "probe", &store]);

    assert_eq!(report["verdict"], "multi_writer", "{report}");
    assert!(report["checks"].as_array().unwrap().len() >= 8);
}

#[test]
fn a_store_that_ignores_conditions_is_refused_for_leases() {
    let Some(liar) = real_store("STASIS_TEST_S3_CARELESS") else {
        return;
    };
    let session = Session::on(&liar);

    let report = session.json(1, &["store", "probe"]);
    let refused = session.run(&["lease", "acquire", ALICE]);

    assert_eq!(report["verdict"], "refused", "{report}");
    assert_eq!(refused.code, 11, "{}", refused.err);
    assert!(
        refused.err.contains("is refused for more than one writer"),
        "{}",
        refused.err
    );
    assert!(
        refused
            .err
            .contains("hint: use a store that honours conditional writes"),
        "{}",
        refused.err
    );
    assert_eq!(
        session.run(&["lease", "show", ALICE]).code,
        3,
        "nothing was created"
    );
}

#[test]
fn two_hosts_share_a_lineage_through_a_bucket() {
    let Some(store) = real_store("STASIS_TEST_S3") else {
        return;
    };
    let store = store.replace("/test?", &format!("/cli-{}?", std::process::id()));
    let (one, two) = (Session::on(&store), Session::on(&store));

    let token = one.data(
        0,
        &[
            "lease", "acquire", ALICE, "--run-id", "run-1", "--host", "one",
        ],
    );
    let refused = two.json(
        4,
        &[
            "lease", "acquire", ALICE, "--run-id", "run-2", "--host", "two",
        ],
    );
    one.data(0, &["lease", "release", ALICE, "--token", &token]);
    two.data(
        0,
        &[
            "lease", "acquire", ALICE, "--run-id", "run-2", "--host", "two",
        ],
    );

    assert_eq!(refused["error"]["holder"]["holder_host"], "one");
    assert_eq!(
        one.run(&["lease", "renew", ALICE, "--token", &token]).code,
        5
    );
    assert_eq!(one.json(0, &["lease", "show", ALICE])["holder_host"], "two");
    assert!(
        two.home().join("cache/stasis/probes").exists(),
        "the probe's result is kept on the host"
    );
}

#[test]
fn what_was_found_of_one_store_is_not_believed_of_another() {
    let (Some(good), Some(careless)) = (
        real_store("STASIS_TEST_S3"),
        real_store("STASIS_TEST_S3_CARELESS"),
    ) else {
        return;
    };
    let endpoint = |store: &str| {
        store
            .split("endpoint=")
            .nth(1)
            .unwrap()
            .split('&')
            .next()
            .unwrap()
            .to_owned()
    };
    let session = Session::on("s3://stasis/shared-name");
    let acquire = |subject: &str, store: &str| {
        session
            .command(&["lease", "acquire", subject])
            .env("AWS_ENDPOINT_URL", endpoint(store))
            .output()
            .unwrap()
    };

    let on_good = acquire("acme/one@1", &good);
    let on_careless = acquire("acme/two@1", &careless);

    assert!(
        on_good.status.success(),
        "{}",
        String::from_utf8_lossy(&on_good.stderr)
    );
    assert_eq!(
        on_careless.status.code(),
        Some(11),
        "{}",
        String::from_utf8_lossy(&on_careless.stderr)
    );
}
