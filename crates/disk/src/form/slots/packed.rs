//! A checkpoint that is a list: `workspace.json` and `system.json` say what each tree is, `chunks` and `versions` what both need.
//!
//! The document is that of a snapshot in a repository, and so are the lists and chunks it leads to.

mod sets;

use super::MANIFEST;
use super::chunks::Incoming;
use super::error::SlotError;
use super::manifest::{EncodedManifest, Manifest, ManifestEntry, ManifestKind};
use super::measure;
use super::restore::stage_above;
use super::versions::{VERSIONS, Versions};
use crate::form::chunked::list::ListReader;
use crate::form::chunked::list_cache::ListCacheKey;
use crate::form::chunked::restore::{RestoreParts, SameAs, VersionProof, fetch_stored, restore};
use crate::form::chunked::save::{Parent, SaveParts, SaveSettings, Saved, save};
use crate::form::chunked::{ChunkSource, VersionSink};
use crate::fs::fd::open_dir;
use crate::fs::metadata::{self, Seen};
use crate::fs::root_dir::{Mounts, RootDir};
use crate::progress::Progress;
use crate::tree::restore::{
    PlacedTree, Placement, RestoreChanges, RestoreLimits, RestoreOrigin, RestoreStage,
};
use crate::tree::walk::WalkSettings;
use crate::tree::write::{TreeWriter, WriteReport, WriteSettings};
use crate::worker_pool::{into_inner, lock};
use rustix::fs;
use sets::Sets;
use stasis_model::digest::{FileDigest, FileHasher};
use stasis_model::failure::AtPath;
use stasis_model::format::document;
use stasis_model::format::manifest::{FileList, SnapshotManifest};
use stasis_model::id::{OpId, SnapshotId};
use stasis_model::protocol::gc::ChunkName;
use stasis_model::time::Timestamp;
use stasis_model::tree::attributes::AttributesDigest;
use stasis_model::tree::chunking::Chunker;
use stasis_model::tree::list::{Extent, FileContent, ListRow};
use stasis_model::tree::{EntryKind, EntryPath};
use stasis_model::workspace::{SlotForm, SlotMetadata};
use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// What the tree of the workspace is, in a slot.
pub(super) const WORKSPACE_DOCUMENT: &str = "workspace.json";
/// What that of the system is.
pub(super) const SYSTEM_DOCUMENT: &str = "system.json";
/// Which chunks both need.
pub(super) const NAMES: &str = "chunks";
/// Everything in the slot of a list that does not change any more, some of which it may not have.
pub(super) const DOCUMENTS: [&str; 5] = [
    WORKSPACE_DOCUMENT,
    SYSTEM_DOCUMENT,
    NAMES,
    VERSIONS,
    MANIFEST,
];
/// How hard chunks are compressed.
pub(super) const LEVEL: i32 = 3;
/// How many chunks are read at once.
const WORKERS: NonZeroUsize = NonZeroUsize::new(4).expect("it is not zero");

/// One operation id stands for all chunks of a session: they are never told apart.
pub(super) fn own() -> OpId {
    "00000000000000000000000000000001"
        .parse()
        .expect("it is an id")
}

/// The id under which the tree of a checkpoint is cached: never the same for two, always as long.
pub(super) fn id_of(metadata: &SlotMetadata) -> SnapshotId {
    let id = format!(
        "cp-{:016x}-{:016x}",
        metadata.epoch_millis, metadata.sequence
    );
    id.parse().expect("digits and letters are a name")
}

/// What a tree is saved from and with.
pub(super) struct Packing<'a> {
    pub(super) metadata: &'a SlotMetadata,
    pub(super) walk: &'a WalkSettings,
    pub(super) progress: &'a Arc<Progress>,
    /// The newest list of the same tree, and the id of its checkpoint.
    pub(super) parent: Option<(&'a SnapshotManifest, SnapshotId)>,
    /// The documents of all checkpoints that are there.
    pub(super) known: &'a HashSet<SnapshotId>,
    /// Where the list of the tree is cached; without, everything is read.
    pub(super) cache: Option<PathBuf>,
    /// Where databases are copied to, out of everybody's sight.
    pub(super) spool: &'a Path,
    /// Whether it is wanted what is in it.
    pub(super) is_listed: bool,
    /// Whether files are held whole, as far as they can be cloned.
    pub(super) holds_versions: bool,
    /// The chunks of the newest list that are not there any more.
    pub(super) missing: &'a HashSet<ChunkName>,
}

