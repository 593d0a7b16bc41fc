//! What checkpoints are good for: their trees, whole or in part, to look at and to put back.

use super::error::{CloneContext, SlotError};
use super::leftovers::PendingTree;
use super::place::VIEW;
use super::restore::{WorkspaceRestore, restore_in_place};
use super::{Manifest, ManifestKind, Pool, WORKSPACE, measure, packed};
use crate::form::chunked::restore::VersionProof;
use crate::fs::fd::reopen_dir;
use crate::fs::root_dir::{Mounts, RootDir};
use crate::fs::staging::Staging;
use crate::tree::clone::{self, CloneReport, CloneSettings, Fallback, Method};
use crate::tree::restore::{KeepIf, Placement, RestoreChanges, RestoreLimits, RestoreOrigin};
use crate::tree::walk::WalkSettings;
use stasis_model::digest::FileDigest;
use stasis_model::failure::AtPath;
use stasis_model::time::Timestamp;
use stasis_model::tree::EntryPath;
use stasis_model::workspace::{SlotForm, SlotMetadata};
use std::collections::HashSet;
use std::path::Path;

/// The tree of a checkpoint, or some of it. What had to be made for it goes when it is dropped.
#[derive(Debug)]
pub struct View {
    tree: RootDir,
    _made: Option<Staging>,
}

impl View {
    /// The tree.
    pub fn tree(&self) -> &RootDir {
        &self.tree
    }
}

/// How a checkpoint is put back.
#[derive(Clone, Copy, Debug)]
pub struct Return<'a> {
    /// Where to.
    pub workspace: &'a Path,
    /// What is there, as the plan knows it.
    pub live: &'a Manifest,
    /// The one entry that is put back; everything if none is named.
    pub only: Option<&'a EntryPath>,
    /// What is put back with that one, in the same directory.
    pub beside: &'a [EntryPath],
    /// What is left as it is.
    pub except: &'a [EntryPath],
    /// When.
    pub at: Timestamp,
    /// Whose the backup is.
    pub label: &'a str,
}

impl Pool {
    /// The tree of a checkpoint; of one in chunks at least the entries that are named and what is in them, all of it if none is.
    pub fn view(&self, of: &SlotMetadata, only: &[EntryPath]) -> Result<View, SlotError> {
        let home = self.home_of(of);
        if of.form == SlotForm::Clone {
            let path = home.join(WORKSPACE);
            let tree = RootDir::open(&path, Mounts::Stay).at("open", &path)?;
            self.still(of)?;
            return Ok(View { tree, _made: None });
        }
        let document = self.document(of)?;
        let contents = self.contents(of)?;
        let there: Vec<EntryPath> = only
            .iter()
            .filter(|path| path.is_root() || contents.find(path).is_some())
            .cloned()
            .collect();
        self.still(of)?;
        let made = Staging::make(self.slots.again()?, VIEW);
        let made = made.at("make a temporary directory in", self.path())?;
        if only.is_empty() || !there.is_empty() {
            let into = reopen_dir(made.root());
            let into = into.at("open a temporary directory in", self.path())?;
            let whole = there.iter().any(EntryPath::is_root);
            packed::unpack(
                &self.chunks,
                &document,
                into,
                if whole { &[] } else { &there },
            )
            .map_err(|error| self.lost_of(of, error))?;
        }
        let tree = reopen_dir(made.root());
        let tree = tree.and_then(|fd| RootDir::new(fd, Mounts::Stay));
        let tree = tree.at("open a temporary directory in", self.path())?;
        Ok(View {
            tree,
            _made: Some(made),
        })
    }

    /// Makes a live workspace what a checkpoint is, in place, or one entry of it; files that are known to be right are left alone.
    pub fn restore_in_place(
        &self,
        of: &SlotMetadata,
        back: Return<'_>,
    ) -> Result<RestoreChanges, SlotError> {
        let contents = self.contents(of)?;
        let known: HashSet<EntryPath> = back
            .live
            .entries()
            .iter()
            .map(|one| one.path.clone())
            .collect();
        let limits = RestoreLimits {
            keep_if: Some(self.keep_if()?),
            known: Some(Box::new(move |path| known.contains(path))),
            left_alone: None,
            looks_into: false,
            except: back.except.to_vec(),
            only: back.only.cloned(),
            beside: back.beside.to_vec(),
            label: back.label.to_owned(),
        };
        let origin = RestoreOrigin {
            at: back.at,
            from: of.slot.to_string(),
        };
        if of.form.is_list() {
            let document = self.document(of)?;
            let is_there = back.only.is_none_or(|only| contents.find(only).is_some());
            let beside = back.beside.iter();
            let beside = beside.filter(|path| contents.find(path).is_some());
            let same = |path: &EntryPath, digest: &FileDigest| {
                let is = back.live.find(path).map(|is| &is.what);
                matches!(is, Some(ManifestKind::File { digest: is, .. }) if is == digest)
            };
            let placing = packed::SlotPlacing {
                versions: VersionProof::Digest,
                progress: self.settings.progress.clone(),
                same: Some(&same),
                beside: beside.cloned().collect(),
                target: back.workspace,
                placement: Placement::InPlace,
                limits,
                origin,
                is_there,
            };
            let placed = packed::place(&self.chunks, &document, placing);
            return placed.map_err(|error| self.lost_of(of, error));
        }
        let view = self.view(of, &[])?;
        let same = |path: &EntryPath| {
            let is = back.live.find(path);
            is.is_some_and(|is| contents.find(path) == Some(is))
        };
        let (files, bytes) = wanted_files(&contents, &back);
        self.settings.progress.expect(files, bytes);
        let settings = WorkspaceRestore {
            limits,
            progress: self.settings.progress.clone(),
            ..WorkspaceRestore::new(origin)
        };
        Ok(restore_in_place(view.tree(), back.workspace, &same, settings)?.changes)
    }

