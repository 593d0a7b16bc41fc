//! What workers do with the directories of one walk.

use super::names::Names;
use super::node::{SetAside, WalkNode, by_file};
use super::report::{Notes, WalkReport};
use super::{
    Excludes, Visitor, WalkError, WalkSettings, WalkedDir, WalkedEntry, go_on, kind_of, open,
};
use crate::fs::metadata;
use crate::fs::root_dir::RootDir;
use crate::worker_pool::{WorkerPool, lock};
use stasis_model::failure::AtPath;
use stasis_model::tree::{EntryKind, EntryPath};
use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// How many entries are shown in one call.
const BATCH: usize = 512;

/// Something to do.
#[derive(Debug)]
enum WalkTask {
    /// Reads a directory and shows its first entries.
    List(Arc<WalkNode>),
    /// Shows further entries.
    Batch(Arc<WalkNode>, Arc<Names>, usize),
    /// Shows one file under all its names, the first of them first.
    Names(Vec<SetAside>),
}

/// What the workers of one walk share.
pub(super) struct WalkWorkers<'a, V: Visitor> {
    root: &'a RootDir,
    visitor: &'a V,
    settings: &'a WalkSettings,
    excludes: &'a Excludes,
    notes: Notes,
    set_aside: Mutex<Vec<SetAside>>,
}

type Pool<V> = WorkerPool<WalkTask, <V as Visitor>::Error>;

impl<'a, V: Visitor> WalkWorkers<'a, V> {
    pub(super) fn new(
        root: &'a RootDir,
        visitor: &'a V,
        settings: &'a WalkSettings,
        excludes: &'a Excludes,
    ) -> Self {
        Self {
            root,
            visitor,
            settings,
            excludes,
            notes: Notes::default(),
            set_aside: Mutex::default(),
        }
    }

    pub(super) fn run(self) -> Result<WalkReport, V::Error> {
        let seen = self.root.directory(b"").and_then(metadata::of);
        let seen = seen.on("open", EntryPath::root());
        let root = WalkNode::new(None, c"", seen.map_err(WalkError::from)?);
        self.work_off(vec![WalkTask::List(Arc::new(root))])?;
        let set_aside = std::mem::take(&mut *lock(&self.set_aside));
        self.work_off(
            by_file(set_aside)
                .into_iter()
                .map(WalkTask::Names)
                .collect(),
        )?;
        Ok(self.notes.close())
    }

    /// Works until nothing is left to do, or something failed.
    fn work_off(&self, tasks: Vec<WalkTask>) -> Result<(), V::Error> {
        let pool = WorkerPool::new(tasks);
        pool.run(self.settings.workers, |pool| {
            pool.work(|task| {
                go_on(&self.settings.cancel)?;
                self.perform(task, pool)
            });
        })
    }

    fn perform(&self, task: WalkTask, pool: &Pool<V>) -> Result<(), V::Error> {
        match task {
            WalkTask::List(node) => self.list(&node, pool),
            WalkTask::Batch(node, names, from) => {
                let path = node.path();
                if let Some(fd) = self.open(&path)? {
                    let inside = self.batch(&node, &self.place(&path, &fd), &names, from)?;
                    pool.push_first(inside);
                }
                self.close(&node)
            }
            WalkTask::Names(names) => self.names_of_one(&names),
        }
    }

