//! Looking into checkpoints: what is in one, and one file of it.

use super::Workspace;
use super::answers::{CheckpointRow, CheckpointUse, CheckpointsUse, ForkMark, GapMark};
use super::forks::{ForkFound, ForkRecord};
use super::show::{kind, size};
use crate::catalog::ListedEntry;
use crate::error::{Error, WorkspaceError};
use crate::result::BrowsedSnapshot;
use crate::tree_patch::PatchTree;
use stasis_disk::form::slots::{
    CheckpointReader, Manifest, ManifestEntry, ManifestKind, SlotError,
};
use stasis_disk::session_db::GapRow;
use stasis_model::time::Timestamp;
use stasis_model::tree::EntryPath;
use stasis_model::workspace::{CheckpointRef, Slot, SlotMetadata};
use std::io::{self, Write};

impl From<&ManifestEntry> for ListedEntry {
    fn from(listed: &ManifestEntry) -> Self {
        let (target, blake3) = match &listed.what {
            ManifestKind::File { digest, .. } => (None, Some(*digest)),
            ManifestKind::Symlink { target } => (Some(target.escape_ascii().to_string()), None),
            ManifestKind::Directory => (None, None),
        };
        Self {
            path: listed.path.to_string(),
            kind: kind(listed),
            mode: listed.mode,
            uid: None,
            gid: None,
            size: size(listed),
            mtime: None,
            target,
            blake3,
        }
    }
}

/// What names a checkpoint and no other one: slots are used again.
fn id_of(one: &SlotMetadata) -> String {
    format!("{}@{}", one.slot, one.epoch_millis)
}

impl Workspace {
    /// The forks that were made of it and are known, the oldest first: without a look at what is in them.
    pub(crate) fn fork_marks(&self) -> Result<Vec<ForkMark>, Error> {
        let all = self.fork_records()?.into_iter();
        let mark = |one: ForkRecord| ForkMark {
            name: one.name.to_string(),
            directory: one.directory.display().to_string(),
            from: one.checkpoint(),
            is_there: matches!(one.find(), ForkFound::At(_)),
            made_ms: one.made_ms,
        };
        Ok(all.map(mark).collect())
    }

    /// The last times that what happened to it was not seen as it happened, the newest first.
    pub(crate) fn gap_marks(&self, most: usize) -> Result<Vec<GapMark>, Error> {
        let all = self.session().db.gaps(most)?.into_iter();
        let mark = |one: GapRow| GapMark {
            why: one.why,
            missed: one.missed,
            seen_ms: one.at_ms,
        };
        Ok(all.map(mark).collect())
    }

    /// Its checkpoints that are lists; one that is the snapshot of a subvolume is a directory already, and is not among them.
    pub(crate) fn browsed_checkpoints(&self) -> Result<Vec<BrowsedSnapshot>, Error> {
        let all = self.newest_first()?.into_iter();
        let lists = all.filter(|one| one.form.is_list());
        let row = |one: SlotMetadata| BrowsedSnapshot {
            id: id_of(&one),
            name: Some(one.slot.to_string()),
            at: Timestamp::from_millis(one.epoch_millis),
            labels: one.name.iter().map(ToString::to_string).collect(),
            pinned: false,
            latest: false,
        };
        Ok(lists.map(row).collect())
    }

    /// One of them, to be read.
    pub(crate) fn checkpoint_reader(&self, id: &str) -> Result<CheckpointReader, Error> {
        let gone = || WorkspaceError::from(SlotError::Document(format!("{id} is gone")));
        let all = self.newest_first()?;
        let one = all.iter().find(|one| id_of(one) == id).ok_or_else(gone)?;
        let reader = self.pool().reader(one).map_err(WorkspaceError::from)?;
        Ok(reader.ok_or_else(gone)?)
    }

