//! Making forks, listing them, and removing them.

use super::answers::{ChangesSummary, SessionForm};
use super::commands::{CreateCheckpoint, ForkPlace, ForkWorkspace, Maker, RemoveFork, RunMode};
use super::fork_results::{ForkRow, ForkStatus, ForkedWorkspace, Forks, RemovedFork};
use super::forks::{ForkFound, ForkRecord, NewFork};
use super::keep::fork_method;
use super::show::{differences, op, summary};
use super::{Actor, Workspace};
use crate::error::{Error, OPEN_DIRECTORY, WorkspaceError};
use stasis_disk::form::slots::{self, Manifest, ManifestKind};
use stasis_disk::fs::lock_file::LockFile;
use stasis_disk::fs::root_dir::{Mounts, RootDir};
use stasis_disk::tree::walk::{self, WalkSettings};
use stasis_model::digest::StoreDigest;
use stasis_model::failure::AtPath;
use stasis_model::time::Timestamp;
use stasis_model::tree::diff::ChangeKind;
use stasis_model::tree::{EntryKind, EntryPath};
use stasis_model::workspace::{
    CheckpointRef, ForkName, Occupant, SlotForm, SlotMetadata, fork_names,
};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// More forks at once than this are a mistake.
const MOST_FORKS: u32 = 1000;
/// How many forks of agents there are at most.
const MOST_AGENT_FORKS: usize = 16;
/// How many entries are named.
const SHOWN: usize = 100;
/// How many of the excluded ones are.
const EXCLUDED_SHOWN: usize = 10;
/// What a filesystem gives to a file at least, and in multiples of.
const BLOCK: u64 = 4096;

impl Workspace {
    pub(super) fn fork_now(&self, command: &ForkWorkspace) -> Result<ForkedWorkspace, Error> {
        let started = self.clock().uptime();
        if command.count == 0 || command.count > MOST_FORKS {
            let directory = match &command.place {
                ForkPlace::At(path) | ForkPlace::In(path) => path.clone(),
                ForkPlace::Beside => self.directory().to_owned(),
            };
            let why = format!("there are from 1 to {MOST_FORKS} forks at once");
            return Err(WorkspaceError::BadFork { directory, why }.into());
        }
        let is_real = command.run == RunMode::Real;
        let _lock = is_real
            .then(|| self.lock_forks("making a fork"))
            .transpose()?;
        let records = self.fork_records()?;
        let targets = self.targets(command, &records)?;
        for (name, target) in &targets {
            self.check_target(target)?;
            if is_taken(&records, name) {
                return Err(WorkspaceError::ForkTaken(name.clone()).into());
            }
        }
        self.check_fork_count(&records, targets.len())?;
        let from = self.fork_source(command)?;
        self.check_fork_budget(&records, &from, &targets)?;
        let mut forked = ForkedWorkspace {
            forked: false,
            checkpoint: from.slot.to_string(),
            names: targets.iter().map(|(name, _)| name.to_string()).collect(),
            directories: targets
                .iter()
                .map(|(_, target)| target.display().to_string())
                .collect(),
            method: fork_method(&from),
            files: from.files_count,
            bytes: from.bytes,
            dry_run: !is_real,
            elapsed_ms: 0,
        };
        if is_real {
            let made = self.make_forks(&from, targets)?;
            forked.directories = made
                .iter()
                .map(|one| one.directory.display().to_string())
                .collect();
            forked.forked = true;
        }
        forked.elapsed_ms = self.elapsed(started);
        Ok(forked)
    }

    /// Makes all of these or, where one cannot be made, none.
    fn make_forks(
        &self,
        from: &SlotMetadata,
        targets: Vec<(ForkName, PathBuf)>,
    ) -> Result<Vec<ForkRecord>, Error> {
        let base = &self.included(self.contents(from)?)?;
        let mut made: Vec<ForkRecord> = Vec::new();
        for (name, directory) in targets {
            let new = NewFork {
                name,
                directory,
                from,
                base,
            };
            match self.make_fork(&new) {
                Ok(record) => made.push(record),
                Err(error) => {
                    for one in &made {
                        self.unmake_fork(one);
                    }
                    return Err(error);
                }
            }
        }
        Ok(made)
    }

