//! What a tree contains, by content: the times of things do not count.

mod cloned;
mod witnessed;

pub use cloned::manifest_of_clone;
pub(super) use witnessed::Gatherer;

use crate::fs::metadata::{self, Seen};
use crate::fs::root_dir::RootDir;
use crate::tree::database_set;
use crate::tree::stat_cache::{CachedFile, CachedFiles, HeldContent, StatCache};
use crate::tree::walk::{
    self, Visitor, WalkError, WalkReport, WalkSettings, WalkSkip, WalkedDir, WalkedEntry,
};
use crate::worker_pool::{into_inner, lock};
use stasis_model::digest::{FileDigest, FileHasher, WorkspaceDigest};
use stasis_model::failure::Failure;
use stasis_model::format::manifest::StoredAs;
use stasis_model::tree::attributes::AttributesDigest;
use stasis_model::tree::diff::{ChangeKind, ContentChange, EntryDifference, TreeItem, diff_lists};
use stasis_model::tree::{EntryKind, EntryPath};
use stasis_model::workspace::SlotDatabase;
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;

const MAGIC: &[u8; 8] = b"STMANIF1";
/// What separates this digest from all others.
const DOMAIN: &str = "stasis workspace manifest v1";
/// How often a file that changes while it is read is read again.
const ATTEMPTS: usize = 3;
/// About what an entry takes.
const USUAL_ENTRY: usize = 128;
/// What is read of a file at once, and first of all.
const BUFFER: usize = 256 << 10;
const SMALL: usize = 16 << 10;

/// What an entry is, and holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ManifestKind {
    /// A regular file; each name of one that has several.
    File {
        /// Its length.
        size: u64,
        /// Its content.
        digest: FileDigest,
    },
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink {
        /// Where it points.
        target: Box<[u8]>,
    },
}

/// One entry of a manifest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ManifestEntry {
    /// Where it is.
    pub path: EntryPath,
    /// Its permissions; 0 for a symbolic link, which has none.
    pub mode: u32,
    /// What it is.
    pub what: ManifestKind,
    /// What stands for its extended attributes; nothing where it has none.
    pub attributes: Option<AttributesDigest>,
}

impl TreeItem for ManifestEntry {
    fn path(&self) -> &EntryPath {
        &self.path
    }
}

impl ManifestEntry {
    /// In what a newer entry of the same path differs.
    fn difference(&self, newer: &Self) -> Option<EntryDifference> {
        let difference = EntryDifference {
            kind: std::mem::discriminant(&self.what) != std::mem::discriminant(&newer.what),
            content: if self.what == newer.what {
                ContentChange::Same
            } else {
                ContentChange::Changed
            },
            metadata: self.mode != newer.mode,
            attributes: self.attributes != newer.attributes,
        };
        difference.is_any().then_some(difference)
    }
}

/// Everything in a tree, sorted by path. Pipes, sockets and devices are in no checkpoint, and not here either.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Manifest {
    entries: Vec<ManifestEntry>,
}

impl Manifest {
    /// A manifest of these entries, in whatever order they are.
    pub fn of(mut entries: Vec<ManifestEntry>) -> Self {
        entries.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        Self { entries }
    }

    /// The entries, sorted by path.
    pub fn entries(&self) -> &[ManifestEntry] {
        &self.entries
    }

    /// The entry at a path.
    pub fn find(&self, path: &EntryPath) -> Option<&ManifestEntry> {
        let found = self.entries.binary_search_by(|one| one.path.cmp(path));
        found.ok().map(|at| &self.entries[at])
    }

    /// The entry at a path, and everything in it.
    pub fn portion(&self, path: &EntryPath) -> &[ManifestEntry] {
        let is_in = |one: &ManifestEntry| {
            let mut components = one.path.components();
            path.components()
                .all(|name| components.next() == Some(name))
        };
        let first = self.entries.partition_point(|one| one.path < *path);
        let inside = self.entries[first..].iter().take_while(|one| is_in(one));
        &self.entries[first..first + inside.count()]
    }

