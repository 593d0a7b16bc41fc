//! The end of a workspace: its watch stops, and its checkpoints go if that is wanted. The directory itself is not touched.
//!
//! *Removing:* 1. nobody else watches it, is at its forks or at it   2. `session.json` goes   3. the checkpoints, and what could be undone
//! 4. what leads to the session   5. everything else of ours, and the session directory if nothing else is in it.
//!
//! *Always true:* what is left of a removal that was interrupted after 2 is no session, and nobody who waited for its lock makes it one
//! again. A session directory that a user chose may hold what is not ours: that stays, and so does `config.toml`, which is the user's.

use super::Workspace;
use super::answers::RemovedWorkspace;
use super::commands::RunMode;
use super::session::{CONFIG, DATABASE};
use super::undo::FINAL;
use super::watch::{WATCH_LOCK, WATCH_LOG, WATCH_STOP};
use crate::error::{Error, ErrorKind, WorkspaceError};
use crate::own_places::{ELSEWHERE, IDENTITY, WORKSPACES};
use stasis_disk::form::slots;
use stasis_disk::fs::atomic_write::{atomic_write, read_bounded, remove_durably, replace_unsynced};
use stasis_disk::fs::lock_file::LockFile;
use stasis_disk::fs::remove;
use stasis_model::failure::{AtPath, Failure};
use stasis_model::workspace::{ForkName, Occupant, Slot};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What says, in a session directory, that hooks of agents make no checkpoints of the workspace.
pub(super) const HOOKS_OFF: &str = "hooks_off";
/// How long a watch has to end: it may be making a checkpoint.
const WATCH_END: Duration = Duration::from_secs(30);
/// How often somebody who waits for that looks.
const LOOK: Duration = Duration::from_millis(50);
/// No path of Linux is longer.
const LONGEST: u64 = 4096;

/// Says of a name whether we gave it.
type IsOurs = fn(&str) -> bool;

/// The directories of a session, and which names in them are ours.
const DIRECTORIES: [(&str, IsOurs); 5] = [
    (slots::DIRECTORY, is_of_slots),
    (slots::UNDO_DIRECTORY, is_of_slots),
    ("chunks", is_of_contents),
    ("objects", is_of_contents),
    ("prompts", is_number_pair),
];
/// The files of a session that always have the same name.
const FILES: [&str; 15] = [
    IDENTITY,
    DATABASE,
    HOOKS_OFF,
    WATCH_LOCK,
    WATCH_LOG,
    WATCH_STOP,
    FINAL,
    "session.lock",
    "forks.lock",
    "hook.lock",
    "stats",
    "references",
    "reserve",
    LIST_CACHES[0],
    LIST_CACHES[1],
];
/// What is remembered of the trees that are kept in chunks.
const LIST_CACHES: [&str; 2] = ["remembered", "remembered-system"];

impl Workspace {
    /// Whether hooks of agents make no checkpoints here, because somebody said so.
    pub fn are_hooks_off(&self) -> bool {
        self.session().path.join(HOOKS_OFF).exists()
    }

    /// Says whether hooks of agents make checkpoints here.
    pub async fn set_hooks(&self, on: bool) -> Result<(), Error> {
        self.blocking(move |own| {
            let mark = own.session().path.join(HOOKS_OFF);
            match (on, mark.exists()) {
                (true, true) => Ok(remove_durably(&mark)?),
                (false, false) => Ok(atomic_write(&mark, b"")?),
                _ => Ok(()),
            }
        })
        .await
    }

    /// Asks the watch of this workspace to end, and waits until it has ended; says whose it was. No process is signalled: whoever
    /// watches may do more than that, and may be a process of another container.
    pub async fn stop_watch(&self) -> Result<Option<String>, Error> {
        self.blocking(Self::stop_watch_now).await
    }

    fn stop_watch_now(&self) -> Result<Option<String>, Error> {
        let (lock, stop) = (self.watch_lock(), self.watch_stop());
        let Some(mut holder) = LockFile::holder(&lock) else {
            return Ok(None);
        };
        let until = self.clock().uptime() + WATCH_END;
        let has_ended = loop {
            // Each time: a watch that has just begun removes one, because it takes it for an old one.
            if !stop.exists() {
                replace_unsynced(&stop, b"")?;
            }
            std::thread::sleep(LOOK);
            match LockFile::holder(&lock) {
                None => break true,
                // What a holder says may come a moment after the lock.
                Some(now) if !now.is_empty() => holder = now,
                Some(_) => {}
            }
            if self.clock().uptime() > until {
                break false;
            }
        };
        remove_durably(&stop)?;
        if has_ended {
            Ok(Some(holder))
        } else {
            Err(WorkspaceError::Watched(holder).into())
        }
    }

    /// An error if the session was removed since it was opened.
    pub(super) fn check_session(&self) -> Result<(), WorkspaceError> {
        // One that nobody may look at is there.
        match self.session().path.join(IDENTITY).try_exists() {
            Ok(false) => Err(WorkspaceError::NotAWorkspace {
                directory: self.directory().to_owned(),
                lost: Vec::new(),
            }),
            _ => Ok(()),
        }
    }

