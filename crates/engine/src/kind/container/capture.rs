//! Saves a container with its volumes.
//!
//! 1. *first pass*, while it runs: most of the volumes is then in the store   2. *hold* it still   3. *second pass* of what changed
//!    since, and beside it the commit of its own files   4. *release* it   5. *describe* and publish: from here on it is a snapshot
//!
//! *Always true:* an error or a crash before 5 leaves nothing that is listed. An image that it leaves has our labels, and cleanup removes
//! it; what is left of a first pass goes with the next snapshot.

use super::create::{ContainerSaved, CreateSnapshot};
use super::find::subject_name;
use super::image::{MadeFor, commit, discard_image, image_name, original_image, original_image_id};
use super::still::{Released, Still};
use super::volumes::{PlannedVolumes, planned};
use super::{ContainerHost, SeenEngine, failure};
use crate::bridge;
use crate::error::{Error, ErrorKind, error_chain};
use crate::handle::Containers;
use crate::open::Engine;
use crate::save::{GatheredTree, RepoSave};
use crate::subjects::SubjectKind;
use stasis_disk::fs::atomic_write::{atomic_write, make_directory, make_private_directory};
use stasis_disk::tree::staging_view::StagingView;
use stasis_model::container::capture::{never_captured, unmet};
use stasis_model::container::status::ContainerStatus;
use stasis_model::failure::Failure;
use stasis_model::format::manifest::{
    ContainerManifest, ENVIRONMENT_FILE, Environment, NewContainerManifest, SaveReason,
};
use stasis_model::id::{ContainerSubject, OpId, SnapshotId, TenantId};
use stasis_model::protocol::operation::IndexOperation;
use stasis_quiesce::docker::ContainerFacts;
use stasis_store::layout::ChunkRoot;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// How often is tried again when a pause did not hold, or what was read changed.
const ATTEMPTS: usize = 3;

/// A container that is ours alone, and shall be saved.
#[derive(Clone, Copy, Debug)]
pub(super) struct CaptureRequest<'c> {
    pub(super) host: &'c ContainerHost,
    pub(super) seen: &'c SeenEngine,
    pub(super) facts: &'c ContainerFacts,
    pub(super) how: &'c CreateSnapshot,
    pub(super) reason: SaveReason,
    /// What it did before it was stopped to be saved.
    pub(super) was: &'c ContainerStatus,
    /// What was saved of it while it ran.
    pub(super) first: Option<&'c SnapshotId>,
}

/// A container that is about to be saved.
pub(super) struct Capture<'c> {
    pub(super) engine: Engine,
    pub(super) seen: &'c SeenEngine,
    pub(super) facts: &'c ContainerFacts,
    pub(super) how: &'c CreateSnapshot,
    pub(super) tenant: TenantId,
    pub(super) subject: ContainerSubject,
    pub(super) pool: OpId,
    pub(super) by: String,
    pub(super) reason: SaveReason,
    pub(super) was: &'c ContainerStatus,
    pub(super) planned: PlannedVolumes,
}

/// Everything of a container, read while it stood still.
pub(super) struct StillTree {
    pub(super) tree: GatheredTree,
    pub(super) image: String,
    pub(super) released: Released,
}

