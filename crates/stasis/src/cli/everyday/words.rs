//! What stands after an everyday verb: a subject, and snapshots of it.

use crate::cli::change::ChangeArgs;
use crate::cli::directory::entry_path;
use crate::cli::project::ProjectSelector;
use crate::cli::{CliContext, envelope};
use anyhow::bail;
use clap::Args;
use stasis_engine::error::{Error, ErrorKind};
use stasis_engine::kind::directory::{DirPlace, DirSnapshot, Directory, EntryIn};
use stasis_engine::kind::project::{Home, Project};
use stasis_engine::model::failure::Failure;
use stasis_engine::model::id::{ProfileRef, SessionRef};
use stasis_engine::model::snapshot_ref::SnapshotRef;
use stasis_engine::model::subject_ref::{
    self, CONTAINER_PREFIX, DIR_PREFIX, PROFILE_PREFIX, SESSION_PREFIX, SubjectRef,
};
use stasis_engine::model::tree::EntryPath;
use stasis_engine::near::{did_you_mean, near_directories};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

/// A subject and snapshots of it, as they were typed.
pub(super) struct TypedWords {
    subject: SubjectRef,
    pub(super) snapshots: Vec<SnapshotRef>,
}

impl TypedWords {
    /// Understands what was typed where a subject and at most so many snapshots are meant.
    pub(super) fn read(
        context: &CliContext,
        words: &[OsString],
        most_snapshots: usize,
    ) -> anyhow::Result<Self> {
        let state = context.environment.local_dirs.state.as_deref();
        let is_dir = |path: &Path| Home::is_named(path, state);
        let read = subject_ref::read(words, most_snapshots, is_dir)?;
        match &read.subject {
            SubjectRef::Profile(profile) => envelope::about(format!("{PROFILE_PREFIX}{profile}")),
            SubjectRef::Session(session) => envelope::about(format!("{SESSION_PREFIX}{session}")),
            SubjectRef::Container(name) => envelope::about(format!("{CONTAINER_PREFIX}{name}")),
            _ => {}
        }
        Ok(Self {
            subject: read.subject,
            snapshots: read.snapshots,
        })
    }

    /// The profile that is meant, if it is one.
    pub(super) fn profile(&self) -> Option<&ProfileRef> {
        match &self.subject {
            SubjectRef::Profile(profile) => Some(profile),
            _ => None,
        }
    }

    /// The session that is meant, if it is one.
    pub(super) fn session(&self) -> Option<&SessionRef> {
        match &self.subject {
            SubjectRef::Session(session) => Some(session),
            _ => None,
        }
    }

    /// Whether a session is meant, whose snapshots are looked at like those of a directory.
    pub(super) fn is_session(&self) -> bool {
        matches!(self.subject, SubjectRef::Session(_))
    }

    /// The container that is meant, if it is one.
    pub(super) fn container(&self) -> Option<&str> {
        match &self.subject {
            SubjectRef::Container(name) => Some(name),
            _ => None,
        }
    }

    /// Whether what is meant lies nowhere as a directory: a session or a container.
    pub(super) fn is_nowhere(&self) -> bool {
        self.is_session() || self.container().is_some()
    }

    /// Refuses what only a command of sessions does.
    pub(super) fn ensure_no_session(&self, instead: &str) -> anyhow::Result<()> {
        match &self.subject {
            SubjectRef::Session(session) => bail!("of a session, {instead} {session}`"),
            _ => Ok(()),
        }
    }

    /// Whether nobody named a subject, and the directory is meant that one stands in.
    pub(super) fn is_here(&self) -> bool {
        matches!(self.subject, SubjectRef::Here)
    }

    /// The directory that is meant, as it was typed.
    pub(super) fn dir(&self) -> anyhow::Result<PathBuf> {
        Ok(match &self.subject {
            SubjectRef::Here => PathBuf::from("."),
            SubjectRef::Path(path) => path.clone(),
            SubjectRef::Dir(name) => PathBuf::from(name),
            SubjectRef::Session(session) => PathBuf::from(format!("{SESSION_PREFIX}{session}")),
            SubjectRef::Container(name) => PathBuf::from(format!("{CONTAINER_PREFIX}{name}")),
            _ => bail!("this verb is for directories"),
        })
    }

    pub(super) async fn look(&self, context: &CliContext) -> anyhow::Result<Project> {
        ProjectSelector::of(&self.dir()?).look(context).await
    }

    /// The directory that is meant: where nobody named one, the nearest that is a workspace or was saved.
    pub(super) async fn place(&self, context: &CliContext) -> anyhow::Result<PathBuf> {
        let dir = self.dir()?;
        if dir != Path::new(".") {
            return Ok(dir);
        }
        Ok(place(context, None).await?.dir)
    }

    /// The directory with its snapshots and its checkpoints. Where only checkpoints are named, no store is needed.
    pub(super) async fn directory(&self, context: &CliContext) -> anyhow::Result<Directory> {
        match self.found(context).await {
            Err(error) => Err(self.or_misspelt(context, error).await),
            found => found,
        }
    }

    /// The snapshot that is meant.
    pub(super) async fn located(
        &self,
        context: &CliContext,
        directory: &Directory,
        wanted: &SnapshotRef,
    ) -> anyhow::Result<DirSnapshot> {
        match directory.locate(wanted).await {
            Err(error) => Err(self.or_misspelt(context, error.into()).await),
            found => Ok(found?),
        }
    }

