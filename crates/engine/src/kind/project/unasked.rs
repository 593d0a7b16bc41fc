//! Saves that a server makes without being asked for each.
//!
//! 1. look at the directory anew: what its file says may have changed   2. refuse what nobody agreed to   3. make the project ours, or leave it
//!    to whoever is there or comes meanwhile   4. look whether anything changed since the last such save   5. save   6. look whether anything was
//!    lost   7. forget automatic snapshots that are too many
//!
//! *Always true:* no program is paused and no hook is run unless whoever configures the server said so; none is started or stopped. A save
//! that is given up runs the hooks that end what others began: it is a task of its own, which nobody drops. No snapshot goes that somebody
//! asked for, pinned or labelled, and none that has what the next one has lost.

use super::save::ProjectSave;
use super::{Declared, Home, Project};
use crate::bridge::{self, CancelOnDrop};
use crate::error::{Error, ErrorKind, ProjectError, error_chain};
use crate::gc::RepoGc;
use stasis_model::digest::TreeDigest;
use stasis_model::failure::Failure;
use stasis_model::format::key::PoolId;
use stasis_model::format::manifest::{Consistency, SaveReason};
use stasis_model::id::{Label, SnapshotId};
use stasis_model::policy::retention::{
    self, Clocks, OnDoubt, RetentionPolicy, Snapshot, SnapshotNeed, SnapshotOrigin,
};
use stasis_store::layout::ChunkRoot;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Whether the programs of a project may be paused, and its hooks run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServiceUse {
    /// They are left alone: what cannot be saved so is not saved.
    LeftAlone,
    /// As whoever saves it by hand has them.
    Held,
}

/// A project of this host that a server saves without being asked.
#[derive(Clone, Debug)]
pub struct AutosavedProject {
    /// What the configuration calls it.
    pub(crate) name: Label,
    /// The project as it was when the server started.
    pub(crate) project: Project,
    services: ServiceUse,
    known: Arc<Mutex<Known>>,
    /// Held while a save of it goes on, also one that was given up.
    saving: Arc<tokio::sync::Mutex<()>>,
}

/// What was found the last time.
#[derive(Debug, Default)]
struct Known {
    /// What its state looked like before the last save.
    seen: Option<TreeDigest>,
    /// What its last snapshot lacks that one before it has.
    losses: Vec<String>,
    /// Why nobody knows whether that is still all, if nobody does.
    unknown: Option<String>,
    /// Whether what follows a save was left to the next run.
    is_behind: bool,
}

/// What came of a save that nobody asked for.
#[derive(Debug)]
pub(crate) enum UnaskedSave {
    /// There is a new snapshot, and so many automatic ones were forgotten.
    Saved(u64),
    /// Nothing changed.
    Unchanged,
    /// It was left alone, for this reason.
    Skipped(String),
}

impl AutosavedProject {
    /// A project that is there.
    pub fn new(name: Label, project: Project, services: ServiceUse) -> Self {
        Self {
            name,
            project,
            services,
            known: Arc::default(),
            saving: Arc::default(),
        }
    }

    /// The same over another way to its store.
    pub(crate) fn with_project(&self, project: Project) -> Self {
        Self {
            project,
            ..self.clone()
        }
    }

