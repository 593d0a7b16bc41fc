//! What was done last to the live directory of a project by a restore, so that one word takes it back, or says that it cannot.
//!
//! *Always true:* the record is of the last act that changed the directory, on this host, and says which directory and which store that
//! were. It says "interrupted" before the first file is touched; what changed nothing leaves the record of before.

use super::{ProjectRestore, ProjectRestored, since};
use crate::bridge;
use crate::diff::TreeDifference;
use crate::dir_identity::DirIdentity;
use crate::error::{Error, ErrorKind, PlaceError, error_chain};
use crate::kind::project::Project;
use crate::warning::Warning;
use serde::{Deserialize, Serialize};
use stasis_disk::fs::atomic_write::{atomic_write, remove_durably};
use stasis_disk::progress::Progress;
use stasis_disk::tree::restore::is_part_of;
use stasis_model::failure::{AtPath, Failure};
use stasis_model::id::SnapshotId;
use stasis_model::invalid::Invalid;
use stasis_model::snapshot_ref::SnapshotRef;
use stasis_model::sqlite_file;
use stasis_model::time::Timestamp;
use stasis_model::tree::EntryPath;
use stasis_store::location::StoreLocation;
use std::ffi::OsStr;
use std::io::{self, Read as _};
use std::iter;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

const FILE: &str = "last_restore.json";
const VERSION: u32 = 1;
/// What the record says until a restore is over.
const INTERRUPTED: &str = "it was interrupted";

/// The last act that changed a directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RestoreRecord {
    version: u32,
    /// When it was over, in milliseconds since 1970.
    pub at_ms: u64,
    /// Which directory.
    dir: PathBuf,
    identity: Option<DirIdentity>,
    /// From which store.
    store: String,
    way_back: WayBack,
}

/// How it is taken back.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WayBack {
    /// By a restore of what was there before.
    Restore {
        safety_snapshot_id: SnapshotId,
        /// The entries that were asked for, as paths are displayed; none if that were all.
        paths: Vec<String>,
        except: Vec<String>,
        /// What was restored, so that it is known what that changed; older records do not say it.
        #[serde(default)]
        snapshot_id: Option<SnapshotId>,
        /// What of that was left as it was, though nobody asked for it.
        #[serde(default)]
        untouched: Vec<String>,
        latest: Option<LatestMove>,
    },
    /// Not at all.
    Nothing { because: String },
}

/// What `latest` meant before and after.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct LatestMove {
    from: Option<SnapshotId>,
    to: Option<SnapshotId>,
}

/// What is undone, and how.
#[derive(Clone, Debug, Default)]
pub struct UndoRestore {
    /// Only say what would change.
    pub dry_run: bool,
    /// Entries that are left as they are.
    pub except: Vec<EntryPath>,
    /// What was shown and agreed to; where something else would change, nothing does.
    pub agreed: Option<Vec<TreeDifference>>,
    /// Set by anybody at any time to give up.
    pub cancel: Arc<AtomicBool>,
    /// How far it has come.
    pub progress: Arc<Progress>,
}

impl RestoreRecord {
    /// What was restored, and what was there before; nothing where that cannot be taken back.
    pub(crate) fn restored(&self) -> Option<(&SnapshotId, &SnapshotId)> {
        match &self.way_back {
            WayBack::Restore {
                snapshot_id: Some(restored),
                safety_snapshot_id: safety,
                ..
            } => Some((restored, safety)),
            _ => None,
        }
    }

    /// What was there before; nothing where that cannot be taken back.
    pub fn before(&self) -> Option<&SnapshotId> {
        match &self.way_back {
            WayBack::Restore {
                safety_snapshot_id: safety,
                ..
            } => Some(safety),
            WayBack::Nothing { .. } => None,
        }
    }

    /// Whether it was from this store.
    pub(crate) fn is_from(&self, store: &StoreLocation) -> bool {
        self.store == store.to_string()
    }

    /// When a snapshot was restored, if that was what changed the directory last.
    pub(crate) fn restored_at(&self, id: &SnapshotId) -> Option<Timestamp> {
        match &self.way_back {
            WayBack::Restore { snapshot_id, .. } if snapshot_id.as_ref() == Some(id) => {
                Some(Timestamp::from_millis(self.at_ms))
            }
            _ => None,
        }
    }
}

