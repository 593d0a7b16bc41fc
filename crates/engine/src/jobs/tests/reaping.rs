//! Reaps as jobs: of sessions that nobody uses, and of locks whose holders are dead.

#![expect(clippy::disallowed_methods, reason = "tests write what is saved")]

use super::World;
use super::proofs::run;
use crate::kind::session::RegisterSession;
use crate::lease::Acquire;
use crate::metrics::SampleSink;
use stasis_model::format::job::{JobName, JobOutcome};
use stasis_model::format::lease::Holder;
use stasis_model::metrics::MetricsRegistry;
use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::sleep;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_session_is_put_to_sleep_once_and_one_in_use_is_left_alone() {
    let world = World::new();
    let server = world.server("one");
    for (name, idle) in [
        ("idle", Duration::from_millis(500)),
        ("busy", Duration::from_hours(1)),
    ] {
        let dir = world.home.path().join("ws").join(name);
        fs::create_dir_all(dir.join("outputs")).unwrap();
        fs::write(dir.join("outputs/file"), name).unwrap();
        let new = RegisterSession {
            session: format!("acme/{name}").parse().unwrap(),
            dir,
            roots: None,
            sandbox: None,
            idle_timeout: Some(idle),
        };
        let sessions = server.engine.sessions();
        let _ = sessions.register(&server.host.sessions, new).await.unwrap();
    }
    sleep(Duration::from_secs(1)).await;

    let first = run(&server, JobName::SessionReap).await;
    let second = run(&server, JobName::SessionReap).await;

    assert_eq!(first.outcome, JobOutcome::Done, "{first:?}");
    assert_eq!(first.place.as_ref().unwrap().as_str(), "one");
    let counted = |name: &str| first.counts[name];
    assert_eq!(
        (counted("scanned"), counted("slept"), counted("in_use")),
        (2, 1, 1),
        "{first:?}"
    );
    assert_eq!((second.counts["slept"], second.counts["in_use"]), (0, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_a_reap_throws_out_is_counted_once() {
    let world = World::new();
    let mut server = world.server("one");
    let counted: Arc<Mutex<MetricsRegistry>> = Arc::default();
    let registry = counted.clone();
    server.engine = server.engine.with_samples(SampleSink::new(move |samples| {
        let mut registry = registry.lock().unwrap();
        for sample in &samples {
            registry.add(sample);
        }
    }));
    let actor = "admin".parse().unwrap();
    let no_grace = [("grace_s".to_owned(), "0".to_owned())];
    let tenants = server.engine.tenants();
    let tenant = "acme".parse().unwrap();
    let _ = tenants.set_policy(tenant, &no_grace, &actor).await.unwrap();
    for name in ["alice", "bob"] {
        let asked = Acquire {
            lineage: format!("acme/{name}@131").parse().unwrap(),
            holder: Holder {
                run_id: "run-7".parse().unwrap(),
                host: "two".parse().unwrap(),
                host_run_id: "1".parse().unwrap(),
            },
            ttl: Some(Duration::from_secs(1)),
        };
        let _ = server.engine.leases().acquire(asked).await.unwrap();
    }
    sleep(Duration::from_millis(1_500)).await;

    for _ in 0..2 {
        let reaped = run(&server, JobName::LockReap).await;
        assert_eq!(reaped.outcome, JobOutcome::Done, "{reaped:?}");
    }

    let text = counted.lock().unwrap().render("stasis_");
    let line = "stasis_profile_lock_evict_total{reason=\"ttl_expired\"} 2";
    assert!(text.lines().any(|one| one == line), "{text}");
}
