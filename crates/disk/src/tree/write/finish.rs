//! The end of a tree: links, pipes, and what the directories should have.

use super::directories::{Directories, DirectoryState, Index, ROOT, Waiting};
use super::places::WritePlace;
use super::{DIRECTORY_MODE, TreeWriteError, TreeWriter, WriteReport, named};
use crate::fs::metadata::{self, Has, Rights, Withheld};
use crate::fs::root_dir;
use crate::fs::sys::node;
use crate::worker_pool::{WorkerPool, all_processors, lock};
use rustix::fs::{self, AtFlags, Mode};
use rustix::io::Errno;
use stasis_model::failure::AtPath;
use stasis_model::tree::{EntryPath, Metadata};
use std::ffi::CString;

/// How many directories one worker gives their times at once.
const TIMED_AT_ONCE: usize = 256;

impl TreeWriter {
    /// Makes what was remembered and gives the directories what they should have; the root gets `root`, or what was
    /// announced for it, or else keeps what it has.
    pub fn finish(self, root: Option<&Metadata>) -> Result<WriteReport, TreeWriteError> {
        let unfinished = self.counts.files_begun.get() - self.counts.files.get();
        if unfinished > 0 {
            return Err(TreeWriteError::Unfinished(unfinished));
        }
        self.make_hard_links()?;
        self.make_fifos()?;
        self.make_symlinks()?;
        let directories_unannounced = self.dress_directories()?;
        if let Some(metadata) = root {
            self.dress(
                ROOT,
                &EntryPath::root(),
                DirectoryState::AnnouncedLate(*metadata),
            )?;
        } else {
            let state = lock(&self.directories).state(ROOT);
            self.dress(ROOT, &EntryPath::root(), state)?;
        }
        let directories = lock(&self.directories).deepest_first().len();
        Ok(WriteReport {
            directories: directories as u64,
            symlinks: lock(&self.symlinks).count,
            hard_links: lock(&self.hard_links).count,
            fifos: lock(&self.fifos).count,
            directories_unannounced,
            ..self.counts.report()
        })
    }

    fn make_hard_links(&self) -> Result<(), TreeWriteError> {
        let links = lock(&self.hard_links);
        // First all of them are looked at: whether a link to a link is one must not depend on which came first.
        for link in links.iter() {
            self.go_on()?;
            let (path, to) = (self.path(&link), to_path(link.leads_to));
            let bad = || TreeWriteError::BadLink {
                path: path.clone(),
                to: to.clone(),
            };
            let (above, name) = to.split_last().ok_or_else(bad)?;
            let place = self.existing(above).ok().ok_or_else(bad)?;
            let name = c_name(name);
            let seen = root_dir::find(&place.fd, &name);
            let seen = seen.on("look at", &to)?;
            if !seen.is_some_and(|seen| seen.file_type().is_file()) {
                return Err(bad());
            }
        }
        for link in links.iter() {
            self.go_on()?;
            let (path, to) = (self.path(&link), to_path(link.leads_to));
            let (here, (from_above, from)) = (self.above(&path)?, named(&to)?);
            let there = self.existing(from_above)?;
            match fs::linkat(&there.fd, from, &here.fd, link.name, AtFlags::empty()) {
                Err(Errno::EXIST) => return Err(self.taken(&path)),
                linked => linked.on("link", &path)?,
            }
        }
        Ok(())
    }

    fn make_fifos(&self) -> Result<(), TreeWriteError> {
        for fifo in lock(&self.fifos).iter() {
            self.go_on()?;
            let path = self.path(&fifo);
            let (place, name) = (self.above(&path)?, c_name(fifo.name));
            let making = "make the pipe";
            match node::make_pipe(&place.fd, &name, Mode::RUSR) {
                Err(Errno::EXIST) => return Err(self.taken(&path)),
                made => made.on(making, &path)?,
            }
            let rights = self.settings.rights;
            let given = metadata::give_link(&place.fd, &name, &fifo.metadata, rights);
            let mut withheld = given.on(making, &path)?;
            let wanted = fifo.metadata.mode & 0o7777;
            let allowed = match rights {
                Rights::All => wanted,
                Rights::Own => wanted & 0o1777,
            };
            withheld.privileges = allowed != wanted;
            // It is the pipe that we just made: nobody else is in this directory.
            let mode = Mode::from_raw_mode(allowed);
            let given = fs::chmodat(&place.fd, &*name, mode, AtFlags::empty());
            given.on(making, &path)?;
            self.counts.withhold(withheld);
        }
        Ok(())
    }