    /// What stays in a workspace although no checkpoint has it: what is excluded from all of them.
    fn keep_if(&self) -> Result<KeepIf, SlotError> {
        let is_excluded = crate::tree::walk::matcher(&self.settings.walk.excludes)?;
        Ok(Box::new(is_excluded))
    }

    /// Says which checkpoint it is that something is lost of, unless it went while it was read: then nothing of it is damaged.
    fn lost_of(&self, of: &SlotMetadata, error: SlotError) -> SlotError {
        match error.in_slot(of.slot) {
            damaged @ SlotError::Damaged { .. } => self.still(of).err().unwrap_or(damaged),
            error => error,
        }
    }

    /// Makes a new directory of what a checkpoint holds. What is cloned is not read: it must have its length.
    pub fn fork(&self, of: &SlotMetadata, target: &Path) -> Result<CloneReport, SlotError> {
        self.fork_proven(of, target, VersionProof::Size)
    }

    /// The same, but everything is read, and must be what it was.
    pub fn materialize(&self, of: &SlotMetadata, target: &Path) -> Result<CloneReport, SlotError> {
        self.fork_proven(of, target, VersionProof::Digest)
    }

    fn fork_proven(
        &self,
        of: &SlotMetadata,
        target: &Path,
        proof: VersionProof,
    ) -> Result<CloneReport, SlotError> {
        let _pending = PendingTree::announce(&self.session, target);
        if of.form.is_list() {
            let document = self.document(of)?;
            let beside = target.parent().unwrap_or(target);
            let is_shared = of.form == SlotForm::Versions
                && measure::is_shared(beside, self.path()).unwrap_or_default();
            let placing = packed::SlotPlacing {
                // What is copied is read anyway.
                versions: if is_shared {
                    proof
                } else {
                    VersionProof::Digest
                },
                progress: self.settings.progress.clone(),
                same: None,
                beside: Vec::new(),
                target,
                placement: Placement::New,
                limits: RestoreLimits::default(),
                origin: RestoreOrigin {
                    at: document.timestamp_ms,
                    from: document.snapshot_id.to_string(),
                },
                is_there: true,
            };
            let placed = packed::place(&self.chunks, &document, placing);
            let _ = placed.map_err(|error| self.lost_of(of, error))?;
            let totals = document.totals;
            let (method, bytes_copied) = if is_shared {
                (Method::Reflink, 0)
            } else {
                (Method::Copy, totals.bytes)
            };
            return Ok(CloneReport {
                method,
                files: totals.files,
                directories: totals.directories,
                bytes: totals.bytes,
                bytes_copied,
                ..CloneReport::default()
            });
        }
        self.still(of)?;
        let progress = self.settings.progress.clone();
        progress.expect(of.files_count, of.bytes);
        let settings = CloneSettings {
            fallback: Fallback::Copy,
            progress: progress.clone(),
            walk: WalkSettings {
                strict: true,
                ..WalkSettings::default()
            },
            ..CloneSettings::default()
        };
        let source = self.home_of(of).join(WORKSPACE);
        let report = clone::clone(&source, target, &settings).of_checkpoint(&source)?;
        // A checkpoint counts every name.
        progress.advance(report.hard_links, 0);
        Ok(report)
    }
}

/// How many files of a checkpoint are put back, each name counted, and their bytes.
fn wanted_files(contents: &Manifest, back: &Return<'_>) -> (u64, u64) {
    let is_wanted = |path: &EntryPath| {
        let named = back.only.into_iter().chain(back.beside);
        back.only.is_none() || named.into_iter().any(|one| path.is_within(one))
    };
    let sizes = contents.entries().iter().filter_map(|one| match one.what {
        ManifestKind::File { size, .. } if is_wanted(&one.path) => Some(size),
        _ => None,
    });
    sizes.fold((0, 0), |(files, bytes), size| {
        (files + 1, bytes.saturating_add(size))
    })
}
