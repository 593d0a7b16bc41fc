//! What changed from one tree to another: the one comparison of trees, for every kind of snapshot.
//!
//! Both trees come as streams sorted by path and are read side by side, one entry of each at a time: however large they
//! are, a diff costs the memory of two entries. A stream that is not sorted ends the diff with an error, because what
//! it would say from there on would be wrong. What two entries of one path differ in, their type knows, or whoever asks:
//! some have a digest of every file, others must read the two of one length.

use crate::digest::FileDigest;
use crate::tree::{Entry, EntryKind, EntryPath};
use serde::Serialize;
use std::cmp::Ordering;
use std::iter::{FusedIterator, Peekable};

/// Something that a tree has at a path.
pub trait TreeItem {
    /// Where in the tree.
    fn path(&self) -> &EntryPath;
}

impl<T: TreeItem> TreeItem for &T {
    fn path(&self) -> &EntryPath {
        T::path(self)
    }
}

impl TreeItem for Entry {
    fn path(&self) -> &EntryPath {
        &self.path
    }
}

/// An entry, and the digest of its content where it is a file and the digest is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DigestedEntry<D = FileDigest> {
    /// The entry.
    pub entry: Entry,
    /// The digest of its content.
    pub digest: Option<D>,
}

impl<D> TreeItem for DigestedEntry<D> {
    fn path(&self) -> &EntryPath {
        &self.entry.path
    }
}

impl<D: PartialEq> DigestedEntry<D> {
    /// In what a newer entry of the same path differs; files of one length and time are the same where a digest is missing.
    pub fn difference(&self, newer: &Self) -> Option<EntryDifference> {
        let same_time = self.entry.metadata.modified == newer.entry.metadata.modified;
        EntryDifference::between(&self.entry, &newer.entry, || {
            match (&self.digest, &newer.digest) {
                (Some(was), Some(is)) if was == is => ContentChange::Same,
                (Some(_), Some(_)) => ContentChange::Changed,
                _ if same_time => ContentChange::Same,
                _ => ContentChange::Unknown,
            }
        })
    }
}

/// Which of the two trees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TreeSide {
    /// The one that was.
    Old,
    /// The one that is.
    New,
}

/// Whether a file has another content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ContentChange {
    /// It has the same; or it is no file.
    Same,
    /// It has another: another length, digest or link target.
    Changed,
    /// A digest is missing, the length is the same and the time is not.
    Unknown,
}

/// In what two entries of one path differ; at least in something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryDifference {
    /// It is another kind of thing.
    pub kind: bool,
    /// Its content, or where it leads to.
    pub content: ContentChange,
    /// Owner, permissions or time.
    pub metadata: bool,
    /// Extended attributes.
    pub attributes: bool,
}

impl EntryDifference {
    /// Compares two entries of one path; `None` when they agree in everything. Of two files of one length `content` says
    /// whether they hold the same.
    pub fn between(
        was: &Entry,
        is: &Entry,
        content: impl FnOnce() -> ContentChange,
    ) -> Option<Self> {
        let content = match (&was.kind, &is.kind) {
            (EntryKind::File { .. }, EntryKind::File { .. }) if was.kind == is.kind => content(),
            (was, is) if was == is => ContentChange::Same,
            _ => ContentChange::Changed,
        };
        let difference = Self {
            kind: std::mem::discriminant(&was.kind) != std::mem::discriminant(&is.kind),
            content,
            metadata: was.metadata != is.metadata,
            attributes: was.attributes != is.attributes,
        };
        difference.is_any().then_some(difference)
    }

    /// Whether there is one at all.
    pub fn is_any(&self) -> bool {
        self.kind || self.content != ContentChange::Same || self.metadata || self.attributes
    }
}

/// What became of an entry, in one word: the first of these that applies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// Only the new tree has it.
    Added,
    /// Only the old tree had it.
    Removed,
    /// It is another kind of thing.
    Kind,
    /// It has another content, or leads elsewhere.
    Content,
    /// It has another owner, mode, time or attribute.
    Metadata,
}

crate::display_as_serialized!(ChangeKind);

impl ChangeKind {
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

/// One difference between two trees.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EntryChange<I> {
    /// Only the new tree has it.
    Added(I),
    /// Only the old tree had it.
    Removed(I),
    /// Both have it, and it is not the same.
    Changed {
        /// As it was.
        old: I,
        /// As it is.
        new: I,
        /// In what they differ.
        difference: EntryDifference,
    },
}

impl<I: TreeItem> EntryChange<I> {
    /// Where.
    pub fn path(&self) -> &EntryPath {
        match self {
            Self::Added(item) | Self::Removed(item) => item.path(),
            Self::Changed { new, .. } => new.path(),
        }
    }

    /// What became of it.
    pub fn kind(&self) -> ChangeKind {
        match self {
            Self::Added(_) => ChangeKind::Added,
            Self::Removed(_) => ChangeKind::Removed,
            Self::Changed { difference, .. } if difference.kind => ChangeKind::Kind,
            Self::Changed { difference, .. } if difference.content != ContentChange::Same => {
                ChangeKind::Content
            }
            Self::Changed { .. } => ChangeKind::Metadata,
        }
    }
}

/// Why a diff did not come to its end.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DiffError<E> {
    /// A stream is not sorted, or has a path twice.
    #[error("`{path}` of the {side:?} tree comes after an entry that it should come before")]
    Unsorted {
        /// Which stream.
        side: TreeSide,
        /// The entry that came too late.
        path: EntryPath,
    },
    /// An entry could not be read.
    #[error("could not read the next entry of the {side:?} tree")]
    Unreadable {
        /// Which stream.
        side: TreeSide,
        /// What it said.
        source: E,
    },
}

