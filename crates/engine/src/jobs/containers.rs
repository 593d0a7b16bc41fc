//! Snapshots of the containers of a Docker engine that the configuration of the server names.

use super::JobHost;
use super::turn::JobReport;
use crate::bridge::CancelOnDrop;
use crate::error::{Error, ErrorKind};
use crate::job_lease::JobLease;
use crate::kind::container::{AutosavedContainer, ContainerSaved, UnaskedSnapshot};
use crate::open::Engine;
use crate::warning::Warning;
use std::time::Duration;

/// For how long one container may keep the others waiting.
const LONGEST: Duration = Duration::from_mins(30);

/// Makes a snapshot of each container that is due and changed, first of the one that was not tried for longest.
pub(super) async fn snapshot_job(
    engine: &Engine,
    host: &JobHost,
    lease: &JobLease,
) -> Result<JobReport, Error> {
    let mut report = JobReport::default();
    let Some(docker) = &host.docker else {
        return Ok(report);
    };
    let mut containers: Vec<&AutosavedContainer> = host.containers.iter().collect();
    containers.sort_by_key(|one| one.tried());
    for container in containers {
        lease.ensure_held()?;
        report.count("scanned", 1);
        let cancel = CancelOnDrop::default();
        let saving = Box::pin(container.save(engine, docker, cancel.flag()));
        match tokio::time::timeout(LONGEST, saving).await {
            Ok(saved) => note(&mut report, container, saved)?,
            Err(_) => container.given_up(format!(
                "it was not over after {} min, and was given up",
                LONGEST.as_secs() / 60
            )),
        }
        // Whatever came of it: what went wrong is said until it goes well.
        let problem = container.problem().into_iter();
        report
            .problems
            .extend(problem.map(|problem| format!("{}: {problem}", container.name)));
    }
    Ok(report)
}

fn note(
    report: &mut JobReport,
    container: &AutosavedContainer,
    saved: Result<UnaskedSnapshot, Error>,
) -> Result<(), Error> {
    let name = &container.name;
    match saved {
        Ok(UnaskedSnapshot::Saved(saved)) => {
            report.count("saved", 1);
            report.count("snapshots_removed", saved.removed.len() as u64);
            let said = problems(&saved);
            report
                .problems
                .extend(said.map(|said| format!("{name}: {said}")));
        }
        Ok(UnaskedSnapshot::Unchanged) => report.count("unchanged", 1),
        Ok(UnaskedSnapshot::Skipped(why)) => {
            report.count("skipped", 1);
            report.skipped.push(format!("{name} was skipped: {why}"));
        }
        // Whatever keeps one of them, an engine that is silent about it, says nothing of the others.
        Err(error) if error.kind() == ErrorKind::Fenced => return Err(error),
        // What went wrong is said with what went wrong before.
        Ok(UnaskedSnapshot::NotDue) | Err(_) => {}
    }
    Ok(())
}

/// What should be looked at although there is a snapshot, in words.
fn problems(saved: &ContainerSaved) -> impl Iterator<Item = String> {
    let unsound = saved.unsound_databases.iter();
    let unsound = unsound.map(|one| format!("{} is not sound: {}", one.path, one.reason));
    let mut warnings = saved.warnings.iter();
    let limits = warnings.find(|one| matches!(one, Warning::LimitsNotKept { .. }));
    unsound.chain(limits.map(ToString::to_string))
}
