//! What a run left that nobody saved: `<dir>.unsaved-<time>`, beside the directory.
//!
//! A load meets a directory that a browser worked in and nobody saved, because the run died. What is in it is moved under
//! a name of its own, with a record of what it derives from, so that `save --dir` of that name publishes it or diverges
//! as the directory itself would have. *Always true:* a copy in which nothing changed since it was loaded is none; of
//! others the newest few are kept, and what is removed is said.

use super::record::Record;
use crate::address::as_typed_if_known;
use crate::bridge;
use crate::error::{Error, ProfileError};
use crate::warning::Warning;
use schemars::JsonSchema;
use serde::Serialize;
use stasis_disk::fs::remove;
use stasis_disk::tree::restore;
use stasis_model::digest::ArchiveDigest;
use stasis_model::failure::AtPath;
use stasis_model::id::Lineage;
use stasis_model::time::Timestamp;
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// How many copies of one directory are kept.
const MOST: usize = 5;
/// What stands between the name of the directory and the time.
const MARK: &str = ".unsaved-";

/// A copy that nobody has saved.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct UnsavedCopy {
    /// Where it is.
    pub path: String,
    /// Of which lineage, when its record says so.
    #[serde(serialize_with = "as_typed_if_known")]
    #[schemars(with = "Option<String>")]
    pub subject: Option<Lineage>,
    /// The snapshot that it derives from.
    pub base_sha256: Option<ArchiveDigest>,
    /// When the run began that left it.
    pub began_at: Option<String>,
    /// The same in milliseconds.
    pub began_at_ms: Option<Timestamp>,
    /// The length of all files.
    pub bytes: u64,
}

/// Where what was in a directory is now.
pub(super) struct Kept {
    pub(super) path: PathBuf,
    pub(super) warnings: Vec<Warning>,
}

/// Gives what a run left a name of its own, if anything in it is worth one.
pub(super) async fn keep(kept: PathBuf, dir: &Path, record: Record, at: Timestamp) -> Kept {
    let (copy, began) = (kept.clone(), record.at_ms);
    if bridge::blocking(move || !is_touched(&copy, began)).await {
        return Kept {
            path: kept,
            warnings: Vec::new(),
        };
    }
    let (from, stem) = (
        kept.clone(),
        format!("{}{MARK}{}", dir.display(), at.stamp()),
    );
    let moved = bridge::blocking(move || rename_aside(&from, &stem)).await;
    let path = moved.unwrap_or(kept);
    let shown = path.display().to_string();
    let mut warnings = vec![Warning::UnsavedStateKept { path: shown }];
    if let Err(error) = record.write(&path).await {
        let reason = crate::error::error_chain(&error);
        warnings.push(Warning::RecordNotWritten { reason });
    }
    let dir = dir.to_owned();
    let removed = bridge::blocking(move || remove_surplus(&dir)).await;
    warnings.extend(removed.into_iter().map(|path| Warning::UnsavedRemoved {
        path: path.display().to_string(),
    }));
    Kept { path, warnings }
}

/// Renames what was left; two runs may die within the second that a name tells.
fn rename_aside(from: &Path, stem: &str) -> Option<PathBuf> {
    let further = (2..100).map(|number| format!("{stem}-{number:02}"));
    let names = std::iter::once(stem.to_owned()).chain(further);
    let mut free = names.map(PathBuf::from).filter(|name| !name.exists());
    free.find(|name| restore::rename(from, name).is_ok())
}

/// Whether anything beneath a directory changed after a moment. The directory itself was renamed, which changes it.
fn is_touched(dir: &Path, since: Timestamp) -> bool {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return true;
    };
    entries.into_iter().any(|entry| {
        let Ok(entry) = entry else { return true };
        let Ok(seen) = entry.metadata() else {
            return true;
        };
        let millis = seen.ctime() * 1000 + seen.ctime_nsec() / 1_000_000;
        let changed = u64::try_from(millis).unwrap_or(0) > since.millis();
        changed || (seen.is_dir() && is_touched(&entry.path(), since))
    })
}

