//! The forks of a workspace: which there are, where they lie, and what they were made from.
//!
//! `fork.NAME.json` in the session directory is the record of a fork, and `fork.NAME.base` what the checkpoint held that it was made
//! from: what was done in a fork can be told after that checkpoint is gone. Whoever makes, promotes or removes a fork holds `forks.lock`.
//!
//! *Making:* 1. the base, and the record, as `making`   2. the directory, at once and whole   3. its session   4. the record, as `ready`
//! with what the filesystem says the directory is. *Removing:* 1. the record, as `removing`   2. the directory gets another name
//! 3. it goes, with everything in it   4. its session goes in the same way   5. base and record go.
//!
//! *Always true:* a directory that is not the very one that a record is about is never changed or removed, whatever lies at its path. A
//! fork that was interrupted between 1 and 4 is brought to its end if its directory is what the checkpoint was, and else forgotten.
//! A removal that was interrupted before 2 was never begun, and is brought to its end after it.

use super::Workspace;
use super::commands::InitWorkspace;
use super::known_sessions::{SessionIdentity, usual};
use super::session::{self, CONFIG, text_of};
use crate::dir_identity::DirIdentity;
use crate::error::{Error, OPEN_DIRECTORY, WorkspaceError, error_chain};
use crate::own_places::{ELSEWHERE, IDENTITY};
use rustix::fs::{CWD, RenameFlags};
use serde::{Deserialize, Serialize};
use stasis_disk::form::slots::{self, Manifest, StatCache};
use stasis_disk::fs::atomic_write::{atomic_write, read_bounded, remove_durably};
use stasis_disk::fs::lock_file::{LockAttempt, LockFile};
use stasis_disk::fs::remove;
use stasis_disk::fs::root_dir::{Mounts, RootDir};
use stasis_disk::tree::walk::WalkReport;
use stasis_model::failure::AtPath;
use stasis_model::time::Timestamp;
use stasis_model::workspace::{CheckpointName, ForkName, Slot, SlotMetadata};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What the names of records begin with.
const RECORD: &str = "fork.";
const RECORD_END: &str = ".json";
const BASE_END: &str = ".base";
/// A longer one is no list of a checkpoint.
const LARGEST_BASE: u64 = 4 << 30;

/// How far a fork has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ForkState {
    Making,
    Ready,
    Removing,
}

/// `fork.NAME.json`
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ForkRecord {
    pub(super) name: ForkName,
    pub(super) state: ForkState,
    /// Where it was last seen.
    pub(super) directory: PathBuf,
    /// What the filesystem says the directory is; none before it is made, and where the filesystem does not say it.
    #[serde(flatten)]
    pub(super) identity: Option<DirIdentity>,
    /// Its own session directory.
    pub(super) session: Option<PathBuf>,
    /// The slot of the checkpoint that it was made from, which may hold another one by now.
    pub(super) slot: u32,
    /// The number of that checkpoint, which no other one has.
    pub(super) sequence: u64,
    pub(super) checkpoint_name: Option<CheckpointName>,
    pub(super) made_ms: u64,
    /// `cli` or `mcp`
    pub(super) made_by: String,
    /// Whether its files share their bytes with the checkpoint until they change.
    pub(super) is_shared: bool,
}

/// Where a fork is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ForkFound {
    At(PathBuf),
    /// Nothing lies at its path, and it is nowhere else as far as is known.
    Gone,
    /// Another directory lies at its path.
    Replaced,
}

impl ForkRecord {
    /// The checkpoint that it was made from: `cp-100`.
    pub(super) fn checkpoint(&self) -> String {
        Slot::new(self.slot).to_string()
    }

    /// Whether a checkpoint is the one that it was made from.
    pub(super) fn is_from(&self, one: &SlotMetadata) -> bool {
        (one.slot.index(), one.sequence) == (self.slot, self.sequence)
    }

    /// Whether what lies at a path is the fork. Its device may have got another number with a restart.
    fn is_at(&self, path: &Path) -> bool {
        match (self.identity, DirIdentity::of(path)) {
            (Some(own), Some(found)) => own.is_alike(&found),
            (None, _) => path.is_dir() && !path.is_symlink(),
            (Some(_), None) => false,
        }
    }

