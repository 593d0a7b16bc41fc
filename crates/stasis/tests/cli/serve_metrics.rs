//! What Prometheus scrapes of a service: the real program over a real store, and promtool to read it.

use crate::profile::ALICE;
use crate::profile_metrics::check_metrics;
use crate::serve::{Served, token, two_snapshots};
use crate::serve_host::ask;
use crate::session::Session;
use serde_json::json;
use std::fs;
use std::time::{Duration, Instant};

/// The event of a lease that was taken away.
const UNLOCKED: &str = "events_total{kind=\"force_unlock\",severity=\"warning\"}";
/// How long something may take that happens by itself.
const SOON: Duration = Duration::from_mins(1);

/// What a scrape said.
struct Scrape(String);

impl Scrape {
    /// The value of a sample that is written so.
    fn value(&self, sample: &str) -> Option<f64> {
        let mut lines = self.0.lines();
        let rest = lines.find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
        rest.map(|value| value.parse().unwrap())
    }
}

fn scrape(served: &Served, token: &str) -> Scrape {
    let answer = served.get(token, "/metrics");
    assert_eq!(answer.status, 200, "{}", answer.text);
    let expected = "content-type: text/plain; version=0.0.4\r\n";
    assert!(answer.head.contains(expected), "{}", answer.head);
    Scrape(answer.text)
}

