//! What was in the tree when it was last read.
//!
//! *Always true:* an entry is in the table under its directory, and a directory that is an entry has a (perhaps empty) list
//! of its own. Only names are kept, no whole paths but those of directories.

use crate::fs::metadata::Seen;
use stasis_model::tree::{EntryPath, FileTime};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// A filesystem may give two changes within this time the same stamp.
const COARSEST_STAMP: Duration = Duration::from_millis(20);
const NANOS: i64 = 1_000_000_000;

/// The things that are reported, and what holds them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WatchedKind {
    File,
    Symlink,
    Directory,
}

/// What is known of one entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct EntryStat {
    pub(super) inode: u64,
    pub(super) size: u64,
    /// When the content changed, in nanoseconds since 1970.
    pub(super) modified: i64,
    /// When anything changed.
    pub(super) changed: i64,
    pub(super) kind: WatchedKind,
    /// Whether a change after we looked could bear the same times.
    pub(super) is_fresh: bool,
    /// Whether it had other names too when we looked.
    pub(super) has_more_names: bool,
}

impl EntryStat {
    /// What `seen` is to us, looked at no earlier than `now` (nanoseconds since 1970); `None` for pipes, sockets and devices.
    pub(super) fn of(seen: &Seen, now: i64) -> Option<Self> {
        let kind = match seen.file_type() {
            kind if kind.is_file() => WatchedKind::File,
            kind if kind.is_symlink() => WatchedKind::Symlink,
            kind if kind.is_dir() => WatchedKind::Directory,
            _ => return None,
        };
        let changed = nanos(seen.changed);
        let coarsest = i64::try_from(COARSEST_STAMP.as_nanos()).unwrap_or(i64::MAX);
        Some(Self {
            inode: seen.inode,
            size: seen.size,
            modified: nanos(seen.modified),
            changed,
            kind,
            is_fresh: changed > now.saturating_sub(coarsest),
            has_more_names: kind == WatchedKind::File && seen.links > 1,
        })
    }

    /// Whether the content may be another one, judged without a reason: permissions and the number of names do not count.
    pub(super) fn has_other_content(&self, was: &Self) -> bool {
        (self.kind, self.inode, self.size) != (was.kind, was.inode, was.size)
            || self.modified != was.modified
    }

    /// Whether nothing at all was done to the entry.
    pub(super) fn is_untouched(&self, was: &Self) -> bool {
        !self.has_other_content(was) && self.changed == was.changed
    }
}

fn nanos(time: FileTime) -> i64 {
    let seconds = time.seconds.saturating_mul(NANOS);
    seconds.saturating_add(i64::from(time.nanos))
}

/// Facts by directory and name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct EntryTable {
    directories: HashMap<EntryPath, BTreeMap<Box<[u8]>, EntryStat>>,
    entries: usize,
}

impl Default for EntryTable {
    fn default() -> Self {
        Self {
            directories: HashMap::from([(EntryPath::root(), BTreeMap::new())]),
            entries: 0,
        }
    }
}

impl EntryTable {
    /// How many entries there are.
    pub(super) fn len(&self) -> usize {
        self.entries
    }

    pub(super) fn get(&self, path: &EntryPath) -> Option<&EntryStat> {
        let (above, name) = path.split_last()?;
        self.directories.get(&above)?.get(name)
    }

    /// Whether `path` is the root or a directory that is known.
    pub(super) fn has_directory(&self, path: &EntryPath) -> bool {
        self.directories.contains_key(path)
    }

    /// Keeps a fact; says whether the directory that holds the entry is known, without which nothing is kept.
    ///
    /// What was a directory must have been removed before it becomes something else.
    pub(super) fn insert(&mut self, path: &EntryPath, fact: EntryStat) -> bool {
        let Some((above, name)) = path.split_last() else {
            return false;
        };
        let Some(entries) = self.directories.get_mut(&above) else {
            return false;
        };
        if entries.insert(name.into(), fact).is_none() {
            self.entries += 1;
        }
        if fact.kind == WatchedKind::Directory {
            self.directories.entry(path.clone()).or_default();
        }
        true
    }

    /// Forgets an entry with everything in it; gives back all of it, what is held before what holds it.
    pub(super) fn remove(&mut self, path: &EntryPath) -> Vec<(EntryPath, EntryStat)> {
        let mut removed = Vec::new();
        let Some((above, name)) = path.split_last() else {
            return removed;
        };
        let entries = self.directories.get_mut(&above);
        let Some(fact) = entries.and_then(|entries| entries.remove(name)) else {
            return removed;
        };
        // Directories are opened before they are closed; reversed, what they hold comes first.
        let mut open = vec![(path.clone(), fact)];
        while let Some((path, fact)) = open.pop() {
            for (name, fact) in self.directories.remove(&path).unwrap_or_default() {
                open.push((child(&path, &name), fact));
            }
            removed.push((path, fact));
        }
        removed.reverse();
        self.entries -= removed.len();
        removed
    }

    /// The names that are known in a directory.
    pub(super) fn names(&self, directory: &EntryPath) -> Vec<Box<[u8]>> {
        let entries = self.directories.get(directory);
        entries.map_or_else(Vec::new, |entries| entries.keys().cloned().collect())
    }

    /// The paths of all files that `wanted` says yes to, sorted.
    pub(super) fn files(&self, wanted: impl Fn(&EntryStat) -> bool) -> Vec<EntryPath> {
        let is_wanted = |fact: &EntryStat| fact.kind == WatchedKind::File && wanted(fact);
        let mut found = Vec::new();
        for (above, entries) in &self.directories {
            let wanted = entries.iter().filter(|(_, fact)| is_wanted(fact));
            found.extend(wanted.map(|(name, _)| child(above, name)));
        }
        found.sort_unstable();
        found
    }

    /// Everything, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (EntryPath, &EntryStat)> {
        self.directories.iter().flat_map(|(above, entries)| {
            entries
                .iter()
                .map(|(name, fact)| (child(above, name), fact))
        })
    }
}

fn child(directory: &EntryPath, name: &[u8]) -> EntryPath {
    directory.child(name).expect("names in the table are names")
}
