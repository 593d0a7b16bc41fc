//! Databases that live in servers: restored beside the ones in use, and renamed into their places.
//!
//! A tree and several databases cannot be swapped in one act. So a mark is written durably before the first swap, and removed
//! after the last: whoever finds it knows that a restore came to no end, and saves nothing until it was done again.

use super::command::{KeptDatabase, ProjectRestore};
use super::plan::ProjectPlan;
use crate::bridge;
use crate::error::{Error, ProjectError};
use crate::kind::project::capture::dump_in;
use crate::kind::project::{Declared, Project, or_cancelled};
use crate::restore::RepoRestore;
use stasis_disk::fs::{atomic_write, remove};
use stasis_disk::tree::staging_view::{self, StagingView};
use stasis_model::failure::AtPath;
use stasis_model::format::manifest::Consistency;
use stasis_model::id::{SnapshotId, VolumeName};
use stasis_model::project::{ProjectConfig, VolumeConfig};
use stasis_model::time::Timestamp;
use stasis_model::tree::EntryPath;
use stasis_quiesce::postgres::{self, PostgresError, RestoredDatabase, StagedRestore, Tag};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// How long a database that a restore left is kept.
const KEPT_FOR: Duration = Duration::from_hours(7 * 24);

/// How many names are tried for a database that is staged.
const TAGS: usize = 8;

/// A database that was restored under another name.
pub(super) struct StagedDatabase {
    volume: VolumeName,
    staged: StagedRestore,
}

/// A database that was renamed into its place.
pub(super) struct SwappedDatabase {
    pub(super) volume: VolumeName,
    restored: RestoredDatabase,
}

fn failed(volume: &VolumeName) -> impl FnOnce(PostgresError) -> Error {
    let volume = volume.clone();
    move |source| {
        let source = Box::new(source);
        ProjectError::Postgres { volume, source }.into()
    }
}

/// Where the dump of a volume is in a tree.
fn dump_path(config: &ProjectConfig, name: &VolumeName) -> EntryPath {
    let dump = format!("{name}.dump");
    let place = config.place_of(name);
    place.child(dump.as_bytes()).expect("it is made of names")
}

impl Declared {
    fn mark(&self) -> PathBuf {
        self.state.join(".stasis/restoring")
    }

    /// The volumes that live in servers.
    pub(in crate::kind::project) fn servers_of(&self) -> impl Iterator<Item = &VolumeName> {
        let all = self.config.volumes.iter();
        all.filter(|(_, one)| one.consistency == Consistency::Postgres)
            .map(|(name, _)| name)
    }

    /// Where the dumps are in a tree.
    pub(super) fn dumps(&self) -> Vec<EntryPath> {
        let dump = |name: &VolumeName| dump_path(&self.config, name);
        self.servers_of().map(dump).collect()
    }

    /// The directory of a volume.
    pub(super) fn volume_directory(&self, name: &VolumeName) -> PathBuf {
        let place = self.config.place_of(name);
        self.current().join(OsStr::from_bytes(place.as_bytes()))
    }

    /// The directories of volumes in servers, which have nothing in them.
    pub(super) fn server_directories(&self) -> Vec<(VolumeName, PathBuf)> {
        // In the application's own tree nothing but dumps lies there.
        if self.is_in_place() {
            return Vec::new();
        }
        self.servers_of()
            .map(|name| (name.clone(), self.volume_directory(name)))
            .collect()
    }
}

impl Project {
    /// Restores the dumps of the planned volumes into databases beside the ones in use.
    pub(super) async fn stage_dumps(
        &self,
        declared: &Declared,
        command: &ProjectRestore,
        plan: &ProjectPlan,
    ) -> Result<Vec<StagedDatabase>, Error> {
        if plan.source.servers.is_empty() {
            return Ok(Vec::new());
        }
        let dump = |name: &VolumeName| dump_path(&declared.config, name);
        let dumps = plan.source.servers.iter().map(dump).collect();
        let place = declared.state.join(".stasis");
        let scratch = bridge::blocking(move || {
            let looks = staging_view::look_at(place.parent().unwrap_or(&place))?.metadata();
            StagingView::make(&place, looks)
        });
        let scratch = scratch.await?;
        let tree = scratch.root().join("tree");
        let restore = RepoRestore {
            only: dumps,
            ..self.repo_restore_of(command, &plan.source.snapshot, &tree)
        };
        let _ = self.engine.dirs().restore(restore).await?;
        let staged = self
            .stage_databases(declared, plan, &tree, &command.cancel)
            .await;
        bridge::blocking(move || drop(scratch)).await;
        staged
    }

    /// Restores the dumps in a tree into databases beside the ones in use: all of them, or none.
    async fn stage_databases(
        &self,
        declared: &Declared,
        plan: &ProjectPlan,
        tree: &Path,
        cancel: &AtomicBool,
    ) -> Result<Vec<StagedDatabase>, Error> {
        let mut all = Vec::new();
        for name in &plan.source.servers {
            let volume = &declared.config.volumes[name];
            let place = declared.config.place_of(name).to_string();
            let dump = dump_in(&tree.join(place), name);
            let staged = self.stage_database(name, volume, &dump, cancel).await;
            match staged {
                Ok(staged) => all.push(staged),
                Err(error) => {
                    discard(all).await;
                    return Err(error);
                }
            }
        }
        Ok(all)
    }

