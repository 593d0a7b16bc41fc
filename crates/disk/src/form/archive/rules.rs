//! What must be true of the entries of one archive together.

use super::Problem;
use stasis_model::tree::{Entry, EntryKind, EntryPath};
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Whose archive is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TarDialect {
    /// One that we wrote.
    Ours,
    /// One that another tar wrote.
    Any,
}

/// What an archive may cost whoever reads it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArchiveLimits {
    /// How many entries.
    pub entries: u64,
    /// How many bytes all files have together, holes included.
    pub bytes: u64,
    /// How many directories lie in one another.
    pub deepest: usize,
}

impl Default for ArchiveLimits {
    fn default() -> Self {
        Self {
            entries: 50_000_000,
            bytes: 1 << 42,
            deepest: 1000,
        }
    }
}

/// The entries so far.
#[derive(Debug)]
pub(super) struct Rules {
    limits: ArchiveLimits,
    entries: u64,
    bytes: u64,
    sorted: Option<Sorted>,
}

/// What is known of a sorted tree: enough to judge the next entry.
#[derive(Debug)]
struct Sorted {
    last: Option<EntryPath>,
    /// The directories on the way to the last entry, the innermost last; `None` when we began in the middle.
    open: Option<Vec<EntryPath>>,
    /// Hashes of the paths of all files. Whoever forges two equal ones gains nothing: a link that leads nowhere cannot
    /// be made.
    files: HashSet<u64>,
}

impl Rules {
    pub(super) fn new(dialect: TarDialect, limits: ArchiveLimits) -> Self {
        let sorted = (dialect == TarDialect::Ours).then(|| Sorted::new(Some(Vec::new())));
        Self {
            limits,
            entries: 0,
            bytes: 0,
            sorted,
        }
    }

    pub(super) fn in_the_middle(limits: ArchiveLimits) -> Self {
        Self {
            limits,
            entries: 0,
            bytes: 0,
            sorted: Some(Sorted::new(None)),
        }
    }

    /// Judges the next entry, and remembers it.
    pub(super) fn admit(&mut self, entry: &Entry) -> Result<(), Problem> {
        let limits = self.limits;
        // A file may lie in the deepest directory.
        if entry.path.components().count() > limits.deepest + 1 {
            return Err(Problem::TooDeep(limits.deepest));
        }
        self.entries += 1;
        if self.entries > limits.entries {
            return Err(Problem::TooMany(limits.entries));
        }
        if let EntryKind::File { size } = entry.kind {
            self.bytes = self.bytes.saturating_add(size);
        }
        if self.bytes > limits.bytes {
            return Err(Problem::TooLarge(limits.bytes));
        }
        match &mut self.sorted {
            Some(sorted) => sorted.admit(entry),
            None => Ok(()),
        }
    }
}

impl Sorted {
    fn new(open: Option<Vec<EntryPath>>) -> Self {
        Self {
            last: None,
            open,
            files: HashSet::new(),
        }
    }

    fn admit(&mut self, entry: &Entry) -> Result<(), Problem> {
        if self.last.as_ref().is_some_and(|last| *last >= entry.path) {
            return Err(Problem::Order);
        }
        if let Some(open) = &mut self.open {
            Self::check_place(open, entry)?;
            if let EntryKind::HardLink { to } = &entry.kind
                && !self.files.contains(&hash(to))
            {
                return Err(Problem::NoFile);
            }
            if let EntryKind::File { .. } = entry.kind {
                self.files.insert(hash(&entry.path));
            }
        }
        self.last = Some(entry.path.clone());
        Ok(())
    }

    fn check_place(open: &mut Vec<EntryPath>, entry: &Entry) -> Result<(), Problem> {
        if let Some((parent, _)) = entry.path.split_last() {
            while open.last().is_some_and(|last| *last != parent) {
                open.pop();
            }
            if open.is_empty() {
                return Err(Problem::NoDirectory);
            }
        } else if !open.is_empty() {
            return Err(Problem::Order);
        }
        if entry.kind == EntryKind::Directory {
            open.push(entry.path.clone());
        }
        Ok(())
    }
}

fn hash(path: &EntryPath) -> u64 {
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    hasher.finish()
}