    /// Where it is: at its path, where its own session has followed it to, or beside its path under another name.
    pub(super) fn find(&self) -> ForkFound {
        if self.is_at(&self.directory) {
            return ForkFound::At(self.directory.clone());
        }
        if let Some(own) = self.identity {
            let session = self.session.as_ref();
            let session = session.map(|session| SessionIdentity::read(&session.join(IDENTITY)));
            let followed = session
                .and_then(Result::ok)
                .map(|session| session.workspace);
            let followed = followed.filter(|path| self.is_at(path));
            if let Some(path) = followed.or_else(|| own.beside(&self.directory)) {
                return ForkFound::At(path);
            }
        }
        if self.directory.symlink_metadata().is_ok() {
            ForkFound::Replaced
        } else {
            ForkFound::Gone
        }
    }

    /// Where it is, or why nothing can be done with it.
    pub(super) fn place(&self) -> Result<PathBuf, Error> {
        let (name, directory) = (self.name.clone(), self.directory.clone());
        match self.find() {
            ForkFound::At(path) => Ok(path),
            ForkFound::Gone => Err(WorkspaceError::ForkGone { name, directory }.into()),
            ForkFound::Replaced => Err(WorkspaceError::ForkReplaced { name, directory }.into()),
        }
    }
}

/// The name that a directory has while it is removed, in the directory that it is in.
fn aside(directory: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(directory.file_name().unwrap_or_default());
    name.push(".stasis-removing");
    directory.with_file_name(name)
}

/// A fork that is about to be made.
pub(super) struct NewFork<'a> {
    pub(super) name: ForkName,
    pub(super) directory: PathBuf,
    pub(super) from: &'a SlotMetadata,
    pub(super) base: &'a Manifest,
}

impl Workspace {
    fn record_path(&self, name: &ForkName, end: &str) -> PathBuf {
        self.session().path.join(format!("{RECORD}{name}{end}"))
    }

    /// The names that files of the session give to forks.
    fn names_with(&self, end: &str) -> Result<Vec<ForkName>, Error> {
        let session = &self.session().path;
        let files = std::fs::read_dir(session).at("read", session)?.flatten();
        let names = files.filter_map(|file| {
            let name = file.file_name();
            let name = name.to_str()?.strip_prefix(RECORD)?.strip_suffix(end)?;
            name.parse::<ForkName>().ok()
        });
        Ok(names.collect())
    }

    /// Every fork that is known, the oldest first.
    pub(super) fn fork_records(&self) -> Result<Vec<ForkRecord>, Error> {
        let mut all = Vec::new();
        for name in self.names_with(RECORD_END)? {
            // Whoever removes one meanwhile is right.
            all.extend(self.read_fork(&name)?);
        }
        all.sort_by(|one, other| (one.made_ms, &one.name).cmp(&(other.made_ms, &other.name)));
        Ok(all)
    }

    /// How many forks are known, whether their records can be read or not.
    pub(super) fn fork_count(&self) -> Result<u64, Error> {
        Ok(self.names_with(RECORD_END)?.len() as u64)
    }

    fn read_fork(&self, name: &ForkName) -> Result<Option<ForkRecord>, Error> {
        let path = self.record_path(name, RECORD_END);
        let Some(text) = text_of(&path)? else {
            return Ok(None);
        };
        let record = serde_json::from_str(&text).map_err(|error| WorkspaceError::Config {
            path,
            detail: error.to_string(),
        });
        Ok(Some(record?))
    }

    /// The fork that somebody means.
    pub(super) fn fork_record(&self, name: &ForkName) -> Result<ForkRecord, Error> {
        let found = self.read_fork(name)?;
        let found = found.filter(|one| one.state == ForkState::Ready);
        found.ok_or_else(|| {
            WorkspaceError::NoFork {
                name: name.clone(),
                workspace: self.directory().to_owned(),
                parent: self.forked_from(),
            }
            .into()
        })
    }

