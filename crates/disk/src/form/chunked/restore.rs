//! Writes the tree of a list.
//!
//! 1. read the list: directories and links are announced, files are noted in little memory
//! 2. take what is right already from the old tree
//! 3. clone what is held whole; fetch every chunk that is still needed once, in parallel, and write what lies in it
//!
//! *Always true:* only bytes whose chunk has the digest it is named for are written; a version has the length that the
//! file had, and as [`VersionProof`] says also the digest; the tree's own digest is checked by the caller before anything is put
//! in place.

mod fill;
mod linked;
mod reading;
mod rows;

pub(super) use reading::each_row_as;
pub use reading::{ListedTree, each_row, fetch_stored, read_list};

use super::list::ListReader;
use super::{ChunkError, ChunkSource};
use crate::fs::metadata::Seen;
use crate::fs::root_dir::RootDir;
use crate::tree::write::TreeWriter;
use fill::Filling;
use rows::RestoreRows;
use stasis_model::digest::{FileDigest, TreeDigest};
use stasis_model::format::manifest::FileList;
use stasis_model::tree::list::{FileContent, ListRow};
use stasis_model::tree::{EntryKind, EntryPath};
use std::collections::{HashMap, HashSet};
use std::num::NonZeroUsize;

/// Hears of entries of the old tree that are right as they are, and of what was seen of each before it was read.
pub type Leave<'s> = dyn Fn(&EntryPath, &Seen) + Sync + 's;

/// Says whether the old tree is known to hold a content at a path; asked by several workers at once.
pub type SameAs<'s> = dyn Fn(&EntryPath, &FileDigest) -> bool + Sync + 's;

/// What a restore works with.
pub struct RestoreParts<'s> {
    /// Where chunks come from.
    pub source: &'s dyn ChunkSource,
    /// The entries.
    pub list: &'s FileList,
    /// Where they go.
    pub writer: &'s TreeWriter,
    /// What of the tree is wanted; everything if nothing is named.
    pub only: &'s [EntryPath],
    /// The directory of the tree that becomes the target, instead of the whole of it.
    pub part: Option<&'s EntryPath>,
    /// Whether what is named may be missing in the tree; else that is an error.
    pub may_be_missing: bool,
    /// What is there already: files in it that are right need not be fetched.
    pub old: Option<&'s RootDir>,
    /// Hears of files that are right where they are, and are not written again; without, everything is written.
    pub leave: Option<&'s Leave<'s>>,
    /// Whether a file of the old tree is known to hold a content, so that it is not read; without, it is.
    pub same: Option<&'s SameAs<'s>>,
    /// How closely what is held whole is looked at.
    pub versions: VersionProof,
    /// How many chunks are fetched at once.
    pub workers: NonZeroUsize,
}

/// How closely a version is looked at before a file is made of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VersionProof {
    /// It must be as long as the file was. A clone of it reads nothing.
    Size,
    /// The file that was made of it is read, and must have the digest that it had.
    Digest,
}

/// What was written.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use = "the tree may be put in place only if its digest is the right one"]
pub struct WrittenTree {
    /// The digest of the whole list, wanted or not.
    pub digest: TreeDigest,
    /// Chunks that were fetched.
    pub chunks_fetched: u64,
    /// Files that were taken from the old tree.
    pub files_reused: u64,
    /// Bytes of those.
    pub bytes_reused: u64,
    /// Files that were left as they are.
    pub files_left: u64,
    /// Bytes of those.
    pub bytes_left: u64,
}

