//! Databases that live in servers: restored beside the ones in use, and renamed into their places.
//!
//! A tree and several databases cannot be swapped in one act. So a mark is written durably before the first swap, and removed
//! after the last: whoever finds it knows that a restore came to no end, and saves nothing until it was done again.

use crate::bridge;
use crate::error::Error;
use crate::project::capture::dump_in;
use crate::project::{Declared, Project, ProjectError};
use stasis_disk::{atomic_write, remove};
use stasis_model::id::{SnapshotId, VolumeName};
use stasis_model::manifest::Consistency;
use stasis_quiesce::postgres::{self, PostgresError, Restored, Staged};
use std::path::{Path, PathBuf};

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
}

impl Project {
    /// Restores the dumps of a tree into databases beside the ones in use, and takes the dumps out of the tree.
    pub(super) async fn stage_databases(
        &self,
        declared: &Declared,
        tree: &Path,
    ) -> Result<Vec<StagedDatabase>, Error> {
        let mut all = Vec::new();
        for (name, volume) in &declared.config.volumes {
            let dump = dump_in(&tree.join("volumes").join(name.as_str()), name);
            if volume.consistency != Consistency::Postgres || !dump.is_file() {
                continue;
            }
            let mut bytes = [0; 4];
            self.engine.chance.fill(&mut bytes);
            let tag = format!("{:08x}", u32::from_be_bytes(bytes));
            let tag = tag.parse().expect("it is eight digits");
            let connection = self.connection(name, volume)?;
            let staged = postgres::stage(&connection, &dump, &tag, &self.postgres()).await;
            let staged = match staged.map_err(failed(name)) {
                Ok(staged) => staged,
                Err(error) => {
                    discard(all).await;
                    return Err(error);
                }
            };
            all.push(StagedDatabase {
                volume: name.clone(),
                staged,
            });
            bridge::blocking(move || remove::file_at(&dump))
                .await
                .map_err(|source| Error::Unreadable {
                    path: tree.to_owned(),
                    source: source.into(),
                })?;
        }
        Ok(all)
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

/// Renames databases into their places: all of them, or none.
pub(super) async fn swap(all: Vec<StagedDatabase>) -> Result<Vec<SwappedDatabase>, Error> {
    let mut done: Vec<SwappedDatabase> = Vec::new();
    let mut rest = all.into_iter();
    while let Some(StagedDatabase { volume, staged }) = rest.next() {
        match staged.swap().await {
            Ok(restored) => done.push(SwappedDatabase { volume, restored }),
            Err(error) => {
                for SwappedDatabase { volume, restored } in done.into_iter().rev() {
                    let staged = restored.swap_back().await.map_err(failed(&volume))?;
                    let _ = staged.discard().await;
                }
                discard(rest.collect()).await;
                return Err(failed(&volume)(error));
            }
        }
    }
    Ok(done)
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
