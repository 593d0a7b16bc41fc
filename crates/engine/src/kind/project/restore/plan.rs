//! What a restore touches, decided before anything is written: a dry run shows it, and a real run does just that.

use super::command::ProjectRestore;
use crate::bridge;
use crate::catalog::{ChunkFetcher, OpenedSnapshot, no_entry};
use crate::error::{Error, ErrorKind, ProjectError, error_chain};
use crate::kind::project::{Declared, Project};
use crate::restore::RestorePlan;
use stasis_disk::form::chunked::list::ListReader;
use stasis_model::format::manifest::{Consistency, FileList, SnapshotIndex, SnapshotManifest};
use stasis_model::id::{SnapshotId, VolumeName};
use stasis_model::tree::EntryPath;

/// A restore of a project whose every argument was found right.
pub(in crate::kind::project) type ProjectPlan = RestorePlan<ProjectSource>;

/// What a project becomes.
#[derive(Clone, Debug)]
pub(in crate::kind::project) struct ProjectSource {
    pub(super) snapshot: SnapshotId,
    /// Whether that is only a part of the project's state.
    pub(super) is_of_part: bool,
    /// The entries that somebody asked for, volumes by their places; none if everything is restored.
    pub(super) asked: Vec<EntryPath>,
    /// Those of the wanted entries that are files of the tree: everything if the plan is whole.
    pub(super) files: Vec<EntryPath>,
    /// The volumes in servers whose databases are replaced.
    pub(super) servers: Vec<VolumeName>,
}

impl ProjectPlan {
    /// Whether anything of the tree is restored.
    pub(super) fn has_files(&self) -> bool {
        self.is_whole() || !self.source.files.is_empty()
    }

    /// Whether all of the state is restored, so that it is what the snapshot says.
    pub(super) fn is_all(&self) -> bool {
        self.is_whole() && self.except.is_empty() && !self.source.is_of_part
    }
}

impl Project {
    /// Checks every argument of a restore against the snapshot, and says what it touches. Nothing is written.
    pub(super) async fn plan_restore(
        &self,
        command: &ProjectRestore,
        index: &SnapshotIndex,
        id: &SnapshotId,
    ) -> Result<ProjectPlan, Error> {
        let mut only: Vec<EntryPath> = Vec::new();
        if !command.volumes.is_empty() {
            let config = &self.home.declared()?.config;
            let volumes = command.volumes.iter();
            only.extend(volumes.map(|name| config.place_of(name)));
        }
        let root = self.engine.dirs().root();
        let opened = self.engine.dirs().open_snapshot(&root, index, id).await?;
        only.extend(command.paths.iter().cloned());
        let asked = only.clone();
        let live = self.live();
        self.engine
            .dirs()
            .ensure_known(&root, &opened, &live, &command.except)
            .await?;
        let source = opened.fetcher(&root);
        let OpenedSnapshot { manifest, list, .. } = opened;
        if !only.is_empty() {
            let wanted = asked.clone();
            let found = bridge::blocking(move || find(&wanted, &source, &list)).await?;
            if let Some(at) = found.missing.filter(|_| !command.takes_back) {
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
        let servers = self.servers_restored(&only, &command.except, &manifest);
        let places: Vec<EntryPath> = match &self.home.declared {
            Some(declared) => {
                let servers = servers.iter();
                servers.map(|one| declared.config.place_of(one)).collect()
            }
            None => Vec::new(),
        };
        let in_server = |path: &EntryPath| places.iter().any(|place| path.is_within(place));
        let files = only.iter().filter(|path| !in_server(path)).cloned();
        let source = ProjectSource {
            snapshot: id.clone(),
            is_of_part: manifest.is_part,
            asked,
            files: files.collect(),
            servers,
        };
        Ok(RestorePlan {
            only,
            except: [&*command.except, &*command.untouched].concat(),
            ..RestorePlan::whole(source)
        })
    }

    /// The volumes in servers that a snapshot has a dump of, and that are wanted.
    fn servers_restored(
        &self,
        only: &[EntryPath],
        except: &[EntryPath],
        manifest: &SnapshotManifest,
    ) -> Vec<VolumeName> {
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
            let is_left = except.iter().any(|one| at.is_within(one));
            !is_left && (only.is_empty() || only.iter().any(touches))
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

/// A project's declaration, less what a safety save and a comparison do not capture of it: a restore must not need what it is
/// there to replace.
///
/// Volumes that are not restored are not captured. One that cannot be (a damaged database, a server that is down) is left
/// out, and everything else is captured all the same.
#[derive(Clone, Debug)]
pub(in crate::kind::project) struct CaptureScope {
    /// What is captured in its own way.
    pub(super) declared: Declared,
    /// Patterns of what is not read at all.
    pub(super) excludes: Vec<String>,
    /// What could not be captured, and why.
    pub(super) failed: Vec<(VolumeName, String)>,
}

impl CaptureScope {
    /// The volumes that a plan touches, as far as they are there.
    pub(super) fn of(declared: &Declared, plan: &ProjectPlan) -> Self {
        let mut scope = Self {
            declared: declared.clone(),
            excludes: Vec::new(),
            failed: Vec::new(),
        };
        for (name, volume) in &declared.config.volumes {
            let is_server = volume.consistency == Consistency::Postgres;
            let at = declared.config.place_of(name);
            let is_touched = plan.is_whole()
                || plan.source.servers.contains(name)
                || plan
                    .source
                    .files
                    .iter()
                    .any(|one| one.is_within(&at) || at.is_within(one));
            if !is_touched || plan.leaves(&at) {
                scope.leave_out(name);
            } else if !is_server && !declared.volume_directory(name).exists() {
                // Nothing is there to be captured.
                scope.declared.config.volumes.remove(name);
            }
        }
        scope
    }

    fn leave_out(&mut self, name: &VolumeName) {
        let place = self.declared.config.place_of(name);
        self.declared.config.volumes.remove(name);
        self.excludes.push(format!("/{place}"));
    }

    /// Goes on without what an error is about; the error comes back when that is nothing that can be left out.
    pub(super) fn without(&mut self, error: Error) -> Result<(), Error> {
        let kind = error.kind();
        let Error::Project(inner) = &error else {
            return self.without_clones(error);
        };
        if kind == ErrorKind::Cancelled {
            return Err(error);
        }
        let volume = match &**inner {
            ProjectError::Sqlite { volume, .. }
            | ProjectError::Postgres { volume, .. }
            | ProjectError::Url { volume, .. }
            | ProjectError::NoVariable { volume, .. } => volume.clone(),
            ProjectError::Pause(..) | ProjectError::PauseBroken { .. } | ProjectError::Place(_) => {
                return self.without_clones(error);
            }
            _ => return Err(error),
        };
        if !self.declared.config.volumes.contains_key(&volume) {
            return Err(error);
        }
        self.leave_out(&volume);
        self.failed.push((volume, error_chain(&error)));
        Ok(())
    }

    /// Volumes that could not be cloned are read where they are, as every other file.
    fn without_clones(&mut self, error: Error) -> Result<(), Error> {
        if !matches!(error, Error::Project(_) | Error::Clone(_)) {
            return Err(error);
        }
        let volumes = &mut self.declared.config.volumes;
        let before = volumes.len();
        volumes.retain(|_, volume| volume.consistency != Consistency::Generic);
        if volumes.len() == before {
            return Err(error);
        }
        Ok(())
    }
}
