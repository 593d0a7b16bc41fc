//! The chunks of a session: what its chunked checkpoints are made of, each stored once. The versions of files that are held whole
//! come with them ([`versions`](super::versions)).
//!
//! `chunks/<64 hex digits>`. To store some: write them into a temporary directory beside; `syncfs`; rename each into place; `fsync`
//! the directory. To remove some: [`Chunks::sweep`] removes what no checkpoint names.
//!
//! What an interrupted checkpoint wrote is not lost: the next one takes each chunk over that it needs, when it is what its name says.
//!
//! *Always true:* a chunk that has its name was durable before it had it. Whoever stores or sweeps holds the pool's lock, so that
//! nothing is swept that somebody is about to rely on. A sweep that cannot read what a checkpoint names removes nothing.

use super::cost;
use super::error::SlotError;
use super::versions::{self, SetAside, VersionNames, Versions};
use crate::form::chunked::{
    ChunkCodec, ChunkError, ChunkSink, ChunkSource, ClonedVersion, EncodedChunk, PlacedChunk,
    VersionSink, is_rot,
};
use crate::fs::atomic_write;
use crate::fs::fd::{open_dir_in, reopen_dir};
use crate::fs::metadata;
use crate::fs::staging::{self, Staging};
use crate::fs::sys::listing::Listing;
use crate::tree::clone::Fallback;
use crate::tree::content::{self, CarryError};
use crate::worker_pool::lock;
use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::Errno;
use stasis_model::digest::{ChunkDigest, FileDigest};
use stasis_model::failure::{AtPath, Failure};
use stasis_model::protocol::gc::{ChunkName, GcEpoch, Names};
use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// Where they are in a session directory.
pub(super) const DIRECTORY: &str = "chunks";
const INCOMING: &CStr = c"incoming";
/// What a check takes again waits under another name, so that it takes nothing from an interrupted checkpoint.
const HEALING: &CStr = c"healing";
const ANY_ROOM: &(dyn Fn() -> u64 + Sync) = &|| u64::MAX;
/// What the kernel fills with names in one call.
const BUFFER: usize = 32 << 10;

/// The chunks of one session.
#[derive(Debug)]
pub(super) struct Chunks {
    path: PathBuf,
    fd: OwnedFd,
    versions: Versions,
}

fn name_of(name: &ChunkName) -> CString {
    CString::new(name.digest().to_string()).expect("digits have no NUL")
}

fn aside_name(digest: &ChunkDigest) -> CString {
    CString::new(format!("{}{digest}", versions::ASIDE)).expect("digits have no NUL")
}

impl Chunks {
    /// Opens them; makes the directory if there is none.
    pub(super) fn open(session: &Path) -> Result<Self, SlotError> {
        let path = session.join(DIRECTORY);
        atomic_write::make_directory(&path)?;
        let fd = open_dir_in(fs::CWD, &path).at("open the directory", &path)?;
        let versions = Versions::open(session)?;
        Ok(Self { path, fd, versions })
    }

    /// The versions that are held whole.
    pub(super) fn versions(&self) -> &Versions {
        &self.versions
    }