/// Opens what is to be saved: a directory, or the one that an image is in, less everything else in it.
pub(super) fn open(path: &Path, walk: &WalkSettings) -> Result<(RootDir, WalkSettings), SlotError> {
    let seen = fs::stat(path).at("look at", path)?;
    let mut walk = walk.clone();
    if metadata::Seen::from(&seen).file_type().is_dir() {
        let root = RootDir::open(path, Mounts::Stay).at("open", path)?;
        return Ok((root, walk));
    }
    let (Some(above), Some(name)) = (
        path.parent(),
        path.file_name().and_then(|name| name.to_str()),
    ) else {
        return Ok(Err(rustix::io::Errno::INVAL).at("open", path)?);
    };
    let literal: String = name.chars().flat_map(|c| ['\\', c]).collect();
    walk.excludes = vec!["/*".to_owned(), format!("!/{literal}")];
    let root = RootDir::open(above, Mounts::Stay).at("open", above)?;
    Ok((root, walk))
}

/// A tree that was stored.
pub(super) struct Packed {
    pub(super) document: SnapshotManifest,
    pub(super) saved: Saved,
    /// What is in it; empty when that is what is in the parent.
    pub(super) contents: Manifest,
}

/// Stores what is new of a tree.
pub(super) fn pack(
    path: &Path,
    incoming: &Incoming<'_>,
    packing: &Packing<'_>,
) -> Result<Packed, SlotError> {
    let (root, walk) = open(path, packing.walk)?;
    let newest = packing.parent.clone();
    let parent = newest.map(|(document, id)| parent(document, id));
    let parent = parent.transpose()?;
    let snapshot = id_of(packing.metadata);
    let at = Timestamp::from_millis(packing.metadata.epoch_millis);
    let settings = SaveSettings {
        walk: walk.clone(),
        chunker: Chunker::default(),
        level: LEVEL,
        started: at,
        cache: packing
            .cache
            .clone()
            .map(|file| ListCacheKey { file, repo: own() }),
        progress: packing.progress.clone(),
    };
    let contents = Mutex::new(Ok(Contents::default()));
    let witness = |row: &ListRow| {
        let mut contents = lock(&contents);
        if let Ok(gathered) = &mut *contents
            && let Err(error) = gathered.add(row)
        {
            *contents = Err(error);
        }
    };
    let sets = Sets::new(&root, packing.spool, &walk.cancel)?;
    let parts = SaveParts {
        root: &root,
        sink: incoming,
        source: incoming,
        parent: parent.as_ref(),
        is_indexed: &|id| packing.known.contains(id),
        snapshot: &snapshot,
        damaged: packing.missing,
        witness: packing.is_listed.then_some(&witness),
        databases: Some(&sets),
        versions: packing
            .holds_versions
            .then_some(incoming as &dyn VersionSink),
        held: None,
    };
    let saved = save(&parts, &settings).map_err(SlotError::Pack)?;
    let contents = into_inner(contents)?;
    let mut document = document_of(&saved, snapshot, at);
    document.excludes = walk.excludes;
    Ok(Packed {
        document,
        saved,
        contents: Manifest::of(contents.entries),
    })
}

/// Says what a tree is that was stored.
fn document_of(saved: &Saved, snapshot: SnapshotId, at: Timestamp) -> SnapshotManifest {
    let name = "workspace".parse().expect("it is a name");
    let mut document = SnapshotManifest::new(name, snapshot, own(), at);
    document.state_digest = saved.digest;
    document.totals = saved.totals;
    document.set_root(&saved.root, &saved.root_attributes);
    document.set_list(&saved.list);
    document
}

/// Its document may be that of an older checkpoint of the same tree, so that the id is the slot's.
fn parent(document: &SnapshotManifest, snapshot: SnapshotId) -> Result<Parent, SlotError> {
    Ok(Parent {
        snapshot,
        digest: document.state_digest,
        totals: document.totals,
        root: document.root(),
        root_attributes: document.root_attributes()?,
        list: document.list()?,
    })
}

/// What a checkpoint says that the document of a tree is, if it says so.
pub(super) fn digest_of(of: &SlotMetadata, name: &str) -> Option<FileDigest> {
    match name {
        SYSTEM_DOCUMENT => of.system_digest,
        _ => of.workspace_digest,
    }
}

