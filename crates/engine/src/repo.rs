//! A repository: trees as chunks, saved again and again under names.

mod check;
mod damaged;
mod gc;
mod port;
mod references;
mod restore;
mod save;
mod show;

pub use check::{Damage, RepoChecked};
pub(crate) use damaged::log;
pub use damaged::{DamagedSnapshot, RepoLetGo};
pub use gc::{GcVerdict, RepoCollected, RepoForgotten, RepoGc};
pub(crate) use port::Fetching;
pub(crate) use restore::StagedSnapshot;
pub use restore::{BeforeRestore, InPlaceChanges, Placement, RepoRestore, RepoRestored, Undone};
pub use save::{
    Graft, IGNORE_FILE, LostDatabase, LostHow, NotConsistent, RepoSave, RepoSaved, VolumeFacts,
    patterns_in,
};
pub(crate) use show::no_entry;
pub use show::{Difference, ListedEntry, RepoStats, SnapshotRow};

use crate::error::Error;
use crate::open::Engine;
use serde::Serialize;
use stasis_model::id::{SnapshotId, SubjectName};
use stasis_model::manifest::{FileList, Index, Repo, SnapshotManifest, Unresolved};
use stasis_store::bucket::Swap;
use stasis_store::roots::Root;

/// A repository that was made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RepoMade {
    /// Where.
    pub repo: String,
    /// How bytes are cut and stored in it.
    pub settings: Repo,
}

/// Which snapshot is meant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// `latest`, an id or the beginning of one, or a label: see [`Index::resolve`].
    pub snapshot: String,
    /// Under which name; without, any.
    pub name: Option<SubjectName>,
}

/// A snapshot that was found and read.
#[derive(Clone, Debug)]
pub(crate) struct Opened {
    pub(crate) manifest: SnapshotManifest,
    pub(crate) list: FileList,
}

impl Engine {
    /// The repository at the root of the store, or wherever this engine is rooted.
    pub(crate) fn repo_root(&self) -> Root {
        Root::new(self.bucket.clone(), self.chunk_root.clone())
    }

    /// Makes a repository in the store.
    pub async fn repo_init(&self) -> Result<RepoMade, Error> {
        self.ensure_trusted().await?;
        let root = self.repo_root();
        let repo = self.location.to_string();
        if root.repo().await?.is_some() {
            return Err(Error::RepoExists(repo));
        }
        let settings = Repo::new(self.lineages.now(), self.chance.op_id());
        let swap = root.init(&settings).await?;
        let found = root.repo().await?;
        match (swap, found) {
            (Swap::Won(_), _) => {}
            (_, Some(found)) if found.op_id == settings.op_id => {}
            (_, Some(_)) => return Err(Error::RepoExists(repo)),
            (_, None) => return Err(Error::NoRepo(repo)),
        }
        Ok(RepoMade { repo, settings })
    }

    /// What the repository says of itself, if this build may read it.
    pub(crate) async fn repo_settings(&self, root: &Root) -> Result<Repo, Error> {
        let found = root.repo().await?;
        let repo = found.ok_or_else(|| Error::NoRepo(self.location.to_string()))?;
        repo.check_readable()?;
        Ok(repo)
    }

    /// The index; empty before the first save.
    pub(crate) async fn repo_index(&self, root: &Root) -> Result<Index, Error> {
        let found = root.index().await?;
        Ok(found.map_or_else(Index::empty, |found| found.value))
    }

    /// Finds the snapshot that is meant.
    pub(crate) fn resolve(&self, index: &Index, wanted: &Wanted) -> Result<SnapshotId, Error> {
        let none = || Error::NoSuchSnapshot {
            wanted: match &wanted.name {
                Some(name) => format!("{}` of `{name}", wanted.snapshot),
                None => wanted.snapshot.clone(),
            },
            repo: self.location.to_string(),
        };
        match index.resolve(wanted.name.as_ref(), &wanted.snapshot) {
            Ok(one) => Ok(one.id.clone()),
            Err(Unresolved::Absent | Unresolved::NoLatest) => Err(none()),
            Err(Unresolved::Ambiguous(count)) => Err(Error::Ambiguous {
                wanted: wanted.snapshot.clone(),
                count,
            }),
        }
    }

    /// Reads a snapshot that the index leads to, and checks that it is the one.
    pub(crate) async fn open_snapshot(
        &self,
        root: &Root,
        index: &Index,
        id: &SnapshotId,
    ) -> Result<Opened, Error> {
        let lost = || Error::LostManifest(id.clone());
        let (_, indexed) = index.find(id).ok_or_else(lost)?;
        let (manifest, digest) = root.manifest(id).await?.ok_or_else(lost)?;
        if digest != indexed.manifest_sha256 {
            return Err(lost());
        }
        let entries = manifest.list().map_err(|source| Error::UnfitSnapshot {
            snapshot: id.clone(),
            source,
        })?;
        Ok(Opened {
            manifest,
            list: entries,
        })
    }
}