    /// What each takes on the disk.
    pub(super) fn costs(&self) -> Result<HashMap<ChunkDigest, u64>, SlotError> {
        let listed = reopen_dir(&self.fd).at("list", &self.path)?;
        let mut buffer = Vec::with_capacity(BUFFER);
        let mut entries = Listing::new(&listed, buffer.spare_capacity_mut());
        let mut costs = HashMap::new();
        while let Some(entry) = entries.read() {
            let entry = entry.at("list", &self.path)?;
            let name = entry.file_name();
            let Some(digest) = name.to_str().ok().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let seen = fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW);
            let seen = seen.at("look at a chunk in", &self.path)?;
            costs.insert(
                digest,
                cost::file(u64::try_from(seen.st_size).unwrap_or_default()),
            );
        }
        Ok(costs)
    }

    /// Whether one is there; nobody looks at what is in it.
    pub(super) fn has(&self, name: &ChunkName) -> Result<bool, Failure> {
        let (name, flags) = (name_of(name), AtFlags::empty());
        match fs::accessat(&self.fd, &*name, fs::Access::EXISTS, flags) {
            Err(Errno::NOENT) => Ok(false),
            found => found.at("look for a chunk in", &self.path).map(|()| true),
        }
    }

    /// Removes what interrupted checkpoints left for the next one.
    pub(super) fn collect(&self) {
        staging::collect(&self.fd, INCOMING);
        staging::collect(&self.fd, HEALING);
    }

    /// Removes what is named nowhere.
    pub(super) fn sweep(&self, named: &HashSet<ChunkDigest>) -> Result<(), SlotError> {
        for digest in self.costs()?.into_keys() {
            if !named.contains(&digest) {
                let name = ChunkName::new(digest, GcEpoch::FIRST);
                match fs::unlinkat(&self.fd, &*name_of(&name), AtFlags::empty()) {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(error) => return Ok(Err(error).at("remove a chunk from", &self.path)?),
                }
            }
        }
        Ok(())
    }

    /// Moves one that holds something else out of the way; nothing is read from it any more.
    pub(super) fn set_aside(&self, name: &ChunkName) -> Result<(), SlotError> {
        let (from, to) = (name_of(name), aside_name(&name.digest()));
        match fs::renameat(&self.fd, &*from, &self.fd, &*to) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Ok(Err(error).at("set a damaged chunk aside in", &self.path)?),
        }
    }

    /// Removes what was set aside of one that is stored again. What stays goes with the last checkpoint that names it.
    pub(super) fn remove_aside(&self, name: &ChunkName) {
        let _ = fs::unlinkat(&self.fd, &*aside_name(&name.digest()), AtFlags::empty());
    }

    /// Removes those that were set aside and that are named nowhere.
    pub(super) fn sweep_aside(&self, named: &HashSet<ChunkDigest>) -> Result<(), SlotError> {
        let is_aside = |name: &[u8]| name.starts_with(versions::ASIDE.as_bytes());
        let found = staging::named(&self.fd, b"", is_aside).at("list", &self.path)?;
        for name in found {
            let digest = name.to_str().ok();
            let digest = digest.and_then(|name| name.strip_prefix(versions::ASIDE)?.parse().ok());
            if digest.is_some_and(|digest: ChunkDigest| !named.contains(&digest)) {
                let removed = fs::unlinkat(&self.fd, &*name, AtFlags::empty());
                removed.at("remove a damaged chunk from", &self.path)?;
            }
        }
        Ok(())
    }

    /// Begins to store some, no more bytes of the disk than `room` says, which is asked when there is something to store.
    pub(super) fn incoming<'a>(
        &'a self,
        room: &'a (dyn Fn() -> u64 + Sync),
    ) -> Result<Incoming<'a>, SlotError> {
        // Held while the new directory is made, so that nobody takes them for garbage.
        let left = staging::leftovers(&self.fd, INCOMING)
            .at("make a temporary directory in", &self.path)?;
        let staging = self.staging(INCOMING)?;
        let mut adopted = HashMap::new();
        for one in left {
            adopt(&one.fd, &staging, &mut adopted);
            // What stays of it is removed by the next one.
            let _ = one.remove(&self.fd);
        }
        Ok(self.incoming_in(staging, adopted, room))
    }

    /// Begins to take again what was lost; others make checkpoints meanwhile.
    pub(super) fn healing(&self) -> Result<Incoming<'_>, SlotError> {
        let staging = self.staging(HEALING)?;
        Ok(self.incoming_in(staging, HashMap::new(), ANY_ROOM))
    }

    fn staging(&self, name: &CStr) -> Result<Staging, SlotError> {
        let again = reopen_dir(&self.fd);
        let staging = again.and_then(|parent| Staging::make(parent, name));
        Ok(staging.at("make a temporary directory in", &self.path)?)
    }

    fn incoming_in<'a>(
        &'a self,
        staging: Staging,
        adopted: HashMap<ChunkDigest, u64>,
        room: &'a (dyn Fn() -> u64 + Sync),
    ) -> Incoming<'a> {
        Incoming {
            chunks: self,
            staging,
            room,
            allowance: OnceLock::new(),
            wanted: AtomicU64::new(0),
            adopted,
            placed: Mutex::default(),
            written: Mutex::default(),
            clones: AtomicU64::new(0),
            held: Mutex::default(),
        }
    }

    /// What was set aside of chunks and versions.
    pub(super) fn aside(&self) -> Result<Vec<SetAside>, SlotError> {
        let mut all = versions::set_aside_in(&self.fd, &self.path)?;
        all.extend(self.versions.aside()?);
        Ok(all)
    }

    /// Makes durable what was set aside.
    pub(super) fn sync_aside(&self) -> Result<(), SlotError> {
        fs::fsync(&self.fd).at("set damaged chunks aside in", &self.path)?;
        let versions = &self.versions;
        Ok(fs::fsync(versions.fd()).at("set damaged versions aside in", versions.path())?)
    }

    fn read(&self, name: &ChunkName) -> io::Result<Option<Vec<u8>>> {
        match std::fs::read(self.path.join(name.digest().to_string())) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Takes over the chunks that an interrupted checkpoint wrote, with what each costs. Those that are torn, or not what their name says, stay
/// where they are.
fn adopt(from: &OwnedFd, into: &Staging, adopted: &mut HashMap<ChunkDigest, u64>) {
    let is_any = |_: &[u8]| true;
    for file in staging::named(from, b"", is_any).unwrap_or_default() {
        let digest = file.to_str().ok().and_then(|name| name.parse().ok());
        let Some(digest) = digest else {
            continue;
        };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(opened) = fs::openat(from, &*file, flags, Mode::empty()) else {
            continue;
        };
        let mut bytes = Vec::new();
        let is_read = File::from(opened).read_to_end(&mut bytes).is_ok();
        let name = ChunkName::new(digest, GcEpoch::FIRST);
        if is_read
            && ChunkCodec::Plain.open(&name, &bytes).is_ok()
            && fs::renameat(from, &*file, into.root(), &*file).is_ok()
        {
            adopted.insert(digest, cost::file(bytes.len() as u64));
        }
    }
}

fn moving(name: ChunkName) -> impl FnOnce(io::Error) -> ChunkError {
    move |source| ChunkError::Moving {
        name,
        source: Box::new(source),
    }
}

impl ChunkSource for Chunks {
    fn codec(&self) -> &ChunkCodec {
        &ChunkCodec::Plain
    }

    fn fetch(&self, name: &ChunkName) -> Result<Vec<u8>, ChunkError> {
        self.read(name)
            .map_err(moving(*name))?
            .ok_or(ChunkError::Absent(*name))
    }

    fn version(&self, digest: &FileDigest) -> Result<OwnedFd, ChunkError> {
        self.versions.version(digest)
    }
}

/// Chunks and versions on their way in. Dropped before they are kept, they are removed.
pub(super) struct Incoming<'a> {
    chunks: &'a Chunks,
    staging: Staging,
    /// Says what the chunks may take.
    room: &'a (dyn Fn() -> u64 + Sync),
    allowance: OnceLock<u64>,
    /// What all of them would take; what is over the allowance is counted, and not written.
    wanted: AtomicU64,
    /// What an interrupted checkpoint wrote, with what each costs; counts when it is needed.
    adopted: HashMap<ChunkDigest, u64>,
    placed: Mutex<HashSet<ChunkDigest>>,
    written: Mutex<Vec<ChunkName>>,
    /// How many clones were made.
    clones: AtomicU64,
    /// The versions that were not there before, with what each takes. They are held however much that is: what a clone shares takes no
    /// room, and what all of them take together is counted before they are kept.
    held: Mutex<HashMap<FileDigest, u64>>,
}

