//! Everything in a tree but the content of files, in order and compact.

use crate::fs::metadata;
use crate::fs::root_dir::RootDir;
use crate::tree::stat_cache::FileStat;
use crate::tree::walk::{
    self, Visitor, WalkError, WalkReport, WalkSettings, WalkSkip, WalkedDir, WalkedEntry,
};
use crate::worker_pool::{into_inner, lock};
use stasis_model::failure::AtPath;
use stasis_model::tree::list::FILE_MAX;
use stasis_model::tree::{Attribute, Entry, EntryKind, EntryPath, FileTime, Metadata};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// What an entry is, without the content of files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ScannedKind {
    File,
    Directory,
    /// Boxed twice, so that the many entries without a target stay small.
    Symlink(Box<Box<[u8]>>),
    HardLink(Box<EntryPath>),
    Fifo,
}

/// One entry of a directory, in 80 bytes: a tree has millions of them.
#[derive(Clone, Debug)]
pub(super) struct Spotted {
    pub(super) what: ScannedKind,
    device: u64,
    inode: u64,
    size: u64,
    modified: i64,
    changed: i64,
    modified_nanos: u32,
    changed_nanos: u32,
    uid: u32,
    gid: u32,
    start: u32,
    mode: u16,
    length: u8,
}

const _: () = assert!(size_of::<Spotted>() <= 80, "millions of these are held");

impl Spotted {
    pub(super) fn metadata(&self) -> Metadata {
        Metadata {
            mode: self.mode.into(),
            uid: self.uid,
            gid: self.gid,
            modified: FileTime {
                seconds: self.modified,
                nanos: self.modified_nanos,
            },
        }
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn stat(&self) -> FileStat {
        FileStat {
            device: self.device,
            inode: self.inode,
            size: self.size,
            modified: self.metadata().modified,
            changed: FileTime {
                seconds: self.changed,
                nanos: self.changed_nanos,
            },
        }
    }

    /// Whether this is the entry that was seen before, as far as can be told without opening it.
    pub(super) fn is_still(&self, entry: &Entry, below: Option<&ScannedDir>) -> bool {
        let metadata = self.metadata();
        match (&self.what, &entry.kind) {
            (ScannedKind::File, EntryKind::File { .. }) | (ScannedKind::Fifo, EntryKind::Fifo) => {
                metadata == entry.metadata
            }
            (ScannedKind::Directory, EntryKind::Directory) => {
                let attributes = below.map_or(&[][..], |below| &below.attributes);
                metadata == entry.metadata && attributes == entry.attributes
            }
            (ScannedKind::Symlink(target), EntryKind::Symlink { target: before }) => {
                let (mode, seen) = (entry.metadata.mode, metadata);
                **target == *before && Metadata { mode, ..seen } == entry.metadata
            }
            (ScannedKind::HardLink(to), EntryKind::HardLink { to: before }) => {
                **to == *before && metadata == entry.metadata
            }
            _ => false,
        }
    }
}

/// One directory with its entries, sorted by name.
#[derive(Debug)]
pub(super) struct ScannedDir {
    pub(super) path: EntryPath,
    pub(super) attributes: Vec<Attribute>,
    names: Vec<u8>,
    pub(super) entries: Vec<Spotted>,
}

impl ScannedDir {
    pub(super) fn name(&self, spotted: &Spotted) -> &[u8] {
        let start = spotted.start as usize;
        &self.names[start..start + usize::from(spotted.length)]
    }

    pub(super) fn path_of(&self, spotted: &Spotted) -> EntryPath {
        self.path
            .child(self.name(spotted))
            .expect("the kernel's names are names")
    }

