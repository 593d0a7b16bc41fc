//! Databases that live in servers: restored beside the ones in use, and renamed into their places.
//!
//! A tree and several databases cannot be swapped in one act. So a mark is written durably before the first swap, and removed
//! after the last: whoever finds it knows that a restore came to no end, and saves nothing until it was done again.

use crate::bridge;
use crate::error::Error;
use crate::project::capture::dump_in;
use crate::project::{Declared, Project, ProjectError, ProjectRestore, or_cancelled};
use crate::repo::RepoRestore;
use stasis_disk::skeleton::{self, Skeleton};
use stasis_disk::{atomic_write, remove};
use stasis_model::id::{SnapshotId, VolumeName};
use stasis_model::manifest::Consistency;
use stasis_model::project::VolumeConfig;
use stasis_model::tree::EntryPath;
use stasis_quiesce::postgres::{self, PostgresError, Restored, Staged};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// A database that was restored under another name.
pub(super) struct StagedDatabase {
    volume: VolumeName,
    staged: Staged,
}

/// A database that was renamed into its place.
pub(super) struct SwappedDatabase {
    volume: VolumeName,
    restored: Restored,
}

fn failed(volume: &VolumeName) -> impl FnOnce(PostgresError) -> Error {
    let volume = volume.clone();
    move |source| {
        let source = Box::new(source);
        ProjectError::Postgres { volume, source }.into()
    }
}

impl Declared {
    fn mark(&self) -> PathBuf {
        self.state.join(".stasis/restoring")
    }

    /// The volumes that live in servers.
    fn servers_of(&self) -> impl Iterator<Item = &VolumeName> {
        let all = self.config.volumes.iter();
        all.filter(|(_, one)| one.consistency == Consistency::Postgres)
            .map(|(name, _)| name)
    }

    /// Where the dumps are in a tree.
    pub(super) fn dumps(&self) -> Vec<EntryPath> {
        let dump = |name: &VolumeName| {
            let path = format!("volumes/{name}/{name}.dump");
            EntryPath::parse(path.as_bytes()).expect("it is made of names")
        };
        self.servers_of().map(dump).collect()
    }

    /// Whether a path is a volume that lives in a server, or lies in one.
    pub(super) fn is_in_server(&self, path: &EntryPath) -> bool {
        let path = path.to_string();
        self.servers_of().any(|name| {
            let rest = path.strip_prefix(&format!("volumes/{name}"));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }

    /// The directories of those volumes, which have nothing in them.
    pub(super) fn server_directories(&self) -> Vec<(VolumeName, PathBuf)> {
        let volumes = self.current().join("volumes");
        self.servers_of()
            .map(|name| (name.clone(), volumes.join(name.as_str())))
            .collect()
    }
}

impl Project {
    /// Restores dumps of a snapshot into databases beside the ones in use: those of some volumes, or of all.
    pub(super) async fn stage_dumps(
        &self,
        declared: &Declared,
        (command, id): (&ProjectRestore, &SnapshotId),
        volumes: Vec<EntryPath>,
    ) -> Result<Vec<StagedDatabase>, Error> {
        let index = self.index().await?;
        let root = self.engine.repo_root();
        let opened = self.engine.open_snapshot(&root, &index, id).await?;
        let is_kept = |path: &EntryPath| {
            let mut names = opened.manifest.volume_manifests.iter();
            names.any(|(name, one)| {
                one.consistency == Consistency::Postgres
                    && path.to_string().starts_with(&format!("volumes/{name}/"))
            })
        };
        let is_asked = |dump: &EntryPath| {
            let mut asked = volumes.iter();
            volumes.is_empty() || asked.any(|one| dump.to_string().starts_with(&one.to_string()))
        };
        let dumps = declared.dumps().into_iter();
        let dumps: Vec<EntryPath> = dumps
            .filter(|dump| is_kept(dump) && is_asked(dump))
            .collect();
        if dumps.is_empty() {
            return Ok(Vec::new());
        }
        let place = declared.state.join(".stasis");
        let scratch = bridge::blocking(move || {
            let looks = skeleton::look_at(place.parent().unwrap_or(&place))?.metadata();
            Skeleton::make(&place, looks)
        });
        let scratch = scratch.await?;
        let tree = scratch.root().join("tree");
        let restore = RepoRestore {
            only: dumps,
            ..self.repo_restore_of(command, id, &tree)
        };
        let _ = self.engine.repo_restore(restore).await?;
        let staged = self.stage_databases(declared, &tree, &command.cancel).await;
        bridge::blocking(move || drop(scratch)).await;
        staged
    }

    /// Restores the dumps in a tree into databases beside the ones in use: all of them, or none.
    async fn stage_databases(
        &self,
        declared: &Declared,
        tree: &Path,
        cancel: &AtomicBool,
    ) -> Result<Vec<StagedDatabase>, Error> {
        let mut all = Vec::new();
        for (name, volume) in &declared.config.volumes {
            let dump = dump_in(&tree.join("volumes").join(name.as_str()), name);
            if volume.consistency != Consistency::Postgres || !dump.is_file() {
                continue;
            }
            let staged = self.stage_database((name, volume), &dump, cancel).await;
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
        (name, volume): (&VolumeName, &VolumeConfig),
        dump: &Path,
        cancel: &AtomicBool,
    ) -> Result<StagedDatabase, Error> {
        let mut bytes = [0; 4];
        self.engine.chance.fill(&mut bytes);
        let tag = format!("{:08x}", u32::from_be_bytes(bytes));
        let tag = tag.parse().expect("it is eight digits");
        let (connection, settings) = (self.connection(name, volume)?, self.postgres());
        let staging = postgres::stage(&connection, dump, &tag, &settings);
        match or_cancelled(cancel, staging).await {
            Ok(staged) => Ok(StagedDatabase {
                volume: name.clone(),
                staged: staged.map_err(failed(name))?,
            }),
            Err(error) => {
                // Dropped half-way, it may have left a database that nobody uses.
                let _ = postgres::discard_staged(&connection, &tag, &settings).await;
                Err(error)
            }
        }
    }

    /// Whether a restore came to no end, and to which snapshot it was to lead.
    pub(in crate::project) async fn half_restored(&self) -> Option<String> {
        let mark = self.home.declared.as_ref()?.mark();
        bridge::blocking(move || std::fs::read_to_string(mark).ok()).await
    }

    /// Says durably that a restore is at work, or is done.
    pub(super) async fn mark_restore(
        &self,
        declared: &Declared,
        snapshot: Option<&SnapshotId>,
    ) -> Result<(), Error> {
        let (mark, words) = (declared.mark(), snapshot.map(ToString::to_string));
        bridge::blocking(move || match words {
            Some(words) => Ok(atomic_write::atomic_write(&mark, words.as_bytes())?),
            None => remove::file_at(&mark).map_err(|source| Error::Unreadable {
                path: mark.clone(),
                source: source.into(),
            }),
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
pub(super) async fn drop_kept(all: Vec<SwappedDatabase>) {
    for SwappedDatabase { volume, restored } in all {
        let kept = restored.kept().map(str::to_owned);
        if let Err(error) = restored.drop_kept().await {
            tracing::warn!(%volume, ?kept, %error, "the database that was replaced could not be removed");
        }
    }
}