/// What a version is called on its way in: no chunk is called so.
fn incoming_name(digest: &FileDigest) -> CString {
    CString::new(format!("{digest}.version")).expect("digits have no NUL")
}

fn clone_name(number: u64) -> CString {
    CString::new(format!("clone-{number}")).expect("digits have no NUL")
}

impl Incoming<'_> {
    /// What the chunks may take.
    pub(super) fn allowance(&self) -> u64 {
        *self.allowance.get_or_init(|| (self.room)())
    }

    /// What all chunks take, written or not.
    pub(super) fn wanted(&self) -> u64 {
        self.wanted.load(Ordering::Relaxed)
    }

    /// The versions that the checkpoint in a directory names.
    pub(super) fn names_of(&self, slot: BorrowedFd<'_>) -> Option<Arc<VersionNames>> {
        self.chunks.versions.named(slot, None)
    }

    /// What a version takes of the disk, there already or new.
    pub(super) fn version_cost(&self, digest: &FileDigest) -> Option<u64> {
        let new = lock(&self.held).get(digest).copied();
        new.or_else(|| self.chunks.versions.cost(digest))
    }

    /// Opens a version, there already or new.
    pub(super) fn open_version(&self, digest: &FileDigest) -> Option<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let name = incoming_name(digest);
        let opened = fs::openat(self.staging.root(), &*name, flags, Mode::empty());
        opened
            .ok()
            .or_else(|| self.chunks.versions.version(digest).ok())
    }

    /// Whether a directory lies on the same filesystem.
    pub(super) fn is_beside(&self, directory: BorrowedFd<'_>) -> bool {
        let device = |fd: BorrowedFd<'_>| fs::fstat(fd).map(|seen| seen.st_dev);
        let (own, other) = (device(self.staging.root()), device(directory));
        own.is_ok() && own == other
    }

    /// Whether nothing was stored.
    pub(super) fn is_empty(&self) -> bool {
        lock(&self.written).is_empty() && lock(&self.held).is_empty() && self.wanted() == 0
    }

    /// Leaves what was written to the next checkpoint.
    pub(super) fn leave(mut self) {
        self.staging.disarm();
    }

    /// Makes them durable, and gives each its name.
    pub(super) fn keep(self) -> Result<(), SlotError> {
        self.sync()?;
        self.give_names()
    }

    /// Makes them durable.
    pub(super) fn sync(&self) -> Result<(), SlotError> {
        let synced = self.staging.sync();
        Ok(synced.at("make chunks durable in", &self.chunks.path)?)
    }

    /// Gives each its name; they are durable already.
    pub(super) fn give_names(self) -> Result<(), SlotError> {
        for name in lock(&self.written).iter() {
            let name = name_of(name);
            let kept = fs::renameat(self.staging.root(), &*name, &self.chunks.fd, &*name);
            kept.at("make chunks durable in", &self.chunks.path)?;
        }
        fs::fsync(&self.chunks.fd).at("make chunks durable in", &self.chunks.path)?;
        self.keep_versions()
    }

    fn keep_versions(&self) -> Result<(), SlotError> {
        let versions = &self.chunks.versions;
        let mut is_any = false;
        for digest in lock(&self.held).keys() {
            let (from, to) = (incoming_name(digest), versions::name_of(digest));
            let kept = fs::renameat(self.staging.root(), &*from, versions.fd(), &*to);
            kept.at("make versions durable in", versions.path())?;
            is_any = true;
        }
        if is_any {
            fs::fsync(versions.fd()).at("make versions durable in", versions.path())?;
        }
        Ok(())
    }
}

