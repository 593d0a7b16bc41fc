//! A walk in order, by one worker: every entry is shown exactly where it stands in the sorted tree.
//!
//! *Always true:* a directory is shown, open, directly before what it holds; memory and descriptors do not grow with the
//! tree, except for the names in the directories on the way to where the walk is. A file with several names is shown
//! under each of them as a file: in order, whoever remembers the first needs no second look.

use super::names::Names;
use super::report::Notes;
use super::{
    Excludes, WalkError, WalkReport, WalkSettings, WalkedDir, WalkedEntry, go_on, kind_of, open,
};
use crate::fs::metadata::{self, Seen};
use crate::fs::root_dir::RootDir;
use stasis_model::failure::AtPath;
use stasis_model::tree::{EntryKind, EntryPath};
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Somebody to whom a tree is shown in order.
pub trait InOrder {
    /// Why it would not go on.
    type Error: From<WalkError>;

    /// Sees an open directory before everything in it; the root is the first.
    fn directory(
        &mut self,
        path: &EntryPath,
        fd: BorrowedFd<'_>,
        seen: &Seen,
    ) -> Result<(), Self::Error>;

    /// Sees an entry that is no directory.
    fn entry(&mut self, place: &WalkedDir<'_>, found: &WalkedEntry<'_>) -> Result<(), Self::Error>;
}

/// Shows everything beneath `root` to `visitor`, sorted by path.
pub fn walk_in_order<V: InOrder>(
    root: &RootDir,
    visitor: &mut V,
    settings: &WalkSettings,
) -> Result<WalkReport, V::Error> {
    let excludes = Excludes::new(&settings.excludes)?;
    let mut walk = OrderedWalk {
        root,
        visitor,
        settings,
        excludes: &excludes,
        notes: Notes::default(),
        levels: Vec::new(),
    };
    walk.run()?;
    Ok(walk.notes.close())
}

/// A directory on the way, and how far it has been shown.
struct Level {
    path: EntryPath,
    names: Names,
    next: usize,
}

struct OrderedWalk<'a, V> {
    root: &'a RootDir,
    visitor: &'a mut V,
    settings: &'a WalkSettings,
    excludes: &'a Excludes,
    notes: Notes,
    levels: Vec<Level>,
}

impl<V: InOrder> OrderedWalk<'_, V> {
    fn run(&mut self) -> Result<(), V::Error> {
        let mut open = self.enter(EntryPath::root())?;
        while let Some(level) = self.levels.last() {
            let path = level.path.clone();
            // Coming back from below, the directory is opened again: depth costs no descriptors.
            let fd = match open.take() {
                Some(fd) => Some(fd),
                None if level.next < level.names.len() => self.open(&path)?,
                None => None,
            };
            let below = match &fd {
                Some(fd) => self.show(&path, fd)?,
                None => None,
            };
            match below {
                Some(below) => open = self.enter(below)?,
                None => {
                    self.levels.pop();
                }
            }
        }
        Ok(())
    }

    fn open(&self, path: &EntryPath) -> Result<Option<OwnedFd>, WalkError> {
        open(self.root, path, &self.notes, self.settings.strict)
    }

    /// Opens a directory, shows it and lists it; one that cannot be opened is left out whole.
    fn enter(&mut self, path: EntryPath) -> Result<Option<OwnedFd>, V::Error> {
        if self.levels.len() > self.settings.deepest {
            let top = path.components().next().unwrap_or_default();
            let top = EntryPath::parse(top).unwrap_or_default();
            let limit = self.settings.deepest;
            return Err(WalkError::TooDeep { limit, top }.into());
        }
        let Some(fd) = self.open(&path)? else {
            return Ok(None);
        };
        let (seen, names) = list(&path, &fd)?;
        if !path.is_root() {
            self.notes.count([EntryKind::Directory].iter());
        }
        self.visitor.directory(&path, fd.as_fd(), &seen)?;
        let next = 0;
        self.levels.push(Level { path, names, next });
        Ok(Some(fd))
    }

    /// Shows entries of the innermost directory up to the next directory in it, which is returned.
    fn show(&mut self, path: &EntryPath, fd: &OwnedFd) -> Result<Option<EntryPath>, V::Error> {
        let Self {
            root,
            visitor,
            settings,
            excludes,
            notes,
            levels,
        } = self;
        let place = WalkedDir {
            path,
            fd: fd.as_fd(),
            root,
            notes,
            strict: settings.strict,
        };
        let Some(level) = levels.last_mut() else {
            return Ok(None);
        };
        while level.next < level.names.len() {
            go_on(&settings.cancel)?;
            let name = level.names.get(level.next);
            level.next += 1;
            let Some((kind, seen)) = look(&place, name, settings, excludes)? else {
                continue;
            };
            if kind == EntryKind::Directory {
                return Ok(Some(place.child(name)?));
            }
            notes.count([&kind].into_iter());
            visitor.entry(&place, &WalkedEntry { name, kind, seen })?;
        }
        Ok(None)
    }
}