    /// The entry that is meant by a path: from where the user stands in the directory, else from its top. Of a subject that is named, always
    /// from its top.
    pub(super) async fn entry(
        &self,
        directory: &Directory,
        path: &OsString,
        within: EntryIn<'_>,
    ) -> anyhow::Result<EntryPath> {
        let (typed, is_here) = (Path::new(path), matches!(self.subject, SubjectRef::Here));
        let here = std::env::current_dir().ok().filter(|_| is_here);
        let found = match here {
            Some(here) => directory.entry_from(typed, &here, within).await,
            None => None,
        };
        match found {
            Some(entry) => Ok(entry),
            None => entry_path(Some(path)),
        }
    }

    /// Makes of the paths that are left as they are what they mean; one that means nothing is refused.
    pub(super) async fn read_excepted(
        &self,
        directory: &Directory,
        change: &mut ChangeArgs,
        within: EntryIn<'_>,
    ) -> anyhow::Result<()> {
        for path in change.excepted() {
            let entry = self.entry(directory, path, within).await?;
            directory.ensure_entry(&entry, within).await?;
            *path = OsString::from_vec(entry.as_bytes().to_vec());
        }
        Ok(())
    }

    /// A word alone may name a directory or a snapshot: where it is neither, both are said, and what may have been meant.
    async fn or_misspelt(&self, context: &CliContext, error: anyhow::Error) -> anyhow::Error {
        let is_absent = |error: &Error| error.kind() == ErrorKind::NotFound;
        let (SubjectRef::Here, Some(SnapshotRef::Text(word))) =
            (&self.subject, self.snapshots.first())
        else {
            return error;
        };
        if !error.downcast_ref().is_some_and(is_absent) {
            return error;
        }
        let mut near = near_directories(Path::new(word)).await;
        if let Ok(engine) = context.engine().await {
            near.extend(engine.near_subjects(Path::new(word)).await);
        }
        let Some(question) = did_you_mean(&near) else {
            return error;
        };
        let said =
            format!("`{word}` is no directory, no subject, and no snapshot of this directory");
        let hint = format!(
            "{question} `stasis list` shows every subject, `stasis log` the snapshots of this directory"
        );
        let failure = Failure::of(ErrorKind::NotFound, said).with_hint(hint);
        Error::from(failure).into()
    }

    async fn found(&self, context: &CliContext) -> anyhow::Result<Directory> {
        let typed = self.dir()?;
        let is_here = |one: &SnapshotRef| matches!(one, SnapshotRef::Checkpoint(_));
        let needs_store = self.snapshots.is_empty() || !self.snapshots.iter().all(is_here);
        if self.is_nowhere() {
            return Ok(Directory::new(Some(self.look(context).await?), None));
        }
        if typed
            .to_str()
            .is_some_and(|dir| dir.starts_with(DIR_PREFIX))
        {
            let project = self.look(context).await?;
            let dir = project.home().dir.clone();
            let place = place(context, Some(&dir)).await?;
            return Ok(Directory::new(Some(project), place.workspace));
        }
        let named = Some(&*typed).filter(|dir| *dir != Path::new("."));
        let place = place(context, named).await?;
        if !needs_store {
            return Ok(Directory::new(None, place.workspace));
        }
        let project = match ProjectSelector::of(&place.dir).look(context).await {
            Err(error) if does_without(context, &place, &error).await? => None,
            project => Some(project?),
        };
        Ok(Directory::new(project, place.workspace).with_lost(place.lost))
    }

    /// The one snapshot that is meant.
    pub(super) fn snapshot(&self) -> SnapshotRef {
        self.snapshots
            .first()
            .cloned()
            .unwrap_or(SnapshotRef::Latest)
    }
}

/// Whether nobody misses a store that could not be opened; one that somebody named is missed.
async fn does_without(
    context: &CliContext,
    place: &DirPlace,
    error: &anyhow::Error,
) -> anyhow::Result<bool> {
    let state = context.environment.local_dirs.state.as_deref();
    match error.downcast_ref() {
        Some(error) if context.is_usual_store() => Ok(place.does_without(error, state).await?),
        _ => Ok(false),
    }
}

/// Where a directory lies, and whether it has checkpoints.
async fn place(context: &CliContext, named: Option<&Path>) -> anyhow::Result<DirPlace> {
    // Without a place for what this host knows, it knows no workspaces.
    let Ok(host) = context.environment.host_env() else {
        let dir = named.unwrap_or(Path::new(".")).to_owned();
        return Ok(DirPlace::with(dir, None));
    };
    Ok(DirPlace::find(named, &host).await?)
}

/// A subject, and a snapshot of it.
#[derive(Debug, Args)]
pub(super) struct OneSnapshot {
    /// A directory [default: the one you are in], `dir:NAME`, `profile:NAME`, `session:TENANT/SESSION` or `container:NAME` as `stasis list` shows them; and the snapshot: `latest`, `latest~2`, a
    /// checkpoint (cp-3), a time (@10:30, @-2h, @2026-11-15), an id or the beginning of one, or a label [default: latest]
    #[arg(value_name = "SUBJECT|SNAPSHOT", num_args = 0..=2)]
    words: Vec<OsString>,
}

/// A subject.
#[derive(Debug, Args)]
pub(super) struct NoSnapshot {
    /// A directory, `dir:NAME`, `profile:NAME`, `session:TENANT/SESSION` or `container:NAME` as `stasis list` shows them [default: the directory you are in]
    #[arg(value_name = "SUBJECT")]
    subject: Option<OsString>,
}

impl OneSnapshot {
    pub(super) fn read(&self, context: &CliContext) -> anyhow::Result<TypedWords> {
        TypedWords::read(context, &self.words, 1)
    }
}

impl NoSnapshot {
    pub(super) fn read(&self, context: &CliContext) -> anyhow::Result<TypedWords> {
        TypedWords::read(context, self.subject.as_slice(), 0)
    }
}
