//! Passes what the kernel asks on to the mounted tree, and the answers back.

use super::point::{self, MountPoint};
use super::tree::{Attributes, Listed, Listing, MountedTree, Refusal};
use anyhow::Context as _;
use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr,
    ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyXattr,
    Request, Session, SessionACL,
};
use stasis_engine::browser::NodeKind;
use stasis_engine::model::tree::FileTime;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What the kernel may believe of a snapshot: it never changes.
const FOR_LONG: Duration = Duration::from_hours(24);
/// What it may believe of which snapshots there are.
const FOR_NOW: Duration = Duration::from_secs(1);
/// How many questions are answered at once: many wait for a store.
const THREADS: usize = 8;
/// How long somebody who still reads is waited for when it is unmounted.
const LAST_READS: Duration = Duration::from_secs(2);
const TICK: Duration = Duration::from_millis(50);

/// Who may look at what is mounted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    /// Whoever has mounted it, all of it.
    Owner,
    /// Everybody, as the modes of the files allow.
    Everybody,
}

/// A tree that is mounted. Whoever drops it without a word leaves it mounted until this process ends.
pub(crate) struct MountSession {
    session: BackgroundSession,
    point: MountPoint,
}

impl MountSession {
    /// Mounts a tree.
    pub(crate) fn begin(
        tree: MountedTree,
        point: MountPoint,
        access: Access,
    ) -> anyhow::Result<Self> {
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::RO,
            MountOption::NoSuid,
            MountOption::NoDev,
            MountOption::NoAtime,
            MountOption::FSName(point::NAME.to_owned()),
            MountOption::Subtype(point::NAME.to_owned()),
        ];
        if access == Access::Everybody {
            config.acl = SessionACL::All;
            config.mount_options.push(MountOption::DefaultPermissions);
        }
        config.n_threads = Some(THREADS);
        config.clone_fd = true;
        let asked = Asked {
            tree: Arc::new(tree),
            listings: Mutex::default(),
            next: AtomicU64::new(1),
        };
        let session = Session::new(asked, point.path(), &config);
        let session = session.and_then(Session::spawn);
        let session = session
            .map_err(point::explained)
            .with_context(|| format!("could not mount on {}", point.path().display()))?;
        Ok(Self { session, point })
    }

    /// Whether somebody else has unmounted it.
    pub(crate) fn has_ended(&self) -> bool {
        self.session.guard.is_finished()
    }

    /// Unmounts it. Whoever still has a file of it open is waited for a little, and then cannot read on.
    pub(crate) async fn end(self) -> anyhow::Result<()> {
        if !self.has_ended() {
            let detached = self.point.detach();
            detached
                .with_context(|| format!("could not unmount {}", self.point.path().display()))?;
        }
        for _ in 0..LAST_READS.as_millis() / TICK.as_millis() {
            if self.has_ended() {
                return Ok(());
            }
            tokio::time::sleep(TICK).await;
        }
        // It is in no directory any more; its last readers see the end of this process.
        std::mem::forget(self.session);
        Ok(())
    }
}

/// What the kernel asks.
struct Asked {
    tree: Arc<MountedTree>,
    /// Directories that somebody is listing.
    listings: Mutex<HashMap<u64, Arc<Listing>>>,
    next: AtomicU64,
}

impl Asked {
    fn listings(&self) -> MutexGuard<'_, HashMap<u64, Arc<Listing>>> {
        self.listings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn listing(&self, handle: FileHandle) -> Option<Arc<Listing>> {
        self.listings().get(&handle.0).cloned()
    }
}

fn errno(refusal: Refusal) -> Errno {
    match refusal {
        Refusal::Absent => Errno::ENOENT,
        Refusal::Unreadable => Errno::EIO,
        Refusal::NotADirectory => Errno::ENOTDIR,
        Refusal::NotALink => Errno::EINVAL,
        Refusal::IsADirectory => Errno::EISDIR,
    }
}

fn time(at: FileTime) -> SystemTime {
    let whole = Duration::from_secs(at.seconds.unsigned_abs());
    let nanos = Duration::from_nanos(at.nanos.into());
    let second = if at.seconds < 0 {
        UNIX_EPOCH.checked_sub(whole)
    } else {
        UNIX_EPOCH.checked_add(whole)
    };
    let time = second.and_then(|second| second.checked_add(nanos));
    time.unwrap_or(UNIX_EPOCH)
}

fn file_type(kind: NodeKind) -> FileType {
    match kind {
        NodeKind::File => FileType::RegularFile,
        NodeKind::Directory => FileType::Directory,
        NodeKind::Symlink => FileType::Symlink,
        NodeKind::Fifo => FileType::NamedPipe,
    }
}

fn attr(of: &Attributes) -> FileAttr {
    let at = time(of.metadata.modified);
    FileAttr {
        ino: INodeNo(of.inode),
        size: of.size,
        blocks: of.size.div_ceil(512),
        atime: at,
        mtime: at,
        ctime: at,
        crtime: at,
        kind: file_type(of.kind),
        perm: u16::try_from(of.metadata.mode & 0o7777).expect("twelve bits"),
        nlink: of.links,
        uid: of.metadata.uid,
        gid: of.metadata.gid,
        rdev: 0,
        blksize: 128 << 10,
        flags: 0,
    }
}

