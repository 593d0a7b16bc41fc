//! What each job does: a command of the engine, and what that says in numbers.

use super::containers::snapshot_job;
use super::turn::JobReport;
use super::{JobHost, projects, workspaces};
use crate::error::{Error, ErrorKind, error_chain};
use crate::gc::RepoGc;
use crate::job_lease::JobLease;
use crate::kind::container::{CleanupContainers, ContainerHost};
use crate::kind::profile::ProfileGc;
use crate::kind::session::{ReapSessions, SessionFate, SleptState};
use crate::metrics::ProfileSamples;
use crate::open::Engine;
use stasis_model::format::job::JobName;
use stasis_model::id::TenantId;
use stasis_model::policy::retention::{OnDoubt, RetentionPolicy};
use stasis_store::documents::{containers, profiles, roots};
use stasis_store::layout::ChunkRoot;
use stasis_store::part::Part;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;

/// What a job does.
pub(super) type JobWork = Pin<Box<dyn Future<Output = Result<JobReport, Error>> + Send>>;

/// Does it, for as long as the lease is ours.
pub(super) fn work(
    job: JobName,
    engine: Engine,
    host: Arc<JobHost>,
    lease: Arc<JobLease>,
) -> JobWork {
    Box::pin(async move {
        match job {
            JobName::LockReap => engine.lock_reap_job(&host).await,
            JobName::SessionReap => engine.session_reap_job(&host).await,
            JobName::ContainerCleanup => engine.container_job(&host, &lease).await,
            JobName::ContainerSnapshot => snapshot_job(&engine, &host, &lease).await,
            JobName::Gc => engine.gc_job(&lease).await,
            JobName::Proof => engine.proof_job(&host, &lease).await,
            JobName::WorkspaceCheckpoint => workspaces::checkpoint_job(&host, &lease).await,
            JobName::ProjectAutosave => projects::autosave_job(&host, &lease).await,
        }
    })
}

impl JobReport {
    pub(super) fn count(&mut self, name: &'static str, count: u64) {
        *self.counts.entry(name).or_default() += count;
    }
}

/// What ends a job at once: the other subjects would meet it, too.
pub(super) fn ends_all(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Fenced | ErrorKind::Unreachable | ErrorKind::Cancelled
    )
}

impl Engine {
    /// Frees the locks of the dead, with the grace of each tenant's policy.
    async fn lock_reap_job(&self, host: &JobHost) -> Result<JobReport, Error> {
        let reaped = self.leases().reap(None, None).await?;
        let samples = ProfileSamples {
            with_subjects: false,
            host: host.sessions.name.clone(),
        };
        self.counted.add(samples.reaped(&reaped));
        let mut report = JobReport::default();
        report.count("scanned", reaped.scanned as u64);
        report.count("evicted", reaped.evicted.len() as u64);
        report.count("left_alone", reaped.left_alone.len() as u64);
        let left = reaped.left_alone.iter();
        let said = left.map(|one| format!("{}: {}", one.subject, one.reason));
        report.problems = said.collect();
        Ok(report)
    }

    /// Puts idle sessions of this host to sleep.
    async fn session_reap_job(&self, host: &JobHost) -> Result<JobReport, Error> {
        let command = ReapSessions::default();
        let sessions = self.sessions();
        self.store().ensure_trusted().await?;
        let reaped = Box::pin(sessions.reap_held(&host.sessions, &command)).await?;
        let mut report = JobReport::default();
        let slept = SessionFate::Slept(SleptState::Sleeping);
        let slept = reaped.items.iter().filter(|one| one.fate == slept);
        report.count("scanned", reaped.scanned);
        report.count("in_use", reaped.in_use);
        report.count("slept", slept.count() as u64);
        report.count("sandboxes_ended", reaped.sandboxes_ended);
        let problem = |one: &crate::kind::session::ReapedSession| {
            let why = one.slept.problem.as_ref()?;
            Some(format!("{}: {why}", one.slept.session))
        };
        let problems = reaped.items.iter().filter_map(problem);
        report.problems = problems.chain(reaped.unreadable.clone()).collect();
        Ok(report)
    }