    fn place<'b>(&'b self, path: &'b EntryPath, fd: &'b OwnedFd) -> WalkedDir<'b> {
        WalkedDir {
            path,
            fd: fd.as_fd(),
            root: self.root,
            notes: &self.notes,
            strict: self.settings.strict,
        }
    }

    fn open(&self, path: &EntryPath) -> Result<Option<OwnedFd>, WalkError> {
        open(self.root, path, &self.notes, self.settings.strict)
    }

    fn list(&self, node: &Arc<WalkNode>, pool: &Pool<V>) -> Result<(), V::Error> {
        let path = node.path();
        if node.depth > self.settings.deepest {
            let top = path.components().next().unwrap_or_default();
            let top = EntryPath::parse(top).unwrap_or_default();
            let limit = self.settings.deepest;
            return Err(WalkError::TooDeep { limit, top }.into());
        }
        let Some(fd) = self.open(&path)? else {
            return self.close(node);
        };
        let with_overlay = self.root.grafts_in(path.as_bytes());
        let names = Names::read(fd.as_fd(), with_overlay).on("list the directory", &path);
        let names = names.map_err(WalkError::from)?;
        let place = self.place(&path, &fd);
        self.visitor.enter(&place)?;
        let names = Arc::new(names);
        let further = (BATCH..names.len()).step_by(BATCH);
        let further: Vec<WalkTask> = further
            .map(|from| WalkTask::Batch(node.clone(), names.clone(), from))
            .collect();
        node.open.fetch_add(further.len(), Ordering::Relaxed);
        pool.push_first(further);
        pool.push_first(self.batch(node, &place, &names, 0)?);
        self.close(node)
    }

    /// Shows some entries of a directory; says which directories among them are to be listed.
    fn batch(
        &self,
        node: &Arc<WalkNode>,
        place: &WalkedDir<'_>,
        names: &Names,
        from: usize,
    ) -> Result<Vec<WalkTask>, V::Error> {
        let until = names.len().min(from + BATCH);
        let mut entries = Vec::with_capacity(until - from);
        for name in (from..until).map(|index| names.get(index)) {
            if let Some(found) = self.look(node, place, name)? {
                entries.push(found);
            }
        }
        self.show(place, &entries)?;
        let inside = entries
            .iter()
            .filter(|found| found.kind == EntryKind::Directory);
        let inside: Vec<WalkTask> = inside
            .map(|found| WalkNode::new(Some(node.clone()), found.name, found.seen))
            .map(|below| WalkTask::List(Arc::new(below)))
            .rev()
            .collect();
        node.open.fetch_add(inside.len(), Ordering::Relaxed);
        Ok(inside)
    }

    fn show(&self, place: &WalkedDir<'_>, entries: &[WalkedEntry<'_>]) -> Result<(), V::Error> {
        if entries.is_empty() {
            return Ok(());
        }
        self.notes.count(entries.iter().map(|found| &found.kind));
        self.visitor.visit(place, entries)
    }

    /// What an entry is, if it is to be shown now.
    fn look<'n>(
        &self,
        node: &Arc<WalkNode>,
        place: &WalkedDir<'_>,
        name: &'n CStr,
    ) -> Result<Option<WalkedEntry<'n>>, WalkError> {
        let overlay = if self.root.has_overlays() {
            self.root.overlay_at(place.child(name)?.as_bytes())
        } else {
            None
        };
        let seen = match overlay.unwrap_or_else(|| metadata::look(place.fd, name)) {
            Ok(seen) => seen,
            Err(error) => return place.could_not("look at", name, error).map(|()| None),
        };
        if self.excludes.has(place, name, &seen)? {
            self.notes.exclude();
            return Ok(None);
        }
        let Some(kind) = kind_of(place, name, &seen, self.settings)? else {
            return Ok(None);
        };
        if let EntryKind::File { .. } = kind
            && seen.links > 1
        {
            node.open.fetch_add(1, Ordering::Relaxed);
            let (node, name) = (node.clone(), name.to_owned());
            lock(&self.set_aside).push(SetAside { node, name, seen });
            return Ok(None);
        }
        Ok(Some(WalkedEntry { name, kind, seen }))
    }

    /// Shows one file under all its names: the first is the file, the others are links to it.
    fn names_of_one(&self, names: &[SetAside]) -> Result<(), V::Error> {
        let mut first: Option<EntryPath> = None;
        for SetAside { node, name, seen } in names {
            let path = node.path();
            if let Some(fd) = self.open(&path)? {
                let place = self.place(&path, &fd);
                let kind = match &first {
                    None => EntryKind::File { size: seen.size },
                    Some(to) => EntryKind::HardLink { to: to.clone() },
                };
                if first.is_none() {
                    first = Some(place.child(name)?);
                }
                let seen = *seen;
                self.show(&place, &[WalkedEntry { name, kind, seen }])?;
            }
            self.close(node)?;
        }
        Ok(())
    }

    /// Strikes one thing off what keeps a directory open; leaves it, and those above, when it was the last.
    fn close(&self, node: &Arc<WalkNode>) -> Result<(), V::Error> {
        let mut node = Some(node);
        while let Some(here) = node {
            if here.open.fetch_sub(1, Ordering::AcqRel) > 1 {
                break;
            }
            let path = here.path();
            if self.visitor.wants_again(&path)
                && let Some(fd) = self.open(&path)?
            {
                self.visitor.again(&self.place(&path, &fd))?;
            }
            self.visitor.leave(&path, &here.seen)?;
            node = here.above.as_ref();
        }
        Ok(())
    }
}