    /// The workspace that this one is a fork of.
    pub(super) fn forked_from(&self) -> Option<PathBuf> {
        let own = SessionIdentity::read(&self.session().path.join(IDENTITY)).ok()?;
        let parent = SessionIdentity::read(&own.fork_of?.join(IDENTITY)).ok()?;
        Some(parent.workspace)
    }

    pub(super) fn write_fork(&self, record: &ForkRecord) -> Result<(), Error> {
        let text = serde_json::to_vec_pretty(record).expect("plain fields are always JSON");
        Ok(atomic_write(
            &self.record_path(&record.name, RECORD_END),
            &text,
        )?)
    }

    /// Forgets a fork; its directory is not looked at.
    pub(super) fn forget_fork(&self, name: &ForkName) -> Result<(), Error> {
        // The record first: a base without one is removed by whoever comes next.
        remove_durably(&self.record_path(name, RECORD_END))?;
        remove_durably(&self.record_path(name, BASE_END))?;
        Ok(())
    }

    /// What the checkpoint held that a fork was made from.
    pub(super) fn base_of(&self, record: &ForkRecord) -> Result<Manifest, Error> {
        let path = self.record_path(&record.name, BASE_END);
        let bytes = read_bounded(&path, LARGEST_BASE).at("read", &path)?;
        let base = Manifest::from_bytes(&bytes).ok_or_else(|| WorkspaceError::Config {
            path,
            detail: "it is no list of entries".to_owned(),
        });
        self.included(base?)
    }

    /// What is in a fork, by the rules of this workspace.
    pub(super) fn fork_contents(
        &self,
        record: &ForkRecord,
        directory: &Path,
    ) -> Result<(Manifest, WalkReport), Error> {
        let root = RootDir::open(directory, Mounts::Stay).at(OPEN_DIRECTORY, directory)?;
        let stats = record.session.as_ref().map(|session| session.join("stats"));
        let stats = stats.unwrap_or_default();
        let mut cache = StatCache::open(&stats, self.clock().now());
        let listed = slots::manifest(&root, &mut cache, &self.session().walk());
        let listed = listed.map_err(WorkspaceError::from)?;
        if stats.parent().is_some_and(Path::is_dir) {
            // What is not remembered is read again.
            let _ = cache.save();
        }
        Ok(listed)
    }

    fn forks_lock(&self) -> PathBuf {
        self.session().path.join("forks.lock")
    }

    /// Makes the forks ours alone, and brings to its end what a dead one began.
    pub(super) fn lock_forks(&self, doing: &str) -> Result<LockFile, Error> {
        let (process, now) = (std::process::id(), self.clock().now());
        let words = format!("{doing} by process {process} since {now}");
        let until = self.clock().uptime() + super::LOCK_TIMEOUT;
        let is_over = || self.clock().uptime() >= until;
        let attempt = LockFile::take_within(&self.forks_lock(), &words, super::AGAIN, is_over);
        match attempt.map_err(WorkspaceError::Lock)? {
            LockAttempt::Taken(lock) => {
                self.recover_forks()?;
                Ok(lock)
            }
            LockAttempt::Held(holder) => Err(WorkspaceError::Busy(holder).into()),
        }
    }

    /// The same for somebody who came for something else, if anything was interrupted and nobody is at it.
    pub(super) fn recover_forks_if_free(&self) -> Result<(), Error> {
        let is_ready = |one: &ForkRecord| one.state == ForkState::Ready;
        if self.fork_records()?.iter().all(is_ready) {
            return Ok(());
        }
        let attempt = LockFile::take(&self.forks_lock(), "");
        match attempt.map_err(WorkspaceError::Lock)? {
            LockAttempt::Taken(_lock) => self.recover_forks(),
            LockAttempt::Held(_) => Ok(()),
        }
    }