    /// Keeps the limits on snapshots of every tenant's containers on this engine, and removes what was left of interrupted work.
    async fn container_job(&self, host: &JobHost, lease: &JobLease) -> Result<JobReport, Error> {
        let mut report = JobReport::default();
        let Some(docker) = &host.docker else {
            return Ok(report);
        };
        let all = containers::containers(&*self.bucket, None, &Part::Whole).await?;
        let tenants: BTreeSet<TenantId> = all.into_iter().map(|(tenant, _)| tenant).collect();
        for tenant in tenants {
            lease.ensure_held()?;
            let host = ContainerHost {
                docker: docker.clone(),
                tenant: tenant.clone(),
            };
            let how = CleanupContainers {
                limits: self.tenants().policy(&tenant).await?.containers.limits(),
                orphans: false,
                dry_run: false,
            };
            match Box::pin(self.containers().cleanup(&host, &how)).await {
                Ok(cleaned) => {
                    report.count("snapshots_removed", cleaned.snapshots.len() as u64);
                    report.count("images_removed", cleaned.images.len() as u64);
                    report.count("containers_removed", cleaned.containers.len() as u64);
                    report.count("bytes_removed", cleaned.bytes_removed);
                    report.problems.extend(cleaned.left);
                }
                Err(error) if ends_all(&error) => return Err(error),
                Err(error) => report
                    .problems
                    .push(format!("{tenant}: {}", error_chain(&error))),
            }
        }
        Ok(report)
    }

    /// Removes what was deleted and what tenants' policies let go of profiles, and the chunks that nothing needs of every pool.
    async fn gc_job(&self, lease: &JobLease) -> Result<JobReport, Error> {
        let mut report = JobReport::default();
        let lineages = profiles::lineages(&*self.bucket, None).await?;
        let tenants: BTreeSet<TenantId> = lineages.into_iter().map(|one| one.tenant).collect();
        for tenant in tenants {
            lease.ensure_held()?;
            let command = ProfileGc {
                subject: None,
                tenant: Some(tenant.clone()),
                keep_newest: None,
                keep_periods: BTreeMap::new(),
                keep_rollback_days: None,
                on_doubt: OnDoubt::RefuseAges,
                dry_run: false,
            };
            match Box::pin(self.profiles().gc(&command)).await {
                Ok(collected) => {
                    report.count("objects_removed", collected.objects_removed);
                    report.count("bytes_removed", collected.bytes_removed);
                    let failed = collected.lineages.into_iter();
                    let failed =
                        failed.filter_map(|one| Some(format!("{}: {}", one.subject, one.failure?)));
                    report.problems.extend(failed);
                }
                Err(error) if ends_all(&error) => return Err(error),
                Err(error) => report
                    .problems
                    .push(format!("{tenant}: {}", error_chain(&error))),
            }
        }
        for pool in self.pools_to_sweep().await? {
            lease.ensure_held()?;
            // Which snapshots of a directory go is decided where the directory is; here only what none of them needs.
            let swept = self.rooted(pool.clone());
            let swept = swept.dirs().gc(RepoGc::new(RetentionPolicy::KeepAll));
            match Box::pin(swept).await {
                Ok(collected) => {
                    report.count("pools", 1);
                    report.count("chunks_removed", collected.chunks_removed);
                    report.count("bytes_removed", collected.bytes_removed);
                }
                Err(error) if ends_all(&error) => return Err(error),
                Err(error) => {
                    let why = error_chain(&error);
                    report.problems.push(format!("{}: {why}", pool.name()));
                }
            }
        }
        Ok(report)
    }

    /// Every pool of the store that has a subject; of a directory's own store, that itself.
    async fn pools_to_sweep(&self) -> Result<Vec<ChunkRoot>, Error> {
        let mut pools = Vec::new();
        for root in roots::all(&self.bucket).await? {
            let pool = match root.pool_id() {
                stasis_model::format::key::PoolId::Tenant(tenant) => ChunkRoot::pool(&tenant),
                stasis_model::format::key::PoolId::State => ChunkRoot::state(),
            };
            // A session that was registered and never saved has no pool yet.
            let has_settings = async |pool: &ChunkRoot| self.bucket.exists(&pool.repo_json()).await;
            if !pools.contains(&pool) && has_settings(&pool).await? {
                pools.push(pool);
            }
        }
        Ok(pools)
    }
}