    /// The checkpoint that forks are made from: as somebody says, else one of the workspace as it is now.
    fn fork_source(&self, command: &ForkWorkspace) -> Result<SlotMetadata, Error> {
        if let Some(which) = &command.from {
            return self.resolve(which);
        }
        let create = CreateCheckpoint {
            run: command.run,
            ..CreateCheckpoint::for_command("fork", self.maker())
        };
        let made = self.create_now(&create)?;
        let slot = CheckpointRef::Slot(stasis_model::workspace::Slot::new(made.slot));
        if command.run == RunMode::Real || !made.created && made.skipped.is_some() {
            return self.resolve(&slot);
        }
        let mut shown = self.prospective(&create)?;
        (shown.files_count, shown.bytes) = (made.files_count, made.bytes);
        if made.form == SessionForm::Chunked {
            shown.form = SlotForm::Chunked;
        }
        Ok(shown)
    }

    /// What the new forks are called, and where they go.
    fn targets(
        &self,
        command: &ForkWorkspace,
        records: &[ForkRecord],
    ) -> Result<Vec<(ForkName, PathBuf)>, Error> {
        let count = command.count;
        let free_names = |is_free: &dyn Fn(&ForkName) -> bool| {
            let is_taken = |name: &ForkName| is_taken(records, name) || !is_free(name);
            fork_names(command.name.as_ref(), count, is_taken).map_err(WorkspaceError::from)
        };
        let in_their_places = |place: &dyn Fn(&ForkName) -> PathBuf| {
            let is_free = |name: &ForkName| place(name).symlink_metadata().is_err();
            let names = free_names(&is_free)?.into_iter();
            Ok(names.map(|name| (name.clone(), place(&name))).collect())
        };
        let path = match &command.place {
            ForkPlace::Beside => return in_their_places(&|name| self.fork_beside(name)),
            ForkPlace::In(directory) => {
                return in_their_places(&|name| directory.join(name.as_str()));
            }
            ForkPlace::At(path) => path,
        };
        let paths = numbered(path, count);
        // Called as the directory is, if that can be, and nobody says anything else.
        let own = paths.iter().map(|path| {
            let name = path.file_name()?.to_str()?.parse::<ForkName>().ok()?;
            Some(name).filter(|name| !is_taken(records, name))
        });
        let own: Option<Vec<ForkName>> = own.collect();
        let names = match own.filter(|_| command.name.is_none()) {
            Some(own) => own,
            None => free_names(&|_| true)?,
        };
        Ok(names.into_iter().zip(paths).collect())
    }

    /// Where a fork lies if nobody says: in the directory that the workspace lies in, so that what leads from there to other
    /// directories beside it leads there from the fork too.
    fn fork_beside(&self, name: &ForkName) -> PathBuf {
        let (own, session) = (self.directory(), &self.session().path);
        let called = own.file_name().unwrap_or_default().to_string_lossy();
        let above = own.parent().unwrap_or(own);
        let above = match session.parent() {
            // A workspace that lies in its session directory.
            Some(outside) if above.starts_with(session) => outside,
            _ => above,
        };
        above.join(format!("{called}-{name}"))
    }

    /// Refuses more forks than agents may have.
    fn check_fork_count(&self, records: &[ForkRecord], more: usize) -> Result<(), Error> {
        if self.actor() != Actor::Model {
            return Ok(());
        }
        let own = records
            .iter()
            .filter(|one| one.made_by == Maker::Mcp.word());
        let forks: Vec<String> = own.map(|one| one.name.to_string()).collect();
        if forks.len() + more > MOST_AGENT_FORKS {
            let max = MOST_AGENT_FORKS;
            return Err(WorkspaceError::ForksFull { max, forks }.into());
        }
        Ok(())
    }

