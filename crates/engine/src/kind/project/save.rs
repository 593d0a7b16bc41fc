//! Saves a project: ten steps, each visible here, in the trace and in the result.
//!
//! *Always true:* a step that fails ends the save: `current/` is untouched, the last good snapshot is what it was, nothing
//! leads to what was stored, the directory of the capture is gone, and programs that were paused run again.

use super::capture::ProjectCapture;
use super::{Declared, FILE, Project, or_cancelled, or_dropped};
use crate::bridge;
use crate::error::{Error, ProjectError, error_chain};
use crate::host_roots::HostPlace;
use crate::result::{Moment, ServiceHookRun, reason_word};
use crate::save::{RepoSave, RepoSaved};
use crate::subjects::SubjectKind;
use crate::warning::Warning;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::progress::Progress;
use stasis_model::format::manifest::{Consistency, SaveReason, VolumeManifest};
use stasis_model::id::{Label, ProjectId, VolumeName};
use stasis_model::time::Clock;
use stasis_quiesce::pause::{PauseSettings, Paused};
use stasis_quiesce::service::Service;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::DirEntry;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// How often a capture is stored anew when a sweep takes what it was about to use.
const ATTEMPTS: usize = 5;

/// The longest time for which programs stand still while their volumes are cloned.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The label that a message of the user's is.
pub const MESSAGE_LABEL: &str = "message";

/// Why and how a project is saved.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
pub struct ProjectSave {
    /// What made somebody save.
    pub reason: SaveReason,
    /// Words of the user's.
    pub labels: BTreeMap<String, Label>,
    /// Whether a snapshot is made although nothing changed.
    pub allow_empty: bool,
    /// Whether it becomes `latest` although databases are gone.
    pub force: bool,
    /// Whether it may have become much smaller than it was.
    pub allow_shrink: bool,
    /// Gitignore-style patterns of what is left out, besides what earlier saves left out.
    pub excludes: Vec<String>,
    /// Whether the patterns leave out, for this once, what belongs to the state.
    pub is_part: bool,
    /// Whether what earlier saves left out is left out no longer.
    pub forget_excludes: bool,
    /// The open place through which a plain directory is read, instead of by its path.
    pub through: Option<HostPlace>,
    /// Set by anybody at any time to give up.
    pub cancel: Arc<AtomicBool>,
    /// How far it has come.
    pub progress: Arc<Progress>,
}

impl ProjectSave {
    /// A save for a reason, with nothing special about it.
    pub fn new(reason: SaveReason) -> Self {
        Self {
            reason,
            labels: BTreeMap::new(),
            allow_empty: false,
            force: false,
            allow_shrink: false,
            excludes: Vec::new(),
            is_part: false,
            forget_excludes: false,
            through: None,
            cancel: Arc::default(),
            progress: Arc::default(),
        }
    }
}

/// A project that was saved.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
#[must_use = "what was left out is said only here"]
pub struct ProjectSaved {
    /// Which project.
    pub project: ProjectId,
    /// Why.
    pub reason: SaveReason,
    /// The snapshot.
    #[serde(flatten)]
    pub saved: RepoSaved,
    /// The labels that were put on it now; on the one that is there, if nothing changed.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, Label>,
    /// Its volumes, by name.
    pub volumes: BTreeMap<String, VolumeManifest>,
    /// What was run before and after.
    pub hooks: Vec<ServiceHookRun>,
    /// The steps that were taken, in order.
    pub steps: Vec<StepTaken>,
    /// What went less well than it should have.
    pub warnings: Vec<Warning>,
}

impl ProjectSaved {
    /// That the subject was a copy until now: whoever saved on the way to something else passes this on.
    pub(super) fn left_copy(&self) -> impl Iterator<Item = &Warning> {
        let all = self.warnings.iter();
        all.filter(|one| matches!(one, Warning::LeftCopy { .. }))
    }
}

/// One of the ten steps of a save.
///
/// The order is the contract's, but for the last two: programs run again before the lock is released, so that a crash
/// between the two leaves nobody paused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProjectStep {
    /// Look up the project, and confirm that its state is there.
    Resolve,
    /// Keep others from starting, stopping, saving and restoring it.
    Lock,
    /// Run what its programs want to be run before.
    PreSaveHooks,
    /// See that all of that ended well.
    Quiesce,
    /// Choose the moment: copy databases, ask servers for dumps, pause and clone the rest.
    Checkpoint,
    /// Store what is new.
    Copy,
    /// Say what the snapshot is.
    Metadata,
    /// Make it exist.
    Index,
    /// Let everybody go on.
    Resume,
    /// Let others at it.
    Release,
}

