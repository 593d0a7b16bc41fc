//! What jobs take of their host.

use super::proofs::run_with;
use super::{LIMIT, World, settings};
use crate::bridge;
use crate::jobs::JobSettings;
use crate::jobs::background::{JobThreads, WorkThreads};
use crate::jobs::turn::{JobReport, JobTurn};
use crate::rigged::pool::{self, noise};
use stasis_model::format::job::{JobName, JobOutcome};
use stasis_sys::background::NICENESS;
use std::num::NonZeroU64;
use std::sync::Arc;

pub(super) fn niceness() -> i32 {
    rustix::process::getpriority_process(None).unwrap()
}

#[tokio::test]
async fn the_work_of_a_job_leaves_the_processor_to_others_and_its_server_does_not() {
    let (world, before) = (World::new(), niceness());
    let server = world.server("one");
    let mut runner = server.runner();
    runner.threads = Arc::new(WorkThreads::start(JobThreads::Own));

    let turn = runner.turn(|_| async {
        let mut report = JobReport::default();
        let all = [niceness(), bridge::blocking(niceness).await];
        let nice = all.iter().filter(|one| **one >= NICENESS);
        report.count("nice", nice.count() as u64);
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        report.skipped.push(name);
        Ok(report)
    });

    let Ok(JobTurn::Ran(record, None)) = turn.await else {
        panic!("it was not run");
    };
    assert_eq!(record.counts["nice"], 2, "{record:?}");
    assert_eq!(record.message.as_deref(), Some("stasis-job"));
    assert_eq!(record.outcome, JobOutcome::Done);
    assert_eq!(niceness(), before);
}

/// A snapshot of 50 kB on a line that has 20 kB a second, of which one second is saved up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_job_reads_of_the_store_takes_its_turn_on_the_line_of_all_jobs() {
    let savers = pool::World::new();
    let saver = savers.subject("host", "one").await;
    saver.write("file", &noise(1, 50_000)).save().await;
    let world = World {
        objects: savers.bucket.clone(),
        ..World::new()
    };
    let server = world.server("one");
    let limited = JobSettings {
        bandwidth: NonZeroU64::new(20_000),
        ..settings(LIMIT)
    };

    let record = run_with(&server, JobName::Proof, limited).await;

    assert_eq!(record.counts["restored"], 1, "{record:?}");
    assert!(record.took_ms >= 1_400, "{record:?}");
}