    fn recover_forks(&self) -> Result<(), Error> {
        for record in self.fork_records()? {
            let name = record.name.clone();
            let finished = match record.state {
                ForkState::Ready => Ok(()),
                ForkState::Making => self.finish_making(record),
                ForkState::Removing => self.finish_removing(record),
            };
            // One that cannot be brought to its end does not hinder the others.
            if let Err(error) = finished {
                let error = error_chain(&error);
                tracing::warn!(error, fork = %name, "could not bring to its end what was begun with a fork");
            }
        }
        let known = self.names_with(RECORD_END)?;
        for base in self.names_with(BASE_END)? {
            if !known.contains(&base) {
                remove_durably(&self.record_path(&base, BASE_END))?;
            }
        }
        Ok(())
    }

    /// Registers a fork that was interrupted, if its directory is there and is what it was to be; else forgets it.
    fn finish_making(&self, record: ForkRecord) -> Result<(), Error> {
        let directory = record.directory.clone();
        let contents = self.fork_contents(&record, &directory);
        let (Ok((contents, _)), Ok(base)) = (contents, self.base_of(&record)) else {
            return self.forget_fork(&record.name);
        };
        if contents != base {
            tracing::warn!(fork = %record.name, directory = %directory.display(), "a fork that was interrupted is not what it was to be, and is left alone");
            return self.forget_fork(&record.name);
        }
        self.settle_fork(record).map(|_| ())
    }

    /// Makes the directory of a fork a workspace, and its record complete.
    fn settle_fork(&self, mut record: ForkRecord) -> Result<ForkRecord, Error> {
        record.directory = record
            .directory
            .canonicalize()
            .at(OPEN_DIRECTORY, &record.directory)?;
        record.identity = DirIdentity::of(&record.directory);
        record.session = Some(self.init_fork(&record.directory)?);
        record.state = ForkState::Ready;
        self.write_fork(&record)?;
        Ok(record)
    }

    /// Makes a fork known as a workspace of its own, under the settings of this one; says where its session is.
    fn init_fork(&self, directory: &Path) -> Result<PathBuf, Error> {
        let host = &self.session().host;
        let init = InitWorkspace {
            directory: directory.to_owned(),
            session: None,
            system: None,
            budget: None,
        };
        // A session that only knew another directory under this path is that one's, with its checkpoints.
        let made = session::init_new(&init, host)?;
        let session = PathBuf::from(&made.session);
        if !made.existed {
            let own = text_of(&self.session().path.join(CONFIG))?;
            atomic_write(&session.join(CONFIG), own.unwrap_or_default().as_bytes())?;
        }
        // One that was killed here may have left what it was about to write.
        clear_unwritten(&session);
        let mut own = SessionIdentity::read(&session.join(IDENTITY))?;
        own.fork_of = Some(self.session().path.clone());
        own.write(&session)?;
        Ok(session)
    }

    /// Makes one fork, and registers it. One that fails leaves nothing.
    pub(super) fn make_fork(&self, new: &NewFork<'_>) -> Result<ForkRecord, Error> {
        let mut record = ForkRecord {
            name: new.name.clone(),
            state: ForkState::Making,
            directory: new.directory.clone(),
            identity: None,
            session: None,
            slot: new.from.slot.index(),
            sequence: new.from.sequence,
            checkpoint_name: new.from.name.clone(),
            made_ms: self.clock().now().millis(),
            made_by: self.maker().word().to_owned(),
            is_shared: false,
        };
        atomic_write(&self.record_path(&new.name, BASE_END), &new.base.to_bytes())?;
        self.write_fork(&record)?;
        let made = self.pool().fork(new.from, &new.directory);
        match made {
            Ok(report) => record.is_shared = report.bytes_copied == 0,
            Err(error) => {
                let _ = self.forget_fork(&new.name);
                return Err(error.into());
            }
        }
        // From here on the directory is ours, and nobody has been in it.
        let identity = DirIdentity::of(&new.directory);
        self.settle_fork(record.clone()).inspect_err(|_| {
            record.identity = identity;
            self.unmake_fork(&record);
        })
    }

