//! What a restore reads, whether it writes or not. A check runs the same code with nowhere to write to, so that the two cannot
//! disagree about what can be restored.

use crate::form::chunked::list::ListReader;
use crate::form::chunked::{ChunkError, ChunkSource, fetch};
use crate::tree::write::WriteLimits;
use stasis_model::digest::TreeDigest;
use stasis_model::format::chunk::other_payload;
use stasis_model::format::manifest::FileList;
use stasis_model::invalid::Invalid;
use stasis_model::tree::canonical::TreeHasher;
use stasis_model::tree::list::{FileContent, ListRow, StoredChunk};
use stasis_model::tree::{EntryKind, EntryPath};
use std::collections::{BTreeSet, HashSet};

/// Symbolic links lead no further than this on Linux.
const TARGET_MAX: usize = 4095;

const NO_DIRECTORY: &str = "what it lies in is not a directory of the tree";
const NO_TARGET: &str = "no symbolic link can lead there";
const TOO_MUCH: &str = "the tree has more entries, bytes or levels than can be written";

/// What a snapshot's list leads to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedTree {
    /// What the tree is.
    pub digest: TreeDigest,
    /// The chunks that its files lie in, fingerprints included.
    pub chunks: BTreeSet<StoredChunk>,
}

/// Reads a whole list as a restore does, and says what it leads to. Nothing is written.
pub fn read_list(source: &dyn ChunkSource, list: &FileList) -> Result<ListedTree, ChunkError> {
    let mut chunks = BTreeSet::new();
    let digest = each_row(source, list, |row| {
        let slices = row.content.iter().flat_map(FileContent::slices);
        chunks.extend(slices.map(|slice| slice.chunk));
        // A store holds no versions: what it says of one cannot be restored.
        if let Some(version) = row.content.filter(FileContent::is_version) {
            source.version(&version.digest)?;
        }
        Ok(())
    })?;
    Ok(ListedTree { digest, chunks })
}

/// The plaintext of a chunk, which must be what its name says, and as long as the list says.
pub fn fetch_stored(source: &dyn ChunkSource, chunk: &StoredChunk) -> Result<Vec<u8>, ChunkError> {
    let plain = fetch(source, &chunk.name)?;
    if plain.len() == chunk.plain_len as usize {
        return Ok(plain);
    }
    Err(ChunkError::Damaged {
        name: chunk.name,
        source: other_payload(),
    })
}

/// Shows every entry of a list in the order of paths; says what the tree is. Refused is what could not be written anywhere.
pub fn each_row(
    source: &dyn ChunkSource,
    list: &FileList,
    show: impl FnMut(ListRow) -> Result<(), ChunkError>,
) -> Result<TreeDigest, ChunkError> {
    each_row_as(source, list, show)
}

/// The same for whoever has other reasons to stop.
pub(in crate::form::chunked) fn each_row_as<E: From<ChunkError>>(
    source: &dyn ChunkSource,
    list: &FileList,
    mut show: impl FnMut(ListRow) -> Result<(), E>,
) -> Result<TreeDigest, E> {
    let (mut reader, mut hasher) = (ListReader::new(source, list)?, TreeHasher::new());
    let mut shape = TreeShape::default();
    while let Some(row) = reader.next_row()? {
        let content = row.content.as_ref().map(|content| &content.digest);
        hasher.entry(&row.entry, content);
        shape.add(&row)?;
        show(row)?;
    }
    shape.links_lead_to_files(source, list)?;
    Ok(hasher.finish())
}

/// What entries that come in the order of paths make together.
#[derive(Debug, Default)]
struct TreeShape {
    /// The directory that came last, and those it lies in.
    open: Vec<EntryPath>,
    /// Where hard links lead, and one that leads there.
    links: Vec<(EntryPath, EntryPath)>,
    entries: u64,
    bytes: u64,
}

impl TreeShape {
    fn add(&mut self, row: &ListRow) -> Result<(), ChunkError> {
        let path = &row.entry.path;
        let unfit = |why: &'static str| ChunkError::Unfit {
            path: path.clone(),
            source: Invalid::new(why),
        };
        let (above, _) = path.split_last().ok_or_else(|| unfit(NO_DIRECTORY))?;
        while self.open.last().is_some_and(|open| *open != above) {
            self.open.pop();
        }
        if !above.is_root() && self.open.is_empty() {
            return Err(unfit(NO_DIRECTORY));
        }
        let limits = WriteLimits::default();
        self.entries += 1;
        match &row.entry.kind {
            EntryKind::Directory => self.open.push(path.clone()),
            EntryKind::Symlink { target } => {
                if target.is_empty() || target.len() > TARGET_MAX || target.contains(&0) {
                    return Err(unfit(NO_TARGET));
                }
            }
            EntryKind::HardLink { to } => self.links.push((to.clone(), path.clone())),
            EntryKind::File { size } => self.bytes = self.bytes.saturating_add(*size),
            EntryKind::Fifo => {}
            _ => return Err(unfit(NO_DIRECTORY)),
        }
        if self.entries > limits.entries
            || self.bytes > limits.bytes
            || self.open.len() > limits.deepest
        {
            return Err(unfit(TOO_MUCH));
        }
        Ok(())
    }

    /// Few trees have hard links; those that have are read once more.
    fn links_lead_to_files(
        self,
        source: &dyn ChunkSource,
        list: &FileList,
    ) -> Result<(), ChunkError> {
        if self.links.is_empty() {
            return Ok(());
        }
        let mut missed: HashSet<&EntryPath> = self.links.iter().map(|(to, _)| to).collect();
        let mut reader = ListReader::new(source, list)?;
        while let Some(row) = reader.next_row()? {
            if matches!(row.entry.kind, EntryKind::File { .. }) {
                missed.remove(&row.entry.path);
            }
        }
        match self.links.iter().find(|(to, _)| missed.contains(to)) {
            Some((to, path)) => Err(ChunkError::Unfit {
                path: path.clone(),
                source: Invalid::new(format!(
                    "it is another name of `{to}`, which is not a file of the tree"
                )),
            }),
            None => Ok(()),
        }
    }
}