    async fn stage_database(
        &self,
        name: &VolumeName,
        volume: &VolumeConfig,
        dump: &Path,
        cancel: &AtomicBool,
    ) -> Result<StagedDatabase, Error> {
        let (connection, settings) = (self.connection(name, volume)?, self.postgres());
        // Whoever finds what is left sees from its name how old it is.
        let now = self.engine.clock.now().millis() / 1000;
        let mut tag = Tag::at_second(u32::try_from(now).unwrap_or(u32::MAX));
        for _ in 0..TAGS {
            let staging = postgres::stage(&connection, dump, &tag, &settings);
            match or_cancelled(cancel, staging).await {
                Ok(Err(PostgresError::Exists { .. })) => {
                    tag = Tag::at_second(tag.second().wrapping_add(1));
                }
                Ok(staged) => {
                    return Ok(StagedDatabase {
                        volume: name.clone(),
                        staged: staged.map_err(failed(name))?,
                    });
                }
                Err(error) => {
                    // Dropped half-way, it may have left a database that nobody uses.
                    let _ = postgres::discard_staged(&connection, &tag, &settings).await;
                    return Err(error);
                }
            }
        }
        let exists = PostgresError::Exists {
            name: connection.database().to_owned(),
        };
        Err(failed(name)(exists))
    }

    /// Says which databases restores left on the servers of some volumes, and removes those that are old.
    ///
    /// A server that does not answer is not asked further: what is on it is found the next time.
    pub(in crate::kind::project) async fn kept_databases(
        &self,
        declared: &Declared,
        volumes: &[VolumeName],
    ) -> Vec<KeptDatabase> {
        let (mut found, settings) = (Vec::new(), self.postgres());
        let now = self.engine.clock.now();
        for name in volumes {
            let volume = declared.config.volumes.get(name);
            let connection = volume.and_then(|volume| self.connection(name, volume).ok());
            let Some(connection) = connection else {
                continue;
            };
            let left = match postgres::leftovers(&connection, &settings).await {
                Ok(left) => left,
                Err(error) => {
                    tracing::warn!(volume = %name, %error, "the server was not asked for old databases");
                    continue;
                }
            };
            for one in left {
                let since = Timestamp::from_millis(u64::from(one.second) * 1000);
                let is_old = now.since(since) > KEPT_FOR;
                let removed = is_old
                    && postgres::drop_leftover(&connection, &one, &settings)
                        .await
                        .is_ok();
                found.push(KeptDatabase {
                    volume: name.clone(),
                    database: one.name,
                    since: since.to_string(),
                    since_ms: since.millis(),
                    removed,
                });
            }
        }
        found
    }

    /// Whether a restore came to no end, and to which snapshot it was to lead.
    pub(in crate::kind::project) async fn half_restored(&self) -> Option<String> {
        let mark = self.home.declared.as_ref()?.mark();
        bridge::blocking(move || std::fs::read_to_string(mark).ok()).await
    }

    /// Says durably that a restore is at work, or is done.
    pub(super) async fn mark_restore(&self, snapshot: Option<&SnapshotId>) -> Result<(), Error> {
        // A plain directory has no databases in servers.
        let Some(declared) = &self.home.declared else {
            return Ok(());
        };
        let (mark, words) = (declared.mark(), snapshot.map(ToString::to_string));
        bridge::blocking(move || match words {
            Some(words) => Ok(atomic_write::atomic_write(&mark, words.as_bytes())?),
            None => Ok(remove::file_at(&mark).at("read", &mark)?),
        })
        .await
    }
}

/// Why databases are not in their places.
pub(super) enum SwapFailed {
    /// Everything is what it was.
    Undone(Error),
    /// Nobody knows.
    Unknown(Error),
}

/// Renames databases into their places: all of them, or none, unless nobody can tell.
pub(super) async fn swap(all: Vec<StagedDatabase>) -> Result<Vec<SwappedDatabase>, SwapFailed> {
    let mut done: Vec<SwappedDatabase> = Vec::new();
    let mut rest = all.into_iter();
    while let Some(StagedDatabase { volume, staged }) = rest.next() {
        let spare = staged.clone();
        let error = match staged.swap().await {
            Ok(restored) => {
                done.push(SwappedDatabase { volume, restored });
                continue;
            }
            Err(error) => error,
        };
        let is_unknown = matches!(error, PostgresError::SwapUnknown { .. });
        let error = failed(&volume)(error);
        if is_unknown {
            return Err(SwapFailed::Unknown(error));
        }
        swap_back(done).await.map_err(SwapFailed::Unknown)?;
        let this = StagedDatabase {
            volume,
            staged: spare,
        };
        discard(std::iter::once(this).chain(rest).collect()).await;
        return Err(SwapFailed::Undone(error));
    }
    Ok(done)
}

/// Puts the databases that were there before back into their places.
pub(super) async fn swap_back(done: Vec<SwappedDatabase>) -> Result<(), Error> {
    for SwappedDatabase { volume, restored } in done.into_iter().rev() {
        let staged = restored.swap_back().await.map_err(failed(&volume))?;
        discard(vec![StagedDatabase { volume, staged }]).await;
    }
    Ok(())
}

/// Removes databases that are not needed; what cannot be removed is only in the way of nobody.
pub(super) async fn discard(all: Vec<StagedDatabase>) {
    for StagedDatabase { volume, staged } in all {
        if let Err(error) = staged.discard().await {
            tracing::warn!(%volume, %error, "a database that was staged could not be removed");
        }
    }
}

/// Removes the databases that were in the places before.
pub(super) async fn drop_backup(all: Vec<SwappedDatabase>) {
    for SwappedDatabase { volume, restored } in all {
        let kept = restored.backup().map(str::to_owned);
        if let Err(error) = restored.drop_backup().await {
            tracing::warn!(%volume, ?kept, %error, "the database that was replaced could not be removed");
        }
    }
}