    /// Refuses forks that would take more than checkpoints and forks may hold together.
    fn check_fork_budget(
        &self,
        records: &[ForkRecord],
        from: &SlotMetadata,
        targets: &[(ForkName, PathBuf)],
    ) -> Result<(), Error> {
        let device = |path: &Path| std::fs::metadata(path).map(|seen| seen.dev()).ok();
        let place = targets.first().and_then(|(_, target)| target.parent());
        let is_shared = from.form != SlotForm::Chunked
            && place.and_then(device) == device(&self.session().path);
        let new = if is_shared { 0 } else { from.bytes };
        let new = new.saturating_mul(targets.len() as u64);
        let mut forks = Vec::new();
        for record in records {
            if let ForkFound::At(path) = record.find() {
                let (contents, _) = self.fork_contents(record, &path)?;
                let bytes = self.own_bytes(record, &path, &contents)?;
                forks.push((record.name.to_string(), bytes));
            }
        }
        let held: u64 = forks.iter().map(|(_, bytes)| bytes).sum();
        let budget = self.session().budget.bytes();
        let needed = |checkpoints: u64| checkpoints.saturating_add(held).saturating_add(new);
        let mut needs = needed(self.pool().held_at_most()?.bytes);
        if needs > budget {
            // What was counted at most may be more than there is.
            needs = needed(self.pool().usage()?.held);
        }
        if needs <= budget {
            return Ok(());
        }
        forks.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        Err(WorkspaceError::ForksOverBudget {
            needs,
            budget,
            forks,
        }
        .into())
    }

    /// What a fork takes of the disk, as far as it is not shared: every file by its length, in whole blocks, but for those that are what
    /// they were in the checkpoint if those share their bytes with it. What is excluded from checkpoints counts too.
    fn own_bytes(
        &self,
        record: &ForkRecord,
        directory: &Path,
        contents: &Manifest,
    ) -> Result<u64, Error> {
        let root = RootDir::open(directory, Mounts::Stay).at(OPEN_DIRECTORY, directory)?;
        let all = walk::list(&root, &WalkSettings::default()).map_err(WorkspaceError::from)?;
        let base = if record.is_shared {
            self.base_of(record)?
        } else {
            Manifest::default()
        };
        let is_shared = |path: &EntryPath| {
            let is = contents.find(path);
            is.is_some_and(|is| base.find(path).is_some_and(|was| was.what == is.what))
        };
        let own = all.0.iter().map(|one| match one.kind {
            EntryKind::File { size } if !is_shared(&one.path) => size.next_multiple_of(BLOCK),
            _ => 0,
        });
        Ok(own.fold(0, u64::saturating_add))
    }

    pub(super) fn forks_now(&self) -> Result<Forks, Error> {
        let records = self.fork_records()?;
        let live = match records.as_slice() {
            [] => Manifest::default(),
            _ => self.live()?.0,
        };
        let kept = self.pool().list()?;
        let mut forks = Vec::with_capacity(records.len());
        for record in &records {
            forks.push(self.fork_row(record, &live, &kept)?);
        }
        Ok(Forks {
            own_bytes: forks.iter().map(|one| one.own_bytes).sum(),
            held_bytes: self.pool().held_at_most()?.bytes,
            budget_bytes: self.session().budget.bytes(),
            forks,
        })
    }

    fn fork_row(
        &self,
        record: &ForkRecord,
        live: &Manifest,
        kept: &[Occupant],
    ) -> Result<ForkRow, Error> {
        let found = record.find();
        let (timestamp, timestamp_ms) = Timestamp::from_millis(record.made_ms).spelled();
        let mut known = kept.iter().filter_map(Occupant::known);
        let mut row = ForkRow {
            name: record.name.to_string(),
            directory: record.directory.display().to_string(),
            status: status(&found),
            checkpoint: record.checkpoint(),
            checkpoint_name: record.checkpoint_name.as_ref().map(ToString::to_string),
            checkpoint_is_kept: known.any(|one| record.is_from(one)),
            timestamp,
            timestamp_ms,
            age: self.fork_age(record),
            made_by: record.made_by.clone(),
            changes: None,
            is_workspace: false,
            own_bytes: 0,
            checkpoints: own_checkpoints(record),
        };
        if let ForkFound::At(path) = &found {
            let (contents, _) = self.fork_contents(record, path)?;
            row.directory = path.display().to_string();
            row.changes = Some(changed(&self.base_of(record)?, &contents));
            row.is_workspace = super::git::is_only_kept_up(&live.diff(&contents));
            row.own_bytes = self.own_bytes(record, path, &contents)?;
        }
        Ok(row)
    }