    fn push(&mut self, found: &WalkedEntry<'_>, what: ScannedKind) {
        let name = found.name.to_bytes();
        let start = u32::try_from(self.names.len()).expect("no directory has that many names");
        self.names.extend_from_slice(name);
        let metadata = found.seen.metadata();
        let seen = &found.seen;
        self.entries.push(Spotted {
            what,
            device: seen.device,
            inode: seen.inode,
            size: seen.size,
            modified: seen.modified.seconds,
            changed: seen.changed.seconds,
            modified_nanos: seen.modified.nanos,
            changed_nanos: seen.changed.nanos,
            uid: metadata.uid,
            gid: metadata.gid,
            start,
            mode: u16::try_from(metadata.mode).expect("a mode has twelve bits"),
            length: u8::try_from(name.len()).expect("no name is longer than 255 bytes"),
        });
    }

    fn sort(&mut self) {
        let mut entries = std::mem::take(&mut self.entries);
        entries.sort_unstable_by(|one, other| self.name(one).cmp(self.name(other)));
        entries.shrink_to_fit();
        self.entries = entries;
    }
}

/// A whole tree, directories in the order of their paths.
#[derive(Debug)]
pub(super) struct Scan {
    pub(super) listings: Vec<ScannedDir>,
    pub(super) root: Metadata,
    /// Attributes of directories that are not the user's.
    pub(super) attributes_left_out: u64,
}

/// Where an entry is in a [`Scan`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Spot {
    pub(super) listing: u32,
    pub(super) entry: u32,
}

impl Scan {
    /// Looks at everything beneath `root`.
    pub(super) fn of(
        root: &RootDir,
        settings: &WalkSettings,
    ) -> Result<(Self, WalkReport), WalkError> {
        let fd = root.directory(b"").on("look at", EntryPath::root())?;
        let seen = metadata::of(&fd).on("look at", EntryPath::root())?;
        let collector = ScanCollector::default();
        let report = walk::walk(root, &collector, settings)?;
        let listings = into_inner(collector.listings);
        let mut listings: Vec<ScannedDir> = listings.into_values().collect();
        listings.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        listings.iter_mut().for_each(ScannedDir::sort);
        let scan = Self {
            listings,
            root: seen.metadata(),
            attributes_left_out: collector.left_out.into_inner(),
        };
        Ok((scan, report))
    }

    /// The user's attributes of the root itself.
    pub(super) fn root_attributes(&self) -> Vec<Attribute> {
        let root = self
            .listings
            .first()
            .filter(|listing| listing.path.is_root());
        root.map(|root| root.attributes.clone()).unwrap_or_default()
    }

    /// The files that may belong to a database beside them, going by their names, each with that file.
    pub(super) fn companions(
        &self,
        owner_of: impl Fn(&[u8]) -> Option<&[u8]>,
    ) -> HashMap<Spot, Spot> {
        let mut all = HashMap::new();
        for (listing, here) in (0_u32..).zip(&self.listings) {
            for (entry, spotted) in (0_u32..).zip(&here.entries) {
                let Some(owner) = owner_of(here.name(spotted)) else {
                    continue;
                };
                let found = here
                    .entries
                    .binary_search_by(|one| here.name(one).cmp(owner));
                if let Ok(at) = found
                    && spotted.what == ScannedKind::File
                    && here.entries[at].what == ScannedKind::File
                {
                    let at = u32::try_from(at).expect("no directory has that many names");
                    all.insert(Spot { listing, entry }, Spot { listing, entry: at });
                }
            }
        }
        all
    }

    /// Takes over what a directory looks like now: to copy a database in it may have made and removed a log there.
    pub(super) fn refresh(&mut self, listing: u32, root: &RootDir) {
        let path = self.listings[listing as usize].path.clone();
        let seen = root
            .directory(path.as_bytes())
            .and_then(|fd| metadata::of(&fd));
        let Ok(seen) = seen else { return };
        let Some((above, name)) = path.split_last() else {
            self.root = seen.metadata();
            return;
        };
        let found = self.listings.binary_search_by(|one| one.path.cmp(&above));
        let Ok(found) = found else { return };
        let here = &self.listings[found];
        let found_entry = here
            .entries
            .binary_search_by(|one| here.name(one).cmp(name));
        if let Ok(entry) = found_entry {
            let spotted = &mut self.listings[found].entries[entry];
            (spotted.modified, spotted.modified_nanos) =
                (seen.modified.seconds, seen.modified.nanos);
        }
    }

