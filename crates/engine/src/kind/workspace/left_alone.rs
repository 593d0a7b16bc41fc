//! What a change of the whole tree leaves alone though nobody asked for that: what it could not bring back, and what it may not touch.
//!
//! | why | what |
//! |---|---|
//! | `unreadable` | it may not be read: nobody could say what an undo brings back |
//! | `not_in_checkpoint` | it could not be read when the checkpoint was made, which says nothing of what it was |
//! | `not_ours` | it, or the directory it is in, belongs to another user, and may not be moved |
//! | `holds_excluded` | a directory that did not exist then, with something in it that is excluded from checkpoints |
//!
//! What stays in a directory that would go, or become something else, keeps that directory with everything in it. What was left alone is
//! named, unless `except` names it. What a checkpoint holds and is excluded from checkpoints by now stays too, as everything that is
//! excluded does; that is counted, and not named one by one.

use super::Workspace;
use super::answers::ExcludedNow;
use super::plan::{ChangeVerb, WorkspacePlan};
use crate::error::{Error, WorkspaceError};
use crate::restore::{LeftAloneEntry, LeftAloneReason};
use stasis_disk::form::chunked::databases::{COMPANIONS, HEADER};
use stasis_disk::form::slots::{self, Manifest, ManifestEntry, ManifestKind};
use stasis_disk::tree::restore::{Permissions, is_part_of};
use stasis_disk::tree::walk::WalkReport;
use stasis_model::tree::EntryPath;
use stasis_model::tree::diff::ChangeKind;
use stasis_model::workspace::SlotMetadata;
use std::collections::BTreeMap;

/// How many of the excluded ones are named.
const NAMED: usize = 10;

/// Something that stays.
struct Stays {
    path: EntryPath,
    why: LeftAloneReason,
    /// Whether there is something, which must not go with the directory that it is in.
    is_live: bool,
}

impl Workspace {
    /// A restore of the whole tree, less what it leaves alone.
    pub(super) fn whole_less<'a>(
        &self,
        from: &'a SlotMetadata,
        asked: &[EntryPath],
    ) -> Result<WorkspacePlan<'a>, Error> {
        let becomes = self.contents(from)?;
        self.whole_change(ChangeVerb::Restore, from, becomes, asked)
    }

    /// A change of the whole tree to what `becomes` says, less what it leaves alone.
    pub(super) fn whole_change<'a>(
        &self,
        verb: ChangeVerb,
        from: &'a SlotMetadata,
        becomes: Manifest,
        asked: &[EntryPath],
    ) -> Result<WorkspacePlan<'a>, Error> {
        let (is, report) = self.live()?;
        if report.unlisted() > 0
            && let Some(path) = report.unreadable().next()
        {
            // So many may not be read that not all of them are known.
            return Err(WorkspaceError::Unreadable(path.clone()).into());
        }
        let plan = WorkspacePlan::new(verb, from, is, becomes);
        let root = self.root()?;
        let whole = asked.iter().map(|path| {
            let is_live = slots::fact(&root, path).is_some();
            plan.kept_with(path, is_live)
        });
        let whole: Vec<EntryPath> = whole.chain(asked.iter().cloned()).collect();
        let plan = self.without_excluded(self.without_idle(plan.without(&whole))?)?;
        let stays = self.stays(&plan, &report)?;
        self.without_others(plan.staying(&stays, &whole))
    }

    /// The same change without what a program has beside a database that it only opened: while that is what it was, and nothing waits to be
    /// written into it, there is no reason to take its WAL and the index of that away under the program.
    fn without_idle<'a>(&self, plan: WorkspacePlan<'a>) -> Result<WorkspacePlan<'a>, Error> {
        let root = self.root()?;
        let beside = |base: &EntryPath, end: &[u8]| {
            EntryPath::parse(&[base.as_bytes(), end].concat()).unwrap_or_default()
        };
        let waits = |tree: &Manifest, base: &EntryPath| {
            let found = tree.find(&beside(base, b"-wal"));
            found.and_then(super::show::size).unwrap_or_default() > 0
        };
        let is_idle = |one: &&ManifestEntry| {
            let bytes = one.path.as_bytes();
            let base = [&b"-wal"[..], b"-shm"]
                .into_iter()
                .find_map(|end| bytes.strip_suffix(end));
            let base = base.and_then(|base| EntryPath::parse(base).ok());
            base.is_some_and(|base| {
                let is = plan.source.is.find(&base);
                plan.source.becomes.find(&one.path).is_none()
                    && is.is_some()
                    && is == plan.source.becomes.find(&base)
                    && !waits(&plan.source.is, &base)
                    && !waits(&plan.source.becomes, &base)
                    && slots::read_file(&root, &base, HEADER.len() as u64)
                        .is_ok_and(|start| start.is_some_and(|start| start == HEADER))
            })
        };
        let idle = plan.source.is.entries().iter().filter(is_idle);
        let idle: Vec<EntryPath> = idle.map(|one| one.path.clone()).collect();
        Ok(plan.without(&idle))
    }

    /// The same change without what is excluded from checkpoints by now.
    fn without_excluded<'a>(&self, plan: WorkspacePlan<'a>) -> Result<WorkspacePlan<'a>, Error> {
        let Some(is_excluded) = self.session().excluded()? else {
            return Ok(plan);
        };
        let is_excluded =
            |one: &&ManifestEntry| is_excluded(&one.path, one.what == ManifestKind::Directory);
        let mut top: Vec<EntryPath> = Vec::new();
        let mut entries = 0;
        for one in plan.source.becomes.entries().iter().filter(is_excluded) {
            entries += 1;
            if !top.last().is_some_and(|last| one.path.is_within(last)) {
                top.push(one.path.clone());
            }
        }
        if top.is_empty() {
            return Ok(plan);
        }
        let paths = top.iter().take(NAMED).map(ToString::to_string).collect();
        let mut plan = plan.without(&top);
        plan.source.excluded_now = Some(ExcludedNow { entries, paths });
        Ok(plan)
    }

    /// What stays of a tree, and why.
    fn stays(&self, plan: &WorkspacePlan<'_>, report: &WalkReport) -> Result<Vec<Stays>, Error> {
        let stays = |why| {
            move |path: EntryPath| Stays {
                path,
                why,
                is_live: true,
            }
        };
        let unreadable = report
            .unreadable()
            .cloned()
            .map(stays(LeftAloneReason::Unreadable));
        let mut all: Vec<Stays> = unreadable.collect();
        let is_unreadable = |path: &EntryPath| report.unreadable().any(|one| one == path);
        let left_out = plan.source.from.left_out.iter();
        let left_out = left_out.filter_map(|shown| shown.parse::<EntryPath>().ok());
        for path in left_out.filter(|path| !is_unreadable(path)) {
            all.push(Stays {
                is_live: plan.source.is.find(&path).is_some(),
                ..stays(LeftAloneReason::NotInCheckpoint)(path)
            });
        }
        if plan.source.from.left_out_count > plan.source.from.left_out.len() as u64 {
            // Nobody can tell what was not there then from what could not be read.
            let added = plan.source.becomes.diff(&plan.source.is).into_iter();
            for (path, _) in added.filter(|(_, change)| *change == ChangeKind::Added) {
                if !all.last().is_some_and(|last| path.is_within(&last.path)) {
                    all.push(stays(LeftAloneReason::NotInCheckpoint)(path));
                }
            }
        }
        let patterns = self.session().kept_out();
        if !patterns.is_empty() {
            let found = slots::excluded_in(&self.root()?, &EntryPath::root(), &patterns);
            let found = found.map_err(WorkspaceError::from)?.into_iter();
            let goes = found.filter(|path| {
                let (above, _) = path.split_last().unwrap_or_default();
                !above.is_root() && !is_directory(&plan.source.becomes, &above)
            });
            all.extend(goes.map(stays(LeftAloneReason::HoldsExcluded)));
        }
        Ok(all)
    }

    /// The same change without what belongs to others and may not be moved.
    fn without_others<'a>(&self, mut plan: WorkspacePlan<'a>) -> Result<WorkspacePlan<'a>, Error> {
        let root = self.root()?;
        let mut permissions = Permissions::new(&root);
        let (mut stay, mut dressed): (Vec<EntryPath>, BTreeMap<EntryPath, ManifestEntry>) =
            Default::default();
        for (path, change) in plan.source.is.diff(&plan.source.becomes) {
            if stay.last().is_some_and(|last| path.is_within(last)) {
                continue;
            }
            let is = plan.source.is.find(&path);
            let stays_directory = is.is_some_and(|one| one.what == ManifestKind::Directory)
                && is_directory(&plan.source.becomes, &path);
            if !stays_directory && !permissions.may_move(&path) {
                stay.push(path);
            } else if stays_directory
                && change == ChangeKind::Metadata
                && !permissions.is_own(&path)
            {
                dressed.extend(is.map(|one| (path, one.clone())));
            }
        }
        if stay.is_empty() && dressed.is_empty() {
            return Ok(plan);
        }
        let others = stay.iter().chain(dressed.keys());
        plan.left_alone.extend(others.map(|path| LeftAloneEntry {
            path: path.to_string(),
            why: LeftAloneReason::NotOurs,
            within: None,
        }));
        let mut becomes = plan.source.becomes.entries().to_vec();
        for one in &mut becomes {
            if let Some(is) = dressed.get(&one.path) {
                one.clone_from(is);
            }
        }
        plan.source.becomes = Manifest::of(becomes);
        Ok(plan.without(&stay))
    }
}

