//! Whether a SQLite database is sound, asked of SQLite itself: in another process, within limits, and mostly on a copy.
//!
//! 1. copy the database, its journal and its log into a private directory
//! 2. take out of the copied journal the name of a file elsewhere   3. start the process, in that directory
//! 4. it binds itself to its limits and gives up everything but the copy ([`confine`](crate::fs::sys::confine)), opens it, lets SQLite
//!    recover it, checks it and answers in lines
//! 5. it ends, or is killed at the deadline   6. the copy goes
//!
//! In a tree that nobody else enters ([`SqliteAccess::InPlace`]) a database without anything to recover is not copied: in
//! 1 and 2 nothing happens, and in 4 the process opens the file that its standard input is, for reading, as one that
//! nobody changes. If it cannot, there is a copy after all.
//!
//! *Always true:* the original is never opened for writing, and by SQLite only in such a tree. Whatever is in the
//! database, the process ends by its deadline, holds no more memory than allowed, and has nothing to write to but the
//! copy. Where the system enforces it, the process opens no other file, has no network, starts no program and cannot reach another process,
//! from before it opens the database; where it may, it also makes the private directory its root, before SQLite parses anything. What
//! the process says is taken as claims of a stranger, bounded and made harmless; a process that dies without a whole answer says nothing
//! about the database.
//!
//! Step 2 is needed because a journal may name a *super-journal*, anywhere, which SQLite removes after rolling back. A
//! journal without it is rolled back just the same, to what the database was before: as good a state to check.
//!
//! The process that starts another one must not have the database open itself: SQLite's locks belong to the process,
//! and closing any descriptor of the file drops them.

mod answer;
mod child;
mod connection;
mod cookie_rows;
mod cookie_store;
mod limits;
mod process;
mod table_rows;

pub use child::child;
pub(super) use cookie_rows::{CookieRow, CookieRows, read as read_cookie_rows};
pub use cookie_store::cookie_store;
pub(super) use limits::RowValues;
pub use table_rows::{TableRows, table_rows};

use super::find::{self, JOURNAL, SQLITE};
use super::scratch::{CheckScratch, CopyState};
use super::{CheckError, CheckSettings, Spawn, SqliteAccess, Verdict};
use crate::fs::fd::c_name;
use crate::fs::metadata;
use crate::fs::root_dir::RootDir;
use answer::SqliteClaim;
use limits::{ChildLimits, ChildTask};
use process::ChildEnd;
use rustix::io::{self, Errno};
use stasis_model::failure::AtPath;
use stasis_model::tree::EntryPath;
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What the copy is called; its journal and its log are called after it.
const COPY: &CStr = c"db";
/// What may come to a copy by recovery.
const GROWTH: u64 = 64 << 20;

/// Checks the database at `path`.
pub fn check(
    root: &RootDir,
    path: &EntryPath,
    settings: &CheckSettings,
    spawn: &Spawn,
) -> Result<Verdict, CheckError> {
    let originals = match Originals::open(root, path) {
        Ok(originals) => originals,
        Err(Errno::NOENT) => return Ok(unable("it is not there, though its journal is")),
        Err(error) => return Ok(unable(&format!("it could not be opened: {error}"))),
    };
    let bytes = originals.bytes();
    if bytes > settings.largest {
        let what = format!(
            "{bytes} bytes with its journals; {} are allowed",
            settings.largest
        );
        return Ok(Verdict::Limit { what });
    }
    let tasks = TaskPair {
        in_place: ChildTask::CheckInPlace(settings.depth),
        of_copy: ChildTask::Check(settings.depth),
    };
    let verdict = originals.ask(tasks, settings, spawn, |ended| {
        match judge(ended, originals.has_header, settings) {
            // Such as a path that is too long for SQLite.
            verdict @ Verdict::Unable { .. } => Err(verdict),
            verdict => Ok(verdict),
        }
    })?;
    Ok(verdict.unwrap_or(Verdict::Changed))
}

fn judge(ended: ChildEnd, has_header: bool, settings: &CheckSettings) -> Verdict {
    let said = match ended {
        ChildEnd::TimedOut => return Verdict::TimedOut,
        ChildEnd::Said(said) => said,
    };
    let Some(answer) = answer::parse(&said, settings.messages) else {
        return unable("the process that checked it died without an answer");
    };
    match answer.claim {
        SqliteClaim::Sound => Verdict::Sound {
            pages: answer.pages,
            recovered: answer.recovered,
            unchecked: answer.unchecked,
        },
        // Whoever wrote the header meant it to be one.
        SqliteClaim::NotADatabase if !has_header => Verdict::NotADatabase,
        SqliteClaim::Damaged | SqliteClaim::NotADatabase => Verdict::Damaged {
            messages: answer.messages,
        },
        SqliteClaim::Limit => Verdict::Limit {
            what: answer.messages.kept().join("; "),
        },
        SqliteClaim::Unable => unable(&answer.messages.kept().join("; ")),
    }
}

fn unable(why: &str) -> Verdict {
    let why = super::message::printable(why);
    Verdict::Unable { why }
}

/// One question, of a database where it lies and of a copy.
#[derive(Clone, Copy)]
struct TaskPair {
    in_place: ChildTask,
    of_copy: ChildTask,
}

