//! Checkpoints of the workspaces of a host, of those that changed.

use super::JobHost;
use super::turn::JobReport;
use super::work::ends_all;
use crate::error::{Error, ErrorKind, error_chain};
use crate::job_lease::JobLease;
use crate::kind::workspace::unasked::{UnaskedCheckpoint, checkpoint_unasked, registered};
use stasis_model::format::job::JobName;
use std::path::Path;

/// Makes a checkpoint of each workspace of the host that changed since its last automatic one.
pub(super) async fn checkpoint_job(host: &JobHost, lease: &JobLease) -> Result<JobReport, Error> {
    const JOB: JobName = JobName::WorkspaceCheckpoint;
    let mut report = JobReport::default();
    let Some(env) = &host.workspaces else {
        return Ok(report);
    };
    let all = registered(env).await;
    for (workspace, decided) in host
        .tried
        .in_order(JOB, all, |(workspace, _)| workspace.as_str())
    {
        lease.ensure_held()?;
        host.tried.begin(JOB, &workspace);
        report.count("scanned", 1);
        let came = match decided {
            Some(decided) => Ok(decided),
            None => Box::pin(checkpoint_unasked(Path::new(&workspace), env)).await,
        };
        note(&mut report, &workspace, came)?;
    }
    Ok(report)
}

pub(super) fn note(
    report: &mut JobReport,
    workspace: &str,
    came: Result<UnaskedCheckpoint, Error>,
) -> Result<(), Error> {
    match came {
        Ok(came) => report.count(word(came), 1),
        // Checkpoints need no store: a disk that does not answer is the disk of this one.
        Err(error) if ends_all(&error) && error.kind() != ErrorKind::Unreachable => {
            return Err(error);
        }
        Err(error) => {
            let why = error_chain(&error);
            report.problems.push(format!("{workspace}: {why}"));
        }
    }
    Ok(())
}

/// What it is counted as.
fn word(came: UnaskedCheckpoint) -> &'static str {
    match came {
        UnaskedCheckpoint::Made => "made",
        UnaskedCheckpoint::Unchanged => "unchanged",
        UnaskedCheckpoint::Watched => "watched",
        UnaskedCheckpoint::Off => "off",
        UnaskedCheckpoint::Gone => "gone",
        UnaskedCheckpoint::Busy => "busy",
    }
}