    /// Removes a fork that was just made, because what was to come with it could not be.
    pub(super) fn unmake_fork(&self, record: &ForkRecord) {
        let removed = self.remove_all_of(record.clone(), &record.directory);
        if let Err(error) = removed {
            let error = error_chain(&error);
            tracing::warn!(error, fork = %record.name, "could not remove a fork that was not completed");
        }
    }

    /// Removes a fork that lies at a path, its session and its record.
    pub(super) fn remove_all_of(&self, mut record: ForkRecord, at: &Path) -> Result<(), Error> {
        at.clone_into(&mut record.directory);
        record.state = ForkState::Removing;
        self.write_fork(&record)?;
        let aside = aside(at);
        let moved = rustix::fs::renameat_with(CWD, at, CWD, &aside, RenameFlags::NOREPLACE);
        moved.map_err(std::io::Error::from).at("remove", at)?;
        if record.identity.is_none() || !record.is_at(&aside) {
            // Another one took its place since it was looked at.
            let back = rustix::fs::renameat_with(CWD, &aside, CWD, at, RenameFlags::NOREPLACE);
            back.map_err(std::io::Error::from).at("move back", at)?;
            record.state = ForkState::Ready;
            self.write_fork(&record)?;
            let (name, directory) = (record.name, record.directory);
            return Err(WorkspaceError::ForkReplaced { name, directory }.into());
        }
        self.finish_removing(record)
    }

    /// Removes what is left of a fork, if its removal was begun.
    fn finish_removing(&self, mut record: ForkRecord) -> Result<(), Error> {
        let aside = aside(&record.directory);
        if record.identity.is_some() && record.is_at(&aside) {
            let removed = remove::tree_at(&aside);
            removed.map_err(std::io::Error::from).at("remove", &aside)?;
        } else if let ForkFound::At(_) = record.find() {
            // It still has its name: whatever was done in it since, nobody agreed to lose.
            record.state = ForkState::Ready;
            return self.write_fork(&record);
        }
        self.forget_session(&record)?;
        self.forget_fork(&record.name)
    }

    /// Removes the session of a fork, with the checkpoints in it, and what leads to it.
    pub(super) fn forget_session(&self, record: &ForkRecord) -> Result<(), Error> {
        let Some(session) = &record.session else {
            return Ok(());
        };
        let own = SessionIdentity::read(&session.join(IDENTITY)).ok();
        let is_of_fork = |own: &SessionIdentity| {
            own.fork_of.as_deref() == Some(&*self.session().path)
                && (own.workspace == record.directory || own.identity == record.identity)
        };
        let paths = own.iter().map(|own| own.workspace.clone());
        let paths: Vec<PathBuf> = paths.chain([record.directory.clone()]).collect();
        let aside = aside(session);
        if own.as_ref().is_some_and(is_of_fork) {
            // Half of a session says nothing of whose it is.
            let moved =
                rustix::fs::renameat_with(CWD, session, CWD, &aside, RenameFlags::NOREPLACE);
            moved.map_err(std::io::Error::from).at("remove", session)?;
        }
        let removed = remove::tree_at(&aside);
        removed.map_err(std::io::Error::from).at("remove", &aside)?;
        for path in paths {
            let usual = usual(&path, &self.session().host.state);
            let leads = read_bounded(&usual.join(ELSEWHERE), 4096);
            if leads.is_ok_and(|leads| leads == session.as_os_str().as_bytes()) {
                remove_durably(&usual.join(ELSEWHERE))?;
                // One that has something in it is another's.
                let _ = rustix::fs::rmdir(&usual);
            }
        }
        Ok(())
    }

    /// When a fork was made, as people say it.
    pub(super) fn fork_age(&self, record: &ForkRecord) -> String {
        Timestamp::from_millis(record.made_ms).age(self.clock().now())
    }
}

/// Removes what a process that does not live any more was about to write into a session.
fn clear_unwritten(session: &Path) {
    for entry in std::fs::read_dir(session).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let rest = name
            .to_str()
            .and_then(|name| name.strip_prefix(".stasis-tmp-"));
        let pid = rest.and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !stasis_sys::processes::exists(pid)) {
            let _ = remove::file_at(&entry.path());
        }
    }
}