    pub(super) fn remove_fork_now(&self, command: &RemoveFork) -> Result<RemovedFork, Error> {
        let is_real = command.run == RunMode::Real;
        let _lock = is_real
            .then(|| self.lock_forks("removing a fork"))
            .transpose()?;
        let record = self.fork_record(&command.fork)?;
        let is_own = record.made_by == Maker::Mcp.word();
        if self.actor() == Actor::Model && !is_own {
            return Err(WorkspaceError::ForkNotYours(record.name).into());
        }
        let found = record.find();
        let mut result = self.fork_removal(&record, &found)?;
        result.dry_run = !is_real;
        if !is_real {
            return Ok(result);
        }
        match &command.confirm {
            Some(digest) if *digest != result.digest => {
                return Err(WorkspaceError::PlanChanged.into());
            }
            None if !command.discard => result.ensure_nothing_lost(&record.name)?,
            _ => {}
        }
        match found {
            ForkFound::At(path) => {
                let _used = self.check_unused(&record, &path)?;
                self.remove_all_of(record, &path)?;
            }
            // What lies at its path is somebody else's.
            ForkFound::Gone | ForkFound::Replaced => {
                // It may lie elsewhere by now, or on a disk that is not there: then its checkpoints are all that is left of it here.
                if result.checkpoints == 0 || command.discard {
                    self.forget_session(&record)?;
                }
                self.forget_fork(&record.name)?;
            }
        }
        result.removed = true;
        Ok(result)
    }

    /// What goes with a fork.
    fn fork_removal(&self, record: &ForkRecord, found: &ForkFound) -> Result<RemovedFork, Error> {
        let mut result = RemovedFork {
            removed: false,
            fork: record.name.to_string(),
            directory: record.directory.display().to_string(),
            status: status(found),
            files: 0,
            own_bytes: 0,
            checkpoints: own_checkpoints(record),
            only_here: Vec::new(),
            only_here_count: 0,
            commits_only_here: Some(0),
            excluded: Vec::new(),
            digest: String::new(),
            dry_run: false,
        };
        let mut hash = String::new();
        if let ForkFound::At(path) = found {
            let (contents, report) = self.fork_contents(record, path)?;
            let mut only_here = self.only_in(record, &contents)?;
            // Nobody can tell what it is.
            only_here.extend(report.unreadable().cloned());
            result.directory = path.display().to_string();
            result.files = report.files + report.hard_links + report.symlinks;
            result.own_bytes = self.own_bytes(record, path, &contents)?;
            result.only_here_count = only_here.len() as u64 + report.unlisted();
            let shown = only_here.iter().take(SHOWN).map(ToString::to_string);
            result.only_here = shown.collect();
            result.commits_only_here = self.commits_only_in(path);
            result.excluded = self.excluded_of(path)?;
            hash = contents.hash().to_string();
        }
        let lost = (
            &result.only_here,
            result.only_here_count,
            result.commits_only_here,
            &result.excluded,
            result.checkpoints,
        );
        let digest = format!(
            "remove {} {:?} {hash} {lost:?}",
            record.name, record.identity
        );
        result.digest = StoreDigest::of(digest.as_bytes()).to_string();
        Ok(result)
    }

    /// The files and links of a fork that were made or changed in it, and that neither the workspace nor a checkpoint of it has.
    fn only_in(&self, record: &ForkRecord, contents: &Manifest) -> Result<Vec<EntryPath>, Error> {
        let hash = Some(contents.hash());
        let kept = self.pool().list()?;
        if kept
            .iter()
            .filter_map(Occupant::known)
            .any(|one| one.hash == hash)
        {
            return Ok(Vec::new());
        }
        let (live, _) = self.live()?;
        let changed = self.base_of(record)?.diff(contents).into_iter();
        let is_lost = |path: &EntryPath| {
            let Some(is) = contents.find(path) else {
                return false;
            };
            let is_live = live.find(path).is_some_and(|live| live.what == is.what);
            is.what != ManifestKind::Directory && !is_live
        };
        let paths = changed.filter(|(_, change)| *change != ChangeKind::Metadata);
        // What is in the repository is told by its commits.
        let paths = paths
            .map(|(path, _)| path)
            .filter(|path| !super::git::is_in_commits(path));
        Ok(paths.filter(is_lost).collect())
    }