impl WayBack {
    fn of(restored: &ProjectRestored) -> Self {
        let nothing = |because: String| Self::Nothing { because };
        if let Some(aside) = restored.set_aside.first() {
            let (path, kept_at) = (&aside.path, &aside.kept_at);
            return nothing(format!(
                "what it replaced was in no snapshot: `{path}` is kept at `{kept_at}`"
            ));
        }
        if let Some((path, why)) = restored.not_saved.first() {
            return nothing(format!("`{path}` could not be saved before it: {why}"));
        }
        let Some(safety) = restored.safety_snapshot_id.clone() else {
            return nothing("what was there before was not saved".to_owned());
        };
        let moved = restored.moved_latest.then(|| LatestMove {
            from: restored.seen.clone(),
            to: Some(restored.snapshot_id.clone()),
        });
        Self::Restore {
            safety_snapshot_id: safety,
            paths: restored.record_paths.clone(),
            except: restored.except.clone(),
            snapshot_id: Some(restored.snapshot_id.clone()),
            untouched: restored.changed_since.clone(),
            latest: restored.latest_move.clone().or(moved),
        }
    }
}

fn read(path: &Path) -> Result<Option<RestoreRecord>, Failure> {
    let bytes = match std::fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        bytes => bytes.at("read", path)?,
    };
    let record = serde_json::from_slice::<RestoreRecord>(&bytes).ok();
    // What cannot be read says nothing: the safety snapshots are in the log all the same.
    Ok(record.filter(|record| record.version == VERSION))
}

impl Project {
    fn record_file(&self) -> Option<PathBuf> {
        Some(self.own_place()?.join(FILE))
    }

    /// The last act that changed the directory, as far as it was a restore; none if another directory lies there by now.
    pub(crate) async fn last_restore(&self) -> Result<Option<RestoreRecord>, Error> {
        let Some(path) = self.record_file() else {
            return Ok(None);
        };
        let live = self.live();
        let found = bridge::blocking(move || {
            let (found, identity) = (read(&path)?, DirIdentity::of(&live));
            Ok::<_, Failure>(found.filter(|found| match (&found.identity, &identity) {
                (Some(was), Some(is)) => was.is_alike(is),
                (None, None) => found.dir == live,
                _ => false,
            }))
        });
        Ok(found.await?)
    }

    /// What takes the last restore back, and what that had restored: without them an undo takes back more, or nothing.
    pub async fn needed_for_undo(&self) -> Result<Vec<SnapshotId>, Error> {
        let record = self.last_restore().await?;
        let here = self.engine.location.to_string();
        let way_back = record.filter(|record| record.store == here);
        Ok(match way_back.map(|record| record.way_back) {
            Some(WayBack::Restore {
                safety_snapshot_id: safety,
                snapshot_id: restored,
                ..
            }) => iter::once(safety).chain(restored).collect(),
            _ => Vec::new(),
        })
    }

    /// The directory is about to change: until that is over, nothing takes it back.
    pub(super) async fn begin_record(&self) -> Result<(), Error> {
        self.write_record(WayBack::Nothing {
            because: INTERRUPTED.to_owned(),
        })
        .await
    }

    /// The directory was changed by something that only a snapshot takes back.
    pub(in crate::kind::project) async fn end_record(&self, because: &str) {
        let because = because.to_owned();
        let written = self.write_record(WayBack::Nothing { because }).await;
        noted(written);
    }

    async fn write_record(&self, way_back: WayBack) -> Result<(), Error> {
        let Some(path) = self.record_file() else {
            return Ok(());
        };
        let (live, at) = (self.live(), self.engine.clock.now());
        let store = self.engine.location.to_string();
        let written = bridge::blocking(move || {
            let record = RestoreRecord {
                version: VERSION,
                at_ms: at.millis(),
                identity: DirIdentity::of(&live),
                dir: live,
                store,
                way_back,
            };
            let bytes = serde_json::to_vec_pretty(&record).expect("plain fields are always JSON");
            atomic_write(&path, &bytes)
        });
        Ok(written.await?)
    }