impl VersionSink for Incoming<'_> {
    fn clone_file(&self, file: BorrowedFd<'_>, size: u64) -> io::Result<Option<ClonedVersion>> {
        let number = self.clones.fetch_add(1, Ordering::Relaxed);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let name = clone_name(number);
        let mode = Mode::RUSR | Mode::WUSR;
        let cloned = fs::openat(self.staging.root(), &*name, flags, mode)?;
        let never = AtomicBool::new(false);
        match content::carry(file, cloned.as_fd(), size, Fallback::Refuse, &never) {
            Ok(_) => {
                let size = metadata::of(&cloned)?.size;
                Ok(Some(ClonedVersion {
                    file: cloned,
                    size,
                    number,
                }))
            }
            Err(CarryError::CannotShare(_)) => {
                fs::unlinkat(self.staging.root(), &*name, AtFlags::empty())?;
                Ok(None)
            }
            Err(CarryError::Failed(error)) => Err(error.into()),
            Err(CarryError::Late | CarryError::Cancelled) => Err(io::ErrorKind::Interrupted.into()),
        }
    }

    fn holds(&self, digest: &FileDigest, size: u64) -> bool {
        let found = metadata::look(
            self.chunks.versions.fd().as_fd(),
            &versions::name_of(digest),
        );
        found.is_ok_and(|seen| seen.file_type().is_file() && seen.size == size)
    }

    fn held(&self) -> Result<HashSet<FileDigest>, ChunkError> {
        Ok(self.chunks.versions.list()?.into_iter().collect())
    }

    fn hold(&self, cloned: ClonedVersion, digest: &FileDigest) -> io::Result<()> {
        let (root, name) = (self.staging.root(), clone_name(cloned.number));
        let bytes = metadata::of(&cloned.file)?.blocks * 512;
        let mut held = lock(&self.held);
        // One that is held already under that name may have rotted; this one was just read.
        if cloned.size == 0 || held.contains_key(digest) {
            drop(held);
            return Ok(fs::unlinkat(root, &*name, AtFlags::empty())?);
        }
        held.insert(*digest, bytes);
        drop(held);
        Ok(fs::renameat(root, &*name, root, &*incoming_name(digest))?)
    }
}