impl<E> DiffError<E> {
    /// What a stream said, of streams that are sorted by those who make them.
    ///
    /// # Panics
    ///
    /// When a stream was not sorted after all.
    pub fn into_source(self) -> E {
        match self {
            Self::Unreadable { source, .. } => source,
            Self::Unsorted { side, path } => {
                panic!("`{path}` of the {side:?} tree is not in order")
            }
        }
    }
}

/// The changes between two lists in memory, each sorted by path and without a path twice.
///
/// # Panics
///
/// When a list is not sorted: a list in memory is sorted by whoever made it.
pub fn diff_lists<'a, I: TreeItem>(
    old: &'a [I],
    new: &'a [I],
    mut compare: impl FnMut(&I, &I) -> Option<EntryDifference>,
) -> Vec<EntryChange<&'a I>> {
    let sure = |items: &'a [I]| items.iter().map(Ok::<_, std::convert::Infallible>);
    let found = diff(sure(old), sure(new), |old, new| compare(old, new));
    found
        .map(|change| change.expect("lists in memory are sorted"))
        .collect()
}

/// The differences between two trees, sorted by path; after an error there are no more.
pub struct TreeDiff<A: Iterator, B: Iterator, F> {
    old: SortedStream<A>,
    new: SortedStream<B>,
    compare: F,
    has_failed: bool,
}

/// Compares two streams of entries, each sorted by path; `compare` says in what two of one path differ.
pub fn diff<I, E, A, B, F>(old: A, new: B, compare: F) -> TreeDiff<A::IntoIter, B::IntoIter, F>
where
    I: TreeItem,
    A: IntoIterator<Item = Result<I, E>>,
    B: IntoIterator<Item = Result<I, E>>,
    F: FnMut(&I, &I) -> Option<EntryDifference>,
{
    TreeDiff {
        old: SortedStream::new(old.into_iter(), TreeSide::Old),
        new: SortedStream::new(new.into_iter(), TreeSide::New),
        compare,
        has_failed: false,
    }
}

struct SortedStream<S: Iterator> {
    items: Peekable<S>,
    last: Option<EntryPath>,
    side: TreeSide,
}

impl<I: TreeItem, E, S: Iterator<Item = Result<I, E>>> SortedStream<S> {
    fn new(items: S, side: TreeSide) -> Self {
        let items = items.peekable();
        Self {
            items,
            last: None,
            side,
        }
    }

    fn take(&mut self) -> Result<Option<I>, DiffError<E>> {
        let side = self.side;
        let unreadable = |source| DiffError::Unreadable { side, source };
        let Some(item) = self.items.next().transpose().map_err(unreadable)? else {
            return Ok(None);
        };
        let path = item.path();
        if self.last.as_ref().is_some_and(|last| last >= path) {
            let path = path.clone();
            return Err(DiffError::Unsorted { side, path });
        }
        self.last = Some(path.clone());
        Ok(Some(item))
    }

    /// The path that comes next; `None` at the end. An entry that cannot be read comes first, so that the diff ends with it.
    fn path<'s>(&'s mut self) -> Option<&'s EntryPath>
    where
        I: 's,
        E: 's,
    {
        static ROOT: std::sync::OnceLock<EntryPath> = std::sync::OnceLock::new();
        Some(match self.items.peek()? {
            Ok(item) => item.path(),
            Err(_) => ROOT.get_or_init(EntryPath::root),
        })
    }
}

impl<I, E, A, B, F> TreeDiff<A, B, F>
where
    I: TreeItem,
    A: Iterator<Item = Result<I, E>>,
    B: Iterator<Item = Result<I, E>>,
    F: FnMut(&I, &I) -> Option<EntryDifference>,
{
    fn advance(&mut self) -> Result<Option<EntryChange<I>>, DiffError<E>> {
        loop {
            let order = match (self.old.path(), self.new.path()) {
                (None, None) => return Ok(None),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(old), Some(new)) => old.cmp(new),
            };
            match order {
                Ordering::Less => return Ok(self.old.take()?.map(EntryChange::Removed)),
                Ordering::Greater => return Ok(self.new.take()?.map(EntryChange::Added)),
                Ordering::Equal => {}
            }
            let (Some(old), Some(new)) = (self.old.take()?, self.new.take()?) else {
                return Ok(None);
            };
            if let Some(difference) = (self.compare)(&old, &new) {
                return Ok(Some(EntryChange::Changed {
                    old,
                    new,
                    difference,
                }));
            }
        }
    }
}

impl<I, E, A, B, F> Iterator for TreeDiff<A, B, F>
where
    I: TreeItem,
    A: Iterator<Item = Result<I, E>>,
    B: Iterator<Item = Result<I, E>>,
    F: FnMut(&I, &I) -> Option<EntryDifference>,
{
    type Item = Result<EntryChange<I>, DiffError<E>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_failed {
            return None;
        }
        let next = self.advance();
        self.has_failed = next.is_err();
        next.transpose()
    }
}

impl<I, E, A, B, F> FusedIterator for TreeDiff<A, B, F>
where
    I: TreeItem,
    A: Iterator<Item = Result<I, E>>,
    B: Iterator<Item = Result<I, E>>,
    F: FnMut(&I, &I) -> Option<EntryDifference>,
{
}

#[cfg(test)]
mod tests;
