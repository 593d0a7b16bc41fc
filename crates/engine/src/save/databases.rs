//! Copies the live databases of a tree for a save of it.
//!
//! Each copy is made in a private directory of this host, opened, and unlinked: nothing is left of it whatever happens next.

use crate::error::error_chain;
use stasis_disk::form::chunked::databases::{DatabaseCapture, DatabaseCopy, LiveDatabase};
use stasis_disk::fs::metadata::{self, Seen};
use stasis_disk::fs::root_dir::RootDir;
use stasis_disk::tree::compare::digest_of;
use stasis_disk::tree::staging_view::{self, StagingView};
use stasis_model::digest::FileDigest;
use stasis_model::tree::{EntryPath, FileTime};
use stasis_quiesce::sqlite::{self, LiveFile, SqliteError, SqliteSettings};
use stasis_sys::descriptor;
use std::collections::BTreeSet;
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The databases that SQLite found damaged, by their paths in the tree.
#[derive(Clone, Debug, Default)]
pub(super) struct DamagedDatabases(Arc<Mutex<BTreeSet<String>>>);

impl DamagedDatabases {
    fn add(&self, path: &EntryPath) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(path.to_string());
    }

    pub(super) fn paths(&self) -> BTreeSet<String> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// Who copies the live databases of one tree.
pub(super) struct LiveDatabases {
    /// The tree.
    pub(super) source: PathBuf,
    /// Where copies are made.
    pub(super) spool: PathBuf,
    /// Parts of the tree in which databases are copies already.
    pub(super) captured: Vec<EntryPath>,
    /// Whether whoever writes them is held still.
    pub(super) is_still: bool,
    /// Set by anybody at any time to give up.
    pub(super) cancel: Arc<AtomicBool>,
    /// Those that cannot be copied because they are damaged.
    pub(super) damaged: DamagedDatabases,
    place: OnceLock<Result<StagingView, String>>,
    count: AtomicU64,
}

impl LiveDatabases {
    pub(super) fn new(source: PathBuf, spool: PathBuf, cancel: Arc<AtomicBool>) -> Self {
        Self {
            source,
            spool,
            captured: Vec::new(),
            is_still: false,
            cancel,
            damaged: DamagedDatabases::default(),
            place: OnceLock::new(),
            count: AtomicU64::new(0),
        }
    }

    /// A name for the next copy.
    fn target(&self) -> Result<PathBuf, String> {
        let place = self.place.get_or_init(|| {
            let made = stasis_disk::fs::atomic_write::make_directory(&self.spool)
                .map_err(staging_view::StagingViewError::from);
            let looks = made.and_then(|()| staging_view::look_at(&self.spool));
            let place = looks.and_then(|looks| StagingView::make(&self.spool, looks.metadata()));
            place.map_err(|error| error_chain(&error))
        });
        let root = place.as_ref().map_err(Clone::clone)?.root();
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        Ok(root.join(format!("{number}.db")))
    }

    /// The path of a database, which SQLite wants. It leads through the directory that was opened from the root of the tree.
    fn path_of(&self, database: &LiveDatabase<'_>) -> PathBuf {
        let name = OsStr::from_bytes(database.name.to_bytes());
        let from_root = || {
            self.source
                .join(OsStr::from_bytes(database.path.as_bytes()))
        };
        let directory = descriptor::path_of(database.directory).ok();
        directory.map_or_else(from_root, |directory| directory.join(name))
    }

    fn copy(&self, database: &LiveDatabase<'_>) -> Result<DatabaseCopy, String> {
        let target = self.target()?;
        let usual = SqliteSettings::default();
        let settings = SqliteSettings {
            is_still: self.is_still,
            // Others wait for us: somebody who goes on writing all the same is not waited for as long.
            busy_timeout: if self.is_still {
                usual.busy_timeout / 5
            } else {
                usual.busy_timeout
            },
            durable: false,
            cancel: self.cancel.clone(),
            ..usual
        };
        let captured = match sqlite::capture(&self.path_of(database), &target, &settings) {
            Err(SqliteError::Cancelled { .. }) => return Ok(DatabaseCopy::Cancelled),
            Err(error) => {
                // Its header was read: it is a database, or was one.
                let is_damage = |error: &SqliteError| {
                    matches!(
                        error,
                        SqliteError::Damaged { .. } | SqliteError::NotADatabase { .. }
                    )
                };
                if is_damage(&error) {
                    self.damaged.add(database.path);
                }
                return Err(error_chain(&error));
            }
            Ok(captured) => captured,
        };
        let file = opened(&target).map_err(|error| error.to_string())?;
        let live = seen(&captured.live);
        if live.identity() != database.identity {
            return Err("another file took its place while it was copied".to_owned());
        }
        Ok(DatabaseCopy::Consistent { file, live })
    }
}

impl DatabaseCapture for LiveDatabases {
    fn capture(&self, database: &LiveDatabase<'_>) -> DatabaseCopy {
        let is_in = |above: &EntryPath| {
            let rest = database.path.as_bytes().strip_prefix(above.as_bytes());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        };
        if self.captured.iter().any(is_in) {
            return DatabaseCopy::Still;
        }
        let copy = self.copy(database);
        copy.unwrap_or_else(|why| DatabaseCopy::Refused { why })
    }
}

/// The digest of the committed state of a database in a tree, as a save would store it; none where no copy can be had.
pub(crate) fn committed_digest(
    root: &RootDir,
    path: &EntryPath,
    spool: &Path,
) -> Option<FileDigest> {
    let (above, name) = path.split_last()?;
    let (directory, name) = (
        root.directory(above.as_bytes()).ok()?,
        CString::new(name).ok()?,
    );
    let identity = metadata::look(directory.as_fd(), &name).ok()?.identity();
    let database = LiveDatabase {
        path,
        directory: directory.as_fd(),
        name: &name,
        identity,
    };
    let source = descriptor::path_of(&directory).ok()?;
    let live = LiveDatabases::new(source, spool.to_owned(), Arc::default());
    match live.capture(&database) {
        DatabaseCopy::Consistent { file, .. } => digest_of(file.into()).ok(),
        _ => None,
    }
}

/// Opens a copy and takes its name away.
fn opened(path: &Path) -> std::io::Result<OwnedFd> {
    let file = File::open(path)?;
    stasis_disk::fs::remove::file_at(path)?;
    Ok(file.into())
}

fn seen(live: &LiveFile) -> Seen {
    let time = |(seconds, nanos): (i64, u32)| FileTime { seconds, nanos };
    Seen {
        device: live.device,
        inode: live.inode,
        links: live.links,
        raw_mode: live.mode,
        uid: live.uid,
        gid: live.gid,
        size: live.size,
        blocks: live.blocks,
        modified: time(live.modified),
        changed: time(live.changed),
        is_mount: false,
    }
}