impl WorkspacePlan<'_> {
    /// The same change, with everything left alone that stays, and named unless somebody asked for that.
    fn staying(mut self, stays: &[Stays], asked: &[EntryPath]) -> Self {
        let is_asked = |path: &EntryPath| asked.iter().any(|one| is_part_of(path, one));
        let mut except = Vec::new();
        for one in stays.iter().filter(|one| !is_asked(&one.path)) {
            let whole = self.kept_with(&one.path, one.is_live);
            if is_asked(&whole) {
                continue;
            }
            let within = (whole != one.path).then(|| whole.to_string());
            let why = one.why;
            except.push(whole);
            self.left_alone.push(LeftAloneEntry {
                path: one.path.to_string(),
                why,
                within,
            });
        }
        except.dedup();
        self.without(&except)
    }

    /// What must stay so that an entry does: the database that it belongs to, or the outermost directory that would go or become
    /// something else.
    fn kept_with(&self, path: &EntryPath, is_live: bool) -> EntryPath {
        let mut at = EntryPath::root();
        if is_live {
            let (above, _) = path.split_last().unwrap_or_default();
            for name in above.components() {
                at = at.child(name).expect("it is part of a good path");
                if !is_directory(&self.source.becomes, &at) {
                    return at;
                }
            }
        }
        let bytes = path.as_bytes();
        let database = COMPANIONS.iter().find_map(|end| bytes.strip_suffix(*end));
        let database = database.and_then(|bytes| EntryPath::parse(bytes).ok());
        let is_known = |path: &EntryPath| {
            self.source.becomes.find(path).is_some() || self.source.is.find(path).is_some()
        };
        database.filter(is_known).unwrap_or_else(|| path.clone())
    }
}

fn is_directory(tree: &Manifest, path: &EntryPath) -> bool {
    tree.find(path)
        .is_some_and(|one| one.what == ManifestKind::Directory)
}
