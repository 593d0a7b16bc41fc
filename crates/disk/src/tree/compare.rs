//! What differs between a tree and a list of what it was.
//!
//! Names, kinds, lengths and metadata are compared from the walk; the contents of files that have the same length are read
//! and digested, whatever their times say: an edit that keeps length and time is seen.

use crate::fs::root_dir::RootDir;
use crate::tree::walk::{self, WalkError, WalkReport, WalkSettings};
use rustix::io::Errno;
use stasis_model::digest::{FileDigest, FileHasher};
use stasis_model::tree::{Entry, EntryKind, EntryPath};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;

/// What became of an entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Change {
    /// The tree has it, the list has not.
    Added,
    /// The list has it, the tree has not.
    Removed,
    /// It is another kind of thing.
    Kind,
    /// It has another content, or leads elsewhere.
    Content,
    /// It has another owner, mode, time or attribute.
    Metadata,
}

impl Change {
    /// The word for it in results.
    pub fn word(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Removed => "removed",
            Self::Kind => "kind",
            Self::Content => "content",
            Self::Metadata => "metadata",
        }
    }
}

/// A tree that is being compared, entry by entry of a list.
#[derive(Debug)]
pub struct Comparison<'a> {
    root: &'a RootDir,
    live: BTreeMap<EntryPath, Entry>,
    found: BTreeMap<EntryPath, Change>,
}

impl<'a> Comparison<'a> {
    /// Walks the tree.
    pub fn begin(
        root: &'a RootDir,
        settings: &WalkSettings,
    ) -> Result<(Self, WalkReport), WalkError> {
        let (entries, report) = walk::list(root, settings)?;
        let live = entries.into_iter().map(|entry| (entry.path.clone(), entry));
        let comparison = Self {
            root,
            live: live.collect(),
            found: BTreeMap::new(),
        };
        Ok((comparison, report))
    }

    /// Compares the entry of the tree that has the path of one of the list.
    pub fn listed(&mut self, was: &Entry, digest: Option<&FileDigest>) {
        let change = match self.live.remove(&was.path) {
            None => Some(Change::Removed),
            Some(is) => self.change(was, digest, &is),
        };
        if let Some(change) = change {
            self.found.insert(was.path.clone(), change);
        }
    }

    fn change(&self, was: &Entry, digest: Option<&FileDigest>, is: &Entry) -> Option<Change> {
        if std::mem::discriminant(&was.kind) != std::mem::discriminant(&is.kind) {
            return Some(Change::Kind);
        }
        if was.kind != is.kind {
            return Some(Change::Content);
        }
        let is_file = matches!(is.kind, EntryKind::File { .. });
        // What cannot be read cannot be called the same.
        if is_file && self.digest(&is.path).ok().as_ref() != digest {
            return Some(Change::Content);
        }
        (was != is).then_some(Change::Metadata)
    }

    fn digest(&self, path: &EntryPath) -> std::io::Result<FileDigest> {
        let (above, name) = path.split_last().ok_or(Errno::INVAL)?;
        let directory = self.root.directory(above.as_bytes())?;
        let name = CString::new(name).map_err(|_| Errno::INVAL)?;
        let mut file = File::from(self.root.file(directory.as_fd(), &name)?);
        let (mut hasher, mut buffer) = (FileHasher::default(), vec![0; 256 << 10]);
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok(hasher.finish()),
                read => hasher.update(&buffer[..read]),
            }
        }
    }

    /// Everything that differs, in the order of paths.
    pub fn finish(mut self) -> Vec<(EntryPath, Change)> {
        let added = self.live.into_keys().map(|path| (path, Change::Added));
        self.found.extend(added);
        self.found.into_iter().collect()
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests write files")]
mod tests {
    use super::*;
    use crate::fs::root_dir::Mounts;
    use std::path::Path;

    fn entries(root: &Path) -> (Vec<Entry>, BTreeMap<EntryPath, FileDigest>) {
        let beneath = RootDir::open(root, Mounts::Stay).unwrap();
        let (entries, _) = walk::list(&beneath, &WalkSettings::default()).unwrap();
        let digest = |entry: &Entry| {
            let bytes = std::fs::read(root.join(entry.path.to_string())).ok()?;
            let mut hasher = FileHasher::default();
            hasher.update(&bytes);
            Some((entry.path.clone(), hasher.finish()))
        };
        let digests = entries.iter().filter_map(digest).collect();
        (entries, digests)
    }

    #[test]
    fn an_edit_that_keeps_length_and_time_is_seen() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        for name in ["same", "edited", "gone", "turned"] {
            std::fs::write(at(name), name).unwrap();
        }
        let (was, digests) = entries(place.path());
        let time = std::fs::metadata(at("edited")).unwrap().modified().unwrap();
        std::fs::write(at("edited"), "EDITED").unwrap();
        let edited = File::options().write(true).open(at("edited")).unwrap();
        edited.set_modified(time).unwrap();
        std::fs::remove_file(at("gone")).unwrap();
        std::fs::remove_file(at("turned")).unwrap();
        std::fs::create_dir(at("turned")).unwrap();
        std::fs::write(at("new"), "new").unwrap();

        let beneath = RootDir::open(place.path(), Mounts::Stay).unwrap();
        let (mut comparison, _) = Comparison::begin(&beneath, &WalkSettings::default()).unwrap();
        for entry in &was {
            comparison.listed(entry, digests.get(&entry.path));
        }
        let found = comparison.finish();

        let told: Vec<(String, &str)> = found
            .iter()
            .map(|(path, change)| (path.to_string(), change.word()))
            .collect();
        let expected = [
            ("edited", "content"),
            ("gone", "removed"),
            ("new", "added"),
            ("turned", "kind"),
        ];
        assert_eq!(told, expected.map(|(path, word)| (path.to_owned(), word)));
    }
}