/// A step that was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct StepTaken {
    /// Which.
    pub step: ProjectStep,
    /// How long it took.
    pub elapsed_ms: u64,
}

/// The steps as they are taken.
#[derive(Debug)]
struct Steps {
    clock: Arc<dyn Clock>,
    taken: Vec<StepTaken>,
    now: Option<(ProjectStep, Duration)>,
}

impl Steps {
    fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            taken: Vec::new(),
            now: None,
        }
    }

    /// Ends the step before, and begins this one.
    fn begin(&mut self, step: ProjectStep) {
        self.end();
        // A step that is taken again is told once, with what it took in the end.
        self.taken.retain(|taken| taken.step != step);
        tracing::info!(?step, "step");
        self.now = Some((step, self.clock.uptime()));
    }

    fn end(&mut self) {
        if let Some((step, began)) = self.now.take() {
            let elapsed = self.clock.uptime().saturating_sub(began);
            let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
            self.taken.push(StepTaken { step, elapsed_ms });
        }
    }

    /// All that were taken.
    fn finish(mut self) -> Vec<StepTaken> {
        self.end();
        self.taken
    }
}

impl Project {
    /// Saves the project.
    #[tracing::instrument(skip_all, err(level = "info"), fields(project = %self.home.id))]
    pub async fn save(&self, command: ProjectSave) -> Result<ProjectSaved, Error> {
        let lock = self.exclusive("save").await?;
        self.start_what_was_left().await?;
        let warning = self.first_save_warning().await;
        let mut saved = self.save_locked(command).await?;
        saved.warnings.extend(warning);
        drop(lock);
        Ok(saved)
    }

    /// Saves the project, which is ours alone.
    pub(super) async fn save_locked(&self, command: ProjectSave) -> Result<ProjectSaved, Error> {
        self.save_as(self.home.declared.as_ref(), command).await
    }

    /// The same, as another declaration than the project's own has it: for saves that leave volumes out.
    pub(super) async fn save_as(
        &self,
        declared: Option<&Declared>,
        command: ProjectSave,
    ) -> Result<ProjectSaved, Error> {
        let mut steps = Steps::new(self.engine.clock.clone());
        steps.begin(ProjectStep::Resolve);
        self.ensure_root().await?;
        steps.begin(ProjectStep::Lock);
        match declared {
            None => self.save_plain(command, steps).await,
            Some(declared) => Box::pin(self.save_declared(declared, command, steps)).await,
        }
    }

    /// A directory of plain files is read where it is.
    async fn save_plain(
        &self,
        command: ProjectSave,
        mut steps: Steps,
    ) -> Result<ProjectSaved, Error> {
        let dir = &self.home.dir;
        let through = command.through.as_ref().map(HostPlace::path);
        let save = RepoSave {
            excludes: command.excludes.clone(),
            remembered_as: through.as_ref().map(|_| dir.clone()),
            ..self.repo_save_of(&command, through.as_ref().unwrap_or(dir))
        };
        let saved = self.store(save, &mut steps).await?;
        Ok(self.saved(&command, saved, BTreeMap::new(), steps))
    }

    /// Refuses to save an empty state directory of an application that lies beside it.
    async fn ensure_something(&self, declared: &Declared) -> Result<(), Error> {
        if declared.is_in_place() || declared.servers_of().next().is_some() {
            return Ok(());
        }
        let (dir, state, root) = (
            self.home.dir.clone(),
            declared.state.clone(),
            declared.current(),
        );
        bridge::blocking(move || {
            if holds_a_file(&root) {
                return Ok(());
            }
            let is_beside = |entry: &DirEntry| {
                let path = entry.path();
                entry.file_name() != FILE && !state.starts_with(&path)
            };
            let beside = std::fs::read_dir(&dir).into_iter().flatten().flatten();
            let beside = beside.filter(is_beside).count();
            if beside == 0 {
                return Ok(());
            }
            Err(ProjectError::NothingInState {
                state: root,
                dir,
                beside,
            }
            .into())
        })
        .await
    }