/// The files of a database, open for reading.
struct Originals {
    files: Vec<(&'static CStr, OwnedFd, u64)>,
    has_header: bool,
}

impl Originals {
    fn open(root: &RootDir, path: &EntryPath) -> io::Result<Self> {
        let (parent, name) = path.split_last().ok_or(Errno::ISDIR)?;
        let directory = root.directory(parent.as_bytes())?;
        let database = open_file(root, directory.as_fd(), name, b"")?.ok_or(Errno::NOENT)?;
        let has_header = find::header(&database.0)?.starts_with(SQLITE);
        let mut files = vec![(COPY, database.0, database.1)];
        for (copy, suffix) in [(c"db-journal", &b"-journal"[..]), (c"db-wal", b"-wal")] {
            let companion = open_file(root, directory.as_fd(), name, suffix)?;
            files.extend(companion.map(|(file, size)| (copy, file, size)));
        }
        Ok(Self { files, has_header })
    }

    fn bytes(&self) -> u64 {
        let sizes = self.files.iter().map(|(_, _, size)| *size);
        sizes.fold(0, u64::saturating_add)
    }

    /// Whether there is nothing to recover: no journal and no log, or empty ones, as Chrome leaves them.
    fn are_at_rest(&self) -> bool {
        let mut beside = self.files.iter().filter(|(name, ..)| *name != COPY);
        beside.all(|(_, _, size)| *size == 0)
    }

    /// The database itself, for another process.
    fn database(&self) -> std::io::Result<OwnedFd> {
        let (_, file, _) = &self.files[0];
        file.try_clone()
    }

    /// Has the process answer a question: where the database lies if that may be and it can be heard, else of a copy; `None`
    /// when it changed while it was copied.
    fn ask<T>(
        &self,
        tasks: TaskPair,
        settings: &CheckSettings,
        spawn: &Spawn,
        hear: impl Fn(ChildEnd) -> Result<T, T>,
    ) -> Result<Option<T>, CheckError> {
        let scratch = CheckScratch::make(&settings.scratch)?;
        let mut limits = ChildLimits {
            task: tasks.in_place,
            memory: settings.memory,
            seconds: settings.time.as_secs().saturating_add(1),
            largest: 0,
            messages: settings.messages,
        };
        if settings.access == SqliteAccess::InPlace && self.are_at_rest() {
            let input = self.database().at("open again", &settings.scratch)?;
            let ended = process::run_with_input(spawn, &limits, &scratch, settings, input.into())?;
            if let Ok(answer) = hear(ended) {
                return Ok(Some(answer));
            }
        }
        if self.copy(&scratch, settings)? == CopyState::Torn {
            return Ok(None);
        }
        limits.task = tasks.of_copy;
        limits.largest = self.bytes().saturating_add(GROWTH);
        let ended = process::run(spawn, &limits, &scratch, settings)?;
        let (Ok(answer) | Err(answer)) = hear(ended);
        Ok(Some(answer))
    }

    fn copy(
        &self,
        scratch: &CheckScratch,
        settings: &CheckSettings,
    ) -> Result<CopyState, CheckError> {
        let mut all = CopyState::Whole;
        for (name, file, _) in &self.files {
            let (copy, copied) = scratch.copy(file.as_fd(), name, &settings.cancel)?;
            if copied == CopyState::Torn {
                all = CopyState::Torn;
            }
            if *name == c"db-journal" {
                let cut = forget_super_journal(&copy);
                cut.at("change a journal in", scratch.place())?;
            }
        }
        Ok(all)
    }
}

/// Opens a regular file; `None` when there is none of that name.
fn open_file(
    root: &RootDir,
    directory: BorrowedFd<'_>,
    name: &[u8],
    suffix: &[u8],
) -> io::Result<Option<(OwnedFd, u64)>> {
    let name = c_name([name, suffix].concat())?;
    let file = match root.file(directory, &name) {
        Ok(file) => file,
        Err(Errno::NOENT | Errno::NAMETOOLONG) => return Ok(None),
        Err(error) => return Err(error),
    };
    let seen = metadata::of(&file)?;
    if !seen.file_type().is_file() {
        return Err(Errno::INVAL);
    }
    Ok(Some((file, seen.size)))
}

/// Makes SQLite overlook the name of a super-journal at the end of a journal.
pub(super) fn forget_super_journal(journal: &OwnedFd) -> io::Result<()> {
    let size = metadata::of(journal)?.size;
    let Some(at) = size.checked_sub(JOURNAL.len() as u64) else {
        return Ok(());
    };
    let mut last = [0; JOURNAL.len()];
    let read = io::retry_on_intr(|| io::pread(journal, &mut last, at))?;
    if at > 0 && last[..read] == *JOURNAL {
        io::retry_on_intr(|| io::pwrite(journal, &[0; JOURNAL.len()], at))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek, Write};

    #[test]
    fn the_name_of_a_super_journal_is_forgotten_and_nothing_else() {
        for (before, after) in [
            (
                [JOURNAL, &[1; 20][..], JOURNAL].concat(),
                [JOURNAL, &[1; 20][..], &[0; 8]].concat(),
            ),
            (
                [JOURNAL, &[1; 20][..]].concat(),
                [JOURNAL, &[1; 20][..]].concat(),
            ),
            (JOURNAL.to_vec(), JOURNAL.to_vec()),
            (vec![1; 3], vec![1; 3]),
        ] {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&before).unwrap();
            let journal = OwnedFd::from(file.try_clone().unwrap());

            forget_super_journal(&journal).unwrap();

            let mut now = Vec::new();
            file.rewind().unwrap();
            file.read_to_end(&mut now).unwrap();
            assert_eq!(now, after);
        }
    }
}