impl ChunkSource for Incoming<'_> {
    fn codec(&self) -> &ChunkCodec {
        &ChunkCodec::Plain
    }

    fn fetch(&self, name: &ChunkName) -> Result<Vec<u8>, ChunkError> {
        self.chunks.fetch(name)
    }

    fn version(&self, digest: &FileDigest) -> Result<OwnedFd, ChunkError> {
        self.chunks.version(digest)
    }
}

impl ChunkSink for Incoming<'_> {
    fn codec(&self) -> &ChunkCodec {
        &ChunkCodec::Plain
    }

    fn place(
        &self,
        digest: ChunkDigest,
        _known: Option<ChunkName>,
    ) -> Result<PlacedChunk, ChunkError> {
        let name = ChunkName::new(digest, GcEpoch::FIRST);
        let is_first = lock(&self.placed).insert(digest);
        let is_stored = !is_first || self.chunks.has(&name)?;
        let adopted = self.adopted.get(&digest).filter(|_| !is_stored);
        if let Some(cost) = adopted {
            let all = self.wanted.fetch_add(*cost, Ordering::Relaxed) + cost;
            if all <= self.allowance() {
                lock(&self.written).push(name);
            }
        }
        let is_stored = is_stored || adopted.is_some();
        Ok(PlacedChunk { name, is_stored })
    }

    fn place_list(
        &self,
        digest: ChunkDigest,
        known: Option<ChunkName>,
    ) -> Result<PlacedChunk, ChunkError> {
        // What was adopted has been looked at.
        let is_ours = lock(&self.placed).contains(&digest) || self.adopted.contains_key(&digest);
        let mut placed = self.place(digest, known)?;
        if placed.is_stored && !is_ours {
            let found = match self.chunks.read(&placed.name) {
                // What cannot be read is stored anew.
                Err(error) if is_rot(&error) => None,
                found => found.map_err(moving(placed.name))?,
            };
            placed.is_stored =
                found.is_some_and(|bytes| ChunkCodec::Plain.open(&placed.name, &bytes).is_ok());
        }
        Ok(placed)
    }

    fn put(&self, chunk: EncodedChunk) -> Result<(), ChunkError> {
        let cost = cost::file(chunk.bytes.len() as u64);
        if self.wanted.fetch_add(cost, Ordering::Relaxed) + cost > self.allowance() {
            return Ok(());
        }
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = fs::openat(
            self.staging.root(),
            &*name_of(&chunk.name),
            flags,
            Mode::RUSR | Mode::WUSR,
        );
        let written = made
            .map_err(io::Error::from)
            .and_then(|file| File::from(file).write_all(&chunk.bytes));
        written.map_err(moving(chunk.name))?;
        lock(&self.written).push(chunk.name);
        Ok(())
    }
}

/// The names of chunks as a checkpoint keeps them: 32 bytes each, then a digest of all.
pub(super) fn names_to_bytes(names: &Names) -> Vec<u8> {
    let digests = names.iter().map(ChunkName::digest);
    let mut bytes: Vec<u8> = digests.flat_map(|digest| *digest.as_bytes()).collect();
    let digest = blake3::hash(&bytes);
    bytes.extend_from_slice(digest.as_bytes());
    bytes
}

/// Reads them back; `None` when they are torn.
pub(super) fn names_from_bytes(bytes: &[u8]) -> Option<Vec<ChunkDigest>> {
    let (body, digest) = bytes.split_last_chunk::<32>()?;
    if blake3::hash(body) != *digest {
        return None;
    }
    let (names, rest) = body.as_chunks::<32>();
    rest.is_empty().then(|| {
        names
            .iter()
            .map(|one| ChunkDigest::from_document(*one))
            .collect()
    })
}