impl Containers<'_> {
    /// Saves most of a container that runs, so that little is left to be saved when it does not; names what must be known then.
    pub(super) async fn warm(self, of: CaptureRequest<'_>) -> Result<SnapshotId, Error> {
        let capture = self.begin(&of).await?;
        let (_, environment) = ContainerManifest::new(capture.new_manifest());
        let view = capture.view(&environment).await?;
        let command = capture.save_of(&view, self).await?;
        Ok(capture.first_pass(command).await?.0)
    }

    /// Saves a container that is ours alone.
    pub(super) async fn capture(self, of: CaptureRequest<'_>) -> Result<ContainerSaved, Error> {
        let saved = Box::pin(self.capture_unless_same(of)).await?;
        saved.ok_or_else(not_saved)
    }

    /// The same; nothing where nobody asked for it and the last snapshot has it all.
    pub(super) async fn capture_unless_same(
        self,
        of: CaptureRequest<'_>,
    ) -> Result<Option<ContainerSaved>, Error> {
        let started = self.clock.uptime();
        let capture = self.begin(&of).await?;
        if of.first.is_none() {
            capture.forget_first_passes(None).await;
        }
        let mut last = None;
        for attempt in 0..ATTEMPTS {
            // No id is used twice.
            let id = of.how.snapshot_id.clone().filter(|_| attempt == 0);
            match Box::pin(capture.attempt(self, id)).await {
                Ok(saved) => {
                    if of.first.is_some() {
                        capture.forget_first_passes(of.first).await;
                    }
                    return Ok(Some(ContainerSaved {
                        elapsed_ms: self.engine.dirs().elapsed_ms(started),
                        ..saved
                    }));
                }
                Err(Attempt::Unchanged) => return Ok(None),
                Err(Attempt::Again(error)) => last = Some(error),
                Err(Attempt::Over(error)) => return Err(error),
            }
            tracing::info!("once more");
        }
        Err(last.unwrap_or_else(not_saved))
    }

    /// Decides what is saved, and makes a place for it.
    async fn begin<'c>(self, of: &CaptureRequest<'c>) -> Result<Capture<'c>, Error> {
        let CaptureRequest {
            host,
            seen,
            facts,
            how,
            reason,
            was,
            ..
        } = *of;
        self.engine.thaw_left().await;
        let planned = planned(seen, facts, &how.wishes).await?;
        ensure_valid(facts, how, &planned)?;
        let subject = ContainerSubject::new(&facts.name, &seen.digits);
        let engine = self.of(&host.tenant, &subject);
        engine.dirs().ensure_pool().await?;
        let pool = engine.dirs().settings(&engine.dirs().root()).await?.op_id;
        Ok(Capture {
            engine,
            seen,
            facts,
            how,
            tenant: host.tenant.clone(),
            subject,
            pool,
            by: self.by().await?,
            reason,
            was,
            planned,
        })
    }
}

/// Why an attempt did not lead to a snapshot.
pub(super) enum Attempt {
    /// Another one may.
    Again(Error),
    /// No other one will.
    Over(Error),
    /// None is needed: the last snapshot has it all.
    Unchanged,
}

impl From<Error> for Attempt {
    fn from(error: Error) -> Self {
        match error {
            // A sweep took chunks that it was about to use.
            error @ Error::SaveGaveUp(_) => Self::Again(error),
            error => Self::Over(error),
        }
    }
}

impl From<Failure> for Attempt {
    fn from(failure: Failure) -> Self {
        Self::Over(failure.into())
    }
}

pub(super) fn not_saved() -> Error {
    failure(ErrorKind::Failed, "it was not saved").into()
}

fn not_read() -> Error {
    failure(ErrorKind::Failed, "its volumes were not read").into()
}

/// Refuses what cannot be saved as somebody wants it.
fn ensure_valid(
    facts: &ContainerFacts,
    how: &CreateSnapshot,
    planned: &PlannedVolumes,
) -> Result<(), Error> {
    let name = &facts.name;
    let refused = |said: String, hint: String| {
        let failure = failure(ErrorKind::Invalid, said);
        Err(failure.with_hint(hint).into())
    };
    if let Some(state) = facts.status.refusal() {
        let said = format!("the container `{name}` is {state}, and cannot be saved so");
        let hint = "one that is created, running, paused or exited can be";
        return refused(said, hint.to_owned());
    }
    if let Some(place) = unmet(&how.wishes, &facts.mounts) {
        let said = format!("nothing of the host is bound at `{place}` in `{name}`");
        return refused(
            said,
            format!("`stasis container validate {name}` shows what is mounted"),
        );
    }
    if let Some(left) = planned.left.first().filter(|_| how.strict) {
        let said = format!("`{}` of `{name}` would not be saved (--strict)", left.what);
        let hint = match &left.option {
            Some(option) => format!("{option} saves it"),
            None => "leave out --strict to save the rest".to_owned(),
        };
        return refused(said, hint);
    }
    Ok(())
}