/// Scrapes until something is there.
fn until(served: &Served, token: &str, is_there: impl Fn(&Scrape) -> bool) -> Scrape {
    let began = Instant::now();
    loop {
        let scraped = scrape(served, token);
        if is_there(&scraped) {
            return scraped;
        }
        assert!(began.elapsed() < SOON, "{}", scraped.0);
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Two snapshots of a profile, and one of a directory.
fn fill(session: &Session) -> u64 {
    two_snapshots(session);
    let dir = session.home().join("notes");
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("a"), vec![b'a'; 100_000]).unwrap();
    let dir = dir.to_str().unwrap();
    session.data(0, &["save", dir]);
    let listed = session.json(0, &["profile", "list", ALICE]);
    let sizes = listed["items"].as_array().unwrap().iter();
    sizes
        .map(|one| one["manifest"]["archive_size_bytes"].as_u64().unwrap())
        .sum()
}

/// What was done, and what there is, as it is scraped.
fn assert_counted(scraped: &Scrape, archives: u64) {
    let template = "/v1/profile-snapshots/{tenant_id}/{profile_id}";
    let (unlock, look) = (
        format!("{{route=\"{template}/force-unlock\",method=\"POST\",status=\"200\"}}"),
        format!("{{route=\"{template}\",method=\"GET\",status=\"401\"}}"),
    );
    let text = format!(
        "http_requests_total{unlock} 1
         http_requests_total{look} 1
         http_refused_logins_total{{reason=\"refused\"}} 2
         profile_lock_evict_total{{reason=\"operator_force\"}} 1
         {UNLOCKED} 1
         store_subjects{{kind=\"profile\"}} 1
         store_subjects{{kind=\"dir\"}} 1
         store_subjects{{kind=\"session\"}} 0
         store_unreadable_subjects{{kind=\"dir\"}} 0
         store_snapshots{{kind=\"profile\"}} 2
         store_snapshots{{kind=\"dir\"}} 1
         store_logical_bytes{{kind=\"dir\"}} 100000
         store_stored_bytes{{form=\"archive\"}} {archives}
         leases_expired 0"
    );
    for line in text.lines() {
        let line = format!("stasis_{}", line.trim());
        let is_there = scraped.0.lines().any(|one| one == line);
        assert!(is_there, "{line} in\n{}", scraped.0);
    }
}

#[test]
fn a_scrape_says_what_was_done_and_what_there_is_and_names_nobody() {
    let session = Session::new();
    let archives = fill(&session);
    let (read, admin) = (
        token(&session, "other", "read"),
        token(&session, "acme", "admin"),
    );
    let more = ["--metrics-scan-interval", "1s"];
    let served = Served::start(&session, &more);
    let acquire = ["lease", "acquire", "acme/alice@131", "--run-id", "nightly"];
    session.data(0, &acquire);
    let path = "/v1/profile-snapshots/acme/alice";
    let held = until(&served, &read, |one| {
        one.value("stasis_leases_held") == Some(1.0)
    });
    assert_eq!(
        held.value("stasis_profile_lock_evict_total{reason=\"operator_force\"}"),
        None
    );
    let unlock = json!({ "confirm": true, "reason": "the host is gone" }).to_string();
    let unlock = served.ask(&admin, &format!("POST {path}/force-unlock"), "", &unlock);
    assert_eq!(unlock.status, 200, "{}", unlock.text);
    assert_eq!(served.get("wrong", path).status, 401);
    assert_eq!(served.get("wrong", "/metrics").status, 401);

    let unlocked = format!("stasis_{UNLOCKED}");
    let scraped = until(&served, &read, |one| {
        one.value(&unlocked).is_some() && one.value("stasis_leases_held") == Some(0.0)
    });

    assert_counted(&scraped, archives);
    // A hundred thousand times the same byte.
    let ratio = scraped.value("stasis_store_dedup_ratio").unwrap();
    assert!(ratio > 10.0, "{ratio}");
    let stored = scraped.value("stasis_store_stored_bytes{form=\"chunked\"}");
    assert!((100_000.0 / ratio - stored.unwrap()).abs() < 1.0);
    // What happened before it was started is in the log of events, and not in what it counts since.
    assert!(!scraped.0.contains("token_created"), "{}", scraped.0);
    for name in [
        "acme",
        "alice",
        "other",
        "notes",
        "nightly",
        session.home().to_str().unwrap(),
    ] {
        assert!(!scraped.0.contains(name), "{name} in\n{}", scraped.0);
    }
    check_metrics(&scraped.0);
    assert_eq!(served.stop(), 0);
}

#[test]
fn series_of_profiles_are_for_their_tenant_and_only_where_they_were_asked_for() {
    let session = Session::new();
    let archives = fill(&session);
    let (own, other) = (
        token(&session, "acme", "read"),
        token(&session, "other", "read"),
    );
    let more = ["--metrics-prefix", "mantis", "--metrics-per-profile"];
    let served = Served::start(&session, &more);

    let scraped = until(&served, &own, |one| one.0.contains("mantis_store_scan_"));

    let labels = "tenant_id=\"acme\",profile_id=\"alice\"";
    let snapshots = format!("mantis_store_profile_snapshots{{{labels}}}");
    assert_eq!(scraped.value(&snapshots), Some(2.0), "{}", scraped.0);
    let bytes = scraped.value(&format!("mantis_store_profile_stored_bytes{{{labels}}}"));
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let archives = archives as f64;
    assert_eq!(bytes, Some(archives));
    check_metrics(&scraped.0);
    let of_other = scrape(&served, &other);
    assert!(of_other.0.contains("mantis_store_snapshots"));
    assert!(!of_other.0.contains("tenant_id"), "{}", of_other.0);
    assert!(!scraped.0.contains("stasis_"), "{}", scraped.0);
    assert_eq!(served.stop(), 0);
}

#[test]
fn what_is_damaged_is_counted_as_that_until_it_is_mended() {
    let session = Session::new();
    fill(&session);
    let read = token(&session, "acme", "read");
    let served = Served::start(&session, &["--metrics-scan-interval", "1s"]);
    let unreadable = |count: f64| {
        let sample = "stasis_store_unreadable_subjects{kind=\"profile\"}";
        until(&served, &read, |one| one.value(sample) == Some(count))
    };
    let whole = unreadable(0.0);
    let snapshots = "stasis_store_snapshots{kind=\"profile\"}";
    assert_eq!(whole.value(snapshots), Some(2.0), "{}", whole.0);

    let pointer = session.object("snapshots/acme/alice/131/latest.json");
    let text = fs::read(&pointer).unwrap();
    fs::write(&pointer, "{").unwrap();
    let hurt = unreadable(1.0);
    fs::write(&pointer, text).unwrap();
    let mended = unreadable(0.0);

    assert_eq!(
        hurt.value("stasis_store_subjects{kind=\"profile\"}"),
        Some(1.0)
    );
    assert_eq!(hurt.value("stasis_store_scan_failures_total"), None);
    assert_eq!(mended.value(snapshots), Some(2.0), "{}", mended.0);
    let code = |prefix: &str| session.run(&["serve", "--metrics-prefix", prefix]).code;
    assert_eq!(code("7 up"), 2);
    assert_eq!(served.stop(), 0);
}

#[test]
fn operations_that_end_are_counted_by_what_they_did_and_how_they_ended() {
    let session = Session::new();
    two_snapshots(&session);
    let write = token(&session, "acme", "write");
    let served = Served::start(&session, &[]);
    let fork = |target: &str| {
        let path = "/v1/subjects/profile/alice@131/fork";
        ask(
            &served,
            &write,
            path,
            &json!({ "target": target, "snapshot": "latest" }),
        )
    };
    assert_eq!(fork("bob")["state"], "done");
    assert_eq!(fork("bob")["state"], "failed", "there is one already");

    let took = "stasis_operation_seconds_count{operation=\"fork_subject\"}";
    let scraped = until(&served, &write, |one| one.value(took) == Some(2.0));
    let ended = |outcome: &str| {
        let sample = "stasis_operations_total{operation=\"fork_subject\",outcome=\"OUTCOME\"}";
        scraped.value(&sample.replace("OUTCOME", outcome))
    };
    assert_eq!((ended("done"), ended("failed")), (Some(1.0), Some(1.0)));
    assert_eq!(served.stop(), 0);
}

#[test]
fn leases_that_are_asked_for_and_taken_away_over_http_are_counted() {
    let session = Session::new();
    two_snapshots(&session);
    let admin = token(&session, "acme", "admin");
    let served = Served::start(&session, &[]);
    let lease = |run: &str| {
        let body = json!({ "id": "alice@131", "run_id": run, "host": "h" }).to_string();
        served.ask(&admin, "POST /v1/leases", "", &body).status
    };
    assert_eq!((lease("one"), lease("two")), (200, 409));
    let unlock = |headers: &str, body: &str| {
        let line = "POST /v1/subjects/profile/alice@131/force-unlock";
        served.ask(&admin, line, headers, body)
    };
    let plan = unlock("", "{}");
    let seen = plan
        .head
        .lines()
        .find_map(|line| line.strip_prefix("etag: "));
    let seen = format!("If-Match: {}\r\n", seen.unwrap());
    let unlocked = unlock(&seen, r#"{ "confirm": true, "reason": "it is gone" }"#);
    assert_eq!(unlocked.status, 200, "{}", unlocked.text);

    let scraped = scrape(&served, &admin);
    for (sample, count) in [
        ("lock_acquire_total{outcome=\"acquired\"}", 1.0),
        ("lock_acquire_total{outcome=\"conflict_409\"}", 1.0),
        ("lock_evict_total{reason=\"operator_force\"}", 1.0),
    ] {
        let found = scraped.value(&format!("stasis_profile_{sample}"));
        assert_eq!(found, Some(count), "{sample}: {}", scraped.0);
    }
    assert_eq!(served.stop(), 0);
}