    /// Removes the session directory if nothing but a lock is in it: whoever takes a lock of a session that is removed at that very
    /// moment makes the directory anew.
    pub(super) fn unmake_session(&self, lock: &Path) {
        let session = &self.session().path;
        let is_lock = |name: &String| lock.file_name() == Some(OsStr::new(name));
        if names_in(session).iter().all(is_lock) {
            // What stays is an empty file that makes no session.
            let _ = remove::file_at(lock);
            let _ = rustix::fs::rmdir(session);
        }
    }

    /// Deletes every checkpoint and everything else that is kept of the workspace, which is none any more after that.
    pub async fn remove(&self, run: RunMode) -> Result<RemovedWorkspace, Error> {
        self.blocking(move |own| own.remove_now(run)).await
    }

    fn remove_now(&self, run: RunMode) -> Result<RemovedWorkspace, Error> {
        const DOING: &str = "removing the workspace";
        if run == RunMode::Dry {
            return self.session_removal(run);
        }
        let (process, now) = (std::process::id(), self.clock().now());
        let _watch = self.only_watch(&format!("{DOING} by process {process} since {now}"))?;
        let _forks = self.lock_forks(DOING)?;
        let _lock = self.lock(DOING)?;
        let mut result = self.session_removal(run)?;
        let session = &self.session().path;
        let is_all_ours = self.is_all_ours();
        // Without this it is no session any more, whatever becomes of the rest.
        remove_durably(&session.join(IDENTITY))?;
        self.remove_checkpoints()?;
        self.forget_leads()?;
        if is_all_ours {
            let removed = remove::tree_at(session).map_err(std::io::Error::from);
            removed.at("remove", session).map_err(with_rest_hint)?;
        } else {
            self.remove_own_names().map_err(with_rest_hint)?;
        }
        result.left = left_in(session, |_| true);
        Ok(result)
    }

    /// What goes, and what stays as far as that can be told.
    fn session_removal(&self, run: RunMode) -> Result<RemovedWorkspace, Error> {
        let session = &self.session().path;
        let left = if self.is_all_ours() {
            Vec::new()
        } else {
            left_in(session, |name| !self.goes(name))
        };
        Ok(RemovedWorkspace {
            workspace: self.directory().display().to_string(),
            session: session.display().to_string(),
            checkpoints: self.newest_first()?.len() as u64,
            bytes: self.status_now()?.held_bytes,
            left,
            dry_run: run == RunMode::Dry,
        })
    }

    /// Some are subvolumes, which go in their own way; of some a part lies beside the workspace.
    fn remove_checkpoints(&self) -> Result<(), Error> {
        let pool = self.pool();
        let slots: Vec<Slot> = pool.list()?.iter().map(Occupant::slot).collect();
        pool.forget(&slots)?;
        for one in pool.undos()? {
            pool.delete_undo(one.slot().index())?;
        }
        Ok(())
    }

    /// Whether the session directory is one of those in the state directory of this host, where nobody else keeps anything.
    fn is_in_own_place(&self) -> bool {
        let own = self.session().host.state.join(WORKSPACES);
        let session = self.session().path.canonicalize();
        match (session, own.canonicalize()) {
            (Ok(session), Ok(own)) => session.parent() == Some(&*own),
            _ => false,
        }
    }

    /// Whether nothing but the session is in its directory.
    fn is_all_ours(&self) -> bool {
        let session = &self.session().path;
        // The workspace may lie in it.
        self.is_in_own_place()
            && !leads_to_another(session)
            && !self.directory().starts_with(session)
    }

    /// Removes what leads to the session, from the usual places of all paths that its workspace had.
    fn forget_leads(&self) -> Result<(), Failure> {
        let session = self.session().path.as_os_str().as_bytes();
        let own = self.session().host.state.join(WORKSPACES);
        for record in std::fs::read_dir(own).into_iter().flatten().flatten() {
            let lead = record.path().join(ELSEWHERE);
            if read_bounded(&lead, LONGEST).is_ok_and(|path| path == session) {
                remove_durably(&lead)?;
                // One that has something in it is another's.
                let _ = rustix::fs::rmdir(record.path());
            }
        }
        Ok(())
    }

    /// Whether an entry of the session directory goes with the session, at least what is ours in it.
    fn goes(&self, name: &str) -> bool {
        let is_directory = DIRECTORIES.iter().any(|(directory, _)| *directory == name);
        is_directory || is_own_file(name) || (name == CONFIG && self.is_in_own_place())
    }