/// Reads the document of a tree of a checkpoint; `None` when there is none. That of another checkpoint is an error, however whole it is.
pub(super) fn read(
    slot: &Path,
    of: &SlotMetadata,
    name: &str,
) -> Result<Option<SnapshotManifest>, SlotError> {
    let path = slot.join(name);
    let bytes = match std::fs::read(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        bytes => bytes.at("read", &path)?,
    };
    if digest_of(of, name).is_some_and(|digest| FileDigest::of(&bytes) != digest) {
        let what = "it is torn, or belongs to another checkpoint";
        return Err(SlotError::Document(format!("{}: {what}", path.display())));
    }
    let read = document::parse(&bytes);
    read.map(Some)
        .map_err(|error| SlotError::Document(format!("{}: {error}", path.display())))
}

/// What a tree contains.
pub(super) fn contents(
    source: &dyn ChunkSource,
    document: &SnapshotManifest,
) -> Result<Manifest, SlotError> {
    contents_of_list(source, &document.list()?)
}

/// What a list contains, wherever its chunks are.
pub fn contents_of_list(source: &dyn ChunkSource, list: &FileList) -> Result<Manifest, SlotError> {
    let mut reader = ListReader::new(source, list)?;
    let mut contents = Contents::default();
    while let Some(row) = reader.next_row()? {
        contents.add(&row)?;
    }
    Ok(Manifest::of(contents.entries))
}

/// The first bytes of a file of a tree, read from its chunks alone; `None` when it is no file of it.
pub(super) fn file(
    source: &dyn ChunkSource,
    document: &SnapshotManifest,
    path: &EntryPath,
    most: u64,
) -> Result<Option<Vec<u8>>, SlotError> {
    let Some(FoundFile(content)) = content_of(source, document, path)? else {
        return Ok(None);
    };
    let mut bytes = Vec::new();
    if let Some(content) = content {
        let mut keep = |piece: &[u8]| {
            bytes.extend_from_slice(piece);
            Ok(())
        };
        pieces(source, &content, most, &mut keep)?.expect("nothing is written to a file");
    }
    Ok(Some(bytes))
}

/// Writes a file of a tree; `None` when it is no file of it. The inner error is that of `out`. What was written is what the tree says, or an
/// error says that it is not.
pub(super) fn copy_file(
    source: &dyn ChunkSource,
    document: &SnapshotManifest,
    path: &EntryPath,
    out: &mut dyn Write,
) -> Result<Option<io::Result<u64>>, SlotError> {
    let Some(FoundFile(content)) = content_of(source, document, path)? else {
        return Ok(None);
    };
    let Some(content) = content else {
        return Ok(Some(Ok(0)));
    };
    let (mut hasher, mut written) = (FileHasher::default(), 0);
    let mut write = |piece: &[u8]| {
        hasher.update(piece);
        written += piece.len() as u64;
        out.write_all(piece)
    };
    if let Err(error) = pieces(source, &content, u64::MAX, &mut write)? {
        return Ok(Some(Err(error)));
    }
    if hasher.finish() != content.digest {
        let damaged = format!("`{path}` in it is damaged: its bytes are not those that were kept");
        return Err(SlotError::Document(damaged));
    }
    Ok(Some(Ok(written)))
}

/// A file of a tree, with what it has in it: nothing of an empty one.
struct FoundFile(Option<FileContent>);

/// What a file of a tree has in it; `None` when it is no file of it.
fn content_of(
    source: &dyn ChunkSource,
    document: &SnapshotManifest,
    path: &EntryPath,
) -> Result<Option<FoundFile>, SlotError> {
    let list = document.list()?;
    let mut wanted = path.clone();
    // Another name of a file leads to its first one, which came before.
    for _ in 0..2 {
        let mut reader = ListReader::new(source, &list)?;
        let mut first_name = None;
        while let Some(row) = reader.next_row()? {
            if row.entry.path != wanted {
                continue;
            }
            match row.entry.kind {
                EntryKind::HardLink { to } => first_name = Some(to),
                EntryKind::File { .. } => return Ok(Some(FoundFile(row.content))),
                _ => {}
            }
            break;
        }
        match first_name {
            Some(first) => wanted = first,
            None => break,
        }
    }
    Ok(None)
}

/// How much of a file is held at once that lies in no chunk.
const PIECE: usize = 256 << 10;

