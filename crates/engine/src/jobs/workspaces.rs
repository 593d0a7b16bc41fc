//! Checkpoints of the workspaces of a host, of those that changed.

use super::JobHost;
use super::turn::JobReport;
use super::work::ends_all;
use crate::error::{Error, ErrorKind, error_chain};
use crate::job_lease::JobLease;
use crate::kind::workspace::unasked::{UnaskedCheckpoint, checkpoint_unasked, registered};
use std::path::Path;

/// Makes a checkpoint of each workspace of the host that changed since its last automatic one.
pub(super) async fn checkpoint_job(host: &JobHost, lease: &JobLease) -> Result<JobReport, Error> {
    let mut report = JobReport::default();
    let Some(env) = &host.workspaces else {
        return Ok(report);
    };
    for (workspace, decided) in registered(env).await {
        lease.ensure_held()?;
        report.count("scanned", 1);
        let came = match decided {
            Some(decided) => Ok(decided),
            None => Box::pin(checkpoint_unasked(Path::new(&workspace), env)).await,
        };
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
    }
    Ok(report)
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
