//! The directories that workers write in: the last one of each stays open, for entries come mostly sorted.

use super::directories::{DirectoryState, Index, ROOT};
use super::{TreeWriteError, TreeWriter, WORKERS};
use crate::fs::fd::open_dir_in;
use crate::worker_pool::lock;
use rustix::fs::{self, Mode};
use rustix::io::Errno;
use stasis_model::failure::{AtPath, Failure};
use stasis_model::tree::EntryPath;
use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// An open directory of the tree.
#[derive(Clone, Debug)]
pub(super) struct WritePlace {
    pub(super) path: EntryPath,
    pub(super) index: Index,
    pub(super) fd: Arc<OwnedFd>,
}

impl TreeWriter {
    /// Opens a directory of the tree, or makes it.
    pub(super) fn place(&self, path: EntryPath) -> Result<WritePlace, TreeWriteError> {
        self.open_place(path, |path| self.make_way(path))
    }

    /// Opens a directory of the tree.
    pub(super) fn existing(&self, path: EntryPath) -> Result<WritePlace, TreeWriteError> {
        self.open_place(path, |path| {
            Err(Failure::from_io(Errno::NOENT, "open", path).into())
        })
    }

    fn open_place(
        &self,
        path: EntryPath,
        absent: impl FnOnce(&EntryPath) -> Result<WritePlace, TreeWriteError>,
    ) -> Result<WritePlace, TreeWriteError> {
        let mut last = lock(&self.places[own_place()]);
        if let Some(place) = last.as_ref().filter(|place| place.path == path) {
            return Ok(place.clone());
        }
        self.check_depth(&path)?;
        let known = lock(&self.directories).find(path.as_bytes());
        let place = match known {
            None => absent(&path)?,
            Some(index) => {
                let fd = self.target.directory(path.as_bytes());
                let fd = Arc::new(fd.on("open", &path)?);
                WritePlace { path, index, fd }
            }
        };
        *last = Some(place.clone());
        Ok(place)
    }

    /// Makes the directories on the way to `path` that are not there, and opens it.
    fn make_way(&self, path: &EntryPath) -> Result<WritePlace, TreeWriteError> {
        let way = path.as_bytes();
        let on_the_way =
            |end: usize| EntryPath::parse(&way[..end]).expect("a path begins with one");
        let fd = self.target.directory(b"");
        let mut fd = fd.on("open", EntryPath::root())?;
        let (mut index, mut start) = (ROOT, 0);
        for name in path.components() {
            let end = start + name.len();
            let making = self.making_in(index);
            let known = lock(&self.directories).find(&way[..end]);
            if let Some(known) = known {
                index = known;
            } else {
                self.count_entry()?;
                match fs::mkdirat(&fd, name, Mode::RWXU) {
                    Err(Errno::EXIST) => return Err(TreeWriteError::NotDirectory(on_the_way(end))),
                    made => made.on("make", on_the_way(end))?,
                }
                let mut directories = lock(&self.directories);
                index = directories.add(index, &way[..end], start, DirectoryState::Unannounced);
            }
            drop(making);
            fd = open_dir_in(&fd, name).on("open", on_the_way(end))?;
            start = end + 1;
        }
        Ok(WritePlace {
            path: path.clone(),
            index,
            fd: Arc::new(fd),
        })
    }
}

/// Which of the open directories is this thread's.
fn own_place() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static OWN: Cell<Option<usize>> = const { Cell::new(None) };
    }
    OWN.with(|own| {
        let place = own
            .get()
            .unwrap_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed) % WORKERS);
        own.set(Some(place));
        place
    })
}
