//! What automatic snapshots have lost.

#![expect(clippy::disallowed_methods, reason = "tests write what is saved")]

use super::projects::{Desk, PLAIN};
use crate::kind::project::{ProjectSave, ServiceUse};
use crate::rigged::Turn;
use stasis_model::format::job::JobOutcome;
use stasis_model::format::manifest::SaveReason;
use std::fs;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_snapshot_has_lost_is_said_each_time_and_the_one_before_it_stays() {
    let desk = Desk::new(PLAIN, ServiceUse::LeftAlone).await;
    let files: Vec<_> = (0..30)
        .map(|n| desk.dir.join(format!("file-{n}")))
        .collect();
    for file in &files {
        fs::write(file, "x").unwrap();
    }
    let first = desk.run().await;
    assert_eq!(first.outcome, JobOutcome::Done, "{first:?}");
    let good = desk.project.list().await.unwrap().remove(0).snapshot_id;
    let is_there = async || {
        let rows = desk.project.list().await.unwrap();
        rows.iter().any(|row| row.snapshot_id == good)
    };
    for file in &files {
        fs::remove_file(file).unwrap();
    }

    for length in 1..6 {
        desk.change(length);
        let record = desk.run().await;
        assert_eq!(record.counts["saved"], 1, "{record:?}");
        assert_eq!(record.outcome, JobOutcome::Incomplete);
        let said = record.message.unwrap();
        assert!(
            said.contains("shop: of ") && said.contains(" are left"),
            "{said}"
        );
        assert!(said.contains(good.as_str()), "{said}");
    }
    let same = desk.run().await;
    assert_eq!(same.counts["unchanged"], 1);
    assert_eq!(same.outcome, JobOutcome::Incomplete, "{same:?}");
    assert!(is_there().await);
    assert_eq!(desk.project.list().await.unwrap().len(), 3);

    // Whoever saves by hand agrees to it.
    let asked = ProjectSave::new(SaveReason::Manual);
    let _ = Box::pin(desk.project.save(asked)).await.unwrap();
    let agreed = desk.run().await;
    assert_eq!(agreed.outcome, JobOutcome::Done, "{agreed:?}");
    for length in 6..10 {
        desk.change(length);
        let record = desk.run().await;
        assert_eq!(record.outcome, JobOutcome::Done, "{record:?}");
    }
    assert!(!is_there().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_the_store_does_not_say_what_was_lost_nothing_goes_and_nothing_is_forgotten_of_it() {
    let desk = Desk::new(PLAIN, ServiceUse::LeftAlone).await;
    let files: Vec<_> = (0..30)
        .map(|n| desk.dir.join(format!("file-{n}")))
        .collect();
    for file in &files {
        fs::write(file, "x").unwrap();
    }
    assert_eq!(desk.run().await.outcome, JobOutcome::Done);
    let good = desk.project.list().await.unwrap().remove(0).snapshot_id;
    for file in &files {
        fs::remove_file(file).unwrap();
    }
    desk.change(1);
    assert_eq!(desk.run().await.outcome, JobOutcome::Incomplete);

    // Only what that snapshot says of itself cannot be read.
    let key = format!("{good}.json");
    desk.server.bucket.decide(move |asked| {
        if asked.reads(&key) {
            Turn::Fail
        } else {
            Turn::Work
        }
    });
    for length in [2, 3, 3] {
        desk.change(length);
        let record = desk.run().await;
        assert_eq!(record.outcome, JobOutcome::Incomplete, "{record:?}");
        let said = record.message.unwrap();
        assert!(said.contains(" are left"), "{said}");
        assert!(said.contains("what it has lost is not known"), "{said}");
    }
    desk.server.bucket.mend();

    let record = desk.run().await;
    let said = record.message.unwrap();
    assert!(
        said.contains(" are left") && !said.contains("not known"),
        "{said}"
    );
    let rows = desk.project.list().await.unwrap();
    assert!(rows.iter().any(|row| row.snapshot_id == good));
}