    /// Equal for two trees with the same names, permissions, attributes, contents and links.
    pub fn hash(&self) -> WorkspaceDigest {
        hash_of(&self.to_bytes())
    }

    /// As it is kept, and its hash.
    pub(super) fn encoded(&self) -> EncodedManifest {
        let bytes = self.to_bytes();
        let hash = hash_of(&bytes);
        EncodedManifest { bytes, hash }
    }

    /// What became of the entries of `self` in `newer`, in the order of paths.
    pub fn diff(&self, newer: &Self) -> Vec<(EntryPath, ChangeKind)> {
        let found = diff_lists(&self.entries, &newer.entries, ManifestEntry::difference);
        let found = found.iter();
        found
            .map(|change| (change.path().clone(), change.kind()))
            .collect()
    }

    /// As it is kept in a slot: for each entry the length of its path, the path, permissions, `x` and a digest if it has attributes,
    /// one letter, and what it holds.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(MAGIC.len() + self.entries.len() * USUAL_ENTRY);
        bytes.extend_from_slice(MAGIC);
        for one in &self.entries {
            put(&mut bytes, one.path.as_bytes());
            bytes.extend_from_slice(&one.mode.to_le_bytes());
            if let Some(attributes) = one.attributes {
                bytes.push(b'x');
                bytes.extend_from_slice(attributes.as_bytes());
            }
            match &one.what {
                ManifestKind::File { size, digest } => {
                    bytes.push(b'f');
                    bytes.extend_from_slice(&size.to_le_bytes());
                    bytes.extend_from_slice(digest.as_bytes());
                }
                ManifestKind::Directory => bytes.push(b'd'),
                ManifestKind::Symlink { target } => {
                    bytes.push(b'l');
                    put(&mut bytes, target);
                }
            }
        }
        bytes
    }

    /// Reads it back; `None` when the bytes are not a manifest in order.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes.strip_prefix(MAGIC)?;
        let mut entries: Vec<ManifestEntry> = Vec::new();
        while !rest.is_empty() {
            let path = EntryPath::parse(text(&mut rest)?).ok()?;
            let mode = u32::from_le_bytes(*take(&mut rest)?);
            let mut letter = take::<1>(&mut rest)?;
            let mut attributes = None;
            if letter == b"x" {
                attributes = Some(AttributesDigest::from_document(*take(&mut rest)?));
                letter = take(&mut rest)?;
            }
            let what = match letter {
                b"f" => ManifestKind::File {
                    size: u64::from_le_bytes(*take(&mut rest)?),
                    digest: FileDigest::from_document(*take(&mut rest)?),
                },
                b"d" => ManifestKind::Directory,
                b"l" => ManifestKind::Symlink {
                    target: text(&mut rest)?.into(),
                },
                _ => return None,
            };
            if entries.last().is_some_and(|last| last.path >= path) {
                return None;
            }
            entries.push(ManifestEntry {
                path,
                mode,
                what,
                attributes,
            });
        }
        Some(Self { entries })
    }
}

/// The bytes of a manifest, and what they hash to.
#[derive(Debug)]
pub(super) struct EncodedManifest {
    pub(super) bytes: Vec<u8>,
    pub(super) hash: WorkspaceDigest,
}

impl EncodedManifest {
    /// These bytes, if that is their hash.
    pub(super) fn known(bytes: Vec<u8>, hash: WorkspaceDigest) -> Option<Self> {
        (hash_of(&bytes) == hash).then_some(Self { bytes, hash })
    }
}

fn hash_of(bytes: &[u8]) -> WorkspaceDigest {
    let mut hasher = blake3::Hasher::new_derive_key(DOMAIN);
    hasher.update(bytes);
    WorkspaceDigest::from_document(*hasher.finalize().as_bytes())
}

fn put(bytes: &mut Vec<u8>, text: &[u8]) {
    let length = u32::try_from(text.len()).expect("no path of Linux is that long");
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(text);
}

fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (first, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(first)
}

fn text<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = u32::from_le_bytes(*take(rest)?) as usize;
    let (text, behind) = rest.split_at_checked(length)?;
    *rest = behind;
    Some(text)
}

/// Lists what is beneath a root. Files that look as they did when the cache was made are not read.
pub fn manifest(
    root: &RootDir,
    cache: &mut StatCache,
    settings: &WalkSettings,
) -> Result<(Manifest, WalkReport), WalkError> {
    let reader = ManifestReader {
        cache,
        found: Mutex::default(),
    };
    let report = walk::walk(root, &reader, settings)?;
    let found = into_inner(reader.found);
    let (manifest, known) = found.finish();
    cache.replace(known);
    Ok((manifest, report))
}

/// The databases in a snapshot of a whole subvolume, which is of one moment: one beside which nothing waits to be written is
/// consistent, any other is what a power cut would have left.
pub fn databases_in_snapshot(snapshot: &RootDir, contents: &Manifest) -> Vec<SlotDatabase> {
    let waits = |path: &EntryPath| {
        let beside = [&b"-wal"[..], b"-journal"].into_iter();
        let beside = beside.map(|suffix| EntryPath::parse(&[path.as_bytes(), suffix].concat()));
        let mut beside = beside.filter_map(|path| contents.find(&path.ok()?));
        beside.any(|one| matches!(one.what, ManifestKind::File { size: 1.., .. }))
    };
    let is_database = |one: &&ManifestEntry| {
        matches!(one.what, ManifestKind::File { size, .. } if database_set::may_be(size))
            && witnessed::open_at(snapshot, &one.path).is_ok_and(database_set::is_database)
    };
    let databases = contents.entries.iter().filter(is_database);
    let databases = databases.map(|one| SlotDatabase {
        path: one.path.to_string(),
        state: if waits(&one.path) {
            StoredAs::CrashConsistent
        } else {
            StoredAs::Consistent
        },
        why: None,
    });
    databases.collect()
}

/// What was found of a tree.
#[derive(Default)]
struct GatheredEntries {
    entries: Vec<ManifestEntry>,
    /// Of its files, for the next time.
    known: CachedFiles,
    /// The directories that have attributes.
    directories: HashMap<EntryPath, AttributesDigest>,
}

impl GatheredEntries {
    /// The attributes of a directory are seen when it is entered, which is after it was listed.
    fn enter(&mut self, place: &WalkedDir<'_>) {
        let found = attributes_of(place.fd);
        self.directories
            .extend(found.map(|found| (place.path.clone(), found)));
    }

    fn finish(self) -> (Manifest, CachedFiles) {
        let mut entries = self.entries;
        for one in &mut entries {
            if one.what == ManifestKind::Directory {
                one.attributes = self.directories.get(&one.path).copied();
            }
        }
        (Manifest::of(entries), self.known)
    }
}

struct ManifestReader<'a> {
    cache: &'a StatCache,
    found: Mutex<GatheredEntries>,
}

/// What a file held when it was read.
struct ReadContent {
    seen: Seen,
    held: HeldContent,
    /// Whether it held still meanwhile.
    is_still: bool,
}

/// Reads a file; `None` when it is left out, which has been reported.
fn read(place: &WalkedDir<'_>, found: &WalkedEntry<'_>) -> Result<Option<ReadContent>, WalkError> {
    let Some((file, mut seen)) = place.open_file(found.name)? else {
        return Ok(None);
    };
    let mut file = File::from(file);
    for attempt in 1.. {
        let digest = match digest(&mut file) {
            Ok(digest) => digest,
            Err(source) => {
                let path = place.child(found.name)?;
                return Err(Failure::from_io(source, "read", path).into());
            }
        };
        let held = HeldContent {
            digest,
            attributes: attributes_of(&file),
        };
        let now = match metadata::of(&file) {
            Ok(now) => now,
            Err(error) => {
                place.could_not("look at", found.name, error)?;
                return Ok(None);
            }
        };
        let is_still = now.is_unchanged_since(&seen);
        if is_still || attempt == ATTEMPTS {
            if !is_still {
                place.skip(found.name, WalkSkip::Changed)?;
            }
            let seen = now;
            return Ok(Some(ReadContent {
                seen,
                held,
                is_still,
            }));
        }
        seen = now;
    }
    Ok(None)
}