    /// Does a restore, and writes down how it is taken back.
    pub(super) async fn restore_recorded(
        &self,
        command: ProjectRestore,
        latest: Option<LatestMove>,
    ) -> Result<ProjectRestored, Error> {
        let path = self.record_file();
        let before = match &path {
            Some(path) => {
                let path = path.clone();
                bridge::blocking(move || read(&path)).await?
            }
            None => None,
        };
        let is_whole_undo = command.except.is_empty();
        let restored = Box::pin(self.restore_locked(command)).await;
        let mut restored = match restored {
            // The next command brings it to its end.
            Err(error @ Error::Restore(PlaceError::HalfDone { .. })) => return Err(error),
            Err(error) => {
                noted(self.keep_record(before).await);
                return Err(error);
            }
            Ok(restored) if restored.is_unchanged() => {
                noted(self.keep_record(before).await);
                return Ok(restored);
            }
            Ok(restored) => restored,
        };
        let in_place = restored.in_place.as_ref();
        let is_partial = in_place.is_some_and(|changes| changes.is_partial);
        if let Some(moved) = latest.filter(|_| is_whole_undo && !is_partial) {
            // Only if nobody chose another one since.
            if restored.seen == moved.to {
                let seen = restored.seen.clone();
                let adopted = self
                    .adopt(moved.from.as_ref(), seen.as_ref(), &mut restored)
                    .await;
                restored.latest_move = adopted.then_some(LatestMove {
                    from: moved.to,
                    to: moved.from,
                });
            }
        }
        if !restored.undone {
            let way_back = WayBack::of(&restored);
            let is_one = matches!(way_back, WayBack::Restore { .. });
            let written = self.write_record(way_back).await;
            restored.can_be_undone = is_one && path.is_some() && written.is_ok();
            noted(written);
        }
        Ok(restored)
    }

    /// Makes the record what it was, because nothing was changed.
    async fn keep_record(&self, before: Option<RestoreRecord>) -> Result<(), Error> {
        let Some(path) = self.record_file() else {
            return Ok(());
        };
        let written = bridge::blocking(move || match before {
            Some(before) => {
                let bytes = serde_json::to_vec_pretty(&before);
                atomic_write(&path, &bytes.expect("plain fields are always JSON"))
            }
            None if path.exists() => remove_durably(&path),
            None => Ok(()),
        });
        Ok(written.await?)
    }

    /// Takes back the restore that changed the directory last: what it changed is as it was before, what was changed since and not by it
    /// stays, and `latest` means what it meant, unless somebody chose another one since. That can be taken back too.
    pub async fn undo_restore(
        &self,
        record: Option<&RestoreRecord>,
        command: UndoRestore,
    ) -> Result<ProjectRestored, Error> {
        let is_dry = command.dry_run;
        let mut lock = None;
        if !is_dry {
            self.ensure_not_renamed().await?;
            lock = self.exclusive("undo").await?;
            self.start_what_was_left().await?;
        }
        let found = self.last_restore().await?;
        if record.is_some() && record != found.as_ref() {
            let said = "the directory was restored by another process just now";
            let failure = Failure::of(ErrorKind::Retry, said);
            return Err(failure.with_hint("nothing was changed; look again").into());
        }
        let record = found.ok_or_else(|| {
            let said = "no restore of this directory is known that could be taken back";
            let failure = Failure::of(ErrorKind::NotFound, said);
            failure.with_hint("`stasis log` lists what was saved before restores; `stasis restore SNAPSHOT` brings it back")
        })?;
        let mut way = self.way_back(record, command)?;
        self.ensure_kept(&way.safety).await?;
        let warning = self.leave_untouched(&mut way).await?;
        let restored = if is_dry {
            Box::pin(self.restore_locked(way.restore)).await
        } else {
            self.restore_recorded(way.restore, way.latest).await
        };
        drop(lock);
        let mut restored = restored?;
        restored.warnings.extend(warning);
        Ok(restored)
    }

    /// A restore is taken back only with what was saved before it.
    async fn ensure_kept(&self, safety: &SnapshotId) -> Result<(), Error> {
        if self.index().await?.find(safety).is_some() {
            return Ok(());
        }
        let said = format!(
            "the last restore cannot be taken back: what was there before it was saved as {safety}, which was let go since"
        );
        let failure = Failure::of(ErrorKind::NotFound, said);
        let hint = "`stasis log` lists what there is; `stasis restore SNAPSHOT` brings it back";
        Err(failure.with_hint(hint).into())
    }

