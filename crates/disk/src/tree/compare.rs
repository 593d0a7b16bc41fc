//! What differs between a tree and a list of what it was.
//!
//! Names, kinds, lengths and metadata are compared from the walk; the contents of files that have the same length are read
//! and digested, whatever their times say: an edit that keeps length and time is seen.

use crate::fs::fd::c_name;
use crate::fs::root_dir::RootDir;
use rustix::io::Errno;
use stasis_model::digest::{FileDigest, FileHasher};
use stasis_model::tree::diff::{
    ChangeKind, ContentChange, DiffError, DigestedEntry, EntryDifference, diff,
};
use stasis_model::tree::{Entry, EntryPath};
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;

/// What became of the entries of a list in a tree, in the order of paths. `live` is what a walk found in the tree, `listed`
/// comes in order too.
pub fn compare_live<E>(
    root: &RootDir,
    live: Vec<Entry>,
    listed: impl Iterator<Item = Result<DigestedEntry, E>>,
) -> Result<Vec<(EntryPath, ChangeKind)>, DiffError<E>> {
    let live = live.into_iter().map(|entry| {
        let digest = None;
        Ok(DigestedEntry { entry, digest })
    });
    let found = diff(listed, live, |was, is| {
        EntryDifference::between(&was.entry, &is.entry, || {
            // What cannot be read cannot be called the same.
            match digest(root, &is.entry.path) {
                Ok(digest) if Some(digest) == was.digest => ContentChange::Same,
                _ => ContentChange::Changed,
            }
        })
    });
    let found = found.map(|change| change.map(|change| (change.path().clone(), change.kind())));
    found.collect()
}

fn digest(root: &RootDir, path: &EntryPath) -> std::io::Result<FileDigest> {
    let (above, name) = path.split_last().ok_or(Errno::INVAL)?;
    let directory = root.directory(above.as_bytes())?;
    let name = c_name(name)?;
    digest_of(File::from(root.file(directory.as_fd(), &name)?))
}

/// The digest of what is in a file, from where it stands.
pub fn digest_of(mut file: File) -> std::io::Result<FileDigest> {
    let (mut hasher, mut buffer) = (FileHasher::default(), vec![0; 256 << 10]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.finish()),
            read => hasher.update(&buffer[..read]),
        }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests write files")]
mod tests {
    use super::*;
    use crate::fs::root_dir::Mounts;
    use crate::tree::walk::{self, WalkSettings};
    use std::collections::BTreeMap;
    use std::path::Path;

    fn entries(root: &Path) -> (Vec<Entry>, BTreeMap<EntryPath, FileDigest>) {
        let root_dir = RootDir::open(root, Mounts::Stay).unwrap();
        let (entries, _) = walk::list(&root_dir, &WalkSettings::default()).unwrap();
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

        let root_dir = RootDir::open(place.path(), Mounts::Stay).unwrap();
        let (live, _) = walk::list(&root_dir, &WalkSettings::default()).unwrap();
        let listed = was.into_iter().map(|entry| {
            let digest = digests.get(&entry.path).copied();
            Ok::<_, std::convert::Infallible>(DigestedEntry { entry, digest })
        });
        let found = compare_live(&root_dir, live, listed).unwrap();

        let words: Vec<(String, &str)> = found
            .iter()
            .map(|(path, change)| (path.to_string(), change.word()))
            .collect();
        let expected = [
            ("edited", "content"),
            ("gone", "removed"),
            ("new", "added"),
            ("turned", "kind"),
        ];
        assert_eq!(words, expected.map(|(path, word)| (path.to_owned(), word)));
    }
}
