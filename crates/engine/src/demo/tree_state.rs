//! A directory as it is read back, by plain system calls and nothing of the engine that the demo shows.

use crate::error::Error;
use stasis_model::digest::FileDigest;
use stasis_model::failure::AtPath;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What identifies a file's state.
type FileState = (FileDigest, u32);

/// Every file of a directory by its path, with digest and mode.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct DemoTreeState {
    files: BTreeMap<PathBuf, FileState>,
    /// The length of all files together.
    pub(super) bytes: u64,
}

impl DemoTreeState {
    /// Reads everything.
    pub(super) fn read(directory: &Path) -> Result<Self, Error> {
        let mut state = Self::default();
        for path in files_in(directory)? {
            let content = fs::read(&path).at("read", &path)?;
            let mode = fs::symlink_metadata(&path).at("read", &path)?.mode();
            state.bytes += content.len() as u64;
            let within = path.strip_prefix(directory).unwrap_or(&path).to_owned();
            state.files.insert(within, (FileDigest::of(&content), mode));
        }
        Ok(state)
    }

    /// How many files there are outside of `.git`.
    pub(super) fn count(&self) -> u64 {
        self.files.keys().filter(|path| is_work(path)).count() as u64
    }

    /// How many files outside of `.git` are in both and the same.
    pub(super) fn same(&self, other: &Self) -> u64 {
        let is_same = |(path, state): &(&PathBuf, &FileState)| {
            is_work(path) && other.files.get(*path) == Some(*state)
        };
        self.files.iter().filter(is_same).count() as u64
    }

    /// How many files, those in `.git` too, are in one of them only or differ.
    pub(super) fn differences(&self, other: &Self) -> u64 {
        let missing = |one: &Self, other: &Self| {
            let differs =
                |(path, state): &(&PathBuf, &FileState)| other.files.get(*path) != Some(*state);
            one.files
                .iter()
                .filter(differs)
                .map(|(path, _)| path.clone())
                .collect::<Vec<_>>()
        };
        let mut all = missing(self, other);
        all.extend(missing(other, self));
        all.sort();
        all.dedup();
        all.len() as u64
    }
}

fn is_work(path: &Path) -> bool {
    !path.starts_with(".git")
}

/// Every file beneath a directory; links are not followed.
fn files_in(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let (mut found, mut left) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).at("list", &directory)? {
            let entry = entry.at("list", &directory)?;
            let path = entry.path();
            if entry.file_type().at("read", &path)?.is_dir() {
                left.push(path);
            } else {
                found.push(path);
            }
        }
    }
    Ok(found)
}

/// What the files beneath a directory take of the disk.
pub(super) fn allocated(directory: &Path) -> Result<u64, Error> {
    let mut bytes = 0;
    for path in files_in(directory)? {
        bytes += fs::symlink_metadata(&path).at("read", &path)?.blocks() * 512;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::disallowed_methods, reason = "a file of a test")]
    fn write(directory: &Path, name: &str, text: &str) {
        let path = directory.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn what_is_missing_new_or_other_differs_and_git_is_no_work() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (name, text) in [
            ("same", "1"),
            ("changed", "1"),
            ("gone", "1"),
            (".git/HEAD", "1"),
        ] {
            write(one.path(), name, text);
        }
        for (name, text) in [
            ("same", "1"),
            ("changed", "2"),
            ("new", "1"),
            (".git/HEAD", "2"),
        ] {
            write(other.path(), name, text);
        }
        let (one, other) = (
            DemoTreeState::read(one.path()).unwrap(),
            DemoTreeState::read(other.path()).unwrap(),
        );

        assert_eq!((one.count(), other.count()), (3, 3));
        assert_eq!(one.same(&other), 1);
        assert_eq!(one.differences(&other), 4);
        assert_eq!(one.differences(&one), 0);
    }
}