    /// Has an undo leave alone what was changed since, but not by the restore. A project with a file is one state with its databases, and
    /// goes back as a whole.
    async fn leave_untouched(&self, way: &mut UndoWay) -> Result<Option<Warning>, Error> {
        if self.home.declared.is_some() || !self.live().is_dir() {
            return Ok(None);
        }
        let index = self.index().await?;
        let safety = way.safety.clone();
        let is_kept = |id: &&SnapshotId| index.snapshots.iter().any(|one| one.id == **id);
        let Some(restored) = way.restored.as_ref().filter(is_kept) else {
            return Ok(Some(Warning::UndoneAsAWhole));
        };
        let (old, new) = (self.wanted(&safety), self.wanted(restored));
        let changed = self.engine.dirs().diff(&old, &new).await?.into_iter();
        let changed = changed.map(|one| Ok((one.path.parse::<EntryPath>()?, one.change)));
        let mut changed = changed
            .collect::<Result<Vec<_>, Invalid>>()
            .map_err(|error| unreadable(&error))?;
        changed.retain(|(path, _)| !way.was_left(path));
        let plan = self.plan_restore(&way.restore, &index, &safety).await?;
        let differing = self.would_change(&plan).await?;
        let live = self.live();
        let is_database =
            |path: &EntryPath| may_be_database(&live.join(OsStr::from_bytes(path.as_bytes())));
        way.restore.untouched = since::untouched(&differing, &changed, is_database);
        Ok(None)
    }

    /// The restore that takes back what a record is of.
    fn way_back(&self, record: RestoreRecord, command: UndoRestore) -> Result<UndoWay, Error> {
        let here = self.engine.location.to_string();
        if record.store != here {
            let store = &record.store;
            let said = format!("the last restore was from another store, `{store}`");
            let failure = Failure::of(ErrorKind::NotFound, said);
            let hint = format!("say `stasis undo --store {store}`");
            return Err(failure.with_hint(hint).into());
        }
        let WayBack::Restore {
            safety_snapshot_id: safety,
            paths,
            except,
            snapshot_id,
            untouched,
            latest,
        } = record.way_back
        else {
            return Err(no_way_back(&record.way_back));
        };
        let mut all_except = parsed(&except)?;
        let is_whole = all_except.is_empty() && paths.is_empty();
        let left = [&*all_except, &*parsed(&untouched)?].concat();
        all_except.extend(command.except);
        let restore = ProjectRestore {
            paths: parsed(&paths)?,
            except: all_except,
            dry_run: command.dry_run,
            takes_back: true,
            becomes_latest: false,
            agreed: command.agreed,
            cancel: command.cancel,
            progress: command.progress,
            ..ProjectRestore::new(SnapshotRef::Text(safety.to_string()))
        };
        Ok(UndoWay {
            restore,
            safety,
            restored: snapshot_id,
            left,
            latest: latest.filter(|_| is_whole),
        })
    }
}

/// How a restore is taken back.
struct UndoWay {
    restore: ProjectRestore,
    /// What was there before.
    safety: SnapshotId,
    /// What had been restored.
    restored: Option<SnapshotId>,
    /// What of that was left as it was.
    left: Vec<EntryPath>,
    latest: Option<LatestMove>,
}

impl UndoWay {
    fn was_left(&self, path: &EntryPath) -> bool {
        self.left.iter().any(|one| is_part_of(path, one))
    }
}

fn parsed(all: &[String]) -> Result<Vec<EntryPath>, Failure> {
    let all = all.iter().map(|path| path.parse::<EntryPath>());
    let all = all.collect::<Result<Vec<_>, _>>();
    all.map_err(|error| unreadable(&error))
}

fn unreadable(error: &Invalid) -> Failure {
    let said = format!("the record of the last restore cannot be read: {error}");
    Failure::of(ErrorKind::Corrupt, said)
}

fn no_way_back(way_back: &WayBack) -> Error {
    let because = match way_back {
        WayBack::Nothing { because } => because,
        WayBack::Restore { .. } => INTERRUPTED,
    };
    let said = format!("what was done last to it cannot be taken back: {because}");
    let failure = Failure::of(ErrorKind::NotFound, said);
    let hint = "`stasis log` lists what there is; `stasis restore SNAPSHOT` brings it back";
    failure.with_hint(hint).into()
}

/// Whether a file is a SQLite database, or is not there to be looked at.
fn may_be_database(path: &Path) -> bool {
    match path.symlink_metadata() {
        Ok(found) if found.is_file() => {}
        Ok(_) => return false,
        Err(error) => return error.kind() == io::ErrorKind::NotFound,
    }
    let mut start = [0; 16];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && start == *sqlite_file::HEADER
}

/// The state is what it should be, whatever becomes of what is written down.
fn noted(written: Result<(), Error>) {
    if let Err(error) = written {
        let error = error_chain(&error);
        tracing::warn!(error, "could not note how the restore is taken back");
    }
}