/// What an open directory is, and what is in it.
fn list(path: &EntryPath, fd: &OwnedFd) -> Result<(Seen, Names), WalkError> {
    let seen = metadata::of(fd).on("look at", path)?;
    let names = Names::read(fd.as_fd(), std::iter::empty()).on("list the directory", path)?;
    Ok((seen, names))
}

/// What an entry is, if it belongs to the tree.
fn look(
    place: &WalkedDir<'_>,
    name: &CStr,
    settings: &WalkSettings,
    excludes: &Excludes,
) -> Result<Option<(EntryKind, Seen)>, WalkError> {
    let seen = match metadata::look(place.fd, name) {
        Ok(seen) => seen,
        Err(error) => return place.could_not("look at", name, error).map(|()| None),
    };
    if excludes.has(place, name, &seen)? {
        place.notes.exclude();
        return Ok(None);
    }
    let kind = kind_of(place, name, &seen, settings)?;
    Ok(kind.map(|kind| (kind, seen)))
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "tests make the trees that they look at"
)]
mod tests {
    use super::*;
    use crate::fs::root_dir::Mounts;
    use crate::tree::walk::{WalkSkip, list};
    use std::path::Path;

    #[derive(Default)]
    struct Paths(Vec<EntryPath>);

    impl InOrder for Paths {
        type Error = WalkError;

        fn directory(
            &mut self,
            path: &EntryPath,
            _: BorrowedFd<'_>,
            seen: &Seen,
        ) -> Result<(), WalkError> {
            assert!(seen.file_type().is_dir());
            self.0.push(path.clone());
            Ok(())
        }

        fn entry(
            &mut self,
            place: &WalkedDir<'_>,
            found: &WalkedEntry<'_>,
        ) -> Result<(), WalkError> {
            self.0.push(place.child(found.name)?);
            Ok(())
        }
    }

    /// Names that sort differently as strings and as paths.
    fn make_tree(root: &Path) {
        for directory in ["a/b/c/d", "a.b/c", "a-b", "z/empty"] {
            std::fs::create_dir_all(root.join(directory)).unwrap();
        }
        for file in [
            "a/b.c",
            "a/b/c.d",
            "a/b/c/d/e",
            "a.b/c/x",
            "a-b/y",
            "a+",
            "z.z",
        ] {
            std::fs::write(root.join(file), file).unwrap();
        }
        std::fs::hard_link(root.join("z.z"), root.join("a/twin")).unwrap();
        std::os::unix::fs::symlink("a", root.join("z/link")).unwrap();
    }

    fn walked(root: &Path, settings: &WalkSettings) -> (Vec<EntryPath>, WalkReport) {
        let (root_dir, mut paths) = (RootDir::open(root, Mounts::Stay).unwrap(), Paths::default());
        let report = walk_in_order(&root_dir, &mut paths, settings).unwrap();
        (paths.0, report)
    }

    #[test]
    fn everything_is_shown_where_it_stands_in_the_sorted_tree() {
        let home = tempfile::tempdir().unwrap();
        make_tree(home.path());
        let root_dir = RootDir::open(home.path(), Mounts::Stay).unwrap();

        let (paths, report) = walked(home.path(), &WalkSettings::default());

        let (entries, _) = list(&root_dir, &WalkSettings::default()).unwrap();
        let sorted = entries.iter().map(|entry| entry.path.clone());
        let sorted: Vec<_> = std::iter::once(EntryPath::root()).chain(sorted).collect();
        assert_eq!(paths, sorted);
        assert_eq!(
            (report.files, report.directories, report.symlinks),
            (8, 9, 1)
        );
    }

    #[test]
    fn what_is_excluded_or_no_entry_is_left_out_and_counted() {
        let home = tempfile::tempdir().unwrap();
        make_tree(home.path());
        let _socket = std::os::unix::net::UnixListener::bind(home.path().join("socket")).unwrap();
        let settings = WalkSettings {
            excludes: vec!["b/".to_owned(), "*.z".to_owned()],
            ..WalkSettings::default()
        };

        let (paths, report) = walked(home.path(), &settings);

        let paths: Vec<String> = paths.iter().map(ToString::to_string).collect();
        let expected = [
            ".", "a", "a/b.c", "a/twin", "a+", "a-b", "a-b/y", "a.b", "a.b/c", "a.b/c/x", "z",
            "z/empty", "z/link",
        ];
        assert_eq!(paths, expected);
        assert_eq!(report.excluded, 2);
        assert_eq!(report.skipped[0].reason, WalkSkip::Socket);
    }

    #[test]
    fn depth_costs_no_descriptors_and_has_a_limit() {
        let home = tempfile::tempdir().unwrap();
        let deep = home.path().join(vec!["d"; 900].join("/"));
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::write(deep.join("file"), "deep").unwrap();
        let shallow = WalkSettings {
            deepest: 899,
            ..WalkSettings::default()
        };

        let (paths, _) = walked(home.path(), &WalkSettings::default());

        assert_eq!(paths.len(), 902);
        let root_dir = RootDir::open(home.path(), Mounts::Stay).unwrap();
        let refused = walk_in_order(&root_dir, &mut Paths::default(), &shallow);
        assert!(matches!(
            refused,
            Err(WalkError::TooDeep { limit: 899, .. })
        ));
    }
}
