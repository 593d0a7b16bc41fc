//! What a restore touches, decided before anything is written: a dry run shows it, and a real run does just that.

use crate::bridge;
use crate::catalog::{ChunkFetcher, OpenedSnapshot, no_entry};
use crate::error::Error;
use crate::kind::project::{Project, ProjectError, ProjectRestore};
use stasis_disk::form::chunked::list::ListReader;
use stasis_disk::tree::restore;
use stasis_model::format::manifest::{Consistency, FileList, SnapshotIndex, SnapshotManifest};
use stasis_model::id::{SnapshotId, VolumeName};
use stasis_model::tree::EntryPath;

/// A restore whose every argument was found right.
#[derive(Clone, Debug)]
pub(in crate::kind::project) struct RestorePlan {
    /// What the project becomes.
    pub(super) snapshot: SnapshotId,
    /// Whether that is only a part of the project's state.
    pub(super) is_of_part: bool,
    /// The entries that are wanted; everything if none is named.
    pub(super) only: Vec<EntryPath>,
    /// Those of them that are files of the tree: everything if the plan is whole.
    pub(super) files: Vec<EntryPath>,
    /// Entries that are left as they are.
    pub(super) except: Vec<EntryPath>,
    /// The volumes in servers whose databases are replaced.
    pub(super) servers: Vec<VolumeName>,
}

impl RestorePlan {
    /// Whether everything is restored.
    pub(super) fn is_whole(&self) -> bool {
        self.only.is_empty()
    }

    /// Whether anything of the tree is restored.
    pub(super) fn has_files(&self) -> bool {
        self.is_whole() || !self.files.is_empty()
    }

    /// Whether an entry is among those that are restored.
    pub(super) fn is_wanted(&self, path: &EntryPath) -> bool {
        let is_named = |one: &EntryPath| path.is_within(one) || path.is_companion_of(one);
        let is_excepted = self.except.iter().any(|one| restore::is_part_of(path, one));
        !is_excepted && (self.is_whole() || self.only.iter().any(is_named))
    }

    /// Whether all of an entry stays as it is because that was asked for.
    pub(super) fn leaves(&self, path: &EntryPath) -> bool {
        self.except.iter().any(|one| path.is_within(one))
    }
}

impl Project {
    /// Checks every argument of a restore against the snapshot, and says what it touches. Nothing is written.
    pub(super) async fn plan_restore(
        &self,
        command: &ProjectRestore,
        index: &SnapshotIndex,
        id: &SnapshotId,
    ) -> Result<RestorePlan, Error> {
        let mut only: Vec<EntryPath> = Vec::new();
        if !command.volumes.is_empty() {
            let config = &self.home.declared()?.config;
            let volumes = command.volumes.iter();
            only.extend(volumes.map(|name| config.place_of(name)));
        }
        let root = self.engine.dirs().root();
        let opened = self.engine.dirs().open_snapshot(&root, index, id).await?;
        only.extend(command.paths.iter().cloned());
        let OpenedSnapshot { manifest, list } = opened;
        let live = self.live();
        let engine = &self.engine;
        engine
            .dirs()
            .ensure_known(&live, &command.except, id, &list)
            .await?;
        if !only.is_empty() {
            let (asked, source) = (only.clone(), ChunkFetcher::new(root));
            let found = bridge::blocking(move || find(&asked, &source, &list)).await?;
            if let Some(at) = found.missing {
                return Err(match command.volumes.get(at) {
                    Some(volume) => ProjectError::NoVolume {
                        project: self.home.id.clone(),
                        snapshot: id.clone(),
                        volume: volume.clone(),
                    }
                    .into(),
                    None => no_entry("entry", &only[at], id),
                });
            }
            only.extend(found.companions);
        }
        let mut servers = self.servers_restored(&only, &manifest);
        if let Some(declared) = &self.home.declared {
            let is_left = |one: &VolumeName| {
                let at = declared.config.place_of(one);
                command.except.iter().any(|except| at.is_within(except))
            };
            servers.retain(|one| !is_left(one));
        }
        let places: Vec<EntryPath> = match &self.home.declared {
            Some(declared) => {
                let servers = servers.iter();
                servers.map(|one| declared.config.place_of(one)).collect()
            }
            None => Vec::new(),
        };
        let in_server = |path: &EntryPath| places.iter().any(|place| path.is_within(place));
        let files = only.iter().filter(|path| !in_server(path)).cloned();
        Ok(RestorePlan {
            is_of_part: manifest.is_part,
            snapshot: id.clone(),
            files: files.collect(),
            except: command.except.clone(),
            only,
            servers,
        })
    }

    /// The volumes in servers that a snapshot has a dump of, and that are wanted.
    fn servers_restored(&self, only: &[EntryPath], manifest: &SnapshotManifest) -> Vec<VolumeName> {
        let Some(declared) = &self.home.declared else {
            return Vec::new();
        };
        let is_kept = |name: &VolumeName| {
            let kept = manifest.volume_manifests.get(name.as_str());
            kept.is_some_and(|one| one.consistency == Consistency::Postgres)
        };
        let is_wanted = |name: &VolumeName| {
            let at = declared.config.place_of(name);
            let touches = |one: &EntryPath| one.is_within(&at) || at.is_within(one);
            only.is_empty() || only.iter().any(touches)
        };
        let all = declared.servers_of();
        all.filter(|name| is_kept(name) && is_wanted(name))
            .cloned()
            .collect()
    }
}

/// What a list says of entries that were asked for.
struct FoundEntries {
    /// The first that the list does not have.
    missing: Option<usize>,
    /// What SQLite keeps beside those that are databases.
    companions: Vec<EntryPath>,
}

fn find(
    asked: &[EntryPath],
    source: &ChunkFetcher,
    list: &FileList,
) -> Result<FoundEntries, Error> {
    let mut reader = ListReader::new(source, list)?;
    let mut missing: Vec<usize> = (0..asked.len()).collect();
    let mut companions = Vec::new();
    while let Some(row) = reader.next_row()? {
        let path = row.entry.path;
        missing.retain(|at| !path.is_within(&asked[*at]));
        if asked.iter().any(|one| path.is_companion_of(one)) {
            companions.push(path);
        }
    }
    Ok(FoundEntries {
        missing: missing.first().copied(),
        companions,
    })
}
