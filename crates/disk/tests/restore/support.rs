//! Trees to restore, and ways to look at what became of them.

use stasis_disk::fs::root_dir::{Mounts, RootDir};
use stasis_disk::tree::restore::{
    Placement, RestoreError, RestoreOrigin, RestoreStage, RestoredTree,
};
use stasis_disk::tree::walk::{self, WalkSettings};
use stasis_disk::tree::write::{WriteReport, WriteSettings};
use stasis_model::time::Timestamp;
use stasis_model::tree::{Attribute, Entry, EntryKind, EntryPath, FileTime, Metadata};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What is at one path of a tree.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    Directory(u32),
    File(Vec<u8>, u32),
    Link(&'static str),
    Hard(&'static str),
    Pipe,
}

/// A whole tree, with the seconds of the time that everything in it has.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    pub(crate) items: BTreeMap<&'static str, Item>,
    pub(crate) seconds: BTreeMap<&'static str, i64>,
    pub(crate) root: (u32, i64),
}

pub(crate) fn file(text: &str) -> Item {
    Item::File(text.as_bytes().to_vec(), 0o644)
}

/// What is there before.
pub(crate) fn old() -> Tree {
    let items = [
        ("becomes-a-directory", file("was a file")),
        ("becomes-a-file", Item::Directory(0o755)),
        ("becomes-a-file/inner", file("in a directory")),
        ("changed", file("old")),
        ("deep", Item::Directory(0o755)),
        ("deep/er", Item::Directory(0o700)),
        ("deep/er/changed", file("old and deep")),
        ("deep/er/same", file("same and deep")),
        ("gone", file("gone")),
        ("gone-too", Item::Directory(0o555)),
        ("gone-too/inner", file("gone")),
        ("hard-1", file("two names")),
        ("hard-2", Item::Hard("hard-1")),
        ("link", Item::Link("old")),
        ("link-same", Item::Link("/etc/passwd")),
        ("locked", Item::Directory(0o500)),
        ("locked/changed", file("old and locked")),
        ("locked/gone", Item::Directory(0o500)),
        (
            "locked/same",
            Item::File(b"same and locked".to_vec(), 0o400),
        ),
        ("mode", Item::File(b"mode".to_vec(), 0o600)),
        ("same", file("same")),
        ("sealed", Item::Directory(0)),
        ("sealed/deeper", Item::Directory(0)),
        ("sealed/inner", file("old and sealed")),
        ("split-1", file("one file")),
        ("split-2", Item::Hard("split-1")),
        ("untouched", Item::Directory(0o755)),
        ("untouched/inner", file("untouched")),
    ];
    tree(&items, (0o750, 1_000))
}

/// What is there afterwards.
pub(crate) fn new() -> Tree {
    let items = [
        ("becomes-a-directory", Item::Directory(0o711)),
        ("becomes-a-directory/inner", file("in a new directory")),
        ("becomes-a-file", file("is a file")),
        ("changed", file("new")),
        ("deep", Item::Directory(0o755)),
        ("deep/er", Item::Directory(0o711)),
        ("deep/er/changed", file("new and deep")),
        ("deep/er/same", file("same and deep")),
        ("fresh", Item::Directory(0o500)),
        ("fresh/er", Item::Directory(0o500)),
        ("fresh/er/file", file("fresh")),
        ("hard-1", file("two names")),
        ("hard-2", Item::Hard("hard-1")),
        ("link", Item::Link("new")),
        ("link-same", Item::Link("/etc/passwd")),
        ("locked", Item::Directory(0o500)),
        ("locked/changed", file("new and locked")),
        ("locked/fresh", file("fresh and locked")),
        (
            "locked/same",
            Item::File(b"same and locked".to_vec(), 0o400),
        ),
        ("mode", Item::File(b"mode".to_vec(), 0o640)),
        ("pipe", Item::Pipe),
        ("same", file("same")),
        ("sealed", Item::Directory(0)),
        ("sealed/deeper", Item::Directory(0)),
        ("sealed/inner", Item::File(b"new and sealed".to_vec(), 0)),
        ("split-1", file("one file")),
        ("split-2", file("one file")),
        ("untouched", Item::Directory(0o755)),
        ("untouched/inner", file("untouched")),
    ];
    let mut new = tree(&items, (0o755, 2_000));
    new.seconds.insert("deep/er", 77);
    new
}

