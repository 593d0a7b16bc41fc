//! Saves of the projects of a host that the configuration of the server names.

use super::JobHost;
use super::turn::JobReport;
use super::work::ends_all;
use crate::bridge::CancelOnDrop;
use crate::error::{Error, ErrorKind, error_chain};
use crate::job_lease::JobLease;
use crate::kind::project::{AutosavedProject, ProjectSaved, UnaskedSave};

/// Saves each project that changed; one that is busy is passed over until the next run, and what kept it is said.
pub(super) async fn autosave_job(host: &JobHost, lease: &JobLease) -> Result<JobReport, Error> {
    let mut report = JobReport::default();
    for project in &host.projects {
        lease.ensure_held()?;
        report.count("scanned", 1);
        let cancel = CancelOnDrop::default();
        let saved = Box::pin(project.save(cancel.flag())).await;
        note(&mut report, project, saved)?;
    }
    Ok(report)
}

fn note(
    report: &mut JobReport,
    project: &AutosavedProject,
    saved: Result<UnaskedSave, Error>,
) -> Result<(), Error> {
    let name = &project.name;
    match saved {
        Ok(UnaskedSave::Saved(saved, forgotten)) => {
            report.count("saved", 1);
            report.count("forgotten", forgotten);
            report
                .problems
                .extend(lost(&saved).map(|lost| format!("{name}: {lost}")));
        }
        Ok(UnaskedSave::Unchanged) => report.count("unchanged", 1),
        Ok(UnaskedSave::Skipped(why)) => {
            report.count("skipped", 1);
            report.skipped.push(format!("{name} was skipped: {why}"));
        }
        // Each has a store of its own: that one cannot be reached says nothing of the others.
        Err(error) if ends_all(&error) && error.kind() != ErrorKind::Unreachable => {
            return Err(error);
        }
        Err(error) => report
            .problems
            .push(format!("{name}: {}", error_chain(&error))),
    }
    Ok(())
}

/// Databases that are gone or broken since the last save, in words.
fn lost(saved: &ProjectSaved) -> impl Iterator<Item = String> {
    let lost = saved.saved.lost_databases.iter();
    lost.map(|one| format!("database {}: {}", one.path, one.how.words()))
}
