//! What changed from one tree to another.
//!
//! Both trees come as streams sorted by path and are read side by side, one entry of each at a time: however large they
//! are, a diff costs the memory of two entries. A stream that is not sorted ends the diff with an error, because what
//! it would say from there on would be wrong.
//!
//! Names that moved are found afterwards, among what was added and removed ([`find_renames`]), within a bound.

mod renames;

pub use renames::{Moved, find_renames};

use crate::tree::{Entry, EntryKind, EntryPath};
use std::cmp::Ordering;
use std::iter::{FusedIterator, Peekable};

/// An entry, and the digest of its content where it is a file and the digest is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Item<D> {
    /// The entry.
    pub entry: Entry,
    /// The digest of its content.
    pub digest: Option<D>,
}

/// Which of the two trees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The one that was.
    Old,
    /// The one that is.
    New,
}

/// Whether a file has another content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// It has the same; or it is no file.
    Same,
    /// It has another: another length, digest or link target.
    Changed,
    /// A digest is missing, the length is the same and the time is not.
    Unknown,
}

/// In what two entries of one path differ; at least in something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Difference {
    /// It is another kind of thing.
    pub kind: bool,
    /// Its content, or where it leads to.
    pub content: Content,
    /// Owner, permissions or time.
    pub metadata: bool,
    /// Extended attributes.
    pub attributes: bool,
}

impl Difference {
    /// Compares two entries of one path; `None` when they agree in everything.
    fn between<D: PartialEq>(old: &Item<D>, new: &Item<D>) -> Option<Self> {
        let (was, is) = (&old.entry, &new.entry);
        let difference = Self {
            kind: std::mem::discriminant(&was.kind) != std::mem::discriminant(&is.kind),
            content: content(old, new),
            metadata: was.metadata != is.metadata,
            attributes: was.attributes != is.attributes,
        };
        let nothing = Self {
            kind: false,
            content: Content::Same,
            metadata: false,
            attributes: false,
        };
        (difference != nothing).then_some(difference)
    }
}

fn content<D: PartialEq>(old: &Item<D>, new: &Item<D>) -> Content {
    let same_time = old.entry.metadata.modified == new.entry.metadata.modified;
    match (&old.entry.kind, &new.entry.kind) {
        (EntryKind::File { size: was }, EntryKind::File { size: is }) if was == is => {
            match (&old.digest, &new.digest) {
                (Some(was), Some(is)) if was == is => Content::Same,
                (Some(_), Some(_)) => Content::Changed,
                _ if same_time => Content::Same,
                _ => Content::Unknown,
            }
        }
        (was, is) if was == is => Content::Same,
        _ => Content::Changed,
    }
}

/// One difference between two trees.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change<D> {
    /// Only the new tree has it.
    Added(Item<D>),
    /// Only the old tree had it.
    Removed(Item<D>),
    /// Both have it, and it is not the same.
    Changed {
        /// As it was.
        old: Box<Item<D>>,
        /// As it is.
        new: Box<Item<D>>,
        /// In what they differ.
        difference: Difference,
    },
}

impl<D> Change<D> {
    /// Where.
    pub fn path(&self) -> &EntryPath {
        match self {
            Self::Added(item) | Self::Removed(item) => &item.entry.path,
            Self::Changed { new, .. } => &new.entry.path,
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
        side: Side,
        /// The entry that came too late.
        path: EntryPath,
    },
    /// An entry could not be read.
    #[error("could not read the next entry of the {side:?} tree")]
    Unreadable {
        /// Which stream.
        side: Side,
        /// What it said.
        source: E,
    },
}

/// The differences between two trees, sorted by path; after an error there are no more.
#[derive(Debug)]
pub struct Diff<D, E, A, B>
where
    A: Iterator<Item = Result<Item<D>, E>>,
    B: Iterator<Item = Result<Item<D>, E>>,
{
    old: Stream<D, E, A>,
    new: Stream<D, E, B>,
    has_failed: bool,
}

/// Compares two streams of entries, each sorted by path.
pub fn diff<D, E, A, B>(old: A, new: B) -> Diff<D, E, A::IntoIter, B::IntoIter>
where
    D: PartialEq,
    A: IntoIterator<Item = Result<Item<D>, E>>,
    B: IntoIterator<Item = Result<Item<D>, E>>,
{
    Diff {
        old: Stream::new(old.into_iter(), Side::Old),
        new: Stream::new(new.into_iter(), Side::New),
        has_failed: false,
    }
}

#[derive(Debug)]
struct Stream<D, E, I: Iterator<Item = Result<Item<D>, E>>> {
    items: Peekable<I>,
    last: Option<EntryPath>,
    side: Side,
}

impl<D, E, I: Iterator<Item = Result<Item<D>, E>>> Stream<D, E, I> {
    fn new(items: I, side: Side) -> Self {
        let items = items.peekable();
        Self {
            items,
            last: None,
            side,
        }
    }

    fn take(&mut self) -> Result<Option<Item<D>>, DiffError<E>> {
        let side = self.side;
        let unreadable = |source| DiffError::Unreadable { side, source };
        let Some(item) = self.items.next().transpose().map_err(unreadable)? else {
            return Ok(None);
        };
        let path = &item.entry.path;
        if self.last.as_ref().is_some_and(|last| last >= path) {
            let path = path.clone();
            return Err(DiffError::Unsorted { side, path });
        }
        self.last = Some(path.clone());
        Ok(Some(item))
    }

    /// The path that comes next; `None` at the end. An entry that cannot be read comes first, so that it is told soon.
    fn path(&mut self) -> Option<&EntryPath> {
        static ROOT: std::sync::OnceLock<EntryPath> = std::sync::OnceLock::new();
        Some(match self.items.peek()? {
            Ok(item) => &item.entry.path,
            Err(_) => ROOT.get_or_init(EntryPath::root),
        })
    }
}

impl<D, E, A, B> Diff<D, E, A, B>
where
    D: PartialEq,
    A: Iterator<Item = Result<Item<D>, E>>,
    B: Iterator<Item = Result<Item<D>, E>>,
{
    fn advance(&mut self) -> Result<Option<Change<D>>, DiffError<E>> {
        loop {
            let order = match (self.old.path(), self.new.path()) {
                (None, None) => return Ok(None),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(old), Some(new)) => old.cmp(new),
            };
            match order {
                Ordering::Less => return Ok(self.old.take()?.map(Change::Removed)),
                Ordering::Greater => return Ok(self.new.take()?.map(Change::Added)),
                Ordering::Equal => {}
            }
            let (Some(old), Some(new)) = (self.old.take()?, self.new.take()?) else {
                return Ok(None);
            };
            if let Some(difference) = Difference::between(&old, &new) {
                let (old, new) = (Box::new(old), Box::new(new));
                return Ok(Some(Change::Changed {
                    old,
                    new,
                    difference,
                }));
            }
        }
    }
}

impl<D, E, A, B> Iterator for Diff<D, E, A, B>
where
    D: PartialEq,
    A: Iterator<Item = Result<Item<D>, E>>,
    B: Iterator<Item = Result<Item<D>, E>>,
{
    type Item = Result<Change<D>, DiffError<E>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_failed {
            return None;
        }
        let next = self.advance();
        self.has_failed = next.is_err();
        next.transpose()
    }
}

impl<D, E, A, B> FusedIterator for Diff<D, E, A, B>
where
    D: PartialEq,
    A: Iterator<Item = Result<Item<D>, E>>,
    B: Iterator<Item = Result<Item<D>, E>>,
{
}

#[cfg(test)]
mod tests;
