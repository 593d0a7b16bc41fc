//! The workers and their pile.

use super::names::Names;
use super::node::{Node, SetAside, by_file};
use super::report::{Notes, Reason, WalkReport};
use super::{Excludes, Found, Place, Visitor, WalkError, WalkSettings, go_on, refused};
use crate::fs::metadata::{self, Seen};
use crate::fs::root_dir::RootDir;
use rustix::fs::{self, FileType};
use rustix::io::Errno;
use stasis_model::tree::{EntryKind, EntryPath};
use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// How many entries are shown in one call.
const BATCH: usize = 512;

/// Something to do.
#[derive(Debug)]
enum Task {
    /// Reads a directory and shows its first entries.
    List(Arc<Node>),
    /// Shows further entries.
    Batch(Arc<Node>, Arc<Names>, usize),
    /// Shows one file under all its names, the first of them first.
    Names(Vec<SetAside>),
}

#[derive(Debug)]
struct Pile<E> {
    tasks: Vec<Task>,
    working: usize,
    failed: Option<E>,
}

/// Everybody who works on one walk.
pub(super) struct Crew<'a, V: Visitor> {
    root: &'a RootDir,
    visitor: &'a V,
    settings: &'a WalkSettings,
    excludes: &'a Excludes,
    notes: Notes,
    pile: Mutex<Pile<V::Error>>,
    news: Condvar,
    set_aside: Mutex<Vec<SetAside>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a, V: Visitor> Crew<'a, V> {
    pub(super) fn new(
        root: &'a RootDir,
        visitor: &'a V,
        settings: &'a WalkSettings,
        excludes: &'a Excludes,
    ) -> Self {
        let pile = Pile {
            tasks: Vec::new(),
            working: 0,
            failed: None,
        };
        Self {
            root,
            visitor,
            settings,
            excludes,
            notes: Notes::default(),
            pile: Mutex::new(pile),
            news: Condvar::new(),
            set_aside: Mutex::default(),
        }
    }

    pub(super) fn run(self) -> Result<WalkReport, V::Error> {
        let failed = |source: Errno| WalkError::Failed {
            doing: "open",
            path: EntryPath::root(),
            source: source.into(),
        };
        let fd = self.root.directory(b"").map_err(failed)?;
        let root = Node::new(None, c"", metadata::of(&fd).map_err(failed)?);
        drop(fd);
        self.work_off(vec![Task::List(Arc::new(root))])?;
        let set_aside = std::mem::take(&mut *lock(&self.set_aside));
        self.work_off(by_file(set_aside).into_iter().map(Task::Names).collect())?;
        Ok(self.notes.close())
    }

    /// Works until nothing is left to do, or something failed.
    fn work_off(&self, tasks: Vec<Task>) -> Result<(), V::Error> {
        lock(&self.pile).tasks = tasks;
        std::thread::scope(|scope| {
            for _ in 1..self.settings.workers.get() {
                scope.spawn(|| self.work());
            }
            self.work();
        });
        lock(&self.pile).failed.take().map_or(Ok(()), Err)
    }

    fn work(&self) {
        while let Some(task) = self.take() {
            // A visitor that panics must not leave the others waiting for it.
            let ended = Ended(self);
            let done = go_on(&self.settings.cancel)
                .map_err(V::Error::from)
                .and_then(|()| self.perform(task));
            if let Err(error) = done {
                let mut pile = lock(&self.pile);
                pile.failed.get_or_insert(error);
                pile.tasks.clear();
            }
            drop(ended);
        }
    }

    fn take(&self) -> Option<Task> {
        let mut pile = lock(&self.pile);
        loop {
            if let Some(task) = pile.tasks.pop() {
                pile.working += 1;
                return Some(task);
            }
            if pile.working == 0 {
                return None;
            }
            pile = self.news.wait(pile).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn put(&self, tasks: Vec<Task>) {
        if tasks.is_empty() {
            return;
        }
        let mut pile = lock(&self.pile);
        if pile.failed.is_none() {
            pile.tasks.extend(tasks);
            self.news.notify_all();
        }
    }

    fn perform(&self, task: Task) -> Result<(), V::Error> {
        match task {
            Task::List(node) => self.list(&node),
            Task::Batch(node, names, from) => {
                let path = node.path();
                if let Some(fd) = self.open(&path)? {
                    self.batch(&node, &self.place(&path, &fd), &names, from)?;
                }
                self.close(&node)
            }
            Task::Names(names) => self.names_of_one(&names),
        }
    }

    fn place<'b>(&'b self, path: &'b EntryPath, fd: &'b OwnedFd) -> Place<'b> {
        Place {
            path,
            fd: fd.as_fd(),
            root: self.root,
            notes: &self.notes,
            strict: self.settings.strict,
        }
    }

    fn open(&self, path: &EntryPath) -> Result<Option<OwnedFd>, WalkError> {
        match self.root.directory(path.as_bytes()) {
            Ok(fd) => Ok(Some(fd)),
            Err(error) => {
                let what = ("open the directory", path.clone());
                refused(&self.notes, self.settings.strict, what, error).map(|()| None)
            }
        }
    }

    fn list(&self, node: &Arc<Node>) -> Result<(), V::Error> {
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
        let grafted = self.root.grafts_in(path.as_bytes());
        let names = Names::read(fd.as_fd(), grafted).map_err(|source| WalkError::Failed {
            doing: "list the directory",
            path: path.clone(),
            source: source.into(),
        })?;
        let place = self.place(&path, &fd);
        self.visitor.enter(&place)?;
        let names = Arc::new(names);
        let further = (BATCH..names.len()).step_by(BATCH);
        let further: Vec<Task> = further
            .map(|from| Task::Batch(node.clone(), names.clone(), from))
            .collect();
        node.open.fetch_add(further.len(), Ordering::Relaxed);
        self.put(further);
        self.batch(node, &place, &names, 0)?;
        self.close(node)
    }

    fn batch(
        &self,
        node: &Arc<Node>,
        place: &Place<'_>,
        names: &Names,
        from: usize,
    ) -> Result<(), V::Error> {
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
        let inside: Vec<Task> = inside
            .map(|found| Node::new(Some(node.clone()), found.name, found.seen))
            .map(|below| Task::List(Arc::new(below)))
            .rev()
            .collect();
        node.open.fetch_add(inside.len(), Ordering::Relaxed);
        self.put(inside);
        Ok(())
    }

    fn show(&self, place: &Place<'_>, entries: &[Found<'_>]) -> Result<(), V::Error> {
        if entries.is_empty() {
            return Ok(());
        }
        self.notes.count(entries.iter().map(|found| &found.kind));
        self.visitor.visit(place, entries)
    }

    /// What an entry is, if it is to be shown now.
    fn look<'n>(
        &self,
        node: &Arc<Node>,
        place: &Place<'_>,
        name: &'n CStr,
    ) -> Result<Option<Found<'n>>, WalkError> {
        let grafted = if self.root.has_grafts() {
            self.root.graft_at(place.child(name)?.as_bytes())
        } else {
            None
        };
        let seen = match grafted.unwrap_or_else(|| metadata::look(place.fd, name)) {
            Ok(seen) => seen,
            Err(error) => return place.could_not("look at", name, error).map(|()| None),
        };
        if self.excludes.has(place, name, &seen)? {
            self.notes.exclude();
            return Ok(None);
        }
        if let Some(reason) = self.reason_to_skip(&seen) {
            return place.skip(name, reason).map(|()| None);
        }
        let kind = match seen.file_type() {
            FileType::Directory => EntryKind::Directory,
            FileType::Fifo => EntryKind::Fifo,
            FileType::Symlink => match fs::readlinkat(place.fd, name, Vec::new()) {
                Ok(target) => EntryKind::Symlink {
                    target: target.to_bytes().into(),
                },
                Err(Errno::INVAL) => return place.skip(name, Reason::Replaced).map(|()| None),
                Err(error) => return place.could_not("read the link", name, error).map(|()| None),
            },
            _ if seen.links > 1 => {
                node.open.fetch_add(1, Ordering::Relaxed);
                let (node, name) = (node.clone(), name.to_owned());
                lock(&self.set_aside).push(SetAside { node, name, seen });
                return Ok(None);
            }
            _ => EntryKind::File { size: seen.size },
        };
        Ok(Some(Found { name, kind, seen }))
    }

    fn reason_to_skip(&self, seen: &Seen) -> Option<Reason> {
        match seen.file_type() {
            FileType::Socket => Some(Reason::Socket),
            FileType::BlockDevice | FileType::CharacterDevice | FileType::Unknown => {
                Some(Reason::Device)
            }
            _ if WalkSettings::must_stay(self.root, seen) => Some(Reason::OtherFilesystem),
            FileType::Directory if self.settings.avoid == Some(seen.identity()) => {
                Some(Reason::OwnTarget)
            }
            _ => None,
        }
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
                self.show(&place, &[Found { name, kind, seen }])?;
            }
            self.close(node)?;
        }
        Ok(())
    }

    /// Strikes one thing off what keeps a directory open; leaves it, and those above, when it was the last.
    fn close(&self, node: &Arc<Node>) -> Result<(), V::Error> {
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

/// Tells the others that a worker has nothing in its hands any more.
struct Ended<'c, 'a, V: Visitor>(&'c Crew<'a, V>);

impl<V: Visitor> Drop for Ended<'_, '_, V> {
    fn drop(&mut self) {
        let mut pile = lock(&self.0.pile);
        pile.working -= 1;
        if pile.tasks.is_empty() && pile.working == 0 {
            self.0.news.notify_all();
        }
    }
}