    fn make_symlinks(&self) -> Result<(), TreeWriteError> {
        for link in lock(&self.symlinks).iter() {
            self.go_on()?;
            let path = self.path(&link);
            let (place, name) = (self.above(&path)?, c_name(link.name));
            match fs::symlinkat(link.leads_to, &place.fd, &*name) {
                Err(Errno::EXIST) => return Err(self.taken(&path)),
                made => made.on("make the link", &path)?,
            }
            let rights = self.settings.rights;
            let given = metadata::give_link(&place.fd, &name, &link.metadata, rights);
            let given = given.on("set owner and time of", &path)?;
            self.counts.withhold(given);
        }
        Ok(())
    }

    /// Returns how many directories nobody announced.
    fn dress_directories(&self) -> Result<u64, TreeWriteError> {
        let directories = lock(&self.directories);
        let (mut timed, mut others, mut unannounced) = (Vec::new(), Vec::new(), 0);
        for index in directories.deepest_first() {
            match directories.state(index) {
                DirectoryState::Unannounced => unannounced += 1,
                state => match self.lacks_only_time(state) {
                    Some(withheld) if !self.has_access(&directories, index) => {
                        self.counts.withhold(withheld);
                        timed.push(index);
                    }
                    _ => others.push(index),
                },
            }
        }
        // Before any of the others gets permissions that keep us out.
        self.give_times(&directories, timed)?;
        for index in others {
            self.go_on()?;
            let (state, path) = (directories.state(index), directories.path(index));
            self.dress(index, &path, state)?;
        }
        Ok(unannounced)
    }

    /// Gives their times to directories that lack nothing else: the one they lie in is opened once for all of them.
    fn give_times(
        &self,
        directories: &Directories,
        mut timed: Vec<Index>,
    ) -> Result<(), TreeWriteError> {
        timed.sort_unstable_by_key(|index| directories.above(*index));
        WorkerPool::for_each(all_processors(), timed.chunks(TIMED_AT_ONCE), |timed| {
            for siblings in timed.chunk_by(|a, b| directories.above(*a) == directories.above(*b)) {
                self.go_on()?;
                let above = directories.path(directories.above(siblings[0]));
                let opened = self.target.directory(above.as_bytes());
                let opened = opened.on("open", &above)?;
                for index in siblings {
                    let (name, state) = (directories.name(*index), directories.state(*index));
                    let modified = state.wanted().modified;
                    let given = metadata::give_time_at(&opened, &c_name(name), modified);
                    given.on("set the time of a directory in", &above)?;
                }
            }
            Ok(())
        })
    }

    /// What is withheld from a directory to which nothing but its time has to be given.
    fn lacks_only_time(&self, state: DirectoryState) -> Option<Withheld> {
        let has = self.made_directory(state);
        metadata::lacks_only_time(has, &state.wanted(), self.settings.rights)
    }

    fn has_access(&self, directories: &Directories, index: Index) -> bool {
        let access = lock(&self.access);
        !access.is_empty() && access.contains_key(&directories.path(index))
    }

    /// What a directory has that was announced and made.
    fn made_directory(&self, state: DirectoryState) -> Has {
        let made_with = match state {
            DirectoryState::Announced(wanted) => wanted.mode & 0o777 | DIRECTORY_MODE,
            _ => DIRECTORY_MODE,
        };
        Has {
            mode: self.made.mode(made_with),
            ..self.made.owner
        }
    }

    fn dress(
        &self,
        index: Index,
        path: &EntryPath,
        state: DirectoryState,
    ) -> Result<(), TreeWriteError> {
        if state == DirectoryState::Unannounced {
            return Ok(());
        }
        let opened = self.target.directory(path.as_bytes());
        let opened = opened.on("open", path)?;
        let rights = self.settings.rights;
        let access = lock(&self.access).get(path).cloned().unwrap_or_default();
        let wanted = metadata::before_access(&state.wanted(), &access);
        let given = if index == ROOT {
            metadata::give(&opened, &wanted, rights)
        } else {
            let has = self.made_directory(state);
            metadata::give_to(&opened, has, &wanted, rights)
        };
        let given = given.on("set owner, mode and time of", path)?;
        self.counts.withhold(given);
        let refused = metadata::give_access(&opened, &access, rights);
        let refused = refused.on("set the access list of", path)?;
        self.counts.attributes_not_kept.add(refused);
        Ok(())
    }

    fn path(&self, waiting: &Waiting<'_>) -> EntryPath {
        let above = lock(&self.directories).path(waiting.above);
        above.child(waiting.name).expect("it was a name")
    }

    fn above(&self, path: &EntryPath) -> Result<WritePlace, TreeWriteError> {
        self.place(named(path)?.0)
    }
}

fn to_path(bytes: &[u8]) -> EntryPath {
    EntryPath::parse(bytes).expect("it was a path")
}

fn c_name(name: &[u8]) -> CString {
    CString::new(name).expect("names have no NUL")
}
