//! What a restore in place touches, and what it leaves alone.

use crate::fs::metadata::Seen;
use crate::worker_pool::lock;
use stasis_model::tree::{EntryPath, FileTime};
use std::collections::HashMap;
use std::sync::Mutex;

/// What a restore in place leaves alone: what was found right while it was staged, and its limits.
#[derive(Default)]
pub(super) struct RestoreScope {
    /// Entries that are right as they are: 128 bits of a digest of each path, and what was seen of it, if that is known.
    right: Mutex<HashMap<[u8; 16], Option<SeenState>>>,
    /// How many of those that were seen lie in a directory.
    right_in: Mutex<HashMap<[u8; 16], usize>>,
    pub(super) limits: RestoreLimits,
}

/// What a restore in place leaves alone.
#[derive(Default)]
pub struct RestoreLimits {
    /// Which entries stay although the new tree does not have them. Asked for a directory, `true` keeps it with everything in it.
    pub keep_if: Option<KeepIf>,
    /// Which entries of the live tree the plan knows of, if it knows them all: one that came since, and that the new tree does not
    /// have, stays.
    pub known: Option<KnownEntry>,
    /// Entries that are left as they are, with everything in them; a database with its journals.
    pub except: Vec<EntryPath>,
    /// Which entries stay as they are although the new tree has them otherwise: nothing else has what they are now. One that is
    /// missing comes back.
    pub left_alone: Option<KeepIf>,
    /// Whether a directory that would go is looked into: with something in it that stays, only the rest of it goes.
    pub looks_into: bool,
    /// The one entry that is restored, with everything in it; all of them if none is named. The directories above it that are
    /// missing are made as they are staged.
    pub only: Option<EntryPath>,
    /// What is restored with that one, in the same directory: the WAL and the journals of a database.
    pub beside: Vec<EntryPath>,
    /// Whose the backup is: whoever gives no label finds it by [`kept`](fn@super::kept).
    pub label: String,
}

impl std::fmt::Debug for RestoreLimits {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = out.debug_struct("RestoreLimits");
        out.field("except", &self.except).field("only", &self.only);
        out.field("label", &self.label).finish_non_exhaustive()
    }
}

/// Whether the plan knows of an entry.
pub type KnownEntry = Box<dyn Fn(&EntryPath) -> bool + Send + Sync>;

/// Whether an entry stays although the new tree does not have it; also told whether it is a directory.
pub type KeepIf = Box<dyn Fn(&EntryPath, bool) -> bool + Send + Sync>;

impl std::fmt::Debug for RestoreScope {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("RestoreScope").finish_non_exhaustive()
    }
}

impl RestoreScope {
    pub(super) fn leave(&self, path: &EntryPath, seen: Option<&Seen>) {
        let mut right = lock(&self.right);
        right.insert(key(path), seen.map(SeenState::from));
        if let (Some((above, _)), Some(_), false) =
            (path.split_last(), seen, self.is_excepted(path))
        {
            let mut right_in = lock(&self.right_in);
            *right_in.entry(key(&above)).or_default() += 1;
        }
    }

    /// How many entries of a directory were right when they were seen.
    pub(super) fn right_in(&self, directory: &EntryPath) -> usize {
        let right_in = lock(&self.right_in);
        right_in.get(&key(directory)).copied().unwrap_or_default()
    }

    /// Whether a path is neither in the one entry that is restored nor above it.
    pub(super) fn is_outside(&self, path: &EntryPath) -> bool {
        let only = self.limits.only.as_ref();
        let is_beside = || self.limits.beside.iter().any(|one| is_part_of(path, one));
        !is_beside()
            && only.is_some_and(|only| {
                !path
                    .components()
                    .zip(only.components())
                    .all(|(a, b)| a == b)
            })
    }

    /// What lies on the way from a directory to the one entry that is restored: its name, and whether it is that entry.
    pub(super) fn next_to(&self, path: &EntryPath) -> Option<(&[u8], bool)> {
        let only = self.limits.only.as_ref()?;
        let mut names = only.components();
        for name in path.components() {
            if names.next() != Some(name) {
                return None;
            }
        }
        let next = names.next()?;
        Some((next, names.next().is_none()))
    }

    /// Whether an entry was right, and if so, whether it may have been changed since.
    pub(super) fn has(&self, path: &EntryPath, seen: Option<&Seen>) -> Option<Since> {
        let right = lock(&self.right);
        let witness = right.get(&key(path))?;
        Some(match (witness, seen) {
            (None, _) => Since::Unknown,
            (Some(witness), Some(seen)) if *witness == SeenState::from(seen) => Since::Same,
            _ => Since::Changed,
        })
    }

    pub(super) fn preserves(&self, path: &EntryPath, seen: &Seen) -> bool {
        let is_directory = seen.file_type().is_dir();
        let keep_if = self.limits.keep_if.as_ref();
        keep_if.is_some_and(|keep_if| keep_if(path, is_directory))
    }

    pub(super) fn is_left_alone(&self, path: &EntryPath, seen: &Seen) -> bool {
        let is_left_alone = self.limits.left_alone.as_ref();
        is_left_alone.is_some_and(|is_left_alone| is_left_alone(path, seen.file_type().is_dir()))
    }

    /// Whether an entry came when the plan was made already.
    pub(super) fn is_unknown(&self, path: &EntryPath) -> bool {
        let known = self.limits.known.as_ref();
        known.is_some_and(|known| !known(path))
    }

    pub(super) fn is_excepted(&self, path: &EntryPath) -> bool {
        self.limits
            .except
            .iter()
            .any(|except| is_part_of(path, except))
    }

    /// Whether something in a directory is left as it is.
    pub(super) fn holds_excepted(&self, path: &EntryPath) -> bool {
        self.limits
            .except
            .iter()
            .any(|except| is_part_of(except, path))
    }
}

/// What became of an entry since it was found right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Since {
    Same,
    Changed,
    /// Nobody said what it was.
    Unknown,
}

/// What of an entry changes with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SeenState {
    inode: u64,
    size: u64,
    changed: FileTime,
}

impl From<&Seen> for SeenState {
    fn from(seen: &Seen) -> Self {
        Self {
            inode: seen.inode,
            size: seen.size,
            changed: seen.changed,
        }
    }
}

/// Whether a path is another one, lies in it, or is the journal of that database.
pub fn is_part_of(path: &EntryPath, whole: &EntryPath) -> bool {
    let rest = path.as_bytes().strip_prefix(whole.as_bytes());
    let is_suffix = |rest: &[u8]| DATABASE_SUFFIXES.contains(&rest);
    rest.is_some_and(|rest| {
        rest.is_empty() || whole.is_root() || rest[0] == b'/' || is_suffix(rest)
    })
}

/// What the files are called that belong to an SQLite database, after its own name.
pub(super) use stasis_model::sqlite_file::COMPANIONS as DATABASE_SUFFIXES;

fn key(path: &EntryPath) -> [u8; 16] {
    let digest = blake3::hash(path.as_bytes());
    *digest.as_bytes().first_chunk().expect("it has 32 bytes")
}