    /// What is in a fork and in no checkpoint.
    fn excluded_of(&self, directory: &Path) -> Result<Vec<String>, Error> {
        let patterns = self.session().excludes();
        if patterns.is_empty() {
            return Ok(Vec::new());
        }
        let root = RootDir::open(directory, Mounts::Stay).at(OPEN_DIRECTORY, directory)?;
        let found = slots::excluded_in(&root, &EntryPath::root(), &patterns);
        let found = found.map_err(WorkspaceError::from)?;
        let shown = found.iter().take(EXCLUDED_SHOWN);
        Ok(shown.map(ToString::to_string).collect())
    }

    /// Refuses to remove a fork that somebody is at, or that has forks of its own; holds its session as long as what is returned lives.
    fn check_unused(&self, record: &ForkRecord, path: &Path) -> Result<Option<LockFile>, Error> {
        let Ok(fork) = Self::find_now(path, &self.session().host) else {
            return Ok(None);
        };
        if fork.directory() != path {
            // Its session is gone, and it lies in another workspace.
            return Ok(None);
        }
        let name = record.name.clone();
        let known = super::workspaces(&self.session().host.state).into_iter();
        let within = known.filter(|one| {
            let other = Path::new(&one.workspace);
            one.is_there && other != path && other.starts_with(path)
        });
        let forks: Vec<String> = within.map(|one| one.workspace).collect();
        if !forks.is_empty() {
            return Err(WorkspaceError::ForkHasForks { name, forks }.into());
        }
        let inner = fork.fork_records()?;
        if !inner.is_empty() {
            let forks = inner.iter().map(|one| one.name.to_string()).collect();
            return Err(WorkspaceError::ForkHasForks { name, forks }.into());
        }
        if let Some(holder) = fork.watched_by() {
            return Err(WorkspaceError::ForkWatched { name, holder }.into());
        }
        fork.lock("removing it").map(Some)
    }
}

fn is_taken(records: &[ForkRecord], name: &ForkName) -> bool {
    let mut same = records.iter().filter(|one| one.name == *name);
    // The name of one that is gone can be given to another.
    same.any(|one| matches!(one.find(), ForkFound::At(_)))
}

fn status(found: &ForkFound) -> ForkStatus {
    match found {
        ForkFound::At(_) => ForkStatus::Ready,
        ForkFound::Gone => ForkStatus::Gone,
        ForkFound::Replaced => ForkStatus::Replaced,
    }
}

/// How many checkpoints a fork has of its own.
fn own_checkpoints(record: &ForkRecord) -> u64 {
    let slots = record
        .session
        .as_ref()
        .map(|session| session.join(slots::DIRECTORY));
    let slots = slots.and_then(|slots| std::fs::read_dir(slots).ok());
    let slots = slots.into_iter().flatten().flatten();
    let made = slots.filter(|slot| slot.path().join(slots::METADATA).is_file());
    made.count() as u64
}

/// What differs in numbers; the Git repository is one entry.
fn changed(was: &Manifest, is: &Manifest) -> ChangesSummary {
    let (found, _) = super::git::collapsed(differences(was, is));
    summary(found.into_iter().map(|(_, change)| op(change)))
}

/// A path, or several with numbers behind it.
fn numbered(path: &Path, count: u32) -> Vec<PathBuf> {
    if count == 1 {
        return vec![path.to_owned()];
    }
    let numbered = (1..=count).map(|number| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!("-{number}"));
        PathBuf::from(name)
    });
    numbered.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_forks_have_numbers_behind_their_path_and_one_has_none() {
        let path = Path::new("/x/try");
        assert_eq!(numbered(path, 1), [path]);
        assert_eq!(
            numbered(path, 2),
            ["/x/try-1", "/x/try-2"].map(PathBuf::from)
        );
    }
}