/// Writes a tree; finishing the writer is left to the caller.
pub fn restore(parts: &RestoreParts<'_>) -> Result<WrittenTree, ChunkError> {
    let borrowed = borrowed(parts.source, parts.list, parts.only)?;
    let mut rows = RestoreRows::default();
    let mut found: Vec<bool> = vec![false; parts.only.len()];
    let digest = reading::each_row(parts.source, parts.list, |row| {
        if is_wanted(parts.only, &row.entry.path, &mut found)
            && let Some(row) = seen_from(as_file(row, &borrowed), parts.part)
        {
            announce(parts, row, &mut rows)?;
        }
        Ok(())
    })?;
    let missing = found.iter().position(|found| !found);
    if let Some(at) = missing.filter(|_| !parts.may_be_missing) {
        return Err(ChunkError::NoSuchEntry(parts.only[at].clone()));
    }
    let bytes = rows.files.iter().map(|file| file.size);
    let bytes = bytes.fold(0, u64::saturating_add);
    parts.writer.expect(rows.files.len() as u64, bytes);
    let filled = Filling::new(parts, rows).run()?;
    Ok(WrittenTree { digest, ..filled })
}

/// An entry as it is seen from a part of the tree; none of what is not in that, nor of the part itself, which is the target.
fn seen_from(mut row: ListRow, part: Option<&EntryPath>) -> Option<ListRow> {
    let Some(part) = part else {
        return Some(row);
    };
    row.entry.path = row.entry.path.seen_from(part)?;
    if let EntryKind::HardLink { to } = &mut row.entry.kind {
        *to = to.seen_from(part)?;
    }
    Some(row)
}

/// A link to a file of which no other name is wanted becomes that file.
fn as_file(mut row: ListRow, borrowed: &Borrowed) -> ListRow {
    match &row.entry.kind {
        EntryKind::HardLink { to } if let Some(file) = borrowed.get(to) => {
            let mut file = file.clone();
            file.entry.path = std::mem::take(&mut row.entry.path);
            file
        }
        _ => row,
    }
}

/// Whether an entry is one of those named, in one of them, or on the way to one.
fn is_wanted(only: &[EntryPath], path: &EntryPath, found: &mut [bool]) -> bool {
    let mut is_wanted = only.is_empty();
    for (one, found) in only.iter().zip(found) {
        let is_in = path.is_within(one);
        *found |= is_in;
        is_wanted |= is_in || one.is_within(path);
    }
    is_wanted
}

/// The files that wanted links lead to, but that are not wanted themselves.
pub(super) type Borrowed = HashMap<EntryPath, ListRow>;

/// Finds them; everything is wanted if nothing is named.
pub(super) fn borrowed(
    source: &dyn ChunkSource,
    list: &FileList,
    only: &[EntryPath],
) -> Result<Borrowed, ChunkError> {
    let mut borrowed = Borrowed::new();
    if only.is_empty() {
        return Ok(borrowed);
    }
    let mut ignored = vec![false; only.len()];
    let mut needed = HashSet::new();
    let mut reader = ListReader::new(source, list)?;
    while let Some(row) = reader.next_row()? {
        if let EntryKind::HardLink { to } = &row.entry.kind
            && is_wanted(only, &row.entry.path, &mut ignored)
            && !is_wanted(only, to, &mut ignored)
        {
            needed.insert(to.clone());
        }
    }
    if needed.is_empty() {
        return Ok(borrowed);
    }
    let mut reader = ListReader::new(source, list)?;
    while let Some(row) = reader.next_row()? {
        if needed.contains(&row.entry.path) {
            borrowed.insert(row.entry.path.clone(), row);
        }
    }
    Ok(borrowed)
}

fn announce(
    parts: &RestoreParts<'_>,
    row: ListRow,
    rows: &mut RestoreRows,
) -> Result<(), ChunkError> {
    let ListRow { entry, content } = row;
    let no_content = || FileContent {
        digest: FileDigest::of(b""),
        extents: Vec::new(),
        pieces: Vec::new(),
    };
    match &entry.kind {
        EntryKind::File { .. } => rows.push(entry, &content.unwrap_or_else(no_content)),
        // Whether another name is right where it is, is known when its file is looked at.
        EntryKind::HardLink { to } if parts.leave.is_some() => {
            let to = to.clone();
            rows.links.entry(to).or_default().push(entry);
        }
        _ => parts.writer.entry(&entry)?,
    }
    Ok(())
}