/// The copies of one directory, the oldest first.
fn copies_of(dir: &Path) -> Vec<PathBuf> {
    let Some((parent, name)) = dir.parent().zip(dir.file_name()) else {
        return Vec::new();
    };
    let begin = format!("{}{MARK}", name.to_string_lossy());
    let is_copy = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(&begin) && is_named_so(path)
    };
    let mut copies: Vec<PathBuf> = directories_in(parent).filter(is_copy).collect();
    copies.sort();
    copies
}

fn directories_in(parent: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    let is_directory =
        |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    entries.filter(is_directory).map(|entry| entry.path())
}

fn is_named_so(path: &Path) -> bool {
    let name = path.file_name().map(OsStr::to_string_lossy);
    name.is_some_and(|name| name.contains(MARK))
}

fn remove_surplus(dir: &Path) -> Vec<PathBuf> {
    let copies = copies_of(dir);
    let surplus = copies.len().saturating_sub(MOST);
    let surplus = copies.into_iter().take(surplus);
    surplus.filter(|copy| remove_one(copy).is_ok()).collect()
}

fn remove_one(copy: &Path) -> Result<(), Error> {
    let removed = remove::tree_at(copy).and_then(|()| remove::file_at(&Record::path(copy)));
    Ok(removed.at("read", copy)?)
}

/// The copies that lie in some directories, the oldest first.
pub async fn unsaved_in(parents: Vec<PathBuf>) -> Vec<UnsavedCopy> {
    let found = bridge::blocking(move || {
        let all = parents.iter().flat_map(|parent| directories_in(parent));
        let mut all: Vec<PathBuf> = all.filter(|path| is_named_so(path)).collect();
        all.sort();
        all.dedup();
        all.into_iter()
            .map(|path| (bytes_of(&path), path))
            .collect::<Vec<_>>()
    });
    let mut copies = Vec::new();
    for (bytes, path) in found.await {
        let record = Record::of(&path).await;
        copies.push(UnsavedCopy {
            path: path.display().to_string(),
            base_sha256: record.as_ref().and_then(|record| record.sha256),
            began_at: record.as_ref().map(|record| record.at_ms.to_string()),
            began_at_ms: record.as_ref().map(|record| record.at_ms),
            subject: record.map(|record| record.subject),
            bytes,
        });
    }
    copies
}

fn bytes_of(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(seen) if seen.is_dir() => bytes_of(&entry.path()),
        Ok(seen) if seen.is_file() => seen.len(),
        _ => 0,
    });
    sizes.fold(0, u64::saturating_add)
}

/// Removes a copy that nobody wants to save, and its record.
pub async fn discard_unsaved(copy: PathBuf) -> Result<(), Error> {
    let is_directory = copy.symlink_metadata().is_ok_and(|seen| seen.is_dir());
    if !is_directory || !is_named_so(&copy) {
        return Err(ProfileError::NotUnsaved(copy).into());
    }
    bridge::blocking(move || remove_one(&copy)).await
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test makes its tree")]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_copy_is_touched_when_anything_in_it_changed() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("p");
        fs::create_dir_all(dir.join("Default")).unwrap();
        fs::write(dir.join("Default/state"), "a").unwrap();
        let changed = fs::metadata(dir.join("Default/state")).unwrap().ctime();
        let at = |seconds: i64| Timestamp::from_millis(u64::try_from(seconds * 1000).unwrap());

        assert!(!is_touched(&dir, at(changed + 1)));
        assert!(is_touched(&dir, at(changed - 1)));
    }

    #[tokio::test]
    async fn only_what_is_named_so_is_discarded() {
        let home = tempfile::tempdir().unwrap();
        let (mine, copy) = (home.path().join("p"), home.path().join("p.unsaved-1"));
        fs::create_dir(&mine).unwrap();
        fs::create_dir(&copy).unwrap();

        assert!(discard_unsaved(mine.clone()).await.is_err());
        discard_unsaved(copy.clone()).await.unwrap();

        assert!(mine.exists() && !copy.exists());
    }
}