fn digest(file: &mut File) -> std::io::Result<FileDigest> {
    std::io::Seek::rewind(file)?;
    let (mut hasher, mut small) = (FileHasher::default(), [0; SMALL]);
    // Most files are small.
    let mut read = file.read(&mut small)?;
    hasher.update(&small[..read]);
    let mut buffer = vec![0; if read == SMALL { BUFFER } else { 1 }];
    while read > 0 {
        read = file.read(&mut buffer)?;
        hasher.update(&buffer[..read]);
    }
    Ok(hasher.finish())
}

/// What stands for the attributes of an open file or directory; what says nothing of them has none.
pub(super) fn attributes_of(file: impl AsFd) -> Option<AttributesDigest> {
    AttributesDigest::of(&metadata::attributes(file).ok()?.user)
}

/// What an open file holds.
pub(super) fn content_of(file: OwnedFd) -> std::io::Result<HeldContent> {
    let attributes = attributes_of(&file);
    let digest = digest(&mut File::from(file))?;
    Ok(HeldContent { digest, attributes })
}

/// Lists some entries of a directory, asking `file` for the content of files.
fn list<'f>(
    place: &WalkedDir<'_>,
    entries: &'f [WalkedEntry<'f>],
    mut file: impl FnMut(
        &'f WalkedEntry<'f>,
        &EntryPath,
    ) -> Result<Option<(Seen, HeldContent)>, WalkError>,
) -> Result<Vec<ManifestEntry>, WalkError> {
    let mut listed = Vec::with_capacity(entries.len());
    for found in entries {
        let path = place.child(found.name)?;
        let mut attributes = None;
        let (mode, what) = match &found.kind {
            EntryKind::Directory => (found.seen.metadata().mode, ManifestKind::Directory),
            EntryKind::Symlink { target } => {
                let target = target.clone();
                (0, ManifestKind::Symlink { target })
            }
            EntryKind::File { .. } | EntryKind::HardLink { .. } => {
                let Some((seen, held)) = file(found, &path)? else {
                    continue;
                };
                let (size, digest) = (seen.size, held.digest);
                attributes = held.attributes;
                (seen.metadata().mode, ManifestKind::File { size, digest })
            }
            _ => continue,
        };
        listed.push(ManifestEntry {
            path,
            mode,
            what,
            attributes,
        });
    }
    Ok(listed)
}

impl Visitor for ManifestReader<'_> {
    type Error = WalkError;

    fn enter(&self, place: &WalkedDir<'_>) -> Result<(), WalkError> {
        let mut gathered = lock(&self.found);
        gathered.enter(place);
        Ok(())
    }

    fn visit(&self, place: &WalkedDir<'_>, entries: &[WalkedEntry<'_>]) -> Result<(), WalkError> {
        let mut known = Vec::new();
        let mut listed = list(place, entries, |found, path| {
            let content = match self.cache.find(&found.seen) {
                Some(known) => ReadContent {
                    seen: found.seen,
                    held: known.held(),
                    is_still: true,
                },
                None => match read(place, found)? {
                    Some(content) => content,
                    None => return Ok(None),
                },
            };
            let ReadContent { seen, held, .. } = content;
            if content.is_still && self.cache.is_settled(&seen) {
                known.push((seen.identity(), CachedFile::new(path, &seen, held)));
            }
            Ok(Some((seen, held)))
        })?;
        let mut gathered = lock(&self.found);
        gathered.entries.append(&mut listed);
        gathered.known.extend(known);
        Ok(())
    }
}