pub(crate) fn tree(items: &[(&'static str, Item)], root: (u32, i64)) -> Tree {
    // Only root can look into what is sealed; and whoever is told what to restore need not look.
    let can_look = rustix::process::geteuid().is_root() || crate::child::is_told();
    let items = items.iter().cloned();
    let items: BTreeMap<_, _> = items
        .filter(|(path, _)| can_look || !path.starts_with("sealed"))
        .collect();
    let seconds = items.keys().map(|path| (*path, 1_600_000_000)).collect();
    Tree {
        items,
        seconds,
        root,
    }
}

/// One of each kind of change.
pub(crate) fn some_of(tree: Tree) -> Tree {
    let has = |path: &str| {
        let kinds = ["becomes", "changed", "deep", "gone", "hard", "link"];
        kinds.iter().any(|kind| path.starts_with(kind)) && !path.ends_with("same")
    };
    let items = tree.items.into_iter().filter(|(path, _)| has(path));
    Tree {
        items: items.collect(),
        ..tree
    }
}

pub(crate) fn path(text: &str) -> EntryPath {
    EntryPath::parse(text.as_bytes()).unwrap()
}

fn metadata(mode: u32, seconds: i64) -> Metadata {
    Metadata {
        mode,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        modified: FileTime {
            seconds,
            nanos: 123_456_789,
        },
    }
}

pub(crate) fn origin() -> RestoreOrigin {
    RestoreOrigin {
        at: Timestamp::from_millis(1_700_000_000_000),
        from: "snapshot 7".to_owned(),
    }
}

/// Writes a tree into a stage; `leave` says which files are not staged because they are right.
pub(crate) fn stage(
    stage: &RestoreStage,
    tree: &Tree,
    leave: &[&str],
) -> Result<WriteReport, RestoreError> {
    let writer = stage.writer(WriteSettings::default())?;
    for (at, item) in &tree.items {
        let (entry, seconds) = (path(at), tree.seconds[at]);
        if leave.contains(at) {
            stage.leave(&entry);
            continue;
        }
        match item {
            Item::Directory(mode) => writer.directory(&entry, &metadata(*mode, seconds), &[])?,
            Item::Link(to) => {
                writer.symlink(&entry, to.as_bytes(), &metadata(0o777, seconds))?;
            }
            Item::Hard(to) => writer.hard_link(&entry, &path(to))?,
            Item::Pipe => writer.fifo(&entry, &metadata(0o600, seconds))?,
            Item::File(bytes, mode) => {
                let file = writer.file(&entry, bytes.len() as u64)?;
                if !stage.reuse(&file, &entry, &blake3::hash(bytes))? {
                    file.write_at(0, bytes)?;
                }
                file.finish(&metadata(*mode, seconds), &[note()])?;
            }
        }
    }
    let (mode, seconds) = tree.root;
    Ok(writer.finish(Some(&metadata(mode, seconds)))?)
}

/// Restores a tree.
pub(crate) fn restore(
    target: &Path,
    tree: &Tree,
    placement: Placement,
) -> Result<RestoredTree, RestoreError> {
    let begun = RestoreStage::begin(target, placement, std::sync::Arc::default())?;
    let written = stage(&begun, tree, &[])?;
    begun.swap(written, &origin())
}

/// One entry as it is on the disk: what it is, and the bytes in it.
pub(crate) type Shown = (Entry, Vec<u8>);

/// Everything in a directory, the root first.
pub(crate) fn show(root: &Path) -> Vec<Shown> {
    let opened = RootDir::open(root, Mounts::Stay).unwrap();
    let settings = WalkSettings {
        excludes: stasis_disk::form::slots::OWN_PATTERNS
            .map(str::to_owned)
            .to_vec(),
        ..WalkSettings::default()
    };
    let (entries, _) = walk::list(&opened, &settings).unwrap();
    let top = std::fs::metadata(root).unwrap();
    let top = Entry {
        path: EntryPath::root(),
        kind: EntryKind::Directory,
        metadata: Metadata {
            mode: top.mode() & 0o7777,
            uid: top.uid(),
            gid: top.gid(),
            modified: FileTime {
                seconds: top.mtime(),
                nanos: u32::try_from(top.mtime_nsec()).unwrap(),
            },
        },
        attributes: Vec::new(),
    };
    std::iter::once(top)
        .chain(entries)
        .map(|entry| {
            let at = root.join(std::ffi::OsStr::from_bytes(entry.path.as_bytes()));
            let is_file = matches!(entry.kind, EntryKind::File { .. });
            let bytes = is_file.then(|| std::fs::read(at).unwrap());
            (entry, bytes.unwrap_or_default())
        })
        .collect()
}

/// What `tree` looks like when it was restored, by what it is said to be.
pub(crate) fn ideal(tree: &Tree) -> Vec<Shown> {
    let (mode, seconds) = tree.root;
    let top = Entry {
        path: EntryPath::root(),
        kind: EntryKind::Directory,
        metadata: metadata(mode, seconds),
        attributes: Vec::new(),
    };
    let mut shown = vec![(top, Vec::new())];
    for (at, item) in &tree.items {
        let of = |mode| metadata(mode, tree.seconds[at]);
        let (kind, metadata, bytes) = match item {
            Item::Directory(mode) => (EntryKind::Directory, of(*mode), Vec::new()),
            Item::Link(to) => {
                let target = to.as_bytes().into();
                (EntryKind::Symlink { target }, of(0o777), Vec::new())
            }
            Item::Hard(to) => (EntryKind::HardLink { to: path(to) }, of(0o644), Vec::new()),
            Item::Pipe => (EntryKind::Fifo, of(0o600), Vec::new()),
            Item::File(bytes, mode) => {
                let size = bytes.len() as u64;
                (EntryKind::File { size }, of(*mode), bytes.clone())
            }
        };
        let is_file = matches!(item, Item::File(..));
        let entry = Entry {
            path: path(at),
            kind,
            metadata,
            attributes: is_file.then(note).into_iter().collect(),
        };
        shown.push((entry, bytes));
    }
    shown[1..].sort_by(|(one, _), (other, _)| one.path.cmp(&other.path));
    shown
}

fn note() -> Attribute {
    Attribute {
        name: b"user.note".as_slice().into(),
        value: b"kept".as_slice().into(),
    }
}

/// What is in a directory, but for what restores in place have kept.
pub(crate) fn names(directory: &Path) -> Vec<String> {
    let mut names = all_names(directory);
    names.retain(|name| !name.contains(".stasis-backup-"));
    names
}

pub(crate) fn all_names(directory: &Path) -> Vec<String> {
    let names = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = names
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// A directory of its own, removed even where its directories may not be written in.
pub(crate) struct Home(tempfile::TempDir);

impl Home {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// One on the filesystem of `at`.
    pub(crate) fn on(at: &Path) -> Self {
        Self(tempfile::tempdir_in(at).unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let path = std::ffi::CString::new(self.path().as_os_str().as_bytes()).unwrap();
        let _ = stasis_disk::fs::remove::tree(rustix::fs::CWD, &path);
    }
}