    async fn save_declared(
        &self,
        declared: &Declared,
        command: ProjectSave,
        mut steps: Steps,
    ) -> Result<ProjectSaved, Error> {
        if let Some(snapshot) = self.half_restored().await {
            let project = self.home.id.clone();
            return Err(ProjectError::HalfRestored { project, snapshot }.into());
        }
        if !command.allow_shrink {
            self.ensure_something(declared).await?;
        }
        let why = reason_word(command.reason);
        steps.begin(ProjectStep::PreSaveHooks);
        // Before a restore the programs stand: there is nobody to prepare.
        let has_hooks = command.reason != SaveReason::BeforeRestore;
        let before = if has_hooks {
            let hooks = self.run_hooks(declared, Moment::PreSave, why);
            or_cancelled(&command.cancel, hooks).await.flatten()
        } else {
            Ok(Vec::new())
        };
        let saved = match before {
            Ok(hooks) => self
                .capture_and_store(declared, &command, &mut steps)
                .await
                .map(|(saved, volumes)| (saved, volumes, hooks)),
            Err(error) => Err(error),
        };
        // What a hook before the save began, the one after it ends, whatever became of the save.
        let after = if has_hooks {
            self.run_hooks(declared, Moment::PostSave, why).await
        } else {
            Ok(Vec::new())
        };
        let (saved, volumes, mut hooks) = saved?;
        let mut warnings = Vec::new();
        match after {
            Ok(after) => hooks.extend(after),
            Err(error) => warnings.push(Warning::HookFailed {
                reason: error_chain(&error),
            }),
        }
        steps.begin(ProjectStep::Release);
        let mut result = self.saved(&command, saved, volumes, steps);
        result.hooks = hooks;
        result.warnings.extend(warnings);
        Ok(result)
    }

    async fn capture_and_store(
        &self,
        declared: &Declared,
        command: &ProjectSave,
        steps: &mut Steps,
    ) -> Result<(RepoSaved, BTreeMap<String, VolumeManifest>), Error> {
        steps.begin(ProjectStep::Quiesce);
        let capture = ProjectCapture::begin(self, declared).await?;
        steps.begin(ProjectStep::Checkpoint);
        let capture = self.databases(declared, command, capture).await?;
        let capture = self.clones(declared, command, capture).await?;
        let save = RepoSave {
            excludes: command.excludes.clone(),
            grafts: capture.grafts.clone(),
            app_version: declared.config.app_version.clone(),
            volumes: capture.volumes.clone(),
            ..self.repo_save_of(command, &capture.root)
        };
        let saved = self.store(save, steps).await?;
        // Whoever was paused runs since the clones were made; this is where the contract looks for it.
        steps.begin(ProjectStep::Resume);
        let volumes = self.volumes_of(&saved).await;
        bridge::blocking(move || drop(capture)).await;
        Ok((saved, volumes))
    }

    /// Copies what SQLite keeps, and asks servers for dumps.
    pub(super) async fn databases(
        &self,
        declared: &Declared,
        command: &ProjectSave,
        mut capture: ProjectCapture,
    ) -> Result<ProjectCapture, Error> {
        for (name, volume) in &declared.config.volumes {
            let source = capture.live(name);
            let (name, cancel) = (name.clone(), command.cancel.clone());
            match volume.consistency {
                Consistency::Sqlite if declared.is_in_place() => capture.sqlite_in_place(&name),
                Consistency::Sqlite => {
                    capture = bridge::blocking(move || {
                        capture.sqlite_volume(&name, &source, &cancel)?;
                        Ok::<_, Error>(capture)
                    })
                    .await?;
                }
                Consistency::Postgres => {
                    capture
                        .postgres_volume(self, &name, volume, &cancel)
                        .await?;
                }
                Consistency::Generic => {}
            }
        }
        Ok(capture)
    }

    /// Clones the other volumes, while whoever writes them stands still.
    pub(super) async fn clones(
        &self,
        declared: &Declared,
        command: &ProjectSave,
        mut capture: ProjectCapture,
    ) -> Result<ProjectCapture, Error> {
        let generic = || {
            let all = declared.config.volumes.iter();
            all.filter(|(_, one)| one.consistency == Consistency::Generic)
        };
        let names: Vec<VolumeName> = generic().map(|(name, _)| name.clone()).collect();
        let writers: BTreeSet<_> = generic().flat_map(|(_, one)| &one.services).collect();
        let writers: Vec<Service> = writers
            .into_iter()
            .map(|name| self.service(declared, name))
            .collect();
        let mut settings = PauseSettings::new(self.engine.freezes(), self.host.watchdog.clone());
        settings.max = LONGEST_PAUSE;
        let cancel = command.cancel.clone();
        let counted = self.engine.counted.clone();
        let has_writers = !writers.is_empty();
        let cloning = bridge::blocking(move || {
            let paused = held(&writers, &settings, &names)?;
            let cloned = names.iter().try_for_each(|name| {
                let source = capture.live(name);
                capture.clone_volume(name, &source, &cancel)
            });
            let resumed = paused.map(|paused| resumed(paused, &names)).transpose()?;
            counted.add_frozen(SubjectKind::Dir, resumed.unwrap_or_default());
            cloned?;
            if let Some(paused_for) = resumed {
                capture.paused(&names, paused_for);
            }
            capture.view.dress()?;
            Ok(capture)
        });
        // While others stand still for it, nobody is modest.
        if has_writers {
            bridge::at_usual_priority(cloning).await
        } else {
            cloning.await
        }
    }