    /// One checkpoint, as a list shows it.
    pub async fn row(&self, which: &CheckpointRef) -> Result<CheckpointRow, Error> {
        let which = which.clone();
        self.blocking(move |own| {
            let slot = own.resolve(&which)?.slot;
            let rows = own.list_now(false)?.snapshots.into_iter();
            let found = rows.into_iter().find(|row| row.slot == slot.index());
            Ok(found.ok_or(WorkspaceError::NoCheckpoint(which))?)
        })
        .await
    }

    /// The entries of a checkpoint in `path`, in order.
    pub async fn ls(
        &self,
        which: &CheckpointRef,
        path: &EntryPath,
    ) -> Result<Vec<ListedEntry>, Error> {
        let (which, path) = (which.clone(), path.clone());
        self.blocking(move |own| {
            let of = own.resolve(&which)?;
            let contents = own.contents(&of)?;
            let entries: Vec<_> = contents
                .portion(&path)
                .iter()
                .map(ListedEntry::from)
                .collect();
            if entries.is_empty() && !path.is_root() {
                return Err(not_in(&of, &path));
            }
            Ok(entries)
        })
        .await
    }

    /// The entries of a checkpoint that are wanted.
    pub(crate) async fn entries_that(
        &self,
        which: &CheckpointRef,
        is_wanted: impl Fn(&ListedEntry, &EntryPath) -> bool + Send + 'static,
    ) -> Result<Vec<ListedEntry>, Error> {
        let contents = self.contents_of(which).await?;
        let all = contents.portion(&EntryPath::root()).iter();
        let wanted = all.filter_map(|listed| {
            let entry = ListedEntry::from(listed);
            is_wanted(&entry, &listed.path).then_some(entry)
        });
        Ok(wanted.collect())
    }

    /// Writes the content of one file of a checkpoint; the inner error is that of `out`.
    pub async fn cat(
        &self,
        which: &CheckpointRef,
        path: &EntryPath,
        mut out: impl Write + Send + 'static,
    ) -> Result<io::Result<u64>, Error> {
        let (which, path) = (which.clone(), path.clone());
        self.blocking(move |own| {
            let of = own.resolve(&which)?;
            let copied = own.pool().copy_file(&of, &path, &mut out)?;
            let written = copied.ok_or_else(|| not_in(&of, &path))?;
            Ok(written.and_then(|bytes| out.flush().map(|()| bytes)))
        })
        .await
    }

    /// Everything that a checkpoint has.
    pub(crate) async fn contents_of(&self, which: &CheckpointRef) -> Result<Manifest, Error> {
        let which = which.clone();
        self.blocking(move |own| own.contents(&own.resolve(&which)?))
            .await
    }

    /// What its checkpoints take of this host's disk.
    pub(crate) async fn du(&self) -> Result<CheckpointsUse, Error> {
        let rows = self.list(false).await?.snapshots;
        let used = self.blocking(|own| Ok(own.pool().usage()?)).await?;
        let row = |row: CheckpointRow| {
            let used = used
                .slots
                .iter()
                .find(|one| one.slot == Slot::new(row.slot))?;
            Some(CheckpointUse {
                checkpoint: row.checkpoint,
                name: row.name,
                timestamp: row.timestamp,
                timestamp_ms: row.epoch_millis,
                bytes: row.bytes,
                bytes_held: used.total,
                bytes_freed: used.exclusive,
            })
        };
        Ok(CheckpointsUse {
            items: rows.into_iter().rev().filter_map(row).collect(),
            bytes_held: used.held,
            bytes_of_undos: used.undos,
        })
    }

    /// A checkpoint, to be compared with another tree.
    pub(crate) async fn checkpoint_tree(&self, which: CheckpointRef) -> Result<PatchTree, Error> {
        self.blocking(move |own| own.slot_tree(own.resolve(&which)?))
            .await
    }

    /// Everything that is there now.
    pub(crate) async fn contents_now(&self) -> Result<Manifest, Error> {
        self.blocking(|own| Ok(own.live()?.0)).await
    }
}

fn not_in(of: &SlotMetadata, path: &EntryPath) -> Error {
    let (path, checkpoint) = (path.clone(), of.slot.to_string());
    WorkspaceError::NotInCheckpoint { path, checkpoint }.into()
}
