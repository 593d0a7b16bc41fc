//! The proof that goes round: takes a few snapshots at a time and really restores them.
//!
//! 1. which subjects there are, by listings alone   2. the one whose last attempt is the oldest, one that was never tried before all others
//! 3. of its snapshots the one whose last attempt is the oldest, the active one before the others   4. restore it to a scratch place, check it
//! 5. write down when, beside the store's other documents
//!
//! An attempt counts whether or not the snapshot came back, so that one that cannot does not keep the others from their turn. What the
//! store or this host could not do at the moment, and a snapshot that went meanwhile, is no attempt.

use super::JobHost;
use super::turn::JobReport;
use super::work::ends_all;
use crate::address::SubjectAddress;
use crate::catalog::SnapshotSelector;
use crate::error::{Error, ErrorKind, error_chain};
use crate::job_lease::JobLease;
use crate::kind::profile::ProfileVerify;
use crate::open::Engine;
use stasis_disk::progress::Progress;
use stasis_model::failure::Failure;
use stasis_model::format::event::{EventKind, Severity};
use stasis_model::format::proof::{ProofDocument, SnapshotProof};
use stasis_model::id::{Label, OpId, SnapshotId, TenantId};
use stasis_model::invalid::Invalid;
use stasis_model::snapshot_ref::SnapshotRef;
use stasis_model::time::Timestamp;
use stasis_store::documents::{profiles, proofs, roots};
use stasis_store::layout::{ChunkRoot, ProofSubject};
use std::sync::Arc;

/// How many snapshots are restored in one run.
const AT_ONCE: usize = 2;
/// How many subjects a run looks at to find them.
const LOOKED_AT: usize = 8;

/// What became of an attempt.
enum Attempt {
    CameBack,
    /// It does not: a matter for an operator.
    Broken(String),
    /// Nothing was found out about it, and it has had its turn.
    Passed(String),
    /// There is nothing to restore.
    Nothing,
}

impl Engine {
    /// Restores a few snapshots whose last proof is the oldest.
    pub(super) async fn proof_job(
        &self,
        host: &JobHost,
        lease: &JobLease,
    ) -> Result<JobReport, Error> {
        let mut report = JobReport::default();
        let mut tried = 0;
        for subject in self.subjects_to_prove().await?.into_iter().take(LOOKED_AT) {
            if tried == AT_ONCE {
                break;
            }
            lease.ensure_held()?;
            match self.prove_one(&subject, host).await {
                Ok(Attempt::CameBack) => {
                    tried += 1;
                    report.count("restored", 1);
                }
                Ok(Attempt::Broken(why)) => {
                    tried += 1;
                    report.count("failed", 1);
                    report.problems.push(why);
                }
                Ok(Attempt::Passed(why)) => {
                    report.count("passed_over", 1);
                    report.problems.push(why);
                }
                Ok(Attempt::Nothing) => {}
                Err(error) if ends_all(&error) => return Err(error),
                Err(error) => {
                    let said = format!("{}: {}", name_of(&subject), error_chain(&error));
                    report.problems.push(said);
                }
            }
        }
        Ok(report)
    }

    /// Every subject whose snapshots can be restored, the one whose last attempt is the oldest first; in no order those that were never tried.
    async fn subjects_to_prove(&self) -> Result<Vec<ProofSubject>, Error> {
        let lineages = profiles::lineages(&*self.bucket, None).await?;
        let mut all: Vec<ProofSubject> = lineages.into_iter().map(ProofSubject::Profile).collect();
        // An image is proven with the snapshot of the container that it is of.
        let chunked = roots::all(&self.bucket).await?.into_iter();
        let chunked = chunked.filter(|root| root.as_image().is_none());
        all.extend(chunked.map(ProofSubject::Chunked));
        let known = proofs::all(&*self.bucket).await?;
        let (tried, mut never): (Vec<_>, Vec<_>) = all
            .into_iter()
            .partition(|subject| known.contains(&proofs::key(subject)));
        for at in (1..never.len()).rev() {
            let bound = at as u64 + 1;
            let other = usize::try_from(self.rng.below(bound)).unwrap_or(at);
            never.swap(at, other);
        }
        // As long as there are enough of those, nobody asks when the others were tried.
        if never.len() >= LOOKED_AT {
            return Ok(never);
        }
        let mut dated = Vec::with_capacity(tried.len());
        for subject in tried {
            let proofs = proofs::of(&*self.bucket, &subject).await;
            // What cannot be read is written anew by nobody; others have their turn first.
            let at = proofs.ok().flatten().and_then(|one| one.last_tried());
            dated.push((at.unwrap_or(self.lineages.now()), subject));
        }
        dated.sort();
        never.extend(dated.into_iter().map(|(_, subject)| subject));
        Ok(never)
    }