    /// Saves it if it changed, in a task of its own. Whoever drops this asks it to give up; what its hooks began, it ends all the same.
    pub(crate) async fn save(&self) -> Result<UnaskedSave, Error> {
        let Ok(only) = self.saving.clone().try_lock_owned() else {
            let why = "its last save was given up, and has not come to its end";
            return Ok(UnaskedSave::Skipped(why.to_owned()));
        };
        let cancel = CancelOnDrop::default();
        let (own, flag) = (self.clone(), cancel.flag());
        let work: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(async move {
            let saved = Box::pin(own.save_unless_cancelled(&flag)).await;
            drop(only);
            saved
        });
        match tokio::spawn(work).await {
            Ok(saved) => saved,
            Err(gone) => match gone.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // Its threads end, and with them its server.
                Err(_) => Err(ProjectError::Cancelled.into()),
            },
        }
    }

    /// Waits until no save of it goes on, for as long as one that was given up may take to end. One that hangs is waited for by nobody: it
    /// keeps its own project from being saved, and no other.
    pub(crate) async fn settled(&self) {
        let within = self.project.gives_way_within();
        let _ = tokio::time::timeout(within, self.saving.lock()).await;
    }

    /// What its last snapshot lacks that one before it has, in words, and why that is not all that is known, if so.
    pub(crate) fn losses(&self) -> Vec<String> {
        let known = self.known();
        [&known.losses[..], known.unknown.as_slice()].concat()
    }

    async fn save_unless_cancelled(&self, cancel: &Arc<AtomicBool>) -> Result<UnaskedSave, Error> {
        let dir = self.project.home.dir.clone();
        if !bridge::blocking(move || dir.is_dir()).await {
            return Ok(UnaskedSave::Skipped(
                "its directory is not there".to_owned(),
            ));
        }
        let project = self.project.as_it_is_now().await?;
        if let Some(why) = project.why_not(self.services) {
            return Ok(UnaskedSave::Skipped(why));
        }
        let lock = match project.exclusive_unasked().await {
            Err(error) if error.kind() == ErrorKind::Conflict => {
                return Ok(UnaskedSave::Skipped(error_chain(&error)));
            }
            lock => lock?,
        };
        let saving = Box::pin(self.save_locked(&project, cancel));
        let (saved, is_wanted) = project.giving_way(cancel, saving).await;
        drop(lock);
        match saved {
            Err(error) if is_wanted && error.kind() == ErrorKind::Cancelled => {
                let why = "somebody else wanted it meanwhile";
                Ok(UnaskedSave::Skipped(why.to_owned()))
            }
            // A writer that does not rest, or whoever was to be paused: it is tried again when its time has come.
            Err(error) if matches!(error.kind(), ErrorKind::Retry | ErrorKind::Conflict) => {
                Ok(UnaskedSave::Skipped(error_chain(&error)))
            }
            saved => saved,
        }
    }

    /// Saves a project that is ours alone, if it changed.
    async fn save_locked(
        &self,
        project: &Project,
        cancel: &Arc<AtomicBool>,
    ) -> Result<UnaskedSave, Error> {
        if project.has_stopped_programs().await {
            let why = "a restore that was interrupted left programs stopped: `stasis project start` starts them";
            return Ok(UnaskedSave::Skipped(why.to_owned()));
        }
        project.recover_restore().await?;
        let now = project.fingerprint(cancel).await?;
        if project.is_seen_whole() && self.known().seen == Some(now) {
            // Somebody may have agreed to them since.
            if self.is_behind() || !self.losses().is_empty() {
                self.follow_up(project, cancel).await?;
            }
            return Ok(UnaskedSave::Unchanged);
        }
        let command = ProjectSave {
            cancel: cancel.clone(),
            ..ProjectSave::new(SaveReason::Autosave)
        };
        let saved = Box::pin(project.save_locked(command)).await?;
        self.saved(now);
        let forgotten = self.follow_up(project, cancel).await?;
        if !saved.saved.published {
            return Ok(UnaskedSave::Unchanged);
        }
        Ok(UnaskedSave::Saved(forgotten))
    }

    /// Notes what was there before a save that came to its end.
    fn saved(&self, now: TreeDigest) {
        let mut known = self.known();
        // What was written while it was saved is seen the next time. So is what the save itself touched: that costs one more look.
        known.seen = Some(now);
        known.is_behind = true;
    }

    /// Looks what was lost, and after a save forgets what is too many; says how many. Whoever wants the project does not wait for it: the
    /// next run does it then.
    async fn follow_up(&self, project: &Project, cancel: &AtomicBool) -> Result<u64, Error> {
        if is_set(cancel) {
            return Ok(0);
        }
        self.look_for_losses(project).await;
        if is_set(cancel) || !self.is_behind() {
            return Ok(0);
        }
        let forgotten = project.forget_autosaves(cancel).await?;
        self.known().is_behind = is_set(cancel);
        Ok(forgotten)
    }

    /// Where the store does not say what was lost, what was known of it is still so.
    async fn look_for_losses(&self, project: &Project) {
        let losses = project.losses().await;
        let mut known = self.known();
        match losses {
            Ok(losses) => (known.losses, known.unknown) = (losses, None),
            Err(error) => {
                let why = error_chain(&error);
                known.unknown = Some(format!("what it has lost is not known: {why}"));
            }
        }
    }

    fn is_behind(&self) -> bool {
        self.known().is_behind
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Project {
    /// The same by what its directory and its file are now; refused where that is another subject, or is kept elsewhere.
    async fn as_it_is_now(&self) -> Result<Self, Error> {
        let state = self.engine.local_dirs.state.as_deref();
        let home = Home::find(&self.home.dir, state).await?;
        // A directory that was never saved gets its id by chance: that of the start counts.
        let home = if home.is_known() {
            home
        } else {
            self.home.clone()
        };
        let store = |home: &Home| {
            let said = home.declared.as_ref();
            (
                said.and_then(|one| one.config.store.clone()),
                home.own_store(),
            )
        };
        // One that nobody had saved may have been saved since, under the id that it got then.
        let is_other = home.id != self.home.id;
        if (is_other && self.home.is_known()) || store(&home) != store(&self.home) {
            let said = "its file names another subject or store than when the server started";
            let failure = Failure::of(ErrorKind::Invalid, said);
            return Err(failure
                .with_hint("start the server again if that is meant")
                .into());
        }
        let engine = match self.engine.chunk_root.pool_id() {
            PoolId::Tenant(tenant) if is_other => {
                self.engine.rooted(ChunkRoot::project(&tenant, &home.id))
            }
            _ => self.engine.clone(),
        };
        let (home, host) = (home.hosted(state), self.host.clone());
        Ok(Self { engine, home, host })
    }

    /// Why a save would do what nobody agreed to, if it would.
    fn why_not(&self, services: ServiceUse) -> Option<String> {
        let declared = self.home.declared.as_ref()?;
        if services == ServiceUse::Held || !declared.is_held_for_a_save() {
            return None;
        }
        Some("a save would pause its programs or run its hooks, and `hold_services` below its name in the configuration does not say that it may".to_owned())
    }

    /// Whether a restore stopped programs and died before they ran again.
    async fn has_stopped_programs(&self) -> bool {
        let Some(declared) = &self.home.declared else {
            return false;
        };
        let path = declared.state.join(".stasis/stopped");
        bridge::blocking(move || std::fs::metadata(path).is_ok_and(|seen| seen.len() > 0)).await
    }

    /// Whether one sees from outside that anything changed. Of what a server has one does not.
    fn is_seen_whole(&self) -> bool {
        let declared = self.home.declared.as_ref();
        declared.is_none_or(|declared| declared.servers_of().next().is_none())
    }

    /// Forgets automatic snapshots beyond what its file says is kept, counted without all others; says how many. What is left when somebody
    /// wants to stop is swept by the next one that forgets any.
    async fn forget_autosaves(&self, cancel: &AtomicBool) -> Result<u64, Error> {
        let said = self.home.declared.as_ref();
        let said = said.map(|declared| declared.config.retention);
        let policy = RetentionPolicy::Repository(said.unwrap_or_default().policy());
        let all = self.autosaves().await?;
        let bucket = &self.engine.bucket;
        let clocks = Clocks {
            local: self.engine.clock.now(),
            store: bucket.clock_offset_ms().map(|_| self.engine.lineages.now()),
            on_doubt: OnDoubt::RefuseAges,
        };
        let judged = retention::judge(&policy, &all, &clocks);
        let going: Vec<SnapshotId> = judged.going().map(|one| one.id.clone()).collect();
        let going = self.without_those_before_a_loss(going).await?;
        if going.is_empty() || is_set(cancel) {
            return Ok(0);
        }
        let _ = self.engine.dirs().forget(&going).await?;
        if self.engine.chunk_root.is_alone() && !is_set(cancel) {
            // The pool of a store that others use too is swept by a job of its own.
            let sweep = RepoGc::new(RetentionPolicy::KeepAll);
            let _ = Box::pin(self.engine.dirs().gc(sweep)).await?;
        }
        Ok(going.len() as u64)
    }

    /// Its snapshots that were made without being asked for, and that nobody has named since.
    async fn autosaves(&self) -> Result<Vec<Snapshot>, Error> {
        let index = self.index().await?;
        let needed = self.needed_for_undo().await?;
        let all = index.snapshots.iter();
        let all = all.filter(|one| one.reason == SaveReason::Autosave && one.labels.is_empty());
        let one = |one: &stasis_model::format::manifest::Indexed| Snapshot {
            created: one.at_ms,
            id: one.id.clone(),
            group: Label::nobody(),
            bytes: one.bytes,
            origin: SnapshotOrigin::Auto,
            active: index.is_active(&one.id),
            pinned: one.pinned,
            verified: false,
            rolled_back_at: None,
            needed_for: needed.contains(&one.id).then_some(SnapshotNeed::Undo),
        };
        Ok(all.map(one).collect())
    }
}

/// Whether somebody wants to stop.
fn is_set(cancel: &AtomicBool) -> bool {
    cancel.load(Ordering::Relaxed)
}

impl Declared {
    /// Whether a save of it pauses programs, or runs what they want to be run around it.
    fn is_held_for_a_save(&self) -> bool {
        let mut volumes = self.config.volumes.values();
        let mut services = self.config.services.values();
        let is_paused = |consistency| consistency == Consistency::Generic;
        volumes.any(|one| is_paused(one.consistency) && !one.services.is_empty())
            || services.any(|one| one.hooks.pre_save.is_some() || one.hooks.post_save.is_some())
    }
}
