//! Saves of the projects of a host that the configuration of the server names.

use super::JobHost;
use super::turn::JobReport;
use super::work::ends_all;
use crate::error::{Error, ErrorKind, error_chain};
use crate::job_lease::JobLease;
use crate::kind::project::{AutosavedProject, UnaskedSave};
use stasis_model::format::job::JobName;

/// Saves each project that changed; one that is busy is passed over until the next run, and what kept it is said.
pub(super) async fn autosave_job(host: &JobHost, lease: &JobLease) -> Result<JobReport, Error> {
    const JOB: JobName = JobName::ProjectAutosave;
    let mut report = JobReport::default();
    let projects: Vec<&AutosavedProject> = host.projects.iter().collect();
    for project in host.tried.in_order(JOB, projects, |one| one.name.as_str()) {
        lease.ensure_held()?;
        host.tried.begin(JOB, project.name.as_str());
        report.count("scanned", 1);
        let saved = project.save().await;
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
        Ok(UnaskedSave::Saved(forgotten)) => {
            report.count("saved", 1);
            report.count("forgotten", forgotten);
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
    // Whatever came of it: a loss is said until somebody has agreed to it.
    let lost = project.losses().into_iter();
    report
        .problems
        .extend(lost.map(|lost| format!("{name}: {lost}")));
    Ok(())
}