impl Capture<'_> {
    async fn attempt(
        &self,
        of: Containers<'_>,
        id: Option<SnapshotId>,
    ) -> Result<ContainerSaved, Attempt> {
        let id =
            id.unwrap_or_else(|| ChunkRoot::new_id(self.engine.lineages.now(), &*self.engine.rng));
        let (mut manifest, environment) = ContainerManifest::new(self.new_manifest());
        let view = self.view(&environment).await?;
        let mut command = self.save_of(&view, of).await?;
        let first = if self.facts.status == ContainerStatus::Running {
            Some(self.first_pass(command.clone()).await?)
        } else {
            None
        };
        let stored = first.as_ref().map_or(0, |(_, stored)| *stored);
        let first = first.map(|(first, _)| first);
        command.snapshot_id = Some(id.clone());
        command.is_still = true;
        let gathered = self.gather_still(&id, command, &view).await;
        let ended = match gathered {
            Ok(gathered) => self.publish(of, &id, &mut manifest, gathered).await,
            Err(error) => Err(error),
        };
        // What may have been published needs its image.
        let is_gone = |error: &Attempt| match error {
            Attempt::Again(error) | Attempt::Over(error) => error.kind() != ErrorKind::Unknown,
            Attempt::Unchanged => true,
        };
        if ended.as_ref().is_err_and(is_gone) {
            discard_image(&self.seen.docker, &image_name(&id)).await;
            if self.how.portable {
                of.discard_layers(&self.tenant, &id).await;
            }
        }
        if first.is_some() {
            self.forget_first_passes(first.as_ref()).await;
        }
        ended.map(|saved| ContainerSaved {
            bytes_stored: saved.bytes_stored + stored,
            ..saved
        })
    }

    pub(super) fn made_for(&self, id: &SnapshotId) -> MadeFor {
        MadeFor {
            snapshot: id.clone(),
            pool: self.pool,
            subject: self.subject.clone(),
            by: self.by.clone(),
            at: self.engine.clock.now(),
        }
    }

    fn new_manifest(&self) -> NewContainerManifest {
        let facts = self.facts;
        let volumes = self.planned.volumes.iter();
        NewContainerManifest {
            engine: self.seen.digits.clone(),
            container_id: facts.id.clone(),
            container_name: facts.name.clone(),
            container_status: self.was.clone(),
            original_image: original_image(facts),
            original_image_id: original_image_id(facts),
            config: facts.config.clone(),
            host_config: facts.host_config.clone(),
            networks: facts.networks.clone(),
            mounts: facts.mounts.clone(),
            volumes: volumes.map(|one| one.manifest.clone()).collect(),
            not_captured: [&self.planned.left[..], &never_captured()].concat(),
        }
    }

    /// A directory with what is no volume, and places for volumes.
    async fn view(&self, environment: &Environment) -> Result<StagingView, Error> {
        let view = self.engine.scratch().await?;
        let text = serde_json::to_vec_pretty(environment).unwrap_or_default();
        let root = view.root().to_owned();
        let places = self.planned.volumes.iter();
        let places: Vec<PathBuf> = places.map(|one| root.join(&one.manifest.path)).collect();
        bridge::blocking(move || {
            atomic_write(&root.join(ENVIRONMENT_FILE), &text)?;
            places.iter().try_for_each(|place| make_directory(place))
        })
        .await?;
        Ok(view)
    }

    async fn save_of(&self, view: &StagingView, of: Containers<'_>) -> Result<RepoSave, Error> {
        let remembered = of.own_place().await?.join(self.subject.as_str());
        let made = remembered.clone();
        bridge::blocking(move || make_private_directory(&made)).await?;
        Ok(RepoSave {
            reason: self.reason,
            labels: self.how.labels.clone(),
            grafts: self.planned.grafts()?,
            volumes: self.planned.facts()?,
            remembered_as: Some(remembered),
            // Databases of containers come and go with what they are used for.
            force: true,
            allow_shrink: true,
            cancel: self.how.cancel.clone(),
            progress: self.how.progress.clone(),
            ..RepoSave::new(view.root(), subject_name(&self.subject))
        })
    }

    /// Saves most of the volumes while the container runs. What cannot be read now may be in a moment.
    async fn first_pass(&self, command: RepoSave) -> Result<(SnapshotId, u64), Error> {
        let saved = self.engine.dirs().save(RepoSave {
            reason: SaveReason::FirstPass,
            activates: false,
            labels: BTreeMap::new(),
            ..command
        });
        let saved = saved.await?;
        Ok((saved.snapshot_id, saved.bytes_stored))
    }

    /// Reads what changed, and commits, while nothing moves.
    async fn gather_still(
        &self,
        id: &SnapshotId,
        command: RepoSave,
        view: &StagingView,
    ) -> Result<StillTree, Attempt> {
        let docker = &self.seen.docker;
        let longest = self.how.max_freeze;
        let still = Still::hold(&self.engine, docker, self.facts, longest).await;
        let still = still.map_err(|error| match error.kind() {
            ErrorKind::Limit => Attempt::Again(error),
            _ => Attempt::Over(error),
        })?;
        let (tree, image) = self.read(id, command, view).await;
        let released = still.release(docker, self.facts).await;
        // Why there is no image is said first: without one nothing was read.
        if let Ok(released) = &released {
            let counted = &self.engine.counted;
            counted.add_frozen(SubjectKind::Container, released.paused_for);
        }
        let (image, tree, released) = (image?, tree?, released?);
        if !released.held {
            tree.give_up().await;
            return Err(Attempt::Again(self.moved()));
        }
        if let Some(missing) = tree.missing() {
            tree.give_up().await;
            let said = format!(
                "not everything of the container `{}` could be saved: {missing}",
                self.facts.name
            );
            return Err(Attempt::Again(failure(ErrorKind::Failed, said).into()));
        }
        Ok(StillTree {
            tree,
            image,
            released,
        })
    }

    /// Reads the volumes and makes the image: beside each other, or through that image.
    async fn read(
        &self,
        id: &SnapshotId,
        mut command: RepoSave,
        view: &StagingView,
    ) -> (Result<GatheredTree, Error>, Result<String, Error>) {
        let (docker, dirs) = (&self.seen.docker, self.engine.dirs());
        let made_for = self.made_for(id);
        let committing = Box::pin(commit(docker, self.facts, &made_for));
        if self.planned.are_all_here() {
            return tokio::join!(Box::pin(dirs.save_gather(command)), committing);
        }
        let image = match committing.await {
            Ok(image) => image,
            Err(error) => return (Err(not_read()), Err(error)),
        };
        let cancel = &self.how.cancel;
        let received = self.planned.receive(docker, &made_for, view.root(), cancel);
        let tree = match received.await {
            Ok(stated) => {
                command.stated = Some(stated);
                Box::pin(dirs.save_gather(command)).await
            }
            Err(error) => Err(error),
        };
        (tree, Ok(image))
    }

    fn moved(&self) -> Error {
        let name = &self.facts.name;
        let longest = self.how.max_freeze.as_millis();
        let said = match self.facts.status {
            ContainerStatus::Running => format!(
                "the container `{name}` may stand still for {longest} ms, in which what had changed could not be saved"
            ),
            _ => {
                format!("the container `{name}` was started, ended or unpaused while it was saved")
            }
        };
        let hint = match self.facts.status {
            ContainerStatus::Running => "allow more with --max-freeze",
            _ => "run it again when nobody else works on it",
        };
        failure(ErrorKind::Limit, said).with_hint(hint).into()
    }

    /// Lets go of first passes: of this attempt, or of all that others left who died.
    async fn forget_first_passes(&self, only: Option<&SnapshotId>) {
        let dirs = self.engine.dirs();
        let root = dirs.root();
        let forgotten = async {
            let Some(index) = root.index().await? else {
                return Ok(());
            };
            let all = index.value.snapshots.iter();
            let left = all.filter(|one| one.reason == SaveReason::FirstPass);
            let left = left.filter(|one| only.is_none_or(|only| *only == one.id));
            let left: Vec<SnapshotId> = left.map(|one| one.id.clone()).collect();
            if left.is_empty() {
                return Ok(());
            }
            dirs.forget_of(&root, &left, IndexOperation::Forget).await
        };
        let forgotten: Result<(), Error> = forgotten.await;
        if let Err(error) = forgotten {
            let (error, kind) = (error_chain(&error), error.kind());
            tracing::info!(error, ?kind, "a first pass is left to the next snapshot");
        }
    }
}