fn believed(of: &Attributes) -> Duration {
    if of.is_fixed { FOR_LONG } else { FOR_NOW }
}

/// The entry at a place of a listing, where `.` and `..` come first.
fn at(
    listing: &Listing,
    own: u64,
    above: u64,
    place: u64,
) -> Option<(Vec<u8>, Option<Listed>, u64)> {
    match place {
        0 => Some((b".".to_vec(), None, own)),
        1 => Some((b"..".to_vec(), None, above)),
        place => {
            let place = usize::try_from(place - 2).unwrap_or(usize::MAX);
            let listed = listing.get(place)?;
            let (name, inode) = (listed.name.clone(), listed.attributes.inode);
            Some((name, Some(listed), inode))
        }
    }
}

impl Filesystem for Asked {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = [
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_NO_OPEN_SUPPORT,
        ];
        for one in wanted {
            // A kernel that cannot do it does without.
            let _ = config.add_capabilities(one);
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.tree.lookup(parent.0, name) {
            Ok(found) => {
                // Which snapshots there are changes; what is in one does not.
                let is_ours = parent.0 >> 32 == 0;
                let entry = if is_ours { FOR_NOW } else { FOR_LONG };
                reply.entry_with_ttls(&believed(&found), &entry, &attr(&found), Generation(0));
            }
            Err(refusal) => reply.error(errno(refusal)),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.tree.attributes(inode.0) {
            Ok(found) => reply.attr(&believed(&found), &attr(&found)),
            Err(refusal) => reply.error(errno(refusal)),
        }
    }

    fn readlink(&self, _: &Request, inode: INodeNo, reply: ReplyData) {
        match self.tree.target(inode.0) {
            Ok(target) => reply.data(&target),
            Err(refusal) => reply.error(errno(refusal)),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // An inode says all that a read needs: the kernel need not ask again.
        reply.error(Errno::ENOSYS);
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.tree.read(inode.0, offset, size as usize) {
            Ok(bytes) => reply.data(&bytes),
            Err(refusal) => reply.error(errno(refusal)),
        }
    }

    fn opendir(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.tree.list(inode.0) {
            Ok(listing) => {
                let handle = self.next.fetch_add(1, Ordering::Relaxed);
                let flags = match listing {
                    Listing::Snapshot(..) => {
                        FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE
                    }
                    Listing::Ours(_) => FopenFlags::empty(),
                };
                self.listings().insert(handle, Arc::new(listing));
                reply.opened(FileHandle(handle), flags);
            }
            Err(refusal) => reply.error(errno(refusal)),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let Some(listing) = self.listing(handle) else {
            return reply.error(Errno::EBADF);
        };
        let above = self.tree.parent(inode.0);
        for place in offset.. {
            let Some((name, listed, number)) = at(&listing, inode.0, above, place) else {
                break;
            };
            let kind = listed.map_or(NodeKind::Directory, |listed| listed.attributes.kind);
            let name = OsStr::from_bytes(&name);
            if reply.add(INodeNo(number), place + 1, file_type(kind), name) {
                break;
            }
        }
        reply.ok();
    }

    fn readdirplus(
        &self,
        _: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let Some(listing) = self.listing(handle) else {
            return reply.error(Errno::EBADF);
        };
        let (own, above) = match self.tree.attributes(inode.0) {
            Ok(own) => (own, self.tree.parent(inode.0)),
            Err(refusal) => return reply.error(errno(refusal)),
        };
        for place in offset.. {
            let Some((name, listed, number)) = at(&listing, inode.0, above, place) else {
                break;
            };
            let attributes = listed.map_or(own, |listed| listed.attributes);
            // What nobody has looked into yet is asked for again by whoever wants to know.
            let ttl = if attributes.is_fixed {
                FOR_LONG
            } else {
                Duration::ZERO
            };
            let name = OsStr::from_bytes(&name);
            let attr = attr(&attributes);
            if reply.add(INodeNo(number), place + 1, name, &ttl, &attr, Generation(0)) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.listings().remove(&handle.0);
        reply.ok();
    }

    fn getxattr(&self, _: &Request, inode: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let found = match self.tree.extended(inode.0) {
            Ok(all) => all.into_iter().find(|one| *one.name == *name.as_bytes()),
            Err(refusal) => return reply.error(errno(refusal)),
        };
        match found {
            Some(found) => sized(&found.value, size, reply),
            None => reply.error(Errno::ENODATA),
        }
    }

    fn listxattr(&self, _: &Request, inode: INodeNo, size: u32, reply: ReplyXattr) {
        match self.tree.extended(inode.0) {
            Ok(all) => {
                let names = all.into_iter().flat_map(|one| {
                    let mut name = one.name.into_vec();
                    name.push(0);
                    name
                });
                sized(&names.collect::<Vec<u8>>(), size, reply);
            }
            Err(refusal) => reply.error(errno(refusal)),
        }
    }
}

/// Bytes for somebody who first asks how many there are.
fn sized(bytes: &[u8], size: u32, reply: ReplyXattr) {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    match size {
        0 => reply.size(length),
        size if length > size => reply.error(Errno::ERANGE),
        _ => reply.data(bytes),
    }
}
