//! A volume of SQLite databases: each is copied within one read transaction, everything beside them as it is.

use super::ProjectCapture;
use crate::error::{Error, ProjectError};
use serde_json::json;
use stasis_disk::tree::clone::{self, CloneSettings};
use stasis_disk::tree::staging_view;
use stasis_disk::tree::walk::WalkSettings;
use stasis_model::failure::AtPath;
use stasis_model::format::manifest::Consistency;
use stasis_model::id::VolumeName;
use stasis_model::tree::FileTime;
use stasis_quiesce::sqlite::{
    self, CaptureMethod, Integrity, SqliteCaptured, SqliteSettings, WalCheckpoint,
};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What SQLite keeps beside a database.
const COMPANIONS: [&str; 4] = ["", "-wal", "-shm", "-journal"];

impl ProjectCapture {
    /// Copies the databases of a volume, and what lies beside them.
    pub(in crate::kind::project) fn sqlite_volume(
        &mut self,
        name: &VolumeName,
        source: &Path,
        cancel: &Arc<AtomicBool>,
    ) -> Result<(), Error> {
        let failed = |source| ProjectError::Sqlite {
            volume: name.clone(),
            source: Box::new(source),
        };
        let target = self.place_of(name);
        let databases = sqlite::find_databases(source).at("read", source)?;
        let mut within: Vec<PathBuf> = databases
            .iter()
            .filter_map(|path| path.strip_prefix(source).ok().map(Path::to_owned))
            .collect();
        clone_rest(source, &target, &within, cancel)?;
        // One that was made meanwhile was cloned as any file: it is captured as the others are.
        let late = sqlite::find_databases(&target).unwrap_or_default();
        let late = late
            .iter()
            .filter_map(|path| path.strip_prefix(&target).ok());
        within.extend(late.map(Path::to_owned));
        within.sort();
        within.dedup();
        let settings = SqliteSettings {
            cancel: cancel.clone(),
            ..SqliteSettings::default()
        };
        let (mut described_all, mut is_all_checked) = (serde_json::Map::new(), true);
        let mut newest: BTreeMap<PathBuf, FileTime> = BTreeMap::new();
        for path in &within {
            let (from, to) = (source.join(path), target.join(path));
            for end in COMPANIONS {
                // The clone has what could not be left out by its name.
                let mut copied = to.clone().into_os_string();
                copied.push(end);
                stasis_disk::fs::remove::file_at(Path::new(&copied)).at("read", &to)?;
            }
            let captured = sqlite::capture(&from, &to, &settings).map_err(failed)?;
            is_all_checked &= captured.integrity == Integrity::Ok;
            described_all.insert(path.display().to_string(), described(&captured));
            note_time(&to, &mut newest);
        }
        self.settle_times(newest)?;
        let integrity = if is_all_checked {
            "ok"
        } else {
            "ok_except_unchecked"
        };
        let mut facts = self.facts(name, Consistency::Sqlite, "files", integrity);
        facts
            .manifest
            .details
            .insert("databases".to_owned(), described_all.into());
        self.volumes.insert(name.to_string(), facts);
        Ok(())
    }

    /// Directories of databases get the time of the newest one: journals that come and go would change it all the time.
    fn settle_times(&mut self, newest: BTreeMap<PathBuf, FileTime>) -> Result<(), Error> {
        for (directory, modified) in newest {
            let mut looks = staging_view::look_at(&directory)?.metadata();
            looks.modified = modified;
            self.view.shall_look(directory, looks);
        }
        Ok(())
    }
}

/// Clones everything but the databases.
fn clone_rest(
    source: &Path,
    target: &Path,
    databases: &[PathBuf],
    cancel: &Arc<AtomicBool>,
) -> Result<(), Error> {
    let names = databases.iter().filter_map(|path| path.to_str());
    let excludes = names.flat_map(|name| COMPANIONS.map(|end| exactly(&format!("{name}{end}"))));
    let settings = CloneSettings {
        walk: WalkSettings {
            excludes: excludes.collect(),
            cancel: cancel.clone(),
            ..WalkSettings::default()
        },
        ..CloneSettings::default()
    };
    let _ = clone::clone(source, target, &settings)?;
    Ok(())
}

/// A pattern that fits this path and nothing else.
fn exactly(path: &str) -> String {
    let mut pattern = String::from("/");
    for letter in path.chars() {
        if matches!(
            letter,
            '\\' | '*' | '?' | '[' | ']' | '{' | '}' | '!' | '#' | ' '
        ) {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern
}

fn note_time(path: &Path, newest: &mut BTreeMap<PathBuf, FileTime>) {
    let (Some(above), Ok(seen)) = (path.parent(), path.symlink_metadata()) else {
        return;
    };
    let modified = FileTime {
        seconds: seen.mtime(),
        nanos: u32::try_from(seen.mtime_nsec()).unwrap_or_default(),
    };
    let known = newest.entry(above.to_owned()).or_insert(modified);
    let key = |time: &FileTime| (time.seconds, time.nanos);
    if key(known) < key(&modified) {
        *known = modified;
    }
}

fn described(captured: &SqliteCaptured) -> serde_json::Value {
    json!({
        "bytes": captured.bytes,
        "schemaVersion": captured.schema_version,
        "checkpoint": match captured.checkpoint {
            WalCheckpoint::NotNeeded => "not_needed",
            WalCheckpoint::Done => "done",
            WalCheckpoint::Busy { .. } => "busy",
            WalCheckpoint::ReadOnly => "read_only",
        },
        "unchecked": match &captured.integrity {
            Integrity::OkExcept { unchecked } => unchecked.clone(),
            _ => Vec::new(),
        },
        "stillness": match captured.method {
            CaptureMethod::Locked => "locked",
            CaptureMethod::ReadOnly => "read_only",
            CaptureMethod::Unmoved => "unmoved",
            CaptureMethod::Empty => "empty",
        },
    })
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests write files")]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_signs_in_it_is_left_out_and_others_that_the_signs_would_fit_are_not() {
        let place = tempfile::tempdir().unwrap();
        let source = place.path().join("source");
        std::fs::create_dir(&source).unwrap();
        for name in ["a[1]*.db", "a1x.db", "#b !.db", "b"] {
            std::fs::write(source.join(name), name).unwrap();
        }
        let target = place.path().join("target");

        let databases = ["a[1]*.db", "#b !.db"].map(PathBuf::from);
        clone_rest(&source, &target, &databases, &Arc::default()).unwrap();

        let mut left: Vec<_> = std::fs::read_dir(&target)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left, ["a1x.db", "b"]);
    }
}