    /// Restores the snapshot of a subject whose turn it is.
    async fn prove_one(&self, subject: &ProofSubject, host: &JobHost) -> Result<Attempt, Error> {
        let all = self.snapshots_to_prove(subject).await?;
        let known = proofs::of(&*self.bucket, subject).await?;
        let known = known.unwrap_or_else(|| ProofDocument::empty(OpId::default()));
        let Some(snapshot) = known.next(&all) else {
            return Ok(Attempt::Nothing);
        };
        let now = self.lineages.now();
        let restored = Box::pin(self.restore_to_prove(subject, snapshot, host)).await;
        let name = format!("{} {snapshot}", name_of(subject));
        let attempt = match restored {
            Ok(damaged) if damaged.is_empty() => Attempt::CameBack,
            Ok(damaged) => {
                let damaged = damaged.join(", ");
                Attempt::Broken(format!("{name}: databases are damaged: {damaged}"))
            }
            Err(error) => match error.kind() {
                ErrorKind::Corrupt | ErrorKind::Bug => {
                    Attempt::Broken(format!("{name}: {}", error_chain(&error)))
                }
                // A key that this server has not, a snapshot that is too large for it.
                ErrorKind::Denied | ErrorKind::Invalid | ErrorKind::Limit => {
                    Attempt::Passed(format!("{name}: {}", error_chain(&error)))
                }
                // Gone since it was listed.
                ErrorKind::NotFound => return Ok(Attempt::Nothing),
                _ => return Err(error),
            },
        };
        self.write_proof(subject, (snapshot, &all), &attempt, (now, host))
            .await?;
        Ok(attempt)
    }

    async fn write_proof(
        &self,
        subject: &ProofSubject,
        (snapshot, all): (&str, &[String]),
        attempt: &Attempt,
        (now, host): (Timestamp, &JobHost),
    ) -> Result<(), Error> {
        let (restored_at_ms, problem) = match attempt {
            Attempt::CameBack => (Some(now), None),
            Attempt::Broken(why) | Attempt::Passed(why) => (None, Some(why.clone())),
            Attempt::Nothing => return Ok(()),
        };
        let proof = SnapshotProof {
            tried_at_ms: now,
            restored_at_ms,
            problem,
            broken: matches!(attempt, Attempt::Broken(_)),
            host: host.sessions.name.clone(),
        };
        if let Attempt::Broken(why) = attempt {
            let actor: Label = "proof".parse().expect("a constant that is a label");
            let event = self
                .events()
                .event(EventKind::ProofFailed, Severity::Warning, &actor)
                .with("snapshot", snapshot)
                .with("detail", why.as_str());
            let event = match subject {
                ProofSubject::Profile(lineage) => event.about(lineage.clone(), self.rng.op_id()),
                ProofSubject::Chunked(root) => event.with("subject", self.typed(root)),
            };
            // The message of the job says it as well.
            let _ = self.events().record(&tenant_of(subject), event).await;
        }
        let (proof, op_id) = ((snapshot, &proof), self.rng.op_id());
        proofs::record(&*self.bucket, subject, proof, all, op_id).await?;
        Ok(())
    }

    /// What a subject is called wherever one is named; one that is none, by where it lies.
    fn typed(&self, root: &ChunkRoot) -> String {
        let address = SubjectAddress::of_root(&self.location, root);
        address.map_or_else(|| root.name().to_owned(), |address| address.subject)
    }

    /// Snapshots of a subject that can be restored, the active one first, then the newest.
    pub(crate) async fn snapshots_to_prove(
        &self,
        subject: &ProofSubject,
    ) -> Result<Vec<String>, Error> {
        match subject {
            ProofSubject::Profile(lineage) => {
                let all = self.profiles().restorable(lineage).await?;
                Ok(all.iter().map(ToString::to_string).collect())
            }
            ProofSubject::Chunked(root) => {
                let of = self.rooted(root.clone());
                let index = of.dirs().index_to_look().await?;
                if index.deleted_at_ms.is_some() {
                    return Ok(Vec::new());
                }
                let mut all: Vec<_> = index.finished().rev().map(|one| one.id.clone()).collect();
                all.sort_by_key(|id| !index.is_active(id));
                Ok(all.iter().map(ToString::to_string).collect())
            }
        }
    }