    fn repo_save_of(&self, command: &ProjectSave, source: &std::path::Path) -> RepoSave {
        RepoSave {
            reason: command.reason,
            labels: command.labels.clone(),
            force: command.force,
            allow_shrink: command.allow_shrink,
            is_part: command.is_part,
            inherits_excludes: !command.forget_excludes,
            skip_unchanged: !command.allow_empty,
            cancel: command.cancel.clone(),
            progress: command.progress.clone(),
            ..RepoSave::new(source, self.name())
        }
    }

    /// Stores the tree, says what it is, makes the snapshot exist; again when a sweep beside it was in the way.
    async fn store(&self, save: RepoSave, steps: &mut Steps) -> Result<RepoSaved, Error> {
        for _ in 1..ATTEMPTS {
            match self.try_store(save.clone(), steps).await {
                Err(Error::SaveGaveUp(why)) => tracing::info!(why, "once more"),
                stored => return stored,
            }
        }
        self.try_store(save, steps).await
    }

    async fn try_store(&self, save: RepoSave, steps: &mut Steps) -> Result<RepoSaved, Error> {
        steps.begin(ProjectStep::Copy);
        let (labels, cancel) = (save.labels.clone(), save.cancel.clone());
        let gathering = Box::pin(self.engine.dirs().save_gather(save));
        let gathered = or_dropped(&cancel, gathering).await??;
        if gathered.is_nothing_new() {
            let saved = self.engine.dirs().save_nothing(gathered).await?;
            for (key, value) in &labels {
                self.label(&saved.snapshot_id.as_str().into(), key, Some(value))
                    .await?;
            }
            return Ok(saved);
        }
        steps.begin(ProjectStep::Metadata);
        let ready = self.engine.dirs().save_describe(gathered).await?;
        steps.begin(ProjectStep::Index);
        self.engine.dirs().save_publish(ready).await
    }

    /// The volumes of a snapshot that exists; what cannot be read is only not told.
    async fn volumes_of(&self, saved: &RepoSaved) -> BTreeMap<String, VolumeManifest> {
        let (dirs, id) = (self.engine.dirs(), &saved.snapshot_id);
        let Ok(Some((stored, _))) = dirs.root().manifest(id).await else {
            return BTreeMap::new();
        };
        let opened = dirs.understand(&dirs.root(), stored).await;
        opened
            .map(|opened| opened.manifest.volume_manifests)
            .unwrap_or_default()
    }

    fn saved(
        &self,
        command: &ProjectSave,
        mut saved: RepoSaved,
        volumes: BTreeMap<String, VolumeManifest>,
        steps: Steps,
    ) -> ProjectSaved {
        let mut warnings = self.engine.clock_warnings();
        warnings.append(&mut saved.warnings);
        ProjectSaved {
            project: self.home.id.clone(),
            reason: command.reason,
            saved,
            labels: command.labels.clone(),
            volumes,
            hooks: Vec::new(),
            steps: steps.finish(),
            warnings,
        }
    }
}

/// Pauses the writers, if any of them runs.
fn held(
    writers: &[Service],
    settings: &PauseSettings,
    names: &[VolumeName],
) -> Result<Option<Paused>, Error> {
    if writers.is_empty() {
        return Ok(None);
    }
    let writers: Vec<&Service> = writers.iter().collect();
    let paused = Paused::hold(&writers, settings);
    Ok(Some(paused.map_err(|error| {
        ProjectError::Pause(names.to_vec(), error)
    })?))
}

/// Lets the writers go on; says for how long they stood still, if they did.
fn resumed(paused: Paused, names: &[VolumeName]) -> Result<Duration, Error> {
    let resumed = paused.resume();
    let resumed = resumed.map_err(|error| ProjectError::Pause(names.to_vec(), error))?;
    if resumed.held() {
        return Ok(resumed.paused_for);
    }
    let why = if resumed.expired {
        format!("it took longer than {} s", LONGEST_PAUSE.as_secs())
    } else if resumed.disturbed {
        "somebody else let one of them run".to_owned()
    } else {
        format!("ended or began meanwhile: {}", resumed.changed.join(", "))
    };
    let volumes = names.to_vec();
    Err(ProjectError::PauseBroken { volumes, why }.into())
}

/// Whether anything but directories is in a directory; what cannot be looked into counts as something.
fn holds_a_file(directory: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return directory.exists();
    };
    entries.flatten().any(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => holds_a_file(&entry.path()),
        _ => true,
    })
}
