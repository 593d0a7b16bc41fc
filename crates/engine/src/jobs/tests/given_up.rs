//! Saves that are given up: what their hooks began is ended, and whoever wants the project has it.

#![expect(clippy::disallowed_methods, reason = "tests write what is saved")]

use super::background::niceness;
use super::projects::{Desk, PLAIN};
use super::proofs::run_with;
use super::{LIMIT, TTL, settings};
use crate::jobs::{JobPlan, JobSettings, JobThreads};
use crate::kind::project::{ProjectRestore, ProjectSave, ServiceUse};
use crate::rigged::Turn;
use crate::rigged::pool::noise;
use stasis_model::format::job::{JobName, JobOutcome};
use stasis_model::format::manifest::SaveReason;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tempfile::TempDir;

const JOB: JobName = JobName::ProjectAutosave;

/// A project whose hooks say in a directory what they did.
struct Hooked {
    place: TempDir,
    desk: Desk,
}

impl Hooked {
    /// The first hook holds something, and does `before`; the second does `after`, and ends it.
    async fn new(before: &str, after: &str) -> Self {
        let place = tempfile::tempdir().unwrap();
        let at = place.path().display();
        let file = format!(
            "{PLAIN}[services.web]\npid_file = \"web.pid\"\n[services.web.hooks]\n\
             pre_save = \"cd '{at}' && touch held && {before}\"\n\
             post_save = \"cd '{at}' && {after} && rm -f held && echo once >> ended\"\n"
        );
        let desk = Desk::new(&file, ServiceUse::Held).await;
        desk.change(1);
        Self { place, desk }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// How often the second hook has come to its end, if nothing is held any more.
    fn ended(&self) -> usize {
        assert!(!self.at("held").exists(), "the application was left there");
        let ended = fs::read_to_string(self.at("ended")).unwrap_or_default();
        ended.lines().count()
    }
}

/// Waits for what has to happen.
async fn until(what: impl Fn() -> bool) {
    for _ in 0..3_000 {
        if what() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it did not happen");
}

fn only_this(how: &JobSettings) -> JobSettings {
    JobSettings {
        plans: [(JOB, how.plans[&JOB])].into(),
        ..how.clone()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_save_that_is_given_up_ends_what_its_hooks_began_and_the_next_one_is_made() {
    let hooked = Hooked::new("if [ -e slow ]; then sleep 60; fi", "true").await;
    fs::write(hooked.at("slow"), "").unwrap();

    let limited = settings(Duration::from_secs(3));
    let stuck = run_with(&hooked.desk.server, JOB, limited).await;

    assert_eq!(stuck.outcome, JobOutcome::Stuck, "{stuck:?}");
    assert_eq!(hooked.ended(), 1);
    drop(hooked.desk.project.exclusive("start").await.unwrap());
    fs::remove_file(hooked.at("slow")).unwrap();
    let next = hooked.desk.run().await;
    assert_eq!(next.counts["saved"], 1, "{next:?}");
    assert_eq!(hooked.ended(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_ends_waits_for_the_hooks_after_a_save_that_it_gives_up() {
    let hooked = Hooked::new("sleep 60", "sleep 1").await;
    let server = &hooked.desk.server;
    let own = JobSettings {
        threads: JobThreads::Own,
        ..only_this(&settings(LIMIT))
    };
    let running = server.engine.jobs().start(server.host.clone(), &own);
    until(|| hooked.at("held").exists()).await;

    running.end(Duration::ZERO).await;

    assert_eq!(hooked.ended(), 1);
    drop(hooked.desk.project.exclusive("start").await.unwrap());
    let row = server.row(JOB).await;
    assert_eq!(row.outcome, Some(JobOutcome::HandedBack), "{row:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_save_that_nobody_asked_for_gives_way_to_whoever_asks_for_something() {
    let desk = Desk::new(PLAIN, ServiceUse::LeftAlone).await;
    let orders = desk.dir.join("orders");
    fs::write(&orders, "one").unwrap();
    let asked = ProjectSave::new(SaveReason::Manual);
    let saved = Box::pin(desk.project.save(asked)).await.unwrap();
    fs::write(&orders, noise(1, 200_000)).unwrap();
    let (is_slow, has_begun) = (
        Arc::new(AtomicBool::new(true)),
        Arc::new(AtomicBool::new(false)),
    );
    let (slow, begun) = (is_slow.clone(), has_begun.clone());
    desk.server.bucket.rig(move |asked| {
        let is_kept = asked.writes_chunk() && slow.load(Ordering::Relaxed);
        begun.fetch_or(is_kept, Ordering::Relaxed);
        Box::pin(async move {
            if is_kept {
                std::future::pending::<()>().await;
            }
            Turn::Work
        })
    });

    let person = async {
        until(|| has_begun.load(Ordering::Relaxed)).await;
        is_slow.store(false, Ordering::Relaxed);
        let back = ProjectRestore::new(saved.saved.snapshot_id.as_str());
        Box::pin(desk.project.restore(back)).await
    };
    let (record, restored) = tokio::join!(desk.run(), person);

    assert!(restored.is_ok(), "{restored:?}");
    assert_eq!(fs::read_to_string(&orders).unwrap(), "one");
    assert_eq!(record.outcome, JobOutcome::Done, "{record:?}");
    assert_eq!(record.counts["skipped"], 1);
    assert!(record.message.unwrap().contains("somebody else wanted it"));
    assert_eq!(desk.run().await.counts["unchanged"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_project_that_takes_the_time_of_all_does_not_come_first_again() {
    let mut hooked = Hooked::new("sleep 60", "true").await;
    let other = hooked.desk.another().await;

    let mut snapshots = Vec::new();
    for _ in 0..2 {
        let limited = settings(Duration::from_secs(3));
        let stuck = run_with(&hooked.desk.server, JOB, limited).await;
        assert_eq!(stuck.outcome, JobOutcome::Stuck, "{stuck:?}");
        snapshots.push(other.list().await.unwrap().len());
    }

    assert_eq!(snapshots, [0, 1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_hooks_start_has_the_priority_of_the_server_and_not_that_of_jobs() {
    let hooked = Hooked::new("cut -d ' ' -f 19 /proc/self/stat > nice", "true").await;
    let own = JobSettings {
        threads: JobThreads::Own,
        ..settings(LIMIT)
    };

    let record = run_with(&hooked.desk.server, JOB, own).await;

    assert_eq!(record.counts["saved"], 1, "{record:?}");
    let nice = fs::read_to_string(hooked.at("nice")).unwrap();
    assert_eq!(nice.trim(), niceness().to_string());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "minutes of real time, most of them waits; run it by hand"]
async fn a_save_that_hangs_keeps_no_other_project_from_being_saved() {
    let mut desk = Desk::new(PLAIN, ServiceUse::LeftAlone).await;
    desk.change(1);
    let other = desk.another().await;
    let is_hung = Arc::new(AtomicBool::new(true));
    let hung = is_hung.clone();
    // Nobody is asked to give up while he makes a snapshot exist.
    desk.server.bucket.rig(move |asked| {
        let hung = hung.clone();
        Box::pin(async move {
            while asked.writes("/shop/index.json") && hung.load(Ordering::Relaxed) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Turn::Work
        })
    });
    let plan = JobPlan {
        every: Duration::from_secs(1),
        limit: Duration::from_secs(3),
        lease_ttl: TTL,
    };
    let often = JobSettings {
        plans: [(JOB, plan)].into(),
        ..settings(LIMIT)
    };
    let host = desk.server.host.clone();
    let running = desk.server.engine.jobs().start(host, &often);

    let mut said = None;
    for _ in 0..600 {
        tokio::time::sleep(Duration::from_millis(200)).await;
        said = desk.server.row(JOB).await.message;
        let said = said.as_deref().unwrap_or_default();
        if said.contains("has not come to its end") {
            break;
        }
    }

    let said = said.expect("it was never run");
    assert!(said.contains("shop was skipped"), "{said}");
    assert_eq!(other.list().await.unwrap().len(), 1);
    is_hung.store(false, Ordering::Relaxed);
    running.end(Duration::from_secs(30)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_follows_a_save_is_left_to_the_next_run_where_somebody_wants_the_project() {
    let slow = "if [ -e slow ]; then touch published; sleep 3; fi";
    let hooked = Hooked::new("true", slow).await;
    let desk = &hooked.desk;
    for length in 2..4 {
        desk.change(length);
        assert_eq!(desk.run().await.counts["saved"], 1);
    }
    fs::write(hooked.at("slow"), "").unwrap();
    desk.change(4);

    let person = async {
        until(|| hooked.at("published").exists()).await;
        drop(desk.project.exclusive("start").await.unwrap());
    };
    let (record, ()) = tokio::join!(desk.run(), person);

    assert_eq!(record.counts["saved"], 1, "{record:?}");
    assert_eq!(record.counts["forgotten"], 0);
    assert_eq!(desk.project.list().await.unwrap().len(), 3);
    fs::remove_file(hooked.at("slow")).unwrap();
    let next = desk.run().await;
    assert_eq!(next.counts["unchanged"], 1, "{next:?}");
    assert_eq!(desk.project.list().await.unwrap().len(), 2);
}