    /// Removes what has a name of ours, and what is empty after that.
    fn remove_own_names(&self) -> Result<(), Failure> {
        let session = &self.session().path;
        for (directory, is_own) in DIRECTORIES {
            let place = session.join(directory);
            for name in names_in(&place).iter().filter(|name| is_own(name)) {
                remove_entry(&place.join(name))?;
            }
            // One that has something in it stays, and that is meant.
            let _ = rustix::fs::rmdir(&place);
        }
        for name in names_in(session).iter().filter(|name| self.goes(name)) {
            let path = session.join(name);
            // A directory is none of our files, whatever it is called.
            if path.symlink_metadata().is_ok_and(|seen| !seen.is_dir()) {
                remove_entry(&path)?;
            }
        }
        let _ = rustix::fs::rmdir(session);
        Ok(())
    }
}

/// Whether the usual place of a path, which a session is in, leads to another session that has that path by now.
fn leads_to_another(session: &Path) -> bool {
    let leads = read_bounded(&session.join(ELSEWHERE), LONGEST);
    leads.is_ok_and(|path| {
        let other = PathBuf::from(OsStr::from_bytes(&path));
        other != session && other.join(IDENTITY).is_file()
    })
}

/// The names in a directory, in order; one that is no text is none of ours, and is not among them.
fn names_in(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// The paths of those entries of a directory that `stays` says it of, and of those whose names are no text.
fn left_in(directory: &Path, stays: impl Fn(&str) -> bool) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let left = entries.filter(|entry| entry.file_name().to_str().is_none_or(&stays));
    let mut left: Vec<String> = left
        .map(|entry| entry.path().display().to_string())
        .collect();
    left.sort();
    left
}

fn remove_entry(path: &Path) -> Result<(), Failure> {
    let is_directory = path.symlink_metadata().is_ok_and(|seen| seen.is_dir());
    let removed = if is_directory {
        remove::tree_at(path)
    } else {
        remove::file_at(path)
    };
    removed.map_err(std::io::Error::from).at("remove", path)
}

fn with_rest_hint(failure: Failure) -> Failure {
    match failure.kind() {
        ErrorKind::Denied => {
            failure.with_hint("its checkpoints are gone; remove what is left yourself")
        }
        _ => failure,
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// `123-456`
fn is_number_pair(text: &str) -> bool {
    let pair = text.split_once('-');
    pair.is_some_and(|(one, other)| is_number(one) && is_number(other))
}

/// What was about to get another name when its maker was killed.
fn is_unfinished(name: &str) -> bool {
    let is_marked = |mark: &str| name.contains(mark);
    name.starts_with('.') && (is_marked(".stasis-tmp-") || is_marked(".stasis-backup-"))
}

fn is_of_slots(name: &str) -> bool {
    name == ".lock" || is_number(name) || is_unfinished(name)
}

fn is_of_contents(name: &str) -> bool {
    let digest = name.strip_prefix("damaged-").unwrap_or(name);
    let is_digest = digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_digest || is_unfinished(name)
}

fn is_own_file(name: &str) -> bool {
    let is_of_database = |end: &str| {
        let room = end.strip_prefix("-room-");
        ["-wal", "-shm", "-journal"].contains(&end) || room.is_some_and(is_number)
    };
    let is_of_fork = |rest: &str| {
        let parts = rest.rsplit_once('.');
        parts.is_some_and(|(fork, end)| {
            ["json", "base"].contains(&end) && fork.parse::<ForkName>().is_ok()
        })
    };
    let is_cache = |cache: &&str| {
        let process = name.strip_prefix(*cache);
        let process = process.and_then(|rest| rest.strip_prefix('.'));
        process.is_some_and(is_number)
    };
    FILES.contains(&name)
        || is_unfinished(name)
        || name.strip_prefix(DATABASE).is_some_and(is_of_database)
        || name.strip_prefix("fork.").is_some_and(is_of_fork)
        || name.strip_prefix("making.").is_some_and(is_number_pair)
        || LIST_CACHES.iter().any(is_cache)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_a_session_gives_are_ours() {
        let digest = "0123456789abcdef".repeat(4);
        let damaged = format!("damaged-{digest}");

        for name in ["session.json", "session.db-wal", "session.db-room-7"] {
            assert!(is_own_file(name), "{name}");
        }
        for name in ["fork.try-1.json", "fork.try-1.base", "making.12-3"] {
            assert!(is_own_file(name), "{name}");
        }
        for name in ["remembered.12", ".stasis-tmp-1-2-stats", "watch.stop"] {
            assert!(is_own_file(name), "{name}");
        }
        for name in ["notes", "config.toml", "session.db.old", "fork.json"] {
            assert!(!is_own_file(name), "{name}");
        }
        for name in ["fork.a.txt", "making.tea", "remembered.old", "elsewhere"] {
            assert!(!is_own_file(name), "{name}");
        }
        for name in [".lock", "100", ".3.stasis-tmp-12"] {
            assert!(is_of_slots(name), "{name}");
        }
        assert!(!is_of_slots("notes") && !is_of_slots(".notes"));
        assert!(is_of_contents(&digest) && is_of_contents(&damaged));
        assert!(!is_of_contents("notes") && !is_of_contents(&digest[1..]));
    }
}