    /// Restores one to a scratch place; says which of its databases are damaged.
    async fn restore_to_prove(
        &self,
        subject: &ProofSubject,
        snapshot: &str,
        host: &JobHost,
    ) -> Result<Vec<String>, Error> {
        let unnamed = |error: Invalid| Error::from(Failure::of(ErrorKind::Bug, error));
        match subject {
            ProofSubject::Profile(lineage) => {
                let verify = ProfileVerify {
                    subject: lineage.clone().into(),
                    sha: Some(snapshot.parse().map_err(unnamed)?),
                    browser: Vec::new(),
                    spawn: host.check.clone(),
                    progress: Arc::default(),
                    cancel: Arc::default(),
                };
                let _ = self.profiles().verify(verify).await?;
                Ok(Vec::new())
            }
            ProofSubject::Chunked(root) => {
                let mut damaged = self.restore_tree(root, snapshot, host).await?;
                if let Some((tenant, _)) = root.as_container() {
                    let id: SnapshotId = snapshot.parse().map_err(unnamed)?;
                    let image = Box::pin(self.restore_image(root, &tenant, &id, host));
                    damaged.extend(image.await?);
                }
                Ok(damaged)
            }
        }
    }

    /// Restores one that is a tree of chunks to a scratch place; of a container that is what its volumes hold.
    async fn restore_tree(
        &self,
        root: &ChunkRoot,
        snapshot: &str,
        host: &JobHost,
    ) -> Result<Vec<String>, Error> {
        let wanted = snapshot.parse::<SnapshotRef>();
        let wanted = wanted.map_err(|error| Failure::of(ErrorKind::Bug, error))?;
        let wanted = SnapshotSelector::new(wanted);
        let of = self.rooted(root.clone());
        let progress = Arc::new(Progress::default());
        let proved = of.dirs().prove(wanted, host.check.clone(), progress);
        Ok(proved.await?.damaged)
    }

    /// The same of the layers of a container's image, where the store has them: then any engine can run the snapshot. That one does is
    /// proven by nobody.
    async fn restore_image(
        &self,
        container: &ChunkRoot,
        tenant: &TenantId,
        id: &SnapshotId,
        host: &JobHost,
    ) -> Result<Vec<String>, Error> {
        let root = ChunkRoot::image(tenant, id);
        let of = self.rooted(root.clone());
        let index = of.dirs().index_to_look().await?;
        match index.latest().map(|layers| layers.id.to_string()) {
            Some(layers) => self.restore_tree(&root, &layers, host).await,
            None => self.ensure_needs_no_layers(container, id).await,
        }
    }

    /// Refuses a snapshot of a container that says that the store has its image.
    async fn ensure_needs_no_layers(
        &self,
        container: &ChunkRoot,
        id: &SnapshotId,
    ) -> Result<Vec<String>, Error> {
        let of = self.rooted(container.clone());
        let (dirs, root) = (of.dirs(), of.dirs().root());
        let index = dirs.index_to_look().await?;
        let opened = dirs.open_snapshot(&root, &index, id).await?;
        let container = opened.manifest.container.as_ref();
        if container.is_some_and(|container| container.image.is_portable) {
            let said = format!("the layers of the image of `{id}` are not in the store");
            return Err(Failure::of(ErrorKind::Corrupt, said).into());
        }
        Ok(Vec::new())
    }
}

fn name_of(subject: &ProofSubject) -> String {
    match subject {
        ProofSubject::Profile(lineage) => lineage.to_string(),
        ProofSubject::Chunked(root) => root.name().trim_end_matches('/').to_owned(),
    }
}

fn tenant_of(subject: &ProofSubject) -> TenantId {
    match subject {
        ProofSubject::Profile(lineage) => lineage.tenant.clone(),
        ProofSubject::Chunked(root) => match root.pool_id() {
            stasis_model::format::key::PoolId::Tenant(tenant) => tenant,
            stasis_model::format::key::PoolId::State => TenantId::default(),
        },
    }
}
