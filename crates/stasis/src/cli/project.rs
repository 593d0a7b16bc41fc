//! `stasis project`

pub(super) mod restore;
pub(super) mod save;
pub(super) mod show;
pub(super) mod timeline;
pub(super) mod upkeep;

use super::container::container_host;
use super::profile::spawn;
use super::{CliContext, envelope};
use crate::config;
use crate::report::Exit;
use clap::{Args, Subcommand};
use stasis_engine::address::{CONTAINER_PREFIX, SESSION_PREFIX};
use stasis_engine::error::{Error, ErrorKind};
use stasis_engine::kind::project::{self, Home, Host};
use stasis_engine::model::id::{Label, ProjectId, TenantId};
use stasis_engine::model::snapshot_ref::SnapshotRef;
use stasis_engine::open::StoreLocation;
use stasis_engine::subjects::DIR_PREFIX;
use stasis_engine::watchdog;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(super) struct ProjectArgs {
    #[command(flatten)]
    which: ProjectSelector,
    #[command(subcommand)]
    command: ProjectCommand,
}

/// Which project.
#[derive(Debug, Args, Clone)]
pub(super) struct ProjectSelector {
    /// The project's directory
    #[arg(long, global = true, value_name = "DIR", default_value = ".")]
    project: PathBuf,
    /// Whose it is, in a store that others use too
    #[arg(long, global = true, value_name = "TENANT", default_value = "default")]
    tenant: TenantId,
}

#[derive(Debug, Subcommand)]
enum ProjectCommand {
    /// Write a commented stasis.toml from what is found in the directory
    Init(upkeep::ProjectInitArgs),
    /// Save the state of a project, or a directory of plain files
    Save(save::ProjectSaveArgs),
    /// Restore a project to a snapshot (the current state is saved first)
    Restore(restore::ProjectRestoreArgs),
    /// Start its programs
    Start,
    /// Stop its programs
    Stop,
    /// Show its configuration, its snapshots and the state of its programs
    Status,
    /// List its snapshots
    List,
    /// Show all metadata of a snapshot
    Show {
        /// `latest`, an id or the beginning of one, or a label
        snapshot: SnapshotRef,
    },
    /// Show what differs between two snapshots, or between one and what is there now
    Diff {
        /// The older one
        before: SnapshotRef,
        /// The newer one; without it, what is there now
        after: Option<SnapshotRef>,
    },
    /// Set a label of a snapshot, KEY=VALUE, or remove it with KEY=
    Label {
        /// `latest`, an id or the beginning of one, or a label
        snapshot: SnapshotRef,
        /// The label
        #[arg(value_name = "KEY=VALUE")]
        label: String,
    },
    /// Keep a snapshot whatever the policy says
    Pin {
        /// `latest`, an id or the beginning of one, or a label
        snapshot: SnapshotRef,
        /// Remove the pin
        #[arg(long)]
        off: bool,
    },
    /// Delete a snapshot; the next gc reclaims its bytes
    Delete {
        /// An id or the beginning of one, or a label
        snapshot: SnapshotRef,
    },
    /// Verify a snapshot: restore it to a temporary directory and check every database
    Verify {
        /// `latest`, an id or the beginning of one, or a label
        #[arg(default_value = "latest")]
        snapshot: SnapshotRef,
    },
    /// Delete snapshots beyond the retention policy and reclaim space
    Gc(upkeep::ProjectGcArgs),
    /// Copy the project to a new directory, from a snapshot
    Duplicate {
        /// The new directory
        dir: PathBuf,
        /// What the new project is called
        #[arg(long)]
        id: ProjectId,
        /// `latest`, an id or the beginning of one, or a label
        #[arg(long, default_value = "latest")]
        snapshot: SnapshotRef,
    },
    /// Save, run an upgrade command, check the application's health, and roll back if it fails
    Upgrade {
        /// The command
        #[arg(trailing_var_arg = true, required = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
    /// Save automatically, some time after the last change; runs until interrupted
    Autosave(upkeep::AutosaveArgs),
}

impl ProjectArgs {
    pub(super) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let Self { which, command } = self;
        match command {
            ProjectCommand::Init(init) => init.run(context, &which).await?,
            ProjectCommand::Save(save) => return save.run(context, &which).await,
            ProjectCommand::Restore(restore) => return restore.run(context, &which).await,
            ProjectCommand::Start => {
                show::services(context, &which.open(context).await?.start().await?)?;
            }
            ProjectCommand::Stop => {
                show::services(context, &which.open(context).await?.stop().await?)?;
            }
            ProjectCommand::Status => show::status(context, &which.look(context).await?).await?,
            ProjectCommand::List => show::list(context, &which.look(context).await?).await?,
            ProjectCommand::Show { snapshot } => {
                show::show(context, &which.look(context).await?, &snapshot).await?;
            }
            ProjectCommand::Diff { before, after } => {
                let project = which.look(context).await?;
                show::diff(context, &project, &before, after.as_ref()).await?;
            }
            ProjectCommand::Label { snapshot, label } => {
                upkeep::label(context, &which.look(context).await?, &snapshot, &label).await?;
            }
            ProjectCommand::Pin { snapshot, off } => {
                upkeep::pin(context, &which.look(context).await?, &snapshot, !off).await?;
            }
            ProjectCommand::Delete { snapshot } => {
                upkeep::delete(context, &which.look(context).await?, &snapshot).await?;
            }
            ProjectCommand::Verify { snapshot } => {
                return upkeep::verify(context, &which.look(context).await?, &snapshot).await;
            }
            ProjectCommand::Gc(gc) => return gc.run(context, &which).await,
            ProjectCommand::Duplicate { dir, id, snapshot } => {
                let project = which.look(context).await?;
                let duplicate = upkeep::duplicate(context, &project, &snapshot, &dir, &id);
                Box::pin(duplicate).await?;
            }
            ProjectCommand::Upgrade { command } => {
                let project = which.open(context).await?;
                return Box::pin(upkeep::upgrade(context, &project, &command)).await;
            }
            ProjectCommand::Autosave(autosave) => return autosave.run(context, &which).await,
        }
        Ok(Exit::Done)
    }
}