/// Hands on the first bytes of a file, piece by piece, until somebody wants no more; the inner error is theirs.
fn pieces(
    source: &dyn ChunkSource,
    content: &FileContent,
    most: u64,
    take: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> Result<io::Result<()>, SlotError> {
    for extent in content.stretches().get(0, most) {
        let taken = match extent {
            Extent::Hole(length) => copied(&mut io::repeat(0).take(length), take),
            Extent::Version(length) => {
                let file = std::fs::File::from(source.version(&content.digest)?);
                copied(&mut file.take(length), take)
            }
            Extent::Stored(slice) => {
                let chunk = fetch_stored(source, &slice.chunk)?;
                let (from, length) = (slice.offset as usize, slice.length as usize);
                let part = chunk.get(from..from.saturating_add(length));
                let part = part.ok_or_else(|| {
                    SlotError::Document("a file lies beyond the end of its chunk".to_owned())
                })?;
                Ok(take(part))
            }
        };
        if let Err(error) = taken.on("read a version of", content.digest)? {
            return Ok(Err(error));
        }
    }
    Ok(Ok(()))
}

/// Hands on everything that is read; the inner error is that of whoever takes it.
pub(super) fn copied(
    from: &mut dyn Read,
    take: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<io::Result<()>> {
    let mut buffer = vec![0; PIECE];
    loop {
        match from.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
            Ok(0) => return Ok(Ok(())),
            Ok(read) => {
                if let Err(error) = take(&buffer[..read]) {
                    return Ok(Err(error));
                }
            }
        }
    }
}

/// The entries of a list, which come in the order of paths.
#[derive(Default)]
struct Contents {
    entries: Vec<ManifestEntry>,
}

impl Contents {
    fn add(&mut self, row: &ListRow) -> Result<(), SlotError> {
        let digest = row.content.as_ref().map(|content| content.digest);
        let mut attributes = AttributesDigest::of(&row.entry.attributes);
        let (mode, what) = match &row.entry.kind {
            EntryKind::Directory => (row.entry.metadata.mode, ManifestKind::Directory),
            EntryKind::Symlink { target } => {
                let target = target.clone();
                (0, ManifestKind::Symlink { target })
            }
            EntryKind::File { size } => {
                let (size, digest) = (*size, digest.unwrap_or_else(|| FileDigest::of(b"")));
                (row.entry.metadata.mode, ManifestKind::File { size, digest })
            }
            EntryKind::HardLink { to } => {
                let first = self.first_name(to)?;
                attributes = first.attributes;
                (first.mode, first.what.clone())
            }
            _ => return Ok(()),
        };
        self.entries.push(ManifestEntry {
            path: row.entry.path.clone(),
            mode,
            what,
            attributes,
        });
        Ok(())
    }

    /// What the file is whose first name is this.
    fn first_name(&self, path: &EntryPath) -> Result<&ManifestEntry, SlotError> {
        let found = self.entries.binary_search_by(|one| one.path.cmp(path));
        let first = found.ok().map(|at| &self.entries[at]);
        let first = first.filter(|one| matches!(one.what, ManifestKind::File { .. }));
        first.ok_or_else(|| SlotError::Document(format!("`{path}` has no content")))
    }
}

/// Writes a tree, or some of it, into an empty directory of ours.
pub(super) fn unpack(
    source: &dyn ChunkSource,
    document: &SnapshotManifest,
    into: rustix::fd::OwnedFd,
    only: &[EntryPath],
) -> Result<(), SlotError> {
    let writer = TreeWriter::new(into, WriteSettings::default())?;
    // Whoever takes from this tree checks nothing any more: the chunks and the digest have been checked here.
    let _ = write(source, document, writer, only, None)?;
    Ok(())
}

/// Where the tree of a checkpoint goes.
pub(super) struct SlotPlacing<'a> {
    pub(super) target: &'a Path,
    pub(super) placement: Placement,
    pub(super) limits: RestoreLimits,
    pub(super) origin: RestoreOrigin,
    /// Whether the checkpoint has the one entry that is wanted, if one is.
    pub(super) is_there: bool,
    /// What it has of what is restored with that.
    pub(super) beside: Vec<EntryPath>,
    /// Whether the old tree is known to hold a content, if it is known.
    pub(super) same: Option<&'a SameAs<'a>>,
    /// Where files and bytes are counted.
    pub(super) progress: Arc<Progress>,
    /// How closely versions are looked at. What goes over a live tree, or is only looked at, is little and is read. A fork is everything.
    pub(super) versions: VersionProof,
}