    pub(super) fn get(&self, spot: Spot) -> (&ScannedDir, &Spotted) {
        let listing = &self.listings[spot.listing as usize];
        (listing, &listing.entries[spot.entry as usize])
    }

    /// Shows every entry in the order of paths; of a directory also its own listing, if it could be read.
    pub(super) fn for_each<E>(
        &self,
        mut show: impl FnMut(Spot, &EntryPath, Option<&ScannedDir>) -> Result<(), E>,
    ) -> Result<(), E> {
        // Directories are met in the order of their paths, so a cursor finds each one's listing.
        let mut next = 1;
        let mut open: Vec<(u32, u32)> = vec![(0, 0)];
        while let Some((listing, entry)) = open.last_mut() {
            let here = &self.listings[*listing as usize];
            let Some(spotted) = here.entries.get(*entry as usize) else {
                open.pop();
                continue;
            };
            let spot = Spot {
                listing: *listing,
                entry: *entry,
            };
            *entry += 1;
            let path = here.path_of(spotted);
            let below = self.listings.get(next as usize);
            let below =
                below.filter(|below| spotted.what == ScannedKind::Directory && below.path == path);
            show(spot, &path, below)?;
            if below.is_some() {
                open.push((next, 0));
                next += 1;
            }
        }
        Ok(())
    }
}

#[derive(Default)]
struct ScanCollector {
    listings: Mutex<HashMap<EntryPath, ScannedDir>>,
    left_out: AtomicU64,
}

impl Visitor for ScanCollector {
    type Error = WalkError;

    fn enter(&self, place: &WalkedDir<'_>) -> Result<(), WalkError> {
        let attributes = metadata::attributes(place.fd).on("read the attributes of", place.path)?;
        self.left_out
            .fetch_add(attributes.others, Ordering::Relaxed);
        let listing = ScannedDir {
            path: place.path.clone(),
            attributes: attributes.user,
            names: Vec::new(),
            entries: Vec::new(),
        };
        let mut listings = lock(&self.listings);
        listings.insert(place.path.clone(), listing);
        Ok(())
    }

    fn visit(&self, place: &WalkedDir<'_>, entries: &[WalkedEntry<'_>]) -> Result<(), WalkError> {
        let is_too_large = |found: &WalkedEntry<'_>| {
            let is_file = matches!(
                found.kind,
                EntryKind::File { .. } | EntryKind::HardLink { .. }
            );
            is_file && found.seen.size > FILE_MAX
        };
        for found in entries {
            if found.kind == EntryKind::Fifo {
                place.skip(found.name, WalkSkip::Fifo)?;
            } else if is_too_large(found) {
                place.skip(found.name, WalkSkip::TooLarge)?;
            }
        }
        let mut listings = lock(&self.listings);
        let listing = listings
            .get_mut(place.path)
            .expect("a directory is entered before it is shown");
        // Most directories are shown at once: what grows by doubling would leave gaps that nothing else fits into.
        if listing.entries.is_empty() {
            let names = entries.iter().map(|found| found.name.to_bytes().len());
            listing.names.reserve_exact(names.sum());
            listing.entries.reserve_exact(entries.len());
        }
        for found in entries.iter().filter(|found| !is_too_large(found)) {
            let what = match &found.kind {
                EntryKind::File { .. } => ScannedKind::File,
                EntryKind::Directory => ScannedKind::Directory,
                EntryKind::Symlink { target } => ScannedKind::Symlink(Box::new(target.clone())),
                EntryKind::HardLink { to } => ScannedKind::HardLink(Box::new(to.clone())),
                EntryKind::Fifo => ScannedKind::Fifo,
                _ => continue,
            };
            listing.push(found, what);
        }
        Ok(())
    }
}