/// The directory of a tenant that is named by its path or as `dir:NAME`, with a store that must be there.
pub(super) async fn named_of(
    context: &CliContext,
    dir: &Path,
    tenant: &TenantId,
) -> anyhow::Result<project::Project> {
    let selector = ProjectSelector {
        tenant: tenant.clone(),
        ..ProjectSelector::of(dir)
    };
    selector.look(context).await
}

/// A directory that a server saves, with a store that is made if it is not there yet.
pub(super) async fn served(
    context: &CliContext,
    dir: &Path,
    tenant: &TenantId,
) -> anyhow::Result<project::Project> {
    let home = Home::find(dir, context.environment.local_dirs.state.as_deref()).await?;
    let engine = context.engine_at(location(context, &home)?, true).await?;
    Ok(engine.project(home, tenant, host(context)?))
}

impl ProjectSelector {
    pub(super) fn of(dir: &Path) -> Self {
        Self {
            project: dir.to_owned(),
            tenant: TenantId::default(),
        }
    }

    /// Whether nobody named a directory, and the one that we are in is no project and lies in none.
    fn is_nowhere(&self) -> bool {
        let here = Path::new(".");
        self.project == here && !Home::above(here).join(project::FILE).is_file()
    }

    /// The project, with a store that is made if it is not there yet.
    pub(super) async fn open(&self, context: &CliContext) -> anyhow::Result<project::Project> {
        self.opened(context, true).await
    }

    /// The project, with a store that must be there.
    pub(super) async fn look(&self, context: &CliContext) -> anyhow::Result<project::Project> {
        self.opened(context, false).await
    }

    async fn opened(&self, context: &CliContext, create: bool) -> anyhow::Result<project::Project> {
        let name = self.project.to_str();
        if let Some(name) = name.filter(|name| name.starts_with(DIR_PREFIX)) {
            let engine = context.engine().await?;
            let home = engine.named_directory(&self.tenant, name).await?;
            envelope::about(name);
            return Ok(engine.project(home, &self.tenant, host(context)?));
        }
        if let Some(session) = name.and_then(|name| name.strip_prefix(SESSION_PREFIX)) {
            let engine = context.engine().await?;
            let session = session.parse()?;
            let here = context.host(None)?;
            let opened = engine.session_directory(&session, &here, host(context)?);
            return Ok(opened.await?);
        }
        if let Some(container) = name.and_then(|name| name.strip_prefix(CONTAINER_PREFIX)) {
            let engine = context.engine().await?;
            let of = container_host(context, &self.tenant);
            let opened = engine.container_directory(&of, container, host(context)?);
            return Ok(opened.await?);
        }
        let state = context.environment.local_dirs.state.as_deref();
        // As with git, a command without a directory means the one that is saved and that one stands in.
        let dir = if self.project == Path::new(".") {
            Home::around(&self.project, state).await?
        } else {
            self.project.clone()
        };
        let home = Home::find(&dir, state).await?;
        let location = location(context, &home)?;
        let subject = if create || home.is_known() {
            typed_subject(&home)
        } else {
            home.dir.display().to_string()
        };
        envelope::about(subject);
        let is_own = home.own_store().map(StoreLocation::File) == Some(location.clone());
        let engine = match context.engine_at(location.clone(), create).await {
            // A project that was never saved has no store yet, and no snapshots.
            Err(error) if is_own && is_absent(&error) => context.engine_at(location, true).await?,
            opened => opened?,
        };
        Ok(engine.project(home, &self.tenant, host(context)?))
    }
}

/// A directory as a user names it; a project that has its snapshots beside it has no other name than its path.
pub(super) fn typed_subject(home: &Home) -> String {
    match home.own_store() {
        Some(_) => home.dir.display().to_string(),
        None => home.subject(),
    }
}

/// What opening a project takes of this host.
pub(super) fn host(context: &CliContext) -> anyhow::Result<Host> {
    Ok(Host {
        variables: context.environment.variables.clone(),
        check: spawn()?,
        watchdog: watchdog::HelperCommand::this_program(&["internal", "watchdog"]),
    })
}

/// Whether a store is not there.
pub(super) fn is_absent(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<Error>();
    error.is_some_and(|error| error.kind() == ErrorKind::NotFound)
}

/// Where the snapshots are: as the flag says, else as the project's file says, else in its state directory; those of a
/// plain directory are in the usual store.
fn location(context: &CliContext, home: &Home) -> anyhow::Result<StoreLocation> {
    let said = home.declared.as_ref();
    let said = said.and_then(|declared| declared.config.store.as_deref());
    match (context.store.as_deref().or(said), home.own_store()) {
        (None, Some(own)) => Ok(StoreLocation::File(own)),
        (said, _) => config::store(said, &context.environment, &context.config),
    }
}

/// Labels as people type them.
pub(super) fn labels(
    typed: &[String],
) -> anyhow::Result<std::collections::BTreeMap<String, Label>> {
    let one = |label: &String| {
        let (key, value) = label
            .split_once('=')
            .ok_or_else(|| anyhow::anyhow!("`{label}` is not KEY=VALUE"))?;
        Ok((key.to_owned(), value.parse()?))
    };
    typed.iter().map(one).collect()
}