/// Makes a directory a checkpoint's tree, or one entry of it: a new one, or in place.
pub(super) fn place(
    source: &dyn ChunkSource,
    document: &SnapshotManifest,
    placing: SlotPlacing<'_>,
) -> Result<RestoreChanges, SlotError> {
    let mut stage = RestoreStage::begin(placing.target, placing.placement, Arc::default())?;
    let (only, beside) = (placing.limits.only.clone(), placing.beside);
    stage.limit(placing.limits);
    let writer = stage.writer(WriteSettings {
        progress: placing.progress,
        ..WriteSettings::default()
    })?;
    if let Some(only) = only.as_ref().filter(|_| !placing.is_there) {
        stage_above(&stage, &writer, None, only)?;
    }
    let written = if placing.is_there {
        let only: Vec<EntryPath> = only.into_iter().chain(beside).collect();
        let old = OldTree {
            stage: &stage,
            same: placing.same,
            versions: placing.versions,
        };
        write(source, document, writer, &only, Some(old))?
    } else {
        let head = Some(&document.root());
        writer.finish(head)?
    };
    let restored = stage.swap(written, &placing.origin)?;
    Ok(match restored.placed {
        PlacedTree::InPlace(changes) => changes,
        _ => RestoreChanges::default(),
    })
}

/// What is restored over, and what is known of it.
#[derive(Clone, Copy)]
struct OldTree<'a> {
    stage: &'a RestoreStage,
    same: Option<&'a SameAs<'a>>,
    versions: VersionProof,
}

fn write(
    source: &dyn ChunkSource,
    document: &SnapshotManifest,
    writer: TreeWriter,
    only: &[EntryPath],
    old: Option<OldTree<'_>>,
) -> Result<WriteReport, SlotError> {
    let (stage, same) = (old.map(|old| old.stage), old.and_then(|old| old.same));
    let list = document.list()?;
    let attributes = document.root_attributes()?;
    let head = document.root();
    let leave = |path: &EntryPath, seen: &Seen| {
        if let Some(stage) = stage {
            stage.leave_as_seen(path, seen);
        }
    };
    let is_in_place = stage.is_some_and(|stage| stage.placement() == Placement::InPlace);
    let versions = old.map_or(VersionProof::Digest, |old| old.versions);
    writer.directory(&EntryPath::root(), &head, &attributes)?;
    let tree = restore(&RestoreParts {
        part: None,
        may_be_missing: false,
        source,
        list: &list,
        writer: &writer,
        only,
        old: stage.and_then(RestoreStage::old),
        leave: is_in_place.then_some(&leave),
        same,
        versions,
        workers: WORKERS,
    });
    let tree = tree.map_err(SlotError::Unpack)?;
    if tree.digest != document.state_digest {
        let what = "its tree is not what its document says".to_owned();
        return Err(SlotError::Document(what));
    }
    Ok(writer.finish(Some(&head))?)
}

/// What is wrong with the documents of a list: one that is torn or missing. Whoever goes on from that would hand it down.
pub(super) fn problem(slot: &Path, of: &SlotMetadata, versions: &Versions) -> Option<String> {
    let says = |name: &str| format!("its `{name}` is torn, missing or that of another checkpoint");
    if !matches!(read(slot, of, WORKSPACE_DOCUMENT), Ok(Some(_))) {
        return Some(says(WORKSPACE_DOCUMENT));
    }
    let system = read(slot, of, SYSTEM_DOCUMENT);
    if !system.is_ok_and(|system| system.is_some() || of.system_digest.is_none()) {
        return Some(says(SYSTEM_DOCUMENT));
    }
    if measure::named(slot).is_none() {
        return Some(says(NAMES));
    }
    let versions = || versions.named(open_dir(slot).ok()?.as_fd(), Some(of.form));
    if of.form == SlotForm::Versions && versions().is_none() {
        return Some(says(VERSIONS));
    }
    let manifest = |hash| EncodedManifest::known(std::fs::read(slot.join(MANIFEST)).ok()?, hash);
    let is_listed = of.hash.is_none_or(|hash| manifest(hash).is_some());
    (!is_listed).then(|| says(MANIFEST))
}

/// What is needed to read a checkpoint in chunks.
pub(super) fn document(slot: &Path, of: &SlotMetadata) -> Result<SnapshotManifest, SlotError> {
    let found = read(slot, of, WORKSPACE_DOCUMENT)?;
    found.ok_or_else(|| SlotError::Document(format!("{} has no tree", slot.display())))
}
